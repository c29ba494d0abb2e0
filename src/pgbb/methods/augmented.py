"""Data augmentation for noisy sums (Ju, Awan, Gong & Rao 2022; the R package dapper): the records are latent.

Each iteration draws parameters given n latent records, by conjugacy, then proposes a new value for every record from
the model and accepts it by the ratio of the noise density at the sum with it and without it. The chain has the
posterior given the release as its law, clamping included, without a central limit theorem. The records are asked once;
all else is post-processing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.constants import Count, Limits, Priors, Share
from pgbb.methods.effective_size import effective_sample_size, too_few
from pgbb.methods.noisy_sums import Answer, ask, middle, plan_of
from pgbb.methods.request import Planned, Request
from pgbb.model.models import Mean
from pgbb.private.door import entries
from pgbb.release.file import Release

if TYPE_CHECKING:
    from jax import Array


CHUNK = 500  # iterations of one call


@dataclass(frozen=True)
class Settings(Priors):
    """Constants of the chain; priors are those of `noisy_gibbs`.

    The mapped covariates of a regression are draws of a normal law with unknown mean and covariance, clamped to
    [−1, 1]: mean | Σ ~ N(0, Σ), Σ ~ inverse Wishart(p + 2, I/3). The response follows the clamped ones.

    Args:
      iterations: of the chain; each touches every record once.
      burn_in: share of the chain that is dropped.
      thin: keep every `thin`-th draw.
      Beside these, the constants of `Priors`.
    """

    iterations: Annotated[int, Limits(low=100)] = 10_000
    burn_in: Share = 0.3
    thin: Count = 1


@dataclass(frozen=True, eq=False)
class Augmentation:
    """A model of n latent records, (n, k) numbers, as the chain needs it.

    Attributes:
      start: latent records to begin with.
      shapes: of the gamma variates that an iteration needs, drawn ahead.
      conjugate: (key, gamma variates, records) → parameters given records.
      propose: (key, parameters) → n fresh records.
      statistic: records → (n, d), what the private sum adds up.
      shown: parameters → what is stored.
    """

    start: Floats
    shapes: Floats
    conjugate: "Callable[[Array, Array, Array], tuple[Array, ...]]"
    propose: "Callable[[Array, tuple[Array, ...]], Array]"
    statistic: "Callable[[Array], Array]"
    shown: "Callable[[tuple[Array, ...]], Array]"


def _refuse(request: Request) -> None:
    request.refuse("augmented", non_private="without noise no latent record can change. Take 'noisy_gibbs'.")


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise."""
    _refuse(request)
    return plan_of(request, "augmented", n, settings.response_bound)


def run(request: Request, settings: Settings) -> Release:
    """Ask the records once, and run the chain over what they may have been."""
    _refuse(request)
    answer = ask(request, "augmented", settings.response_bound)
    rng = answer.randomness.public
    model = (_mean if isinstance(answer.model, Mean) else _regression)(answer, settings, rng)
    chain, accepted = _chain(model, answer, settings, rng, request)
    kept = chain[int(settings.burn_in * settings.iterations) :: settings.thin]
    sizes = effective_sample_size(kept)
    notes = ["Data augmentation: the posterior given the release, clamping included.", *answer.notes, *too_few([sizes])]
    about, stored = {"effective_sample_size": [sizes.tolist()], "acceptance": accepted}, [kept.astype(np.float32)]
    return request.release_draws("augmented", answer.planned, answer.randomness.source, stored, notes, about)


def _chain(
    model: Augmentation, answer: Answer, settings: Settings, rng: np.random.Generator, request: Request
) -> tuple[Floats, float]:
    """The chain of parameters, and the share of proposed records that were accepted."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    total, noise = jnp.asarray(answer.total, jnp.float32), answer.noise

    def one(left: "Array", record: "tuple[Array, Array]") -> "tuple[Array, Array]":
        """`left` is the release less the latent sum: a proposal changes the sum by `change`."""
        change, threshold = record
        accept = threshold < jnp.sum(change * (2 * left - change)) / (2 * noise**2)
        return left - jnp.where(accept, change, 0.0), accept

    def iteration(records: "Array", drawn: "tuple[Array, Array]") -> "tuple[Array, tuple[Array, Array]]":
        first, second, third = jax.random.split(drawn[0], 3)
        parameters = model.conjugate(first, drawn[1], records)
        proposed = model.propose(second, parameters)
        old = model.statistic(records)
        thresholds = jnp.log(jax.random.uniform(third, (answer.n,)))
        _, accepted = lax.scan(one, total - jnp.sum(old, axis=0), (model.statistic(proposed) - old, thresholds))
        records = jnp.where(accepted[:, None], proposed, records)
        return records, (model.shown(parameters), jnp.mean(accepted))

    run_chunk = jax.jit(lambda records, drawn: lax.scan(iteration, records, drawn))
    records, draws, accepts = jnp.asarray(model.start, jnp.float32), [], []
    keys = jax.random.split(jax.random.key(int(rng.integers(2**63))), settings.iterations)
    for start in range(0, settings.iterations, CHUNK):
        part = keys[start : start + CHUNK]
        gammas = rng.standard_gamma(model.shapes, (len(part), len(model.shapes)))
        records, (shown, accepted) = run_chunk(records, (part, gammas.astype(np.float32)))
        draws.append(np.asarray(shown, np.float64))
        accepts.append(np.asarray(accepted))
        request.report(min(start + CHUNK, settings.iterations), settings.iterations)
    return np.concatenate(draws), float(np.concatenate(accepts).mean())


def _mean(answer: Answer, settings: Settings, rng: np.random.Generator) -> Augmentation:
    """A Gaussian, exponential or Bernoulli mean, with the conjugate prior of its family."""
    import jax
    import jax.numpy as jnp

    model, n = answer.model, answer.n
    assert isinstance(model, Mean)
    shift, half = middle(answer.problem)
    scale, random = float(model.scale or 1), jax.random

    def conjugate(key: "Array", gammas: "Array", records: "Array") -> "tuple[Array, ...]":
        total = jnp.sum(records)
        if model.family == "gaussian":
            precision = n / scale**2 + 1 / settings.mean_variance
            return (total / scale**2 / precision + random.normal(key) / jnp.sqrt(precision),)
        if model.family == "exponential":
            return ((settings.rate_rate + total) / gammas[0],)
        return (random.beta(key, 1 + total, 1 + n - total),)

    def propose(key: "Array", parameters: "tuple[Array, ...]") -> "Array":
        (mean,) = parameters
        if model.family == "gaussian":
            return mean + scale * random.normal(key, (n, 1))
        if model.family == "exponential":
            return mean * random.exponential(key, (n, 1))
        return (random.uniform(key, (n, 1)) < mean).astype(jnp.float32)

    def statistic(records: "Array") -> "Array":
        return jnp.clip(records, shift - half, shift + half) - shift

    centre = min(max(float(answer.total[0]) / n + shift, shift - half), shift + half)
    if model.family == "gaussian":
        start = centre + scale * rng.standard_normal((n, 1))
    elif model.family == "exponential":
        start = max(centre, half / n) * rng.standard_exponential((n, 1))
    else:
        start = (rng.random((n, 1)) < centre).astype(np.float64)
    return Augmentation(start, np.array([settings.rate_shape + n]), conjugate, propose, statistic, jnp.stack)


def _regression(answer: Answer, settings: Settings, rng: np.random.Generator) -> Augmentation:
    """A linear regression on normal covariates; a record is (its free mapped covariates, its response)."""
    import jax
    import jax.numpy as jnp

    n, problem, random, solve = answer.n, answer.problem, jax.random, jax.scipy.linalg.solve_triangular
    assert problem.design is not None
    fixed = int(problem.design.has_intercept)
    p = problem.dim - 1
    q = p - fixed
    i, j = entries(p, 2).T

    def design(records: "Array") -> "Array":
        """What the response follows: covariates within their range, as the private sum has them."""
        return jnp.concatenate([jnp.ones((n, fixed)), jnp.clip(records[:, :q], -1, 1)], axis=1)

    def conjugate(key: "Array", gammas: "Array", records: "Array") -> "tuple[Array, ...]":
        keys = random.split(key, 3)
        x, y, free = design(records), records[:, q], records[:, :q]
        lower = jnp.linalg.cholesky(x.T @ x + settings.coefficient_precision * jnp.eye(p))
        white = solve(lower, x.T @ y, lower=True)
        rate = settings.variance_rate + (jnp.sum(y**2) - jnp.sum(white**2)) / 2
        deviation = jnp.sqrt(rate / gammas[0])
        beta = solve(lower.T, white + deviation * random.normal(keys[0], (p,)), lower=False)
        middle = jnp.mean(free, axis=0)
        centred = free - middle
        scatter = centred.T @ centred + jnp.eye(q) / 3 + n / (n + 1) * jnp.outer(middle, middle)
        bartlett = jnp.diag(jnp.sqrt(2 * gammas[1:])) + jnp.tril(random.normal(keys[1], (q, q)), -1)
        # Σ = T Tᵀ with T = C B⁻ᵀ, CCᵀ the scatter and BBᵀ standard Wishart
        root = solve(bartlett, jnp.linalg.cholesky(scatter).T, lower=True).T
        centre = n / (n + 1) * middle + root @ random.normal(keys[2], (q,)) / jnp.sqrt(n + 1)
        return beta, deviation, centre, root

    def propose(key: "Array", parameters: "tuple[Array, ...]") -> "Array":
        beta, deviation, centre, root = parameters
        normals = random.normal(key, (n, q + 1))
        free = centre + normals[:, :q] @ root.T
        y = design(free) @ beta + deviation * normals[:, q]
        return jnp.concatenate([free, y[:, None]], axis=1)

    def statistic(records: "Array") -> "Array":
        x, y = design(records), jnp.clip(records[:, q:] / answer.bound, -1, 1)
        return jnp.concatenate([x[:, i] * x[:, j], x * y, y**2], axis=1)

    start = np.column_stack([rng.uniform(-1, 1, (n, q)), 0.3 * answer.bound * rng.standard_normal(n)])
    shapes = np.append(settings.variance_shape + n / 2, (q + 2 + n - np.arange(q)) / 2)
    return Augmentation(start, shapes, conjugate, propose, statistic, lambda p: jnp.append(p[0], p[1]))
