"""How the curvature of a logistic loss changes with θ, from the moments of the design alone.

p(1 − p) is a known function of xᵀθ, so a design that is taken as normal, with the second moments that were asked,
tells the curvature everywhere: a target to shrink to that knows its weak directions, and a way to follow the
curvature along a step. What the true design has beyond its moments is left to the answers. Public arithmetic.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri
from scipy.stats import qmc

from pgbb.methods.calibrated.estimate import Curvature
from pgbb.release.local_gaussian import direction_sd

Floats = NDArray[np.float64]

__all__ = ["Relief", "crooked", "relief_of"]

POINTS = 2**11
_PATH = (np.array([0.1127016654, 0.5, 0.8872983346]), np.array([5.0, 8.0, 5.0]) / 18)  # Gauss's three points


@dataclass(frozen=True)
class Relief:
    """Points of the design in the frame, (k, p); F⁻¹; and the share of records (or of weight) that counts."""

    points: Floats
    inverse: Floats
    mass: float

    def at(self, theta: Floats) -> Floats:
        """E p(1 − p)uuᵀ."""
        p = expit(self.points @ (self.inverse @ theta))
        return (self.points.T * (p * (1 - p))) @ self.points * (self.mass / len(self.points))

    def change(self, start: Floats, end: Floats) -> Floats:
        """The curvature met on the way, on average, less that at the start."""
        met = sum(w * self.at(start + s * (end - start)) for s, w in zip(*_PATH, strict=True))
        return np.asarray(met - self.at(start))


@lru_cache(maxsize=8)
def _normal(p: int) -> Floats:
    points = ndtri(qmc.Sobol(p, scramble=True, seed=0).random(POINTS))
    points -= points.mean(axis=0)
    whitened: Floats = points @ np.linalg.inv(np.linalg.cholesky(points.T @ points / POINTS)).T
    return whitened


def relief_of(moment: Floats, moment_sd: Floats, frame: Floats, constant: bool) -> Relief:
    """A normal design with E uuᵀ = `moment`, and the first term of x constant if it is."""
    inverse: Floats = np.linalg.inv(frame).astype(np.float64)
    mean, mass, one = np.zeros(len(frame)), 1.0, inverse[:, 0]
    if constant:  # then the moment also holds the mean, and the share of records without missing cells
        mass, length = float(one @ moment @ one), float(one @ one)
        noise = length * float(direction_sd(one[:, None] / np.sqrt(length), moment_sd)[0])
        mass = 1.0 if mass > 1 - 3 * noise else max(mass, 0.05)
        mean = moment @ one / float(one @ moment @ one)
    values, vectors = np.linalg.eigh(moment / mass - np.outer(mean, mean))
    points = mean + _normal(len(frame)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    if constant:  # noise in the moment would let it vary
        points += np.outer(1 - points @ one, one) / (one @ one)
    return Relief(points, inverse, mass)


def crooked(relief: Relief, best: Floats, frame: Floats, bend: Curvature, sampling: Floats, sd: float) -> bool:
    """Whether curvature doubles or halves within two standard deviations of the posterior: it is not local then."""
    noise = bend.inverse @ (sampling + sd**2 * np.eye(len(best))) @ bend.inverse
    values, vectors = np.linalg.eigh((noise + noise.T) / 2)
    here = relief.at(best)
    for value, vector in zip(values, vectors.T, strict=True):
        for side in (-2.0, 2.0):
            there = relief.at(best + side * np.sqrt(max(value, 0.0)) * (frame @ vector))
            if not 0.5 < float(vector @ there @ vector) / float(vector @ here @ vector) < 2.0:
                return True
    return False
