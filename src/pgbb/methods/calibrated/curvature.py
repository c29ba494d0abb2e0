"""Curvatures and covariances from noisy answers: shrunk to a target, made positive, with the noise that remains.

Public arithmetic on answers.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import pack, triangle, unpack
from pgbb.methods.calibrated.algebra import USUAL, Shrink, clear_of, floored
from pgbb.release.local_gaussian import FLOOR

BENDS = 0.25  # relative change of a curvature over a step that is expected
WHITE = 0.12  # prior relative difference of a curvature that is not asked from a multiple of E xxᵀ, on each entry
FEW = 8  # `WHITE` holds up to so many terms; for more the sum of squares over all entries stays as for these
NONE = 1e-25  # mean square of scores below which all count as zero
APART = 0.4  # doubt of a curvature, as a share of how far its entries lie from a multiple of E uuᵀ
THERE = 0.2  # a direction is there if its second moment is at least this share of the usual one
STEP = 0.5  # for a step, an eigenvalue of the curvature is raised to this share of what stands clear of its noise


@dataclass(frozen=True)
class Curvature:
    """A curvature matrix H in the frame, and how well it is known.

    Args:
      value: H, (d, d).
      sd: noise left in its packed coordinates.
      factor_sd: relative standard deviation of a factor common to all entries.
    """

    value: Floats
    sd: Floats
    factor_sd: float = 0.0

    @property
    def solid(self) -> Floats:
        """H with small eigenvalues raised toward what stands clear of noise: for steps, not for intervals."""
        return raised(self.value, self.sd, STEP)

    def plus(self, change: Floats) -> "Curvature":
        """The curvature at another point, where it is expected to differ by `change`; kept positive."""
        least = FLOOR * max(float(np.linalg.eigvalsh(self.value)[0]), 1e-12)
        return replace(self, value=floored(self.value + change, least))

    @property
    def variances(self) -> Floats:
        """Variances of the entries of H, (d, d)."""
        return unpack(self.sd, len(self.value)) ** 2

    def blur(self, error: Floats, step: Floats) -> Floats:
        """Covariance of (Ĥ − H)q, for a step q with mean `step` and covariance `error`.

        This is what noise in H adds to a gradient: a Newton step divides by Ĥ, so only the distance that it has to go
        is seen through the noise of Ĥ.
        """
        square, entry = error + np.outer(step, step), self.variances
        mixed = entry * square
        mixed[np.diag_indices(len(step))] = entry @ np.diag(square)
        return mixed + self.factor_sd**2 * self.value @ square @ self.value

    def corrected(self, step: Floats, change: Floats, noise: float, bound: float, n: int) -> "Curvature":
        """The curvature corrected by Powell's symmetric update, for a gradient that changed by `change` over `step`.

        The update is applied as far as the change stands out of noise. Over a step the curvature is expected to differ
        by `BENDS` of itself.

        Args:
          step, change: in the frame.
          noise: standard deviation of the noise of the change, on each coordinate.
          bound: the largest score. A score that jumps changes in few of the n records, so that the change has a
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

    def apart(self, moment: Floats) -> "Curvature":
        """This curvature with more doubt: `APART` of how far its entries lie from a multiple of E uuᵀ.

        Directions in which E uuᵀ is hardly there do not count: no curvature there says how the others bend.
        """
        values, axes = np.linalg.eigh(moment)
        seen = axes[:, values > THERE * np.median(values)]
        own, shape = seen.T @ self.value @ seen, seen.T @ moment @ seen
        multiple = float(np.trace(np.linalg.solve(shape, own))) / len(shape)
        away = float(np.sqrt(np.mean(((pack(own) - multiple * pack(shape)) / _unit(shape)) ** 2)))
        return replace(self, sd=np.hypot(self.sd, APART * away * _unit(moment)))

    def step(self, gradient: Floats) -> Floats:
        """The Newton step H⁻¹ gradient, in the frame, with the raised eigenvalues of `solid`."""
        step: Floats = np.linalg.solve(self.solid, gradient).astype(np.float64)
        return step


def filtered(metric: Floats, gradient: Floats, sd: float, error: Floats) -> tuple[Floats, Floats]:
    """Kalman's update for a gradient that measures H·step + noise, with a curvature that is right up to `BENDS`.

    Args:
      metric: H.
      gradient: as answered.
      sd: standard deviation of its noise, on each coordinate.
      error: prior covariance of the step.

    Returns:
      The expected step, and the covariance of its error, which has a part in proportion to the step.
    """
    step, left = kalman(metric, gradient, sd, error)
    return step, left + BENDS**2 * np.outer(step, step)


def kalman(metric: Floats, gradient: Floats, sd: float, error: Floats) -> tuple[Floats, Floats]:
    """Kalman's update where the curvature is exact; arguments as for `filtered`."""
    known = metric @ error @ metric
    least = max(sd**2, 1e-24, 1e-14 * float(np.trace(known)))  # without noise it is singular up to rounding
    gain = error @ metric @ np.linalg.inv(known + least * np.eye(len(metric)))
    left = error - gain @ metric @ error
    return gain @ gradient, (left + left.T) / 2


def raised(value: Floats, sd: Floats, share: float = 1.0) -> Floats:
    """The matrix with eigenvalues raised to the given share of what stands clear of their noise."""
    values, vectors = np.linalg.eigh(value)
    floor = np.maximum(share * clear_of(vectors, sd), 1e-9 * max(float(values[-1]), 1e-12))
    result: Floats = (vectors * np.maximum(values, floor)) @ vectors.T
    return result


def curvature_of(
    raw: Floats,
    target: Floats,
    sd: Floats | float,
    target_sd: Floats | float = 0.0,
    *,
    shrink: Shrink,
    usual: float = USUAL,
    block: int | None = None,
) -> Curvature:
    """A noisy curvature, shrunk to its target and kept positive; `block` is as in `in_parts`."""
    value, left = in_parts(raw, target, sd, target_sd, shrink=shrink, usual=usual, block=block)
    smallest = max(float(np.linalg.eigvalsh(target)[0]), 1e-12 * float(np.trace(target)), 1e-300)
    noise = float(np.sqrt(np.mean(np.square(sd))))
    factor = noise / max(float(np.linalg.norm(target)), 1e-300)  # the size of the target was read from the same answer
    return Curvature(floored(value, FLOOR * smallest), left, factor)


def in_parts(
    raw: Floats,
    target: Floats,
    sd: Floats | float,
    target_sd: Floats | float = 0.0,
    *,
    shrink: Shrink,
    usual: float = USUAL,
    block: int | None = None,
) -> tuple[Floats, Floats]:
    """`shrink` of the first `block` parameters, and of the entries of all others, each with a deviation of its own.

    The entries of a scale are seen well. Where errors depend on the design they lie far from their target, which says
    nothing of the entries of the coefficients.
    """
    if block is None or block == len(raw):
        return shrink(raw, target, sd, target_sd, usual=usual)
    i, j, _ = triangle(len(raw))
    first = (i < block) & (j < block)
    own, border = (shrink(raw, target, sd, target_sd, pulled=part, usual=usual) for part in (first, ~first))
    value = border[0].copy()
    value[:block, :block] = own[0][:block, :block]
    return value, np.where(first, own[1], border[1])


def unlike(moment: Floats) -> Floats:
    """Prior standard deviation of a curvature, over its multiple of E xxᵀ, on each packed coordinate."""
    return WHITE * min(1.0, FEW / len(moment)) * _unit(moment)


def _unit(moment: Floats) -> Floats:
    """√(M_aa M_bb) on each packed coordinate (a, b) of a matrix M."""
    i, j, length = triangle(len(moment))
    diagonal = np.maximum(np.diag(moment), 0.0)
    return np.asarray(length * np.sqrt(diagonal[i] * diagonal[j]))


def noise_of_multiple(target: Floats, shape: Floats, sd: Floats) -> Floats:
    """Noise of the packed coordinates of a target whose first block is a multiple of a shape with noise `sd`."""
    p = len(shape)
    i, j, _ = triangle(len(target))
    noise = np.zeros(len(i))
    noise[(i < p) & (j < p)] = float(target[0, 0] / shape[0, 0]) * sd
    return noise


def asked_again(raw: Floats, before: Curvature, noise: float, *, shrink: Shrink, block: int | None = None) -> Curvature:
    """The curvature of a second answer, nearer the estimate, shrunk to a multiple of the first one, `in_parts`."""
    unit = pack(before.value)
    factor = float(np.clip(pack(raw) @ unit / float(unit @ unit), 0.1, 10.0))
    return curvature_of(raw, factor * before.value, noise, factor * before.sd, shrink=shrink, block=block)


def noise_of_shape(target: Floats, shape: Floats, sd: Floats, most: float) -> Floats:
    """Noise of the packed coordinates of a target that follows from a shape with noise `sd`, as large beside it.

    The target is at most `most` times the shape.
    """
    i, j, _ = triangle(len(target))
    ratio = np.diag(target) / np.maximum(np.diag(shape), np.diag(target) / most)
    return sd * np.sqrt(ratio[i] * ratio[j])


def scaled_to(raw: Floats, before: Curvature, noise: float, *, shrink: Shrink) -> Curvature:
    """The curvature of an answer, shrunk to a multiple of what was expected `before` it.

    The multiple is expected to be 1 within `before.factor_sd`: of a small curvature an answer tells less than that.
    """
    unit = pack(before.value)
    square = max(float(unit @ unit), 1e-300)
    sure, told = before.factor_sd**-2.0, square / max(noise**2, 1e-18 * square)
    factor = float(np.clip((sure + told * (pack(raw) @ unit) / square) / (sure + told), 0.1, 10.0))
    found = curvature_of(raw, factor * before.value, noise, factor * before.sd, shrink=shrink)
    return replace(found, factor_sd=(sure + told) ** -0.5)


def bordered(
    raw: Floats, shape: Floats, noise: float, least: float, mean: Floats | None = None, tiny: float = 1e-6
) -> Floats:
    """The shrinkage target of a matrix for (β, extra parameters).

    The block of β is a multiple of `shape`. The extra parameters have no entries with β, unless the `mean` of the
    design is given: then these are a multiple of it, since skewed errors that are independent of the design tie a scale
    to the intercept alone.

    Args:
      raw: the matrix as answered.
      shape: of the block of β.
      noise: of each packed coordinate of the answer.
      least: smallest multiple of the shape.
      mean: of the design, in the frame.
      tiny: smallest curvature of an extra parameter.
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
    """A noisy covariance, shrunk to a multiple of `shape` (see `bordered`) and kept positive; and the noise left."""
    size = max(abs(float(np.trace(raw))) / max(float(np.trace(shape)), 1e-300), sd)  # in any unit
    tiny = 1e-6 * (size if size > NONE else 1.0)
    target = bordered(raw, shape, 0.0, 0.0, mean, tiny)
    value, left = in_parts(raw, target, sd, shrink=shrink, block=len(shape))
    return floored(value, FLOOR * max(float(np.linalg.eigvalsh(target)[0]), 0.0)), left
