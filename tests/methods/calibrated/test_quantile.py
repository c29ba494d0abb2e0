"""The order in which a quantile regression asks, and intervals where spreads grow with a covariate."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd

import pgbb
from pgbb.methods.calibrated import quantile
from pgbb.methods.calibrated.asking import Asker

MODEL = pgbb.QuantileRegression("y ~ x", taus=[0.1, 0.5, 0.9])
SCHEMA = pgbb.Schema(x=pgbb.Range(0, 10), y=pgbb.Range(-50, 100))
TRUE = 1 + 0.8 * 1.2815515655446004  # the slope of the level .9


def growing(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.gamma(2.0, 0.7, n)
    return pd.DataFrame({"x": np.minimum(x, 10), "y": 1 + x + (0.2 + 0.8 * x) * rng.standard_normal(n)})


def slope(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        release = pgbb.fit(MODEL, growing(20_000, seed), schema=SCHEMA, epsilon=1.0, delta=1e-6, insecure_seed=seed)
        row = release.summary(tau=0.9).loc["x"]
    return (row["mean"] - TRUE) / row["sd"], row["sd"]


def test_curvatures_are_asked_when_all_gradients_are_known(monkeypatch):
    stages, points = [], []
    ask = Asker.ask

    def noted(self, stage, statistic, *given):
        stages.append(stage)
        points.append(np.array(given[0]))
        return ask(self, stage, statistic, *given)

    monkeypatch.setattr(Asker, "ask", noted)
    slope(0)
    last = stages[stages.index("refine") :]
    assert last == ["refine", "density", "final", "final", "final", "density", "curvature"]
    steps = [np.abs(b - a).max() for a, b in zip(points[-5:-3], points[-4:-2], strict=True)]
    assert min(steps) > 0
    assert np.abs(points[-1] - points[-3]).max() > 0  # halfway to the estimate
    np.testing.assert_array_equal(points[-1], points[-2])


def test_levels_are_covered_where_spreads_grow_and_too_high_a_curvature_does_not(monkeypatch):
    found = np.array([slope(seed) for seed in range(12)])
    assert np.abs(found[:, 0]).max() < 3.5
    assert np.median(found[:, 1]) < 0.09
    given = quantile.curvatures_of

    def steep(*args):
        found = given(*args)
        return lambda shape: [replace(c, value=20 * c.value) for c in found(shape)]

    monkeypatch.setattr(quantile, "curvatures_of", steep)
    away = np.array([slope(seed)[0] for seed in range(12)])
    assert np.mean(away**2) > 4 * np.mean(found[:, 0] ** 2)
