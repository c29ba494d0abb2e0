"""Records: read from a frame or a file, and encoded by public rules alone.

An error here depends on names, dtypes and the number of rows, never on a cell:
values are clamped, and a record with an unusable cell keeps its place with
`valid` False. No row is dropped, sorted or deduplicated.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pgbb.errors import InvalidValue, PgbbError
from pgbb.formula import Design
from pgbb.schema import Column, Flag, Levels, Range, Schema

__all__ = ["Columns", "NonPrivateRecords", "Records", "Source", "examine", "load", "load_columns", "read_frame"]

Source: TypeAlias = pd.DataFrame | str | Path
Bools = NDArray[np.bool_]
Singles = NDArray[np.float32]

_CHUNK = 2**15  # records encoded at once


EXTRA = 3  # columns after x in the packed rows: response, weight, squared norm of x


def packed(n: int, p: int) -> Singles:
    """An empty (n, p + 3) array, aligned so that JAX can use it without a copy."""
    size, edge = n * (p + EXTRA), 16  # 16 singles are a cache line of 64 bytes
    raw = np.empty(size + edge, dtype=np.float32)
    start = (-(raw.ctypes.data // 4)) % edge
    return raw[start : start + size].reshape(n, p + EXTRA)


class _Arrays:
    """What both kinds of records hold; neither is the other, and neither shows a value.

    One packed array (n, p + 3) holds x, y, weight and ‖x‖² of a record side by
    side, so that a batch is one gather; `x`, `y` and `weight` are views of it.
    """

    __slots__ = ("rows", "valid")

    def __init__(self, x: Singles, y: Singles, weight: Singles, valid: Bools) -> None:
        if x.ndim != 2 or not len(x) == len(y) == len(weight) == len(valid):
            raise PgbbError("x must be (n, p), and y, weight and valid (n,), with one and the same n.")
        self.rows, self.valid = packed(*x.shape), valid
        self.rows[:, : x.shape[1]], self.rows[:, -3], self.rows[:, -2] = x, y, weight
        self.rows[:, -1] = np.einsum("ij,ij->i", x, x)

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
        return self.rows[:, -3]

    @property
    def weight(self) -> Singles:
        """The survey weight."""
        return self.rows[:, -2]

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
      source: a pandas DataFrame, or the path of a .csv, .parquet or .dta file.
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
    frame = _typed_frame(source, schema, names)
    n, p = len(frame), len(design.names)
    rows, valid = packed(n, p), np.empty(n, dtype=np.bool_)
    for start in range(0, n, _CHUNK):  # bounded memory: the design exists once, in single precision
        part = slice(start, min(start + _CHUNK, n))
        data = _clamped(frame.iloc[part], schema, names)
        bad = ~data.valid
        x = design.matrix(data.values)
        x[bad] = 0
        rows[part, :p], rows[part, p] = x, data.values[design.response]
        rows[part, p + 1] = 1.0 if weights is None else data.values[weights] / schema[weights].bounds[1]  # type: ignore[union-attr]
        rows[part, p + 1][bad] = 0
        rows[part, p + 2] = np.einsum("ij,ij->i", x, x)
        valid[part] = data.valid
    return Records.from_rows(rows, valid)


def load_columns(source: Source, schema: Schema, names: Sequence[str]) -> Columns:
    """The named columns, clamped, with the mask of usable records.

    >>> data = load_columns(pd.DataFrame({"x": [7.0, float("nan"), 1.0]}), Schema(x=Range(0, 4)), ["x"])
    >>> data.values["x"].tolist(), data.valid.tolist()
    ([4.0, 2.0, 1.0], [True, False, True])
    """
    return _clamped(_typed_frame(source, schema, names), schema, names)


def _typed_frame(source: Source, schema: Schema, names: Sequence[str]) -> pd.DataFrame:
    """The named columns as they are, refused if a dtype cannot hold what is declared."""
    frame = read_frame(source, names, schema)
    wrong = {name: why for name in names if (why := _dtype_problem(frame[name], schema[name]))}
    if wrong:
        first = next(iter(wrong))
        raise InvalidValue(
            f"wrong dtype: {'; '.join(f'column {name!r} {why}' for name, why in wrong.items())}. Convert it first, "
            f"for example frame[{first!r}] = pandas.to_numeric(frame[{first!r}], errors='coerce'), or declare Levels."
        )
    return frame


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
    present, fetch = _open(source)
    known = [name for name in schema if name in present]
    frame = fetch(known, schema)
    rows = []
    for name, column in schema.items():
        row: dict[str, Any] = {
            "column": name,
            "declared": repr(column),
            "records": len(frame),
            "present": name in known,
        }
        row |= {"dtype": None, "problem": None, "missing": None, "outside": None}
        if name not in known:
            row["problem"] = "missing from the data"
        elif present.count(name) > 1:
            row["problem"] = "occurs more than once in the data"
        else:
            row["dtype"] = _shown_dtype(frame[name], source)
            row["problem"] = _dtype_problem(frame[name], column)
            if row["problem"] is None:
                _, usable, outside = _encode(frame[name], column)
                row["outside"] = int(outside.sum())
                row["missing"] = int((~usable & ~outside).sum())
        rows.append(row)
    return rows


def _shown_dtype(series: "pd.Series[Any]", source: Source) -> str:
    """The dtype; a text file has none, and its numbers, all read as float64, are called int64 where all are whole.

    PRIVATE, as all that `examine` says: the cells decide. What a fit reads does not change.
    """
    text = not isinstance(source, pd.DataFrame) and Path(source).suffix.lower() == ".csv"
    if text and series.dtype == np.float64:
        numbers = series.to_numpy()[np.isfinite(series.to_numpy())]
        if len(numbers) and (numbers == np.trunc(numbers)).all():
            return "int64"
    return str(series.dtype)


# Reading: names and dtypes are public, cells are not -----------------------------------------------------------------


def read_frame(source: Source, columns: Iterable[str], schema: Schema) -> pd.DataFrame:
    """The declared `columns` of `source`, in file order; other columns are not read.

    Text files carry no dtypes, and guessing them would let one cell decide the type of a column. So the schema decides:
    CSV cells of a Range or Flag are read as numbers (unreadable ones as missing) and those of Levels as text.
    """
    names = list(dict.fromkeys(columns))
    undeclared = [name for name in names if name not in schema]
    if undeclared:
        raise InvalidValue(
            f"column {undeclared[0]!r} is not declared; the schema declares {', '.join(schema) or 'nothing'}. "
            "Declare its Range, Flag or Levels: bounds are never taken from the records."
        )
    present, fetch = _open(source)
    missing = [name for name in names if name not in present]
    if missing:
        # The names found are not listed: in a file without a header they would be the first record.
        raise InvalidValue(
            f"the data has no column {', '.join(map(repr, missing))}; the schema declares {', '.join(schema)}. "
            "Correct the name in the schema or in the data; a CSV file needs a header line."
        )
    twice = [name for name in names if present.count(name) > 1]
    if twice:
        raise InvalidValue(f"the data has column {twice[0]!r} more than once; names must differ. Rename or remove one.")
    frame = fetch(names, schema)
    if len(frame) == 0:
        raise InvalidValue("the data has 0 records; at least one is needed. Check the path or the filter before it.")
    return frame


T = TypeVar("T")
_Fetch = Callable[[list[str], Schema], pd.DataFrame]


def _open(source: Source) -> tuple[list[Any], _Fetch]:
    """Column names, and a function that reads some of them."""
    if isinstance(source, pd.DataFrame):
        return list(source.columns), lambda names, _: source  # no copy: columns are taken one by one
    if not isinstance(source, str | Path):
        raise InvalidValue(
            f"data is a {type(source).__name__}, it must be a pandas DataFrame or the path of a file. "
            "Convert it with pandas.DataFrame(...)."
        )
    path = Path(source)
    formats: dict[str, tuple[Callable[[Path], list[Any]], Callable[[Path, list[str], Schema], pd.DataFrame]]] = {
        ".csv": (_csv_names, _csv),
        ".parquet": (_parquet_names, _parquet),
        ".dta": (_stata_names, _stata),
    }
    if path.suffix.lower() not in formats:
        raise InvalidValue(
            f"data file {str(path)!r} has an unknown ending; it must be .csv, .parquet or .dta. Convert the file, or "
            "read it with pandas and pass the frame."
        )
    if not path.is_file():
        raise InvalidValue(f"data file {str(path)!r} does not exist or is not a file. Check the path.")
    names_of, read = formats[path.suffix.lower()]
    return _quietly(path, lambda: names_of(path)), lambda names, schema: _quietly(
        path, lambda: read(path, names, schema)
    )


def _quietly(path: Path, read: Callable[[], T]) -> T:
    """Run a reader, and replace its error, which may quote cells, by one that does not."""
    try:
        return read()
    except Exception:
        raise PgbbError(
            f"data file {str(path)!r} cannot be read as {path.suffix[1:].lower()}: it is empty, damaged or of another "
            "format. Its reader's message is withheld, because it may quote records: open it with pandas to see why."
        ) from None


def _csv_names(path: Path) -> list[Any]:
    plain: dict[str, Any] = {"dtype": str, "na_filter": False, "encoding": "utf-8-sig", "encoding_errors": "replace"}
    return pd.read_csv(path, header=None, nrows=1, **plain).iloc[0].tolist()


def _csv(path: Path, names: list[str], schema: Schema) -> pd.DataFrame:
    text = pd.read_csv(
        path,
        usecols=names,
        dtype=str,
        na_filter=False,
        skip_blank_lines=False,  # a blank line is a record without cells
        index_col=False,
        encoding="utf-8-sig",
        encoding_errors="replace",
    )
    return pd.DataFrame({name: _csv_column(text[name], schema[name]) for name in names}, index=text.index)


def _csv_column(text: "pd.Series[str]", column: Column) -> "pd.Series[Any]":
    if isinstance(column, Levels):
        return text if "" in column.levels else text.mask(text == "")
    if isinstance(column, Flag):
        lower = text.str.strip().str.lower()
        text = text.mask(lower == "true", "1").mask(lower == "false", "0")
    return pd.to_numeric(text, errors="coerce").astype(np.float64)


def _parquet_names(path: Path) -> list[Any]:
    import pyarrow.parquet

    return list(pyarrow.parquet.read_schema(path).names)


def _parquet(path: Path, names: list[str], schema: Schema) -> pd.DataFrame:
    import pyarrow.parquet

    return arrow_frame(pyarrow.parquet.read_table(path, columns=names))


def arrow_frame(table: Any) -> pd.DataFrame:
    """Dtypes come from the types in the file alone: a null turns neither booleans nor integers into something else."""
    import pyarrow

    def dtype(kind: pyarrow.DataType) -> Any:
        if pyarrow.types.is_boolean(kind):
            return pd.BooleanDtype()
        if pyarrow.types.is_integer(kind):
            return pd.api.types.pandas_dtype(str(kind).replace("int", "Int").replace("uI", "UI"))
        return pd.ArrowDtype(kind) if pyarrow.types.is_decimal(kind) else None

    return table.to_pandas(ignore_metadata=True, types_mapper=dtype)


def _stata_names(path: Path) -> list[Any]:
    with pd.read_stata(path, iterator=True) as reader:
        return list(reader.variable_labels())


def _stata(path: Path, names: list[str], schema: Schema) -> pd.DataFrame:
    """Codes stay codes, except where the schema declares levels by their labels."""
    frame = pd.read_stata(path, columns=names, convert_categoricals=False)
    labelled = [n for n in names if isinstance(c := schema[n], Levels) and any(isinstance(v, str) for v in c.levels)]
    if labelled:
        frame = frame.assign(**pd.read_stata(path, columns=labelled, convert_categoricals=True))
    return frame


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
