"""The mechanism: noisy block-weighted sums of clipped per-record gradients, and the loop that asks for them.

This is the seam. A `Session` takes records, and a `Step` from outside: points
to ask about, and what to do with the K answers
s̃ = Σ_{i∈B} w̄_i ∇l(θ, x_i) + N(0, σ²I); T·K of them in all.
The `Mechanism` that the accountant certifies is the object that this code
runs: blocks, concentration, rate, steps, draws and clip are read from it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pgbb.accountant import Mechanism
from pgbb.blocks import block_sizes, draw_weights
from pgbb.errors import PgbbError
from pgbb.models import Problem
from pgbb.private.sampling import Randomness, buffer_size, draw_batches

if TYPE_CHECKING:
    from pgbb.private.records import Records  # needs pandas, which a machine that only trains may lack

__all__ = ["Data", "Session", "Step", "answer", "place", "run_many"]

_SAFETY = 1 - 1e-6  # records are clipped to C(1 − 1e-6), a margin for the rounding of one record's norm
_CLIPS = (1e-12, 1e12)  # outside, squares and noise would leave single precision
_CHUNK_CELLS = 2**21  # batch positions drawn ahead at once


@dataclass(frozen=True)
class Data:
    """Records on the device, one packed row each: x, response − shift, survey weight (0 if invalid), ‖x‖².

    Rows are in the order of the secret partition: the block of row i is ⌊iS/n⌋.
    """

    rows: jax.Array
    n: int


jax.tree_util.register_dataclass(Data, data_fields=["rows"], meta_fields=["n"])


def place(records: "Records", shift: float, order: np.random.Generator | None, *, consume: bool = False) -> Data:
    """Put records on the device, shuffled in place by `order`, or as they are; `consume` spares a copy.

    A shuffle of whole rows needs no second array: the design exists once.
    """
    rows = records.rows if consume else _copy(records.rows)
    rows[:, -3] -= shift
    if order is not None:
        order.shuffle(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0])
    return Data(rows=jax.device_put(rows, may_alias=True), n=len(rows))


def _copy(rows: Any) -> Any:
    from pgbb.private.records import EXTRA, packed

    out = packed(rows.shape[0], rows.shape[1] - EXTRA)
    out[:] = rows
    return out


def answer(problem: Problem, data: Data, rows: Any, weight: Any, theta: Any, index: Any) -> Any:
    """Σ over `rows` of weight · clipped gradient at θ, without noise; shape (d,).

    Each record's gradient is made finite, multiplied by its survey weight and
    clipped to norm C(1 − 1e-6), whatever the model's own bound says. For a model
    with scores the gradient is (score·x, extra), and its norm follows from the
    stored ‖x‖²; θ is padded with zeros so that the packed rows need no slicing.
    """
    packed = data.rows.at[rows].get(mode="promise_in_bounds")
    p = packed.shape[1] - 3
    y, survey, square_x = packed[:, p], packed[:, p + 1], packed[:, p + 2]
    limit = problem.clip * _SAFETY
    if problem.gradient is not None:
        full = problem.gradient(theta, packed[:, :p], index) * survey[:, None]
        full = jnp.where(jnp.all(jnp.isfinite(full), axis=1, keepdims=True), full, 0.0)
        excess = jnp.sqrt(jnp.sum((full / limit) ** 2, axis=1))  # norm over the limit: no square can underflow unseen
        return (weight / jnp.maximum(excess, 1.0)) @ jnp.where(jnp.isfinite(excess)[:, None], full, 0.0)
    assert problem.score is not None
    linear = packed @ jnp.concatenate([theta[:p], jnp.zeros(3, theta.dtype)])
    score, extra = problem.score(jnp, theta, linear, y, index)
    square = (score / limit) ** 2 * square_x
    if extra is not None:
        square = square + (extra / limit) ** 2
    excess = jnp.sqrt(square) * survey  # norm over the limit: no square can underflow unseen
    finite = jnp.isfinite(excess)
    factor = jnp.where(finite, weight * survey / jnp.maximum(excess, 1.0), 0.0)
    total = (jnp.where(finite, score, 0.0) * factor) @ packed
    if extra is None:
        return total[:p]
    return jnp.append(total[:p], factor @ jnp.where(finite, extra, 0.0))


class Step(NamedTuple):
    """What is done between two answers; pure functions that never see a record.

    `query(state, draw)` returns the K points (K, d) to ask about and a memo;
    `update(state, draw, memo, answers)` returns the next state and what to keep.
    `draw` holds this step's u, index and number t. The mechanism answers once
    between the two: there is no way to ask twice with the same batch or noise.
    """

    query: Callable[[Any, dict[str, Any]], tuple[Any, Any]]
    update: Callable[[Any, dict[str, Any], Any, Any], tuple[Any, Any]]


def _loop(
    state: Any, data: Data, sizes: Any, inputs: dict[str, Any], problem: Problem, mechanism: Mechanism, step: Step
) -> Any:
    blocks, n, k = mechanism.blocks, mechanism.n, mechanism.draws_per_step
    first = jnp.cumsum(sizes).astype(jnp.int32)  # position at which the next block begins

    def one(position: Any, row: Any, count: Any, u: Any, point: Any, index: Any) -> Any:
        fits = blocks * n < 2**31  # in a 32-bit product
        block = position * blocks // n if fits else jnp.searchsorted(first, position, side="right")
        weight = jnp.where(jnp.arange(position.shape[0]) < count, (u / sizes)[block], 0.0)
        return answer(problem, data, row, weight, point, index)

    def body(state: Any, drawn: dict[str, Any]) -> Any:
        draw = {name: drawn[name] for name in ("u", "index", "t")}
        points, memo = step.query(state, draw)
        if points.shape != (k, problem.dim):
            raise PgbbError(f"a query of shape {points.shape} is not allowed: it must be {(k, problem.dim)}.")
        rows = drawn.get("row", drawn["position"])
        sums = jax.vmap(one)(drawn["position"], rows, drawn["count"], drawn["u"][:, :blocks], points, drawn["index"])
        return step.update(state, draw, memo, sums + drawn["noise"])

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

    Holds the records out of sight; with `consume` it takes their memory over
    instead of a copy. What is public about it: `problem`,
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
        consume: bool = False,
    ) -> None:
        if records.n != mechanism.n:
            raise PgbbError(f"the mechanism is described for n = {mechanism.n} records, but {records.n} were loaded.")
        if mechanism.clip < problem.clip:
            raise PgbbError(f"the mechanism certifies C = {mechanism.clip:g}, but the model clips at {problem.clip:g}.")
        if not _CLIPS[0] <= problem.clip <= _CLIPS[1]:
            raise PgbbError(
                f"C = {problem.clip:g} is outside [{_CLIPS[0]:g}, {_CLIPS[1]:g}], where single precision could neither "
                "clip nor carry the noise. Change the unit of the response or the loss."
            )
        self.problem, self.mechanism, self.sigma = problem, mechanism, sigma
        self.randomness, self.pseudo_blocks, self.reshuffle = randomness, pseudo_blocks, reshuffle
        self._data = place(records, problem.shift, randomness.secret, consume=consume)
        self._spent = False

    def run(self, state: Any, step: Step, *, chunk: int | None = None) -> Iterator[tuple[int, Any, Any]]:
        """Run all T steps; yields (steps done, state, stacked outputs of the chunk). A session runs once."""
        return _drive([self], state, step, chunk, many=False)

    def _draw(self, count: int, start: int) -> dict[str, np.ndarray]:
        """Everything random in `count` steps, drawn ahead: u and index are public, batches and noise secret."""
        m, rng = self.mechanism, self.randomness
        k, d, total = m.draws_per_step, self.problem.dim, count * m.draws_per_step
        u = draw_weights(m.blocks, m.concentration, self.pseudo_blocks, m.alpha, total, rng.public)
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
    starts = list(range(0, m.steps, chunk))

    def draw(start: int) -> list[dict[str, np.ndarray]]:
        return [s._draw(min(chunk, m.steps - start), start) for s in sessions]

    with ThreadPoolExecutor(max_workers=1) as drawing:  # the next chunk is drawn while this one runs
        ahead = drawing.submit(draw, 0)
        for i, start in enumerate(starts):
            drawn = ahead.result()
            if i + 1 < len(starts):
                ahead = drawing.submit(draw, starts[i + 1])
            if many:
                inputs = {name: jnp.asarray(np.stack([d[name] for d in drawn])) for name in drawn[0]}
                state, out = _run_many(state, data, sizes, inputs, problem, m, step)
            else:
                inputs = {name: jnp.asarray(value) for name, value in drawn[0].items()}
                state, out = _run_one(state, data, sizes, inputs, problem, m, step)
            jax.block_until_ready(state)  # type: ignore[no-untyped-call]
            yield min(start + chunk, m.steps), state, out
