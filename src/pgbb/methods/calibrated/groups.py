"""Means and proportions by groups; each answer is about all groups at once.

A record adds to the numbers of its own group alone, so an answer about all groups has the noise of an answer about one
(parallel composition). Each group has a window of its own, whose length depends on the size of the group and on the
tail of all groups together. Its mean is the mean inside the window, plus what the tail expects beyond it. Where the
declared range goes far beyond that tail, windows and intervals allow for records there that no answer shows. A group
that does not stand out of the noise has the prior as its posterior, and is marked. Public arithmetic on answers.
"""

from dataclasses import dataclass

import numpy as np

from pgbb._numerics import Bools, Floats
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.pareto import Tail, tail_of
from pgbb.methods.calibrated.prior import SPREADS
from pgbb.methods.calibrated.response import Distribution, Located, asked_law, locate
from pgbb.methods.calibrated.stages import BINS
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

ROUGH = 4.0  # half of the first window of all groups, in spreads
BETWEEN = 1.0  # typical difference of the means of groups, in spreads
OUTSIDE = 0.6  # a group may lie beyond a window if its mean there is farther out than this share of half of it
REACH = 4.0  # the window of such a group goes so many times as far from the median as the first one
UNLIKE = 0.5  # prior relative difference of the variance of a group from that of all
SIZE = 0.7  # weight of the sizes of groups beside the means in the last answer
CLEAR = 5.0  # a group counts as seen if its size exceeds so many standard deviations of noise
LOUD = 0.6  # a window is widened while the noise of the last answer stays below this share of the sampling error
DOUBT = 1.0  # relative error of what a window is expected to leave out
NARROWEST, WIDEST = 2.5, 60.0  # half of a window lies between these, in spreads
BEYOND = 6.0  # what lies farther out than so many spreads is asked apart, since a histogram hides few extreme records
UNEVEN = 2.0  # one group may have so many times as much of that as groups have on average
SHOWN = 3.0  # it counts if it exceeds what the tail expects by so many standard deviations of noise
UNSEEN = 8e-5  # share of records that may lie, unseen, at each spread of a range that goes far beyond the tail
FINEST = 0.03  # width of the narrowest bins of residuals, in spreads
LAZY = (
    "The declared range goes far beyond the tail that is seen: a few records out there could move the mean of a group, "
    "and the intervals allow for them. A narrower range that is publicly known to hold makes them narrower."
)


@dataclass(frozen=True)
class Groups:
    """What is known of the groups before the last answer: arrays (groups,) in internal units.

    Args:
      low, high: ends of the windows.
      middle, spread: rough means and standard deviations.
      size, size_sd: shares of the records, or of their weight, and the noise of these.
      outside: which groups may lie beyond the first window. Their middles and spreads are guesses.
      moved, doubt: what the windows take off the means, and the standard deviation of that.
      believed: mean and standard deviation of the prior of every group.
      lazy: whether the range goes so far that records which no answer shows could move a mean.
    """

    low: Floats
    high: Floats
    middle: Floats
    spread: Floats
    size: Floats
    size_sd: float
    outside: Bools
    moved: Floats
    doubt: Floats
    believed: tuple[float, float]
    lazy: bool = False


def fit_groups(asker: Asker, problem: Problem, design: Design) -> tuple[LocalGaussian, list[str]]:
    """Ask all stages of means by groups. Returns the posterior, and notes on small groups and on a long range."""
    bottom, top = (end - problem.shift for end in design.response_bounds)
    proportions = problem.settings["family"] == "bernoulli"
    seen = _anything(problem.dim, bottom, top) if proportions else _rough(asker, problem.dim, bottom, top)
    part = 1.0 if proportions else SIZE
    half, middle = (seen.high - seen.low) / 2, (seen.high + seen.low) / 2
    answer, sd = asker.ask("final", "group_score", middle, half, part)
    answer, sd = answer * np.sqrt(1 + part**2), sd * np.sqrt(1 + part**2)
    size, size_sd = _together(answer[: problem.dim] / part, sd / part, seen.size, seen.size_sd)
    clear = size > max(CLEAR * size_sd, 1e-12)
    inside = middle + half * answer[problem.dim :] / np.where(clear, size, 1.0)
    mean = np.where(clear, inside + seen.moved, seen.middle)
    mean = np.clip(mean, bottom, top)
    still = seen.outside & (np.abs(inside - middle) > OUTSIDE * half) & (seen.low > bottom) & (seen.high < top)
    doubt = np.where(still, top - bottom, seen.doubt)
    noise = np.sqrt((sd * half) ** 2 + (size_sd * (mean - middle)) ** 2 + (size * doubt) ** 2)
    scale = _binomial(mean + problem.shift, size * asker.n) if proportions else seen.spread
    spread = size * scale**2
    if asker.asks("spread"):
        spread = _spread(asker, seen, np.clip(mean, seen.low, seen.high), spread, size)
    posterior = _posterior(mean, size * clear, noise, np.maximum(spread, 0.0) / asker.n, seen, (bottom, top))
    least = CLEAR * size_sd * asker.n
    small = f"A group of fewer than about {least:.0f} records does not stand out of the noise, and is marked."
    if least <= 0:
        return posterior, []
    return posterior, [small, LAZY] if seen.lazy else [small]


def _anything(groups: int, bottom: float, top: float) -> Groups:
    """Groups for proportions: the window is the whole range, and nothing needs to be asked."""
    one, half = np.ones(groups), (top - bottom) / 2
    middle, none = (bottom + top) / 2 * one, 0 * one
    believed = float(middle[0]), half
    return Groups(bottom * one, top * one, middle, half * one, none, np.inf, none > 0, none, none, believed)


def _rough(asker: Asker, groups: int, bottom: float, top: float) -> Groups:
    """Ask for rough sizes, means and variances of all groups and for the tail; choose their windows."""
    at = locate(asker, bottom, top, groups)
    rough = _rough_moments(asker, groups, at, bottom, top)
    middle, spread = rough.middle, rough.spread
    ends = _ends(asker, middle, spread, max(top - bottom, 1e-30))
    noise = asker.noise("final") * np.sqrt(1 + SIZE**2) / rough.safe
    rooms = np.stack([(top - middle) / spread, (middle - bottom) / spread])
    sampling = 1 / np.sqrt(asker.n * rough.safe)
    lazy = any(np.any(end.unseen(NARROWEST, room) > sampling) for end, room in zip(ends, rooms, strict=True))
    wide = _window(ends, rooms, noise, sampling)
    low, high = middle - np.minimum(wide, rooms[1]) * spread, middle + np.minimum(wide, rooms[0]) * spread
    above, below = (end.at(wide, room) for end, room in zip(ends, rooms, strict=True))
    moved, doubt = spread * (above - below)[0], spread * (above + below)[1]
    believed = at.median, SPREADS * max(rough.common, at.spread)  # groups may lie as far apart as records do
    out, end = rough.outside, 2 * middle - at.median
    low, high = np.where(out, np.minimum(at.median, end), low), np.where(out, np.maximum(at.median, end), high)
    moved, doubt = np.where(out, 0.0, moved), np.where(out, 0.0, doubt)
    return Groups(low, high, middle, spread, rough.size, rough.size_sd, out, moved, doubt, believed, lazy)


@dataclass(frozen=True)
class _Rough:
    """Sizes of the groups and their noise, rough means and standard deviations, and the spread of all together.

    A group that may lie `outside` the first window has a window from the median on, and is taken to fill it.
    """

    size: Floats
    size_sd: float
    middle: Floats
    spread: Floats
    common: float
    outside: Bools

    @property
    def safe(self) -> Floats:
        """Sizes to divide by: at least two standard deviations of their noise."""
        return np.maximum(self.size, max(2 * self.size_sd, 1e-12))


def _rough_moments(asker: Asker, groups: int, at: Located, bottom: float, top: float) -> _Rough:
    """Ask the stage "groups", and shrink means and variances of the groups to what all have in common."""
    half = ROUGH * at.spread * (1 + 4 * at.sd)
    answer, sd = asker.ask("groups", "group_moments", np.full(groups, at.median), np.full(groups, half))
    size, first, second = answer.reshape(3, groups) * np.sqrt(3.0)
    size_sd = sd * np.sqrt(3.0)
    safe = np.maximum(size, max(2 * size_sd, 1e-12))
    noise, between = half * size_sd / safe, (BETWEEN * at.spread) ** 2
    middle = np.clip(at.median + half * first / safe * between / (between + noise**2), bottom, top)
    weight = np.maximum(size, 0.0) / max(float(np.sum(np.maximum(size, 0.0))), 1e-12)
    square = half**2 * second / safe - (half * first / safe) ** 2
    common = max(float(weight @ square), (at.spread / 2) ** 2)
    doubt = (half * noise / common) ** 2
    spread = np.sqrt(common * np.clip(1 + (square / common - 1) * UNLIKE**2 / (UNLIKE**2 + doubt), 0.1, 10.0))
    end = np.clip(at.median + np.sign(first) * REACH * half, bottom, top)
    length = np.abs(end - at.median)
    outside = (np.abs(first / safe) > OUTSIDE + size_sd / safe / 2) & (length > half)
    middle = np.where(outside, (at.median + end) / 2, middle)
    spread = np.where(outside, length / (2 * NARROWEST), spread)
    return _Rough(size, size_sd, middle, spread, float(np.sqrt(common)), outside)


@dataclass(frozen=True)
class End:
    """One end of the distribution of residuals, in spreads.

    Args:
      tail: the tail of all groups together.
      extreme: E(r − `BEYOND`)₊ where it exceeds what the tail expects, else 0. Most of it may be in one group.
      farthest: how far out records may lie.
      reaches: how far out the tail expects the farthest of all records.
    """

    tail: Tail
    extreme: float
    farthest: float
    reaches: float

    def at(self, bound: Floats, room: Floats) -> Floats:
        """E(r − bound)₊ by the tail and its possible error, (2, …); 0 where the range ends at the bound (no `room`)."""
        bound, room = np.broadcast_arrays(bound, room)
        mean = self.tail.excess(self.tail.beyond(bound))
        left = UNEVEN * self.extreme * np.clip(1 - (bound - BEYOND) / self.farthest, 0.0, 1.0)
        doubt = np.maximum.reduce([DOUBT * mean, left, self.unseen(bound, room)])
        result: Floats = np.stack([mean, doubt]) * (bound < room)
        return result

    def unseen(self, bound: Floats | float, room: Floats) -> Floats:
        """E(r − bound)₊ of records that no answer shows.

        They lie evenly over the range: in full if it goes twice as far as the tail, not at all if the tail fills it.
        """
        far = np.minimum(room, self.farthest)
        result: Floats = UNSEEN * np.clip(far / self.reaches - 1, 0.0, 1.0) * np.maximum(far - bound, 0.0) ** 2 / 2
        return result


def _ends(asker: Asker, middle: Floats, spread: Floats, length: float) -> tuple[End, End]:
    """Ask the stage "residuals": the upper and the lower end of the residuals of all groups together."""
    far = length / float(spread.min())
    edges = np.sinh(np.linspace(-1, 1, BINS + 1) * np.arcsinh(far / FINEST)) * FINEST
    law, _, _ = asked_law(asker, "residuals", "group_residuals", edges, middle, spread)
    most = min(far, WIDEST)
    answer, sd = asker.ask("residuals", "group_excess", middle, spread, BEYOND, most)
    mirrored = Distribution(-law.edges[::-1], law.share[::-1], law.sd)
    ends = []
    for tail, found in zip((tail_of(law), tail_of(mirrored)), answer, strict=True):
        expected = float(tail.excess(tail.beyond(np.array(BEYOND))) + tail.share * max(tail.start - BEYOND, 0.0))
        extreme = float(found) * most if found * most - expected > SHOWN * sd * most else 0.0
        reaches = float(tail.lengths(np.array(min(1 / asker.n, tail.share))))
        ends.append(End(tail, extreme, most, reaches))
    return ends[0], ends[1]


def _window(ends: tuple[End, End], rooms: Floats, noise: Floats, sampling: Floats) -> Floats:
    """How far the window of each group extends, in its spreads, and at most to the ends of the range (`rooms`).

    It minimises the sum of squares of noise and of what is left out, and is wider while the noise stays at `LOUD`.
    """
    first = max(NARROWEST, *(end.tail.start for end in ends))
    bounds = np.geomspace(first, max(WIDEST + BEYOND, 2 * first), 161)
    up, down = rooms[..., None]
    loud = noise[:, None] * (np.minimum(bounds, up) + np.minimum(bounds, down)) / 2
    doubt = ends[0].at(bounds[None], up)[1] + ends[1].at(bounds[None], down)[1]
    best = np.argmin(loud**2 + doubt**2, axis=1)
    quiet = np.sum(loud <= LOUD * sampling[:, None], axis=1) - 1
    return bounds[np.maximum(best, quiet)]


def _together(one: Floats, sd: float, other: Floats, other_sd: float) -> tuple[Floats, float]:
    """Two answers about the same numbers, combined by precision, and the noise of the result."""
    if sd == 0 or np.isinf(other_sd):
        return one, sd
    weight = other_sd**2 / (sd**2 + other_sd**2)
    return weight * one + (1 - weight) * other, float(np.sqrt(weight) * sd)


def _binomial(mean: Floats, count: Floats) -> Floats:
    """√(p(1 − p)) of proportions with two records more, one of each kind: few records do not show p = 0."""
    count = np.maximum(count, 1.0)
    p = np.clip((count * np.clip(mean, 0.0, 1.0) + 1) / (count + 2), 0.0, 1.0)
    result: Floats = np.sqrt(p * (1 - p))
    return result


def _spread(asker: Asker, seen: Groups, mean: Floats, expected: Floats, size: Floats) -> Floats:
    """Ask the stage "spread": E w²(y − mean)² in each group, shrunk to what all groups have in common."""
    half = np.maximum(np.maximum(seen.high - mean, mean - seen.low), 1e-30)
    answer, sd = asker.ask("spread", "group_spread", mean, half)
    found, noise = answer * half**2, sd * half**2
    known = ~seen.outside | seen.outside.all()
    wanted = float(np.sum(np.maximum(expected[known], 0.0)))
    factor = float(np.sum(found[known])) / max(wanted, 1e-300)  # weights, tails
    target = np.clip(factor, 0.02, 4.0) * np.maximum(expected, 0.0)
    keep = (UNLIKE * target) ** 2 / np.maximum((UNLIKE * target) ** 2 + noise**2, 1e-300)
    result: Floats = np.maximum(target + keep * (found - target), 0.1 * target)
    return result


def _posterior(
    mean: Floats, size: Floats, noise: Floats, sampling: Floats, seen: Groups, ends: tuple[float, float]
) -> LocalGaussian:
    """A normal posterior for each group, combined with the prior; the prior itself where the size is 0.

    The frame scales the groups so that all have the same privacy noise, since a file holds one number for it.
    """
    unit = np.ones(len(mean))
    privacy = float(np.max(noise))
    if privacy > 0:
        unit = privacy / np.maximum(noise, 1e-9 * privacy)
    center, prior = seen.believed
    precision = size**2 / np.maximum(noise**2 + sampling, 1e-300)
    total = precision + prior**-2
    best = (precision * mean + prior**-2 * center) / total
    drawn = unit**2 * np.maximum(sampling, 1e-300) + privacy**2
    bend = np.sqrt(unit**2 * total * drawn)
    groups = len(mean)
    return LocalGaussian(
        center=mean[None],
        gradient=(-bend * (best - mean) / unit)[None],
        frame=np.diag(unit),
        curvature=np.diag(bend)[None],
        curvature_sd=np.zeros((1, groups * (groups + 1) // 2)),
        privacy=np.array([[privacy]]),
        sampling=np.diag(unit**2 * np.maximum(sampling, 1e-300)),
        sampling_sd=np.zeros(groups * (groups + 1) // 2),
        free=np.zeros((1, groups, groups)),
        low=np.full(groups, ends[0]),
        high=np.full(groups, ends[1]),
        prior=prior / unit,
    )
