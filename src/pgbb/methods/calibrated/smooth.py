"""Calibrated Huber and logistic regression, means, and custom losses: locate, curvature, spread, two gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pgbb.methods.calibrated import statistics as ask_for
from pgbb.methods.calibrated.algebra import floored, pack, shrink, unpack
from pgbb.methods.calibrated.estimate import (
    Curvature,
    Cut,
    Estimate,
    bordered,
    combine,
    contradict,
    curvature_of,
    raised,
    toward,
    unsettled,
    widened,
)
from pgbb.methods.calibrated.location import design_frame, find, limited
from pgbb.methods.calibrated.logistic_curvature import Relief, crooked, relief_of
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import triangle

Floats = NDArray[np.float64]

__all__ = ["fit_custom", "fit_huber", "fit_logistic", "fit_mean"]

SCALE_WEIGHT = 0.5  # coordinate of the Huber scale beside Σw² = 1
PRIOR = 0.5  # how far the variance of a mean may be from that of its family, relative


def fit_huber(sums: Any, problem: Problem, n: int, bound: float, half: float) -> Estimate:
    """Ask all stages of a Huber regression; parameters (β, σ_H)."""
    p = problem.dim - 1
    c, kappa = float(problem.settings["c"]), float(problem.settings["kappa"])
    low, high = problem.center - problem.radius, problem.center + problem.radius
    near = find(sums, p, bound, half, problem.radius[:p], 7)
    frame = np.zeros((p + 1, p + 1))
    frame[:p, :p], frame[p, p] = near.frame, SCALE_WEIGHT
    theta = np.append(near.theta, np.clip(_scale(near.residuals, c, kappa), low[-1], high[-1]))
    mean = None  # of ωu, which the moment holds where a term is constant
    if problem.design is not None and problem.design.has_intercept:
        mean = near.moment @ np.linalg.inv(near.frame)[:, 0]
    top = max(float(np.hypot(c, SCALE_WEIGHT * (c**2 - kappa) / 2)), SCALE_WEIGHT * kappa / 2)

    def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
        answer, sd = sums.ask(stage, ask_for.huber_score, at, near.frame, SCALE_WEIGHT, c, kappa, top)
        return answer * top, sd * top

    def spread(at: Floats, bend: Curvature) -> tuple[Floats, Floats]:
        answer, sd = sums.ask("spread", ask_for.huber_spread, at, near.frame, SCALE_WEIGHT, c, kappa, top, power=2)
        raw = unpack(answer, p + 1) * top**2
        return toward(raw, near.moment, sd * top**2, mean)

    def curvature(at: Floats, before: Curvature | None) -> Curvature:
        answer, sd = sums.ask("curvature", ask_for.huber_curvature, at, near.frame, SCALE_WEIGHT, c)
        unit = (1 + (SCALE_WEIGHT * c) ** 2) / at[-1]
        raw, noise = unpack(answer, p + 1) * unit, sd * unit
        if before is not None:
            return _again(raw, before, noise)
        target = bordered(raw, near.moment, noise, 0.1 / at[-1], mean)
        return curvature_of(raw, target, noise, _relative(target, near.moment, near.moment_sd))

    def settle(at: Floats) -> Floats:  # the scale moves at most by a factor of two a round
        at = np.clip(at, low, high)
        at[-1] = np.clip(at[-1], theta[-1] / 2, theta[-1] * 2)
        return at

    return _finish(n, theta, frame, curvature, gradient, spread, settle, cut=near.cut)


def _scale(residuals: Any, c: float, kappa: float) -> float:
    """σ with E min((r/σ)², c²) = κ, by the histogram; it decreases in σ."""
    low, high = 1e-9, float(residuals.edges[-1])
    for _ in range(80):
        middle = np.sqrt(low * high)
        if residuals.mean(np.minimum((residuals.middles / middle) ** 2, c**2)) > kappa:
            low = middle
        else:
            high = middle
    return float(high)


def _relative(target: Floats, shape: Floats, sd: Floats) -> Floats:
    """Noise of the packed coordinates of a target whose first block is a multiple of a noisy shape."""
    p = len(shape)
    i, j, _ = triangle(len(target))
    noise = np.zeros(len(i))
    noise[(i < p) & (j < p)] = float(target[0, 0] / shape[0, 0]) * sd
    return noise


def _again(raw: Floats, before: Curvature, noise: float) -> Curvature:
    """Curvature asked a second time, nearer the estimate, shrunk to a multiple of what it was before."""
    unit = pack(before.value)
    factor = float(np.clip(pack(raw) @ unit / float(unit @ unit), 0.1, 10.0))
    return curvature_of(raw, factor * before.value, noise, factor * before.sd)


def _finish(
    n: int,
    theta: Floats,
    frame: Floats,
    curvature: Callable[[Floats, Curvature | None], Curvature],
    gradient: Callable[[str, Floats], tuple[Floats, float]],
    spread: Callable[[Floats, Curvature], tuple[Floats, Floats]],
    settle: Callable[[Floats], Floats],
    relief: Relief | None = None,
    cut: Cut | None = None,
) -> Estimate:
    """Two rounds of curvature and gradient, and the second moments of the score between them.

    Where it is known how curvature changes, steps follow it, and the curvature at their end is what is released.
    """

    def newton(bend: Curvature, at: Floats, g: Floats) -> Floats:
        straight = step = bend.step(g)
        if relief is not None:
            most = 2 * np.sqrt(straight @ bend.value @ straight)
            for _ in range(6):
                step = limited(bend.plus(relief.change(at, settle(at - frame @ step))).step(g), bend.value, most, 0.0)
        return step

    bend = curvature(theta, None)
    before, sd_first = gradient("refine", theta)
    step = newton(bend, theta, before)
    worth = limited(step, bend.value, np.inf, sd_first**2 * float(np.trace(bend.inverse)))
    point, first = settle(theta - frame @ worth), settle(theta - frame @ step)
    met = bend if relief is None else bend.plus(relief.change(theta, point))
    bend = curvature(point, bend)
    sampling, left = spread(point, bend)
    g, sd_second = gradient("final", point)
    second = settle(point - frame @ newton(bend, point, g))
    best, sd = combine(first, second, sd_first, sd_second, float(np.trace(sampling)) / len(sampling) / n)
    inverse = np.linalg.inv(frame)
    early, late, walked = (inverse @ (b - a) for a, b in ((theta, first), (point, second), (theta, point)))
    doubt = max(
        unsettled(early, late, bend.value, sampling / n, sd_first, sd_second),
        contradict(g - before, walked, late, met, sampling / n, sd_first, sd_second),
    )
    if relief is not None:
        bend = bend.plus(relief.at(best) - relief.at(point))
        if crooked(relief, best, frame, bend, sampling / n, widened(sd, sampling / n, doubt)):
            doubt = np.inf
    return Estimate(
        center=point[None],
        gradient=(bend.value @ (inverse @ (point - best)))[None],
        frame=frame,
        curvature=bend.value[None],
        curvature_sd=bend.sd[None],
        privacy=np.array([[widened(sd, sampling / n, doubt)]]),
        sampling=sampling / n,
        sampling_sd=left / n,
        free=(np.eye(len(theta)) if doubt == np.inf else bend.free)[None],
        cut=cut,
    )


def fit_logistic(sums: Any, problem: Problem, n: int, bound: float) -> Estimate:
    """Ask all stages of a logistic regression."""
    p = problem.dim
    frame, moment, moment_sd, cut = design_frame(sums, p, bound)
    solid = raised(moment, moment_sd)
    relief = relief_of(moment, moment_sd, frame, problem.design is not None and problem.design.has_intercept)
    radius = problem.radius
    theta = np.zeros(p)
    for _ in range(8):
        g, sd = sums.ask("locate", ask_for.logistic_score, theta, frame)
        answer, bend_sd = sums.ask("locate", ask_for.logistic_curvature, theta, frame)
        raw = unpack(answer, p) / 4
        bend, left = shrink(raw, bordered(raw, relief.at(theta), 0.0, 0.1), bend_sd / 4)
        inverse = np.linalg.inv(raised(bend, left, 0.5))
        step = limited(inverse @ g, solid, 2.0, sd**2 * float(np.sum((solid @ inverse) * inverse)))
        theta = np.clip(theta - frame @ step, -radius, radius)

    def curvature(at: Floats, before: Curvature | None) -> Curvature:
        answer, sd = sums.ask("curvature", ask_for.logistic_curvature, at, frame)
        raw, noise = unpack(answer, p) / 4, sd / 4
        if before is not None:
            return _again(raw, before.plus(relief.at(at) - relief.at(theta)), noise)
        shape = relief.at(at)
        target = bordered(raw, shape, 0.0, 0.1)
        return curvature_of(raw, target, noise, _relative(target, moment, moment_sd))

    def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
        answer, sd = sums.ask(stage, ask_for.logistic_score, at, frame)
        return answer, sd

    def spread(at: Floats, bend: Curvature) -> tuple[Floats, Floats]:
        answer, sd = sums.ask("spread", ask_for.logistic_spread, at, frame, power=2)
        raw = unpack(answer, p)
        return toward(raw, bend.value, sd)

    def settle(at: Floats) -> Floats:
        return np.clip(at, -radius, radius)

    return _finish(n, theta, frame, curvature, gradient, spread, settle, relief, cut)


def fit_mean(sums: Any, problem: Problem, n: int) -> Estimate:
    """Ask all stages of a mean.

    The clipped score vanishes where the mean of y clipped to centre ± reach
    equals the centre, reach being C·s² (Gaussian) or C·m² (exponential): that
    equation, of slope P(no clip), is solved, in the range that the schema declares.
    Where the clip is seen to cut more than the family allows, the whole range is used instead.
    """
    low, high = problem.center[0] - problem.radius[0], problem.center[0] + problem.radius[0]
    bottom, top = float(problem.settings["low"]), float(problem.settings["high"])
    middle, half = (bottom + top) / 2, (top - bottom) / 2
    gaussian, known = problem.settings["family"] == "gaussian", problem.settings["scale"]
    answer, sd = sums.ask("range", ask_for.mean_range, middle, half)
    present = float(answer[1]) * np.sqrt(2)  # share of records that have a value
    if present > 1 - 3 * np.sqrt(2) * sd:
        present = 1.0
    present = max(present, 0.05)
    centre, vague = float(np.clip(middle + half * answer[0] * np.sqrt(2) / present, low, high)), 5 * half * sd / present

    def window(at: float, vague: float) -> tuple[float, float]:
        reach = vague + problem.clip * (known**2 if gaussian else (at + vague) ** 2)
        return max(bottom, at - reach), min(top, at + reach)

    ends = window(centre, vague)
    answer, sd = sums.ask("refine", ask_for.mean_score, *ends)
    centre = float(np.clip((ends[0] + ends[1]) / 2 + (ends[1] - ends[0]) / 2 * answer[0] / present, low, high))
    early, early_sd = ends, sd * (ends[1] - ends[0]) / 2
    vague = 3 * early_sd / present
    ends = window(centre, vague)
    answer, sd = sums.ask("spread", ask_for.mean_spread, *ends, centre)
    inside, noise = (present + answer[0] * np.sqrt(2)) / 2, sd / np.sqrt(2)
    if ends == (bottom, top):  # nothing can be clipped
        inside, noise = present, 0.0
    reach = min(ends[1] - centre, centre - ends[0])
    allowed = present * 2 * ndtr(-reach / known) if gaussian else 0.0  # symmetric, so that it moves no mean
    bites = present - inside > 3 * noise + allowed
    far = max(ends[1] - centre, centre - ends[0]) ** 2
    square, square_sd = far * (present + answer[1] * np.sqrt(2)) / 2, far * sd / np.sqrt(2)
    expected = present * (known**2 if gaussian else (centre + vague / 3) ** 2)
    doubt = max((PRIOR * expected) ** 2, (square - expected) ** 2 - square_sd**2)
    trust = doubt / (doubt + square_sd**2)
    variance = max(trust * square + (1 - trust) * expected, 0.05 * expected)
    if bites:  # ask for the mean itself; what is inside tells how far a normal law would reach
        variance = max(
            variance, present * (reach / float(ndtri((1 + np.clip(inside / present, 0.05, 0.999)) / 2))) ** 2
        )
        ends, inside, noise = (bottom, top), present, 0.0
    answer, sd = sums.ask("final", ask_for.mean_score, *ends)
    gradient = present * (centre - (ends[0] + ends[1]) / 2) - (ends[1] - ends[0]) / 2 * answer
    noise_sd = sd * (ends[1] - ends[0]) / 2
    if early == ends and sd > 0:  # the same equation was asked before, and the centre is its root
        weight = early_sd**2 / (early_sd**2 + noise_sd**2)
        gradient, noise_sd = weight * gradient, float(np.hypot(weight * noise_sd, (1 - weight) * early_sd))
    return Estimate(
        center=np.array([[centre]]),
        gradient=gradient[None],
        frame=np.eye(1),
        curvature=np.array([[[max(min(inside, present), 0.05 * present)]]]),
        curvature_sd=np.array([[noise]]),
        privacy=np.array([[noise_sd]]),
        sampling=np.array([[variance]]) / n,
        sampling_sd=np.array([np.sqrt(trust) * square_sd]) / n,
        free=np.array([[[1.0 if inside < 3 * noise else 0.0]]]),
    )


def fit_custom(sums: Any, problem: Problem, n: int) -> Estimate:
    """Ask all stages of a custom loss, knowing nothing but its clipped gradient.

    Curvature comes from differences of gradients over a public distance, which
    also smooths a loss with kinks; the distance is the shortest of three at
    which every direction stands clear of the noise, or the longest.
    """
    d, radius = problem.dim, problem.radius
    low, high = problem.center - radius, problem.center + radius
    slope, bend, outer = ask_for.gradient(problem), ask_for.differences(problem), ask_for.outer_gradient(problem)
    theta = problem.center.copy()

    def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
        answer, sd = sums.ask(stage, slope, at)
        return answer * problem.clip, sd * problem.clip

    def difference(stage: str, at: Floats, distance: float) -> tuple[Floats, float]:
        step = distance * radius
        answer, sd = sums.ask(stage, bend, at, step)
        raw = answer.reshape(d, d) * problem.clip * np.sqrt(d) / step[:, None]
        return (raw + raw.T) / 2, float(sd * problem.clip * np.sqrt(d) / step.min())

    distance = 0.5
    for _ in range(10):
        g, _ = gradient("locate", theta)
        raw, noise = difference("locate", theta, distance)
        level = max(float(np.trace(raw)) / d, noise)
        step = np.linalg.solve(floored(raw, max(0.1 * level, noise)), g)
        theta = np.clip(theta - step / max(float(np.max(np.abs(step) / radius)) / (1.5 * distance), 1.0), low, high)
        distance = max(distance * 0.7, 0.05)

    def curvature(at: Floats, before: Curvature | None) -> Curvature:
        tried = [difference("curvature", at, r) for r in (0.2, 0.07, 0.025)]
        clear = [(raw, noise) for raw, noise in tried if np.linalg.eigvalsh(raw)[0] > 6 * noise]
        raw, noise = clear[-1] if clear else tried[0]
        return curvature_of(raw, np.eye(d) * max(float(np.trace(raw)) / d, noise), noise)

    def spread(at: Floats, bend: Curvature) -> tuple[Floats, Floats]:
        answer, sd = sums.ask("spread", outer, at, power=2)
        raw = unpack(answer, d) * problem.clip**2
        return toward(raw, np.diag(np.maximum(np.diag(raw), 1e-3 * problem.clip**2)), sd * problem.clip**2)

    def settle(at: Floats) -> Floats:
        return np.clip(at, low, high)

    return _finish(n, theta, np.eye(d), curvature, gradient, spread, settle)
