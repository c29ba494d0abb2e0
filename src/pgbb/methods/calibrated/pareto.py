"""Distributions of lengths: a histogram as far as it shows, and a generalised Pareto tail beyond that.

They serve the clip of scores, the window of a mean and the reach of a frame. Public arithmetic.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.calibrated.response import Distribution

LEAST_TAIL, MOST_TAIL = 0.01, 0.2  # the tail begins at a share between these, as noise allows
HEAVIEST = 0.6  # largest shape of the tail of a score
USUAL, VARIES = 0.25, 0.15  # prior mean and standard deviation of the shape of a tail
OFTEN, LONG, DIFFERS = 0.05, 0.8, 0.3  # in so many columns it is a long one instead, with this mean and deviation
LONGEST = 1.2  # largest shape that is read
READ = 0.7  # noise of the shape of a tail whose share is as large as the noise of that share
SHAPES = 0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 0.95  # grid of shapes
OFF = -1.5, -0.75, 0.0, 0.75, 1.5  # grid of noise, in its standard deviations
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

    def cut_square(self, bounds: Floats) -> Floats:
        """E min(l, bound)² for increasing bounds."""
        t = np.union1d(np.union1d(self.law.edges, bounds), np.geomspace(self.law.edges[1], self.law.edges[-1], 401))
        steps = np.diff(t**2) * self.beyond((t[1:] + t[:-1]) / 2)
        return np.interp(bounds, t, np.append(0.0, np.cumsum(steps)))

    def excess(self, length: float) -> tuple[float, float]:
        """E(l − length)₊ and E(l − length)₊²."""
        t = length * np.geomspace(1, max(self.longest / length, 1.0), 201)
        shares = self.beyond(t)
        return float(np.trapezoid(shares, t)), float(np.trapezoid(2 * (t - length) * shares, t))


@dataclass(frozen=True)
class Tails:
    """Tails that lengths may have: each, its probability, and the longest length."""

    each: tuple[Tail, ...]
    chance: Floats
    longest: float

    def excess(self, bounds: Floats) -> tuple[Floats, Floats]:
        """E(length − bound)₊: its mean over the tails, and its root mean square."""
        near = [t.share * np.maximum(t.start - bounds, 0.0) for t in self.each]
        cut = np.stack([t.excess(t.beyond(bounds)) + more for t, more in zip(self.each, near, strict=True)])
        return self.chance @ cut, np.sqrt(self.chance @ cut**2)


def tails_of(law: Distribution) -> Tails:
    """A grid of tails around the one that the distribution shows, weighted by noise and by the prior of the shape.

    Most columns have the usual shapes; one in twenty, such as expenditure or counts of votes, has a long tail.
    """
    each, log = [], []
    shapes = np.array(SHAPES)
    usual, long = (np.exp(-0.5 * ((shapes - at) / sd) ** 2) / sd for at, sd in ((USUAL, VARIES), (LONG, DIFFERS)))
    prior = np.log((1 - OFTEN) * usual + OFTEN * long)
    for off in OFF:
        below = np.clip(law.below - off * law.sd, 0.0, 1.0)  # as if noise had moved all partial sums
        below[0], below[-1] = 0.0, 1.0
        read = tail_of(Distribution(law.edges, np.diff(below), law.sd), LONGEST)
        doubt = READ * law.sd / read.share + 0.1
        each += [Tail(read.start, read.share, read.slope, shape) for shape in SHAPES]
        log += (prior - 0.5 * (off**2 + ((shapes - read.weight) / doubt) ** 2)).tolist()
    chance = np.exp(np.array(log) - max(log))
    return Tails(tuple(each), chance / chance.sum(), float(law.edges[-1]))
