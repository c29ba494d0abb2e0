import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

import pgbb
from pgbb.accountant import Resampling, noise_scale
from pgbb.errors import PgbbNote
from pgbb.methods.registry import METHODS, OLDER_NAMES, method_called, settings_for
from pgbb.methods.request import Request

DOCS = Path(__file__).parents[2] / "docs" / "methods.md"


def test_an_older_name_is_understood_with_a_note_that_has_the_present_one():
    with pytest.warns(PgbbNote, match=r"method = 'paper' is called 'pgbb'"):
        assert method_called("paper") is METHODS["pgbb"]
    with pytest.warns(PgbbNote, match="'pgbb'"):
        chosen, settings = settings_for("paper", {"steps": 7})
    assert chosen.name == "pgbb" and settings.steps == 7
    assert not set(OLDER_NAMES) & set(METHODS)


@pytest.mark.parametrize("name", ["Paper", "", None, 3, ["pgbb"]])
def test_another_name_is_refused_and_the_present_ones_are_listed(name):
    with pytest.raises(pgbb.InvalidValue, match="'calibrated', 'pgbb', 'sgld'"):
        method_called(name)


def tables():
    """The settings of each method in the docs: its name, the setting, and what stands as its default."""
    for section in DOCS.read_text().split("\n## ")[1:]:
        method = re.match(r'`method="(\w+)"`', section)[1]
        for names, default in re.findall(r"^\| (`.*?`) \| (.*?) \|", section, re.MULTILINE):
            yield method, re.findall(r"`(\w+)`", names), default


def test_the_docs_name_settings_that_exist_with_their_defaults():
    seen = set()
    for method, names, default in tables():
        known = {f.name: f.default for f in fields(METHODS[method].load().Settings)}
        if method == "pgbb":
            rule = METHODS[method].load().Settings()
            asked = rule.describe(10_000, 1.0, None, 4)
            known |= {"steps": asked.steps, "draws_per_step": asked.draws_per_step, "learning_rate": rule.rate}
        assert set(names) <= set(known), (method, names)
        number = re.fullmatch(r"\.?\d[\d,]*(\.\d+)?", default)
        if len(names) == 1 and number:
            assert float(default.replace(",", "")) == known[names[0]], (method, names)
            seen.add((method, names[0]))
    assert {("pgbb", "steps"), ("pgbb", "draws_per_step"), ("sgld", "steps"), ("dp_bootstrap", "replicates")} <= seen


def test_the_rules_of_the_printed_method_are_those_of_the_docs():
    rule = METHODS["pgbb"].load().Settings()
    for n, blocks, rate in ((50, 1, 1.0), (500, 5, 1.0), (10_000, 5, 0.1), (10**6, 5, 0.01)):
        found = rule.describe(n, 1.0, (1.0, 1e-6), 4)
        assert (found.blocks, found.sampling_rate, found.steps) == (blocks, rate, 5_000)
    assert rule.describe(10_000, 1.0, (1.0, 1e-6), 200).steps == 10_250  # 200 answers a number: 205 numbers, K = 4


def test_the_default_rate_keeps_the_noise_above_twice_what_a_record_can_add():
    rule = METHODS["pgbb"].load().Settings()
    found = {e: rule.describe(10**6, 1.0, (e, 1e-6), 4) for e in (1.0, 8.0)}
    assert found[1.0].sampling_rate == 0.01 < found[8.0].sampling_rate
    sigma = noise_scale(found[8.0], 8.0, 1e-6)
    assert 1 / found[8.0].signal(sigma) == pytest.approx(2.0, rel=0.05)


@pytest.mark.evidence
def test_a_smaller_rate_than_the_default_would_cost_noise():
    asked = METHODS["pgbb"].load().Settings().describe(10**6, 1.0, (8.0, 1e-6), 4)
    few = replace(asked, sampling_rate=0.01)
    relative = [noise_scale(m, 8.0, 1e-6) / m.sampling_rate for m in (few, asked)]
    assert relative[0] > 1.08 * relative[1]


# The paper's table ---------------------------------------------------------------------------------------------------

SCHEMA = pgbb.Schema(y=pgbb.Range(-4, 4), x=pgbb.Range(-1, 1))
MODELS = {"huber": pgbb.HuberRegression("y ~ x"), "mean": pgbb.Mean("y", scale=1.0)}
MORE_DRAWS = {
    "sgld": "steps",
    "noisy_gibbs": "iterations",
    "dp_bootstrap": "replicates",
    "posterior_sampling": "draws",
    "dp_mcmc": "steps",
    "augmented": "iterations",
    "abc": "proposals",
    "repro": "draws",
}
"""The setting by which a release holds more draws; the other methods give as many as one likes."""


def planned(method, model, n=1000, **settings):
    chosen, constants = settings_for(method, settings)
    request = Request(model=model, data="never opened", schema=SCHEMA, epsilon=1.0, delta=1e-6)
    return chosen.load().plan(request, constants, n)


@pytest.mark.parametrize("name", MORE_DRAWS)
def test_more_draws_cost_what_the_table_says(name):
    method, model = METHODS[name], MODELS["huber"]
    once, twice = (planned(name, model, **{MORE_DRAWS[name]: many}) for many in (1001, 2002))
    assert (once == twice) == (method.columns["budget_free_draws"] == "yes")


@pytest.mark.parametrize("name", [m for m, method in METHODS.items() if "quantile" in method.serves])
def test_another_level_costs_what_the_table_says(name):
    few = {"intervals": "printed"} if name == "pgbb" else {}  # noise-aware ones ask the same answers about all levels
    one, two = (planned(name, pgbb.QuantileRegression("y ~ x", taus=t), **few).mechanism for t in ([0.5], [0.4, 0.5]))
    if isinstance(one, Resampling):
        cost = two.replicates > one.replicates
    else:
        cost = sum(m.answers for m, _ in two.parts(1.0)) > sum(m.answers for m, _ in one.parts(1.0))
    assert (not cost) == (METHODS[name].columns["multiple_rules"] == "yes")


@pytest.mark.parametrize("name", METHODS)
def test_a_temperature_is_a_setting_of_its_method(name):
    method = METHODS[name]
    known = {f.name for f in fields(method.load().Settings)}
    assert {s for s in (method.temperature, MORE_DRAWS.get(name)) if s is not None} <= known
    assert (method.columns["scaling_free"] == "yes") == (not known & {"tempering"})


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_needs_a_likelihood_serves_no_custom_loss(name):
    method = METHODS[name]
    assert method.needs == "loss" or "custom" not in method.serves
    assert (method.needs == "simulator") == ("simulated" in method.serves)
