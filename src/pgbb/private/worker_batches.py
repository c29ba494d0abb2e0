"""What some records add to the answers of a step: the share of whoever holds them, drawn from a key.

The engine-free part of a worker. Who joins follows from the key and the numbers of the records; programs have one
shape, whatever is held, so that a record adds the same whole numbers wherever it is. PRIVATE: there is no noise in it.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Protocol
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Ints
from pgbb._numerics.compiled import Compiled
from pgbb.engine.protocol import Batch
from pgbb.model.blocks import Labels, random_blocks
from pgbb.model.problem import Problem
from pgbb.private.gradients import weighted_rows
from pgbb.private.poisson import Batches
from pgbb.private.wide_integers import SPLIT, wide_sum

_SLAB = 2**12  # rows that a program is compiled for


class Held(Protocol):
    """What holds the packed rows of a partition."""

    @property
    def rows(self) -> NDArray[np.uint32]:
        """(records, ·), single precision as words."""


@lru_cache(maxsize=2)
def _batches(key: bytes, n: int, rate: float, count: int) -> Batches:
    """Those of some steps; cells that were drawn stay until batches under another key are asked for."""
    return Batches(key, n, rate, count)


_BLOCKS: WeakKeyDictionary[Held, tuple[tuple[int, ...], Labels]] = WeakKeyDictionary()


def _blocks(part: Held, *named: int) -> Labels:
    """The blocks of a partition's records; those of the last partition into blocks that was asked for are known."""
    known = _BLOCKS.get(part)
    if known is None or known[0] != named:
        known = _BLOCKS[part] = named, random_blocks(*named)
    return known[1]


@partial(Compiled, static_argnames=("problem",))
def _sum(problem: Problem, packed: jax.Array, inverse: jax.Array, theta: jax.Array, index: jax.Array) -> jax.Array:
    """High and low parts of the sum over a slab, (2, d)."""
    return jnp.stack(wide_sum(weighted_rows(problem, packed, inverse, theta, index)))[:, : problem.dim]


def share_of(problem: Problem, asked: Batch, parts: Sequence[Held], firsts: Sequence[int]) -> Ints:
    """The sums over the members that these partitions hold, K·d numbers; `firsts` numbers their first records."""
    batches = _batches(asked.key, asked.n, asked.rate, asked.count)
    found = []
    for k, (place, order) in enumerate(zip(asked.places, asked.orders, strict=True)):
        rows, weights = [], []
        for part, first in zip(parts, firsts, strict=True):
            end = first + len(part.rows)
            for members in batches.members(place, first, end):
                rows.append(part.rows[members].view(np.float32))
                weights.append(asked.inverse[k][_blocks(part, order, asked.n, asked.blocks, first, end)[members]])
        found.append(_slabs(problem, rows, weights, asked.points[k], asked.index[k]))
    return np.concatenate(found)


def _slabs(
    problem: Problem,
    rows: Sequence[NDArray[np.float32]],
    weights: Sequence[NDArray[np.float32]],
    theta: NDArray[np.float32],
    index: np.float32,
) -> Ints:
    """The sum over rows, in slabs that are filled up with rows of weight zero."""
    total, n = np.zeros(problem.dim, np.int64), sum(map(len, rows))
    if n == 0:
        return total
    packed = np.zeros((-(-n // _SLAB) * _SLAB, rows[0].shape[1]), np.float32)
    inverse = np.full(len(packed), np.inf, np.float32)
    np.concatenate(rows, out=packed[:n])
    np.concatenate(weights, out=inverse[:n])
    slabs = [slice(at, at + _SLAB) for at in range(0, n, _SLAB)]
    for high, low in np.asarray([_sum(problem, packed[s], inverse[s], theta, index) for s in slabs]).astype(np.int64):
        total += (high << SPLIT) + low
    return total
