"""What a stored record is: words of 32 bits, of which columns are formed inside the piece that a statistic reads.

A flag, a level or a whole number is one code of as many bits as it needs, whatever number of dummies, powers and
interactions is made of it; any other number is one word of single precision for each way in which terms scale it.
Which is which follows from the declared schema and the formula alone. `Form.formed`
gives the dense rows, but for the sign of a zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from types import ModuleType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Floats, Words
from pgbb.model.formula import Design
from pgbb.model.schema import Flag, Levels, Range, Schema
from pgbb.model.terms import Curve, Dummy, Power, Term

Array: TypeAlias = Any  # of NumPy, or of JAX where xp is jax.numpy
Role: TypeAlias = Literal["response", "weight"]
Source: TypeAlias = int | str | None
"""Where the number of a term comes from: a word, the code of a column, or None for a constant."""

_MOST = 2**16  # values of a code


@dataclass(frozen=True)
class Number:
    """A word of single precision: a product of factors, mapped as its terms are."""

    factors: tuple[Power | Curve, ...]
    shift: float
    scale: float

    def of(self, columns: Mapping[str, Floats]) -> Floats:
        """The number of each record; the arithmetic is that of `Design.matrix`."""
        return Term("", self.factors, 0.0, 0.0).placed(columns, self.shift, self.scale)


@dataclass(frozen=True)
class Code:
    """A column of whole numbers from `low` to `low` + `size` − 1, in bits of a word from `bit` on."""

    low: float
    size: int
    word: int = 0
    bit: int = 0

    @property
    def bits(self) -> int:
        """How many bits it takes."""
        return (self.size - 1).bit_length()

    @property
    def values(self) -> Floats:
        """All that a cell can be."""
        return self.low + np.arange(self.size, dtype=np.float64)

    def of(self, stored: Array, xp: ModuleType) -> Array:
        """The code of each record."""
        return xp.right_shift(stored[self.word], np.uint32(self.bit)) & np.uint32(2**self.bits - 1)


@dataclass(frozen=True)
class Column:
    """One number of a record: `other` unless every condition (column, code) holds.

    Where all hold it is a word, or entry number code of `table`; of a constant the table has one entry.
    """

    source: Source
    table: tuple[float, ...] = ()
    conditions: tuple[tuple[str, int], ...] = ()
    other: float = 0.0

    @property
    def kind(self) -> tuple[object, ...]:
        """Neighbours of one kind are formed together."""
        alone = isinstance(self.source, str) or (isinstance(self.source, int) and self.conditions)
        return type(self.source), *((self.source,) if alone else ()), *(name for name, _ in self.conditions)


@dataclass(frozen=True)
class Form:
    """How columns are formed of stored words: all that a program of a sum is compiled for, whatever the ranges are.

    Attributes:
      codes: of columns, packed behind the words of single precision; "" says whether the record is usable, where no
        survey weight does.
      columns: of a formed row.
    """

    codes: tuple[tuple[str, Code], ...]
    columns: tuple[Column, ...]

    @property
    def width(self) -> int:
        """Numbers of a formed row."""
        return len(self.columns)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.codes, self.columns))

    def formed(self, stored: Array, xp: ModuleType, once: Any = lambda parts: parts) -> Array:
        """Columns (p + EXTRA, n) of single precision, from words (words, n)."""
        codes = {name: code.of(stored, xp) for name, code in self.codes}
        groups = [tuple(group) for _, group in groupby(self._parts, key=lambda part: part[0])]
        return xp.concatenate(once([_formed(stored, codes, [c for _, c in group], xp) for group in groups]))

    @cached_property
    def _parts(self) -> list[tuple[object, Column]]:
        """Columns with what tells their group: their kind; words as they are must also follow one another."""
        plain = [isinstance(c.source, int) and not c.conditions for c in self.columns]
        return [
            ((*c.kind, c.source - j if p and isinstance(c.source, int) else None), c)
            for j, (c, p) in enumerate(zip(self.columns, plain, strict=True))
        ]


@dataclass(frozen=True)
class Coding:
    """How records of a design are stored, and how x, response − shift and survey weight are formed of that.

    Attributes:
      words: of a stored record.
      numbers: the words of single precision, in their order.
      form: how columns are formed of them.
      response, shift: the term that it is, and what is subtracted from it.
      weights, highest: the column of survey weights, and what they are divided by.
    """

    words: int
    numbers: tuple[Number | Role, ...]
    form: Form
    response: Term
    shift: float
    weights: str | None
    highest: float

    def store(self, values: Mapping[str, Floats], valid: NDArray[np.bool_], out: Words) -> None:
        """Fill `out` (n, words) from clamped columns."""
        numbers = out.view(np.float32)
        for k, number in enumerate(self.numbers):
            if isinstance(number, Number):
                numbers[:, k] = number.of(values)
            elif number == "response":
                numbers[:, k] = self.response.within(values)
                numbers[:, k] -= self.shift
            else:
                numbers[:, k] = np.where(valid, values[str(self.weights)] / self.highest, 0.0)
        out[:, len(self.numbers) :] = 0
        for name, code in self.form.codes:
            found = (values[name] - code.low if name else valid).astype(np.uint32)
            out[:, code.word] |= np.left_shift(found, np.uint32(code.bit), out=found)


def _formed(stored: Array, codes: Mapping[str, Array], columns: Sequence[Column], xp: ModuleType) -> Array:
    """Columns of one kind, one below the other."""
    first, n = columns[0], stored.shape[1]
    if isinstance(first.source, str):
        base = xp.asarray(np.array([c.table for c in columns], np.float32))[:, codes[first.source].astype(np.int32)]
    elif first.source is None:
        base = xp.broadcast_to(np.array([c.table for c in columns], np.float32), (len(columns), n))
    else:
        last = first.source + (1 if first.conditions else len(columns))
        base = stored[first.source : last].view(np.float32)
    if not first.conditions:
        return base
    holds = True
    for k, (name, _) in enumerate(first.conditions):
        holds = holds & (codes[name] == np.array([[c.conditions[k][1]] for c in columns], np.uint32))
    return xp.where(holds, base, np.array([[c.other] for c in columns], np.float32))


def coding_of(design: Design, schema: Schema, weights: str | None, shift: float) -> Coding | None:
    """The coding of a design, where it takes at most three quarters of the dense rows; None otherwise."""
    made = _Making(schema)
    columns = [made.term(term, *ends) for term, *ends in design.mapped]
    columns.append(made.answer(design.answer, shift))
    if weights is None:
        made.codes[""] = Code(0.0, 2)
        columns.append(Column("", (0.0, 1.0)))
    else:
        columns.append(Column(made.word("weight")))
    codes, words = _placed(made.codes, len(made.numbers))
    high = 1.0 if weights is None else schema[weights].bounds[1]  # type: ignore[union-attr]
    form = Form(codes, tuple(columns))
    if 4 * words > 3 * form.width:
        return None
    return Coding(words, tuple(made.numbers), form, design.answer, shift, weights, high)


def _placed(codes: Mapping[str, Code], first: int) -> tuple[tuple[tuple[str, Code], ...], int]:
    """Codes in the words from the first on, each where it fits, the longest first; and the number of words then."""
    used: list[int] = []
    placed = []
    for name, code in sorted(codes.items(), key=lambda item: -item[1].bits):
        word = next((i for i, bits in enumerate(used) if bits + code.bits <= 32), len(used))
        used += [0] if word == len(used) else []
        placed.append((name, Code(code.low, code.size, first + word, used[word])))
        used[word] += code.bits
    return tuple(placed), first + len(used)


class _Making:
    """Numbers and codes that are needed so far."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.numbers: dict[Number | Role, int] = {}
        self.codes: dict[str, Code] = {}

    def word(self, number: Number | Role) -> int:
        return self.numbers.setdefault(number, len(self.numbers))

    def code(self, name: str) -> Code | None:
        """The code of a column whose values are few and known."""
        column = self._schema[name]
        if isinstance(column, Range) and not column.whole:
            return None
        low, size = (0.0, len(column.levels)) if isinstance(column, Levels) else _whole(column)
        return self.codes.setdefault(name, Code(low, size)) if size <= _MOST else None

    def term(self, term: Term, shift: float, scale: float) -> Column:
        """A term of the design: conditions are its dummies and flags, and the rest is a number."""
        ones = [(f.column, f.code if isinstance(f, Dummy) else 1) for f in term.factors if self._is_condition(f)]
        for name, _ in ones:
            self.code(name)
        number = Number(tuple(f for f in term.factors if not self._is_condition(f)), shift, scale)  # type: ignore[misc]
        names = {f.column for f in number.factors}
        other = float(np.float32(np.clip((0.0 - shift) / scale, -1.0, 1.0))) if ones else 0.0
        if len(names) == 1 and (code := self.code(name := names.pop())) is not None:
            return Column(name, _singles(number.of({name: code.values})), tuple(ones), other)
        if number.factors:
            return Column(self.word(number), (), tuple(ones), other)
        return Column(None, _singles(number.of({"": np.zeros(1)})), tuple(ones), other)

    def _is_condition(self, factor: Power | Dummy | Curve) -> bool:
        return isinstance(factor, Dummy) or isinstance(self._schema[factor.column], Flag)

    def answer(self, response: Term, shift: float) -> Column:
        """The response."""
        name = response.factors[0].column
        code = self.code(name)
        if code is None:
            return Column(self.word("response"))
        table = response.within({name: code.values}).astype(np.float32)
        table -= shift
        return Column(name, _singles(table))


def _whole(column: Range | Flag) -> tuple[float, int]:
    low, high = column.bounds
    return low, int(high - low) + 1


def _singles(numbers: NDArray[np.floating[Any]]) -> tuple[float, ...]:
    return tuple(map(float, numbers.astype(np.float32)))
