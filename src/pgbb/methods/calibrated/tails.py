"""Where the scores of a least-squares fit are cut, and what the cut takes off: read from the law of their lengths.

Public arithmetic on answers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.pareto import Tail, tail_of
from pgbb.methods.calibrated.questions import BINS
from pgbb.methods.calibrated.response import Distribution, asked_law

Floats = NDArray[np.float64]

__all__ = ["NOTHING", "ONE_SIDED", "PART", "Cut", "Tail", "bound_for", "excess", "lengths", "tail_of"]

NOTHING = np.zeros(0)  # that least squares needs beside θ and the frame
ONE_SIDED = 0.5  # of the mean length that is cut off: what it may move one coordinate
NEAREST, FARTHEST = 1.5, 30.0  # excess is asked up to so many bounds
LOUD = 0.6  # noise of the last gradient beside the sampling error, where the bound is chosen by it
QUIET = 0.35  # the same of the excess
FINEST = 0.03  # narrowest bins of lengths, in typical ones
PART = 0.5  # of the answer on the excess that asks how many scores are cut, and for their squares


def bound_for(tail: Tail, noise: float, sampling: float) -> tuple[float, float]:
    """b that makes noise and what the clip may move a coordinate least, and the latter.

    The noise of a gradient is b·`noise`; while it is quiet beside the sampling error, b is as large as that allows.

    >>> [round(v, 4) for v in bound_for(Tail(2.0, 0.02, 0.5), 1e-3, 0.001)]
    [2.725, 0.0012]
    >>> [round(v, 4) for v in bound_for(Tail(2.0, 0.02, 0.5), 1e-3, 0.006)]
    [3.5875, 0.0002]
    """
    shares = tail.share * np.exp(-np.linspace(0, 9, 361))  # beyond, rows would be rounded coarsely beside their lengths
    bounds, moved = tail.lengths(shares), ONE_SIDED * tail.excess(shares)
    cost = (noise * bounds) ** 2 + moved**2
    best = max(int(np.argmin(cost)), int(np.searchsorted(noise * bounds, LOUD * sampling, side="right")) - 1)
    return float(bounds[best]), float(moved[best])


def lengths(asker: Asker, near: Frame, theta: Floats, size: float, given: Floats | float = NOTHING) -> Distribution:
    """The law of lengths of scores at θ: the stage "residuals". `given` is what the family needs besides."""
    far, unit = 4 * size * np.sqrt(len(theta)), FINEST * size / near.reach
    edges = np.sinh(np.linspace(0, 1, BINS + 1) * np.arcsinh(far / unit)) * unit
    return asked_law(asker, "residuals", "clipped_lengths", edges, theta, near.matrix, given)[0]


@dataclass(frozen=True)
class Cut:
    """What the clip takes off: the mean as far as it is put back, the covariance of the rest, squares, and a note."""

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
    """Ask for the mean of v − clip(v), up to a number of bounds that noise allows: the stage "tail".

    A coordinate of it is `expected` to be as large as that, around `toward`, which may be twice as much or nothing.
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
