import numpy as np
import pytest

import pgbb
from pgbb.private.loading import records_for
from pgbb.reference import solve, to_original
from reproduction.references.bootstrap import bayesian_bootstrap
from reproduction.references.unblocked import unblocked_generator
from tests.reference.data import SCHEMA, frame, problem_and_records

QUICK = {"steps": 1_500, "draws_per_step": 8, "learning_rate": 1e-2}


def test_the_generator_without_blocks_follows_the_bayesian_bootstrap():
    problem, records = problem_and_records("huber", n=100)
    drawn = unblocked_generator(problem, records, 1_000, seed=1, **QUICK)
    exact = bayesian_bootstrap(problem, records, 1_000, seed=1)
    assert drawn.shape == (1_000, 5)
    ratio = drawn.std(axis=0) / exact.std(axis=0)
    assert ratio[:4].min() > 0.8 and ratio[:4].max() < 1.2
    assert (np.abs(drawn.mean(axis=0) - exact.mean(axis=0)) < 0.3 * exact.std(axis=0)).all()
    constant = unblocked_generator(problem, records, 200, seed=1, steps=1)  # twin: hardly trained
    assert np.abs(constant.mean(axis=0) - exact.mean(axis=0)).max() > exact.std(axis=0).min()


def test_the_same_seed_gives_the_same_draws_and_records_stay_as_they_were():
    problem, records = problem_and_records("gaussian mean", n=60)
    before = records.rows.copy()
    first, again, other = (unblocked_generator(problem, records, 5, seed=s, steps=20) for s in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert np.array_equal(records.rows, before)


def test_several_levels_are_trained_jointly_and_drawn_at_one():
    problem = pgbb.QuantileRegression("y ~ x", taus=[0.2, 0.8], bandwidth=0.5).prepare(SCHEMA)
    records = records_for(frame(100), problem, SCHEMA).as_non_private()
    for tau in (0.2, 0.8):
        exact = to_original(problem, solve(problem, records, index=tau))
        drawn = unblocked_generator(problem, records, 300, seed=3, index=tau, **QUICK).mean(axis=0)
        np.testing.assert_allclose(drawn, exact, atol=0.25)
    with pytest.raises(pgbb.InvalidValue, match="tau in"):
        unblocked_generator(problem, records, 3, seed=3)


def test_a_custom_loss_is_served():
    model = pgbb.Custom(lambda t, r, i: (t[0] - r["y"]) ** 2, 1, 100.0, ["y"], (-10, 10))
    problem = model.prepare(SCHEMA)
    data = frame(60)
    records = records_for(data, problem, SCHEMA).as_non_private()
    drawn = unblocked_generator(problem, records, 500, seed=1, **QUICK)
    assert drawn.mean() == pytest.approx(data["y"].mean(), abs=0.1)


def test_too_many_records_and_confidential_ones_are_refused():
    problem, records = problem_and_records("gaussian mean", n=2_001)
    with pytest.raises(pgbb.InvalidValue, match=r"n = 2,001 .* bayesian_bootstrap"):
        unblocked_generator(problem, records, 5, seed=1)
    confidential = records_for(frame(50), problem, SCHEMA)
    with pytest.raises(pgbb.InvalidValue, match=r"type Records are not allowed.*non_private\("):
        unblocked_generator(problem, confidential, 5, seed=1)
    with pytest.raises(pgbb.InvalidValue, match="draws = 0"):
        unblocked_generator(*problem_and_records("gaussian mean", n=50), 0, seed=1)
