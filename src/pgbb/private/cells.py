"""From stored cells to numbers: the one place where a cell is read.

What becomes of a cell depends on that cell, on the type it is stored under and on
the declared column: never on another cell. A cell that cannot be read voids its
own record, and nothing is raised, warned of or refused on its account; what a type
cannot hold is refused by `refusal`, from the type alone. No file is opened here.
"""

import datetime
import decimal
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from pgbb._numerics import Bools, Floats
from pgbb.model.schema import Column, Date, Flag, Levels, Range, decimal_year

Array: TypeAlias = np.ndarray
"""Cells as they are stored, of any type."""


@dataclass(frozen=True, eq=False)
class Coded:
    """Cells that are stored as places in a table of distinct ones.

    Attributes:
      which: (n,) place of each cell in the table; −1 where it is missing.
      distinct: the table.
    """

    which: NDArray[np.int64]
    distinct: Array

    def __len__(self) -> int:
        return len(self.which)

    def spread(self) -> Array:
        """The cells one by one."""
        table = np.full(len(self.distinct) + 1, None, dtype=object)
        table[:-1] = self.distinct
        table[:-1][np.ma.getmaskarray(self.distinct)] = None
        return np.asarray(table[self.which])


@dataclass(frozen=True, eq=False)
class Text:
    """Text of a file without types, to be read as numbers: an array of str, NaN where a line is too short."""

    cells: Array

    def __len__(self) -> int:
        return len(self.cells)


Held: TypeAlias = Array | Coded
Cells: TypeAlias = Held | Text
"""An array of NumPy, which may be masked or hold Python objects; cells by their place in a table; text of a file."""


@dataclass(frozen=True)
class Kind:
    """What a stored type can hold; public.

    Attributes:
      name: for messages.
      numbers: whether a Range or Flag may be read from it.
      levels: whether Levels may.
    """

    name: str
    numbers: bool
    levels: bool

    @property
    def word(self) -> str:
        """The type as "number", "flag" or "text"; empty where it may be any of them, or is none."""
        known = {"bool": "flag", "cell": "", "null": ""}
        text = self.name.startswith(("str", "large_string", "dictionary"))
        return "text" if text else known.get(self.name, "number" if self.numbers else "")


def refusal(kind: Kind, column: Column) -> str | None:
    """Why the column cannot hold what is declared; decided by its stored type alone."""
    if isinstance(column, Levels | Date) or (isinstance(column, Flag) and column.words is not None):
        return (
            None
            if kind.levels
            else f"has dtype {kind.name}, but is declared as {column!r} and must be text, codes or days"
        )
    return None if kind.numbers else f"has dtype {kind.name}, but is declared as {column!r} and must be numeric"


def numpy_kind(dtype: np.dtype[Any]) -> Kind:
    """What an array of NumPy holds: one cell of a list makes it complex, text or objects, so these hold numbers too."""
    return Kind(str(dtype), dtype.kind in "biufcOUS", dtype.kind in "biufcOUSTMm")


def arrow_kind(kind: pa.DataType) -> Kind:
    """What an Arrow array holds; an extension type holds what its storage does, and runs what their values do."""
    types, name = pa.types, str(kind)
    if isinstance(kind, pa.BaseExtensionType):
        inner = arrow_kind(kind.storage_type)
        ours = not kind.extension_name.startswith("pandas.")  # their storage is not what they mean
        return Kind(name, inner.numbers and ours, inner.levels and ours)
    if types.is_run_end_encoded(kind):
        return replace(arrow_kind(kind.value_type), name=name)
    if types.is_dictionary(kind):
        return Kind(name, False, arrow_kind(kind.value_type).levels)
    number = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    number = number or types.is_null(kind)
    return Kind(name, number, number or _is_text(kind) or (types.is_temporal(kind) and not types.is_interval(kind)))


def _is_text(kind: pa.DataType) -> bool:
    tests = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "fixed_size_binary")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


@np.errstate(all="ignore")  # a signalling NaN or a long double would be warned of
def as_cells(array: "Array | pa.Array | pa.ChunkedArray") -> Held:
    """An array in the form that `encode` reads; which form depends on its type alone."""
    return _of_arrow(array) if isinstance(array, pa.Array | pa.ChunkedArray) else _of_numpy(array)


def _of_numpy(array: Array) -> Held:
    kind = array.dtype.kind
    if kind == "c":
        real = np.where(array.imag == 0, array.real, np.nan)
        return np.ma.MaskedArray(real, np.ma.getmaskarray(array)) if isinstance(array, np.ma.MaskedArray) else real
    if kind in "Mm":
        hidden = np.ma.getmaskarray(array)
        which, places_of = pd.factorize(np.asarray(array).astype(np.int64))
        unit = array.dtype
        distinct = np.fromiter((np.array(v).astype(unit)[()] for v in places_of), dtype=object, count=len(places_of))
        return Coded(np.where(hidden, -1, which), distinct)
    if kind in "UST":
        found = np.ma.getmaskarray(array)
        objects = _points(np.asarray(array)) if kind == "U" else np.asarray(array).astype(object)
        return np.ma.MaskedArray(objects, found) if found.any() else objects
    if array.dtype.kind == "f" and array.dtype.itemsize not in (2, 4, 8):
        return array.astype(np.float64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _points(array: NDArray[np.str_]) -> Array:
    """Text as objects; None where a number is no character, of which Python makes no text."""
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
    wrong = (native.view(np.uint32).reshape(len(native), -1) > sys.maxunicode).any(axis=1)
    native = np.where(wrong, np.str_(), native)
    objects = native.astype(object)
    objects[wrong] = None
    return objects


def _of_arrow(array: "pa.Array | pa.ChunkedArray") -> Held:
    types = pa.types
    if isinstance(array, pa.ChunkedArray):
        return _of_chunks(array)
    if isinstance(array.type, pa.BaseExtensionType):
        return _of_arrow(array.storage)
    if types.is_run_end_encoded(array.type):
        runs = np.searchsorted(array.run_ends.to_numpy(), np.arange(len(array)) + array.offset, side="right")
        return _placed(runs, _of_arrow(array.values))
    if types.is_dictionary(array.type):
        return _placed(_indices(array), _of_arrow(array.dictionary))
    if types.is_null(array.type):
        return np.full(len(array), np.nan)
    if types.is_boolean(array.type) or types.is_integer(array.type) or types.is_floating(array.type):
        values = array
        if array.null_count:
            values = array.fill_null(False if types.is_boolean(array.type) else 0)
        numbers = values.to_numpy(zero_copy_only=False)
        if not array.null_count:
            return np.asarray(numbers)
        return np.ma.MaskedArray(numbers, array.is_null().to_numpy(zero_copy_only=False))
    if _is_text(array.type):
        array = array.cast(pa.large_binary())  # bytes as they are: what is not UTF-8 is seen cell by cell
    elif types.is_decimal(array.type) and array.type.bit_width < 128:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    found = array.dictionary_encode()
    distinct = np.fromiter((readable(v.as_py) for v in found.dictionary), dtype=object, count=len(found.dictionary))
    return Coded(_indices(found), distinct)


def _of_chunks(array: pa.ChunkedArray) -> Held:
    """One array of several. Each keeps its table: what is in them decides whether Arrow can join them."""
    kind = array.type
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if array.num_chunks == 1 or not (pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)):
        whole = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(whole, pa.ChunkedArray):  # more text than one array holds
            whole = pa.concat_arrays([chunk.cast(pa.large_binary()) for chunk in whole.chunks])
        return _of_arrow(whole)
    parts = [found for chunk in array.chunks if isinstance(found := _of_arrow(chunk), Coded)]
    starts = np.cumsum([0, *(len(part.distinct) for part in parts)])
    places = [np.where(p.which < 0, -1, p.which + start) for p, start in zip(parts, starts[:-1], strict=True)]
    tables = np.ma.concatenate([part.distinct for part in parts])  # type: ignore[no-untyped-call]
    return Coded(np.concatenate(places), tables)


def _placed(which: NDArray[np.int64], table: Held) -> Coded:
    """Cells by their places in a table; a place that it does not have is that of a missing cell."""
    distinct = table.spread() if isinstance(table, Coded) else table
    return Coded(np.where((which >= 0) & (which < len(distinct)), which, -1), distinct)


def _indices(array: pa.DictionaryArray) -> NDArray[np.int64]:
    indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    indices[array.indices.is_null().to_numpy(zero_copy_only=False)] = -1
    return indices


class _Unreadable:
    """Stands for a cell that its reader cannot turn into a Python object."""


def readable(read: Callable[[], object]) -> object:
    """The cell that `read` makes, or one that cannot be read: a date after the year 9999, for one."""
    try:
        return read()
    except Exception:
        return _Unreadable()


# Encoding ------------------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def encode(cells: Cells, column: Column, beyond: bool = True) -> tuple[Floats, Bools, Bools]:
    """Values with a filler in unusable cells; which cells are usable; which lie `beyond` the declaration, if asked.

    >>> values, usable, outside = encode(np.array([1, "2", "x", 9, None], object), Range(0, 4))
    >>> values.tolist(), usable.tolist(), outside.tolist()
    ([1.0, 2.0, 2.0, 4.0, 2.0], [True, True, False, True, False], [False, False, False, True, False])
    """
    if isinstance(column, Levels):
        values = _read(cells, partial(_codes, place=places(column.levels)))
        if column.missing is not None:
            values[np.isnan(values)] = column.levels.index(column.missing)
        usable, outside = values >= 0, values == -1
    elif isinstance(column, Flag) and column.words is not None:
        values = _read(cells, partial(_codes, place=places(column.words)))
        usable, outside = values >= 0, values == -1
    elif isinstance(column, Date):
        values = _read(cells, _days)
        usable, outside = np.isfinite(values), (values < column.low) | (values > column.high)
        np.clip(values, column.low, column.high, out=values)
    else:
        read = partial(_numbers_of_text if isinstance(cells, Text) else _numbers, flag=isinstance(column, Flag))
        values = _read(cells, read)
        finite = np.isfinite(values)
        if isinstance(column, Flag):
            usable = (values == 0) | (values == 1)
            outside = finite & ~usable
        else:
            usable, outside = finite, _beyond(values, finite, column) if beyond else finite
            np.clip(values, column.low, column.high, out=values)
            if column.whole:
                np.rint(values, out=values)
    if not usable.all():
        values[~usable] = filler(column)
    return values, usable, outside


def _beyond(values: Floats, finite: Bools, column: Range) -> Bools:
    return finite & ((values < column.low) | (values > column.high))


def _read(cells: Cells, read: Callable[[Array], Floats]) -> Floats:
    """What `read` makes of cells, each by itself; NaN where one is missing. Text counts as objects."""
    if isinstance(cells, Coded):
        return np.append(_read(cells.distinct, read), np.nan)[cells.which]
    given = cells.cells if isinstance(cells, Text) else cells
    values = read(np.asarray(given))
    if isinstance(given, np.ma.MaskedArray):
        values[np.ma.getmaskarray(given)] = np.nan
    return values


def _days(cells: Array) -> Floats:
    """Days as years; NaN where there is none."""
    return np.fromiter(map(_day, cells.astype(object)), np.float64, len(cells))


def _day(cell: object) -> float:
    try:
        plain = _cell(cell)
        if type(plain) is np.datetime64:
            plain = plain.astype("M8[D]").item()
        if type(plain) is str:
            plain = datetime.date.fromisoformat(plain.strip())
        return decimal_year(plain) if type(plain) in (datetime.date, datetime.datetime, pd.Timestamp) else np.nan
    except Exception:
        return np.nan


def filler(column: Column) -> float:
    """The public number in place of a cell that cannot be used."""
    return column.low / 2 + column.high / 2 if isinstance(column, Range) else 0.0


@np.errstate(all="ignore")
def labels(cells: Cells, known: Sequence[object]) -> Floats:
    """0, 1, … for the known labels, by the rule of levels; NaN for any other cell.

    >>> labels(np.array([0, "1", True, 2, None], object), [0, 1]).tolist()
    [0.0, 1.0, 1.0, nan, nan]
    """
    codes = _read(cells, partial(_codes, place=places(known)))
    return np.where(codes < 0, np.nan, codes)


def _numbers(cells: Array, flag: bool) -> Floats:
    """A new array of the numbers; NaN where there is none."""
    if cells.dtype != object:
        return np.array(cells, dtype=np.float64)
    values, texts, places_of = np.empty(len(cells)), [], []
    for i, cell in enumerate(cells):
        found = _number(cell)
        if isinstance(found, str):
            texts.append(found)
            places_of.append(i)
        else:
            values[i] = found
    if texts:
        values[places_of] = _numbers_of_text(np.array(texts, dtype=object), flag)
    return values


def _numbers_of_text(texts: Array, flag: bool) -> Floats:
    """Numbers as in a CSV file, each by itself; a Flag may also be true or false.

    A plus sign in front is left out: pandas rounds numbers that have one in another way than Arrow, which reads most
    blocks of a file.
    """
    if flag:
        words = {"true": "1", "false": "0"}
        texts = np.array([words.get(t.strip().lower(), t) if type(t) is str else t for t in texts], dtype=object)
    texts = np.array([_PLUS.sub("", t) if type(t) is str else t for t in texts], dtype=object)
    whole = np.append(texts, "0.5")  # whole numbers alone would be rounded in another way
    return np.asarray(pd.to_numeric(whole, errors="coerce")[:-1], dtype=np.float64)


_PLUS = re.compile(r"^[ \t]*\+(?=[0-9.])")
_MOMENTS = (
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, pd.Timestamp, pd.Timedelta, pd.Period,
    pd.Interval, np.datetime64, np.timedelta64,
)  # fmt: skip
_DATED = frozenset(map(id, (datetime.datetime, datetime.time, pd.Timestamp)))
_PLAIN = frozenset(map(id, (str, int, float, bool, decimal.Decimal, *_MOMENTS))) - _DATED
_SCALARS = frozenset(map(id, np.sctypeDict.values()))


def _is_known(zone: object) -> bool:
    """Whether a time zone is none, or of a library: another would run its own code when a moment is written."""
    home = str(type.__getattribute__(type(zone), "__module__")).partition(".")[0]
    return zone is None or home in ("datetime", "zoneinfo", "pytz", "dateutil")


def _cell(cell: Any) -> Any:
    """The cell as a plain bool, int, float, NumPy float, str, Decimal or moment; None if missing or of another type.

    A closed list of types, told apart without running code of the cell's own: what is not listed is unreadable.
    """
    kind = type(cell)
    if id(kind) in _PLAIN:  # not `kind in …`: a class of a class may compare as it likes
        return cell
    if id(kind) in _DATED:
        return cell if _is_known(cell.tzinfo) else _Unreadable()
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return None
    if kind is bytes or kind is np.bytes_:
        return bytes(cell).decode("utf-8")
    if id(kind) in _SCALARS:
        return _scalar(cell, kind)
    if kind is complex:
        return cell.real if cell.imag == 0 else None
    if kind is np.ndarray and cell.ndim == 0 and cell.dtype.kind in "biufcUSMm":
        return _scalar(cell[()], type(cell[()]))
    if issubclass(kind, str):
        return str.__str__(cell)
    if issubclass(kind, int):
        return int.__int__(cell)
    if issubclass(kind, float):
        return float.__float__(cell)
    return _Unreadable()


def _scalar(cell: Any, kind: type) -> Any:
    if issubclass(kind, np.bool_):
        return bool(cell)
    if issubclass(kind, np.integer):
        return int(cell)
    if issubclass(kind, np.complexfloating):
        return float(cell.real) if cell.imag == 0 else None
    if issubclass(kind, np.float64 | np.longdouble):
        return float(cell)
    if issubclass(kind, np.floating):
        return cell  # narrower: 0.1 of single precision is written 0.1
    if issubclass(kind, np.str_):
        return str(cell)
    return bytes(cell).decode("utf-8") if issubclass(kind, np.bytes_) else _Unreadable()


def _number(cell: object) -> float | str:
    """The number of one object, NaN if it has none; text is handed back, to be read with other text."""
    try:
        plain = _cell(cell)
        return plain if isinstance(plain, str) else np.nan if type(plain) in _NO_NUMBERS else float(plain)
    except Exception:
        return np.nan


@np.errstate(all="ignore")
def as_stored(cell: object, dtype: np.dtype[Any]) -> object:
    """The number that an object says, as this type stores it; None where it says none."""
    try:
        plain = _cell(cell)
        if not isinstance(plain, str | int | float | np.floating):
            return None
        number = int(plain) if isinstance(plain, str | int) and dtype.kind in "iu" else float(plain)
        found = dtype.type(number)
        return found if dtype.kind == "f" or found == number else None
    except Exception:
        return None


_NO_NUMBERS = (type(None), _Unreadable, *_MOMENTS)


def places(levels: Sequence[object]) -> dict[str, float]:
    """The code of each level by its text. True and 1 are one number, which NumPy does not tell apart either."""
    place = {str(level): float(i) for i, level in enumerate(levels)}
    for text, number in (("True", "1"), ("False", "0")):
        if text in place:
            place.setdefault(number, place[text])
    for i, level in enumerate(levels):
        if isinstance(level, float | np.floating) and np.isfinite(level) and level == int(level):
            place.setdefault(str(int(level)), float(i))
    return place


def _codes(cells: Array, place: dict[str, float]) -> Floats:
    """A new array of codes, by text or by value (2.0 is level 2); −1 for an undeclared level, NaN if missing."""
    if cells.dtype == object:
        return np.fromiter((_code(cell, place) for cell in cells), np.float64, len(cells))
    if cells.dtype.kind == "f":  # 0.0 and −0.0 are one number, and each distinct one is looked up once
        cells = cells + cells.dtype.type(0)
    if cells.dtype == np.float16:
        distinct, which = np.unique(cells, return_inverse=True)
    else:
        which, distinct = pd.factorize(cells)
    return np.array([*(_code(value, place) for value in distinct), np.nan])[which]


def _code(cell: object, place: dict[str, float]) -> float:
    try:
        plain = _cell(cell)
        if plain is None:
            return np.nan
        kind = type(plain)
        if kind is str:
            found = place.get(plain)
            if found is not None:
                return found
            return np.nan if not plain else _code_of_number(float(plain), place)
        if kind is bool:
            found = place.get(str(plain))
            return found if found is not None else _code_of_number(int(plain), place)
        if kind is int:
            return _code_of_number(plain, place)
        if kind is pd.Interval:
            return next((place[text] for text in _spans(plain) if text in place), -1.0)
        if kind in _MOMENTS:
            return np.nan if plain is pd.NaT or _is_nat(plain) else place.get(_moment(plain), -1.0)
        if kind is decimal.Decimal:
            if plain.is_nan():
                return np.nan
            found = place.get(str(plain))
            return found if found is not None else _code_of_number(float(plain), place)
        return _code_of_number(plain, place) if isinstance(plain, float | np.floating) else -1.0
    except Exception:
        return -1.0


def _code_of_number(number: Any, place: dict[str, float]) -> float:
    """By value: whole numbers are the same level whether they are stored as 2 or as 2.0."""
    if isinstance(number, float | np.floating):
        if np.isnan(number):
            return np.nan
        if not np.isfinite(number):
            return -1.0
        if number != int(number):
            return place.get(str(number), -1.0)
        number = int(number)
    found = place.get(str(number))
    if found is None and abs(number) <= 2**1000 and float(number) == number:
        found = place.get(str(float(number)))
    return -1.0 if found is None else found


def _is_nat(moment: object) -> bool:
    return isinstance(moment, np.datetime64 | np.timedelta64) and bool(np.isnat(moment))


def _spans(interval: Any) -> Iterator[str]:
    """An interval as pandas writes it, and with whole ends as 1 and as 1.0: one missing cell makes all ends floats."""
    yield str(interval)
    ends = interval.left, interval.right
    if all(isinstance(end, int | float | np.number) for end in ends):
        for form in (lambda end: int(end) if end == np.floor(end) and np.isfinite(end) else end, float):
            yield str(pd.Interval(*map(form, ends), closed=interval.closed))


def _moment(moment: Any) -> str:
    """A date or time as pandas writes it, whichever type holds it."""
    if isinstance(moment, np.datetime64 | np.timedelta64):
        moment = pd.Timestamp(moment) if isinstance(moment, np.datetime64) else pd.Timedelta(moment)
    return str(pd.Timedelta(moment) if type(moment) is datetime.timedelta else moment)
