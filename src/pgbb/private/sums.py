"""Noisy means of bounded per-record statistics over all records, asked one after another.

The second way to ask the records, beside the batches of `session`: every
record joins every answer, so an answer is a Gaussian release and nothing is
sampled in secret. Answer t of stage i is

    (1/n) Σ a_t(x_i) + N(0, (σ·scale_i)² I),   ‖a_t(x)‖ ≤ 1 for every record,

where the statistic a_t may depend on earlier answers. How many answers a stage
gives, and its noise, were fixed beforehand: the `Composition` that the
accountant certifies is the object that this code runs.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import chain
from threading import Lock
from typing import cast
from weakref import WeakKeyDictionary, WeakSet, finalize

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import ArrayLike, NDArray

from pgbb._numerics import Floats, Ints
from pgbb._numerics.compiled import Compiled
from pgbb.accountant import Composition
from pgbb.engine.protocol import Engine, Question
from pgbb.errors import PgbbError
from pgbb.private.coding import Form
from pgbb.private.noise import rounded_normals
from pgbb.private.partial_sums import (
    BITS,
    Statistic,
    counts_only,
    fused_sums,
    in_one_kernel,
    joined,
    slab_sums,
    traced_for,
)
from pgbb.private.plain_sums import entries, plain_sum, serves
from pgbb.private.randomness import Randomness
from pgbb.private.slabs import CORES, DEVICE, Slab, Slabs, device_room, floor, slabs_of, width_of

__all__ = ["BITS", "Slabs", "Statistic", "Sums", "asked", "compile_ahead", "slabs_of", "sum_of"]

Parameters = tuple[NDArray[np.float32], ...]
_CELLS = 2**16  # numbers of one chunk of rows, which a cache holds; changes no result
_LEAST, _MOST = 2**6, 2**8  # rows of a chunk
_FEW = 2**14  # records up to which a program is better compiled soon than run fast; changes no result
_MANY = 2**25  # records for which a kernel is worth the seconds that it takes to write one
_THREADS = 2  # that compile
_ALL = PartitionSpec()  # type: ignore[no-untyped-call]


def _partial_sums(
    statistic: Statistic,
    power: int,
    size: int,
    mesh: Mesh | None,
    form: Form | None,
    counts: Array,
    rows: Array,
    parameters: Sequence[Array],
) -> Array:
    """The sums of every device over its rows, (devices, m, lanes); nothing is sent between devices."""

    def one(count: Array, rows: Array, parameters: Sequence[Array]) -> Array:
        if not size:
            return fused_sums(statistic, power, rows[0], parameters)[None]
        return slab_sums(statistic, power, size, form, count[0], rows[0], parameters)[None]

    if mesh is None:
        return one(counts, rows, parameters)
    shared = jax.shard_map(one, mesh=mesh, in_specs=(DEVICE, DEVICE, _ALL), out_specs=DEVICE, check_vma=False)
    return shared(counts, rows, parameters)


_STATIC = "statistic", "power", "size", "mesh", "form"
_FAST, _SOON = (Compiled(_partial_sums, one_core=True, soon=soon, static_argnames=_STATIC) for soon in (False, True))


def _program(slabs: Slabs) -> Compiled:
    """`_partial_sums`, compiled for so many records."""
    return _SOON if slabs.n <= _FEW else _FAST


def sum_of(
    statistic: Statistic, rows: NDArray[np.float32] | Slabs, parameters: Sequence[ArrayLike], power: int = 1
) -> Ints:
    """Σ over packed rows of the statistic clipped to norm 1 times the survey weight to a power, in units of 2⁻²⁰.

    A row that is not finite, or of weight zero, counts as zero. The sum is that of whole numbers, without rounding.
    `rows` is an array (n, ·), or `Slabs`.
    """
    slabs = rows if isinstance(rows, Slabs) else slabs_of(rows)
    given = tuple(np.asarray(p, np.float32) for p in parameters)
    if counts_only(statistic, power):  # a record is in one bin, whatever the edges are
        edges = np.maximum.accumulate(np.where(np.isnan(given[-2]), np.inf, given[-2]), axis=-1)
        given = (*given[:-2], edges.astype(np.float32), given[-1])
    if _plain(statistic, power, slabs, given):
        return plain_sum(statistic, np.asarray(slabs.parts[0][0])[0, : slabs.n], given, power, 2.0**BITS)
    result = _summed(statistic, power, slabs, given)
    if not counts_only(statistic, power):
        return result
    table = given[-1]
    in_or_above = result.reshape(-1, len(table))
    records = -np.diff(in_or_above, axis=1, append=0)
    return np.asarray(records @ entries(table, len(records), 2.0**BITS).T).reshape(-1)


def _plain(statistic: Statistic, power: int, slabs: Slabs, given: Parameters) -> bool:
    """Whether the sum needs no compiled code."""
    one_slab = isinstance(slabs.parts, list) and len(slabs.parts) == 1
    here = jax.default_backend() == "cpu" and slabs.mesh is None and slabs.form is None
    return here and one_slab and serves(statistic, given, power)


def _summed(statistic: Statistic, power: int, slabs: Slabs, given: Parameters) -> Ints:
    """The sum over all slabs, by a kernel where there is one; where it cannot be compiled, by plain operations."""
    size = _layout(statistic, power, slabs, given)
    try:
        return _over_slabs(statistic, power, size, slabs, given)
    except Exception as error:
        if size or "RESOURCE_EXHAUSTED" in str(error):
            raise
        _PLAIN.add(statistic)
        return _over_slabs(statistic, power, _layout(statistic, power, slabs, given), slabs, given)


def _over_slabs(statistic: Statistic, power: int, size: int, slabs: Slabs, given: Parameters) -> Ints:
    """The same, by chunks of so many rows. A device is given all slabs to sum before the first sum is waited for."""
    on_cpu, mesh, program = jax.default_backend() == "cpu", slabs.mesh, _program(slabs)
    put = given if on_cpu else jax.device_put(given, None if mesh is None else NamedSharding(mesh, _ALL))

    def begun(part: Array, counts: Ints) -> Array:
        count = (-(-counts // max(size, 1))).astype(np.int32) if on_cpu else _chunks(tuple(counts), size, mesh)
        found: Array = program(statistic, power, size, mesh, slabs.form, count, part, put)
        return found

    if on_cpu or not isinstance(slabs.parts, list):
        return _total(begun, joined, slabs.parts)
    return np.sum([joined(part) for part in _coming([begun(*slab) for slab in slabs.parts])], axis=0)


@lru_cache(maxsize=1024)
def _chunks(counts: tuple[int, ...], size: int, mesh: Mesh | None) -> Array:
    """How many chunks have so many rows; on the devices, since a copy takes longer than a small sum."""
    found = [-(-count // max(size, 1)) for count in counts]
    return jax.device_put(np.array(found, np.int32), None if mesh is None else NamedSharding(mesh, DEVICE))


def _coming(found: list[Array]) -> list[Array]:
    """What a device has begun to compute, on its way to this process."""
    for part in found:
        part.copy_to_host_async()
    return found


def _total(begun: Callable[[Array, Ints], Array], found: Callable[[Array], Ints], slabs: Iterable[Slab]) -> Ints:
    """The sum of what is found in each slab, by every core; the first one is begun alone: it compiles the program."""
    left, turn = iter(slabs), Lock()
    first, second = begun(*next(left)), next(left, None)
    if second is None:
        return found(first)
    left = chain([second], left)

    def share() -> Ints:
        result: Ints = np.zeros((), np.int64)
        while True:
            with turn:
                slab = next(left, None)
            if slab is None:
                return result
            result = result + found(begun(*slab))

    with ThreadPoolExecutor(CORES - 1) as threads:
        others = [threads.submit(share) for _ in range(CORES - 1)]
        try:
            result = found(first) + share()
        finally:
            left = iter(())  # after an error nobody takes another one
        return sum((part.result() for part in others), result)


def _layout(statistic: Statistic, power: int, slabs: Slabs, parameters: Sequence[NDArray[np.float32]]) -> int:
    """Rows of a chunk; 0 where one kernel does all of them, and there are so many that it is worth writing it."""
    part = slabs.parts[0][0]
    width, shapes = width_of(part, slabs.form), tuple(p.shape for p in parameters)
    if _worth_a_kernel(slabs) and statistic not in _PLAIN and in_one_kernel(statistic, power, width, shapes):
        return 0
    (numbers,) = traced_for(statistic, power, width, shapes).out_avals[0].shape
    if jax.default_backend() == "cpu":
        return _MOST if counts_only(statistic, power) else min(max(_LEAST, floor(_CELLS // numbers)), _MOST)
    return min(max(2**10, floor(device_room() // 4 // numbers)), part.shape[1])


def _worth_a_kernel(slabs: Slabs) -> bool:
    return slabs.n >= _MANY and slabs.form is None and jax.default_backend() == "gpu"


def _compile(question: Question, slabs: Slabs) -> jax.stages.Compiled:
    """The compiled program that `sum_of` will call; JAX remembers it."""
    statistic = cast(Statistic, question.statistic)
    size = _layout(statistic, question.power, slabs, question.parameters)
    part, counts = slabs.parts[0]
    lowered = _program(slabs).lower(
        statistic, question.power, size, slabs.mesh, slabs.form, counts.astype(np.int32), part, question.parameters
    )
    return lowered.compile()


_PLAIN: WeakSet[Statistic] = WeakSet()
"""Whose kernel a compiler has refused."""

_AHEAD: WeakKeyDictionary[Statistic, dict[Hashable, Future[None]]] = WeakKeyDictionary()


def _kind(question: Question, slabs: Slabs) -> Hashable:
    """What a program of a statistic is compiled for."""
    shapes = tuple(p.shape for p in question.parameters)
    part = slabs.parts[0][0]
    program = _program(slabs), _worth_a_kernel(slabs)
    return shapes, question.power, slabs.mesh, slabs.form, part.shape, part.sharding, program


def compile_ahead(questions: Sequence[Question], slabs: Slabs, owner: object = None) -> None:
    """Compile what will be asked, in that order and on threads of their own: the first answer need not wait.

    What this process has compiled before is there. With the owner, what is not compiled yet goes.
    """
    needed = [q for q in questions if not _plain(cast(Statistic, q.statistic), q.power, slabs, q.parameters)]
    kept = [(_AHEAD.setdefault(cast(Statistic, q.statistic), {}), _kind(q, slabs), q) for q in needed]
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
