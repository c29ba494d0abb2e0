"""The figures printed in the paper, as data. Nothing here is computed; README.md names the table of each file."""

from functools import lru_cache
from importlib.resources import files

import pandas as pd

__all__ = ["TABLES", "lookup", "table"]

TABLES: dict[str, tuple[str, int]] = {
    "linreg_summary": ("Table S2", 48),
    "linreg_beta1": ("Table S3", 48),
    "linreg_beta2": ("Table S4", 48),
    "linreg_beta3": ("Table S5", 48),
    "k_comparison": ("Table S6", 24),
    "ess": ("Table S7", 18),
    "census": ("Table S8", 36),
    "natality": ("Table S9", 78),
    "method_comparison": ("Table S1", 8),
}
"""File, its label in the paper and its number of rows."""


@lru_cache
def _read(name: str) -> pd.DataFrame:
    with files(__name__).joinpath(f"{name}.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def table(name: str) -> pd.DataFrame:
    """One printed table.

    >>> table("k_comparison").columns.tolist()
    ['noise', 'n', 'epsilon', 'K', 'mae', 'mae_se', 'coverage', 'width', 'width_se']
    """
    return _read(name).copy()


def lookup(name: str, **where: object) -> dict[str, float]:
    """The one row of a table that has these values; empty where the paper prints none.

    >>> found = lookup("linreg_summary", epsilon=1, n=10_000, method="PGBB", noise="student_t")
    >>> found["mae"], found["coverage"]
    (0.016, 0.987)
    """
    rows = _read(name)
    for key, value in where.items():
        rows = rows[rows[key] == value]
    if len(rows) != 1:
        return {}
    return {str(k): float(v) for k, v in rows.iloc[0].items() if isinstance(v, int | float) or hasattr(v, "dtype")}
