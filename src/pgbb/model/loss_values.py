"""The losses of models as values, where a method needs more than gradients; and losses that are bounded, with a proof.

`loss_of` has the loss whose gradient `Problem.score` is. `bounded_loss` has what a Gibbs posterior with a bounded loss
needs: the part that depends on the record, how much it can vary, and the rest. Nothing here sees a record.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from pgbb.errors import InvalidValue
from pgbb.model.custom import Custom
from pgbb.model.models import Model, normal_cdf
from pgbb.model.problem import Floats, Problem, Values

Numeric: TypeAlias = Any  # numpy or jax.numpy
Loss: TypeAlias = "Callable[[Numeric, Values, Values, Values, float | None], Values]"
"""(xp, θ with parameters first, xᵀθ, y, τ) → values."""

LARGEST = 1e4  # most by which a bounded loss may vary: beyond it, the temperature is so high that nothing is learnt
EDGE = 1e-3  # a Bernoulli mean lies between this and one minus this


def loss_of(problem: Problem) -> Loss:
    """The loss of a model with scores; its derivative in xᵀθ is the score."""
    s = problem.settings

    def quantile(xp: Numeric, theta: Values, linear: Values, y: Values, tau: float | None) -> Values:
        assert tau is not None
        h, r = s["bandwidth"], y - linear
        return r * (normal_cdf(xp, r / h) - (1 - tau)) + h / math.sqrt(2 * math.pi) * xp.exp(-0.5 * (r / h) ** 2)

    def linear_(xp: Numeric, theta: Values, linear: Values, y: Values, _: float | None) -> Values:
        return (y - linear) ** 2 / 2

    def huber(xp: Numeric, theta: Values, linear: Values, y: Values, _: float | None) -> Values:
        size = abs((y - linear) / theta[-1])
        inner = xp.minimum(size, s["c"])
        return theta[-1] * (inner * (size - inner / 2) + s["kappa"] / 2)

    def logistic(xp: Numeric, theta: Values, linear: Values, y: Values, _: float | None) -> Values:
        return xp.logaddexp(0.0, linear) - y * linear

    def mean(xp: Numeric, theta: Values, linear: Values, y: Values, _: float | None) -> Values:
        if s["family"] == "gaussian":
            return (y - linear) ** 2 / (2 * s["scale"] ** 2)
        if s["family"] == "exponential":
            return xp.log(linear) + y / linear
        inside = xp.clip(linear, EDGE, 1 - EDGE)
        return -y * xp.log(inside) - (1 - y) * xp.log(1 - inside)

    return {"quantile": quantile, "linear": linear_, "huber": huber, "logistic": logistic, "mean": mean}[problem.kind]


def ratio_problem(model: Model, problem: Problem) -> Problem:
    """What one record says of two points: (l(θ, x) − l(θ′, x))/(C‖θ − θ′‖), in [−1, 1], asked at (θ, θ′).

    C bounds the gradient, so that the clip binds only where C is a clip itself: for a mean and a loss of one's own.
    """
    d = problem.dim
    loss, index = (
        None if isinstance(model, Custom) else loss_of(problem),
        problem.index.levels[0] if problem.index else None,
    )

    def joint(both: Values, x: Values, y: Values) -> Values:
        import jax.numpy as jnp

        from pgbb._numerics.compiled import dots

        def at(theta: Values) -> Values:
            if isinstance(model, Custom):
                record = {name: x[i] for i, name in enumerate(model.columns)}
                return jnp.asarray(model.loss(theta, record, 0.0))
            assert loss is not None
            return loss(jnp, theta, dots(x, theta[: x.shape[0]]), y, index)

        distance = jnp.sqrt(jnp.sum((both[:d] - both[d:]) ** 2))
        difference = (at(both[:d]) - at(both[d:])) / (problem.clip * distance)
        return jnp.where(jnp.arange(2 * d) == 0, difference, 0.0)

    names = (*problem.names, *(f"{name}'" for name in problem.names))
    return replace(problem, names=names, clip=1.0, score=None, gradient=None, joint=joint, index=None)


@dataclass(frozen=True, eq=False)
class BoundedLoss:
    """l(θ, x) = part(θ, x) + rest(θ) with part in [low, high] for every record and every θ of the box.

    The difference of two records varies by at most 2(high − low) over θ.

    Attributes:
      part: (θ (k, d), x (n, p), y (n,)) → (n, k), clipped to [low, high] by whoever adds it up.
      rest: θ (k, d) → (k,).
      low, high: the bounds.
      box: (low, high) of θ.
    """

    part: Callable[[Floats, Floats, Floats], Floats]
    rest: Callable[[Floats], Floats]
    low: float
    high: float
    box: tuple[Floats, Floats]

    @property
    def sensitivity(self) -> float:
        """Δ = 2(high − low), with room for the rounding of a log density: 4·10⁻¹⁶·n of it, for n up to 2·10⁹."""
        return 2 * (self.high - self.low) * (1 + 1e-6)


def has_likelihood(problem: Problem) -> bool:
    """Whether the model has a bounded density, of which there is a β-divergence."""
    family = problem.settings.get("family")
    return problem.kind in ("huber", "logistic") or family == "bernoulli" or bool(problem.settings.get("scale"))


def bounded_loss(model: Model, problem: Problem, kind: Literal["gibbs", "beta"], beta: float) -> BoundedLoss:
    """The model's own loss on its box, or that of the β-divergence; `InvalidValue` where it has no useful bound."""
    low, high = problem.center - problem.radius, problem.center + problem.radius
    if problem.settings.get("family") == "bernoulli":
        low, high = np.maximum(low, EDGE), np.minimum(high, 1 - EDGE)
    made = _beta(problem, beta, (low, high)) if kind == "beta" else _gibbs(model, problem, (low, high))
    if not made.high - made.low <= LARGEST:
        remedy = (
            "Declare a Range with a larger lower end, or write the loss in the rate, as a pgbb.Custom."
            if problem.kind == "mean"
            else "Narrow the box: the declared range of the response, bound= of a logistic or scale= of a Huber model."
        )
        raise InvalidValue(
            f"the loss of one record varies by {made.high - made.low:.3g} over the box of the parameters: with a loss "
            f"that is unbounded, or nearly so, a posterior draw has no privacy. It may vary by {LARGEST:g}. {remedy}"
        )
    return made


def _nothing(theta: Floats) -> Floats:
    return np.zeros(len(theta))


def _gibbs(model: Model, problem: Problem, box: tuple[Floats, Floats]) -> BoundedLoss:
    """The loss less its value at the centre of the box, which no θ moves by more than C times its distance."""
    centre, reach = (box[0] + box[1]) / 2, (box[1] - box[0]) / 2
    half = float(np.linalg.norm(reach)) * problem.clip
    if isinstance(model, Custom):
        return BoundedLoss(_custom(model, centre), _nothing, -half, half, box)
    loss, index = loss_of(problem), problem.index.levels[0] if problem.index is not None else None
    s = problem.settings
    if s.get("family") == "gaussian":  # (x−μ)² − (x−c)² = (μ−c)² − 2(x−c)(μ−c)
        variance, middle = s["scale"] ** 2, float(centre[0])
        half = float(reach[0]) * max(abs(s["low"] - middle), abs(s["high"] - middle)) / variance
        return BoundedLoss(
            lambda theta, x, y: -(y[:, None] - middle) * (theta[:, 0] - middle) / variance,
            lambda theta: (theta[:, 0] - middle) ** 2 / (2 * variance),
            -half, half, box,
        )  # fmt: skip
    if s.get("family") == "exponential":  # log m + x/m
        ends = [s["low"] / box[1][0], s["high"] / box[0][0]]
        return BoundedLoss(
            lambda theta, x, y: y[:, None] / theta[:, 0],
            lambda theta: np.log(theta[:, 0]),
            min(0.0, *ends),
            ends[1],
            box,
        )
    if s.get("family") == "bernoulli":
        half = math.log((1 - EDGE) / EDGE)  # −y·logit(m), from its value at m = ½
        return BoundedLoss(
            lambda theta, x, y: (0.5 - y[:, None]) * np.log(theta[:, 0] / (1 - theta[:, 0])),
            lambda theta: -np.log(theta[:, 0] * (1 - theta[:, 0])) / 2, -half / 2, half / 2, box,
        )  # fmt: skip

    def part(theta: Floats, x: Floats, y: Floats) -> Floats:
        p = x.shape[1]
        first = loss(np, theta.T, x @ theta[:, :p].T, y[:, None], index)  # type: ignore[arg-type]
        return np.asarray(first) - np.asarray(loss(np, centre[:, None], (x @ centre[:p])[:, None], y[:, None], index))  # type: ignore[arg-type]

    if problem.kind == "linear":
        assert problem.design is not None
        largest = max(abs(b - problem.shift) for b in problem.design.response_bounds) + float(reach.sum())
        half = largest**2 / 2
    return BoundedLoss(part, _nothing, -half, half, box)


def _custom(model: Custom, centre: Floats) -> Callable[[Floats, Floats, Floats], Floats]:
    """A loss of the user's own less its value at the centre, one record at a time."""

    def part(theta: Floats, x: Floats, y: Floats) -> Floats:
        import jax
        import jax.numpy as jnp

        def one(parameter: Values, row: Values) -> Values:
            record = {name: row[i] for i, name in enumerate(model.columns)}
            return jnp.asarray(model.loss(parameter, record, 0.0)) - model.loss(jnp.asarray(centre), record, 0.0)

        pairs = jax.vmap(jax.vmap(one, (0, None)), (None, 0))
        return np.asarray(pairs(jnp.asarray(theta), jnp.asarray(x)), np.float64)

    return part


def _beta(problem: Problem, beta: float, box: tuple[Floats, Floats]) -> BoundedLoss:
    """−f^β/β + ∫f^{1+β}/(1+β), with f the density of the working likelihood (Basu et al. 1998)."""
    if not has_likelihood(problem):
        raise InvalidValue(
            "loss = 'beta' needs a density with a bound: a Gaussian mean with a known scale, a Bernoulli mean, Huber "
            "regression (read as linear regression with Gaussian errors) or logistic regression. Take loss = 'gibbs'."
        )
    if problem.kind == "logistic" or problem.settings.get("family") == "bernoulli":

        def part(theta: Floats, x: Floats, y: Floats) -> Floats:
            one = 0.5 * (1 + np.tanh(0.5 * (x @ theta.T))) if problem.kind == "logistic" else theta[:, 0][None]
            hit = np.where(y[:, None] > 0.5, one, 1 - one)
            return -(hit**beta) / beta + (hit ** (1 + beta) + (1 - hit) ** (1 + beta)) / (1 + beta)

        return BoundedLoss(part, _nothing, -1 / beta + 1 / (1 + beta), 1 / (1 + beta), box)
    scaled = problem.kind == "huber"

    def peak(theta: Floats) -> Floats:
        scale = theta[:, -1] if scaled else np.full(len(theta), problem.settings["scale"])
        return np.asarray((math.sqrt(2 * math.pi) * scale) ** -beta)

    def density(theta: Floats, x: Floats, y: Floats) -> Floats:
        linear = x @ theta[:, : x.shape[1]].T if scaled else theta[:, 0][None]
        scale = theta[:, -1] if scaled else problem.settings["scale"]
        return -peak(theta) / beta * np.exp(-beta / 2 * ((y[:, None] - linear) / scale) ** 2)

    lowest = box[0][None]
    return BoundedLoss(
        density, lambda theta: peak(theta) * (1 + beta) ** -1.5, -float(peak(lowest)[0]) / beta, 0.0, box
    )
