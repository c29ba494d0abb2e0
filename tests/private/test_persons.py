"""Outer products by person: what they are, what one record can do to them, and intervals that need them."""

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.private.persons import outer_sums
from pgbb.release.certificate import Certificate

BITS = 20
SCHEMA = pgbb.Schema(person=pgbb.Range(0, 1e6), x=pgbb.Range(0, 10), y=pgbb.Range(-12, 18))
MODEL = pgbb.LinearRegression("y ~ x")


def vectors(rng, n, k, p):
    """Whole-number vectors of length at most 1, most of them as long as that."""
    v = rng.normal(size=(n, k, p))
    v /= np.maximum(np.linalg.norm(v.reshape(n, -1), axis=1), 0.3)[:, None, None]
    return np.trunc(v * (1 - 1e-6) * 2**BITS).astype(np.int32)


def test_it_is_the_sum_of_outer_products_of_sums_over_persons():
    rng = np.random.default_rng(0)
    v, who = vectors(rng, 300, 2, 3), rng.integers(0, 90, 300)
    found = outer_sums(v, who, 6, BITS) / 2**BITS
    sums = np.stack([v[who == c].sum(axis=0) / 2**BITS / 6 for c in range(90)])
    sums /= np.maximum(np.linalg.norm(sums.reshape(90, -1), axis=1), 1)[:, None, None]
    whole = 3 * np.einsum("cka,ckb->ab", sums, sums)
    expected = [whole[a, b] * (1 if a == b else np.sqrt(2)) for a in range(3) for b in range(a, 3)]
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-3)
    assert found != pytest.approx(1.01 * np.array(expected), rel=1e-4, abs=1e-3)  # the comparison can fail


@pytest.mark.parametrize("size", [2, 3, 8])
def test_no_record_moves_it_by_more_than_two_whatever_its_cells_and_its_person_become(size):
    rng, farthest = np.random.default_rng(size), 0.0
    for trial in range(200):
        n, p = 2 * size + 2, int(rng.integers(1, 4))
        v, who = vectors(rng, n, 1, p), rng.integers(0, 3, n)
        if trial % 2:  # the worst: all records of a person are alike
            v[:], who[:] = v[:1], np.arange(n) >= size
        other, whose = v.copy(), who.copy()
        other[0] = -v[0] if trial % 4 < 2 else vectors(rng, 1, 1, p)[0]
        whose[0] = who[0] if trial % 3 else 1
        change = (outer_sums(v, who, size, BITS) - outer_sums(other, whose, size, BITS)) / 2**BITS
        farthest = max(farthest, float(np.linalg.norm(change)))
    assert 1.0 < farthest <= 2


def people(seed, persons=3000, size=3):
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(persons), size)
    x, own = rng.uniform(0, 10, persons)[who], 1.5 * rng.normal(size=persons)[who]
    return pd.DataFrame({"person": who * 31, "x": x, "y": 0.5 * x + own + rng.normal(size=len(who))})


def fit(frame, model=MODEL, **more):
    given = {"schema": SCHEMA, "epsilon": 20, "delta": 1e-6, "persons": "person", "group_size": 3, "insecure_seed": 1}
    return pgbb.fit(model, frame, **given | more)


@pytest.mark.parametrize("model", [MODEL, pgbb.Mean("y"), pgbb.QuantileRegression("y ~ x", taus=[0.3, 0.7])])
def test_the_sampling_variance_is_by_person_and_a_twin_that_ignores_persons_is_far_too_small(model):
    frame = people(0)
    found = fit(frame, model).summary().iloc[-1]
    twin = fit(frame.assign(person=np.arange(len(frame))), model).summary().iloc[-1]
    between = 2.25 / 3.25
    expected = np.sqrt(1 + 2 * (between if not isinstance(model, pgbb.QuantileRegression) else 0.47))
    if isinstance(model, pgbb.Mean):  # x is the person's too
        expected = np.sqrt(1 + 2 * (2.25 + 25 / 12) / (3.25 + 25 / 12))
    assert found["sampling_sd"] / twin["sampling_sd"] == pytest.approx(expected, rel=0.12)
    assert found["sampling_sd"] > 1.25 * twin["sampling_sd"]


def test_the_certificate_is_the_persons_and_a_smaller_noise_would_not_be():
    release = fit(people(1, 400), epsilon=1)
    claim = release.certificate
    assert claim.group == (1, 1e-6) and "one person" in claim.headline()
    found = claim.check().epsilons["exact"]
    assert found == pytest.approx(1, rel=1e-3) and found <= 1
    alone = fit(people(1, 400), epsilon=1, persons=None).certificate
    assert claim.sigma == pytest.approx(3 * alone.sigma, rel=0.2)
    assert Certificate.from_dict(claim.to_dict()) == claim


def test_a_record_with_a_hostile_name_of_its_person_changes_nobody_elses_sum():
    frame = people(2, 50).astype(float)
    for name in (1e300, -5.0, np.nan, 31.0):
        other = frame.copy()
        other.loc[0, "person"] = name
        before, after = (fit(f, epsilon=1, non_private=True) for f in (frame, other))
        moved = np.abs(before.payload.tensors["sampling"] - after.payload.tensors["sampling"]).max()
        assert moved < 0.2 * np.abs(before.payload.tensors["sampling"]).max()


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"group_size": 1}, "group_size = 1 with persons"),
        ({"persons": "nobody"}, "not declared"),
        ({"schema": pgbb.Schema(**dict(SCHEMA) | {"person": pgbb.Flag()})}, "declared as Flag"),
        ({"method": "dp_bootstrap"}, "'calibrated' serves persons"),
        ({"cluster": "local:2"}, "one process"),
        ({"scratch": "."}, "without persons"),
    ],
)
def test_what_cannot_be_asked_by_person_is_refused_before_a_record_is_read(more, match):
    with pytest.raises(pgbb.InvalidValue, match=match):
        fit({}, pgbb.HuberRegression("y ~ x") if "method" in more else MODEL, **more)


def test_persons_beyond_the_range_of_their_numbers_are_nobody_and_not_one_person():
    frame = people(2, 3000)
    inside = frame["person"] < 62_000
    found, kept = fit(frame, schema=pgbb.Schema(**{**SCHEMA, "person": pgbb.Range(0, 61_999)})), fit(frame[inside])
    sampling = [r.summary()["sampling_sd"].iloc[-1] for r in (found, kept)]
    assert sampling[0] == pytest.approx(sampling[1], rel=0.3)
    assert found.summary()["mean"].iloc[-1] == pytest.approx(kept.summary()["mean"].iloc[-1], abs=0.05)


def test_numbers_of_persons_that_are_not_told_apart_and_larger_groups_than_records_are_refused():
    wide = pgbb.Schema(**{**SCHEMA, "person": pgbb.Range(0, 2.0**60)})
    with pytest.raises(pgbb.errors.InvalidValue, match="next to each other are one"):
        fit(people(2, 50), schema=wide)
    with pytest.raises(pgbb.errors.InvalidValue, match="group_size") as caught:
        fit(people(2, 50), group_size=100_000)
    assert not caught.value.answered
    for name in (["person"], ""):
        with pytest.raises(pgbb.errors.InvalidValue, match="persons"):
            fit(people(2, 50), persons=name)
