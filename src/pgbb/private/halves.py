"""Sums of whole numbers beyond 32 bits, as high·2¹² + low, modulo 2⁴⁴: the same in any order."""

from typing import Any

import jax.numpy as jnp

__all__ = ["LOW", "SPLIT", "joined"]

SPLIT = 12  # bits of the low half
LOW = 2**SPLIT - 1


def joined(high: Any, low: Any) -> Any:
    """Whole numbers from their halves in single precision, rounded once noise has been added."""
    return (high + (low >> SPLIT)).astype(jnp.float32) * 2.0**SPLIT + (low & LOW).astype(jnp.float32)
