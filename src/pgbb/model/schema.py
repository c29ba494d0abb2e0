"""Public knowledge about columns: ranges, flags and levels, declared by a person and never read from records.

Everything that scales, bounds or encodes a record comes from here. A schema is written in Python or in a TOML file, and
travels inside a release.
"""

import json
import operator
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias, cast

from pgbb import _validate
from pgbb.errors import InvalidValue

_HOW = (
    'Write { range = [low, high] }, "flag", { levels = ["base", "other"] } or { date = ["2000-01-01", "2020-12-31"] }.'
)
_YEAR = 365.2425  # days


def decimal_year(day: date) -> float:
    """A day as a number of years, such as 2020.5."""
    return 1970 + (day.toordinal() - date(1970, 1, 1).toordinal()) / _YEAR


def _words(name: str, given: object) -> str:
    """A label or unit: one line of visible text, or nothing."""
    if not isinstance(given, str) or given != given.strip() or not _validate.visible(given) or "\n" in given:
        raise _validate.fail(name, given, "one line of visible text")
    return given


def _describe(column: "Range | Flag | Levels") -> None:
    _words("label", column.label)
    _words("unit", getattr(column, "unit", ""))


@dataclass(frozen=True, repr=False)
class Range:
    """A numeric column whose values are clamped to [low, high].

    The bounds must be known without the records: from a codebook, the law or common sense.

    Args:
      low, high: the bounds.
      step: distance of neighbouring values, where the column is counted or rounded: 1 for whole numbers. A quantile of
        a response with a step is that of the response spread evenly over half a step to either side, as in
        Machado and Santos Silva (2005): a smooth target, where a quantile of few values jumps. With step=1 and whole
        bounds a cell between two whole numbers counts as the nearer one.
      label, unit: for the reader of a page or a figure, such as "schooling" and "years".

    >>> Range(5, 20), Range(0, 52, step=1)
    (Range(5, 20), Range(0, 52, step=1))
    """

    low: float
    high: float
    step: float | None = None
    label: str = field(default="", kw_only=True)
    unit: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        _describe(self)
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
        if high - low < max(1e-30, 1e-6 * max(abs(low), abs(high))):
            raise InvalidValue(
                f"Range({low!r}, {high!r}) is not allowed: it must be 1e-30 wide, and a millionth of its larger bound, "
                "or single precision does not tell its values apart. Subtract a public number, or change the unit."
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

    @property
    def whole(self) -> bool:
        """Whether its values are declared to be whole numbers."""
        return self.step == 1 and all(end.is_integer() and abs(end) <= 2**52 for end in self.bounds)

    def __repr__(self) -> str:
        step = "" if self.step is None else f", step={_plain(self.step)}"
        return f"Range({_plain(self.low)}, {_plain(self.high)}{step})"


@dataclass(frozen=True, repr=False)
class Date(Range):
    """A column of days between two days, which are read as years: 2020-07-01 is 2020.5. Text is written 2020-07-01.

    >>> Date("2000-01-01", "2020-12-31")
    Date('2000-01-01', '2020-12-31')
    """

    low: float
    high: float
    days: tuple[str, str] = field(default=("", ""), init=False, compare=False)

    def __post_init__(self) -> None:
        given: tuple[object, object] = self.low, self.high
        try:
            ends = [day if isinstance(day, date) else date.fromisoformat(str(day)) for day in given]
        except ValueError:
            raise _validate.fail("date", given, "two days such as '2000-01-01', '2020-12-31'") from None
        if self.step is not None:
            raise _validate.fail("step", self.step, "None for a Date")
        object.__setattr__(self, "days", tuple(date(d.year, d.month, d.day).isoformat() for d in ends))
        for name, day in zip(("low", "high"), ends, strict=True):
            object.__setattr__(self, name, decimal_year(day))
        super().__post_init__()

    def __repr__(self) -> str:
        return f"Date({self.days[0]!r}, {self.days[1]!r})"


@dataclass(frozen=True, repr=False)
class Flag:
    """A column of 0 and 1, or of False and True; or of two words, that for 0 first.

    >>> Flag().bounds, Flag("no", "yes")
    ((0.0, 1.0), Flag('no', 'yes'))
    """

    no: str | None = None
    yes: str | None = None
    label: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        _describe(self)
        if (self.no is None) != (self.yes is None):
            raise _validate.fail("flag", (self.no, self.yes), "no words, or two: that for 0 and that for 1")
        if self.no is not None:
            Levels(self.no, self.yes or "")  # two different words

    @property
    def words(self) -> tuple[str, str] | None:
        """The words for 0 and 1, where the column has words."""
        return None if self.no is None or self.yes is None else (self.no, self.yes)

    def __repr__(self) -> str:
        return "Flag()" if self.words is None else f"Flag({self.no!r}, {self.yes!r})"

    @property
    def bounds(self) -> tuple[float, float]:
        """(0, 1)."""
        return 0.0, 1.0


@dataclass(frozen=True, init=False, repr=False)
class Levels:
    """A categorical column: at least two distinct strings or integers, of which the first is the base of dummies.

    Args:
      levels: the categories.
      missing: the level that a missing cell counts as; it comes last if it is none of the others. Without it, a record
        with a missing cell contributes nothing. A cell of an undeclared level is not missing.
      label: for the reader of a page or a figure.

    >>> Levels("north", "south", "west").base
    'north'
    >>> Levels("yes", "no", missing="no answer").levels
    ('yes', 'no', 'no answer')
    """

    levels: tuple[str | int, ...]
    missing: str | int | None
    label: str

    def __init__(self, *levels: str | int, missing: str | int | None = None, label: str = "") -> None:
        object.__setattr__(self, "label", _words("label", label))
        if missing is not None and str(missing) not in map(str, levels):
            levels = (*levels, missing)
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
        same = [level for level in plain if str(level) == str(missing)]
        object.__setattr__(self, "missing", same[0] if same and missing is not None else None)

    @property
    def base(self) -> str | int:
        """The first level, which has no dummy in a model with an intercept."""
        return self.levels[0]

    def __repr__(self) -> str:
        missing = [] if self.missing is None else [f"missing={self.missing!r}"]
        return f"Levels({', '.join([*map(repr, self.levels), *missing])})"


Column = Range | Flag | Levels
Declaration: TypeAlias = dict[str, float | str | list[float] | list[str] | list[str | int]]
_EXTRAS = {"range": ("step", "label", "unit"), "date": ("label",), "flag": ("label",), "levels": ("missing", "label")}


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

    def __hash__(self) -> int:
        return hash(frozenset(self._columns.items()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}={c!r}" if n.isidentifier() else f"**{{{n!r}: {c!r}}}" for n, c in self.items())
        return f"Schema({inside})"

    def meaning(self, name: str) -> str:
        """The label and unit of a column, for a reader; empty where it has none.

        >>> Schema(educ=Range(5, 20, label="schooling", unit="years")).meaning("educ")
        'schooling (years)'
        """
        column = self._columns.get(name)
        label, unit = getattr(column, "label", ""), getattr(column, "unit", "")
        return f"{label or name} ({unit})" if unit else str(label)

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

    def _declarations(self) -> dict[str, str | Declaration]:
        return {name: _declaration(column) for name, column in self.items()}

    @classmethod
    def from_toml(cls, path: str | Path) -> "Schema":
        """Read a file such as::

        [columns]
        educ = { range = [5, 20] }
        weeks = { range = [0, 52], step = 1 }
        black = "flag"
        region = { levels = ["north", "south"], missing = "unknown", label = "region of birth" }
        union = { flag = ["no", "yes"] }
        born = { date = ["1950-01-01", "2000-12-31"] }
        wage = { range = [0, 5000], label = "weekly wage", unit = "$" }
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


def _declaration(column: Column) -> str | Declaration:
    about: Declaration = {n: v for n in ("label", "unit") if (v := getattr(column, n, ""))}
    if isinstance(column, Date):
        return {"date": list(column.days), **about}
    if isinstance(column, Range):
        step: Declaration = {} if column.step is None else {"step": _plain(column.step)}
        return {"range": [_plain(column.low), _plain(column.high)], **step, **about}
    if isinstance(column, Flag):
        return "flag" if column.words is None and not about else {"flag": list(column.words or ()), **about}
    missing: Declaration = {} if column.missing is None else {"missing": column.missing}
    return {"levels": list(column.levels), **missing, **about}


def _column(name: str, value: object) -> Column:
    what = f"column {name!r}"
    if value == "flag":
        return Flag()
    keys = [key for key in ("range", "date", "flag", "levels") if isinstance(value, Mapping) and key in value]
    if not isinstance(value, Mapping) or len(keys) != 1 or not set(value) <= {*keys, *_EXTRAS[keys[0]]}:
        raise _validate.fail(what, value, "a range, a flag, levels or a date", _HOW)
    key, items = keys[0], value[keys[0]]
    wanted = {"range": (2,), "date": (2,), "flag": (0, 2)}.get(key)
    if not isinstance(items, list | tuple) or (wanted and len(items) not in wanted):
        shape = {"range": "[low, high]", "date": "[first, last]", "flag": '["no", "yes"]'}
        raise _validate.fail(f"{key} of {what}", items, shape.get(key, "a list of strings or integers"), _HOW)
    about = {name: value[name] for name in value if name != key}
    kinds: dict[str, Any] = {"range": Range, "date": Date, "flag": Flag, "levels": Levels}
    try:
        return cast(Column, kinds[key](*items, **about))
    except InvalidValue as error:
        raise InvalidValue(f"{what}: {error}") from None
