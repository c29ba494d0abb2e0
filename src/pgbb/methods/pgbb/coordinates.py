"""Coordinates in which the loss bends about equally in every direction: where dither and curvature are described."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import triangle

FAINTEST = 0.25  # of what is expected, that it may vary at least
FEWER = 2.0  # standard deviations by which the second moment along a direction may be less than it seems


@dataclass(frozen=True, eq=False)
class Coordinates:
    """θ = V y/r: an orthogonal frame V, in which noise that is equal in every direction stays so, and units r.

    Args:
      frame: V, (d, d).
      root: r, (d,): √ of the second moment of the design along each column of V, where there is one.
      alike: whether each coordinate of y is expected to bend like the others; those that are not (a scale) bend apart.
      moment_sd: noise of the packed second moments of the design along y, which are about the identity.
    """

    frame: Floats
    root: Floats
    alike: NDArray[np.bool_]
    moment_sd: Floats

    @property
    def step(self) -> Floats:
        """The matrix from y to θ."""
        return self.frame / self.root

    def whitened(self, points: Floats) -> Floats:
        """y of points θ, (N, d)."""
        return points @ self.frame * self.root

    def internal(self, y: Floats) -> Floats:
        """θ of y."""
        theta: Floats = self.step @ y
        return theta

    def slopes(self, gradients: Floats) -> Floats:
        """Gradients by y, from gradients by θ, (N, d)."""
        return gradients @ self.frame / self.root

    def target(self, curvature: Floats) -> Floats:
        """The matrix of this kind nearest to a curvature by y: one number where coordinates are alike, else its own."""
        own = np.diag(curvature).copy()
        own[self.alike] = np.mean(own[self.alike]) if self.alike.any() else 0.0
        least = 1e-3 * max(float(np.max(np.abs(own))), 1e-12)
        return np.diag(np.maximum(own, least))

    @property
    def least(self) -> Floats:
        """The least that the design may vary along each coordinate, of what is expected, (d,)."""
        i, j, _ = triangle(len(self.root))
        return np.maximum(1 - FEWER * self.moment_sd[i == j], FAINTEST)

    def reach(self, sides: Floats) -> Floats:
        """How far θ may go where |y| stays within `sides`, (d,)."""
        far: Floats = np.sqrt(np.sum((self.step * sides) ** 2 / self.least, axis=1))
        return far

    @classmethod
    def of_design(cls, moment: Floats, sd: float, extra: int = 0) -> "Coordinates":
        """From noisy second moments of the design; parameters beside the coefficients stay as they are."""
        p = len(moment)
        values, vectors = np.linalg.eigh(moment)
        frame, root, alike = np.eye(p + extra), np.ones(p + extra), np.arange(p + extra) < p
        frame[:p, :p] = vectors
        root[:p] = np.sqrt(np.maximum(_positive(values, sd), max(1e-4 * float(np.max(values)), 1e-12)))
        i, j, _ = triangle(p + extra)
        return cls(frame, root, alike, np.where(alike[i] & alike[j], sd / (root[i] * root[j]), 0.0))

    @classmethod
    def of_box(cls, radius: Floats) -> "Coordinates":
        """From the sides of the box, where nothing more is known."""
        d = len(radius)
        return cls(np.eye(d), 1 / radius, np.zeros(d, dtype=bool), np.zeros(d * (d + 1) // 2))


def _positive(values: Floats, sd: float) -> Floats:
    """The mean of a positive number of which nothing is known but a noisy answer."""
    if sd <= 0:
        return np.maximum(values, 0.0)
    z = np.maximum(values / sd, -5.0)
    mean: Floats = sd * (z + np.exp(-0.5 * z**2 - log_ndtr(z)) / np.sqrt(2 * np.pi))
    return mean
