"""Stata files: stored types, labels and formats come from the file's header, and never from what its cells are.

pandas decodes the bytes with everything switched off that looks at a whole column: dates, labels and
text are made cell by cell here.
"""

import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from pgbb.model.schema import Column, Date, Levels, Schema
from pgbb.private import open_table
from pgbb.private.cells import Array, Cells, Coded, Kind
from pgbb.private.open_table import Opened, Piece, quiet, quietly

_RAW: dict[str, Any] = {"convert_dates": False, "convert_categoricals": False, "convert_missing": False}
_NUMBERS = {"b": "int8", "h": "int16", "l": "int32", "f": "float32", "d": "float64"}
_DATES = ("%tc", "%td", "%d", "%tw", "%tm", "%tq", "%th", "%ty")


@dataclass(frozen=True)
class _Variable:
    """A variable by the header: its type, how it is shown, and the labels of its codes."""

    kind: Any  # a letter for numbers, the width of text, Q for long text
    form: str
    labels: dict[int, str]

    @property
    def dated(self) -> bool:
        return self.kind in _NUMBERS and self.form.startswith(_DATES)

    def stored(self) -> Kind:
        if self.kind not in _NUMBERS:
            return Kind("str", False, True)
        return Kind("date", False, True) if self.dated else Kind(_NUMBERS[self.kind], True, True)

    def cells(self, column: "pd.Series[Any]", declared: Column, encoding: str) -> Cells:
        if self.kind not in _NUMBERS:
            return texts(column.to_numpy(dtype=object), encoding)
        return meant(column.to_numpy(), declared, self.labels, partial(_date, form=self.form) if self.dated else None)


def meant(numbers: Array, declared: Column, labels: Mapping[Any, str], moment: Callable[[float], Any] | None) -> Cells:
    """Numbers as they are; or their labels, or moments, where levels or days are declared."""
    labelled = isinstance(declared, Levels) and any(isinstance(v, str) for v in declared.levels) and bool(labels)
    if not isinstance(declared, Levels | Date) or (moment is None and not labelled):
        return numbers
    which, found = pd.factorize(numbers)  # missing cells are −1
    said = (labels.get(v, v) if labelled else v for v in found.tolist())
    distinct = (v if moment is None or isinstance(v, str) else moment(v) for v in said)
    return Coded(which, np.fromiter(distinct, dtype=object, count=len(found)))


def texts(cells: Array, encoding: str) -> Coded:
    """Text that was decoded byte by byte, in the encoding of the file."""
    which, found = pd.factorize(cells)
    return Coded(which, np.fromiter((_decoded(v, encoding) for v in found), dtype=object, count=len(found)))


def _decoded(cell: Any, encoding: str) -> Any:
    """One text; bytes that are not of the encoding stay what they are."""
    if encoding == "latin-1" or not isinstance(cell, str):
        return cell
    try:
        return cell.encode("latin-1").decode(encoding)
    except UnicodeError:
        return cell


def _date(value: float, form: str) -> Any:
    """The moment of a number shown as a date; None if there is none."""
    try:
        moment: Any
        count = int(value)
        months = {"%tm": 1, "%tq": 3, "%th": 6}.get(form[:3])
        if months is not None:
            moment = np.datetime64("1960-01", "M") + months * count
        elif form.startswith("%ty"):
            moment = np.datetime64(count - 1970, "Y")
        elif form.startswith("%tw"):
            moment = np.datetime64(count // 52 - 10, "Y").astype("M8[D]") + count % 52 * 7
        else:
            moment = np.datetime64("1960-01-01", "ms" if form.startswith("%tc") else "D") + count
        return pd.Timestamp(moment)
    except Exception:
        return None


class _LongTexts(dict[str, Any]):
    """Long texts (strL) by the key that cells have; a key of no text is a missing cell."""

    def __missing__(self, key: str) -> None:
        return None

    @classmethod
    def of(cls, reader: Any) -> Self:
        """Read the texts of a file; checks where they begin and end, and that keys differ, but not their content."""
        file, order, version = reader._path_or_buf, reader._byteorder, reader._format_version
        head, bits = struct.Struct(order + ("IIBI" if version == 117 else "IQBI")), {117: 32, 118: 16}.get(version, 24)
        found = cls({"0": ""})
        file.seek(reader._seek_strls)
        while (mark := file.read(3)) == b"GSO":
            v, o, kind, size = head.unpack(file.read(head.size))
            key = str(v | o << bits if order == "<" else v << 64 - bits | o)
            text = file.read(size)
            if key in found or len(text) < size:
                raise ValueError
            found[key] = (text[:-1] if kind == 130 else text).decode("latin-1")
        if mark + file.read(5) != b"</strls>":
            raise ValueError
        return found


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    """The reader of pandas, without warnings, in an encoding that accepts every byte."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pd.read_stata(path, iterator=True, **_RAW) as reader:
            reader.variable_labels()  # reads the header
            yield reader


def open_stata(path: Path) -> Opened:
    """A .dta file: codes stay codes, except where the schema declares levels by their labels."""

    def header() -> tuple[dict[str, _Variable], int, str]:
        with _reading(path) as reader:
            encoding, n = reader._encoding, int(reader._nobs)
            tables = reader.value_labels() if n else {}
            listed = zip(reader._varlist, reader._typlist, reader._fmtlist, reader._lbllist, strict=True)
            found = {
                name: _Variable(kind, form, {int(code): text for code, text in tables.get(label, {}).items()})
                for name, kind, form, label in listed
            }
            return found, n, encoding

    def read(names: list[str], schema: Schema) -> Iterator[Piece]:
        with _reading(path) as reader:
            reader._encoding = "latin-1"
            long = any(variables[name].kind == "Q" for name in names)
            reader.GSO, reader._read_strls = _LongTexts.of(reader) if long else {}, lambda: None
            done = 0
            while done < n:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    frame = reader.read(nrows=open_table.CHUNK, columns=names or None)
                done += len(frame)
                yield Piece(
                    len(frame), {name: variables[name].cells(frame[name], schema[name], encoding) for name in names}
                )

    variables, n, encoding = quietly(path, header)
    return Opened(
        list(variables),
        n,
        lambda names, _: {name: variables[name].stored() for name in names},
        quiet(path, read),
    )
