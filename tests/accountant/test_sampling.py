import math

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from pgbb.accountant import Filter, PosteriorDraws, delta, epsilon, noise_scale
from pgbb.errors import InvalidValue, NotCertifiable

pytestmark = pytest.mark.quick


def product_delta(p, q, m, eps):
    """δ of m draws from laws on a few points, by convolution of their losses."""
    laws = {0.0: 1.0}
    losses = np.log(p / q)
    for _ in range(m):
        grown = {}
        for total, mass in laws.items():
            for loss, chance in zip(losses, p, strict=True):
                key = round(total + loss, 10)
                grown[key] = grown.get(key, 0.0) + mass * chance
        laws = grown
    return sum(mass * max(0.0, -math.expm1(eps - total)) for total, mass in laws.items())


def test_no_law_of_bounded_range_has_a_larger_delta_and_two_points_attain_it():
    """Random laws whose losses span η; the twin with a smaller η is exceeded."""
    rng, eta, m = np.random.default_rng(0), 0.7, 4
    best = 0.0
    for _ in range(300):
        tilt = rng.uniform(-eta / 2, eta / 2, 3) if rng.random() < 0.5 else rng.choice([-eta / 2, eta / 2], 3)
        q = rng.dirichlet(np.ones(3))
        p = q * np.exp(tilt)
        found = product_delta(p / p.sum(), q, m, 0.5)
        assert found <= delta(PosteriorDraws(10, m, eta), 1.0, 0.5) * (1 + 1e-9)
        best = max(best, found)
    assert best > delta(PosteriorDraws(10, m, 0.9 * eta), 1.0, 0.5)
    t = np.linspace(0, eta, 2001)
    q = (np.exp(-t) - math.exp(-eta)) / -math.expm1(-eta)
    lows = np.arange(m + 1)
    gain = np.maximum(np.exp(m * t[:, None] - lows * eta) - math.exp(0.5), 0)
    scan = (binom.pmf(lows, m, 1 - q[:, None]) * gain).sum(axis=1).max()
    assert delta(PosteriorDraws(10, m, eta), 1.0, 0.5) == pytest.approx(scan, rel=1e-5)


def test_draws_of_different_posteriors_are_no_worse_than_of_one():
    """Two laws with thresholds t₁ ≠ t₂: the bound for equal ones holds."""
    eta, eps = 0.8, 0.6
    limit = delta(PosteriorDraws(10, 2, eta), 1.0, eps)
    for t1 in np.linspace(0.01, eta - 0.01, 30):
        for t2 in np.linspace(0.01, eta - 0.01, 30):
            q1, q2 = ((math.exp(-t) - math.exp(-eta)) / -math.expm1(-eta) for t in (t1, t2))
            masses = {t1 + t2: q1 * q2, t1 + t2 - eta: q1 + q2 - 2 * q1 * q2, t1 + t2 - 2 * eta: (1 - q1) * (1 - q2)}
            assert sum(w * max(math.exp(s) - math.exp(eps), 0) for s, w in masses.items()) <= limit * (1 + 1e-9)


@pytest.mark.parametrize("m, eta, eps", [(1, 1.0, 0.5), (100, 0.04, 1.0), (1000, 0.012, 1.0)])
def test_delta_is_that_of_multiple_precision(m, eta, eps):
    with mpmath.workdps(60):

        def below(x, last):
            return mpmath.fsum(mpmath.binomial(m, i) * x**i * (1 - x) ** (m - i) for i in range(last + 1))

        def at(last):
            t = min(max((mpmath.mpf(eps) + (last + 1) * mpmath.mpf(eta)) / (m + 1), 0), eta)
            b = (1 - mpmath.exp(-t)) / (1 - mpmath.exp(-mpmath.mpf(eta)))
            return below(mpmath.exp(t - eta) * b, last) - mpmath.exp(eps) * below(b, last)

        lasts = range(m) if m < 200 else range(m // 2 - 60, m // 2 + 60, 20)
        truth = max(at(last) for last in lasts)
    found = delta(PosteriorDraws(10, m, eta), 1.0, eps)
    assert found >= float(truth) * (1 - 1e-12)
    if m < 200:
        assert found == pytest.approx(float(truth), rel=1e-8)


def test_the_temperature_meets_the_budget_and_no_cooler_one_does():
    target = PosteriorDraws(1000, 50, 3.0)
    sigma = noise_scale(target, 1.0, 1e-6)
    assert epsilon(target, sigma, 1e-6) <= 1.0 < epsilon(target, 0.999 * sigma, 1e-6)
    assert epsilon(target, sigma, 1e-6) < 50 * 3.0 / sigma  # less than pure composition
    assert epsilon(PosteriorDraws(1000, 1, 3.0), 3.0, 1e-30) == pytest.approx(1.0)


def test_a_ledger_charges_draws():
    charge = Filter(5.0, 1e-5).charge(PosteriorDraws(1000, 20, 2.0), 40.0)
    assert 0 < charge.square < 1


def test_mistakes_are_refused():
    with pytest.raises(InvalidValue, match="draws"):
        PosteriorDraws(10, 0, 1.0)
    with pytest.raises(NotCertifiable, match="PosteriorDraws"):
        epsilon(PosteriorDraws(10, 1, 1.0), 1.0, 1e-6, "paper")
