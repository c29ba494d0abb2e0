import numpy as np
import pytest

from pgbb.model import blocks
from pgbb.model.blocks import block_of_position, block_sizes, draw_weights, random_blocks
from pgbb.private import poisson
from pgbb.private.noise import Stream
from pgbb.private.poisson import Batches, buffer_size, draw_batches
from pgbb.private.randomness import Randomness

pytestmark = pytest.mark.quick

N, RATE, DRAWS = 40, 0.15, 40_000


def indicators(positions, sizes, n=N):
    inside = np.arange(positions.shape[1]) < sizes[:, None]
    rows = np.repeat(np.arange(len(sizes)), sizes)
    out = np.zeros((len(sizes), n), dtype=bool)
    out[rows, positions[inside]] = True
    return out


def poisson_like(z):
    """Largest standardised deviation of marginal and of pairwise inclusion from independent Bernoulli(q)."""
    count, n = z.shape
    marginal = np.abs(z.mean(axis=0) - RATE) / np.sqrt(RATE * (1 - RATE) / count)
    both = (z.T.astype(float) @ z) / count
    pairs = np.abs(both - RATE**2)[np.triu_indices(n, 1)] / np.sqrt(RATE**2 * (1 - RATE**2) / count)
    return marginal.max(), pairs.max(), abs(z.sum(axis=1).var() / (n * RATE * (1 - RATE)) - 1)


def looks_poisson(z):
    marginal, pairs, spread = poisson_like(z)
    return bool(marginal < 5 and pairs < 5.5 and spread < 0.05)


def test_batches_are_independent_bernoulli_samples():
    positions, sizes = draw_batches(N, RATE, DRAWS, Stream.create("batches", 1))
    z = indicators(positions, sizes)
    assert np.all(z.sum(axis=1) == sizes)  # no duplicates
    assert looks_poisson(z)


def test_fixed_size_batches_fail_the_same_test():
    rng = np.random.default_rng(2)
    z = np.zeros((DRAWS, N), dtype=bool)
    for row in z:
        row[rng.choice(N, int(N * RATE), replace=False)] = True
    assert not looks_poisson(z)


def test_shuffled_epochs_fail_the_same_test():
    rng = np.random.default_rng(3)
    size = int(N * RATE)
    batches = []
    while len(batches) < DRAWS:
        order = rng.permutation(N)
        batches += [order[i : i + size] for i in range(0, N - size + 1, size)]
    z = np.zeros((DRAWS, N), dtype=bool)
    for row, batch in zip(z, batches, strict=False):
        row[batch] = True
    assert not looks_poisson(z)


def test_batches_are_independent_of_each_other():
    z = indicators(*draw_batches(N, RATE, DRAWS, Stream.create("batches", 4)))
    overlap = (z[:-1] & z[1:]).mean()
    assert overlap == pytest.approx(RATE**2, rel=0.03)
    assert (z[:-1] & z[:-1]).mean() != pytest.approx(RATE**2, rel=0.03)


@pytest.mark.parametrize("n", [1_000_000, 1_000_000_000])  # sums of gaps leave 32 bits in the second
def test_small_rates_reach_far_and_positions_increase(n):
    positions, sizes = draw_batches(n, 10 / n, 3000, Stream.create("batches", 5))
    assert sizes.mean() == pytest.approx(10, rel=0.03) and sizes.var() == pytest.approx(10, rel=0.12)
    for row, size in zip(positions[:50], sizes[:50], strict=True):
        assert np.all(np.diff(row[:size]) > 0) and row.max() < n
    inside = np.arange(positions.shape[1]) < sizes[:, None]
    members = positions[inside]
    assert members.mean() == pytest.approx(n / 2, rel=0.02)


def test_full_batches_hold_everyone():
    positions, sizes = draw_batches(7, 1.0, 3, Stream.create("batches", 0))
    assert np.array_equal(positions[:, :7], np.tile(np.arange(7), (3, 1))) and np.all(sizes == 7)
    assert buffer_size(10, 0.9) == 10


@pytest.fixture
def small_cells(monkeypatch):
    """Seven records a cell, so that 40 have six, and the last is not full."""
    for module in (blocks, poisson):
        monkeypatch.setattr(module, "CELL", 7)
    blocks._shares.cache_clear()
    yield
    blocks._shares.cache_clear()


def test_batches_drawn_in_cells_have_the_same_law_and_those_under_one_stream_do_not(small_cells, monkeypatch):
    drawn = Batches(bytes(range(32)), N, RATE, 10_000)
    positions, sizes = drawn.everywhere()
    assert looks_poisson(indicators(positions, sizes))
    for i in range(50):
        row = positions[i, : sizes[i]]
        assert np.all(np.diff(row) > 0)
        parts = [np.concatenate(list(drawn.members(i, low, high))) + low for low, high in ((0, 5), (5, 33), (33, N))]
        assert np.array_equal(np.concatenate(parts), row)
    monkeypatch.setattr(poisson, "Stream", lambda key, cell: Stream(key))  # all cells alike
    assert not looks_poisson(indicators(*Batches(bytes(range(32)), N, RATE, 10_000).everywhere()))


def test_a_batch_that_is_longer_than_the_buffer_of_all_has_a_longer_one(small_cells, monkeypatch):
    expected, sizes = Batches(bytes(32), N, RATE, 20).everywhere()
    monkeypatch.setattr(poisson, "buffer_size", lambda n, rate: n if n < N else 1)
    found, again = Batches(bytes(32), N, RATE, 20).everywhere()
    assert sizes.max() > 1 and np.array_equal(sizes, again)
    assert all(np.array_equal(a[:k], b[:k]) for a, b, k in zip(expected, found, sizes, strict=True))


def between_blocks(partition, n=40, s=4):
    """Variance between means of blocks of the numbers 0 … n − 1, over that of a random partition, (n + 1)S/12."""
    found = [np.var([np.flatnonzero(partition(seed) == b).mean() for b in range(s)], ddof=1) for seed in range(1000)]
    return np.mean(found) / ((n + 1) * s / 12)


def test_blocks_are_a_uniform_partition_and_blocks_balanced_in_each_cell_are_not(small_cells):
    n, s = 40, 4
    whole = random_blocks(5, n, s, 0, n)
    assert np.array_equal(np.bincount(whole), block_sizes(n, s))
    assert np.array_equal(whole[9:31], random_blocks(5, n, s, 9, 31))

    def stratified(seed):
        rng = np.random.default_rng(seed)
        return np.concatenate([rng.permutation(s) for _ in range(n // s)])

    assert between_blocks(lambda seed: random_blocks(seed, n, s, 0, n)) == pytest.approx(1, abs=0.1)
    assert between_blocks(stratified) < 0.2
    together = np.mean([np.equal.outer(b := random_blocks(i, n, s, 0, n), b) for i in range(1000)], axis=0)
    assert np.abs(together[np.triu_indices(n, 1)] - 9 / 39).max() < 5 * np.sqrt(0.23 * 0.77 / 1000)


def test_every_record_may_be_a_block_of_its_own():
    assert np.array_equal(np.sort(random_blocks(5, 70_000, 70_000, 0, 70_000)), np.arange(70_000))


def test_blocks_are_balanced_for_any_n():
    assert np.array_equal(np.unique(block_of_position(65_023, 5)), np.arange(5))
    for n, s in [(65_023, 5), (10, 10), (11, 3), (97_397, 20)]:
        sizes = block_sizes(n, s)
        assert sizes.sum() == n and sizes.max() - sizes.min() <= 1 and sizes.min() == n // s


def dirichlet_moments(draws):
    return draws.mean(axis=0), draws.var(axis=0)


@pytest.mark.parametrize("pseudo, alpha", [(0, 0.0), (3, 6.0)])
def test_weights_have_dirichlet_moments_and_a_wrong_concentration_does_not(pseudo, alpha):
    u = draw_weights(5, 0.7, pseudo, alpha, 60_000, np.random.default_rng(6))
    assert u.shape == (60_000, 5 + pseudo) and u.sum(axis=1) == pytest.approx(1.0)

    def fits(gamma):
        shape = np.append(np.full(5, gamma), np.full(pseudo, alpha / max(pseudo, 1)))
        total = shape.sum()
        mean = shape / total
        got_mean, got_var = dirichlet_moments(u)
        return np.allclose(got_mean, mean, rtol=0.03) and np.allclose(
            got_var, mean * (1 - mean) / (total + 1), rtol=0.05
        )

    assert fits(0.7) and not fits(1.0)


def test_constant_weights_for_one_block():
    assert np.array_equal(draw_weights(1, None, 0, 0.0, 4, np.random.default_rng(0)), np.ones((4, 1)))


def test_streams_differ_from_each_other_and_from_run_to_run():
    a, b = Randomness.create(), Randomness.create()
    draws = [g.standard_normal(4).tolist() for g in (a.public, a.secret, b.public, b.secret)]
    assert len({tuple(d) for d in draws}) == 4 and a.source == "operating system"
    same = [Randomness.create(3).secret.standard_normal(4).tolist() for _ in range(2)]
    assert same[0] == same[1] and Randomness.create(3).source == "insecure seed"
