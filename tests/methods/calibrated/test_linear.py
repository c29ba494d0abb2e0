"""Linear regression by the default method: its target, what the clip takes off, and coverage with a twin that fails."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb._numerics.compiled import squared
from pgbb.methods.calibrated import frame as near
from pgbb.methods.calibrated import statistics
from pgbb.methods.calibrated.pareto import Tail
from pgbb.methods.calibrated.score_clip import NOTHING, PART, Tails, bound_for

SCHEMA = pgbb.Schema(x=pgbb.Range(0, 40), g=pgbb.Flag(), y=pgbb.Range(-50, 150))
MODEL = pgbb.LinearRegression("y ~ x + g")


def frame(n, seed, errors="normal", bend=0.0):
    """A skewed covariate; with a bend the line is not the mean of the response."""
    rng = np.random.default_rng(seed)
    x, g = np.clip(rng.lognormal(1.5, 0.8, n), 0, 40), (rng.random(n) < 0.3).astype(int)
    e = {"normal": rng.normal(0, 2, n), "skewed": 3 * (rng.lognormal(0, 1, n) - np.exp(0.5))}[errors]
    return pd.DataFrame({"x": x, "g": g, "y": np.clip(2 + 0.5 * x - bend * x**2 + 3 * g + e, -50, 150)})


def least_squares(data):
    x = np.column_stack([np.ones(len(data)), data["x"], data["g"]])
    return np.linalg.lstsq(x, data["y"], rcond=None)[0]


def fit(data, epsilon=1.0, seed=0, **more):
    return pgbb.fit(MODEL, data, schema=SCHEMA, epsilon=epsilon, delta=1e-6, insecure_seed=seed, **more)


def test_a_wrong_line_through_far_out_covariates_is_still_the_least_squares_one(monkeypatch):
    data = frame(6000, 1, bend=0.03)
    exact, table = least_squares(data), fit(data, non_private=True).summary(draws=20_000)
    off = np.abs(table["mean"] - exact) / table["sampling_sd"]
    assert off.max() < 0.2
    monkeypatch.setattr(near, "FARTHEST", 1.0)
    weighted = pgbb.HuberRegression("y ~ x + g", c=50.0)  # squares in effect, with far-out records weighted down
    other = pgbb.fit(weighted, data, schema=SCHEMA, epsilon=1, delta=1e-6, non_private=True).summary().iloc[:3]
    assert (np.abs(other["mean"] - exact) / other["sampling_sd"]).max() > 1


def test_what_the_clip_takes_off_is_put_back_as_far_as_it_shows():
    data = frame(20_000, 2, "skewed")
    exact = least_squares(data)
    plenty = fit(data, epsilon=50.0)
    table = plenty.summary()
    assert (np.abs(table["mean"] - exact) < 1.5 * table["sampling_sd"]).all()
    assert "put back" in plenty.certificate.notes[0]
    little = fit(data, epsilon=0.5).summary()
    assert ((little["lower"] < exact) & (exact < little["upper"])).all()
    assert (little["privacy_sd"] > 3 * table["privacy_sd"]).all()


def test_the_bound_grows_as_noise_falls_and_as_the_tail_is_longer():
    def bound(noise, sampling=0.0, slope=0.5, shape=0.0, **more):
        return bound_for(Tails((Tail(2.0, 0.02, slope, shape),), np.ones(1), 60.0), noise, sampling, **more)[0]

    assert bound(1e-4) > bound(1e-3) > bound(1.0) == pytest.approx(2.0)
    assert bound(1e-3, slope=1.0) > bound(1e-3) and bound(1e-3, shape=0.3) > bound(1e-3)
    assert bound(1e-3, 0.006) == pytest.approx(3.6, abs=0.05) and bound(1.0, least=5.0) == pytest.approx(5.0)
    lengths = np.random.default_rng(0).pareto(4.0, 10**6) + 1  # shape 1/4
    heavy = Tail(float(np.quantile(lengths, 0.95)), 0.05, float(np.quantile(lengths, 0.95)) / 4, 0.25)
    assert heavy.lengths(np.array([0.001]))[0] == pytest.approx(np.quantile(lengths, 0.999), rel=0.03)
    beyond = np.maximum(lengths - np.quantile(lengths, 0.999), 0).mean()
    assert heavy.excess(np.array([0.001]))[0] == pytest.approx(beyond, rel=0.1)


@pytest.mark.parametrize("size", [0.0, 1e-20, 1.0, 1e6, 1e18])
def test_no_statistic_of_a_record_is_longer_than_one_however_far_it_lies(size):
    rng = np.random.default_rng(3)
    for _ in range(5):
        x, y = jnp.asarray(size * rng.normal(size=3), jnp.float32), jnp.float32(size * rng.normal())
        given = jnp.asarray(rng.normal(size=3), jnp.float32), jnp.asarray(rng.normal(size=(3, 3)), jnp.float32)
        for found in (
            statistics.wide_moment(x, y, given[1], 1.5),
            statistics.clipped_score(x, y, *given, NOTHING, 0.7),
            squared(statistics.clipped_score)(x, y, *given, NOTHING, 0.7),
            statistics.clipped_excess(x, y, *given, NOTHING, 0.7, 3.0, PART),
        ):
            length = float(jnp.sqrt(jnp.sum(found**2)))
            assert not length > 1 + 1e-5  # NaN of what overflows counts as nothing in `clipping.clipped`


def test_what_is_clipped_and_what_the_clip_takes_off_add_up_to_the_score():
    rng, unit = np.random.default_rng(4), np.sqrt(1 + 2 * PART**2)
    x, y = jnp.asarray(rng.normal(size=3), jnp.float32), jnp.float32(9.0)
    given = jnp.asarray(rng.normal(size=3), jnp.float32), jnp.eye(3), NOTHING
    whole = (x @ given[0] - y) * x
    inside = 0.7 * statistics.clipped_score(x, y, *given, 0.7)
    beyond = statistics.clipped_excess(x, y, *given, 0.7, 30.0, PART)[:3] * unit * 30.0 * 0.7
    assert np.asarray(inside + beyond) == pytest.approx(np.asarray(whole), rel=1e-5)
    assert np.asarray(inside - beyond) != pytest.approx(np.asarray(whole), rel=0.5)


def test_intervals_cover_the_least_squares_line_of_the_population_and_narrower_ones_do_not():
    truth, hits, narrow = least_squares(frame(400_000, 9, "skewed")), [], []
    for seed in range(50):
        table = fit(frame(4000, 100 + seed, "skewed"), epsilon=2.0, seed=seed).summary()
        away = np.abs(table["mean"] - truth) / table["sd"]
        hits.append(away < 1.96)
        narrow.append(away < 0.8)
        assert table["identified"].all()
    assert 0.89 < np.mean(hits) <= 1 and np.mean(narrow) < 0.75


def test_a_response_that_is_a_flag_and_a_method_that_does_not_serve_it_are_refused():
    with pytest.raises(pgbb.InvalidValue, match="Range"):
        pgbb.LinearRegression("g ~ x").prepare(SCHEMA)
    with pytest.raises(pgbb.InvalidValue, match="'calibrated'"):
        pgbb.fit(MODEL, frame(100, 1), schema=SCHEMA, epsilon=1, delta=1e-6, method="sgld")
