"""Where a regression starts: the response, a least-squares fit from one answer, and the law of its residuals.

The noise of a first fit is in units of the response. Where the line explains most of it, that fit is off by several
times the width of the right residuals. So Newton steps of a Huber loss may follow: their scores, and so their noise,
shrink with the residuals. Public arithmetic on answers.
"""

from dataclasses import replace

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

PEAK = 0.39894228  # largest value of the standard normal density
FARTHEST = 4.0  # ends of the histogram of residuals, in sizes of the response
FINEST = 0.03  # width of its narrowest bins, in spreads
EFFECT = 1.0  # typical effect of a standard deviation of a covariate on the response, in spreads
OTHER = 0.1  # typical difference of the effects by another loss and by least squares, in spreads
COUNTED = 3.0  # counts are hidden unless the share of positive ones stands so many standard deviations above 0
C, KAPPA = 1.345, 0.71  # constants of the Huber loss from which another loss starts
SCALE_WEIGHT = 0.5  # weight of the coordinate of the Huber scale beside those of the frame
LEAST_INSIDE = 0.3  # least share of residuals within c scales by which a step is made
LEAST_SPREAD = 0.1  # least spread of residuals, over that of the response
DOUBT = 0.2  # prior standard deviation of E min((r/σ)², c²) around what the histogram of residuals says
TOLD = 0.125, 0.9  # a gradient is believed on E min((r/σ)², c²) between these parts of κ and of c²
WIDE = 2.0  # width of the first clip, over that of the last: rare groups that are far off must be seen
NARROWEST = 0.3  # least width of the residuals of the right line, over the width of those that were seen
PLACES = 16  # points within a bin of the histogram of residuals


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
    step, error = filtered(near.solid, answer * size, sd * size, np.diag((EFFECT * at.spread * near.sizes) ** 2))
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
    unlike = OTHER * spread_of_residuals(residuals, at) * near.reach
    return theta, error + unlike**2 * np.eye(p), residuals


def spread_of_residuals(residuals: Distribution, at: Located) -> float:
    """The spread of the residuals, at most that of the response, and at least `LEAST_SPREAD` of that."""
    return float(np.clip(residuals.spread, LEAST_SPREAD * at.spread, at.spread))


def score_bound(c: float, kappa: float) -> float:
    """The largest norm of the score in (β, σ_H) where ‖u‖ ≤ 1: its square is convex in ψ², so largest at 0 or c²."""
    return max(float(np.hypot(c, SCALE_WEIGHT * (c**2 - kappa) / 2)), SCALE_WEIGHT * kappa / 2)


def huber_gradient(asker: Asker, stage: str, at: Floats, frame: Floats, c: float, kappa: float) -> tuple[Floats, float]:
    """The gradient in (β, σ_H), in the frame, and the noise of each coordinate."""
    top = score_bound(c, kappa)
    answer, sd = asker.ask(stage, "huber_score", at, frame, SCALE_WEIGHT, c, kappa, top)
    return answer * top, sd * top


def robust_fit(
    asker: Asker, near: Frame, at: Located, box: Box, constant: bool, c: float = C, kappa: float = KAPPA
) -> tuple[Floats, Floats, Distribution, Distribution]:
    """A rough robust fit: least squares, and the Newton steps of a Huber loss of the stage "locate", if there is one.

    The last coordinate of each gradient says how wide the residuals are before the step. What the step explains of them
    follows from its length.

    Returns:
      The coefficients, the covariance of their error in the frame, and the distribution of the residuals, before the
      last step and after it.
    """
    theta, error, residuals = least_squares(asker, near, at, box, constant)
    p, right = len(theta), residuals
    times = asker.times("locate", "huber_score")
    for turn in range(times):
        scale = scale_of(right, c, kappa) * (WIDE ** ((times - 1 - turn) / max(times - 1, 1)))
        g, sd = huber_gradient(asker, "locate", np.append(theta, scale), near.matrix, c, kappa)
        unit = 2 / SCALE_WEIGHT / residuals.total
        residuals = _told(right, scale, c, kappa, kappa - unit * g[p], unit * sd)
        slope = max(residuals.mean(np.abs(residuals.middles) < c * scale), LEAST_INSIDE) / scale
        step, error = filtered(near.solid * slope, g[:p], sd, error)
        theta = np.clip(theta - near.matrix @ step, box.low[:p], box.high[:p])
        right = straightened(residuals, float(np.sqrt(max(float(step @ near.moment @ step), 0.0))), c, kappa)
    return theta, error, residuals, right


def straightened(residuals: Distribution, away: float, c: float, kappa: float) -> Distribution:
    """The distribution of residuals of the right line, from that of a line that is off by `away` on average.

    The residuals r are narrowed by the factor f with which E min((fr ± away)², (cσ)²) equals what was seen; σ is the
    scale that was seen.
    """
    most = c * scale_of(residuals, c, kappa)
    seen = residuals.mean(square_of(residuals, 0.0, most))
    low, high = NARROWEST, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        found = residuals.mean(square_of(replace(residuals, edges=middle * residuals.edges), away, most))
        low, high = (low, middle) if found > seen else (middle, high)
    return replace(residuals, edges=high * residuals.edges)


def _told(residuals: Distribution, scale: float, c: float, kappa: float, square: float, sd: float) -> Distribution:
    """The residuals scaled to agree with an answer `square` about E min((r/σ)², c²) at a scale σ, with noise `sd`."""
    expected = residuals.mean(np.minimum((residuals.middles / scale) ** 2, c**2))
    square = expected + (square - expected) * DOUBT**2 / (DOUBT**2 + sd**2)
    width = scale / scale_of(residuals, c, float(np.clip(square, TOLD[0] * kappa, TOLD[1] * c**2)))
    return replace(residuals, edges=width * residuals.edges)


def square_of(residuals: Distribution, away: float, most: float) -> Floats:
    """E min((r ± away)², most²) in each bin, for residuals r that are uniform within it."""
    r = np.linspace(residuals.edges[:-1], residuals.edges[1:], 2 * PLACES + 1)[1::2]
    both = sum(np.minimum((r + side * away) ** 2, most**2) / 2 for side in (-1, 1))
    return np.asarray(np.mean(both, axis=0))


def scale_of(residuals: Distribution, c: float, kappa: float) -> float:
    """σ with E min((r/σ)², c²) = κ, by the histogram; it decreases in σ."""
    low, high = 1e-9 * float(residuals.edges[-1]), float(residuals.edges[-1])
    for _ in range(80):
        middle = np.sqrt(low * high)
        if residuals.mean(np.minimum((residuals.middles / middle) ** 2, c**2)) > kappa:
            low = middle
        else:
            high = middle
    return float(high)
