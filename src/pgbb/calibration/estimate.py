"""What the answers add up to: θ* = c − F H*⁻¹(a + noise), and how two rounds of gradients become one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb.calibration.algebra import clear_of, floored, shrink
from pgbb.local import direction_sd

Floats = NDArray[np.float64]

__all__ = ["Curvature", "Estimate", "combine", "curvature_of", "raised", "unidentified"]

FLOOR = 0.25
"""Curvature is never taken below this share of its target's smallest eigenvalue."""


@dataclass(frozen=True)
class Estimate:
    """What a release of the calibrated method holds; see `pgbb.local`. Gradients and curvatures are in the
    frame F: Fᵀ∇ and FᵀHF."""

    center: Floats  # (m, d)
    gradient: Floats  # (m, d)
    frame: Floats  # (d, d)
    curvature: Floats  # (m, d, d)
    curvature_sd: Floats  # (m, d(d+1)/2)
    privacy: Floats  # (m, k)
    sampling: Floats  # (d, d)
    sampling_sd: Floats  # (d(d+1)/2,)
    free: Floats  # (m, d, d)
    knots: Floats | None = None


@dataclass(frozen=True)
class Curvature:
    """A curvature matrix in the frame, the noise left in its packed coordinates, and what it does not identify."""

    value: Floats
    sd: Floats
    free: Floats

    @property
    def inverse(self) -> Floats:
        """H⁻¹."""
        inverse: Floats = np.linalg.inv(self.value).astype(np.float64)
        return inverse

    def step(self, gradient: Floats) -> Floats:
        """H⁻¹ gradient, in the frame, with nothing along unidentified directions."""
        moved: Floats = np.linalg.solve(self.value, gradient).astype(np.float64)
        return moved - self.free @ moved


def unidentified(value: Floats, sd: Floats) -> Floats:
    """Projector onto the directions whose curvature does not stand clear of its noise."""
    values, vectors = np.linalg.eigh(value)
    lost = vectors[:, values < clear_of(len(value)) * direction_sd(vectors, sd)]
    projector: Floats = lost @ lost.T
    return projector


def raised(value: Floats, sd: Floats, share: float = 1.0) -> Floats:
    """The matrix with eigenvalues raised to where they stand clear of their noise, or to a share of that."""
    values, vectors = np.linalg.eigh(value)
    floor = np.maximum(share * clear_of(len(value)) * direction_sd(vectors, sd), 1e-9 * max(float(values[-1]), 1e-12))
    result: Floats = (vectors * np.maximum(values, floor)) @ vectors.T
    return result


def curvature_of(raw: Floats, target: Floats, sd: float, target_sd: Floats | float = 0.0) -> Curvature:
    """Shrink a noisy curvature to its target, keep it positive, and mark what it does not identify."""
    value, left = shrink(raw, target, sd, target_sd)
    smallest = max(float(np.linalg.eigvalsh(target)[0]), 1e-12)
    return Curvature(floored(value, FLOOR * smallest), left, unidentified(value, left))


def combine(first: Floats, second: Floats, sd_first: float, sd_second: float) -> tuple[Floats, float]:
    """Two independent estimates weighted by precision, and the standard deviation of the result's noise."""
    if sd_first == 0 or sd_second == 0:
        return second, 0.0
    weight = sd_second**-2 / (sd_first**-2 + sd_second**-2)
    return weight * second + (1 - weight) * first, float(np.hypot(weight * sd_second, (1 - weight) * sd_first))
