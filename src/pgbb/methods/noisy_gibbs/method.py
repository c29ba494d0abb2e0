"""NoisyGibbs: posteriors that know the noise in their sufficient statistics (paper, SM `sec:supp_competitors`).

The records are asked once, for noisy sums; a Gibbs sampler then treats the true
sums as latent. Serves a mean with a Gaussian or exponential likelihood, and
linear regression with Gaussian errors, on the design of `pgbb.HuberRegression`.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.accountant import Resampling, compose, noise_scale
from pgbb.accountant import epsilon as certified_epsilon
from pgbb.accountant.gaussian import gaussian_noise_scale
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.methods.effective_size import effective_sample_size
from pgbb.methods.noisy_gibbs import sampler as _gibbs
from pgbb.methods.request import Planned, Request, prepared
from pgbb.model.models import HuberRegression, Mean, Problem
from pgbb.model.schema import Range
from pgbb.private.door import Moment, Randomness, open_dataset
from pgbb.release.file import Release
from pgbb.release.payloads import Payload, summary_of

Floats = NDArray[np.float64]

__all__ = ["Settings", "plan", "run"]

SMALLEST_ESS = 100.0
"""Below this many effective draws a chain's intervals are marked."""


@dataclass(frozen=True)
class Settings:
    """Constants of the method; the defaults, with `noise="classical"`, are those of the paper's tables.

    Args:
      noise: "analytic" composes the releases exactly; "classical" gives each Δ√(2 log(1.25/δ'))/ε' at its (ε', δ').
      shares: of the budget, for (XᵀX, Xᵀy, yᵀy), the second and the fourth moments of x; a mean has one release.
      iterations: of the sampler; None is 400,000 for a regression and 4,000 for a mean.
      burn_in: share of the chain that is dropped.
      thin: keep every `thin`-th draw; None is 10 for a regression and 2 for a mean.
      response_bound: B_y, the response less its public centre is clipped to ±B_y; None is what the schema allows.
      coefficient_precision: β | σ² ~ N(0, σ²/`coefficient_precision`), for design terms mapped to [−1, 1].
      variance_shape, variance_rate: σ² ~ inverse gamma, in squared units of the response.
      mean_variance: μ ~ N(0, `mean_variance`) of a Gaussian mean.
      rate_shape, rate_rate: λ ~ Gamma of an exponential mean 1/λ.
    """

    noise: Literal["analytic", "classical"] = "analytic"
    shares: tuple[float, float, float] = (0.5, 0.25, 0.25)
    iterations: int | None = None
    burn_in: float = 0.5
    thin: int | None = None
    response_bound: float | None = None
    coefficient_precision: float = 0.5
    variance_shape: float = 2.0
    variance_rate: float = 1.0
    mean_variance: float = 100.0
    rate_shape: float = 1.0
    rate_rate: float = 1.0

    def __post_init__(self) -> None:
        _validate.one_of("noise", self.noise, ("analytic", "classical"))
        given: Any = self.shares
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 3:
            raise _validate.fail("shares", given, "three positive numbers with sum 1")
        shares = tuple(_validate.number("shares", s, above=0, below=1) for s in given)
        if abs(sum(shares) - 1) > 1e-9:
            raise _validate.fail("shares", given, "three positive numbers with sum 1")
        object.__setattr__(self, "shares", shares)
        if self.iterations is not None:
            _validate.integer("iterations", self.iterations, low=20)
        _validate.number("burn_in", self.burn_in, low=0, below=1)
        if self.thin is not None:
            _validate.integer("thin", self.thin, low=1)
        if self.response_bound is not None:
            _validate.number("response_bound", self.response_bound, above=0)
        for name in (
            "coefficient_precision", "variance_shape", "variance_rate", "mean_variance", "rate_shape", "rate_rate"
        ):  # fmt: skip
            _validate.number(name, getattr(self, name), above=0)

    def kept(self, iterations: int, thin: int) -> slice:
        """Positions of a chain that are released."""
        return slice(int(self.burn_in * iterations), None, thin)


def _calibrated(request: Request, settings: Settings, moments: Sequence["Moment"], n: int) -> Planned:
    """What is released at which noise.

    Analytic noise has scale C_i/share_i, so that the multiplier of a release is proportional to its share.
    """
    clips = [m.clip for m in moments]
    shares = settings.shares if len(moments) > 1 else (1.0,)
    classical = settings.noise == "classical" and not request.non_private
    if classical:
        noises = _classical(clips, shares, request.epsilon, request.delta)
    else:
        noises = [c / s for c, s in zip(clips, shares, strict=True)]
    members = [m.describe(n) for m in moments]
    target = compose(members, scales=[v / noises[0] for v in noises]) if len(members) > 1 else members[0]
    if request.non_private:
        return Planned(target, 0.0)
    if not classical:
        return Planned(target, noise_scale(target, request.epsilon, request.delta, request.accountant))
    sigma = noises[0] / n
    spent = certified_epsilon(target, sigma, request.delta, request.accountant)
    notes = (f"Classical Gaussian noise for a nominal ε = {request.epsilon:g}; it amounts to ε = {spent:.4g}.",)
    if spent <= request.epsilon:
        return Planned(target, sigma, None, notes)
    warnings.warn(
        f"noise = 'classical' at epsilon = {request.epsilon:g} amounts to ε = {spent:.4g}, which is what the "
        "certificate claims. Use noise='analytic' to keep the budget.",
        PgbbWarning,
        stacklevel=4,
    )
    return Planned(target, sigma, spent, notes)


def _classical(clips: Sequence[float], shares: Sequence[float], epsilon: float, delta: float) -> list[float]:
    """Noise of each sum, Δ√(2 log(1.25/δ'))/ε' with Δ = 2C and (ε', δ') = share·(ε, δ)."""
    if max(shares) * epsilon >= 1:
        warnings.warn(
            f"noise = 'classical' at epsilon = {epsilon:g} gives one release ε' = {max(shares) * epsilon:g}: the "
            "classical Gaussian mechanism is proved for ε' < 1 only. What is certified is computed from the noise.",
            PgbbWarning,
            stacklevel=5,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PgbbWarning)
        return [
            gaussian_noise_scale(2 * c, s * epsilon, s * delta, variant="classical")
            for c, s in zip(clips, shares, strict=True)
        ]


def _bound(problem: Problem, given: float | None) -> float:
    """B_y: as given, or the largest |response − shift| that the schema allows."""
    if given is not None:
        return given
    assert problem.design is not None
    low, high = problem.design.response_bounds
    return max(abs(low - problem.shift), abs(high - problem.shift))


def _mean_chain(
    model: Mean, settings: Settings, iterations: int, n: int, total: float, noise: float, rng: np.random.Generator
) -> Floats:
    """The chain (iterations, 1) of the family's mean."""
    if model.family == "gaussian":
        assert model.scale is not None
        chain = _gibbs.gaussian_chain(
            total, noise, n, scale=model.scale, variance=settings.mean_variance, iterations=iterations, rng=rng
        )
    else:
        chain = _gibbs.exponential_chain(
            total, noise, n, shape=settings.rate_shape, rate=settings.rate_rate, iterations=iterations, rng=rng
        )
    return chain[:, None]


def _questions(
    model: Mean | HuberRegression, problem: Problem, request: Request, settings: Settings
) -> tuple[list[Moment], float, list[str]]:
    """The sums to ask for, the public shift of the response, and what a reader should know.

    The sum of a mean is that of x less the middle of its range [a, b], so that its sensitivity is b − a.
    """
    if isinstance(model, Mean):
        if settings.response_bound is not None:
            raise InvalidValue(
                f"response_bound = {settings.response_bound!r} is not allowed for a mean: declare the column with a "
                "narrower Range instead."
            )
        column = request.schema[model.column]
        assert isinstance(column, Range)
        note = (
            f"Noise-aware posterior of a mean with {model.family} likelihood. A record with a missing cell counts as "
            "the middle of the public range."
        )
        return [Moment("response", bound=(column.high - column.low) / 2)], (column.low + column.high) / 2, [note]
    p, bound = problem.dim - 1, _bound(problem, settings.response_bound)
    notes = [
        "Noise-aware posterior of a linear regression with Gaussian errors: Huber's constants are not used, and "
        "'scale' is the standard deviation of the errors.",
        f"The response less {problem.shift:g} is clipped to ±{bound:g}. A record with a missing cell counts as zeros, "
        "which lowers 'scale'.",
    ]
    return [Moment("products", p, bound), Moment("second", p), Moment("fourth", p)], problem.shift, notes


def _served(request: Request) -> Mean | HuberRegression:
    """The model, if this method serves it."""
    model = request.model
    if not isinstance(model, Mean | HuberRegression):
        raise InvalidValue(
            f"method = 'noisy_gibbs' does not serve {type(model).__name__}: it needs a likelihood whose sufficient "
            "statistics are sums. Take pgbb.Mean, pgbb.HuberRegression (with Gaussian errors here), or another method."
        )
    if request.weights is not None:
        raise InvalidValue(
            f"weights = {request.weights!r} is not allowed with method = 'noisy_gibbs': its likelihood counts every "
            "record once. Leave the weights out, or take another method."
        )
    return model


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise."""
    model = _served(request)
    moments, _, _ = _questions(model, prepared(model, request.schema), request, settings)
    return _calibrated(request, settings, moments, n)


def run(request: Request, settings: Settings) -> Release:
    """Fit by NoisyGibbs: one noisy sum (three for a regression), and a sampler that accounts for the noise.

    The interval carries sampling and privacy noise, as far as the working
    likelihood holds. Fewer than 100 effective draws are noted and warned about.
    """
    model = _served(request)
    problem = prepared(model, request.schema)
    moments, shift, notes = _questions(model, problem, request, settings)
    data = open_dataset(request.data, problem, request.schema)
    n = data.n
    request.advise(n)
    planned = _calibrated(request, settings, moments, n)
    target, sigma = planned.mechanism, planned.sigma
    assert not isinstance(target, Resampling)
    randomness = Randomness.create(request.insecure_seed)
    request.begin(planned)
    sums = data.moments(moments, target, sigma, randomness, shift=shift)
    del data  # all that follows is post-processing
    (total, noise), rng, extra = sums[0], randomness.public, {}
    if isinstance(model, Mean):
        iterations, thin = settings.iterations or 4_000, settings.thin or 2
        chain = _mean_chain(model, settings, iterations, n, float(total[0]) + n * shift, noise, rng)
        measured = chain[settings.kept(iterations, 1)]
        draws = measured[::thin]
    else:
        iterations, thin = settings.iterations or 400_000, settings.thin or 10
        prior = _gibbs.Prior(settings.coefficient_precision, settings.variance_shape, settings.variance_rate)
        kept = settings.kept(iterations, thin)
        if request.non_private:  # the sums are known: independent draws
            draws = _gibbs.conjugate_draws(total, n, prior, len(range(*kept.indices(iterations))), rng)
        else:
            released = _gibbs.Released(n, total, noise, sums[1][0] / n, sums[2][0] / n)
            chain, extra["possible_statistics"] = _gibbs.regression_chain(
                released, prior, iterations, rng, request.progress
            )
            draws = chain[kept]
        measured = draws
    if request.progress is not None:
        request.progress(iterations, iterations)
    sizes = effective_sample_size(measured)
    notes += planned.notes
    smallest = float(np.min(sizes))
    if smallest < SMALLEST_ESS:
        text = f"Too few effective draws ({smallest:.0f} in the worst coefficient): do not trust the intervals."
        notes.append(text)
        warnings.warn(text, PgbbWarning, stacklevel=3)
    return Release(
        model=summary_of(problem),
        schema=request.schema.to_dict(),
        certificate=request.certify(target, sigma, randomness.source, notes, epsilon=planned.claim),
        payload=Payload(kind="draws", settings={"index_values": None}, tensors={"draws": draws.astype(np.float32)}),
        diagnostics={"method": "noisy_gibbs", "effective_sample_size": [sizes.tolist()], **extra},
    )
