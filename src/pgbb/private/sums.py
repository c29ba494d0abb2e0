"""Noisy means of bounded per-record statistics over all records, asked one after another.

The second way to ask the records, beside the batches of `session`: every
record joins every answer, so an answer is a Gaussian release and nothing is
sampled in secret. Answer t of stage i is

    (1/n) Σ a_t(x_i) + N(0, (σ·scale_i)² I),   ‖a_t(x)‖ ≤ 1 for every record,

where the statistic a_t may depend on earlier answers. How many answers a stage
gives, and its noise, were fixed beforehand: the `Composition` that the
accountant certifies is the object that this code runs.
"""

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, lru_cache, partial
from typing import NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary, finalize

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.layout import Layout, with_layout_constraint
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import ArrayLike, NDArray

from pgbb._numerics.compiled import Compiled, computed_once, dots, power_of_two
from pgbb.accountant import Composition
from pgbb.engine.protocol import Engine, Question
from pgbb.errors import PgbbError
from pgbb.private.clipping import FULL_BATCH, clipped, limit
from pgbb.private.columns import by_columns
from pgbb.private.noise import rounded_normals
from pgbb.private.randomness import Randomness
from pgbb.private.rows import EXTRA
from pgbb.private.wide_integers import LOW, SPLIT

__all__ = ["BITS", "Statistic", "Sums", "adds", "asked", "compile_ahead", "slabs_of", "sum_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Statistic = Callable[..., Array]
"""(x, y, *parameters) → numbers: a pure function of one record, of norm at most 1 or clipped to it."""

UNIT = 2**13
"""Devices share records in units of so many, so that the chunks of a sum are the same however many there are."""

_CELLS = 2**16  # numbers of one chunk of rows, which a cache holds; changes no result
_LEAST, _MOST = 2**6, 2**8  # rows of a chunk
_THREADS = 2  # that compile
_CORES = max(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 2)
_SLAB = 2**16  # rows that a program is compiled for, on an accelerator at least
_LONGEST = 2**22  # and at most
BITS = 20  # whole numbers of at most 20 bits, one of each of 2¹⁰ chunks, add up in 32 bits without rounding


def _slab_sums(
    statistic: Statistic, power: int, size: int, count: Array, rows: Array, parameters: Sequence[Array]
) -> Array:
    """Sums of the clipped rows in whole units of 2⁻²⁰, rounded toward zero, in lanes: (m, lanes); `_joined` adds them.

    Sums of floating-point numbers are rounded differently when one record is
    replaced, the more the longer the sum; whole numbers add up exactly, in any
    order and on any device. Rounding toward zero makes no row longer. `count`
    chunks of `size` rows are summed; the compiler does not know how many.
    """
    traced = _traced(statistic, power, rows.shape[1], tuple(p.shape for p in parameters))

    def chunk(i: Array) -> Array:
        return by_columns(traced, parameters, formed(jax.lax.dynamic_slice_in_dim(rows, i * size, size)))

    (numbers,) = traced.out_avals[0].shape
    if jax.default_backend() == "cpu":
        none = jnp.zeros((numbers, size), jnp.int32)
        return jax.lax.fori_loop(0, count, lambda i, found: found + chunk(i), none)

    def add(i: Array, found: Array) -> Array:
        return found + _halves(jnp.sum(chunk(i).reshape(numbers, -1, 2**10), axis=2))

    return jax.lax.fori_loop(0, count, add, jnp.zeros((numbers, 2), jnp.int32))


def _halves(sums: Array) -> Array:
    """High and low parts, added up: with at most 2²² records each fits into 32 bits."""
    return jnp.stack([jnp.sum(sums >> SPLIT, axis=1), jnp.sum(sums & LOW, axis=1)], axis=1)


def _joined(found: Array) -> Ints:
    """The sums of all devices, (m,), from their lanes, or from the halves that accelerators give."""
    sums = np.asarray(found).sum(axis=0, dtype=np.int64)
    return sums.sum(axis=1) if jax.default_backend() == "cpu" else sums @ np.array([2**SPLIT, 1])


def adds(statistic: Statistic, power: int, parameters: Sequence[Array], row: Array) -> Array:
    """What one record adds, in units of 2⁻²⁰; `by_columns` leaves no way for other rows to take part."""
    values = computed_once(jnp.ravel(statistic(row[:-EXTRA], row[-2], *parameters)))
    scale = jnp.where(row[-1] > 0, row[-1] ** power * limit(values.shape[0], FULL_BATCH) * 2.0**BITS, 0.0)
    return _whole(values, lambda v: dots(v, v), scale)


def _whole(values: Array, square: Callable[[Array], Array], scale: Array | float) -> Array:
    """Clipped, in whole units, toward zero."""
    return clipped([values], square, scale, xp=jnp, held=computed_once)[0].astype(jnp.int32)


def _counts(statistic: Statistic, power: int) -> bool:
    """Whether it is enough to count: the statistic looks numbers up in a table, and all weights count the same."""
    return power == 0 and hasattr(statistic, "above")


def _counted(statistic: Statistic, power: int, parameters: Sequence[Array], row: Array) -> Array:
    """Whether each number of a usable record is in or above each bin."""
    above = statistic.above(row[:-EXTRA], row[-2], *parameters)  # type: ignore[attr-defined]
    return (above & (row[-1] > 0)).reshape(-1).astype(jnp.int32)


@partial(Compiled, static_argnames="times")
def _entries(table: Array, times: int) -> Array:
    """What a record in each bin adds for each of so many numbers, clipped so that all of them have norm at most 1."""
    values = computed_once(table.T / jnp.sqrt(1.0 * times))
    most = limit(times * len(table), FULL_BATCH) * 2.0**BITS
    return jax.vmap(lambda row: _whole(row, lambda v: times * dots(v, v), most))(values)


def formed(stored: Array) -> Array:
    """The columns that statistics see, (width, rows), from stored rows: the one place where they are formed."""
    columns: Array = with_layout_constraint(computed_once(stored).T, Layout((0, 1)))  # type: ignore[no-untyped-call]
    return columns


_DEVICE, _ALL = PartitionSpec("device"), PartitionSpec()  # type: ignore[no-untyped-call]


@partial(Compiled, one_core=True, static_argnames=("statistic", "power", "size", "mesh"))
def _partial_sums(
    statistic: Statistic,
    power: int,
    size: int,
    mesh: Mesh | None,
    counts: Array,
    rows: Array,
    parameters: Sequence[Array],
) -> Array:
    """The sums of every device over its rows, (devices, m, lanes); nothing is sent between devices."""

    def one(count: Array, rows: Array, parameters: Sequence[Array]) -> Array:
        return _slab_sums(statistic, power, size, count[0], rows[0], parameters)[None]

    if mesh is None:
        return one(counts, rows, parameters)
    shared = jax.shard_map(one, mesh=mesh, in_specs=(_DEVICE, _DEVICE, _ALL), out_specs=_DEVICE, check_vma=False)
    return shared(counts, rows, parameters)


Slab: TypeAlias = tuple[Array, Ints]


class Slabs(NamedTuple):
    """Packed rows in slabs of one size, (devices, rows, ·) each, and how many rows of each are records.

    All programs are compiled for a slab, whatever n is: a record's row is computed
    by the same code, however many processes and devices share the records.
    """

    parts: list[Slab]
    mesh: Mesh | None
    n: int


def slabs_of(rows: NDArray[np.float32], devices: Sequence[jax.Device] | None = None) -> Slabs:
    """Rows shared over devices in units, filled up with rows of weight zero; on a CPU full slabs are not copied."""
    n, width = rows.shape
    units = max(-(-n // UNIT), 1)
    devices = list(jax.local_devices()[:1] if devices is None else devices)[:units]
    each = -(-units // len(devices)) * UNIT
    mesh = None if len(devices) == 1 else Mesh(np.array(devices), ("device",))
    parts, size = [], _slab_rows(each, width)
    for start in range(0, each, size):
        held = [rows[k * each + start : min(k * each + min(start + size, each), n)] for k in range(len(devices))]
        filled = [_filled(part, size)[None] for part in held]
        put = [jax.device_put(part, d, may_alias=True) for part, d in zip(filled, devices, strict=True)]
        whole = put[0]
        if mesh is not None:
            form, where = (len(devices), size, width), NamedSharding(mesh, _DEVICE)
            whole = jax.make_array_from_single_device_arrays(form, where, put)
        parts.append((whole, np.array([len(part) for part in held])))
    return Slabs(parts, mesh, n)


def _filled(part: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """A slab from at most as many rows."""
    if len(part) == size:
        return part
    whole = np.zeros((size, part.shape[1]), np.float32)
    whole[: len(part)] = part
    return whole


def sum_of(
    statistic: Statistic, rows: NDArray[np.float32] | Slabs, parameters: Sequence[ArrayLike], power: int = 1
) -> Ints:
    """Σ over packed rows of the statistic clipped to norm 1 times the survey weight to a power, in units of 2⁻²⁰.

    A row that is not finite, or of weight zero, counts as zero. The sum is that of whole numbers, without rounding.
    `rows` is an array (n, ·), or `Slabs`.
    """
    slabs = rows if isinstance(rows, Slabs) else slabs_of(rows)
    given = tuple(np.asarray(p, np.float32) for p in parameters)
    if _counts(statistic, power):  # a record is in one bin, whatever the edges are
        edges = np.maximum.accumulate(np.where(np.isnan(given[-2]), np.inf, given[-2]), axis=-1)
        given = (*given[:-2], edges.astype(np.float32), given[-1])
    size = _layout(statistic, power, slabs, given)

    def found(part: Array, counts: Ints) -> Ints:
        count = (-(-counts // size)).astype(np.int32)
        return _joined(_partial_sums(statistic, power, size, slabs.mesh, count, part, given))

    result = _total(found, slabs.parts)
    if not _counts(statistic, power):
        return result
    table = given[-1]
    in_or_above = result.reshape(-1, len(table))
    records = -np.diff(in_or_above, axis=1, append=0)
    return (records @ np.asarray(_entries(table, len(records)), np.int64)).reshape(-1)


def _total(found: Callable[[Array, Ints], Ints], slabs: Iterable[Slab]) -> Ints:
    """The sum of what is found in each slab, several at once; the first one alone, while its program is compiled."""
    first, *others = slabs
    result, running = found(*first), deque[Future[Ints]]()
    if not others:
        return result
    with ThreadPoolExecutor(_CORES) as threads:
        for slab in others:
            running.append(threads.submit(found, *slab))
            if len(running) > 2 * _CORES:
                result += running.popleft().result()
        return result + sum(part.result() for part in running)


def _layout(statistic: Statistic, power: int, slabs: Slabs, parameters: Sequence[NDArray[np.float32]]) -> int:
    """Rows of a chunk."""
    part = slabs.parts[0][0]
    traced = _traced(statistic, power, part.shape[-1], tuple(p.shape for p in parameters))
    (numbers,) = traced.out_avals[0].shape
    if jax.default_backend() == "cpu":
        return min(max(_LEAST, _floor(_CELLS // numbers)), _MOST)
    return min(max(2**10, _floor(_room() // 4 // numbers)), part.shape[1])


def _floor(number: int) -> int:
    """The largest power of two that is not larger; 1 at least."""
    return 1 << max(number.bit_length() - 1, 0)


@cache
def _room() -> int:
    """Bytes for the numbers of one piece on an accelerator: a small part of its memory."""
    known = jax.local_devices()[0].memory_stats() or {}
    return known.get("bytes_limit", 2**33) // 2**9


def _slab_rows(n: int, width: int) -> int:
    """Rows that a program is compiled for: on an accelerator as many as there are, as far as it has room."""
    if jax.default_backend() == "cpu":
        return _SLAB
    return max(_SLAB, min(power_of_two(n), _floor(_room() // 4 // width), _LONGEST))


@lru_cache(maxsize=256)
def _traced(statistic: Statistic, power: int, width: int, shapes: tuple[tuple[int, ...], ...]) -> ClosedJaxpr:
    """What one record adds: a function of the parameters and its row, (m,)."""
    add = _counted if _counts(statistic, power) else adds
    forms = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (*shapes, (width,))]  # type: ignore[no-untyped-call]
    return jax.make_jaxpr(lambda *given: add(statistic, power, given[:-1], given[-1]))(*forms)


def _compile(question: Question, slabs: Slabs) -> jax.stages.Compiled:
    """The compiled program that `sum_of` will call; JAX remembers it."""
    statistic = cast(Statistic, question.statistic)
    size = _layout(statistic, question.power, slabs, question.parameters)
    part, counts = slabs.parts[0]
    return _partial_sums.lower(
        statistic, question.power, size, slabs.mesh, counts.astype(np.int32), part, question.parameters
    ).compile()


_AHEAD: WeakKeyDictionary[Statistic, dict[Hashable, Future[None]]] = WeakKeyDictionary()


def _kind(question: Question, slabs: Slabs) -> Hashable:
    """What a program of a statistic is compiled for."""
    shapes = tuple(p.shape for p in question.parameters)
    return shapes, question.power, slabs.mesh, *((part.shape, part.sharding) for part, _ in slabs.parts[:1])


def compile_ahead(questions: Sequence[Question], slabs: Slabs, owner: object = None) -> None:
    """Compile what will be asked, in that order and on threads of their own: the first answer need not wait.

    What this process has compiled before is there. With the owner, what is not compiled yet goes.
    """
    kept = [(_AHEAD.setdefault(cast(Statistic, q.statistic), {}), _kind(q, slabs), q) for q in questions]
    new = [(known, kind, q) for known, kind, q in kept if kind not in known or known[kind].cancelled()]
    if new:
        threads = ThreadPoolExecutor(_THREADS)
        for known, kind, question in new:
            known[kind] = threads.submit(_compiled, question, slabs)
        threads.shutdown(wait=False)
        if owner is not None:
            finalize(owner, threads.shutdown, wait=False, cancel_futures=True)


def _compiled(question: Question, slabs: Slabs) -> None:
    """`_compile`, whose result would keep its statistic alive."""
    _compile(question, slabs)


def asked(question: Question, slabs: Slabs) -> Ints:
    """`sum_of` rows, by the program that was compiled ahead if there is one."""
    statistic = cast(Statistic, question.statistic)
    ahead = _AHEAD.get(statistic, {}).get(_kind(question, slabs))
    if ahead is not None and not ahead.cancelled():
        wait([ahead])  # if it failed, the answer will say why
    return sum_of(statistic, slabs, question.parameters, question.power)


class Sums:
    """One run of a composition of full-batch mechanisms on the records of one engine, and no more.

    Stage i of `plan` answers `plan.mechanisms[i].steps` times, by name, in any order; `progress` is told (answers
    given, answers planned). The engine adds up whole numbers, wherever records are; noise is added here, once.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Composition,
        names: Sequence[str],
        sigma: float,
        randomness: Randomness,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        for member in plan.mechanisms:
            if member.n != engine.n:
                raise PgbbError(f"the plan is described for n = {member.n} records, but {engine.n} were loaded.")
            if member.blocks != 1 or member.sampling_rate != 1 or member.clip != 1:
                raise PgbbError("sums over all records need blocks = 1, sampling_rate = 1 and clip = 1 in every stage.")
        if len(names) != len(plan.mechanisms) or len(set(names)) < len(names):
            raise PgbbError("every stage of the plan needs a name of its own.")
        self._left = {name: m.answers for name, m in zip(names, plan.mechanisms, strict=True)}
        self._noise = {name: sigma * scale for name, scale in zip(names, plan.scales, strict=True)}
        self._random, self._engine, self.n = randomness.noise, engine, engine.n
        self.asked: list[str] = []
        self._progress, self._answers = progress, sum(self._left.values())

    def prepare(self, programs: Sequence[tuple[Statistic, tuple[tuple[int, ...], ...], int]]) -> None:
        """Have compiled what will be asked: statistics, the shapes of their parameters, and powers of the weights."""
        self._engine.prepare(
            [Question(s, tuple(np.zeros(shape, np.float32) for shape in f), p) for s, f, p in programs]
        )

    def left(self, stage: str) -> int:
        """How many answers a stage has left."""
        return self._left[stage]

    def noise(self, stage: str) -> float:
        """Standard deviation of the noise on each number of a stage's answers; public."""
        return self._noise[stage]

    def ask(self, stage: str, statistic: Statistic, *parameters: ArrayLike, power: int = 1) -> tuple[Floats, float]:
        """One noisy mean, flattened, and the standard deviation of its noise on each number.

        Survey weights, in [0, 1], multiply: to the power 2 for the variance of
        a weighted score, and 0 where only the bulk of the records matters.
        """
        answers, noise = self.ask_often(stage, 1, statistic, *parameters, power=power)
        return answers[0], noise

    def ask_often(
        self, stage: str, times: int, statistic: Statistic, *parameters: ArrayLike, power: int = 1
    ) -> tuple[Floats, float]:
        """The same question so many times, each with noise of its own: (times, numbers). All of them count."""
        if not 1 <= times <= self._left.get(stage, 0):
            raise PgbbError(f"stage {stage!r} has given all its answers; another would not be covered.")
        self._left[stage] -= times
        self.asked += [stage] * times
        noise, grid = self._noise[stage], 2.0**-BITS / self.n
        given = tuple(np.asarray(p, np.float32) for p in parameters)
        whole = np.tile(self._engine.sum(Question(statistic, given, power)), (times, 1))
        whole = whole + rounded_normals(self._random, noise, grid, whole.shape)
        if self._progress is not None:
            self._progress(len(self.asked), self._answers)
        return whole.astype(np.float64) * grid, noise
