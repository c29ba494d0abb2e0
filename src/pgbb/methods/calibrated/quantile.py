"""Quantile regression by the default method, all levels at once.

The gradients of all levels come from the same answers: a record lies in one cell between the fitted curves, and
`algebra.strategy` asks for cells, not for levels. One matrix gives the sampling covariance of all levels: the scores of
levels τ and τ' have the covariance (min(τ, τ') − ττ') E ωuuᵀ.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pgbb.methods.calibrated.algebra import limited, strategy
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import box_for
from pgbb.methods.calibrated.densities import (
    NEARER,
    ROUGH,
    Curvatures,
    curvatures_of,
    followed_by,
    plain_curvatures,
    seen_through,
    sharpness,
    spread_of,
)
from pgbb.methods.calibrated.frame import Cut, design_frame, score_of, wrong_of
from pgbb.methods.calibrated.prior import SPREADS, Prior, tempered
from pgbb.methods.calibrated.refine import felt, widening_for_contradiction, widening_for_last_step
from pgbb.methods.calibrated.start import locate_response, places_around, robust_fit, spread_of_residuals
from pgbb.methods.calibrated.transcript import Read, Transcript
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

Floats = NDArray[np.float64]

__all__ = ["REACH", "WIDEST", "fit_quantile"]

WIDEST = 0.15  # the neighbours of level τ are τ ± min(τ, 1 − τ)/2, and at most this far away
REACH = 0.8  # bandwidth of the curvature, in units of the distance to the neighbouring quantiles
LAST = 0.25  # largest bandwidth of the last gradient, in units of the bandwidth of the curvature
UNLIKE = 0.2  # prior difference of the slopes of a level from those of the mean, per standard normal quantile of it
BENDS = 1.0  # relative change of a density over the longest step that is allowed, as in an exponential tail
PLACED = 1.5  # a level within so many standard deviations of noise of 0 or 1 is marked: no start is known there
BLUR = 2.0  # largest bandwidth of a gradient, in standard deviations of the error of the quantile


def fit_quantile(asker: Asker, problem: Problem, design: Design, levels: Floats) -> tuple[LocalGaussian, Cut]:
    """Ask all stages of a quantile regression. Returns the posterior, and how many records are weighted down."""
    p, n = problem.dim, asker.n
    m, constant = len(levels), design.has_intercept
    at = locate_response(asker, problem, design)
    a, b = strategy(tuple(levels.tolist()))
    scores, wrong = levels * (1 - levels), wrong_of(levels)
    most = float(np.sqrt(scores @ wrong**2 / np.sum(scores)))
    near, size = design_frame(asker, design, score_of(levels), wrong=most, alone=False), at.size(constant)
    frame, solid = near.matrix, near.solid
    box = box_for(problem, near, size, at.start(p, constant))
    start, error, _, residuals = robust_fit(asker, near, at, box, constant)
    reach = np.minimum(np.minimum(levels, 1 - levels) / 2, WIDEST)
    density = residuals.density(levels, reach)
    around = places_around(design)
    finest = max(1e-4 * size, design.response_step / len(around))
    h = np.clip(REACH * reach / density, finest, 2 * size)
    theta = np.repeat(start[None], m, axis=0)
    if constant:
        theta[:, 0] += residuals.quantile(levels)
    farthest = 2 * reach / density  # the most by which a step may move fitted values

    loudness, inverse = np.sum(b**2, axis=1), np.linalg.inv(frame)
    away = np.abs(residuals.quantile(levels) - residuals.quantile(np.array(0.5)))
    spread = spread_of_residuals(residuals, at)
    unlike = (UNLIKE * np.maximum(np.abs(ndtri(levels)) * spread, away) * near.reach) ** 2
    shifts = (residuals.sd / density) ** 2 * constant  # variance of the intercept, which starts at a noisy quantile
    level = np.outer(inverse[:, 0], inverse[:, 0])
    toward = near.moment @ inverse[:, 0] if constant else np.zeros(p)  # E u
    uneven = np.outer(toward, toward) + solid
    transcripts = [
        Transcript.begun(
            inverse @ t, error + v * np.eye(p) + s * level, f * solid, (BENDS * f**2 / (4 * r)) ** 2 * uneven, solid
        )
        for t, v, s, f, r in zip(theta, unlike, shifts, density, reach, strict=True)
    ]

    def followed(at: Floats, bends: Curvatures) -> tuple[Floats, list[Read]]:
        """Where all answers so far say that the curves are, no step too long from a point; and what they say."""
        reads = [t.read(c) for t, c in zip(transcripts, bends, strict=True)]
        steps = limited(np.stack([r.point for r in reads]) - at @ inverse.T, solid, farthest)
        return box.clip(at + steps @ frame.T), reads

    def gradient(stage: str, at: Floats, width: Floats, bends: Curvatures) -> tuple[Floats, float, Floats, list[Read]]:
        """Ask for the gradients of all levels, and read the transcripts again.

        Returns the gradients in the frame, (m, p); sd, where their noise is sd·B ⊗ I; the estimates by all answers so
        far, with steps of limited length; and what the transcripts say.
        """
        answer, sd = asker.ask(stage, "cells", at, width, a, frame, around)
        g, here = b @ answer.reshape(-1, p), at @ inverse.T
        given = zip(transcripts, here, g, (sd * np.sqrt(loudness)).tolist(), width.tolist(), strict=True)
        transcripts[:] = [t.adding(*one) for t, *one in given]
        return g, sd, *followed(at, bends)

    inflation = float(np.trace(np.linalg.inv(solid)))

    def narrow(stage: str, most: Floats) -> Floats:
        """Bandwidths in proportion to noise and sampling error, so that their bias, of second order, vanishes."""
        error = np.sqrt(scores / n + loudness * inflation / p * asker.noise(stage) ** 2)
        return np.clip(BLUR * error / density, finest, np.maximum(most, finest))

    rough = plain_curvatures(solid, near.moment_sd, density, ROUGH)
    for turn in range(asker.question("levels", "cells").times):
        width = np.maximum(h / 2**turn, narrow("levels", h))  # long steps see farther
        _, _, theta, reads = gradient("levels", theta, width, rough)

    if asker.asks("curvature"):
        reach = np.clip(
            asker.noise("curvature") * near.reach**2 * np.sqrt(2 * p), np.minimum(n ** (-1 / 3), reach), reach
        )
    h = np.clip(REACH * reach / density, finest, h)
    widths = np.stack([h, h / NEARER, np.minimum(narrow("final", h) / 2, h / NEARER)])
    smooth, ratio, ratio_sd = sharpness(asker, theta, levels, widths, density, around)
    f = smooth * ratio
    found = curvatures_of(asker, theta, levels, h, density, f, ratio, near, around)
    outer = float(np.diff(residuals.quantile(levels[[0, -1]]))[0]) * constant
    curves = followed_by(found, near, levels, h, outer, n, ratio_sd / ratio)
    curvatures = curves(reads)
    before, sd_first, point, _ = gradient("refine", theta, narrow("refine", h / 2), curvatures)
    g, sd_second, _, reads = gradient("final", point, narrow("final", h * LAST), curvatures)
    curvatures = curves(reads)
    best, reads = followed(point, curvatures)
    walked = (point - theta) @ inverse.T
    sampling, left = spread_of(asker, point, narrow("final", h * LAST), levels, near, around)
    prior = Prior(
        at.start(p, constant),
        np.full(p, SPREADS * at.spread * near.reach),
        problem.transform,
        unseen=near.unseen,
    )
    smooth_enough = at.found and (bool(design.response_step) or not at.heaped)
    placed = np.minimum(levels, 1 - levels) > PLACED * residuals.sd
    privacy, settled = [], []
    for j, (given, read) in enumerate(zip(curvatures, reads, strict=True)):
        own, loud, bend = scores[j] * sampling / n, np.sqrt(loudness[j]), read.bend
        noises, early, late = (sd_first * loud, sd_second * loud), bend.step(before[j]), bend.step(g[j])
        factor = max(
            widening_for_last_step(early, late, bend.solid, own, *noises),
            widening_for_contradiction(g[j] - before[j], walked[j], late, given, own, *noises),
        )
        last, back = (best[j] - point[j]) @ inverse.T, np.linalg.inv(bend.solid)
        error = back @ (read.noise + own) @ back
        bent = near.bent(last, bend.value @ last, error, (1 - levels[j]) / f[j], levels[j] / f[j])
        doubt = read.noise + bent + scores[j] * near.left_out(float(wrong[j])) + seen_through(bend, own)
        wide, total = felt(0.0, doubt, own, factor)
        known = smooth_enough and bool(placed[j]) and factor < np.inf and not box.touched(best[j], frame, bend, total)
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
