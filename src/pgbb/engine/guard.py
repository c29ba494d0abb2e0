"""Guards the calls of a worker: versions are those of the driver, and errors are pgbb's own words.

An engine writes what a task raises, and the task's arguments, into logs: they would quote records.
"""

import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any

from pgbb.engine.protocol import Failed
from pgbb.errors import PgbbError

_PACKAGES = ("pgbb", "jax", "jaxlib", "numpy")


@cache
def versions() -> tuple[str, ...]:
    """Versions, in this process, of the packages that decide the bits of a sum."""
    return tuple(f"{name} {version(name)}" for name in _PACKAGES)


def guarded(who: str, expected: tuple[str, ...], function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns, or a `Failed` with the reason why it returned nothing."""
    odd = [f"{here} and not {there}" for here, there in zip(versions(), expected, strict=True) if here != there]
    if odd:
        return Failed(f"{who} has {', '.join(odd)}. Install the same versions everywhere.")
    try:
        with warnings.catch_warnings(record=True):  # they might quote records
            return function(*args)
    except PgbbError as error:
        return Failed(f"{who}: {error}")
    except Exception as error:
        return Failed(f"{who}: {type(error).__name__}; its message is withheld, as it may quote records.")
