"""Everything random in a chunk of steps, drawn on the host ahead of it: weights, batches and noise in whole numbers.

Nothing here reads records: a batch is a set of positions. What is drawn is added up by `loop`.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from pgbb.accountant import Mechanism
from pgbb.errors import PgbbError
from pgbb.model.blocks import Labels, block_sizes, draw_weights, random_blocks
from pgbb.model.problem import Problem
from pgbb.private.noise import rounded_normals
from pgbb.private.poisson import inverse, nested_weights
from pgbb.private.randomness import Randomness
from pgbb.private.row_layout import aligned
from pgbb.private.wide_integers import LOW, SPLIT

Who: TypeAlias = Literal["here", "device", "elsewhere"]
Drawn: TypeAlias = "dict[str, np.ndarray | dict[str, np.ndarray]]"

_BITS, _FEWEST = 24, 8  # bits of a whole number: what single precision holds; fewer where the noise is huge


@dataclass
class Draws:
    """What a session draws.

    Attributes:
      problem, mechanism, sigma, randomness, pseudo_blocks, reshuffle: of the session.
      batches: who draws them: this process ("here"), its device under keys from here ("device"), or whoever holds the
        records, under such keys too ("elsewhere").
    """

    problem: Problem
    mechanism: Mechanism
    sigma: float
    randomness: Randomness
    pseudo_blocks: int
    reshuffle: bool
    batches: Who

    def __post_init__(self) -> None:
        m = self.mechanism
        self._unit = self.problem.clip * m.reach / m.block_size  # most that a record can add
        self._bits = _bits(self.sigma / self._unit, m.block_size * m.sampling_rate)

    @property
    def grid(self) -> float:
        """The unit of the whole numbers of an answer: 2^−bits of the most that a record can add."""
        return self._unit * 2.0**-self._bits

    def draw(self, count: int, start: int) -> Drawn:
        """For `count` steps: u and index, which are public, and batches and noise, which are secret."""
        m, rng = self.mechanism, self.randomness
        k, d, total = m.draws_per_step, self.problem.dim, count * m.draws_per_step
        u = draw_weights(m.blocks, m.concentration, self.pseudo_blocks, m.alpha, total, rng.public)
        index = self.problem.index.draw(total, rng.public) if self.problem.index else np.zeros(total)
        whole = np.floor(u[:, : m.blocks] * (m.block_size / block_sizes(m.n, m.blocks) * 2.0**self._bits))
        noise = rounded_normals(rng.noise, self.sigma, self.grid, (total, d))
        drawn = {
            "u": u.astype(np.float32),
            "index": index.astype(np.float32),
            "batch": self._keys(whole, start * k) if self.batches == "device" else self._members(whole, u),
            "noise": np.stack([noise >> SPLIT, noise & LOW], axis=1).astype(np.int32),
        }
        shaped: Drawn = jax.tree.map(lambda v: v.reshape(count, k, *v.shape[1:]), drawn)
        return shaped | {"t": np.arange(start, start + count, dtype=np.int32)}

    def _keys(self, whole: NDArray[np.float64], first: int) -> dict[str, np.ndarray]:
        """A key for every answer, from the stream of batches, and its number; the whole weights of blocks, and 1/W."""
        key = np.zeros((len(whole), 4), np.uint32)
        key[:, :2] = self.randomness.batches.words(len(whole)).view(np.uint32).reshape(-1, 2)
        key[:, 2] = np.arange(first, first + len(whole))
        return {"key": key, "whole": whole.astype(np.float32), "inverse": inverse(whole)}

    @cached_property
    def _order(self) -> int:
        """The seed of the partition; the first secret number of a run, so that one which goes on has the same."""
        return self._new_order()

    def _new_order(self) -> int:
        return int(self.randomness.secret.integers(2**63))

    @cached_property
    def _blocks(self) -> Labels:
        """The block of every record."""
        return random_blocks(self._order, self.mechanism.n, self.mechanism.blocks, 0, self.mechanism.n)

    def _members(self, whole: NDArray[np.float64], u: NDArray[np.float64]) -> dict[str, np.ndarray]:
        """The members of every batch, by their numbers, and their inverse weights, which are infinite for padding."""
        if self.batches == "elsewhere":
            return self._told(whole)
        m = self.mechanism
        rows, sizes = self.randomness.poisson_batches(m.n, m.sampling_rate, len(whole))
        weights = aligned(rows.shape, np.float32)
        nested = None if m.nested is None else np.random.default_rng(self.randomness.batches.words(4).tolist())
        for i, (row, size, values) in enumerate(zip(rows, sizes, inverse(whole), strict=True)):
            of = self._blocks if not self.reshuffle else random_blocks(self._new_order(), m.n, m.blocks, 0, m.n)
            block = of[row[:size]]
            weights[i, :size] = (
                values[block] if nested is None else nested_weights(m, u[i] * 2.0**self._bits, block, nested)
            )
            weights[i, size:] = np.inf
        return {"rows": rows, "inverse": weights}

    def _told(self, whole: NDArray[np.float64]) -> dict[str, np.ndarray]:
        """What workers need in order to draw the batches: a key, places under it, seeds of blocks, 1/W."""
        count = len(whole)
        orders = [self._new_order() for _ in range(count)] if self.reshuffle else [self._order] * count
        key = np.frombuffer(self.randomness.batch_key(), np.uint8)
        return {
            "key": np.tile(key, (count, 1)),
            "place": np.arange(count),
            "order": np.array(orders, np.int64),
            "inverse": inverse(whole),
        }


def _bits(noise: float, members: float) -> int:
    """Bits of the grid C·2^−bits/n_S: 24, or fewer so that answers stay inside 44 bits; public.

    Noise of `noise`·C/n_S does, and so does a sum of so many members' largest contributions.
    """
    bits = min(_BITS, 42 - math.ceil(math.log2(max(members, 1))))
    bits = bits if noise == 0 else min(bits, 38 - math.ceil(math.log2(noise)))
    if bits < _FEWEST:
        raise PgbbError(
            f"the noise is {noise:.2g} times what one record can contribute, and a block has {members:.2g} records "
            "in a batch: nothing would be left of the answers. Take a larger epsilon, fewer steps or a smaller rate."
        )
    return bits
