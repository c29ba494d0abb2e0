import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgbb.accountant import Expansion, compose, epsilon, log_moments, noise_scale
from pgbb.accountant.paper import _log_even_beta, _log_even_constant, _log_falling
from tests.accountant import oracle
from tests.accountant.builders import DESIGN, mechanism

pytestmark = pytest.mark.quick


def one(signal, order, *, worst_case=False, J=32, m=5, **settings_):
    d = mechanism(**settings_)
    sigma = d.clip / (signal * d.block_size)
    return log_moments(d, sigma, np.array([order]), worst_case=worst_case, expansion=Expansion(J, m))[0]


@pytest.mark.parametrize("n, blocks, gamma, q, answers, eps, delta, expected", DESIGN)
def test_noise_of_the_design_table_is_reproduced(n, blocks, gamma, q, answers, eps, delta, expected):
    d = mechanism(n, blocks, gamma, q, answers)
    assert noise_scale(d, eps, delta, "paper") * d.block_size == pytest.approx(expected, rel=3e-3)


def test_truncation_order_matters_as_the_design_says():
    d = mechanism(5_000, 20, 1.0, 0.2, 2_000)
    assert noise_scale(d, 4.0, 2e-4, "paper", J=400) * d.block_size == pytest.approx(1.3075, rel=3e-3)


log_uniform = lambda low, high: st.floats(np.log(low), np.log(high)).map(lambda v: float(np.exp(v)))  # noqa: E731


@pytest.mark.slow
@settings(max_examples=25)
@given(
    signal=log_uniform(1e-6, 5.0),
    q=log_uniform(1e-4, 0.5),
    order=log_uniform(2, 256).map(round),
    blocks=st.sampled_from([3, 5, 20, 100]),
    gamma=st.floats(0.2, 3.0),
    alpha=st.sampled_from([0.0, 1.0, 50.0]),
    J=st.sampled_from([2, 8, 32]),
    m=st.integers(3, 7),
)
def test_log_moment_matches_the_printed_formula_in_multiprecision(signal, q, order, blocks, gamma, alpha, J, m):
    got = one(signal, order, J=J, m=m, blocks=blocks, gamma=gamma, q=q, alpha=alpha)
    law = (gamma, (blocks - 1) * gamma + alpha)
    expected = oracle.log_moment(signal, law, q, order, J, m)
    assert abs(got - expected) <= 1e-9 * expected
    assert got >= expected  # rounded up, never down


@pytest.mark.slow
@settings(max_examples=12)
@given(signal=log_uniform(1e-6, 5.0), q=log_uniform(1e-4, 0.5), order=log_uniform(2, 256).map(round))
def test_worst_case_matches_the_printed_formula_at_constant_weight(signal, q, order):
    expected = oracle.log_moment(signal, None, q, order)
    assert abs(one(signal, order, worst_case=True, q=q) - expected) <= 1e-9 * expected
    assert abs(one(signal, order, blocks=1, q=q) - expected) <= 1e-9 * expected


def test_the_oracle_comparison_notices_a_wrong_scale():
    expected = oracle.log_moment(0.3, (1.0, 19.0), 0.1, 40)
    assert abs(one(0.3 * (1 + 1e-7), 40, gamma=1.0) - expected) > 1e-9 * expected


@pytest.mark.parametrize("signal", [1e-6, 1e-3, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("q", [1e-4, 0.01, 0.5])
@pytest.mark.parametrize("worst_case", [False, True])
def test_no_nan_and_no_overflow_up_to_order_4096(signal, q, worst_case):
    orders = np.array([2, 3, 10, 100, 1000, 4096])
    d = mechanism(q=q)
    values = log_moments(d, d.clip / (signal * d.block_size), orders, worst_case=worst_case)
    assert np.all(np.isfinite(values)) and np.all(values > 0)
    assert np.all(np.diff(values) > 0)


def test_falling_factorials_rebuild_the_polynomial():
    table = np.exp(_log_falling(6))
    for x in range(9):
        falling = [float(np.prod([x - i for i in range(k)])) for k in range(13)]
        for j in range(7):
            assert table[j] @ np.array(falling) == pytest.approx((x * (x - 1)) ** j, rel=1e-12)


@pytest.mark.parametrize("signal", [0.01, 0.3, 2.0])
def test_series_and_quadrature_agree_on_constant_weights(signal):
    nearly_constant = ((1e12, 1e-6, 1.0),)
    series = _log_even_beta(signal, nearly_constant, 20, J=300)[1:11]
    assert series == pytest.approx(_log_even_constant(signal, 20)[1:11], rel=1e-8)


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("q", [0.01, 0.2])
@pytest.mark.parametrize("order", [2, 5, 16])
def test_paper_is_never_below_the_quadrature_of_the_renyi_moment(mu, q, order):
    assert one(mu, order, blocks=1, q=q) >= oracle.renyi_log_moment(q, mu, order) * (1 - 1e-9)


def test_dirichlet_randomness_saves_the_square_root_of_kappa_at_leading_order():
    d = mechanism(40_000, 5, None, 0.01, 100_000)
    ratio = noise_scale(d, 0.5, 1e-6, "paper") / noise_scale(d, 0.5, 1e-6, "worst-case")
    assert ratio == pytest.approx(np.sqrt(d.kappa), rel=0.02)


def test_orders_in_the_thousands_are_searched_at_small_epsilon():
    d = mechanism(q=1e-3, steps=1000)
    sigma = noise_scale(d, 0.01, 1e-9, "paper")
    full = epsilon(d, sigma, 1e-9, "paper")
    orders = np.arange(2, 1001)
    from pgbb.accountant.paper import epsilon_at

    short = epsilon_at(orders.astype(float), log_moments(d, sigma, orders), 1e-9).min()
    assert full <= 0.01 < 1.1 * 0.01 < short


def test_composition_adds_log_moments():
    a, b = mechanism(steps=10), mechanism(steps=30, q=0.2, clip=2.0)
    orders = np.array([2, 8, 32])
    both = log_moments(compose([a, b], scales=[1.0, 2.0]), 0.01, orders)
    assert both == pytest.approx(log_moments(a, 0.01, orders) + log_moments(b, 0.02, orders))


def test_same_noise_multiplier_makes_the_clip_irrelevant():
    runs = [mechanism(blocks=1, clip=c, steps=50) for c in (0.5, 0.7, 0.9)]
    joint = compose(runs, scales=[0.5, 0.7, 0.9])
    single = mechanism(blocks=1, clip=1.0, steps=150)
    assert noise_scale(joint, 1.0, 1e-5, "paper") == pytest.approx(noise_scale(single, 1.0, 1e-5, "paper"), rel=1e-6)
    assert noise_scale(joint, 1.0, 1e-5) == pytest.approx(noise_scale(single, 1.0, 1e-5), rel=1e-3)
