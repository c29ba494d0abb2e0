"""Files of SAS and SPSS, which store numbers and text; labels and formats come from the header.

Bytes of text are decoded one by one, so that no cell can stop the reader; their encoding is seen to cell by cell.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.schema import Column, Schema
from pgbb.private.cells import Cells, Kind
from pgbb.private.files import File
from pgbb.private.open_table import Opened, Piece, parts, quiet, quietly
from pgbb.private.stata_files import meant, texts

_MOMENTS = ("DATETIME", "YMDHMS", "E8601DT", "B8601DT", "DATEAMPM")
_DAYS = ("DATE", "ADATE", "EDATE", "JDATE", "SDATE", "DDMMYY", "MMDDYY", "YYMMDD", "E8601DA", "B8601DA", "WEEKDATE")
_BYTES = "ISO-8859-1"  # every byte is a character


@dataclass(frozen=True)
class _Variable:
    """A variable by the header: whether it is text, how it is shown, and the labels of its codes."""

    text: bool
    form: str
    labels: dict[Any, str]
    sas: bool
    encoding: str

    @property
    def dated(self) -> bool:
        return not self.text and self.form.startswith((*_MOMENTS, *_DAYS))

    def stored(self) -> Kind:
        return Kind("str", False, True) if self.text else Kind("date", False, True) if self.dated else _NUMBER

    def cells(self, given: list[Any], declared: Column) -> Cells:
        if self.text:
            return texts(np.fromiter(given, dtype=object, count=len(given)), self.encoding)
        numbers = np.array([np.nan if v is None else v for v in given], dtype=np.float64)
        return meant(numbers, declared, self.labels, self._moment if self.dated else None)

    def _moment(self, value: float) -> Any:
        """The moment of a number shown as a date: SAS counts days, or seconds, SPSS seconds; None if there is none."""
        try:
            days = not self.form.startswith(_MOMENTS)
            start = np.datetime64("1960-01-01" if self.sas else "1582-10-14", "s")
            moment = start + np.timedelta64(int(value) * (86_400 if days and self.sas else 1), "s")
            return moment.astype("M8[D]").item() if days else pd.Timestamp(moment)
        except Exception:
            return None


_NUMBER = Kind("float64", True, True)


def open_statistical(file: File) -> Opened:
    """A .sas7bdat, .xpt, .sav or .zsav file: codes stay codes, except where the schema declares levels by labels."""
    try:
        import pyreadstat
    except ImportError:
        raise PgbbError("files of SAS and SPSS are read by pyreadstat: pip install 'pgbb[files]'.") from None
    path = file.where
    sas = file.kind in (".sas7bdat", ".xpt")
    readers: dict[str, Any] = {".sas7bdat": pyreadstat.read_sas7bdat, ".xpt": pyreadstat.read_xport}
    reader: Any = readers.get(file.kind, pyreadstat.read_sav)

    def header() -> tuple[dict[str, _Variable], Any, str]:
        _, about = reader(str(path), metadataonly=True)
        encoding = _known(about.file_encoding)
        kinds, forms, labels = about.readstat_variable_types, about.original_variable_types, about.variable_value_labels
        found = {
            name: _Variable(
                kinds[name] == "string", str(forms.get(name) or "").upper(), labels.get(name, {}), sas, encoding
            )
            for name in about.column_names
        }
        return found, about.number_rows, encoding

    def read(names: list[str], schema: Schema) -> Iterator[Piece]:
        raw = {name: _raw(name, encoding) for name in names or list(variables)[:1]}
        found, _ = reader(
            str(path), usecols=list(raw.values()), encoding=_BYTES, output_format="dict",
            disable_datetime_conversion=True,
        )  # fmt: skip
        for part in parts(len(next(iter(found.values())))):
            cells = {name: variables[name].cells(found[raw[name]][part], schema[name]) for name in names}
            yield Piece(part.stop - part.start, cells)

    variables, rows, encoding = quietly(path, header)
    if file.kind == ".xpt" and all(variable.text for variable in variables.values()) and not _counted(path):
        raise InvalidValue(
            f"data file {str(path)!r} is a transport file of text alone, which does not say how many records it has: "
            "blank ones at its end are no other than what fills it up. Write it with a column of numbers, in version "
            "8 or in another format."
        )
    return Opened(
        list(variables),
        None if rows is None else int(rows),
        lambda names, _: {name: variables[name].stored() for name in names},
        quiet(path, read),
    )


def _counted(path: Path) -> bool:
    """Whether a transport file is of version 8, which says how many records there are."""
    with path.open("rb") as file:
        return b"LIBV8" in file.read(80)


def _known(encoding: str | None) -> str:
    """Python's name of the encoding of a file; UTF-8 if the file does not name one."""
    try:
        return codecs.lookup(encoding or "utf-8").name
    except LookupError:
        return "latin-1"


def _raw(name: str, encoding: str) -> str:
    """A column's name as the reader sees it when each byte is a character."""
    try:
        return name.encode(encoding).decode("latin-1")
    except UnicodeError:
        return name
