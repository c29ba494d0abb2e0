"""DP-Bootstrap (Wang, Cheng & Awan 2025): B noisy refits on resampled records, and an interval that knows the noise.

Regressions follow their Algorithm 2 (ridge-penalised M-estimates with output perturbation), a mean their Algorithm 3
(deconvolution). Everything after `Dataset.refits` is post-processing of the B noisy estimates.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from scipy.special import ndtr, ndtri

from pgbb import _validate
from pgbb._numerics import Floats
from pgbb.accountant import Resampling, epsilon, gdp_mu
from pgbb.errors import InvalidValue, NotCertifiable, PgbbWarning
from pgbb.methods.constants import Checked, Limits, Positive
from pgbb.methods.request import Planned, Request, by_level
from pgbb.model.models import Mean, Problem
from pgbb.private.door import Randomness, largest_sensitivity, mean_sensitivity, refit_sensitivity
from pgbb.release.file import Release

Error = Annotated[float, Limits(above=0, below=0.5)]
NORMAL = (
    "Intervals of DP-Bootstrap: valid for estimates that are roughly normal. The penalty pulls coefficients to zero, "
    "and the intervals do not make up for it."
)
DECONVOLVED = (
    "Interval of DP-Bootstrap for the mean of the variable truncated to its declared bounds; a record that cannot be "
    "used counts as their middle."
)


@dataclass(frozen=True)
class Settings(Checked):
    """Constants of DP-Bootstrap; the defaults are those that reproduce the paper's tables, but for the calibration.

    The interval at level 1 − variance_error − interval_error (95 %) bounds the sampling variance from above with error
    `variance_error`, and has error `interval_error` at that variance. The stored draws have this interval as their
    central one. At another level 1 − a the draws give the interval whose normal quantile is stretched by the same
    factor z(1 − interval_error/2)/z(.975), with the variance bound unchanged.

    Args:
      replicates: B, refits for each level; the noise of one grows with √B, that of their mean does not.
      penalty: λ in (λ/2)‖θ‖², in the coordinates in which covariates lie in [−1, 1]. Sensitivity is 2C/(λn), bias ∝ λ.
      clip: a bound on the gradient, no less than the model's own, which is the default (2.3935 for the regression of
        the paper; its tables have 2.648).
      calibration: "proved" meets ε by the accountant; "asymptotic" takes the printed σ = √((2−2/e)B)·Δ/μ, a limit as
        B → ∞, and the certificate then claims the larger ε that is proved.
      variance_error, interval_error: the shares of the error.
      draws: m, the number of stored draws.
    """

    replicates: Annotated[int, Limits(low=2, remedy="The paper has 20.")] = 20
    penalty: Positive = 0.02
    clip: Positive | None = None
    calibration: Literal["proved", "asymptotic"] = "proved"
    variance_error: Error = 0.025
    interval_error: Error = 0.025
    draws: Annotated[int, Limits(low=100)] = 2000

    @property
    def stretch(self) -> float:
        """z of the interval over z of its level: 2.241/1.960."""
        return float(ndtri(1 - self.interval_error / 2) / ndtri(1 - (self.variance_error + self.interval_error) / 2))


@dataclass(frozen=True)
class Estimate:
    """Centre, bound on the sampling variance, and standard error of each coordinate."""

    centre: Floats
    variance: Floats
    error: Floats


def interval(values: Floats, noise: Floats, variance_error: float = 0.025) -> Estimate:
    """Algorithm 2: what B noisy estimates (B, d) with known noise variances (d,) say.

    Given the data a value is N(θ̂, V + noise), so (B−1)s²/(V + noise) ~ χ²_{B−1}, and
    V ≤ (B−1)s²/χ²_{B−1}(variance_error) − noise except with that probability (0 if negative). The centre, the mean of
    the B, has variance V around θ for the data, V/B for the resampling and noise/B: in all V(1 + 1/B) + noise/B.

    >>> found = interval(np.array([[0.0], [1.0], [2.0]]), np.array([.5]))
    >>> [round(float(v[0]), 3) for v in (found.centre, found.variance, found.error)]
    [1.0, 38.998, 7.222]
    """
    from scipy.stats import chi2

    count = len(values)
    spread = (count - 1) * values.var(axis=0, ddof=1) / float(chi2.ppf(variance_error, count - 1))
    variance = np.maximum(spread - noise, 0.0)
    return Estimate(values.mean(axis=0), variance, np.sqrt(variance * (1 + 1 / count) + noise / count))


def deconvolve(values: Floats, noise: float, centre: float, spread: float) -> tuple[Floats, Floats]:
    """The law of X from values X + N(0, noise²): points and their probabilities.

    Penalised maximum likelihood (Efron 2016) over densities g(x) ∝ N(x; centre, spread²) e^{q(x)} on a grid, with q a
    polynomial of degree 4 in an orthonormal basis and penalty ½‖coefficients‖²: without information it is the normal
    law, which the mean of a resample is nearly.
    """
    from scipy.optimize import minimize

    z = np.linspace(-5, 5, 201)
    grid = centre + spread * z
    base = np.exp(-0.5 * z**2)
    base /= base.sum()
    basis = np.linalg.qr(np.sqrt(base)[:, None] * np.vander(z, 5, increasing=True))[0][:, 1:] / np.sqrt(base)[:, None]
    width = max(noise, spread * (z[1] - z[0]))
    exponent = -0.5 * ((values[:, None] - grid) / width) ** 2
    kernel = np.exp(exponent - exponent.max(axis=1, keepdims=True))

    def density(alpha: Floats) -> Floats:
        power = basis @ alpha + np.log(base)
        g = np.exp(power - power.max())
        return np.asarray(g / g.sum())

    def objective(alpha: Floats) -> tuple[float, Floats]:
        g = density(alpha)
        joint = kernel * g
        total = np.maximum(joint.sum(axis=1), 1e-300)
        slope = (joint / total[:, None]).sum(axis=0) - len(values) * g
        return float(0.5 * alpha @ alpha - np.log(total).sum()), alpha - slope @ basis

    return grid, density(minimize(objective, np.zeros(basis.shape[1]), jac=True, method="BFGS").x)


def _target(request: Request, settings: Settings, problems: list[Problem], n: int) -> Resampling:
    """What is asked of n records."""
    clip = _clip(problems, settings)
    if isinstance(request.model, Mean):
        bounds = request.schema[request.model.column].bounds  # type: ignore[union-attr]
        return Resampling(n, settings.replicates, mean_sensitivity(bounds, n))
    sensitivity = max(refit_sensitivity(p, n, settings.penalty, clip) for p in problems)
    sensitivity = max(sensitivity, largest_sensitivity(problems, n, settings.penalty))
    return Resampling(n, settings.replicates * len(problems), sensitivity)


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise."""
    problems, _ = by_level(request.model, request.schema)
    return _calibrate(request, settings, _target(request, settings, problems, n))


def run(request: Request, settings: Settings) -> Release:
    """Fit by DP-Bootstrap; several quantile levels are refitted on resamples of their own, all under one budget."""
    problems, levels = by_level(request.model, request.schema)
    _clip(problems, settings)
    data = request.open(problems[0])
    target = _target(request, settings, problems, data.n)
    planned = _calibrate(request, settings, target)
    sigma, notes = planned.sigma, list(planned.notes)
    randomness = Randomness.create(request.insecure_seed)
    request.begin(planned)
    if isinstance(request.model, Mean):
        bounds = request.schema[request.model.column].bounds  # type: ignore[union-attr]
        estimates = data.means(bounds, target, sigma, randomness)[None]
        draws = [_deconvolved_draws(estimates[0], sigma, settings, randomness.public)]
        notes.insert(0, DECONVOLVED)
    else:
        estimates = data.refits(
            problems, target, sigma, randomness, penalty=settings.penalty, progress=request.progress
        )
        largest = max(p.clip for p in problems)
        draws = [
            _normal_draws(p, values, sigma * p.clip / largest, settings, randomness.public)
            for p, values in zip(problems, estimates, strict=True)
        ]
        notes.insert(0, NORMAL)
    about = {
        "calibration": settings.calibration,
        "penalty": None if isinstance(request.model, Mean) else settings.penalty,
        "noisy_estimates": estimates.tolist(),  # as private as the draws, which are made of them
    }
    return request.release_draws("dp_bootstrap", planned, randomness.source, draws, notes, about, levels)


def _clip(problems: list[Problem], settings: Settings) -> float | None:
    """The bound on the gradient that the user gave, if it is one."""
    if settings.clip is None:
        return None
    if problems[0].kind == "mean":
        raise InvalidValue(
            f"clip = {settings.clip!r} is not allowed: the sensitivity of a mean is its declared range over n."
        )
    largest = max(p.clip for p in problems)
    return _validate.number(
        "clip", settings.clip, low=largest, remedy="The refits are not clipped: it must bound the gradient."
    )


def _calibrate(request: Request, settings: Settings, target: Resampling) -> Planned:
    """The noise, the ε to claim, and what to say about it."""
    if request.non_private or settings.calibration == "proved":
        return request.calibrate(target)
    mu = gdp_mu(request.epsilon, request.delta)
    sigma = math.sqrt((2 - 2 / math.e) * target.replicates) * target.sensitivity / mu
    claim = epsilon(target, sigma, request.delta, request.accountant)
    if not math.isfinite(claim):
        raise NotCertifiable(
            f"calibration = 'asymptotic' at epsilon = {request.epsilon:g}: no finite ε is proved at the printed noise. "
            "Take a smaller epsilon, or calibration='proved'."
        )
    text = (
        f"The noise is that of the printed formula for a nominal ε = {request.epsilon:g}, which is asymptotic in the "
        f"number of replicates ({target.replicates}); what is proved, and claimed, is ε = {claim:.4g}."
    )
    warnings.warn(f"{text} Take calibration='proved' to meet the ε you asked for.", PgbbWarning, stacklevel=4)
    return Planned(target, sigma, claim, (text,))


def _normal_scores(settings: Settings) -> Floats:
    """m increasing normal quantiles, stretched; `np.quantile` of them at p is the one at p, ends apart."""
    m = settings.draws
    p = np.arange(m) / (m - 1)
    p[0], p[-1] = 0.5 / (m - 1), 1 - 0.5 / (m - 1)
    return np.asarray(settings.stretch * ndtri(p))


def _normal_draws(
    problem: Problem, values: Floats, sigma: float, settings: Settings, rng: np.random.Generator
) -> Floats:
    """(m, d) in internal coordinates: normal margins with the method's intervals in original units, and correlated.

    Intervals belong to the coefficients that users read, so they are made in original units, where the noise is σ²TTᵀ.
    Correlations are those of the estimated covariance of the centre, in internal coordinates
    (S − σ²I)₊(1 + 1/B) + σ²I/B with S the covariance of the noisy estimates. The scale of a Huber regression is cut at
    its public lower bound.
    """
    count, transform = len(values), problem.transform
    original = values @ transform.T + problem.offset
    found = interval(original, sigma**2 * np.square(transform).sum(axis=1), settings.variance_error)
    roots, axes = np.linalg.eigh(np.atleast_2d(np.cov(values.T)))
    sampled = np.maximum(roots - sigma**2, 0.0) * (1 + 1 / count) + sigma**2 / count
    factor = transform @ axes * np.sqrt(sampled)  # a square root of the covariance in original units
    latent = rng.standard_normal((settings.draws, len(roots))) @ factor.T
    ranks = np.argsort(np.argsort(latent, axis=0), axis=0)
    draws = found.centre + found.error * _normal_scores(settings)[ranks]
    inner: Floats = np.linalg.solve(transform, (draws - problem.offset).T).T.astype(np.float64)
    if problem.kind == "huber":
        inner[:, -1] = np.maximum(inner[:, -1], problem.center[-1] - problem.radius[-1])
    return inner


def _deconvolved_draws(values: Floats, sigma: float, settings: Settings, rng: np.random.Generator) -> Floats:
    """(m, 1): the deconvolved law, widened to the bound on its variance, and blurred by the error of the centre.

    The shape comes from the deconvolution, the spread from the bound of Algorithm 2, which B values justify and a
    deconvolution of B values does not.
    """
    count = len(values)
    found = interval(values, np.array([sigma**2]), settings.variance_error)
    centre, spread, error = (float(v[0]) for v in (found.centre, np.sqrt(found.variance), found.error))
    scores = _normal_scores(settings)
    quantiles = centre + error * scores
    if spread > 0:
        points, mass = deconvolve(values[:, 0], sigma, centre, spread)
        middle = mass @ points
        points = (points - middle) / math.sqrt(mass @ np.square(points - middle)) * spread * math.sqrt(1 + 1 / count)
        blur = max(sigma / math.sqrt(count), points[1] - points[0])
        at = np.linspace(points[0] - 6 * blur, points[-1] + 6 * blur, 2001)
        law = ndtr((at[:, None] - points) / blur) @ mass
        rising = np.concatenate([[True], np.diff(law) > 0])
        quantiles = centre + np.interp(ndtr(scores), law[rising], at[rising])
    return rng.permutation(quantiles)[:, None]
