"""The start of a regression: the located response, a least-squares fit from one answer, and its residuals.

Public arithmetic on answers.
"""

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import Box
from pgbb.methods.calibrated.curvature import filtered
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.response import SURE, Distribution, Located, histogram, locate
from pgbb.methods.calibrated.stages import BINS, JITTERS
from pgbb.model.formula import Design
from pgbb.model.models import Problem

__all__ = ["PEAK", "first_fit", "least_squares", "locate_counts", "locate_response", "places_around"]

PEAK = 0.39894228  # largest value of the standard normal density
FARTHEST = 4.0  # ends of the histogram of residuals, in sizes of the response
FINEST = 0.03  # width of its narrowest bins, in spreads
EFFECT = 1.0  # typical effect of a standard deviation of a covariate on the response, in spreads
OTHER = 0.1  # typical difference of the effects by another loss and by least squares, in spreads
COUNTED = 3.0  # counts are hidden unless the share of positive ones stands so many standard deviations above 0


def locate_response(asker: Asker, problem: Problem, design: Design) -> Located:
    """Locate the shifted response of a regression: the stage "response"."""
    low, high = (end - problem.shift for end in design.response_bounds)
    return locate(asker, low, high, len(design.names))


def locate_counts(asker: Asker, problem: Problem, design: Design) -> Located:
    """Mean and spread of counts, from one histogram over the whole range, since most may be equal and few large.

    Where positive counts do not stand out of noise, none are located: the logarithm of their mean may be anything.
    """
    bottom, top = (end - problem.shift for end in design.response_bounds)
    unit = min(1.0, (top - bottom) / BINS)
    edges = bottom + np.sinh(np.linspace(0, 1, BINS + 1) * np.arcsinh((top - bottom) / unit)) * unit
    law, total, total_sd = histogram(asker, "response", np.zeros(len(design.names)), edges)
    asker.usable = total + SURE * total_sd
    values = np.minimum(law.middles, law.quantile(np.array(1 - np.clip(2 * law.sd, 0.01, 0.25))))
    mean = law.mean(values)
    spread = max(float(np.sqrt(law.mean((values - mean) ** 2))), unit)
    return Located(mean, spread, law.sd, 1.0, none=1 - float(law.below[1]) < COUNTED * law.sd)


def places_around(design: Design) -> Floats:
    """The offsets over which a response with a declared step is spread; 0 without a step."""
    if not design.response_step:
        return np.zeros(1)
    return design.response_step * ((np.arange(JITTERS) + 0.5) / JITTERS - 0.5)


def first_fit(asker: Asker, near: Frame, at: Located, box: Box, constant: bool) -> tuple[Floats, Floats]:
    """A least-squares fit of the response, clipped some spreads around its median: the stage "start".

    Slopes are shrunk to zero as far as noise hides them.

    Args:
      asker: asks the question.
      near: the frame of the design.
      at: where the response lies.
      box: bounds the coefficients.
      constant: whether the first term is the intercept.

    Returns:
      The coefficients, and the covariance of their error in the frame.
    """
    p, size = len(near.matrix), at.size(constant)
    theta = at.start(p, constant)
    answer, sd = asker.ask("start", "weighted_response", theta, size, near.matrix)
    step, error = filtered(near.solid, answer * size, sd * size, (EFFECT * at.spread * near.reach) ** 2 * np.eye(p))
    return np.clip(theta + near.matrix @ step, box.low[:p], box.high[:p]), error


def least_squares(
    asker: Asker, near: Frame, at: Located, box: Box, constant: bool
) -> tuple[Floats, Floats, Distribution]:
    """The first fit as a start for another loss, the covariance of its error, and the distribution of its residuals.

    The stages "start" and "residuals"; arguments as for `first_fit`.
    """
    theta, error = first_fit(asker, near, at, box, constant)
    p, size = len(theta), at.size(constant)
    unit, farthest = FINEST * at.spread, FARTHEST * size
    edges = np.sinh(np.linspace(-1, 1, BINS + 1) * np.arcsinh(farthest / unit)) * unit
    residuals, _, _ = histogram(asker, "residuals", theta, edges)
    return theta, error + (OTHER * at.spread * near.reach) ** 2 * np.eye(p), residuals
