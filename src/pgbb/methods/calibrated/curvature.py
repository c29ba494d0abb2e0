"""Noisy curvatures and covariances made usable: shrunk, positive, with the noise that is left and what it hides.

Public arithmetic on answers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import pack, triangle
from pgbb.methods.calibrated.algebra import Shrink, clear_of, floored
from pgbb.release.local_gaussian import FLOOR

Floats = NDArray[np.float64]

__all__ = [
    "Curvature",
    "asked_again",
    "bordered",
    "covariance_of",
    "curvature_of",
    "noise_of_multiple",
    "raised",
    "unidentified",
]

SHOWN = 3.0  # standard deviations of its noise that an answer must show of a curvature that is not its own alone


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

    def plus(self, change: Floats) -> "Curvature":
        """The curvature elsewhere, where it is expected to differ by `change`; kept positive."""
        least = FLOOR * max(float(np.linalg.eigvalsh(self.value)[0]), 1e-12)
        return Curvature(floored(self.value + change, least), self.sd, self.free)

    def step(self, gradient: Floats) -> Floats:
        """H⁻¹ gradient, in the frame, with nothing along unidentified directions."""
        moved: Floats = np.linalg.solve(self.value, gradient).astype(np.float64)
        return moved - self.free @ moved


def unidentified(value: Floats, sd: Floats, answer: tuple[Floats, float] | None = None) -> Floats:
    """Projector onto the directions whose curvature does not stand clear of its noise.

    Nor may it be borrowed alone: where an `answer` (a matrix and the noise of its packed coordinates) was pulled
    to a target, it must show the curvature itself. Records out of reach have none, whatever their covariates are.
    """
    values, vectors = np.linalg.eigh(value)
    hidden = values < clear_of(vectors, sd)
    if answer is not None:
        hidden |= np.sum(vectors * (answer[0] @ vectors), axis=0) < SHOWN * answer[1]
    lost = vectors[:, hidden]
    projector: Floats = lost @ lost.T
    return projector


def raised(value: Floats, sd: Floats, share: float = 1.0) -> Floats:
    """The matrix with eigenvalues raised to where they stand clear of their noise, or to a share of that."""
    values, vectors = np.linalg.eigh(value)
    floor = np.maximum(share * clear_of(vectors, sd), 1e-9 * max(float(values[-1]), 1e-12))
    result: Floats = (vectors * np.maximum(values, floor)) @ vectors.T
    return result


def curvature_of(
    raw: Floats,
    target: Floats,
    sd: float,
    target_sd: Floats | float = 0.0,
    answer: tuple[Floats, float] | None = None,
    *,
    shrink: Shrink,
) -> Curvature:
    """Shrink a noisy curvature to its target, keep it positive, and mark what it, or `answer`, does not show."""
    value, left = shrink(raw, target, sd, target_sd)
    smallest = max(float(np.linalg.eigvalsh(target)[0]), 1e-12 * float(np.trace(target)), 1e-300)
    return Curvature(floored(value, FLOOR * smallest), left, unidentified(value, left, answer or (raw, sd)))


def noise_of_multiple(target: Floats, shape: Floats, sd: Floats) -> Floats:
    """Noise of the packed coordinates of a target whose first block is a multiple of a noisy shape."""
    p = len(shape)
    i, j, _ = triangle(len(target))
    noise = np.zeros(len(i))
    noise[(i < p) & (j < p)] = float(target[0, 0] / shape[0, 0]) * sd
    return noise


def asked_again(raw: Floats, before: Curvature, noise: float, *, shrink: Shrink) -> Curvature:
    """Curvature asked a second time, nearer the estimate, shrunk to a multiple of what it was before."""
    unit = pack(before.value)
    factor = float(np.clip(pack(raw) @ unit / float(unit @ unit), 0.1, 10.0))
    return curvature_of(raw, factor * before.value, noise, factor * before.sd, shrink=shrink)


def bordered(
    raw: Floats, shape: Floats, noise: float, least: float, mean: Floats | None = None, tiny: float = 1e-6
) -> Floats:
    """Target of a matrix for (β, extra): a multiple of `shape` for β, and the extra parameters apart.

    Where the mean of the design is given, they are tied to β by a multiple of it: errors that are independent
    of the design but skewed tie a scale to the intercept alone. Nothing below `tiny` counts as curvature.
    """
    p = len(shape)
    target = np.zeros_like(raw)
    unit = pack(shape)
    target[:p, :p] = max(float(pack(raw[:p, :p]) @ unit) / float(unit @ unit), least, tiny) * shape
    for j in range(p, len(raw)):
        target[j, j] = max(float(raw[j, j]), 3 * noise, tiny)
        if mean is not None:
            tie = float(raw[:p, j] @ mean / (mean @ mean)) * mean
            most = 0.9 * np.sqrt(target[j, j] / max(float(tie @ np.linalg.solve(target[:p, :p], tie)), 1e-300))
            target[:p, j] = target[j, :p] = min(most, 1.0) * tie
    return target


def covariance_of(
    raw: Floats, shape: Floats, sd: float, mean: Floats | None = None, *, shrink: Shrink
) -> tuple[Floats, Floats]:
    """A covariance shrunk to a multiple of `shape` (and what lies beside it) and kept positive; and the noise left."""
    target = bordered(raw, shape, 0.0, 0.0, mean)
    value, left = shrink(raw, target, sd)
    return floored(value, FLOOR * max(float(np.linalg.eigvalsh(target)[0]), 0.0)), left
