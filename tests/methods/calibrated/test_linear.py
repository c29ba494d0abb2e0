"""Linear regression by the default method: its target, what the clip takes off, and coverage with a twin that fails."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb._numerics.compiled import squared
from pgbb.methods.calibrated import frame as near
from pgbb.methods.calibrated import linear, pareto, score_clip, statistics
from pgbb.methods.calibrated.algebra import shrink
from pgbb.methods.calibrated.score_clip import NOTHING, Clip, Clips, lengths_at, loudness, ordinary_excess

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


def gifts(n, seed):
    """One record in 40 is far out in x, and lies off the line of the others."""
    rng = np.random.default_rng(seed)
    far = rng.random(n) < 1 / 40
    x = np.clip(np.where(far, rng.uniform(12, 25, n), rng.lognormal(1, 0.4, n)), 0, 40)
    y = np.clip(2 + 0.5 * x + np.where(far, 0.3 * x, 0.0) + rng.normal(0, 2, n), -50, 150)
    return pd.DataFrame({"x": x, "g": (rng.random(n) < 0.3).astype(int), "y": y})


class Nearer(Clips):
    """Clips four times nearer, of which intervals know nothing."""

    def __init__(self, asker, near, bound, size):
        super().__init__(asker, near, bound / 4, size)

    def choose(self, theta):
        clip = super().choose(theta)
        self.bound = clip.bound / 4
        self.chosen = replace(clip, moves=0.0, whole=1.0, bound=self.bound, inner=min(clip.inner, self.bound))
        return self.chosen


def test_few_records_that_move_the_line_are_not_clipped_away(monkeypatch):
    """The twin clips four times nearer, and its intervals do not allow for a clip: it misses, or is marked."""
    truth = least_squares(gifts(400_000, 9))

    def away():
        tables = [fit(gifts(20_000, seed), seed=seed).summary() for seed in range(8)]
        return np.array([(np.abs(t["mean"] - truth) / t["sd"])["x"] if t["identified"].all() else 9.0 for t in tables])

    assert away().max() < 3
    monkeypatch.setattr(score_clip, "UNEVEN", 1.0)
    monkeypatch.setattr(linear, "Clips", Nearer)
    assert (away() > 6).sum() >= 3


def test_scores_are_clipped_farther_out_the_less_noise_that_costs():
    def at(n, epsilon):
        noise = 5.6 * 1.4 / (n * epsilon)
        return loudness(noise, n), loudness(noise, n) / noise / np.sqrt(n)

    little, more, much = at(3_000, 1.0), at(30_000, 1.0), at(30_000, 4.0)
    assert little[0] > more[0] > much[0] and little[1] < more[1] < much[1]
    assert much[0] < 0.6 and at(10**7, 4.0)[0] < 0.2


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
            statistics.clipped_excess(x, y, *given, NOTHING, 0.7),
        ):
            length = float(jnp.sqrt(jnp.sum(found**2)))
            assert not length > 1 + 1e-5  # NaN of what overflows counts as nothing in `clipping.clipped`


def test_what_the_clip_takes_off_is_what_is_asked_up_to_twice_the_bound():
    rng, seen = np.random.default_rng(4), []
    given = jnp.asarray(rng.normal(size=3), jnp.float32), jnp.eye(3), NOTHING
    for _ in range(20):
        x, y = jnp.asarray(rng.normal(size=3), jnp.float32), jnp.float32(rng.normal())
        whole = np.asarray((x @ given[0] - y) * x)
        taken = np.linalg.norm(whole - 0.7 * np.asarray(statistics.clipped_score(x, y, *given, 0.7)))
        seen.append(float(statistics.clipped_excess(x, y, *given, 0.7)[0]))
        assert 0.7 * seen[-1] == pytest.approx(min(taken, 0.7), abs=1e-5)
    assert min(seen) == 0 and max(seen) == 1 and len(set(seen)) > 3


class Answers:
    """Second moments of clipped scores, with noise."""

    def __init__(self, sd, counts_each=True):
        noise = np.random.default_rng(5).normal(size=(4, 4))
        self.sd, self.counts_each, self.shrink = sd, counts_each, shrink
        self.raw = np.diag([0.1, 0.1, 0.02, 0.1]) + sd * (noise + noise.T) / 2

    def score_moments(self, inner):
        return self.raw, self.sd


def test_second_moments_that_noise_hides_have_the_trace_that_lengths_have():
    clip = Clip(9.0, 0.4, 5.0, 8.0, 0.5, 1.0, "")
    for sd, close in ((0.5, 0.1), (1e-3, 0.02)):
        found, _ = clip.moments(Answers(sd), np.eye(4))
        assert np.trace(found) == pytest.approx(8.0, rel=close)
        alone, _ = clip.moments(Answers(sd, counts_each=False), np.eye(4))  # weights, or persons, have other moments
        assert (np.trace(alone) == pytest.approx(8.0, rel=close)) == (sd < 0.1)
    found, _ = replace(clip, whole=1.5).moments(Answers(1e-3), np.eye(4))
    assert np.trace(found) == pytest.approx(12.0, rel=0.02)


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


def test_what_a_clip_takes_off_ordinary_scores_is_known_and_heavier_ones_show():
    """The twins are normal, of which a clip takes off less, and t with 1.5 degrees of freedom."""
    rng = np.random.default_rng(3)
    laws = rng.exponential(0.5**0.5, 400_000), rng.normal(size=400_000), rng.standard_t(1.5, size=400_000) / 2
    usual, normal, heavy = (float(np.mean(np.clip(np.abs(v) / 2.4 - 1, 0, 1))) for v in laws)
    assert abs(usual - ordinary_excess(2.4)) < 5e-4
    assert normal < ordinary_excess(2.4) / 3 and heavy > 3 * ordinary_excess(2.4)


class Lengths:
    """Answers about the lengths of scores of four standard normal coordinates, at n = 10,000 and ε = 1."""

    n = 10_000

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        self._lengths = np.sqrt(np.random.default_rng(0).chisquare(4, 100_000))

    def noise(self, stage):
        return 6e-3 if stage == "residuals" else 1.4e-3

    def ask(self, stage, statistic, *given):
        edges, combine = given[-2:]
        counts, _ = np.histogram(self._lengths, edges)
        noise = self.noise(stage) * self._rng.normal(size=len(combine))
        return combine @ (counts / len(self._lengths)) + noise, self.noise(stage)


def test_noise_in_the_last_bins_of_the_lengths_moves_no_clip_far_out(monkeypatch):
    """The twin reads the mean square of scores from the histogram alone."""
    shape = near.Frame(np.eye(4), np.eye(4), np.zeros(10), near.Cut(0.0, 0.0), 4.0, np.zeros((4, 4)))

    def farthest():
        bounds = [lengths_at(Lengths(seed), shape, np.zeros(4), 20.0).bound for seed in range(60)]
        return max(bounds) / np.median(bounds)

    assert farthest() < 1.6
    monkeypatch.setattr(pareto.Lengths, "cut_square", lambda self, bounds: np.array(
        [self.law.mean(np.minimum(self.law.middles, b) ** 2) for b in bounds]
    ))  # fmt: skip
    assert farthest() > 3


class First(Clips):
    """Scores are clipped where the first of the gradients was, too."""

    def choose(self, theta):
        first = self.bound
        self.chosen = replace(super().choose(theta), bound=first)
        self.bound = first
        return self.chosen


def test_a_first_fit_that_is_far_off_leaves_the_last_clip_near(monkeypatch):
    """The twin keeps the clip that scores at the first fit make, which are several times as long."""
    rng = np.random.default_rng(6)
    data = frame(10_000, 6)
    data["y"] = np.clip(-40 + 4 * data["x"] + rng.normal(0, 1, len(data)), -50, 150)

    def width():
        return np.median([fit(data, seed=seed).summary()["sd"]["x"] for seed in range(3)])

    near_by = width()
    monkeypatch.setattr(linear, "Clips", First)
    assert width() > 1.5 * near_by
