"""Public data from outside the repository: the census extracts and the natality files, in the folder PGBB_DATA."""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from pgbb.errors import PgbbError
from pgbb.model.schema import Flag, Range, Schema

__all__ = ["COVARIATES", "NATALITY_SCHEMA", "census", "data_file", "natality_1997", "natality_2024"]

COVARIATES = (
    "BLACK", "MARRIED", "BOY", "AGE_s", "NOSMOKE", "CIGAR_s", "WTGAIN_s", "NOVISIT", "NATAL2", "NATAL3", "HSGRAD",
    "SOMECOLL", "COLLGRAD",
)  # fmt: skip
"""Of the paper's birth-weight regression; the reference mother has care from the first trimester and no diploma."""

AGE, CIGARETTES, GAIN = (18.0, 45.0), (0.0, 98.0), (0.0, 98.0)
"""Public ranges of the coding: the sample's ages, and the largest values that the certificate codes."""

NATALITY_SCHEMA = Schema(
    WEIGHT=Range(0.2, 8.0), **{name: Range(0, 1) if name.endswith("_s") else Flag() for name in COVARIATES}
)
"""WEIGHT in kilograms; scaled covariates are (value − low)/(high − low) by their public range, in [0, 1]."""


def data_file(name: str) -> Path:
    """A file of the folder named by PGBB_DATA."""
    where = os.environ.get("PGBB_DATA")
    if where is None:
        raise PgbbError(f"{name} is needed, and PGBB_DATA is not set: set it to the folder that holds {name}.")
    path = Path(where) / name
    if not path.is_file():
        raise PgbbError(f"{name} is not in {where}: set PGBB_DATA to the folder that holds {name}.")
    return path


def census(year: int) -> pd.DataFrame:
    """The extract of Angrist, Chernozhukov and Fernández-Val (2006) for 1980 or 2000."""
    columns = ["logwk", "educ", "exper", "black"]
    return pd.read_parquet(data_file(f"census{year % 100:02}.parquet"), columns=columns)


def _coded(
    weight: np.ndarray, black: np.ndarray, married: np.ndarray, boy: np.ndarray, age: np.ndarray,
    cigarettes: np.ndarray, smokes: np.ndarray, gain: np.ndarray, care: np.ndarray, school: np.ndarray,
) -> pd.DataFrame:  # fmt: skip
    """The thirteen covariates.

    `care` is the trimester in which care began, 0 for none; `school` is 0 below a diploma, 1 high school, 2 some
    college, 3 college.
    """

    def unit(values: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
        return (np.clip(values, *ends) - ends[0]) / (ends[1] - ends[0])

    columns = {
        "WEIGHT": weight / 1000,
        "BLACK": black,
        "MARRIED": married,
        "BOY": boy,
        "AGE_s": unit(age, AGE),
        "NOSMOKE": ~smokes,
        "CIGAR_s": unit(cigarettes, CIGARETTES),
        "WTGAIN_s": unit(gain, GAIN),
        "NOVISIT": care == 0,
        "NATAL2": care == 2,
        "NATAL3": care == 3,
        "HSGRAD": school == 1,
        "SOMECOLL": school == 2,
        "COLLGRAD": school == 3,
    }
    return pd.DataFrame({k: v.astype(np.int8) if v.dtype == bool else v for k, v in columns.items()})


def natality_1997() -> pd.DataFrame:
    """50,000 births of June 1997: another year and size than the paper's, not a replication."""
    raw = pd.read_parquet(data_file("bweight_1997_sashelp.parquet"))
    visit = raw["Visit"].to_numpy()  # 0 none, 1 second, 2 last, 3 first trimester
    level = raw["MomEdLevel"].to_numpy()  # 0 high school, 1 some college, 2 college, 3 less than high school
    return _coded(
        weight=raw["Weight"].to_numpy(),
        black=raw["Black"].to_numpy() == 1,
        married=raw["Married"].to_numpy() == 1,
        boy=raw["Boy"].to_numpy() == 1,
        age=raw["MomAge"].to_numpy() + 27.0,
        cigarettes=raw["CigsPerDay"].to_numpy(float),
        smokes=raw["MomSmoke"].to_numpy() == 1,
        gain=raw["MomWtGain"].to_numpy() + 30.0,
        care=np.array([0, 2, 3, 1])[visit],
        school=np.array([1, 2, 3, 0])[level],
    )


_NBER = {
    "dbwt": "int32", "mager": "int32", "mrace6": "int32", "dmar": "int32", "meduc": "int32", "sex": "string",
    "cig_1": "int32", "cig_2": "int32", "cig_3": "int32", "wtgain": "int32", "precare": "int32",
    "dplural": "int32",
}  # fmt: skip


def natality_2024(path: str | Path) -> pd.DataFrame:
    """Births of 2024 from the NBER's CSV: singletons, black or white mothers aged 18 to 45, complete cases.

    Only the columns that are needed are read. Cigarettes are the daily mean over the three trimesters; a mother smokes
    if it is positive. Codes for unknown (9999 grams, 99 pounds or cigarettes or months, education 9) drop the record.
    """
    from pyarrow import ArrowInvalid
    from pyarrow import csv as arrow

    options = arrow.ConvertOptions(include_columns=list(_NBER), column_types=_NBER, null_values=["", " ", "  "])
    try:
        raw = arrow.read_csv(path, convert_options=options).to_pandas()
    except FileNotFoundError:
        raise PgbbError(f"{path} is not there: give the NBER's natality CSV of 2024.") from None
    except (KeyError, ArrowInvalid) as error:
        raise PgbbError(f"{path} is not the NBER's natality CSV of 2024: {error}") from None
    smoked = [raw[f"cig_{t}"] for t in (1, 2, 3)]
    keep = (raw["dplural"] == 1) & raw["mrace6"].isin([1, 2]) & raw["mager"].between(*AGE)
    keep &= raw["dbwt"].between(200, 8000) & raw["dmar"].isin([1, 2]) & raw["sex"].isin(["M", "F"])
    keep &= raw["meduc"].between(1, 8) & raw["wtgain"].between(0, 98) & raw["precare"].between(0, 10)
    for column in smoked:
        keep &= column.between(0, 98)
    kept = raw[keep.fillna(False).to_numpy(bool)]
    cigarettes = kept[["cig_1", "cig_2", "cig_3"]].to_numpy(float).mean(axis=1)
    month = kept["precare"].to_numpy(int)
    degree = kept["meduc"].to_numpy(int)
    return _coded(
        weight=kept["dbwt"].to_numpy(),
        black=kept["mrace6"].to_numpy() == 2,
        married=kept["dmar"].to_numpy() == 1,
        boy=kept["sex"].to_numpy() == "M",
        age=kept["mager"].to_numpy(float),
        cigarettes=cigarettes,
        smokes=cigarettes > 0,
        gain=kept["wtgain"].to_numpy(float),
        care=np.where(month == 0, 0, np.minimum((month - 1) // 3 + 1, 3)),
        school=np.select([degree <= 2, degree == 3, degree <= 5], [0, 1, 2], 3),
    )
