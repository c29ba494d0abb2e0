"""The second moments that draws need beside the gradients: what is asked of all records, twice in a fit.

S blocks say little about the covariance of the score, so it is asked for. Statistics are pure functions of one record
of norm at most 1, which the door of `private/` vectorises and clips again.

| model              | before the training | after it                             |
|--------------------|---------------------|--------------------------------------|
| quantile           | E xxᵀ, twice        |                                      |
| Huber, logistic    | E xxᵀ               | E ∇l∇lᵀ at the estimate              |
| a mean, a custom l |                     | E ∇l∇lᵀ and E ∇²l at the estimate    |

A design says what the curvature is like, up to a density; without one E ∇²l is asked for, so that query points need
not lie far apart. A custom loss that cannot be differentiated twice has E ∇l∇lᵀ asked twice.
"""

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pgbb._numerics import Floats
from pgbb.accountant import Composition, Mechanism, compose
from pgbb.engine.protocol import made_for
from pgbb.model.models import Problem

if TYPE_CHECKING:
    from pgbb.private.door import Sums


STAGE = "second moments"
ANSWERS = 2  # number of full-batch answers of second moments
SHARE = 0.1  # their share of the budget, at leading order


def with_moments(mechanism: Mechanism) -> Composition:
    """The mechanism and, beside it, the answers of second moments: what the accountant certifies and a session runs.

    Answers over all records with noise σ·b on means of statistics of norm ≤ 1; b gives them `SHARE` of the privacy
    loss at leading order, Σ answers·(q·C/(σ n_S))²·κ. Public arithmetic.

    >>> m = Mechanism(n=10_000, blocks=20, sampling_rate=.1, steps=10_000, clip=2.394)
    >>> [round(s, 4) for s in with_moments(m).scales]
    [1.0, 0.1253]
    """
    n, q = mechanism.n, mechanism.sampling_rate
    main = mechanism.answers * mechanism.kappa * (q * mechanism.signal(1.0)) ** 2
    scale = math.sqrt(ANSWERS * (1 - SHARE) / (SHARE * main)) / n
    extra = Mechanism(n=n, blocks=1, sampling_rate=1.0, steps=ANSWERS, clip=1.0)
    return compose([mechanism, extra], scales=[1.0, scale])


def asks_before(problem: Problem) -> int:
    """How many of the answers come before the training."""
    if problem.design is None:
        return 0
    return ANSWERS if problem.kind == "quantile" else 1


def before(sums: "Sums", problem: Problem) -> tuple[Floats, float]:
    """E xxᵀ (E w²xxᵀ with survey weights w, for quantiles), packed, and its noise; nothing without a design."""
    times = asks_before(problem)
    if not times:
        return np.zeros(0), 0.0
    assert problem.design is not None
    bound = problem.design.norm_bound**2
    power = 2 if problem.kind == "quantile" else 1
    answers, noise = sums.ask_often(STAGE, times, _design, bound, power=power)
    return np.mean(answers, axis=0) * bound, noise * bound / math.sqrt(times)


@lru_cache(maxsize=32)
def asks_bend(problem: Problem) -> bool:
    """Whether E ∇²l is asked for: without a design, where the loss can be differentiated twice."""
    if problem.design is not None:
        return False
    import jax

    row, point = (np.zeros(size, np.float32) for size in (max(1, len(problem.columns)), problem.dim + 1))
    try:
        jax.eval_shape(_bend(problem), row, np.float32(0), point)
    except Exception:  # whatever a loss raises when it is differentiated
        return False
    return True


def after(sums: "Sums", problem: Problem, theta: Floats, bound: float) -> Floats:
    """E ∇l∇lᵀ at θ, packed; nothing for quantiles, whose score has a known variance.

    Where it is asked for, E ∇²l follows, with each record's clipped to the `bound`, and the bound itself.
    """
    bends = asks_bend(problem)
    times = ANSWERS - asks_before(problem) - bends
    if not times:
        return np.zeros(0)
    answers, _ = sums.ask_often(STAGE, times, _score(problem), theta, power=2)
    found = np.mean(answers, axis=0) * problem.clip**2
    if not bends:
        return found
    (bend,), _ = sums.ask_often(STAGE, 1, _bend(problem), np.append(theta, bound))
    return np.concatenate([found, bend * bound, [bound]])


def sizes(problem: Problem) -> tuple[int, int]:
    """Numbers of what `before` and `after` return."""
    p = 0 if problem.design is None else len(problem.design.names)
    times, packed = asks_before(problem), problem.dim * (problem.dim + 1) // 2
    last = 2 * packed + 1 if asks_bend(problem) else packed
    return p * (p + 1) // 2 if times else 0, last if times < ANSWERS else 0


def noises(problem: Problem, noise: float) -> tuple[float, float]:
    """Noise of E xxᵀ and of E ∇l∇lᵀ, where an answer has this one; that of E ∇²l is `noise` times its bound."""
    times = asks_before(problem)
    bound = 0.0 if problem.design is None else problem.design.norm_bound**2
    first = noise * bound / math.sqrt(times) if times else 0.0
    left = ANSWERS - times - asks_bend(problem)
    return first, noise * problem.clip**2 / math.sqrt(left) if left else 0.0


def _packed(v: Any) -> Any:
    """The outer product v vᵀ in isometric coordinates; its length is ‖v‖²."""
    import jax.numpy as jnp

    d = v.shape[0]
    i, j = np.triu_indices(d)
    scale = jnp.asarray(np.where(i == j, 1.0, np.sqrt(2.0)), v.dtype)
    return v[i] * v[j] * scale


def _design(x: Any, y: Any, bound: Any) -> Any:
    """xxᵀ over the largest ‖x‖²."""
    return _packed(x) / bound


def slope_of(problem: Problem, x: Any, y: Any, theta: Any) -> Any:
    """∇l of one record."""
    import jax.numpy as jnp

    from pgbb._numerics.compiled import dots

    if problem.score is None:
        assert problem.gradient is not None
        return problem.gradient(theta, x, 0.0)
    score, extra = problem.score(jnp, theta, dots(x, theta[: x.shape[0]]), y, 0.0)
    return score * x if extra is None else jnp.append(score * x, extra)


@made_for
def _bend(problem: Problem) -> Any:
    """∇²l over a bound, packed; zero where the gradient of the training is clipped."""
    import jax
    import jax.numpy as jnp

    from pgbb._numerics.compiled import dots

    d = problem.dim
    i, j = np.triu_indices(d)
    length = np.where(i == j, 1.0, np.sqrt(2.0))

    def statistic(x: Any, y: Any, point: Any) -> Any:
        theta, bound = point[:d], point[d]
        slope, bend = slope_of(problem, x, y, theta), jax.jacfwd(lambda t: slope_of(problem, x, y, t))(theta)
        inside = dots(slope, slope) <= problem.clip**2
        return jnp.where(inside, (bend + bend.T)[i, j] * jnp.asarray(length / 2, bend.dtype) / bound, 0.0)

    return statistic


@made_for
def _score(problem: Problem) -> Any:
    """∇l∇lᵀ/C² of one record, ∇l clipped to C as in the training."""
    import jax.numpy as jnp

    from pgbb._numerics.compiled import computed_once, dots

    def statistic(x: Any, y: Any, theta: Any) -> Any:
        slope = slope_of(problem, x, y, theta) / problem.clip
        slope = computed_once(jnp.where(jnp.all(jnp.isfinite(slope)), slope, 0.0))
        return _packed(slope / jnp.maximum(jnp.sqrt(dots(slope, slope)), 1.0))

    return statistic
