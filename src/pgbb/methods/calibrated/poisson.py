"""Poisson regression by the default method: Newton steps, then two rounds of curvature and clipped gradients.

The score is u(μ − y). The curvature E μuuᵀ is a known function of θ for a normal design, as in logistic regression. No
record is weighted down. Public arithmetic on answers.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated.algebra import limited
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import Box, box_for
from pgbb.methods.calibrated.clipped_regression import Clipped
from pgbb.methods.calibrated.curvature import (
    Curvature,
    asked_again,
    bordered,
    curvature_of,
    filtered,
    noise_of_multiple,
    raised,
)
from pgbb.methods.calibrated.frame import Frame, design_frame
from pgbb.methods.calibrated.logistic import LogisticCurvature, logistic_curvature
from pgbb.methods.calibrated.prior import Prior
from pgbb.methods.calibrated.start import first_fit, locate_counts
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

Floats = NDArray[np.float64]


EFFECT = 0.7  # typical effect of a standard deviation of a covariate on log μ
OTHER = 0.1  # error of a step in log μ, because the curvature changes along it
BELIEVED = 3.0  # prior standard deviation of the effect of a standard deviation of a covariate on log μ
WITHIN = 2.5  # scores up to so many typical lengths, by the spread of the counts, are not clipped
FARTHEST = 1.5  # the most by which a step may move log μ
WALKS = 6  # rounds in which a step and the curvature that it meets are found
LEAST = 1e-3  # least mean count that the first fit may give, in spreads of the response


@dataclass(frozen=True)
class PoissonCurvature(LogisticCurvature):
    """How the curvature E μuuᵀ of a Poisson loss changes with θ, for a made-up design.

    `base` is the mean of the offset, and `most` the largest log μ that counts; for the rest see `LogisticCurvature`.
    """

    base: float = 0.0
    most: float = 0.0

    def at(self, theta: Floats) -> Floats:
        """E μuuᵀ."""
        mean = np.exp(np.minimum(self.points @ (self.inverse @ theta) + self.base, self.most))
        return (self.points.T * mean) @ self.points * (self.mass / len(self.points))


def fit_poisson(asker: Asker, problem: Problem, design: Design) -> tuple[LocalGaussian, list[str]]:
    """Ask all stages of a Poisson regression. Returns the posterior, and notes for the certificate."""
    p, constant = problem.dim, design.has_intercept
    at = locate_counts(asker, problem, design)
    near = design_frame(asker, replace(design, offset=None))
    size = at.size(constant)
    link = np.array([problem.settings["most"], *((0.0, 0.0) if design.offset is None else design.offset.mapped)])
    base = 0.0
    if design.offset is not None:
        answer, _ = asker.ask("start", "offset_mean", np.zeros(p))
        base = float(link[1] + link[2] * np.clip(answer[0], -1.0, 1.0))
    model = _model(near, constant, base, float(link[0]))
    wide = Box(np.full(p, -np.inf), np.full(p, np.inf))
    line, _ = first_fit(asker, near, at, wide, constant)
    theta = _start(line, model, LEAST * size, constant)
    box = box_for(problem, near, start=theta)
    believed = np.where(np.arange(p) == 0, theta, 0.0) if constant else np.zeros(p)

    rough, error = Clipped(asker, near, link), (EFFECT * near.reach) ** 2 * np.eye(p)
    for _ in range(asker.question("locate", "clipped_score").times):
        g, sd = rough.score("locate", theta, 2 * size * np.sqrt(p) / near.reach)
        level = float(np.exp(min(theta[0] + base, float(link[0])))) if constant else 1.0
        here, noise, step = model.at(theta), near.moment_sd * level, np.zeros(p)
        for _ in range(WALKS):  # by the mean curvature along the step
            met = here + model.change(theta, theta - near.matrix @ step)
            step, left = filtered(raised(met, noise), g, sd, error)
            step = limited(step, near.solid, FARTHEST)
        error = left + (OTHER * near.reach) ** 2 * np.eye(p)
        theta = box.clip(theta - near.matrix @ step)

    _, axes = np.linalg.eigh(model.at(theta))  # weak directions of the curvature are shrunk to the model the most
    near, error = near.turned(axes), axes.T @ error @ axes
    model = _model(near, constant, base, float(link[0]))
    least = WITHIN * at.spread * float(np.sqrt(np.trace(near.moment)))
    family = Clipped(asker, near, link, least, counts=True)

    def curvature(at: Floats, before: Curvature | None) -> Curvature:
        shape = model.at(at)
        raw, noise = family.curvature(at, shape)
        if before is not None:
            return asked_again(raw, before.plus(shape - model.at(theta)), noise, shrink=asker.shrink)
        target = bordered(raw, shape, 0.0, 0.1)
        left = noise_of_multiple(target, near.moment, near.moment_sd)
        return curvature_of(raw, target, noise, left, shrink=asker.shrink)

    prior = Prior(believed, np.full(p, BELIEVED * near.reach), problem.transform, near.doubtful, near.unseen)
    return family.finish(box, theta, error, size, curvature, prior, model, at.found)


def _model(near: Frame, constant: bool, base: float, most: float) -> PoissonCurvature:
    """The curvature of a normal design with the second moments of the frame."""
    normal = logistic_curvature(near.moment, near.moment_sd, near.matrix, constant)
    return PoissonCurvature(normal.points, normal.inverse, normal.mass, base, most)


def _start(line: Floats, model: PoissonCurvature, least: float, constant: bool) -> Floats:
    """The constant fit with μ equal to the mean of a least-squares line; zero without an intercept."""
    theta = np.zeros(len(line))
    if constant:
        theta[0] = np.log(max(float(model.points.mean(axis=0) @ (model.inverse @ line)), least)) - model.base
    return theta
