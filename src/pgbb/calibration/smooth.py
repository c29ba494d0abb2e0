"""Calibrated Huber and logistic regression, means, and custom losses: locate, curvature, spread, two gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb.calibration import statistics as ask_for
from pgbb.calibration.algebra import floored, pack, shrink, unpack
from pgbb.calibration.estimate import FLOOR, Curvature, Estimate, combine, curvature_of, raised
from pgbb.calibration.location import design_frame, find, limited
from pgbb.models import Problem

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
    top = max(float(np.hypot(c, SCALE_WEIGHT * (c**2 - kappa) / 2)), SCALE_WEIGHT * kappa / 2)

    def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
        answer, sd = sums.ask(stage, ask_for.huber_score, at, near.frame, SCALE_WEIGHT, c, kappa, top)
        return answer * top, sd * top

    def spread(at: Floats) -> tuple[Floats, Floats]:
        answer, sd = sums.ask("spread", ask_for.huber_spread, at, near.frame, SCALE_WEIGHT, c, kappa, top)
        raw = unpack(answer, p + 1) * top**2
        return _toward(raw, _bordered(raw, near.moment, 0.0, 0.0), sd * top**2)

    answer, sd = sums.ask("curvature", ask_for.huber_curvature, theta, near.frame, SCALE_WEIGHT, c)
    unit = (1 + (SCALE_WEIGHT * c) ** 2) / theta[-1]
    raw, noise = unpack(answer, p + 1) * unit, sd * unit
    target = _bordered(raw, near.moment, noise, 0.1 / theta[-1])
    curvature = curvature_of(raw, target, noise, _relative(target, near.moment, near.moment_sd))

    def settle(at: Floats) -> Floats:  # the scale moves at most by a factor of two a round
        at = np.clip(at, low, high)
        at[-1] = np.clip(at[-1], theta[-1] / 2, theta[-1] * 2)
        return at

    return _finish(n, theta, frame, curvature, gradient, spread, settle)


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


def _bordered(raw: Floats, shape: Floats, noise: float, least: float) -> Floats:
    """Target of a matrix for (β, extra): a multiple of `shape` for β, and the extra parameters apart."""
    p = len(shape)
    target = np.zeros_like(raw)
    unit = pack(shape)
    target[:p, :p] = max(float(pack(raw[:p, :p]) @ unit) / float(unit @ unit), least, 1e-6) * shape
    for j in range(p, len(raw)):
        target[j, j] = max(float(raw[j, j]), 3 * noise, 1e-6)
    return target


def _relative(target: Floats, shape: Floats, sd: Floats) -> Floats:
    """Noise of the packed coordinates of a target whose first block is a multiple of a noisy shape."""
    p = len(shape)
    i, j = np.triu_indices(len(target))
    noise = np.zeros(len(i))
    noise[(i < p) & (j < p)] = float(target[0, 0] / shape[0, 0]) * sd
    return noise


def _toward(raw: Floats, target: Floats, sd: float) -> tuple[Floats, Floats]:
    """A covariance shrunk to its target and kept positive, and the noise left in it."""
    value, left = shrink(raw, target, sd)
    return floored(value, FLOOR * max(float(np.linalg.eigvalsh(target)[0]), 0.0)), left


def _finish(
    n: int,
    theta: Floats,
    frame: Floats,
    curvature: Curvature,
    gradient: Callable[[str, Floats], tuple[Floats, float]],
    spread: Callable[[Floats], tuple[Floats, Floats]],
    settle: Callable[[Floats], Floats],
) -> Estimate:
    """Two rounds of gradients and the second moments of the score between them."""
    g, sd_first = gradient("refine", theta)
    step = curvature.step(g)
    worth = limited(step, curvature.value, np.inf, sd_first**2 * float(np.trace(curvature.inverse)))
    point, first = settle(theta - frame @ worth), settle(theta - frame @ step)
    sampling, left = spread(point)
    g, sd_second = gradient("final", point)
    second = settle(point - frame @ curvature.step(g))
    best, sd = combine(first, second, sd_first, sd_second)
    return Estimate(
        center=point[None],
        gradient=(curvature.value @ np.linalg.solve(frame, point - best))[None],
        frame=frame,
        curvature=curvature.value[None],
        curvature_sd=curvature.sd[None],
        privacy=np.array([[sd]]),
        sampling=sampling / n,
        sampling_sd=left / n,
        free=curvature.free[None],
    )


def fit_logistic(sums: Any, problem: Problem, n: int, bound: float) -> Estimate:
    """Ask all stages of a logistic regression."""
    p = problem.dim
    frame, moment, moment_sd = design_frame(sums, p, bound)
    solid = raised(moment, moment_sd)
    radius = problem.radius
    theta = np.zeros(p)
    for _ in range(8):
        g, sd = sums.ask("locate", ask_for.logistic_score, theta, frame)
        answer, bend_sd = sums.ask("locate", ask_for.logistic_curvature, theta, frame)
        raw = unpack(answer, p) / 4
        bend, left = shrink(raw, _bordered(raw, moment, 0.0, bend_sd / 4), bend_sd / 4)
        inverse = np.linalg.inv(raised(bend, left, 0.5))
        step = limited(inverse @ g, solid, 2.0, sd**2 * float(np.sum((solid @ inverse) * inverse)))
        theta = np.clip(theta - frame @ step, -radius, radius)
    answer, sd = sums.ask("curvature", ask_for.logistic_curvature, theta, frame)
    raw, noise = unpack(answer, p) / 4, sd / 4
    target = _bordered(raw, moment, 0.0, 1e-3)
    curvature = curvature_of(raw, target, noise, _relative(target, moment, moment_sd))

    def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
        answer, sd = sums.ask(stage, ask_for.logistic_score, at, frame)
        return answer, sd

    def spread(at: Floats) -> tuple[Floats, Floats]:
        answer, sd = sums.ask("spread", ask_for.logistic_spread, at, frame)
        raw = unpack(answer, p)
        return _toward(raw, _bordered(raw, curvature.value, 0.0, 0.0), sd)

    def settle(at: Floats) -> Floats:
        return np.clip(at, -radius, radius)

    return _finish(n, theta, frame, curvature, gradient, spread, settle)


def fit_mean(sums: Any, problem: Problem, n: int) -> Estimate:
    """Ask all stages of a mean.

    The clipped score vanishes where the mean of y clipped to centre ± reach
    equals the centre, reach being C·s² (Gaussian) or C·m² (exponential): that
    equation, of slope P(no clip), is solved, in the range that the schema declares.
    """
    low, high = problem.center[0] - problem.radius[0], problem.center[0] + problem.radius[0]
    bottom, top = float(problem.settings["low"]), float(problem.settings["high"])
    middle, half = (bottom + top) / 2, (top - bottom) / 2
    gaussian, known = problem.settings["family"] == "gaussian", problem.settings["scale"]
    answer, sd = sums.ask("range", ask_for.mean_range, middle, half)
    centre, vague = float(np.clip(middle + half * answer[0], low, high)), 3 * half * sd

    def window(at: float, vague: float) -> tuple[float, float]:
        reach = vague + problem.clip * (known**2 if gaussian else (at + vague) ** 2)
        return max(bottom, at - reach), min(top, at + reach)

    ends = window(centre, vague)
    answer, sd = sums.ask("refine", ask_for.mean_score, *ends)
    centre = float(np.clip((ends[0] + ends[1]) / 2 + (ends[1] - ends[0]) / 2 * answer[0], low, high))
    vague = 3 * (ends[1] - ends[0]) / 2 * sd
    ends = window(centre, vague)
    answer, sd = sums.ask("spread", ask_for.mean_spread, *ends, centre)
    inside, noise = (1 + answer[0] * np.sqrt(2)) / 2, sd / np.sqrt(2)
    if ends == (bottom, top):  # nothing can be clipped
        inside, noise = 1.0, 0.0
    far = max(ends[1] - centre, centre - ends[0]) ** 2
    square, square_sd = far * (1 + answer[1] * np.sqrt(2)) / 2, far * sd / np.sqrt(2)
    expected = known**2 if gaussian else (centre + vague / 3) ** 2
    trust = (PRIOR * expected) ** 2 / ((PRIOR * expected) ** 2 + square_sd**2)
    variance = max(trust * square + (1 - trust) * expected, 0.05 * expected)
    answer, sd = sums.ask("final", ask_for.mean_score, *ends)
    gradient = centre - (ends[0] + ends[1]) / 2 - (ends[1] - ends[0]) / 2 * answer
    return Estimate(
        center=np.array([[centre]]),
        gradient=gradient[None],
        frame=np.eye(1),
        curvature=np.array([[[max(min(inside, 1.0), 0.05)]]]),
        curvature_sd=np.array([[noise]]),
        privacy=np.array([[sd * (ends[1] - ends[0]) / 2]]),
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
    tried = [difference("curvature", theta, r) for r in (0.2, 0.07, 0.025)]
    clear = [(raw, noise) for raw, noise in tried if np.linalg.eigvalsh(raw)[0] > 6 * noise]
    raw, noise = clear[-1] if clear else tried[0]
    curvature = curvature_of(raw, np.eye(d) * max(float(np.trace(raw)) / d, noise), noise)

    def spread(at: Floats) -> tuple[Floats, Floats]:
        answer, sd = sums.ask("spread", outer, at)
        raw = unpack(answer, d) * problem.clip**2
        return _toward(raw, np.diag(np.maximum(np.diag(raw), 1e-3 * problem.clip**2)), sd * problem.clip**2)

    def settle(at: Floats) -> Floats:
        return np.clip(at, low, high)

    return _finish(n, theta, np.eye(d), curvature, gradient, spread, settle)
