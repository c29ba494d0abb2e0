"""Estimates how the spread of a response varies with its covariates, and the shape of the curvature that follows.

In a location-scale model y = xᵀβ + (xᵀγ)ε two levels differ by a multiple of xᵀγ, and densities are proportional to
1/xᵀγ. So the curvature of every level is proportional to E uuᵀ/xᵀγ. γ is read from the two outer levels. The mean is
taken over a made-up design with the second moments that were asked: no record is seen. Public arithmetic on answers.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import pack
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.logistic import logistic_curvature
from pgbb.methods.calibrated.transcript import Read

SIZES = np.array([0.01, 0.05, 0.1, 0.2, 0.4, 0.8])  # grid for the relative effect of a covariate on the spread
USUAL = 0.3  # prior mean of that effect, for one standard deviation of a covariate
ROUGH = 0.3  # prior relative difference of the distance of two levels from that by the residuals
LEAST = 0.15  # least spread of a record, over the mean spread


@dataclass(frozen=True)
class Shape:
    """The shape of the curvature of all levels.

    Args:
      value: E f(x)uuᵀ/E f(x), for the density f(x) of a level at its quantile.
      sd: standard deviation of the error of its packed coordinates.
      unseen: for each level, what a kernel of its bandwidth shows less of it.
    """

    value: Floats
    sd: Floats
    unseen: Floats | float = 0.0


@dataclass(frozen=True)
class Scale:
    """The spread xᵀγ over its mean, in the frame.

    Args:
      slope: expected γ over the mean spread.
      doubt: its covariance.
      mean: the mean distance of the two levels.
    """

    slope: Floats
    doubt: Floats
    mean: float


def scale_of(apart: Floats, noise: Floats, mean: float, moment: Floats, one: Floats) -> Scale:
    """The scale from the difference of two levels: hierarchical Bayes, averaged over the size of effects on the spread.

    Args:
      apart: coefficients of one level less those of the other, in the frame.
      noise: covariance of their error.
      mean: rough mean distance of the two levels.
      moment: E uuᵀ.
      one: coefficients of the constant 1.
    """
    root = _root(moment)
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
    """A location-scale model of all levels, for a made-up design.

    Args:
      points: rows of the made-up design, in the frame.
      mass: share of the records that count: second moments are so many times those of the points.
      one: coefficients of the constant 1.
      near: the frame of the design.
      levels: τ, increasing.
      apart: distance of the outer levels in the distribution of residuals.
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
        """The model with a made-up design that has the second moments of the frame."""
        law = logistic_curvature(near.moment, near.moment_sd, near.matrix, True, near.reference)
        return cls(law.points, law.mass, law.inverse[:, 0], near, levels, apart, n)

    def shape(self, reads: list[Read], widths: Floats) -> Shape:
        """The shape by the estimates of the two outer levels; `widths` are the bandwidths of the curvatures."""
        noise = np.zeros_like(self.near.moment)
        for read, level in ((reads[0], self.levels[0]), (reads[-1], self.levels[-1])):
            back = np.linalg.inv(read.bend.solid)
            noise += back @ (read.noise + level * (1 - level) / self.n * self.near.moment) @ back
        scale = scale_of(reads[-1].point - reads[0].point, noise, self.apart, self.near.moment, self.one)
        unit = scale.mean / float(ndtri(self.levels[-1]) - ndtri(self.levels[0]))
        root = _root(self.points.T @ self.points / len(self.points))
        white = self.points @ np.linalg.inv(root).T

        def mean(density: Floats) -> Floats:
            """E f(x)uuᵀ/E f(x), along no direction more than E uuᵀ: where a line is wrong, densities are lower there
            than spreads say."""
            values, axes = np.linalg.eigh((white.T * (density / density.sum())) @ white)
            back = root @ (axes * np.sqrt(np.clip(values, 0.0, 1.0)))
            return np.asarray(self.mass * back @ back.T)

        each = [mean(1 / self._spread(slope)) for slope in _around(scale)]
        value, doubt = np.mean(each, axis=0), np.std([pack(one) for one in each], axis=0)
        spread = self._spread(scale.slope)
        smooth = [mean(d) for d in _smoothed(spread, self.levels, widths / unit)]
        return Shape(value, np.hypot(self.near.moment_sd, doubt), mean(1 / spread) - np.stack(smooth))

    def _spread(self, slope: Floats) -> Floats:
        return np.maximum(self.points @ slope, LEAST)


def _root(moment: Floats) -> Floats:
    """The matrix with u = root z for covariates u with these second moments, where z is white."""
    values, axes = np.linalg.eigh(moment)
    return np.asarray(axes * np.sqrt(np.maximum(values, 1e-12 * values[-1])))


def _smoothed(spread: Floats, levels: Floats, widths: Floats) -> Floats:
    """What kernels of these widths, in usual standard deviations, show of the densities of normal errors; (m, rows)."""
    total = np.hypot(spread, widths[:, None])
    return np.asarray(np.exp(-0.5 * (ndtri(levels)[:, None] * spread / total) ** 2) / total)


def _around(scale: Scale) -> Floats:
    """2p values of γ with its mean and covariance: √p standard deviations either way along the axes of its doubt."""
    values, axes = np.linalg.eigh(scale.doubt)
    moves = (axes * np.sqrt(np.maximum(values, 0.0) * len(values))).T
    return scale.slope + np.concatenate([moves, -moves])
