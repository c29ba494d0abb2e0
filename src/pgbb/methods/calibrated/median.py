"""Where a median regression lies, roughly, and the law of its residuals: where quantile and Huber regression start.

The median is found by Newton steps on the smoothed absolute loss whose
bandwidth starts at the public half-range of the response and halves: each
step then moves within reach of its quadratic.
"""

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated.algebra import limited
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.questions import BINS
from pgbb.methods.calibrated.response import Distribution, histogram
from pgbb.model.models import Problem

Floats = NDArray[np.float64]

__all__ = ["PEAK", "half_range", "rough_median"]

PEAK = 0.39894228  # of the standard normal density


def half_range(problem: Problem) -> float:
    """The shifted response lies within this distance of 0, by its declared range."""
    assert problem.design is not None
    return max(abs(end - problem.shift) for end in problem.design.response_bounds)


def rough_median(asker: Asker, frame: Frame, half: float, radius: Floats) -> tuple[Floats, Distribution]:
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
    residuals, _, _ = histogram(asker, "residuals", theta, edges)
    return theta, residuals
