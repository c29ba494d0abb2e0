"""The default method: a local posterior from full-batch answers; draws carry sampling and privacy uncertainty."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from pgbb import _validate
from pgbb._numerics.threads import one_blas_thread
from pgbb.accountant import Composition, noise_scale
from pgbb.methods.calibrated.estimate import FLOOR, Cut
from pgbb.methods.calibrated.ingredients import left_out, uses
from pgbb.methods.calibrated.plan import composition, stages_for
from pgbb.methods.request import Planned, Request, prepared
from pgbb.model.models import Problem
from pgbb.private.door import Randomness, open_dataset
from pgbb.release.file import Release
from pgbb.release.payloads import Payload, summary_of

__all__ = ["Settings", "plan", "run"]


WEIGHTED = (
    "Records whose covariates are far out are weighted down: where the linear model is wrong, this moves its target."
)
SMOOTHED = (
    "Curvature comes from differences of gradients over a public distance: a loss with kinks is smoothed over it."
)


@dataclass(frozen=True)
class Settings:
    """The calibrated method has no constants to tune.

    Args:
      knots: levels asked for when the model has an interval of τ; draws in between are interpolated.
    """

    knots: int = 17

    def __post_init__(self) -> None:
        _validate.integer("knots", self.knots, low=3, high=99)


def levels_of(problem: Problem, knots: int) -> NDArray[np.float64] | None:
    """The declared levels, or a grid over the declared interval; None without an index."""
    if problem.index is None:
        return None
    if problem.index.levels:
        return np.array(problem.index.levels)
    low, high = problem.index.low, problem.index.high
    levels = expit(np.linspace(logit(low), logit(high), knots))
    levels[[0, -1]] = low, high
    return levels


def _cut(cut: Cut) -> str:
    """How many records are weighted down, as far as noise lets it be seen; post-processing of an answer."""
    if cut.clear:
        return f"Here {cut.share:.1%} of the records are weighted down (± {2 * cut.sd:.1%})."
    return f"Here at most {min(max(cut.share, 0.0) + 2 * cut.sd, 1.0):.1%} of the records are weighted down."


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise."""
    target = composition(stages_for(prepared(request.model, request.schema)), n)
    if request.non_private:
        return Planned(target, 0.0)
    return Planned(target, noise_scale(target, request.epsilon, request.delta, request.accountant))


def run(request: Request, settings: Settings) -> Release:
    """Ask the planned answers under the budget and pack the posterior they add up to."""
    from pgbb.methods.calibrated.ahead import programs  # JAX is needed from here on
    from pgbb.methods.calibrated.quantile import fit_quantile
    from pgbb.methods.calibrated.smooth import fit_custom, fit_huber, fit_logistic, fit_mean

    problem = prepared(request.model, request.schema)
    stages = stages_for(problem)
    data = open_dataset(request.data, problem, request.schema, request.weights, request.together)
    n = data.n
    request.advise(n)
    planned = plan(request, settings, n)
    target, sigma = planned.mechanism, planned.sigma
    assert isinstance(target, Composition)
    randomness = Randomness.create(request.insecure_seed, together=request.together)
    sums = data.sums(target, [s.name for s in stages], sigma, randomness, progress=request.progress)
    levels = levels_of(problem, settings.knots)
    sums.prepare(programs(problem, 0 if levels is None else len(levels)))
    request.begin(planned)
    if problem.design is not None:
        bound = problem.design.norm_bound
        half = max(abs(end - problem.shift) for end in problem.design.response_bounds)
    with one_blas_thread():
        if problem.kind == "quantile":
            assert levels is not None
            local = fit_quantile(sums, problem, levels, n, bound, half)
        elif problem.kind == "huber":
            local = fit_huber(sums, problem, n, bound, half)
        elif problem.kind == "logistic":
            local = fit_logistic(sums, problem, n, bound)
        elif problem.kind == "mean":
            local = fit_mean(sums, problem, n)
        else:
            local = fit_custom(sums, problem, n)
    tensors: dict[str, Any] = {
        "center": local.center,
        "gradient": local.gradient,
        "frame": local.frame,
        "curvature": local.curvature,
        "curvature_sd": local.curvature_sd,
        "privacy": local.privacy,
        "sampling": local.sampling,
        "sampling_sd": local.sampling_sd,
        "free": local.free,
        "low": problem.center - problem.radius,
        "high": problem.center + problem.radius,
    }
    if local.knots is not None:
        tensors["knots"] = local.knots
    if not uses("redrawing"):
        tensors |= {name: np.zeros_like(tensors[name]) for name in ("curvature_sd", "sampling_sd")}
    missing = {"without": left_out()} if left_out() else {}
    weighted = f"{WEIGHTED} {_cut(local.cut)}" if local.cut is not None else WEIGHTED
    notes = [weighted] if problem.design is not None else [SMOOTHED] if problem.kind == "custom" else []
    return Release(
        model=summary_of(problem),
        schema=request.schema.to_dict(),
        certificate=request.certify(target, sigma, randomness.source, notes),
        payload=Payload(
            kind="local",
            settings={"index": levels is not None, "bridge": levels is not None, "floor": FLOOR},
            tensors={name: np.ascontiguousarray(value, dtype=np.float64) for name, value in tensors.items()},
        ),
        diagnostics={"method": "calibrated", "stages": [[s.name, s.asks, s.share] for s in stages], **missing},
    )
