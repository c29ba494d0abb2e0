"""The mean of a column by the default method: it is located, and its mean is asked in a window around the median.

What lies beyond the window is estimated from the tail of a histogram.
"""

import math
from dataclasses import dataclass

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.pareto import Lengths, Tails, tails_of
from pgbb.methods.calibrated.response import Distribution, Located, histogram, locate
from pgbb.methods.calibrated.stages import BINS
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

PRIOR = 0.5  # prior relative difference of the variance from the square of the located spread
HINT = 0.5  # prior difference, in logarithms, of the located spread from the scale that the model was given
CLOSEST, FARTHEST = 3.0, 30.0  # half of the window lies between these, in spreads
LOUD = 0.4  # the window is widened while the noise of the last answer stays below this share of the sampling error
FINEST = 0.1  # width of the narrowest bins of the histogram of the column, in spreads
CUT = 0.02  # if more than this share lies beyond the window, the window is the declared range
DOUBT = 0.7  # relative error of what lies beyond the window
UNCLEAR = 0.5  # share of records that may lie beyond the window unseen, in units of the noise of that share

FARTHER = 2.0  # a range goes far beyond a tail if it goes so many times as far as the longest of n lengths
LAZY = (
    "The declared range goes far beyond the tail that is seen. A few records out there, such as wrong entries, would "
    "move the mean, and the interval does not allow for them."
)

Window = tuple[float, float]


def half_window(spread: float, n: int, noise: float) -> float:
    """Half of the window of the last answer: the widest whose noise stays at `LOUD` of the sampling error, in bounds.

    >>> round(half_window(2.0, 10_000, 1e-3), 2), round(half_window(2.0, 10_000, 1e-2), 2)
    (8.0, 6.0)
    """
    wanted = LOUD * spread / (math.sqrt(n) * max(noise, 1e-12))
    return min(max(wanted, CLOSEST * spread), FARTHEST * spread)


def distances(asker: Asker, at: Located, bottom: float, top: float) -> tuple[Lengths, float]:
    """Ask the stage "tails": the distribution of |y − median| over the whole range, and the side of its tail.

    The side is the share of the tail above the median less that below, over the whole tail.
    """
    unit, far = max(FINEST * at.spread, 1e-9 * (top - bottom)), max(top - at.median, at.median - bottom)
    left, right = np.arcsinh((bottom - at.median) / unit), np.arcsinh((top - at.median) / unit)
    places = at.median + np.sinh(np.linspace(left, right, BINS + 1)) * unit
    law, _, _ = histogram(asker, "tails", np.zeros(1), places)
    edges = np.sinh(np.linspace(0, np.arcsinh(far / unit), BINS + 1)) * unit
    low, high = (np.interp(at.median + side * edges, law.edges, law.below) for side in (-1, 1))
    found = Lengths(Distribution(edges, np.diff(high - low), law.sd), far)
    above, below = (float(np.interp(found.tail.start, edges, side)) for side in (1 - high, low))
    return found, (above - below) / max(above + below, found.tail.share)


def _cut(tails: Tails, far: float) -> tuple[Floats, Floats]:
    """For each of the possible tails, the share beyond `far` and E(l − far)₊."""
    t = far * np.geomspace(1, max(tails.longest / far, 1.0), 65)
    shares = np.stack([tail.beyond(t) for tail in tails.each])
    return shares[:, 0], np.asarray(np.trapezoid(shares, t, axis=1))


def _by_person(asker: Asker, mean: float, far: float, variance: float) -> tuple[float, float]:
    """n times the variance of the mean by person, and its noise; `variance` is that of independent records.

    It is shrunk to the middle between no correlation and full correlation of the g records of a person.
    """
    raw, noise = asker.score_moments(mean - far, mean + far)
    found, noise = float(raw[0, 0]) * far**2, noise * far**2
    most = (asker.group_size - 1) / 2 * variance
    keep = most**2 / (most**2 + noise**2)
    return max(variance + most + keep * (found - variance - most), 0.2 * variance), float(np.sqrt(keep) * noise)


@dataclass(frozen=True)
class _Place:
    """The declared range of a column, and its located median."""

    bottom: float
    top: float
    middle: float

    def window(self, half: float) -> Window:
        """The ends of a window of so much on either side, one-sided where the range ends."""
        reach = max(half, 2 * half - min(self.top - self.middle, self.middle - self.bottom))
        return max(self.bottom, self.middle - reach), min(self.top, self.middle + reach)

    def farthest(self, ends: Window) -> float:
        """The larger distance of an end from the median."""
        return max(ends[1] - self.middle, self.middle - ends[0])


@dataclass(frozen=True)
class _Beyond:
    """What records beyond the window add to the mean, the standard deviation of that, and what to the variance."""

    moved: float = 0.0
    doubt: float = 0.0
    wider: float = 0.0


def _window(asker: Asker, place: _Place, spread: float, lengths: Lengths, tails: Tails) -> tuple[Window, float]:
    """The window of the last answer, and the spread of the column inside it.

    It balances the noise of that answer against what the possible tails have beyond, and is wider while noise is small.
    """
    final = asker.noise("final")

    def cost(half: float) -> float:
        ends = place.window(half)
        cut = _cut(tails, place.farthest(ends))[1]
        return float(np.hypot(final * (ends[1] - ends[0]) / 2, DOUBT * tails.chance @ cut))

    length = place.top - place.bottom
    halves = np.geomspace(CLOSEST * spread, max(length, 2 * CLOSEST * spread), 80)
    best = float(halves[np.argmin([cost(half) for half in halves])]) if final > 0 else length
    typical = math.sqrt(lengths.law.mean(np.minimum(lengths.law.middles, best) ** 2))
    spread = max(spread, typical)
    return place.window(max(best, half_window(spread, asker.n, final))), spread


def _beyond(share: float, noise: float, far: float, side: float, lengths: Lengths, tails: Tails) -> _Beyond:
    """What lies beyond `far`, by its share as answered and by the tails that noise allows.

    It is put back on the `side` where it is seen; `noise` is that of the share.
    """
    shares, cut = _cut(tails, far)
    expected = float(tails.chance @ shares)
    mean = float(tails.chance @ cut) / max(expected, 1e-300)  # how far beyond such records lie
    prior = max(expected**2, share**2 - noise**2)
    keep = prior / (prior + noise**2)
    left_out = max(expected + keep * (share - expected), 0.0)
    typical = float(tails.chance @ (cut / np.maximum(shares, 1e-300)))
    doubt = float(np.hypot(left_out * (1 - (1 - DOUBT) * abs(side)) * mean, UNCLEAR * noise * typical))
    read = max(float(lengths.beyond(np.array(far))), 1e-300)
    wider = left_out / read * (2 * far * lengths.excess(far)[0] + lengths.excess(far)[1])
    return _Beyond(side * left_out * mean, doubt, wider)


def fit_mean(asker: Asker, problem: Problem) -> tuple[LocalGaussian, list[str]]:
    """Ask all stages of a mean. Returns the posterior, and notes for the certificate.

    The window lies around the located median. The scale of a Gaussian mean is a hint, for budgets that show little of
    the spread. A record beyond the window counts at its end, and the number of such records is asked. If they lie on
    one side, what they add is put back, as the possible tails have it; the error of that is in the interval. If they
    are too many, the window is the declared range.
    """
    bottom, top = float(problem.settings["low"]), float(problem.settings["high"])
    low, high = problem.center[0] - problem.radius[0], problem.center[0] + problem.radius[0]
    at = locate(asker, bottom, top, 1)
    present, middle, spread = at.present, at.median, at.spread
    if problem.settings["family"] == "gaussian" and problem.settings["scale"] is not None:
        trust = HINT**2 / (HINT**2 + (4 * at.sd) ** 2)
        spread = spread**trust * float(problem.settings["scale"]) ** (1 - trust)
    lengths, side = distances(asker, at, bottom, top)
    place, tails = _Place(bottom, top, middle), tails_of(lengths.law)
    ends, spread = _window(asker, place, spread, lengths, tails)
    answer, sd = asker.ask("spread", "mean_spread", *ends, middle)
    share, noise = (present - answer[0] * np.sqrt(2)) / 2, sd / np.sqrt(2)
    far, beyond = place.farthest(ends), _Beyond()
    square, square_sd = far**2 * (present + answer[1] * np.sqrt(2)) / 2, far**2 * sd / np.sqrt(2)
    if ends != (bottom, top) and share > 3 * noise + CUT:  # there is more than the histogram has shown
        ends = bottom, top
        square += share * (max(top - middle, middle - bottom) ** 2 - far**2)  # at most
    elif ends != (bottom, top):
        beyond = _beyond(share, noise, far, side, lengths, tails)
    answer, sd = asker.ask("final", "mean_score", *ends)
    half = (ends[1] - ends[0]) / 2
    gradient = present * (middle - (ends[0] + ends[1]) / 2) - half * answer - beyond.moved
    square = square - float(gradient[0]) ** 2 / present
    variance, variance_sd = _shrunk_variance(square, square_sd, present * spread**2)
    variance = variance + beyond.wider
    if asker.spread == "persons":
        variance, variance_sd = _by_person(asker, middle - float(gradient[0]) / present, far, variance)
    noise_sd = float(np.hypot(sd * half, beyond.doubt))
    reached = max(far, float(lengths.tail.lengths(np.array(1 / asker.n))))
    posterior = LocalGaussian(
        center=np.array([[middle]]),
        gradient=gradient[None],
        frame=np.eye(1),
        curvature=np.array([[[present]]]),
        curvature_sd=np.zeros((1, 1)),
        privacy=np.array([[noise_sd]]),
        sampling=np.array([[variance]]) / asker.n,
        sampling_sd=np.array([variance_sd]) / asker.n,
        free=np.array([[[1.0 if noise_sd > (high - low) / 4 else 0.0]]]),
        low=np.array([low]),
        high=np.array([high]),
    )
    return posterior, [LAZY] if ends != (bottom, top) and lengths.longest > FARTHER * reached else []


def _shrunk_variance(square: float, sd: float, expected: float) -> tuple[float, float]:
    """A noisy variance shrunk to the one that the located spread expects, and the noise left in it."""
    doubt = max((PRIOR * expected) ** 2, (square - expected) ** 2 - sd**2)
    trust = doubt / (doubt + sd**2)
    return max(trust * square + (1 - trust) * expected, 0.05 * expected), float(np.sqrt(trust) * sd)
