"""The short version of every study, from run to table; those on real data where PGBB_DATA names its folder."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pgbb.errors import InvalidValue
from reproduction import registry, runner, store
from reproduction.report import markdown as report
from reproduction.report import page
from reproduction.simulate import BETA, linear_frame, process_frame
from tests.reproduction import short_figures

DATA = os.environ.get("PGBB_DATA")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


def ran(name, root):
    study = registry.get(name)
    missing = [f for f in study.data if DATA is None or not (Path(DATA) / f).is_file()]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: set PGBB_DATA to the folder that holds them")
    runner.run(name, quick=True, out=root)
    results = store.load_all(root / "quick", name)
    assert list(results) == sorted(study.quick.cells())
    return study.tables(results, lambda other: store.load_all(root / "quick", other)), results


def values(tables, measure, **where):
    lines = [x for t in tables for x in t.lines if x.measure == measure]
    return [x for x in lines if all(x.where.get(k) == v for k, v in where.items())]


LONG = ("ablation", "alpha", "births")
"""With `make evidence`: other studies of the same methods are short."""


def marked(names):
    return [pytest.param(n, marks=pytest.mark.evidence) if n in LONG else n for n in names]


OWN = [n for n in registry.NAMES if n not in ("budget", "blocking") and not registry.get(n).judges]


@pytest.mark.parametrize("name", marked(OWN))
def test_the_short_version_runs_and_is_tabulated(name, root):
    tables, _ = ran(name, root)
    text = "".join(report.table_markdown(t) for t in tables)
    assert text.count("|") > 20 and "nan" not in text
    numbers = [x.ours for t in tables for x in t.lines]
    assert np.isfinite(numbers).all()


@pytest.mark.parametrize("name", marked(n for n in registry.NAMES if not registry.get(n).judges))
def test_figures_move_only_with_a_revision(name, root):
    _, results = ran(name, root)
    assert short_figures.moved(registry.get(name), results) == []


def test_a_figure_that_moves_is_noticed_and_so_is_a_revision_that_does(root):
    _, results = ran("comparison", root)
    study = registry.get("comparison")
    (outcome,) = results.values()
    rows = outcome.rows.assign(scaling_free=1 - outcome.rows["scaling_free"])
    (message,) = short_figures.moved(study, {"methods": replace(outcome, rows=rows)})
    assert "methods: scaling_free" in message and "revision" in message
    (message,) = short_figures.moved(replace(study, revision=3), results)
    assert "python -m tests.reproduction.short_figures" in message


def test_chains_of_other_studies_are_judged_by_their_effective_sizes(root):
    ran("families", root)
    (table,) = registry.get("ess").tables({}, lambda other: store.load_all(root / "quick", other))
    found = {line.where["method"]: line.ours for line in table.lines if line.where["data"] == "gaussian"}
    assert 1 < found["sgld"] < 1_000 and 500 < found["noisy_gibbs"] <= 2_000
    with pytest.raises(InvalidValue, match="families and linear"):
        runner.run("ess", out=root)


def test_privacy_curves_are_monotone_in_all_four_panels(root):
    tables, _ = ran("budget", root)
    assert [x.verdict for x in values(tables, "curves")] == ["met"] * 4


def test_a_curve_that_turns_is_not_monotone(root):
    _, results = ran("budget", root)
    rows = results["n"].rows.copy()
    rows.loc[rows["value"] == rows["value"].max(), "delta"] = 1.0
    turned = registry.get("budget").tables({"n": replace(results["n"], rows=rows)}, lambda _: {})
    assert [x.verdict for x in values(turned, "curves")] == ["not met"]


def test_blocking_has_the_rate_of_the_theorem_and_gamma_star_the_variance(root):
    tables, _ = ran("blocking", root)
    (slope,) = values(tables, "slope of W₁", arm="S = 20", γ="γ*")
    assert slope.verdict == "met" and abs(slope.ours + 0.5) < 0.1
    star = [x.ours for x in values(tables, "variance ratio", arm="S = 20", γ="γ*")]
    one = [x.ours for x in values(tables, "variance ratio", arm="S = 20", γ="1")]
    assert max(abs(v - 1) for v in star) < 0.12 and np.mean(one) < np.mean(star) - 0.05


def test_the_report_holds_every_study_that_was_run(root):
    for name in registry.NAMES:
        if not registry.get(name).judges and not registry.get(name).data and name not in LONG:
            ran(name, root)
    found = report.sections(root / "quick")
    assert {"budget", "blocking", "linear", "comparison"} <= {s.study.name for s in found}
    assert not any(section.old for section in found)
    text = report.markdown(found)
    assert "verdicts mean nothing" in text and "| budget | Figure 1 |" in text
    html = page.page(found, lambda name: store.load_all(root / "quick", name))
    assert html.count("data:image/png;base64,") >= 5 and "Figure 3b" in html
    assert "http" not in html.replace("base64", "")


def test_simulated_data_have_the_truth_they_claim():
    frame = linear_frame("student_t", 20_000, 3)
    x = frame[["x1", "x2", "x3"]].to_numpy()
    assert np.abs(np.linalg.lstsq(x, frame["y"], rcond=None)[0] - BETA).max() < 0.05
    wages, truth = process_frame(40_000, 3)
    design = np.column_stack([np.ones(len(wages)), wages[["educ", "exper", "black"]]])
    below = [(wages["logwk"] <= design @ row).mean() for row in truth]
    assert below == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9], abs=0.01)
