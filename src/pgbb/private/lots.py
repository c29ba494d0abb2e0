"""Who joins a batch, decided on the device: each record draws its own lot from a keystream.

Record i has a word of Threefry-2x32 under the key of the answer, in tiles: the two words of a counter go to the
two halves of a tile. It joins if its word is below ⌊q·2³²⌋. A tile has places for so many that the next is
turned away with probability below 2⁻¹²⁸ only (docs/privacy.md, section 12). Nothing here reads records.
"""

import math
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from scipy.special import bdtrc

__all__ = ["Plan", "lot_plan", "mask", "members", "words"]

SPARSE = 0.25  # above this rate a pass over all rows costs less than a list of members
_TILES = ((2**16, 2**11), (2**24, 2**13))  # up to so many records, so many make a tile
_WARPS = 4
_OVERFLOW = 2.0**-128
_PLACES = 16  # capacities are a multiple of this
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class Plan(tuple[int, int, int, int]):
    """Of n records at a rate: (n, records of a tile, members that a tile may have, words that join); public."""

    @property
    def tiles(self) -> int:
        """How many, in fours: so many places are a multiple of 64."""
        return -(-self[0] // (4 * self[1])) * 4


@lru_cache(maxsize=64)
def lot_plan(n: int, rate: float) -> Plan:
    """Tiles by the number of records; a tile overflows with probability below 2⁻¹²⁸."""
    tile = next(size for most, size in _TILES if n <= most or most == _TILES[-1][0])
    enough = int(np.argmax(bdtrc(np.arange(tile + 1), tile, rate) < _OVERFLOW)) if rate < 1 else tile
    return Plan((n, tile, -(-enough // _PLACES) * _PLACES, math.floor(rate * 2**32)))


def words(key: Any, counter: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with twenty rounds of (counter, number), all uint32; the key is (first, second, number, unused).

    The number is that of the answer: two that had the same key by chance would still have other words.
    """
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    a, b = counter + keys[0], jnp.zeros_like(counter) + key[2] + keys[1]
    for i in range(5):
        for turn in _ROTATIONS[i % 2]:
            a = a + b
            b = a ^ ((b << jnp.uint32(turn)) | (b >> jnp.uint32(32 - turn)))
        a, b = a + keys[(i + 1) % 3], b + keys[(i + 2) % 3] + jnp.uint32(i + 1)
    return a, b


def _halves(plan: Plan, key: Any, tile: Any) -> list[tuple[Any, Any]]:
    """For both halves of a tile: positions, and whether their words join."""
    n, size, _, joining = plan
    lane = jax.lax.iota(jnp.int32, size // 2)
    counter = (tile * (size // 2) + lane).astype(jnp.uint32)
    found = []
    for side, word in enumerate(words(key, counter)):
        position = tile * size + side * (size // 2) + lane
        drawn = position < n if joining == 2**32 else (word < jnp.uint32(joining)) & (position < n)
        found.append((position, drawn))
    return found


def mask(plan: Plan, key: Any) -> Any:
    """Whether each record joins, with places up to a whole tile: the reference, in plain array operations."""
    capacity = plan[2]

    def one(tile: Any) -> Any:
        drawn = jnp.concatenate([d for _, d in _halves(plan, key, tile)])
        return drawn & (jnp.cumsum(drawn) <= capacity)

    return jax.vmap(one)(jnp.arange(plan.tiles)).reshape(-1)


def _kernel(plan: Plan, key: Any, positions: Any, counts: Any) -> None:
    from jax.experimental.pallas import triton

    _, _, capacity, _ = plan
    before = jnp.int32(0)
    for position, drawn in _halves(plan, (key[0], key[1], key[2]), pl.program_id(0)):
        place = before + jnp.cumsum(drawn.astype(jnp.int32)) - 1
        place = jnp.where(drawn & (place < capacity), place, capacity)  # one place more, for those who do not join
        triton.store(positions.at[0, place], position, mask=place < capacity)
        before += jnp.sum(drawn.astype(jnp.int32))
    counts[0] = jnp.minimum(before, capacity)


@partial(jax.jit, static_argnames=("plan", "interpret"))
def members(plan: Plan, key: Any, *, interpret: bool = False) -> tuple[Any, Any]:
    """Positions of those who join, tile by tile, and which of these places are taken; the others hold 0."""
    from jax.experimental.pallas import triton

    tiles, capacity = plan.tiles, plan[2]
    positions, counts = pl.pallas_call(
        partial(_kernel, plan),
        grid=(tiles,),
        in_specs=[pl.BlockSpec((4,), lambda _: (0,))],
        out_specs=[pl.BlockSpec((1, capacity + 1), lambda i: (i, 0)), pl.BlockSpec((1,), lambda i: (i,))],
        out_shape=[
            jax.ShapeDtypeStruct((tiles, capacity + 1), jnp.int32),  # type: ignore[no-untyped-call]
            jax.ShapeDtypeStruct((tiles,), jnp.int32),  # type: ignore[no-untyped-call]
        ],
        compiler_params=triton.CompilerParams(num_warps=_WARPS),
        interpret=interpret,
    )(key)
    taken = jnp.arange(capacity)[None] < counts[:, None]
    return jnp.where(taken, positions[:, :capacity], 0).reshape(-1), taken.reshape(-1)
