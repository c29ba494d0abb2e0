import numpy as np
import pytest
from scipy.optimize import linprog
from statsmodels.regression.quantile_regression import QuantReg

import pgbb
from pgbb.private.loading import records_for
from pgbb.reference import solve, to_original
from reproduction.references.quantile import exact_quantile, multiplier_bootstrap, smoothed_quantile
from tests.reference.data import SCHEMA, frame, problem_and_records

pytestmark = pytest.mark.quick


def sample(n=300, seed=0):
    data = frame(n, seed)
    return np.column_stack([np.ones(n), data[["x", "z", "group"]]]), data["y"].to_numpy()


def check_loss(x, y, tau, theta):
    residual = y - x @ theta
    return np.mean(residual * (tau - (residual < 0)))


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.8])
def test_the_exact_fit_minimises_the_check_loss(tau):
    x, y = sample(120)
    n, p = x.shape
    primal = linprog(  # the textbook form, which the code does not solve
        np.r_[np.zeros(p), np.full(n, tau), np.full(n, 1 - tau)],
        A_eq=np.hstack([x, np.eye(n), -np.eye(n)]),
        b_eq=y,
        bounds=[(None, None)] * p + [(0, None)] * (2 * n),
    )
    found = exact_quantile(x, y, tau)
    assert check_loss(x, y, tau, found) == pytest.approx(primal.fun / n, rel=1e-9)
    np.testing.assert_allclose(found, primal.x[:p], atol=1e-6)
    assert (np.abs(y - x @ found) < 1e-8).sum() == p  # it interpolates p records


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.8])
def test_a_small_bandwidth_gives_the_exact_fit(tau):
    x, y = sample()
    exact = exact_quantile(x, y, tau)
    np.testing.assert_allclose(smoothed_quantile(x, y, tau, 1e-4), exact, atol=1e-3)
    assert np.abs(smoothed_quantile(x, y, tau, 2.0) - exact).max() > 0.02  # twin: a wide one does not


def test_the_exact_fit_agrees_with_statsmodels():
    x, y = sample(501)  # an odd number: with 500 the median regression is not unique
    for tau in (0.25, 0.5, 0.9):
        found, theirs = exact_quantile(x, y, tau), QuantReg(y, x).fit(q=tau, max_iter=10_000, p_tol=1e-8).params
        np.testing.assert_allclose(found, theirs, atol=1e-4)
        assert check_loss(x, y, tau, found) <= check_loss(x, y, tau, theirs)
    assert np.abs(exact_quantile(x, y, 0.85) - theirs).max() > 1e-2  # twin: another level


def test_the_gradient_of_the_smoothed_loss_vanishes():
    from scipy.stats import norm

    x, y = sample()
    weights = np.random.default_rng(1).exponential(size=(5, 300))
    for theta, w in zip(smoothed_quantile(x, y, 0.3, 0.2, weights), weights, strict=True):
        slope = (w / w.sum() * (norm.cdf((y - x @ theta) / 0.2) - 0.7)) @ x
        assert np.abs(slope).max() < 1e-7


def test_arrays_and_records_give_the_same_fit():
    problem, records = problem_and_records("quantile")
    x, y = sample()
    found = smoothed_quantile(x, y.astype(np.float32), 0.2, 0.3)
    np.testing.assert_allclose(to_original(problem, solve(problem, records)), found, atol=1e-5)  # records are float32


def test_units_of_the_columns_do_not_matter():
    x, y = sample()
    scale = np.array([1.0, 1e6, 1e-5, 1.0])
    plain = smoothed_quantile(x, y, 0.5, 0.1)
    np.testing.assert_allclose(smoothed_quantile(x * scale, y, 0.5, 0.1) * scale, plain, rtol=1e-6)
    np.testing.assert_allclose(smoothed_quantile(x, 1e5 * y, 0.5, 1e4) / 1e5, plain, rtol=1e-6)


def test_the_multiplier_bootstrap_has_the_sandwich_variance():
    from scipy.stats import norm

    x, y = sample(1_000)
    tau, h, draws = 0.5, 0.3, 2_000
    spread = multiplier_bootstrap(x, y, tau, h, draws, seed=1).std(axis=0)
    residual = y - x @ smoothed_quantile(x, y, tau, h)
    hessian = x.T @ (x * norm.pdf(residual / h)[:, None] / h)
    scores = x * (norm.cdf(residual / h) - (1 - tau))[:, None]
    bread = np.linalg.inv(hessian)
    sandwich = np.sqrt(np.diag(bread @ scores.T @ scores @ bread))
    np.testing.assert_allclose(spread / sandwich, 1, atol=0.12)
    assert (np.abs(spread / (1.3 * sandwich) - 1) > 0.12).all()  # twin: a wrong scale


def test_bootstrap_draws_are_refits():
    x, y = sample(150)
    draws = multiplier_bootstrap(x, y, 0.7, 0.2, 6, seed=9)
    weights = np.random.default_rng(9).standard_exponential((6, 150))
    np.testing.assert_allclose(draws, smoothed_quantile(x, y, 0.7, 0.2, weights), atol=1e-7)


def test_bad_arguments_say_what_is_allowed():
    x, y = sample(50)
    with pytest.raises(pgbb.InvalidValue, match="collinear"):
        exact_quantile(np.column_stack([x, x[:, 1]]), y, 0.5)
    with pytest.raises(pgbb.InvalidValue, match="tau = 1"):
        exact_quantile(x, y, 1)
    with pytest.raises(pgbb.InvalidValue, match="bandwidth = 0"):
        smoothed_quantile(x, y, 0.5, 0)
    with pytest.raises(pgbb.InvalidValue, match="all 0"):
        smoothed_quantile(x, y, 0.5, 0.1, np.zeros(50))
    with pytest.raises(pgbb.InvalidValue, match="NaN"):
        smoothed_quantile(x, np.full(50, np.nan), 0.5, 0.1)
    with pytest.raises(pgbb.PgbbError, match="larger bandwidth"):  # the median of {0, 1} is not unique
        smoothed_quantile(np.ones((2, 1)), [0.0, 1.0], 0.5, 1e-3)


def test_confidential_records_are_refused():
    problem = pgbb.QuantileRegression("y ~ x").prepare(SCHEMA)
    confidential = records_for(frame(), problem, SCHEMA)
    y = confidential.y
    for call in (
        lambda: exact_quantile(confidential, y, 0.5),
        lambda: smoothed_quantile(confidential, y, 0.5, 0.1),
        lambda: multiplier_bootstrap(confidential, y, 0.5, 0.1, 2, 1),
    ):
        with pytest.raises(pgbb.InvalidValue, match=r"x of type Records.*non_private\("):
            call()
