"""The mechanism: noisy block-weighted sums of clipped per-record gradients, and the loop that asks for them.

This is the seam. A `Session` takes records and a `step` from outside; a step
sees records only through `ask`, once, which gives its K answers
s̃ = Σ_{i∈B} w̄_i ∇l(θ, x_i) + N(0, σ²I), and so T·K in all.
The `Mechanism` that the accountant certifies is the object that this code
runs: blocks, concentration, rate, steps, draws and clip are read from it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pgbb.accountant import Mechanism
from pgbb.errors import PgbbError
from pgbb.models import Problem
from pgbb.private.sampling import Randomness, block_sizes, buffer_size, draw_batches, draw_weights

if TYPE_CHECKING:
    from pgbb.private.records import Records  # needs pandas, which a machine that only trains may lack

__all__ = ["Data", "Session", "Step", "answer", "place", "run_many"]

_SAFETY = 1 - 1e-6  # records are clipped to C(1 − 1e-6): single precision cannot exceed C
_CHUNK_CELLS = 2**24  # batch positions drawn ahead at once


@dataclass(frozen=True)
class Data:
    """Records on the device, in the order of the secret partition: block of row i is ⌊iS/n⌋."""

    x: jax.Array
    y: jax.Array
    weight: jax.Array  # survey weight in [0, 1], zero for invalid records
    n: int


jax.tree_util.register_dataclass(Data, data_fields=["x", "y", "weight"], meta_fields=["n"])


def place(x: Any, y: Any, weight: Any, valid: Any, order: Any) -> Data:
    """Put records on the device in the given order; invalid ones keep their place with weight zero."""
    keep = np.asarray(valid)[order]
    return Data(
        x=jnp.asarray(np.asarray(x, np.float32)[order]),
        y=jnp.asarray(np.asarray(y, np.float32)[order]),
        weight=jnp.asarray(np.where(keep, np.asarray(weight, np.float32)[order], 0).astype(np.float32)),
        n=len(order),
    )


def answer(problem: Problem, data: Data, rows: Any, weight: Any, theta: Any, index: Any) -> Any:
    """Σ over `rows` of weight · clipped gradient at θ, without noise; shape (d,).

    Each record's gradient is made finite, multiplied by its survey weight and
    clipped to norm C(1 − 1e-6), whatever the model's own bound says.
    """
    x, y, survey = data.x[rows], data.y[rows], data.weight[rows]
    limit = problem.clip * _SAFETY
    if problem.gradient is not None:
        full = problem.gradient(theta, x, index) * survey[:, None]
        full = jnp.where(jnp.all(jnp.isfinite(full), axis=1, keepdims=True), full, 0.0)
        norm = jnp.sqrt(jnp.sum(full**2, axis=1))
        factor = weight * jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-30))
        return full.T @ factor
    assert problem.score is not None
    score, extra = problem.score(jnp, theta, x, y, index)
    square = score**2 * jnp.sum(x**2, axis=1)
    if extra is not None:
        square = square + jnp.sum(extra**2, axis=1)
    norm = jnp.sqrt(square) * survey
    finite = jnp.isfinite(norm)
    factor = jnp.where(finite, weight * survey * jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-30)), 0.0)
    score = jnp.where(finite, score, 0.0)
    total = (factor * score) @ x
    if extra is not None:
        total = jnp.concatenate([total, factor @ jnp.where(finite[:, None], extra, 0.0)])
    return total


Step = Callable[[Any, dict[str, Any], Callable[[Any], Any]], tuple[Any, Any]]


def _loop(
    state: Any, data: Data, sizes: Any, inputs: dict[str, Any], problem: Problem, mechanism: Mechanism, step: Step
) -> Any:
    blocks, n = mechanism.blocks, mechanism.n
    first = jnp.cumsum(sizes).astype(jnp.int32)  # position at which the next block begins

    def body(state: Any, draw: dict[str, Any]) -> Any:
        asked = 0

        def ask(theta: Any) -> Any:
            nonlocal asked
            asked += 1

            def one(position: Any, row: Any, count: Any, u: Any, point: Any, index: Any) -> Any:
                if blocks * n < 2**31:
                    block = position * blocks // n
                else:
                    block = jnp.searchsorted(first, position, side="right")
                weight = jnp.where(jnp.arange(position.shape[0]) < count, (u / sizes)[block], 0.0)
                return answer(problem, data, row, weight, point, index)

            rows = draw.get("row", draw["position"])
            u = draw["u"][:, :blocks]
            return jax.vmap(one)(draw["position"], rows, draw["count"], u, theta, draw["index"]) + draw["noise"]

        state, out = step(state, {name: draw[name] for name in ("u", "index", "t")}, ask)
        if asked != 1:
            raise PgbbError(f"a step must ask exactly once; this one asked {asked} times")
        return state, out

    return jax.lax.scan(body, state, inputs)


_STATIC = ("problem", "mechanism", "step")
_run_one = partial(jax.jit, static_argnames=_STATIC, donate_argnums=(0,))(_loop)


@partial(jax.jit, static_argnames=_STATIC, donate_argnums=(0,))
def _run_many(
    state: Any, data: Data, sizes: Any, inputs: Any, problem: Problem, mechanism: Mechanism, step: Step
) -> Any:
    return jax.vmap(lambda s, d, i: _loop(s, d, sizes, i, problem, mechanism, step))(state, data, inputs)


class Session:
    """One run of a mechanism on one set of records: T·K answers at noise σ, and no more.

    Holds the records out of sight. What is public about it: `problem`,
    `mechanism`, `sigma`, `pseudo_blocks`, `reshuffle` and `randomness.public`.
    """

    def __init__(
        self,
        records: "Records",
        problem: Problem,
        mechanism: Mechanism,
        sigma: float,
        randomness: Randomness,
        *,
        pseudo_blocks: int = 0,
        reshuffle: bool = False,
    ) -> None:
        if records.n != mechanism.n:
            raise PgbbError(f"the mechanism is described for n = {mechanism.n} records, but {records.n} were loaded.")
        if mechanism.clip < problem.clip:
            raise PgbbError(f"the mechanism certifies C = {mechanism.clip:g}, but the model clips at {problem.clip:g}.")
        self.problem, self.mechanism, self.sigma = problem, mechanism, sigma
        self.randomness, self.pseudo_blocks, self.reshuffle = randomness, pseudo_blocks, reshuffle
        self._data = place(
            records.x,
            records.y - problem.shift,
            records.weight,
            records.valid,
            randomness.secret.permutation(records.n),
        )
        self._spent = False

    def run(self, state: Any, step: Step, *, chunk: int | None = None) -> Iterator[tuple[int, Any, Any]]:
        """Run all T steps; yields (steps done, state, stacked outputs of the chunk). A session runs once."""
        return _drive([self], state, step, chunk, many=False)

    def _draw(self, count: int, start: int) -> dict[str, np.ndarray]:
        """Everything random in `count` steps, drawn ahead: u and index are public, batches and noise secret."""
        m, rng = self.mechanism, self.randomness
        k, d, total = m.draws_per_step, self.problem.dim, count * m.draws_per_step
        u = draw_weights(m, self.pseudo_blocks, total, rng.public)
        index = self.problem.index.draw(total, rng.public) if self.problem.index else np.zeros(total)
        position, size = draw_batches(m.n, m.sampling_rate, total, rng.secret)
        noise = self.sigma * rng.secret.standard_normal((total, d)) if self.sigma > 0 else np.zeros((total, d))
        inputs = {
            "u": u.reshape(count, k, -1).astype(np.float32),
            "index": index.reshape(count, k).astype(np.float32),
            "position": position.reshape(count, k, -1),
            "count": size.reshape(count, k),
            "noise": noise.reshape(count, k, d).astype(np.float32),
            "t": np.arange(start, start + count, dtype=np.int32),
        }
        if self.reshuffle:
            rows = np.stack([rng.secret.permutation(m.n)[p] for p in position]).astype(np.int32)
            inputs["row"] = rows.reshape(count, k, -1)
        return inputs


def run_many(
    sessions: Sequence[Session], state: Any, step: Step, *, chunk: int | None = None
) -> Iterator[tuple[int, Any, Any]]:
    """Run sessions that share problem, mechanism and σ side by side (`vmap`); state and outputs have a leading axis."""
    return _drive(list(sessions), state, step, chunk, many=True)


def _drive(sessions: list[Session], state: Any, step: Step, chunk: int | None, *, many: bool) -> Iterator[Any]:
    first = sessions[0]
    m, problem = first.mechanism, first.problem
    for session in sessions:
        if session._spent:
            raise PgbbError("this session has already given its answers; a second run would not be covered.")
        if session.mechanism != m or session.problem is not problem:
            raise PgbbError("sessions run side by side must share one problem and one mechanism.")
        session._spent = True
    sizes = jnp.asarray(block_sizes(m.n, m.blocks), jnp.float32)
    cells = buffer_size(m.n, m.sampling_rate) * m.draws_per_step * len(sessions)
    chunk = chunk or max(1, min(500, _CHUNK_CELLS // cells))
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[s._data for s in sessions]) if many else first._data
    done = 0
    while done < m.steps:
        count = min(chunk, m.steps - done)
        drawn = [s._draw(count, done) for s in sessions]
        if many:
            inputs = {name: jnp.asarray(np.stack([d[name] for d in drawn])) for name in drawn[0]}
            state, out = _run_many(state, data, sizes, inputs, problem, m, step)
        else:
            inputs = {name: jnp.asarray(value) for name, value in drawn[0].items()}
            state, out = _run_one(state, data, sizes, inputs, problem, m, step)
        done += count
        yield done, state, out
