"""Which answers the calibrated method asks for, and what share of the budget each stage gets; public arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pgbb.accountant import Composition, Mechanism, compose
from pgbb.errors import InvalidValue
from pgbb.model.models import Problem

__all__ = ["Stage", "composition", "squared_reach", "stages_for"]

NEAREST = 25.0  # R² is at least this: a category of one record in 25 is never weighted down
SPREAD = (4.0, 25.0)  # and, beyond that, between these many times the number of terms


@dataclass(frozen=True)
class Stage:
    """A number of answers that share a part of the budget.

    Privacy of full-batch Gaussian answers adds up in μ² (Gaussian DP), so shares
    are shares of μ²: a stage with share s and k answers has noise ∝ √(k/s).
    """

    name: str
    asks: int
    share: float
    why: str


def stages_for(problem: Problem) -> tuple[Stage, ...]:
    """The stages of a model. Shares are rules on its kind and number of terms, the same for all data and budgets."""
    p = len(problem.design.names) if problem.design is not None else 0
    share = min(max(0.01 * p, 0.08), 0.16)
    moments = Stage("moments", 4 if p <= 8 else 5, share, "second moments of the design, whitened by rounds")
    if problem.kind == "quantile":
        return (
            moments,
            Stage("median", 14, 0.06, "a median regression, roughly"),
            Stage("residuals", 1, 0.02, "histogram of its residuals"),
            Stage("levels", 2, 0.06, "all levels, roughly"),
            Stage("curvature", 1, 0.12, "curvature at each level"),
            Stage("density", 1, 0.02, "densities over two distances: what smoothing does to the curvature"),
            Stage("refine", 1, 0.13, "gradients of all levels"),
            Stage("spread", 1, 0.03, "second moments of the weighted design"),
            Stage("final", 1, 0.56 - share, "gradients of all levels, once more"),
        )
    if problem.kind == "huber":
        return (
            moments,
            Stage("median", 14, 0.06, "a median regression, roughly"),
            Stage("residuals", 1, 0.02, "histogram of its residuals"),
            Stage("curvature", 2, 0.10, "curvature, before and after the first of the gradients below"),
            Stage("spread", 1, 0.06, "second moments of the score"),
            Stage("refine", 1, 0.14, "gradient"),
            Stage("final", 1, 0.62 - share, "gradient, once more"),
        )
    if problem.kind == "logistic":
        return (
            moments,
            Stage("locate", 16, 0.10, "Newton steps, roughly"),
            Stage("curvature", 2, 0.14, "curvature, before and after the first of the gradients below"),
            Stage("spread", 1, 0.06, "second moments of the score"),
            Stage("refine", 1, 0.13, "gradient"),
            Stage("final", 1, 0.57 - share, "gradient, once more"),
        )
    if problem.kind == "mean":
        return (
            Stage("range", 1, 0.04, "mean of the column, roughly"),
            Stage("spread", 1, 0.05, "its variance, and how much the clip cuts"),
            Stage("refine", 1, 0.08, "mean around that"),
            Stage("final", 1, 0.83, "mean, once more"),
        )
    return (
        Stage("locate", 20, 0.12, "Newton steps over shrinking distances"),
        Stage("curvature", 6, 0.16, "curvature over three distances, twice"),
        Stage("spread", 1, 0.06, "second moments of the gradient"),
        Stage("refine", 1, 0.12, "gradient"),
        Stage("final", 1, 0.54, "gradient, once more"),
    )


def composition(stages: Sequence[Stage], n: int) -> Composition:
    """What the accountant certifies: every stage with noise σ·√(asks/share) on means of statistics of norm ≤ 1."""
    if abs(sum(s.share for s in stages) - 1) > 1e-9:
        raise InvalidValue("the shares of the stages must add up to 1.")
    return compose(
        [Mechanism(n=n, blocks=1, sampling_rate=1.0, steps=s.asks, clip=1.0) for s in stages],
        scales=[math.sqrt(s.asks / s.share) for s in stages],
    )


def squared_reach(n: int, p: int, noise: float) -> float:
    """R²: records whose p covariates are farther out, in Mahalanobis distance, are weighted down.

    As far out as the noise of the last gradient, R·noise, stays at a quarter of
    its sampling error, about .45/√n, within bounds; all of it public.
    """
    affordable = (0.25 * 0.45 / (math.sqrt(n) * max(noise, 1e-12))) ** 2
    return max(min(max(affordable, SPREAD[0] * p), SPREAD[1] * p), NEAREST)
