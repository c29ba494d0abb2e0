"""Exact sums of whole numbers with 32-bit arithmetic. Nothing here knows what is summed.

A number beyond 32 bits is high·2¹² + low, modulo 2⁴⁴. Sums of whole numbers are the same in any order, so that neither
threads nor devices nor processes change an answer.
"""

import jax
import jax.numpy as jnp
from jax import Array

from pgbb.private.poisson import MULTIPLE

SPLIT = 12  # bits of the low part
LOW = 2**SPLIT - 1


def carried(high: Array, low: Array) -> tuple[Array, Array]:
    """The number high·2¹² + low written with 0 ≤ low < 2¹²."""
    return high + (low >> SPLIT), low & LOW


def joined(high: Array, low: Array) -> Array:
    """Whole numbers from their parts in single precision, rounded once noise has been added."""
    high, low = carried(high, low)
    return high.astype(jnp.float32) * 2.0**SPLIT + low.astype(jnp.float32)


def wide_sum(values: Array) -> tuple[Array, Array]:
    """The sum over rows of values truncated to whole numbers, as high and low with 0 ≤ low < 2¹².

    Values are at most 2²⁴, so that 64 of them add up in 32 bits, and the low parts of 2¹⁸ such sums again. The high
    parts may wrap around: what is returned is still a function of the sum alone. The number of rows is a multiple of
    64; values may be cut into pieces already.
    """
    whole = _folded(values.astype(jnp.int32).reshape(MULTIPLE, -1, values.shape[-1]))
    both = _folded(jnp.concatenate([whole & LOW, whole >> SPLIT], axis=1))
    low, high = jnp.split(both, 2)
    return carried(high, low)


def _folded(whole: Array) -> Array:
    """The sum over the first axis; on a CPU by adding halves of it: compilers are slow at narrow columns there."""
    if jax.default_backend() != "cpu":
        return jnp.sum(whole, axis=0)
    while whole.shape[0] > 1:
        if whole.shape[0] % 2:
            whole = jnp.concatenate([whole, jnp.zeros_like(whole[:1])])
        half = whole.shape[0] // 2
        whole = whole[:half] + whole[half:]
    return whole[0]
