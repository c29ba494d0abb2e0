"""Approximate Bayesian computation that the privacy noise makes exact (Gong 2022): importance sampling on simulations.

A released statistic is s + N(0, τ²I). A parameter drawn from a proposal, with a statistic simulated at it, gets the
density of the noise at the difference as its kernel, times prior over proposal: the weighted parameters are the
posterior given the release, for whatever can be simulated. The records are asked as `noisy_gibbs` asks them, or once
for the statistic of a simulated model; the rest is post-processing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.special import gammaln

from pgbb._numerics import Floats
from pgbb.methods import noisy_gibbs
from pgbb.methods.constants import Limits, Priors
from pgbb.methods.effective_size import too_few
from pgbb.methods.noisy_gibbs.sampler import simulated_sums
from pgbb.methods.noisy_sums import Answer, ask, middle, plan_of
from pgbb.methods.request import Planned, Request
from pgbb.methods.simulators import check_simulator, clamped_sums, simulator_of
from pgbb.model.models import HuberRegression, Mean, Simulated
from pgbb.release.file import Release

HEAVY = 5.0  # degrees of freedom of the proposal
WIDER = 1.5  # covariance of a proposal, over the weighted covariance of the round before


@dataclass(frozen=True)
class Settings(Priors):
    """Constants of ABC; priors and shares are those of `noisy_gibbs`; a simulated model is uniform on its box.

    Args:
      proposals: simulated statistics in each round.
      rounds: the proposal is fitted to the weighted parameters of the round before; in round k of r the noise of the
        kernel is 2^(r−k) times the true one. Only the last round counts.
      draws: m, stored, resampled by weight.
      shares: as for `noisy_gibbs`. Beside these, the constants of `Priors`.
    """

    proposals: Annotated[int, Limits(low=1000)] = 20_000
    rounds: Annotated[int, Limits(low=1, high=20)] = 5
    draws: Annotated[int, Limits(low=100)] = 4_000
    shares: tuple[float, float, float] = (0.5, 0.25, 0.25)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shares", self.gibbs.shares)

    @property
    def gibbs(self) -> noisy_gibbs.Settings:
        """What `noisy_gibbs` would ask and believe."""
        return noisy_gibbs.Settings(shares=self.shares, **self.shared)


@dataclass(frozen=True, eq=False)
class Target:
    """A posterior to be sampled: where to begin, its prior, and how a statistic is simulated at each of m parameters.

    Attributes:
      total, noise: the release and the scale of its noise.
      start, spread: the first proposal.
      log_prior: (m, k) → (m,), −∞ where θ cannot be.
      simulate: (m, k) → (m, d).
      shown: (m, k) → parameters in internal coordinates.
      kernel: (m, d) → (m,), the log density of the noise at scale 1, but for a constant.
    """

    total: Floats
    noise: float
    start: Floats
    spread: Floats
    log_prior: Callable[[Floats], Floats]
    simulate: Callable[[Floats], Floats]
    shown: Callable[[Floats], Floats] = lambda theta: theta
    kernel: Callable[[Floats], Floats] = lambda noise: -np.square(noise).sum(axis=1) / 2


def _check(request: Request) -> None:
    request.refuse(
        "abc", non_private="without noise no simulated statistic has any weight. Take 'noisy_gibbs' or 'repro'."
    )
    if isinstance(request.model, Simulated):
        check_simulator(request.model, request.schema)


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise."""
    _check(request)
    if isinstance(request.model, HuberRegression):
        return noisy_gibbs.plan(request, settings.gibbs, n)
    return plan_of(request, "abc", n, settings.response_bound)


def run(request: Request, settings: Settings) -> Release:
    """Ask the records, and weight simulated statistics by the density of the noise."""
    _check(request)
    if isinstance(request.model, HuberRegression):
        answer = noisy_gibbs.ask(request, settings.gibbs)
        target = _regression(answer, settings)
    else:
        answer = ask(request, "abc", settings.response_bound)
        target = (_mean if isinstance(answer.model, Mean) else _simulated)(answer, settings, request)
    rng = answer.randomness.public
    theta, weights = sampled(target, settings, rng, request.report)
    size = 1 / float(np.square(weights).sum())
    exact = "Importance sampling with the density of the privacy noise: exact, but for the number of simulations."
    notes = [exact, *answer.notes, *too_few([np.array([size])])]
    places = np.searchsorted(np.cumsum(weights), (np.arange(settings.draws) + rng.random()) / settings.draws)
    draws = rng.permutation(target.shown(theta[np.minimum(places, len(theta) - 1)]))
    about = {"effective_sample_size": [[size] * answer.problem.dim], "proposals": settings.proposals}
    stored = [draws.astype(np.float32)]
    return request.release_draws("abc", answer.planned, answer.randomness.source, stored, notes, about)


def sampled(
    target: Target, settings: Settings, rng: np.random.Generator, report: Callable[[int, int], object]
) -> tuple[Floats, Floats]:
    """Parameters and their weights, from the last of the rounds."""
    centre, covariance = target.start, target.spread
    for i in range(settings.rounds):
        root = np.asarray(np.linalg.cholesky(covariance), np.float64)
        normals = rng.standard_normal((settings.proposals, len(centre)))
        stretch = np.sqrt(HEAVY / rng.chisquare(HEAVY, settings.proposals))[:, None]
        theta = centre + stretch * normals @ root.T
        proposed = _log_density(normals * stretch, root)
        log = target.log_prior(theta) - proposed
        there = np.isfinite(log)
        noise = target.noise * 2.0 ** (settings.rounds - 1 - i)
        simulated = target.simulate(np.where(there[:, None], theta, centre))
        log = np.where(there, log + target.kernel((simulated - target.total) / noise), -np.inf)
        weights = np.exp(log - log.max()) if there.any() else np.ones(len(theta))
        weights /= weights.sum()
        size = 1 / np.square(weights).sum()
        moved = weights @ theta
        spread = (theta - moved).T @ (weights[:, None] * (theta - moved))
        covariance = WIDER * spread + covariance / size  # few effective draws say little of the spread
        centre = moved
        report(i + 1, settings.rounds)
    return theta, weights


def _log_density(standard: Floats, root: Floats) -> Floats:
    """Log density of a multivariate t distribution at centre + root·standard."""
    k = standard.shape[1]
    constant = gammaln((HEAVY + k) / 2) - gammaln(HEAVY / 2) - k / 2 * np.log(HEAVY * np.pi)
    tail = (HEAVY + k) / 2 * np.log1p(np.square(standard).sum(axis=1) / HEAVY)
    return np.asarray(constant - np.log(np.diag(root)).sum() - tail)


def _mean(answer: Answer, settings: Settings, request: Request) -> Target:
    """A mean; that of an exponential law has a Gamma rate, a Bernoulli one is uniform."""
    model, n, rng = answer.model, answer.n, answer.randomness.public
    assert isinstance(model, Mean)
    shift, half = middle(answer.problem)
    centre = float(answer.total[0]) / n + shift

    def log_prior(theta: Floats) -> Floats:
        m = theta[:, 0]
        if model.family == "gaussian":
            return -(m**2) / (2 * settings.mean_variance)
        if model.family == "bernoulli":
            return np.where((m > 0) & (m < 1), 0.0, -np.inf)
        rate = 1 / np.where(m > 0, m, 1.0)
        return np.where(m > 0, (settings.rate_shape + 1) * np.log(rate) - settings.rate_rate * rate, -np.inf)

    def simulate(theta: Floats) -> Floats:
        return (clamped_sums(model, theta[:, 0], n, shift - half, shift + half, rng) - n * shift)[:, None]

    if model.family != "gaussian":
        centre = min(max(centre, answer.noise / n), shift + half)
    spread = float(model.scale or 1) if model.family == "gaussian" else max(abs(centre), answer.noise / n)
    variance = 4 * (spread**2 / n + (answer.noise / n) ** 2)
    return Target(answer.total, answer.noise, np.array([centre]), np.array([[variance]]), log_prior, simulate)


def _simulated(answer: Answer, settings: Settings, request: Request) -> Target:
    """A simulator of the user's own, uniform on its box."""
    model, rng = answer.model, answer.randomness.public
    assert isinstance(model, Simulated)
    centre, radius = answer.problem.center, answer.problem.radius
    simulate = simulator_of(model, request.schema, answer.n, settings.proposals, rng)

    def log_prior(theta: Floats) -> Floats:
        return np.where((np.abs(theta - centre) <= radius).all(axis=1), 0.0, -np.inf)

    return Target(answer.total, answer.noise, centre, np.diag(radius**2), log_prior, lambda theta: simulate(theta, rng))


def _regression(answer: Answer, settings: Settings) -> Target:
    """(β, log σ) of a linear regression, with the statistics and the prior of `noisy_gibbs`."""
    released, prior, rng = noisy_gibbs.released(answer), settings.gibbs.prior, answer.randomness.public
    beta, variance = released.start(prior)
    p = released.p

    def log_prior(theta: Floats) -> Floats:
        variance = np.exp(2 * theta[:, p])
        shape = prior.shape + p / 2
        rate = prior.rate + prior.precision * np.square(theta[:, :p]).sum(axis=1) / 2
        return np.asarray(-shape * np.log(variance) - rate / variance)

    def simulate(theta: Floats) -> Floats:
        return simulated_sums(released, theta[:, :p], np.exp(theta[:, p]), rng)

    def shown(theta: Floats) -> Floats:
        return np.column_stack([theta[:, :p], np.exp(theta[:, p])])

    spread = np.diag(np.append(np.full(p, max(1.0, float(np.abs(beta).max())) ** 2), 1.0))
    start = np.append(beta, np.log(variance) / 2)
    return Target(released.products, released.noise, start, spread, log_prior, simulate, shown)
