"""DP-MCMC: Metropolis steps that are accepted by a noisy log-likelihood ratio, under one budget for the whole chain.

Targets ∝ exp{−ω Σ l(θ, x_i)} on the model's box. Each step asks once, by the mechanism of `pgbb.private`, for the sum
of (l(θ, x) − l(θ′, x))/(C‖θ − θ′‖), which lies in [−1, 1]; all else is post-processing. Two tests use the noise as it
is: the penalty method (Ceperley & Dewing 1999; Zhang & Zhang 2023, DP fast MH) and Barker's test with a correction that
makes normal noise logistic (Heikkilä, Jälkö, Dikmen & Honkela 2019). The noise decides how long a step may be.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from scipy.special import expit, ndtr

from pgbb._numerics import Floats
from pgbb.accountant import Mechanism, compose
from pgbb.errors import InvalidValue
from pgbb.methods.clipped_means import cut_off
from pgbb.methods.constants import Checked, Count, Limits, Positive, Share
from pgbb.methods.effective_size import SMALLEST_ESS, effective_sample_size, too_few
from pgbb.methods.request import Planned, Request, by_level
from pgbb.model.loss_values import ratio_problem
from pgbb.model.models import Problem
from pgbb.private.door import Randomness
from pgbb.release.file import Release

if TYPE_CHECKING:
    from jax import Array

    from pgbb.private.door import Step


BARKER = 2.0  # variance of normal noise that the correction completes to a logistic law
TARGET = (
    "A Metropolis chain on noisy log ratios: its intervals target the tempered Gibbs posterior, on a uniform prior."
)
APPROXIMATE = (
    "Barker's test completes normal noise of variance 2 to a logistic law with an error of 8·10⁻⁴ in its distribution "
    "function; with a sampling rate below 1 it takes the variance of batches at its largest."
)


@dataclass(frozen=True)
class Settings(Checked):
    """Constants of the chain.

    Args:
      steps: T of each chain; steps are shorter by √T, so that more of them are no longer way, only a finer one.
      test: "penalty", exact whatever the noise, or "barker".
      sampling_rate: q; below 1 with "barker" only. A batch saves time and no budget: it adds noise of its own.
      tempering: ω, the power of the loss likelihood.
      noise: standard deviation of the noise of a log ratio, in the penalty test; √2 in Barker's.
      burn_in: share of each chain that is dropped.
      thin: keep every `thin`-th draw.
    """

    steps: Annotated[int, Limits(low=100)] = 10_000
    test: Literal["penalty", "barker"] = "penalty"
    sampling_rate: Annotated[float, Limits(above=0, high=1)] = 1.0
    tempering: Positive = 1.0
    noise: Annotated[float, Limits(above=0, high=10)] = 2.0
    burn_in: Share = 0.5
    thin: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling_rate < 1 and self.test == "penalty":
            raise InvalidValue(
                f"sampling_rate = {self.sampling_rate:g} is not allowed with test = 'penalty', which must know the "
                "variance of all noise: take sampling_rate = 1, or test = 'barker'."
            )

    def length(self, problem: Problem, n: int, sigma: float) -> float:
        """The largest ‖θ′ − θ‖, at which noise and batches give a log ratio the variance that the test has room for."""
        q = self.sampling_rate
        variance = (n * sigma / q) ** 2 + n * (1 - q) / q
        room = BARKER if self.test == "barker" else self.noise**2
        return math.sqrt(room / variance) / (self.tempering * problem.clip)


@lru_cache(maxsize=1)
def correction() -> tuple[Floats, Floats, float]:
    """(values, probabilities, error): what to add to N(0, 2) for a logistic law, and the error of its cdf.

    No law completes a normal one exactly; this is the nearest on a grid, by non-negative least squares.
    """
    from scipy.optimize import nnls  # slow to import

    values, at = np.linspace(-12, 12, 241), np.linspace(-16, 16, 641)
    design = ndtr((at[:, None] - values) / math.sqrt(BARKER))
    weights, _ = nnls(np.vstack([design, np.full(241, 10.0)]), np.append(expit(at), 10.0))
    weights = (weights + weights[::-1]) / (2 * weights.sum())
    return values, weights, float(np.abs(design @ weights - expit(at)).max())


@lru_cache(maxsize=32)
def _make_step(problem: Problem, settings: Settings, n: int, length: float) -> "Step":
    """A proposal in a uniform direction, between half the largest distance and all of it; one answer; accept or stay.

    The noise of a log ratio is in proportion to the distance: the penalty follows it, Barker's test is topped up.
    """
    import jax
    import jax.numpy as jnp

    from pgbb.private.door import Step

    low = jnp.asarray(problem.center - problem.radius, jnp.float32)
    high = jnp.asarray(problem.center + problem.radius, jnp.float32)
    scale = settings.tempering * problem.clip * n / settings.sampling_rate
    grid, weights, _ = correction()
    ends, values = jnp.asarray(np.cumsum(weights), jnp.float32), jnp.asarray(grid, jnp.float32)

    def query(state: "tuple[Array, Array]", draw: "dict[str, Array]") -> "tuple[Array, tuple[Array, Array]]":
        theta, key = state
        key, first, second = jax.random.split(key, 3)
        direction = jax.random.normal(first, theta.shape)
        reach = length * jax.random.uniform(second, minval=0.5, maxval=1.0)
        proposal = theta + reach * direction / jnp.sqrt(jnp.sum(direction**2))
        return jnp.concatenate([theta, proposal])[None], (proposal, key)

    def update(
        state: "tuple[Array, Array]", draw: "dict[str, Array]", memo: "tuple[Array, Array]", answers: "Array"
    ) -> "tuple[tuple[Array, Array], tuple[Array, Array]]":
        (theta, _), (proposal, key) = state, memo
        key, first, second = jax.random.split(key, 3)
        distance, u = jnp.sqrt(jnp.sum((theta - proposal) ** 2)), jax.random.uniform(first)
        ratio, share = scale * distance * answers[0, 0], jnp.minimum(distance / length, 1.0) ** 2
        if settings.test == "penalty":
            accepted = jnp.log(u) < ratio - settings.noise**2 * share / 2
        else:
            more = jnp.sqrt(BARKER * (1 - share)) * jax.random.normal(second)
            accepted = ratio + more + values[jnp.minimum(jnp.searchsorted(ends, u), len(values) - 1)] > 0
        accepted &= jnp.all((proposal >= low) & (proposal <= high))
        theta = jnp.where(accepted, proposal, theta)
        return (theta, key), (theta, accepted)

    return Step(query, update)


def _refuse(request: Request) -> None:
    request.refuse("dp_mcmc", non_private="the noise decides how long a step is. Give a large epsilon.")


def _each(settings: Settings, n: int) -> Mechanism:
    """What is asked for one level."""
    return Mechanism(n=n, blocks=1, sampling_rate=settings.sampling_rate, steps=settings.steps, clip=1.0)


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """T answers a level, all of the same noise."""
    _refuse(request)
    levels = len(by_level(request.model, request.schema)[0])
    one = _each(settings, n)
    return request.calibrate(one if levels == 1 else compose([one] * levels))


def run(request: Request, settings: Settings) -> Release:
    """One chain a level, from the centre of the box; the certificate notes a chain that cannot mix."""
    import jax
    import jax.numpy as jnp

    _refuse(request)
    problems, levels = by_level(request.model, request.schema)
    data = request.open(problems[0])
    planned, stream = plan(request, settings, data.n), Randomness.create(request.insecure_seed)
    request.begin(planned)
    chains, lengths, shares = [], [], []
    for i, problem in enumerate(problems):
        length = settings.length(problem, data.n, planned.sigma)
        asked = ratio_problem(request.model, problem)
        session = data.session(
            _each(settings, data.n), planned.sigma, stream, problem=asked, keep=i < len(problems) - 1
        )
        state = jnp.asarray(problem.center, jnp.float32), jax.random.key(int(stream.public.integers(2**63)))
        draws, accepted = [], 0.0
        for done, _, (theta, moved) in session.run(state, _make_step(problem, settings, data.n, length)):
            draws.append(np.asarray(theta))
            accepted += float(np.asarray(moved).sum())
            request.report(i * settings.steps + done, len(problems) * settings.steps)
        chains.append(np.concatenate(draws)[int(settings.burn_in * settings.steps) :: settings.thin])
        lengths.append(length)
        shares.append(accepted / settings.steps)
    sizes = [effective_sample_size(chain.astype(np.float64)) for chain in chains]
    notes = [TARGET, *([APPROXIMATE] if settings.test == "barker" else []), *too_few(sizes)]
    notes += [*_cannot_mix(settings, sizes, lengths, shares), *cut_off(problems[0], chains[0])]
    found = {"effective_sample_size": [s.tolist() for s in sizes], "accepted": shares, "step_length": lengths}
    return request.release_draws("dp_mcmc", planned, stream.source, chains, notes, found, levels)


def _cannot_mix(
    settings: Settings, sizes: Sequence[Floats], lengths: Sequence[float], shares: Sequence[float]
) -> list[str]:
    """Where a chain has too few effective draws: how far the budget lets it wander, and which ω would do.

    The way is √(T·accepted) steps, whose length falls with ω; effective draws go with (way/width)², so with 1/ω.
    """
    worst = min(range(len(sizes)), key=lambda i: float(sizes[i].min()))
    smallest = float(sizes[worst].min())
    if smallest >= SMALLEST_ESS:
        return []
    way = lengths[worst] * math.sqrt(settings.steps * shares[worst])
    advice = settings.tempering * smallest / (2 * SMALLEST_ESS)
    return [
        f"The chain cannot mix at this budget: all its steps together wander about {way:.2g} in the internal "
        f"coordinates. A tempering of {advice:.1g} would let it; intervals widen with one over its root."
    ]
