"""The clip: the one place where what a record adds to a sum is bounded. Nothing here knows a model or a device.

A sum over records adds one vector a record, which `clipped` makes no longer than 1 in units of the certified bound C.
It is then truncated to whole numbers and added up (`wide_integers`), which rounds nothing: a record moves a sum by
what it adds, and by nothing else. docs/privacy.md, section 12, has the proof and names these functions.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

import numpy as np

Numbers: TypeAlias = Any  # arrays of numpy, or of JAX where xp is jax.numpy
_Tree = TypeVar("_Tree")
_SAFETY = 1e-6
FULL_BATCH, BATCH, DOUBLE = 2.0**-24, 2.0**-22, 2.0**-53
"""What the margin allows for each number of a vector: the unit of rounding; with `largest_square` four of them."""


def limit(numbers: int, rounding: float) -> float:
    """The length to which vectors of so many numbers are clipped, so that rounding leaves none longer than 1.

    With u the unit of rounding, the computed square of a length is off by at most (d + 3)u of itself, and its root by
    half of that; root, quotient and products add at most 11u, even where root and quotient are wrong by two units in
    the last place: a clipped vector is no longer than limit·(1 + (d/2 + 13)u). 10⁻⁶ is 16u of single precision, and
    `rounding` is at least u/2.

    >>> 1 - limit(3, FULL_BATCH) < 1 - limit(3, BATCH) < 2e-6
    True
    """
    return 1 - _SAFETY - numbers * rounding


def largest_square(numbers: int) -> float:
    """The largest square of a clipped length that `clipped` lets pass when it looks again, in single precision.

    Below it the length is at most 1 − 6u whatever root and quotient have done: the square is a matter of products and
    sums, off by (d + 3)u. With `BATCH` and correct rounding a vector of length `limit` stays below it: none is lost.
    """
    return 1 - (2 * numbers + 16) * 2.0**-24


def _same(values: _Tree) -> _Tree:
    return values


def clipped(
    parts: Sequence[Numbers],
    square: Callable[..., Numbers],
    scale: Numbers | float,
    *,
    most: float | None = None,
    xp: ModuleType = np,
    once: Callable[[tuple[Numbers, ...]], tuple[Numbers, ...]] = _same,
    held: Callable[[Numbers], Numbers] = _same,
) -> tuple[Numbers, ...]:
    """A vector times scale/max(length, 1); zero where that is no number.

    Args:
      parts: arrays that the vector is linear in, such as the vector itself, or score and extra of (score·x, extra).
      square: the square of its length, from the parts.
      scale: what a vector that is not too long is multiplied with.
      most: look again: a vector whose square is above this after all becomes zero.
      xp: numpy, or jax.numpy.
      once: keeps a compiler from computing parts twice, with different rounding for the length and for the sum.
      held: keeps it from computing the length, and the factor, anew for every number of the vector.

    >>> [clipped([np.array(v)], lambda v: v @ v, 10.0)[0].tolist() for v in ([3.0, 4.0], [0.3, 0.4], [np.nan, 1.0])]
    [[6.0, 8.0], [3.0, 4.0], [0.0, 0.0]]
    """
    size = held(square(*parts))
    factor = held(scale / xp.maximum(xp.sqrt(size), 1.0))
    parts = once(tuple(part * factor for part in parts))
    fits = xp.isfinite(size) if most is None else square(*parts) <= most
    return tuple(xp.where(fits, part, 0.0) for part in parts)
