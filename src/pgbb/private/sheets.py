"""Workbooks of Excel and their like. A sheet stores the type of each cell: a column is a list of objects.

The first row is the header. A row below the last one that has any filled cell is no record.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.schema import Schema
from pgbb.private.cells import Kind
from pgbb.private.files import File
from pgbb.private.opened import Opened, Piece, parts, quietly

__all__ = ["open_sheet"]


def _rows(rows: Iterator[list[Any]]) -> Iterator[list[Any] | None]:
    """The rows one by one; None for one with a cell that is no Python object, such as a too long time."""
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except Exception:
            yield None


def open_sheet(file: File) -> Opened:
    """The only sheet of a workbook, or the named one."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError:
        raise PgbbError("workbooks are read by python-calamine: pip install 'pgbb[files]'.") from None
    path = file.where
    book = quietly(path, lambda: CalamineWorkbook.from_path(str(path)))
    sheets = list(book.sheet_names)
    if file.sheet is None and len(sheets) != 1:
        raise InvalidValue(
            f"data file {str(path)!r} has {len(sheets)} sheets: {', '.join(map(repr, sheets))}. Say which one: "
            f"sheet={sheets[0] if sheets else ''!r} (--sheet)."
        )
    if file.sheet is not None and file.sheet not in sheets:
        raise InvalidValue(f"sheet = {file.sheet!r} is not allowed: {str(path)!r} has {', '.join(map(repr, sheets))}.")
    name = file.sheet if file.sheet is not None else sheets[0]
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
        lambda *_: len(records),
        lambda wanted, _: dict.fromkeys(wanted, each),
        pieces,
        remedy="Correct the names in the schema or in the sheet; where no row holds names, put one first.",
    )
