"""Sums over records on a GPU in one kernel: a record's row is read once, and what it adds stays in registers.

A function of one record is written out, number by number, as the operations on single numbers that it is made of. A
lane of the kernel has a record, and does these operations for it; what every record adds is added up in the lane. No
operation crosses lanes before the sum of whole numbers: a record cannot see another. What all records share is computed
before.

A vector that is too long for the registers of a lane is added up in groups, by kernels that compute the same numbers:
products are rounded as they are written here, alone or with the sum that they are part of. A compiler that chose would
let one kernel measure the length of a vector, and another add a slightly different one.
"""

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial, reduce
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Literal

from pgbb.private.wide_integers import LOW, SPLIT

_LANES = 32  # records of a program at a time: a warp
_GROUP = 96  # numbers that a kernel adds up, at most
_TRIPS = 32  # tiles of a program
_MOST = 2**15  # operations of all kernels: a longer function takes too long to compile
ERF = (  # erf x = x·P(x²)/Q(x²) in single precision, as Eigen has it, from the highest power
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
     -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
     -1.42647390514189e-02),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Number:
    """A number that each record has: a column of its row, or an operation on other numbers."""

    operation: str
    given: tuple[Any, ...] = ()
    about: Any = None


@dataclass(frozen=True)
class Shared:
    """A number that all records share, by its place among the parameters."""

    place: int


@dataclass
class Written:
    """A function of one record, written out as operations on numbers.

    Attributes:
      numbers: all operations, in an order in which they can be done.
      uses: how often each is used.
      found: what the function gives: numbers, or constants.
      shared: arrays of what all records share, one after the other.
    """

    numbers: list[Number] = field(default_factory=list)
    uses: dict[Number, int] = field(default_factory=dict)
    found: list[Any] = field(default_factory=list)
    shared: list[Array] = field(default_factory=list)
    length: int = 0

    def number(self, operation: str, given: Sequence[Any], about: Any = None) -> Any:
        """The number of an operation: a constant where it is known now, else one that is written once."""
        made = _folded(operation, given, about)
        if made is not None:
            return made[0]
        number = Number(operation, tuple(given), about)
        for one in given:
            if isinstance(one, Number):
                self.uses[one] = self.uses.get(one, 0) + 1
        self.numbers.append(number)
        return number

    def placed(self, array: Array) -> Any:
        """An array that all records share, as places."""
        if array.dtype != jnp.float32:
            raise _NotServedError(f"shared {array.dtype}")
        start, size = self.length, array.size
        self.shared.append(jnp.ravel(array))
        self.length += size
        return _objects([Shared(start + k) for k in range(size)], array.shape)


class _NotServedError(Exception):
    """The function uses an operation that the kernel does not serve."""


def _folded(operation: str, given: Sequence[Any], about: Any) -> tuple[Any] | None:
    """Operations on constants and copies, done while the function is written out."""
    if operation in ("and", "or"):
        neutral = operation == "and"
        for one, other in (given, given[::-1]):
            if isinstance(one, bool):
                return (other,) if one is neutral else (one,)
    if operation == "integer_pow" and about == 0:
        return (1.0,)
    if operation == "mul" and given[0] == 1.0:
        return (given[1],)
    if operation == "copy":
        return (given[0],)
    return None


def _objects(items: Sequence[Any], shape: tuple[int, ...]) -> Any:
    made = np.empty(len(items), object)
    made[:] = items
    return made.reshape(shape)


_Value: TypeAlias = Any
"""A constant (NumPy), an array that all records share (JAX), or numbers of every record (NumPy, objects)."""


def _is_along(value: _Value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _write(closed: ClosedJaxpr, given: Sequence[_Value], out: Written) -> list[_Value]:
    jaxpr = closed.jaxpr
    known: dict[Any, _Value] = dict(zip(jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
    known.update(zip(jaxpr.invars, given, strict=True))

    def read(atom: Any) -> _Value:
        return np.asarray(atom.val) if isinstance(atom, Literal) else known[atom]

    for step in jaxpr.eqns:
        known.update(zip(step.outvars, _step(step, [read(a) for a in step.invars], out), strict=True))
    return [read(a) for a in jaxpr.outvars]


def _step(step: Any, given: list[_Value], out: Written) -> list[_Value]:
    name, options = step.primitive.name, step.params
    if name in ("jit", "pjit", "custom_jvp_call"):
        return _write(options.get("jaxpr") or options["call_jaxpr"], given, out)
    if name == "optimization_barrier":
        return given
    along = any(map(_is_along, given))
    shape = tuple(step.outvars[0].aval.shape)
    if name == "unstack" and along:
        return [_objects(part.reshape(-1), shape) for part in np.moveaxis(given[0], options["axis"], 0)[..., None]]
    if name in _MOVES and (along or all(isinstance(v, np.ndarray) for v in given)):
        return [_MOVES[name]([_numbers(v, out) if along else v for v in given], shape, options)]
    if not along:
        found = step.primitive.bind(*map(jnp.asarray, given), **options)
        return list(found) if step.primitive.multiple_results else [found]
    if name in _REDUCES:
        return [_reduced(_REDUCES[name], given[0], options["axes"], out)]
    if name not in _OPERATIONS or (name in _PRODUCTS and step.outvars[0].aval.dtype != jnp.float32):
        raise _NotServedError(name)
    parts = [np.broadcast_to(_numbers(v, out), shape).reshape(-1) for v in given]
    about = options.get("new_dtype") if name == "convert_element_type" else options.get("y")
    return [_objects([out.number(name, one, about) for one in zip(*parts, strict=True)], shape)]


def _numbers(value: _Value, out: Written) -> Any:
    """The symbols of the numbers of an array."""
    if _is_along(value):
        return value
    if isinstance(value, np.ndarray):
        return _objects([v.item() for v in value.reshape(-1)], value.shape)
    return out.placed(value)


def _reduced(operation: str, value: Any, axes: tuple[int, ...], out: Written) -> Any:
    left = tuple(i for i in range(value.ndim) if i not in axes)
    moved = value.transpose((*axes, *left)).reshape(-1, *(value.shape[i] for i in left))
    found = moved[0]
    for part in moved[1:]:
        pairs = zip(found.reshape(-1), part.reshape(-1), strict=True)
        found = _objects([out.number(operation, pair) for pair in pairs], found.shape)
    return found


def _broadcast(arrays: list[Any], shape: tuple[int, ...], options: Any) -> Any:
    form = [1] * len(shape)
    for axis, size in zip(options["broadcast_dimensions"], arrays[0].shape, strict=True):
        form[axis] = size
    return np.broadcast_to(arrays[0].reshape(form), shape)


def _slice(arrays: list[Any], shape: tuple[int, ...], options: Any) -> Any:
    strides = options["strides"] or (1,) * len(shape)
    return arrays[0][tuple(map(slice, options["start_indices"], options["limit_indices"], strides))]


def _picked(arrays: list[Any], shape: tuple[int, ...], options: Any) -> Any:
    numbers, places = arrays
    if options["slice_sizes"] != (1,):
        raise _NotServedError("gather")
    return numbers[places.reshape(shape).astype(int)]


_MOVES: dict[str, Callable[[list[Any], tuple[int, ...], Any], Any]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda a, shape, o: np.concatenate(a, axis=o["dimension"]),
    "gather": _picked,
    "reshape": lambda a, shape, o: a[0].reshape(shape),
    "slice": _slice,
    "squeeze": lambda a, shape, o: a[0].reshape(shape),
    "stack": lambda a, shape, o: np.stack(a, axis=o["axis"]),
    "transpose": lambda a, shape, o: a[0].transpose(o["permutation"]),
}
_REDUCES = {"reduce_and": "and", "reduce_max": "max", "reduce_min": "min", "reduce_or": "or", "reduce_sum": "add"}


def _power(arithmetic: "Arithmetic", base: Any, exponent: int) -> Any:
    if exponent < 0:
        return 1.0 / _power(arithmetic, base, -exponent)
    return reduce(arithmetic.times, [base] * exponent) if exponent else jnp.ones_like(base)


def _erf(arithmetic: "Arithmetic", x: Any) -> Any:
    x = jnp.clip(x, -4.0, 4.0)
    square = arithmetic.times(x, x)
    above, below = (reduce(lambda v, c: arithmetic.fused(v, square, c), part[1:], part[0]) for part in ERF)
    return arithmetic.times(x, above) / below


class Arithmetic:
    """Products of vectors of lanes, each rounded where it stands; in an interpreter as they come."""

    def __init__(self, interpret: bool) -> None:
        self._interpret = interpret

    def _instruction(self, text: str, *given: Any) -> Array:
        from jax.experimental.pallas import triton

        form = jax.ShapeDtypeStruct((_LANES,), jnp.float32)  # type: ignore[no-untyped-call]
        (found,) = triton.elementwise_inline_asm(
            text,
            args=list(map(_in_lanes, given)),
            constraints=",".join(["=f", *("f" for _ in given)]),
            pack=1,
            result_shape_dtypes=[form],
        )
        return found

    def times(self, a: Any, b: Any) -> Any:
        """ab, rounded before anything is added to it."""
        return a * b if self._interpret else self._instruction("mul.rn.f32 $0, $1, $2;", a, b)

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """ab + c, rounded once."""
        return a * b + c if self._interpret else self._instruction("fma.rn.f32 $0, $1, $2, $3;", a, b, c)


def _in_lanes(value: Any) -> Any:
    """A vector of lanes, from that or one number."""
    if isinstance(value, Array):
        return value if value.shape else lax.broadcast(value, (_LANES,))
    kind = {bool: np.bool_, int: np.int32}.get(type(value), np.float32)
    return lax.full((_LANES,), kind(value), kind)


def _lanewise(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda o, n, *given: operation(*map(_in_lanes, given))


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "clamp": _lanewise(lambda low, a, high: lax.min(lax.max(low, a), high)),
    "convert_element_type": lambda o, n, a: lax.convert_element_type(_in_lanes(a), n.about),
    "erf": lambda o, n, a: _erf(o, a),
    "erfc": lambda o, n, a: 1.0 - _erf(o, a),
    "integer_pow": lambda o, n, a: _power(o, a, n.about),
    "is_finite": lambda o, n, a: lax.lt(lax.abs(a), _in_lanes(np.inf)),
    "logistic": lambda o, n, a: 1.0 / (1.0 + lax.exp(-a)),
    "mul": lambda o, n, a, b: o.times(a, b),
    "select_n": _lanewise(lax.select_n),
    "square": lambda o, n, a: o.times(a, a),
    **{
        name: _lanewise(getattr(lax, name if name not in ("and", "not", "or") else f"bitwise_{name}"))
        for name in (
            "abs", "add", "and", "div", "eq", "exp", "ge", "gt", "le", "log", "lt", "max", "min", "ne", "neg", "not",
            "or", "sqrt", "sub",
        )
    },
}  # fmt: skip
"""Operations on lanes."""
_PRODUCTS = ("integer_pow", "mul", "square")


@lru_cache(maxsize=256)
def serves(traced: ClosedJaxpr) -> bool:
    """Whether a function of the parameters and a row of single precision can be written out, and is short enough."""
    lengths: list[int] = []

    def count(*parameters: Array) -> int:
        function = written(traced, parameters)
        lengths.append(len(function.numbers) * -(-len(function.found) // _GROUP))
        return 0

    try:
        jax.eval_shape(count, *traced.in_avals[:-1])
    except Exception:  # whatever it is that cannot be written out: there are plain operations for it
        return False
    return lengths[0] <= _MOST


def written(traced: ClosedJaxpr, parameters: Sequence[Any]) -> Written:
    """The function for parameters, written out."""
    out = Written()
    (width,) = traced.in_avals[-1].shape
    columns = [Number("column", (), j) for j in range(width)]
    out.numbers += columns
    (found,) = _write(traced, [*map(jnp.asarray, parameters), _objects(columns, (width,))], out)
    out.found = list(_numbers(found, out).reshape(-1))
    for one in out.found:
        out.uses[one] = 2  # is no part of another
    return out


def kernel_sums(traced: ClosedJaxpr, parameters: Sequence[Array], rows: Array, *, interpret: bool = False) -> Array:
    """High and low parts of the sums over rows (·, width), (m, 2). Rows are a power of two, from 2⁵ to 2²²."""
    function = written(traced, parameters)
    count = -(-len(function.found) // _GROUP)
    group = -(-len(function.found) // count)  # of about the same length
    groups = [function.found[k : k + group] for k in range(0, len(function.found), group)]
    return jnp.concatenate(
        [
            jnp.sum(_called(partial(_add, function, found), function, (len(found), 2), [rows], interpret), axis=0)
            for found in groups
        ]
    )


def kernel_counts(
    traced: ClosedJaxpr, parameters: Sequence[Array], edges: Array, rows: Array, *, interpret: bool = False
) -> Array:
    """High and low parts of how many rows have each of K numbers in or above each bin, (K·bins, 2).

    The function gives the K numbers and a weight: a row without does not count. The first bin has all that counts.
    Edges are (K, bins + 1) or (bins + 1,); bins are a power of two.
    """
    function = written(traced, parameters)
    *numbers, weight = function.found
    lower = jnp.broadcast_to(edges, (len(numbers), edges.shape[-1]))[:, :-1].at[:, 0].set(jnp.nan)
    found = [
        jnp.sum(
            _called(partial(_count, function, number, weight), function, part.shape, [part, rows], interpret), axis=0
        )
        for number, part in zip(numbers, lower, strict=True)
    ]
    counts = jnp.concatenate(found)
    return jnp.stack([counts >> SPLIT, counts & LOW], axis=1)


def _called(
    kernel: Callable[..., None], function: Written, form: tuple[int, ...], given: list[Array], interpret: bool
) -> Array:
    """What the programs of a kernel give for their rows, which come last of what is given: (programs, *form)."""
    from jax.experimental import pallas as pl  # slow to import
    from jax.experimental.pallas import triton

    _remember_dialect()
    programs = max(given[-1].shape[0] // (_LANES * _TRIPS), 1)
    call = pl.pallas_call(
        partial(kernel, Arithmetic(interpret)),
        grid=(programs,),
        out_shape=jax.ShapeDtypeStruct((programs, *form), jnp.int32),  # type: ignore[no-untyped-call]
        compiler_params=triton.CompilerParams(num_warps=1),
        interpret=interpret,
    )
    found: Array = call(jnp.concatenate([*function.shared, jnp.zeros(1)]), *given)
    return found


def _remember_dialect() -> None:
    """JAX looks for a module of Triton's operations whenever it writes one, finds none, and looks again at the next."""
    with suppress(ImportError):
        from jaxlib.triton import dialect

        sys.modules.setdefault("jaxlib.mlir.dialects.tt", dialect)


def _trips(
    rows: Any, programs: int, one: Callable[[list[Array]], Sequence[Any]], none: Sequence[Array]
) -> Sequence[Array]:
    """Totals over the tiles of a program."""
    from jax.experimental.pallas import program_id

    program = program_id(0)

    def trip(i: Array, totals: Sequence[Array]) -> Sequence[Array]:
        found = one(_columns(rows, (i * programs + program) * _LANES))
        return tuple(total + part for total, part in zip(totals, found, strict=True))

    totals: Sequence[Array] = lax.fori_loop(0, rows.shape[0] // (_LANES * programs), trip, tuple(none))
    return totals


def _add(function: Written, found: list[Any], arithmetic: Arithmetic, shared: Any, rows: Any, sums: Any) -> None:
    """Add up what the records of one program contribute."""
    from jax.experimental.pallas import program_id

    needed = _needed(found)

    def one(columns: list[Array]) -> list[Any]:
        values = _lanes(needed, function.uses, columns, shared, arithmetic)
        return [_value(values, number) for number in found]

    none = [jnp.zeros(_LANES, jnp.int32) for _ in found]
    for k, total in enumerate(_trips(rows, sums.shape[0], one, none)):
        sums[program_id(0), k, 0] = jnp.sum(total >> SPLIT)
        sums[program_id(0), k, 1] = jnp.sum(total & LOW)


def _count(
    function: Written, number: Any, weight: Any, arithmetic: Arithmetic, shared: Any, lower: Any, rows: Any, sums: Any
) -> None:
    """In or above which bins a number of the records of one program is."""
    from jax.experimental.pallas import program_id

    needed = _needed([number, weight])

    def one(columns: list[Array]) -> list[Array]:
        values = _lanes(needed, function.uses, columns, shared, arithmetic)
        counts = (_value(values, weight) > 0)[:, None]
        above = counts & ~(_value(values, number)[:, None] <= lower[:][None, :])
        return [jnp.sum(above.astype(jnp.int32), axis=0)]

    (total,) = _trips(rows, sums.shape[0], one, [jnp.zeros(lower.shape, jnp.int32)])
    sums[program_id(0), :] = total


def _value(values: dict[Number, Array], one: Any) -> Array:
    found: Array = values[one] if isinstance(one, Number) else _in_lanes(one)
    return found


def _needed(found: list[Any]) -> list[Number]:
    """The numbers that some need, each right before it is first used: few wait for their use at a time."""
    order: dict[Number, None] = {}
    waiting = [one for one in reversed(found) if isinstance(one, Number)]
    while waiting:
        number = waiting[-1]
        before = [one for one in number.given if isinstance(one, Number) and one not in order]
        if number in order or not before:
            order[waiting.pop()] = None
        else:
            waiting += reversed(before)
    return list(order)


def _columns(rows: Any, first: Array) -> list[Array]:
    """The columns of some rows; a lane reads fours, twos or ones of its row."""
    from jax.experimental.pallas import triton

    width = rows.shape[1]
    part = math.gcd(width, 4)
    lane = first + lax.iota(jnp.int32, _LANES)
    within = lax.broadcasted_iota(jnp.int32, (_LANES, part), 1)
    found = []
    for start in range(0, width, part):
        read = triton.load(rows.at[lane[:, None], start + lax.iota(jnp.int32, part)[None, :]])
        found += [jnp.sum(jnp.where(within == j, read, 0.0), axis=1) for j in range(part)]
    return found


def _lanes(
    needed: list[Number], uses: dict[Number, int], columns: list[Array], shared: Any, arithmetic: Arithmetic
) -> dict[Number, Array]:
    """The numbers of the records of every lane. A product that is part of one sum alone is done with it."""
    values: dict[Number, Array] = {}
    later: dict[Number, tuple[Any, Any]] = {}

    def read(one: Any) -> Any:
        if one in later:
            values[one] = arithmetic.times(*map(read, later.pop(one)))
        if isinstance(one, Number):
            return values[one]
        return shared[one.place] if isinstance(one, Shared) else one

    for number in needed:
        operation, given = number.operation, number.given
        if operation == "column":
            values[number] = columns[number.about]
        elif operation == "mul" and uses[number] == 1:
            later[number] = given
        elif operation in ("add", "sub") and given[1] in later:
            a, b = map(read, later.pop(given[1]))
            values[number] = arithmetic.fused(a, -b if operation == "sub" else b, read(given[0]))
        elif operation in ("add", "sub") and given[0] in later:
            a, b = map(read, later.pop(given[0]))
            c = read(given[1])
            values[number] = arithmetic.fused(a, b, -c if operation == "sub" else c)
        else:
            values[number] = _OPERATIONS[operation](arithmetic, number, *map(read, given))
    return values
