"""The random partition into blocks, drawn cell by cell."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from pgbb.model import blocks


@pytest.fixture
def small_cells(monkeypatch):
    monkeypatch.setattr(blocks, "CELL", 4)
    blocks._shares.cache_clear()
    yield
    blocks._shares.cache_clear()


@pytest.mark.parametrize("n, count", [(6, 2), (7, 3)])
def test_every_partition_is_equally_likely_over_several_cells(small_cells, n, count):
    found = Counter(tuple(blocks.random_blocks(seed, n, count, 0, n).tolist()) for seed in range(20_000))
    labels = np.repeat(np.arange(count), blocks.block_sizes(n, count).astype(int)).tolist()
    all_of_them = set(permutations(labels))
    assert set(found) == all_of_them
    assert stats.chisquare(list(found.values())).pvalue > 1e-3
    halved = [value if k % 2 else 0.8 * value for k, value in enumerate(found.values())]
    assert stats.chisquare(halved).pvalue < 1e-3


def test_a_part_of_the_records_has_the_blocks_that_the_whole_has(small_cells):
    whole = blocks.random_blocks(3, 23, 5, 0, 23)
    assert np.bincount(whole).tolist() == blocks.block_sizes(23, 5).tolist()
    for low, high in ((0, 3), (2, 9), (8, 23), (22, 23)):
        assert np.array_equal(blocks.random_blocks(3, 23, 5, low, high), whole[low:high])
