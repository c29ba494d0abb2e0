"""Finds the ends of confidence intervals by bisection, and makes draws that have them as central intervals."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtri

from pgbb._numerics import Floats

Share = Callable[[float, float], float]
"""(value, enough) → the share of simulations as far out as the release; anything above `enough` will do for more.

The interval at level 1 − error holds the values with a share above the error.
"""
ERRORS = (0.5, 0.2, 0.1, 0.05, 0.01)
"""1 − level of the intervals that are searched for; those between are interpolated on the scale of normal quantiles."""
NEAR = 0.01  # how far beyond an end may be placed, relative to its distance from the centre


def ends(share: Share, centre: float, step: float, limit: float, errors: Sequence[float]) -> Floats:
    """The end of the interval at each of the falling errors, on the side of the centre on which the limit lies.

    An end is the nearest value tried that does not belong to the interval, or the limit of the box: never too near.
    """
    width, direction = abs(limit - centre), 1.0 if limit > centre else -1.0
    tried = {0.0: 1.0}  # shares by distance from the centre
    reach, found = min(abs(step), width), list[float]()
    for error in errors:
        inside = max(d for d, value in tried.items() if value > error)
        while inside < width:
            beyond = [d for d, value in tried.items() if d > inside and value <= error]
            outside = min(beyond) if beyond else min(inside + reach, width)
            if beyond and outside - inside <= max(NEAR * outside, 1e-6 * width):
                break
            at = (inside + outside) / 2 if beyond else outside
            tried[at] = share(centre + direction * at, error)
            if tried[at] > error:
                inside = at
                reach *= 1 if beyond else 2
        found.append(outside if inside < width else width)
        reach = max(found[-1] / 4, reach / 8)
    return np.asarray(centre + direction * np.maximum.accumulate(found))


def confidence_draws(lower: Floats, upper: Floats, draws: int) -> Floats:
    """Sorted draws whose equal-tailed interval at each level 1 − error of `ERRORS` is (lower, upper)."""
    errors = np.array(ERRORS)
    at = np.concatenate([ndtri(errors[::-1] / 2), -ndtri(errors / 2)])
    values = np.concatenate([lower[::-1], upper])
    z = ndtri(np.clip(np.linspace(0, 1, draws), 0.25 / draws, 1 - 0.25 / draws))
    slopes = np.diff(values) / np.diff(at)
    low, high = values[0] + (z - at[0]) * slopes[0], values[-1] + (z - at[-1]) * slopes[-1]
    return np.where(z < at[0], low, np.where(z > at[-1], high, np.interp(z, at, values)))


def monte_carlo_error(draws: Floats, replicates: int) -> list[float]:
    """Standard errors of the two ends of the 95 % interval that come from the number of simulations.

    The share of simulations beyond an end has the error √(q(1−q)/R), q = 2.5 %: it moves the end over the draws.
    """
    share = np.sqrt(0.025 * 0.975 / replicates)
    edges = np.quantile(draws, [max(0.025 - share, 0), 0.025 + share, 0.975 - share, min(0.975 + share, 1)])
    return [float(edges[1] - edges[0]) / 2, float(edges[3] - edges[2]) / 2]
