"""Quantile regression by the default method, all levels at once.

One matrix gives the sampling covariance of all levels: the scores of levels τ and τ' have the covariance
(min(τ, τ') − ττ') E ωuuᵀ. `quantile_levels` asks for the gradients. Public arithmetic on answers.
"""

from dataclasses import dataclass, replace

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.densities import (
    NEARER,
    ROUGH,
    Curvatures,
    Sharp,
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
    answers, near = Answers(asker, start, levels), start.near
    apart = float(np.diff(start.residuals.quantile(levels[[0, -1]]))[0])
    shape = shapes_of(near, levels, apart, asker.n, start.constant)
    theta, h, reads = _approached(asker, start, answers)

    def sharp(at: Floats, density: Floats, rough: Floats | float) -> Sharp:
        widths = np.stack([h, h / NEARER, np.minimum(answers.narrow("final", h) / 2, h / NEARER)])
        return sharpness(asker, at, levels, widths, density, rough, start.around, start.counted)

    reach, most = _reach(asker, start), h
    h = start.widths(reach, most, _densities(start, reads))
    before = sharp(theta, start.density, ROUGH)
    answers.bend_with(before.value)
    like = shape(reads, h)
    rough = plain_curvatures(like.value, like.sd, before.value, before.doubt)
    (first, early, _), (point, last, sd) = _last_gradients(asker, answers, theta, h, rough)

    ahead, reads = answers.followed(point, rough)
    middle = (point + ahead) / 2  # the curvature halfway tells what is left of the way, to third order
    h = start.widths(reach, most, before.value)
    changed = _changed(start, answers, middle - theta, before.value)
    now = sharp(middle, before.value, np.minimum(np.hypot(before.doubt, changed), ROUGH))
    doubt = np.where(before.doubt < 1, now.doubt, before.doubt)
    answers.bend_with(now.value)
    given = curvatures_of(asker, middle, levels, h, now, near, start.around)
    bends = [replace(c, factor_sd=s) for c, s in zip(given(shape(reads, h)), doubt.tolist(), strict=True)]
    best, reads = answers.followed(point, [c.apart(near.moment) for c in bends])
    found = _Found(first, point, best, early, last, sd, now.value)
    scores = spread_of(asker, point, answers.narrow("final", h * LAST), levels, near, start.around)
    return _posterior(problem, design, start, answers, found, bends, reads, scores, asker.n), near.cut


def _approached(asker: Asker, start: Start, answers: Answers) -> tuple[Floats, Floats, list[Read]]:
    """Rough gradients of all levels, from long steps to short ones, and one with less noise.

    Returns:
      Where they place the levels, the bandwidths of a curvature there, and what the answers say.
    """
    rough = plain_curvatures(start.near.solid, start.near.moment_sd, start.density, ROUGH)
    theta, h = start.theta, start.widths(start.reach, 2 * start.size)
    for turn in range(asker.question("levels", "cells").times):
        answers.ask("levels", theta, np.maximum(h / 2**turn, answers.narrow("levels", h)))  # long steps see farther
        theta, _ = answers.followed(theta, rough)
    answers.ask("refine", theta, answers.narrow("refine", h / 2))
    theta, reads = answers.followed(theta, rough)
    return theta, h, reads


def _reach(asker: Asker, start: Start) -> Floats:
    """Half the share of records that a kernel of the curvature covers at each level: as few as stand out of noise."""
    if not asker.asks("curvature"):
        return start.reach
    p = len(start.near.matrix)
    seen = asker.noise("curvature") * start.near.reach**2 * np.sqrt(2 * p)
    return np.asarray(np.clip(seen, np.minimum(asker.n ** (-1 / 3), start.reach), start.reach))


def _densities(start: Start, reads: list[Read]) -> Floats:
    """The density of each level by the gradients so far: that of all residuals is another one where spreads differ."""
    values, axes = np.linalg.eigh(start.near.moment)
    return np.array([np.mean(np.sum((read.bend.value @ axes) * axes, axis=0) / values) for read in reads])


def _changed(start: Start, answers: Answers, step: Floats, density: Floats) -> Floats:
    """Usual relative change of the density of each level over a step, as in an exponential tail."""
    moved = step @ answers.inverse.T
    far = np.sqrt(np.sum((moved @ start.near.solid) * moved, axis=1)) * start.near.reach
    return density * far / np.minimum(start.levels, 1 - start.levels)


_Asked = tuple[Floats, Floats, float]
"""Where gradients were asked, (m, p); the gradients in the frame, (m, p); and sd: their noise is sd·B ⊗ C."""


def _last_gradients(
    asker: Asker, answers: Answers, theta: Floats, h: Floats, rough: Curvatures
) -> tuple[_Asked, _Asked]:
    """The last two of the gradients of the stage "final". Each is asked where all answers before it place the levels.

    One step leaves an error in proportion to its length and to that of its curvature. A second and a third one, each
    from nearer, leave little.
    """
    width, asked = answers.narrow("final", h * LAST), []
    for _ in range(asker.question("final", "cells").times):
        theta, _ = answers.followed(theta, rough)
        asked.append((theta, *answers.ask("final", theta, width)))
    return asked[-2], asked[-1]


@dataclass(frozen=True)
class _Found:
    """The last two gradients of all levels.

    Args:
      first, point: where they were asked, (m, p).
      best: the estimates.
      before, last: the gradients in the frame, (m, p).
      sd: the noise of each is so many times B ⊗ C.
      density: of each level, (m,).
    """

    first: Floats
    point: Floats
    best: Floats
    before: Floats
    last: Floats
    sd: float
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
        noise, late = found.sd * loud, bend.step(g)
        around, usual = noise**2 * answers.ball, noise * np.sqrt(np.trace(answers.ball) / p)
        factor = max(
            widening_for_last_step(bend.step(before), late, bend.solid, own, usual, usual),
            widening_for_contradiction(g - before, walked[j], late, given, own + around, 0.0, 0.0, 2 * around),
        )
        step, back = (best[j] - point[j]) @ answers.inverse.T, np.linalg.inv(bend.solid)
        down, up = (1 - levels[j]) / found.density[j], levels[j] / found.density[j]
        bent = near.bent(step, bend.value @ step, back @ (read.noise + own) @ back, down, up)
        wrong = float(start.wrong[j])
        doubt = read.noise + bent + score * (near.left_out(wrong) + near.overlooked(wrong)) + seen_through(bend, own)
        wide, total = felt(0.0, doubt, own, factor)
        touched = start.box.touched(best[j], near.matrix, bend, total)
        known = smooth_enough and bool(placed[j]) and factor < np.inf and not touched
        drawn = own + wide**2 * np.eye(p)
        seen = replace(bend, sd=given.sd)  # what noise hides of it
        settled.append(prior.settle(seen, drawn, total, near.matrix, point[j], best[j], known=known))
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
