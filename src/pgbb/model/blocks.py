"""Blocks of records and their Dirichlet weights: arithmetic on numbers of records, which are public."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.unsignedinteger]
"""A number of a block for each record, in as few bytes as hold it."""

CELL = 2**20
"""Records whose blocks and batches are drawn together: who holds some records draws for their cells, not for all n."""


def cells(low: int, high: int) -> range:
    """The cells that records low … high − 1 lie in.

    >>> cells(5, CELL + 1)
    range(0, 2)
    """
    return range(low // CELL, -(-high // CELL))


@lru_cache(maxsize=2)
def _shares(seed: int, n: int, blocks: int) -> NDArray[np.int64]:
    """How many records of each cell belong to each block, (cells, blocks)."""
    rng = np.random.Generator(np.random.PCG64DXSM([seed, len(cells(0, n))]))  # no cell has this number
    left, found = block_sizes(n, blocks).astype(np.int64), []
    for cell in cells(0, n):
        found.append(rng.multivariate_hypergeometric(left, min(CELL, n - cell * CELL), method="marginals"))
        left = left - found[-1]
    return np.array(found)


def random_blocks(seed: int, n: int, blocks: int, low: int, high: int) -> Labels:
    """Blocks of records low … high − 1 in the partition of n records into blocks of `block_sizes` that the seed names.

    Every such partition is equally likely: first how many of a cell's records belong to each block, then which.

    >>> random_blocks(1, 7, 3, 0, 7).tolist(), random_blocks(1, 7, 3, 2, 4).tolist()
    ([0, 2, 1, 0, 2, 0, 1], [1, 0])
    """
    kind = np.min_scalar_type(blocks - 1)
    if blocks == 1:
        return np.zeros(high - low, kind)
    parts = []
    for cell in cells(low, high):
        found = np.repeat(np.arange(blocks, dtype=kind), _shares(seed, n, blocks)[cell])
        np.random.Generator(np.random.PCG64DXSM([seed, cell])).shuffle(found)
        parts.append(found[max(low - cell * CELL, 0) : high - cell * CELL])
    return np.concatenate(parts)


def block_of_position(n: int, blocks: int) -> NDArray[np.int32]:
    """Block ⌊iS/n⌋ of each position i: balanced for any n ≥ S.

    >>> block_of_position(7, 3)
    array([0, 0, 0, 1, 1, 2, 2], dtype=int32)
    """
    return (np.arange(n, dtype=np.int64) * blocks // n).astype(np.int32)


def block_sizes(n: int, blocks: int) -> NDArray[np.float64]:
    """Number of positions in each block; they differ by at most one."""
    first = -(-np.arange(blocks + 1, dtype=np.int64) * n // blocks)  # ⌈sn/S⌉, where block s begins
    return np.diff(first).astype(float)


def draw_weights(
    blocks: int, concentration: float | None, pseudo_blocks: int, alpha: float, count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """`count` draws of (u, ũ) ~ Dirichlet(γ1_S, (α/S̃)1_S̃), one a row; the constant 1 for one block."""
    if blocks == 1:
        return np.ones((count, 1))
    mass = np.full(blocks, concentration)
    if pseudo_blocks:
        mass = np.append(mass, np.full(pseudo_blocks, alpha / pseudo_blocks))
    return rng.dirichlet(mass, size=count)
