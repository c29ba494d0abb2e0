"""A mean: where the column lies, its variance in a window around that, and the mean of what the window leaves."""

import math

import numpy as np
from scipy.special import ndtr

from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.response import locate
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

__all__ = ["CLOSEST", "fit_mean", "half_window"]

PRIOR = 0.5  # how far the variance may be from the square of the spread that was located, relative
HINT = 0.5  # how far, in logarithms, the spread may be from the scale that the model was given
CLOSEST, FARTHEST = 3.0, 30.0  # half the window, in spreads
LOUD = 0.4  # noise of the last answer beside the sampling error, where the window is chosen by it
LONGER = 1.2  # a scale so many times the spread is not that of a normal law
HEAVY = 0.15  # of the records lie beyond one spread, and fewer by the square of the distance, where tails are long
EXCESS = 2.5  # records beyond the window lie farther by half of it over this, on average
DOUBT = 0.7  # of that, relative
CUT = 0.02  # a share of records beyond the window that is too large to be left out


def half_window(spread: float, n: int, noise: float) -> float:
    """Half the window of the last answer: as wide as its noise stays at .4 of the sampling error, within bounds.

    >>> round(half_window(2.0, 10_000, 1e-3), 2), round(half_window(2.0, 10_000, 1e-2), 2)
    (8.0, 6.0)
    """
    wanted = LOUD * spread / (math.sqrt(n) * max(noise, 1e-12))
    return min(max(wanted, CLOSEST * spread), FARTHEST * spread)


def fit_mean(asker: Asker, problem: Problem) -> LocalGaussian:
    """Ask all stages of a mean.

    The window lies around the located median, and all of it is in units of the located spread. The scale of a Gaussian
    mean is a hint, for budgets that see little of the spread. Records beyond the window count at its end: how
    many there are is asked, what they move is added where they lie beyond one end alone, and what they may move is
    added to the interval. Where they are too many, or nothing is hidden by noise, the window is the whole range.
    """
    bottom, top = float(problem.settings["low"]), float(problem.settings["high"])
    low, high = problem.center[0] - problem.radius[0], problem.center[0] + problem.radius[0]
    at = locate(asker, bottom, top, 1)
    spread, present, middle = at.spread, at.present, at.median
    long = 1.0  # spreads in which a tail falls by a factor of e, unless more of it is seen; 0 for a normal one
    if problem.settings["family"] == "gaussian" and problem.settings["scale"] is not None:
        trust = HINT**2 / (HINT**2 + (4 * at.sd) ** 2)
        known = float(problem.settings["scale"])
        spread = spread**trust * known ** (1 - trust)
        wide = min(max(known, spread), 3 * spread)
        long = (
            2.0 if known > LONGER * (1 + 4 * at.sd) * spread else 0.0
        )  # a standard deviation above the spread means a long tail
    else:
        wide = spread
    final = asker.noise("final")
    ends = (bottom, top)
    if final > 0:
        half = half_window(wide, asker.n, final) + 4 * at.sd * spread
        reach = max(half, 2 * half - min(top - middle, middle - bottom))  # one-sided where the range ends
        ends = max(bottom, middle - reach), min(top, middle + reach)
    answer, sd = asker.ask("spread", "mean_spread", *ends, middle)
    beyond, noise = (present - answer[0] * np.sqrt(2)) / 2, sd / np.sqrt(2)
    far = max(ends[1] - middle, middle - ends[0])
    square, square_sd = far**2 * (present + answer[1] * np.sqrt(2)) / 2, far**2 * sd / np.sqrt(2)
    shift, moved = 0.0, 0.0
    if ends != (bottom, top) and beyond > 3 * noise + CUT:
        ends = bottom, top
        square += beyond * (max(top - middle, middle - bottom) ** 2 - far**2)  # at most
    elif ends != (bottom, top):
        steps = far / spread
        tail = max(0.5 * float(np.exp(-steps / long)), HEAVY / steps**2) if long else 2 * float(ndtr(-steps))
        prior = max(tail**2, beyond**2 - noise**2)
        keep = prior / (prior + noise**2)
        side = int(ends[0] == bottom) - int(ends[1] == top)  # beyond one end alone, or both
        left_out, excess = max(tail + keep * (beyond - tail), 0.0), far / EXCESS
        moved = side * left_out * excess
        shift = float(np.hypot(left_out * (DOUBT if side else 1.0), np.sqrt(keep) * noise)) * excess
    answer, sd = asker.ask("final", "mean_score", *ends)
    half = (ends[1] - ends[0]) / 2
    gradient = present * (middle - (ends[0] + ends[1]) / 2) - half * answer - moved
    expected = present * spread**2
    square = square - float(gradient[0]) ** 2 / present
    doubt = max((PRIOR * expected) ** 2, (square - expected) ** 2 - square_sd**2)
    trust = doubt / (doubt + square_sd**2)
    variance = max(trust * square + (1 - trust) * expected, 0.05 * expected)
    noise_sd = float(np.hypot(sd * half, shift))
    return LocalGaussian(
        center=np.array([[middle]]),
        gradient=gradient[None],
        frame=np.eye(1),
        curvature=np.array([[[present]]]),
        curvature_sd=np.zeros((1, 1)),
        privacy=np.array([[noise_sd]]),
        sampling=np.array([[variance]]) / asker.n,
        sampling_sd=np.array([np.sqrt(trust) * square_sd]) / asker.n,
        free=np.array([[[1.0 if noise_sd > (high - low) / 4 else 0.0]]]),
        low=np.array([low]),
        high=np.array([high]),
    )
