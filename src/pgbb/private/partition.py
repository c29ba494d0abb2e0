"""Which records each process of a fit holds, and reading them: each process its own row groups, and no others.

The number of a record is its place in the sorted list of files and their row
groups: public metadata. Blocks, batches and sums are functions of it, so that
they do not depend on how many processes share the records. Errors here depend on names,
types and counts in the files' metadata, never on a cell.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pgbb._io import parquet_file, parquet_files
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema
from pgbb.private.files import File
from pgbb.private.hosts import Together

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

    from pgbb.private.cells import Kind
    from pgbb.private.opened import Piece
    from pgbb.private.records import Records  # needs pandas

__all__ = ["UNIT", "Listing", "Share", "records_of", "survey"]

Singles = NDArray[np.float32]

UNIT = 2**13
"""Processes and devices share records in units of so many, so that the chunks of a sum are the same however many."""

_WHOLE = 2**30  # bytes of a data set up to which every process reads all of it once, to compare copies


@dataclass(frozen=True, eq=False)
class Share:
    """The records of one process: those numbered `first` to `last` − 1 of n."""

    n: int
    first: int
    last: int
    together: Together | None = None

    @classmethod
    def of(cls, n: int, together: Together | None) -> "Share":
        """Whole units, as evenly as can be."""
        if together is None or together.processes == 1:
            return cls(n, 0, n)
        units, count = -(-n // UNIT), together.processes
        if units < count:
            raise InvalidValue(
                f"n = {n:,} records are too few for {count} processes, which share them in units of {UNIT:,}. Take "
                f"at most {units}."
            )
        first, last = (min(units * k // count * UNIT, n) for k in (together.process, together.process + 1))
        return cls(n, first, last, together)

    def check(self, here: int) -> None:
        """Refuse records that are not this share, such as those that an earlier question has taken over."""
        if here != self.last - self.first:
            raise PgbbError(f"{here} records were loaded, but this process has {self.last - self.first}.")

    @property
    def leads(self) -> bool:
        """Whether this process draws the noise: one does."""
        return self.together is None or self.together.leads

    def total(self, whole: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum over processes: exact, hence the same in any order."""
        return whole if self.together is None else self.together.total(whole)

    def question(self, name: str, parameters: tuple[Singles, ...]) -> tuple[Singles, ...]:
        """The parameters of a question as process 0 has them, so that all ask about the same point to the last bit."""
        if self.together is None:
            return parameters
        own = [np.asarray(p, dtype="<f4") for p in parameters]
        label = hashlib.sha256(f"{name} {[p.shape for p in own]}".encode()).digest()
        said = self.together.first(label + b"".join(p.tobytes() for p in own))
        if said[: len(label)] != label:
            raise PgbbError(
                f"process {self.together.process} has come to another question than process 0. Run the same version "
                "of pgbb and its packages everywhere."
            )
        parts = np.split(np.frombuffer(said[len(label) :], "<f4"), np.cumsum([p.size for p in own])[:-1])
        return tuple(part.reshape(p.shape).astype(np.float32) for part, p in zip(parts, own, strict=True))


@dataclass(frozen=True)
class Listing:
    """A Parquet data set by its metadata: row groups (file, number, records) in order, and columns by name and type."""

    groups: tuple[tuple[Path, int, int], ...]
    columns: tuple[tuple[str, str], ...]
    digests: tuple[tuple[str, str], ...] = ()  # of every file, by name; not to be shown, as cells decide them

    @property
    def n(self) -> int:
        """Number of records; public."""
        return sum(rows for _, _, rows in self.groups)

    def facts(self) -> dict[str, object]:
        """What all processes must agree on."""
        order = hashlib.sha256(repr([(path.name, group, rows) for path, group, rows in self.groups]).encode())
        return {
            "n": self.n,
            "the number of row groups": len(self.groups),
            "the columns": [list(column) for column in self.columns],
            "the list of files and row groups": order.hexdigest(),
        }


def survey(source: object) -> Listing:
    """The row groups of a Parquet file, or of the .parquet files of a folder, sorted by name, and their digests."""
    source = source.where if isinstance(source, File) else source
    if not isinstance(source, str | Path):
        raise InvalidValue(
            f"data is a {type(source).__name__}, but hosts need the path of a .parquet file, or of a folder of them, "
            "of which each process reads its part. Write it with frame.to_parquet(...)."
        )
    path = Path(source)
    if path.is_dir():
        files = parquet_files(path)
        if not files:
            raise InvalidValue(f"the folder {str(path)!r} has no .parquet file in it. Check the path.")
    elif path.suffix.lower() != ".parquet":
        raise InvalidValue(
            f"data file {str(path)!r} is not a .parquet file, nor a folder of them: hosts need one, of which each "
            "process reads its row groups. Convert it, for example with pandas' to_parquet."
        )
    elif not path.is_file():
        raise InvalidValue(f"data file {str(path)!r} does not exist or is not a file. Check the path.")
    else:
        files = [path]
    groups: list[tuple[Path, int, int]] = []
    columns: tuple[tuple[str, str], ...] | None = None
    for file in files:
        found, counts = _metadata(file)
        if columns is not None and found != columns:
            odd = [name for name, kind in {*found} ^ {*columns}] or [name for name, _ in found]
            raise InvalidValue(
                f"{file.name!r} has other columns than {files[0].name!r}: {', '.join(map(repr, sorted(set(odd))))} "
                "differ in name, type or order. All files of a data set must have the same."
            )
        columns = found
        groups += [(file, i, rows) for i, rows in enumerate(counts)]
    assert columns is not None
    listing = Listing(tuple(groups), columns, _digests(files))
    if listing.n == 0:
        raise InvalidValue("the data has 0 records; at least one is needed. Check the path or the filter before it.")
    return listing


def _metadata(path: Path) -> tuple[tuple[tuple[str, str], ...], list[int]]:
    """Names and types of the columns, and the number of records of each row group."""
    file = _opened(path)
    schema = file.schema_arrow
    columns = tuple((name, str(kind)) for name, kind in zip(schema.names, schema.types, strict=True))
    return columns, [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]


def _digests(files: list[Path]) -> tuple[tuple[str, str], ...]:
    """Name and SHA-256 of every file: of all its bytes where the files are small together, otherwise of its footer.

    A footer has the place, size and, as a rule, least and largest value of every column of every row group.
    """
    found: list[tuple[str, str]] = []
    whole = sum(path.stat().st_size for path in files) <= _WHOLE
    for path in files:
        with _quietly(path), path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 8, 0))  # the last eight bytes: the length of the footer, and PAR1
            footer = int.from_bytes(file.read(4), "little") + 8
            file.seek(0 if whole else max(size - footer, 0))
            found.append((path.name, f"{size} {whole} {hashlib.file_digest(file, 'sha256').hexdigest()}"))
    return tuple(found)


def _opened(path: Path) -> "ParquetFile":
    with _quietly(path):
        return parquet_file(path)


@contextmanager
def _quietly(path: Path) -> Iterator[None]:
    """Replaces a reader's error, which may quote cells, by one that does not."""
    try:
        yield
    except Exception:
        raise PgbbError(
            f"data file {str(path)!r} cannot be read as parquet: it is missing, empty, damaged or of another format. "
            "Its reader's message is withheld, because it may quote records. Restore the file: no other process has "
            "its part."
        ) from None


def records_of(
    listing: Listing, problem: Problem, schema: Schema, weights: str | None, share: Share, *, copies: int = 1
) -> "Records":
    """The encoded records of a share; row groups that hold none of them are not read.

    Refused before any is read if `copies` of them do not fit into memory.
    """
    from pgbb.private.cells import arrow_kind
    from pgbb.private.loading import records_for
    from pgbb.private.opened import Opened
    from pgbb.private.sources import arrow_pieces

    mine, start = [], 0
    for path, group, rows in listing.groups:
        low, high = max(share.first - start, 0), min(share.last - start, rows)
        start += rows
        if low < high:
            mine.append((path, group, rows, low, high))

    def kinds(names: list[str], _: Schema) -> "dict[str, Kind]":
        file = _opened(path := mine[0][0])
        with _quietly(path):
            return {name: arrow_kind(file.schema_arrow.field(name).type) for name in names}

    def pieces(names: list[str], _: Schema) -> "Iterator[Piece]":
        for path, group, rows, low, high in mine:
            file = _opened(path)
            if file.num_row_groups <= group or file.metadata.row_group(group).num_rows != rows:
                raise PgbbError(
                    f"row group {group} of {path.name!r} is missing, or has not the {rows:,} records that it had when "
                    "the fit began. Leave the files alone while a fit runs."
                )
            with _quietly(path):
                yield from arrow_pieces(file, names, [group], low, high)

    named = [name for name, _ in listing.columns]
    return records_for(
        Opened(named, lambda *_: share.last - share.first, kinds, pieces, copies), problem, schema, weights
    )
