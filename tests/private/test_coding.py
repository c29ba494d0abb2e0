"""Coded rows give the dense rows bit for bit, and what is stored follows from the schema alone."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.engine.protocol import Question
from pgbb.methods.calibrated.statistics import clipped_score
from pgbb.private.coding import coding_of
from pgbb.private.device_layout import shifted
from pgbb.private.loading import records_for, stored_for
from pgbb.private.local_engine import Here
from pgbb.private.records import Stored

pytestmark = pytest.mark.quick

N = 3000
SCHEMA = pgbb.Schema(
    x=pgbb.Range(0, 10), e=pgbb.Range(5, 20, step=1), z=pgbb.Flag(), g=pgbb.Levels(*"abcd"), y=pgbb.Range(-10, 15),
    h=pgbb.Levels(*range(40)), w=pgbb.Range(0, 2), k=pgbb.Range(0, 70000, step=1), s=pgbb.Flag("no", "yes"),
)  # fmt: skip
FORMULAS = [
    "y ~ x*g + e*z + I(e**2) + z:g + log(e) + g:h",
    "y ~ g*z + x:z:g - 1",
    "y ~ bs(e, knots=[10, 12])*g + poly(x, 2)",
    "e ~ x + h + k:s",
    "log(e) ~ x + h + k:s",
    "y ~ x:e + h + k:s",
]


def frame(n=N):
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"x": rng.uniform(-1, 11, n), "e": rng.integers(4, 22, n).astype(float)})
    made["z"], made["g"], made["h"] = rng.integers(0, 2, n), rng.choice(list("abcd"), n), rng.integers(0, 40, n)
    made["y"], made["w"], made["k"] = rng.normal(3, 2, n), rng.uniform(0, 2, n), rng.integers(0, 70001, n)
    made["s"] = rng.choice(["no", "yes"], n)
    made.loc[3, "x"], made.loc[5, "g"], made.loc[7, "e"] = np.nan, "?", np.inf
    return made


FRAME = frame()


def both(formula, weights=None, data=FRAME):
    """Stored rows with their coding, the dense rows, and which records are usable."""
    problem = pgbb.LinearRegression(formula).prepare(SCHEMA)
    found, records = stored_for(data, problem, SCHEMA, weights), records_for(data, problem, SCHEMA, weights)
    valid = records.valid
    return found, shifted(records, problem.shift, consume=True), valid


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_formed_rows_are_the_dense_rows_bit_for_bit(formula, weights):
    found, dense, valid = both(formula, weights)
    assert found.coding is not None and 0 < valid.size - valid.sum() < 4
    for xp in (np, jnp):
        formed = np.asarray(found.coding.form.formed(xp.asarray(found.rows).T, xp)).T
        assert formed.dtype == np.float32 and np.array_equal(formed[valid], dense[valid])
        assert np.array_equal(formed[:, -1], dense[:, -1])  # the weight of an unusable record is 0
    wrong = np.roll(found.rows, 1, axis=0)
    assert not np.array_equal(found.coding.form.formed(wrong.T, np).T[valid], dense[valid])


def test_sums_over_coded_rows_are_those_over_dense_ones():
    found, dense, _ = both(FORMULAS[1])
    p = dense.shape[1] - 2
    asked = Question(clipped_score, tuple(np.float32(v) for v in (np.full(p, 0.1), np.eye(p) / 3, np.empty(0), 4.0)))
    one, two = Here(Stored(dense), 0.0).sum(asked), Here(found, 0.0).sum(asked)
    assert np.array_equal(one, two) and np.count_nonzero(one) == p
    flipped = found.rows.copy()
    flipped[10] = flipped[11]
    assert not np.array_equal(one, Here(Stored(flipped, found.coding), 0.0).sum(asked))


@pytest.mark.parametrize("cell", [np.nan, np.inf, 1e300, -5.0, 7.4])
def test_a_cell_changes_its_own_stored_row_and_no_other(cell):
    found, _, _ = both(FORMULAS[0])
    changed = FRAME.copy()
    changed.loc[100, "e"] = cell
    other, _, _ = both(FORMULAS[0], data=changed)
    assert other.coding == found.coding and other.rows.dtype == found.rows.dtype
    differ = np.flatnonzero((other.rows != found.rows).any(axis=1))
    assert set(differ) <= {100}


def test_a_cell_between_whole_numbers_counts_as_the_nearer_one():
    data = FRAME.assign(e=12.0)
    moved = data.assign(e=12.4)
    for formula in ("y ~ e", FORMULAS[0]):  # dense and coded
        assert np.array_equal(both(formula, data=data)[1], both(formula, data=moved)[1])
        assert not np.array_equal(both(formula, data=data)[1], both(formula, data=data.assign(e=12.6))[1])


def test_a_thousand_levels_cost_one_word_and_plain_numbers_stay_dense():
    wide = pgbb.Schema(y=pgbb.Range(0, 1), g=pgbb.Levels(*range(1000)), **{f"x{j}": pgbb.Range(0, 1) for j in range(9)})
    for formula, words in (("y ~ g", 2), ("y ~ g*x0", 3), ("y ~ " + " + ".join(f"x{j}" for j in range(9)), None)):
        problem = pgbb.LinearRegression(formula).prepare(wide)
        coding = coding_of(problem.design, wide, None, problem.shift)
        assert (coding and coding.words) == words
    fifty = pgbb.Schema(
        y=pgbb.Range(0, 1), **{f"x{j}": pgbb.Range(0, 1) for j in range(10)},
        **{f"g{j}": pgbb.Levels(*range(50)) for j in range(4)},
    )  # fmt: skip
    problem = pgbb.LinearRegression("y ~ " + " + ".join(n for n in fifty if n != "y")).prepare(fifty)
    assert coding_of(problem.design, fifty, None, problem.shift).words * 4 * 10**7 <= 0.9e9


def test_one_program_serves_all_ranges_of_plain_numbers_and_not_those_of_codes():
    def form(x=pgbb.Range(0, 10), g=pgbb.Levels(*"abc")):
        problem = pgbb.LinearRegression("y ~ x + g").prepare(schema := pgbb.Schema(x=x, g=g, y=pgbb.Range(0, 1)))
        return coding_of(problem.design, schema, None, problem.shift).form

    assert form() == form(x=pgbb.Range(-3, 500)) and hash(form()) == hash(form(x=pgbb.Range(-3, 500)))
    assert form() != form(x=pgbb.Range(0, 10, step=1)) and form() != form(g=pgbb.Levels(*"abcd"))
