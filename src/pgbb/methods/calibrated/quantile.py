"""Calibrated quantile regression, all levels at once.

The gradients of every level come from the same answers: a record lies in one
cell between the fitted curves, and `algebra.strategy` asks for cells, not for
levels. Sampling covariance needs one matrix: the scores of levels τ, τ' have
covariance (min(τ, τ') − ττ') E ωuuᵀ.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pgbb._numerics.symmetric import triangle, unpack
from pgbb.methods.calibrated.algebra import USUAL, Shrink, floored, limited, strategy
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import box_for
from pgbb.methods.calibrated.curvature import Curvature, covariance_of, curvature_of
from pgbb.methods.calibrated.frame import Cut, Frame, design_frame, score_of
from pgbb.methods.calibrated.prior import SPREADS, Prior, tempered
from pgbb.methods.calibrated.refine import felt, widening_for_contradiction, widening_for_last_step
from pgbb.methods.calibrated.start import PEAK, least_squares, locate_response, places_around
from pgbb.methods.calibrated.transcript import Read, Transcript
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import FLOOR, LocalGaussian

Floats = NDArray[np.float64]

__all__ = ["REACH", "WIDEST", "fit_quantile"]

WIDEST = 0.15  # neighbouring quantiles are τ ± min(τ, 1 − τ)/2, and no farther than this
REACH = 0.8  # bandwidth of the curvature, in units of the distance to the neighbouring quantiles
SQUARED = 0.28209479  # integral of its square, for the standard normal density
LAST = 0.25  # bandwidth of the last gradient, in units of that
NEARER = 3.0  # densities are compared over the bandwidth of the curvature and one shorter by this factor
HEAPED = 0.5  # how far densities over different distances are from each other, at most, where there is a density
SMOOTHNESS = 0.1  # how far densities over the two are from each other, relative, unless they say so clearly
UNLIKE = 0.15  # how far coefficients of a level are from those of the mean, in spreads a standard normal quantile
ROUGH = 0.35  # how far densities are from that of all residuals, relative
LEAST_DENSITY = 0.2  # of what the residuals say, at least
BENDS = 1.0  # of itself, by which a density differs over the farthest that a step goes: that of exponential tails
WHITE = 0.1  # how far entries of a curvature are from a density times those of E xxᵀ, relative
BLUR = 2.0  # the last two bandwidths are at most this many standard deviations of what they help to find


def fit_quantile(asker: Asker, problem: Problem, design: Design, levels: Floats) -> tuple[LocalGaussian, Cut]:
    """Ask all stages of a quantile regression."""
    p, n = problem.dim, asker.n
    m, constant = len(levels), design.has_intercept
    at = locate_response(asker, problem, design)
    a, b = strategy(tuple(levels.tolist()))
    near, size = design_frame(asker, design, score_of(levels)), at.size(constant)
    frame, solid = near.matrix, near.solid
    box = box_for(problem, near, size, at.start(p, constant))
    start, error, residuals = least_squares(asker, near, at, box, constant)
    reach = np.minimum(np.minimum(levels, 1 - levels) / 2, WIDEST)
    density = residuals.density(levels, reach)
    around = places_around(design)
    finest = max(1e-4 * size, design.response_step / len(around))
    h = np.clip(REACH * reach / density, finest, 2 * size)
    theta = np.repeat(start[None], m, axis=0)
    if constant:
        theta[:, 0] += residuals.quantile(levels)
    farthest = 2 * reach / density  # no step moves fitted values by more

    loudness, inverse = np.sum(b**2, axis=1), np.linalg.inv(frame)
    unlike = (UNLIKE * ndtri(levels) * at.spread * near.reach) ** 2
    toward = near.moment @ inverse[:, 0] if constant else np.zeros(p)  # E u
    uneven = np.outer(toward, toward) + near.moment
    transcripts = [
        Transcript.begun(inverse @ t, error + v * np.eye(p), f * solid, (BENDS * f**2 / (4 * r)) ** 2 * uneven, solid)
        for t, v, f, r in zip(theta, unlike, density, reach, strict=True)
    ]

    def gradient(
        stage: str, at: Floats, width: Floats, bends: list[Curvature]
    ) -> tuple[Floats, float, Floats, list[Read]]:
        """Gradients in the frame, (m, p); sd, where their noise is sd·B ⊗ I; and where all answers so far say that the
        curves are, no step too long from here."""
        answer, sd = asker.ask(stage, "cells", at, width, a, frame, around)
        g, here = b @ answer.reshape(-1, p), at @ inverse.T
        given = zip(transcripts, here, g, (sd * np.sqrt(loudness)).tolist(), width.tolist(), strict=True)
        transcripts[:] = [t.adding(*one) for t, *one in given]
        reads = [t.read(c) for t, c in zip(transcripts, bends, strict=True)]
        steps = limited(np.stack([r.point for r in reads]) - here, solid, farthest)
        return g, sd, box.clip(at + steps @ frame.T), reads

    spread = float(np.trace(np.linalg.inv(solid)))

    def narrow(stage: str, most: Floats) -> Floats:
        """A bandwidth whose bias, of second order in it, vanishes beside noise and sampling error."""
        error = np.sqrt(levels * (1 - levels) / n + loudness * spread / p * asker.noise(stage) ** 2)
        return np.clip(BLUR * error / density, finest, np.maximum(most, finest))

    plain = np.hypot(near.moment_sd, _unlike(near.moment))
    rough = [Curvature(f * solid, f * plain, ROUGH) for f in density]
    for turn in range(asker.question("levels", "cells").times):
        width = np.maximum(h / 2**turn, narrow("levels", h))  # long steps see farther
        _, _, theta, _ = gradient("levels", theta, width, rough)

    if asker.asks("curvature"):
        reach = np.clip(
            asker.noise("curvature") * near.reach**2 * np.sqrt(2 * p), np.minimum(n ** (-1 / 3), reach), reach
        )
    h = np.clip(REACH * reach / density, finest, h)
    widths = np.stack([h, h / NEARER, np.minimum(narrow("final", h) / 2, h / NEARER)])
    smooth, ratio, ratio_sd = _sharpness(asker, theta, levels, widths, density, around)
    f = smooth * ratio
    if asker.asks("curvature"):
        overlap = _overlap(levels, h * density)
        answer, sd = asker.ask("curvature", "cell_curvature", theta, h, overlap, frame, around)
        unit = PEAK / h * overlap * ratio  # as many times what is seen over this distance
        raw = unpack(answer.reshape(m, -1), p) * unit[:, None, None]
        found = _curvatures(raw, sd * unit, near.moment, near.moment_sd, f, asker.shrink)
        found = [c.sampled(float(SQUARED / w), n) for c, w in zip(found, h, strict=True)]
    else:
        found = [Curvature(f_j * near.moment, f_j * plain) for f_j in f.tolist()]
    curvatures = [replace(c, factor_sd=float(s)) for c, s in zip(found, ratio_sd / ratio, strict=True)]

    before, sd_first, point, _ = gradient("refine", theta, narrow("refine", h / 2), curvatures)
    g, sd_second, best, reads = gradient("final", point, narrow("final", h * LAST), curvatures)
    walked = (point - theta) @ inverse.T
    sampling, left = floored(near.moment, 1e-9 * float(np.trace(near.moment))), near.moment_sd
    if asker.spread == "spread":
        answer, sd = asker.ask("spread", "moment", frame)
        sampling, left = covariance_of(unpack(answer, p), near.moment, sd, shrink=asker.shrink)
    elif asker.spread:
        sampling, left = _by_person(asker, point, narrow("final", h * LAST), levels, near, around)
    prior = Prior(at.start(p, constant), np.full(p, SPREADS * at.spread * near.reach), problem.transform)
    smooth_enough = bool(design.response_step) or not at.heaped
    privacy, settled = [], []
    for j, (given, read) in enumerate(zip(curvatures, reads, strict=True)):
        own, loud, bend = levels[j] * (1 - levels[j]) * sampling / n, np.sqrt(loudness[j]), read.bend
        noises, early, late = (sd_first * loud, sd_second * loud), bend.step(before[j]), bend.step(g[j])
        factor = max(
            widening_for_last_step(early, late, bend.solid, own, *noises),
            widening_for_contradiction(g[j] - before[j], walked[j], late, given, own, *noises),
        )
        wide, total = felt(0.0, read.noise + levels[j] * (1 - levels[j]) * near.left_out, own, factor)
        known = smooth_enough and factor < np.inf and not box.touched(best[j], frame, bend, total)
        drawn = own + wide**2 * np.eye(p)
        settled.append(prior.settle(bend, drawn, total, frame, point[j], best[j], known=known))
        privacy.append(wide / loud * b[j])
    posterior = LocalGaussian(
        center=point,
        gradient=np.stack([s.gradient for s in settled]),
        frame=frame,
        curvature=np.stack([s.curvature for s in settled]),
        curvature_sd=np.zeros((m, p * (p + 1) // 2)),
        privacy=np.stack(privacy),
        sampling=sampling / n,
        sampling_sd=tempered(sampling, left) / n,
        free=np.zeros((m, p, p)),
        low=box.low,
        high=box.high,
        prior=prior.sd,
        knots=levels,
    )
    return posterior, near.cut


def _by_person(
    asker: Asker, theta: Floats, width: Floats, levels: Floats, near: Frame, around: Floats
) -> tuple[Floats, Floats]:
    """What E ωuuᵀ is for independent records, where those of a person are not: of all levels, on average."""
    m = len(levels)
    scores = np.zeros((m + 1, m + 1))
    scores[:m] = (np.tri(m, m + 1) - levels[:, None]) / np.sqrt(levels * (1 - levels))[:, None]
    unit = float(np.max(np.linalg.norm(scores, axis=0)))
    raw, sd = asker.score_moments(theta, width, scores / unit, near.matrix, around)
    return covariance_of(raw * unit**2 / m, near.moment, sd * unit**2 / m, shrink=asker.shrink)


def _sharpness(
    asker: Asker, theta: Floats, levels: Floats, h: Floats, density: Floats, around: Floats
) -> tuple[Floats, Floats, Floats]:
    """Each level's density smoothed by the first of three bandwidths; its density over that; and the ratio's doubt.

    A kernel of bandwidth h sees f + h²f''/2, so densities over h and h/3 tell the second term apart. Over a
    peak the ratio is above one, in a gap between two humps below. Shrunk to one unless it stands clear of its noise.
    Where it is far from one, or the density over the finest distance is far from what these two make of it, the
    response is heaped: there is no density, and the doubt is as large as what was seen.
    """
    least = 12 * asker.noise("density") * np.sqrt(len(levels)) * PEAK / density  # or noise is all that is seen
    h = np.stack([h[0], h[1], np.clip(least, h[2], h[1])])
    overlap = _overlap(np.tile(levels, 3), (h * density).ravel())
    answer, sd = asker.ask("density", "densities", theta, h, overlap, around)
    found, noise = answer.reshape(h.shape) * PEAK / h * overlap, sd * PEAK / h * overlap
    found = np.maximum(found, 1e-12)
    variance = noise**2 + found / (2 * np.sqrt(np.pi) * asker.n * h)
    wide, near, finest = found
    weight = 1 / (NEARER**2 - 1)
    sharp = (1 + weight) * near - weight * wide
    gap = wide + noise[0] < LEAST_DENSITY * density  # next to nothing lies there
    trust = (ROUGH * density) ** 2 + np.maximum((wide - density) ** 2 - 9 * noise[0] ** 2, 0.0)
    trust = trust / (trust + noise[0] ** 2)
    wide, noise[0] = trust * wide + (1 - trust) * density, np.sqrt(trust) * noise[0]
    wide = np.maximum(wide, np.maximum(noise[0], LEAST_DENSITY * density))
    relative = (1 + weight) ** 2 * variance[1] / wide**2
    away = sharp / wide - 1
    prior = SMOOTHNESS**2 + np.maximum(away**2 - 9 * relative, 0.0)
    keep = prior / (prior + relative)
    ratio = np.maximum(1 + keep * away, 0.02)
    doubt = np.hypot(np.sqrt(keep * relative), noise[0] / wide)
    heaped = np.maximum(np.abs(away) - 3 * np.sqrt(relative) - HEAPED, 0.0)
    miss = np.abs(finest / wide / ratio - 1) - 3 * np.sqrt(variance[2] + variance[1]) / wide / ratio - HEAPED
    heaped = np.maximum(heaped, miss)
    return wide, ratio, np.where((heaped > 0) | gap, np.maximum(doubt, ratio), doubt)


def _unlike(moment: Floats) -> Floats:
    """How far a curvature is from a density times E xxᵀ, over that density, on each packed coordinate."""
    i, j, length = triangle(len(moment))
    diagonal = np.maximum(np.diag(moment), 0.0)
    result: Floats = WHITE * length * np.sqrt(diagonal[i] * diagonal[j])
    return result


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
    f = np.maximum(density, 1e-300)
    trust = f / sd**2 if sd.all() else f  # f_j times the precision of raw_j/f_j
    total = float(trust @ f)
    noise = total**-0.5 if sd.all() else 0.0
    pooled = np.einsum("j,jkl->kl", trust, raw) / total
    shape, left = shrink(pooled, moment, noise, moment_sd)
    shape = floored(shape, FLOOR * float(np.linalg.eigvalsh(moment)[0]))
    return [
        curvature_of(r, f_j * shape, float(s), f_j * left, shrink=shrink, usual=USUAL / 2)
        for r, f_j, s in zip(raw, f, sd, strict=True)
    ]
