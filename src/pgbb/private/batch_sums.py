"""Batch sums on a GPU in one kernel: who joins, their rows, gradients, the clip and whole numbers.

It does what `gradients.weighted_rows` and `wide_sum` do in plain array operations, which are the reference for it: a
row is read where it is, and nothing of it is written but its share of a sum of whole numbers. What a record adds
depends on its row alone, and is clipped by the same code.
"""

import math
from functools import partial, reduce
from types import SimpleNamespace
from typing import cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from pgbb._numerics.compiled import power_of_two
from pgbb.model.problem import Problem
from pgbb.private import poisson_on_device as batches
from pgbb.private.gradients import clipped_score
from pgbb.private.kernel import ERF
from pgbb.private.poisson_on_device import Ref
from pgbb.private.row_layout import EXTRA
from pgbb.private.wide_integers import LOW, SPLIT

_ROWS = 64  # rows of a program: so many whole numbers of 24 bits add up in 32; capacities of lists are a multiple
_WARPS = 1  # warps of a program
_WIDEST = 64  # most numbers of a row


def serves(problem: Problem, width: int) -> bool:
    """Whether the kernel serves a problem: it must have scores, and rows that are not too wide."""
    return problem.score is not None and width <= _WIDEST


def _normal_cdf(z: Array) -> Array:
    """Φ in single precision: kernels have no error function."""
    x = jnp.clip(z * math.sqrt(0.5), -4.0, 4.0)
    above, below = (reduce(lambda value, c: value * (x * x) + c, part, jnp.zeros_like(x)) for part in ERF)
    return 0.5 + 0.5 * x * above / below


_NUMBERS = SimpleNamespace(clip=jnp.clip, tanh=jnp.tanh, normal_cdf=_normal_cdf)
"""What scores may call, in forms that kernels have."""


def _add(
    problem: Problem, draw: batches.Sampler, at: Ref, keys: Ref, whole: Ref, listed: Ref, rows: Ref, block: Ref,
    theta: Ref, index: Ref, _noise: Ref, totals: Ref,
) -> None:  # fmt: skip
    """Add to the total what the records of one program contribute to one answer.

    A lane reads its row in fours of columns, twos or ones: of all rows these are a piece. In every tile of a list free
    places come last, so that programs that begin with one have nothing to do.
    """
    from jax.experimental.pallas import triton

    t, k, first, width = at[0], pl.program_id(0), pl.program_id(1) * _ROWS, rows.shape[1]
    p, d, part = width - EXTRA, problem.dim, _part(width)
    columns = [i + jax.lax.iota(jnp.int32, part) for i in range(0, width, part)]

    @pl.when(listed[t, k, first] != batches.EMPTY)
    def _() -> None:
        position = triton.load(listed.at[t, k, first + jax.lax.iota(jnp.int32, _ROWS)])
        member = batches.joins(draw, [keys[t, k, i] for i in range(3)], position)
        row = [triton.load(rows.at[position[:, None], c[None, :]], mask=member[:, None], other=0.0) for c in columns]
        weight = triton.load(block.at[position], mask=member, other=0)
        weight = triton.load(whole.at[t, k, weight], mask=member, other=0.0)
        point = [triton.load(theta.at[k, c], mask=c < p, other=0.0)[None, :] for c in columns]
        x = [jnp.where((c < p)[None, :], r, 0.0) for c, r in zip(columns, row, strict=True)]

        def column(j: int) -> Array:
            return jnp.sum(jnp.where((columns[j // part] == j)[None, :], row[j // part], 0.0), axis=1)

        linear = cast(Array, sum(jnp.sum(a * b, axis=1) for a, b in zip(x, point, strict=True)))
        square_x = cast(Array, sum(jnp.sum(a * a, axis=1) for a in x))
        score, extra = jax.vmap(partial(_score, problem, theta[k, d - 1], index[t, k]))(linear, column(p))
        score, extra = clipped_score(problem, score, extra, square_x, column(p + 1), once=lambda values: values)
        score, extra = (score * weight)[:, None], (extra * weight)[:, None]
        half, piece, within = (jax.lax.broadcasted_iota(jnp.int32, (2, _pieces(width), part), i) for i in range(3))
        total = jnp.zeros(half.shape, jnp.int32)
        for i, (c, a) in enumerate(zip(columns, x, strict=True)):
            number = jnp.where((c == p)[None, :], extra, a * score).astype(jnp.int32)
            total = jnp.where(piece == i, jnp.sum(number, axis=0)[None, None, :], total)
        total = jnp.where(half == 0, total >> SPLIT, total & LOW)
        jax.ref.addupdate(totals, (t, k, half, piece * part + within), total)  # atomic: programs take no turns


def _score(problem: Problem, last: Array, index: Array, linear: Array, y: Array) -> tuple[Array, Array | None]:
    """The score of one record, and its extra component if the model has one."""
    return problem.score(_NUMBERS, [last], linear, y, index)  # type: ignore[misc]


def _part(width: int) -> int:
    return math.gcd(width, 4)


def _pieces(width: int) -> int:
    return power_of_two(width // _part(width))


def noise_totals(noise: Array, width: int) -> Array:
    """Totals that hold noise and nothing else, (·, K, 2, columns), from noise (·, K, 2, d) and the width of rows."""
    columns = _pieces(width) * _part(width)
    return jnp.pad(noise, [(0, 0)] * (noise.ndim - 1) + [(0, columns - noise.shape[-1])])


def add_batch_sums(
    problem: Problem,
    draw: batches.Sampler,
    rows: Array,
    block: Array,
    drawn: dict[str, Array],
    t: Array | int,
    theta: Array,
    totals: Array,
    *,
    interpret: bool = False,
) -> Array:
    """Totals with the K answers of a step: to their noise, sums of whole weighted gradients over members are added.

    Args:
      rows: (n, ·) packed rows.
      block: (n,) the block of each.
      drawn: for some steps the keys (·, K, 4), whole weights (·, K, S), candidates (·, K, places) and index (·, K) of
        their answers.
      t: which of these steps.
      theta: (K, d) points.
      totals: (·, K, 2, columns) parts of the answers of these steps, as `noise_totals` makes them; updated in place.
    """
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        partial(_add, problem, draw),
        grid=(theta.shape[0], draw.places // _ROWS),
        out_shape=jax.ShapeDtypeStruct(totals.shape, jnp.int32),  # type: ignore[no-untyped-call]
        input_output_aliases={8: 0},
        compiler_params=triton.CompilerParams(num_warps=_WARPS),
        interpret=interpret,
    )(
        jnp.reshape(t, 1), drawn["key"], drawn["whole"], drawn["listed"], rows, block, theta, drawn["index"], totals
    )  # fmt: skip
