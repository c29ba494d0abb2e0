"""`File`: a data file and how to read it. All of it is public, and none of it is guessed from what the file holds."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgbb import _validate
from pgbb.errors import InvalidValue

TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
STATISTICAL = (".sas7bdat", ".xpt", ".sav", ".zsav")
DATABASES = (".duckdb",)
ISO = "yyyy-mm-dd"
FORMATS = (*TEXT, ".parquet", ".dta", *SHEETS, *STATISTICAL, *DATABASES)


@dataclass(frozen=True)
class File:
    """A data file and how to read it.

    Args:
      path: .csv or .tsv (also .gz), .parquet or a folder of these, .dta, .xlsx (also .xls, .xlsb, .ods), .sas7bdat,
        .xpt, .sav, or .duckdb.
      separator: between the cells of a text file; a comma, or a tab in a .tsv file.
      decimal: mark of a text file, "." or ",".
      thousands: mark between groups of three digits, such as "." or " "; None where there is none.
      currency: a sign before or after numbers of a text file, such as "€", which is left out; None where there is none.
      dates: how a text file writes the days of a `Date`, such as "dd.mm.yyyy" or "mm/dd/yyyy".
      encoding: of a text file: "utf-8", or one with a byte for each character, such as "latin-1" or "cp1252".
      names: of the columns of a text file that has no header line.
      sheet: of a workbook that has several.
      sql: SELECT columns FROM a table or view of a database file, with or without WHERE.

    >>> File("wages.csv", separator=";", decimal=",", encoding="latin-1").kind
    '.csv'
    """

    path: str | Path
    separator: str | None = None
    decimal: str = "."
    thousands: str | None = None
    encoding: str = "utf-8"
    names: Sequence[str] | None = None
    sheet: str | None = None
    sql: str | None = None
    currency: str | None = None
    dates: str = ISO

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | Path):
            raise _validate.fail("path", type(self.path).__name__, "the path of a file")
        object.__setattr__(self, "path", Path(self.path))
        text = {
            "separator": self.separator,
            "thousands": self.thousands,
            "names": self.names,
            "currency": self.currency,
        }
        text |= {"decimal": self.decimal if self.decimal != "." else None}
        text |= {"dates": self.dates if self.dates != ISO else None}
        text |= {"encoding": self.encoding if self.encoding != "utf-8" else None}
        for name, value, kinds in (
            *((n, v, TEXT) for n, v in text.items()), ("sheet", self.sheet, SHEETS), ("sql", self.sql, DATABASES),
        ):  # fmt: skip
            if value is not None and self.kind not in kinds:
                raise InvalidValue(
                    f"{name} = {value!r} is not allowed with {str(self.path)!r}: it is for files that end in "
                    f"{', '.join(kinds)}. Leave it out."
                )
        if self.kind in DATABASES and self.sql is None:
            raise InvalidValue(
                f"{str(self.path)!r} is a database: say which columns to read, as in sql='SELECT y, x FROM people'."
            )
        self._check_text()

    def _check_text(self) -> None:
        given = self.separator
        if given is not None and (not isinstance(given, str) or len(given) != 1 or given in '"\r\n' or given > "~"):
            raise _validate.fail("separator", given, "one ASCII character such as ';' or a tab, no quotation mark")
        _validate.one_of("decimal", self.decimal, (".", ","))
        if self.thousands is not None:
            marks = {".", ",", " ", "'", "\u00a0", "\u202f"} - {self.decimal}
            _validate.one_of("thousands", self.thousands, tuple(sorted(marks)))
        sign: object = self.currency
        if sign is not None and (not isinstance(sign, str) or not sign.strip(" .,0123456789-+")):
            raise _validate.fail("currency", self.currency, "a sign such as '€' or 'USD'")
        parts = re.fullmatch(r"(dd|mm|yyyy)([-./ ]?)(dd|mm|yyyy)\2(dd|mm|yyyy)", str(self.dates))
        if parts is None or len(set(parts.groups()) - {parts[2]}) < 3:
            raise _validate.fail("dates", self.dates, "dd, mm and yyyy with one mark between them, such as dd.mm.yyyy")
        if self.decimal == self.between or self.thousands == self.between:
            raise InvalidValue(
                f"separator = {self.between!r} is also a mark in numbers: give the separator of the file, such as "
                "separator=';' (--separator ';')."
            )
        if not _is_plain(self.encoding):
            raise _validate.fail(
                "encoding", self.encoding, "utf-8, or an encoding with one byte for each character, such as latin-1",
                "Convert the file to UTF-8.",
            )  # fmt: skip
        if self.names is not None:
            names = tuple(self.names)
            if isinstance(self.names, str) or not names or not all(isinstance(n, str) and n for n in names):
                raise _validate.fail("names", self.names, "a list of column names, one for each column of the file")
            object.__setattr__(self, "names", names)

    @property
    def where(self) -> Path:
        """The path of the file."""
        return Path(self.path)

    @property
    def kind(self) -> str:
        """The ending in small letters, such as .csv or .csv.gz."""
        suffixes = [s.lower() for s in self.where.suffixes[-2:]]
        return "".join(suffixes) if suffixes[-1:] == [".gz"] else suffixes[-1] if suffixes else ""

    @property
    def between(self) -> str:
        """What separates the cells of a text file."""
        return self.separator or ("\t" if self.kind.startswith(".tsv") else ",")


def _is_plain(encoding: object) -> bool:
    """Whether bytes are decoded one by one, so that damage to a cell stays in it, and ASCII is itself."""
    try:
        info = codecs.lookup(str(encoding))
        if info.name == "utf-8":
            return True
        ascii_ = bytes(range(128)).decode(info.name)
        return ascii_ == bytes(range(128)).decode("ascii") and all(
            len(bytes([b]).decode(info.name, "replace")) == 1 and len(bytes([b, 65]).decode(info.name, "replace")) == 2
            for b in range(128, 256)
        )
    except (LookupError, UnicodeError, ValueError, TypeError):
        return False
