"""Guard rails: a δ that protects nobody, arguments without effect, tables that could be misread."""

import math
import warnings

import numpy as np
import pytest

import pgbb
from pgbb.errors import PgbbNote
from pgbb.methods.registry import METHODS
from pgbb.methods.request import Request
from pgbb.report import page
from tests.helpers import pgbb_here
from tests.release.builders import generator, generator_release, hidden, local_release

pytestmark = pytest.mark.quick

SCHEMA = pgbb.Schema(y=pgbb.Range(-5, 5), x=pgbb.Range(-1, 1))
MODEL = pgbb.HuberRegression("y ~ x")
DATA = {"y": [1.0] * 50, "x": [0.5] * 50}


def test_delta_from_one_over_n_on_is_refused_unless_it_is_allowed():
    for delta in (1 / 50, 0.5):
        with pytest.raises(pgbb.InvalidValue, match=r"1/n = 0.02.*allow_weak_delta=True"):
            Request(MODEL, None, SCHEMA, 1.0, delta).advise(50)
        Request(MODEL, None, SCHEMA, 1.0, delta, non_private=True).advise(50)
    Request(MODEL, None, SCHEMA, 1.0, 0.0199).advise(50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Request(MODEL, None, SCHEMA, 1.0, 1 / 50, allow_weak_delta=True).advise(50)
    for more in ({"allow_weak_delta": True}, {"insecure_seed": 1}):
        with pytest.warns(pgbb.PgbbWarning, match="whole record"):
            Request(MODEL, None, SCHEMA, 1.0, 0.5, **more).advise(50)


@pytest.mark.parametrize("method", ["calibrated", "noisy_gibbs"])
def test_nothing_is_spent_on_a_weak_delta(method, tmp_path):
    ledger = pgbb.Ledger(tmp_path / "l.db")
    ledger.set("d", n=50, epsilon=5.0, delta=0.5)
    with pytest.raises(pgbb.InvalidValue, match="allow_weak_delta"):
        pgbb.fit(MODEL, DATA, schema=SCHEMA, epsilon=1.0, delta=0.02, method=method, ledger=ledger, dataset="d")
    assert ledger.dataset("d").share == 0


def test_the_command_line_refuses_it_too_and_a_plan_says_so(tmp_path):
    (tmp_path / "d.csv").write_text("y,x\n" + "1,0.5\n" * 50)
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    line = ["fit", "d.csv", "-s", "s.toml", "-f", "y ~ x", "--family", "huber", "-e", "1", "-d", ".02", "-o", "r.pgbb"]
    done = pgbb_here(*line, cwd=tmp_path)
    assert done.returncode == 2 and "--allow-weak-delta" in done.stderr and not (tmp_path / "r.pgbb").exists()
    planned = pgbb_here("plan", "--n", "50", "-e", "1", "-d", ".02", "--terms", "2", cwd=tmp_path)
    assert planned.returncode == 0 and "refuses it without --allow-weak-delta" in planned.stdout


@pytest.mark.parametrize(
    "method, model, word",
    [
        ("calibrated", pgbb.QuantileRegression("y ~ x", bandwidth=0.3), "bandwidth = 0.3"),
        ("calibrated", pgbb.Mean("y", scale=1.0, clip=4.0), "clip = 4.0"),
        ("noisy_gibbs", pgbb.Mean("y", scale=1.0, clip=4.0), "clip = 4.0"),
        ("dp_bootstrap", pgbb.Mean("y", scale=1.0, clip=4.0), "clip = 4.0"),
        ("pgbb", pgbb.QuantileRegression("y ~ x", bandwidth=0.3), None),
        ("sgld", pgbb.Mean("y", scale=1.0, clip=4.0), None),
        ("calibrated", pgbb.QuantileRegression("y ~ x"), None),
    ],
)
def test_an_argument_that_makes_no_difference_is_said(method, model, word):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        METHODS[method].say_ignored(model, model.prepare(SCHEMA).kind)
    assert [str(w.message).partition(" makes")[0] for w in found] == ([] if word is None else [word])
    assert all(w.category is PgbbNote for w in found)


def test_a_box_wide_row_has_no_small_parts_beside_it():
    release = local_release(payload=hidden())
    with pytest.warns(pgbb.PgbbWarning):
        table = release.summary()
    parts = table[["sampling_sd", "privacy_sd", "privacy_share"]]
    assert parts[~table["identified"]].isna().all(axis=None) and not table["identified"].all()
    assert np.isfinite(parts[table["identified"]]).all(axis=None)
    assert "NaN" not in repr(release) + release.to_html() + release.to_latex() and "nan" not in release.to_latex()


def test_remarks_of_the_diagnostics_stand_wherever_the_release_is_shown():
    payload = generator()
    payload.tensors["average/kernel0"] = 30 * payload.tensors["average/kernel0"]
    release = generator_release(payload=payload)
    remarks = release.diagnostics().remarks
    assert any("did not learn the law" in remark for remark in remarks)
    shown = page(release)
    for remark in remarks:
        assert f"note: {remark}" in repr(release) and remark in release._repr_html_().replace("&#x27;", "'")
        assert remark[1:] in shown.replace("&#39;", "'")  # a sentence begins there
    assert "Read this first" in shown and "note:" not in repr(local_release())


@pytest.mark.parametrize("usable, told", [(0.05, True), (0.0, True), (None, False), ("x", False), (7.0, False),
                                          (math.nan, False), ([0.1], False)])  # fmt: skip
def test_that_few_records_count_is_remarked_whatever_a_file_holds_there(usable, told):
    release = local_release()
    release.stored_diagnostics["usable"] = usable
    assert any("records have all cells" in remark for remark in release.diagnostics().remarks) == told
