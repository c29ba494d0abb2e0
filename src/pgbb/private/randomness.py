"""The randomness of a run: four streams with keys of their own, and the position of a run in them.

Public draws (weights u, index, initial parameters) and secret ones come from separate streams, and so do the three
kinds of secret draws. What is drawn from them: batches in `poisson`, noise in `noise`. Nothing here reads records.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.private.noise import Stream
from pgbb.private.poisson import Batches

Ints = NDArray[np.int32]


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
    def create(cls, insecure_seed: int | None = None, *, order: int | None = None) -> "Randomness":
        """Streams from the operating system's entropy, or from a seed: reproducible, and therefore not private.

        `order` repeats the order of the records of an earlier run; batches and noise have fresh keys always.
        """
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
        """`Batches` of all records, under a key from the stream of batches."""
        return Batches(self.batch_key(), n, rate, count).everywhere()

    def batch_key(self) -> bytes:
        """A key for some batches."""
        return self.batches.words(4).tobytes()


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
