"""Locates the response by histograms that zoom in on it, and holds the noisy distributions that histograms give.

Three histograms suffice for a declared range a hundred thousand times too wide. Everything that follows is in units of
the located spread. Public arithmetic on answers.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from pgbb._numerics import Floats
from pgbb.methods.calibrated.algebra import monotone, prefixes
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.stages import BINS

LEAST_TAIL = 0.02  # least share that the next histogram leaves out at each end; more where noise hides more
MARGIN = 0.5  # the next histogram extends beyond that by this share of its width, on either side
SPREADS = 3.0  # the size of a response is so many spreads
SURE = 3.0  # the share of present records is at most so many standard deviations of noise above its answer
UNSEEN = 0.15  # noise of the distribution function above which a histogram shows nothing
FINE = 12.0  # heaps are looked for if at least so many bins lie between the outer quantiles
TAILS = 0.1, 0.3  # the spread is read from quantiles with a share between these outside, on either side
HEAPED = 1.0  # roughness above which a response counts as heaped


@dataclass(frozen=True)
class Distribution:
    """A noisy distribution of numbers.

    Args:
      edges: of the bins, (bins + 1,).
      share: of each bin, (bins,).
      sd: standard deviation of the noise of the distribution function.
      total: share of the records (or of their weight) that is in it, as answered.
    """

    edges: Floats
    share: Floats
    sd: float
    total: float = 1.0

    @cached_property
    def _cdf(self) -> Floats:
        return np.concatenate([[0.0], np.cumsum(self.share)]) + 1e-9 * np.arange(len(self.edges))

    @property
    def below(self) -> Floats:
        """The share below each edge, (bins + 1,)."""
        return self._cdf / self._cdf[-1]

    def quantile(self, tau: Floats) -> Floats:
        """Quantiles, interpolated linearly within bins."""
        return np.interp(tau, self.below, self.edges)

    def density(self, tau: Floats, reach: Floats) -> Floats:
        """The mean density between the quantiles τ ± reach, which stay two standard deviations of noise off 0 and 1."""
        reach = np.maximum(reach, 2 * self.sd)
        low = np.maximum(tau - reach, np.minimum(tau / 2, 2 * self.sd))
        high = np.minimum(tau + reach, 1 - np.minimum((1 - tau) / 2, 2 * self.sd))
        gap = self.quantile(high) - self.quantile(low)
        return (high - low) / np.maximum(gap, 1e-6 * (self.edges[-1] - self.edges[0]))

    @property
    def spread(self) -> float:
        """The standard deviation of a normal law with the same outer quantiles, taken as far out as noise allows."""
        tail = float(np.clip(2 * self.sd, *TAILS))
        low, high = self.quantile(np.array([tail, 1 - tail]))
        return float(high - low) / (-2 * float(ndtri(tail)))

    def mean(self, values: Floats) -> float:
        """Mean of a function with these values at the middles of the bins."""
        return float(self.share @ values)

    @property
    def middles(self) -> Floats:
        """Middles of the bins."""
        return (self.edges[1:] + self.edges[:-1]) / 2


@dataclass(frozen=True)
class Located:
    """Where the response lies.

    Args:
      median: of the response (of counts, the mean).
      spread: its standard deviation if it is normal.
      sd: noise of the distribution function from which both were read.
      present: share of the records, or of their weight, that have a value.
      heaped: whether most records seem to share few distinct values.
      none: whether possibly no record has a positive count.
    """

    median: float
    spread: float
    sd: float
    present: float
    heaped: bool = False
    none: bool = False

    @property
    def found(self) -> bool:
        """False where noise hides the response."""
        return self.sd <= UNSEEN and not self.none

    def start(self, terms: int, constant: bool) -> Floats:
        """Coefficients of the fit that predicts the median everywhere; zero without an intercept."""
        theta = np.zeros(terms)
        if constant:
            theta[0] = self.median
        return theta

    def size(self, constant: bool) -> float:
        """The size of the response around that start: `SPREADS` spreads, and more where noise hides them."""
        far = SPREADS * self.spread * (1 + 10 * self.sd)
        return far if constant else far + abs(self.median)


def histogram(asker: Asker, stage: str, theta: Floats, edges: Floats) -> tuple[Distribution, float, float]:
    """Ask for the distribution of y − xᵀθ; returns as `asked_law`."""
    return asked_law(asker, stage, "histogram", edges, theta)


def asked_law(
    asker: Asker, stage: str, statistic: str, edges: Floats, *given: Floats | float
) -> tuple[Distribution, float, float]:
    """Ask for the distribution of the number that a histogram statistic looks up; `given` are its first parameters.

    Returns:
      The distribution, the total share as answered, and the noise of the total.
    """
    a, b = prefixes(BINS)
    answer, sd = asker.ask(stage, statistic, *given, edges, a)
    return distribution(edges, b @ answer, sd * np.sqrt(np.sum(b**2, axis=1)))


def distribution(edges: Floats, below: Floats, sd: Floats) -> tuple[Distribution, float, float]:
    """The distribution from noisy prefix sums of the bins and the noise of each; returns as `asked_law`."""
    noise = float(np.sqrt(np.mean(sd**2)))
    total = max(float(below[-1]), noise, 1e-9)
    share = np.diff(monotone(np.clip(below / total, 0.0, 1.0)), prepend=0.0)
    share[-1] += 1 - share.sum()
    return Distribution(edges, share, noise / total, total), float(below[-1]), float(sd[-1])


def locate(asker: Asker, bottom: float, top: float, terms: int) -> Located:
    """Locate a response in [bottom, top]: the stage "response"."""
    low, high, totals = bottom, top, []
    for _ in range(asker.question("response", "histogram").times):
        found, total, total_sd = histogram(asker, "response", np.zeros(terms), np.linspace(low, high, BINS + 1))
        totals.append(total)
        bin_width, tail = (high - low) / BINS, float(np.clip(2 * found.sd, LEAST_TAIL, 0.25))
        left, right = found.quantile(np.array([tail, 1 - tail]))
        rough = _roughness(found) if right - left > FINE * bin_width else 0.0
        if found.sd > UNSEEN:
            continue
        beyond = MARGIN * max(right - left, bin_width)
        low, high = max(bottom, left - beyond), min(top, right + beyond)
    inner, outer = found.quantile(np.array([[0.2, 0.5, 0.8], [0.05, 0.5, 0.95]]))
    spread = max((inner[2] - inner[0]) / 1.683, bin_width / 2)
    if found.sd < LEAST_TAIL:  # many equal values in the middle would leave no spread
        spread = max(spread, (outer[2] - outer[0]) / 3.29 / 2)
    if found.sd > UNSEEN:
        inner[1], spread = (low + high) / 2, (high - low) / 4
    present, doubt = float(np.mean(totals)), SURE * total_sd / np.sqrt(len(totals))
    asker.usable = present + doubt
    present = 1.0 if present > 1 - doubt else max(present, 0.05)
    return Located(float(inner[1]), spread, found.sd, present, rough > HEAPED)


def _roughness(found: Distribution) -> float:
    """Σ(s − s̄)²/Σs̄² for the shares s of bins and the means s̄ of five neighbours, less what noise adds to it.

    It is about 0 for a smooth density and 2 where one bin in three is filled. What noise adds is taken at its mean plus
    three standard deviations.
    """
    share, bins = found.share, len(found.share)
    smooth = np.convolve(share, np.full(5, 0.2), mode="same")
    own = found.sd**2  # a bin has about the noise of a partial sum
    square = float(np.sum((share - smooth) ** 2)) - bins * own * (1 + 3 * np.sqrt(2 / bins))
    return square / float(np.sum(smooth**2))
