"""Everything random in a chunk of steps, drawn on the host ahead of it: weights, batches and noise in whole numbers.

Nothing here reads records: a batch is a set of positions. What is drawn is added up by `loop`.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from pgbb.accountant import Mechanism
from pgbb.errors import PgbbError
from pgbb.model.blocks import block_sizes, draw_weights
from pgbb.model.problem import Problem
from pgbb.private.noise import rounded_normals
from pgbb.private.poisson import inverse, inverse_weights, nested_weights
from pgbb.private.randomness import Randomness
from pgbb.private.wide_integers import LOW, SPLIT

__all__ = ["Draws"]

Drawn: TypeAlias = "dict[str, np.ndarray | dict[str, np.ndarray]]"

_BITS, _FEWEST = 24, 8  # bits of a whole number: what single precision holds; fewer where the noise is huge


@dataclass
class Draws:
    """What a session draws.

    Attributes:
      problem, mechanism, sigma, randomness, pseudo_blocks, reshuffle: of the session.
      on_device: whether the device draws the batches, under keys from here.
    """

    problem: Problem
    mechanism: Mechanism
    sigma: float
    randomness: Randomness
    pseudo_blocks: int
    reshuffle: bool
    on_device: bool

    def __post_init__(self) -> None:
        self._unit = self.problem.clip * self.mechanism.reach / self.mechanism.block_size  # most that a record can add
        self._bits = _bits(self.sigma / self._unit)

    @property
    def grid(self) -> float:
        """What the whole numbers of an answer count: 2^−bits of the most that a record can add."""
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
            "batch": self._keys(whole, start * k) if self.on_device else self._members(whole, u),
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

    def _members(self, whole: NDArray[np.float64], u: NDArray[np.float64]) -> dict[str, np.ndarray]:
        """The members of every batch, and their inverse weights."""
        m, rng = self.mechanism, self.randomness
        position, size = rng.poisson_batches(m.n, m.sampling_rate, len(whole))
        rows = position
        if self.reshuffle:
            rows = np.stack([rng.secret.permutation(m.n)[p] for p in position]).astype(np.int32)
        if m.nested is not None:
            own = np.random.default_rng(rng.batches.words(4).tolist())  # a key of its own, for a resumed run as well
            return {"rows": rows, "inverse": nested_weights(m, u * 2.0**self._bits, position, size, own)}
        return {"rows": rows, "inverse": inverse_weights(m, whole, position, size)}


def _bits(noise: float) -> int:
    """Bits of the grid: 24, or fewer so that noise of `noise` times what a record can add stays inside 44; public."""
    bits = _BITS if noise == 0 else min(_BITS, 38 - math.ceil(math.log2(noise)))
    if bits < _FEWEST:
        raise PgbbError(
            f"the noise is {noise:.2g} times what one record can contribute: nothing would be left of the answers. "
            "Take a larger epsilon, fewer steps or a smaller sampling rate."
        )
    return bits
