import numpy as np
import pandas as pd
import pytest

from pgbb.errors import PgbbError
from reproduction import real

GOOD = {
    "dbwt": 3400, "mager": 30, "mrace6": 1, "dmar": 1, "meduc": 6, "sex": "F", "cig_1": 0, "cig_2": 0, "cig_3": 0,
    "wtgain": 49, "precare": 2, "dplural": 1, "restatus": 1,
}  # fmt: skip


def births(tmp_path, *changes):
    path = tmp_path / "natl2024.csv"
    pd.DataFrame([{**GOOD, **change} for change in changes]).to_csv(path, index=False)
    return real.natality_2024(path)


def test_births_of_2024_are_coded_as_thirteen_covariates(tmp_path):
    smoker = {"mrace6": 2, "dmar": 2, "sex": "M", "cig_1": 9, "cig_3": 3, "meduc": 3, "precare": 0, "mager": 18}
    frame = births(tmp_path, {}, smoker, {"precare": 5, "meduc": 5}, {"precare": 9, "meduc": 2, "mager": 45})
    assert frame.columns.tolist() == ["WEIGHT", *real.COVARIATES]
    first, second, third, fourth = frame.to_dict("records")
    assert (first["BLACK"], first["MARRIED"], first["BOY"], first["NOSMOKE"], first["COLLGRAD"]) == (0, 1, 0, 1, 1)
    assert (
        first["WEIGHT"] == 3.4
        and first["WTGAIN_s"] == 0.5
        and first["NATAL2"] == first["NATAL3"] == first["NOVISIT"] == 0
    )
    assert (second["BLACK"], second["MARRIED"], second["BOY"], second["NOSMOKE"], second["HSGRAD"]) == (1, 0, 1, 0, 1)
    assert second["CIGAR_s"] == pytest.approx(4 / 98) and second["NOVISIT"] == 1 and second["AGE_s"] == 0
    assert (third["NATAL2"], third["SOMECOLL"]) == (1, 1)
    assert (fourth["NATAL3"], fourth["HSGRAD"], fourth["AGE_s"]) == (1, 0, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"dbwt": 9999}, {"mager": 17}, {"mager": 46}, {"mrace6": 4}, {"dmar": ""}, {"meduc": 9}, {"cig_2": 99},
        {"wtgain": 99}, {"precare": 99}, {"dplural": 2},
    ],
)  # fmt: skip
def test_a_birth_outside_the_sample_is_left_out(tmp_path, change):
    assert len(births(tmp_path, {}, change)) == 1


def test_covariates_lie_in_the_declared_ranges(tmp_path):
    rng = np.random.default_rng(0)
    frame = births(tmp_path, *({"mager": int(a), "wtgain": int(g)} for a, g in rng.integers(18, 46, (50, 2))))
    assert frame[list(real.COVARIATES)].min().min() >= 0 and frame[list(real.COVARIATES)].max().max() <= 1
    assert set(frame.columns) == set(real.NATALITY_SCHEMA)


def test_a_missing_file_names_the_folder_and_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("PGBB_DATA", str(tmp_path))
    with pytest.raises(PgbbError, match=rf"census80\.parquet is not in {tmp_path}.*PGBB_DATA"):
        real.census(1980)
    monkeypatch.delenv("PGBB_DATA")
    with pytest.raises(PgbbError, match="PGBB_DATA is not set"):
        real.natality_1997()


def test_another_csv_is_an_error_in_words(tmp_path):
    path = tmp_path / "other.csv"
    pd.DataFrame({"a": [1]}).to_csv(path, index=False)
    with pytest.raises(PgbbError, match="is not the NBER's natality CSV"):
        real.natality_2024(path)
    with pytest.raises(PgbbError, match="is not there"):
        real.natality_2024(tmp_path / "none.csv")
