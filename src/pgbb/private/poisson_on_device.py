"""Poisson batches drawn on a device: each record decides by a keystream, in two rounds, whether it joins.

Let 2⁻ᵐ be the smallest power of a half that is not below q. In the first round 32 records share m words, a bit of each
for every record, and a record whose bits are all one is a candidate. In the second round each candidate has a word
of its own, and joins if that is below ⌊q·2^(m+32)⌋. So every record joins independently with
probability ⌊q·2^(m+32)⌋/2^(m+32), and few words are drawn: for q = .01 a fifth of a word a record.

Words are those of Threefry-2x32 under the key of the answer. Candidates are listed in tiles; a tile has places for so
many that one is left out with probability below 2⁻¹²⁸ only (docs/privacy.md, section 12). Nothing here reads records.
"""

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl
from scipy.special import bdtrc

from pgbb._numerics.compiled import power_of_two

Ref: TypeAlias = Any  # memory of the device, as a kernel sees it

SPARSE = 0.25  # above this rate a pass over all rows costs less than a list
EMPTY = -1  # marks a place that no candidate has taken
_GROUP = 32  # number of records that share words
_TILES = ((2**16, 128), (2**31, 1024))  # (records, groups): up to so many records, a tile has so many groups
_CALLS = 16  # counters of a group: two words each
_SECOND = 2**31  # first counter of the second round
_LANES = 128  # groups of a warp
_OVERFLOW = 2.0**-128  # probability with which a list may be too short
_PLACES = 128  # capacities are a multiple of this
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class Sampler(NamedTuple):
    """How batches of n records are drawn at a rate; public.

    Attributes:
      n: how many records there are.
      groups: of a tile.
      bits: m of the first round.
      capacity: places of a tile; the last stays empty.
      below: a candidate whose word is below this joins.
    """

    n: int
    groups: int
    bits: int
    capacity: int
    below: int

    @property
    def tiles(self) -> int:
        """How many tiles hold n records."""
        return -(-self.n // (_GROUP * self.groups))

    @property
    def places(self) -> int:
        """How many places a list has."""
        return self.tiles * self.capacity


@lru_cache(maxsize=64)
def sampler(n: int, rate: float) -> Sampler:
    """The sampler for n records at a rate; a tile overflows with probability below 2⁻¹²⁸."""
    bits = min(math.floor(-math.log2(rate)), _GROUP)
    bits -= rate > 2.0**-bits  # by the rounding of the logarithm
    groups = min(next(size for most, size in _TILES if n <= most), power_of_two(-(-n // _GROUP)))
    tile = _GROUP * groups
    enough = int(np.argmax(bdtrc(np.arange(tile + 1), tile, 2.0**-bits) < _OVERFLOW)) if bits else tile
    return Sampler(n, groups, bits, -(-(enough + 1) // _PLACES) * _PLACES, math.floor(rate * 2.0 ** (bits + 32)))


def words(key: Array | Sequence[Array], counter: Array) -> tuple[Array, Array]:
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


def _first_round(draw: Sampler, key: Array | Sequence[Array], group: Array) -> Array:
    """For groups (int32), a word whose bit b says whether record 32·group + b is a candidate."""
    left = jnp.clip(draw.n - group * _GROUP, 0, _GROUP)  # records of the group
    on = jnp.where(left == _GROUP, jnp.uint32(0xFFFFFFFF), (jnp.uint32(1) << (left % _GROUP).astype(jnp.uint32)) - 1)
    counter = group.astype(jnp.uint32) * jnp.uint32(_CALLS)
    for call in range(-(-draw.bits // 2)):
        a, b = words(key, counter + jnp.uint32(call))
        on = on & a & b if 2 * call + 1 < draw.bits else on & a
    return on


def joins(draw: Sampler, key: Array | Sequence[Array], position: Array) -> Array:
    """The second round, for candidates at these positions (int32)."""
    if draw.below == 2**32:
        return position >= 0
    word, _ = words(key, position.astype(jnp.uint32) + jnp.uint32(_SECOND))
    return (position >= 0) & (word < jnp.uint32(draw.below))


def mask(draw: Sampler, key: Array) -> Array:
    """Whether each of the n records joins: the reference, in plain array operations."""

    def one(tile: Array) -> Array:
        on = _first_round(draw, key, tile * draw.groups + jnp.arange(draw.groups, dtype=jnp.int32))
        bits = (on[:, None] >> jnp.arange(_GROUP, dtype=jnp.uint32)) & 1
        return (bits.reshape(-1) == 1) & (jnp.cumsum(bits.reshape(-1)) < draw.capacity)

    on = jax.vmap(one)(jnp.arange(draw.tiles, dtype=jnp.int32)).reshape(-1)[: draw.n]
    return on & joins(draw, key, jnp.arange(draw.n, dtype=jnp.int32))


def _kernel(draw: Sampler, key: Ref, places: Ref) -> None:
    """One tile: each lane has a group, and writes the positions of its candidates, one after the other."""
    from jax.experimental.pallas import triton

    group = pl.program_id(0) * draw.groups + jax.lax.iota(jnp.int32, draw.groups)
    word = _first_round(draw, (key[0], key[1], key[2]), group)
    on = jax.lax.bitcast_convert_type(word, jnp.int32)
    count = jax.lax.population_count(on)
    end, last = jnp.cumsum(count), draw.capacity - 1

    def write(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        on, place = state
        bit = jax.lax.population_count((on & -on) - 1)  # the lowest one
        taken = (on != 0) & (place < last)
        triton.store(places.at[0, jnp.where(taken, place, last)], group * _GROUP + bit, mask=taken)
        return on & (on - 1), place + 1

    jax.lax.fori_loop(0, jnp.max(count), write, (on, end - count))
    place = jax.lax.iota(jnp.int32, power_of_two(draw.capacity))
    empty = (place >= jnp.minimum(jnp.sum(count), last)) & (place <= last)
    triton.store(places.at[0, place], jnp.full(place.shape, EMPTY, jnp.int32), mask=empty)


@partial(jax.jit, static_argnames=("draw", "interpret"))
def candidates(draw: Sampler, key: Array, *, interpret: bool = False) -> Array:
    """Positions of the candidates, tile by tile, or `EMPTY`: (places,) int32, each increasing."""
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        partial(_kernel, draw),
        grid=(draw.tiles,),
        in_specs=[pl.BlockSpec((4,), lambda _: (0,))],
        out_specs=pl.BlockSpec((1, draw.capacity), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((draw.tiles, draw.capacity), jnp.int32),  # type: ignore[no-untyped-call]
        compiler_params=triton.CompilerParams(num_warps=max(1, draw.groups // _LANES)),
        interpret=interpret,
    )(key).reshape(-1)
