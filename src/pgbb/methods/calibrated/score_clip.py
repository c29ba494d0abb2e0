"""Where the scores of a least-squares fit are cut, and what the cut takes off: read from the law of their lengths.

Public arithmetic on answers.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.pareto import Tail, tail_of
from pgbb.methods.calibrated.response import Distribution, asked_law
from pgbb.methods.calibrated.stages import BINS

Floats = NDArray[np.float64]

__all__ = [
    "NOTHING",
    "ONE_SIDED",
    "PART",
    "Cut",
    "Tails",
    "bound_for",
    "excess",
    "lengths",
    "read_tail",
    "tails_of",
    "usual_tail",
]

NOTHING = np.zeros(0)  # that least squares needs beside θ and the frame
ONE_SIDED = 0.5  # of the mean length that is cut off: what it may move one coordinate
NEAREST, FARTHEST = 1.5, 30.0  # excess is asked up to so many bounds, and bounds lie up to so many starts of a tail
RAREST = np.exp(-9.0)  # share of a tail beyond a bound, at least, or rows would be rounded coarsely
LOUD = 0.6  # noise of the last gradient beside the sampling error, where the bound is chosen by it
QUIET = 0.35  # the same of the excess
FINEST = 0.03  # narrowest bins of lengths, in typical ones
USUAL, VARIES = 0.25, 0.15  # the shape of a tail of scores, typically, and how far others are from it
READ = 0.7  # noise of a shape that is read from shares whose noise is as large as they are
SHAPES, OFF = (0.0, 0.15, 0.3, 0.45, 0.6), (-1.5, -0.75, 0.0, 0.75, 1.5)  # that are tried, and noise, in its deviations
PART = 0.5  # of the answer on the excess that asks how many scores are cut, and for their squares


@dataclass(frozen=True)
class Tails:
    """Tails that the lengths may have, as far as noise lets them be seen: each, its probability, and the longest."""

    each: tuple[Tail, ...]
    chance: Floats
    longest: float

    def excess(self, bounds: Floats) -> tuple[Floats, Floats]:
        """E(length − bound)₊: its mean over the tails, and its root mean square."""
        near = [t.share * np.maximum(t.start - bounds, 0.0) for t in self.each]
        cut = np.stack([t.excess(t.beyond(bounds)) + more for t, more in zip(self.each, near, strict=True)])
        return self.chance @ cut, np.sqrt(self.chance @ cut**2)

    def square(self, bound: float) -> float:
        """The mean over the tails of E(length² − bound²)₊."""
        at = np.geomspace(bound, max(self.longest, bound), 65)
        return float(np.trapezoid(2 * at * (self.chance @ np.stack([t.beyond(at) for t in self.each])), at))

    @property
    def start(self) -> float:
        """Where the one in the middle begins."""
        return self.each[len(self.each) // 2].start

    def bounds(self, least: float) -> Floats:
        """Where a clip may be."""
        low, high = (max(pick(t.start for t in self.each), least) for pick in (min, max))
        top = max(float(t.lengths(np.array(RAREST * t.share))) for t in self.each)
        return np.geomspace(low, min(max(top, 1.1 * high), FARTHEST * high), 241)


def read_tail(law: Distribution) -> Tails:
    """The one tail that is read from the law."""
    return Tails((tail_of(law),), np.ones(1), float(law.edges[-1]))


def usual_tail(law: Distribution) -> Tails:
    """The one tail that is read from the law, its shape pulled to the usual one as far as noise hides it."""
    tail = tail_of(law)
    keep = VARIES**2 / (VARIES**2 + (READ * law.sd / tail.share) ** 2)
    return Tails((replace(tail, weight=USUAL + keep * (tail.weight - USUAL)),), np.ones(1), float(law.edges[-1]))


def tails_of(law: Distribution) -> Tails:
    """Tails around the one that is read from the law, as noise may have moved it: with a usual shape up to `VARIES`."""
    each, log = [], []
    for off in OFF:
        below = np.clip(law.below - off * law.sd, 0.0, 1.0)  # as if noise had moved all partial sums
        below[0], below[-1] = 0.0, 1.0
        read = tail_of(Distribution(law.edges, np.diff(below), law.sd))
        doubt = READ * law.sd / read.share + 0.1
        for shape in SHAPES:
            each.append(Tail(read.start, read.share, read.slope, shape))
            log.append(-0.5 * (off**2 + ((shape - USUAL) / VARIES) ** 2 + ((shape - read.weight) / doubt) ** 2))
    chance = np.exp(np.array(log) - max(log))
    return Tails(tuple(each), chance / chance.sum(), float(law.edges[-1]))


def bound_for(
    tails: Tails, noise: float, sampling: float, part: float = ONE_SIDED, least: float = 0.0
) -> tuple[float, float, float]:
    """b that makes noise and what the clip may move a coordinate least; E(length − b)₊, and its root mean square.

    The noise of a gradient is b·`noise`; while it is quiet beside the sampling error, b is as large as that allows. A
    coordinate is moved by a `part` of the excess, and b is at the `least` that.

    >>> one = Tails((Tail(2.0, 0.02, 0.5),), np.ones(1), 60.0)
    >>> [round(v, 4) for v in bound_for(one, 1e-3, 0.001)]
    [2.7252, 0.0023, 0.0023]
    >>> [round(v, 4) for v in bound_for(one, 1e-3, 0.006)]
    [3.5879, 0.0004, 0.0004]
    """
    bounds = tails.bounds(least)
    mean, root = tails.excess(bounds)
    best = int(np.argmin((noise * bounds) ** 2 + (part * root) ** 2))
    best = max(best, int(np.searchsorted(noise * bounds, LOUD * sampling, side="right")) - 1)
    return float(bounds[best]), float(mean[best]), float(root[best])


def lengths(asker: Asker, near: Frame, theta: Floats, size: float, given: Floats | float = NOTHING) -> Distribution:
    """The law of lengths of scores at θ: the stage "residuals". `given` is what the family needs besides."""
    far, unit = 4 * size * np.sqrt(len(theta)), FINEST * size / near.reach
    edges = np.sinh(np.linspace(0, 1, BINS + 1) * np.arcsinh(far / unit)) * unit
    return asked_law(asker, "residuals", "clipped_lengths", edges, theta, near.matrix, given)[0]


@dataclass(frozen=True)
class Cut:
    """What the clip takes off: the mean as far as it is put back, the covariance of the rest, squares, and a note."""

    moved: Floats
    covariance: Floats
    square: float
    note: str


def excess(
    asker: Asker,
    near: Frame,
    theta: Floats,
    b: float,
    expected: float,
    sampling: float,
    given: Floats | float = NOTHING,
    toward: Floats | float = 0.0,
) -> Cut:
    """Ask for the mean of v − clip(v), up to a number of bounds that noise allows: the stage "tail".

    A coordinate of it is `expected` to be as large as that, around `toward`, which may be twice as much or nothing.
    """
    unit = np.sqrt(1 + 2 * PART**2)
    noise = asker.noise("tail") * unit
    times = float(np.clip(QUIET * sampling / max(noise * b, 1e-300), NEAREST, FARTHEST))
    answer, sd = asker.ask("tail", "clipped_excess", theta, near.matrix, given, b, times, PART)
    mean, doubt = answer[:-2] * unit * times * b, sd * unit * times * b
    around = toward * np.ones_like(mean)
    prior = max(expected**2, float(np.mean((mean - around) ** 2)) - doubt**2 * (1 + 3 * np.sqrt(2 / len(mean))))
    keep = prior / (prior + doubt**2) if prior > 0 else 0.0
    believed = prior * np.eye(len(mean)) + np.outer(around, around)
    gain = believed @ np.linalg.pinv(believed + doubt**2 * np.eye(len(mean)))
    share, share_sd = float(answer[-2]) * unit / PART, sd * unit / PART
    square = keep * max(float(answer[-1]) * unit / PART, 0.0) * ((times + 1) * b) ** 2
    most = min(max(share, 0.0) + 2 * share_sd, 1.0)
    note = (
        f"Scores longer than a private bound are clipped, at most {most:.1%} of them; {keep:.0%} of what the clip "
        "takes off is put back, and the intervals allow for the rest as far as the tail that is seen leaves it."
    )
    return Cut(around + gain @ (mean - around), doubt**2 * (gain + gain.T) / 2, square, note)
