"""Sums of whole numbers beyond 32 bits, as high·2¹² + low, modulo 2⁴⁴: the same in any order."""

from typing import Any

import jax.numpy as jnp

__all__ = ["LOW", "SPLIT", "carried", "joined"]

SPLIT = 12  # bits of the low half
LOW = 2**SPLIT - 1


def carried(high: Any, low: Any) -> tuple[Any, Any]:
    """The same number with 0 ≤ low < 2¹²."""
    return high + (low >> SPLIT), low & LOW


def joined(high: Any, low: Any) -> Any:
    """Whole numbers from their halves in single precision, rounded once noise has been added."""
    high, low = carried(high, low)
    return high.astype(jnp.float32) * 2.0**SPLIT + low.astype(jnp.float32)
