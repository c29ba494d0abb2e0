import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from pgbb import PgbbError
from pgbb.accountant import (
    Resampling,
    compose,
    delta,
    epsilon,
    epsilon_bounds,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    noise_scale,
)
from pgbb.errors import NotCertifiable

pytestmark = pytest.mark.quick


def test_the_law_of_the_squared_counts_is_that_of_simulated_resamples():
    probability, lost = Resampling(n=30, replicates=4, sensitivity=1.0).law
    counts = np.random.default_rng(0).binomial(30, 1 / 30, (400_000, 4))
    seen = np.bincount((counts**2).sum(axis=1), minlength=60)[:60] / 400_000
    error = 5 * np.sqrt(probability[:60] / 400_000) + 2e-5
    assert (np.abs(seen - probability[:60]) < error).all()
    assert lost < 1e-30
    assert not (np.abs(seen - Resampling(n=10, replicates=4, sensitivity=1.0).law[0][:60]) < error).all()


@pytest.mark.parametrize("n, replicates", [(1, 3), (5, 7), (10_000, 20), (10_000, 700)])
def test_mean_and_variance_of_the_law(n, replicates):
    probability, lost = Resampling(n, replicates, 1.0).law
    k = np.arange(80)
    pmf = binom.pmf(k, n, 1 / n)
    mean = pmf @ k**2
    values = np.arange(len(probability))
    assert probability.sum() + lost == pytest.approx(1, abs=1e-12)
    assert probability @ values == pytest.approx(replicates * mean, rel=1e-10)
    spread = replicates * (pmf @ k**4 - mean**2)
    assert probability @ (values - replicates * mean) ** 2 == pytest.approx(spread, rel=1e-9, abs=1e-9)


def test_one_replicate_is_the_binomial_mixture_of_gaussian_mechanisms():
    r = Resampling(n=8, replicates=1, sensitivity=0.7)
    for eps in (0.0, 0.5, 2.0):
        by_hand = sum(float(binom.pmf(k, 8, 1 / 8)) * gdp_delta(0.7 * k / 1.3, eps) for k in range(1, 9))
        assert delta(r, 1.3, eps) == pytest.approx(by_hand, rel=1e-9)


def test_one_record_is_the_plain_gaussian_mechanism():
    """n = 1: every resample holds the record once, so B answers are one of sensitivity Δ√B."""
    r = Resampling(n=1, replicates=9, sensitivity=1.0)
    assert epsilon(r, 4.0, 1e-5) == pytest.approx(gdp_epsilon(3 / 4, 1e-5), rel=1e-8)
    assert noise_scale(r, 1.0, 1e-5) == pytest.approx(3 / gdp_mu(1.0, 1e-5), rel=2e-7)


def test_delta_is_the_hockey_stick_of_simulated_counts():
    r = Resampling(n=50, replicates=6, sensitivity=0.4)
    counts = np.random.default_rng(1).binomial(50, 1 / 50, (200_000, 6))
    mu = 0.4 * np.sqrt((counts**2).sum(axis=1)) / 1.1
    mu = mu[mu > 0]
    terms = norm.cdf(mu / 2 - 1 / mu) - np.e * norm.cdf(-mu / 2 - 1 / mu)
    expected, error = terms.sum() / 200_000, 5 * terms.std() / math.sqrt(200_000)
    assert delta(r, 1.1, 1.0) == pytest.approx(expected, abs=error)
    assert delta(r, 1.1 * 0.97, 1.0) != pytest.approx(expected, abs=error)


def test_no_attack_on_the_refits_themselves_does_better():
    """An adversary who sees all answers, and not the counts, of a mean with the worst record."""
    n, replicates, sigma, eps = 10, 3, 0.25, 1.0
    rng = np.random.default_rng(2)
    counts = rng.binomial(n, 1 / n, (150_000, replicates))
    here = counts / n + sigma * rng.standard_normal(counts.shape)
    there = sigma * rng.standard_normal(counts.shape)
    k = np.arange(n + 1)
    weight = binom.pmf(k, n, 1 / n)

    def log_ratio(values):
        density = norm.pdf(values[..., None], k / n, sigma) @ weight
        return np.log(density / norm.pdf(values, 0, sigma)).sum(axis=1)

    attack = (log_ratio(here) > eps).mean() - math.e**eps * (log_ratio(there) > eps).mean()
    certified = delta(Resampling(n, replicates, 1 / n), sigma, eps)
    assert 0 < attack < certified
    assert attack > delta(Resampling(n, replicates, 0.5 / n), sigma, eps)  # half the sensitivity would be a lie


@given(
    n=st.integers(2, 10**6),
    replicates=st.integers(1, 60),
    ratio=st.floats(0.02, 20.0),
    log_delta=st.floats(-40, -1),
)
def test_epsilon_and_delta_agree_and_are_enclosed(n, replicates, ratio, log_delta):
    r, target = Resampling(n, replicates, 1.0), math.exp(log_delta)
    sigma = ratio * math.sqrt(2 * replicates)
    low, high = epsilon_bounds(r, sigma, target)
    assert low <= high == epsilon(r, sigma, target)
    if math.isfinite(high):
        assert delta(r, sigma, high) <= target * (1 + 1e-9)
        assert high - low <= 1e-6 * max(high, 1)


def test_more_noise_fewer_replicates_and_a_smaller_sensitivity_never_cost_more():
    base = Resampling(n=1000, replicates=20, sensitivity=1.0)
    found = [epsilon(base, s, 1e-5) for s in (5.0, 10.0, 20.0, 40.0)]
    assert sorted(found, reverse=True) == found and len(set(found)) == 4
    assert epsilon(Resampling(1000, 19, 1.0), 10.0, 1e-5) < found[1]
    assert epsilon(Resampling(1000, 20, 0.9), 10.0, 1e-5) < found[1]
    by_delta = [epsilon(base, 10.0, d) for d in (1e-9, 1e-6, 1e-3)]
    assert sorted(by_delta, reverse=True) == by_delta
    assert epsilon(base, 1e6, 1e-3) == 0.0
    assert epsilon(base, 1e-3, 1e-3) == math.inf


@pytest.mark.parametrize("eps", [0.1, 1.0, 8.0])
def test_the_noise_scale_is_feasible_and_hardly_larger_than_needed(eps):
    r = Resampling(n=10_000, replicates=20, sensitivity=0.02648)
    sigma = noise_scale(r, eps, 1e-4)
    assert epsilon(r, sigma, 1e-4) <= eps < epsilon(r, sigma * (1 - 1e-6), 1e-4)


def test_the_printed_formula_promises_more_than_is_proved():
    r = Resampling(n=10_000, replicates=20, sensitivity=1.0)
    printed = math.sqrt((2 - 2 / math.e) * 20) / gdp_mu(1.0, 1e-4)
    assert 1.45 < epsilon(r, printed, 1e-4) < 1.55
    assert 1.4 < noise_scale(r, 1.0, 1e-4) / printed < 1.45


def test_many_replicates_approach_the_bound_of_the_mean_square_count():
    wide = Resampling(n=10_000, replicates=1000, sensitivity=1.0)
    limit = math.sqrt(2 * 1000) / gdp_mu(1.0, 1e-4)
    assert 1 < noise_scale(wide, 1.0, 1e-4) / limit < 1.03


def test_scale_is_immaterial():
    a, b = Resampling(500, 20, 1.0), Resampling(500, 20, 1e-9)
    assert epsilon(a, 10.0, 1e-5) == pytest.approx(epsilon(b, 1e-8, 1e-5), rel=1e-9)


@pytest.mark.parametrize("accountant", ["paper", "worst-case"])
def test_the_accountants_of_the_paper_do_not_cover_it(accountant):
    r = Resampling(100, 20, 1.0)
    for ask in (lambda: epsilon(r, 1.0, 1e-3, accountant), lambda: delta(r, 1.0, 1.0, accountant)):
        with pytest.raises(NotCertifiable, match="does not cover a Resampling"):
            ask()
    with pytest.raises(NotCertifiable, match="'exact'"):
        noise_scale(r, 1.0, 1e-3, accountant)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Resampling(0, 20, 1.0),
        lambda: Resampling(10, 0, 1.0),
        lambda: Resampling(10, 10**6, 1.0),
        lambda: Resampling(10, 20, 0.0),
        lambda: Resampling(10, 20, float("inf")),
        lambda: epsilon(Resampling(10, 20, 1.0), 0.0, 1e-3),
        lambda: epsilon(Resampling(10, 20, 1.0), 1.0, 1e-200),
        lambda: compose([Resampling(10, 20, 1.0)]),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(PgbbError):
        call()
