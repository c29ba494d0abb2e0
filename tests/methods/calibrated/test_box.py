import warnings

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import Flag, HuberRegression, LogisticRegression, PgbbWarning, QuantileRegression, Range, Schema
from pgbb.methods.calibrated import box, huber, quantile_levels
from pgbb.methods.calibrated.response import Located

N = 20_000


def steep(n=N, seed=0):
    """x fills a tenth of its range, so that its slope, over the whole range, leaves the range of the response."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"x": rng.uniform(8.0, 9.0, n)})
    data["y"] = 0.5 - 0.4 * (data["x"] - 8.5) + 0.05 * rng.standard_normal(n)
    data["z"] = (rng.logistic(size=n) < 4 * (data["x"] - 8.5)).astype(int)
    return data


SCHEMA = Schema(x=Range(0, 10), y=Range(0, 1), z=Flag())


def table(model, data, schema=SCHEMA, epsilon=1.0):
    release = pgbb.fit(model, data, schema=schema, epsilon=epsilon, delta=1e-6, insecure_seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PgbbWarning)
        return release.summary(tau=None if release.model.index is None else 0.5, seed=0)


@pytest.mark.parametrize("model", [HuberRegression("y ~ x"), QuantileRegression("y ~ x", taus=[0.5])])
def test_a_slope_that_leaves_the_declared_box_is_found(model, monkeypatch):
    found = table(model, steep()).loc["x"]
    assert found["identified"] and found["lower"] < -0.4 < found["upper"]
    assert found["upper"] - found["lower"] < 0.05
    monkeypatch.setattr(box, "EFFECT", 0.0)  # the declared box alone: half the range of y over half that of x
    declared = table(model, steep()).loc["x"]
    assert declared["lower"] > -0.4 and not declared["identified"]  # wrong, and marked since it touches


def test_a_bound_that_the_user_gives_is_kept_and_marked_where_the_posterior_touches_it():
    free = table(LogisticRegression("z ~ x"), steep(), epsilon=4.0).loc["x"]
    assert free["identified"] and free["lower"] < 4 < free["upper"]  # 20 for x mapped to [−1, 1]
    wide = table(LogisticRegression("z ~ x", bound=100.0), steep(), epsilon=4.0).loc["x"]
    assert wide["identified"] and wide["lower"] < 4 < wide["upper"]
    tight = table(LogisticRegression("z ~ x", bound=10.0), steep(), epsilon=4.0).loc["x"]
    assert tight["upper"] <= 10.0 / 5 * (1 + 1e-9) and not tight["identified"]


@pytest.mark.parametrize("model", [HuberRegression("y ~ x"), QuantileRegression("y ~ x", taus=[0.5])])
def test_a_response_in_a_corner_of_its_range_costs_little(model, monkeypatch):
    tight = table(model, steep())
    lazy = Schema(x=Range(0, 10), y=Range(0, 20_000), z=Flag())
    wide = table(model, steep(), lazy)
    assert wide["identified"].all() and wide.loc["x", "lower"] < -0.4 < wide.loc["x", "upper"]
    assert wide.loc["x", "sd"] < 1.3 * tight.loc["x", "sd"]
    for family in (huber, quantile_levels):  # what the range alone says of it
        monkeypatch.setattr(family, "locate_response", lambda *_: Located(0.0, 3_000.0, 0.0, 1.0))
    assert not table(model, steep(), lazy)["identified"].any()


ALL_UNITS = {  # and the power of the unit of the response in coefficients
    "huber": (HuberRegression("y ~ x"), 1),
    "quantile": (QuantileRegression("y ~ x", taus=[0.5]), 1),
    "linear": (pgbb.LinearRegression("y ~ x"), 1),
    "expectile": (pgbb.Expectile("y ~ x", 0.7), 1),
    "iv": (pgbb.IV("y ~ x | w"), 1),
    "logistic": (LogisticRegression("z ~ x"), 0),
    "poisson": (pgbb.PoissonRegression("c ~ x", exposure="e"), 0),
    "mean": (pgbb.Mean("y"), 1),
    "means": (pgbb.Mean("y", by="g"), 1),
}


@pytest.mark.parametrize("unit", [1e-6, pytest.param(1e6, marks=pytest.mark.evidence)])
@pytest.mark.parametrize("name", ALL_UNITS)
def test_units_change_nothing_but_the_units(name, unit):
    """Columns and response times 10^±6, and moved by their range; an exposure has only a unit."""
    model, power = ALL_UNITS[name]
    rng = np.random.default_rng(1)
    data = steep(5000)
    data = data.assign(w=data["x"] + 0.2 * rng.standard_normal(5000), g=np.where(data["z"], "a", "b"))
    data = data.assign(e=rng.uniform(1, 3, 5000))
    data["c"] = rng.poisson(data["e"] * np.exp(data["x"] - 8.5)).clip(0, 40)
    ends = {"x": (0.0, 10.0), "w": (0.0, 12.0), "y": (0.0, 1.0)}
    others = {"z": Flag(), "g": pgbb.Levels("a", "b"), "c": Range(0, 40)}
    numbers = {k: Range(*v) for k, v in ends.items()}
    moved = {k: (data[k] + high) * unit for k, (_, high) in ends.items()}
    ranges = {k: Range(high * unit, 2 * high * unit) for k, (_, high) in ends.items()}
    plain = table(model, data, Schema(**numbers, **others, e=Range(0.5, 4)), epsilon=4.0)
    schema = Schema(**ranges, **others, e=Range(0.5 * unit, 4 * unit))
    scaled = table(model, data.assign(**moved, e=data["e"] * unit), schema, epsilon=4.0)
    rows, columns = ["x"], ["lower", "upper"]
    factor = unit ** (power - 1)
    wanted, found = plain, scaled
    if name in ("mean", "means"):
        rows, factor = list(plain.index), unit
        found = scaled.assign(**{c: scaled[c] - unit for c in columns})
    assert found.loc[rows, columns].to_numpy(float) == pytest.approx(
        wanted.loc[rows, columns].to_numpy(float) * factor, rel=0.01
    )
    assert (scaled["identified"] == plain["identified"]).all() and plain["identified"].all()
    if "scale" in plain.index:
        assert scaled.loc["scale", "mean"] == pytest.approx(plain.loc["scale", "mean"] * unit, rel=0.01)
