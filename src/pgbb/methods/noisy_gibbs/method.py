"""NoisyGibbs: posteriors that know the noise in their sufficient statistics (paper, section S3.1).

The records are asked once, for noisy sums; a Gibbs sampler then treats the true
sums as latent. Serves a mean with a Gaussian or exponential likelihood, and
linear regression with Gaussian errors, on the design of `pgbb.HuberRegression`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb.accountant import Own
from pgbb.errors import InvalidValue
from pgbb.methods.effective_size import effective_sample_size, too_few
from pgbb.methods.noisy_gibbs import sampler
from pgbb.methods.noisy_gibbs.settings import Settings, calibrated
from pgbb.methods.noisy_sums import middle, response_bound
from pgbb.methods.request import Planned, Request, prepared
from pgbb.model.models import HuberRegression, Mean, Problem
from pgbb.private.door import Moment, Randomness, open_dataset
from pgbb.release.file import Release
from pgbb.release.payloads import Payload, summary_of

Floats = NDArray[np.float64]

__all__ = ["Asked", "Settings", "ask", "plan", "run"]


def _mean_chain(
    model: Mean, settings: Settings, iterations: int, n: int, total: float, noise: float, rng: np.random.Generator
) -> Floats:
    """The chain (iterations, 1) of the family's mean."""
    if model.family == "gaussian":
        assert model.scale is not None
        chain = sampler.gaussian_chain(
            total, noise, n, scale=model.scale, variance=settings.mean_variance, iterations=iterations, rng=rng
        )
    else:
        chain = sampler.exponential_chain(
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
        shift, half = middle(problem)
        note = (
            f"Noise-aware posterior of a mean with {model.family} likelihood. A record with a missing cell counts as "
            "the middle of the public range."
        )
        return [Moment("response", bound=half)], shift, [note]
    p, bound = problem.dim - 1, response_bound(problem, settings.response_bound)
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
    if isinstance(model, Mean) and model.family == "bernoulli":
        raise InvalidValue("method = 'noisy_gibbs' does not serve a Bernoulli mean: take 'repro' or 'calibrated'.")
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
    return calibrated(request, settings, moments, n)


@dataclass(frozen=True, eq=False)
class Asked:
    """What the records have said: noisy sums with the standard deviations of their noise, and what is public."""

    model: Mean | HuberRegression
    problem: Problem
    n: int
    shift: float
    sums: list[tuple[Floats, float]]
    planned: Planned
    randomness: Randomness
    notes: list[str]

    @property
    def released(self) -> sampler.Released:
        """Of a regression."""
        (total, noise), second, fourth = self.sums
        return sampler.Released(self.n, total, noise, second[0] / self.n, fourth[0] / self.n)


def ask(request: Request, settings: Settings) -> Asked:
    """Load the records, ask them once, and let go of them: all that follows is post-processing."""
    model = _served(request)
    problem = prepared(model, request.schema)
    moments, shift, notes = _questions(model, problem, request, settings)
    data = open_dataset(request.data, problem, request.schema)
    request.advise(data.n)
    planned = calibrated(request, settings, moments, data.n)
    target, randomness = planned.mechanism, Randomness.create(request.insecure_seed)
    assert not isinstance(target, Own)
    request.begin(planned)
    sums = data.moments(moments, target, planned.sigma, randomness, shift=shift)
    return Asked(model, problem, data.n, shift, sums, planned, randomness, [*notes, *planned.notes])


def run(request: Request, settings: Settings) -> Release:
    """Fit by NoisyGibbs: one noisy sum (three for a regression), and a sampler that accounts for the noise.

    The interval carries sampling and privacy noise, as far as the working
    likelihood holds. Fewer than 100 effective draws are noted and warned about.
    """
    asked = ask(request, settings)
    model, problem, n, planned, notes = asked.model, asked.problem, asked.n, asked.planned, asked.notes
    (total, noise), rng, extra = asked.sums[0], asked.randomness.public, {}
    if isinstance(model, Mean):
        iterations, thin = settings.iterations or 4_000, settings.thin or 2
        chain = _mean_chain(model, settings, iterations, n, float(total[0]) + n * asked.shift, noise, rng)
        measured = chain[settings.kept(iterations, 1)]
        draws = measured[::thin]
    else:
        iterations, thin = settings.iterations or 400_000, settings.thin or 10
        prior = settings.prior
        kept = settings.kept(iterations, thin)
        if request.non_private:  # the sums are known: independent draws
            draws = sampler.conjugate_draws(total, n, prior, len(range(*kept.indices(iterations))), rng)
        else:
            chain, extra["possible_statistics"] = sampler.regression_chain(
                asked.released, prior, iterations, rng, request.progress
            )
            draws = chain[kept]
        measured = draws
    if request.progress is not None:
        request.progress(iterations, iterations)
    sizes = effective_sample_size(measured)
    notes += too_few([sizes])
    return Release(
        model=summary_of(problem),
        schema=request.schema.to_dict(),
        certificate=request.certify(
            planned.mechanism, planned.sigma, asked.randomness.source, notes, epsilon=planned.claim
        ),
        payload=Payload(kind="draws", settings={"index_values": None}, tensors={"draws": draws.astype(np.float32)}),
        diagnostics={"method": "noisy_gibbs", "effective_sample_size": [sizes.tolist()], **extra},
    )
