"""Poisson batches drawn on the host: who joins, in which order, and with which weight.

A batch is a set of positions; nothing here reads records. Where a GPU draws batches itself, the same law is in
`poisson_on_device`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from pgbb.accountant import Mechanism
from pgbb.model.blocks import block_sizes
from pgbb.private.noise import Stream, gaps
from pgbb.private.rows import aligned

Ints = NDArray[np.int32]
Singles = NDArray[np.float32]
Floats = NDArray[np.float64]

__all__ = ["MULTIPLE", "buffer_size", "draw_batches", "inverse", "inverse_weights", "nested_weights"]

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

    The members are the partial sums of geometric gaps, so that every position
    joins independently with probability q. Returns positions padded with n−1 to
    a multiple of 64, and the sizes. A sample that overflows the buffer is drawn again: given the
    others, a record's inclusion probability is then q or 0, and nothing is owed.
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


def inverse_weights(mechanism: Mechanism, whole: Floats, position: Ints, size: Ints) -> Singles:
    """1/W for each position of each batch, W the whole weight of its block; infinite for padding."""
    first = np.cumsum([0, *block_sizes(mechanism.n, mechanism.blocks)]).astype(position.dtype)  # and the end
    out = aligned(position.shape, np.float32)
    for row, values, members, count in zip(out, inverse(whole), position, size, strict=True):
        ends = np.searchsorted(members[:count], first)
        row[:count] = np.repeat(values, ends[1:] - ends[:-1])
        row[count:] = np.inf
    return out


def nested_weights(
    mechanism: Mechanism, scaled: Floats, position: Ints, size: Ints, rng: np.random.Generator
) -> Singles:
    """1/W for each position of each batch, W = u_s·min(v, reach/n_S) in whole numbers, v ~ Dirichlet within the block.

    A Dirichlet law is that of gamma variables over their sum. Those of a block that are not in the batch are needed in
    that sum alone, which is one gamma variable. `scaled` is u times the largest whole weight.
    """
    assert mechanism.nested is not None
    sizes = block_sizes(mechanism.n, mechanism.blocks)
    first = np.cumsum([0, *sizes]).astype(position.dtype)
    share = mechanism.block_size / mechanism.reach
    out = aligned(position.shape, np.float32)
    for row, values, members, count in zip(out, scaled, position, size, strict=True):
        ends = np.searchsorted(members[:count], first)
        joined = ends[1:] - ends[:-1]
        block = np.repeat(np.arange(mechanism.blocks), joined)
        own = rng.standard_gamma(mechanism.nested, count)
        rest = rng.standard_gamma(mechanism.nested * (sizes - joined))
        total = np.bincount(block, own, mechanism.blocks) + rest
        weight = np.minimum(own / np.maximum(total[block], 1e-300) * share, 1.0)
        row[:count] = inverse(np.floor(values[block] * weight))
        row[count:] = np.inf
    return out
