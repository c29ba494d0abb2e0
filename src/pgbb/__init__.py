"""pgbb: private posteriors by the Private Generative Bayesian Bootstrap.

Fit once under a declared (ε, δ), publish one file, draw for ever. Names are imported on first use: reading a release
needs no JAX, and the accountant needs neither JAX nor pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pgbb.errors import InvalidValue, NotCertifiable, PgbbError, PgbbWarning

if TYPE_CHECKING:
    from pgbb.custody.ledger import Ledger
    from pgbb.custody.run import fit
    from pgbb.engine.dask import Cluster
    from pgbb.model.custom import Custom, Simulated
    from pgbb.model.models import (
        IV,
        Expectile,
        HuberRegression,
        LinearRegression,
        LogisticRegression,
        Mean,
        PoissonRegression,
        QuantileRegression,
    )
    from pgbb.model.schema import Date, Flag, Levels, Range, Schema
    from pgbb.private.door import File
    from pgbb.reference.comparison import compare
    from pgbb.reference.example import example
    from pgbb.release.file import Release, combine, load
    from pgbb.release.signing import generate_key

__version__ = "0.1.0"

_NAMES = {
    "custody.ledger": ("Ledger",),
    "custody.run": ("fit",),
    "engine.dask": ("Cluster",),
    "model.custom": ("Custom", "Simulated"),
    "model.models": (
        "Expectile",
        "HuberRegression",
        "IV",
        "LinearRegression",
        "LogisticRegression",
        "Mean",
        "PoissonRegression",
        "QuantileRegression",
    ),
    "model.schema": ("Date", "Flag", "Levels", "Range", "Schema"),
    "private.files": ("File",),
    "reference.comparison": ("compare",),
    "reference.example": ("example",),
    "release.file": ("Release", "combine", "load"),
    "release.signing": ("generate_key",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "IV", "Cluster", "Custom", "Date", "Expectile", "File", "Flag", "HuberRegression", "InvalidValue", "Ledger",
    "Levels", "LinearRegression", "LogisticRegression", "Mean", "NotCertifiable", "PgbbError", "PgbbWarning",
    "PoissonRegression", "QuantileRegression", "Range", "Release", "Schema", "Simulated", "__version__", "combine",
    "compare", "example", "fit", "generate_key", "load",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'pgbb' has no attribute {name!r}")
    value = getattr(import_module(f"pgbb.{_HOME[name]}"), name)
    globals()[name] = value
    return value
