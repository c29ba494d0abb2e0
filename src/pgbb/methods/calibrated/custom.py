"""A custom loss by the default method: curvature comes from differences of its clipped gradient."""

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.calibrated.algebra import as_answered, floored
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import Box
from pgbb.methods.calibrated.curvature import Curvature, covariance_of, curvature_of
from pgbb.methods.calibrated.prior import Prior
from pgbb.methods.calibrated.refine import refine
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

DISTANCES = (0.2, 0.07, 0.025)  # distances over which the curvature is asked, in units of the box


def fit_custom(asker: Asker, problem: Problem) -> LocalGaussian:
    """Ask all stages of a custom loss, of which nothing but the clipped gradient is known.

    Curvature comes from differences of gradients over a public distance, which also smooths a loss with kinks. The
    distance is the shortest of three at which every direction stands clear of the noise, or the longest of them.
    """
    d, radius = problem.dim, problem.radius
    box = Box(problem.center - radius, problem.center + radius)
    theta = problem.center.copy()

    def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
        answer, sd = asker.ask(stage, "gradient", at)
        return answer * problem.clip, sd * problem.clip

    def difference(stage: str, at: Floats, distance: float) -> tuple[Floats, float]:
        step = distance * radius
        answer, sd = asker.ask(stage, "differences", at, step)
        raw = answer.reshape(d, d) * problem.clip * np.sqrt(d) / step[:, None]
        return (raw + raw.T) / 2, float(sd * problem.clip * np.sqrt(d) / step.min())

    distance = 0.5
    for _ in range(asker.question("locate", "gradient").times):
        g, _ = gradient("locate", theta)
        raw, noise = difference("locate", theta, distance)
        level = max(float(np.trace(raw)) / d, noise)
        step = np.linalg.solve(floored(raw, max(0.1 * level, noise)), g)
        theta = box.clip(theta - step / max(float(np.max(np.abs(step) / radius)) / (1.5 * distance), 1.0))
        distance = max(distance * 0.7, 0.05)

    def curvature(at: Floats, before: Curvature | None) -> Curvature:
        tried = [difference("curvature", at, r) for r in DISTANCES]
        clear = [(raw, noise) for raw, noise in tried if np.linalg.eigvalsh(raw)[0] > 6 * noise]
        raw, noise = clear[-1] if clear else tried[0]
        # where noise hides a direction, shrinkage to equal curvature in all directions would make it look seen
        shrink = asker.shrink if clear else as_answered
        return curvature_of(raw, np.eye(d) * max(float(np.trace(raw)) / d, noise), noise, shrink=shrink)

    def spread(at: Floats, bend: Curvature) -> tuple[Floats, Floats]:
        raw, sd = asker.score_moments(at)
        raw *= problem.clip**2
        target = np.diag(np.maximum(np.diag(raw), 1e-3 * problem.clip**2))
        return covariance_of(raw, target, sd * problem.clip**2, shrink=asker.shrink)

    prior = Prior(problem.center, radius, np.eye(d))
    error = np.diag((0.1 * radius) ** 2)
    return refine(box, asker.n, theta, error, np.eye(d), curvature, gradient, spread, box.clip, prior, problem.clip)
