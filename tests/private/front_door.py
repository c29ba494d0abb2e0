"""Neighbouring data sets in every container: what one cell does to how all others are read. No test is in here.

A `Case` has a container, a column as it is declared and stored, a hostile cell and its place. `finding` reads the data
with and without that cell, in pieces of three records, and says what differs beside its own record. Only entry points
are used: `load_columns`, `load`, the estimators and, in the test, the command line.
"""

import contextlib
import csv
import datetime
import decimal
import fractions
import gzip
import importlib.util
import io
import re
import tempfile
import traceback
import uuid
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from xml.sax.saxutils import escape

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyreadstat

from pgbb.model.formula import Design
from pgbb.model.models import HuberRegression, QuantileRegression
from pgbb.model.poisson import PoissonRegression
from pgbb.model.schema import Date, Flag, Levels, Range, Schema
from pgbb.private import open_table
from pgbb.private.cells import Kind as Stored
from pgbb.private.files import File
from pgbb.private.loading import records_for, stored_for
from pgbb.private.open_table import Opened, Piece
from pgbb.private.sources import open_source, part_of_frame
from tests.private.loaded import load_columns

N = 8
PLACES = (0, 3, N - 1)


class Raises:
    """Raises at everything that a reader may try."""

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("secret")

    __str__ = __repr__ = __float__ = __int__ = __index__ = __bool__ = __len__ = __iter__ = _raise
    __eq__ = __hash__ = __array__ = __format__ = __complex__ = __lt__ = _raise


class BadText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("secret")

    __repr__ = __str__


class BadInt(int):
    def __float__(self) -> float:
        raise RuntimeError("secret")

    __str__ = __repr__ = __float__  # type: ignore[assignment]


class Odd(type):
    def __hash__(cls) -> int:
        raise RuntimeError("secret")

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("secret")


class OfOdd(metaclass=Odd):
    pass


CELLS: dict[str, Any] = {
    "None": None, "nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "pd.NA": pd.NA, "pd.NaT": pd.NaT,
    "''": "", "'?'": "?", "'1'": "1", "'1.0'": "1.0", "'2'": "2", "'north'": "north", "'nan'": "nan", "'inf'": "inf",
    "'1e400'": "1e400", "'1_0'": "1_0", "' 1 '": " 1 ", "'true'": "true", "'True'": "True", "wide digit": "\uff11",
    "surrogate": "\ud800", "null byte": "a\x00b", "umlaut": "é", "carriage return": "a\rb", "line feed": "a\nb",
    "quote": 'a"b', "only a quote": '"', "open quote": '"a', "comma": "a,b", "escape": "\x1b[2J", "u2028": "\u2028",
    "long text": "9" * 5000, "very long text": "x" * 100_000, "b'x'": b"x", "b'1'": b"1", "not utf-8": b"\xff\xfe",
    "0": 0, "1": 1, "2": 2, "-1": -1, "7": 7, "1.0": 1.0, "1.5": 1.5, "-0.0": -0.0, "0.1": 0.1, "1e308": 1e308,
    "5e-324": 5e-324, "2**53 + 1": 2**53 + 1, "2**63": 2**63, "2**64": 2**64, "-2**63": -(2**63), "10**400": 10**400,
    "10**5000": 10**5000, "True": True, "False": False, "1j": 1j, "1 + 0j": 1 + 0j, "float32": np.float32(0.1),
    "float16": np.float16(0.1), "int8": np.int8(1), "uint64": np.uint64(2**63), "longdouble": np.longdouble("0.1"),
    "np.bool": np.bool_(True), "np.str": np.str_("north"), "np.complex": np.complex64(1j), "0-d": np.array(1),
    "sNaN": decimal.Decimal("sNaN"), "Decimal nan": decimal.Decimal("NaN"), "Decimal 1.0": decimal.Decimal("1.0"),
    "Decimal huge": decimal.Decimal("1e20000"), "Fraction": fractions.Fraction(1, 3), "uuid": uuid.UUID(int=1),
    "first day": datetime.date(1, 1, 1), "last day": datetime.date(9999, 12, 31), "time": datetime.time(1, 2),
    "datetime": datetime.datetime(2020, 1, 1), "zone": datetime.datetime(1, 1, 1, tzinfo=datetime.timezone.max),
    "timedelta": datetime.timedelta.max, "a day": datetime.timedelta(1), "Timestamp": pd.Timestamp("2020-01-01"),
    "largest Timestamp": pd.Timestamp.max, "year 20000": np.datetime64("20000-01-01"), "NaT": np.datetime64("NaT"),
    "Period": pd.Period("2020-01"), "Interval": pd.Interval(0, 1), "list": [1], "empty tuple": (), "dict": {"a": 1},
    "array": np.array([1, 2]), "object": object(), "raises": Raises(), "text that raises": BadText("north"),
    "int that raises": BadInt(1), "odd class": OfOdd(), "class": Raises, "function": len, "memory": memoryview(b"1"),
}  # fmt: skip


@dataclass(frozen=True)
class Xml:
    """What stands in a sheet in place of a cell; any other container has it as an object."""

    type: str
    value: str


SHEET_CELLS: dict[str, Any] = {
    f"{kind} {value!r} in a sheet": Xml(kind, value)
    for kind, values in {
        "n": ("abc", "", "1e400", "nan", "inf", " 1 ", "\uff11", "1e300", "-1e300", "-5", "2958466", "99999999", "0.5"),
        "s": ("99999", "-1", "x"), "b": ("1", "7"), "d": ("2020-99-99", "2020-01-01"), "odd": ("1",),
        "str": ("", "north"), "e": ("#DIV/0!", "#ERROR!", "#SPILL!"),
    }.items()
    for value in values
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A column: how it is declared, what its good cells are, and the types that Arrow, pandas and Stata store."""

    declared: Any
    good: tuple[Any, ...]
    arrow: tuple[pa.DataType, ...] = ()
    nullable: tuple[str, ...] = ()
    stata: tuple[str, ...] = ()


DAYS = (datetime.date(2020, 1, 1), datetime.date(2021, 5, 5))
MOMENTS = tuple(datetime.datetime(day.year, day.month, day.day, 1, 30) for day in DAYS)
INTEGERS = (pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64())
FLOATS = (pa.float32(), pa.float64())
TEXT = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string()))
KINDS = {
    "range of floats": Kind(Range(0, 4), (0.5, 1.25, 3.0), FLOATS, ("Float64",), ("float64", "float32")),
    "range of digits": Kind(Range(0, 4), ("1", "2", "3")),
    "range of integers": Kind(Range(0, 4), (1, 2, 3), (*INTEGERS, *FLOATS), ("Int64",), ("int8", "int16", "int32")),
    "range with a step": Kind(Range(0, 4, step=1), (1, 2, 3), (pa.int8(), pa.float64()), ("Int64",), ("int8",)),
    "range of decimals": Kind(
        Range(0, 4), tuple(map(decimal.Decimal, ("0.50", "1.25", "3.00"))), (pa.decimal128(9, 2), pa.decimal256(50, 2))
    ),
    "flag of integers": Kind(Flag(), (0, 1), INTEGERS, ("Int8",), ("int8",)),
    "flag of truth values": Kind(Flag(), (True, False), (pa.bool_(),), ("boolean",)),
    "levels of text": Kind(Levels("north", "south"), ("north", "south"), TEXT, ("string", "str"), ("str", "strL")),
    "levels, some missing": Kind(
        Levels("north", "south", missing="?"), ("north", "south"), TEXT, ("string", "str"), ("str", "strL")
    ),
    "levels of integers, some missing": Kind(Levels(1, 2, 3, missing=9), (1, 2, 3), INTEGERS, ("Int64",), ("int8",)),
    "levels of integers": Kind(Levels(1, 2, 3), (1, 2, 3), INTEGERS, ("Int64",), ("int8", "int32")),
    "levels of digits": Kind(Levels("1", "2"), ("1", "2"), TEXT, ("string",), ("str", "strL")),
    "levels 1.0, of integers": Kind(Levels("1.0", "2.0"), (1, 2), INTEGERS, ("Int64",), ("int8", "int16", "int32")),
    "levels 1.0, of floats": Kind(Levels("1.0", "2.0"), (1.0, 2.0), FLOATS, ("Float64",), ("float64", "float32")),
    "levels of fractions": Kind(Levels("0.1", "0.5"), (0.1, 0.5), FLOATS, ("Float64",), ("float64",)),
    "levels of truth values": Kind(Levels("True", "False"), (True, False), (pa.bool_(),), ("boolean",)),
    "flag of words": Kind(Flag("no", "yes"), ("no", "yes"), TEXT, ("string",), ("str", "strL")),
    "days": Kind(Date("2000-01-01", "2030-12-31"), DAYS, (pa.date32(), pa.date64()), (), ("date",)),
    "levels of days": Kind(Levels(*map(str, DAYS)), DAYS, (pa.date32(), pa.date64())),
    "levels of moments": Kind(
        Levels(*map(str, MOMENTS)), MOMENTS, tuple(pa.timestamp(u) for u in ("s", "ms", "us", "ns"))
    ),
    "levels of days as moments": Kind(
        Levels(*(f"{day} 00:00:00" for day in DAYS)), tuple(map(pd.Timestamp, DAYS)), (), (), ("date",)
    ),
    "levels of moments in a zone": Kind(
        Levels(*(f"{m}+14:00" for m in MOMENTS)),
        tuple(m.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=14))) for m in MOMENTS),
        (pa.timestamp("us", "Pacific/Kiritimati"),),
    ),
    "levels of times": Kind(
        Levels("01:30:00", "02:00:00"), (datetime.time(1, 30), datetime.time(2)), (pa.time64("us"), pa.time32("s"))
    ),
    "levels of intervals": Kind(Levels("(0, 1]", "(1, 2]"), (pd.Interval(0, 1), pd.Interval(1, 2))),
    "levels of durations": Kind(
        Levels("1 days 00:00:00", "2 days 00:00:00"),
        (datetime.timedelta(1), datetime.timedelta(2)),
        (pa.duration("us"), pa.duration("s")),
    ),
}  # fmt: skip


class Unfit(Exception):
    """A container cannot hold this cell, or a file cannot be written: no case."""


# Containers: (cells, stored type, folder) -> source ------------------------------------------------------------------


def _frame(column: Any) -> pd.DataFrame:
    return pd.DataFrame({"c": column})


def _objects(cells: list[Any]) -> Any:
    return np.fromiter(cells, dtype=object, count=len(cells))


def _structured(cells: list[Any], kind: Kind, _: Any) -> Any:
    plain = np.array(list(kind.good))
    found = np.zeros(len(cells), dtype=[("other", "i4"), ("c", plain.dtype if plain.dtype.kind != "U" else "U20")])
    for i, cell in enumerate(cells):
        found["c"][i] = cell
    return found


def _masked(cells: list[Any], kind: Kind, _: Any) -> Any:
    found = np.ma.masked_array(np.array([kind.good[0] if c is None else c for c in cells], dtype=object))
    found[[c is None for c in cells]] = np.ma.masked
    return {"c": found}


RAW = {"huge": 2**62, "negative": -(2**62), "date out of range": 2**30}
BYTES = {"not utf-8": b"\xff\xfe", "b'x'": b"x"}


def _arrow(cells: list[Any], stored: pa.DataType, hostile: Any = None) -> pa.Array:
    """An Arrow array; bytes in text and numbers in dates go in as they are, as in a file that nobody checked."""
    bare = [None if cell is hostile else cell for cell in cells]
    if isinstance(stored, pa.DictionaryType):
        inner = _arrow(cells, stored.value_type, hostile)
        return inner.dictionary_encode().cast(pa.dictionary(pa.int32(), stored.value_type))
    if stored in (pa.string(), pa.large_string(), pa.string_view()) and isinstance(hostile, bytes):
        wide = pa.array([c if isinstance(c, bytes) or c is None else str(c).encode() for c in cells], pa.binary())
        text = pa.StringArray.from_buffers(len(wide), *wide.buffers()[1:], wide.buffers()[0])
        return text.cast(stored) if stored != pa.string() else text
    if pa.types.is_temporal(stored) and isinstance(hostile, int) and not isinstance(hostile, bool):
        width = pa.int32() if stored.bit_width == 32 else pa.int64()
        numbers = pa.array(bare, stored).view(width).to_pylist()
        return pa.array([hostile if c is hostile else v for c, v in zip(cells, numbers, strict=True)], width).view(
            stored
        )
    return pa.array(cells, stored)


def _chunked(cells: list[Any], stored: pa.DataType, hostile: Any) -> pa.ChunkedArray:
    """Two arrays; a dictionary of one has other cells than that of the other, and a missing cell of its own."""
    inner = stored.value_type if isinstance(stored, pa.DictionaryType) else stored
    halves = [_arrow(half, inner, hostile) for half in (cells[: N // 2], cells[N // 2 :])]
    if inner != stored:
        halves = [pc.dictionary_encode(half, null_encoding="encode") for half in halves]
    return pa.chunked_array(halves)


def _runs(cells: list[Any], stored: pa.DataType, hostile: Any) -> pa.Array:
    """Runs of one cell each, of which the first of all is left out."""
    array = _arrow([cells[0], *cells], stored, hostile)
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(cells) + 2), pa.int32()), array)[1:]


def _partition(cells: list[Any], kind: "Kind", dtype: Any = None) -> Opened:
    """A part of a frame that stores the column as pandas stores good cells."""
    return part_of_frame(_frame(pd.Series(cells, dtype=dtype)), dict(_frame(list(kind.good)).dtypes))


def _table(cells: list[Any], stored: pa.DataType, hostile: Any) -> pa.Table:
    return pa.table({"c": _arrow(cells, stored, hostile), "other": pa.array(range(len(cells)))})


def _parquet(cells: list[Any], stored: pa.DataType, hostile: Any, folder: Path) -> Path:
    pq.write_table(_table(cells, stored, hostile), folder / "d.parquet", row_group_size=5)
    return folder / "d.parquet"


def _folder(cells: list[Any], stored: pa.DataType, hostile: Any, folder: Path) -> Path:
    """Two files with the types that their table has."""
    table = _table(cells, stored, hostile)
    (folder / "parts").mkdir(exist_ok=True)
    for i in range(2):
        pq.write_table(table.slice(4 * i, 4), folder / "parts" / f"{i}.parquet")
    return folder / "parts"


def _csv(cells: list[Any], folder: Path, raw: bool = False, name: str = "d.csv", **how: Any) -> Any:
    """A CSV file; `raw` writes text that needs no quotation marks but has marks or returns of its own as it is."""
    path, lines = folder / name, []
    source = File(path, **how)
    between = source.between.encode()
    for i, cell in enumerate(cells):
        plain = str(cell).replace(".", source.decimal) if isinstance(cell, float | decimal.Decimal) else str(cell)
        text = b"" if cell is None else cell if isinstance(cell, bytes) else plain.encode("utf-8", "surrogatepass")
        if raw and (b"\n" in text or between in text):
            raise Unfit
        out = io.StringIO()
        csv.writer(out, delimiter=source.between).writerow([text.decode("latin-1")])
        body = text if raw or not text else out.getvalue().removesuffix("\r\n").encode("latin-1")
        lines.append(between.join([b"%d" % i, body, b"x"]))
    head = [] if source.names else [between.join([b"other", b"c", b"last"])]
    whole = b"\n".join([*head, *lines]) + b"\n"
    path.write_bytes(gzip.compress(whole) if name.endswith(".gz") else whole)
    return source if how else path


def _sheet(cells: list[Any], folder: Path, first: str = "other") -> Path:
    """A workbook; a cell that is `Xml` is written as it is, under the style of a day if the others are days.

    Without a `first` column, a row whose cell is empty is none.
    """
    if not first and any(cell is None or cell is pd.NaT or (isinstance(cell, str) and not cell) for cell in cells):
        raise Unfit
    book, path = openpyxl.Workbook(), folder / "d.xlsx"
    odd = [(i, cell) for i, cell in enumerate(cells) if isinstance(cell, Xml)]
    cells = [cells[i - 1] if isinstance(cell, Xml) else cell for i, cell in enumerate(cells)]
    sheet = book.active
    sheet.append([first, "c"] if first else ["c"])
    for i, cell in enumerate(cells):
        odd_text = isinstance(cell, str) and not cell.isprintable()
        if getattr(cell, "tzinfo", None) is not None or odd_text or isinstance(cell, pd.Interval):
            raise Unfit  # the writer takes no zone and no interval, and makes of some characters a file that is no XML
        given = float(cell) if isinstance(cell, decimal.Decimal) else cell
        sheet.append([i, given] if first else [given])
    column = "B" if first else "A"
    book.save(path)
    for i, cell in odd:
        with zipfile.ZipFile(path) as made:
            parts = {name: made.read(name) for name in made.namelist()}
        text = parts["xl/worksheets/sheet1.xml"].decode("utf-8")
        place = re.compile(rf'<c r="{column}{i + 2}"( s="[0-9]+")?[^>]*>.*?</c>')
        text = place.sub(rf'<c r="{column}{i + 2}"\1 t="{cell.type}"><v>{cell.value}</v></c>', text)
        parts["xl/worksheets/sheet1.xml"] = text.encode("utf-8")
        with zipfile.ZipFile(path, "w") as made:
            for name, part in parts.items():
                made.writestr(name, part)
    return path


ODS = (
    '<?xml version="1.0" encoding="UTF-8"?><office:document-content office:version="1.2"'
    + "".join(f' xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{n}:1.0"' for n in ("office", "table", "text"))
    + '><office:body><office:spreadsheet><table:table table:name="s">{}</table:table></office:spreadsheet>'
    "</office:body></office:document-content>"
)
ODS_TYPES = {"n": "float", "s": "percentage", "b": "boolean", "d": "date", "e": "currency", "str": "string"}


def _ods_cell(cell: Any) -> str:
    if cell is None:
        return "<table:table-cell/>"
    if isinstance(cell, Xml):
        kind = ODS_TYPES.get(cell.type, cell.type)
        kept = f' office:value-type="{kind}" office:value="{cell.value}" office:date-value="{cell.value}"'
        return f"<table:table-cell{kept}><text:p>&{cell.value};</text:p></table:table-cell>"
    if isinstance(cell, bool | np.bool_):
        kept = f'boolean" office:boolean-value="{str(bool(cell)).lower()}'
    elif isinstance(cell, datetime.date) and not pd.isna(cell) and getattr(cell, "tzinfo", None) is None:
        kept = f'date" office:date-value="{cell.isoformat()}'
    elif isinstance(cell, datetime.time):
        kept = f'time" office:time-value="PT{cell.hour:02}H{cell.minute:02}M{cell.second:02}S'
    elif isinstance(cell, int | float | decimal.Decimal):
        kept = f'float" office:value="{cell}'
    elif isinstance(cell, str):
        text = escape(str.__str__(cell))
        return f'<table:table-cell office:value-type="string"><text:p>{text}</text:p></table:table-cell>'
    else:
        raise Unfit
    return f'<table:table-cell office:value-type="{kept}"/>'


def _ods(cells: list[Any], folder: Path) -> Path:
    """A sheet of LibreOffice; what is `Xml` is no number and no reference to a character."""
    rows = [["other", "c"], *([i, cell] for i, cell in enumerate(cells))]
    body = "".join(f"<table:table-row>{''.join(map(_ods_cell, row))}</table:table-row>" for row in rows)
    path = folder / "d.ods"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        made.writestr("META-INF/manifest.xml", "<manifest/>")
        made.writestr("content.xml", ODS.format(body).encode("utf-8"))
    return path


def _xls(cells: list[Any], folder: Path) -> Path:
    """A workbook of Excel 97; numbers under the style of a day are days."""
    import xlwt

    book, path, day = xlwt.Workbook(), folder / "d.xls", xlwt.easyxf(num_format_str="YYYY-MM-DD")
    sheet, dated = book.add_sheet("s"), sum(isinstance(cell, datetime.date) for cell in cells) >= N - 1
    for column, name in enumerate(("other", "c")):
        sheet.write(0, column, name)
    for i, cell in enumerate(cells):
        if getattr(cell, "tzinfo", None) is not None or isinstance(cell, datetime.timedelta):
            raise Unfit
        given = (
            xlwt.Formula("1/0") if isinstance(cell, Xml) else float(cell) if isinstance(cell, decimal.Decimal) else cell
        )
        sheet.write(i + 1, 0, i)
        sheet.write(i + 1, 1, given, *[day] * dated)
    book.save(str(path))
    return path


def _statistical(cells: list[Any], text: bool, hostile: Any, folder: Path, name: str) -> Path:
    """A file of SPSS or SAS; bytes go into text as they are."""
    path, bare = folder / name, [None if c is hostile and isinstance(c, bytes) else c for c in cells]
    if text != all(c is None or (isinstance(c, str) and len(c) < 2**15) for c in bare):
        raise Unfit  # the formats have no longer text
    column = pd.Series([MARK if c is None else c for c in bare] if text else bare, dtype=object if text else "float64")
    write = pyreadstat.write_xport if name.endswith("xpt") else partial(pyreadstat.write_sav, compress="z" in name)
    write(pd.DataFrame({"other": np.arange(float(len(cells))), "c": column}), str(path))
    if text and isinstance(hostile, bytes):
        path.write_bytes(path.read_bytes().replace(MARK.encode(), hostile.ljust(4, b" ")[:4]))
    return path


def _database(cells: list[Any], stored: pa.DataType, hostile: Any, folder: Path) -> File:
    given, path = _table(cells, stored, hostile), folder / f"{uuid.uuid4().hex}.duckdb"
    with duckdb.connect(str(path)) as base:
        base.register("given", given)
        base.execute("CREATE TABLE people AS SELECT * FROM given")
    return File(path, sql="SELECT c FROM people")


def _relation(cells: list[Any], stored: pa.DataType, hostile: Any) -> Any:
    return duckdb.from_arrow(_table(cells, stored, hostile))


class Stream:
    """Anything with the Arrow C stream protocol, and with nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


MARK = "QQqq"


def _stata(cells: list[Any], stored: str, hostile: Any, folder: Path, labelled: bool = False) -> Path:
    path, column = folder / "d.dta", [None if c is hostile and isinstance(c, bytes) else c for c in cells]
    options: dict[str, Any] = {"write_index": False, "version": 118}
    if stored.startswith("str"):
        options["convert_strl"] = ["c"] if stored == "strL" else []
        if any(c is not None and not isinstance(c, str) for c in column):
            raise Unfit
        column = [MARK if c is None else c for c in column]
        frame = _frame(pd.Series(column, dtype=object))
    elif stored == "date":
        frame = _frame(
            pd.Series(
                [-(10**8) if c is hostile else c.toordinal() - datetime.date(1960, 1, 1).toordinal() for c in cells],
                dtype="int32",
            )
        )
    else:
        values = pd.Series(column, dtype="float64" if any(c is None for c in column) else stored)
        frame = _frame(values)
        if stored.startswith("int") and None in column:
            frame = _frame(pd.Series([0 if c is None else c for c in column], dtype=stored))
    if labelled:
        options["value_labels"] = {"c": {1: "north", 2: "south", 3: "south"}}
    frame.to_stata(path, **options)
    whole = path.read_bytes()
    if stored.startswith("str"):
        if isinstance(hostile, bytes):
            whole = whole.replace(MARK.encode(), hostile.ljust(4, b"\0")[:4])
    elif stored.startswith("int") and None in column:  # the code for a missing value, where the file stores integers
        size = np.dtype(stored).itemsize
        start = whole.index(b"<data>") + 6 + column.index(None) * size
        missing = {1: 101, 2: 32741, 4: 2147483621}[size].to_bytes(size, "little")
        whole = whole[:start] + missing + whole[start + size :]
    if stored == "date":
        whole = whole.replace(b"%12.0g".ljust(57, b"\0"), b"%td".ljust(57, b"\0"), 1)
    path.write_bytes(whole)
    return path


def containers(kind: Kind) -> dict[str, Callable[[list[Any], Any, Path], Any]]:
    """Those that this kind of column may be stored in; each builds a source from cells, of which one is hostile."""
    found: dict[str, Callable[[list[Any], Any, Path], Any]] = {
        "dict of lists": lambda c, h, f: {"c": c},
        "dict of tuples": lambda c, h, f: {"c": tuple(c)},
        "array of objects": lambda c, h, f: {"c": _objects(c)},
        "array that NumPy made": lambda c, h, f: {"c": np.array(c)},
        "masked array": lambda c, h, f: _masked(c, kind, h),
        "structured array": lambda c, h, f: _structured(c, kind, h),
        "frame that pandas made": lambda c, h, f: _frame(c),
        "frame of objects": lambda c, h, f: _frame(pd.Series(_objects(c), dtype=object)),
        "partition that pandas made": lambda c, h, f: _partition(c, kind),
        "partition of objects": lambda c, h, f: _partition(_objects(c), kind, object),
        "categorical that pandas made": lambda c, h, f: _frame(pd.Categorical(c)),
        "csv": lambda c, h, f: _csv(c, f),
        "csv, as it is": lambda c, h, f: _csv(c, f, raw=True),
        "csv of Europe": lambda c, h, f: _csv(c, f, separator=";", decimal=",", thousands=".", encoding="latin-1"),
        "tsv, packed, without header": lambda c, h, f: _csv(c, f, name="d.tsv.gz", names=["other", "c", "last"]),
        "sheet": lambda c, h, f: _sheet(c, f),
        "sheet of one column": lambda c, h, f: _sheet(c, f, ""),
        "sheet of LibreOffice": lambda c, h, f: _ods(c, f),
    }
    if importlib.util.find_spec("xlwt") is not None:  # which fuzzing installs
        found["sheet of Excel 97"] = lambda c, h, f: _xls(c, f)
    if kind.good in NUMBERS or kind.good in WORDS:
        for name in ("d.sav", "d.zsav", "d.xpt"):
            found[name] = lambda c, h, f, t=kind.good in WORDS, n=name: _statistical(c, t, h, f, n)
    if not isinstance(kind.declared, Levels):
        del found["categorical that pandas made"]
    if "Int64" in kind.nullable:
        gaps = pd.SparseDtype("int64", np.nan)
        found["sparse integers"] = lambda c, h, f: _frame(pd.arrays.SparseArray(c, dtype=gaps))
    for stored in kind.nullable:
        found[f"frame of {stored}"] = lambda c, h, f, t=stored: _frame(pd.array(c, dtype=t))
    for stored in kind.arrow:
        found[f"chunks of {stored}"] = lambda c, h, f, t=stored: {"c": _chunked(c, t, h)}
        found[f"runs of {stored}"] = lambda c, h, f, t=stored: {"c": _runs(c, t, h)}
        found[f"table of {stored}"] = lambda c, h, f, t=stored: _table(c, t, h)
        found[f"parquet of {stored}"] = lambda c, h, f, t=stored: _parquet(c, t, h, f)
        found[f"folder of {stored}"] = lambda c, h, f, t=stored: _folder(c, t, h, f)
        if stored in IN_DUCKDB:
            found[f"database of {stored}"] = lambda c, h, f, t=stored: _database(c, t, h, f)
            found[f"relation of {stored}"] = lambda c, h, f, t=stored: _relation(c, t, h)
        found[f"stream of {stored}"] = lambda c, h, f, t=stored: Stream(_table(c, t, h))
        if stored not in NOT_IN_POLARS:
            found[f"polars of {stored}"] = lambda c, h, f, t=stored: pl.from_arrow(_table(c, t, h))
        found[f"frame of {stored}, Arrow"] = lambda c, h, f, t=stored: _frame(
            pd.Series(_table(c, t, h).column("c").to_pandas(types_mapper=pd.ArrowDtype))
        )
    for stored in kind.stata:
        found[f"stata of {stored}"] = lambda c, h, f, t=stored: _stata(c, t, h, f)
    return found


NUMBERS = ((0.5, 1.25, 3.0), (1, 2, 3))
WORDS = (("north", "south"), ("1", "2"), ("no", "yes"))
IN_DUCKDB = (pa.float64(), pa.int64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.decimal128(9, 2))
NOT_IN_POLARS = (pa.decimal256(50, 2), pa.time32("s"), pa.date64(), pa.dictionary(pa.int8(), pa.string()))
LABELLED = Kind(Levels("north", "south"), (1, 2), stata=("int8",))


# What is seen --------------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What a reader did with a source: what it said, and the encoded rows."""

    said: str
    n: int = -1
    types: str = ""
    rows: Any = None

    def but(self, place: int) -> bytes:
        if self.rows is None:
            return b""
        others = np.delete(self.rows, place, axis=0)
        return (np.delete(others, place, axis=1) if self.rows.dtype == bool else others).tobytes()


def watch(read: Callable[[], Any]) -> Seen:
    """Run a reader; all it says counts: errors, warnings, standard output and error."""
    out, rows, error = io.StringIO(), None, ""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                rows = read()
            except Exception as failed:
                error = f"{type(failed).__name__}: {traceback.format_exception_only(failed)}"
    said = f"{error} {[str(w.message) for w in warned]} {out.getvalue()}"
    return Seen(said) if rows is None else Seen(said, len(rows), str(rows.dtype), rows)


def columns(source: Any, declared: Any) -> Any:
    data = load_columns(source, Schema(c=declared), ["c"])
    return np.column_stack([data.values["c"], data.valid])


def responses(source: Any, declared: Any) -> Any:
    """As the response of a quantile regression, whose step its fit knows."""
    schema = Schema(c=declared)
    found = records_for(source, QuantileRegression("c ~ 1", taus=[0.5]).prepare(schema), schema)
    return np.column_stack([found.rows, found.valid])


def curves(source: Any, declared: Any) -> Any:
    """Through the curves of a formula: splines, and powers around a public centre."""
    schema = Schema(c=declared, d=Range(0, 4), y=Range(0, 1))
    design = Design.parse("y ~ bs(c, knots=[1, 2]) + d:poly(c, 4, centre=1)", schema)
    found = load_columns(source, schema, ["c"])
    return np.column_stack([design.matrix({"c": found.values["c"], "d": np.full(found.n, 2.0)}), found.valid])


def beside(source: Any) -> Opened:
    """The source with one more column, of good numbers."""
    opened = open_source(source)

    def but(names: list[str]) -> list[str]:
        return [name for name in names if name != "more"]

    def pieces(names: list[str], schema: Schema) -> Iterator[Piece]:
        at = 0
        for piece in opened.pieces(but(names), schema):
            yield Piece(piece.n, {**piece.cells, "more": np.arange(at, at + piece.n) % 4.0})
            at += piece.n

    return Opened(
        [*opened.names, "more"],
        opened.count,
        lambda names, schema: {**opened.kinds(but(names), schema), "more": Stored("float64", True, True)},
        pieces,
    )


def words(source: Any, declared: Any, scratch: Path | None = None) -> Any:
    """Stored in codes, as sums read them; in memory or in a folder."""
    schema = Schema(c=declared, more=Range(0, 4, step=1))
    problem = HuberRegression("more ~ c").prepare(schema)
    found = stored_for(beside(source), problem, schema, scratch=scratch)
    rows = np.array(found.rows[:])
    found.close()
    assert found.coding is not None and rows.dtype == np.uint32
    return rows


def scratched(source: Any, declared: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return words(source, declared, Path(folder))


def weights(source: Any, declared: Any) -> Any:
    """As survey weights."""
    schema = Schema(c=declared, more=Range(0, 4))
    found = records_for(beside(source), HuberRegression("more ~ 1").prepare(schema), schema, weights="c")
    return np.column_stack([found.rows, found.valid])


def exposures(source: Any, declared: Any) -> Any:
    """As the exposure of a Poisson regression."""
    schema = Schema(c=Range(0.5, declared.high), more=Range(0, 4, step=1))
    found = records_for(beside(source), PoissonRegression("more ~ 1", exposure="c").prepare(schema), schema)
    return np.column_stack([found.rows, found.valid])


def persons(source: Any, declared: Any) -> Any:
    """Which records are of one person: a square."""
    schema = Schema(c=declared, more=Range(0, 4))
    found = records_for(beside(source), HuberRegression("more ~ 1").prepare(schema), schema, persons="c")
    assert found.persons is not None
    return (found.persons[:, None] == found.persons) & found.valid[:, None] & found.valid


ROLES: dict[str, tuple[tuple[str, ...], Any]] = {
    "stored in codes": (("range of floats", "range with a step", "levels of text", "flag of words", "days"), words),
    "in a scratch file": (("range of integers", "levels of integers, some missing"), scratched),
    "survey weights": (("range of floats", "range of integers"), weights),
    "exposures": (("range of floats",), exposures),
    "persons": (("range of integers", "range with a step"), persons),
}


def finding(
    make: Callable[[list[Any], Any, Path], Any], kind: Kind, cell: Any, place: int, folder: Path, read: Any = columns
) -> str | None:
    """What the cell changed beside its own record; None if nothing. Raises `Unfit` where there is no such data."""
    good = [kind.good[i % len(kind.good)] for i in range(N)]
    hostile = [*good[:place], cell, *good[place + 1 :]]
    seen = []
    for cells in (good, hostile):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                source = make(cells, cell if cells is hostile else NOTHING, folder)
        except BaseException as error:  # a container's own error, or a panic of compiled code
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise Unfit from error
        with mock.patch.object(open_table, "CHUNK", 3):
            seen.append(watch(lambda source=source: read(source, kind.declared)))
    before, after = seen
    if before.said != after.said:
        return f"says {after.said.strip()[:90]!r}"
    if (before.n, before.types) != (after.n, after.types):
        return f"n or types: {(before.n, before.types)} and {(after.n, after.types)}"
    return None if before.but(place) == after.but(place) else "other rows are read in another way"


NOTHING = object()


# Estimators ----------------------------------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[list[Any]], Any]] = {
    "y a list": list,
    "y a tuple": tuple,
    "y an array of objects": _objects,
    "y an array that NumPy made": np.array,
    "y a series": pd.Series,
}
CLASSES = {"0 and 1": (0, 1), "truth values": (False, True), "words": ("no", "yes"), "digits": ("0", "1")}
FEATURES: dict[str, Callable[[list[Any]], Any]] = {
    "X a list of lists": lambda cells: [[i / 9, cell] for i, cell in enumerate(cells)],
    "X a tuple of tuples": lambda cells: tuple((i / 9, cell) for i, cell in enumerate(cells)),
    "X an array of objects": lambda cells: np.column_stack([_objects(range(len(cells))), _objects(cells)]),
    "X a frame": lambda cells: pd.DataFrame({"a": range(len(cells)), "b": cells}),
}


def estimated(estimator: Any, x: Any, y: Any, sample_weight: Any = None) -> Any:
    """The encoded rows that an estimator hands to its fit, which is not run."""
    import pgbb.sklearn
    from pgbb.methods.request import prepared

    rows = []

    def instead(model: Any, data: Any, *, schema: Any, weights: Any = None, **_: Any) -> Any:
        found = records_for(data, prepared(model, schema), schema, weights)
        rows.append(np.column_stack([found.rows, found.valid]))
        raise StopIteration

    real, pgbb.sklearn.fit = pgbb.sklearn.fit, instead
    try:
        with contextlib.suppress(StopIteration):
            estimator.fit(x, y, sample_weight=sample_weight)
    finally:
        pgbb.sklearn.fit = real
    return rows[0]


def estimator_cases() -> dict[str, tuple[Callable[[list[Any], Any, Path], Any], Kind, Any]]:
    """Name -> how to build, the good cells, how to read."""
    from pgbb.sklearn import PrivateLogisticClassifier, PrivateQuantileRegressor

    given = {"epsilon": 1.0, "delta": 1e-6, "feature_range": [(0, 4)] * 2, "weight_range": (0, 4)}
    features = [[i / 9, 1.0] for i in range(N)]
    plain = np.array(features)
    found: dict[str, Any] = {}
    for name, shape in SHAPES.items():
        regressor = PrivateQuantileRegressor(**given, response_range=(0, 4))
        kind = Kind(None, (0.5, 1.25, 3.0))
        found[f"regressor, {name}"] = (
            lambda c, h, f, s=shape: s(c), kind, lambda s, _, e=regressor: estimated(e, plain, s),
        )  # fmt: skip
        found[f"regressor, weights as {name[2:]}"] = (
            lambda c, h, f, s=shape: s(c), kind,
            lambda s, _, e=regressor: estimated(e, plain, np.ones(N), sample_weight=s),
        )  # fmt: skip
        for labels, classes in CLASSES.items():
            classifier = PrivateLogisticClassifier(**given, classes=classes)
            found[f"classifier of {labels}, {name}"] = (
                lambda c, h, f, s=shape: s(c), Kind(None, classes), lambda s, _, e=classifier: estimated(e, plain, s),
            )  # fmt: skip
    for name, shape in FEATURES.items():
        found[f"regressor, {name}"] = (
            lambda c, h, f, s=shape: s(c), Kind(None, (0.5, 1.25, 3.0)),
            lambda s, _, e=PrivateQuantileRegressor(**given, response_range=(0, 4)): estimated(e, s, [1.0] * N),
        )  # fmt: skip
    return found


# All cases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """One data set and its neighbour; `find` gives what is wrong, None, or raises `Unfit`."""

    container: str
    kind: str
    cell: str
    place: int
    make: Any
    column: Kind
    read: Any
    value: Any

    def find(self) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            return finding(self.make, self.column, self.value, self.place, Path(folder), self.read)

    def __repr__(self) -> str:
        return f"{self.kind} in {self.container}: {self.cell} at {self.place}"


def groups() -> list[tuple[str, str, Any, Kind, Any]]:
    """(container, kind, how to build, column, how to read) of every kind of column in every container."""
    found = [(c, k, make, kind, columns) for k, kind in KINDS.items() for c, make in containers(kind).items()]
    counted = KINDS["range with a step"]
    plain = KINDS["range of floats"]
    found += [(c, "curves of a range", make, plain, curves) for c, make in containers(plain).items()]
    found += [(c, "response with a step", make, counted, responses) for c, make in containers(counted).items()]
    for role, (kinds, read) in ROLES.items():
        found += [(c, role, make, KINDS[k], read) for k in kinds for c, make in containers(KINDS[k]).items()]
    found.append(
        ("stata with labels", "levels of labels", lambda c, h, f: _stata(c, "int8", h, f, True), LABELLED, columns)
    )
    found += [(name, "estimator", *how) for name, how in estimator_cases().items()]
    return found


GROUPS = groups()
VALUES: dict[str, Any] = CELLS | RAW | SHEET_CELLS


def case(group: int, cell: str, place: int) -> Case:
    """By number, name and place."""
    container, kind, make, column, read = GROUPS[group]
    return Case(container, kind, cell, place, make, column, read, VALUES[cell])
