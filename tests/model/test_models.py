import numpy as np
import pytest

from pgbb import (
    Custom,
    Flag,
    HuberRegression,
    InvalidValue,
    LogisticRegression,
    Mean,
    QuantileRegression,
    Range,
    Schema,
)
from pgbb.model.models import Index

pytestmark = pytest.mark.quick

SCHEMA = Schema(x1=Range(-1, 1), x2=Range(-1, 1), x3=Range(-1, 1), y=Range(-20, 20), d=Flag())


def test_huber_bound_is_tight_and_below_the_papers():
    problem = HuberRegression("y ~ x1 + x2 + x3 - 1").prepare(SCHEMA)
    c2, kappa = 1.345**2, 0.71
    assert problem.clip == pytest.approx(np.sqrt(3 * c2 + (c2 - kappa) ** 2 / 4))
    assert problem.clip == pytest.approx(2.3935, abs=1e-4) and problem.clip < 2.648
    z = np.linspace(-5, 5, 2001)
    t = np.minimum(z**2, c2)
    assert np.sqrt(3 * t + (kappa - t) ** 2 / 4).max() == pytest.approx(problem.clip)


def test_quantile_bound_follows_the_steepest_level():
    assert QuantileRegression("y ~ x1", taus=[0.5]).prepare(SCHEMA).clip == pytest.approx(0.5 * np.sqrt(2))
    assert QuantileRegression("y ~ x1", taus=[0.1, 0.5]).prepare(SCHEMA).clip == pytest.approx(0.9 * np.sqrt(2))
    assert QuantileRegression("y ~ x1", interval=(0.3, 0.95)).prepare(SCHEMA).clip == pytest.approx(0.95 * np.sqrt(2))


def test_what_a_model_takes_for_granted_follows_the_unit_of_its_response():
    """A share in [0, 1] and a wage in dollars are smoothed and clipped alike; a declared step is smoothed over."""

    def bandwidth(column, **given):
        return QuantileRegression("y ~ d", **given).prepare(Schema(y=column, d=Flag())).settings["bandwidth"]

    assert [bandwidth(Range(0, top)) for top in (1, 12, 1e6)] == pytest.approx([0.001, 0.012, 0.1])
    assert bandwidth(Range(0, 52, step=1)) == pytest.approx(12**-0.5) and bandwidth(Range(0, 1), bandwidth=0.2) == 0.2
    schema = Schema(y=Range(-20, 20))
    clips = [Mean("y", scale=s).prepare(schema).clip * s for s in (0.01, 1.0, 100.0)]
    assert clips == pytest.approx([8.0] * 3) and Mean("y", scale=0.01, clip=3.0).prepare(schema).clip == 3.0


def test_quantile_levels_are_drawn_in_proportion_to_their_variance():
    index = QuantileRegression("y ~ x1", taus=[0.1, 0.5]).prepare(SCHEMA).index
    draws = index.draw(60_000, np.random.default_rng(0))
    expected = (1 / 0.09) / (1 / 0.09 + 4)
    assert (draws == 0.1).mean() == pytest.approx(expected, abs=0.01)
    assert (draws == 0.1).mean() != pytest.approx(0.5, abs=0.01)


def test_an_interval_of_levels_has_its_density():
    index = QuantileRegression("y ~ x1", interval=(0.05, 0.8)).prepare(SCHEMA).index
    draws = index.draw(60_000, np.random.default_rng(1))
    assert draws.min() > 0.05 and draws.max() < 0.8
    logit = np.log(draws / (1 - draws))
    low, high = np.log(0.05 / 0.95), np.log(4)
    assert logit.mean() == pytest.approx((low + high) / 2, abs=0.02)
    assert logit.std() == pytest.approx((high - low) / np.sqrt(12), rel=0.02)
    assert draws.std() != pytest.approx(0.75 / np.sqrt(12), rel=0.02)  # not uniform in τ


def test_uniform_index_of_a_custom_loss():
    index = Index("index", low=1.0, high=3.0)
    assert index.draw(20_000, np.random.default_rng(0)).mean() == pytest.approx(2.0, abs=0.02)
    assert index.to_dict() == {"kind": "interval", "low": 1.0, "high": 3.0}


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda: QuantileRegression("y ~ x1", taus=[0.0, 0.5]), "taus"),
        (lambda: QuantileRegression("y ~ x1", taus=[1.2]), "taus"),
        (lambda: QuantileRegression("y ~ x1", taus=[]), "taus"),
        (lambda: QuantileRegression("y ~ x1", taus=[0.5, 0.5]), "taus"),
        (lambda: QuantileRegression("y ~ x1", interval=(0.9, 0.1)), "interval"),
        (lambda: QuantileRegression("y ~ x1", bandwidth=0.0), "bandwidth"),
        (lambda: HuberRegression("y ~ x1", c=-1.0), "c ="),
        (lambda: HuberRegression("y ~ x1", scale=(2.0, 1.0)), "scale"),
        (lambda: Mean("y", scale=0.0), "scale"),
        (lambda: Mean("y", family="cauchy"), "family"),
        (lambda: Mean("q", scale=1.0).prepare(SCHEMA), "'q'"),
        (lambda: LogisticRegression("y ~ x1").prepare(SCHEMA), "Flag"),
        (lambda: QuantileRegression("d ~ x1").prepare(SCHEMA), "Range"),
        (lambda: QuantileRegression("y ~ nope").prepare(SCHEMA), "nope"),
        (lambda: QuantileRegression("y ~ x1").prepare({"y": 1}), "schema"),
        (lambda: Custom(lambda t, r, i: 0.0, dim=0, clip=1.0, columns=["y"], box=(0, 1)), "dim"),
        (lambda: Custom(lambda t, r, i: 0.0, dim=1, clip=1.0, columns=["no"], box=(0, 1)).prepare(SCHEMA), "'no'"),
        (lambda: Custom(lambda t, r, i: 0.0, dim=1, clip=1.0, columns=["y"], box=(1, 0)).prepare(SCHEMA), "box"),
        (lambda: Custom(3, dim=1, clip=1.0, columns=["y"], box=(0, 1)), "loss"),
    ],
)
def test_a_bad_model_is_refused_with_the_culprit_named(make, word):
    with pytest.raises(InvalidValue, match=word):
        make()


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda: QuantileRegression("y ~ x1", interval=0.5), "interval"),
        (lambda: QuantileRegression("y ~ x1", interval=(0.1,)), "interval"),
        (lambda: HuberRegression("y ~ x1", scale=0.5), "scale"),
        (lambda: HuberRegression("y ~ x1", scale=(1e-3, float("inf"))), "scale"),
        (lambda: Mean("y", family="exponential").prepare(Schema(y=Range(-5, -1))), "positive"),
        (lambda: Custom(lambda t, r, i: 0.0, dim=2, clip=1.0, columns=["y"], box=(0, 1), names=["a", "a"]), "names"),
        (lambda: Custom(lambda t, r, i: 0.0, dim=1, clip=1.0, columns=[], box=(0, 1)), "columns"),
        (lambda: Custom(lambda t, r, i: 0.0, dim=1, clip=1.0, columns=["y"], box=(0, 1), index=[]), "index"),
        (lambda: Custom(lambda t, r, i: 0.0, dim=1, clip=1.0, columns=["y"], box=(0, 1), index=[1, 1]), "index"),
        (
            lambda: Custom(lambda t, r, i: 0.0, dim=2, clip=1.0, columns=["y"], box=([0, 0, 0], 1)).prepare(SCHEMA),
            "box",
        ),
    ],
)
def test_malformed_arguments_are_refused_too(make, word):
    with pytest.raises(InvalidValue, match=word):
        make()
