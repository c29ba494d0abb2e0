"""Records: read piece by piece from any source, and encoded by public rules alone.

An error here depends on names, stored types and the number of rows, never on a cell: values are clamped, and a record
with an unusable cell keeps its place with `valid` False. No row is dropped, sorted or deduplicated. Where a piece
begins and ends changes nothing. How a source is opened is in `sources`, and how a cell is read in `cells`.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Bools, Singles, Words
from pgbb._numerics.prefetch import ahead
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.formula import Design
from pgbb.model.schema import Date, Levels, Range, Schema
from pgbb.private.cells import encode as encode_cells
from pgbb.private.cells import filler, refusal
from pgbb.private.coding import Coding
from pgbb.private.in_memory import InMemory
from pgbb.private.open_table import Opened, Piece
from pgbb.private.row_layout import EXTRA
from pgbb.private.scratch import Scratch
from pgbb.private.sources import Source, open_source

_ANY = Range(-1e30, 1e30)


class NoRecords(InvalidValue):
    """There are no records: refused for a data set, allowed for a partition."""


class _Arrays:
    """The arrays of both kinds of records. Neither kind is a subtype of the other, and neither shows a value.

    One packed array (n, p + EXTRA) holds x, y and weight of a record side by
    side, so that a batch is one gather; `x`, `y` and `weight` are views of it. It is taken over and not copied.
    """

    __slots__ = ("persons", "rows", "valid")
    coding: None = None  # rows are dense
    persons: NDArray[np.intp] | None

    def __init__(self, rows: Singles, valid: Bools, persons: NDArray[np.intp] | None = None) -> None:
        self.rows, self.valid, self.persons = rows, valid, persons

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
      persons: (n,) whose record it is, 0, 1, …; None where nobody asked.
    """

    __slots__ = ()

    def as_non_private(self) -> "NonPrivateRecords":
        """These arrays for computations without any privacy: what comes of them must not be published."""
        return NonPrivateRecords(self.rows, self.valid)


class NonPrivateRecords(_Arrays):
    """Records handed over, on purpose, to code that protects nothing; the fields are those of `Records`."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Stored:
    """Confidential records as sums over all of them read them; the response is shifted. They tell no persons.

    Attributes:
      rows: (n, words) in memory or in a file.
      coding: how columns are formed of them; None where they are dense rows of single precision.
    """

    rows: "Words | Singles | Scratch" = field(repr=False)
    coding: Coding | None = field(default=None, repr=False)
    persons: ClassVar[None] = None

    @property
    def n(self) -> int:
        """Number of records, invalid ones included; public."""
        return len(self.rows)

    def close(self) -> None:
        """Gives the room of a file back."""
        if isinstance(self.rows, Scratch):
            self.rows.close()


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


def of_design(design: Design, schema: Schema, weights: str | None = None) -> "Reading":
    """What is read for a regression: its mapped design, the response, and survey weights if there are any."""
    if weights is not None:
        column = schema.get(weights)
        if not isinstance(column, Range) or column.low < 0:
            given = "not declared" if column is None else f"declared as {column!r}"
            raise InvalidValue(
                f"weights = {weights!r} is {given}, it must be declared as a Range with low ≥ 0. "
                f"Declare {weights} = Range(0, high) with a public high."
            )
    needed, width = design.rows_need
    names = dict.fromkeys([*needed, design.response, *([] if weights is None else [weights])])

    def fill(data: Columns, rows: Singles) -> None:
        design.matrix(data.values, rows[:, :-EXTRA])
        rows[:, -2] = design.answer.within(data.values)
        rows[:, -1] = 1.0 if weights is None else data.values[weights] / schema[weights].bounds[1]  # type: ignore[union-attr]

    return Reading(tuple(names), width, fill)


class Reading(NamedTuple):
    """Columns that are read, numbers in x, and what fills dense rows from the clamped columns of a piece."""

    names: tuple[str, ...]
    width: int
    fill: Callable[[Columns, Singles], None]

    @property
    def words(self) -> int:
        """Words of a dense row."""
        return self.width + EXTRA

    def dense(self, data: Columns, out: Words, shift: float = 0.0) -> None:
        """Packed rows of single precision, the response less a shift; an invalid record has x and weight 0."""
        rows = out.view(np.float32)
        self.fill(data, rows)
        rows[:, -2] -= shift
        if not data.valid.all():
            rows[~data.valid, :-EXTRA], rows[~data.valid, -1] = 0, 0


def encoded(source: Source, schema: Schema, reading: Reading, persons: str | None = None) -> Records:
    """The records as dense rows of single precision, held once. The weight of an invalid one becomes 0."""
    valid: list[Bools] = []
    ids: list[NDArray[np.float64]] = []

    def fill(data: Columns, out: Words) -> None:
        reading.dense(data, out)
        valid.append(data.valid)
        if persons is not None:
            ids.append(data.values[persons])

    names = dict.fromkeys([*reading.names, *([] if persons is None else [persons])])
    rows = stored(source, schema, tuple(names), reading.words, fill, persons=persons)
    assert not isinstance(rows, Scratch)
    whose = None if persons is None else np.unique(np.concatenate(ids), return_inverse=True)[1]
    return Records(rows.view(np.float32), np.concatenate(valid), whose)


@np.errstate(all="ignore")  # in single precision a small number is 0, and nobody is told
def stored(
    source: Source,
    schema: Schema,
    names: Sequence[str],
    words: int,
    fill: Callable[[Columns, Words], None],
    scratch: Path | None = None,
    persons: str | None = None,
) -> "Words | Scratch":
    """Rows of so many words, filled piece by piece from clamped columns, in memory or in a folder."""
    opened = _typed(source, schema, names)
    counted, at = opened.count, 0
    held = InMemory(counted, words) if scratch is None else Scratch(scratch, counted, words)
    clamped = partial(_clamped, schema=schema, names=names, persons=persons)
    with ExitStack() as undo:
        undo.callback(held.close)
        for data in ahead(map(clamped, ahead(opened.pieces(list(names), schema)))):  # read, clamp and fill at once
            if counted is not None and at + data.n > counted:
                raise PgbbError(_CHANGED)
            part = held.next(data.n)
            fill(data, part)
            held.append(part)
            at += data.n
        if counted not in (None, at):
            raise PgbbError(_CHANGED)
        if at == 0:
            raise NoRecords(_NOTHING)
        undo.pop_all()
    return held.done()


def _typed(source: Source, schema: Schema, names: Sequence[str]) -> Opened:
    """The opened data, refused if a column is missing or its stored type cannot hold what is declared."""
    opened = _checked(source, names, schema)
    kinds = opened.kinds(list(names), schema)
    wrong = {name: why for name in names if (why := refusal(kinds[name], schema[name]))}
    if wrong:
        first = next(iter(wrong))
        remedy = (
            f"for example frame[{first!r}] = pandas.to_numeric(frame[{first!r}], errors='coerce'), or declare Levels."
            if kinds[first].levels
            else "into a column with one number, word or day in each cell."
        )
        raise InvalidValue(
            f"wrong dtype: {'; '.join(f'column {name!r} {why}' for name, why in wrong.items())}. Convert it first, "
            f"{remedy}"
        )
    return opened


def _clamped(piece: Piece, schema: Schema, names: Sequence[str], persons: str | None = None) -> Columns:
    """Cells of the named columns, clamped; a person whose number is beyond its range is nobody."""
    values = {}
    valid = np.ones(piece.n, dtype=np.bool_)
    for name in names:
        values[name], usable, beyond = encode_cells(piece.cells[name], schema[name], beyond=name == persons)
        valid &= usable & ~beyond if name == persons else usable
    if not valid.all():
        for name in names:
            values[name][~valid] = filler(schema[name])
    return Columns(values, valid)


class Examined(TypedDict):
    """What `examine` says of a column. PRIVATE.

    `problem` is why `fit` would refuse it, or None; `missing` counts missing or unreadable cells, `outside` those
    beyond the range or of an undeclared level, both None if not counted.
    """

    column: str
    declared: str
    records: int
    present: bool
    dtype: str | None
    problem: str | None
    missing: int | None
    outside: int | None


def examine(source: Source, schema: Schema) -> list[Examined]:
    """What is unusable in each declared column. PRIVATE: exact counts from the records; show them to nobody outside.

    >>> row = examine({"x": [7.0, None, 1.0]}, Schema(x=Range(0, 4)))[0]
    >>> row["missing"], row["outside"]
    (1, 1)
    """
    opened = open_source(source)
    known = [name for name in schema if opened.names.count(name) == 1]
    if opened.remedy and not known:
        raise _without_names(opened, list(schema))
    kinds = opened.kinds(known, schema)
    problems = {
        name: "missing from the data"
        if name not in opened.names
        else "occurs more than once in the data"
        if name not in known
        else refusal(kinds[name], column)
        for name, column in schema.items()
    }
    missing, outside = ({name: 0 for name, why in problems.items() if why is None} for _ in range(2))
    records, whole = 0, dict[str, bool | None]()
    for piece in opened.pieces(known, schema):
        records += piece.n
        for name in missing:
            cells = piece.cells[name]
            _, usable, beyond = encode_cells(cells, schema[name])
            outside[name] += int(beyond.sum())
            missing[name] += int((~usable & ~beyond).sum())
            if not opened.typed and not isinstance(schema[name], Levels | Date):
                whole[name] = _all_whole(encode_cells(cells, _ANY)[0][usable], whole.get(name))
    return [
        Examined(
            column=name,
            declared=repr(column),
            records=records,
            present=name in opened.names,
            dtype="int64" if whole.get(name) else kinds[name].name if name in known else None,
            problem=problems[name],
            missing=missing.get(name),
            outside=outside.get(name),
        )
        for name, column in schema.items()
    ]


def _all_whole(numbers: NDArray[np.float64], before: bool | None) -> bool | None:
    """Whether all numbers so far are whole numbers; None if there are none yet.

    PRIVATE, as all that `examine` says. A text file has no dtypes: its numbers are read as float64, and called int64
    where all are whole. What a fit reads does not change.
    """
    return before if not len(numbers) else before is not False and bool((numbers == np.trunc(numbers)).all())


_CHANGED = (
    "the data have another number of records than when they were opened: they change while they are read. Leave them "
    "alone while a fit runs. Nothing was asked or spent."
)
_NOTHING = "the data has 0 records; at least one is needed. Check the path or the filter before it."


def _checked(source: Source, columns: Iterable[str], schema: Schema) -> Opened:
    """The opened data, refused if a column is undeclared, missing or there twice, or if there are no records."""
    names = list(dict.fromkeys(columns))
    undeclared = [name for name in names if name not in schema]
    if undeclared:
        raise InvalidValue(
            f"column {undeclared[0]!r} is not declared; the schema declares {', '.join(schema) or 'nothing'}. "
            "Declare its Range, Flag or Levels: bounds are never taken from the records."
        )
    opened = open_source(source)
    if opened.remedy and any(opened.names.count(name) != 1 for name in names):
        raise _without_names(opened, names)
    missing = [name for name in names if name not in opened.names]
    if missing:
        raise InvalidValue(
            f"the data has no column {', '.join(map(repr, missing))}; the schema declares {', '.join(schema)}. "
            "Correct the name in the schema or in the data."
        )
    twice = [name for name in names if opened.names.count(name) > 1]
    if twice:
        raise InvalidValue(f"the data has column {twice[0]!r} more than once; names must differ. Rename or remove one.")
    if opened.count == 0:
        raise NoRecords(_NOTHING)
    return opened


def _without_names(opened: Opened, names: Sequence[str]) -> InvalidValue:
    """One refusal whatever the first line says, and whichever names are not in it: it may be a record."""
    return InvalidValue(
        f"the first line of the data must name each of these columns once: {', '.join(names)}. It does not. "
        f"{opened.remedy}"
    )
