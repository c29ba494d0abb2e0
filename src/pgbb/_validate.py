"""Argument checks that share one voice: field, value given, range allowed, remedy.

Each function returns the value in plain Python form, so that a caller can validate and convert in one line.
"""

import math
import operator
import unicodedata
from typing import SupportsFloat, SupportsIndex, cast

from pgbb.errors import InvalidValue

_LONGEST = 500  # letters of a value in a message
_LARGEST = 2**63  # what arrays count with, and floats hold without overflow


def fail(name: str, value: object, allowed: str, remedy: str = "") -> InvalidValue:
    """The error for `value` given as `name`; the caller raises it."""
    return InvalidValue(f"{name} = {_shown(value)} is not allowed: {name} must be {allowed}. {remedy}".strip())


def _shown(value: object) -> str:
    """The value as Python writes it, cut where nobody would read on."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits than Python writes, or nested too deep
        text = f"this {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def integer(name: str, value: object, *, low: int, high: int | None = None, remedy: str = "") -> int:
    """`value` as an int in [low, high]; 1e4 and True are refused, 10_000 is meant."""
    allowed = f"an integer ≥ {low}" if high is None else f"an integer in [{low}, {high}]"
    if isinstance(value, bool):
        raise fail(name, value, allowed, remedy)
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        hint = remedy
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            hint = f"Write {int(value):_} instead. {remedy}"
        raise fail(name, value, allowed, hint) from None
    if number < low or (high is not None and number > high):
        raise fail(name, value, allowed, remedy)
    if number >= _LARGEST:
        raise fail(name, value, f"{allowed} and below 2⁶³", remedy)
    return number


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    low: float | None = None,
    below: float | None = None,
    high: float | None = None,
    remedy: str = "",
) -> float:
    """`value` as a finite float inside the stated open (above, below) or closed (low, high) ends."""
    left = f"({above:g}" if above is not None else f"[{low:g}" if low is not None else "(-inf"
    right = f"{below:g})" if below is not None else f"{high:g}]" if high is not None else "inf)"
    allowed = f"a finite number in {left}, {right}"
    if isinstance(value, bool | str | bytes):
        raise fail(name, value, allowed, remedy)
    try:
        result = float(cast(SupportsFloat, value))
    except (TypeError, ValueError, OverflowError):
        raise fail(name, value, allowed, remedy) from None
    inside = (
        math.isfinite(result)
        and (above is None or result > above)
        and (low is None or result >= low)
        and (below is None or result < below)
        and (high is None or result <= high)
    )
    if not inside:
        raise fail(name, value, allowed, remedy)
    return result


def integers(instance: object, *names: str, low: int, high: int | None = None, remedy: str = "") -> None:
    """Check these fields of a frozen dataclass, and store them as ints."""
    for name in names:
        store(instance, **{name: integer(name, getattr(instance, name), low=low, high=high, remedy=remedy)})


def numbers(instance: object, *names: str, remedy: str = "", **ends: float) -> None:
    """Check these fields of a frozen dataclass, and store them as floats; the ends are those of `number`."""
    for name in names:
        store(instance, **{name: number(name, getattr(instance, name), remedy=remedy, **ends)})


def store(instance: object, **values: object) -> None:
    """Set fields of a frozen dataclass, which validates itself, to what its checks made of them."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """`value` if it is one of `choices`."""
    if value not in choices:
        raise fail(name, value, "one of " + ", ".join(repr(c) for c in choices))
    return value


def visible(text: str) -> bool:
    """Whether text shows as what it is: no control, bidirectional, separating or surrogate characters.

    Tab and line feed are allowed; the separators of lines and paragraphs, U+2028 and U+2029, are not.
    """
    return text.isprintable() or not any(
        unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069"
        for c in text
        if c not in "\t\n"
    )


def sigma(value: object) -> float:
    """A noise scale: finite and positive."""
    return number("sigma", value, above=0, remedy="It is the standard deviation of the Gaussian noise.")


def clip(value: object) -> float:
    """The largest norm of what a record adds; outside these bounds squares and noise would leave single precision."""
    return number("clip", value, low=1e-12, high=1e12, remedy="Change the unit of the response or of the loss.")


def epsilon(value: object) -> float:
    """A privacy level to aim for: finite and positive."""
    return number("epsilon", value, above=0, remedy="Usual choices lie between 0.1 and 10.")


def level(value: object) -> float:
    """The probability of an interval."""
    return number("level", value, above=0, below=1, remedy="0.95 is usual.")


def delta(value: object) -> float:
    """A failure probability: strictly between 0 and 1."""
    return number("delta", value, above=0, below=1, remedy="Choose it well below 1/n.")
