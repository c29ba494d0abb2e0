"""Where a median regression lies, roughly, and the law of its residuals: where quantile and Huber regression start.

The median is found by Newton steps on the smoothed absolute loss whose
bandwidth starts at the size of the response, as located, and halves: each
step then moves within reach of its quadratic.
"""

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated.algebra import limited
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import Box
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.questions import BINS
from pgbb.methods.calibrated.response import Distribution, Located, histogram, locate
from pgbb.model.formula import Design
from pgbb.model.models import Problem

Floats = NDArray[np.float64]

__all__ = ["PEAK", "locate_response", "rough_median"]

PEAK = 0.39894228  # of the standard normal density
FARTHEST = 4.0  # ends of the histogram of residuals, in sizes of the response


def locate_response(asker: Asker, problem: Problem, design: Design) -> Located:
    """Median and spread of the shifted response: the stage "response"."""
    low, high = (end - problem.shift for end in design.response_bounds)
    return locate(asker, low, high, len(design.names))


def rough_median(asker: Asker, frame: Frame, at: Located, box: Box, constant: bool) -> tuple[Floats, Distribution]:
    """Coefficients and residuals of a median regression: the stages "median" and "residuals".

    Args:
      asker: asks.
      frame: of the design.
      at: where the response lies.
      box: coefficients lie in it.
      constant: whether the first term is the intercept.
    """
    solid, p = frame.solid, len(frame.matrix)
    theta, h = at.start(p, constant), at.size(constant) / 2
    for _ in range(asker.question("median", "median").times):
        answer, sd = asker.ask("median", "median", theta, h, frame.matrix)
        reached, window_sd = asker.ask("median", "window", theta, h)
        density = max((1 + reached[0]) / 2, window_sd, 0.05) * PEAK / h
        step = np.linalg.solve(solid, answer / 2) / density
        step = limited(step, solid, 1.5 * h, (sd / 2 / density) ** 2 * float(np.trace(np.linalg.inv(solid))))
        theta = np.clip(theta - frame.matrix @ step, box.low[:p], box.high[:p])
        spread = PEAK / density  # of residuals and kernel together
        h = min(h, max(h / 2, 0.3 * np.sqrt(max(spread**2 - h**2, 0.0))))
    farthest = FARTHEST * at.size(constant)
    unit = max(h, 1e-3 * farthest)
    edges = np.sinh(np.linspace(-1, 1, BINS + 1) * np.arcsinh(farthest / unit)) * unit
    residuals, _, _ = histogram(asker, "residuals", theta, edges)
    return theta, residuals
