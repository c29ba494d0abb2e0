"""Where a median regression lies, roughly, and the law of its residuals: where quantile and Huber regression start.

The median is found by Newton steps on the smoothed absolute loss whose
bandwidth starts at the public half-range of the response and halves: each
step then moves within reach of its quadratic.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated.algebra import limited, monotone, prefixes
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.questions import BINS
from pgbb.model.models import Problem

Floats = NDArray[np.float64]

__all__ = ["PEAK", "Residuals", "half_range", "rough_median"]

PEAK = 0.39894228  # of the standard normal density


@dataclass(frozen=True)
class Residuals:
    """A noisy distribution of residuals: shares of bins, and the noise of their partial sums."""

    edges: Floats
    share: Floats
    sd: float

    @cached_property
    def _cdf(self) -> Floats:
        return np.concatenate([[0.0], np.cumsum(self.share)]) + 1e-9 * np.arange(len(self.edges))

    def quantile(self, tau: Floats) -> Floats:
        """Quantiles, linear within bins."""
        return np.interp(tau, self._cdf / self._cdf[-1], self.edges)

    def density(self, tau: Floats, reach: Floats) -> Floats:
        """What lies between the quantiles τ ± reach over their distance; never beyond what noise lets be seen."""
        reach = np.maximum(reach, 2 * self.sd)
        low = np.maximum(tau - reach, np.minimum(tau / 2, 2 * self.sd))
        high = np.minimum(tau + reach, 1 - np.minimum((1 - tau) / 2, 2 * self.sd))
        gap = self.quantile(high) - self.quantile(low)
        return (high - low) / np.maximum(gap, 1e-6 * (self.edges[-1] - self.edges[0]))

    def mean(self, values: Floats) -> float:
        """Mean of a function given at the middles of the bins."""
        return float(self.share @ values)

    @property
    def middles(self) -> Floats:
        """Middles of the bins."""
        return (self.edges[1:] + self.edges[:-1]) / 2


def half_range(problem: Problem) -> float:
    """The shifted response lies within this distance of 0, by its declared range."""
    assert problem.design is not None
    return max(abs(end - problem.shift) for end in problem.design.response_bounds)


def rough_median(asker: Asker, frame: Frame, half: float, radius: Floats) -> tuple[Floats, Residuals]:
    """Coefficients and residuals of a median regression: the stages "median" and "residuals".

    Args:
      asker: asks.
      frame: of the design.
      half: the response lies within this distance of 0.
      radius: coefficients lie within this distance of 0.
    """
    solid = frame.solid
    theta, h = np.zeros(len(radius)), half / 2
    for _ in range(asker.question("median", "median").times):
        answer, sd = asker.ask("median", "median", theta, h, frame.matrix)
        reached, window_sd = asker.ask("median", "window", theta, h)
        density = max((1 + reached[0]) / 2, window_sd, 0.05) * PEAK / h
        step = np.linalg.solve(solid, answer / 2) / density
        step = limited(step, solid, 1.5 * h, (sd / 2 / density) ** 2 * float(np.trace(np.linalg.inv(solid))))
        theta = np.clip(theta - frame.matrix @ step, -radius, radius)
        spread = PEAK / density  # of residuals and kernel together
        h = min(h, max(h / 2, 0.3 * np.sqrt(max(spread**2 - h**2, 0.0))))
    unit = max(h, 1e-3 * half)
    edges = np.sinh(np.linspace(-1, 1, BINS + 1) * np.arcsinh(2 * half / unit)) * unit
    a, b = prefixes(BINS)
    answer, sd = asker.ask("residuals", "histogram", theta, edges, a)
    below = b @ answer
    noise = sd * float(np.sqrt(np.mean(np.sum(b**2, axis=1))))
    total = max(float(below[-1]), noise, 1e-9)
    share = np.diff(monotone(np.clip(below / total, 0.0, 1.0)), prepend=0.0)
    share[-1] += 1 - share.sum()
    return theta, Residuals(edges, share, noise / total)
