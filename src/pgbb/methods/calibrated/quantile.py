"""Quantile regression by the default method, all levels at once.

One matrix gives the sampling covariance of all levels: the scores of levels τ and τ' have the covariance
(min(τ, τ') − ττ') E ωuuᵀ. `quantile_levels` asks for the gradients. Public arithmetic on answers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.densities import (
    NEARER,
    ROUGH,
    Curvatures,
    curvatures_of,
    plain_curvatures,
    seen_through,
    shapes_of,
    sharpness,
    spread_of,
)
from pgbb.methods.calibrated.frame import Cut, wrong_of
from pgbb.methods.calibrated.prior import SPREADS, Prior, tempered
from pgbb.methods.calibrated.quantile_levels import REACH, WIDEST, Answers, Start, started
from pgbb.methods.calibrated.refine import felt, widening_for_contradiction, widening_for_last_step
from pgbb.methods.calibrated.transcript import Read
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

__all__ = ["REACH", "WIDEST", "fit_quantile"]

LAST = 0.25  # largest bandwidth of the last gradient, in units of the bandwidth of the curvature
PLACED = 1.5  # a level within so many standard deviations of noise of 0 or 1 is marked: no start is known there


def fit_quantile(asker: Asker, problem: Problem, design: Design, levels: Floats) -> tuple[LocalGaussian, Cut]:
    """Ask all stages of a quantile regression. Returns the posterior, and how many records are weighted down."""
    start = started(asker, problem, design, levels, wrong_of(levels))
    answers, near, density = Answers(asker, start, levels), start.near, start.density
    rough = plain_curvatures(near.solid, near.moment_sd, density, ROUGH)
    theta, h = start.theta, start.widths(start.reach, 2 * start.size)
    for turn in range(asker.question("levels", "cells").times):
        answers.ask("levels", theta, np.maximum(h / 2**turn, answers.narrow("levels", h)))  # long steps see farther
        theta, reads = answers.followed(theta, rough)

    curves, h, f = _curves(asker, start, answers, theta, h)
    bends = curves(reads)
    before, sd_before = answers.ask("refine", theta, answers.narrow("refine", h / 2))
    point, _ = answers.followed(theta, bends)
    width = answers.narrow("final", h * LAST)
    last, sd_last = answers.ask("final", point, width)
    bends = curves(answers.followed(point, bends)[1])
    best, reads = answers.followed(point, bends)
    found = _Found(theta, point, best, before, last, sd_before, sd_last, f)
    scores = spread_of(asker, point, width, levels, near, start.around)
    return _posterior(problem, design, start, answers, found, bends, reads, scores, asker.n), near.cut


def _curves(
    asker: Asker, start: Start, answers: Answers, theta: Floats, h: Floats
) -> tuple[Callable[[list[Read]], Curvatures], Floats, Floats]:
    """Ask for densities and curvatures of all levels.

    Returns:
      A function that gives the curvature of each level where the transcripts place the levels; bandwidths; densities.
    """
    near, levels, n, reach = start.near, start.levels, asker.n, start.reach
    if asker.asks("curvature"):
        seen = asker.noise("curvature") * near.reach**2 * np.sqrt(2 * theta.shape[1])
        reach = np.clip(seen, np.minimum(n ** (-1 / 3), reach), reach)
    h = start.widths(reach, h)
    widths = np.stack([h, h / NEARER, np.minimum(answers.narrow("final", h) / 2, h / NEARER)])
    smooth, ratio, ratio_sd = sharpness(asker, theta, levels, widths, start.density, start.around)
    f = smooth * ratio
    found = curvatures_of(asker, theta, levels, h, start.density, f, ratio, near, start.around)
    apart = float(np.diff(start.residuals.quantile(levels[[0, -1]]))[0])
    shape = shapes_of(near, levels, apart, n, start.constant)

    def curves(reads: list[Read]) -> Curvatures:
        """The curvature of each level, where the transcripts place the levels."""
        return [replace(c, factor_sd=float(s)) for c, s in zip(found(shape(reads, h)), ratio_sd / ratio, strict=True)]

    return curves, h, f


@dataclass(frozen=True)
class _Found:
    """The last two gradients of all levels.

    Args:
      first, point: where they were asked, (m, p).
      best: the estimates.
      before, last: the gradients in the frame, (m, p).
      sd_before, sd_last: their noise is so many times B ⊗ I.
      density: of each level, (m,).
    """

    first: Floats
    point: Floats
    best: Floats
    before: Floats
    last: Floats
    sd_before: float
    sd_last: float
    density: Floats


def _posterior(
    problem: Problem,
    design: Design,
    start: Start,
    answers: Answers,
    found: _Found,
    bends: Curvatures,
    reads: list[Read],
    scores: tuple[Floats, Floats],
    n: int,
) -> LocalGaussian:
    """The local posterior of all levels with the prior; a level whose local model does not hold is given up.

    `scores` are the covariance of the scores of n records over τ(1 − τ), and its noise.
    """
    sampling, left = scores
    levels, near, at, point, best = start.levels, start.near, start.at, found.point, found.best
    m, p = point.shape
    prior = Prior(
        at.start(p, start.constant), np.full(p, SPREADS * at.spread * near.reach), problem.transform, unseen=near.unseen
    )
    smooth_enough = at.found and (bool(design.response_step) or not at.heaped)
    placed = np.minimum(levels, 1 - levels) > PLACED * start.residuals.sd
    walked = (point - found.first) @ answers.inverse.T
    privacy, settled = [], []
    for j, (given, read, score) in enumerate(zip(bends, reads, start.scores, strict=True)):
        own, loud, bend = score * sampling / n, np.sqrt(answers.loudness[j]), read.bend
        before, g = found.before[j], found.last[j]
        noises, late = (found.sd_before * loud, found.sd_last * loud), bend.step(g)
        factor = max(
            widening_for_last_step(bend.step(before), late, bend.solid, own, *noises),
            widening_for_contradiction(g - before, walked[j], late, given, own, *noises),
        )
        step, back = (best[j] - point[j]) @ answers.inverse.T, np.linalg.inv(bend.solid)
        down, up = (1 - levels[j]) / found.density[j], levels[j] / found.density[j]
        bent = near.bent(step, bend.value @ step, back @ (read.noise + own) @ back, down, up)
        doubt = read.noise + bent + score * near.left_out(float(start.wrong[j])) + seen_through(bend, own)
        wide, total = felt(0.0, doubt, own, factor)
        touched = start.box.touched(best[j], near.matrix, bend, total)
        known = smooth_enough and bool(placed[j]) and factor < np.inf and not touched
        drawn = own + wide**2 * np.eye(p)
        settled.append(prior.settle(bend, drawn, total, near.matrix, point[j], best[j], known=known))
        privacy.append(wide / loud * answers.loads[j])
    return LocalGaussian(
        center=point,
        gradient=np.stack([s.gradient for s in settled]),
        frame=near.matrix,
        curvature=np.stack([s.curvature for s in settled]),
        curvature_sd=np.zeros((m, p * (p + 1) // 2)),
        privacy=np.stack(privacy),
        sampling=sampling / n,
        sampling_sd=tempered(sampling, left) / n,
        free=np.zeros((m, p, p)),
        low=start.box.low,
        high=start.box.high,
        prior=prior.sd,
        knots=levels,
    )
