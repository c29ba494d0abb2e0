import math

import pytest

from pgbb import Custom, Flag, HuberRegression, LogisticRegression, Mean, PgbbError, QuantileRegression, Range, Schema
from pgbb.accountant import epsilon, noise_scale
from pgbb.accountant.gaussian import gdp_epsilon, gdp_mu
from pgbb.methods.calibrated.plan import Stage, composition, stages_for

WIDE = [f"x{j}" for j in range(24)]
SCHEMA = Schema(a=Range(-1, 1), y=Range(-6, 6), z=Flag(), **dict.fromkeys(WIDE, Range(-1, 1)))
MODELS = {
    "quantile": QuantileRegression("y ~ a", taus=[0.1, 0.9]),
    "wide quantile": QuantileRegression("y ~ " + " + ".join(WIDE), taus=[0.1, 0.9]),
    "huber": HuberRegression("y ~ a"),
    "wide huber": HuberRegression("y ~ " + " + ".join(WIDE)),
    "logistic": LogisticRegression("z ~ a"),
    "wide logistic": LogisticRegression("z ~ " + " + ".join(WIDE)),
    "mean": Mean("y", scale=1.0),
    "custom": Custom(lambda t, r, i: (r["y"] - t[0]) ** 2, dim=1, clip=1.0, columns=["y"], box=(-5, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_shares_add_up_and_the_exact_epsilon_is_that_of_one_gaussian(name):
    stages = stages_for(MODELS[name].prepare(SCHEMA))
    assert sum(s.share for s in stages) == pytest.approx(1, abs=1e-12)
    assert all(s.share > 0 and s.asks >= 1 and s.why for s in stages)
    assert len({s.name for s in stages}) == len(stages)
    n, delta = 3000, 1e-6
    plan = composition(stages, n)
    assert [m.answers for m in plan.mechanisms] == [s.asks for s in stages]
    for sigma in (1e-3, 4e-3):  # a mean of statistics of norm ≤ 1 has sensitivity 2/n
        assert epsilon(plan, sigma, delta) == pytest.approx(gdp_epsilon(2 / (n * sigma), delta), rel=2e-3)
        assert epsilon(plan, sigma, delta) >= gdp_epsilon(2 / (n * sigma), delta) * (1 - 1e-9)
    sigma = noise_scale(plan, 1.0, delta)
    assert sigma == pytest.approx(2 / (n * gdp_mu(1.0, delta)), rel=2e-3)


def test_one_answer_more_than_the_plan_would_cost_more():
    stages = stages_for(MODELS["huber"].prepare(SCHEMA))
    plan = composition(stages, 3000)
    sigma = noise_scale(plan, 1.0, 1e-6)
    scales = plan.scales
    longer = [Stage(s.name, s.asks + (s.name == "final"), s.share, s.why) for s in stages]
    more = composition(longer, 3000)
    broken = type(plan)(more.mechanisms, scales)  # the noise of the shorter plan
    assert epsilon(plan, sigma, 1e-6) <= 1.0 < epsilon(broken, sigma, 1e-6)
    assert epsilon(more, sigma, 1e-6) == pytest.approx(epsilon(plan, sigma, 1e-6), rel=1e-3)  # as planned, it does not


def test_a_stage_has_noise_by_its_share_and_its_number_of_answers():
    stages = (Stage("a", 4, 0.25, "x"), Stage("b", 1, 0.75, "y"))
    assert composition(stages, 100).scales == pytest.approx((4.0, math.sqrt(4 / 3)))


def test_shares_that_do_not_add_up_are_refused():
    with pytest.raises(PgbbError, match="add up"):
        composition((Stage("a", 1, 0.5, "x"), Stage("b", 1, 0.6, "y")), 100)
