import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from pgbb import Flag, LogisticRegression, PgbbError, QuantileRegression, Range, Schema
from pgbb.accountant import Mechanism, compose
from pgbb.methods.calibrated import statistics as ask_for
from pgbb.methods.calibrated.stages import composition, questions_for
from pgbb.private import sums as module
from pgbb.private.loading import records_for
from pgbb.private.local_engine import Here
from pgbb.private.randomness import Randomness
from pgbb.private.sums import Sums
from tests.helpers import patience
from tests.methods.calibrated import slow
from tests.private.loaded import records_of

N = 237
SCHEMA = Schema(a=Range(-1, 1), b=Range(-1, 1), y=Range(-4, 4), z=Flag(), w=Range(0, 4))


def encoded(n=N, seed=0, *, flag=False, weight=None):
    """Records with x in [−1, 1]³, all valid."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, slow.P)).astype(np.float32)
    y = (rng.random(n) < 0.4 if flag else np.clip(rng.normal(0, 1.5, n), -4, 4)).astype(np.float32)
    return records_of(x, y, np.ones(n, np.float32) if weight is None else weight.astype(np.float32), np.ones(n, bool))


def plain(n, asks=40):
    return compose([Mechanism(n=n, blocks=1, sampling_rate=1.0, steps=asks, clip=1.0)])


def asker(records, sigma=0.0, asks=40, seed=1):
    return Sums(Here(records, 0.0), plain(records.n, asks), ["all"], sigma, Randomness.create(seed))


def clipped(row, weight=1.0):
    norm = np.linalg.norm(row)
    return weight * (1 - 1e-6) * row / max(norm, 1.0)


# Answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow.NAMES)
def test_without_noise_an_answer_is_the_mean_of_a_plain_loop_with_clipping(name):
    for seed, spread in ((0, 0.4), (1, 2.0)):  # all records in the bulk, and most of them outside
        fast, loop, given_, flag = slow.parameters(np.random.default_rng(seed), spread=spread)[name]
        weight = np.random.default_rng(2).random(N)
        records = encoded(seed=seed, flag=flag, weight=weight)
        answer, noise = asker(records).ask("all", fast, *given_)
        x, y = records.x.astype(float), records.y.astype(float)
        expected = sum(clipped(loop(x[i], y[i], *given_), records.weight[i]) for i in range(N)) / N
        assert noise == 0.0
        assert answer == pytest.approx(expected, abs=4e-6)
        assert answer != pytest.approx(1.01 * expected, abs=4e-6)  # the comparison can fail


def test_chunks_are_an_implementation_detail(monkeypatch):
    records = encoded(5000)
    fast, _, given_, _ = slow.parameters(np.random.default_rng(0))["cells"]
    whole, _ = asker(records).ask("all", fast, *given_)
    for cells in (64, 2**15):  # the shortest chunks there are, and longer ones; both leave a rest
        monkeypatch.setattr(module, "_CELLS", cells)
        parts, _ = asker(records).ask("all", fast, *given_)
        assert parts == pytest.approx(whole, abs=2e-6)


@pytest.mark.parametrize("name", slow.NAMES)
def test_the_program_that_is_compiled_soon_gives_the_same_bits(name, monkeypatch):
    rng = np.random.default_rng(5)
    x, y = rng.uniform(-1, 1, (1000, slow.P)), rng.standard_t(2, 1000)
    fast, _, given_, flag = slow.parameters(rng)[name]
    rows = np.column_stack([x, y > 0 if flag else y, rng.uniform(0, 1, 1000)]).astype(np.float32)
    soon = module.sum_of(fast, rows, given_)
    monkeypatch.setattr(module, "_FEW", 0)
    assert np.array_equal(module.sum_of(fast, rows, given_), soon) and soon.any()
    assert not np.array_equal(module.sum_of(fast, rows[500:], given_), soon)  # the comparison can fail


def test_every_statistic_has_a_slow_twin():
    assert {name.split(": ")[-1] for name in slow.NAMES} == {name for name in ask_for.__all__ if name.islower()}


# What one record can do ----------------------------------------------------------------------------------------------

ROWS = 16
_JITTED = {}


def norms(name, x, y, given_, fast):
    run = _JITTED.setdefault(name, jax.jit(jax.vmap(fast, (0, 0, *[None] * len(given_)))))
    rows = run(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), *(jnp.asarray(g, jnp.float32) for g in given_))
    return np.linalg.norm(np.asarray(rows, float).reshape(len(x), -1), axis=1)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.floats(-3, 3),
    spread=st.floats(-3, 4),
    corner=st.booleans(),
)
@example(seed=0, scale=3.0, spread=4.0, corner=True)
def test_every_statistic_has_norm_at_most_one_for_any_record_frame_and_parameter(seed, scale, spread, corner):
    rng = np.random.default_rng(seed)
    x = rng.choice([-1.0, 1.0], (ROWS, slow.P)) if corner else rng.uniform(-1, 1, (ROWS, slow.P))
    y = rng.choice([-4.0, 4.0], ROWS) if corner else rng.uniform(-4, 4, ROWS)
    for name, (fast, _, given_, flag) in slow.parameters(rng, 10.0**scale, 10.0**spread).items():
        response = (y > 0).astype(float) if flag else y
        largest = norms(name, x, response, given_, fast).max()
        if name == "cell_curvature":  # kernels of levels that coincide add up: the clip of the sum cuts those
            assert largest <= np.sqrt(len(slow.TAUS)) / slow.OVERLAP * (1 + 1e-5)
        else:
            assert largest <= 1 + 1e-5, name


@pytest.mark.parametrize("name", slow.NAMES)
def test_the_bound_of_one_is_not_idle(name):
    """Some record comes near it: a bound that none approaches would waste budget."""
    largest = 0.0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        x, y = rng.choice([-1.0, 1.0], (ROWS, slow.P)), rng.choice([-4.0, 4.0], ROWS)
        fast, _, given_, flag = slow.parameters(rng, 10.0 ** rng.uniform(-1, 1), 10.0 ** rng.uniform(-1, 1))[name]
        largest = max(largest, norms(name, x, (y > 0) if flag else y, given_, fast).max())
    assert largest > 0.7


def test_a_statistic_that_lies_about_its_norm_contributes_at_most_one():
    records = encoded()

    def liar(x, y):
        return jnp.where(jnp.arange(4) == 0, 10.0, 0.0)  # norm 10

    answer, _ = asker(records).ask("all", liar)
    assert answer == pytest.approx([1 - 1e-6, 0, 0, 0], abs=3e-6)
    assert np.linalg.norm(answer) <= 1

    def vast(x, y):
        return jnp.where(x > 0, 1e30, 1e25)  # its square overflows single precision

    answer, _ = asker(records).ask("all", vast)
    assert np.linalg.norm(answer) <= 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_counts_as_zero(bad):
    records = encoded()
    odd = records.y > 0.5

    def broken(x, y):
        return jnp.stack([jnp.where(y > 0.5, bad, 0.25), 0.5 + 0 * y])

    answer, _ = asker(records).ask("all", broken)
    assert 0.1 < odd.mean() < 0.9
    assert answer == pytest.approx((1 - odd.mean()) * np.array([0.25, 0.5]), abs=3e-6)


def test_replacing_one_record_moves_an_answer_by_at_most_two_over_n():
    """With the record as far as it can go, and close to that: the sensitivity is 2/n, not more."""
    first, second = encoded(), encoded()
    first.rows[5, : slow.P], second.rows[5, : slow.P] = 1.0, -1.0
    frame = np.eye(slow.P) / np.sqrt(slow.P)

    def along(x, y):
        return x @ jnp.asarray(frame, x.dtype)

    gap = asker(first).ask("all", along)[0] - asker(second).ask("all", along)[0]
    assert 1.99 / N < np.linalg.norm(gap) <= 2 / N


def test_survey_weights_multiply_and_invalid_records_contribute_nothing():
    rng = np.random.default_rng(3)
    data = pd.DataFrame(
        {"a": rng.uniform(-1, 1, N), "b": rng.uniform(-1, 1, N), "y": rng.normal(0, 1, N), "w": rng.uniform(0, 4, N)}
    )
    data.loc[3, "a"], data.loc[8, "y"], data.loc[11, "w"], data.loc[12, "b"] = np.nan, np.inf, np.nan, 77.0
    problem = QuantileRegression("y ~ a + b").prepare(SCHEMA)
    records = records_for(data, problem, SCHEMA, "w")
    theta = np.array([0.1, 0.7, -0.3])
    answer, _ = asker(records).ask("all", ask_for.weighted_response, theta, 0.5, np.eye(3) / 2)
    good = np.ones(N, bool)
    good[[3, 8, 11]] = False
    x = np.column_stack([np.ones(N), data["a"], data["b"].clip(-1, 1)])
    rows = {i: slow.weighted_response(x[i], data["y"][i], theta, 0.5, np.eye(3) / 2) for i in np.flatnonzero(good)}
    assert answer == pytest.approx(sum(data["w"][i] / 4 * clipped(r) for i, r in rows.items()) / N, abs=4e-6)
    assert answer != pytest.approx(sum(clipped(r) for r in rows.values()) / N, abs=1e-2)  # weights do matter


# Noise and count -----------------------------------------------------------------------------------------------------


def silent(x, y):
    return jnp.zeros(3000, x.dtype)


def test_noise_has_the_certified_scale_and_a_wrong_one_is_noticed():
    stages = questions_for(QuantileRegression("y ~ a + b", taus=[0.2, 0.8]).prepare(SCHEMA), 2)
    plan, sigma = composition(stages, N), 0.02
    sums = Sums(Here(encoded(), 0.0), plan, [s.name for s in stages], sigma, Randomness.create(4))
    for stage in stages:
        answers, said = zip(*[sums.ask(stage.name, silent) for _ in range(stage.asks)], strict=True)
        scale = sigma * np.sqrt(stage.asks / stage.share)
        assert said == pytest.approx([scale] * stage.asks, rel=1e-12)
        values = np.concatenate(answers)
        assert stats.kstest(values / scale, "norm").pvalue > 1e-3
        if stage.asks > 1:  # without √asks, or with the noise of another share, the same test fails
            assert stats.kstest(values / (sigma / np.sqrt(stage.share)), "norm").pvalue < 1e-9
            assert abs(np.corrcoef(answers[0], answers[1])[0, 1]) < 0.15  # fresh noise each time
        assert stats.kstest(values / (1.3 * scale), "norm").pvalue < 1e-3
    assert sums.asked == [s.name for s in stages for _ in range(s.asks)]


def test_more_answers_than_planned_are_refused_and_a_stage_does_not_borrow():
    records = encoded()
    plan = compose([Mechanism(n=N, blocks=1, sampling_rate=1.0, steps=k, clip=1.0) for k in (2, 1)])
    sums = Sums(Here(records, 0.0), plan, ["first", "second"], 0.1, Randomness.create(0))
    assert (sums.left("first"), sums.left("second")) == (2, 1)
    sums.ask("first", silent)
    sums.ask("first", silent)
    for name in ("first", "third"):
        with pytest.raises(PgbbError, match="all its answers"):
            sums.ask(name, silent)
    sums.ask("second", silent)
    assert sums.left("second") == 0 and sums.asked == ["first", "first", "second"]


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"blocks": 5}, "blocks = 1"),
        ({"sampling_rate": 0.5}, "sampling_rate = 1"),
        ({"clip": 2.0}, "clip = 1"),
        ({"clip": 0.5}, "clip = 1"),
        ({"n": N + 1}, f"n = {N + 1}"),
    ],
)
def test_a_plan_that_this_code_does_not_run_is_refused(changes, word):
    description = {"n": N, "blocks": 1, "sampling_rate": 1.0, "steps": 1, "clip": 1.0} | changes
    with pytest.raises(PgbbError, match=word):
        Sums(Here(encoded(), 0.0), compose([Mechanism(**description)]), ["all"], 0.1, Randomness.create(0))


@pytest.mark.parametrize("names", [["one"], ["one", "one"], ["one", "two", "three"]])
def test_every_stage_needs_a_name_of_its_own(names):
    plan = compose([Mechanism(n=N, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)] * 2)
    with pytest.raises(PgbbError, match="name of its own"):
        Sums(Here(encoded(), 0.0), plan, names, 0.1, Randomness.create(0))


def test_the_records_keep_their_order_and_their_values_unless_they_are_handed_over():
    data = pd.DataFrame({"a": [0.5, -0.5], "b": [0.1, 0.2], "z": [1, 0]})
    problem = LogisticRegression("z ~ a + b").prepare(SCHEMA)
    records = records_for(data, problem, SCHEMA)
    before = records.rows.copy()
    Sums(Here(records, 0.3), plain(2), ["all"], 0.0, Randomness.create(0)).ask(
        "all", ask_for.logistic_score, np.zeros(3), np.eye(3)
    )
    assert np.array_equal(records.rows, before)


def test_what_was_compiled_is_not_compiled_ahead_again():
    def own(x, y, theta):
        return y * theta

    first, second, third = asker(encoded()), asker(encoded(500)), asker(encoded())
    first.prepare([(own, ((1,),), 1)])
    ((kind, ahead),) = module._AHEAD[own].items()
    first.ask("all", own, np.ones(1))
    assert ahead.done() and kind[:2] == (((1,),), 1)
    second.prepare([(own, ((1,),), 1)])
    assert list(module._AHEAD[own].values()) == [ahead]
    for i, program in enumerate([(own, ((2,),), 1), (own, ((1,),), 2)]):
        third.prepare([program])
        assert len(module._AHEAD[own]) == i + 2


def test_what_nobody_will_ask_for_is_not_compiled(monkeypatch):
    """A fit that ends early, such as one that is refused, leaves at most what is being compiled."""
    go, sums = threading.Event(), asker(encoded())
    monkeypatch.setattr(module, "_compile", lambda *_: go.wait(patience(60)))

    def own(x, y):
        return y

    sums.prepare([(own, (), power) for power in range(9)])
    ahead = list(module._AHEAD[own].values())
    del sums
    gc.collect()
    cancelled = sum(future.cancelled() for future in ahead)
    go.set()
    assert cancelled >= len(ahead) - module._THREADS
