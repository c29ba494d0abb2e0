"""Randomness of a run: block weights, batches and noise, drawn on the host ahead of each chunk of steps.

Public draws (weights u, index, initial parameters) and secret ones (partition,
batches, noise) come from separate streams. Nothing here reads records: a
batch is a set of positions.
"""

import math
import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate

Ints = NDArray[np.int32]

__all__ = ["Randomness", "buffer_size", "draw_batches"]


@dataclass
class Randomness:
    """Two independent generators: what may be published, and what must stay secret."""

    public: np.random.Generator
    secret: np.random.Generator
    source: str

    @classmethod
    def create(cls, insecure_seed: int | None = None) -> "Randomness":
        """From the operating system's entropy, or reproducibly (and therefore not privately) from a seed."""
        if insecure_seed is None:  # two seeds that have nothing to do with each other: u is published, batches are not
            seeds = [np.random.SeedSequence(secrets.randbits(256)) for _ in range(2)]
        else:
            seeds = np.random.SeedSequence(_validate.integer("insecure_seed", insecure_seed, low=0)).spawn(2)
        public, secret = (np.random.Generator(np.random.PCG64DXSM(s)) for s in seeds)
        return cls(public, secret, "operating system" if insecure_seed is None else "insecure seed")


def buffer_size(n: int, rate: float) -> int:
    """Positions a batch buffer can hold: ten standard deviations above the mean, or all."""
    mean = n * rate
    return min(n, math.ceil(mean + 10 * math.sqrt(mean * (1 - rate)) + 16))


def draw_batches(n: int, rate: float, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """`count` independent Poisson(rate) samples of positions 0 … n−1, in increasing order.

    Gaps between successive members are geometric: 1 + ⌊E/−log(1−q)⌋ with E
    exponential in double precision, so that every position joins independently
    with probability q. Returns positions padded with n−1, and the sizes. A
    sample that overflows the buffer is drawn again: given the others, a
    record's inclusion probability is then q or 0, and nothing is owed.
    """
    size = buffer_size(n, rate)
    if rate == 1:
        everyone = np.broadcast_to(np.arange(n, dtype=np.int32), (count, n))
        return np.ascontiguousarray(everyone), np.full(count, n, dtype=np.int32)
    scale = -1.0 / math.log1p(-rate)
    positions = np.empty((count, size + 1), dtype=np.int32)
    sizes = np.empty(count, dtype=np.int32)
    gaps = np.empty(size + 1)
    for i in range(count):
        inside = size + 1
        while inside > size:  # redraw on overflow
            rng.standard_exponential(out=gaps)
            np.multiply(gaps, scale, out=gaps)
            np.minimum(gaps, n, out=gaps)  # a gap of n ends the batch as surely as a longer one
            steps = gaps.astype(np.int64)  # truncation is ⌊E·scale⌋
            steps += 1
            ends = np.cumsum(steps)
            inside = int(np.searchsorted(ends, n, side="right"))  # members are ends − 1 < n
        ends -= 1
        np.minimum(ends, n - 1, out=ends)
        positions[i] = ends
        sizes[i] = inside
    return positions[:, :size], sizes
