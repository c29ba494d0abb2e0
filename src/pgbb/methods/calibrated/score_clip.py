"""Chooses the length at which scores are clipped, and estimates what the clip takes off, from their distribution.

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

NOTHING = np.zeros(0)  # what the statistics of least squares need beside θ and the frame
ONE_SIDED = 0.5  # share of the mean excess length by which a clip may move one coordinate
NEAREST, FARTHEST = 1.5, 30.0  # the excess is asked up to this range of bounds; bounds lie within `FARTHEST` starts
RAREST = np.exp(-9.0)  # least share of a tail beyond a bound: farther out, rows would be rounded coarsely
LOUD = 0.6  # the bound grows while the noise of the last gradient stays below this share of the sampling error
QUIET = 0.35  # the excess is asked as far out as its noise stays below this share of the sampling error
FINEST = 0.03  # width of the narrowest bins of lengths, in typical lengths
USUAL, VARIES = 0.25, 0.15  # prior mean and standard deviation of the shape of a tail of scores
READ = 0.7  # noise of the shape of a tail whose share is as large as the noise of that share
SHAPES, OFF = (0.0, 0.15, 0.3, 0.45, 0.6), (-1.5, -0.75, 0.0, 0.75, 1.5)  # grids of shapes, and of noise in its sd
PART = 0.5  # weight of the number of clipped scores, and of their squares, in the answer on the excess


@dataclass(frozen=True)
class Tails:
    """Tails that the lengths of scores may have: each, its probability, and the longest length."""

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
        """Where the middle one of the tails begins."""
        return self.each[len(self.each) // 2].start

    def bounds(self, least: float) -> Floats:
        """The grid of bounds that are tried."""
        low, high = (max(pick(t.start for t in self.each), least) for pick in (min, max))
        top = max(float(t.lengths(np.array(RAREST * t.share))) for t in self.each)
        return np.geomspace(low, min(max(top, 1.1 * high), FARTHEST * high), 241)


def read_tail(law: Distribution) -> Tails:
    """The tail that the distribution shows, as the only one."""
    return Tails((tail_of(law),), np.ones(1), float(law.edges[-1]))


def usual_tail(law: Distribution) -> Tails:
    """The tail that the distribution shows, as the only one, with its shape shrunk to the usual one."""
    tail = tail_of(law)
    keep = VARIES**2 / (VARIES**2 + (READ * law.sd / tail.share) ** 2)
    return Tails((replace(tail, weight=USUAL + keep * (tail.weight - USUAL)),), np.ones(1), float(law.edges[-1]))


def tails_of(law: Distribution) -> Tails:
    """A grid of tails around the one that the distribution shows, weighted by noise and by the prior of the shape."""
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
    """The bound b that minimises the sum of squares of noise and bias; E(length − b)₊, and its root mean square.

    The noise of a gradient is b·`noise`, and the bias of a coordinate is a `part` of the excess. b is larger while the
    noise stays at `LOUD` of the `sampling` error, and at least `least`.

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
    """Ask the stage "residuals": the distribution of lengths of scores at θ. `given` is what the family needs."""
    far, unit = 4 * size * np.sqrt(len(theta)), FINEST * size / near.reach
    edges = np.sinh(np.linspace(0, 1, BINS + 1) * np.arcsinh(far / unit)) * unit
    return asked_law(asker, "residuals", "clipped_lengths", edges, theta, near.matrix, given)[0]


@dataclass(frozen=True)
class Cut:
    """What the clip takes off.

    Args:
      moved: the part of its mean that is put back.
      covariance: of the rest.
      square: mean of what the clip takes off the squared length.
      note: for the certificate.
    """

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
    """Ask the stage "tail": the mean of v − clip(v), up to as many bounds as its noise allows.

    A priori its coordinates have the standard deviation `expected` around `toward`, whose size is as uncertain as
    itself. `sampling` is the sampling error of a gradient.
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
