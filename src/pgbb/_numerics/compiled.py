"""How sums over records are compiled: each number once, and products of rows written out, not left to a library.

Libraries divide rows among threads and choose code by their place; YNNPACK, which JAX 0.10.2 calls on a
CPU, gives wrong sums for some sizes (jax-ml/jax#39103) and is switched off. What is written out is a plain loop.
"""

from collections.abc import Callable
from functools import cached_property, reduce
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp

from pgbb.errors import PgbbError

__all__ = ["Compiled", "computed_once", "dots", "power_of_two", "times"]

_TERMS = 32  # products that are added up in one expression
_LANES = 16

_CPU = {
    "xla_disable_hlo_passes": "cse_barrier_expander",  # it drops barriers before fusion
    "xla_cpu_experimental_ynn_fusion_type": "",  # no kernels of the library YNNPACK
}


def computed_once(values: Any) -> Any:
    """The same, computed once: what is measured and what is added is one number, however the compiler fuses.

    Inside what is `Compiled`.
    """
    return jax.lax.optimization_barrier(values)  # type: ignore[no-untyped-call]


class Compiled:
    """`jax.jit` with barriers that hold on a CPU too, and without YNNPACK there."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self._function, self._options = function, options

    @cached_property
    def _jit(self) -> Any:
        cpu = jax.default_backend() == "cpu"
        return jax.jit(self._function, compiler_options=_CPU if cpu else None, **self._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the function does."""
        try:
            return self._jit(*args, **kwargs)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
            raise PgbbError(
                f"jaxlib {version('jaxlib')} does not know an option that sums over records need: {error}. "
                "Install the version that pgbb was tested with: pip install 'jax==0.10.2'."
            ) from None

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As `jax.jit` has it, to compile ahead."""
        return self._jit.lower(*args, **kwargs)


def dots(a: Any, b: Any) -> Any:
    """Inner products along the last axis, in a fixed order; long ones in lanes, which a processor adds up at a time.

    >>> Compiled(dots)(jnp.ones((2, 100)), jnp.arange(100.0)[None] * jnp.ones((2, 1))).tolist()
    [4950.0, 4950.0]
    """
    lanes = a.shape[-1] // _LANES * _LANES if a.shape[-1] > _TERMS else 0
    terms = [a[..., j] * b[..., j] for j in range(lanes, a.shape[-1])]
    if lanes:
        wide = computed_once(jnp.sum((a[..., :lanes] * b[..., :lanes]).reshape(*a.shape[:-1], -1, _LANES), axis=-2))
        terms += [wide[..., j] for j in range(_LANES)]
    return sum(terms[1:], terms[0])


def times(rows: Any, matrix: Any) -> Any:
    """Products of a row (k,), or of rows (n, k), with a matrix (k, m) or a vector (k,), in a fixed order.

    >>> Compiled(times)(jnp.ones((2, 3)), jnp.arange(3.0)).tolist()
    [3.0, 3.0]
    """
    if matrix.ndim == 1:
        return times(rows, matrix[:, None])[..., 0]
    terms = [rows[..., j : j + 1] * matrix[j] for j in range(len(matrix))]
    parts = [sum(terms[start + 1 : start + _TERMS], terms[start]) for start in range(0, len(terms), _TERMS)]
    return computed_once(reduce(lambda a, b: computed_once(a + b), parts))


def power_of_two(size: int) -> int:
    """The smallest that is not below a size: kernels have arrays of such lengths alone.

    >>> power_of_two(5)
    8
    """
    return 1 << (size - 1).bit_length()
