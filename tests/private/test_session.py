from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from pgbb import Custom, Flag, HuberRegression, LogisticRegression, Mean, PgbbError, QuantileRegression, Range, Schema
from pgbb.accountant import Mechanism
from pgbb.model.blocks import block_of_position, block_sizes, random_blocks
from pgbb.private import session
from pgbb.private.device_layout import place
from pgbb.private.loading import records_for
from pgbb.private.pseudo_samples import answer
from pgbb.private.randomness import Randomness
from pgbb.private.session import Session, Step, run_many

N = 53
SCHEMA = Schema(a=Range(-2, 3), b=Flag(), y=Range(-4, 4), z=Flag())


def frame(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a": rng.uniform(-2, 3, n),
            "b": rng.integers(0, 2, n),
            "y": rng.normal(0, 1.5, n),
            "z": rng.integers(0, 2, n),
        }
    )


def asking(point, keep=lambda draw, answers: answers):
    """A step that asks about the same point each time and keeps the answers."""
    return Step(lambda state, draw: (point, None), lambda state, draw, memo, answers: (state, keep(draw, answers)))


def squared(theta, record, index):
    return 0.5 * (record["y"] - theta[0] - theta[1] * record["a"] * index) ** 2


MODELS = {
    "quantile": QuantileRegression("y ~ a + b", taus=[0.2, 0.7], bandwidth=0.3),
    "huber": HuberRegression("y ~ a + b"),
    "logistic": LogisticRegression("z ~ a + b"),
    "gaussian mean": Mean("y", scale=1.5, clip=0.7),
    "exponential mean": Mean("y", family="exponential", clip=0.4),
    "custom": Custom(squared, dim=2, clip=0.9, columns=["y", "a"], box=(-3, 3), index=[0.5, 1.0]),
}


def slow_gradient(name, model, problem, records, i, theta, index):
    """The gradient of record i from the formulas in the docstrings, in double precision."""
    from scipy.special import expit, ndtr

    x, y = records.x[i].astype(float), float(records.y[i] - problem.shift)
    if name == "quantile":
        g = -(ndtr((y - x @ theta) / 0.3) - (1 - index)) * x
    elif name == "huber":
        z = (y - x @ theta[:-1]) / theta[-1]
        psi = np.clip(z, -1.345, 1.345)
        g = np.append(-psi * x, (0.71 - min(z**2, 1.345**2)) / 2)
    elif name == "logistic":
        g = (expit(x @ theta) - y) * x
    elif name == "gaussian mean":
        g = np.array([(theta[0] - y) / 1.5**2])
    elif name == "exponential mean":
        g = np.array([1 / theta[0] - y / theta[0] ** 2])
    else:
        r = x[0] - theta[0] - theta[1] * x[1] * index
        g = np.array([-r, -r * x[1] * index])
    norm = np.linalg.norm(g)
    return g * min(1.0, problem.clip / norm) if norm > 0 else g


@pytest.mark.parametrize("device_batches", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_without_noise_an_answer_is_the_weighted_sum_of_a_plain_loop(name, device_batches):
    model, data = MODELS[name], frame()
    problem = model.prepare(SCHEMA)
    records = records_for(data, problem, SCHEMA)
    m = Mechanism(n=N, blocks=5, sampling_rate=1.0, steps=3, draws_per_step=2, clip=problem.clip)
    session = Session(records, problem, m, 0.0, Randomness.create(1), device_batches=device_batches)
    secret = Randomness.create(1).secret
    order = secret.permutation(N) if device_batches else np.arange(N)
    block = block_of_position(N, 5) if device_batches else random_blocks(int(secret.integers(2**63)), N, 5, 0, N)
    theta = problem.center + 0.3 * problem.radius * np.linspace(-0.5, 0.9, problem.dim)

    points = jnp.tile(jnp.asarray(theta, jnp.float32), (2, 1))
    step = asking(points, lambda draw, a: {"answer": a, "u": draw["u"], "index": draw["index"]})
    (_, _, out), *rest = list(session.run(jnp.zeros(()), step))
    assert not rest
    sizes = block_sizes(N, 5)
    for t in range(3):
        for k in range(2):
            u, index = np.asarray(out["u"][t, k], float), float(out["index"][t, k])
            expected = sum(
                u[block[i]] / sizes[block[i]] * slow_gradient(name, model, problem, records, order[i], theta, index)
                for i in range(N)
            )
            assert np.asarray(out["answer"][t, k]) == pytest.approx(expected, abs=1e-5 * problem.clip)


@pytest.mark.parametrize("name", MODELS)
def test_one_record_never_exceeds_the_clip_and_the_bound_is_attained_where_it_can_be(name):
    model = MODELS[name]
    problem = model.prepare(SCHEMA)
    data = pd.concat([frame(s) for s in range(20)], ignore_index=True)
    corners = pd.DataFrame({"a": [-2, 3, -2, 3] * 2, "b": [0, 1] * 4, "y": [-4] * 4 + [4] * 4, "z": [0, 1] * 4})
    records = records_for(pd.concat([data, corners], ignore_index=True), problem, SCHEMA)
    placed = place(records, problem.shift, None)
    rng = np.random.default_rng(0)
    levels = problem.index.levels if problem.index else (0.0,)
    one = jax.jit(
        jax.vmap(lambda i, t, v: answer(problem, placed, i[None], jnp.ones(1), t, v), in_axes=(0, None, None))
    )
    largest = 0.0
    for scale in (0.1, 0.5, 0.999):
        theta = problem.center + scale * problem.radius * rng.choice([-1, 1], problem.dim)
        for level in levels:
            each = np.asarray(one(jnp.arange(records.n), jnp.asarray(theta, jnp.float32), level), float)
            largest = max(largest, np.linalg.norm(each, axis=1).max())
    assert largest <= problem.clip
    assert largest >= 0.97 * problem.clip


def test_noise_has_the_declared_scale_and_a_wrong_scale_is_noticed():
    problem = MODELS["quantile"].prepare(SCHEMA)
    records = records_for(frame(), problem, SCHEMA)
    m = Mechanism(n=N, blocks=5, sampling_rate=0.5, steps=4000, clip=problem.clip)
    far = jnp.asarray(np.tile(problem.center, (1, 1)), jnp.float32)

    def answers(sigma, seed):
        session = Session(records, problem, m, sigma, Randomness.create(seed))
        outs = [out for _, _, out in session.run(jnp.zeros(()), asking(far))]
        return np.concatenate([np.asarray(o) for o in outs])[:, 0]

    noise = answers(0.5, 3) - answers(0.0, 3)  # the same batches and weights
    assert noise.std(axis=0) == pytest.approx(0.5, rel=0.05)
    assert noise.std(axis=0) != pytest.approx(0.45, rel=0.05)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.06


def test_sampling_makes_the_answer_q_times_the_full_sum_on_average():
    problem = MODELS["huber"].prepare(SCHEMA)
    records = records_for(frame(), problem, SCHEMA)
    point = jnp.asarray(problem.center[None] + 0.9 * problem.radius, jnp.float32)
    mean = {}
    for q in (0.3, 1.0):
        m = Mechanism(n=N, blocks=5, sampling_rate=q, steps=6000 if q < 1 else 400, clip=problem.clip)
        session = Session(records, problem, m, 0.0, Randomness.create(4))
        outs = [o for _, _, o in session.run(jnp.zeros(()), asking(point))]
        mean[q] = np.concatenate([np.asarray(o) for o in outs])[:, 0].mean(axis=0)
    assert mean[0.3] == pytest.approx(0.3 * mean[1.0], abs=0.02 * problem.clip)
    assert mean[0.3] != pytest.approx(0.4 * mean[1.0], abs=0.02 * problem.clip)


def counts_of(q, columns=(), n=200):
    """How many records join each of 3,000 pairs of answers by batches of the device; some columns of keys fixed."""
    problem = MODELS["gaussian mean"].prepare(SCHEMA)
    records = records_for(pd.DataFrame({"y": np.full(n, 4.0)}), problem, SCHEMA)  # every gradient is −C
    m = Mechanism(n=n, blocks=1, sampling_rate=q, steps=3000, draws_per_step=2, clip=problem.clip)
    session = Session(records, problem, m, 0.0, Randomness.create(6), device_batches=True)
    keys_of = session._draws._keys

    def fixed(whole, first):
        found = keys_of(whole, first)
        found["key"][:, columns] = 7
        return found

    session._draws._keys = fixed
    point = jnp.full((2, 1), -4.0, jnp.float32)
    outs = [np.asarray(o) for _, _, o in session.run(jnp.zeros(()), asking(point))]
    return np.concatenate(outs)[:, :, 0] * -n / problem.clip


def test_on_a_device_each_record_joins_alone_and_anew_for_every_answer():
    found = counts_of(0.3)
    assert found == pytest.approx(np.round(found), abs=1e-2)
    assert found.mean() == pytest.approx(60, abs=0.4) and found.var() == pytest.approx(42, rel=0.08)
    assert abs(np.corrcoef(found.T)[0, 1]) < 0.06 and abs(np.corrcoef(found[1:, 0], found[:-1, 0])[0, 1]) < 0.06
    assert counts_of(0.3, [0, 1]).var() == pytest.approx(42, rel=0.08)  # one key for all: their numbers suffice
    assert counts_of(0.3, [0, 1, 2]).var() < 1e-6  # the twin: the same number as well
    assert counts_of(0.31).mean() != pytest.approx(60, abs=0.4)


@pytest.mark.parametrize("q", [0.5, 0.9, 1 - 2**-53])
def test_on_a_device_batches_are_drawn_at_any_rate(q):
    assert counts_of(q).mean() == pytest.approx(200 * q, abs=0.6)


def test_mass_and_blocks_of_pseudo_samples_go_together():
    problem = MODELS["huber"].prepare(SCHEMA)
    records = records_for(frame(), problem, SCHEMA)
    for alpha, blocks in ((1.0, 0), (0.0, 2)):
        m = Mechanism(n=N, blocks=5, sampling_rate=0.5, steps=2, clip=problem.clip, alpha=alpha)
        with pytest.raises(PgbbError, match="go together"):
            Session(records, problem, m, 1.0, Randomness.create(0), pseudo_blocks=blocks)


def test_bad_cells_contribute_nothing_and_keep_their_place():
    data = frame()
    dirty = data.copy()
    dirty.loc[3, "a"] = np.nan
    dirty.loc[7, "y"] = np.inf
    problem = MODELS["quantile"].prepare(SCHEMA)
    m = Mechanism(n=N, blocks=1, sampling_rate=1.0, steps=1, clip=problem.clip)
    point = jnp.asarray(problem.center[None] + 0.2, jnp.float32)

    def total(f):
        session = Session(records_for(f, problem, SCHEMA), problem, m, 0.0, Randomness.create(0))
        ((_, _, out),) = session.run(jnp.zeros(()), asking(point, lambda d, a: (a, d["index"])))
        return np.asarray(out[0])[0, 0]

    clean = data.drop(index=[3, 7]).reset_index(drop=True)
    m_clean = Mechanism(n=N - 2, blocks=1, sampling_rate=1.0, steps=1, clip=problem.clip)
    session = Session(records_for(clean, problem, SCHEMA), problem, m_clean, 0.0, Randomness.create(0))
    ((_, _, out),) = session.run(jnp.zeros(()), asking(point))
    assert total(dirty) * N == pytest.approx(np.asarray(out)[0, 0] * (N - 2), abs=1e-4)


def test_a_session_gives_its_answers_once_and_a_query_has_one_point_an_answer():
    problem = MODELS["huber"].prepare(SCHEMA)
    records = records_for(frame(), problem, SCHEMA)
    m = Mechanism(n=N, blocks=5, sampling_rate=0.5, steps=2, clip=problem.clip)
    point = jnp.asarray(problem.center[None], jnp.float32)
    session = Session(records, problem, m, 1.0, Randomness.create(0))
    list(session.run(jnp.zeros(()), asking(point)))
    with pytest.raises(PgbbError, match="already"):
        list(session.run(jnp.zeros(()), asking(point)))
    for greedy in (jnp.tile(point, (2, 1)), point[:, :2], point[0]):
        with pytest.raises(PgbbError, match="query of shape"):
            list(Session(records, problem, m, 1.0, Randomness.create(0)).run(jnp.zeros(()), asking(greedy)))
    with pytest.raises(PgbbError, match="n = 54"):
        Session(
            records, problem, Mechanism(n=54, blocks=5, sampling_rate=0.5, steps=2, clip=9.0), 1.0, Randomness.create(0)
        )
    with pytest.raises(PgbbError, match="clips at"):
        Session(
            records, problem, Mechanism(n=N, blocks=5, sampling_rate=0.5, steps=2, clip=0.1), 1.0, Randomness.create(0)
        )


def test_replicates_side_by_side_give_the_same_answers_as_one_by_one():
    problem = MODELS["quantile"].prepare(SCHEMA)
    m = Mechanism(n=N, blocks=5, sampling_rate=0.4, steps=5, draws_per_step=2, clip=problem.clip)
    point = jnp.asarray(np.tile(problem.center, (2, 1)), jnp.float32)

    step = Step(lambda state, draw: (point + state, None), lambda state, draw, memo, answers: (state + 1, answers))

    def session(i):
        return Session(records_for(frame(i), problem, SCHEMA), problem, m, 0.1, Randomness.create(i))

    single = [np.asarray(next(session(i).run(jnp.zeros(()), step))[2]) for i in range(3)]
    _, state, out = next(run_many([session(i) for i in range(3)], jnp.zeros(3), step))
    assert np.asarray(out) == pytest.approx(np.stack(single), abs=1e-5)
    assert np.array_equal(np.asarray(state), [5, 5, 5])


def test_reshuffling_gives_each_answer_its_own_partition():
    problem = MODELS["huber"].prepare(SCHEMA)
    records = records_for(frame(), problem, SCHEMA)
    m = Mechanism(n=N, blocks=5, gamma=0.2, sampling_rate=1.0, steps=300, clip=problem.clip)
    point = jnp.asarray(problem.center[None] + 0.1, jnp.float32)

    def residual(reshuffle):
        """How badly five block means explain the answers: zero if the partition is fixed."""
        session = Session(records, problem, m, 0.0, Randomness.create(2), reshuffle=reshuffle)
        ((_, _, out),) = session.run(jnp.zeros(()), asking(point, lambda d, a: (a, d["u"])))
        answers, u = np.asarray(out[0])[:, 0], np.asarray(out[1])[:, 0]
        fit = u @ np.linalg.lstsq(u, answers, rcond=None)[0]
        return np.abs(answers - fit).max()

    assert residual(False) < 1e-4 < 1e-2 < residual(True)


@pytest.mark.parametrize("n, refused", [(2**31 - 1, False), (2**31, True)])
def test_more_records_than_numbers_have_bits_are_refused_in_one_process(n, refused):
    problem = MODELS["huber"].prepare(SCHEMA)
    mechanism = Mechanism(n=n, blocks=5, sampling_rate=1e-6, steps=1, clip=problem.clip)
    with pytest.raises(PgbbError, match="their numbers have 31 bits" if refused else "blocks of pseudo-samples"):
        session._check(n, problem, mechanism, pseudo_blocks=1)
    if refused:
        with pytest.raises(PgbbError, match="blocks of pseudo-samples"):
            session._check(n, problem, mechanism, pseudo_blocks=1, elsewhere=True)


def test_a_tiny_clip_still_clips_and_a_hopeless_one_is_refused():
    for clip in (1e-10, 1e-4, 1e4):
        problem = (
            Mean("y", scale=1e5, clip=clip).prepare(SCHEMA)
            if clip < 1
            else Mean("y", scale=1e-6, clip=clip).prepare(SCHEMA)
        )
        placed = place(records_for(frame(), problem, SCHEMA), problem.shift, None)
        each = [float(answer(problem, placed, jnp.array([i]), jnp.ones(1), jnp.array([3.9]), 0.0)[0]) for i in range(5)]
        assert 0.9 * clip <= max(np.abs(each)) <= clip or clip == 1e-4
        assert max(np.abs(each)) <= clip
    problem = replace(Mean("y", scale=1e10).prepare(SCHEMA), clip=1e-25)
    m = Mechanism(n=N, blocks=5, sampling_rate=0.5, steps=2, clip=problem.clip)
    with pytest.raises(PgbbError, match="single precision"):
        Session(records_for(frame(), problem, SCHEMA), problem, m, 1.0, Randomness.create(0))
