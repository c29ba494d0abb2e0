import math
from dataclasses import replace

import pytest

from pgbb import (
    IV,
    Custom,
    Expectile,
    Flag,
    HuberRegression,
    Levels,
    LinearRegression,
    LogisticRegression,
    Mean,
    PgbbError,
    PoissonRegression,
    QuantileRegression,
    Range,
    Schema,
)
from pgbb.accountant import epsilon, noise_scale
from pgbb.accountant.gaussian import gdp_epsilon, gdp_mu
from pgbb.methods.calibrated import statistics
from pgbb.methods.calibrated.stages import Question, Stage, composition, questions_for

WIDE = [f"x{j}" for j in range(24)]
SCHEMA = Schema(
    a=Range(-1, 1),
    y=Range(-6, 6),
    z=Flag(),
    g=Levels("u", "v", "w"),
    c=Range(0, 9),
    e=Range(1, 2),
    **dict.fromkeys(WIDE, Range(-1, 1)),
)
MODELS = {
    "quantile": QuantileRegression("y ~ a", taus=[0.1, 0.9]),
    "wide quantile": QuantileRegression("y ~ " + " + ".join(WIDE), taus=[0.1, 0.9]),
    "linear": LinearRegression("y ~ a"),
    "wide linear": LinearRegression("y ~ " + " + ".join(WIDE)),
    "huber": HuberRegression("y ~ a"),
    "wide huber": HuberRegression("y ~ " + " + ".join(WIDE)),
    "logistic": LogisticRegression("z ~ a"),
    "wide logistic": LogisticRegression("z ~ " + " + ".join(WIDE)),
    "mean": Mean("y", scale=1.0),
    "poisson": PoissonRegression("c ~ a", exposure="e"),
    "wide poisson": PoissonRegression("c ~ " + " + ".join(WIDE)),
    "expectile": Expectile("y ~ a", 0.8),
    "iv": IV("y ~ a | c"),
    "means": Mean("y", by="g"),
    "proportions": Mean("z", by="g"),
    "custom": Custom(lambda t, r, i: (r["y"] - t[0]) ** 2, dim=1, clip=1.0, columns=["y"], box=(-5, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_shares_add_up_and_the_exact_epsilon_is_that_of_one_gaussian(name):
    stages = questions_for(MODELS[name].prepare(SCHEMA), 2)
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
    stages = questions_for(MODELS["huber"].prepare(SCHEMA), 0)
    plan = composition(stages, 3000)
    sigma = noise_scale(plan, 1.0, 1e-6)
    scales = plan.scales
    last = stages[-1]
    longer = [*stages[:-1], replace(last, questions=(*last.questions, Question("moment", ((2, 2),))))]
    more = composition(longer, 3000)
    broken = type(plan)(more.mechanisms, scales)  # the noise of the shorter plan
    assert epsilon(plan, sigma, 1e-6) <= 1.0 < epsilon(broken, sigma, 1e-6)
    assert epsilon(more, sigma, 1e-6) == pytest.approx(epsilon(plan, sigma, 1e-6), rel=1e-3)  # as planned, it does not


def test_a_stage_has_noise_by_its_share_and_its_number_of_answers():
    two = (Question("moment", ((2, 2),), times=3), Question("window", ((2,), ())))  # they share one part of the budget
    stages = (Stage("a", 0.25, "x", two), Stage("b", 0.75, "y", (Question("moment", ((2, 2),)),)))
    assert [s.asks for s in stages] == [4, 1]
    assert composition(stages, 100).scales == pytest.approx((4.0, math.sqrt(4 / 3)))


def test_shares_that_do_not_add_up_are_refused():
    with pytest.raises(PgbbError, match="add up"):
        one = (Question("moment", ((2, 2),)),)
        composition((Stage("a", 0.5, "x", one), Stage("b", 0.6, "y", one)), 100)


@pytest.mark.parametrize("name", MODELS)
def test_every_question_names_a_statistic_and_no_stage_asks_the_same_under_two_entries(name):
    problem = MODELS[name].prepare(SCHEMA)
    for stage in questions_for(problem, 2):
        named = [question.statistic for question in stage.questions]
        assert len(set(named)) == len(named) and set(named) <= set(statistics.__all__)
        assert all(callable(question.function(problem)) for question in stage.questions)
