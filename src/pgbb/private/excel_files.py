"""Workbooks of Excel and their like. A sheet stores the type of each cell: a column is a list of objects.

The first row is the header. A row below the last one that has any filled cell is no record. A cell whose content is
not of its own type is taken out before the reader sees it: it would refuse the sheet.
"""

import html
import io
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.schema import Schema
from pgbb.private.cells import Kind
from pgbb.private.files import File
from pgbb.private.open_table import Opened, Piece, parts, quietly

_CELL = re.compile(rb"<c(\s[^>]*?)?(?:/>|>(.*?)</c>)", re.DOTALL)
_TYPE = re.compile(rb"""\st=["']([^"']*)["']""")
_VALUE = re.compile(rb"<v(?:\s[^>]*)?>(.*?)</v>", re.DOTALL)
_TEXT = re.compile(rb"<is(?:\s[^>]*)?>.*?</is>", re.DOTALL)
_CONTENT = {
    b"n": re.compile(rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"),
    b"b": re.compile(rb"[01]"),
    b"e": re.compile(rb"#(?:DIV/0!|N/A|NAME\?|NULL!|NUM!|REF!|VALUE!)"),
    b"s": re.compile(rb"[0-9]{1,9}"),
    b"str": re.compile(rb"[^<]*"),
    b"d": re.compile(rb"[^<]*"),
}
_UNPARSED = re.compile(rb"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_IN_UTF_8 = re.compile(rb"""(?:\xef\xbb\xbf)?(?:<\?xml(?![^>]*encoding=["'](?!utf-8["']))|<(?!\?xml))""", re.IGNORECASE)
_QUOTED = rb"""(?:"[^"]*"|'[^']*')"""
_ODS_CELL = re.compile(rb"<table:(?:covered-)?table-cell((?:\s+[\w:.-]+\s*=\s*" + _QUOTED + rb")*)(\s*/?>)")
_ODS_SPACES = re.compile(rb"<text:s\s[^>]*>")
_ODS_COUNT = re.compile(rb"""=\s*["'][0-9]{1,9}["']""")
_ODS_ATTRIBUTE = re.compile(rb"\s+([\w:.-]+)\s*=\s*(" + _QUOTED + rb")")
_ODS_TIMES = re.compile(rb"[0-9]{1,5}")
_REFERENCE = re.compile(rb"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#x([0-9A-Fa-f]{1,6}));|&")
_CHARACTERS = ((0x9, 0xA), (0xD, 0xD), (0x20, 0xD7FF), (0xE000, 0xFFFD), (0x10000, 0x10FFFF))  # ranges that XML allows


def _plain(cell: "re.Match[bytes]", texts: int) -> bytes:
    """A cell of a sheet with its value alone; where that is not of its type, an error, so that its row stays a row."""
    about, inside = cell[1] or b"", cell[2] or b""
    given, content, text = _TYPE.search(about), _VALUE.search(inside), _TEXT.search(inside)
    kind = given[1] if given else b"n"
    if text is not None and kind == b"inlineStr":
        return b"<c%b>%b</c>" % (about, text[0])
    if not inside:
        return cell[0]
    allowed = _CONTENT.get(kind)
    good = content is not None and allowed is not None and allowed.fullmatch(content[1]) is not None
    if content is None or not good or (kind == b"s" and int(content[1]) >= texts):
        return b'<c%b t="e"><v>#VALUE!</v></c>' % _TYPE.sub(b"", about)
    return b"<c%b>%b</c>" % (about, content[0])


def _plain_ods(cell: "re.Match[bytes]") -> bytes:
    """The tag of a cell of an .ods sheet, without what its reader cannot take."""
    given = {name: value[1:-1] for name, value in _ODS_ATTRIBUTE.findall(cell[1])}
    odd = _CONTENT[b"n"].fullmatch(given.get(b"office:value", b"0")) is None
    wrong = {b"office:value-type", b"office:value"} if odd else set()
    if _ODS_TIMES.fullmatch(given.get(b"table:number-columns-repeated", b"1")) is None:
        wrong.add(b"table:number-columns-repeated")
    if not wrong:
        return cell[0]
    rest = _ODS_ATTRIBUTE.sub(lambda found: b"" if found[1] in wrong else found[0], cell[1])
    return cell[0].replace(cell[1], rest)


def _reference(found: "re.Match[bytes]") -> bytes:
    """A character reference, or its text where no such character exists: the parser would refuse the whole document."""
    code = int(found[2]) if found[2] else int(found[3], 16) if found[3] else -1
    if found[1] or any(low <= code <= high for low, high in _CHARACTERS):
        return found[0]
    return b"&amp;" + found[0][1:]


def _cells(name: str, part: bytes, texts: int) -> bytes:
    """A part of a workbook, with cells that its reader can take; what is not UTF-8 is no character of any text."""
    if name.endswith(".xml") and _IN_UTF_8.match(part) is not None:
        part = part.decode("utf-8", "replace").encode("utf-8")
        part = _UNPARSED.sub(lambda text: html.escape(text[1].decode("utf-8"), quote=False).encode("utf-8"), part)
    if name.endswith("sharedStrings.xml"):
        return _REFERENCE.sub(_reference, part)
    if name.startswith("xl/worksheets/") and name.endswith(".xml"):
        return _CELL.sub(lambda cell: _plain(cell, texts), _REFERENCE.sub(_reference, part))
    if name == "content.xml":  # all sheets of an .ods file
        part = _REFERENCE.sub(_reference, part)
        part = _ODS_SPACES.sub(lambda found: found[0] if _ODS_COUNT.search(found[0]) else b"<text:s/>", part)
        return _ODS_CELL.sub(_plain_ods, part)
    return part


def _book(path: Path) -> io.BytesIO:
    """The bytes of a workbook, with cells that its reader can take; .xls and .xlsb as they are."""
    out = io.BytesIO()
    if path.suffix.lower() not in (".xlsx", ".xlsm", ".ods"):
        out.write(path.read_bytes())
        out.seek(0)
        return out
    with zipfile.ZipFile(path) as given, zipfile.ZipFile(out, "w") as made:
        shared = [given.read(name) for name in given.namelist() if name.endswith("sharedStrings.xml")]
        texts = sum(len(re.findall(rb"<si[\s/>]", part)) for part in shared)
        for name in given.namelist():
            made.writestr(name, _cells(name, given.read(name), texts))
    out.seek(0)
    return out


@contextmanager
def _silent() -> Iterator[None]:
    """Silence standard output and error: the compiled reader quotes what it read where it fails."""
    kept, void = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(void, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(void)


def _rows(rows: Iterator[list[Any]]) -> Iterator[list[Any] | None]:
    """The rows one by one; None for a row with a cell that Python cannot hold, such as a date that does not exist."""
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # the reader's own class for a number too large for a moment is no Exception
            yield None


def open_sheet(file: File) -> Opened:
    """The only sheet of a workbook, or the named one."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError:
        raise PgbbError("workbooks are read by python-calamine: pip install 'pgbb[files]'.") from None
    path = file.where
    book = quietly(path, lambda: CalamineWorkbook.from_filelike(_book(path)))
    sheets = list(book.sheet_names)
    if file.sheet is None and len(sheets) != 1:
        raise InvalidValue(
            f"data file {str(path)!r} has {len(sheets)} sheets: {', '.join(map(repr, sheets))}. Say which one: "
            f"sheet={sheets[0] if sheets else ''!r} (--sheet)."
        )
    if file.sheet is not None and file.sheet not in sheets:
        raise InvalidValue(f"sheet = {file.sheet!r} is not allowed: {str(path)!r} has {', '.join(map(repr, sheets))}.")
    name = file.sheet if file.sheet is not None else sheets[0]
    with _silent():
        rows = list(_rows(quietly(path, lambda: book.get_sheet_by_name(name).iter_rows())))
    header, records = (rows[0] or [], rows[1:]) if rows else ([], [])
    void = [None] * len(header)
    names = [cell if isinstance(cell, str) and cell else None for cell in header]

    def pieces(wanted: list[str], _: Schema) -> Iterator[Piece]:
        at = {name: names.index(name) for name in wanted}
        for part in parts(len(records)):
            some = records[part]
            cells = {
                n: np.fromiter(((row or void)[i] for row in some), dtype=object, count=len(some)) for n, i in at.items()
            }
            yield Piece(len(some), cells)

    each = Kind("cell", True, True)
    return Opened(
        names,
        len(records),
        lambda wanted, _: dict.fromkeys(wanted, each),
        pieces,
        remedy="Correct the names in the schema or in the sheet; where no row holds names, put one first.",
    )
