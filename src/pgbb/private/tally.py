"""The sums over listed members in one kernel, for accelerators: lots, rows, gradients, clipping and whole numbers.

What `mechanism.weighted` and `whole_sum` do for rows that lie in memory, and the reference for it: a row is read where
it is, and nothing of it is written but its share of a sum of whole numbers. What a record adds
depends on its row alone, and is clipped by the same code.
"""

import math
from functools import partial, reduce
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from pgbb.models import Problem
from pgbb.private import lots
from pgbb.private.clipping import clipped
from pgbb.private.rows import EXTRA

__all__ = ["serves", "tally"]

_ROWS = 64  # places of one program; capacities of lists are a multiple of it
_WARPS = 4
_WIDEST = 128  # numbers of a row
_SPLIT = 12
_LOW = 2**_SPLIT - 1
_ERF = (  # erf x = x·P(x²)/Q(x²) in single precision, as Eigen has it, from the highest power
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
     -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
     -1.42647390514189e-02),
)  # fmt: skip


def serves(problem: Problem, width: int) -> bool:
    """Whether the kernel can: a model with scores, and rows that are not too wide."""
    return problem.score is not None and width <= _WIDEST


def _normal_cdf(z: Any) -> Any:
    """Φ in single precision: kernels have no error function."""
    x = jnp.clip(z * math.sqrt(0.5), -4.0, 4.0)
    above, below = (reduce(lambda value, c: value * (x * x) + c, part, jnp.zeros_like(x)) for part in _ERF)
    return 0.5 + 0.5 * x * above / below


_NUMBERS = SimpleNamespace(clip=jnp.clip, tanh=jnp.tanh, normal_cdf=_normal_cdf)
"""What scores may call, in forms that kernels have."""


def _kernel(
    problem: Problem, plan: lots.Plan, shape: tuple[int, int], at: Any, keys: Any, whole: Any, listed: Any,
    rows: Any, block: Any, theta: Any, index: Any, out: Any,
) -> None:  # fmt: skip
    """The places of one program in the list of one answer: (2, columns) halves of their sum."""
    from jax.experimental.pallas import triton

    t, k, first = at[0], pl.program_id(0), pl.program_id(1) * _ROWS
    width, columns = shape
    p, d = width - EXTRA, problem.dim
    position = triton.load(listed.at[t, k, first + jax.lax.iota(jnp.int32, _ROWS)])
    member = lots.joins(plan, [keys[t, k, i] for i in range(3)], position)
    own = triton.load(block.at[position], mask=member, other=0)
    weight = triton.load(whole.at[t, k, own], mask=member, other=0.0)
    column = jax.lax.broadcasted_iota(jnp.int32, (_ROWS, columns), 1)
    packed = triton.load(rows.at[position[:, None], column], mask=member[:, None] & (column < width), other=0.0)
    point = triton.load(theta.at[k, jax.lax.iota(jnp.int32, columns)])[None, :]
    x = jnp.where(column < p, packed, 0.0)
    linear, square_x = jnp.sum(x * point, axis=1), jnp.sum(x * x, axis=1)
    y = jnp.sum(jnp.where(column == p, packed, 0.0), axis=1)
    survey = jnp.sum(jnp.where(column == p + 1, packed, 0.0), axis=1)
    score, extra = problem.score(_NUMBERS, [theta[k, d - 1]], linear, y, index[t, k])  # type: ignore[misc]
    extra = jnp.zeros_like(score) if extra is None else extra
    score, extra = clipped(problem.clip, d, score, extra, square_x, survey, once=lambda values: values)
    values = x * (score * weight)[:, None]
    if d > p:
        values = jnp.where(column == p, (extra * weight)[:, None], values)
    number = values.astype(jnp.int32)
    low, high = jnp.sum(number & _LOW, axis=0), jnp.sum(number >> _SPLIT, axis=0)
    out[0, 0, 0, :] = high + (low >> _SPLIT)
    out[0, 0, 1, :] = low & _LOW


def tally(
    problem: Problem,
    plan: lots.Plan,
    rows: Any,
    block: Any,
    batch: dict[str, Any],
    t: Any,
    theta: Any,
    index: Any,
    *,
    interpret: bool = False,
) -> Any:
    """Σ over the members of K answers of step t of whole weighted gradients, as halves (K, 2, d); see `whole_sum`.

    Args:
      rows: (n, ·) packed rows.
      block: (n,) the block of each.
      batch: for some steps the keys (·, K, 4), whole weights (·, K, S) and lists (·, K, places) of their answers.
      theta: (K, d) points.
      index: (·, K) of these steps.
    """
    from jax.experimental.pallas import triton

    k, programs, width = theta.shape[0], plan.places // _ROWS, rows.shape[1]
    columns = lots.power_of_two(max(width, problem.dim, 8))
    point = jnp.pad(theta, ((0, 0), (0, columns - problem.dim)))
    given = (jnp.reshape(t, 1), batch["key"], batch["whole"], batch["listed"], rows, block, point, index)
    parts = pl.pallas_call(
        partial(_kernel, problem, plan, (width, columns)),
        grid=(k, programs),
        out_specs=pl.BlockSpec((1, 1, 2, columns), lambda i, j: (i, j, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((k, programs, 2, columns), jnp.int32),  # type: ignore[no-untyped-call]
        compiler_params=triton.CompilerParams(num_warps=_WARPS),
        interpret=interpret,
    )(*given)
    return jnp.sum(parts, axis=1)[:, :, : problem.dim]
