"""Draws Poisson batches on the host: the numbers of the records that join.

A batch is a function of a key, of its place among those that are drawn under it, and of the numbers of records, which
are drawn in cells: whoever holds some records draws for their cells alone. Nothing here reads records. Where a GPU
draws batches itself, the same law is in `poisson_on_device`.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Floats, Singles
from pgbb.accountant import Mechanism
from pgbb.model.blocks import CELL, block_sizes, cells
from pgbb.private.noise import Stream, gaps
from pgbb.private.row_layout import aligned

Ints = NDArray[np.int32]


MULTIPLE = 64
"""Batches are padded to a multiple of this: so many whole numbers of at most 24 bits add up in 32."""

_CELLS = 2**17  # gaps drawn at once: what a cache holds


def buffer_size(n: int, rate: float) -> int:
    """Positions a batch buffer can hold: ten standard deviations above the mean, or all."""
    mean = n * rate
    return min(n, math.ceil(mean + 10 * math.sqrt(mean * (1 - rate)) + 16))


def _padded(size: int) -> int:
    return -(-size // MULTIPLE) * MULTIPLE


def draw_batches(n: int, rate: float, count: int, stream: Stream) -> tuple[Ints, Ints]:
    """`count` independent Poisson(rate) samples of positions 0 … n−1, in increasing order.

    The members are the partial sums of geometric gaps, so that every position joins independently with probability q.
    Returns positions padded with n−1 to a multiple of 64, and the sizes. A sample that overflows the buffer is drawn
    again: given the others, a record's inclusion probability is then q or 0, and nothing is owed.
    """
    size = buffer_size(n, rate)
    if rate == 1:
        everyone = np.minimum(np.arange(_padded(n), dtype=np.int32), np.int32(n - 1))
        return np.tile(everyone, (count, 1)), np.full(count, n, dtype=np.int32)
    positions = aligned((count, _padded(size)), np.int32)
    sizes = np.empty(count, dtype=np.int32)
    together = max(1, _CELLS // (size + 1))
    for start in range(0, count, together):
        wanted = np.arange(start, min(start + together, count))
        while len(wanted):  # again for those that overflow
            found: Ints | NDArray[np.int64] = gaps(stream, rate, (len(wanted), size + 1), n)
            if found.max() >= 2**31 // (size + 1):  # or their sum could leave 32 bits
                found = found.astype(np.int64)
            found[:, 1:] += 1
            np.cumsum(found, axis=1, out=found)
            for i, row in zip(wanted, found, strict=True):
                sizes[i] = inside = row.searchsorted(found.dtype.type(n))
                positions[i, :size] = row[:size]
                positions[i, inside:] = n - 1
            wanted = wanted[sizes[wanted] > size]
    return positions, sizes


def inverse(whole: Floats) -> Singles:
    """1/W in single precision, infinite for W = 0.

    Divided by instead of multiplied with: compilers compute a quotient once, but repeat a product for every column.
    """
    with np.errstate(divide="ignore"):
        return (1 / whole).astype(np.float32)


def nested_weights(
    mechanism: Mechanism, scaled: Floats, block: NDArray[np.integer], rng: np.random.Generator
) -> Singles:
    """1/W for each member of a batch, W = u_s·min(v, reach/n_S) in whole numbers, v ~ Dirichlet within its `block`.

    A Dirichlet law is that of gamma variables over their sum. Those of a block that are not in the batch are needed in
    that sum alone, which is one gamma variable. `scaled` is u times the largest whole weight.
    """
    assert mechanism.nested is not None
    joined = np.bincount(block, minlength=mechanism.blocks)
    own = rng.standard_gamma(mechanism.nested, len(block))
    rest = rng.standard_gamma(mechanism.nested * (block_sizes(mechanism.n, mechanism.blocks) - joined))
    total = np.bincount(block, own, mechanism.blocks) + rest
    share = mechanism.block_size / mechanism.reach
    weight = np.minimum(own / np.maximum(total[block], 1e-300) * share, 1.0)
    return inverse(np.floor(scaled[block] * weight))


class Batches:
    """`count` independent Poisson(rate) samples of n records that a key decides; a cell is drawn when it is needed."""

    def __init__(self, key: bytes, n: int, rate: float, count: int) -> None:
        self._key, self._n, self._rate, self._count = key, n, rate, count
        self._drawn: dict[int, tuple[Ints, Ints]] = {}

    def _cell(self, cell: int) -> tuple[Ints, Ints]:
        """Members of each batch among the records of a cell, by their place in it, and how many they are."""
        if cell not in self._drawn:
            size = min(CELL, self._n - cell * CELL)
            self._drawn[cell] = draw_batches(size, self._rate, self._count, Stream(self._key, cell))
        return self._drawn[cell]

    def members(self, batch: int, low: int, high: int) -> Iterator[Ints]:
        """Members of a batch among records low … high − 1, by their distance from `low`, cell after cell."""
        for cell in cells(low, high):
            found, sizes = self._cell(cell)
            inside = found[batch, : sizes[batch]] + (cell * CELL - low)
            first, last = np.searchsorted(inside, (0, high - low))
            yield inside[first:last]

    def everywhere(self) -> tuple[Ints, Ints]:
        """All members, as `draw_batches` gives them; the buffer is that of n records, or longer if they need it."""
        if self._n <= CELL:
            return self._cell(0)
        parts = [self._cell(cell) for cell in cells(0, self._n)]
        sizes = np.array([size for _, size in parts]).sum(axis=0, dtype=np.int32)
        room = max(buffer_size(self._n, self._rate), int(sizes.max()))
        positions, at = aligned((self._count, _padded(room)), np.int32), np.zeros(self._count, np.int64)
        positions[:] = self._n - 1
        for cell, (found, inside) in enumerate(parts):
            for row, members, start, count in zip(positions, found, at, inside, strict=True):
                np.add(members[:count], np.int32(cell * CELL), out=row[start : start + count])
            at += inside
        return positions, sizes
