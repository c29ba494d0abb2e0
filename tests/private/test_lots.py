"""Lots on the device: the keystream, who joins, and the list of members against the plain mask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import bdtrc

from pgbb.private import lots
from pgbb.private.lots import Plan, lot_plan


def keys(count):
    found = np.random.default_rng(0).integers(0, 2**32, (count, 4), dtype=np.uint32)
    found[:, 2] = np.arange(count)
    return jnp.asarray(found)


def listed(plan, key):
    positions, taken = lots.members(plan, key, interpret=True)
    return np.asarray(positions)[np.asarray(taken)]


def test_words_are_those_of_threefry():
    from jax.extend.random import threefry_2x32

    key, counter = keys(8)[7], jnp.arange(1000, dtype=jnp.uint32)
    found = jnp.concatenate(lots.words(key, counter))
    assert jnp.array_equal(found, threefry_2x32(key[:2], jnp.concatenate([counter, jnp.full_like(counter, 7)])))
    for part in (0, 1, 2):  # other keys, and the same key in another answer
        assert not jnp.array_equal(found, jnp.concatenate(lots.words(key.at[part].add(1), counter)))


@pytest.mark.parametrize("n, rate", [(1, 0.2), (500, 0.2), (10_000, 0.1), (70_001, 0.01)])
def test_the_list_of_members_is_that_of_the_mask(n, rate):
    plan = lot_plan(n, rate)
    for key in keys(3):
        mask = np.asarray(lots.mask(plan, key))
        assert np.array_equal(listed(plan, key), np.flatnonzero(mask)) and not mask[n:].any()


def test_lists_side_by_side_are_those_of_one_by_one():
    plan, many = lot_plan(5_000, 0.1), keys(6).reshape(3, 2, 4)
    positions, taken = jax.vmap(jax.vmap(lambda k: lots.members(plan, k, interpret=True)))(many)
    for i, j in np.ndindex(3, 2):
        found = np.asarray(positions[i, j])[np.asarray(taken[i, j])]
        assert np.array_equal(found, listed(plan, many[i, j]))


def test_records_join_independently_at_the_rate():
    n, rate, count = 3_000, 0.1, 400
    joins = np.asarray(jax.vmap(lambda k: lots.mask(lot_plan(n, rate), k))(keys(count)))[:, :n]
    sizes, often = joins.sum(axis=1), joins.sum(axis=0)
    assert abs(joins.mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / joins.size)
    for found, total in ((sizes, n), (often, count)):
        assert 0.8 < found.var() / (total * rate * (1 - rate)) < 1.2
    halves = joins[:, :1024].astype(float), joins[:, 1024:2048].astype(float)  # words of one counter
    assert abs(np.corrcoef(halves[0].ravel(), halves[1].ravel())[0, 1]) < 5 / np.sqrt(halves[0].size)
    twin = np.asarray(jax.vmap(lambda k: lots.mask(lot_plan(n, 1.05 * rate), k))(keys(count)))[:, :n]
    assert abs(twin.mean() - rate) > 5 * np.sqrt(rate * (1 - rate) / twin.size)


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.1, 0.25])
@pytest.mark.parametrize("n", [1_000, 1_000_000])
def test_a_tile_has_room_for_all_but_impossibly_many(n, rate):
    _, tile, capacity, joining = plan = lot_plan(n, rate)
    assert bdtrc(capacity, tile, rate) < 2.0**-128 and capacity % 16 == 0
    assert plan.tiles * tile >= n and plan.tiles * capacity % 64 == 0
    assert joining / 2**32 <= rate < (joining + 1) / 2**32
    assert stats.binom.sf(capacity // 2, tile, rate) > 2.0**-128 or capacity <= 16  # no room is wasted by half


def test_who_finds_no_place_is_left_out_of_list_and_mask_alike():
    plan = Plan((2_000, 2_048, 16, lot_plan(2_000, 0.1)[3]))
    (key,) = keys(1)
    found = listed(plan, key)
    everyone = np.flatnonzero(np.asarray(lots.mask(lot_plan(2_000, 0.1), key)))
    assert len(everyone) > 100 and np.array_equal(found, everyone[:16])
    assert np.array_equal(found, np.flatnonzero(np.asarray(lots.mask(plan, key))))


def test_at_rate_one_everyone_joins():
    mask = np.asarray(lots.mask(lot_plan(3_000, 1.0), keys(1)[0]))
    assert mask[:3_000].all() and not mask[3_000:].any()
