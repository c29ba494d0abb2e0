import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgbb import PgbbError
from pgbb._numerics.compiled import Compiled
from pgbb.methods.calibrated import statistics
from pgbb.methods.calibrated.algebra import prefixes
from pgbb.methods.calibrated.stages import BINS
from pgbb.private import local_engine, sums
from pgbb.private.vectorised import by_columns
from tests.private.loaded import records_of


def odd(shared, record):
    """Every kind of operation that a loss of one's own may have."""
    ordered, total = jnp.sort(record), jax.lax.while_loop(lambda t: t < 5, lambda t: t + 1.5, jnp.sum(record) % 3)
    picked = shared[jnp.argmax(record) % len(shared)]
    both = jnp.stack([ordered, jnp.flip(record)]).T @ jnp.array([1.0, 2.0])
    steps = jax.lax.scan(lambda s, v: (s * 0.5 + v, s), 0.0, record)[1]
    chosen = jax.lax.cond(record[0] > 0, lambda: jnp.exp(record[1]), lambda: jnp.abs(record[2]))
    placed, beyond = record[np.array([2, 0, 2])], record.at[np.array([1, 9])].get(mode="fill", fill_value=5.0)
    slope = jax.grad(lambda v: jnp.sum(v**3))(record)
    return jnp.concatenate([both, steps, jnp.stack([total, picked, chosen]), slope, placed, beyond])


def test_columns_are_what_each_record_gives_alone_and_a_record_changes_its_own_only():
    rng = np.random.default_rng(0)
    shared, columns = jnp.arange(3.0), rng.normal(size=(4, 33)).astype(np.float32)
    traced = jax.make_jaxpr(odd)(shared, columns[:, 0])
    run = jax.jit(lambda c: by_columns(traced, [shared], c))
    found = run(columns)
    assert np.allclose(found, jax.jit(jax.vmap(lambda r: odd(shared, r)))(columns.T).T, atol=1e-6)
    changed = columns.copy()
    changed[:, 7] = [np.nan, np.inf, -1.0, 0.0]
    again = run(changed)
    assert np.array_equal(np.delete(again, 7, axis=1), np.delete(found, 7, axis=1))
    assert not np.array_equal(again, found)


def looked_up(rows, power, a):
    edges = np.tile(np.linspace(-0.9, 0.9, BINS + 1), (3, 1))
    return sums.sum_of(statistics.column_histograms, rows, (np.eye(3), edges, a), power)


def test_counting_records_in_bins_gives_the_sum_of_what_each_looks_up():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (3000, 3)).astype(np.float32)
    x[:9] = [[np.nan, 0, 0], [0, np.inf, 0], [0, 0, -np.inf]] * 3
    rows = np.column_stack([x, np.zeros(3000), rng.random(3000) < 0.9]).astype(np.float32)  # a tenth is not usable
    a, _ = prefixes(BINS)
    counted = looked_up(rows, 0, a)
    assert np.array_equal(counted, looked_up(rows, 1, a)) and np.abs(counted).max() > 2**20
    assert not np.array_equal(counted, looked_up(rows[1:], 0, a))
    long = np.linalg.norm(looked_up(rows[rows[:, -1] > 0][100:101], 0, 7 * a))  # columns that are too long are clipped
    assert 0.99 * 2**20 < long <= 2**20


def test_a_program_of_one_core_has_no_loop_that_cores_share():
    if jax.default_backend() != "cpu":
        pytest.skip("about the compiler for CPUs")

    def text(**options):
        return Compiled(lambda x: jnp.tanh(x) ** 3, **options).lower(jnp.zeros((4096, 512))).compile().as_text()

    assert "outer_dimension_partitions" not in text(one_core=True)
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one core shares its loops with nobody")
    assert "outer_dimension_partitions" in text()


@pytest.mark.parametrize("why", ["RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.", "INTERNAL: something else"])
def test_a_device_without_room_is_said_so(why):
    records = records_of(*(np.zeros(s, np.float32) for s in ((9, 1), 9, 9)), np.ones(9, bool))

    def vast(x, y):
        raise jax.errors.JaxRuntimeError(why)  # as a GPU does; a CPU without memory ends the process

    wanted = (PgbbError, "memory of the device .* does not suffice for 9 records of 108 bytes")
    kind, words = wanted if "RESOURCE" in why else (jax.errors.JaxRuntimeError, "something else")
    with pytest.raises(kind, match=words):
        local_engine.Here(records, 0.0).sum(sums.Question(vast, (), 0))


@pytest.mark.parametrize("order", ["sorted", "decreasing", "gaps"])
def test_a_record_is_counted_in_one_bin_whatever_the_edges_are(order):
    a, _ = prefixes(64)
    edges = np.linspace(-1, 1, 65)
    edges = {"sorted": edges, "decreasing": edges[::-1], "gaps": np.where(np.arange(65) % 2, np.nan, edges)}[order]
    for y in (-2.0, 0.3, 2.0, np.nan):
        row = np.array([[1.0, y, 1.0]], np.float32)
        added = sums.sum_of(statistics.histogram, row, (np.zeros(1), edges, a), 0) / 2**20
        assert np.linalg.norm(added) <= 1
