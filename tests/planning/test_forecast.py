import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pgbb
from pgbb import PgbbWarning, Range, Schema
from pgbb.accountant import Mechanism, noise_scale
from pgbb.accountant.gaussian import gdp_mu
from pgbb.planning import costs
from pgbb.planning.forecast import FAMILIES, Reference, forecast
from pgbb.planning.search import search
from tests.helpers import python

BETA = np.array([1.5, -1.5, 1.0])
LINEAR = Schema(x1=Range(-1, 1), x2=Range(-1, 1), x3=Range(-1, 1), y=Range(-20, 20), z=pgbb.Flag())


def linear(n, seed):
    """The regression of benchmarks/calibration.py with Student errors, and a 0/1 response."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 3))
    error = 0.5 * rng.standard_t(3, n)
    data = pd.DataFrame(x, columns=["x1", "x2", "x3"]).assign(y=x @ BETA + error)
    return data.assign(z=(rng.random(n) < 0.5).astype(int))


def huber_scale():
    """σ_H of those errors, which is the spread of normal errors with the same scale."""
    r = 0.5 * stats.t.ppf((np.arange(200_000) + 0.5) / 200_000, 3)
    low, high = 0.1, 5.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(np.minimum((r / middle) ** 2, 1.345**2)) > 0.71 else (low, middle)
    return low


def measured(model, names, runs, n=10_000, epsilon=1.0, **arguments):
    """Average sampling_sd and privacy_sd of the named coefficients over seeded fits."""
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PgbbWarning)
        for seed in range(runs):
            release = pgbb.fit(
                model, linear(n, seed), schema=LINEAR, epsilon=epsilon, delta=1 / n, method="calibrated",
                insecure_seed=seed,
            )  # fmt: skip
            rows.append(release.summary(draws=100, **arguments).loc[names, ["sampling_sd", "privacy_sd"]].to_numpy())
    return np.mean(rows, axis=(0, 1))


SD = 1 / np.sqrt(3)  # of a covariate that is uniform on [−1, 1]


def test_the_prediction_for_the_linear_regression_is_what_a_fit_reports():
    reference = Reference("huber", terms=3, spread=huber_scale(), reach=9.0)
    width = forecast(10_000, 1.0, 1e-4, reference).widths[0]
    found = measured(pgbb.HuberRegression("y ~ x1 + x2 + x3 - 1", scale=(0.05, 5.0)), ["x1", "x2", "x3"], 12)
    assert np.array([width.sampling, width.privacy]) / SD == pytest.approx(found, rel=0.15)
    wrong = forecast(10_000, 2.0, 1e-4, reference).widths[0]
    assert wrong.privacy / SD != pytest.approx(found[1], rel=0.15)  # at another ε it is not


def test_the_prediction_for_least_squares_is_about_what_a_fit_reports():
    width = forecast(10_000, 1.0, 1e-4, Reference("linear", terms=4, spread=0.5)).widths[0]
    rows = []
    for seed in range(5):
        data = linear(10_000, seed)
        data["y"] = data[["x1", "x2", "x3"]] @ BETA + np.random.default_rng(seed).normal(0, 0.5, 10_000)
        release = pgbb.fit(
            pgbb.LinearRegression("y ~ x1 + x2 + x3"), data, schema=LINEAR, epsilon=1.0, delta=1e-4, insecure_seed=seed
        )
        rows.append(release.summary(draws=100).loc[["x1", "x2", "x3"], ["sampling_sd", "privacy_sd"]].to_numpy())
    found = np.mean(rows, axis=(0, 1))
    assert np.array([width.sampling, width.privacy]) / SD == pytest.approx(found, rel=0.3)
    wrong = forecast(10_000, 4.0, 1e-4, Reference("linear", terms=4, spread=0.5)).widths[0]
    assert wrong.privacy / SD != pytest.approx(found[1], rel=0.3)


def test_the_prediction_for_a_logistic_regression_is_what_a_fit_reports():
    width = forecast(10_000, 1.0, 1e-4, Reference("logistic", terms=4, reach=10.0)).widths[0]
    found = measured(pgbb.LogisticRegression("z ~ x1 + x2 + x3"), ["x1", "x2", "x3"], 8)
    assert np.array([width.sampling, width.privacy]) / SD == pytest.approx(found, rel=0.15)


def test_the_prediction_for_quantiles_is_what_a_fit_reports():
    rng = np.random.default_rng(3)
    n, taus = 10_000, (0.1, 0.5, 0.9)
    result = forecast(n, 1.0, 1e-4, Reference("quantile", terms=4, levels=taus, spread=0.5, reach=10.0))
    found = {tau: [] for tau in taus}
    for seed in range(8):
        x = rng.uniform(-1, 1, (n, 3))
        data = pd.DataFrame(x, columns=["x1", "x2", "x3"]).assign(y=x @ BETA + 0.5 * rng.standard_normal(n))
        release = pgbb.fit(
            pgbb.QuantileRegression("y ~ x1 + x2 + x3", taus=taus), data, schema=LINEAR, epsilon=1.0, delta=1e-4,
            method="calibrated", insecure_seed=seed,
        )  # fmt: skip
        for tau in taus:
            table = release.summary(tau=tau, draws=100).loc[["x1", "x2", "x3"]]
            found[tau].append(table[["sampling_sd", "privacy_sd"]].to_numpy())
    for width in result.widths:
        predicted = np.array([width.sampling, width.privacy]) / SD
        assert predicted == pytest.approx(np.mean(found[width.tau], axis=(0, 1)), rel=0.25)


def test_the_prediction_for_a_mean_is_what_a_fit_reports():
    n, rows = 5_000, []
    for seed in range(6):
        data = pd.DataFrame({"y": np.random.default_rng(seed).normal(1.5, 0.5, n)})
        release = pgbb.fit(
            pgbb.Mean("y", scale=0.5), data, schema=LINEAR, epsilon=1.0, delta=1e-5, method="calibrated",
            insecure_seed=seed,
        )  # fmt: skip
        rows.append(release.summary(draws=100)[["sampling_sd", "privacy_sd"]].to_numpy()[0])
    width = forecast(n, 1.0, 1e-5, Reference("mean", terms=1, spread=0.5)).widths[0]
    assert [width.sampling, width.privacy] == pytest.approx(np.mean(rows, axis=0), rel=0.2)


@pytest.mark.parametrize("family", FAMILIES)
def test_noise_and_stages_are_those_of_the_plan(family):
    result = forecast(4_000, 2.0, 1e-6, Reference(family, terms=5))
    assert result.sigma == pytest.approx(2 / (4_000 * gdp_mu(2.0, 1e-6)), rel=2e-3)
    spent = sum(s.asks * (result.sigma / result.noise(s)) ** 2 for s in result.stages)
    assert spent == pytest.approx(1.0)
    data = result.to_dict()
    assert [s["noise_multiplier"] for s in data["stages"]] == pytest.approx(
        [4_000 * s["noise"] for s in data["stages"]]
    )
    assert len(data["widths"]) == {"quantile": 5, "custom": 0}.get(family, 1)


def test_widths_shrink_with_records_and_budget_as_theory_says():
    reference = Reference("logistic", terms=6, reach=10.0)
    small, large = (forecast(n, 1.0, 1e-6, reference).widths[0] for n in (1_000_000, 4_000_000))
    assert large.sampling == pytest.approx(small.sampling / 2) and large.privacy == pytest.approx(
        small.privacy / 4, rel=1e-3
    )
    strict = forecast(1_000_000, 0.5, 1e-6, reference).widths[0]
    assert strict.sampling == small.sampling and strict.privacy > 1.8 * small.privacy
    assert small.total == pytest.approx(np.hypot(small.sampling, small.privacy)) and 0 < small.share < 1
    assert small.interval == pytest.approx(3.92 * small.total, rel=1e-4)


def test_the_chance_of_identification_grows_with_records_and_falls_with_terms_and_rarity():
    chances = [forecast(n, 1.0, 1e-6, Reference("huber", terms=6)).identified for n in (300, 3_000, 10_000, 300_000)]
    for kind in ("column", "level_of_one_percent"):
        found = [c[kind] for c in chances]
        assert found == sorted(found) and found[0] < 0.5 and found[-1] > 0.99
    assert all(c["level_of_one_percent"] < c["column"] for c in chances[:3])
    assert forecast(300, 1.0, 1e-6, Reference("huber", terms=20)).identified["column"] < chances[0]["column"]
    assert forecast(1_000, 1.0, 1e-6, Reference("mean", terms=1)).identified["column"] == 1.0


def test_known_values_of_normal_theory():
    huber = Reference("huber", spread=2.0).errors()[0][1]
    assert huber == pytest.approx(2.0 / np.sqrt(0.95), rel=2e-3)  # 95 % efficient at c = 1.345
    assert Reference("mean", spread=3.0).errors()[0][1] == 3.0
    assert Reference("logistic", rate=0.1).errors()[0][1] == pytest.approx(1 / 0.3)
    median = Reference("quantile", levels=(0.5,)).errors()[0][1]
    assert np.sqrt(np.pi / 2) < median < 1.15 * np.sqrt(np.pi / 2)  # the curvature is a smoothed one
    assert Reference("huber", terms=3).radius == 4 and Reference("huber", 3, reach=9.0).radius == 3


def test_the_search_weighs_what_is_quick_enough_and_takes_the_least():
    result = forecast(5_000, 1.0, 1e-5, Reference("huber", terms=3))
    found = search(result, time_limit=0.5)
    assert [c.chosen for c in found].count(True) == 1 and found[0].chosen and found[0].method == "calibrated"
    paper = [c for c in found if c.method == "pgbb" and c.effective is not None]
    assert paper and all(c.effective > result.effective for c in paper)
    one = paper[0]
    m = Mechanism(
        n=5_000, blocks=one.blocks, gamma=one.gamma, sampling_rate=one.sampling_rate, steps=one.steps,
        draws_per_step=one.draws_per_step, clip=1.0,
    )  # fmt: skip
    expected = noise_scale(m, 1.0, 1e-5) / one.sampling_rate / np.sqrt(m.answers)
    assert one.effective == pytest.approx(expected, rel=1e-3)
    assert [c.effective is None for c in found] == sorted(c.effective is None for c in found)
    nothing = search(result, time_limit=1e-6)
    assert not any(c.chosen for c in nothing) and all(c.effective is None for c in nothing)


def test_the_cost_model_is_measured_linear_in_n_and_grows_with_all_that_costs():
    known = costs.coefficients()
    assert known["machine"] and 1 < known["worst"] < 3
    assert all(v > 0 for method in ("calibrated", "pgbb") for v in known[method].values())
    base = {"method": "calibrated", "answers": 27, "rows": 10**6, "terms": 6}
    for name, more in (("answers", 54), ("rows", 10**7), ("terms", 12)):
        assert costs.seconds(**base) < costs.seconds(**base | {name: more})
    small, middle, large = (costs.seconds("pgbb", 100, rows, 6) for rows in (10**6, 10**7, 10**8))
    assert large - middle == pytest.approx(10 * (middle - small)) and small > 0
    assert costs.memory(10**7, 14) - costs.memory(0, 14) == 10**7 * (16 * 4 + 1)
    assert costs.load_seconds(2 * 10**6, 3) == pytest.approx(2 * costs.load_seconds(10**6, 3))
    result = forecast(10**6, 1.0, 1e-8, Reference("huber", 6))
    assert result.seconds == costs.seconds("calibrated", result.passes, 10**6, 6)


def test_a_forecast_needs_no_jax():
    code = "import sys, pgbb.planning.forecast as f; f.forecast(1000, 1.0, 1e-6, f.Reference('huber')); assert not JAX"
    code = code.replace("JAX", "{'jax'} & set(sys.modules)")
    assert python(code).returncode == 0


@pytest.mark.parametrize(("family", "terms", "found"), [("means", 10, 0.0281), ("iv", 3, 0.0085)])
def test_groups_and_instruments_are_planned_as_wide_as_fits_have_been(family, terms, found):
    """Widths of fits to 20,000 normal records: ten groups at ε = 1, and an instrument at ε = 4."""
    epsilon = 1.0 if family == "means" else 4.0
    predicted = forecast(20_000, epsilon, 1e-6, Reference(family, terms=terms)).widths[0].total
    assert predicted == pytest.approx(found, rel=0.2)
    assert forecast(80_000, epsilon, 1e-6, Reference(family, terms=terms)).widths[0].total < 0.6 * found
