import dataclasses

import numpy as np
import pytest

from pgbb import InvalidValue, PgbbError, PgbbWarning
from pgbb.accountant import Mechanism, compose, gamma_star

pytestmark = pytest.mark.quick

GOOD = {"n": 100, "blocks": 10, "sampling_rate": 0.1, "steps": 5, "clip": 1.0}


@pytest.mark.parametrize(
    "field, value, allowed",
    [
        ("n", 0, "≥ 1"),
        ("n", 10.5, "integer"),
        ("n", 1e2, "Write 100"),
        ("n", True, "integer"),
        ("blocks", 0, r"\[1, 100\]"),
        ("blocks", 101, r"\[1, 100\]"),
        ("sampling_rate", 0.0, r"\(0, 1\]"),
        ("sampling_rate", 1.01, r"\(0, 1\]"),
        ("sampling_rate", float("nan"), r"\(0, 1\]"),
        ("steps", 0, "≥ 1"),
        ("draws_per_step", -1, "≥ 1"),
        ("clip", 0.0, r"\(0, inf\)"),
        ("clip", float("inf"), r"\(0, inf\)"),
        ("gamma", 0.0, r"\(0, inf\)"),
        ("gamma", -1.0, r"\(0, inf\)"),
        ("gamma", "1", r"\(0, inf\)"),
        ("alpha", -0.1, r"\[0, inf\)"),
    ],
)
def test_an_impossible_value_is_refused_by_field_value_and_range(field, value, allowed):
    with pytest.raises(InvalidValue, match=f"{field} = .*{allowed}") as caught:
        Mechanism(**(GOOD | {field: value}))
    assert repr(value) in str(caught.value)
    assert isinstance(caught.value, PgbbError)


def test_one_block_means_constant_weight_and_takes_no_dirichlet_parameters():
    m = Mechanism(**(GOOD | {"blocks": 1}))
    assert m.block_size == 100 and m.beta_law is None and m.kappa == 1.0
    for extra in ({"gamma": 1.0}, {"alpha": 1.0}):
        with pytest.raises(InvalidValue, match="blocks = 1"):
            Mechanism(**(GOOD | {"blocks": 1} | extra))


def test_gamma_star_needs_three_blocks_and_warns_below_five():
    with pytest.raises(InvalidValue, match="blocks ≥ 3"):
        Mechanism(**(GOOD | {"blocks": 2}))
    with pytest.raises(InvalidValue, match="blocks"):
        gamma_star(100, 2)
    assert Mechanism(**(GOOD | {"blocks": 2, "gamma": 1.0})).concentration == 1.0
    for blocks in (3, 4):
        with pytest.warns(PgbbWarning, match="blocks ≥ 5"):
            Mechanism(**(GOOD | {"blocks": blocks}))


def test_gamma_star_matches_the_bootstrap_variance():
    for n, s in [(100, 5), (10_000, 20), (50, 50)]:
        g = gamma_star(n, s)
        assert (s - 1) / ((s * g + 1) * (n - 1)) == pytest.approx(1 / (n + 1))
    assert gamma_star(50, 50) == pytest.approx(1.0)


def test_uneven_blocks_count_with_the_smallest():
    assert Mechanism(**(GOOD | {"n": 65_023, "blocks": 5})).block_size == 13_004


def test_kappa_is_the_second_moment_of_the_weight():
    m = Mechanism(**(GOOD | {"gamma": 0.7, "alpha": 3.0}))
    draws = np.random.default_rng(0).beta(*m.beta_law, 400_000)
    assert np.mean(draws**2) == pytest.approx(m.kappa, rel=0.02)
    assert np.mean((1.1 * draws) ** 2) != pytest.approx(m.kappa, rel=0.02)


def test_a_mechanism_cannot_be_changed_and_numpy_numbers_become_plain():
    m = Mechanism(**(GOOD | {"n": np.int64(100), "clip": np.float32(1.5)}))
    assert type(m.n) is int and type(m.clip) is float
    with pytest.raises(dataclasses.FrozenInstanceError):
        m.n = 5


def test_compose_wants_mechanisms_on_the_same_records():
    m = Mechanism(**GOOD)
    for bad in ([], [m, "x"], [m, Mechanism(**(GOOD | {"n": 200}))]):
        with pytest.raises(InvalidValue, match="mechanisms"):
            compose(bad)
    for scales in ([1.0], [1.0, 0.0], [1.0, float("nan")]):
        with pytest.raises(InvalidValue, match="scales"):
            compose([m, m], scales=scales)
