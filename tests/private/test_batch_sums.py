"""The kernel that adds up listed members, against the plain sums over a mask; in an interpreter."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from pgbb import HuberRegression, LogisticRegression, Mean, QuantileRegression, Range, Schema
from pgbb.accountant import Mechanism
from pgbb.model.schema import Flag
from pgbb.private import batch_sums, loop
from pgbb.private import poisson_on_device as batches
from pgbb.private.randomness import Randomness
from pgbb.private.row_layout import EXTRA
from pgbb.private.session import Session, Step, run_many
from pgbb.private.wide_integers import joined
from tests.helpers import written_for_a_gpu
from tests.private.loaded import records_of

N, K, BLOCKS, STEPS, RATE = 3_000, 2, 5, 2, 0.1
SCHEMA = Schema(a=Range(-1, 1), b=Range(-1, 1), y=Range(-3, 3), z=Flag())
MODELS = [
    HuberRegression("y ~ a + b"),
    QuantileRegression("y ~ a + b", taus=[0.1, 0.5, 0.9], bandwidth=0.3),
    LogisticRegression("z ~ a"),
    Mean("y", scale=0.5),
]
PROBLEMS = {model: model.prepare(SCHEMA) for model in MODELS}  # one of each: what is compiled for it is compiled once
PLAN = batches.sampler(N, RATE)


mask = jax.jit(batches.mask, static_argnums=0)


@partial(jax.jit, static_argnames="plan")
def lists(plan, key):
    return jax.vmap(jax.vmap(lambda k: batches.candidates(plan, k, interpret=True)))(key)


@partial(jax.jit, static_argnames=("problem", "plan", "t"))
def halves_by_kernel(problem, plan, rows, block, drawn, t, theta):
    totals = batch_sums.noise_totals(drawn["noise"], rows.shape[1])
    found = batch_sums.add_batch_sums(problem, plan, rows, block, drawn, t, theta, totals, interpret=True)
    return found[t, ..., : problem.dim]


def case(model, seed=0, scale=1.0, n=N):
    """A problem, rows, their blocks, what was drawn for the steps, and points."""
    problem, rng, plan = PROBLEMS[model], np.random.default_rng(seed), batches.sampler(n, RATE)
    p = problem.dim - (problem.kind == "huber")
    rows = rng.uniform(-scale, scale, (n, p + EXTRA)).astype(np.float32)
    rows[:, p + 1] = rng.choice([0.0, 0.5, 1.0], n)
    block = jnp.asarray(np.arange(n) * BLOCKS // n, jnp.int32)
    key = jnp.asarray(rng.integers(0, 2**32, (STEPS, K, 4), dtype=np.uint32))
    drawn = {
        "key": key,
        "whole": jnp.asarray(np.floor(rng.random((STEPS, K, BLOCKS)) * 2**24), jnp.float32),
        "listed": lists(plan, key),
        "noise": jnp.asarray(rng.integers(-(2**11), 2**11, (STEPS, K, 2, problem.dim)), jnp.int32),
        "index": jnp.asarray(rng.uniform(0.1, 0.9, (STEPS, K)), jnp.float32),
    }
    theta = jnp.asarray(problem.center + 0.1 * problem.radius * rng.uniform(-1, 1, (K, problem.dim)), jnp.float32)
    return problem, jnp.asarray(rows), block, drawn, theta


def by_kernel(problem, rows, block, drawn, theta, t=1):
    found = halves_by_kernel(problem, batches.sampler(len(rows), RATE), rows, block, drawn, t, theta)
    return joined(found[:, 0], found[:, 1])


@partial(jax.jit, static_argnames=("problem", "t"))
def plainly(problem, rows, block, drawn, theta, t=1):
    """Sums over all rows under the mask."""
    spare, plan = -len(rows) % 64, batches.sampler(len(rows), RATE)
    rows, block = jnp.pad(rows, ((0, spare), (0, 0))), jnp.pad(block, (0, spare))
    found = []
    for k in range(K):
        joins = jnp.pad(batches.mask(plan, drawn["key"][t, k]), (0, spare))
        inverse = jnp.where(joins, 1 / drawn["whole"][t, k][block], jnp.inf)
        halves = loop._sum(problem, rows, inverse, theta[k], drawn["index"][t, k]) + drawn["noise"][t, k]
        found.append(joined(*halves))
    return jnp.stack(found)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_sums_are_those_over_the_mask(model):
    """A row's whole number of 24 bits may differ in its last two."""
    given = case(model)
    members = sum(int(mask(PLAN, key).sum()) for key in given[3]["key"][1])
    found, expected = by_kernel(*given), plainly(*given)
    assert np.abs(found - expected).max() <= 4 * members
    others = [("key", given[3]["key"].at[1].add(1)), ("listed", given[3]["listed"][::-1])]
    for name, other in others:  # others join, or others are candidates
        twin = by_kernel(*given[:3], given[3] | {name: other}, given[4])
        assert np.abs(twin - expected).max() > 100 * members


def test_members_of_all_tiles_are_added_where_free_places_come_last():
    """A program that begins with a free place does nothing."""
    given = case(MODELS[1], n=10_000)
    plan, listed = batches.sampler(10_000, RATE), given[3]["listed"]
    members = sum(int(mask(plan, key).sum()) for key in given[3]["key"][1])
    assert plan.tiles == 3 and np.abs(by_kernel(*given) - plainly(*given)).max() <= 4 * members
    hole = listed.at[1, :, ::64].set(batches.EMPTY)
    twin = by_kernel(*given[:3], given[3] | {"listed": hole}, given[4])
    assert np.array_equal(twin, joined(given[3]["noise"][1, :, 0], given[3]["noise"][1, :, 1]))


def test_side_by_side_are_those_of_one_by_one():
    problem, rows, block, drawn, theta = case(MODELS[0])
    other = case(MODELS[0], seed=1)
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), (rows, drawn, theta), (other[1], other[3], other[4]))
    found = jax.vmap(lambda r, d, p: by_kernel(problem, r, block, d, p))(*both)
    assert np.array_equal(found[0], by_kernel(problem, rows, block, drawn, theta))
    assert np.array_equal(found[1], by_kernel(problem, other[1], block, other[3], other[4]))


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e12, 1e30])
@pytest.mark.parametrize("model", MODELS[:2], ids=lambda m: type(m).__name__)
def test_no_record_adds_more_than_its_weight(model, scale):
    """Rows out of all bounds, and responses that are no numbers."""
    problem, rows, block, drawn, theta = case(model, scale=scale)
    rows, block = np.array(rows), np.asarray(block)
    rows[::2, -2], rows[::3, -2] = np.nan, np.inf
    members = np.flatnonzero(mask(PLAN, drawn["key"][1, 0]))
    drawn["noise"] = jnp.zeros_like(drawn["noise"])
    for one in members[:12]:
        alone = np.zeros_like(rows)
        alone[one] = rows[one]
        found = np.asarray(by_kernel(problem, alone, block, drawn, theta)[0], float)
        assert np.linalg.norm(found) <= float(drawn["whole"][1, 0, block[one]])
        left_out = bool(np.isnan(rows[one]).any() or rows[one, -1] == 0 or scale == 1e30)  # whose squares are infinite
        assert found.any() != left_out


def answers_of(*, many, changes):
    """Answers of a session, or of two side by side, whose batches the device draws: twelve steps, two chunks."""
    problem, rng = MODELS[1].prepare(SCHEMA), np.random.default_rng(3)
    mechanism_ = Mechanism(n=500, blocks=BLOCKS, sampling_rate=0.2, steps=12, draws_per_step=K, clip=problem.clip)
    x, y = rng.uniform(-1, 1, (500, problem.dim)).astype(np.float32), rng.uniform(-3, 3, 500).astype(np.float32)
    ones = np.ones(500, np.float32)
    sessions = [
        Session(
            records_of(x, y, ones, ones > 0), problem, mechanism_, 0.01, Randomness.create(seed), device_batches=True
        )
        for seed in (1, 2)
    ]
    point = jnp.asarray(np.tile(problem.center, (K, 1)), jnp.float32)
    step = Step(lambda state, draw: (point, None), lambda state, draw, memo, answers: (state, answers))
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in changes:
            patch.setattr(owner, name, value)
        if many:
            runs = run_many(sessions, jnp.zeros(2), step, chunk=6)
            return np.concatenate([out for _, _, out in runs], axis=1)
        return np.concatenate([out for _, _, out in sessions[0].run(jnp.zeros(()), step, chunk=6)])


LISTED = [
    (jax, "default_backend", lambda: "gpu"),
    (batches, "candidates", partial(batches.candidates, interpret=True)),
    (loop, "add_batch_sums", partial(batch_sums.add_batch_sums, interpret=True)),
]


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.evidence)])
def test_a_session_with_lists_answers_as_one_without(many):
    """The loop of a GPU, its kernels interpreted: every step has its own batch, noise and index."""
    plain, listed = answers_of(many=many, changes=[]), answers_of(many=many, changes=LISTED)
    assert plain.shape == listed.shape == ((2, 12, K, 3) if many else (12, K, 3))
    assert np.abs(plain - listed).max() < 1e-5 * np.abs(plain).max()
    if many:
        return
    kernel = partial(batch_sums.add_batch_sums, interpret=True)
    stuck = (loop, "add_batch_sums", lambda *a: kernel(*a[:5], 0, *a[6:]))  # at the first step
    twin = answers_of(many=many, changes=[*LISTED[:2], stuck])
    assert np.abs(plain - twin).max() > 0.1 * np.abs(plain).max()


@pytest.mark.parametrize("many", [False, True])
def test_a_loss_without_a_score_has_the_rows_of_its_lists_gathered_and_the_same_sums(many):
    gathered = [*LISTED[:2], (loop, "serves", lambda *_: False), (loop, "_SHORTER", 0)]
    plain, found = answers_of(many=many, changes=[]), answers_of(many=many, changes=gathered)
    assert np.array_equal(plain, found)
    if not many:
        whoever = (batches, "joins", lambda plan, key, at: at >= 0)  # all candidates
        assert not np.array_equal(plain, answers_of(many=many, changes=[*gathered, whoever]))


def test_on_a_gpu_programs_add_to_totals_in_place_and_none_loses_what_another_adds():
    problem, rows, block, drawn, theta = case(MODELS[0])
    totals = batch_sums.noise_totals(drawn["noise"], rows.shape[1])

    def go(rows, drawn, theta, totals):
        return batch_sums.add_batch_sums(problem, PLAN, rows, block, drawn, 1, theta, totals)

    found = written_for_a_gpu(go, rows, drawn, theta, totals)
    assert "atomic_rmw" in found and "output_operand_alias<" in found


def test_the_normal_distribution_function():
    z = np.linspace(-9, 9, 2001).astype(np.float32)
    assert np.abs(np.asarray(batch_sums._normal_cdf(z)) - ndtr(z.astype(float))).max() < 3e-7


def test_models_without_scores_and_wide_rows_are_declined():
    problem = MODELS[0].prepare(SCHEMA)
    assert batch_sums.serves(problem, 6) and not batch_sums.serves(problem, 65)
