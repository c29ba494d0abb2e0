"""How a record lies in memory: one packed row of single precision, x, response and survey weight."""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Number = TypeVar("_Number", bound=np.generic)
LINE = 64
"""Bytes of a cache line."""

EXTRA = 2
"""Columns after x in a packed row: response, weight."""


def aligned(shape: tuple[int, ...], dtype: type[_Number]) -> NDArray[_Number]:
    """An empty array aligned to a cache line, so that JAX can use it without a copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size].view(dtype).reshape(shape)


def empty_rows(n: int, p: int) -> NDArray[np.float32]:
    """An empty (n, p + EXTRA) array, aligned."""
    return aligned((n, p + EXTRA), np.float32)
