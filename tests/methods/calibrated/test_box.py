import warnings

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import Flag, HuberRegression, LogisticRegression, PgbbWarning, QuantileRegression, Range, Schema
from pgbb.methods.calibrated import box, huber, quantile
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
    for family in (huber, quantile):  # what the range alone says of it
        monkeypatch.setattr(family, "locate_response", lambda *_: Located(0.0, 3_000.0, 0.0, 1.0))
    assert not table(model, steep(), lazy)["identified"].any()


@pytest.mark.parametrize("unit", [1e-6, 1e6])
@pytest.mark.parametrize(
    "model", [HuberRegression("y ~ x"), QuantileRegression("y ~ x", taus=[0.5]), LogisticRegression("z ~ x")]
)
def test_units_change_nothing_but_the_units(model, unit):
    """Columns and response times 10^±6, and moved by their range."""
    data = steep(5000)
    other = data.assign(x=(data["x"] + 10) * unit, y=(data["y"] + 1) * unit)
    schema = Schema(x=Range(10 * unit, 20 * unit), y=Range(unit, 2 * unit), z=Flag())
    plain, scaled = table(model, data, epsilon=4.0), table(model, other, schema, epsilon=4.0)
    factor = 1 / unit if "z" in model.formula else 1.0
    columns = ["lower", "upper"]
    assert scaled.loc["x", columns].to_numpy(float) == pytest.approx(
        plain.loc["x", columns].to_numpy(float) * factor, rel=0.01
    )
    assert (scaled["identified"] == plain["identified"]).all() and plain["identified"].all()
    if "scale" in plain.index:
        assert scaled.loc["scale", "mean"] == pytest.approx(plain.loc["scale", "mean"] * unit, rel=0.01)
