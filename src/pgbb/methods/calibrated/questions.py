"""Every question that the default method asks of the records: the one list that all the rest reads.

What the accountant certifies, what `pgbb plan` prints, what is compiled ahead, what `asking` asks and what the
diagnostics of a release say are made from these objects. To ask something new, add a `Question` to the stage that pays
for it, or a `Stage` with a share, and its function to `statistics`. Public arithmetic: no JAX, no record.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pgbb.accountant import Composition, Mechanism, compose
from pgbb.errors import InvalidValue
from pgbb.model.models import Problem

__all__ = ["BINS", "Question", "Stage", "composition", "questions_for"]

BINS = 64  # of a histogram
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """The noisy mean of one statistic over all records.

    Args:
      statistic: name of a function in `statistics`, looked up when it is asked: planning must not need JAX.
      shapes: of the parameters of the statistic, which a program is compiled for.
      times: how often it is asked.
      power: of the survey weights: 1 for means, 2 for the variance of a weighted score, 0 where only the bulk of the
        records matters.
    """

    statistic: str
    shapes: tuple[Shape, ...]
    times: int = 1
    power: int = 1

    def function(self, problem: Problem) -> Callable[..., Any]:
        """The statistic itself; that of a custom loss is made for the loss."""
        from pgbb.methods.calibrated import statistics  # JAX is needed from here on

        found: Callable[..., Any] = getattr(statistics, self.statistic)
        made: Callable[..., Any] = found(problem) if problem.kind == "custom" else found
        return made


@dataclass(frozen=True)
class Stage:
    """Questions that share a part of the budget, and so have the same noise.

    Privacy of full-batch Gaussian answers adds up in μ² (Gaussian DP), so shares
    are shares of μ²: a stage with share s and k answers has noise ∝ √(k/s).
    """

    name: str
    share: float
    why: str
    questions: tuple[Question, ...]

    @property
    def asks(self) -> int:
        """How many answers the stage gives."""
        return sum(question.times for question in self.questions)

    @property
    def scale(self) -> float:
        """Noise of its answers, in units of σ."""
        return math.sqrt(self.asks / self.share)


def composition(stages: Sequence[Stage], n: int) -> Composition:
    """What the accountant certifies: every stage with noise σ·√(asks/share) on means of statistics of norm ≤ 1."""
    if abs(sum(s.share for s in stages) - 1) > 1e-9:
        raise InvalidValue("the shares of the stages must add up to 1.")
    return compose(
        [Mechanism(n=n, blocks=1, sampling_rate=1.0, steps=s.asks, clip=1.0) for s in stages],
        scales=[s.scale for s in stages],
    )


def questions_for(problem: Problem, levels: int) -> tuple[Stage, ...]:
    """The stages of a model that has so many quantile levels (other kinds of model ignore the number).

    Shares are rules on the kind of model and its number of terms, the same for all data and budgets.
    """
    if problem.kind == "mean":
        return _mean()
    if problem.design is None:
        return _custom(problem.dim)
    p = len(problem.design.names)
    if problem.kind == "quantile":
        return _quantile(p, levels)
    return _huber(p) if problem.kind == "huber" else _logistic(p)


def _design(p: int) -> Stage:
    """The frame of a design of p terms."""
    frame = (p, p)
    return Stage("moments", min(max(0.01 * p, 0.08), 0.16), "second moments of the design, whitened by rounds", (
        Question("moment", (frame,), times=3 if p <= 8 else 4, power=0),
        Question("moment_and_cut", (frame, ())),
    ))  # fmt: skip


def _median(p: int) -> tuple[Stage, ...]:
    """Where the response and a median regression lie, roughly, and the law of its residuals."""
    theta, frame, bins = (p,), (p, p), ((BINS + 1,), (BINS, BINS))
    return (
        Stage("response", 0.03, "where the response lies", (Question("histogram", (theta, *bins), times=3, power=0),)),
        Stage("median", 0.05, "a median regression, roughly", (
            Question("median", (theta, (), frame), times=5),
            Question("window", (theta, ()), times=5, power=0),
        )),
        Stage("residuals", 0.02, "histogram of its residuals", (
            Question("histogram", (theta, *bins)),
        )),
    )  # fmt: skip


def _quantile(p: int, levels: int) -> tuple[Stage, ...]:
    design = _design(p)
    frame, each, curves = (p, p), (levels,), (levels, p)
    cells = (curves, each, (levels + 1, levels + 1), frame)
    return (
        design,
        *_median(p),
        Stage("levels", 0.06, "all levels, roughly", (Question("cells", cells, times=2),)),
        Stage("curvature", 0.12, "curvature at each level", (Question("cell_curvature", (curves, each, (), frame)),)),
        Stage("density", 0.02, "densities over two distances: what smoothing does to the curvature", (
            Question("densities", (curves, (2, levels), ())),
        )),
        Stage("refine", 0.13, "gradients of all levels", (Question("cells", cells),)),
        Stage("spread", 0.03, "second moments of the weighted design", (Question("square_moment", (frame,), power=2),)),
        Stage("final", 0.54 - design.share, "gradients of all levels, once more", (Question("cells", cells),)),
    )  # fmt: skip


def _huber(p: int) -> tuple[Stage, ...]:
    design = _design(p)
    theta, frame = (p + 1,), (p, p)  # with the scale
    score = (theta, frame, (), (), (), ())
    return (
        design,
        *_median(p),
        Stage("curvature", 0.10, "curvature, before and after the first of the gradients below", (
            Question("huber_curvature", (theta, frame, (), ()), times=2),
        )),
        Stage("spread", 0.06, "second moments of the score", (Question("huber_spread", score, power=2),)),
        Stage("refine", 0.14, "gradient", (Question("huber_score", score),)),
        Stage("final", 0.60 - design.share, "gradient, once more", (Question("huber_score", score),)),
    )  # fmt: skip


def _logistic(p: int) -> tuple[Stage, ...]:
    design = _design(p)
    given = ((p,), (p, p))
    return (
        design,
        Stage("locate", 0.10, "Newton steps, roughly", (
            Question("logistic_score", given, times=8),
            Question("logistic_curvature", given, times=8),
        )),
        Stage("curvature", 0.14, "curvature, before and after the first of the gradients below", (
            Question("logistic_curvature", given, times=2),
        )),
        Stage("spread", 0.06, "second moments of the score", (Question("logistic_spread", given, power=2),)),
        Stage("refine", 0.13, "gradient", (Question("logistic_score", given),)),
        Stage("final", 0.57 - design.share, "gradient, once more", (Question("logistic_score", given),)),
    )  # fmt: skip


def _mean() -> tuple[Stage, ...]:
    return (
        Stage("response", 0.06, "where the column lies", (
            Question("histogram", ((1,), (BINS + 1,), (BINS, BINS)), times=3),
        )),
        Stage("spread", 0.13, "its variance, and how much lies beyond the window", (
            Question("mean_spread", ((), (), ())),
        )),
        Stage("final", 0.81, "mean in the window", (Question("mean_score", ((), ())),)),
    )  # fmt: skip


def _custom(d: int) -> tuple[Stage, ...]:
    theta = (d,)
    return (
        Stage("locate", 0.12, "Newton steps over shrinking distances", (
            Question("gradient", (theta,), times=10),
            Question("differences", (theta, theta), times=10),
        )),
        Stage("curvature", 0.16, "curvature over three distances, twice", (
            Question("differences", (theta, theta), times=6),
        )),
        Stage("spread", 0.06, "second moments of the gradient", (Question("outer_gradient", (theta,), power=2),)),
        Stage("refine", 0.12, "gradient", (Question("gradient", (theta,)),)),
        Stage("final", 0.54, "gradient, once more", (Question("gradient", (theta,)),)),
    )  # fmt: skip
