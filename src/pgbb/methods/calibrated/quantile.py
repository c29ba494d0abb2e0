"""Calibrated quantile regression, all levels at once.

The gradients of every level come from the same answers: a record lies in one
cell between the fitted curves, and `algebra.strategy` asks for cells, not for
levels. Sampling covariance needs one matrix: the scores of levels τ, τ' have
covariance (min(τ, τ') − ττ') E ω²uuᵀ.
"""

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import pack, unpack
from pgbb.methods.calibrated.algebra import Shrink, floored, limited, strategy
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import box_for
from pgbb.methods.calibrated.curvature import Curvature, covariance_of, curvature_of
from pgbb.methods.calibrated.frame import Cut, design_frame
from pgbb.methods.calibrated.median import PEAK, locate_response, rough_median
from pgbb.methods.calibrated.refine import combine, widened, widening_for_contradiction, widening_for_last_step
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import FLOOR, LocalGaussian

Floats = NDArray[np.float64]

__all__ = ["REACH", "WIDEST", "fit_quantile"]

WIDEST = 0.15  # neighbouring quantiles are τ ± min(τ, 1 − τ)/2, and no farther than this
REACH = 0.8  # bandwidth of the curvature, in units of the distance to the neighbouring quantiles
LAST = 0.25  # bandwidth of the last gradient, in units of that
NEARER = 3.0  # densities are compared over the bandwidth of the curvature and one shorter by this factor
SMOOTHNESS = 0.1  # how far densities over the two are from each other, relative, unless they say so clearly
BLUR = 2.0  # the last two bandwidths are at most this many standard deviations of what they help to find


def fit_quantile(asker: Asker, problem: Problem, design: Design, levels: Floats) -> tuple[LocalGaussian, Cut]:
    """Ask all stages of a quantile regression."""
    p, n = problem.dim, asker.n
    m, constant = len(levels), design.has_intercept
    at = locate_response(asker, problem, design)
    near, size = design_frame(asker, design), at.size(constant)
    frame, solid = near.matrix, near.solid
    box = box_for(problem, near, size, at.start(p, constant))
    start, residuals = rough_median(asker, near, at, box, constant)
    a, b = strategy(tuple(levels.tolist()))
    reach = np.minimum(np.minimum(levels, 1 - levels) / 2, WIDEST)
    density = residuals.density(levels, reach)
    h = np.clip(REACH * reach / density, 1e-4 * size, 2 * size)
    theta = np.repeat(start[None], m, axis=0)
    if constant:
        theta[:, 0] += residuals.quantile(levels)
    farthest = 2 * reach / density  # no step moves fitted values by more

    def gradient(stage: str, at: Floats, width: Floats) -> tuple[Floats, float]:
        """Gradients in the frame, (m, p); their noise is sd·B ⊗ I."""
        answer, sd = asker.ask(stage, "cells", at, width, a, frame)
        return b @ answer.reshape(-1, p), sd

    loudness = np.sum(b**2, axis=1)

    def moved(at: Floats, steps: Floats, noise: Floats | float = 0.0) -> Floats:
        return box.clip(at - limited(steps, solid, farthest, noise) @ frame.T)

    spread = float(np.trace(np.linalg.inv(solid)))

    def narrow(stage: str, most: Floats) -> Floats:
        """A bandwidth whose bias, of second order in it, vanishes beside noise and sampling error."""
        error = np.sqrt(levels * (1 - levels) / n + loudness * spread / p * asker.noise(stage) ** 2)
        return np.clip(BLUR * error / density, 1e-4 * size, most)

    for width in (h, narrow("levels", h)):
        g, sd = gradient("levels", theta, width)
        steps = np.linalg.solve(solid, g.T).T / density[:, None]
        theta = moved(theta, steps, loudness * (sd / density) ** 2 * spread)

    ratio, ratio_sd = _sharpness(asker, theta, levels, h, REACH * reach)
    overlap = _overlap(levels, REACH * reach)
    answer, sd = asker.ask("curvature", "cell_curvature", theta, h, overlap, frame)
    unit = PEAK / h * overlap * ratio
    raw = unpack(answer.reshape(m, -1), p) * unit[:, None, None]
    curvatures = [
        _vague(c, float(s))
        for c, s in zip(
            _curvatures(raw, sd * unit, near.moment, near.moment_sd, ratio * density, asker.shrink),
            ratio_sd / ratio,
            strict=True,
        )
    ]

    def newton(g: Floats) -> Floats:
        return np.stack([c.step(g[j]) for j, c in enumerate(curvatures)])

    before, sd_first = gradient("refine", theta, narrow("refine", h / 2))
    expected = loudness * sd_first**2 * [np.sum((solid @ c.inverse) * c.inverse) for c in curvatures]
    point, first = moved(theta, newton(before), expected), moved(theta, newton(before))
    g, sd_second = gradient("final", point, narrow("final", h * LAST))
    second = moved(point, newton(g))
    quiet = float(np.mean(levels * (1 - levels)) * np.trace(near.moment)) / p / n / float(np.mean(loudness))
    best, noise = combine(first, second, sd_first, sd_second, quiet)
    inverse = np.linalg.inv(frame)
    effective = np.stack([c.value @ (inverse @ (point[j] - best[j])) for j, c in enumerate(curvatures)])
    answer, sd = asker.ask("spread", "square_moment", frame)
    sampling, left = covariance_of(unpack(answer, p), near.moment, sd, shrink=asker.shrink)
    early, late, walked = ((b - a) @ inverse.T for a, b in ((theta, first), (point, second), (theta, point)))

    factors, privacy = [], []
    for j, c in enumerate(curvatures):
        own, loud = levels[j] * (1 - levels[j]) * sampling / n, np.sqrt(loudness[j])
        noises = sd_first * loud, sd_second * loud
        factors.append(max(
            widening_for_last_step(early[j], late[j], c.value, own, *noises),
            widening_for_contradiction(g[j] - before[j], walked[j], late[j], c, own, *noises),
        ))  # fmt: skip
        if box.touched(best[j], frame, c, own + (noise * loud) ** 2 * np.eye(p)):
            factors[j] = np.inf
        privacy.append(widened(noise * loud, own, factors[j]) / loud * b[j])
    posterior = LocalGaussian(
        center=point,
        gradient=effective,
        frame=frame,
        curvature=np.stack([c.value for c in curvatures]),
        curvature_sd=np.stack([c.sd for c in curvatures]),
        privacy=np.stack(privacy),
        sampling=sampling / n,
        sampling_sd=left / n,
        free=np.stack([np.eye(p) if f == np.inf else c.free for c, f in zip(curvatures, factors, strict=True)]),
        low=box.low,
        high=box.high,
        knots=levels,
    )
    return posterior, near.cut


def _sharpness(asker: Asker, theta: Floats, levels: Floats, h: Floats, width: Floats) -> tuple[Floats, Floats]:
    """Each level's density over its density smoothed by h, and the standard deviation of that ratio.

    A kernel of bandwidth h sees f + h²f''/2, so densities over h and h/3 tell the second term apart. Over a
    peak the ratio is above one, in a gap between two humps below. Shrunk to one unless it stands clear of its noise.
    """
    both = np.concatenate([h, h / NEARER])
    overlap = _overlap(np.tile(levels, 2), np.concatenate([width, width / NEARER]))
    answer, sd = asker.ask("density", "densities", theta, both.reshape(2, -1), overlap)
    wide, near = np.maximum((answer * PEAK / both * overlap).reshape(2, -1), 1e-12)
    noise = sd * PEAK / h * overlap
    weight = 1 / (NEARER**2 - 1)
    sharp = (1 + weight) * near - weight * wide
    wide = np.maximum(wide, 3 * noise)
    sampling = NEARER * near / (2 * np.sqrt(np.pi) * asker.n * h)
    variance = (1 + weight) ** 2 * ((NEARER * noise) ** 2 + sampling) / wide**2
    away = sharp / wide - 1
    prior = np.where(away**2 > 9 * variance, away**2, SMOOTHNESS**2)
    keep = prior / (prior + variance)
    return np.maximum(1 + keep * away, 0.02), np.sqrt(keep * variance)


def _vague(found: Curvature, relative: float) -> Curvature:
    """The curvature with an unknown factor of this relative standard deviation; lost where that hides its sign."""
    free = np.eye(len(found.value)) if relative > 1 / 3 else found.free
    return Curvature(found.value, np.hypot(found.sd, relative * pack(found.value)), free)


def _overlap(levels: Floats, width: Floats) -> float:
    """The largest norm of all levels' kernels at one point, were residuals uniform; longer rows are clipped."""
    grid = np.linspace(0, 1, 401)[:, None]
    return float(np.sqrt(np.max(np.sum(np.exp(-(((grid - levels) / width) ** 2)), axis=1))))


def _curvatures(
    raw: Floats, sd: Floats, moment: Floats, moment_sd: Floats, density: Floats, shrink: Shrink
) -> list[Curvature]:
    """Curvature of each level, shrunk to f_j times a shape common to all levels, itself shrunk to E xxᵀ.

    In a location-scale model the shape is common: H(τ) = f(τ) E[xxᵀ/s(x)].
    """
    unit = pack(moment)
    f = np.maximum(np.array([pack(r) @ unit for r in raw]) / (unit @ unit), 0.3 * density)
    trust = f / sd**2 if sd.all() else f  # f_j times the precision of raw_j/f_j
    total = float(trust @ f)
    noise = total**-0.5 if sd.all() else 0.0
    pooled = np.einsum("j,jkl->kl", trust, raw) / total
    shape, left = shrink(pooled, moment, noise, moment_sd)
    shape = floored(shape, FLOOR * float(np.linalg.eigvalsh(moment)[0]))
    return [
        curvature_of(r, f_j * shape, float(s), f_j * left, (pooled, noise), shrink=shrink)
        for r, f_j, s in zip(raw, f, sd, strict=True)
    ]
