"""Nested weights u·v: the accountants against quadrature over both Betas, and the weights as they are drawn."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from pgbb.accountant import Mechanism, delta, epsilon, epsilon_bounds
from pgbb.errors import InvalidValue
from pgbb.private.poisson import nested_weights

pytestmark = pytest.mark.quick

NESTED = Mechanism(n=400, blocks=5, sampling_rate=0.3, steps=1, clip=1.0, gamma=0.8, nested=1.0)
SIGMA = 0.02
POINTS = 500


def middles(a, b, points=POINTS):
    """Values of a Beta at the middles of equally likely cells that are finer in the upper tail, and their chances."""
    ends = (np.arange(points, -1, -1) / points) ** 4
    return stats.beta(a, b).isf((ends[1:] + ends[:-1]) / 2), -np.diff(ends)


def pair_delta(w, e, q, sigma):
    """δ at ε of (1−q)N(0) + qN(w) against (1−q)N(0) + qN(−w), by the observation at which the loss is ε."""
    mu = w / sigma
    x = (e / 2 + np.arcsinh((1 - q) / q * np.exp(mu**2 / 2) * np.sinh(e / 2))) / mu
    above = (1 - q) * ndtr(-x)
    return above + q * ndtr(mu - x) - np.exp(e) * (above + q * ndtr(-x - mu))


def by_quadrature(m, e, sigma, within=True):
    u, p = middles(*m.beta_law)
    v, r = middles(m.nested, (m.block_size - 1) * m.nested) if within else (np.array([1 / m.block_size]), np.ones(1))
    w = u[:, None] * np.minimum(v, 8 / m.block_size)
    with np.errstate(over="ignore"):
        return float(np.sum(p[:, None] * r * pair_delta(np.maximum(w, 1e-9), e, m.sampling_rate, sigma)))


@pytest.mark.slow
@pytest.mark.parametrize("e", [0.2, 1.5])
def test_one_answer_costs_what_quadrature_says_and_not_what_equal_weights_would(e):
    exact = by_quadrature(NESTED, e, SIGMA)
    found = delta(NESTED, SIGMA, e)
    assert exact * (1 - 1e-3) <= found <= exact * 1.01
    twin = by_quadrature(NESTED, e, SIGMA, within=False)
    assert not exact * (1 - 1e-3) <= twin <= exact * 1.01


@pytest.mark.slow
def test_the_papers_accountant_covers_what_the_exact_one_finds_and_equal_weights_are_not_enough():
    many = replace(NESTED, n=2_000, steps=100, sampling_rate=0.1)
    low, high = epsilon_bounds(many, 0.02, 1e-5)
    assert 0 < low <= high < 1.05 * low
    assert epsilon(many, 0.02, 1e-5, "paper") >= low
    assert epsilon(replace(many, nested=None), 0.02, 1e-5) < low  # a certificate of equal weights would be wrong


def test_kappa_is_the_second_moment():
    rng = np.random.default_rng(1)
    u, v = (rng.beta(*law, 400_000) for law in (NESTED.beta_law, NESTED.nested_law))
    square = (u * v * NESTED.block_size / NESTED.reach) ** 2
    assert NESTED.kappa == pytest.approx(square.mean(), rel=0.02)
    assert NESTED.kappa != pytest.approx(replace(NESTED, nested=None).kappa, rel=0.5)


@pytest.mark.parametrize(
    "changes",
    [{"blocks": 1, "gamma": None}, {"nested": 0.0}, {"nested": 1e-3}, {"nested": 1e9}, {"blocks": 400}],
)
def test_weights_within_blocks_need_blocks_of_records(changes):
    with pytest.raises(InvalidValue, match="nested"):
        replace(NESTED, **changes)


def drawn(nested, rate, batches=300):
    """n_S·v of the members of the second block in many batches, u being 1 for it."""
    m = replace(NESTED, nested=nested, n=50, blocks=2)
    rng, found = np.random.default_rng(3), []
    for _ in range(batches):
        joins = np.flatnonzero(rng.random(m.n) < rate)
        weight = m.reach / nested_weights(m, np.array([0.0, 2.0**24]), (joins >= 25).astype(np.int64), rng) / 2**24
        assert (weight[joins < 25] == 0).all()
        found.append(weight[joins >= 25])
    return np.concatenate(found) / m.block_size, m.nested_law


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_weights_of_members_have_the_law_that_is_certified(rate):
    v, law = drawn(1.5, rate)
    assert stats.kstest(v, stats.beta(*law).cdf).pvalue > 1e-3
    assert stats.kstest(1.1 * v, stats.beta(*law).cdf).pvalue < 1e-3
    assert stats.kstest(drawn(1.0, rate)[0], stats.beta(*law).cdf).pvalue < 1e-3
    if rate == 1:
        assert v.reshape(300, 25).sum(axis=1) == pytest.approx(np.ones(300), abs=1e-4)
