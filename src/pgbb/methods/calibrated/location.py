"""Finding the neighbourhood: second moments of the design, a rough median regression, and a histogram of residuals.

Serves quantile and Huber regression. The median is found by Newton steps on
the smoothed absolute loss whose bandwidth starts at the public half-range of
the response and halves: each step then moves within reach of its quadratic.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated import statistics as ask_for
from pgbb.methods.calibrated.algebra import clear_of, monotone, prefixes, shrink, unpack
from pgbb.methods.calibrated.estimate import Cut, raised
from pgbb.methods.calibrated.ingredients import uses
from pgbb.methods.calibrated.plan import squared_reach
from pgbb.release.local_gaussian import triangle

Floats = NDArray[np.float64]

__all__ = ["PEAK", "Neighbourhood", "Residuals", "design_frame", "find", "limited"]

PEAK = 0.39894228  # of the standard normal density
CUT = 1 / 3  # part of the last answer on moments that asks how many records ω weights down; its noise grows by 5 %


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


@dataclass(frozen=True)
class Neighbourhood:
    """Where the median regression lies, roughly: frame, E ωuuᵀ in it, coefficients and residuals."""

    frame: Floats
    moment: Floats
    moment_sd: Floats
    solid: Floats  # the moment with eigenvalues raised to its noise
    theta: Floats
    residuals: Residuals
    cut: Cut


def limited(step: Floats, metric: Floats, most: Any, noise: Any) -> Floats:
    """A step in the frame, (…, p), kept only as far as it stands out of its noise, and no farther than `most`.

    Its squared length in the metric, which is how far it moves fitted values,
    exceeds the expected square `noise` of its own noise by what is worth moving:
    the factor 1 − noise/length² (James and Stein) lets steps die out at the target.
    """
    square = np.maximum(np.sum((step @ metric) * step, axis=-1), 1e-300)
    factor = np.maximum(1 - noise / square, 0.0)
    return step * (factor / np.maximum(factor * np.sqrt(square) / most, 1.0))[..., None]


def design_frame(sums: Any, p: int, bound: float) -> tuple[Floats, Floats, Floats, Cut]:
    """Coordinates u = xF in which E xxᵀ is about I/R² and most ‖u‖ ≤ 1; E ωuuᵀ there, its noise, and what ω cuts.

    Whitening by rounds, as in CoinPress (Biswas, Dong, Kamath, Ullman 2020): the first
    answer is bounded by the declared box, the later ones by R², some multiple of the
    typical square, so that directions in which the covariates hardly vary are
    seen at their own scale. An eigenvalue below its noise is raised to it, and such a
    direction is magnified again in the next round. A direction that stands clear of
    noise and yet stays below half of 1/R² is one that the weights ω cut: a rare
    category. Magnifying it would only cut more, so it is scaled back until ω
    leaves it alone, and then left as it is.
    """
    frame, farthest = np.eye(p) / bound, squared_reach(sums.n, p, sums.noise("final"))
    seen, done = np.ones(p, bool), np.zeros(p, bool)  # of the frame's axes
    for turn in range(sums.left("moments") - 1 if uses("whitening") else 0):
        answer, sd = sums.ask("moments", ask_for.moment, frame, power=0)
        found, left = _moment(answer, sd, seen)
        values, axes = np.linalg.eigh(found)
        floor = np.maximum(clear_of(axes, left), 1e-12)
        scale = 1 / np.sqrt(np.maximum(values, floor))
        level = np.sqrt(farthest)  # leaves a direction as it is
        rare = (turn > 0) & (_share(seen, axes) > 0.5) & (values > floor) & (values * level**2 < 0.5)
        scale = np.where(rare, level * np.sqrt(np.maximum(values, 0.0)) * level, scale)
        scale = np.where(_share(done, axes) > 0.5, level, scale)
        done = rare | (_share(done, axes) > 0.5)
        seen = values > floor
        frame = frame @ (axes * scale)
        box = float(np.sum(np.abs(frame @ frame.T)))  # ‖xF‖² is no larger: entries of x lie in [−1, 1]
        farthest = min(farthest, box)
        frame = frame / np.sqrt(farthest)
    answer, sd = sums.ask("moments", ask_for.moment_and_cut, frame, CUT)
    unit = np.sqrt(1 + CUT**2)
    found, left = _moment(answer[:-1] * unit, sd * unit, seen)
    return frame, raised(found, left, 0.3), left, Cut(float(answer[-1]) * unit / CUT, sd * unit / CUT)


def _share(chosen: Any, axes: Floats) -> Floats:
    """How much of each axis lies in the span of the chosen coordinates."""
    return np.sum(axes[chosen] ** 2, axis=0)


def _moment(answer: Floats, sd: float, seen: Any) -> tuple[Floats, Floats]:
    """E ωuuᵀ, and the noise left in it: axes that were seen are pulled apart, toward no correlation.

    The diagonal is what the answer says. So is all that belongs to an axis that was not seen: of its correlations
    nothing is known, and to pull them to zero would make up variance where there may be none.
    """
    p = len(seen)
    raw = unpack(answer, p)
    raw[np.diag_indices(p)] = np.maximum(np.diag(raw), max(sd, 1e-9))
    i, j, _ = triangle(p)
    return shrink(raw, np.diag(np.diag(raw)), sd, pulled=(i != j) & seen[i] & seen[j])


def find(sums: Any, p: int, bound: float, half: float, radius: Floats, steps: int) -> Neighbourhood:
    """Ask the stages "moments", "median" (2·steps answers) and "residuals"."""
    frame, moment, moment_sd, cut = design_frame(sums, p, bound)
    solid = raised(moment, moment_sd)
    theta, h = np.zeros(p), half / 2
    for _ in range(steps):
        answer, sd = sums.ask("median", ask_for.median, theta, h, frame)
        reached, window_sd = sums.ask("median", ask_for.window, theta, h, power=0)
        density = max((1 + reached[0]) / 2, window_sd, 0.05) * PEAK / h
        step = np.linalg.solve(solid, answer / 2) / density
        step = limited(step, solid, 1.5 * h, (sd / 2 / density) ** 2 * float(np.trace(np.linalg.inv(solid))))
        theta = np.clip(theta - frame @ step, -radius, radius)
        spread = PEAK / density  # of residuals and kernel together
        h = min(h, max(h / 2, 0.3 * np.sqrt(max(spread**2 - h**2, 0.0))))
    unit = max(h, 1e-3 * half)
    edges = np.sinh(np.linspace(-1, 1, ask_for.BINS + 1) * np.arcsinh(2 * half / unit)) * unit
    a, b = prefixes(ask_for.BINS)
    answer, sd = sums.ask("residuals", ask_for.histogram, theta, edges, a)
    below = b @ answer
    noise = sd * float(np.sqrt(np.mean(np.sum(b**2, axis=1))))
    total = max(float(below[-1]), noise, 1e-9)
    share = np.diff(monotone(np.clip(below / total, 0.0, 1.0)), prepend=0.0)
    share[-1] += 1 - share.sum()
    return Neighbourhood(frame, moment, moment_sd, solid, theta, Residuals(edges, share, noise / total), cut)
