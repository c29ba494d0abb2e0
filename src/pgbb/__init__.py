"""pgbb: private posteriors by the Private Generative Bayesian Bootstrap.

Fit once under a declared (ε, δ), publish one file, draw for ever. Names are
imported on first use: reading a release needs no JAX, and the accountant
needs neither JAX nor pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pgbb.errors import InvalidValue, NotCertifiable, PgbbError, PgbbWarning

if TYPE_CHECKING:
    from pgbb.comparison import compare
    from pgbb.fitting import fit
    from pgbb.hosts import Hosts
    from pgbb.ledger import Ledger
    from pgbb.models import Custom, HuberRegression, LogisticRegression, Mean, QuantileRegression
    from pgbb.release import Release, generate_key, load
    from pgbb.schema import Flag, Levels, Range, Schema

__version__ = "0.1.0"

_HOME = {
    "Custom": "models",
    "Flag": "schema",
    "Hosts": "hosts",
    "HuberRegression": "models",
    "Ledger": "ledger",
    "Levels": "schema",
    "LogisticRegression": "models",
    "Mean": "models",
    "QuantileRegression": "models",
    "Range": "schema",
    "Release": "release",
    "Schema": "schema",
    "compare": "comparison",
    "fit": "fitting",
    "generate_key": "release",
    "load": "release",
}

__all__ = [
    "Custom",
    "Flag",
    "Hosts",
    "HuberRegression",
    "InvalidValue",
    "Ledger",
    "Levels",
    "LogisticRegression",
    "Mean",
    "NotCertifiable",
    "PgbbError",
    "PgbbWarning",
    "QuantileRegression",
    "Range",
    "Release",
    "Schema",
    "__version__",
    "compare",
    "fit",
    "generate_key",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pgbb' has no attribute {name!r}")
    value = getattr(import_module(f"pgbb.{_HOME[name]}"), name)
    globals()[name] = value
    return value
