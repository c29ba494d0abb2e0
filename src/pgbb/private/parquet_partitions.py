"""A Parquet data set cut into partitions by its metadata: what a worker reads, and no more.

Paths are local, or URLs of any file system that fsspec knows. Errors here depend on names, types and counts in the
files' metadata, never on a cell.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgbb._io import parquet_file
from pgbb._numerics.threads import mapped
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.schema import Schema

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

    from pgbb.private.cells import Kind
    from pgbb.private.open_table import Opened, Piece


_EACH = 4  # partitions for a worker, so that what a lost one had is shared out


@dataclass(frozen=True)
class Partition:
    """Records `low` … `high` − 1 of each of some row groups: (path, row group, its records, low, high)."""

    groups: tuple[tuple[str, int, int, int, int], ...]
    names: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of records; public."""
        return sum(high - low for *_, low, high in self.groups)

    def opened(self) -> "Opened":
        """The partition as a source of records."""
        from pgbb.private.cells import arrow_kind
        from pgbb.private.open_table import Opened
        from pgbb.private.sources import arrow_pieces

        def kinds(names: list[str], _: Schema) -> "dict[str, Kind]":
            path = self.groups[0][0]
            with _quietly(path), _opened(path) as file:
                return {name: arrow_kind(file.schema_arrow.field(name).type) for name in names}

        def pieces(names: list[str], _: Schema) -> "Iterator[Piece]":
            for path, group, rows, low, high in self.groups:
                with _quietly(path):
                    file = _opened(path)
                if file.num_row_groups <= group or file.metadata.row_group(group).num_rows != rows:
                    raise PgbbError(
                        f"row group {group} of {path!r} is missing, or has not the {rows:,} records that it had when "
                        "the fit began. Leave the files alone while a fit runs."
                    )
                with _quietly(path):
                    yield from arrow_pieces(file, names, [group], low, high)

        return Opened(self.names, self.n, kinds, pieces)


def survey(source: object, workers: int) -> list[Partition]:
    """Partitions of a Parquet file, of the .parquet files of a folder by name, or of all that match a pattern."""
    files = _files(source)
    found = mapped(_metadata, files)
    columns = found[0][0]
    for file, (others, _) in zip(files, found, strict=True):
        if others != columns:
            odd = {name for name, _ in {*others} ^ {*columns}} or {name for name, _ in columns}
            raise InvalidValue(
                f"{file!r} has other columns than {files[0]!r}: {', '.join(map(repr, sorted(odd)))} differ in name, "
                "type or order. All files of a data set must have the same."
            )
    groups = [
        (file, i, rows) for file, (_, counts) in zip(files, found, strict=True) for i, rows in enumerate(counts) if rows
    ]
    n, names = sum(rows for _, _, rows in groups), tuple(name for name, _ in columns)
    if n == 0:
        raise InvalidValue("the data has 0 records; at least one is needed. Check the path or the filter before it.")
    cuts = -(-workers // len(groups))  # parts of a row group: a file that has few is read several times
    parts = [(file, i, rows, rows * k // cuts, rows * (k + 1) // cuts) for file, i, rows in groups for k in range(cuts)]
    bundles: list[list[tuple[str, int, int, int, int]]] = []
    before = 0
    for part in parts:
        share = before * workers * _EACH // n
        bundles += [[] for _ in range(share + 1 - len(bundles))]
        bundles[share].append(part)
        before += part[4] - part[3]
    return [Partition(tuple(bundle), names) for bundle in bundles if any(high > low for *_, low, high in bundle)]


def _files(source: object) -> list[str]:
    """Paths or URLs of the files, in the order in which their records are numbered."""
    if not isinstance(source, str | Path):
        raise InvalidValue(
            f"data is a {type(source).__name__}, but the workers of a cluster read a Dask or Spark DataFrame, or "
            "Parquet: the path or URL of a .parquet file, of a folder of them, or a pattern. Write it with "
            "frame.to_parquet(...)."
        )
    from fsspec.core import url_to_fs  # Dask has it

    text = str(source)
    try:
        system, path = url_to_fs(text)
        if any(mark in path for mark in "*?["):
            found = system.glob(path)
        elif system.isdir(path):
            found = system.ls(path, detail=False)
        else:
            found = [path] if system.isfile(path) else []
    except (OSError, ImportError, ValueError) as error:  # of names and access; no record was read
        raise PgbbError(
            f"data {text!r} cannot be reached: {type(error).__name__}. Check the address, the rights, and that the "
            "package of its file system (such as s3fs) is installed here and on the workers."
        ) from None
    files = sorted(str(file) for file in found if str(file).lower().endswith(".parquet"))
    if not files:
        raise InvalidValue(
            f"data {text!r} is no .parquet file, nor a folder or pattern of some: the workers of a cluster read no "
            "other. Check the path, or convert it, for example with pandas' to_parquet."
        )
    return [str(system.unstrip_protocol(file)) for file in files]


def _metadata(path: str) -> tuple[tuple[tuple[str, str], ...], list[int]]:
    """Names and types of the columns, and the number of records of each row group."""
    with _quietly(path), _opened(path) as file:
        schema = file.schema_arrow
        columns = tuple((name, str(kind)) for name, kind in zip(schema.names, schema.types, strict=True))
        return columns, [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]


def _opened(path: str) -> "ParquetFile":
    if path.startswith("file://"):
        return parquet_file(Path(path.removeprefix("file://")))
    import fsspec

    file: Any = fsspec.open(path, "rb").open()
    return parquet_file(file)


@contextmanager
def _quietly(path: str) -> Iterator[None]:
    """Replaces a reader's error, which may quote cells, by one that does not."""
    try:
        yield
    except PgbbError:
        raise
    except Exception:
        raise PgbbError(
            f"data file {path!r} cannot be read as parquet: it is missing, empty, damaged or of another format. Its "
            "reader's message is withheld, because it may quote records. Restore the file."
        ) from None
