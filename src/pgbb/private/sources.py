"""Every source of records as an `Opened`: frames, Arrow tables, columns under names, and files.

Stored types decide how cells are handed on; no cell is looked at here. Python lists
have no stored type: each of their cells is an object of its own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from pgbb._io import parquet_file, parquet_files
from pgbb.errors import InvalidValue
from pgbb.model.schema import Schema
from pgbb.private import open_table
from pgbb.private.cells import Cells, Coded, Held, Kind, arrow_kind, as_cells, as_stored, numpy_kind, readable
from pgbb.private.csv_files import open_csv, plausible
from pgbb.private.duckdb_queries import open_query
from pgbb.private.excel_files import open_sheet
from pgbb.private.files import DATABASES, FORMATS, SHEETS, STATISTICAL, TEXT, File
from pgbb.private.open_table import Opened, Piece, parts, quiet, quietly
from pgbb.private.sas_spss_files import open_statistical
from pgbb.private.stata_files import open_stata

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_KEPT = 16  # batches until freed memory goes back to the system: what is asked for again costs time


Source: TypeAlias = pd.DataFrame | Mapping[str, object] | str | Path | File | Opened | object

_WORDS = {form(str(truth)): truth for truth in (True, False) for form in (str, str.lower, str.upper)}
_FORMS = (
    "a pandas or polars DataFrame, an Arrow table or stream, a DuckDB relation, a structured array, a dict of columns, "
    "the path of a file, or a pgbb.File"
)


def open_source(source: Source) -> Opened:
    """Names and types of a source; refused by its type alone."""
    if isinstance(source, Opened):
        return source
    if isinstance(source, pd.DataFrame):
        return _frame(source)
    if isinstance(source, str | Path):
        return _file(File(source))
    if isinstance(source, File):
        return _file(source)
    if isinstance(source, np.ndarray) and source.dtype.names is not None and source.ndim == 1:
        return _columns({name: source[name] for name in source.dtype.names})
    if isinstance(source, Mapping):
        return _columns(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _arrow(source)
    lazy = hasattr(source, "collect")
    raise InvalidValue(
        f"data is a {type(source).__name__}, it must be {_FORMS}. Convert it "
        f"{'first: data.collect()' if lazy else 'with pandas.DataFrame(...)'}."
    )


def open_shown(source: Source) -> Opened:
    """For a command that shows the names: a first line that is of another separator or encoding is refused."""
    found = open_source(source)
    if found.remedy and isinstance(source, File) and source.kind in TEXT:
        plausible(source, found.names)
    return found


def _file(file: File) -> Opened:
    path, kind = file.where, file.kind
    if path.is_dir() and (kind == ".parquet" or kind not in FORMATS):
        return _folder(path)
    if kind not in FORMATS:
        raise InvalidValue(
            f"data file {str(path)!r} has an unknown ending; it must be {', '.join(FORMATS)}, or a folder of "
            ".parquet files. Convert the file, or read it with pandas and pass the frame."
        )
    if not path.is_file():
        raise InvalidValue(f"data file {str(path)!r} does not exist or is not a file. Check the path.")
    if kind in TEXT:
        return open_csv(file)
    if kind in SHEETS:
        return open_sheet(file)
    if kind in STATISTICAL:
        return open_statistical(file)
    if kind in DATABASES:
        return open_query(file, _arrow)
    return open_stata(path) if kind == ".dta" else _parquet(path)


# Columns in memory ---------------------------------------------------------------------------------------------------


def column(given: object) -> tuple[int, Kind, Callable[[slice], Cells]] | None:
    """Length, stored type and a reader of one column; None for a type that is no column."""
    if isinstance(given, list | tuple | range):
        cells = np.fromiter(given, dtype=object, count=len(given))
        return len(cells), Kind("object", True, True), cells.__getitem__
    if isinstance(given, pd.Series | pd.Index):
        if isinstance(given.dtype, np.dtype) and given.dtype.kind not in "Mm":
            return column(given.to_numpy())
        given = given.array
    if isinstance(given, pd.arrays.NumpyExtensionArray):
        given = given.to_numpy()
    if isinstance(given, pd.api.extensions.ExtensionArray):
        return len(given), _pandas_kind(given.dtype), lambda part: _pandas_cells(given[part])
    if isinstance(given, np.ndarray):
        if given.ndim != 1 or given.dtype.names is not None:
            return None
        plain = given if isinstance(given, np.ma.MaskedArray) else np.asarray(given)
        return len(plain), numpy_kind(plain.dtype), lambda part: as_cells(plain[part])
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return len(given), arrow_kind(given.type), lambda part: as_cells(given[part])
    if hasattr(given, "__arrow_c_stream__"):
        return column(pa.chunked_array(given))
    return column(pa.array(given)) if hasattr(given, "__arrow_c_array__") else None


def _pandas_kind(dtype: object) -> Kind:
    name, levels = str(dtype), Kind(str(dtype), False, True)
    if isinstance(dtype, np.dtype):
        return numpy_kind(dtype)
    if isinstance(dtype, pd.ArrowDtype):
        return replace(arrow_kind(dtype.pyarrow_dtype), name=name)
    if isinstance(dtype, pd.SparseDtype):
        return replace(_pandas_kind(dtype.subtype), name=name)
    if isinstance(dtype, pd.StringDtype) and dtype.na_value is np.nan:
        return Kind(name, True, True)  # pandas takes it where all cells of a list are text: one number makes it objects
    if isinstance(dtype, pd.CategoricalDtype | pd.StringDtype | pd.DatetimeTZDtype | pd.PeriodDtype | pd.IntervalDtype):
        return levels
    return Kind(name, True, True) if _is_masked(dtype) else Kind(name, False, False)


def _is_masked(dtype: object) -> bool:
    """Whether it is one of the nullable numbers of pandas."""
    return (
        isinstance(getattr(dtype, "numpy_dtype", None), np.dtype)
        and type(dtype).__module__.partition(".")[0] == "pandas"
    )


def _pandas_cells(array: Any) -> Held:
    if isinstance(array, pd.arrays.NumpyExtensionArray):
        return as_cells(array.to_numpy())
    dtype = array.dtype
    if isinstance(dtype, pd.SparseDtype):
        return _of_sparse(array)
    if isinstance(dtype, pd.CategoricalDtype):
        table = _pandas_cells(array.categories.array)
        table = table.spread() if isinstance(table, Coded) else table
        return Coded(np.asarray(array.codes, dtype=np.int64), table)
    if isinstance(dtype, pd.DatetimeTZDtype | pd.PeriodDtype) or (isinstance(dtype, np.dtype) and dtype.kind in "Mm"):
        which, found = pd.factorize(array.asi8)
        first = np.unique(which, return_index=True)[1]
        cells = (readable(partial(array.__getitem__, int(i))) for i in first)
        return Coded(which, np.fromiter(cells, dtype=object, count=len(found)))
    if (isinstance(dtype, pd.StringDtype) and dtype.storage == "python") or isinstance(dtype, pd.IntervalDtype):
        return np.fromiter(array, dtype=object, count=len(array))
    return as_cells(pa.array(array))


def _of_sparse(array: Any) -> Held:
    """All cells under the stored type: pandas would widen it for all where there is a gap, or make a number of it."""
    dense, gap = np.zeros(len(array), array.dtype.subtype), np.ones(len(array), np.bool_)
    at = array.sp_index.to_int_index().indices
    dense[at], gap[at] = array.sp_values, False
    if pd.isna(array.fill_value):
        return as_cells(np.ma.MaskedArray(dense, gap))
    dense[gap] = array.fill_value
    return as_cells(dense)


def _columns(given: Mapping[str, object]) -> Opened:
    found = {}
    for name, cells in given.items():
        known = column(cells)
        if known is None:
            raise InvalidValue(
                f"column {name!r} of data is a {type(cells).__name__}, it must be a list or an array of one dimension. "
                "Convert it first."
            )
        found[name] = known
    sizes = {size for size, _, _ in found.values()}
    if len(sizes) > 1:
        raise InvalidValue("the columns of data have different lengths; each must have one cell a record.")
    n = next(iter(sizes), 0)

    def pieces(names: list[str], _: Schema) -> Iterator[Piece]:
        return (Piece(part.stop - part.start, {name: found[name][2](part) for name in names}) for part in parts(n))

    return Opened(list(found), n, lambda names, _: {name: found[name][1] for name in names}, pieces)


def _frame(frame: pd.DataFrame) -> Opened:
    """No copy: of a piece, columns are taken one by one."""

    def pieces(names: list[str], _: Schema) -> Iterator[Piece]:
        at = {name: given.index(name) for name in names}
        for part in parts(len(frame)):
            cells = {name: _pandas_cells(frame.iloc[part, i].array) for name, i in at.items()}
            yield Piece(part.stop - part.start, cells)

    given = [name if isinstance(name, str) else None for name in frame.columns.tolist()]  # other names are not declared
    return Opened(
        given,
        len(frame),
        lambda names, _: {name: _pandas_kind(frame.iloc[:, given.index(name)].dtype) for name in names},
        pieces,
    )


def part_of_frame(frame: pd.DataFrame, types: Mapping[str, object]) -> Opened:
    """A part of a larger frame, under the types of the whole; a column that is stored under another is read by cells.

    Containers take types from values: a missing cell makes integers floating, and a word makes numbers text.
    """
    odd = {name: _under(frame[name].astype(object), kind) for name, kind in types.items() if frame[name].dtype != kind}
    known = {name: _pandas_kind(kind) for name, kind in types.items()}
    return replace(_frame(frame.assign(**odd)), kinds=lambda names, _: {name: known[name] for name in names})


def _under(cells: "pd.Series[Any]", kind: Any) -> Any:
    """Cells of an odd part under the type of the whole: numbers of that type, and nothing where a cell is none."""
    if pd.api.types.is_bool_dtype(kind):
        given: Any = (_WORDS.get(cell, cell) if type(cell) is str else cell for cell in cells)
        return pd.Series(np.fromiter(given, dtype=object, count=len(cells)), cells.index, dtype=object)
    if not pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_complex_dtype(kind):
        return cells
    dtype = np.dtype(getattr(kind, "numpy_dtype", kind))
    numbers = pa.array([as_stored(cell, dtype) for cell in cells], pa.from_numpy_dtype(dtype))
    return pd.Series(pd.arrays.ArrowExtensionArray(numbers), cells.index)


def _arrow(source: object) -> Opened:
    try:
        table = pa.table(source)
    except Exception:  # such as a type that Arrow does not have
        raise InvalidValue(
            f"data is a {type(source).__name__} that cannot be handed over as an Arrow table: a column has a type that "
            "Arrow does not know. Convert that column, or leave it out."
        ) from None

    def pieces(names: list[str], _: Schema) -> Iterator[Piece]:
        for part in parts(len(table)):
            some = table.slice(part.start, part.stop - part.start)
            yield Piece(len(some), {name: as_cells(some.column(at[name])) for name in names})

    at = {name: i for i, name in enumerate(table.column_names)}
    return Opened(
        table.column_names,
        len(table),
        lambda names, _: {name: arrow_kind(table.schema.types[at[name]]) for name in names},
        pieces,
    )


# Parquet -------------------------------------------------------------------------------------------------------------


def _parquet(path: Path) -> Opened:
    """Types are those in the file: a null turns neither booleans nor integers into something else."""
    import pyarrow.parquet

    metadata = quietly(path, lambda: pyarrow.parquet.read_metadata(path))
    found = quietly(path, metadata.schema.to_arrow_schema)
    return Opened(
        list(found.names),
        metadata.num_rows,
        lambda names, _: {name: arrow_kind(found.field(name).type) for name in names},
        quiet(path, lambda names, _: arrow_pieces(parquet_file(path), names)),
    )


def arrow_pieces(
    file: "ParquetFile", names: list[str], groups: list[int] | None = None, low: int = 0, high: int | None = None
) -> Iterator[Piece]:
    """The records low … high − 1 of some row groups of an open Parquet file, or of all, in pieces of bounded size."""
    release = pa.default_memory_pool().release_unused  # what was freed, which would be kept for another piece
    with file:
        at = 0
        batches = file.iter_batches(batch_size=open_table.CHUNK, row_groups=groups, columns=names, use_threads=False)
        for done, batch in enumerate(batches, 1):
            start, stop = max(low - at, 0), len(batch) if high is None else min(high - at, len(batch))
            at += len(batch)
            if start < stop:
                some = batch[start:stop]
                yield Piece(len(some), {name: as_cells(some.column(name)) for name in names})
                del some
            del batch
            if done % _KEPT == 0:
                release()
    release()


def _folder(path: Path) -> Opened:
    """The Parquet files of a folder, one after another by name; names and types must be the same in each."""
    import pyarrow.parquet

    files = parquet_files(path)
    if not files:
        raise InvalidValue(f"data folder {str(path)!r} holds no .parquet file. Check the path.")
    found = [quietly(file, partial(pyarrow.parquet.read_schema, file)) for file in files]
    for file, schema_of_file in zip(files, found, strict=True):
        if not schema_of_file.equals(found[0]):
            raise InvalidValue(
                f"data file {str(file)!r} has other columns or types than {files[0].name!r}; all files of a folder "
                "must have the same, in the same order. Convert it, or move it elsewhere."
            )
    each = [_parquet(file) for file in files]

    def pieces(names: list[str], schema: Schema) -> Iterator[Piece]:
        for part in each:
            yield from part.pieces(names, schema)

    return Opened(each[0].names, sum(part.count or 0 for part in each), each[0].kinds, pieces)
