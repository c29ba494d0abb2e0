"""Distributions of lengths: a histogram as far as it shows, and a generalised Pareto tail beyond that.

They serve the clip of scores, the window of a mean and the reach of a frame. Public arithmetic.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.calibrated.response import Distribution

__all__ = ["Lengths", "Tail", "heaviest", "tail_of"]

LEAST_TAIL, MOST_TAIL = 0.01, 0.2  # the tail begins at a share between these, as noise allows
HEAVIEST = 0.6  # largest shape of the tail of a score
HEAVY = 0.35  # largest shape of the tail of a column whose last hundredth is seen; it is larger where less is seen


@dataclass(frozen=True)
class Tail:
    """A generalised Pareto tail of lengths.

    Args:
      start: where the tail begins.
      share: of the lengths beyond the start.
      slope: scale of the distribution.
      weight: its shape: 0 if it is exponential, positive if heavier, negative if it ends.
    """

    start: float
    share: float
    slope: float
    weight: float = 0.0

    def lengths(self, shares: Floats) -> Floats:
        """The lengths that these shares exceed."""
        far = np.log(self.share / shares)
        steps = np.expm1(self.weight * far) / self.weight if self.weight else far
        return self.start + self.slope * steps

    def excess(self, shares: Floats) -> Floats:
        """E(length − bound)₊ for the bounds that these shares exceed."""
        return self.slope / (1 - self.weight) * self.share**self.weight * shares ** (1 - self.weight)

    def beyond(self, lengths: Floats) -> Floats:
        """The shares that exceed these lengths, which lie beyond the start."""
        steps = np.maximum(lengths - self.start, 0.0) / self.slope
        left = np.maximum(1 + self.weight * steps, 0.0)
        return self.share * (left ** (-1 / self.weight) if self.weight else np.exp(-steps))


def tail_of(law: Distribution, heaviest: float = HEAVIEST, lightest: float = 0.0, side: int = 1) -> Tail:
    """The tail of a distribution, from three quantiles that stand clear of noise; the lower tail for `side` = −1.

    The outer bins are open and are not used. The shape is clipped to [lightest, heaviest].
    """
    open_end = float(law.share[-1 if side > 0 else 0])
    share = float(np.clip(max(4 * law.sd, 1.5 * open_end), LEAST_TAIL, MOST_TAIL))
    outer, inner = min(4 * share, 0.5), min(16 * share, 0.9)
    shares = np.array([inner, outer, share])
    most, wide, start = side * law.quantile(1 - shares if side > 0 else shares)
    slope = max(float(start - wide) / np.log(outer / share), 0.05 * abs(float(start)), 1e-12)
    before = max(float(wide - most) / np.log(inner / outer), 1e-12)
    weight = np.log(slope / before) / np.log(np.sqrt(inner / share))
    return Tail(float(start), share, slope, float(np.clip(weight, lightest, heaviest)))


def heaviest(law: Distribution) -> float:
    """The largest shape of the tail of a column.

    It is larger where the tail is read farther in, since a tail that falls ever faster looks heavier there.
    """
    seen = min(max(4 * law.sd / LEAST_TAIL, 1.0), 10.0)
    return HEAVY + (HEAVIEST - HEAVY) * float(np.log10(seen))


@dataclass(frozen=True)
class Lengths:
    """The distribution of lengths of records, and the longest length that is possible."""

    law: Distribution
    longest: float

    @cached_property
    def tail(self) -> Tail:
        """The tail beyond what the histogram shows."""
        return tail_of(self.law, heaviest(self.law))

    def beyond(self, lengths: Floats) -> Floats:
        """The shares that exceed these lengths."""
        seen = 1 - np.interp(lengths, self.law.edges, self.law.below)
        shares = np.where(lengths < self.tail.start, np.maximum(seen, self.tail.share), self.tail.beyond(lengths))
        return np.where(lengths < self.longest, shares, 0.0)

    def excess(self, length: float) -> tuple[float, float]:
        """E(l − length)₊ and E(l − length)₊²."""
        t = length * np.geomspace(1, max(self.longest / length, 1.0), 201)
        shares = self.beyond(t)
        return float(np.trapezoid(shares, t)), float(np.trapezoid(2 * (t - length) * shares, t))
