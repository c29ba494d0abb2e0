import json
from dataclasses import asdict

import jsonschema
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pgbb
from pgbb import PgbbError
from pgbb.accountant import Mechanism, epsilon
from pgbb.cli import app
from pgbb.cli.output import schema
from pgbb.methods.registry import METHODS, settings_for
from pgbb.methods.request import Request
from pgbb.planning import costs, noise
from pgbb.planning.forecast import Reference, forecast
from pgbb.planning.noise import forecast_noise
from tests.helpers import pgbb_here

BUDGET = ["--n", "10000", "--epsilon", "1", "--delta", "1e-4"]
PLAN = ["--method", "pgbb", *BUDGET, "--steps", "500", "--intervals", "printed"]


@pytest.fixture(autouse=True)
def short_curve(monkeypatch):
    """Two points of δ(ε), each of which is an exact bound, in place of seven."""
    monkeypatch.setattr(noise, "_CURVE", (0.5, 1.0))


def run(*arguments):
    return pgbb_here("plan", *arguments)


def test_plan_prints_every_part_and_opens_no_data():
    done = run(*PLAN, "--dim", "4", "--clip", "2.386")
    assert done.returncode == 0, done.stderr
    for part in (
        "noise σ",
        "γ*",
        "exact",
        "paper",
        "worst-case",
        "Theorem 2.1",
        "√κ",
        "Theorem 3.1",
        "δ⋆",
        "adjacency",
    ):
        assert part in done.stdout
    assert "Traceback" not in done.stderr


def test_a_plan_counts_the_coefficients_of_a_formula_under_a_schema(tmp_path):
    file = tmp_path / "s.toml"
    declared = pgbb.Schema(y=pgbb.Range(0, 9), x=pgbb.Range(0, 1), g=pgbb.Levels("a", "b", "c"))
    file.write_text(declared.to_toml())
    own = ["--schema", str(file), "--formula", "y ~ x + g"]
    told = invoke(*BUDGET, *own, "--json").stdout
    assert told == invoke(*BUDGET, "--terms", "4", "--json").stdout != invoke(*BUDGET, "--terms", "3", "--json").stdout
    for wrong, word in ((own[:2], "--formula"), (own[2:], "--schema"), ([*own, "--terms", "4"], "--terms")):
        with pytest.raises(PgbbError, match=word):
            invoke(*BUDGET, *wrong)
    with pytest.raises(PgbbError, match="not declared"):
        invoke(*BUDGET, *own[:2], "--formula", "y ~ z")


def test_a_plan_of_the_papers_experiment_has_its_constants_and_refuses_others():
    printed = ["--method", "pgbb", *BUDGET, "--settings", "printed", "--family", "huber", "--json"]
    shown = json.loads(invoke(*printed, "--accountant", "paper").stdout)["mechanism"]
    assert [shown[k] for k in ("blocks", "steps", "draws_per_step", "sampling_rate")] == [20, 10_000, 1, 0.1]
    for more, word in (([], "accountant"), (["--accountant", "paper", "-q", ".2"], "sampling_rate")):
        with pytest.raises(PgbbError, match=word):
            invoke(*printed, *more)
    with pytest.raises(PgbbError, match="says nothing"):
        invoke("--method", "pgbb", *BUDGET, "--family", "huber")


def test_plan_json_holds_the_numbers_that_the_library_gives():
    done = run(*PLAN, "--json")
    data = json.loads(done.stdout)
    m = Mechanism(n=10_000, blocks=5, sampling_rate=0.1, steps=500, draws_per_step=4, clip=1.0)
    assert data["epsilon_by_accountant"]["exact"] == pytest.approx(epsilon(m, data["sigma"], 1e-4), rel=1e-9)
    assert data["epsilon_by_accountant"]["exact"] <= 1.0
    assert data["sigma"] < data["sigma_by_accountant"]["paper"] < data["sigma_by_accountant"]["worst-case"]
    assert data["ratio_to_worst_case"] == pytest.approx(data["sigma"] / data["sigma_by_accountant"]["worst-case"])
    at_goal = next(row for row in data["curve"] if row["epsilon"] == 1.0)
    assert at_goal["delta_exact"] == pytest.approx(1e-4, rel=0.02)
    assert at_goal["delta_exact"] < at_goal["delta_paper"]
    assert len(data["leading_order"]["conditions"]) == 4


@pytest.mark.parametrize("given", [{}, {"blocks": 20, "draws_per_step": 1}, {"intervals": "printed"}])
def test_a_plan_of_pgbb_describes_what_a_fit_asks(given):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"y": rng.normal(size=2_000)})
    request = Request(pgbb.Mean("y", scale=1.0, clip=1.0), data, pgbb.Schema(y=pgbb.Range(-5, 5)), 1.0, 1e-5)
    chosen, settings = settings_for("pgbb", given)
    planned = chosen.load().plan(request, settings, len(data))
    options = [part for name, value in given.items() for part in ("--" + name.replace("_", "-"), str(value))]
    budget = ["--n", "2000", "--epsilon", "1", "--delta", "1e-5", "--clip", "1"]
    shown = json.loads(invoke("--method", "pgbb", *budget, *options, "--json").stdout)
    parts = planned.mechanism.parts(planned.sigma) if "intervals" not in given else [(planned.mechanism, planned.sigma)]
    first = parts[0][0]
    assert {name: shown["mechanism"][name] for name in asdict(first)} == asdict(first)
    assert [(b["answers"], b["noise"]) for b in shown["beside"]] == [(m.answers, each) for m, each in parts[1:]]
    assert len(parts) == (1 if "intervals" in given else 2) and shown["sigma"] == planned.sigma


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("calibrated", "pgbb")])
def test_every_other_method_is_planned_as_a_fit_asks(method):
    """The plan of the command is that of the method for the same model, and follows the schema of the output."""
    constant = {"sgld": "steps=50", "dp_mcmc": "steps=100"}.get(method)
    extra = [] if constant is None else ["--set", constant]
    arguments = ["--method", method, *BUDGET, "--family", "mean", "--half", "4", *extra]
    shown = json.loads(invoke(*arguments, "--json").stdout)
    chosen, settings = settings_for(method, {} if constant is None else {"steps": int(constant[6:])})
    model, declared = pgbb.Mean("y", scale=1.0), pgbb.Schema(y=pgbb.Range(-4, 4))
    planned = chosen.load().plan(Request(model, "never opened", declared, 1.0, 1e-4), settings, 10_000)
    found = [(q["answers"], q["noise"]) for q in shown["questions"]]
    assert found == [(m.answers, each) for m, each in planned.mechanism.parts(planned.sigma)]
    jsonschema.validate(shown, schema("plan"), cls=jsonschema.Draft202012Validator)
    text = invoke(*arguments).stdout
    assert METHODS[method].asks.split()[0] in text and "no data was opened" in text


def test_plan_draws_the_four_panels(tmp_path):
    target = tmp_path / "budget.png"
    done = run(*PLAN, "--plot", str(target))
    assert done.returncode == 0, done.stderr
    assert target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and target.stat().st_size > 20_000


def test_plan_at_full_batches_leaves_out_what_the_paper_does_not_cover():
    result = forecast_noise(Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=10, clip=1.0), 1.0, 1e-5).to_dict()
    assert result["epsilon_by_accountant"]["paper"] is None
    assert result["epsilon_by_accountant"]["exact"] <= 1.0


def invoke(*arguments):
    """The command in this process: quicker, and an error is an exception."""
    return CliRunner().invoke(app, ["plan", *arguments], catch_exceptions=False)


def test_the_default_method_prints_its_stages_and_the_widths_to_expect():
    done = invoke(*BUDGET, "--terms", "4", "--spread", ".6", "--levels", ".25,.5")
    assert done.exit_code == 0
    for part in ("noise σ", "moments", "curvature", "final", "share", "passes", "sampling sd", "privacy sd", "0.25"):
        assert part in done.stdout
    assert "weak" in done.stdout and "adjacency" in done.stdout


def test_json_of_the_default_method_holds_the_numbers_that_the_library_gives():
    data = json.loads(invoke(*BUDGET, "--family", "huber", "--terms", "3", "--json").stdout)
    result = forecast(10_000, 1.0, 1e-4, Reference("huber", 3))
    assert data == json.loads(json.dumps(result.to_dict()))
    assert data["passes"] == sum(s["asks"] for s in data["stages"]) == result.passes
    assert "candidates" not in data


@pytest.mark.parametrize("extra", [[], ["--method", "pgbb", "--dim", "4"]])
def test_time_and_memory_are_shown_with_where_they_were_measured(extra):
    text = " ".join(invoke(*BUDGET, *extra).stdout.split())
    for part in ("to read them from Parquet", "to compile", "GiB of memory", "measured on two cores"):
        assert part in text
    assert f"right to a factor of {costs.coefficients()['worst']:.2g}" in text


def test_optimise_marks_the_least_noise_within_the_time_limit():
    data = json.loads(invoke(*BUDGET, "--family", "mean", "--time-limit", ".6", "--json").stdout)
    rows = data["candidates"]
    assert [r["chosen"] for r in rows] == [True] + [False] * (len(rows) - 1)
    weighed = [r for r in rows if r["effective"] is not None]
    assert {r["method"] for r in weighed} == {"calibrated", "pgbb"} and len(weighed) < len(rows)
    assert all(r["seconds"] <= 0.6 for r in weighed)
    assert all(r["seconds"] > 0.6 for r in rows if r["effective"] is None)


@pytest.mark.parametrize(
    "arguments, word",
    [
        ([*PLAN, "--terms", "4"], "--method calibrated"),
        ([*BUDGET, "--sampling-rate", ".5"], "--method pgbb"),
        ([*BUDGET, "--method", "probit"], "--method"),
        ([*BUDGET, "--method", "sgld", "--reach", "4"], "--method calibrated"),
        ([*BUDGET, "--set", "steps=4"], "--set"),
        ([*BUDGET, "--method", "abc", "--family", "quantile"], "does not serve quantile"),
        ([*BUDGET, "--method", "sgld", "--family", "custom"], "custom"),
        ([*BUDGET, "--method", "sgld", "--set", "stops=4"], "stops"),
        ([*BUDGET, "--method", "sgld", "--set", "steps"], "--set"),
        ([*BUDGET, "--family", "probit"], "family"),
        ([*BUDGET, "--levels", ".5,1.5"], "levels"),
        ([*BUDGET, "--levels", "half"], "--levels"),
        ([*BUDGET, "--family", "mean", "--levels", ".5"], "--family quantile"),
        ([*BUDGET, "--family", "mean", "--terms", "3"], "--terms"),
        ([*BUDGET, "--family", "linear", "--rate", ".5"], "--family logistic"),
        ([*BUDGET, "--method", "sgld", "--family", "mean", "--levels", ".5"], "--family quantile"),
        ([*BUDGET, "--spread", "0"], "spread"),
        ([*BUDGET, "--terms", "0"], "terms"),
        ([*BUDGET, "--time-limit", "-1"], "time_limit"),
        ([*BUDGET, "--accountant", "best"], "accountant"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(arguments, word):
    with pytest.raises(PgbbError, match=word):
        invoke(*arguments)


@pytest.mark.parametrize(
    "arguments, field",
    [
        (["--method", "pgbb", "--n", "10", "--epsilon", "1", "--delta", "1e-4", "--blocks", "11"], "blocks"),
        (["--n", "10000", "--epsilon", "0", "--delta", "1e-4"], "epsilon"),
        (["--n", "10000", "--epsilon", "nan", "--delta", "1e-4"], "epsilon"),
        (["--n", "10000", "--epsilon", "1", "--delta", "1"], "delta"),
        ([*PLAN, "--gamma", "-1"], "gamma"),
        ([*PLAN, "--accountant", "best"], "accountant"),
        ([*PLAN, "--plot", "budget.xyz"], "figure"),
    ],
)
def test_a_mistake_gets_one_paragraph_and_exit_code_two(arguments, field, tmp_path):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and field in done.stderr
    assert "Traceback" not in done.stderr
