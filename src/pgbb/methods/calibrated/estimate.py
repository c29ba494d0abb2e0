"""What the answers add up to: θ* = c − F H*⁻¹(a + noise), and how two rounds of gradients become one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from pgbb.methods.calibrated.algebra import clear_of, floored, pack, shrink
from pgbb.release.local_gaussian import triangle

Floats = NDArray[np.float64]

__all__ = [
    "Curvature",
    "Cut",
    "Estimate",
    "bordered",
    "combine",
    "contradict",
    "curvature_of",
    "raised",
    "toward",
    "unidentified",
    "unsettled",
    "widened",
]

NEGLIGIBLE = 0.02  # privacy variance beside sampling variance
SHOWN = 3.0  # standard deviations of its noise that an answer must show of a curvature that is not its own alone
SELDOM = 1e-3  # how often a local model that holds may widen its posterior for nothing
RARE = 1e-6  # how often it may be taken for one that does not hold
FLOOR = 0.25
"""Curvature is never taken below this share of its target's smallest eigenvalue."""


@dataclass(frozen=True)
class Cut:
    """P(ω < 1), the share of records that are weighted down, as answered, and the standard deviation of its noise."""

    share: float
    sd: float

    @property
    def clear(self) -> bool:
        """Whether there are any, beyond noise."""
        return self.share > max(3 * self.sd, 1e-3)


@dataclass(frozen=True)
class Estimate:
    """What a release of the calibrated method holds; see `pgbb.release.local_gaussian`. Gradients and curvatures are
    in the frame F: Fᵀ∇ and FᵀHF."""

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
    cut: Cut | None = None


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
) -> Curvature:
    """Shrink a noisy curvature to its target, keep it positive, and mark what it, or `answer`, does not show."""
    value, left = shrink(raw, target, sd, target_sd)
    smallest = max(float(np.linalg.eigvalsh(target)[0]), 1e-12)
    return Curvature(floored(value, FLOOR * smallest), left, unidentified(value, left, answer or (raw, sd)))


def combine(first: Floats, second: Floats, sd_first: float, sd_second: float, sampling: float) -> tuple[Floats, float]:
    """Two estimates weighted by the precision of their noise, and the standard deviation of the result's noise.

    The first is farther from the target and has a larger error of second order. Where the noise of the second
    is small beside the sampling variance, the first has nothing to add.
    """
    if sd_first == 0 or sd_second == 0 or sd_second**2 < NEGLIGIBLE * sampling:
        return second, sd_second
    weight = sd_second**-2 / (sd_first**-2 + sd_second**-2)
    return weight * second + (1 - weight) * first, float(np.hypot(weight * sd_second, (1 - weight) * sd_first))


def unsettled(
    first: Floats, second: Floats, metric: Floats, sampling: Floats, sd_first: float, sd_second: float
) -> float:
    """Whether the last Newton step was still so long that the next could leave the posterior.

    In the metric H, steps of length L₁ and L₂, less what noise explains, leave
    an error of about L₂²/L₁ where Newton's method converges; it must stay below
    the posterior's own spread.

    Returns:
      How many times wider the posterior must be to hold that error, at least 1; infinity where the step is
      longer than noise makes it (Laurent and Massart's bound for weighted χ², RARE).
    """
    weights = 1 / np.linalg.eigvalsh(metric)
    spread, x = float(np.sum(weights)), -np.log(RARE)
    noise = sd_first**2 + sd_second**2
    long = max(float(first @ metric @ first), sd_first**2 * spread, 1e-300)
    late = float(second @ metric @ second)
    short = max(late - 3 * noise * spread, 0.0)
    error, own = min(short, short**2 / long), sd_second**2 * spread + float(np.sum(sampling * np.linalg.inv(metric)))
    if error <= own:
        return 1.0
    most = noise * (spread + 2 * np.sqrt(x * np.sum(weights**2)) + 2 * x * np.max(weights))
    return np.inf if late > most else float(np.sqrt(error / own))


def contradict(
    change: Floats, step: Floats, last: Floats, bend: Curvature, sampling: Floats, sd_first: float, sd_second: float
) -> float:
    """Whether the gradient did not change over a step as the curvature says, and it matters.

    Where the local model holds, e = g₂ − g₁ − Hq is made of the noise of two
    answers and of H alone, all known: eᵀV⁻¹e is χ² with d degrees of freedom, and must be in
    its upper tail to count. With little noise any bend of the loss shows, so it must also matter: e,
    carried over to the `last` step in proportion to the lengths in the metric H, exceeds the posterior's own spread.

    Returns:
      How many times wider the posterior must be to hold e, at least 1; infinity where noise does not explain it.
    """
    e, d = change - bend.value @ step, len(step)
    i, j, _ = triangle(d)
    entry = np.zeros((d, d))  # variances of the entries of H
    entry[i, j] = entry[j, i] = np.where(i == j, 1.0, 0.5) * bend.sd**2
    covariance = entry * np.outer(step, step)
    covariance[np.diag_indices(d)] = entry @ step**2 + sd_first**2 + sd_second**2
    surprise = e @ np.linalg.pinv(covariance) @ e
    ratio = float(last @ bend.value @ last) / max(float(step @ bend.value @ step), 1e-300)
    matters = min(ratio, 1.0) * float(e @ np.linalg.pinv(sampling + sd_second**2 * np.eye(d)) @ e) / d
    if surprise <= chdtri(d, SELDOM) or matters <= 1:
        return 1.0
    return np.inf if surprise > chdtri(d, RARE) else float(np.sqrt(matters))


def widened(sd: float, sampling: Floats, doubt: float) -> float:
    """Noise that makes a posterior `doubt` times as wide, all in all; as it was where doubt is beyond measure."""
    if not 1 < doubt < np.inf:
        return sd
    return float(np.sqrt(doubt**2 * sd**2 + (doubt**2 - 1) * np.trace(sampling) / len(sampling)))


def bordered(raw: Floats, shape: Floats, noise: float, least: float, mean: Floats | None = None) -> Floats:
    """Target of a matrix for (β, extra): a multiple of `shape` for β, and the extra parameters apart.

    Where the mean of the design is given, they are tied to β by a multiple of it: errors that are independent
    of the design but skewed tie a scale to the intercept alone.
    """
    p = len(shape)
    target = np.zeros_like(raw)
    unit = pack(shape)
    target[:p, :p] = max(float(pack(raw[:p, :p]) @ unit) / float(unit @ unit), least, 1e-6) * shape
    for j in range(p, len(raw)):
        target[j, j] = max(float(raw[j, j]), 3 * noise, 1e-6)
        if mean is not None:
            tie = float(raw[:p, j] @ mean / (mean @ mean)) * mean
            most = 0.9 * np.sqrt(target[j, j] / max(float(tie @ np.linalg.solve(target[:p, :p], tie)), 1e-300))
            target[:p, j] = target[j, :p] = min(most, 1.0) * tie
    return target


def toward(raw: Floats, shape: Floats, sd: float, mean: Floats | None = None) -> tuple[Floats, Floats]:
    """A covariance shrunk to a multiple of `shape` (and what lies beside it) and kept positive; and the noise left."""
    target = bordered(raw, shape, 0.0, 0.0, mean)
    value, left = shrink(raw, target, sd)
    return floored(value, FLOOR * max(float(np.linalg.eigvalsh(target)[0]), 0.0)), left
