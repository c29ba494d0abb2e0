"""What one record adds to a Poisson-batch answer: its weight times its clipped gradient. A function of one record."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from pgbb._numerics.compiled import computed_once, dots
from pgbb.model.problem import Problem
from pgbb.private.clipping import BATCH, clipped, largest_square, limit
from pgbb.private.row_layout import EXTRA


def weighted(problem: Problem, packed: Array, inverse: Array, theta: Array, index: Array) -> Array:
    """Weight times gradient at θ of one packed record, the gradient in units of C: the first d numbers.

    The gradient is made finite, multiplied by its survey weight and clipped to norm 1, whatever the model's own bound
    says. For a model with scores the gradient is (score·x, extra), and its norm follows from ‖x‖². Sums over a row are
    written out, not left to products of matrices, whose rounding may depend on the place of a row and on the device.
    `inverse` is 1/weight: compilers compute a quotient once, but repeat a product for every column.
    """
    p, d = packed.shape[0] - EXTRA, problem.dim
    x, y, survey = packed[:p], packed[p], packed[p + 1]
    if problem.score is None:
        raw = problem.joint(theta, x, y) if problem.joint is not None else problem.gradient(theta, x, index)  # type: ignore[misc]
        keep = limit(d, BATCH)
        unit = computed_once(raw * survey / (problem.clip * keep))
        (unit,) = clipped([unit], lambda v: dots(v, v), keep, most=largest_square(d), xp=jnp, once=computed_once)
        return unit / inverse
    linear, square_x = _products(x, theta[:p])
    score, extra = problem.score(jnp, theta, linear, y, index)
    score, extra = clipped_score(problem, score, extra, square_x, survey)
    score, extra = score / inverse, extra / inverse
    if d == p:
        return x * score
    return jnp.where(jnp.arange(p + EXTRA) == p, extra, packed * score)


def weighted_rows(problem: Problem, packed: Array, inverse: Array, theta: Array, index: Array) -> Array:
    """`weighted` of every row, (rows, ·): a row of the result depends on its record alone, by construction."""
    return jax.vmap(lambda row, weight: weighted(problem, row, weight, theta, index))(packed, inverse)


def clipped_score(
    problem: Problem,
    score: Array,
    extra: Array | None,
    square_x: Array,
    survey: Array,
    *,
    once: Callable[[tuple[Array, ...]], tuple[Array, ...]] = computed_once,
) -> tuple[Array, Array]:
    """Score and extra of the gradient (score·x, extra), times the survey weight, in units of C and clipped to 1."""
    keep = limit(problem.dim, BATCH)
    unit, extra = problem.clip * keep, jnp.zeros_like(score) if extra is None else extra
    score, extra, square_x = once((score / unit * survey, extra / unit * survey, square_x))

    def square(score: Array, extra: Array) -> Array:
        return score**2 * square_x + extra**2

    score, extra = clipped([score, extra], square, keep, most=largest_square(problem.dim), xp=jnp, once=once)
    return score, extra


def _products(x: Array, theta: Array) -> tuple[Array, Array]:
    """x·θ and ‖x‖²; on a CPU in one pass, and once: every result is a loop of its own there."""
    if jax.default_backend() != "cpu":
        return dots(x, theta), dots(x, x)
    zero = jnp.zeros((), x.dtype)
    linear, square_x = jax.lax.reduce(
        (x * theta, x * x), (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), dimensions=(0,)
    )
    return computed_once((linear, square_x))
