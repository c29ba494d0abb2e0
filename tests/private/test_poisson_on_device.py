"""Poisson batches on the device: the keystream, who joins, and the list of candidates against the plain mask."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import bdtrc

from pgbb.private import poisson_on_device as batches
from pgbb.private.poisson_on_device import sampler

mask, joins = jax.jit(batches.mask, static_argnums=0), jax.jit(batches.joins, static_argnums=0)
candidates = jax.jit(partial(batches.candidates, interpret=True), static_argnums=0)


def keys(count):
    found = np.random.default_rng(0).integers(0, 2**32, (count, 4), dtype=np.uint32)
    found[:, 2] = np.arange(count)
    return jnp.asarray(found)


def listed(plan, key):
    found = candidates(plan, key)
    return np.asarray(found)[np.asarray(joins(plan, key, found))]


def test_words_are_those_of_threefry():
    from jax.extend.random import threefry_2x32

    key, counter = keys(8)[7], jnp.arange(1000, dtype=jnp.uint32)
    found = jnp.concatenate(batches.words(key, counter))
    assert jnp.array_equal(found, threefry_2x32(key[:2], jnp.concatenate([counter, jnp.full_like(counter, 7)])))
    for part in (0, 1, 2):  # other keys, and the same key in another answer
        assert not jnp.array_equal(found, jnp.concatenate(batches.words(key.at[part].add(1), counter)))


@pytest.mark.parametrize("n, rate", [(1, 0.2), (500, 0.2), (10_000, 0.1), (70_001, 0.01), (3_000, 0.125), (900, 0.9)])
def test_the_list_of_members_is_that_of_the_mask(n, rate):
    plan = sampler(n, rate)
    for key in keys(3):
        members = np.flatnonzero(np.asarray(mask(plan, key)))
        assert np.array_equal(listed(plan, key), members)


def test_a_list_names_nobody_twice_and_says_which_places_are_free():
    plan, key = sampler(10_000, 0.1), keys(1)[0]
    found = np.asarray(candidates(plan, key))
    taken = found[found != batches.EMPTY]
    assert found.shape == (plan.places,) and len(taken) == len(set(taken)) and 0 <= taken.min() <= taken.max() < 10_000
    free = found.reshape(plan.tiles, plan.capacity) == batches.EMPTY
    assert (np.diff(free.astype(int), axis=1) >= 0).all() and free[:, -1].all() and not free[:, 0].any()
    assert abs(len(taken) - 10_000 / 8) < 5 * np.sqrt(10_000 * 7 / 64)  # 1/8 is the power of a half above .1


def test_lists_side_by_side_are_those_of_one_by_one():
    plan, many = sampler(5_000, 0.1), keys(6).reshape(3, 2, 4)
    found = jax.vmap(jax.vmap(lambda k: candidates(plan, k)))(many)
    for i, j in np.ndindex(3, 2):
        assert np.array_equal(found[i, j], candidates(plan, many[i, j]))


def test_records_join_independently_at_the_rate():
    n, rate, count = 3_000, 0.1, 400
    joins = np.asarray(jax.vmap(lambda k: mask(sampler(n, rate), k))(keys(count)))[:, :n]
    sizes, often = joins.sum(axis=1), joins.sum(axis=0)
    assert abs(joins.mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / joins.size)
    for found, total in ((sizes, n), (often, count)):
        assert 0.8 < found.var() / (total * rate * (1 - rate)) < 1.2
    for step in (1, 2, 32, 64):  # bits of one word, words of one counter, and groups side by side
        pair = joins[:, :-step].ravel().astype(float), joins[:, step:].ravel().astype(float)
        assert abs(np.corrcoef(*pair)[0, 1]) < 5 / np.sqrt(pair[0].size)
    twin = np.asarray(jax.vmap(lambda k: mask(sampler(n, 1.05 * rate), k))(keys(count)))[:, :n]
    assert abs(twin.mean() - rate) > 5 * np.sqrt(rate * (1 - rate) / twin.size)


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.1, 0.125, 0.25])
@pytest.mark.parametrize("n", [1_000, 1_000_000])
def test_a_tile_has_room_for_all_but_impossibly_many(n, rate):
    plan = sampler(n, rate)
    tile, first, room = 32 * plan.groups, 2.0**-plan.bits, plan.capacity - 1  # the last place is nobody's
    assert bdtrc(room, tile, first) < 2.0**-128 and plan.places % 128 == 0 and plan.tiles * tile >= n
    assert plan.below <= rate * 2.0 ** (plan.bits + 32) < plan.below + 1 and first / 2 < rate <= first
    assert stats.binom.sf(room // 2, tile, first) > 2.0**-128 or room < 128  # no room is wasted by half


def test_who_finds_no_place_is_left_out_of_list_and_mask_alike():
    whole = sampler(2_000, 0.1)
    plan, (key,) = whole._replace(capacity=128), keys(1)
    places = np.asarray(candidates(plan, key))
    everyone = np.asarray(candidates(whole, key))
    assert (everyone != batches.EMPTY).sum() > 130 and np.array_equal(places[:127], everyone[:127])
    assert places[127] == batches.EMPTY
    assert np.array_equal(listed(plan, key), np.flatnonzero(np.asarray(mask(plan, key))))


def test_at_rate_one_everyone_joins():
    assert np.asarray(mask(sampler(3_000, 1.0), keys(1)[0])).all()
