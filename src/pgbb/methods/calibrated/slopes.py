"""How spreads and densities of a response change with the covariates, and the curvature of quantiles that follows.

The curvature of level τ is E[f(x)uuᵀ] with f(x) the density of the response at its fitted quantile. Where spreads
differ with the covariates, f does. Asked as a matrix, that has R² times the noise of an answer; the vector E[f(x)u]
only R times. Its p numbers tell how a density f·exp(cᵀu) leans, in a design that is made up: columns as they were
located, with the second moments that were asked. Public arithmetic on answers.
"""

from dataclasses import dataclass, field

import numpy as np

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import pack
from pgbb.methods.calibrated.algebra import floored
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.curvature import kalman
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.logistic import logistic_curvature
from pgbb.methods.calibrated.start import PEAK
from pgbb.release.local_gaussian import FLOOR

__all__ = ["Shape", "Slopes", "overlap_of", "scale_line", "shapes_of"]

LEANS = 0.25  # logarithm by which a density changes over one standard deviation of a covariate, as is expected
DIFFERS = 0.5  # of that, by which two levels, or two answers, are unlike
MOST = 2.0  # logarithm of a density over its mean, at most
SPREADS = 0.3  # of itself, by which the size of residuals changes over one standard deviation of a covariate
CLEAR = 10.0  # times the noise of its answer that a density has, at least: it is asked over a distance where it has
CLOSE = 0.1  # beside those of a normal design, fourth moments are at least: an axis without points leans no more
TURNS = 8  # of Newton's method
ROUNDING = 1e-9  # of variances that are added up
_SIZES = np.concatenate([[0.0], np.geomspace(0.02, 2.0, 30)])


@dataclass(frozen=True)
class Shape:
    """E[f(x)uuᵀ] over the mean of f, and the noise of its packed coordinates."""

    value: Floats
    sd: Floats


def overlap_of(levels: Floats, width: Floats) -> float:
    """The largest norm of all levels' kernels at one point, were residuals uniform; longer rows are clipped."""
    grid = np.linspace(0, 1, 401)[:, None]
    return float(np.sqrt(np.max(np.sum(np.exp(-(((grid - levels) / width) ** 2)), axis=1))))


def scale_line(asker: Asker, near: Frame, theta: Floats, size: float) -> Floats:
    """Coefficients of a line that the size of residuals follows, over its mean: the stage "spreads".

    It is pulled to a constant as far as noise hides it. The first term of the design is the intercept.
    """
    answer, sd = asker.ask("spreads", "weighted_spread", theta, size, near.matrix)
    one = np.linalg.inv(near.matrix)[:, 0]
    level = max(float(one @ answer), 1e-3) * one
    usual = (SPREADS * near.reach * float(level @ one) / float(one @ one)) ** 2 * np.eye(len(one))
    step, _ = kalman(near.solid, answer - near.solid @ level, sd, usual)
    line: Floats = near.matrix @ (level + step) * float(one @ one) / float(level @ one)
    return line


@dataclass
class Slopes:
    """What has been answered of E[f(x)u] over the mean of f: rows of means, and their variances, newest first."""

    means: list[Floats] = field(default_factory=list)
    variances: list[Floats] = field(default_factory=list)
    shapes: list[Shape] | None = None

    def ask(
        self,
        asker: Asker,
        theta: Floats,
        levels: Floats,
        h: Floats,
        density: Floats,
        smooth: Floats,
        near: Frame,
        around: Floats,
    ) -> None:
        """Shapes of the curvatures at the fitted curves: the stage "slopes", if there is one.

        Over a distance at which densities stand clear of noise, and no longer than h, that of the curvature.
        """
        if not asker.asks("slopes"):
            return
        least = CLEAR * PEAK * near.reach * asker.noise("slopes")
        width = np.minimum(np.maximum(least, asker.n ** (-1 / 3)) / density, h)
        overlap = overlap_of(levels, width * density)
        answer, sd = asker.ask("slopes", "cell_slopes", theta, width, overlap, near.matrix, around)
        unit = PEAK / width * overlap
        found = answer.reshape(theta.shape) * unit[:, None]
        level = np.maximum(found @ np.linalg.inv(near.matrix)[:, 0], smooth / 3)  # the first term is the intercept
        sampling = near.reach**-2 / (2 * np.sqrt(np.pi) * level * width * asker.n)
        self.means.insert(0, found / level[:, None])
        self.variances.insert(0, (sd * unit / level) ** 2 + sampling)
        self.shapes = shapes_of(near, np.vstack(self.means), np.concatenate(self.variances))[: len(levels)]


def shapes_of(near: Frame, means: Floats, variances: Floats) -> list[Shape]:
    """The shape of each curvature, given those of all others.

    Args:
      near: the frame of a design with an intercept.
      means: E[f(x)u] over the mean of f, of each level or answer, (k, p).
      variances: of their coordinates, (k,): noise of answers and of sampling.
    """
    points = logistic_curvature(near.moment, near.moment_sd, near.matrix, True, near.reference).points * near.reach
    means, variances = means * near.reach, np.clip(variances * near.reach**2, 1e-8, 1e8)
    p = means.shape[1]
    # a rare group has far points: the logarithm of its density is believed to vary as much as elsewhere
    far, axes = np.linalg.eigh((points.T * np.sum(points**2, axis=1)) @ points / len(points) / (p + 2))
    usual = (axes / np.maximum(far, CLOSE)) @ axes.T
    size = _size(points, usual, means, variances)
    wide, unlike = size**2 * usual, (DIFFERS * size) ** 2
    found = []
    for j, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        center, doubt = np.zeros(p), wide
        others = np.delete(np.arange(len(means)), j)
        if len(others):
            trust = 1 / (variances[others] + unlike)
            center, doubt = _leaning(points, trust @ means[others] / trust.sum(), 1 / trust.sum(), center, wide)
            doubt = doubt + unlike * usual
        found.append(_shape(points, near, *_leaning(points, mean, variance, center, doubt)))
    return found


def _size(points: Floats, usual: Floats, means: Floats, variances: Floats) -> float:
    """By how much densities lean, as the means themselves tell (an exponential law with mean `LEANS` before)."""
    here = points.mean(axis=0)
    slope = (points - here).T @ points / len(points)
    values, axes = np.linalg.eigh(slope @ usual @ slope.T)
    square, values = ((means - here) @ axes) ** 2, np.maximum(values, 0.0)
    total = _SIZES[:, None, None] ** 2 * values + variances[:, None]
    fit = -0.5 * np.sum(np.log(total) + square / total, axis=(1, 2))
    fit += np.log(np.maximum(_SIZES, _SIZES[1])) - _SIZES / LEANS
    chance = np.exp(fit - fit.max())
    return float(np.sqrt(chance @ _SIZES**2 / chance.sum()))


def _weights(points: Floats, lean: Floats) -> tuple[Floats, Floats]:
    """Densities of the points, which add up to one, and how they change with cᵀu."""
    bounded = np.tanh(points @ lean / MOST)
    weight = np.exp(MOST * bounded)
    weight /= weight.sum()
    return weight, weight * (1 - bounded**2)


def _leaning(points: Floats, mean: Floats, variance: float, center: Floats, doubt: Floats) -> tuple[Floats, Floats]:
    """c and its covariance, given the mean of u that has this variance, and what is believed before."""
    lean, gain = center, np.zeros_like(doubt)
    for _ in range(TURNS):
        weight, change = _weights(points, lean)
        here = weight @ points
        slope = (points - here).T @ (points * change[:, None])
        seen = slope @ doubt @ slope.T
        gain = doubt @ slope.T @ np.linalg.inv(seen + (variance + ROUNDING * float(np.trace(seen))) * np.eye(len(mean)))
        step = center - lean + gain @ (mean - here - slope @ (center - lean))
        lean = lean + step / max(1.0, float(np.linalg.norm(step)))
    left = doubt - gain @ slope @ doubt
    return lean, (left + left.T) / 2


def _shape(points: Floats, near: Frame, lean: Floats, covariance: Floats) -> Shape:
    """E[f(x)uuᵀ] of a density that leans, and its noise where that of c has this covariance."""
    weight, change = _weights(points, lean)
    value, plain = (points.T * weight) @ points, points.T @ points / len(points)
    values, axes = np.linalg.eigh(covariance)
    variance = np.zeros_like(value)
    for axis in (axes * np.sqrt(np.maximum(values, 0.0))).T:
        moved = points @ axis * change
        variance += ((points.T * moved) @ points - moved.sum() * value) ** 2
    unit, least = near.reach**-2, max(float(np.linalg.eigvalsh(near.moment)[0]), 1e-12)
    leaning = floored(near.moment + unit * (value - plain), FLOOR * least)
    return Shape(leaning, np.hypot(near.moment_sd, unit * pack(np.sqrt(variance))))
