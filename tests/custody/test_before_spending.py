"""What names, types and paths alone decide is found before anything is spent."""

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import Levels, Range, Schema
from pgbb.custody.ledger import Ledger
from pgbb.private.loading import records_for

SCHEMA = Schema(
    y=Range(0, 1),
    x=Range(0, 1),
    scale=Range(0, 1),
    Intercept=Range(0, 1),
    g=Levels("p", "q"),
    **{"g[T.q]": Range(0, 1)},
)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.db")
    made.set("d", n=100, epsilon=2.0, delta=1e-4)
    return made


def data():
    rng = np.random.default_rng(0)
    numbers = {name: rng.random(100) for name in ("y", "x", "scale", "Intercept", "g[T.q]")}
    return pd.DataFrame(numbers | {"g": rng.choice(["p", "q"], 100)})


@pytest.mark.parametrize(
    "model",
    [
        pgbb.HuberRegression("y ~ scale"),
        pgbb.LinearRegression("y ~ Intercept"),
        pgbb.LinearRegression("y ~ g + `g[T.q]`"),
        pgbb.IV("y ~ x | Intercept + scale"),
    ],
)
def test_two_coefficients_with_one_name(model, ledger):
    with pytest.raises(pgbb.InvalidValue, match=r"would be called|is written in the same way"):
        pgbb.fit(model, data(), schema=SCHEMA, epsilon=1.0, delta=1e-6, ledger=ledger, dataset="d")
    assert ledger.dataset("d").share == 0


@pytest.mark.parametrize("name", ["folder.pgbb", "a" * 300 + ".pgbb", "zero\0byte.pgbb", "missing/r.pgbb"])
def test_a_file_that_cannot_be_written(name, ledger, tmp_path):
    (tmp_path / "folder.pgbb").mkdir()
    with pytest.raises(pgbb.InvalidValue, match=r"folder|cannot be written"):
        pgbb.fit(
            pgbb.LinearRegression("y ~ x"), data(), schema=SCHEMA, epsilon=1.0, delta=1e-6, ledger=ledger, dataset="d",
            out=f"{tmp_path}/{name}",
        )  # fmt: skip
    assert ledger.dataset("d").share == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.pgbb", "ledger.db"]


def test_a_gap_of_a_sparse_column_changes_no_other_cell():
    schema = Schema(g=Levels("0.1", "0.2", "0"), y=Range(0, 1))
    problem = pgbb.LinearRegression("y ~ g").prepare(schema)
    for last, valid in ((0.2, True), (0.0, True), (0.3, False)):
        cells = np.array([0.1, 0.2, 0.1, last], np.float32)
        frame = pd.DataFrame({"g": pd.array(cells, dtype=pd.SparseDtype("float32", 0.0)), "y": 0.5})
        assert records_for(frame, problem, schema).valid.tolist() == [True, True, True, valid]
