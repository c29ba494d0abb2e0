"""Where scores that have no bound of their own are cut, and what the cut takes off: read from the law of their lengths.

Serves least squares, instruments, Poisson regression and expectiles. Public arithmetic on answers.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.curvature import covariance_of
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.pareto import LEAST_TAIL, Tail, tail_of
from pgbb.methods.calibrated.response import Distribution, asked_law
from pgbb.methods.calibrated.stages import BINS

Floats = NDArray[np.float64]

__all__ = [
    "ALONG",
    "NOTHING",
    "PART",
    "Cut",
    "Tails",
    "bound_for",
    "clip_scores",
    "mean_axis",
    "score_spread",
    "tails_of",
]

NOTHING = np.zeros(0)  # that least squares needs beside θ and the frame
ALONG, ACROSS = 0.4, 0.65  # of the mean length that is cut off: what points along the mean of u, and elsewhere
FAR_OUT = 0.5  # of the latter, that points where covariates lie far out
NEAREST, FARTHEST = 1.5, 30.0  # excess is asked up to so many bounds, and bounds lie up to so many starts of a tail
RAREST = np.exp(-9.0)  # share of a tail beyond a bound, at least, or rows would be rounded coarsely
LOUD = 0.6  # noise of the last gradient beside the sampling error, where the bound is chosen by it
QUIET = 0.35  # the same of the excess
FINEST = 0.03  # narrowest bins of lengths, in typical ones
USUAL, VARIES = 0.22, 0.15  # the shape of a tail of scores beyond a hundredth of them, and how far others are from it
INNER = -0.03  # by how much heavier it is beyond e hundredths: few files have a few extreme records
OTHER = 1.3  # root mean square of how far an excess is from that of such tails, as a factor
LEFT, FALLS = 0.015, 1.8  # of a root mean square of lengths, E(length − b)₊ for b of 3.5 of them, and its power of b
READ = 0.7  # noise of a shape that is read from shares whose noise is as large as they are
SHAPES, OFF = (0.0, 0.15, 0.3, 0.45, 0.6), (-1.0, 0.0, 1.0)  # that are tried, and noise, in its deviations
SQUARES = 0.1  # noise of second moments of scores beside them, where their bound is chosen by it
KNOWN = 0.1  # how well the law of lengths tells their sum, relative
SHAPELESS = 1.2  # sampling errors that usual tails move a coordinate by: beyond that their shape decides, unseen
PART = 0.5  # of the answer on the excess that asks how many scores are cut, and for their squares


@dataclass(frozen=True)
class Tails:
    """Tails that the lengths may have, as far as noise lets them be seen: each, its probability, and the longest.

    `inside` is the mean square of lengths, those beyond the start cut to it.
    """

    each: tuple[Tail, ...]
    chance: Floats
    longest: float
    inside: float = 0.0

    def excess(self, bounds: Floats) -> tuple[Floats, Floats]:
        """E(length − bound)₊: its mean over the tails, and its root mean square, never less than a public rule.

        Beside the root mean square of lengths, files hardly differ in how much lies beyond a bound.
        """
        near = [t.share * np.maximum(t.start - bounds, 0.0) for t in self.each]
        cut = np.stack([t.excess(t.beyond(bounds)) + more for t, more in zip(self.each, near, strict=True)])
        size = np.sqrt(self.total) if self.inside else 0.0
        rule = LEFT * size * (bounds / max(size, 1e-300) / 3.5) ** -FALLS
        return self.chance @ cut, np.maximum(OTHER * np.sqrt(self.chance @ cut**2), rule)

    @property
    def total(self) -> float:
        """The mean square of all lengths."""
        return self.inside + self.square(self.start)

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


def tails_of(law: Distribution) -> Tails:
    """Tails around the one that is read from the law, as noise may have moved it, with usual shapes.

    A shape that looks heavy counts against lighter ones, and one that looks light says nothing: how a law falls where
    it is seen says little of how it falls beyond.
    """
    each, log = [], []
    for off in OFF:
        below = np.clip(law.below - off * law.sd, 0.0, 1.0)  # as if noise had moved all partial sums
        below[0], below[-1] = 0.0, 1.0
        read = tail_of(Distribution(law.edges, np.diff(below), law.sd))
        usual = USUAL + INNER * np.log(read.share / LEAST_TAIL)
        doubt = READ * law.sd / read.share + 0.1
        for shape in SHAPES:
            each.append(Tail(read.start, read.share, read.slope, shape))
            seen = max(read.weight - shape, 0.0) / doubt  # a tail that is lighter than it looks
            log.append(-0.5 * (off**2 + ((shape - usual) / VARIES) ** 2 + seen**2))
    chance = np.exp(np.array(log) - max(log))
    found = Tails(tuple(each), chance / chance.sum(), float(law.edges[-1]))
    return replace(found, inside=law.mean(np.minimum(law.middles, found.start) ** 2))


def bound_for(
    tails: Tails, noise: float, sampling: float, part: float = 0.5, least: float = 0.0
) -> tuple[float, float, float]:
    """b that makes noise and what the clip may move a coordinate least; E(length − b)₊, and its root mean square.

    The noise of a gradient is b·`noise`; while it is quiet beside the sampling error, b is as large as that allows. A
    coordinate is moved by a `part` of the excess, and b is at the `least` that.

    >>> one = Tails((Tail(2.0, 0.02, 0.5),), np.ones(1), 60.0)
    >>> [round(v, 4) for v in bound_for(one, 1e-3, 0.001)]
    [2.8484, 0.0018, 0.0024]
    >>> [round(v, 4) for v in bound_for(one, 1e-3, 0.006)]
    [3.5879, 0.0004, 0.0005]
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


def mean_axis(near: Frame, constant: bool) -> Floats:
    """The direction of E u in the frame, which the moment holds where the first term is constant; none otherwise."""
    if not constant:
        return np.zeros(len(near.matrix))
    mean: Floats = near.moment @ np.linalg.inv(near.matrix)[:, 0]
    return mean / max(float(np.linalg.norm(mean)), 1e-300)


def _across(near: Frame) -> Floats:
    """How much of what is cut off points along each axis: evenly, or where a reference design lies far out."""
    even = np.full(len(near.matrix), 1 / len(near.matrix))
    if near.reference is None:
        return even
    squares = near.reference**2
    weight = squares.T @ squares.sum(axis=1)  # ‖u‖⁴·(u_j/‖u‖)²: a tail of this shape is so much longer far out
    return (1 - FAR_OUT) * even + FAR_OUT * weight / weight.sum()


@dataclass(frozen=True)
class Cut:
    """Where scores are cut, and what is known of the rest.

    Args:
      bound: of scores in gradients.
      moved: the mean of what it takes off, as far as that is put back.
      covariance: of what is left of it.
      inner: bound of scores in their second moments.
      square: E length² of all scores, and of those that are cut at `inner`.
      note: for the certificate.
    """

    bound: float
    moved: Floats
    covariance: Floats
    inner: float
    square: tuple[float, float]
    note: str


def clip_scores(
    asker: Asker,
    near: Frame,
    theta: Floats,
    size: float,
    axis: Floats,
    given: Floats | float = NOTHING,
    aim: Floats | float = 0.0,
    least: float = 0.0,
) -> Cut:
    """The bound of scores and what it takes off: the stages "residuals" and "tail".

    What is cut off is as long as the tail of lengths has it. It points along the mean of u, where residuals are skewed,
    which way is not known; and anywhere else, most where covariates lie far out. Where these tails would move a
    coordinate by more than `SHAPELESS` sampling errors, doubt grows faster than that: a few records decide.

    Args:
      asker: asks.
      near: the frame of the design.
      theta: a rough estimate.
      size: of the response.
      axis: the direction of the mean of u, see `mean_axis`.
      given: what the family needs beside θ and the frame.
      aim: where it points, where that is known, of the length that it has on average beside the mean length that is
        cut off; it may be twice as much or nothing.
      least: of the bound.
    """
    p = len(theta)
    law = lengths(asker, near, theta, size, given)
    tails = tails_of(law)
    sampling = float(np.sqrt(tails.inside / p / asker.n))
    axis = aim * np.ones(p) if np.any(aim) else ALONG * axis
    shape = ACROSS**2 * np.diag(_across(near)) + np.outer(axis, axis)
    part = float(np.sqrt(np.trace(shape) / p))
    b, mean, root = bound_for(tails, asker.noise("final"), sampling, part, least)
    wider = max(root * part / max(SHAPELESS * sampling, 1e-300), 1.0) ** 1.5
    believed = (wider * root) ** 2 * shape
    moved, left, note = _excess(asker, near, theta, b, tails, sampling, given, believed, mean * aim * np.ones(p))
    total = tails.total
    noise = asker.noise(asker.spread or "final")
    inner = min(max(np.sqrt(SQUARES * total / p / max(noise, 1e-300)), tails.start), b)
    return Cut(b, moved, left, inner, (total, total - tails.square(inner)), note)


def score_spread(
    asker: Asker, near: Frame, at: Floats, cut: Cut, shape: Floats, given: Floats | float = NOTHING
) -> tuple[Floats, Floats]:
    """Second moments of scores, about a multiple of `shape`, and their noise: the stage "spread".

    They are asked of scores that are cut nearer than in gradients, or a few long ones would hide in their noise; what
    the cut takes off, the law of lengths has.
    """
    raw, sd = asker.score_moments(at, near.matrix, given, cut.inner)
    noise = sd * cut.inner**2
    found, left = covariance_of(raw * cut.inner**2, shape, noise, shrink=asker.shrink)
    total, inside = cut.square
    wider = total / max(inside, total / 3)
    if asker.spread == "spread":  # scores of records, and not their sums by person
        trace = max(float(np.trace(found)), 1e-300)
        sure, doubt = (KNOWN * total) ** 2, noise**2 * len(found)
        wider = max(total + sure / max(sure + doubt, 1e-300) * (trace + total - inside - total), total / 3) / trace
    return found * wider, left * wider


def _excess(
    asker: Asker,
    near: Frame,
    theta: Floats,
    b: float,
    tails: Tails,
    sampling: float,
    given: Floats | float,
    believed: Floats,
    around: Floats,
) -> tuple[Floats, Floats, str]:
    """Ask for the mean of v − clip(v), up to a number of bounds that noise allows: the stage "tail".

    Before, it is `believed` to have this covariance, `around` that mean. What lies beyond the number of bounds is not
    asked, and stays as it is believed to be. The mean as far as it is put back, the covariance of the rest, a note.
    """
    p, unit = len(theta), np.sqrt(1 + 2 * PART**2)
    noise = asker.noise("tail") * unit
    times = float(np.clip(QUIET * sampling / max(noise * b, 1e-300), NEAREST, FARTHEST))
    answer, sd = asker.ask("tail", "clipped_excess", theta, near.matrix, given, b, times, PART)
    found, doubt = answer[:-2] * unit * times * b, sd * unit * times * b
    all_of, beyond = (tails.excess(np.array([at]))[1][0] for at in (b, (1 + times) * b))
    far = min(beyond / max(all_of, 1e-300), 1.0)
    inside, outside = (1 - far**2) * believed, far**2 * believed
    away = found - (1 - far) * around
    more = float(np.mean(away**2)) - doubt**2 * (1 + 3 * np.sqrt(2 / p)) - float(np.trace(inside)) / p
    inside = inside + max(more, 0.0) * np.eye(p)
    gain = inside @ np.linalg.pinv(inside + doubt**2 * np.eye(p))
    share, share_sd = float(answer[-2]) * unit / PART, sd * unit / PART
    most = min(max(share, 0.0) + 2 * share_sd, 1.0)
    note = (
        f"Scores longer than a private bound are clipped, at most {most:.1%} of them; {np.trace(gain) / p:.0%} of what "
        "the clip takes off is put back, and the intervals allow for the rest as far as the tail that is seen has it."
    )
    left = doubt**2 * (gain + gain.T) / 2 + outside
    return around + gain @ away, left, note
