"""Noisy means of bounded per-record statistics over all records, asked one after another.

The second way to ask the records, beside the batches of `session`: every
record joins every answer, so an answer is a Gaussian release and nothing is
sampled in secret. Answer t of stage i is

    (1/n) Σ a_t(x_i) + N(0, (σ·scale_i)² I),   ‖a_t(x)‖ ≤ 1 for every record,

where the statistic a_t may depend on earlier answers. How many answers a stage
gives, and its noise, were fixed beforehand: the `Composition` that the
accountant certifies is the object that this code runs.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache, partial
from typing import cast
from weakref import WeakKeyDictionary, finalize

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec
from numpy.typing import ArrayLike, NDArray

from pgbb._numerics.compiled import Compiled, computed_once, dots
from pgbb.accountant import Composition
from pgbb.engine.protocol import Engine, Question
from pgbb.errors import PgbbError
from pgbb.private.clipping import FULL_BATCH, clipped, limit
from pgbb.private.coding import Coding
from pgbb.private.noise import rounded_normals
from pgbb.private.placement import Held, taken
from pgbb.private.randomness import Randomness
from pgbb.private.rows import EXTRA
from pgbb.private.slabs import DEVICE, RUNNING, UNIT, Slabs, formed, slabs_of
from pgbb.private.wide_integers import block_sums

__all__ = ["Here", "Slabs", "Statistic", "Sums", "compile_ahead", "slabs_of", "sum_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Statistic = Callable[..., Array]
"""(x, y, *parameters) → numbers: a pure function of one record, of norm at most 1 or clipped to it."""

_CELLS = 2**20  # numbers of one chunk of rows; bounds memory, not results
_THREADS = 2  # that compile
_BLOCK, _BITS = 2**10, 20  # whole numbers of at most 20 bits, 2¹⁰ of them, add up in 32 bits without rounding


def _chunk_sums(
    statistic: Statistic,
    power: int,
    size: int,
    coding: Coding | None,
    count: Array,
    rows: Array,
    parameters: Sequence[Array],
) -> Array:
    """Sums over blocks of the clipped rows in whole units of 2⁻²⁰, rounded toward zero: (chunks, blocks, m).

    Sums of floating-point numbers are rounded differently when one record is
    replaced, the more the longer the sum; whole numbers add up exactly, in any
    order and on any device. Rounding toward zero makes no row longer. `count`
    chunks of `size` rows are summed; the compiler does not know how many.
    """
    width = (rows.shape[1] if coding is None else coding.width) - EXTRA

    def one(row: Array) -> Array:
        """What one record adds, in units of 2⁻²⁰; `vmap` leaves no way for other rows to take part."""
        values = computed_once(jnp.ravel(statistic(row[:width], row[width], *parameters)))
        survey, most = row[width + 1], limit(values.shape[0], FULL_BATCH) * 2.0**_BITS
        scale = jnp.where(survey > 0, survey**power * most, 0.0)
        return clipped([values], lambda v: dots(v, v), scale, xp=jnp)[0]

    def chunk(stored: Array) -> Array:
        return block_sums(jax.vmap(one)(formed(stored, coding)), _BLOCK)

    def add(i: Array, found: Array) -> Array:
        part = jax.lax.dynamic_slice_in_dim(rows, i * size, size)
        return jax.lax.dynamic_update_index_in_dim(found, chunk(part), i, 0)

    form = jax.eval_shape(chunk, rows[:size])
    return jax.lax.fori_loop(0, count, add, jnp.zeros((rows.shape[0] // size, *form.shape), form.dtype))


_ALL = PartitionSpec()  # type: ignore[no-untyped-call]


@partial(Compiled, static_argnames=("statistic", "power", "size", "mesh", "coding"))
def _partial_sums(
    statistic: Statistic,
    power: int,
    size: int,
    mesh: Mesh | None,
    coding: Coding | None,
    counts: Array,
    rows: Array,
    parameters: Sequence[Array],
) -> Array:
    """The sums of every device over its rows, (devices, chunks, blocks, m); nothing is sent between devices."""

    def one(count: Array, rows: Array, parameters: Sequence[Array]) -> Array:
        return _chunk_sums(statistic, power, size, coding, count[0], rows[0], parameters)[None]

    if mesh is None:
        return one(counts, rows, parameters)
    shared = jax.shard_map(one, mesh=mesh, in_specs=(DEVICE, DEVICE, _ALL), out_specs=DEVICE, check_vma=False)
    return shared(counts, rows, parameters)


def sum_of(
    statistic: Statistic, rows: NDArray[np.float32] | Slabs, parameters: Sequence[ArrayLike], power: int = 1
) -> Ints:
    """Σ over packed rows of the statistic clipped to norm 1 times the survey weight to a power, in units of 2⁻²⁰.

    A row that is not finite, or of weight zero, counts as zero. The sum is that of whole numbers, without rounding.
    `rows` is an array (n, ·), or `Slabs`.
    """
    slabs = rows if isinstance(rows, Slabs) else slabs_of(rows)
    given = tuple(np.asarray(p, np.float32) for p in parameters)
    numbers, size = _layout(statistic, slabs, given)
    result, running = np.zeros(numbers, dtype=np.int64), deque[Array]()

    def add(found: Array) -> None:
        nonlocal result
        result += np.asarray(found).reshape(-1, numbers).sum(axis=0, dtype=np.int64)

    for part, counts in slabs.parts:
        count = (-(-counts // size)).astype(np.int32)
        running.append(_partial_sums(statistic, power, size, slabs.mesh, slabs.coding, count, part, given))
        if len(running) > RUNNING:
            add(running.popleft())
    for found in running:
        add(found)
    return result


def _layout(statistic: Statistic, slabs: Slabs, parameters: Sequence[NDArray[np.float32]]) -> tuple[int, int]:
    """Numbers of an answer, and rows of a chunk."""
    width = (slabs.parts[0][0].shape[-1] if slabs.coding is None else slabs.coding.width) - EXTRA
    numbers = _numbers(statistic, width, tuple(p.shape for p in parameters))
    return numbers, min(max(_BLOCK, 2 ** int(np.log2(max(_CELLS // max(numbers, 1), 1)))), UNIT)


@lru_cache(maxsize=256)
def _numbers(statistic: Statistic, width: int, shapes: tuple[tuple[int, ...], ...]) -> int:
    """Numbers of an answer, from its trace."""
    given = [np.empty(shape, np.float32) for shape in ((width,), (), *shapes)]
    return int(np.prod(jax.eval_shape(statistic, *given).shape))


def _compile(question: Question, slabs: Slabs) -> jax.stages.Compiled:
    """The compiled program that `sum_of` will call; JAX remembers it."""
    statistic = cast(Statistic, question.statistic)
    _, size = _layout(statistic, slabs, question.parameters)
    part, counts = slabs.parts[0]
    return _partial_sums.lower(
        statistic, question.power, size, slabs.mesh, slabs.coding, counts.astype(np.int32), part, question.parameters
    ).compile()


_AHEAD: WeakKeyDictionary[Statistic, dict[Hashable, Future[None]]] = WeakKeyDictionary()


def _kind(question: Question, slabs: Slabs) -> Hashable:
    """What a program of a statistic is compiled for."""
    shapes = tuple(p.shape for p in question.parameters)
    part = slabs.parts[0][0]
    return shapes, question.power, slabs.mesh, slabs.coding, part.shape, part.sharding


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


class Here:
    """The engine that is this process with all its devices; it holds the records out of sight.

    With `consume` it takes their memory over.
    """

    def __init__(self, records: Held, shift: float, *, consume: bool = False) -> None:
        self.n = records.n
        self._rows = slabs_of(taken(records, shift, consume=consume), jax.local_devices(), records.coding)

    def prepare(self, questions: Sequence[Question]) -> None:
        """Compile what will be asked."""
        compile_ahead(questions, self._rows, self)

    def sum(self, question: Question) -> Ints:
        """`sum_of` all records."""
        return asked(question, self._rows)


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
        noise, grid = self._noise[stage], 2.0**-_BITS / self.n
        given = tuple(np.asarray(p, np.float32) for p in parameters)
        whole = np.tile(self._engine.sum(Question(statistic, given, power)), (times, 1))
        whole = whole + rounded_normals(self._random, noise, grid, whole.shape)
        if self._progress is not None:
            self._progress(len(self.asked), self._answers)
        return whole.astype(np.float64) * grid, noise
