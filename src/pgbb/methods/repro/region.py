"""Repro samples of a simulator of the user's own: Mahalanobis depth of the release among simulations, profiled.

The joint region at level 1 − error holds the θ at which at least the share `error` of R simulated releases, and the
release itself, are no deeper than the release. An interval is its projection: the nuisance parameters are searched for
a point of the region, so that the intervals of all parameters hold together.
"""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pgbb._numerics import Floats
from pgbb.methods.repro.intervals import Share

STARTS, SEARCHES = 24, 4  # points of the box that are tried, and the number of them from which a search starts
DEEP = 0.5  # a share at which the release is deep enough, and the search ends
EVALUATIONS = 30  # most evaluations of a search, for each parameter


class _FoundError(Exception):
    """The search has found what it looks for."""


class Region:
    """The parameters at which the released statistic is not far out.

    Args:
      total: the release.
      simulate: θ → (R, d) simulated releases, from the same random numbers for every θ.
      low, high: the box of θ.
      rng: for the points from which the search begins.
    """

    def __init__(
        self, total: Floats, simulate: Callable[[Floats], Floats], low: Floats, high: Floats, rng: np.random.Generator
    ) -> None:
        self._total, self._simulate, self._low, self._high = total, simulate, low, high
        starts = [(low + high) / 2, *rng.uniform(low, high, (STARTS, len(low)))]
        starts.sort(key=lambda theta: self._rank(theta)[1])
        self.centre, self.best = starts[0], 0.0
        for start in starts[:SEARCHES]:
            found, share = self._search(start, np.arange(len(low)), 2.0)
            if share > self.best:
                self.centre, self.best = found, share
            if self.best > DEEP:
                break

    def _rank(self, theta: Floats) -> tuple[float, float]:
        """The share of points no deeper than the release, itself among them, and its squared distance."""
        points = np.vstack([self._simulate(theta), self._total])
        centred = points - points.mean(axis=0)
        covariance = np.atleast_2d(np.cov(centred.T))
        covariance += np.eye(len(covariance)) * 1e-12 * max(float(np.trace(covariance)), 1e-300)
        distances = np.einsum("ri,ri->r", centred, np.linalg.solve(covariance, centred.T).T)
        return float(np.mean(distances >= distances[-1])), float(distances[-1])

    def _search(self, start: Floats, free: NDArray[np.int64], enough: float) -> tuple[Floats, float]:
        """Move the free parameters to where the release is deepest, or to the first point with a share above enough."""
        best: tuple[float, float, Floats] = (-1.0, -np.inf, start)

        def distance(values: Floats) -> float:
            nonlocal best
            theta = start.copy()
            theta[free] = self._folded(values, free)
            share, far = self._rank(theta)
            best = max(best, (share, -far, theta), key=lambda found: found[:2])
            if share > enough:
                raise _FoundError
            return far

        width = (self._high - self._low)[free]
        near = np.where(start[free] + 0.05 * width > self._high[free], -0.05, 0.05) * width
        options = {
            "maxfev": EVALUATIONS * len(free), "xatol": 0, "fatol": 1e-3,
            "initial_simplex": np.vstack([start[free], start[free] + np.diag(near)]),
        }  # fmt: skip
        with suppress(_FoundError):
            minimize(distance, start[free], method="Nelder-Mead", options=options)
        return best[2], best[0]

    def _folded(self, values: Floats, free: NDArray[np.int64]) -> Floats:
        """Values beyond the box, mirrored at its ends: clipped ones would make a plateau on which a search stays."""
        low, width = self._low[free], (self._high - self._low)[free]
        away = np.mod(values - low, 2 * width)
        return np.asarray(low + np.minimum(away, 2 * width - away))

    def parameter(self, which: int) -> Share:
        """The largest share at values of this parameter, over the others."""
        free = np.delete(np.arange(len(self._low)), which)
        last = self.centre

        def share(value: float, enough: float) -> float:
            nonlocal last
            start = last.copy()
            start[which] = value
            found, most = start, self._rank(start)[0]
            if most <= enough and len(free):
                found, most = self._search(start, free, enough)
            if most > enough:
                last = found
            return most

        return share
