from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pgbb
from pgbb import Flag, HuberRegression, InvalidValue, Mean, PgbbWarning, Range, Schema, Simulated
from pgbb.methods.noisy_sums import ask
from pgbb.methods.registry import settings_for
from pgbb.methods.repro.intervals import ERRORS, confidence_draws, ends
from pgbb.methods.repro.logistic import Logistic
from pgbb.methods.repro.region import Region
from pgbb.methods.repro.regression import Regression
from pgbb.methods.request import Request
from pgbb.methods.simulators import clamped_sums, simulator_of, solved_means
from pgbb.private.door import Moment

SCHEMA = Schema(y=Range(-2, 4), e=Range(0, 3), b=Flag(), x=Range(-1, 1))
BUDGET = {"schema": SCHEMA, "epsilon": 2.0, "delta": 1e-6, "method": "repro", "insecure_seed": 1}


def frame(n=200, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    return pd.DataFrame(
        {"y": 1 + x + 0.3 * rng.standard_normal(n), "e": rng.exponential(1, n), "b": rng.random(n) < 0.3, "x": x}
    )


NORMAL = Simulated(
    simulator=lambda key, theta: {"y": theta[0] + theta[1] * jax.random.normal(key)},
    statistic=lambda r: jnp.stack([r["y"] - 1, (r["y"] - 1) ** 2 / 3]),
    clip=5.0,
    columns=["y"],
    dim=2,
    box=([-1, 0.1], [3, 2]),
    names=["mu", "sigma"],
)


def asked(model, data):
    """What the records say without noise."""
    request = Request(
        model=model, data=data, schema=SCHEMA, epsilon=1.0, delta=1e-6, insecure_seed=1, non_private=True
    )  # fmt: skip
    return ask(request, "repro")


# Laws ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family, mean", [("gaussian", 3.0), ("exponential", 1.5), ("bernoulli", 0.2)])
def test_a_mean_is_solved_for_under_the_law_that_sums_are_drawn_from(family, mean):
    """θ_r ≤ θ exactly when the sum at θ is at least z: shares of both agree; those of unclamped sums do not."""
    model = Mean("y", family=family, scale=1.0 if family == "gaussian" else None)
    n, bounds, count = 50, (0.0, 1.0) if family == "bernoulli" else (0.0, 4.0), 3000
    rng = np.random.default_rng(0)
    z = float(np.mean(clamped_sums(model, np.full(count, mean), n, *bounds, rng))) - 0.3
    solved = solved_means(model, np.full(count, z), n, bounds, (1e-3, 9.0), rng, safe=False)
    share = np.mean(clamped_sums(model, np.full(count, mean), n, *bounds, rng) >= z)
    error = 4 * np.sqrt(0.5 / count)
    assert np.mean(solved <= mean) == pytest.approx(share, abs=error)
    if family != "bernoulli":  # without the clamp, means would have to be smaller
        wrong = solved_means(model, np.full(count, z), n, bounds, (1e-3, 9.0), rng, safe=True)
        assert np.mean(wrong <= mean) != pytest.approx(share, abs=error)


def test_simulated_sums_of_a_regression_have_the_law_of_records():
    """Given X: Kolmogorov-Smirnov on estimates of records and of simulations; with another σ it fails."""
    rng, n, count = np.random.default_rng(1), 40, 400
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, n)])
    moment, noise, beta = Moment("products", 2, 1.0), 1.0, np.array([0.1, 0.4])

    def released(sigma):
        return moment.of(x, x @ beta + sigma * rng.standard_normal(n)).sum(axis=0) + noise * rng.standard_normal(6)

    truth = np.concatenate([moment.of(x, x @ beta).sum(axis=0)[:3], x.T @ x @ beta, [beta @ x.T @ x @ beta]])
    made = Regression(n, truth, noise, 1, count, rng)  # its one candidate is this design
    for k in (0, 1):
        draws = [Regression(n, released(0.2), noise, 1, 1, rng)._here for _ in range(count)]
        for sigma, right in ((0.2, True), (0.5, False)):
            simulated = made._simulated(beta[None], np.array([sigma]))
            pairs = ([d[0][k] for d in draws], simulated[0][0, :, k]), ([d[2] for d in draws], simulated[2][0])
            values = [stats.ks_2samp(*pair).pvalue for pair in pairs]
            assert (min(values) > 1e-3) == right


def test_a_simulator_clips_and_clamps_as_the_private_sum_does():
    wild = Simulated(
        simulator=lambda key, theta: {"y": theta[0] + 50 * jax.random.normal(key)},
        statistic=lambda r: jnp.stack([r["y"], 1e6 * r["y"]]),
        clip=2.0,
        columns=["y"],
        dim=1,
        box=(-1, 1),
    )
    n = 400
    simulated = simulator_of(wild, SCHEMA, n, 40, np.random.default_rng(0))(np.zeros(1))
    found = asked(wild, {"y": 50 * np.random.default_rng(1).standard_normal(n)}).total
    spread = simulated.std(axis=0)
    assert np.all(np.abs(simulated.mean(axis=0) - found) < 4 * spread + 1e-5)
    assert np.abs(simulated).max() < 2  # a mean of vectors of norm 2


def test_simulated_sums_of_a_logistic_regression_have_the_law_of_records():
    """Covariates normal and clamped: Kolmogorov-Smirnov on estimates; with other coefficients it fails."""
    rng, n, count, noise, theta = np.random.default_rng(1), 80, 400, 2.0, np.array([0.3, 1.5])
    moment = Moment("products", 2, 0.5, unit=0.5)

    def released(noise=noise, n=n):
        x = np.column_stack([np.ones(n), np.clip(0.2 + 0.4 * rng.standard_normal(n), -1, 1)])
        y = rng.random(n) < 1 / (1 + np.exp(-x @ theta))
        return moment.of(x, 2.0 * y - 1).sum(axis=0) + noise * rng.standard_normal(6)

    many = released(0.0, 200_000) * n / 200_000
    made = Logistic(n, many, noise, True, np.full(2, 8.0), 1, count, rng)  # its first candidate has these moments
    draws = [Logistic(n, released(), noise, True, np.full(2, 8.0), 1, 2, rng)._here for _ in range(count)]
    for at, right in ((theta, True), (theta + np.array([0.0, 1.0]), False)):
        values = [stats.ks_2samp([d[k] for d in draws], made.simulated(0, at)[:, k]).pvalue for k in (0, 1)]
        assert (min(values) > 1e-3) == right


# Intervals -----------------------------------------------------------------------------------------------------------


def test_ends_are_never_too_near_and_draws_have_them():
    law = stats.t(4)
    above = ends(lambda v, _: 2 * law.sf(v), 0.0, 0.3, 50.0, ERRORS)
    below = ends(lambda v, _: 2 * law.cdf(v), 0.0, 0.3, -50.0, ERRORS)
    exact = law.isf(np.array(ERRORS) / 2)
    assert np.all(above >= exact) and np.all(above < 1.011 * exact)
    draws = confidence_draws(below, above, 2001)
    for i, error in enumerate(ERRORS):
        found = np.quantile(draws, [error / 2, 1 - error / 2])
        assert found == pytest.approx([below[i], above[i]], rel=0.01)
    assert ends(lambda v, _: 1.0, 0.0, 0.3, 5.0, ERRORS) == pytest.approx(np.full(len(ERRORS), 5.0))


def test_a_bernoulli_interval_without_noise_is_clopper_and_pearsons():
    release = pgbb.fit(Mean("b", family="bernoulli"), frame(80), **BUDGET, non_private=True, replicates=19_999)
    ones = int(frame(80)["b"].sum())
    lower = stats.beta.ppf(0.025, ones, 81 - ones)  # at least so many ones
    assert release.conf_int()["lower"].iloc[0] == pytest.approx(lower, abs=0.004)
    assert release.conf_int()["lower"].iloc[0] != pytest.approx(stats.beta.ppf(0.05, ones, 81 - ones), abs=0.004)


def test_a_logistic_regression_has_intervals_that_hold_the_truth_and_not_everything(tmp_path):
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, 250)
    data = pd.DataFrame({"x": x, "b": rng.random(250) < 1 / (1 + np.exp(-0.3 - 2.0 * x))})
    settings = BUDGET | {"epsilon": 8.0, "replicates": 199, "candidates": 4}
    release = pgbb.fit(pgbb.LogisticRegression("b ~ x"), data, **settings)
    (low, high) = release.conf_int().loc["x"]
    assert low < 2.0 < high and low > 0 and high - low < 4
    assert any("covariates that are normal" in note for note in release.certificate.notes)
    release.save(tmp_path / "r.pgbb")
    assert [p for p in pgbb.load(tmp_path / "r.pgbb").verify().problems if "seed" not in p] == []


def test_too_many_records_to_simulate_are_refused_before_anything_is_asked():
    request = Request(pgbb.LogisticRegression("b ~ x"), "never opened", SCHEMA, 1.0, 1e-6)
    chosen, settings = settings_for("repro", {})
    assert chosen.load().plan(request, settings, 40_000).sigma > 0
    with pytest.raises(InvalidValue, match="too many for method = 'repro'"):
        chosen.load().plan(request, settings, 40_001)


def coverage(model, columns, truth, fits, **changes):
    hits = []
    for seed in range(fits):
        given = BUDGET | {"epsilon": 1.0, "insecure_seed": seed} | changes
        table = pgbb.fit(model, columns(np.random.default_rng(seed)), **given).conf_int()
        lower, upper = table.to_numpy()[: len(truth)].T
        hits.append((lower <= truth) & (truth <= upper))
    return np.mean(hits)


def test_a_clamped_exponential_mean_is_covered_at_a_hundred_records():
    """A third of the values lie beyond the range, and the interval knows; that of a sum without clamp would not."""
    model = Mean("e", family="exponential")

    def columns(rng):
        return {"e": rng.exponential(2.5, 100)}

    found = coverage(model, columns, np.array([2.5]), 60, replicates=199)
    assert found >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 60)
    clamped = [np.clip(columns(np.random.default_rng(s))["e"], 0, 3).mean() for s in range(60)]
    assert np.mean(np.abs(np.array(clamped) - 2.5) < 0.5) < 0.1  # the mean of what is summed is another


def test_a_regression_is_covered_at_three_hundred_records_and_would_not_be_without_the_noise():
    n, beta, moment, noise, row = 300, np.array([0.1, 0.2]), Moment("products", 2, 1.0), 5.0, np.array([0.0, 1.0])
    hits = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        x = np.column_stack([np.ones(n), rng.uniform(-1, 1, n)])
        sums = moment.of(x, x @ beta + 0.1 * rng.standard_normal(n)).sum(axis=0) + noise * rng.standard_normal(6)
        found = []
        for known in (noise, 0.0):
            made = Regression(n, sums, known, 8, 199, rng)
            centre, step = made.estimate(row)
            low, high = (
                ends(made.contrast(row, below), centre, step, limit, [0.05])[0]
                for below, limit in ((True, -9), (False, 9))
            )
            found.append(low <= beta[1] <= high)
        hits.append(found)
    right, wrong = np.mean(hits, axis=0)
    assert right >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 50) > wrong


def test_the_region_of_a_normal_law_is_projected():
    """With the other parameter held at its estimate, an interval is shorter than the projection."""
    rng = np.random.default_rng(0)
    e, noise = rng.standard_normal((200, 100)), rng.standard_normal((200, 2)) * [0.03, 0.09]

    def simulate(theta):
        c = np.clip(theta[0] + theta[1] * e, 0, 3)
        return np.column_stack([c.mean(axis=1), c.var(axis=1)]) + noise

    low, high = np.array([-5, 0.05]), np.array([5.0, 5.0])
    region = Region(simulate(np.ones(2))[0], simulate, low, high, rng)
    share = region.parameter(0)
    wide = ends(share, region.centre[0], 0.1, 5.0, [0.05])[0]
    alone = ends(lambda v, _: region._rank(np.array([v, region.centre[1]]))[0], region.centre[0], 0.1, 5.0, [0.05])[0]
    assert 0.9 < region.best <= 1 and wide >= 0.99 * alone and 1 < wide < 1.8


def test_a_simulator_of_the_users_own_gives_intervals_that_load(tmp_path):
    release = pgbb.fit(NORMAL, frame(80)[["y"]], **BUDGET)
    release.save(tmp_path / "r.pgbb")
    loaded = pgbb.load(tmp_path / "r.pgbb")
    assert [p for p in loaded.verify().problems if "seed" not in p] == []
    table = loaded.summary()
    assert list(table.index) == ["mu", "sigma"]
    assert table.loc["mu", "lower"] < 1 < table.loc["mu", "upper"]
    assert table.loc["sigma", "lower"] < np.sqrt(1 / 3 + 0.09) < table.loc["sigma", "upper"]
    stored = loaded.stored_diagnostics
    assert np.all(np.array(stored["monte_carlo_error"])[0] > 0) and len(stored["statistic"]) == 2
    assert stored["joint_region"]["lower"][0] == pytest.approx(table.loc["mu", "lower"], rel=0.01)


def test_a_release_that_no_parameter_could_have_led_to_is_marked():
    with pytest.warns(PgbbWarning, match="No parameter in the box"):
        release = pgbb.fit(NORMAL, {"y": np.full(100, -2.0)}, **(BUDGET | {"epsilon": 40.0}))
    assert any("No parameter in the box" in note for note in release.certificate.notes)
    assert release.conf_int().loc["mu"].tolist() == pytest.approx([-1, 3], abs=0.01)


# Privacy and manners -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [Mean("y", scale=1.0), HuberRegression("y ~ x"), NORMAL], ids=["mean", "line", "own"])
def test_a_neighbour_moves_what_is_released_by_no_more_than_is_certified(model):
    """Without noise, the statistics of data that differ in one hostile record are within 2C of each other."""
    data, other = frame(60), frame(60)
    other.loc[7, ["y", "x"]] = [1e300, -1e300]
    both = [asked(model, d) for d in (data, other)]
    ((m, _),) = both[0].planned.mechanism.parts(1.0)
    limit = 2 * m.clip * (NORMAL.clip / 60 if model is NORMAL else 1)
    moved = np.linalg.norm(both[0].total - both[1].total)
    assert 0 < moved <= limit
    assert moved > 0.2 * limit  # a certificate of a fifth of it would be false


@pytest.mark.parametrize(
    "model, changes, said",
    [
        (Mean("y", scale=1.0), {"replicates": 20}, "replicates"),
        (HuberRegression("y ~ x"), {"replicates": 200}, "80 for each parameter"),
        (Mean("y", scale=1.0), {"response_bound": 3.0}, "narrower Range"),
        (HuberRegression("y ~ x"), {"weights": "e"}, "counts every record once"),
        (pgbb.QuantileRegression("y ~ x"), {}, "does not serve quantile"),
        (Mean("e", family="bernoulli"), {}, "Declare it as a Flag"),
    ],
)
def test_what_is_not_served_is_refused_before_anything_is_read(model, changes, said):
    with pytest.raises(InvalidValue, match=said):
        pgbb.fit(model, "no such file.csv", **(BUDGET | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"simulator": lambda key, theta: {"y": jnp.log(theta[0])}},
        {"simulator": lambda key, theta: {"y": jnp.where(jnp.abs(theta[0] - 0.3) < 0.02, jnp.nan, theta[0])}},
        {"simulator": lambda key, theta: {"z": theta[0]}},
        {"simulator": lambda key, theta: {"y": theta}},
        {"statistic": lambda r: r["y"] / 0.0},
        {"statistic": lambda r: np.asarray(r["y"])},
    ],
    ids=[
        "not finite",
        "not finite in a part of the box",
        "no such column",
        "no scalar",
        "no finite statistic",
        "not of JAX",
    ],
)
def test_a_simulator_that_is_not_finite_is_refused_before_anything_is_read(changes):
    with pytest.raises(InvalidValue, match="simulator"):
        pgbb.fit(replace(NORMAL, **changes), "no such file.csv", **BUDGET)


@pytest.mark.parametrize("seed", [3, 33])
def test_the_search_for_the_centre_leaves_the_end_of_a_box_that_is_a_hundred_times_too_wide(seed):
    rng, n, count = np.random.default_rng(seed), 100, 200

    def statistic(mean, records, noise):
        return (np.minimum(mean * records, 100).mean(axis=1) + noise)[:, None]

    total = statistic(10.0, rng.standard_exponential((1, n)), rng.laplace(size=1))[0]
    records, noise = rng.standard_exponential((count, n)), rng.laplace(size=count)
    low, high = np.array([1e-4]), np.array([1000.0])
    region = Region(total, lambda theta: statistic(theta[0], records, noise), low, high, rng)
    assert region.best > 0.9
    assert 5 < region.centre[0] < 15
