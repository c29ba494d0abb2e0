"""Sums over records on a GPU in one kernel: a row is read once, and nothing of it is written but its share of a sum.

The function of one record is written out number by number: each becomes an operation on as many records as a program
has threads, all of it in registers. What only moves numbers, such as slices and concatenations, costs nothing. A
function with an operation that kernels lack is computed by `columns`.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal
from numpy.typing import NDArray

from pgbb.private.batch_sums import error_function
from pgbb.private.poisson_on_device import Ref

__all__ = ["fused_sums", "fuses"]

Numbers = NDArray[np.object_]
"""An array of one record: in each place a number, as a column of many records or shared by all, or what computes it."""

_THREADS, _WARPS = 64, 2
_TILES = 2**6  # rows that a thread adds up: whole numbers of 20 bits stay within 32
_MOST = 2**7  # numbers that a program adds up, in registers
_WIDEST = 2**10  # numbers of a record
_OTHERS: dict[str, Callable[..., Array]] = {"erf": error_function, "erfc": lambda x: 1 - error_function(x)}
_SAME = {
    "abs", "add", "and", "clamp", "convert_element_type", "copy", "div", "eq", "exp", "expm1", "ge", "gt",
    "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "not",
    "or", "pow", "rsqrt", "select_n", "sign", "sqrt", "square", "stop_gradient", "sub", "tanh",
}  # fmt: skip


def fuses(traced: ClosedJaxpr) -> bool:
    """Whether a kernel can compute a function of a record: it has every operation, and room for the numbers."""
    return traced.out_avals[0].shape[0] <= _WIDEST and all(
        all(map(fuses, _inner(step))) if _inner(step) else step.primitive.name in _SERVED for step in traced.jaxpr.eqns
    )


def _inner(step: JaxprEqn) -> list[ClosedJaxpr]:
    """The function that an operation calls, if it does nothing else."""
    if step.primitive.name not in ("jit", "pjit", "custom_jvp_call"):
        return []
    return [step.params.get("jaxpr") or step.params["call_jaxpr"]]


def fused_sums(traced: ClosedJaxpr, shared: Sequence[Array], rows: Array, *, interpret: bool = False) -> Array:
    """Sums of what a function (*shared, row) gives, whole numbers of at most 20 bits: (m, lanes).

    Args:
      traced: the function of a record.
      shared: arrays that it is given first.
      rows: (n, width), n a multiple of 2¹².
      interpret: compute without a GPU.
    """
    (m,) = traced.out_avals[0].shape
    groups = [range(start, min(start + _MOST, m)) for start in range(0, m, _MOST)]
    return jnp.concatenate([_kernel_sums(traced, shared, rows, group, interpret) for group in groups])


def _kernel_sums(traced: ClosedJaxpr, shared: Sequence[Array], rows: Array, asked: range, interpret: bool) -> Array:
    """The sums of some of the numbers."""
    from jax.experimental.pallas import triton

    n, width = rows.shape
    lanes = n // _TILES

    def kernel(rows: Ref, *refs: Ref) -> None:
        *given, out = refs
        lane = pl.program_id(0) * _THREADS + lax.iota(jnp.int32, _THREADS)
        known = [_filled(p.shape, partial(_entry, ref)) for p, ref in zip(shared, given, strict=True)]

        def tile(t: Array, found: tuple[Array, ...]) -> tuple[Array, ...]:
            row = _filled((width,), lambda at: triton.load(rows.at[t * lanes + lane, at[0]]))
            (numbers,) = _evaluated(traced, [*known, row])
            return tuple(f + jnp.broadcast_to(_now(numbers[k]), _THREADS) for f, k in zip(found, asked, strict=True))

        none = tuple(jnp.zeros(_THREADS, jnp.int32) for _ in asked)
        for k, sums in enumerate(lax.fori_loop(0, _TILES, tile, none)):
            triton.store(out.at[k, lane], sums)

    return pl.pallas_call(
        kernel,
        grid=(lanes // _THREADS,),
        out_shape=jax.ShapeDtypeStruct((len(asked), lanes), jnp.int32),  # type: ignore[no-untyped-call]
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=1),
        interpret=interpret,
    )(rows, *[jnp.reshape(p, p.shape or (1,)) for p in shared])


def _entry(array: Ref, at: tuple[int, ...]) -> Array:
    return array[at or 0]


def _filled(shape: tuple[int, ...], number: Callable[[tuple[int, ...]], Any]) -> Numbers:
    out = np.empty(shape, object)
    for at in np.ndindex(shape):
        out[at] = number(at)
    return out


def _evaluated(closed: ClosedJaxpr, given: Sequence[Numbers]) -> list[Numbers]:
    """The results of a program, one operation after another."""
    jaxpr = closed.jaxpr

    def constant(value: Any) -> Numbers:
        return _filled(np.shape(value), lambda at: np.asarray(value)[at])

    known: dict[object, Numbers] = {v: constant(c) for v, c in zip(jaxpr.constvars, closed.consts, strict=True)}
    known.update(zip(jaxpr.invars, given, strict=True))

    def read(atom: Any) -> Numbers:
        return constant(atom.val) if isinstance(atom, Literal) else known[atom]

    for step in jaxpr.eqns:
        known.update(zip(step.outvars, _step(step, [read(a) for a in step.invars]), strict=True))
    return [read(a) for a in jaxpr.outvars]


def _step(step: JaxprEqn, given: list[Numbers]) -> Sequence[Numbers]:
    """One operation."""
    name, options = step.primitive.name, step.params
    for inner in _inner(step):
        return _evaluated(inner, given)
    if name == "optimization_barrier":
        return given  # an operand of products alone is rounded once: docs/privacy.md, section 12
    if name == "unstack":
        return list(np.moveaxis(given[0], options["axis"], 0))
    shape = tuple(step.outvars[0].aval.shape)  # type: ignore[attr-defined]
    if name in _MOVED:
        return [_MOVED[name](given, shape, options)]
    return [_number_by_number(step, [np.broadcast_to(g, shape) for g in given], shape)]


def _number_by_number(step: JaxprEqn, given: list[Numbers], shape: tuple[int, ...]) -> Numbers:
    """Each number once, even if it stands in several places, and only if it is needed."""
    made: dict[tuple[int, ...], Callable[[], Array]] = {}

    def number(at: tuple[int, ...]) -> Callable[[], Array]:
        parts = [g[at] for g in given]
        return made.setdefault(tuple(map(id, parts)), cache(partial(_computed, step, parts)))

    return _filled(shape, number)


def _now(number: Any) -> Array:
    return jnp.asarray(number() if callable(number) else number)


def _computed(step: JaxprEqn, parts: list[Any]) -> Array:
    arrays = [_now(p) for p in parts]
    full = np.broadcast_shapes(*(a.shape for a in arrays))
    arrays = [jnp.broadcast_to(a, full) for a in arrays]
    other = _OTHERS.get(step.primitive.name)
    bind: Callable[..., Array] = step.primitive.bind
    return other(*arrays) if other else bind(*arrays, **step.params)


def _repeated(given: list[Numbers], shape: tuple[int, ...], options: Any) -> Numbers:
    form = [1] * len(shape)
    for axis, place in enumerate(options["broadcast_dimensions"]):
        form[place] = given[0].shape[axis]
    return np.broadcast_to(given[0].reshape(form), shape)


def _added(given: list[Numbers], shape: tuple[int, ...], options: Any) -> Numbers:
    axes = options["axes"]
    terms = np.moveaxis(given[0], axes, range(len(axes))).reshape(-1, *shape)

    def total(at: tuple[int, ...]) -> Callable[[], Array]:
        return cache(lambda: reduce(lambda a, b: a + b, [_now(term[at]) for term in terms]))

    return _filled(shape, total)


def _sliced(given: list[Numbers], shape: tuple[int, ...], options: Any) -> Numbers:
    strides = options["strides"] or (1,) * len(shape)
    return given[0][tuple(map(slice, options["start_indices"], options["limit_indices"], strides))]


_MOVED: dict[str, Callable[[list[Numbers], tuple[int, ...], Any], Numbers]] = {
    "broadcast_in_dim": _repeated,
    "concatenate": lambda g, shape, o: np.concatenate(g, o["dimension"]),
    "reduce_sum": _added,
    "reshape": lambda g, shape, o: g[0].reshape(shape),
    "slice": _sliced,
    "squeeze": lambda g, shape, o: g[0].reshape(shape),
    "stack": lambda g, shape, o: np.stack(g, o["axis"]),
    "transpose": lambda g, shape, o: g[0].transpose(o["permutation"]),
}
"""What only moves numbers, and sums of the numbers of one record."""
_SERVED = {*_MOVED, *_OTHERS, *_SAME, "optimization_barrier", "unstack"}
