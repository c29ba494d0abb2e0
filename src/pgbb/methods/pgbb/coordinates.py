"""Coordinates in which the loss bends about equally in every direction: where dither and curvature are described."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Floats

__all__ = ["Coordinates"]


@dataclass(frozen=True, eq=False)
class Coordinates:
    """θ = V y/r: an orthogonal frame V, in which noise that is equal in every direction stays so, and units r.

    Args:
      frame: V, (d, d).
      root: r, (d,): √ of the second moment of the design along each column of V, where there is one.
      alike: whether each coordinate of y is expected to bend like the others; those that are not (a scale) bend apart.
    """

    frame: Floats
    root: Floats
    alike: NDArray[np.bool_]

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

    @classmethod
    def of_design(cls, moment: Floats, sd: float, extra: int = 0) -> "Coordinates":
        """From noisy second moments of the design; parameters beside the coefficients stay as they are."""
        p = len(moment)
        values, vectors = np.linalg.eigh(moment)
        frame, root = np.eye(p + extra), np.ones(p + extra)
        frame[:p, :p] = vectors
        root[:p] = np.sqrt(np.maximum(values, max(3 * sd, 1e-4 * float(np.max(values)), 1e-12)))
        return cls(frame, root, np.arange(p + extra) < p)

    @classmethod
    def of_box(cls, radius: Floats) -> "Coordinates":
        """From the sides of the box, where nothing more is known."""
        return cls(np.eye(len(radius)), 1 / radius, np.zeros(len(radius), dtype=bool))
