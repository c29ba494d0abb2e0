"""What the records do not have, and what noise hides, is marked: each test has a twin in which it is not."""

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import IV, Flag, Levels, PoissonRegression, Range, Schema
from pgbb.methods.calibrated import prior, refine, start
from pgbb.methods.calibrated.columns import Columns
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.poisson import PoissonCurvature

pytestmark = pytest.mark.filterwarnings("ignore:not identified")


def table(model, data, seed, schema, epsilon=1.0):
    return pgbb.fit(model, data, schema=schema, epsilon=epsilon, delta=1e-6, insecure_seed=seed).summary()


def seen(_, directions):
    """No direction is without a second moment."""
    return np.zeros(directions.shape[1], dtype=bool)


def test_a_level_that_never_occurs_costs_its_own_coefficient_alone_where_instruments_predict(monkeypatch):
    """The twin does not know that the term of the level may be constant, and that no answer shows it."""
    schema = Schema(y=Range(-8, 8), a=Range(-4, 4), z=Range(-6, 6), v=Levels("p", "q", "never"))
    rng = np.random.default_rng(0)
    a, v = rng.normal(size=4000).clip(-4, 4), rng.choice(["p", "q"], size=4000)
    z, y = (a + rng.normal(size=4000)).clip(-6, 6), (0.3 + 0.4 * a + rng.normal(size=4000)).clip(-8, 8)
    given = IV("y ~ a + v | z + v"), pd.DataFrame({"y": y, "a": a, "z": z, "v": v}), 0, schema
    found = table(*given)
    assert not found.loc["v[T.never]", "identified"] and found["identified"].drop("v[T.never]").all()
    monkeypatch.setattr(prior.Prior, "_doubted", seen)
    monkeypatch.setattr(Frame, "unseen", seen)
    sure = table(*given).loc["v[T.never]"]
    assert sure["identified"] and sure["sd"] < 1


def test_a_rare_level_without_an_intercept_costs_no_more_than_with_one_and_a_frame_that_magnifies_it_does(monkeypatch):
    schema = Schema(z=Flag(), x=Range(-4, 4), g=Levels("p", "q", "rare"))
    rng = np.random.default_rng(0)
    g, x = rng.choice(["p", "q", "rare"], 10_000, p=[0.69, 0.3, 0.01]), rng.normal(size=10_000)
    z = (1 + 0.5 * x + (g == "q") + rng.logistic(size=10_000) > 0).astype(int)
    given = pd.DataFrame({"z": z, "x": x, "g": g}), 1, schema, 4.0
    twin = table(pgbb.LogisticRegression("z ~ x + g"), *given)
    found = table(pgbb.LogisticRegression("z ~ x + g - 1"), *given)
    assert found["identified"].all() and 0.6 < found.loc["g[rare]", "sd"] / twin.loc["g[T.rare]", "sd"] < 1.2
    monkeypatch.setattr(Columns, "apart", lambda *_: {})
    assert table(pgbb.LogisticRegression("z ~ x + g - 1"), *given).loc["g[rare]", "sd"] > 3 * found.loc["g[rare]", "sd"]


def test_counts_whose_steps_run_away_are_marked_and_miss_where_that_is_not_looked_for(monkeypatch):
    """Nineteen of twenty count none; a budget too small for them. With a tenth of it nothing is left but the prior."""
    schema = Schema(c=Range(0, 60, step=1), a=Range(-4, 4), g=Flag(), h=Flag())
    model, truth = PoissonRegression("c ~ a + g + h"), np.array([0.1, 0.2, 0.5, -0.4])

    def fitted(seed, epsilon=1.0):
        rng = np.random.default_rng(seed)
        a, g, h = rng.normal(size=1000).clip(-4, 4), rng.integers(2, size=1000), rng.integers(2, size=1000)
        mean = np.exp(truth[0] + truth[1] * a + truth[2] * g + truth[3] * h)
        c = np.where(rng.random(1000) < 0.06, rng.poisson(10 * mean), 0).clip(0, 60)
        return table(model, pd.DataFrame({"c": c, "a": a, "g": g, "h": h}), seed, schema, epsilon)

    def misses():
        tables = [fitted(seed) for seed in range(24)]
        return sum(int(((np.abs(t["mean"] - truth) > 3 * t["sd"]) & t["identified"]).sum()) for t in tables)

    few, hidden = misses(), fitted(0, 0.05)
    assert not hidden["identified"].any() and np.isfinite(hidden[["lower", "upper"]].to_numpy()).all()
    monkeypatch.setattr(start, "COUNTED", -np.inf)
    monkeypatch.setattr(refine, "_other", lambda *_: False)
    monkeypatch.setattr(PoissonCurvature, "varies", lambda *_: False)
    assert few <= 1 and misses() >= few + 2
