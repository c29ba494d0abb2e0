"""Data with known names and types, which can be read from the beginning, piece by piece.

Every source of records becomes an `Opened`; its pieces are read by `cells` alone. A reader's own
message may quote cells, so `quietly` replaces it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from pgbb.errors import PgbbError
from pgbb.model.schema import Schema
from pgbb.private.cells import Cells, Kind

CHUNK = 2**14
"""Records read and encoded at once."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Some records: how many, and the cells of each column that was asked for."""

    n: int
    cells: Mapping[str, Cells]


Reader: TypeAlias = Callable[[list[str], Schema], Iterator[Piece]]
"""Reads some columns, one piece after another."""


@dataclass(frozen=True)
class Opened:
    """Data that can be read from the beginning.

    Attributes:
      names: of all columns.
      count: how many records there are, or None where only reading tells; no cell changes it.
      kinds: the stored types of some columns; they do not depend on a cell.
      pieces: reads them.
      typed: whether a column has a stored type; a text file has none.
      remedy: what to change where names do not fit, if they are those of a first line, which is a header by agreement
        alone: in a file without one it is a record, so that nothing else may be said of it.
    """

    names: Sequence[str | None]
    count: int | None
    kinds: Callable[[list[str], Schema], dict[str, Kind]]
    pieces: Reader
    typed: bool = True
    remedy: str = ""


def parts(n: int) -> Iterator[slice]:
    """Slices of bounded length that cover n records."""
    return (slice(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK))


T = TypeVar("T")


def quietly(path: Path, read: Callable[[], T]) -> T:
    """Run a reader, and replace its error, which may quote cells, by one that does not."""
    try:
        return read()
    except Exception:
        raise PgbbError(
            f"data file {str(path)!r} cannot be read as {path.suffix[1:].lower()}: it is empty, damaged or of another "
            "format. Its reader's message is withheld, because it may quote records: open it with pandas to see why."
        ) from None


def quiet(path: Path, read: Reader) -> Reader:
    """The reader, quietly; an error at the end if the file is not the one it was at the beginning."""

    def pieces(names: list[str], schema: Schema) -> Iterator[Piece]:
        before = _stamp(path)
        found = quietly(path, lambda: read(names, schema))
        while (piece := quietly(path, lambda: next(found, None))) is not None:
            yield piece
            del piece  # before the next is read
        if _stamp(path) != before:
            raise PgbbError(
                f"data file {str(path)!r} has changed while it was read. Leave it alone while a fit runs. Nothing was "
                "asked or spent."
            )

    return pieces


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """A stamp that changes when the file changes or is replaced; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
