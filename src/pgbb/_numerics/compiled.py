"""How sums over records are compiled: every number is computed once, and products of rows are written out.

A library's product of matrices divides rows among threads and chooses code by the place of a row, so that a record
could change the rounding of another; the privacy proof needs each record's term to depend on that record alone.
YNNPACK, which JAX 0.10.2 calls on a CPU, also gives wrong sums for some sizes (jax-ml/jax#39103) and is switched off.
A version of JAX without the options is refused, not used without them: a sum could then exceed its bound.
"""

from collections.abc import Callable
from functools import cached_property, lru_cache, reduce
from importlib.metadata import requires, version
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from pgbb.errors import PgbbError

_Tree = TypeVar("_Tree")
_TERMS = 32  # products that are added up in one expression
_LANES = 16
_STREAMS = 8
_WRITTEN_OUT = 32  # numbers whose outer products an accelerator takes row by row; a CPU is faster column by column

_PASSES = "cse_barrier_expander,small-while-loop-hoisting"
"""The first drops barriers before fusion, the second makes one function of a small loop and knows no barriers."""
_SHARING = "cpu-parallel-task-assigner"  # gives each core a part of every small loop, at the end of which all wait
_CPU = {
    "xla_cpu_experimental_ynn_fusion_type": "",  # no kernels of the library YNNPACK
    "xla_cpu_prefer_vector_width": 512,  # where a processor has such vectors; half of that is the default
}
_SOON = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
"""Loops by the older of two code generators, which gives the same bits; JAX 0.11 and later have one."""


def computed_once(values: _Tree) -> _Tree:
    """Return the arrays, and make the compiler compute them once for all their uses; holds inside `Compiled`.

    Otherwise it may compute a value again where it is used again, in another order of operations: the clip would then
    measure one number, and the sum add another.
    """
    return jax.lax.optimization_barrier(values)  # type: ignore[no-untyped-call]


class Compiled:
    """`jax.jit` with barriers that hold on a CPU too, and without YNNPACK there.

    A program with `one_core` leaves the other cores of a CPU to programs that run beside it. With JAX 0.10, one that is
    there `soon` takes a CPU half as long to compile, and two to five times as long to run.
    """

    def __init__(
        self, function: Callable[..., object], *, one_core: bool = False, soon: bool = False, **options: Any
    ) -> None:
        self._function, self._options = function, options
        passes = f"{_PASSES},{_SHARING}" if one_core else _PASSES
        self._cpu = {**_CPU, "xla_disable_hlo_passes": passes, **(_SOON if soon else {})}

    @cached_property
    def _jit(self) -> jax.stages.Wrapped:
        cpu = self._cpu if jax.default_backend() == "cpu" else None
        return jax.jit(self._function, compiler_options=cpu, **self._options)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """What the function gives; its program is compiled at the first call."""
        try:
            return self._jit(*args, **kwargs)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
            tested = next(line for line in requires("pgbb") or () if line.startswith("jax"))
            raise PgbbError(
                f"jaxlib {version('jaxlib')} does not know an option that sums over records need: {error}. "
                f"Install a version that pgbb was tested with: pip install '{tested}'."
            ) from None

    def lower(self, *args: object, **kwargs: object) -> jax.stages.Lowered:
        """The program for these arguments, lowered but not yet compiled, as `jax.jit` gives it."""
        return self._jit.lower(*args, **kwargs)


def dots(a: jax.Array, b: jax.Array) -> jax.Array:
    """Inner products along the last axis, in a fixed order; long ones in 16 partial sums side by side.

    >>> Compiled(dots)(jnp.ones((2, 100)), jnp.arange(100.0)[None] * jnp.ones((2, 1))).tolist()
    [4950.0, 4950.0]
    """
    lanes = a.shape[-1] // _LANES * _LANES if a.shape[-1] > _TERMS else 0
    terms = [a[..., j] * b[..., j] for j in range(lanes, a.shape[-1])]
    if lanes:
        groups = [a[..., j : j + _LANES] * b[..., j : j + _LANES] for j in range(0, lanes, _LANES)]
        wide = groups[0]
        for j in range(1, len(groups), _STREAMS):  # caches cannot follow many places at once
            wide = computed_once(sum(groups[j : j + _STREAMS], wide))
        terms += [wide[..., j] for j in range(_LANES)]
    return sum(terms[1:], terms[0])


def times(rows: jax.Array, matrix: jax.Array) -> jax.Array:
    """Products of a row (k,), or of rows (n, k), with a matrix (k, m) or a vector (k,), in a fixed order.

    >>> Compiled(times)(jnp.ones((2, 3)), jnp.arange(3.0)).tolist()
    [3.0, 3.0]
    """
    if matrix.ndim == 1:
        return times(rows, matrix[:, None])[..., 0]
    terms = [rows[..., j : j + 1] * matrix[j] for j in range(len(matrix))]
    parts = [sum(terms[start + 1 : start + _TERMS], terms[start]) for start in range(0, len(terms), _TERMS)]
    return computed_once(reduce(lambda a, b: computed_once(a + b), parts))


def packed(v: jax.Array) -> jax.Array:
    """The packed outer product v vᵀ; its length is ‖v‖²."""
    d, v = v.shape[0], computed_once(v)
    i, j = np.triu_indices(d)
    scale = np.where(i == j, 1.0, np.sqrt(2.0)).astype(v.dtype)
    if d > _WRITTEN_OUT or jax.default_backend() == "cpu":
        left, right = (v.at[k].get(mode="promise_in_bounds", wrap_negative_indices=False) for k in (i, j))
        return left * right * scale
    return jnp.concatenate([v[k : k + 1] * v[k:] * scale[i == k] for k in range(d)])


@lru_cache(maxsize=64)
def squared(statistic: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """The statistic v vᵀ, packed, for the statistic v, which is its `root`; the same function each time."""

    def outer(*given: jax.Array) -> jax.Array:
        return packed(jnp.ravel(statistic(*given)))

    outer.root = statistic  # type: ignore[attr-defined]
    return outer


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`: GPU kernels take arrays of such lengths only.

    >>> power_of_two(5)
    8
    """
    return 1 << (size - 1).bit_length()
