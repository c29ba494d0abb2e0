"""Who joins a batch, decided on the device: each record draws its lot from a keystream, in two rounds.

Let 2⁻ᵐ be the smallest power of a half that is not below q. In the first round 32 records share m words, a bit of each
for every record, and a record goes on if all its bits are one. In the second round each has a word
of its own, and joins if that is below ⌊q·2^(m+32)⌋. So every record joins independently with
probability ⌊q·2^(m+32)⌋/2^(m+32), and few words are drawn: for q = .01 a fifth of a word a record.

Words are those of Threefry-2x32 under the key of the answer. Who goes on is listed in tiles; a tile has places for so
many that the next is turned away with probability below 2⁻¹²⁸ only (docs/privacy.md, section 12). Nothing here reads
records.
"""

import math
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from scipy.special import bdtrc

__all__ = ["NOBODY", "Plan", "joins", "listed", "lot_plan", "mask", "power_of_two", "words"]

SPARSE = 0.25  # above this rate a pass over all rows costs less than a list
NOBODY = -1  # in a place that is not taken
_GROUP = 32  # records that share words
_TILES = ((2**16, 128), (2**31, 1024))  # up to so many records, so many groups make a tile
_CALLS = 16  # counters of a group: two words each
_SECOND = 2**31  # the counters of the second round begin here
_LANES = 128  # groups of a warp
_OVERFLOW = 2.0**-128
_PLACES = 128  # capacities are a multiple of this
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class Plan(NamedTuple):
    """Lots of n records at a rate; public.

    Attributes:
      n: how many records there are.
      groups: of a tile.
      bits: m of the first round.
      capacity: places of a tile; the last is nobody's.
      below: in the second round a word below this joins.
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
def lot_plan(n: int, rate: float) -> Plan:
    """The plan for n records at a rate; a tile overflows with probability below 2⁻¹²⁸."""
    bits = min(math.floor(-math.log2(rate)), _GROUP)
    bits -= rate > 2.0**-bits  # by the rounding of the logarithm
    groups = min(next(size for most, size in _TILES if n <= most), power_of_two(-(-n // _GROUP)))
    tile = _GROUP * groups
    enough = int(np.argmax(bdtrc(np.arange(tile + 1), tile, 2.0**-bits) < _OVERFLOW)) if bits else tile
    return Plan(n, groups, bits, -(-(enough + 1) // _PLACES) * _PLACES, math.floor(rate * 2.0 ** (bits + 32)))


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


def _first_round(plan: Plan, key: Any, group: Any) -> Any:
    """For groups (int32), a word whose bit b says whether record 32·group + b goes on."""
    left = jnp.clip(plan.n - group * _GROUP, 0, _GROUP)  # records of the group
    on = jnp.where(left == _GROUP, jnp.uint32(0xFFFFFFFF), (jnp.uint32(1) << (left % _GROUP).astype(jnp.uint32)) - 1)
    counter = group.astype(jnp.uint32) * jnp.uint32(_CALLS)
    for call in range(-(-plan.bits // 2)):
        a, b = words(key, counter + jnp.uint32(call))
        on = on & a & b if 2 * call + 1 < plan.bits else on & a
    return on


def joins(plan: Plan, key: Any, position: Any) -> Any:
    """The second round, for the records at these positions (int32) that have come so far."""
    if plan.below == 2**32:
        return position >= 0
    word, _ = words(key, position.astype(jnp.uint32) + jnp.uint32(_SECOND))
    return (position >= 0) & (word < jnp.uint32(plan.below))


def mask(plan: Plan, key: Any) -> Any:
    """Whether each of the n records joins: the reference, in plain array operations."""

    def one(tile: Any) -> Any:
        on = _first_round(plan, key, tile * plan.groups + jnp.arange(plan.groups, dtype=jnp.int32))
        bits = (on[:, None] >> jnp.arange(_GROUP, dtype=jnp.uint32)) & 1
        return (bits.reshape(-1) == 1) & (jnp.cumsum(bits.reshape(-1)) < plan.capacity)

    on = jax.vmap(one)(jnp.arange(plan.tiles, dtype=jnp.int32)).reshape(-1)[: plan.n]
    return on & joins(plan, key, jnp.arange(plan.n, dtype=jnp.int32))


def _kernel(plan: Plan, key: Any, places: Any) -> None:
    """One tile: each lane has a group, and writes the positions of those who go on, one after the other."""
    from jax.experimental.pallas import triton

    group = pl.program_id(0) * plan.groups + jax.lax.iota(jnp.int32, plan.groups)
    word = _first_round(plan, (key[0], key[1], key[2]), group)
    on = jax.lax.bitcast_convert_type(word, jnp.int32)
    count = jax.lax.population_count(on)
    end, last = jnp.cumsum(count), plan.capacity - 1

    def write(_: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        on, place = state
        bit = jax.lax.population_count((on & -on) - 1)  # the lowest one
        taken = (on != 0) & (place < last)
        triton.store(places.at[0, jnp.where(taken, place, last)], group * _GROUP + bit, mask=taken)
        return on & (on - 1), place + 1

    jax.lax.fori_loop(0, jnp.max(count), write, (on, end - count))
    place = jax.lax.iota(jnp.int32, power_of_two(plan.capacity))
    empty = (place >= jnp.minimum(jnp.sum(count), last)) & (place <= last)
    triton.store(places.at[0, place], jnp.full(place.shape, NOBODY, jnp.int32), mask=empty)


def power_of_two(size: int) -> int:
    """The smallest that is not below a size."""
    return 1 << (size - 1).bit_length()


@partial(jax.jit, static_argnames=("plan", "interpret"))
def listed(plan: Plan, key: Any, *, interpret: bool = False) -> Any:
    """Positions of those who go on to the second round, tile by tile, or `NOBODY`: (places,) int32, each increasing."""
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        partial(_kernel, plan),
        grid=(plan.tiles,),
        in_specs=[pl.BlockSpec((4,), lambda _: (0,))],
        out_specs=pl.BlockSpec((1, plan.capacity), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((plan.tiles, plan.capacity), jnp.int32),  # type: ignore[no-untyped-call]
        compiler_params=triton.CompilerParams(num_warps=max(1, plan.groups // _LANES)),
        interpret=interpret,
    )(key).reshape(-1)
