"""Public knowledge about columns: ranges, flags and levels, declared by a person and never read from records.

Everything that scales, bounds or encodes a record comes from here. A schema is
written in Python or in a TOML file, and travels inside a release.
"""

import json
import operator
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pgbb import _validate
from pgbb.errors import InvalidValue

__all__ = ["Column", "Flag", "Levels", "Range", "Schema", "toml_key"]

_HOW = 'Write { range = [low, high] }, "flag" or { levels = ["base", "other"] }.'


@dataclass(frozen=True, repr=False)
class Range:
    """A numeric column whose values are clamped to [low, high].

    The bounds must be known without the records: from a codebook, the law or common sense.

    Args:
      low, high: the bounds.
      step: distance of neighbouring values, where the column is counted or rounded: 1 for whole numbers. A quantile of
        a response with a step is that of the response spread evenly over half a step to either side, as in
        Machado and Santos Silva (2005): a smooth target, where a quantile of few values jumps.

    >>> Range(5, 20), Range(0, 52, step=1)
    (Range(5, 20), Range(0, 52, step=1))
    """

    low: float
    high: float
    step: float | None = None

    def __post_init__(self) -> None:
        low = _validate.number("low", self.low, remedy="Declare a public lower bound.")
        high = _validate.number("high", self.high, remedy="Declare a public upper bound.")
        if not low < high:
            raise InvalidValue(
                f"Range({_plain(low)}, {_plain(high)}) is not allowed: low must be below high. "
                "Swap or widen the bounds; leave out a column that never varies."
            )
        if max(abs(low), abs(high)) > 1e30:
            raise InvalidValue(
                f"Range({low}, {high}) is not allowed: bounds must lie within ±1e30, which single precision holds. "
                "Declare narrower bounds, or change the unit."
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if self.step is not None:
            step = _validate.number("step", self.step, above=0, remedy="Declare the distance of neighbouring values.")
            if step > high - low:
                raise _validate.fail("step", step, f"no more than the width of the range, {_plain(high - low)}")
            object.__setattr__(self, "step", step)

    @property
    def bounds(self) -> tuple[float, float]:
        """(low, high)."""
        return self.low, self.high

    def __repr__(self) -> str:
        step = "" if self.step is None else f", step={_plain(self.step)}"
        return f"Range({_plain(self.low)}, {_plain(self.high)}{step})"


@dataclass(frozen=True)
class Flag:
    """A column of 0 and 1, or of False and True.

    >>> Flag().bounds
    (0.0, 1.0)
    """

    @property
    def bounds(self) -> tuple[float, float]:
        """(0, 1)."""
        return 0.0, 1.0


@dataclass(frozen=True, init=False, repr=False)
class Levels:
    """A categorical column: at least two distinct strings or integers, of which the first is the base of dummies.

    >>> Levels("north", "south", "west").base
    'north'
    """

    levels: tuple[str | int, ...]

    def __init__(self, *levels: str | int) -> None:
        allowed = "at least two distinct strings or integers, the base level first"
        plain: list[str | int] = []
        for level in levels:
            if isinstance(level, str):
                if not _validate.visible(level):
                    raise _validate.fail("levels", levels, f"{allowed}, without control characters")
                plain.append(level)
                continue
            if isinstance(level, bool):
                raise _validate.fail("levels", levels, allowed, "Declare a column of False and True as a Flag().")
            try:
                plain.append(operator.index(level))
            except TypeError:
                remedy = "Pass Levels(*names) to unpack a list." if len(levels) == 1 else ""
                raise _validate.fail("levels", levels, allowed, remedy) from None
        if len(plain) < 2 or len({str(level) for level in plain}) < len(plain):
            raise _validate.fail("levels", levels, allowed, 'A level 1 and a level "1" count as the same.')
        object.__setattr__(self, "levels", tuple(plain))

    @property
    def base(self) -> str | int:
        """The first level, which has no dummy in a model with an intercept."""
        return self.levels[0]

    def __repr__(self) -> str:
        return f"Levels({', '.join(map(repr, self.levels))})"


Column = Range | Flag | Levels


class Schema(Mapping[str, Column]):
    """The declared columns, by name; immutable, and equal when the declarations are.

    >>> schema = Schema(educ=Range(5, 20), black=Flag(), region=Levels("north", "south"))
    >>> schema["educ"], "age" in schema, list(schema)
    (Range(5, 20), False, ['educ', 'black', 'region'])
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    __slots__ = ("_columns",)
    _columns: dict[str, Column]

    def __init__(self, /, **columns: Column) -> None:
        for name, column in columns.items():
            if not name or name != name.strip() or not _validate.visible(name):
                raise _validate.fail("column name", name, "text without spaces at its ends and control characters")
            if not isinstance(column, Range | Flag | Levels):
                raise _validate.fail(f"column {name!r}", column, "Range(low, high), Flag() or Levels(base, other, ...)")
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> Column:
        try:
            return self._columns[name]
        except KeyError:
            raise KeyError(
                f"{name!r} is not declared; the schema has {', '.join(self._columns) or 'no columns'}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __hash__(self) -> int:
        return hash(frozenset(self._columns.items()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}={c!r}" if n.isidentifier() else f"**{{{n!r}: {c!r}}}" for n, c in self.items())
        return f"Schema({inside})"

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Schema":
        """The schema that `to_dict` wrote.

        >>> Schema.from_dict({"columns": {"black": "flag", "educ": {"range": [5, 20]}}})
        Schema(black=Flag(), educ=Range(5, 20))
        """
        if not isinstance(data, Mapping):
            raise _validate.fail("schema", data, "a table with one key, columns")
        unknown = [key for key in data if key != "columns"]
        if unknown or "columns" not in data:
            raise _validate.fail(
                "schema",
                sorted(map(str, data)),
                "a table with one key, columns",
                "Put each declaration under [columns].",
            )
        columns = data["columns"]
        if not isinstance(columns, Mapping):
            raise _validate.fail("columns", columns, "a table of column declarations", _HOW)
        for name in columns:
            if not isinstance(name, str):
                raise _validate.fail("column name", name, "text")
        return cls(**{name: _column(name, value) for name, value in columns.items()})

    def to_dict(self) -> dict[str, object]:
        """Plain lists, numbers and strings, ready for JSON."""
        return {"columns": self._declarations()}

    def _declarations(self) -> dict[str, str | dict[str, float | list[float] | list[str | int]]]:
        return {name: _declaration(column) for name, column in self.items()}

    @classmethod
    def from_toml(cls, path: str | Path) -> "Schema":
        """Read a file such as::

        [columns]
        educ = { range = [5, 20] }
        weeks = { range = [0, 52], step = 1 }
        black = "flag"
        region = { levels = ["north", "south"] }
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:  # the latter: not UTF-8, or a path with a null character
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise InvalidValue(
                f"schema file {str(path)!r} cannot be read: {why}. Give the path of a TOML file with a [columns] table."
            ) from None
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(
                f"schema file {str(path)!r} is not valid TOML: {error}. Give each column a line under [columns]. {_HOW}"
            ) from None
        try:
            return cls.from_dict(data)
        except InvalidValue as error:
            raise InvalidValue(f"schema file {str(path)!r}: {error}") from None

    def to_toml(self) -> str:
        """The text of a file that `from_toml` reads.

        >>> print(Schema(educ=Range(5, 20), black=Flag()).to_toml())
        [columns]
        educ = { range = [5, 20] }
        black = "flag"
        <BLANKLINE>
        """
        lines = ["[columns]"]
        for name, value in self._declarations().items():
            if isinstance(value, str):
                text = _quote(value)
            else:
                parts = []
                for key, items in value.items():
                    many = items if isinstance(items, list) else [items]
                    plain = ", ".join(_quote(i) if isinstance(i, str) else repr(i) for i in many)
                    parts.append(f"{key} = [{plain}]" if isinstance(items, list) else f"{key} = {plain}")
                text = f"{{ {', '.join(parts)} }}"
            lines.append(f"{toml_key(name)} = {text}")
        return "\n".join(lines) + "\n"


def _plain(value: float) -> int | float:
    """5.0 as 5, so that a person reads back what a person wrote."""
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def _quote(text: str) -> str:
    """A TOML basic string; JSON escapes are a subset of its escapes, once non-ASCII text is left as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """A column name as a key of a TOML table, quoted where it must be."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else _quote(name)


def _declaration(column: Column) -> str | dict[str, float | list[float] | list[str | int]]:
    if isinstance(column, Range):
        step = {} if column.step is None else {"step": _plain(column.step)}
        return {"range": [_plain(column.low), _plain(column.high)], **step}
    return "flag" if isinstance(column, Flag) else {"levels": list(column.levels)}


def _column(name: str, value: object) -> Column:
    what = f"column {name!r}"
    if value == "flag":
        return Flag()
    if not isinstance(value, Mapping) or set(value) not in ({"range"}, {"levels"}, {"range", "step"}):
        raise _validate.fail(what, value, "a range, a flag or levels", _HOW)
    key = "range" if "range" in value else "levels"
    items = value[key]
    if not isinstance(items, list | tuple) or (key == "range" and len(items) != 2):
        shape = "[low, high]" if key == "range" else "a list of strings or integers"
        raise _validate.fail(f"{key} of {what}", items, shape, _HOW)
    try:
        return Range(items[0], items[1], value.get("step")) if key == "range" else Levels(*items)
    except InvalidValue as error:
        raise InvalidValue(f"{what}: {error}") from None
