"""Huber regression by the default method: a rough fit and its scale, then two rounds of curvature and gradient."""

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import unpack
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import box_for
from pgbb.methods.calibrated.curvature import (
    Curvature,
    asked_again,
    bordered,
    covariance_of,
    curvature_of,
    noise_of_multiple,
    unlike,
)
from pgbb.methods.calibrated.frame import Cut, design_frame
from pgbb.methods.calibrated.prior import SPREADS, Prior
from pgbb.methods.calibrated.refine import refine
from pgbb.methods.calibrated.response import Distribution
from pgbb.methods.calibrated.start import (
    SCALE_WEIGHT,
    huber_gradient,
    locate_response,
    robust_fit,
    scale_of,
    score_bound,
    square_of,
)
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

Floats = NDArray[np.float64]


UNLIKE = 0.1  # prior relative difference of a curvature from that of residuals independent of the design
BENT = 0.5  # relative error of what a line that is off adds to the gradient of the scale
NEAR, LAG = 0.2, 0.25  # Newton steps leave `LAG` of the way to the scale, as far as it is longer than `NEAR` of it


def fit_huber(asker: Asker, problem: Problem, design: Design) -> tuple[LocalGaussian, Cut]:
    """Ask all stages of a Huber regression. Returns the posterior, and how many records are weighted down."""
    p = problem.dim - 1
    c, kappa = float(problem.settings["c"]), float(problem.settings["kappa"])
    constant, at = design.has_intercept, locate_response(asker, problem, design)
    near = design_frame(asker, design)
    box = box_for(problem, near, at.size(constant), at.start(p, constant))
    low, high = box.low, box.high
    if low[-1] < 1e-4 * high[-1]:  # the default box of the scale, which rests on the declared range
        low[-1] = min(low[-1], 1e-3 * at.spread)
    beta, error, residuals, right = robust_fit(asker, near, at, box, constant, c, kappa)
    frame = np.zeros((p + 1, p + 1))
    frame[:p, :p], frame[p, p] = near.matrix, SCALE_WEIGHT
    theta = np.append(beta, np.clip(scale_of(residuals, c, kappa), low[-1], high[-1]))
    mean = None  # of ωu, which the moment holds where a term is constant
    if design.has_intercept:
        mean = near.moment @ np.linalg.inv(near.matrix)[:, 0]
    top = score_bound(c, kappa)

    def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
        return huber_gradient(asker, stage, at, near.matrix, c, kappa)

    def around(size: Floats) -> Floats:
        """E vvᵀ for v = (a·u, b) with E(a², ab, b²) = `size`, for residuals that are independent of the design."""
        found = np.zeros((p + 1, p + 1))
        found[:p, :p], found[p, p] = size[0] * near.moment, size[2]
        if mean is not None:
            found[:p, p] = found[p, :p] = size[1] * mean
        return found

    def spread(at: Floats, bend: Curvature) -> tuple[Floats, Floats]:
        if asker.spread is None:
            psi = np.clip(residuals.middles / at[-1], -c, c)
            other = SCALE_WEIGHT * (psi**2 - kappa) / 2
            found = around(np.array([residuals.mean(v) for v in (psi**2, psi * other, other**2)]))
            return found, noise_of_multiple(found, near.moment, near.moment_sd)
        raw, sd = asker.score_moments(at, near.matrix, SCALE_WEIGHT, c, kappa, top)
        return covariance_of(raw * top**2, near.moment, sd * top**2, mean, shrink=asker.shrink)

    def curvature(at: Floats, before: Curvature | None) -> Curvature:
        if not asker.asks("curvature"):
            r = residuals.middles / at[-1]
            inside, r = np.abs(r) < c, SCALE_WEIGHT * r
            found = around(np.array([residuals.mean(inside * v) for v in (r**0, r, r**2)])) / at[-1]
            doubt = np.hypot(near.moment_sd, unlike(near.moment))
            bend = Curvature(found, noise_of_multiple(found, near.moment, doubt), UNLIKE)
            return bend.plus(np.zeros_like(found))
        answer, sd = asker.ask("curvature", "huber_curvature", at, near.matrix, SCALE_WEIGHT, c)
        unit = (1 + (SCALE_WEIGHT * c) ** 2) / at[-1]
        raw, noise = unpack(answer, p + 1) * unit, sd * unit
        if before is not None:
            return asked_again(raw, before, noise, shrink=asker.shrink, block=p)
        target = bordered(raw, near.moment, noise, 0.1 / at[-1], mean, 1e-6 / at[-1])
        target_sd = noise_of_multiple(target, near.moment, near.moment_sd)
        return curvature_of(raw, target, noise, target_sd, shrink=asker.shrink, block=p)

    def settle(at: Floats) -> Floats:  # the scale moves at most by a factor of two a round
        at = box.clip(at)
        at[-1] = np.clip(at[-1], theta[-1] / 2, theta[-1] * 2)
        return at

    def bends(step: Floats, left: Floats) -> tuple[Floats, Floats]:
        """What the gradient of the scale lacks: a line that is off by τ on average adds E ψ²(r ± τ) − E ψ²(r)."""
        moved = near.moment @ left[:p, :p]
        away, along = float(step[:p] @ near.moment @ step[:p]), near.moment @ step[:p]
        mean, doubt = np.zeros(p + 1), np.zeros((p + 1, p + 1))
        square = max(away + float(np.trace(moved)), 1e-100)
        rises = _rise(residuals, np.sqrt(square), c * theta[-1])
        mean[p] = SCALE_WEIGHT / 2 * rises / theta[-1] ** 2
        doubt[p, p] = mean[p] ** 2 * (2 * np.sum(moved * moved.T) + 4 * along @ left[:p, :p] @ along) / square**2
        slope = max(residuals.mean(np.abs(residuals.middles) < c * theta[-1]), 1e-6) / theta[-1]
        doubt[:p, :p] = near.bent(step[:p], slope * along, left[:p, :p], c / slope, c / slope)
        mean[p], doubt[p, p] = mean[p] + behind, doubt[p, p] + (BENT * mean[p]) ** 2 + behind**2
        return mean, doubt

    straight = scale_of(right, c, kappa)
    inner = np.abs(residuals.middles) < c * theta[-1]
    slope = SCALE_WEIGHT * residuals.mean(inner * residuals.middles**2) / theta[-1] ** 3
    behind = LAG * slope * max((1 - NEAR) * theta[-1] - straight, 0.0)
    center = np.append(at.start(p, constant), theta[-1])
    believed = np.append(np.full(p, SPREADS * at.spread * near.reach), theta[-1] / SCALE_WEIGHT)
    prior = Prior(center, believed, problem.transform, near.doubtful, near.unseen)
    doubt = np.zeros((p + 1, p + 1))
    doubt[:p, :p], doubt[p, p] = error, (0.3 * theta[-1] / SCALE_WEIGHT) ** 2
    common = np.zeros((p + 1, p + 1))
    common[:p, :p] = kappa * near.left_out()
    asked = curvature, gradient, spread
    given = box, asker.n, theta, doubt, frame, *asked, settle, prior, top
    steps = asker.times("approach", "huber_score")
    return refine(*given, common=common, bends=bends, located=at.found, steps=steps), near.cut


def _rise(residuals: Distribution, away: float, most: float) -> float:
    """E min((r ± away)², most²) − E min(r², most²)."""
    return max(residuals.mean(square_of(residuals, away, most) - square_of(residuals, 0.0, most)), 0.0)
