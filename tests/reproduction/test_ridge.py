import numpy as np
import pytest

import pgbb
from pgbb.accountant.description import gamma_star
from reproduction.references.bootstrap import draw_partition
from reproduction.references.ridge import ridge, ridge_bootstrap
from tests.reference.data import problem_and_records


def linear_sample(n, p=5, seed=0):
    """The paper's Figure thm21-regression."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    return x, x @ ((-1.0) ** np.arange(p) / (1 + np.arange(p))) + rng.normal(size=n)


def test_the_ratio_holds_for_a_regression_to_first_order():
    n, blocks = 600, 5
    x, y = linear_sample(n)
    ordinary = ridge_bootstrap(x, y, draws=4_000, seed=1, penalty=1e-4).var(axis=0)

    def ratios(gamma):
        runs = [
            ridge_bootstrap(x, y, draws=400, seed=s, penalty=1e-4, blocks=blocks, gamma=gamma) for s in range(2, 202)
        ]
        return np.mean([run.var(axis=0) / ordinary for run in runs])

    assert ratios(None) == pytest.approx(1, abs=0.12)
    assert ratios(1.0) == pytest.approx(4 / 6, abs=0.1)  # which is not 1


def test_ridge_solves_the_weighted_normal_equations():
    x, y = linear_sample(50)
    weights = np.random.default_rng(1).dirichlet(np.ones(50), size=6)
    found = ridge(x, y, weights, 1e-4)
    for w, theta in zip(weights, found, strict=True):
        expected = np.linalg.solve(x.T @ (w[:, None] * x) + 1e-4 * np.eye(5), x.T @ (w * y))
        np.testing.assert_allclose(theta, expected, rtol=1e-10)
    np.testing.assert_allclose(ridge(x, y, weights[2], 1e-4), found[2], rtol=1e-12)
    assert np.abs(ridge(x, y, weights, 0.1) - found).max() > 1e-3


def test_block_sums_give_the_ridge_of_the_expanded_weights():
    n, blocks = 53, 6
    x, y = linear_sample(n)
    labels = draw_partition(n, blocks, np.random.default_rng(2))
    fast = ridge_bootstrap(x, y, draws=9, seed=3, penalty=1e-4, blocks=blocks, partition=labels)
    stream = np.random.default_rng(np.random.SeedSequence(3).spawn(2)[0])
    u = stream.dirichlet(np.full(blocks, gamma_star(n, blocks)), size=9)
    slow = ridge(x, y, (u / np.bincount(labels))[:, labels], 1e-4)
    np.testing.assert_allclose(fast, slow, rtol=1e-9)


def test_collinear_columns_need_a_penalty():
    x = np.ones((20, 2))
    with pytest.raises(pgbb.PgbbError, match="penalty > 0"):
        ridge(x, np.ones(20), np.ones(20))
    np.testing.assert_allclose(ridge(x, np.ones(20), np.ones(20), 1e-6), [0.5, 0.5], rtol=1e-4)


def test_bad_arguments_say_what_is_allowed():
    _, records = problem_and_records("gaussian mean")
    with pytest.raises(pgbb.InvalidValue, match="has neither"):
        ridge_bootstrap(np.ones((5, 1)), np.ones(5), draws=2, seed=1, gamma=1.0)
    with pytest.raises(pgbb.InvalidValue, match="arrays of numbers"):
        ridge(records, np.ones(300), np.ones(300))
