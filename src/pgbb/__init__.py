"""pgbb: private posteriors by the Private Generative Bayesian Bootstrap.

Fit once under a declared (ε, δ), publish one file, draw for ever. Names are
imported on first use: reading a release needs no JAX, and the accountant
needs neither JAX nor pandas.
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

_HOME = {
    "Cluster": "engine.dask",
    "Custom": "model.custom",
    "Expectile": "model.models",
    "File": "private.files",
    "Date": "model.schema",
    "Flag": "model.schema",
    "HuberRegression": "model.models",
    "IV": "model.models",
    "Ledger": "custody.ledger",
    "Levels": "model.schema",
    "LinearRegression": "model.models",
    "LogisticRegression": "model.models",
    "Mean": "model.models",
    "PoissonRegression": "model.models",
    "QuantileRegression": "model.models",
    "Range": "model.schema",
    "Release": "release.file",
    "Schema": "model.schema",
    "Simulated": "model.custom",
    "combine": "release.file",
    "compare": "reference.comparison",
    "example": "reference.example",
    "fit": "custody.run",
    "generate_key": "release.signing",
    "load": "release.file",
}

__all__ = [
    "IV",
    "Cluster",
    "Custom",
    "Date",
    "Expectile",
    "File",
    "Flag",
    "HuberRegression",
    "InvalidValue",
    "Ledger",
    "Levels",
    "LinearRegression",
    "LogisticRegression",
    "Mean",
    "NotCertifiable",
    "PgbbError",
    "PgbbWarning",
    "PoissonRegression",
    "QuantileRegression",
    "Range",
    "Release",
    "Schema",
    "Simulated",
    "__version__",
    "combine",
    "compare",
    "example",
    "fit",
    "generate_key",
    "load",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'pgbb' has no attribute {name!r}")
    value = getattr(import_module(f"pgbb.{_HOME[name]}"), name)
    globals()[name] = value
    return value
