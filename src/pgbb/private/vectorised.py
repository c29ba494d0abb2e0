"""Computes a function of one record for many at once: each of its numbers is a column, with a record in every lane.

What `jax.vmap` does, with the records along the last axis of every array: processors add and multiply neighbours in
one instruction, and of these there are as many as records, however few numbers a record has. Nothing here knows
what is computed. As under `vmap`, no operation crosses the last axis: a record cannot see another.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, jaxpr_as_fun

from pgbb._numerics.compiled import computed_once

Value = tuple[Array, bool]
"""An array, and whether its last axis is that of the records."""

_NUMBER_BY_NUMBER = {
    "abs", "add", "and", "ceil", "clamp", "convert_element_type", "copy", "cos", "div", "eq", "erf", "erf_inv",
    "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p",
    "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow", "rem", "round", "rsqrt",
    "select_n", "sign", "sin", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
}  # fmt: skip
_OVER_AXES = {"reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum"}


def by_columns(traced: ClosedJaxpr, shared: Sequence[Array], columns: Array) -> Array:
    """What a function (*shared, record) → (m,) gives for every record, (m, records), from columns (width, records).

    >>> traced = jax.make_jaxpr(lambda factor, record: factor * jnp.cumsum(record)[1:])(2.0, jnp.zeros(3))
    >>> by_columns(traced, [jnp.float32(2)], jnp.arange(6.0).reshape(3, 2)).tolist()
    [[4.0, 8.0], [12.0, 18.0]]
    """
    given = [*((jnp.asarray(array), False) for array in shared), (columns, True)]
    ((found, along),) = _evaluated(traced, given, columns.shape[1])
    return _along(found, along, columns.shape[1])


def _evaluated(closed: ClosedJaxpr, given: Sequence[Value], records: int) -> list[Value]:
    """The results of a program, one operation after another."""
    jaxpr = closed.jaxpr
    known: dict[object, Value] = {v: (c, False) for v, c in zip(jaxpr.constvars, closed.consts, strict=True)}
    known.update(zip(jaxpr.invars, given, strict=True))

    def read(atom: object) -> Value:
        return (jnp.asarray(atom.val), False) if isinstance(atom, Literal) else known[atom]

    for step in jaxpr.eqns:
        known.update(zip(step.outvars, _step(step, [read(a) for a in step.invars], records), strict=True))
    return [read(a) for a in jaxpr.outvars]


def _step(step: JaxprEqn, given: list[Value], records: int) -> list[Value]:
    """One operation of the program, for all records."""
    name, options = step.primitive.name, step.params
    bind: Callable[..., Any] = step.primitive.bind
    arrays = [a for a, _ in given]
    if name in ("jit", "pjit", "custom_jvp_call"):
        inner = options.get("jaxpr") or options["call_jaxpr"]
        if any(along for _, along in given):
            return _evaluated(inner, given, records)
        return [(a, False) for a in jaxpr_as_fun(inner)(*arrays)]
    if name == "optimization_barrier":
        return [(a, along) for a, (_, along) in zip(bind(*arrays, **options), given, strict=True)]
    if not any(along for _, along in given):
        found = bind(*arrays, **options)
        return [(a, False) for a in (found if step.primitive.multiple_results else [found])]
    shape = tuple(step.outvars[0].aval.shape)  # type: ignore[attr-defined]
    if name in _NUMBER_BY_NUMBER:
        arrays = [jnp.broadcast_to(a if along or not a.ndim else a[..., None], (*shape, records)) for a, along in given]
        return [(bind(*arrays, **options), True)]
    if name in _PLACED or name in _OVER_AXES:
        arrays = [_along(a, along, records) for a, along in given]
        if name in _PLACED:
            return [(_PLACED[name](arrays, (*shape, records), options), True)]
        return [(bind(*arrays, **options), True)]
    if name == "gather" and options["slice_sizes"] == (1,) and not given[1][1]:  # numbers at places that all share
        numbers, places = arrays[0], arrays[1][..., 0]
        how = {key: options[key] for key in ("mode", "fill_value")}
        return [(numbers.at[places].get(wrap_negative_indices=False, **how), True)]
    axes = tuple(-1 if along else None for _, along in given)
    found = jax.vmap(lambda *a: bind(*a, **options), in_axes=axes, out_axes=-1)(*arrays)
    return [(a, True) for a in (found if step.primitive.multiple_results else [found])]


def _along(array: Array, along: bool, records: int) -> Array:
    """The array with an axis for the records."""
    return array if along else jnp.broadcast_to(array[..., None], (*array.shape, records))


def _slice(arrays: list[Array], shape: tuple[int, ...], options: Any) -> Array:
    starts, ends, strides = (options[k] for k in ("start_indices", "limit_indices", "strides"))
    return lax.slice(arrays[0], (*starts, 0), (*ends, shape[-1]), None if strides is None else (*strides, 1))


def _apart(values: Any) -> Any:
    """Compute parts before they are concatenated on a CPU: the compiled code would else branch for every number."""
    return computed_once(values) if jax.default_backend() == "cpu" else values


_PLACED: dict[str, Callable[[list[Array], tuple[int, ...], Any], Array]] = {
    "broadcast_in_dim": lambda a, shape, o: lax.broadcast_in_dim(
        a[0], shape, (*o["broadcast_dimensions"], len(shape) - 1)
    ),
    "concatenate": lambda a, shape, o: _apart(lax.concatenate(_apart(a), o["dimension"])),
    "reshape": lambda a, shape, o: a[0].reshape(shape),
    "slice": _slice,
    "squeeze": lambda a, shape, o: a[0].reshape(shape),
    "stack": lambda a, shape, o: _apart(jnp.stack(_apart(a), o["axis"])),
    "transpose": lambda a, shape, o: lax.transpose(a[0], (*o["permutation"], len(shape) - 1)),
}
"""What only moves numbers."""
