"""What the records of a slab add to a sum: a statistic of each, clipped, in whole numbers. No noise is added here."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr

from pgbb._numerics import Ints
from pgbb._numerics.compiled import Compiled, computed_once, dots
from pgbb.private.clipping import FULL_BATCH, clipped, limit
from pgbb.private.coding import Form
from pgbb.private.kernel import kernel_counts, kernel_sums, serves
from pgbb.private.row_layout import EXTRA
from pgbb.private.slabs import floor, formed, width_of
from pgbb.private.vectorised import by_columns
from pgbb.private.wide_integers import LOW, SPLIT

Statistic = Callable[..., Array]
"""(x, y, *parameters) → numbers: a pure function of one record, of norm at most 1 or clipped to it."""

BITS = 20  # whole numbers of at most 20 bits, 2¹⁰ in each lane, add up in 32 bits without rounding
LANES = 2**6  # of a CPU: a slab of 2¹⁶ records has 2¹⁰ in each
_LOWEST = float(np.finfo(np.float32).min)


@partial(Compiled, static_argnames=("statistic", "power"))
def one_by_one(statistic: Statistic, power: int, rows: Array, parameters: Sequence[Array]) -> Array:
    """What each record adds, in whole units of 2⁻²⁰, (rows, m)."""
    return jax.vmap(lambda row: _adds(statistic, power, parameters, row))(rows)


def slab_sums(
    statistic: Statistic,
    power: int,
    size: int,
    form: Form | None,
    count: Array,
    rows: Array,
    parameters: Sequence[Array],
) -> Array:
    """Sums of the clipped rows in whole units of 2⁻²⁰, rounded toward zero, in lanes: (m, lanes); `joined` adds them.

    Sums of floating-point numbers are rounded differently when one record is
    replaced, the more the longer the sum; whole numbers add up exactly, in any
    order and on any device. Rounding toward zero makes no row longer. `count`
    chunks of `size` rows, a multiple of `LANES`, are summed; the compiler does not know how many.
    """
    traced = traced_for(statistic, power, width_of(rows, form), tuple(p.shape for p in parameters))

    def chunk(i: Array) -> Array:
        return by_columns(traced, parameters, formed(jax.lax.dynamic_slice_in_dim(rows, i * size, size), form))

    (numbers,) = traced.out_avals[0].shape
    if jax.default_backend() == "cpu":

        def in_lanes(i: Array, found: Array) -> Array:
            whole = chunk(i)
            return sum((whole[:, start : start + LANES] for start in range(0, size, LANES)), found)

        return jax.lax.fori_loop(0, count, in_lanes, jnp.zeros((numbers, LANES), jnp.int32))

    def add(i: Array, found: Array) -> Array:
        return found + _halves(jnp.sum(chunk(i).reshape(numbers, -1, 2**10), axis=2))

    return jax.lax.fori_loop(0, count, add, jnp.zeros((numbers, 2), jnp.int32))


def _halves(sums: Array) -> Array:
    """High and low parts, added up: with at most 2²² records each fits into 32 bits."""
    return jnp.stack([jnp.sum(sums >> SPLIT, axis=1), jnp.sum(sums & LOW, axis=1)], axis=1)


def joined(found: Array) -> Ints:
    """The sums of all devices, (m,), from their lanes, or from the halves that accelerators give."""
    sums = np.asarray(found).sum(axis=0, dtype=np.int64)
    return sums.sum(axis=1) if jax.default_backend() == "cpu" else sums @ np.array([2**SPLIT, 1])


def _adds(statistic: Statistic, power: int, parameters: Sequence[Array], row: Array) -> Array:
    """What one record adds, in units of 2⁻²⁰; `by_columns` leaves no way for other rows to take part."""
    values = computed_once(jnp.ravel(statistic(row[:-EXTRA], row[-2], *parameters)))
    scale = jnp.where(row[-1] > 0, row[-1] ** power * limit(values.shape[0], FULL_BATCH) * 2.0**BITS, 0.0)
    return _whole(values, lambda v: dots(v, v), scale)


def _whole(values: Array, square: Callable[[Array], Array], scale: Array | float) -> Array:
    """Clipped, in whole units, toward zero."""
    return clipped([values], square, scale, xp=jnp, held=computed_once)[0].astype(jnp.int32)


def counts_only(statistic: Statistic, power: int) -> bool:
    """Whether it is enough to count: the statistic looks numbers up in a table, and all weights count the same."""
    return power == 0 and hasattr(statistic, "above")


def _counted(statistic: Statistic, power: int, parameters: Sequence[Array], row: Array) -> Array:
    """Whether each number of a usable record is in or above each bin; the numbers of another are below all of them."""
    *first, edges, table = parameters
    found = statistic.numbers(row[:-EXTRA], row[-2], *first)  # type: ignore[attr-defined]
    number = jnp.maximum(jnp.atleast_1d(found), _LOWEST)  # also what is no number stays what it is
    number = computed_once(jnp.where(row[-1] > 0, number, -jnp.inf))
    lower = jnp.where(np.arange(len(table)) == 0, -jnp.inf, edges.reshape(-1, edges.shape[-1])[:, :-1])
    return (~(number[:, None] <= lower)).reshape(-1).astype(jnp.int32)


@lru_cache(maxsize=256)
def traced_for(statistic: Statistic, power: int, width: int, shapes: tuple[tuple[int, ...], ...]) -> ClosedJaxpr:
    """What one record adds: a function of the parameters and its row, (m,)."""
    add = _counted if counts_only(statistic, power) else _adds
    forms = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (*shapes, (width,))]  # type: ignore[no-untyped-call]
    return jax.make_jaxpr(lambda *given: add(statistic, power, given[:-1], given[-1]))(*forms)


@lru_cache(maxsize=256)
def _numbers_for(statistic: Statistic, width: int, shapes: tuple[tuple[int, ...], ...]) -> ClosedJaxpr:
    """The numbers of one record that are looked up, and its weight: a function of the first parameters and its row."""

    def numbers(*given: Array) -> Array:
        *first, row = given
        found = statistic.numbers(row[:-EXTRA], row[-2], *first)  # type: ignore[attr-defined]
        return jnp.append(jnp.atleast_1d(found), row[-1])

    forms = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (*shapes, (width,))]  # type: ignore[no-untyped-call]
    return jax.make_jaxpr(numbers)(*forms)


def _function(statistic: Statistic, power: int, width: int, shapes: tuple[tuple[int, ...], ...]) -> ClosedJaxpr:
    """What the kernel of a GPU is written from."""
    if counts_only(statistic, power):
        return _numbers_for(statistic, width, shapes[:-2])
    return traced_for(statistic, power, width, shapes)


def in_one_kernel(statistic: Statistic, power: int, width: int, shapes: tuple[tuple[int, ...], ...]) -> bool:
    """Whether one kernel of a GPU can be written for it."""
    bins = shapes[-1][0] if counts_only(statistic, power) else 1
    return floor(bins) == bins and serves(_function(statistic, power, width, shapes))


def fused_sums(statistic: Statistic, power: int, rows: Array, parameters: Sequence[Array]) -> Array:
    """The same as `slab_sums` by one kernel of a GPU, which rows go through once."""
    function = _function(statistic, power, rows.shape[1], tuple(p.shape for p in parameters))
    if counts_only(statistic, power):
        return kernel_counts(function, parameters[:-2], parameters[-2], rows)
    return kernel_sums(function, parameters, rows)
