"""Expectile regression by the default method: a least-squares fit, and Newton steps with clipped scores.

The loss is w·r², with w = τ above the line and 1 − τ below; its curvature is E wuuᵀ. Public arithmetic on answers.
"""

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated.algebra import limited
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import box_for
from pgbb.methods.calibrated.clipped_regression import Clipped
from pgbb.methods.calibrated.curvature import (
    Curvature,
    asked_again,
    bordered,
    curvature_of,
    filtered,
    noise_of_multiple,
)
from pgbb.methods.calibrated.frame import design_frame
from pgbb.methods.calibrated.prior import SPREADS, Prior
from pgbb.methods.calibrated.start import first_fit, locate_response
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

Floats = NDArray[np.float64]


OTHER = 0.1  # error of a step because the curvature changes along it, in spreads of the response


def fit_expectile(asker: Asker, problem: Problem, design: Design) -> tuple[LocalGaussian, list[str]]:
    """Ask all stages of an expectile regression. Returns the posterior, and notes for the certificate."""
    p, constant, tau = problem.dim, design.has_intercept, float(problem.settings["tau"])
    at = locate_response(asker, problem, design)
    near = design_frame(asker, design)
    size = at.size(constant)
    box = box_for(problem, near, size, at.start(p, constant))
    theta, error = first_fit(asker, near, at, box, constant)
    apart = abs(2 * tau - 1)  # difference of the weights on the two sides of the line
    level = 2 * tau * (1 - tau)  # typical weight
    sides = np.sqrt([tau, 1 - tau])  # in proportion to the records on each, if the response is uniform
    family = Clipped(asker, near, tau, side=float(min(sides) / sum(sides)))
    error = error + (at.spread * near.reach * apart) ** 2 * np.eye(p)
    for _ in range(asker.question("locate", "clipped_score").times):
        g, sd = family.score("locate", theta, max(tau, 1 - tau) * size * np.sqrt(p) / near.reach)
        step, error = filtered(level * near.solid, g, sd, error)
        error = error + (OTHER * at.spread * near.reach) ** 2 * np.eye(p)
        theta = box.clip(theta - near.matrix @ limited(step, near.solid, size))

    def curvature(at: Floats, before: Curvature | None) -> Curvature:
        raw, noise = family.curvature(at, level * near.moment)
        if before is not None:
            return asked_again(raw, before, noise, shrink=asker.shrink)
        target = bordered(raw, near.moment, 0.0, min(tau, 1 - tau))
        left = noise_of_multiple(target, near.moment, near.moment_sd)
        return curvature_of(raw, target, noise, left, shrink=asker.shrink)

    prior = Prior(
        at.start(p, constant),
        np.full(p, SPREADS * at.spread * near.reach),
        problem.transform,
        near.doubtful,
        near.unseen,
    )
    return family.finish(box, theta, error, size, curvature, prior, located=at.found)
