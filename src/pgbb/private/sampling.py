"""Randomness of a run: block weights, batches and noise, drawn on the host ahead of each chunk of steps.

Public draws (weights u, index, initial parameters) and secret ones come from
separate streams, and so do the three kinds of secret draws. Nothing here reads
records: a batch is a set of positions.
"""

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.accountant import Mechanism
from pgbb.model.blocks import block_sizes
from pgbb.private.hosts import Together
from pgbb.private.noise import Stream, gaps
from pgbb.private.rows import aligned

Ints = NDArray[np.int32]
Singles = NDArray[np.float32]
Floats = NDArray[np.float64]

__all__ = [
    "MULTIPLE", "Position", "Randomness", "buffer_size", "draw_batches", "inverse", "inverse_weights", "members_here",
]  # fmt: skip

MULTIPLE = 64
"""Batches are padded to a multiple of this: so many whole numbers of at most 24 bits add up in 32."""

_CELLS = 2**17  # gaps drawn at once: what a cache holds


@dataclass
class Randomness:
    """Four independent streams, each with a key of its own.

    Attributes:
      public: weights, index, initial parameters; may be published.
      secret: the order of the records; the proof holds for every order, so that numpy's generator is enough.
      batches: who joins which batch or resample.
      noise: what is added to the answers.
      source: where the keys come from, for the certificate.
      order: the seed of `secret`, by which a checkpoint names the partition; None with an insecure seed.
    """

    public: np.random.Generator
    secret: np.random.Generator
    batches: Stream
    noise: Stream
    source: str
    order: int | None = None

    @classmethod
    def create(
        cls, insecure_seed: int | None = None, *, order: int | None = None, together: Together | None = None
    ) -> "Randomness":
        """From the operating system's entropy, or reproducibly (and therefore not privately) from a seed.

        `order` repeats the order of the records of an earlier run; batches and noise have fresh keys always.
        With other processes, all but the noise is that of process 0; only its noise is ever used.
        """
        if insecure_seed is None and together is not None:
            return cls._shared(together, order)
        if insecure_seed is None:  # seeds that have nothing to do with each other: u is published, the order is not
            order = secrets.randbits(256) if order is None else order
            seeds = [np.random.SeedSequence(s) for s in (secrets.randbits(256), order)]
        else:
            seeds = np.random.SeedSequence(_validate.integer("insecure_seed", insecure_seed, low=0)).spawn(2)
        public, secret = (np.random.Generator(np.random.PCG64DXSM(s)) for s in seeds)
        batches, noise = (Stream.create(purpose, insecure_seed) for purpose in ("batches", "noise"))
        source = "operating system" if insecure_seed is None else "insecure seed"
        return cls(public, secret, batches, noise, source, order)

    def poisson_batches(self, n: int, rate: float, count: int) -> tuple[Ints, Ints]:
        """`draw_batches` from the stream of batches."""
        return draw_batches(n, rate, count, self.batches)

    @classmethod
    def _shared(cls, together: Together, order: int | None) -> "Randomness":
        """Seeds of u and of the order, and the key of the batches, from process 0; the key of the noise is not sent."""
        chosen = secrets.token_bytes(32) if order is None else order.to_bytes(32)
        said = together.first(secrets.token_bytes(32) + chosen + secrets.token_bytes(32))
        seeds = [int.from_bytes(said[:32]), int.from_bytes(said[32:64])]
        public, secret = (np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(s))) for s in seeds)
        return cls(public, secret, Stream(said[64:]), Stream.create("noise"), "operating system", seeds[1])


@dataclass(frozen=True)
class Position:
    """Where a run stands after a chunk, for another process to go on from: public, but for the order.

    Neither batches nor noise are in it. The order of the records is no secret
    on which privacy rests: the proof holds for every fixed partition.

    Attributes:
      steps: how many are done.
      chunk: how many are drawn at once, on which the sequence of u depends.
      public: state of the public generator after the chunk, although more may have been drawn ahead.
      order: seed of the order of the records.
    """

    steps: int
    chunk: int
    public: Mapping[str, Any]
    order: int | None


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


def members_here(rows: Ints, weights: Singles, expected: int) -> dict[str, np.ndarray]:
    """Of every batch the members that this process holds, and their inverse weights, infinite for padding.

    `rows` is −1 for those of others. The buffer holds `expected` members, or all there may be where a batch has more.
    """
    here = (rows >= 0) & np.isfinite(weights)
    most = int(here.sum(axis=1).max(initial=0))
    size = -(-expected // MULTIPLE) * MULTIPLE
    size = size if most <= size else rows.shape[1]
    found = {"rows": np.zeros((len(rows), size), np.int32), "inverse": np.full((len(rows), size), np.inf, np.float32)}
    for i, mask in enumerate(here):
        count = int(mask.sum())
        found["rows"][i, :count], found["inverse"][i, :count] = rows[i, mask], weights[i, mask]
    return found


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
