"""The box in which the coefficients of a fit lie: made from the frame, or set by the user.

Declared ranges bound a coefficient only where the covariate fills its range. Over a range ten times too wide, a slope
is ten times as large as the ranges allow. So the box is made from the frame, which says what the data fill. Public
arithmetic on answers.
"""

from dataclasses import dataclass

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.calibrated.curvature import Curvature
from pgbb.methods.calibrated.frame import Frame
from pgbb.model.models import Problem

EFFECT = 6.0  # the most that one standard deviation of a covariate may move the response, in sizes of three spreads
LOGITS = 16.0  # the most that it may move a logistic regression, in logits
NEAR = 2.0  # a posterior touches an end of the box that is at most so many standard deviations away


@dataclass(frozen=True)
class Box:
    """Ends of every coefficient, in internal coordinates.

    Args:
      low, high: the ends.
      marks: whether a posterior that touches an end is marked. It is not in the default box of a logistic regression:
        separated data lead to an end, and a mark would take even the signs of the coefficients away.
      scaled: whether the last parameter is a scale: a normal posterior of it may reach below its lower end.
    """

    low: Floats
    high: Floats
    marks: bool = True
    scaled: bool = False

    def clip(self, theta: Floats) -> Floats:
        """The nearest point inside."""
        return np.clip(theta, self.low, self.high)

    def touched(self, best: Floats, frame: Floats, bend: Curvature, noise: Floats) -> bool:
        """Whether the posterior reaches an end: then the box shapes it, and not the data.

        Args:
          best: the estimate.
          frame: F.
          bend: curvature in the frame.
          noise: covariance of the gradient, in the frame.
        """
        slope = frame @ np.linalg.inv(bend.solid)
        return self.reached(best, np.sqrt(np.maximum(np.sum((slope @ noise) * slope, axis=1), 0.0)))

    def reached(self, best: Floats, sd: Floats) -> bool:
        """Whether an estimate with these standard deviations reaches an end."""
        low = best - NEAR * sd < self.low
        if self.scaled:
            low[-1] = False
        return self.marks and bool(np.any(low | (best + NEAR * sd > self.high)))


def box_for(problem: Problem, near: Frame, unit: float | None = None, start: Floats | None = None) -> Box:
    """The box of a regression whose frame is known.

    One standard deviation of a covariate, given the others, moves the response by at most `EFFECT` sizes, or by
    `LOGITS`. The box is never smaller than the declared ranges allow, and a `bound` that the user gave is taken as it
    is.

    Args:
      problem: has the declared box, and says whether the user set it.
      near: the frame of the design.
      unit: the located size of the response; None for logits.
      start: centre of the box; zero by default.
    """
    low, high = problem.center - problem.radius, problem.center + problem.radius
    if problem.settings.get("bound") is None:
        p = len(near.matrix)
        reach = (LOGITS if unit is None else EFFECT * unit) * near.reach * np.sqrt(np.sum(near.matrix**2, axis=1))
        middle = np.zeros(p) if start is None else start
        low[:p], high[:p] = np.minimum(low[:p], middle - reach), np.maximum(high[:p], middle + reach)
    marks = unit is not None or "bound" in problem.settings
    return Box(low, high, marks, scaled=problem.kind == "huber")
