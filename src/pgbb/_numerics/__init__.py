"""Numerical tools that know neither models nor records, and the names of array types."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Ints", "Singles", "Words"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.uint32]
Bools = NDArray[np.bool_]
