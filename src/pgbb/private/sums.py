"""Noisy means of bounded per-record statistics over all records, asked one after another.

The second way to ask the records, beside the batches of `mechanism`: every
record joins every answer, so an answer is a Gaussian release and nothing is
sampled in secret. Answer t of stage i is

    (1/n) Σ a_t(x_i) + N(0, (σ·scale_i)² I),   ‖a_t(x)‖ ≤ 1 for every record,

where the statistic a_t may depend on earlier answers. How many answers a stage
gives, and its noise, were fixed beforehand: the `Composition` that the
accountant certifies is the object that this code runs.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from pgbb.accountant import Composition
from pgbb.errors import PgbbError
from pgbb.private.mechanism import once, place
from pgbb.private.noise import rounded_normals
from pgbb.private.sampling import Randomness

if TYPE_CHECKING:
    from pgbb.private.records import Records

__all__ = ["Program", "Statistic", "Sums", "mean_of", "sum_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Statistic = Callable[..., Any]
"""(x, y, *parameters) → rows: a pure function of one piece of records, row by row."""
Program = tuple[Statistic, tuple[tuple[int, ...], ...], int]
"""A statistic, the shapes of its parameters, and the power of the survey weights."""

_SAFETY = 1e-6  # rows of m numbers are clipped to norm 1 − 1e-6 − m·2⁻²⁴, a margin for the rounding of one norm
_CELLS = 2**18  # numbers of one piece of rows, and of the sums that one call returns; bounds memory, not results
_THREADS = 2  # that compile
_BLOCK, _BITS = 2**10, 20  # whole numbers of at most 20 bits, 2¹⁰ of them, add up in 32 bits without rounding


@partial(jax.jit, static_argnames=("statistic", "width", "power", "size", "pieces"))
def _partial_sums(
    statistic: Statistic, width: int, power: int, size: int, pieces: int, rows: Any, first: Any, parameters: Any
) -> Any:
    """Sums over blocks of the clipped rows in whole units of 2⁻²⁰, rounded toward zero: (pieces, blocks, m).

    Sums of floating-point numbers are rounded differently when one record is
    replaced, the more the longer the sum; whole numbers add up exactly, in any
    order and on any device. Rounding toward zero makes no row longer.

    Rows are taken `size` at a time from where they are, from piece `first` on, and never copied as a whole. The
    last piece ends with the last row: what it has in common with the one before counts as zero, and so do
    pieces beyond it.
    """
    if rows.shape[0] < size:  # few rows; those added have weight zero
        rows = jnp.pad(rows, ((0, size - rows.shape[0]), (0, 0)))
    last = rows.shape[0] - size

    def piece(number: Any) -> Any:
        start = jnp.minimum(number * size, last)
        packed = jax.lax.dynamic_slice_in_dim(rows, start, size)
        fresh = start + jnp.arange(size, dtype=jnp.int32) >= number * size
        values = statistic(packed[:, :width], packed[:, width], *parameters)
        values = once(values.reshape(size, -1))
        norm = jnp.sqrt(jnp.sum(values**2, axis=1))
        limit = 1 - _SAFETY - values.shape[1] * 2.0**-24
        survey = packed[:, width + 1]
        counts = jnp.isfinite(norm) & (survey > 0) & fresh
        weight = jnp.where(counts, survey**power * limit / jnp.maximum(norm, 1.0), 0.0)
        clipped = jnp.where(jnp.isfinite(norm)[:, None], values, 0.0) * weight[:, None]
        whole = jnp.trunc(clipped * 2.0**_BITS).astype(jnp.int32)
        return jnp.sum(whole.reshape(-1, _BLOCK, whole.shape[1]), axis=1)

    return jax.lax.map(piece, first + jnp.arange(pieces, dtype=jnp.int32))


def sum_of(statistic: Statistic, rows: Any, parameters: Sequence[Any], power: int = 1) -> Ints:
    """Σ over packed rows of the statistic clipped to norm 1 times the survey weight to a power, in units of 2⁻²⁰.

    A row that is not finite, or of weight zero, counts as zero. The sum is that of whole numbers, without rounding.
    """
    given = tuple(np.asarray(p, np.float32) for p in parameters)
    m, size, pieces, together = _layout(statistic, rows.shape, given)
    result = np.zeros(m, dtype=np.int64)
    for first in range(0, pieces, together):
        found = _partial_sums(statistic, rows.shape[1] - 3, power, size, together, rows, np.int32(first), given)
        result += np.asarray(found).sum(axis=(0, 1), dtype=np.int64)
    return result


def _layout(statistic: Statistic, shape: tuple[int, ...], parameters: Any) -> tuple[int, int, int, int]:
    """Numbers of an answer; rows of a piece; pieces; pieces of a call, the same in each, so that one program serves."""
    n, columns = shape
    x, y = _float32(1, columns - 3), _float32(1)
    m = int(np.prod(jax.eval_shape(statistic, x, y, *parameters).shape[1:]))
    size = max(_BLOCK, 2 ** int(np.log2(max(_CELLS // max(m, columns), 1))))
    size = min(size, -(-n // _BLOCK) * _BLOCK)
    pieces = -(-n // size)
    calls = -(-pieces * (size // _BLOCK) * m // _CELLS)
    return m, size, pieces, -(-pieces // calls)


def _float32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)  # type: ignore[no-untyped-call]


def _compile(program: Program, shape: tuple[int, ...]) -> None:
    """Compile what `sum_of` will call; JAX remembers it."""
    statistic, shapes, power = program
    given = tuple(_float32(*s) for s in shapes)
    _, size, _, together = _layout(statistic, shape, given)
    first = jax.ShapeDtypeStruct((), jnp.int32)  # type: ignore[no-untyped-call]
    _partial_sums.lower(statistic, shape[1] - 3, power, size, together, _float32(*shape), first, given).compile()


def mean_of(statistic: Statistic, rows: Any, parameters: Sequence[Any], power: int = 1) -> Floats:
    """The mean that belongs to `sum_of`, without noise."""
    return sum_of(statistic, rows, parameters, power) * (2.0**-_BITS / rows.shape[0])


class Sums:
    """One run of a composition of full-batch mechanisms on one set of records, and no more.

    Stage i of `plan` answers `plan.mechanisms[i].steps` times, by name, in any
    order; `progress` is told (answers given, answers planned). Holds the records out
    of sight; with `consume` it takes their memory over.
    """

    def __init__(
        self,
        records: "Records",
        shift: float,
        plan: Composition,
        names: Sequence[str],
        sigma: float,
        randomness: Randomness,
        *,
        consume: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        for member in plan.mechanisms:
            if member.n != records.n:
                raise PgbbError(f"the plan is described for n = {member.n} records, but {records.n} were loaded.")
            if member.blocks != 1 or member.sampling_rate != 1 or member.clip != 1:
                raise PgbbError("sums over all records need blocks = 1, sampling_rate = 1 and clip = 1 in every stage.")
        if len(names) != len(plan.mechanisms) or len(set(names)) < len(names):
            raise PgbbError("every stage of the plan needs a name of its own.")
        self._left = {name: m.answers for name, m in zip(names, plan.mechanisms, strict=True)}
        self._noise = {name: sigma * scale for name, scale in zip(names, plan.scales, strict=True)}
        self._random, self._rows = randomness.noise, place(records, shift, None, consume=consume).rows
        self.n = records.n
        self.asked: list[str] = []
        self._progress, self._answers = progress, sum(self._left.values())
        self._ahead: dict[tuple[Statistic, int], Future[None]] = {}

    def prepare(self, programs: Sequence[Program]) -> None:
        """Compile what will be asked, in that order and on threads of their own: the first answer need not wait."""
        threads = ThreadPoolExecutor(_THREADS)
        shape = self._rows.shape
        self._ahead = {(p[0], p[2]): threads.submit(_compile, p, shape) for p in programs}
        threads.shutdown(wait=False)

    def left(self, stage: str) -> int:
        """How many answers a stage has left."""
        return self._left[stage]

    def noise(self, stage: str) -> float:
        """Standard deviation of the noise on each number of a stage's answers; public."""
        return self._noise[stage]

    def ask(self, stage: str, statistic: Statistic, *parameters: Any, power: int = 1) -> tuple[Floats, float]:
        """One noisy mean, flattened, and the standard deviation of its noise on each number.

        Survey weights, in [0, 1], multiply: to the power 2 for the variance of
        a weighted score, and 0 where only the bulk of the records matters.
        """
        if self._left.get(stage, 0) == 0:
            raise PgbbError(f"stage {stage!r} has given all its answers; another would not be covered.")
        self._left[stage] -= 1
        self.asked.append(stage)
        if (ahead := self._ahead.pop((statistic, power), None)) is not None:
            wait([ahead])  # if it failed, the answer will say why
        whole, noise = sum_of(statistic, self._rows, parameters, power), self._noise[stage]
        if self._progress is not None:
            self._progress(len(self.asked), self._answers)
        grid = 2.0**-_BITS / self.n
        return (whole + rounded_normals(self._random, noise, grid, whole.shape)).astype(np.float64) * grid, noise
