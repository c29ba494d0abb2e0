"""How a record lies in memory: one packed row of single precision, x, response and survey weight."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXTRA", "empty_rows"]

EXTRA = 2
"""Columns after x in a packed row: response, weight."""


def empty_rows(n: int, p: int) -> NDArray[np.float32]:
    """An empty (n, p + EXTRA) array, aligned so that JAX can use it without a copy."""
    size, edge = n * (p + EXTRA), 16  # 16 singles are a cache line of 64 bytes
    raw = np.empty(size + edge, dtype=np.float32)
    start = (-(raw.ctypes.data // 4)) % edge
    return raw[start : start + size].reshape(n, p + EXTRA)
