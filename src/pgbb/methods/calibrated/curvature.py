"""Noisy curvatures and covariances made usable: shrunk, positive, with the noise that is left.

Public arithmetic on answers.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import pack, triangle, unpack
from pgbb.methods.calibrated.algebra import USUAL, Shrink, clear_of, floored
from pgbb.release.local_gaussian import FLOOR

Floats = NDArray[np.float64]

__all__ = [
    "Curvature",
    "asked_again",
    "bordered",
    "covariance_of",
    "curvature_of",
    "filtered",
    "kalman",
    "noise_of_multiple",
    "raised",
]

BENDS = 0.25  # of itself, by which a curvature differs over a step
NONE = 1e-25  # mean square of scores that are all zero
STEP = 0.5  # of what stands clear of noise: curvature along which a step is taken is at least that


@dataclass(frozen=True)
class Curvature:
    """A curvature matrix in the frame, the noise left in its packed coordinates, and that of a factor of all of it."""

    value: Floats
    sd: Floats
    factor_sd: float = 0.0

    @property
    def solid(self) -> Floats:
        """H with eigenvalues raised to where they show: for steps, not for intervals."""
        return raised(self.value, self.sd, STEP)

    def plus(self, change: Floats) -> "Curvature":
        """The curvature elsewhere, where it is expected to differ by `change`; kept positive."""
        least = FLOOR * max(float(np.linalg.eigvalsh(self.value)[0]), 1e-12)
        return replace(self, value=floored(self.value + change, least))

    @property
    def variances(self) -> Floats:
        """Of the entries of H."""
        return unpack(self.sd, len(self.value)) ** 2

    def blur(self, error: Floats, step: Floats) -> Floats:
        """Covariance of what noise in H makes of the gradient over a step.

        A Newton step divides by H as it was found, so its own noise is known; only the distance that the step has
        to go, of covariance `error` around `step`, is seen through the noise of H.
        """
        square, entry = error + np.outer(step, step), self.variances
        mixed = entry * square
        mixed[np.diag_indices(len(step))] = entry @ np.diag(square)
        return mixed + self.factor_sd**2 * self.value @ square @ self.value

    def sampled(self, top: float, n: int) -> "Curvature":
        """The same with the sampling error of its entries: a mean of at most `top`·uuᵀ over n records, ‖u‖ ≤ 1."""
        i, j, _ = triangle(len(self.value))
        diagonal = np.maximum(np.diag(self.value), 0.0)
        own = top * np.minimum(diagonal[i], diagonal[j]) / n
        return replace(self, sd=np.sqrt(self.sd**2 + np.where(i == j, 1.0, 2.0) * own))

    def corrected(self, step: Floats, change: Floats, noise: float, bound: float, n: int) -> "Curvature":
        """The curvature after gradients have been seen to change by `change` over `step`, up to their `noise`.

        Powell's symmetric update, as far as the change stands out of its noise and of that of H: over a step the
        curvature of a loss may differ by a part of itself.

        Args:
          step, change: in the frame.
          noise: standard deviation of the noise of the change, on each coordinate.
          bound: the largest score. A score that jumps changes in few of the `n` records, so the change has a
            sampling error of its own.
          n: number of records.
        """
        square = float(step @ step)
        if square < 1e-24:
            return self
        miss = change - self.value @ step
        size = BENDS**2 * float(np.sum((self.value @ step) ** 2))  # along an axis that is hardly there, hardly any
        jumps = bound * float(np.linalg.norm(change)) * math.sqrt(len(step)) / n
        trust = size / (size + len(step) * noise**2 + jumps)
        cross = np.outer(miss, step) / square
        update = cross + cross.T - float(miss @ step) * np.outer(step, step) / square**2
        least = FLOOR * max(float(np.linalg.eigvalsh(self.value)[0]), 1e-300)
        return replace(self, value=floored(self.value + trust * update, least))

    def step(self, gradient: Floats) -> Floats:
        """H⁻¹ gradient, in the frame; eigenvalues below their noise count as that."""
        step: Floats = np.linalg.solve(self.solid, gradient).astype(np.float64)
        return step


def filtered(metric: Floats, gradient: Floats, sd: float, error: Floats) -> tuple[Floats, Floats]:
    """The step expected from a gradient H·step + noise, and the covariance of what it leaves (Kalman's filter).

    A step with a curvature that is not quite right leaves a part of itself too.

    Args:
      metric: H.
      gradient: as answered.
      sd: of the noise on each of its coordinates.
      error: covariance of the step before.
    """
    step, left = kalman(metric, gradient, sd, error)
    return step, left + BENDS**2 * np.outer(step, step)


def kalman(metric: Floats, gradient: Floats, sd: float, error: Floats) -> tuple[Floats, Floats]:
    """The same where the curvature is right."""
    known = metric @ error @ metric
    least = max(sd**2, 1e-24, 1e-14 * float(np.trace(known)))  # without noise it is singular up to rounding
    gain = error @ metric @ np.linalg.inv(known + least * np.eye(len(metric)))
    left = error - gain @ metric @ error
    return gain @ gradient, (left + left.T) / 2


def raised(value: Floats, sd: Floats, share: float = 1.0) -> Floats:
    """The matrix with eigenvalues raised to where they stand clear of their noise, or to a share of that."""
    values, vectors = np.linalg.eigh(value)
    floor = np.maximum(share * clear_of(vectors, sd), 1e-9 * max(float(values[-1]), 1e-12))
    result: Floats = (vectors * np.maximum(values, floor)) @ vectors.T
    return result


def curvature_of(
    raw: Floats, target: Floats, sd: float, target_sd: Floats | float = 0.0, *, shrink: Shrink, usual: float = USUAL
) -> Curvature:
    """Shrink a noisy curvature to its target, and keep it positive."""
    value, left = shrink(raw, target, sd, target_sd, usual=usual)
    smallest = max(float(np.linalg.eigvalsh(target)[0]), 1e-12 * float(np.trace(target)), 1e-300)
    factor = sd / max(float(np.linalg.norm(target)), 1e-300)  # a target is a multiple that was read from the answer
    return Curvature(floored(value, FLOOR * smallest), left, factor)


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
    size = max(abs(float(np.trace(raw))) / max(float(np.trace(shape)), 1e-300), sd)  # in any unit
    tiny = 1e-6 * (size if size > NONE else 1.0)
    target = bordered(raw, shape, 0.0, 0.0, mean, tiny)
    value, left = shrink(raw, target, sd)
    return floored(value, FLOOR * max(float(np.linalg.eigvalsh(target)[0]), 0.0)), left
