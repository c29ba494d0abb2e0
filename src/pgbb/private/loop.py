"""The compiled loop over steps: a step's points go in, K noisy sums over Poisson batches come out.

Noise is added here, to whole numbers and before anything else sees a sum: on a CPU in
`answers`, on a GPU in the kernel of `batch_sums`, whose totals begin with the noise.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pgbb._numerics.compiled import Compiled, computed_once
from pgbb.accountant import Mechanism
from pgbb.errors import PgbbError
from pgbb.model.blocks import block_sizes
from pgbb.model.problem import Problem
from pgbb.private import poisson_on_device as batches
from pgbb.private.batch_sums import add_batch_sums, noise_totals, serves
from pgbb.private.device_layout import Data
from pgbb.private.gradients import weighted_rows
from pgbb.private.poisson import MULTIPLE
from pgbb.private.wide_integers import joined, wide_sum

Tree: TypeAlias = Any  # nested tuples and dictionaries of arrays, in a form that the step knows
Inputs: TypeAlias = dict[str, Any]  # what `draws` draws: arrays by name, and those of the batch in a dictionary

_LISTS = 16  # most steps whose candidates are listed at once: one turn of the loop
_LISTED = 2**25  # most places of these lists, unless one step has more
_LARGE = 2**12  # least rows of a batch that is worth cutting
PUBLIC = "u", "index", "t", "ahead"  # what a step sees of the inputs
_SHORTER = 4  # listed rows are gathered if there are at least so many times as many records as places


def _nothing(state: Tree, numbers: Array) -> Tree:
    return ()


class Step(NamedTuple):
    """What is done between two answers; pure functions that never see a record.

    `query(state, draw)` returns the K points (K, d) to ask about and a memo; `update(state, draw, memo, answers)`
    returns the next state and what to keep. `draw` holds this step's u, index and number t. The mechanism answers once
    between the two: there is no way to ask twice with the same batch or noise. `ahead(state, numbers)` computes what
    depends on no answer for many steps at once, from their numbers t: arrays with a row a step, in `draw` as "ahead".
    """

    query: Callable[[Tree, dict[str, Array]], tuple[Array, Tree]]
    update: Callable[[Tree, dict[str, Array], Tree, Array], tuple[Tree, Tree]]
    ahead: Callable[[Tree, Array], Tree] = _nothing


def _rows_at(rows: Array, numbers: Array) -> Array:
    """Rows by their numbers, read four columns at a time, which compiles to faster code on a CPU."""
    width = rows.shape[1]
    part = math.gcd(width, 4)
    taken = computed_once(rows.reshape(-1, width // part, part).at[numbers].get(mode="promise_in_bounds"))
    return taken.reshape(-1, width)


def _sum(problem: Problem, packed: Array, inverse: Array, theta: Array, index: Array) -> Array:
    """One answer without noise in units of the grid, (2, d): high and low parts."""
    return jnp.stack(wide_sum(weighted_rows(problem, packed, inverse, theta, index)))[:, : problem.dim]


def _gathered(problem: Problem, rows: Array, batch: dict[str, Array], points: Array, index: Array) -> Array:
    """K answers in the form of `_sum`, (K, 2, d), from the numbered rows of each batch.

    Large batches are cut into 64 parts, which are the first axis: that one cores share, and five answers are not halved
    evenly.
    """
    cut = MULTIPLE if batch["rows"].shape[1] >= _LARGE else 1

    def part(batch: dict[str, Array], theta: Array, index: Array) -> Array:
        return weighted_rows(problem, _rows_at(rows, batch["rows"]), batch["inverse"], theta, index)

    parts = jax.tree.map(lambda v: v.reshape(len(points), cut, -1), batch)
    values = jax.vmap(jax.vmap(part), (1, None, None))(parts, points, index)
    return jnp.stack(jax.vmap(wide_sum, 1)(values), axis=1)[:, :, : problem.dim]


def _loop(
    state: Tree, data: Data, grid: Array, inputs: Inputs, problem: Problem, mechanism: Mechanism, step: Step
) -> tuple[Tree, Tree]:
    """Run the steps of `inputs`: each asks about the K points of a query, adds the noise, and updates the state.

    Where batches are numbered on the host, their rows are gathered. Where the device draws them, a pass over all rows
    (`masked`) is replaced by one over a list of candidates (`listed`) at small rates, and on a GPU by one kernel for a
    few steps at once (`few`).
    """
    k, n = mechanism.draws_per_step, mechanism.n
    on_device = "key" in inputs["batch"]
    sampler = cast(batches.Sampler, batches.sampler(n, mechanism.sampling_rate) if on_device else None)
    sparse = mechanism.sampling_rate <= batches.SPARSE and jax.default_backend() == "gpu"
    place = jnp.arange(data.rows.shape[0], dtype=jnp.int32)  # where devices draw, rows of a block are neighbours
    ends = jnp.asarray(np.cumsum(block_sizes(n, mechanism.blocks)), jnp.int32)
    block = jnp.minimum(jnp.searchsorted(ends, place, side="right"), mechanism.blocks - 1).astype(jnp.int32)

    def masked(batch: dict[str, Array], point: Array, index: Array) -> Array:
        """The sum over a batch by a pass over all rows, in which those that do not join have weight 0."""
        joins = batches.mask(sampler, batch["key"])
        joins = joins[jnp.minimum(place, n - 1)] & (place < n)
        return _sum(problem, data.rows, jnp.where(joins, batch["inverse"][block], jnp.inf), point, index)

    def listed(batch: dict[str, Array], point: Array, index: Array) -> Array:
        """The sum over a batch as in `masked`, from the rows of candidates alone."""
        found = batches.candidates(sampler, batch["key"])
        at = jnp.maximum(found, 0)
        inverse = jnp.where(batches.joins(sampler, batch["key"], found), batch["inverse"][block[at]], jnp.inf)
        return _sum(problem, data.rows[at], inverse, point, index)

    def answers(points: Array, drawn: Inputs) -> Array:
        """The K noisy answers of a step."""
        short = sparse and on_device and _SHORTER * sampler.places <= n
        sums = jax.vmap(listed if short else masked) if on_device else partial(_gathered, problem, data.rows)
        found = sums(drawn["batch"], points, drawn["index"])
        found += drawn["noise"]  # whole numbers, added before any rounding
        return joined(found[:, 0], found[:, 1]) * grid

    def asked(state: Tree, drawn: Inputs) -> tuple[Array, dict[str, Array], Tree]:
        """The points of a step, its public draws, and the memo of the query."""
        draw = {name: drawn[name] for name in PUBLIC}
        points, memo = step.query(state, draw)
        if points.shape != (k, problem.dim):
            raise PgbbError(f"a query of shape {points.shape} is not allowed: it must be {(k, problem.dim)}.")
        return computed_once(points), draw, memo

    def one(state: Tree, drawn: Inputs) -> tuple[Tree, Tree]:
        points, draw, memo = asked(state, drawn)
        return step.update(state, draw, memo, computed_once(answers(points, drawn)))

    def few(state: Tree, drawn: Inputs) -> tuple[Tree, Tree]:
        """Run a few steps whose candidates are listed at once."""
        ahead = {**drawn["batch"], "index": drawn["index"]}
        ahead["listed"] = jax.vmap(jax.vmap(partial(batches.candidates, sampler)))(ahead["key"])

        def next_one(carry: tuple[Tree, Array], drawn: Inputs) -> tuple[Tree, Tree]:
            state, totals = carry
            points, draw, memo = asked(state, drawn)
            totals = add_batch_sums(problem, sampler, data.rows, block, ahead, drawn["place"], points, totals)
            high, low = (totals[drawn["place"], :, half, : problem.dim] for half in (0, 1))
            state, out = step.update(state, draw, memo, computed_once(joined(high, low) * grid))
            return (state, totals), out

        each = {name: drawn[name] for name in PUBLIC}
        each["place"] = jnp.arange(len(drawn["t"]), dtype=jnp.int32)
        carry = state, noise_totals(drawn["noise"], data.rows.shape[1])
        (state, _), out = jax.lax.scan(next_one, carry, each, unroll=True)
        return state, out

    inputs = {**inputs, "ahead": step.ahead(state, inputs["t"])}
    if not (on_device and sparse and serves(problem, data.rows.shape[1])):
        return jax.lax.scan(one, state, inputs)
    count = inputs["t"].shape[0]
    most = max(1, min(_LISTS, _LISTED // (k * sampler.places)))
    size = max(size for size in range(1, most + 1) if count % size == 0)
    state, out = jax.lax.scan(few, state, jax.tree.map(lambda v: v.reshape(-1, size, *v.shape[1:]), inputs))
    return state, jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), out)


STATIC = ("problem", "mechanism", "step")
run_one = Compiled(_loop, static_argnames=STATIC, donate_argnums=(0,))


@partial(Compiled, static_argnames=STATIC, donate_argnums=(0,))
def run_many(
    state: Tree, data: Data, grid: Array, inputs: Inputs, problem: Problem, mechanism: Mechanism, step: Step
) -> tuple[Tree, Tree]:
    """`run_one` for several runs of one problem and mechanism side by side, along a leading axis."""
    return jax.vmap(lambda s, d, g, i: _loop(s, d, g, i, problem, mechanism, step))(state, data, grid, inputs)
