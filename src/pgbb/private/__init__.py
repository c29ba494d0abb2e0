"""The only package that reads records. What it holds is private until `mechanism` has added noise."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgbb.private.records import NonPrivateRecords, Records, load

__all__ = ["NonPrivateRecords", "Records", "load"]


def __getattr__(name: str) -> Any:
    """Import `records`, and pandas with it, on first use: the mechanism runs where only numpy and JAX are installed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pgbb.private import records

    return getattr(records, name)
