"""How far the farthest records lie: the law of lengths as it is seen, and a generalised Pareto tail beyond that.

Serves the clip of scores of a linear regression, the window of a mean and the reach of a frame. Public arithmetic.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated.response import Distribution

Floats = NDArray[np.float64]

__all__ = ["Lengths", "Tail", "heaviest", "tail_of"]

LEAST_TAIL, MOST_TAIL = 0.01, 0.2  # share of the longest from which their tail is read, or what noise shows
HEAVIEST = 0.6  # shape of the tail of a product, at most
HEAVY = 0.35  # the same of a column, where a hundredth of it is seen; more where less is


@dataclass(frozen=True)
class Tail:
    """The tail of lengths as a generalised Pareto law: beyond `start` lies the share `share`.

    `slope` is its scale, how fast it falls there, and `weight` its shape: 0 if exponential, more if it is heavier,
    and negative if it ends.
    """

    start: float
    share: float
    slope: float
    weight: float = 0.0

    def lengths(self, shares: Floats) -> Floats:
        """The lengths beyond which these shares lie."""
        far = np.log(self.share / shares)
        steps = np.expm1(self.weight * far) / self.weight if self.weight else far
        return self.start + self.slope * steps

    def excess(self, shares: Floats) -> Floats:
        """E(length − bound)₊ for the bounds beyond which these shares lie."""
        return self.slope / (1 - self.weight) * self.share**self.weight * shares ** (1 - self.weight)

    def beyond(self, lengths: Floats) -> Floats:
        """Shares that are longer than lengths beyond the start."""
        steps = np.maximum(lengths - self.start, 0.0) / self.slope
        left = np.maximum(1 + self.weight * steps, 0.0)
        return self.share * (left ** (-1 / self.weight) if self.weight else np.exp(-steps))


def tail_of(law: Distribution, heaviest: float = HEAVIEST, lightest: float = 0.0, side: int = 1) -> Tail:
    """The tail that the longest show above noise, as far as they show it; or the shortest, on the other `side`.

    The outer bins are open, and show nothing of it.
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
    """The shape of the tail of a column, at most: farther in, laws that fall ever faster look heavier."""
    seen = min(max(4 * law.sd / LEAST_TAIL, 1.0), 10.0)
    return HEAVY + (HEAVIEST - HEAVY) * float(np.log10(seen))


@dataclass(frozen=True)
class Lengths:
    """Lengths of records: their law, as far as it is seen, its tail, and the longest that is possible."""

    law: Distribution
    longest: float

    @cached_property
    def tail(self) -> Tail:
        """Beyond what is seen."""
        return tail_of(self.law, heaviest(self.law))

    def beyond(self, lengths: Floats) -> Floats:
        """Shares that are longer."""
        seen = 1 - np.interp(lengths, self.law.edges, self.law.below)
        shares = np.where(lengths < self.tail.start, np.maximum(seen, self.tail.share), self.tail.beyond(lengths))
        return np.where(lengths < self.longest, shares, 0.0)

    def excess(self, length: float) -> tuple[float, float]:
        """E(l − length)₊ and the same of its square."""
        t = length * np.geomspace(1, max(self.longest / length, 1.0), 201)
        shares = self.beyond(t)
        return float(np.trapezoid(shares, t)), float(np.trapezoid(2 * (t - length) * shares, t))
