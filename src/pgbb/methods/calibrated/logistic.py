"""Logistic regression by the default method: Newton steps, then two rounds of curvature and gradient.

p(1 − p) is a known function of xᵀθ. So a made-up design with the located columns and the second moments that were asked
tells the curvature everywhere: as a shrinkage target with the right weak directions, and along every step. The answers
correct it.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from pgbb._numerics.symmetric import direction_sd, unpack
from pgbb.methods.calibrated.algebra import clear_of, limited
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import box_for
from pgbb.methods.calibrated.curvature import (
    Curvature,
    covariance_of,
    noise_of_shape,
    scaled_to,
)
from pgbb.methods.calibrated.frame import SCORE, Cut, design_frame
from pgbb.methods.calibrated.prior import LOGITS, Prior
from pgbb.methods.calibrated.refine import refine
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

Floats = NDArray[np.float64]

POINTS = 2**11
UNLIKE = 0.1  # prior relative difference of a curvature from that of the made-up design
EFFECT = 4.0  # typical effect of a standard deviation of a covariate, in logits
HIDDEN, FAINT = 1 / 3, 0.2  # least second moment: shares of what stands clear of noise, and of the usual one
LEAST = 1e-6  # least p(1 − p), where all points are far out
STRETCH = 0.25  # relative error of a step, because the curvature changes along it
ROUNDS, HALVINGS = 10, 5  # Gauss–Newton steps for one answer, and halvings of each that leads to no better fit
QUIETEST = 1e-9  # least noise of a gradient that is read
GROWS, STEPS = 1.25, 16  # factor between distances that are tried for the reach of a posterior, and their number
WIDEST = 1.5  # the most by which a posterior is widened because the curvature falls along it
FARTHEST = 4.0  # the most by which a step may move the predictor, in logits
_PATH = (np.array([0.1127016654, 0.5, 0.8872983346]), np.array([5.0, 8.0, 5.0]) / 18)  # Gauss's three points


@dataclass(frozen=True)
class LogisticCurvature:
    """How the curvature of a logistic loss changes with θ, for a made-up design.

    Args:
      points: of the design in the frame, (k, p).
      inverse: F⁻¹.
      mass: the share of records (or of weight) that counts.
    """

    points: Floats
    inverse: Floats
    mass: float

    def at(self, theta: Floats) -> Floats:
        """E p(1 − p)uuᵀ."""
        p = expit(self.points @ (self.inverse @ theta))
        bend = np.maximum(p * (1 - p), LEAST)
        return (self.points.T * bend) @ self.points * (self.mass / len(self.points))

    def change(self, start: Floats, end: Floats) -> Floats:
        """The mean curvature on the way from start to end, less that at the start."""
        met = sum(w * self.at(start + s * (end - start)) for s, w in zip(*_PATH, strict=True))
        return np.asarray(met - self.at(start))

    def score(self, theta: Floats) -> Floats:
        """E p·u: the gradient of the loss up to a constant."""
        return np.asarray(expit(self.points @ (self.inverse @ theta)) @ self.points * (self.mass / len(self.points)))

    def varies(self, best: Floats, frame: Floats, bend: Curvature, noise: Floats) -> bool:
        """Whether the curvature doubles or halves within two posterior standard deviations, along some axis."""
        inverse = np.linalg.inv(bend.solid)
        law = inverse @ noise @ inverse
        values, vectors = np.linalg.eigh((law + law.T) / 2)
        here = self.at(best)
        for value, vector in zip(values, vectors.T, strict=True):
            for side in (-2.0, 2.0):
                there = self.at(best + side * np.sqrt(max(value, 0.0)) * (frame @ vector))
                now = float(vector @ here @ vector)
                if not 0.5 * now < float(vector @ there @ vector) < 2.0 * now:
                    return True
        return False

    def widened(self, best: Floats, frame: Floats, bend: Curvature, noise: Floats) -> Floats:
        """The noise of a gradient with which a normal posterior is as wide as one that follows the curvature.

        Along each axis of the posterior, its ends are where the gradient has changed by two standard deviations of its
        noise; the mean distance of both ends is taken, up to `WIDEST` times that of a normal posterior.
        """
        inverse = np.linalg.inv(bend.solid)
        law = inverse @ noise @ inverse
        values, axes = np.linalg.eigh((law + law.T) / 2)
        spreads, here = np.sqrt(np.maximum(values, 0.0)), self.at(best)
        for k, axis in enumerate(axes.T):
            near, wanted = 2 * spreads[k], 2 * spreads[k] * float(axis @ here @ axis)
            sides = [self._reached(best, side * (frame @ axis), axis, wanted, near) for side in (-1.0, 1.0)]
            spreads[k] *= min(sum(sides) / 4 / max(spreads[k], 1e-300), WIDEST)
        root = bend.solid @ (axes * spreads)
        return np.asarray(root @ root.T)

    def _reached(self, best: Floats, way: Floats, axis: Floats, wanted: float, far: float) -> float:
        """The distance along `way` at which the gradient along the axis has changed by `wanted`; at least `far`."""
        here, before, found = self.at(best), far, 0.0
        for step in range(STEPS):
            change = far * float(axis @ (here + self.change(best, best + far * way)) @ axis)
            if change >= wanted:
                return before + (far - before) * (wanted - found) / (change - found) if step else far
            before, found, far = far, change, far * GROWS
        return before


@dataclass
class Followed:
    """The gradients so far, read together by a model that knows how they change.

    Each of them says what the score E p·u is at the target. A rare outcome is many logits from one half, and the
    curvature falls to a tenth on the way there: no gradient alone leads to it.

    Args:
      model: how gradients change.
      frame: F.
      believed: prior standard deviation along each axis.
      answers: where gradients were asked, the gradients, and their noise.
    """

    model: LogisticCurvature
    frame: Floats
    believed: float
    answers: list[tuple[Floats, Floats, float]] = field(default_factory=list)

    def turned(self, model: LogisticCurvature, axes: Floats) -> "Followed":
        """The same answers in a frame with rotated axes."""
        return Followed(model, self.frame @ axes, self.believed, [(at, axes.T @ g, sd) for at, g, sd in self.answers])

    def step(self, theta: Floats, gradient: Floats, sd: float, bend: Curvature | None = None) -> tuple[Floats, Floats]:
        """The step from θ, in the frame, to what all gradients and this one say, and the covariance of its error.

        `bend` is the curvature at θ where it was asked: what it has beyond that of the model holds around θ.
        """
        self.answers.append((theta, gradient, max(sd, QUIETEST)))
        start: Floats = np.linalg.solve(self.frame, theta).astype(np.float64)
        beyond = np.zeros_like(self.frame) if bend is None else bend.value - self.model.at(theta)
        believed = np.eye(len(start)) / self.believed**2

        def missed(end: Floats, told: Floats) -> Floats:
            return told - self.model.score(self.frame @ end) - beyond @ (end - start)

        def unlikely(end: Floats, told: Floats, noise: float) -> float:
            return float(np.sum(missed(end, told) ** 2) / noise**2 + end @ believed @ end)

        end = start
        for _ in range(ROUNDS):
            told, noise = self._told(self.frame @ end)
            slope = (self.model.at(self.frame @ end) + beyond) / noise
            precision, now = slope @ slope + believed, unlikely(end, told, noise)
            step = np.linalg.solve(precision, slope @ missed(end, told) / noise - believed @ end).astype(np.float64)
            for _ in range(HALVINGS):
                if unlikely(end + step, told, noise) <= now:
                    break
                step = step / 2
            end = end + step
        step = start - end
        return step, np.linalg.inv(precision) + STRETCH**2 * np.outer(step, step)

    def _told(self, theta: Floats) -> tuple[Floats, float]:
        """E p·u at the target by all answers, and its noise. Of what lies between them and θ, `UNLIKE` may be wrong."""
        here, total, weight = self.model.score(theta), np.zeros(len(theta)), 0.0
        for at, gradient, sd in self.answers:
            there = self.model.score(at)
            precision = 1 / (sd**2 + UNLIKE**2 * float(np.mean((there - here) ** 2)))
            total, weight = total + precision * (there - gradient), weight + precision
        return total / weight, weight**-0.5


@lru_cache(maxsize=8)
def _normal(p: int) -> Floats:
    from scipy.stats import qmc  # slow to import, and planning does without

    points = ndtri(qmc.Sobol(p, scramble=True, seed=0).random(POINTS))
    points -= points.mean(axis=0)
    whitened: Floats = points @ np.linalg.inv(np.linalg.cholesky(points.T @ points / POINTS)).T
    return whitened


def logistic_curvature(
    moment: Floats, moment_sd: Floats, frame: Floats, constant: bool, reference: Floats | None = None
) -> LogisticCurvature:
    """The curvature of a made-up design with E uuᵀ = `moment`: normal, or a `reference` (its u) moved to that moment.

    `constant` says whether the first term of x is the intercept. Directions that noise hides get a variance of about
    the noise, or a little, since steps along a direction without curvature would have no end.
    """
    values, axes = np.linalg.eigh(moment)
    least = np.minimum(HIDDEN * clear_of(axes, moment_sd), FAINT * float(np.median(values)))
    moment = (axes * np.maximum(values, least)) @ axes.T
    inverse: Floats = np.linalg.inv(frame).astype(np.float64)
    mean, mass, one = np.zeros(len(frame)), 1.0, inverse[:, 0]
    if constant:  # then the moment also holds the mean, and the share of records without missing cells
        mass, length = float(one @ moment @ one), float(one @ one)
        noise = length * float(direction_sd(one[:, None] / np.sqrt(length), moment_sd)[0])
        mass = 1.0 if mass > 1 - 3 * noise else max(mass, 0.05)
        mean = moment @ one / float(one @ moment @ one)
    spread = moment / mass - np.outer(mean, mean)
    if reference is None:
        values, vectors = np.linalg.eigh(spread)
        points = mean + _normal(len(frame)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    else:
        away = reference - constant * reference.mean(axis=0)
        points = mean + away @ _transport(away.T @ away / len(away), spread)
    if constant:  # noise in the moment would let it vary
        points += np.outer(1 - points @ one, one) / (one @ one)
    return LogisticCurvature(points, inverse, mass)


def _transport(start: Floats, end: Floats) -> Floats:
    """The symmetric T with T·start·T = end, for covariances: the optimal transport between normal distributions."""
    values, axes = np.linalg.eigh(start)
    seen = values > 1e-9 * values[-1]
    root = axes[:, seen] * np.sqrt(values[seen])
    squares, turn = np.linalg.eigh(root.T @ end @ root)
    back = axes[:, seen] / np.sqrt(values[seen]) @ turn
    return (back * np.sqrt(np.maximum(squares, 0.0))) @ back.T


def fit_logistic(asker: Asker, problem: Problem, design: Design) -> tuple[LocalGaussian, Cut]:
    """Ask all stages of a logistic regression. Returns the posterior, and how many records are weighted down."""
    p = problem.dim
    near = design_frame(asker, design, worst=False)
    frame, moment, moment_sd, solid = near.matrix, near.moment, near.moment_sd, near.solid
    model = logistic_curvature(moment, moment_sd, frame, design.has_intercept, near.reference)
    box = box_for(problem, near)
    theta, followed = np.zeros(p), Followed(model, frame, EFFECT * near.reach)
    for _ in range(asker.question("locate", "logistic_score").times):
        g, sd = asker.ask("locate", "logistic_score", theta, frame)
        step, error = followed.step(theta, g, sd)
        theta = box.clip(theta - frame @ limited(step, solid, FARTHEST))

    _, axes = np.linalg.eigh(model.at(theta))  # along which a weak curvature is told from its noise by the model
    near, error = near.turned(axes), axes.T @ error @ axes
    frame, moment, moment_sd = near.matrix, near.moment, near.moment_sd
    model = logistic_curvature(moment, moment_sd, frame, design.has_intercept, near.reference)
    followed = followed.turned(model, axes)

    def curvature(at: Floats, before: Curvature | None) -> Curvature:
        shape = model.at(at)
        told = noise_of_shape(shape, moment, moment_sd, 0.25)
        if not asker.asks("curvature"):
            return Curvature(shape, told, UNLIKE)
        answer, sd = asker.ask("curvature", "logistic_curvature", at, frame)
        raw, noise = unpack(answer, p) / 4, sd / 4
        if before is None:
            return scaled_to(raw, Curvature(shape, told, UNLIKE), noise, shrink=asker.shrink)
        return scaled_to(raw, before.plus(shape - model.at(theta)), noise, shrink=asker.shrink)

    def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
        return asker.ask(stage, "logistic_score", at, frame)

    def spread(at: Floats, bend: Curvature) -> tuple[Floats, Floats]:
        if asker.spread is None:
            return bend.value, bend.sd
        raw, sd = asker.score_moments(at, frame)
        return covariance_of(raw, bend.value, sd, shrink=asker.shrink)

    known = near.doubtful, near.unseen, near.clear
    prior = Prior(np.zeros(p), np.full(p, LOGITS * near.reach), problem.transform, *known)

    asked = curvature, gradient, spread
    common = SCORE**2 * near.left_out()
    given = box, asker.n, theta, error, frame, *asked, box.clip, prior
    found = refine(*given, model=model, common=common, follows=followed)
    return replace(found, slope=_slope(asker, found.center[0], frame, model.mass)), near.cut


def _slope(asker: Asker, theta: Floats, frame: Floats, mass: float) -> Floats:
    """Ask the stage "slope": E p(1 − p), the variance of its error, and its derivative in θ."""
    answer, sd = asker.ask("slope", "logistic_slope", theta, frame)
    unit = np.sqrt(2.0) / mass
    mean = float(np.clip(answer[0] * unit / 4, LEAST, 0.25))
    sampling = mean * (0.25 - mean) / (asker.n * mass)  # at most, as p(1 − p) is at most 1/4
    bend = np.linalg.solve(frame.T, answer[1:] * unit / (6 * np.sqrt(3.0)))
    return np.concatenate([[mean, (sd * unit / 4) ** 2 + sampling], bend])
