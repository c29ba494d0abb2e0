"""NoisyGibbs: posteriors that know the noise in their sufficient statistics (paper, section S3.1).

The records are asked once, for noisy sums; a Gibbs sampler then treats the true sums as latent. Serves a mean with a
Gaussian or exponential likelihood, and linear regression with Gaussian errors, on the design of `pgbb.HuberRegression`.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np

from pgbb import _validate
from pgbb.accountant import compose, gaussian_noise_scale
from pgbb.accountant import epsilon as certified_epsilon
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.methods.constants import Count, Limits, Priors, Share
from pgbb.methods.effective_size import effective_sample_size, too_few
from pgbb.methods.noisy_gibbs import sampler
from pgbb.methods.noisy_sums import Answer, Served, answered, question
from pgbb.methods.request import Planned, Request
from pgbb.model.models import HuberRegression, Mean, Problem
from pgbb.private.door import Moment
from pgbb.release.file import Release


@dataclass(frozen=True)
class Settings(Priors):
    """Constants of the method; the defaults, with `noise="classical"`, are those of the paper's tables.

    Args:
      noise: "analytic" composes the releases exactly; "classical" gives each Δ√(2 log(1.25/δ'))/ε' at its (ε', δ').
      shares: of the budget, for (XᵀX, Xᵀy, yᵀy), the second and the fourth moments of x; a mean has one release.
      iterations: of the sampler; None is 400,000 for a regression and 4,000 for a mean.
      burn_in: share of the chain that is dropped.
      thin: keep every `thin`-th draw; None is 10 for a regression and 2 for a mean.
      Beside these, the constants of `Priors`.
    """

    noise: Literal["analytic", "classical"] = "analytic"
    shares: tuple[float, float, float] = (0.5, 0.25, 0.25)
    iterations: Annotated[int, Limits(low=20)] | None = None
    burn_in: Share = 0.5
    thin: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given: object = self.shares
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 3:
            raise _validate.fail("shares", given, "three positive numbers with sum 1")
        shares = tuple(_validate.number("shares", s, above=0, below=1) for s in given)
        if abs(sum(shares) - 1) > 1e-9:
            raise _validate.fail("shares", given, "three positive numbers with sum 1")
        object.__setattr__(self, "shares", shares)

    @property
    def prior(self) -> sampler.Prior:
        """The prior of a regression."""
        return sampler.Prior(self.coefficient_precision, self.variance_shape, self.variance_rate)

    def kept(self, iterations: int, thin: int) -> slice:
        """Positions of a chain that are released."""
        return slice(int(self.burn_in * iterations), None, thin)


def _questions(request: Request, settings: Settings) -> tuple[Served, Problem, list[Moment], float]:
    """The model if it is served, its problem, the sums to ask for, and the public shift of the response."""
    model = request.model
    if not isinstance(model, Mean | HuberRegression):
        raise InvalidValue(
            f"method = 'noisy_gibbs' does not serve {type(model).__name__}: it needs a likelihood whose sufficient "
            "statistics are sums. Take pgbb.Mean, pgbb.HuberRegression (with Gaussian errors here), or another method."
        )
    if isinstance(model, Mean) and model.family == "bernoulli":
        raise InvalidValue("method = 'noisy_gibbs' does not serve a Bernoulli mean: take 'repro' or 'calibrated'.")
    served, problem, moment, shift = question(request, "noisy_gibbs", settings.response_bound)
    assert moment is not None
    moments = [replace(moment, unit=1.0)]
    if isinstance(model, HuberRegression):
        moments += [Moment("second", moment.p), Moment("fourth", moment.p)]
    return served, problem, moments, shift


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise."""
    return _calibrated(request, settings, _questions(request, settings)[2], n)


def _calibrated(request: Request, settings: Settings, moments: Sequence[Moment], n: int) -> Planned:
    """The sums that are released, and the noise of each.

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
    if not classical:
        return request.calibrate(target)
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


def ask(request: Request, settings: Settings) -> Answer:
    """Ask the records once, for one sum, or three of a regression."""
    model, problem, moments, shift = _questions(request, settings)
    if isinstance(model, Mean):
        notes = [
            f"Noise-aware posterior of a mean with {model.family} likelihood. A record with a missing cell counts as "
            "the middle of the public range."
        ]
    else:
        notes = [
            "Noise-aware posterior of a linear regression with Gaussian errors: Huber's constants are not used, and "
            "'scale' is the standard deviation of the errors.",
            f"The response less {shift:g} is clipped to ±{moments[0].bound:g}. A record with a missing cell counts as "
            "zeros, which lowers 'scale'.",
        ]
    return answered(
        request, model, problem, moments, shift, notes, lambda n: _calibrated(request, settings, moments, n)
    )


def released(answer: Answer) -> sampler.Released:
    """The sums of a regression, as its sampler reads them."""
    (total, noise), second, fourth = answer.sums
    return sampler.Released(answer.n, total, noise, second[0] / answer.n, fourth[0] / answer.n)


def run(request: Request, settings: Settings) -> Release:
    """Fit by NoisyGibbs: one noisy sum (three for a regression), and a sampler that accounts for the noise.

    The interval carries sampling and privacy noise, as far as the working likelihood holds. Fewer than 100 effective
    draws are noted and warned about.
    """
    answer = ask(request, settings)
    model, rng, extra = answer.model, answer.randomness.public, dict[str, float]()
    if isinstance(model, Mean):
        iterations, thin = settings.iterations or 4_000, settings.thin or 2
        known = float(answer.total[0]) + answer.n * answer.shift, answer.noise, answer.n
        if model.family == "gaussian":
            assert model.scale is not None
            chain = sampler.gaussian_chain(
                *known, scale=model.scale, variance=settings.mean_variance, iterations=iterations, rng=rng
            )
        else:
            chain = sampler.exponential_chain(
                *known, shape=settings.rate_shape, rate=settings.rate_rate, iterations=iterations, rng=rng
            )
        measured = chain[:, None][settings.kept(iterations, 1)]
        draws = measured[::thin]
    else:
        iterations, thin = settings.iterations or 400_000, settings.thin or 10
        kept = settings.kept(iterations, thin)
        if request.non_private:  # the sums are known: independent draws
            count = len(range(*kept.indices(iterations)))
            draws = sampler.conjugate_draws(answer.total, answer.n, settings.prior, count, rng)
        else:
            chain, extra["possible_statistics"] = sampler.regression_chain(
                released(answer), settings.prior, iterations, rng, request.progress
            )
            draws = chain[kept]
        measured = draws
    request.report(iterations, iterations)
    sizes = effective_sample_size(measured)
    notes, stored = [*answer.notes, *too_few([sizes])], [draws.astype(np.float32)]
    about = {"effective_sample_size": [sizes.tolist()], **extra}
    return request.release_draws("noisy_gibbs", answer.planned, answer.randomness.source, stored, notes, about)
