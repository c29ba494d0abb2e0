"""Blocks of records and their Dirichlet weights: arithmetic on positions, which are public."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["block_of_position", "block_sizes", "draw_weights"]


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
