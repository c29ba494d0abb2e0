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

__all__ = ["Statistic", "Sums", "mean_of", "sum_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Statistic = Callable[..., Any]
"""(x, y, *parameters) → rows: a pure function of one chunk of records, row by row."""

_SAFETY = 1e-6  # rows of m numbers are clipped to norm 1 − 1e-6 − m·2⁻²⁴, a margin for the rounding of one norm
_CELLS = 2**20  # numbers of one chunk of rows; bounds memory, not results
_BLOCK, _BITS = 2**10, 20  # whole numbers of at most 20 bits, 2¹⁰ of them, add up in 32 bits without rounding


@partial(jax.jit, static_argnames=("statistic", "width", "power"))
def _partial_sums(statistic: Statistic, width: int, power: int, rows: Any, parameters: Any) -> Any:
    """Sums over blocks of the clipped rows in whole units of 2⁻²⁰, rounded toward zero: (chunks, blocks, m).

    Sums of floating-point numbers are rounded differently when one record is
    replaced, the more the longer the sum; whole numbers add up exactly, in any
    order and on any device. Rounding toward zero makes no row longer.
    """

    def chunk(packed: Any) -> Any:
        values = statistic(packed[:, :width], packed[:, width], *parameters)
        values = once(values.reshape(values.shape[0], -1))
        norm = jnp.sqrt(jnp.sum(values**2, axis=1))
        limit = 1 - _SAFETY - values.shape[1] * 2.0**-24
        survey = packed[:, width + 1]
        counts = jnp.isfinite(norm) & (survey > 0)
        weight = jnp.where(counts, survey**power * limit / jnp.maximum(norm, 1.0), 0.0)
        rows = jnp.where(jnp.isfinite(norm)[:, None], values, 0.0) * weight[:, None]
        whole = jnp.trunc(rows * 2.0**_BITS).astype(jnp.int32)
        return jnp.sum(whole.reshape(-1, _BLOCK, whole.shape[1]), axis=1)

    return jax.lax.map(chunk, rows)


def sum_of(statistic: Statistic, rows: Any, parameters: Sequence[Any], power: int = 1) -> Ints:
    """Σ over packed rows of the statistic clipped to norm 1 times the survey weight to a power, in units of 2⁻²⁰.

    A row that is not finite, or of weight zero, counts as zero. The sum is that of whole numbers, without rounding.
    """
    n, width = rows.shape[0], rows.shape[1] - 3
    given = tuple(jnp.asarray(p, jnp.float32) for p in parameters)
    one = jax.eval_shape(statistic, rows[:1, :width], rows[:1, width], *given)
    size = max(_BLOCK, 2 ** int(np.log2(max(_CELLS // max(int(np.prod(one.shape[1:])), 1), 1))))
    whole = n // size * size
    result = np.zeros(int(np.prod(one.shape[1:])), dtype=np.int64)
    if whole:
        total = np.asarray(_partial_sums(statistic, width, power, rows[:whole].reshape(-1, size, rows.shape[1]), given))
        result += total.astype(np.int64).sum(axis=(0, 1))
    if whole < n:
        filled = jnp.pad(rows[whole:], ((0, (whole - n) % _BLOCK), (0, 0)))  # rows of weight zero
        rest = np.asarray(_partial_sums(statistic, width, power, filled[None], given))
        result += rest.astype(np.int64).sum(axis=(0, 1))
    return result


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
        whole, noise = sum_of(statistic, self._rows, parameters, power), self._noise[stage]
        if self._progress is not None:
            self._progress(len(self.asked), self._answers)
        grid = 2.0**-_BITS / self.n
        return (whole + rounded_normals(self._random, noise, grid, whole.shape)).astype(np.float64) * grid, noise
