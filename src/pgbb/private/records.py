"""Records: read from a frame or from files piece by piece, and encoded by public rules alone.

An error here depends on names, dtypes and the number of rows, never on a cell:
values are clamped, and a record with an unusable cell keeps its place with
`valid` False. No row is dropped, sorted or deduplicated. Where a piece begins
and ends changes nothing: the code of a cell depends on that cell and on types alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pgbb._io import parquet_file, parquet_files
from pgbb._numerics.memory import free_memory
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.formula import Design
from pgbb.model.schema import Column, Flag, Levels, Range, Schema
from pgbb.private.rows import EXTRA, empty_rows

__all__ = ["Columns", "NonPrivateRecords", "Records", "Source", "examine", "load", "load_columns", "read_frame"]

Bools = NDArray[np.bool_]
Singles = NDArray[np.float32]

_CHUNK = 2**15  # records read and encoded at once
_SPARE = 2**28  # bytes for all else: pieces, compiled code, the accountant


@dataclass(frozen=True)
class Opened:
    """Data of which names and types are known, and that can be read from the beginning, piece by piece.

    Attributes:
      names: of all columns.
      most: there are no more records than this; exactly so many in anything but text.
      kinds: a frame without records whose dtypes are those of the pieces; they do not depend on a cell.
      pieces: reads some columns, one frame after another.
      copies: how many times a fit holds its records at once.
    """

    names: list[Any]
    most: Callable[[list[str], Schema], int]
    kinds: Callable[[list[str], Schema], pd.DataFrame]
    pieces: Callable[[list[str], Schema], Iterator[pd.DataFrame]]
    copies: int = 1


Source: TypeAlias = pd.DataFrame | str | Path | Opened


class _Arrays:
    """What both kinds of records hold; neither is the other, and neither shows a value.

    One packed array (n, p + EXTRA) holds x, y and weight of a record side by
    side, so that a batch is one gather; `x`, `y` and `weight` are views of it.
    """

    __slots__ = ("rows", "valid")

    def __init__(self, x: Singles, y: Singles, weight: Singles, valid: Bools) -> None:
        if x.ndim != 2 or not len(x) == len(y) == len(weight) == len(valid):
            raise PgbbError("x must be (n, p), and y, weight and valid (n,), with one and the same n.")
        self.rows, self.valid = empty_rows(*x.shape), valid
        self.rows[:, :-EXTRA], self.rows[:, -2], self.rows[:, -1] = x, y, weight

    @classmethod
    def from_rows(cls, rows: Singles, valid: Bools) -> Self:
        """From a packed array, which is taken over, not copied."""
        made = cls.__new__(cls)
        made.rows, made.valid = rows, valid
        return made

    @property
    def x(self) -> Singles:
        """The mapped design, (n, p)."""
        return self.rows[:, :-EXTRA]

    @property
    def y(self) -> Singles:
        """The response."""
        return self.rows[:, -2]

    @property
    def weight(self) -> Singles:
        """The survey weight."""
        return self.rows[:, -1]

    @property
    def n(self) -> int:
        """Number of records, invalid ones included; public."""
        return len(self.y)

    @property
    def p(self) -> int:
        """Number of coefficients; public."""
        return self.x.shape[1]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, p={self.p})"


class Records(_Arrays):
    """Encoded confidential records. Only functions in `pgbb.private` take them.

    Attributes:
      x: (n, p) float32, mapped design, every entry in [−1, 1]; 0 where invalid.
      y: (n,) float32, response clamped to its bounds, original units; their middle where invalid.
      weight: (n,) float32, survey weight in [0, 1]; 1 without weights, 0 where invalid.
      valid: (n,) bool, whether every needed cell was usable.
    """

    __slots__ = ()

    def as_non_private(self) -> "NonPrivateRecords":
        """The same arrays for computations without any privacy: what comes of them must not be published."""
        return NonPrivateRecords.from_rows(self.rows, self.valid)


class NonPrivateRecords(_Arrays):
    """Records handed over, on purpose, to code that protects nothing; the fields are those of `Records`."""

    __slots__ = ()


@dataclass(frozen=True, repr=False, eq=False)
class Columns:
    """Clamped columns for models without a formula; as private as `Records`.

    Attributes:
      values: one float64 array (n,) a column; Levels as codes 0, 1, ...
      valid: (n,) bool; cells of an invalid record hold a public filler.
    """

    values: dict[str, NDArray[np.float64]]
    valid: Bools

    @property
    def n(self) -> int:
        """Number of records, invalid ones included; public."""
        return len(self.valid)

    def __repr__(self) -> str:
        return f"Columns(n={self.n}, names={list(self.values)})"


def load(source: Source, design: Design, schema: Schema, weights: str | None = None) -> Records:
    """Encode the records of `source` for `design`.

    Args:
      source: a pandas DataFrame, or the path of a .csv, .parquet or .dta file, or of a folder of .parquet files,
        which are taken in the order of their names. CSV and Parquet are read in pieces: memory holds the design
        once, and never the file.
      design: the parsed formula.
      schema: the declared columns.
      weights: a column of survey weights, declared as a Range with low ≥ 0. Weights are divided by the public high.

    >>> schema = Schema(y=Range(0, 10), x=Range(0, 4))
    >>> frame = pd.DataFrame({"y": [1.0, 99.0, None], "x": [4.0, 2.0, 1.0]})
    >>> records = load(frame, Design.parse("y ~ x", schema), schema)
    >>> records, records.y.tolist(), records.valid.tolist()
    (Records(n=3, p=2), [1.0, 10.0, 5.0], [True, True, False])
    """
    if weights is not None:
        column = schema.get(weights)
        if not isinstance(column, Range) or column.low < 0:
            given = "not declared" if column is None else f"declared as {column!r}"
            raise InvalidValue(
                f"weights = {weights!r} is {given}, it must be declared as a Range with low ≥ 0. "
                f"Declare {weights} = Range(0, high) with a public high."
            )
    names = list(dict.fromkeys([*design.columns, design.response, *([] if weights is None else [weights])]))

    def encode(data: Columns) -> tuple[Any, Any, Any]:
        weight = 1.0 if weights is None else data.values[weights] / schema[weights].bounds[1]  # type: ignore[union-attr]
        x = design.matrix(data.values)
        x[~data.valid] = 0
        return x, data.values[design.response], weight

    return encoded(source, schema, names, len(design.names), encode)


def encoded(
    source: Source,
    schema: Schema,
    names: Sequence[str],
    width: int,
    encode: Callable[[Columns], tuple[Any, Any, Any]],
) -> Records:
    """Records of `width` numbers in x, filled piece by piece: the design exists once, in single precision.

    `encode` makes x, y and weight of the clamped columns of a piece. The weight of an invalid record becomes 0.
    """
    opened = _typed(source, schema, names)
    rows, valid = _room(opened.most(list(names), schema), width, opened.copies)
    n = 0
    for data in map(partial(_clamped, schema=schema, names=names), opened.pieces(list(names), schema)):
        part = slice(n, n + data.n)
        x, y, weight = encode(data)
        rows[part, :width], rows[part, width], rows[part, width + 1] = x, y, weight
        rows[part, width + 1][~data.valid] = 0
        valid[part] = data.valid
        n += data.n
    if n == 0:
        raise InvalidValue(_NOTHING)
    return Records.from_rows(rows[:n], valid[:n])


def _room(most: int, width: int, copies: int) -> tuple[Singles, Bools]:
    """Arrays for so many records, or a refusal that says what to change; nothing has been asked or spent by then."""
    needed, there = most * ((width + EXTRA) * 4 * copies + 1) + _SPARE, free_memory()
    try:
        if there is not None and needed > there:
            raise MemoryError
        return empty_rows(most, width), np.empty(most, dtype=np.bool_)
    except MemoryError:
        have = "" if there is None else f", and {there / 2**30:,.1f} GiB are available"
        raise PgbbError(
            f"{most:,} records of {width} terms need {needed / 2**30:,.1f} GiB of memory{have}. Take a machine with "
            "more memory, a formula with fewer terms, or more hosts, each with its part of the records. Nothing was "
            "read or spent."
        ) from None


def load_columns(source: Source, schema: Schema, names: Sequence[str]) -> Columns:
    """The named columns, clamped, with the mask of usable records.

    >>> data = load_columns(pd.DataFrame({"x": [7.0, float("nan"), 1.0]}), Schema(x=Range(0, 4)), ["x"])
    >>> data.values["x"].tolist(), data.valid.tolist()
    ([4.0, 2.0, 1.0], [True, False, True])
    """
    parts = [_clamped(frame, schema, names) for frame in _typed(source, schema, names).pieces(list(names), schema)]
    if not parts:
        raise InvalidValue(_NOTHING)
    values = {name: np.concatenate([part.values[name] for part in parts]) for name in names}
    return Columns(values, np.concatenate([part.valid for part in parts]))


def _typed(source: Source, schema: Schema, names: Sequence[str]) -> Opened:
    """The opened data, refused if a column is missing or its dtype cannot hold what is declared."""
    opened = _checked(source, names, schema)
    kinds = opened.kinds(list(names), schema)
    wrong = {name: why for name in names if (why := _dtype_problem(kinds[name], schema[name]))}
    if wrong:
        first = next(iter(wrong))
        raise InvalidValue(
            f"wrong dtype: {'; '.join(f'column {name!r} {why}' for name, why in wrong.items())}. Convert it first, "
            f"for example frame[{first!r}] = pandas.to_numeric(frame[{first!r}], errors='coerce'), or declare Levels."
        )
    return opened


def _clamped(frame: pd.DataFrame, schema: Schema, names: Sequence[str]) -> Columns:
    values = {}
    valid = np.ones(len(frame), dtype=np.bool_)
    for name in names:
        values[name], usable, _ = _encode(frame[name], schema[name])
        valid &= usable
    for name in names:
        values[name][~valid] = _filler(schema[name])
    return Columns(values, valid)


def examine(source: Source, schema: Schema) -> list[dict[str, Any]]:
    """What is unusable in each declared column. PRIVATE: exact counts from the records; show them to nobody outside.

    Each row has: column, declared, records, present, dtype, problem (None, or why `fit` would refuse the column),
    missing (missing or unreadable cells) and outside (beyond the range, or an undeclared level); None if not counted.

    >>> row = examine(pd.DataFrame({"x": [7.0, None, 1.0]}), Schema(x=Range(0, 4)))[0]
    >>> row["missing"], row["outside"]
    (1, 1)
    """
    opened = _open(source)
    known = [name for name in schema if opened.names.count(name) == 1]
    kinds = opened.kinds(known, schema)
    text = isinstance(source, str | Path) and Path(source).suffix.lower() == ".csv"
    rows: dict[str, dict[str, Any]] = {}
    for name, column in schema.items():
        row: dict[str, Any] = {"column": name, "declared": repr(column), "records": 0}
        row["present"] = name in opened.names
        row |= {"dtype": None, "problem": None, "missing": None, "outside": None}
        if not row["present"]:
            row["problem"] = "missing from the data"
        elif name not in known:
            row["problem"] = "occurs more than once in the data"
        else:
            row["dtype"], row["problem"] = str(kinds[name].dtype), _dtype_problem(kinds[name], column)
            if row["problem"] is None:
                row["missing"] = row["outside"] = 0
        rows[name] = row
    counted = [name for name, row in rows.items() if row["missing"] is not None]
    whole: dict[str, bool | None] = {name: None for name in counted if text and kinds[name].dtype == np.float64}
    for frame in opened.pieces(known, schema):
        for row in rows.values():
            row["records"] += len(frame)
        for name in counted:
            _, usable, outside = _encode(frame[name], schema[name])
            rows[name]["outside"] += int(outside.sum())
            rows[name]["missing"] += int((~usable & ~outside).sum())
            if name in whole:
                whole[name] = _all_whole(frame[name].to_numpy(), whole[name])
    for name, found in whole.items():
        if found:
            rows[name]["dtype"] = "int64"
    return list(rows.values())


def _all_whole(numbers: NDArray[np.float64], before: bool | None) -> bool | None:
    """Whether all numbers so far are whole; None while there are none.

    PRIVATE, as all that `examine` says. A text file has no dtypes: its numbers are read as float64, and called int64
    where all are whole. What a fit reads does not change.
    """
    numbers = numbers[np.isfinite(numbers)]
    return before if not len(numbers) else before is not False and bool((numbers == np.trunc(numbers)).all())


# Reading: names and dtypes are public, cells are not -----------------------------------------------------------------


_NOTHING = "the data has 0 records; at least one is needed. Check the path or the filter before it."


def read_frame(source: Source, columns: Iterable[str], schema: Schema) -> pd.DataFrame:
    """The declared `columns` of `source` in one frame; other columns are not read. For data that fits into memory.

    Text files carry no dtypes, and guessing them would let one cell decide the type of a column. So the schema decides:
    CSV cells of a Range or Flag are read as numbers (unreadable ones as missing) and those of Levels as text.
    """
    names = list(dict.fromkeys(columns))
    opened = _checked(source, names, schema)
    parts = list(opened.pieces(names, schema))
    if not parts:
        raise InvalidValue(_NOTHING)
    return pd.concat(parts, ignore_index=True)


def _checked(source: Source, columns: Iterable[str], schema: Schema) -> Opened:
    """The opened data, refused if a column is undeclared, missing or there twice, or if there are no records."""
    names = list(dict.fromkeys(columns))
    undeclared = [name for name in names if name not in schema]
    if undeclared:
        raise InvalidValue(
            f"column {undeclared[0]!r} is not declared; the schema declares {', '.join(schema) or 'nothing'}. "
            "Declare its Range, Flag or Levels: bounds are never taken from the records."
        )
    opened = _open(source)
    missing = [name for name in names if name not in opened.names]
    if missing:
        # The names found are not listed: in a file without a header they would be the first record.
        raise InvalidValue(
            f"the data has no column {', '.join(map(repr, missing))}; the schema declares {', '.join(schema)}. "
            "Correct the name in the schema or in the data; a CSV file needs a header line."
        )
    twice = [name for name in names if opened.names.count(name) > 1]
    if twice:
        raise InvalidValue(f"the data has column {twice[0]!r} more than once; names must differ. Rename or remove one.")
    if opened.most(names, schema) == 0:
        raise InvalidValue(_NOTHING)
    return opened


T = TypeVar("T")


def _open(source: Source) -> Opened:
    if isinstance(source, Opened):
        return source
    if isinstance(source, pd.DataFrame):
        return _of_frame(source)
    if not isinstance(source, str | Path):
        raise InvalidValue(
            f"data is a {type(source).__name__}, it must be a pandas DataFrame or the path of a file. "
            "Convert it with pandas.DataFrame(...)."
        )
    path = Path(source)
    formats: dict[str, Callable[[Path], Opened]] = {".csv": _csv, ".parquet": _parquet, ".dta": _stata}
    kind = path.suffix.lower()
    if path.is_dir() and kind not in (".csv", ".dta"):
        return _folder(path)
    if kind not in formats:
        raise InvalidValue(
            f"data file {str(path)!r} has an unknown ending; it must be .csv, .parquet or .dta, or a folder of "
            ".parquet files. Convert the file, or read it with pandas and pass the frame."
        )
    if not path.is_file():
        raise InvalidValue(f"data file {str(path)!r} does not exist or is not a file. Check the path.")
    return formats[kind](path)


def _quietly(path: Path, read: Callable[[], T]) -> T:
    """Run a reader, and replace its error, which may quote cells, by one that does not."""
    try:
        return read()
    except Exception:
        raise PgbbError(
            f"data file {str(path)!r} cannot be read as {path.suffix[1:].lower()}: it is empty, damaged or of another "
            "format. Its reader's message is withheld, because it may quote records: open it with pandas to see why."
        ) from None


def _quiet(path: Path, begin: Callable[[], Iterator[pd.DataFrame]]) -> Iterator[pd.DataFrame]:
    """The pieces of a reader, quietly."""
    pieces = _quietly(path, begin)
    while (piece := _quietly(path, lambda: next(pieces, None))) is not None:
        yield piece
        del piece  # before the next is read


def _of_frame(frame: pd.DataFrame) -> Opened:
    """No copy: of a piece, columns are taken one by one."""

    def pieces(names: list[str], schema: Schema) -> Iterator[pd.DataFrame]:
        return (frame.iloc[start : start + _CHUNK] for start in range(0, len(frame), _CHUNK))

    return Opened(list(frame.columns), lambda *_: len(frame), lambda *_: frame.iloc[:0], pieces)


_CSV: dict[str, Any] = {"dtype": str, "na_filter": False, "encoding": "utf-8-sig", "encoding_errors": "replace"}


def _csv(path: Path) -> Opened:
    names = _quietly(path, lambda: pd.read_csv(path, header=None, nrows=1, **_CSV).iloc[0].tolist())

    def read(names: list[str], schema: Schema) -> Iterator[pd.DataFrame]:
        with pd.read_csv(
            path,
            usecols=names,
            skip_blank_lines=False,  # a blank line is a record without cells
            index_col=False,
            chunksize=_CHUNK,
            **_CSV,
        ) as reader:
            for text in reader:
                if len(text):
                    yield pd.DataFrame({n: _csv_column(text[n], schema[n]) for n in names}, index=text.index)

    lines = lru_cache(_lines)  # counted once

    def kinds(names: list[str], schema: Schema) -> pd.DataFrame:
        return pd.DataFrame({name: _csv_column(pd.Series([], dtype=str), schema[name]) for name in names})

    return Opened(
        names, lambda *_: _quietly(path, lambda: lines(path)), kinds, lambda *given: _quiet(path, lambda: read(*given))
    )


def _lines(path: Path) -> int:
    """How many lines end in the file, and one for a last without end: a record has one or, in quotes, more."""
    count, before = 1, b""
    with path.open("rb") as file:
        while block := file.read(2**20):
            count += block.count(b"\n") + block.count(b"\r") - block.count(b"\r\n")
            count -= before == b"\r" and block[:1] == b"\n"
            before = block[-1:]
    return count


def _csv_column(text: "pd.Series[str]", column: Column) -> "pd.Series[Any]":
    if isinstance(column, Levels):
        return text if "" in column.levels else text.mask(text == "")
    if isinstance(column, Flag):
        lower = text.str.strip().str.lower()
        text = text.mask(lower == "true", "1").mask(lower == "false", "0")
    cells = np.append(text.to_numpy(dtype=object), "0.5")  # whole numbers alone would be rounded in another way
    return pd.Series(np.asarray(pd.to_numeric(cells, errors="coerce")[:-1], dtype=np.float64), index=text.index)


def _parquet(path: Path) -> Opened:
    """Dtypes come from the types in the file alone: a null turns neither booleans nor integers into something else."""
    import pyarrow.parquet

    metadata = _quietly(path, lambda: pyarrow.parquet.read_metadata(path))
    found, count = _quietly(path, metadata.schema.to_arrow_schema), metadata.num_rows

    def kinds(names: list[str], schema: Schema) -> pd.DataFrame:
        return _quietly(path, lambda: arrow_frame(found.empty_table().select(names)))

    return Opened(
        list(found.names),
        lambda *_: count,
        kinds,
        lambda names, _: _quiet(path, lambda: parquet_frames(parquet_file(path), names)),
    )


def parquet_frames(
    file: Any, names: list[str], groups: list[int] | None = None, low: int = 0, high: int | None = None
) -> Iterator[pd.DataFrame]:
    """The records low … high − 1 of some row groups of an open file, or of all, in frames of bounded size."""
    import pyarrow

    release = pyarrow.default_memory_pool().release_unused  # what was freed, which would be kept for another piece
    with file:
        at = 0
        for batch in file.iter_batches(batch_size=_CHUNK, row_groups=groups, columns=names, use_threads=False):
            start, stop = max(low - at, 0), len(batch) if high is None else min(high - at, len(batch))
            at += len(batch)
            if start < stop:
                yield arrow_frame(pyarrow.Table.from_batches([batch[start:stop]]).select(names))
            del batch
            release()
    release()


def arrow_frame(table: Any) -> pd.DataFrame:
    import pyarrow

    def dtype(kind: pyarrow.DataType) -> Any:
        if pyarrow.types.is_boolean(kind):
            return pd.BooleanDtype()
        if pyarrow.types.is_integer(kind):
            return pd.api.types.pandas_dtype(str(kind).replace("int", "Int").replace("uI", "UI"))
        return pd.ArrowDtype(kind) if pyarrow.types.is_decimal(kind) else None

    return table.to_pandas(ignore_metadata=True, types_mapper=dtype)


def _folder(path: Path) -> Opened:
    """The Parquet files of a folder, one after another by name; names and types must be the same in each."""
    import pyarrow.parquet

    files = parquet_files(path)
    if not files:
        raise InvalidValue(f"data folder {str(path)!r} holds no .parquet file. Check the path.")
    found = [_quietly(file, partial(pyarrow.parquet.read_schema, file)) for file in files]
    for file, schema_of_file in zip(files, found, strict=True):
        if not schema_of_file.equals(found[0]):
            raise InvalidValue(
                f"data file {str(file)!r} has other columns or types than {files[0].name!r}; all files of a folder "
                "must have the same, in the same order. Convert it, or move it elsewhere."
            )
    parts = [_parquet(file) for file in files]

    def pieces(names: list[str], schema: Schema) -> Iterator[pd.DataFrame]:
        for part in parts:
            yield from part.pieces(names, schema)

    return Opened(parts[0].names, lambda *given: sum(part.most(*given) for part in parts), parts[0].kinds, pieces)


def _stata(path: Path) -> Opened:
    """Codes stay codes, except where the schema declares levels by their labels. Read at once, not piece by piece."""

    def names() -> list[Any]:
        with pd.read_stata(path, iterator=True) as reader:
            return list(reader.variable_labels())

    def read(names: list[str], schema: Schema) -> pd.DataFrame:
        frame = pd.read_stata(path, columns=names, convert_categoricals=False)
        labelled = [
            n for n in names if isinstance(c := schema[n], Levels) and any(isinstance(v, str) for v in c.levels)
        ]
        if labelled:
            frame = frame.assign(**pd.read_stata(path, columns=labelled, convert_categoricals=True))
        return frame

    @lru_cache(maxsize=1)
    def whole(names: tuple[str, ...], schema: Schema) -> Opened:
        return _of_frame(_quietly(path, lambda: read(list(names), schema)))

    return Opened(
        _quietly(path, names),
        lambda n, schema: whole(tuple(n), schema).most(n, schema),
        lambda n, schema: whole(tuple(n), schema).kinds(n, schema),
        lambda n, schema: whole(tuple(n), schema).pieces(n, schema),
    )


# Encoding ------------------------------------------------------------------------------------------------------------


def _dtype_problem(series: "pd.Series[Any]", column: Column) -> str | None:
    """Why the column cannot hold what is declared; decided by its dtype alone."""
    dtype = series.dtype
    if isinstance(column, Levels) or (
        pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype)
    ):
        return None
    return f"has dtype {dtype}, but is declared as {column!r} and must be numeric"


def _encode(series: "pd.Series[Any]", column: Column) -> tuple[NDArray[np.float64], Bools, Bools]:
    """Values with a filler in unusable cells; which cells are usable; which lie outside the declaration."""
    if isinstance(column, Levels):
        values, missing = _codes(series, column)
        outside = (values < 0) & ~missing
        usable = values >= 0
    else:
        values = series.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        finite = np.isfinite(values)
        if isinstance(column, Flag):
            usable = (values == 0) | (values == 1)
            outside = finite & ~usable
        else:
            usable, outside = finite, finite & ((values < column.low) | (values > column.high))
            np.clip(values, column.low, column.high, out=values)
    values[~usable] = _filler(column)
    return values, usable, outside


def _filler(column: Column) -> float:
    return column.low / 2 + column.high / 2 if isinstance(column, Range) else 0.0


def _codes(series: "pd.Series[Any]", column: Levels) -> tuple[NDArray[np.float64], Bools]:
    """Codes by `str(value)` or, for whole numbers, by value (2.0 is level 2); −1 for anything else.

    A cell's code depends on that cell and the dtype alone. pandas counts 1, 1.0
    and True as equal, as it does 0.0 and −0.0, and would code all by the first it
    meets: so cells of mixed type are told apart by type and text, and −0.0 is 0.
    """
    place = {str(level): float(i) for i, level in enumerate(column.levels)}
    missing = series.isna().to_numpy(dtype=np.bool_)
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(object)
    if series.dtype == object:
        keys = np.array([f"{type(value).__name__} {value}" for value in series], dtype=object)
        which, _ = pd.factorize(keys)
        firsts = np.unique(which, return_index=True)[1]
        distinct = [series.iloc[int(i)] for i in firsts]
    else:
        plain = series + 0.0 if series.dtype.kind == "f" else series
        which, distinct = pd.factorize(plain)
    table = np.array([*(_place(value, place) for value in distinct), -1.0])
    return np.where(missing, -1.0, table[which]), missing


def _place(value: Any, place: dict[str, float]) -> float:
    text = str(value).removeprefix("-") if isinstance(value, float) and value == 0 else str(value)
    if text in place:
        return place[text]
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return -1.0
    return place.get(str(int(number)), -1.0) if np.isfinite(number) and number == int(number) else -1.0
