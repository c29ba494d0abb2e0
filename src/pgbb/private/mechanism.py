"""The mechanism: noisy block-weighted sums of clipped per-record gradients, and the loop that asks for them.

This is the seam. A `Session` takes records, and a `Step` from outside: points
to ask about, and what to do with the K answers
s̃ = Σ_{i∈B} w̄_i ∇l(θ, x_i) + N(0, σ²I); T·K of them in all.
The `Mechanism` that the accountant certifies is the object that this code
runs: blocks, concentration, rate, steps, draws and clip are read from it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from pgbb._numerics.compiled import Compiled, computed_once, dots
from pgbb._numerics.threads import mapped
from pgbb.accountant import Mechanism
from pgbb.errors import PgbbError
from pgbb.model.blocks import block_sizes, draw_weights
from pgbb.model.models import Problem
from pgbb.private import batches
from pgbb.private.batch_sums import serves, start, tally
from pgbb.private.clipping import clipped, margins
from pgbb.private.hosts import Together
from pgbb.private.noise import rounded_normals
from pgbb.private.partition import Share
from pgbb.private.rows import EXTRA, aligned, empty_rows
from pgbb.private.sampling import MULTIPLE, Randomness, buffer_size, draw_batches
from pgbb.private.wide_integers import LOW, SPLIT, carried, joined

if TYPE_CHECKING:
    from pgbb.private.records import Records  # needs pandas, which a machine that only trains may lack

__all__ = [
    "Data",
    "Position",
    "Session",
    "Step",
    "answer",
    "place",
    "place_share",
    "run_many",
    "shifted",
    "weighted",
    "whole_sum",
]

_CLIPS = (1e-12, 1e12)  # outside, squares and noise would leave single precision
_CHUNK_CELLS = 2**21  # batch positions drawn ahead at once
_BITS, _FEWEST = 24, 8  # bits of a whole number: what single precision holds; fewer where the noise is huge
_LISTS = 16  # steps whose members are listed at once, and which are a turn of the loop, at most
_LISTED = 2**25  # places of their lists, at most, unless one step has more
_LARGE = 2**12  # rows of a batch that is worth cutting
_ROWS = 2**24  # most rows of a batch, so that low halves add up in 32 bits


@dataclass(frozen=True)
class Data:
    """Records on the device, one packed row each: x, response − shift, survey weight (0 if invalid).

    Rows are in the order of the secret partition: the block of position i is
    ⌊iS/n⌋. Row i has position i, or `position[i]` where other processes hold other rows.
    """

    rows: jax.Array
    n: int
    position: jax.Array | None = None


jax.tree_util.register_dataclass(Data, data_fields=["rows", "position"], meta_fields=["n"])


def shifted(records: "Records", shift: float, *, consume: bool = False) -> Any:
    """Packed rows with the response shifted, in a copy of their own unless `consume` spares it."""
    rows = records.rows if consume else _copy(records.rows)
    rows[:, -EXTRA] -= shift
    return rows


def place(records: "Records", shift: float, order: np.random.Generator | None, *, consume: bool = False) -> Data:
    """Put records on the device, shuffled in place by `order`, or as they are; `consume` spares a copy.

    A shuffle of whole rows needs no second array: the design exists once.
    """
    rows = shifted(records, shift, consume=consume)
    if order is not None:
        order.shuffle(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0])
    return Data(rows=jax.device_put(rows, may_alias=True), n=len(rows))


def place_share(records: "Records", shift: float, order: np.random.Generator, share: Share) -> tuple[Data, Any]:
    """A share of the records in the order that `place` gives to all n, and their positions in it, increasing.

    The same generator swaps numbers here and rows there: position i of all holds record order[i] in both.
    """
    number = np.arange(share.n, dtype=np.int64)
    order.shuffle(number)
    held = np.flatnonzero((share.first <= number) & (number < share.last))
    rows = empty_rows(len(held), records.p)
    np.take(shifted(records, shift, consume=True), number[held] - share.first, axis=0, out=rows)
    return Data(rows=jax.device_put(rows, may_alias=True), n=share.n, position=jnp.asarray(held, jnp.int32)), held


def _copy(rows: Any) -> Any:
    out = empty_rows(rows.shape[0], rows.shape[1] - EXTRA)
    out[:] = rows
    return out


def weighted(problem: Problem, packed: Any, inverse: Any, theta: Any, index: Any) -> Any:
    """Weight times gradient at θ of packed records, the gradient in units of C: the first d columns of (rows, ·).

    Each gradient is made finite, multiplied by its survey weight and clipped to
    norm 1, whatever the model's own bound says. For a model with scores the gradient is
    (score·x, extra), and its norm follows from ‖x‖². All is done row by row,
    not by products of matrices, whose rounding may depend on the place
    of a row and on the device: a row of the result depends on its record alone.
    """
    p, d = packed.shape[1] - EXTRA, problem.dim
    x, y, survey = packed[:, :p], packed[:, p], packed[:, p + 1]
    if problem.gradient is not None:
        keep, bound = margins(d)
        unit = computed_once(problem.gradient(theta, x, index) * survey[:, None] / (problem.clip * keep))
        unit = computed_once(unit * (keep / jnp.maximum(jnp.sqrt(dots(unit, unit)), 1.0))[:, None])
        return jnp.where((dots(unit, unit) <= bound)[:, None], unit, 0.0) / inverse[:, None]
    assert problem.score is not None
    linear, square_x = _products(x, theta[:p])
    score, extra = problem.score(jnp, theta, linear, y, index)
    extra = jnp.zeros_like(score) if extra is None else extra
    score, extra = clipped(problem.clip, d, score, extra, square_x, survey)
    score, extra = score / inverse, extra / inverse
    if d == p:
        return x * score[:, None]
    return jnp.where(jnp.arange(p + EXTRA) == p, extra[:, None], packed * score[:, None])


def _products(x: Any, theta: Any) -> tuple[Any, Any]:
    """x·θ and ‖x‖² of rows; on a CPU in one pass, and once: every result is a loop of its own there."""
    if jax.default_backend() != "cpu":
        return dots(x, theta[None]), dots(x, x)
    zero = jnp.zeros((), x.dtype)
    linear, square_x = jax.lax.reduce(
        (x * theta, x * x), (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), dimensions=(1,)
    )
    return computed_once((linear, square_x))


def answer(problem: Problem, data: Data, rows: Any, weight: Any, theta: Any, index: Any) -> Any:
    """Σ over `rows` of weight · clipped gradient at θ, without noise, in single precision; shape (d,).

    For records that are public: what a `Session` answers is a sum of whole numbers.
    """
    values = weighted(problem, data.rows[rows], 1 / weight, theta, index)
    return problem.clip * jnp.sum(values[:, : problem.dim], axis=0)


def _rows_at(rows: Any, numbers: Any) -> Any:
    """Rows by their numbers; taken in fours of columns, of which compilers for a CPU make faster code."""
    width = rows.shape[1]
    part = math.gcd(width, 4)
    taken = computed_once(rows.reshape(-1, width // part, part).at[numbers].get(mode="promise_in_bounds"))
    return taken.reshape(-1, width)


def whole_sum(values: Any) -> tuple[Any, Any]:
    """The sum over rows of values truncated to whole numbers, as high·2¹² + low with 0 ≤ low < 2¹², modulo 2⁴⁴.

    Values are at most 2²⁴, so that 64 of them add up in 32 bits, and the low
    halves of 2¹⁸ such sums again. The high halves may wrap
    around: what is returned is still a function of the sum alone. Sums of whole
    numbers are the same in any order. The number of rows is a multiple of 64; values may be cut into parts already.
    """
    whole = _folded(values.astype(jnp.int32).reshape(MULTIPLE, -1, values.shape[-1]))
    both = _folded(jnp.concatenate([whole & LOW, whole >> SPLIT], axis=1))
    low, high = jnp.split(both, 2)
    return carried(high, low)


def _folded(whole: Any) -> Any:
    """The sum over the first axis; on a CPU by adding halves: compilers are slow at narrow columns there."""
    if jax.default_backend() != "cpu":
        return jnp.sum(whole, axis=0)
    while whole.shape[0] > 1:
        if whole.shape[0] % 2:
            whole = jnp.concatenate([whole, jnp.zeros_like(whole[:1])])
        half = whole.shape[0] // 2
        whole = whole[:half] + whole[half:]
    return whole[0]


class Step(NamedTuple):
    """What is done between two answers; pure functions that never see a record.

    `query(state, draw)` returns the K points (K, d) to ask about and a memo;
    `update(state, draw, memo, answers)` returns the next state and what to keep.
    `draw` holds this step's u, index and number t. The mechanism answers once
    between the two: there is no way to ask twice with the same batch or noise.
    """

    query: Callable[[Any, dict[str, Any]], tuple[Any, Any]]
    update: Callable[[Any, dict[str, Any], Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Position:
    """Where a run stands after a chunk, for another process to go on from: public, but for the order.

    Neither batches nor noise are in it. The order of the records is no secret
    on which privacy rests: the proof holds for every fixed partition.

    Attributes:
      steps: how many are done.
      chunk: how many are drawn at once, on which the sequence of u depends.
      public: state of the public generator after the chunk, although more may have been drawn ahead.
      order: seed of the order of the records.
    """

    steps: int
    chunk: int
    public: Mapping[str, Any]
    order: int | None


def _halves(problem: Problem, packed: Any, inverse: Any, theta: Any, index: Any) -> Any:
    """One answer without noise in units of the grid, (2, d): high and low halves."""
    return jnp.stack(whole_sum(weighted(problem, packed, inverse, theta, index)))[:, : problem.dim]


def _gathered(problem: Problem, rows: Any, batch: Any, points: Any, index: Any) -> Any:
    """K answers as `_halves` has one, (K, 2, d), from the rows that each batch numbers.

    Large batches are cut into 64 parts, which are the first axis: that one cores share, and five answers are not halved
    evenly.
    """
    cut = MULTIPLE if batch["rows"].shape[1] >= _LARGE else 1

    def part(batch: Any, theta: Any, index: Any) -> Any:
        return weighted(problem, _rows_at(rows, batch["rows"]), batch["inverse"], theta, index)

    parts = jax.tree.map(lambda v: v.reshape(len(points), cut, -1), batch)
    values = jax.vmap(jax.vmap(part), (1, None, None))(parts, points, index)
    return jnp.stack(jax.vmap(whole_sum, 1)(values), axis=1)[:, :, : problem.dim]


def _loop(
    state: Any,
    data: Data,
    grid: Any,
    inputs: dict[str, Any],
    problem: Problem,
    mechanism: Mechanism,
    step: Step,
    together: Together | None = None,
) -> Any:
    k, n = mechanism.draws_per_step, mechanism.n
    by_lot = "key" in inputs["batch"]
    plan: Any = batches.lot_plan(n, mechanism.sampling_rate) if by_lot else None
    position = jnp.arange(data.rows.shape[0], dtype=jnp.int32) if data.position is None else data.position
    first = jnp.asarray(np.cumsum(block_sizes(n, mechanism.blocks)), jnp.int32)  # where the next block begins
    block = jnp.minimum(jnp.searchsorted(first, position, side="right"), mechanism.blocks - 1).astype(jnp.int32)
    sparse = data.position is None and mechanism.sampling_rate <= batches.SPARSE and jax.default_backend() == "gpu"

    def drawn_by_lot(batch: Any, point: Any, index: Any) -> Any:
        joins = batches.mask(plan, batch["key"])  # every process draws the lots of all, and keeps those of its rows
        joins = joins[jnp.minimum(position, n - 1)] & (position < n)
        return _halves(problem, data.rows, jnp.where(joins, batch["inverse"][block], jnp.inf), point, index)

    def answers(points: Any, drawn: Any) -> Any:
        halves = jax.vmap(drawn_by_lot) if by_lot else partial(_gathered, problem, data.rows)
        found = halves(drawn["batch"], points, drawn["index"])
        found += drawn["noise"]  # whole numbers, added before any rounding
        if together is not None:  # only process 0 has added noise
            found = io_callback(together.total_of, jax.eval_shape(lambda: found), found, ordered=True)
        return joined(found[:, 0], found[:, 1]) * grid

    def asked(state: Any, drawn: dict[str, Any]) -> tuple[Any, dict[str, Any], Any]:
        draw = {name: drawn[name] for name in ("u", "index", "t")}
        points, memo = step.query(state, draw)
        if points.shape != (k, problem.dim):
            raise PgbbError(f"a query of shape {points.shape} is not allowed: it must be {(k, problem.dim)}.")
        points = computed_once(points)
        if together is not None:  # the points of process 0, for all
            points = io_callback(together.first_of, jax.eval_shape(lambda: points), points, ordered=True)
        return points, draw, memo

    def one(state: Any, drawn: dict[str, Any]) -> Any:
        points, draw, memo = asked(state, drawn)
        return step.update(state, draw, memo, computed_once(answers(points, drawn)))

    def few(state: Any, drawn: dict[str, Any]) -> Any:
        """Steps whose members are listed ahead, all at once."""
        ahead = {**drawn["batch"], "index": drawn["index"]}
        ahead["listed"] = jax.vmap(jax.vmap(partial(batches.listed, plan)))(ahead["key"])

        def next_one(carry: tuple[Any, Any], drawn: dict[str, Any]) -> Any:
            state, totals = carry
            points, draw, memo = asked(state, drawn)
            totals = tally(problem, plan, data.rows, block, ahead, drawn["place"], points, totals)
            high, low = (totals[drawn["place"], :, half, : problem.dim] for half in (0, 1))
            state, out = step.update(state, draw, memo, computed_once(joined(high, low) * grid))
            return (state, totals), out

        each = {name: drawn[name] for name in ("u", "index", "t")}
        each["place"] = jnp.arange(len(drawn["t"]), dtype=jnp.int32)
        carry = state, start(drawn["noise"], data.rows.shape[1])
        (state, _), out = jax.lax.scan(next_one, carry, each, unroll=True)
        return state, out

    if not (by_lot and sparse and serves(problem, data.rows.shape[1])):
        return jax.lax.scan(one, state, inputs)
    count = inputs["t"].shape[0]
    most = max(1, min(_LISTS, _LISTED // (k * plan.places)))
    size = max(size for size in range(1, most + 1) if count % size == 0)
    state, out = jax.lax.scan(few, state, jax.tree.map(lambda v: v.reshape(-1, size, *v.shape[1:]), inputs))
    return state, jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), out)


_STATIC = ("problem", "mechanism", "step", "together")
_run_one = Compiled(_loop, static_argnames=_STATIC, donate_argnums=(0,))


@partial(Compiled, static_argnames=_STATIC[:3], donate_argnums=(0,))
def _run_many(
    state: Any, data: Data, grid: Any, inputs: Any, problem: Problem, mechanism: Mechanism, step: Step
) -> Any:
    return jax.vmap(lambda s, d, g, i: _loop(s, d, g, i, problem, mechanism, step))(state, data, grid, inputs)


def _bits(noise: float) -> int:
    """Bits of the grid C·2^−bits/n_S: 24, or fewer so that noise of `noise`·C/n_S stays inside 44 bits; public."""
    bits = _BITS if noise == 0 else min(_BITS, 38 - math.ceil(math.log2(noise)))
    if bits < _FEWEST:
        raise PgbbError(
            f"the noise is {noise:.2g} times what one record can contribute: nothing would be left of the answers. "
            "Take a larger epsilon, fewer steps or a smaller sampling rate."
        )
    return bits


class Session:
    """One run of a mechanism on one set of records: T·K answers at noise σ, and no more.

    Holds the records out of sight; with `consume` it takes their memory over
    instead of a copy. What is public about it: `problem`,
    `mechanism`, `sigma`, `pseudo_blocks`, `reshuffle` and `randomness.public`.
    With `resume` it gives only the answers that are left after that position,
    with the u of the run that reached it, and batches and noise of its own.
    With a `share` of the records, every process has a session and draws the same u, order and
    batches; each sums over the members that it holds, at the points of process 0,
    sums are added as whole numbers, and process 0 alone adds noise, once.

    On a CPU, the members of a batch are drawn on the host and their rows gathered.
    On other devices each record draws its own lot (`by_lot`, see `lots`): a word of a keystream that is
    keyed afresh for every answer decides whether it joins.
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
        by_lot: bool | None = None,
        resume: Position | None = None,
        share: Share | None = None,
    ) -> None:
        self._share = share = Share.of(records.n, None) if share is None else share
        if share.last - share.first != records.n:
            raise PgbbError(f"{records.n} records were loaded, but this process has {share.last - share.first}.")
        if share.n != mechanism.n:
            raise PgbbError(f"the mechanism is described for n = {mechanism.n} records, but {share.n} were loaded.")
        if share.n >= 2**31:
            raise PgbbError(f'{share.n:,} records are too many: positions have 31 bits. Take method="calibrated".')
        if (mechanism.alpha > 0) != (pseudo_blocks > 0):
            raise PgbbError(
                f"alpha = {mechanism.alpha:g} with {pseudo_blocks} blocks of pseudo-samples is not what is certified: "
                "mass and blocks go together."
            )
        if mechanism.clip < problem.clip:
            raise PgbbError(f"the mechanism certifies C = {mechanism.clip:g}, but the model clips at {problem.clip:g}.")
        if not _CLIPS[0] <= problem.clip <= _CLIPS[1]:
            raise PgbbError(
                f"C = {problem.clip:g} is outside [{_CLIPS[0]:g}, {_CLIPS[1]:g}], where single precision could neither "
                "clip nor carry the noise. Change the unit of the response or the loss."
            )
        self.problem, self.mechanism, self.sigma = problem, mechanism, sigma
        self.randomness, self.pseudo_blocks, self.reshuffle = randomness, pseudo_blocks, reshuffle
        fits = mechanism.n <= _ROWS and not reshuffle
        self.by_lot = fits and jax.default_backend() != "cpu" if by_lot is None else by_lot
        if share.together is not None:  # with other processes, as process 0 does: all must draw the same batches
            self.by_lot = share.together.first(b"%d" % self.by_lot) == b"1"
        rate = 1.0 if self.by_lot else mechanism.sampling_rate
        if (rows := buffer_size(mechanism.n, rate)) > _ROWS:
            raise PgbbError(
                f"batches of up to {rows:,} records are too large: their exact sum is proved to fit up to {_ROWS:,}. "
                'Take a smaller sampling rate, or method="calibrated".'
            )
        self._bits = _bits(sigma * mechanism.block_size / problem.clip)
        self.grid = problem.clip / mechanism.block_size * 2.0**-self._bits
        if resume is not None:
            if resume.steps > mechanism.steps:
                raise PgbbError(f"a run of {mechanism.steps:,} steps cannot go on after step {resume.steps:,}.")
            randomness.public.bit_generator.state = dict(resume.public)
        self._resume, self._reached = resume, resume
        self._local: Any = None  # row of every position, −1 where another process has it; None where this one has all
        if share.together is None:
            self._data = place(records, problem.shift, randomness.secret, consume=consume)
        else:
            self._data, held = place_share(records, problem.shift, randomness.secret, share)
            self._local = np.full(mechanism.n, -1, np.int32)
            self._local[held] = np.arange(len(held), dtype=np.int32)
        if self.by_lot and (extra := -records.n % MULTIPLE):
            position = self._data.position
            self._data = replace(
                self._data,
                rows=jnp.pad(self._data.rows, ((0, extra), (0, 0))),
                position=None if position is None else jnp.pad(position, (0, extra), constant_values=mechanism.n),
            )
        self._spent = False

    @property
    def resumed(self) -> Position | None:
        """Where an earlier process had come to; None for a run from the start."""
        return self._resume

    @property
    def position(self) -> Position:
        """Where the run stands, after the last chunk that it has yielded."""
        if self._reached is not None:
            return self._reached
        return Position(0, _chunk([self]), self.randomness.public.bit_generator.state, self.randomness.order)

    def run(self, state: Any, step: Step, *, chunk: int | None = None) -> Iterator[tuple[int, Any, Any]]:
        """Run the steps that are left; yields (steps done, state, stacked outputs of a chunk). A session runs once."""
        return _drive([self], state, step, chunk, many=False)

    def _draw(self, count: int, start: int) -> dict[str, Any]:
        """Everything random in `count` steps, drawn ahead: u and index are public, batches and noise secret."""
        m, rng = self.mechanism, self.randomness
        k, d, total = m.draws_per_step, self.problem.dim, count * m.draws_per_step
        u = draw_weights(m.blocks, m.concentration, self.pseudo_blocks, m.alpha, total, rng.public)
        index = self.problem.index.draw(total, rng.public) if self.problem.index else np.zeros(total)
        whole = np.floor(u[:, : m.blocks] * (m.block_size / block_sizes(m.n, m.blocks) * 2.0**self._bits))
        noise = np.zeros((total, d), np.int64)  # of a process that does not lead: noise is added once
        if self._share.leads:
            noise = rounded_normals(rng.noise, self.sigma, self.grid, (total, d))
        drawn = {
            "u": u.astype(np.float32),
            "index": index.astype(np.float32),
            "batch": self._lots(whole, start * k) if self.by_lot else self._members(whole),
            "noise": np.stack([noise >> SPLIT, noise & LOW], axis=1).astype(np.int32),
        }
        shaped: dict[str, Any] = jax.tree.map(lambda v: v.reshape(count, k, *v.shape[1:]), drawn)
        return shaped | {"t": np.arange(start, start + count, dtype=np.int32)}

    def _lots(self, whole: Any, first: int) -> dict[str, np.ndarray]:
        """A key for every answer, from the stream of batches, and its number; the whole weights of blocks, and 1/W."""
        key = np.zeros((len(whole), 4), np.uint32)
        key[:, :2] = self.randomness.batches.words(len(whole)).view(np.uint32).reshape(-1, 2)
        key[:, 2] = np.arange(first, first + len(whole))
        return {"key": key, "whole": whole.astype(np.float32), "inverse": _inverse(whole)}

    def _members(self, whole: Any) -> dict[str, np.ndarray]:
        """The members of every batch, and their inverse weights."""
        m, rng = self.mechanism, self.randomness
        position, size = draw_batches(m.n, m.sampling_rate, len(whole), rng.batches)
        rows = position
        if self.reshuffle:
            rows = np.stack([rng.secret.permutation(m.n)[p] for p in position]).astype(np.int32)
        inverse = inverse_weights(m, whole, position, size)
        if self._local is None:
            return {"rows": rows, "inverse": inverse}
        return members_here(self._local[rows], inverse, buffer_size(self._data.rows.shape[0], m.sampling_rate))


def members_here(rows: Any, inverse: Any, expected: int) -> dict[str, np.ndarray]:
    """Of every batch the members that this process holds, and their inverse weights, infinite for padding.

    `rows` is −1 for those of others. The buffer holds `expected` members, or all there may be where a batch has more.
    """
    here = (rows >= 0) & np.isfinite(inverse)
    most = int(here.sum(axis=1).max(initial=0))
    size = -(-expected // MULTIPLE) * MULTIPLE
    size = size if most <= size else rows.shape[1]
    found = {"rows": np.zeros((len(rows), size), np.int32), "inverse": np.full((len(rows), size), np.inf, np.float32)}
    for i, mask in enumerate(here):
        count = int(mask.sum())
        found["rows"][i, :count], found["inverse"][i, :count] = rows[i, mask], inverse[i, mask]
    return found


def _inverse(whole: Any) -> Any:
    """1/W in single precision, infinite for W = 0.

    Divided by instead of multiplied with: compilers compute a quotient once, but repeat a product for every column.
    """
    with np.errstate(divide="ignore"):
        return (1 / whole).astype(np.float32)


def inverse_weights(mechanism: Mechanism, whole: Any, position: Any, size: Any) -> Any:
    """1/W for each position of each batch, W the whole weight of its block; infinite for padding."""
    first = np.cumsum([0, *block_sizes(mechanism.n, mechanism.blocks)]).astype(position.dtype)  # and the end
    out = aligned(position.shape, np.float32)
    for row, values, members, count in zip(out, _inverse(whole), position, size, strict=True):
        ends = np.searchsorted(members[:count], first)
        row[:count] = np.repeat(values, ends[1:] - ends[:-1])
        row[count:] = np.inf
    return out


def run_many(
    sessions: Sequence[Session], state: Any, step: Step, *, chunk: int | None = None
) -> Iterator[tuple[int, Any, Any]]:
    """Run sessions that share problem, mechanism and σ side by side (`vmap`); state and outputs have a leading axis."""
    return _drive(list(sessions), state, step, chunk, many=True)


def _chunk(sessions: list[Session]) -> int:
    """How many steps are drawn at once: 500, or what fits into memory."""
    first = sessions[0]
    if first._resume is not None:
        return first._resume.chunk
    m = first.mechanism
    cells = (m.blocks if first.by_lot else buffer_size(m.n, m.sampling_rate)) * m.draws_per_step * len(sessions)
    return max(1, min(500, _CHUNK_CELLS // cells))


def _drive(sessions: list[Session], state: Any, step: Step, chunk: int | None, *, many: bool) -> Iterator[Any]:
    first = sessions[0]
    m, problem = first.mechanism, first.problem
    for session in sessions:
        if session._spent:
            raise PgbbError("this session has already given its answers; a second run would not be covered.")
        if session.mechanism != m or session.problem is not problem:
            raise PgbbError("sessions run side by side must share one problem and one mechanism.")
        if session._resume is not None and many:
            raise PgbbError("sessions run side by side begin at the first step.")
        session._spent = True
    together = first._share.together
    if together is not None and many:
        raise PgbbError("sessions run side by side have all their records in one process.")
    chunk = chunk or _chunk(sessions)
    if together is not None:
        chunk = int(together.first(b"%d" % chunk))
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[s._data for s in sessions]) if many else first._data
    grid = jnp.asarray([s.grid for s in sessions] if many else first.grid, jnp.float32)
    starts = list(range(first._resume.steps if first._resume else 0, m.steps, chunk))

    def draw(start: int) -> tuple[Any, list[Position]]:
        done = min(start + chunk, m.steps)
        drawn = mapped(lambda session: session._draw(done - start, start), sessions)
        inputs = jax.tree.map(lambda *parts: np.stack(parts) if many else parts[0], *drawn)
        reached = [Position(done, chunk, s.randomness.public.bit_generator.state, s.randomness.order) for s in sessions]
        return jax.device_put(inputs, may_alias=True), reached

    with ThreadPoolExecutor(max_workers=1) as drawing:  # the next chunk is drawn while this one runs
        ahead = drawing.submit(draw, starts[0]) if starts else None
        for i, start in enumerate(starts):
            assert ahead is not None
            inputs, positions = ahead.result()
            if i + 1 < len(starts):
                ahead = drawing.submit(draw, starts[i + 1])
            if many:
                state, out = _run_many(state, data, grid, inputs, problem, m, step)
            else:
                state, out = _run_one(state, data, grid, inputs, problem, m, step, together)
            jax.block_until_ready(state)  # type: ignore[no-untyped-call]
            if together is not None:
                together.check()  # before anybody sees what a chunk without all processes has made
            for session, position in zip(sessions, positions, strict=True):
                session._reached = position
            yield min(start + chunk, m.steps), state, out
