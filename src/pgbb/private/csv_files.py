"""CSV files: which bytes are a record, and its cells as text. Numbers and levels are made of them in `cells`.

A record ends with a line feed, with or without a carriage return before it; any other
carriage return belongs to its cell. A cell in quotation marks may hold commas, line
feeds and doubled marks, and its closing mark ends the cell. A mark that breaks this
rule is a character like any other, so that it damages the record it stands in and no
other. Lines that are blank, too short or too long are records. Another separator, decimal mark
or encoding than usual is declared (`File`), and never guessed.
"""

import copy
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa

from pgbb.errors import InvalidValue
from pgbb.model.schema import Column, Date, Range, Schema
from pgbb.private import open_table
from pgbb.private.cells import Array, Cells, Kind, Text, as_cells
from pgbb.private.files import ISO, File
from pgbb.private.open_table import Opened, Piece, quiet, quietly

LONGEST = 2**20
"""Bytes after which a record with an open quotation mark is kept only if the file, looked at ahead, closes it."""

_BLOCK = 2**22  # bytes that are read at once
_FIRST = 2**12  # bytes that are read at once for the header line
_OTHERS = {";": "semicolon", "\t": "tab", "|": "|"}
_REMEDY = (
    "Correct the names in the schema or in the file; where no line holds names, give them (--names, names= of "
    "pgbb.File); where something else than {between!r} is between the cells, say what (--separator, separator=); where "
    "the file is not {encoding}, say its encoding, such as cp1252 or latin-1 (--encoding, encoding=)."
)


class _Rules:
    """Patterns of a cell and of a record, for a separator."""

    def __init__(self, separator: bytes) -> None:
        s = self.separator = separator
        self._between = re.escape(s)
        plain = rb'(?!")[^%b\n]*+' % self._between
        self._cell = rb'(?:"[^"]*+(?:""[^"]*+)*+"|%b)' % plain
        self.record = re.compile(rb"%b(?:%b%b)*+\n" % (self._cell, self._between, self._cell))
        begun = rb'(?:%b%b)*+(?:("[^"]*+(?:""[^"]*+)*+)("?)|(%b))\Z'  # a good beginning of a record
        self.begun = re.compile(begun % (self._cell, self._between, plain))

    def cells(self, width: int | None) -> bytes:
        """The pattern of a line of at most so many cells."""
        more = b"*+" if width is None else b"{0,%d}+" % (width - 1)
        return rb"%b(?:%b%b)%b" % (self._cell, self._between, self._cell, more)


_READ: dict[str, Any] = {
    "dtype": str,
    "na_filter": False,
    "encoding_errors": "replace",
    "lineterminator": "\n",
    "index_col": False,
    "skip_blank_lines": False,  # a blank line is a record without cells
}


class _Lines:
    """A file in blocks of lines that end with line feeds, the last one too, without a byte-order mark."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._held, self._open = file, file.read(3).removeprefix(b"\xef\xbb\xbf"), False

    def read(self, size: int) -> bytes:
        """Some bytes, none at the end. A carriage return that ends a block waits for what follows it."""
        more = self._file.read(size)
        block, self._held = self._held + more, b""
        if more and block.endswith(b"\r"):
            block, self._held = block[:-1], b"\r"
            if not block:
                return self.read(size)
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if not block and self._open:
            block = b"\n"
        self._open = bool(block) and not block.endswith(b"\n")
        return block

    def closes(self, begun: "re.Match[bytes]", rules: _Rules) -> bool:
        """Whether the file goes on so that the record that has begun is a good one; looks ahead, and keeps nothing."""
        ahead, here, found = copy.copy(self), self._file.tell(), begun
        try:
            while block := ahead.read(_BLOCK):
                quoted, mark, plain = found.groups()
                text = (b'"' + mark if quoted else b"x" if plain else b"") + block  # as good a beginning, and short
                if rules.record.match(text):
                    return True
                if (after := rules.begun.match(text)) is None:
                    return False
                found = after
            return False
        finally:
            self._file.seek(here)


def _clean(lines: _Lines, rules: _Rules, width: int | None, size: int = 0) -> Iterator[bytes]:
    """Whole records, each ended by a line feed; a line with a stray quotation mark has all its marks as characters.

    Cells after the first `width` are left out where there are marks: pandas would make every record after it as wide.
    Without marks a line is a record, as it is.
    """
    first = rules.cells(width)
    whole, first_cells = re.compile(rb"(?:%b\n)*+" % first), re.compile(first)  # as many good records as there are
    rest, closes = b"", False
    while True:
        block = lines.read(max(size or _BLOCK, len(rest)))  # a long record is looked at a few times, however long it is
        rest += block
        at = 0 if b'"' in rest else rest.rfind(b"\n") + 1
        if at:
            yield rest[:at]
        while True:
            found = whole.match(rest, at)
            assert found is not None  # it matches nothing, too
            if found.end() > at:
                yield rest[at : found.end()]
                at = found.end()
            closes = closes and not at  # it is known of the record that the block before ended in
            line = rest.find(b"\n", at) + 1
            if not line:
                break
            if wide := rules.record.match(rest, at):
                cells = first_cells.match(rest, at)
                assert cells is not None
                yield cells[0] + b"\n"
                at = wide.end()
                continue
            begun = rules.begun.match(rest, at) if block else None
            if begun and (closes or len(rest) - at <= LONGEST or lines.closes(begun, rules)):
                closes = len(rest) - at > LONGEST
                break
            stray = rest[at : line - 1].split(rules.separator)[:width]
            yield rules.separator.join(b'"' + cell.replace(b'"', b'""') + b'"' for cell in stray) + b"\n"
            at = line
        if not block:
            return
        rest = rest[at:]


def _joined(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Small blocks of records joined to larger ones; blocks with and without quotation marks stay apart."""
    held: list[bytes] = []
    for block in blocks:
        if b'"' not in block:
            if held:
                yield b"".join(held)
                held = []
            yield block
            continue
        held.append(block)
        if sum(map(len, held)) >= _BLOCK:
            yield b"".join(held)
            held = []
    if held:
        yield b"".join(held)


def _typed(text: bytes, file: File, types: dict[str, pa.DataType]) -> pa.Table | None:
    """Records with a header line, read by Arrow; None if a record has another width, a cell is no plain number,
    or a character is told apart in another way.

    Arrow and pandas read the same number from every text that Arrow takes for one, so that it does not matter for a
    record which of them reads the block it is in.
    """
    usual = (file.decimal, file.thousands, file.currency, file.encoding, file.dates) == (".", None, None, "utf-8", ISO)
    if not usual or b"\r" in text or b"\0" in text:
        return None
    from pyarrow import csv

    marks = b'"' in text
    try:
        return csv.read_csv(
            _held(text),
            csv.ReadOptions(block_size=max(len(text), 1)),
            csv.ParseOptions(
                delimiter=file.between, quote_char='"' if marks else False, newlines_in_values=marks,
                ignore_empty_lines=False,
            ),
            csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[""], strings_can_be_null=False,
                check_utf8=False,
            ),
        )  # fmt: skip
    except pa.ArrowInvalid:
        return None


def _held(text: bytes) -> pa.BufferReader:
    """The bytes in memory of Arrow. Its threads may outlive the reading; one that frees a Python object when the
    interpreter has ended aborts the process."""
    kept = pa.BufferOutputStream()
    kept.write(text)
    return pa.BufferReader(kept.getvalue())


def _count(text: bytes, rules: _Rules) -> int:
    """Number of records of a block: that of lines, less those inside quotation marks."""
    return len(rules.record.findall(text)) if b'"' in text else text.count(b"\n")


def _cut(text: bytes, separator: bytes, width: int) -> bytes:
    """Lines without quotation marks, each with its first `width` cells."""
    return b"".join(separator.join(line.split(separator)[:width]) + b"\n" for line in text[:-1].split(b"\n"))


def _bytes(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb", buffering=0)


def _as_usual(cells: Array, file: File) -> Array:
    """Cells with a decimal point and no other marks; a cell that breaks the declared marks becomes unreadable."""
    if file.decimal == "." and file.thousands is None and file.currency is None:
        return cells
    mark, point = re.escape(file.thousands or " "), re.escape(file.decimal)
    grouped = re.compile(rf"\s*[-+]?[0-9]{{1,3}}(?:{mark}[0-9]{{3}})+(?:{point}[0-9]*)?\s*")
    swapped = str.maketrans({",": ".", ".": ","}) if file.decimal == "," else {}

    def usual(cell: object) -> object:
        if type(cell) is not str:
            return cell
        if file.currency is not None:
            bare = cell.strip()
            sign, first = file.currency, bare.startswith(file.currency)
            cell = (bare.removeprefix(sign) if first else bare.removesuffix(sign)).strip()
        if file.thousands is not None and grouped.fullmatch(cell):
            cell = cell.replace(file.thousands, "")
        return cell.translate(swapped)

    return np.fromiter(map(usual, cells), dtype=object, count=len(cells))


def _days(cells: Array, written: str) -> Array:
    """Days as yyyy-mm-dd; one that is not written as declared becomes unreadable."""
    pattern = written.replace("dd", "%d").replace("mm", "%m").replace("yyyy", "%Y")

    def usual(cell: object) -> str:
        try:
            return datetime.strptime(str(cell).strip(), pattern).date().isoformat()
        except ValueError:
            return ""

    return np.fromiter(map(usual, cells), dtype=object, count=len(cells))


def open_csv(file: File) -> Opened:
    """A text file; it has no types, so the schema says which columns are numbers."""
    rules = _Rules(file.between.encode("ascii"))
    columns = list(file.names) if file.names else quietly(file.where, lambda: _header(file, rules))
    return Opened(
        columns,
        None,
        lambda names, schema: {
            n: Kind("str" if hasattr(schema[n], "levels") else "float64", True, True) for n in names
        },
        quiet(file.where, partial(_pieces, file, rules, columns)),
        typed=False,
        remedy="" if file.names else _REMEDY.format(between=file.between, encoding=file.encoding),
    )


def _header(file: File, rules: _Rules) -> list[Any]:
    with _bytes(file.where) as held:
        text = next(_clean(_Lines(held), rules, None, _FIRST), b"")
    first = rules.record.match(text)
    try:
        return list(_read_text(first[0] if first else b"", file, header=None, nrows=1).iloc[0])
    except pd.errors.EmptyDataError:  # a blank line
        return []


def _read_text(text: bytes, file: File, **more: Any) -> Any:
    return pd.read_csv(io.BytesIO(text), sep=file.between, encoding=file.encoding, **_READ, **more)


def _pieces(file: File, rules: _Rules, columns: list[Any], names: list[str], schema: Schema) -> Iterator[Piece]:
    """The records, by Arrow where it reads a block as this module does, else by pandas."""
    at = {n: columns.index(n) for n in names}
    above = file.between.join(map(str, range(len(columns)))).encode("ascii") + b"\n"
    types = {str(at[n]): pa.float64() if _is_number(schema[n]) else pa.binary() for n in names}
    how = {"header": 0, "names": range(len(columns)), "usecols": sorted(at.values()), "chunksize": open_table.CHUNK}
    with _bytes(file.where) as held:
        for i, text in enumerate(_joined(_clean(_Lines(held), rules, len(columns)))):
            first = rules.record.match(text) if i == 0 and not file.names else None
            text = above + text[first.end() if first else 0 :]
            left = _count(text, rules) - 1  # by the rule above; a reader must find as many
            table = _typed(text, file, types)
            if table is not None and len(table) == left:
                yield Piece(left, {n: as_cells(table.column(str(at[n]))) for n in names})
                continue
            plain = text if b'"' in text else _cut(text, rules.separator, len(columns))
            for frame in _read_text(plain, file, **how):
                left -= len(frame)
                yield Piece(len(frame), {n: _cells(frame[at[n]], schema[n], file) for n in names})
            if left:
                raise ValueError


def _is_number(column: Column) -> bool:
    return isinstance(column, Range) and not isinstance(column, Date)


def _cells(text: "pd.Series[str]", column: Column, file: File) -> Cells:
    if _is_number(column):
        return Text(_as_usual(text.to_numpy(dtype=object), file))
    if isinstance(column, Date) and file.dates != ISO:
        return as_cells(_days(text.to_numpy(dtype=object), file.dates))
    whole = text.to_numpy(dtype=object) if text.dtype == object else pa.array(text.array)  # by the age of pandas
    return as_cells(whole)


def plausible(file: File, names: Sequence[Any]) -> None:
    """Refuses a first line that shows that another separator or encoding is meant; the message quotes none of it.

    For a command that shows that line anyway, and no other.
    """
    one = str(names[0]) if len(names) == 1 and file.separator is None and file.between == "," else ""
    other = [word for sign, word in _OTHERS.items() if sign in one and file.between not in one]  # or it was quoted
    if other:
        raise InvalidValue(
            f"data file {str(file.where)!r} has one column between {file.between!r}, and its first line has a "
            f"{other[0]} in it. Say what is between its cells: --separator {other[0]} (separator= of pgbb.File), or "
            "comma if there is one column."
        )
    if any("\ufffd" in str(name) for name in names):
        raise InvalidValue(
            f"data file {str(file.where)!r} is not {file.encoding}: its first line has characters that are none. Say "
            "its encoding, such as --encoding cp1252 (Windows) or latin-1 (encoding= of pgbb.File)."
        )
    if any("\x80" <= sign <= "\x9f" for name in names for sign in str(name)):
        raise InvalidValue(
            f"data file {str(file.where)!r} has control characters in its first line, read as {file.encoding}. Those "
            "are letters and signs of Windows: say --encoding cp1252 (encoding= of pgbb.File)."
        )
