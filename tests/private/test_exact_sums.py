import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgbb import HuberRegression, PgbbError, QuantileRegression, Range, Schema
from pgbb._numerics.compiled import Compiled, computed_once
from pgbb.accountant import Mechanism
from pgbb.private import session as private
from pgbb.private import wide_integers
from pgbb.private.gradients import weighted_rows
from pgbb.private.loop import _gathered
from pgbb.private.randomness import Randomness
from pgbb.private.session import Session
from pgbb.private.step_randomness import Draws, _bits
from pgbb.private.wide_integers import wide_sum
from tests.helpers import python
from tests.private.loaded import records_of

N, P = 320, 3
SCHEMA = Schema(y=Range(-4, 4), **{f"x{j}": Range(-1, 1) for j in range(P)})
PROBLEMS = {
    "huber": HuberRegression("y ~ x0 + x1 + x2 - 1").prepare(SCHEMA),
    "quantile": QuantileRegression("y ~ x0 + x1 + x2 - 1", taus=[0.3], bandwidth=0.2).prepare(SCHEMA),
}
THETA = {"huber": [0.5, -0.3, 0.1, 0.9], "quantile": [0.5, -0.3, 0.1]}


def packed(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, P))
    rows = np.column_stack([x, rng.standard_t(3, n), np.ones(n)])
    return rows.astype(np.float32)


@jax.jit
def _huber(rows, inverse):
    return values("huber", rows, inverse)


@jax.jit
def _quantile(rows, inverse):
    return values("quantile", rows, inverse)


def values(name, rows, inverse):
    theta = jnp.asarray(THETA[name], jnp.float32)
    found = weighted_rows(PROBLEMS[name], rows, inverse, theta, 0.3)
    return wide_sum(found), jnp.trunc(found)[:, : PROBLEMS[name].dim]


def joined(halves, d):
    high, low = (np.asarray(h, np.int64)[:d] for h in halves)
    return high * 4096 + low


def total(name, rows, inverse):
    halves, each = {"huber": _huber, "quantile": _quantile}[name](jnp.asarray(rows), jnp.asarray(inverse, jnp.float32))
    d = PROBLEMS[name].dim
    each = np.nan_to_num(np.asarray(each, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    return joined(halves, d), each.astype(np.int64)


def test_the_sum_of_whole_numbers_is_that_of_wide_integers_however_long():
    rng = np.random.default_rng(1)
    for rows in (64, 320, 64 * 331):
        given = rng.integers(-(2**24), 2**24, (rows, 5), endpoint=True)
        given[:, 0], given[:, 1] = 2**24, -(2**24)  # the largest there is
        found = joined(jax.jit(wide_sum)(jnp.asarray(given, jnp.float32)), 5)
        assert np.array_equal(found, given.sum(axis=0))


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_sum_is_the_same_in_any_order(name):
    rng, rows = np.random.default_rng(2), packed()
    inverse = (1 / rng.integers(1, 2**24, N)).astype(np.float32)
    first, each = total(name, rows, inverse)
    assert np.abs(first).max() > 2**24 and np.array_equal(each.sum(axis=0), first)
    for _ in range(10):
        order = rng.permutation(N)
        again, moved = total(name, rows[order], inverse[order])
        assert np.array_equal(again, first) and np.array_equal(moved, each[order])
    single = (rows[:, :P] * inverse[:, None]).astype(np.float32)  # the twin in single precision does depend on it
    sums = {np.add.reduce(single[rng.permutation(N)].T.copy(), axis=1).tobytes() for _ in range(10)}
    assert len(sums) > 1


def test_a_record_adds_the_same_wherever_it_stands_in_a_batch():
    p, size = 14, 64 * 7
    names = [f"x{i}" for i in range(p)]
    schema = Schema(y=Range(-20, 20), **{name: Range(-1, 1) for name in names})
    problem = HuberRegression("y ~ " + " + ".join(names) + " - 1").prepare(schema)
    rng = np.random.default_rng(8)
    rows = np.column_stack([rng.uniform(-1, 1, (5, p)), rng.standard_t(3, 5), np.ones(5)]).astype(np.float32)
    points = np.tile(np.append(rng.standard_normal(p), 1.0).astype(np.float32), (size, 1))
    inverse = np.where(np.eye(size), np.float32(2.0**-24), np.float32(np.inf))  # batch k has a member in place k alone
    answers = Compiled(partial(_gathered, problem))
    for number in range(len(rows)):
        batch = {"rows": np.full((size, size), number, np.int32), "inverse": inverse}
        found = np.asarray(answers(rows, batch, points, np.zeros(size, np.float32)))
        assert np.abs(found[0]).max() > 0 and (found == found[0]).all()


THREADS = """
import os, hashlib, numpy as np, jax.numpy as jnp
from tests.private.test_exact_sums import packed, total
out = hashlib.sha256()
for name in ("huber", "quantile"):
    rows = packed(64 * 160, 7)
    found, each = total(name, rows, np.full(len(rows), 2.0**-20, np.float32))
    out.update(found.tobytes() + each.tobytes())
print(len(os.sched_getaffinity(0)), out.hexdigest())
"""


def test_the_sum_is_the_same_with_one_thread_and_with_two():
    cores = sorted(os.sched_getaffinity(0))[:2]
    found = {}
    for count in (1, 2):
        bound = f"import os; os.sched_setaffinity(0, {cores[:count]})"
        found[count] = python(f"{bound}\n{THREADS}", check=True).stdout.split()
    assert found[1][1] == found[2][1] and int(found[2][0]) == len(cores)


ODD = [0.0, -0.0, 1.0, -1.0, 1e-30, 1e-40, 1e30, -3e38, float("inf"), float("-inf"), float("nan"), 0.33333334]
cell = st.one_of(st.sampled_from(ODD), st.floats(-4, 4, width=32))


@pytest.mark.parametrize("name", PROBLEMS)
@given(st.lists(cell, min_size=P + 1, max_size=P + 1), st.sampled_from([0.0, 0.3, 1.0]), st.integers(1, 2**24))
@settings(max_examples=100)
def test_no_record_moves_the_sum_by_more_than_its_weight(name, record, survey, w):
    rows = packed()
    inverse = np.full(N, np.float32(1 / 1000))
    inverse[17] = 1 / w
    rows[17] = [*record, survey]
    found, each = total(name, rows, inverse)
    without = rows.copy()
    without[17] = 0
    gone, _ = total(name, without, inverse)
    assert sum(int(v) ** 2 for v in each[17]) <= w**2  # in whole numbers: nothing is rounded here
    assert np.array_equal(found - gone, each[17])
    assert np.array_equal(np.delete(each, 17, axis=0), np.delete(total(name, packed(), inverse)[1], 17, axis=0))


def test_whole_weights_never_exceed_the_real_ones():
    m = Mechanism(n=53, blocks=5, sampling_rate=1.0, steps=200, clip=PROBLEMS["huber"].clip)
    draws = Draws(PROBLEMS["huber"], m, 0.0, Randomness.create(3), 0, False, "here")
    drawn, sizes = draws.draw(200, 0), np.array([11, 11, 10, 11, 10])
    u, rows, inverse = drawn["u"][:, 0], drawn["batch"]["rows"][:, 0], drawn["batch"]["inverse"][:, 0]
    assert np.array_equal(np.bincount(draws._blocks), sizes) and np.array_equal(rows[7, :53], np.arange(53))
    real = (u / sizes * m.block_size * 2.0**24)[:, draws._blocks]
    whole = 1 / inverse[:, :53].astype(float)
    assert np.all(np.isinf(inverse[:, 53:])) and np.all(whole <= real * (1 + 2e-7)) and whole.max() <= 2**24
    assert whole == pytest.approx(real, rel=1e-6, abs=2)


def test_batches_of_many_members_have_a_coarser_grid_and_their_sums_do_not_wrap_around():
    members = 2**20
    whole = 2.0 ** _bits(0.0, members)
    assert wide_integers.joined(*wide_sum(jnp.full((members, 1), whole, jnp.float32)))[0] == members * whole
    assert wide_integers.joined(*wide_sum(jnp.full((members, 1), 2.0**24, jnp.float32)))[0] == 0  # on the usual grid
    assert _bits(0.0, 2**18) == 24 and _bits(2.0**20, 10) == 18
    with pytest.raises(PgbbError, match="nothing would be left"):
        _bits(0.0, 2**36)


def session(sigma, **kwargs):
    rows = packed(kwargs.get("n", N))
    records = records_of(rows[:, :P], rows[:, P], np.ones(len(rows), np.float32), np.ones(len(rows), bool))
    problem = PROBLEMS["huber"]
    m = Mechanism(n=len(rows), blocks=5, sampling_rate=0.5, steps=1, clip=problem.clip)
    return Session(records, problem, m, sigma, Randomness.create(0))


def test_noise_has_the_grid_of_the_sum_and_only_senseless_noise_is_refused():
    for sigma in (1e-6, 0.02, 1e4):
        s = session(sigma)
        drawn = s._draws.draw(1, 0)["noise"].astype(np.int64)
        assert np.all((drawn[..., 1, :] >= 0) & (drawn[..., 1, :] < 4096))
        whole = drawn[..., 0, :] * 4096 + drawn[..., 1, :]
        assert np.abs(whole * s._draws.grid).max() < 6 * sigma and np.abs(whole).max() < 2**43
    with pytest.raises(PgbbError, match="larger epsilon"):
        session(1e9)


def test_batches_beyond_what_is_proved_are_refused(monkeypatch):
    monkeypatch.setattr(private, "_ROWS", 100)
    with pytest.raises(PgbbError, match="smaller sampling rate"):
        session(0.1)


def test_what_two_results_share_is_computed_once_on_a_cpu_too():
    def both(x):
        shared = computed_once(x[:, 0] * x[:, 1] + x[:, 2])
        return shared * 2, shared + 1

    text = Compiled(both).lower(jnp.ones((64, 3))).compile().as_text()
    entry = text[text.index("ENTRY") :]
    assert jax.default_backend() != "cpu" or ("opt-barrier" in entry and entry.count(" fusion(") == 3)
