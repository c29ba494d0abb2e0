"""The privacy filter: what releases are charged, and that charges add up whatever is chosen in between."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from pgbb.accountant import (
    Charge,
    Filter,
    Mechanism,
    Resampling,
    compose,
    gdp_delta,
    gdp_mu,
    noise_scale,
)
from pgbb.accountant import bounds as exact
from pgbb.errors import InvalidValue
from pgbb.release.certificate import Certificate

pytestmark = pytest.mark.quick

PLAIN = Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=3, clip=2.0)
SAMPLED = Mechanism(n=10_000, blocks=1, sampling_rate=0.1, steps=2000, clip=1.0)
BLOCKS = Mechanism(n=1000, blocks=5, sampling_rate=0.2, steps=300, clip=1.0)
REFITS = Resampling(n=1000, replicates=20, sensitivity=0.02)
BUDGET = Filter(1.0, 1e-6)


def allowed(charge, epsilon):
    """The curve that a charge stands for."""
    return charge.failure + (1 - charge.failure) * gdp_delta(math.sqrt(charge.square), epsilon)


def test_a_gaussian_release_costs_its_squared_shifts_and_nothing_else():
    one = BUDGET.charge(PLAIN, 0.1)
    assert one.failure == 0 and one.square == pytest.approx(3 * (2 * 2.0 / (1000 * 0.1)) ** 2, rel=1e-9)
    both = BUDGET.charge(compose([PLAIN, PLAIN], scales=[1.0, 2.0]), 0.1)
    assert both.square == pytest.approx(1.25 * one.square, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("target", [SAMPLED, BLOCKS, REFITS], ids=["sampled", "blocks", "refits"])
def test_a_charge_dominates_the_certified_curve_and_little_less_would_not(target):
    sigma = noise_scale(target, 0.5, 1e-6)
    bounds = Resampling.delta_bounds if isinstance(target, Resampling) else exact.delta_bounds
    charge = BUDGET.charge(target, sigma)
    smaller = Charge(charge.square / 1.05, charge.failure)
    points = np.linspace(0.0, 0.8, 81 if isinstance(target, Resampling) else 6)
    low = [bounds(target, sigma, float(e))[0] for e in points]
    assert all(b <= allowed(charge, e) for b, e in zip(low, points, strict=True))
    assert any(b > allowed(smaller, e) for b, e in zip(low, points, strict=True))
    assert charge.failure / BUDGET.limit.failure == pytest.approx(charge.square / BUDGET.limit.square, rel=1e-3)


def test_one_sampled_answer_agrees_with_quadrature():
    m, sigma, q = Mechanism(n=100, blocks=1, sampling_rate=0.3, steps=1, clip=1.0), 0.02, 0.3
    mu = m.signal(sigma)

    def p(x, sign):
        return (1 - q) * norm.pdf(x) + q * norm.pdf(x, sign * mu)

    charge = Filter(4.0, 1e-3).charge(m, sigma)
    for e in (-0.7, 0.0, 0.1, 0.3, 0.8):  # ε < 0 too: the theorem asks for every c
        found = quad(lambda x, e=e: max(p(x, 1) - math.exp(e) * p(x, -1), 0.0), -12, 12, limit=400)[0]
        gaussian = gdp_delta(math.sqrt(charge.square), abs(e))
        if e < 0:
            gaussian = 1 - math.exp(e) + math.exp(e) * gaussian
        assert found <= charge.failure + (1 - charge.failure) * gaussian + 1e-9
    assert charge.square < (2 * mu) ** 2  # sampling is worth something


def test_choosing_the_next_release_by_the_last_answer_stays_within_the_sums():
    """The exact δ of two strategies, by quadrature over the first answer: within, and nearly all of, d + G_√b."""
    square, failure, epsilon = 0.25, 1e-4, 1.0
    b = math.sqrt(square / 2)

    def curve(x, gaussian, gives_away):
        """H of what follows, at c = e^{ε − loss}, the loss after the answer x being bx − b²/2."""
        c = math.exp(epsilon - (b * x - b * b / 2))
        same = gdp_delta(gaussian, abs(math.log(c))) if gaussian else 0.0
        value = same if c >= 1 else 1 - c + c * same
        return gives_away + (1 - gives_away) * value

    def total(strategy):
        points = [b + t for t in (-8, -4, -2, 0, 2, 4, 8)]
        f = lambda x: norm.pdf(x, b) * curve(x, *strategy(x))  # noqa: E731
        return sum(quad(f, u, v, limit=200)[0] for u, v in itertools.pairwise(points))

    limit = failure + gdp_delta(math.sqrt(square), epsilon)
    everything = total(lambda x: (b, failure))
    assert 0.9 * limit < everything <= limit
    for cut in (0.0, 1.0, 2.0, 3.0):
        chosen = total(lambda x, cut=cut: (b, 0.0) if x > cut else (0.0, failure))
        assert chosen <= limit
        over = total(lambda x, cut=cut: (2 * b, failure) if x > cut else (b, failure))  # spends 2.5 times b
        assert over > chosen
    assert total(lambda x: (2 * b, failure)) > limit


def test_the_limit_meets_the_budget_and_one_release_of_that_budget_fits():
    for epsilon, delta in ((0.1, 1e-9), (1.0, 1e-6), (6.0, 1e-5)):
        f = Filter(epsilon, delta)
        limit = f.limit
        assert limit.failure + gdp_delta(math.sqrt(limit.square), epsilon) <= delta * (1 + 1e-12)
        assert limit.square > 0.998 * gdp_mu(epsilon, delta) ** 2
        assert f.fits([f.charge(PLAIN, noise_scale(PLAIN, epsilon * 0.999, delta))])


def test_what_is_left_fits_and_a_little_more_does_not():
    before = [BUDGET.charge(PLAIN, 1.0)] * 3
    left = BUDGET.left(before)
    assert 0 < left < 1
    for factor, fits in ((0.999, True), (1.01, False)):
        mu = gdp_mu(left * factor, 1e-6)
        assert BUDGET.fits([*before, Charge(mu**2)]) is fits
    assert BUDGET.left([Charge(1.0)]) == 0.0


def test_failure_probabilities_have_a_limit_of_their_own():
    limit = BUDGET.limit
    assert BUDGET.fits([Charge(0.0, limit.failure * 0.9)])
    assert not BUDGET.fits([Charge(0.0, limit.failure * 0.6)] * 2)


def test_a_person_with_several_records_is_covered_by_the_chain_of_replacements():
    f = Filter(2.0, 1e-5, group_size=4)
    epsilon, delta = f.record
    m = Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    claim = Certificate(epsilon, delta, 1.0, m, "exact", "operating system", group_size=4).group
    assert claim == pytest.approx((2.0, 1e-5), rel=1e-9)
    assert f.limit.square < Filter(2.0, 1e-5).limit.square / 16


def test_a_release_that_no_curve_bounds_is_never_affordable():
    for target in (REFITS, BLOCKS, SAMPLED):
        charge = BUDGET.charge(target, 1e-7)
        assert math.isinf(charge.square) and not BUDGET.fits([charge])


@pytest.mark.parametrize("arguments", [(0.0, 1e-6), (1.0, 0.0), (1.0, 1e-6, 0), (math.inf, 1e-6), (5000.0, 1e-6, 2)])
def test_impossible_budgets_are_refused(arguments):
    with pytest.raises(InvalidValue):
        _ = Filter(*arguments).limit
