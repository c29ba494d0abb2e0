"""CSV files: which bytes are a record, and its cells as text. Numbers and levels are made of them in `cells`.

A record ends with a line feed, with or without a carriage return before it; any other
carriage return belongs to its cell. A cell in quotation marks may hold commas, line
feeds and doubled marks, and its closing mark ends the cell. A mark that breaks this
rule is a character like any other, so that it damages the record it stands in and no
other. Lines that are blank, too short or too long are records.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa

from pgbb.model.schema import Range, Schema
from pgbb.private import opened
from pgbb.private.cells import Cells, Kind, Text, as_cells
from pgbb.private.opened import Opened, Piece, quiet, quietly

__all__ = ["open_csv"]

LONGEST = 2**20
"""Bytes after which a record with an open quotation mark is deemed to have a stray one."""

_BLOCK = 2**18
_QUOTED = rb'"[^"]*+(?:""[^"]*+)*+"'
_CELL = rb'(?:%b|(?!")[^,\n]*+)' % _QUOTED
_WHOLE = re.compile(rb"(?:%b(?:,%b)*+\n)*+" % (_CELL, _CELL))  # as many good records as there are
_BEGUN = re.compile(rb'(?:%b,)*+(?:"[^"]*+(?:""[^"]*+)*+"?|(?!")[^,\n]*+)\Z' % _CELL)  # a good beginning of one

_READ: dict[str, Any] = {
    "dtype": str,
    "na_filter": False,
    "encoding": "utf-8",
    "encoding_errors": "replace",
    "lineterminator": "\n",
    "index_col": False,
    "skip_blank_lines": False,  # a blank line is a record without cells
}


class _Records(io.RawIOBase):
    """The bytes of a file with line feeds for ends and without stray quotation marks."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._clean = file, _clean(file)
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = next(self._clean, None)
            if block is None:
                return 0
            self._ready = memoryview(block)
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def _clean(file: BinaryIO) -> Iterator[bytes]:
    """Whole records, each ended by a line feed; a line with a stray quotation mark has all its marks as characters."""
    rest, ended = file.read(3).removeprefix(b"\xef\xbb\xbf"), False
    while not ended or rest:
        if not ended:
            block = file.read(_BLOCK)
            ended = not block
            rest += block
            if not ended and rest.endswith(b"\r"):  # a line feed may follow
                rest += file.read(1)
            rest = rest.replace(b"\r\n", b"\n")
            if ended and rest and not rest.endswith(b"\n"):
                rest += b"\n"
        at = 0
        while True:
            found = _WHOLE.match(rest, at)
            assert found is not None  # it matches nothing, too
            if found.end() > at:
                yield rest[at : found.end()]
                at = found.end()
            line = rest.find(b"\n", at) + 1
            if not line or (not ended and len(rest) - at <= LONGEST and _BEGUN.match(rest, at)):
                break
            cells = rest[at : line - 1].split(b",")
            yield b",".join(b'"' + cell.replace(b'"', b'""') + b'"' for cell in cells) + b"\n"
            at = line
        rest = rest[at:]


def _stream(path: Path) -> Any:
    return io.BufferedReader(_Records(path.open("rb", buffering=0)), _BLOCK)


def open_csv(path: Path) -> Opened:
    """A CSV file with a header line; it has no types, so the schema says which columns are numbers."""

    def header() -> list[Any]:
        with _stream(path) as stream:
            return list(pd.read_csv(stream, header=None, nrows=1, **_READ).iloc[0])

    def read(names: list[str], schema: Schema) -> Iterator[Piece]:
        at = {name: found.index(name) for name in names}
        with (
            _stream(path) as stream,
            pd.read_csv(
                stream, header=0, names=range(len(found)), usecols=sorted(at.values()), chunksize=opened.CHUNK, **_READ
            ) as reader,
        ):
            for frame in reader:
                if len(frame):
                    yield Piece(len(frame), {name: cells(frame[at[name]], name, schema) for name in names})

    def cells(text: "pd.Series[str]", name: str, schema: Schema) -> Cells:
        if isinstance(schema[name], Range):
            return Text(text.to_numpy(dtype=object))
        whole = text.to_numpy(dtype=object) if text.dtype == object else pa.array(text.array)  # by the age of pandas
        return as_cells(whole)

    def kinds(names: list[str], schema: Schema) -> dict[str, Kind]:
        return {name: Kind("str" if hasattr(schema[name], "levels") else "float64", True, True) for name in names}

    found = quietly(path, header)
    counted: list[int] = []

    def most(*_: Any) -> int:
        if not counted:
            counted.append(quietly(path, lambda: _lines(path)))
        return counted[0]

    return Opened(found, most, kinds, lambda *given: quiet(path, lambda: read(*given)))


def _lines(path: Path) -> int:
    """How many lines end in the file, and one for a last without end: a record has one or, in quotes, more."""
    count = 1
    with path.open("rb") as file:
        while block := file.read(2**20):
            count += block.count(b"\n")
    return count
