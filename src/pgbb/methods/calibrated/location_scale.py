"""How the spread of a response differs with its covariates, read from fitted levels; and the curvature that follows.

Where y = xᵀβ + (xᵀγ)ε, levels lie apart by a multiple of xᵀγ and densities are as its inverse: the curvature of every
level is about E uuᵀ/xᵀγ. A design with the second moments that were asked (no record) says what that mean is. Public
arithmetic on answers.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import pack
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.logistic import logistic_curvature
from pgbb.methods.calibrated.transcript import Read

__all__ = ["LocationScale", "Scale", "Shape", "scale_of"]

SIZES = np.array([0.01, 0.05, 0.1, 0.2, 0.4, 0.8])  # of what a standard deviation of a covariate adds to a spread
USUAL = 0.3  # what that usually is, beside the spread
ROUGH = 0.3  # how far the distance of two levels is from that in the law of residuals, relative
LEAST = 0.15  # of the mean spread, that any record has


@dataclass(frozen=True)
class Shape:
    """E f(x)uuᵀ/E f(x) for the densities f(x) of levels; the doubt of its packed coordinates; and by how much a kernel
    over a distance shows less of it, of each level."""

    value: Floats
    sd: Floats
    unseen: Floats | float = 0.0


@dataclass(frozen=True)
class Scale:
    """xᵀγ over its mean, in the frame: γ as far as noise lets it be seen, the covariance of what is left open, and the
    mean."""

    slope: Floats
    doubt: Floats
    mean: float


def scale_of(apart: Floats, noise: Floats, mean: float, moment: Floats, one: Floats) -> Scale:
    """The scale from the distance of two levels.

    Averaged over how much spreads may differ, by what the distance and its noise say of that.

    Args:
      apart: coefficients of the one level less those of the other, in the frame.
      noise: covariance of their error.
      mean: distance of the two over all records, roughly.
      moment: E uuᵀ.
      one: coefficients of a constant of 1.
    """
    values, axes = np.linalg.eigh(moment)
    root = axes * np.sqrt(np.maximum(values, 1e-12 * values[-1]))  # u = root z, where z is white
    toward, other = moment @ one, (ROUGH * mean) ** -2
    known = 1 / max(float(toward @ noise @ toward), 1e-300)
    mean = (known * max(float(toward @ apart), 0.0) + other * mean) / (known + other)
    seen, error = root.T @ (apart / mean - one), root.T @ noise @ root / mean**2
    fits, means, left = [], [], []
    for size in SIZES:
        law = size**2 * np.eye(len(one)) + error
        gain = size**2 * np.linalg.inv(law)
        fits.append(-0.5 * (np.linalg.slogdet(law)[1] + seen @ np.linalg.solve(law, seen)) - size / USUAL)
        means.append(gain @ seen)
        left.append(size**2 * (np.eye(len(one)) - gain) + np.outer(means[-1], means[-1]))
    chance = np.exp(np.array(fits) - max(fits))
    chance /= chance.sum()
    middle, back = chance @ np.stack(means), np.linalg.inv(root.T)
    rest = np.einsum("t,tij->ij", chance, np.stack(left)) - np.outer(middle, middle)
    return Scale(one + back @ middle, back @ rest @ back.T, mean)


@dataclass(frozen=True)
class LocationScale:
    """A design that is made up, and levels.

    Args:
      points: rows of the design in the frame.
      mass: share of the records that count, by which second moments are less than those of the points.
      one: coefficients of a constant of 1.
      near: the frame.
      levels: increasing.
      apart: distance of the outer levels in the law of all residuals.
      n: number of records.
    """

    points: Floats
    mass: float
    one: Floats
    near: Frame
    levels: Floats
    apart: float
    n: int

    @classmethod
    def like(cls, near: Frame, levels: Floats, apart: float, n: int) -> "LocationScale":
        """With the design that has the moments of the frame."""
        law = logistic_curvature(near.moment, near.moment_sd, near.matrix, True, near.reference)
        return cls(law.points, law.mass, law.inverse[:, 0], near, levels, apart, n)

    def shape(self, reads: list[Read], widths: Floats) -> Shape:
        """That of all levels, from where the outer two are found; `widths` are of the kernel of each level."""
        noise = np.zeros_like(self.near.moment)
        for read, level in ((reads[0], self.levels[0]), (reads[-1], self.levels[-1])):
            back = np.linalg.inv(read.bend.solid)
            noise += back @ (read.noise + level * (1 - level) / self.n * self.near.moment) @ back
        scale = scale_of(reads[-1].point - reads[0].point, noise, self.apart, self.near.moment, self.one)
        unit = scale.mean / float(ndtri(self.levels[-1]) - ndtri(self.levels[0]))
        values, axes = np.linalg.eigh(self.points.T @ self.points / len(self.points))
        root = axes * np.sqrt(np.maximum(values, 1e-12 * values[-1]))
        white = self.points @ np.linalg.inv(root).T

        def mean(density: Floats) -> Floats:
            """E f(x)uuᵀ/E f(x), along no direction more than E uuᵀ: where a line is wrong, densities are lower there
            than spreads say."""
            values, axes = np.linalg.eigh((white.T * (density / density.sum())) @ white)
            back = root @ (axes * np.sqrt(np.minimum(values, 1.0)))
            return np.asarray(self.mass * back @ back.T)

        each = [mean(1 / self._spread(slope)) for slope in _around(scale)]
        value, doubt = np.mean(each, axis=0), np.std([pack(one) for one in each], axis=0)
        spread = self._spread(scale.slope)
        smooth = [mean(d) for d in _smoothed(spread, self.levels, widths / unit)]
        return Shape(value, np.hypot(self.near.moment_sd, doubt), mean(1 / spread) - np.stack(smooth))

    def _spread(self, slope: Floats) -> Floats:
        return np.maximum(self.points @ slope, LEAST)


def _smoothed(spread: Floats, levels: Floats, widths: Floats) -> Floats:
    """What kernels of these widths, in usual standard deviations, show of the densities of normal errors; (m, rows)."""
    total = np.hypot(spread, widths[:, None])
    return np.asarray(np.exp(-0.5 * (ndtri(levels)[:, None] * spread / total) ** 2) / total)


def _around(scale: Scale) -> Floats:
    """What γ may be: points at √p standard deviations along its axes, whose mean and covariance are its own."""
    values, axes = np.linalg.eigh(scale.doubt)
    moves = (axes * np.sqrt(np.maximum(values, 0.0) * len(values))).T
    return scale.slope + np.concatenate([moves, -moves])
