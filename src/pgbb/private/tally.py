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
from pgbb.private.halves import LOW, SPLIT, carried, joined
from pgbb.private.rows import EXTRA

__all__ = ["serves", "tally"]

_ROWS = 128  # of one program; capacities of lists are a multiple of it
_PARTS = 512  # of an answer, added up at once
_WARPS, _ADDING_WARPS = 1, 8
_WIDEST = 64  # numbers of a row, each in a register
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


def _add(
    problem: Problem, plan: lots.Plan, at: Any, keys: Any, whole: Any, listed: Any, rows: Any, block: Any, theta: Any,
    index: Any, parts: Any,
) -> None:  # fmt: skip
    """The places of one program in the list of one answer: halves of their sum, (2, columns)."""
    from jax.experimental.pallas import triton

    t, k, p, d = at[0], pl.program_id(0), rows.shape[1] - EXTRA, problem.dim
    place = pl.program_id(1) * _ROWS + jax.lax.iota(jnp.int32, _ROWS)
    position = triton.load(listed.at[t, k, place])
    member = lots.joins(plan, [keys[t, k, i] for i in range(3)], position)
    read = partial(triton.load, mask=member, other=0.0)
    *x, y, survey = (read(rows.at[position, j]) for j in range(p + EXTRA))
    weight = read(whole.at[t, k, triton.load(block.at[position], mask=member, other=0)])
    linear, square_x = sum(x[j] * theta[k, j] for j in range(p)), sum(x[j] * x[j] for j in range(p))
    score, extra = problem.score(_NUMBERS, [theta[k, d - 1]], linear, y, index[t, k])  # type: ignore[misc]
    extra = jnp.zeros_like(score) if extra is None else extra
    score, extra = clipped(problem.clip, d, score, extra, square_x, survey, once=lambda values: values)
    score, extra = score * weight, extra * weight
    for j in range(d):
        number = (x[j] * score if j < p else extra).astype(jnp.int32)
        high, low = jnp.sum(number >> SPLIT), jnp.sum(number & LOW)
        parts[0, 0, 0, j], parts[0, 0, 1, j] = carried(high, low)


def _collect(d: int, count: int, at: Any, parts: Any, noise: Any, grid: Any, answers: Any) -> None:
    """One answer from its parts, its noise added before any rounding."""
    from jax.experimental.pallas import triton

    t, k, columns = at[0], pl.program_id(0), parts.shape[-1]
    part = jax.lax.broadcasted_iota(jnp.int32, (_PARTS, columns), 0)
    column = jax.lax.broadcasted_iota(jnp.int32, (_PARTS, columns), 1)

    def more(i: Any, total: tuple[Any, Any]) -> tuple[Any, Any]:
        read = partial(triton.load, mask=i * _PARTS + part < count, other=0)
        high, low = (read(parts.at[k, i * _PARTS + part, half, column]) for half in (0, 1))
        return total[0] + jnp.sum(high, axis=0), total[1] + jnp.sum(low, axis=0)

    nothing = jnp.zeros(columns, jnp.int32)
    high, low = jax.lax.fori_loop(0, -(-count // _PARTS), more, (nothing, nothing))
    column = jax.lax.iota(jnp.int32, columns)
    inside = column < d
    high += triton.load(noise.at[t, k, 0, column], mask=inside, other=0)
    low += triton.load(noise.at[t, k, 1, column], mask=inside, other=0)
    triton.store(answers.at[k, column], joined(high, low) * grid[0], mask=inside)


def tally(
    problem: Problem,
    plan: lots.Plan,
    rows: Any,
    block: Any,
    drawn: dict[str, Any],
    t: Any,
    theta: Any,
    grid: Any,
    *,
    interpret: bool = False,
) -> Any:
    """The K noisy answers of a step, (K, d): sums of whole weighted gradients over members, and noise, times `grid`.

    Args:
      rows: (n, ·) packed rows.
      block: (n,) the block of each.
      drawn: for some steps the keys (·, K, 4), whole weights (·, K, S), lists (·, K, places), noise (·, K, 2, d)
        and index (·, K) of their answers.
      t: which of these steps.
      theta: (K, d) points.
    """
    from jax.experimental.pallas import triton

    k, d = theta.shape
    programs, columns = plan.places // _ROWS, lots.power_of_two(d)
    call, at = partial(pl.pallas_call, interpret=interpret), jnp.reshape(t, 1)
    parts = call(
        partial(_add, problem, plan),
        grid=(k, programs),
        out_specs=pl.BlockSpec((1, 1, 2, columns), lambda i, j: (i, j, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((k, programs, 2, columns), jnp.int32),  # type: ignore[no-untyped-call]
        compiler_params=triton.CompilerParams(num_warps=_WARPS),
    )(at, drawn["key"], drawn["whole"], drawn["listed"], rows, block, theta, drawn["index"])
    return call(
        partial(_collect, d, programs),
        grid=(k,),
        out_shape=jax.ShapeDtypeStruct((k, d), jnp.float32),  # type: ignore[no-untyped-call]
        compiler_params=triton.CompilerParams(num_warps=_ADDING_WARPS),
    )(at, parts, drawn["noise"], jnp.reshape(grid, 1))
