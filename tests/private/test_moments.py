import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pgbb import PgbbError
from pgbb.accountant import Mechanism, compose
from pgbb.private.moments import Moment, entries, noisy_sums
from pgbb.private.randomness import Randomness
from tests.private.loaded import records_of

pytestmark = pytest.mark.quick

P, BOUND, SHIFT = 3, 2.0, 0.5
MOMENTS = [Moment("response", P, BOUND), Moment("products", P, BOUND), Moment("second", P), Moment("fourth", P)]
KINDS = [m.kind for m in MOMENTS]


def records(n=40, seed=0):
    rng = np.random.default_rng(seed)
    valid = rng.random(n) < 0.9
    weight = np.where(valid, rng.random(n), 0.0)
    return records_of(
        rng.uniform(-1, 1, (n, P)).astype(np.float32),
        rng.normal(0.5, 1.5, n).astype(np.float32),
        weight.astype(np.float32),
        valid,
    )


def exact(data, moment):
    ((total, noise),) = noisy_sums(data, [moment], moment.describe(data.n), 0.0, Randomness.create(0), shift=SHIFT)
    assert noise == 0
    return total


def one(x, y, weight=1.0):
    return records_of(
        np.array([x], np.float32), np.array([y], np.float32), np.array([weight], np.float32), np.array([True])
    )


def slow_statistic(kind, x, y):
    if kind == "response":
        return [y]
    pairs = [x[i] * x[j] for i in range(P) for j in range(i, P)]
    if kind == "second":
        return pairs
    if kind == "products":
        return [*pairs, *(v * y for v in x), y * y]
    return [x[i] * x[j] * x[k] * x[l] for i in range(P) for j in range(i, P) for k in range(j, P) for l in range(k, P)]


@pytest.mark.parametrize("moment", MOMENTS, ids=KINDS)
def test_without_noise_the_sums_are_those_of_a_slow_loop(moment):
    data = records()
    total = np.zeros(moment.size)
    for x, y, w, ok in zip(data.x, data.y, data.weight, data.valid, strict=True):
        clipped = min(max(float(y) - SHIFT, -BOUND), BOUND)
        vector = np.array(slow_statistic(moment.kind, [float(v) for v in x], clipped))
        length = float(np.linalg.norm(vector)) * float(w)
        total += ok * float(w) * vector * min(1.0, moment.clip * (1 - 1e-6) / max(length, 1e-300))
    assert exact(data, moment) == pytest.approx(total, rel=1e-10, abs=data.n * moment.clip * 2.0**-26)


def test_many_chunks_give_the_sum_of_one(monkeypatch):
    whole = exact(records(), MOMENTS[1])
    monkeypatch.setattr("pgbb.private.moments._CELLS", 25)
    assert exact(records(), MOMENTS[1]) == pytest.approx(whole, rel=1e-12)


def test_bounds_are_half_the_sensitivities_printed_in_the_paper():
    p, b = 3, 5.0
    assert 2 * Moment("products", p, b).clip == 2 * math.sqrt(p * (p + 1) / 2 + p * b**2 + b**4)
    assert 2 * Moment("second", p).clip == 2 * math.sqrt(p * (p + 1) / 2)
    assert 2 * Moment("fourth", p).clip == 2 * math.sqrt(math.comb(p + 3, 4))
    assert 2 * Moment("response", bound=6.0).clip == 12.0
    assert [len(entries(p, k)) for k in (2, 4)] == [6, 15]


@pytest.mark.parametrize("moment", MOMENTS, ids=KINDS)
def test_a_record_in_the_corner_attains_the_bound(moment):
    length = np.linalg.norm(exact(one([1.0, -1.0, 1.0], SHIFT - BOUND), moment))
    assert moment.clip * (1 - 2e-6) <= length <= moment.clip


def test_a_mean_attains_its_whole_sensitivity():
    high, low = (exact(one([1, 1, 1], SHIFT + sign * 99), MOMENTS[0])[0] for sign in (1, -1))
    assert 2 * BOUND * (1 - 2e-6) <= high - low <= 2 * BOUND


anything = st.one_of(st.floats(-2, 2, width=32), st.floats(width=32))


@pytest.mark.parametrize("moment", MOMENTS, ids=KINDS)
@settings(max_examples=60, deadline=None)
@given(x=arrays(np.float32, P, elements=anything), y=anything, weight=anything)
@example(x=np.full(P, np.float32(3e38)), y=0.0, weight=1.0)
@example(x=np.full(P, np.float32(np.nan)), y=np.inf, weight=np.inf)
def test_no_record_exceeds_the_bound_whatever_it_holds(moment, x, y, weight):
    total = exact(one(x, y, weight), moment)
    assert np.isfinite(total).all()
    assert np.linalg.norm(total) <= moment.clip


@pytest.mark.parametrize("moment", MOMENTS, ids=KINDS)
@settings(max_examples=25, deadline=None)
@given(x=arrays(np.float32, P, elements=anything), y=anything, place=st.integers(0, 39))
def test_replacing_one_record_moves_a_sum_by_at_most_twice_the_bound(moment, x, y, place):
    data, other = records(), records()
    other.rows[place, :P], other.rows[place, P], other.rows[place, P + 1] = x, y, 1.0
    other.valid[place] = True
    assert np.linalg.norm(exact(data, moment) - exact(other, moment)) <= 2 * moment.clip


def test_an_invalid_record_and_one_of_weight_zero_add_nothing():
    for change in ("valid", "weight"):
        data, without = records(), records()
        where = 5
        data.rows[where, :P] = 1.0
        if change == "valid":
            data.valid[where], without.valid[where] = False, False
        else:
            data.rows[where, P + 1], without.rows[where, P + 1] = 0.0, 0.0
        for moment in MOMENTS:
            assert exact(data, moment) == pytest.approx(exact(without, moment), abs=1e-12)


def test_the_noise_has_the_certified_scale():
    """On the sum, n·σ·scale of each mechanism; a twin with a wrong scale must fail."""
    data = records()
    target = compose([m.describe(data.n) for m in MOMENTS[1:]], scales=[1.0, 0.3, 2.0])
    base = [exact(data, m) for m in MOMENTS[1:]]
    found: list[list[float]] = [[], [], []]
    for seed in range(400):
        out = noisy_sums(data, MOMENTS[1:], target, 0.7, Randomness.create(seed), shift=SHIFT)
        for k, (total, noise) in enumerate(out):
            assert noise == pytest.approx(data.n * 0.7 * target.scales[k])
            found[k].extend(total - base[k])
    for k, values in enumerate(found):
        right = data.n * 0.7 * target.scales[k]
        error = 4 / math.sqrt(2 * len(values))
        assert np.std(values) == pytest.approx(right, rel=error)
        assert np.std(values) != pytest.approx(1.12 * right, rel=error)
        assert abs(np.mean(values)) < 4 * right / math.sqrt(len(values))


def test_noise_is_secret_and_fresh_for_every_sum():
    data, randomness = records(), Randomness.create(3)
    before = randomness.public.bit_generator.state["state"]
    moment = MOMENTS[2]
    target = compose([moment.describe(data.n)] * 2)
    (first, _), (second, _) = noisy_sums(data, [moment, moment], target, 1.0, randomness)
    assert randomness.public.bit_generator.state["state"] == before
    assert np.abs(first - second).min() > 0


@pytest.mark.parametrize(
    "change, word",
    [
        ({"n": 41}, "n = 41"),
        ({"clip": 1.0}, "certifies C = 1"),
        ({"steps": 2}, "one answer"),
        ({"sampling_rate": 0.5}, "one answer"),
        ({"blocks": 5}, "one answer"),
    ],
)
def test_a_description_of_something_else_is_refused(change, word):
    described = {"n": 40, "blocks": 1, "sampling_rate": 1.0, "steps": 1, "clip": 9.0} | change
    with pytest.raises(PgbbError, match=word):
        noisy_sums(records(), [MOMENTS[2]], Mechanism(**described), 1.0, Randomness.create(0))


def test_sums_and_descriptions_must_match_one_to_one():
    with pytest.raises(PgbbError, match="2 sums are asked for, but 1"):
        noisy_sums(records(), MOMENTS[2:], MOMENTS[2].describe(40), 1.0, Randomness.create(0))
    with pytest.raises(PgbbError, match="p = 2"):
        noisy_sums(records(), [Moment("second", 2)], Moment("second", 2).describe(40), 1.0, Randomness.create(0))
