import itertools
import math
from functools import lru_cache

import numpy as np
import pytest

from pgbb import InvalidValue, PgbbError
from pgbb.accountant import (
    ACCOUNTANTS,
    Mechanism,
    delta,
    epsilon,
    epsilon_bounds,
    gamma_star,
    gamma_tilde,
    leading_order,
    noise_floor,
    noise_scale,
    training_bound,
)
from tests.accountant.builders import mechanism

BASE = {"n": 1000, "blocks": 10, "gamma": 0.8, "sampling_rate": 0.1, "steps": 200, "draws_per_step": 2, "clip": 1.0}


@lru_cache
def at(accountant="paper", sigma=0.02, delta_=1e-5, **changes):
    return epsilon(Mechanism(**(BASE | changes)), sigma, delta_, accountant)


def falls(values):
    return all(a > b for a, b in itertools.pairwise(values))


FACTORS = (1.0, 1.16, 1.9)  # rungs: each ε is compared with its neighbour's


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
class TestEpsilonIsMonotone:
    def test_it_falls_when_sigma_grows(self, accountant):
        assert falls([at(accountant, sigma=0.02 * f) for f in FACTORS])

    def test_it_falls_when_n_grows_in_multiples_of_s(self, accountant):
        assert falls([at(accountant, n=1000 * f) for f in (1, 2, 4)])

    def test_it_rises_with_steps(self, accountant):
        assert falls([at(accountant, steps=int(200 * f)) for f in FACTORS[::-1]])

    def test_it_rises_with_draws_per_step(self, accountant):
        assert falls([at(accountant, draws_per_step=k) for k in (5, 3, 2)])

    def test_it_rises_with_the_sampling_rate(self, accountant):
        assert falls([at(accountant, sampling_rate=0.1 * f) for f in FACTORS[::-1]])

    def test_it_rises_with_the_clip(self, accountant):
        assert falls([at(accountant, clip=f) for f in FACTORS[::-1]])

    def test_it_falls_when_delta_grows(self, accountant):
        assert at(accountant, delta_=1e-3) < at(accountant, delta_=1e-6)

    def test_it_falls_with_pseudo_samples(self, accountant):
        if accountant != "worst-case":  # the bound 1/n_S does not see α
            assert at(accountant, alpha=20.0) < at(accountant)


def test_a_scaled_problem_has_the_same_epsilon():
    assert at("exact", clip=7.0, sigma=0.14) == pytest.approx(at("exact"), rel=1e-6)
    assert at("paper", clip=7.0, sigma=0.14) == pytest.approx(at("paper"), rel=1e-9)


LARGE_DELTA = [pytest.param(e, 0.1, marks=pytest.mark.evidence) for e in (0.01, 50.0)]


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("eps, delta_", [(0.01, 1e-9), (1.0, 1e-5), (50.0, 1e-9), *LARGE_DELTA])
def test_noise_scale_always_returns_a_feasible_sigma(accountant, eps, delta_):
    d = mechanism(n=2000, blocks=5, q=0.05, steps=20 if eps > 0.01 else 4)
    sigma = noise_scale(d, eps, delta_, accountant)
    assert epsilon(d, sigma, delta_, accountant) <= eps
    width = 1e-3 if accountant == "exact" else 1e-5
    assert epsilon(d, sigma * (1 - width), delta_, accountant) > eps


@pytest.mark.parametrize("q, steps", [pytest.param(1e-3, 2_000, marks=pytest.mark.evidence), (0.5, 3), (1.0, 100)])
def test_noise_scale_of_exact_is_feasible_across_regimes(q, steps):
    d = mechanism(n=2000, blocks=20, q=q, steps=steps)
    sigma = noise_scale(d, 0.5, 1e-6)
    assert epsilon(d, sigma, 1e-6) <= 0.5


def test_exact_never_needs_more_noise_than_the_paper():
    for eps in (0.3, 3.0):
        d = mechanism(n=2000, blocks=10, q=0.1, steps=500)
        assert noise_scale(d, eps, 1e-5) < noise_scale(d, eps, 1e-5, "paper") < noise_scale(d, eps, 1e-5, "worst-case")


def test_asoodeh_conversion_is_never_weaker_than_mironov():
    d = mechanism(steps=1000)
    sigma = 3 / d.block_size
    for delta_ in (1e-8, 1e-4, 1e-2, 0.4):
        assert epsilon(d, sigma, delta_, "paper") <= epsilon(d, sigma, delta_, "paper", conversion="mironov")
    for eps in (0.1, 1.0, 4.0):
        assert delta(d, sigma, eps, "paper") <= delta(d, sigma, eps, "paper", conversion="mironov")


@pytest.mark.parametrize("conversion", ["asoodeh", "mironov"])
@pytest.mark.parametrize("eps", [0.2, 1.0, 3.0])
def test_paper_delta_and_epsilon_are_inverse(conversion, eps):
    d = mechanism(steps=1000)
    sigma = 3 / d.block_size
    delta_ = delta(d, sigma, eps, "paper", conversion=conversion)
    assert delta_ < 1
    assert epsilon(d, sigma, delta_ * (1 + 1e-9), "paper", conversion=conversion) == pytest.approx(eps, rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), 0.0, -1.0, math.inf, "1", None, True])
def test_bad_sigma_is_refused(bad):
    for accountant in ACCOUNTANTS:
        with pytest.raises(PgbbError, match="sigma"):
            epsilon(mechanism(), bad, 1e-5, accountant)
    with pytest.raises(PgbbError, match="sigma"):
        epsilon_bounds(mechanism(), bad, 1e-5)
    with pytest.raises(PgbbError, match="sigma"):
        delta(mechanism(), bad, 1.0)


@pytest.mark.parametrize("bad", [float("nan"), 0.0, 1.0, -0.1, 2.0, "x"])
def test_bad_delta_is_refused(bad):
    with pytest.raises(PgbbError, match="delta"):
        epsilon(mechanism(), 0.1, bad)
    with pytest.raises(PgbbError, match="delta"):
        noise_scale(mechanism(), 1.0, bad)


@pytest.mark.parametrize("bad", [float("nan"), 0.0, -1.0, math.inf])
def test_bad_epsilon_is_refused(bad):
    with pytest.raises(PgbbError, match="epsilon"):
        noise_scale(mechanism(), bad, 1e-5)


def test_unknown_accountant_conversion_and_target_are_refused():
    with pytest.raises(PgbbError, match=r"accountant.*'exact'"):
        epsilon(mechanism(), 0.1, 1e-5, "best")
    with pytest.raises(PgbbError, match="conversion"):
        epsilon(mechanism(), 0.1, 1e-5, "paper", conversion="best")
    with pytest.raises(PgbbError, match="mechanism"):
        epsilon({"n": 3}, 0.1, 1e-5)
    with pytest.raises(PgbbError, match="J ="):
        epsilon(mechanism(), 0.1, 1e-5, "paper", J=0)
    with pytest.raises(PgbbError, match="m ="):
        epsilon(mechanism(), 0.1, 1e-5, "paper", m=2)


def test_full_batches_are_refused_by_the_expansion_in_q():
    with pytest.raises(PgbbError, match="sampling_rate = 1"):
        epsilon(mechanism(q=1.0), 0.1, 1e-5, "paper")


def test_leading_order_sigma_approaches_the_certified_one():
    d = mechanism(n=10**6, blocks=5, q=1e-3, steps=1_000_000)
    lead = leading_order(d, 0.1, 1e-6)
    assert all(c.holds for c in lead.conditions)
    assert lead.sigma_solved / noise_scale(d, 0.1, 1e-6, "paper", conversion="mironov") == pytest.approx(1, abs=0.1)
    assert lead.sigma_solved / lead.sigma == pytest.approx(2 * math.sqrt(2), rel=0.01)
    assert not all(c.holds for c in leading_order(mechanism(steps=10), 1.0, 1e-4).conditions)


def test_noise_floor_has_the_terms_of_the_theorem():
    d = Mechanism(n=1000, blocks=10, gamma=0.8, sampling_rate=0.1, steps=5, draws_per_step=4, clip=2.0)
    floor = noise_floor(d, 0.3, 7)
    assert floor.subsampling == pytest.approx(4 * 0.1 * 0.9 * 1.8 * 10 / (4 * 1000 * 9))
    assert floor.monte_carlo == pytest.approx(0.01 * 4 / 4)
    assert floor.privacy == pytest.approx(7 * 0.09 / 4)
    assert floor.total == pytest.approx(floor.subsampling + floor.monte_carlo + floor.privacy)
    assert np.isfinite(noise_floor(mechanism(blocks=1), 0.1, 1).total)


def test_the_bound_on_training_has_the_terms_of_the_theorem_and_refuses_what_it_is_not_proved_for():
    d = mechanism()
    given = {"learning_rate": 0.5, "smoothness": 2.0, "convexity": 0.1, "start": 3.0, "approximation": 0.25}
    found = training_bound(d, 0.3, 7, **given)
    q = d.sampling_rate
    assert found.transient == pytest.approx((1 - 0.5 * q * 0.1) ** d.steps * 3.0)
    assert found.noise == pytest.approx(2.0 * 0.5 / (q * 0.1) * noise_floor(d, 0.3, 7).total)
    assert found.total == pytest.approx(found.transient + found.noise + 0.25 + d.n**-2)
    for wrong in ({"learning_rate": 1.1 / (2.0 * q)}, {"convexity": 2.1}, {"start": -1.0}):
        with pytest.raises(InvalidValue, match=next(iter(wrong))):
            training_bound(d, 0.3, 7, **given | wrong)


def test_gamma_tilde_leaves_gamma_star_only_where_training_gains_more_than_the_variance_gap():
    star, n, blocks = gamma_star(1_000, 10), 1_000, 10
    slope = blocks * (n - 1) / ((blocks - 1) * (n + 1) ** 2)  # |a'| at γ*, of the remark

    def found(share):
        def error(g):
            return (1 - share * slope * min(g - star, 0.02) / 2) ** 2  # gains up to γ* + .02

        return gamma_tilde(n, blocks, error, spread=1.0, diameter=1.0)

    assert found(0.9) == star and found(1.2) == pytest.approx(star + 0.02, abs=1e-4)
