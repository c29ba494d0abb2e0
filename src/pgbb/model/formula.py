"""Makes the design of a regression from a formula and a schema: its terms, coded so that they have full rank.

Every number here is declared, none comes from records: a term is a product of powers and curves of declared columns and
of dummies of declared levels.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.parsing import MAX_TERMS, Monomial, Product, parse, product_of
from pgbb.model.schema import Flag, Levels, Range, Schema
from pgbb.model.terms import Array, Basis, Curve, Dummy, Factor, Power, Term, bounded, norm_bound, shift_and_scale

__all__ = ["Curve", "Design", "Dummy", "Power", "Term"]

_MAX_LEVELS = 6  # Levels columns in one interaction


@dataclass(frozen=True)
class Design:
    """The columns of a regression, in original units and mapped publicly to [−1, 1].

    With an intercept a term t is centred, (t − mid)/(half its range); without one it is only scaled,
    t/max(|low|, |high|), because a shift would need an intercept to absorb it. The mapped row has Euclidean norm
    ≤ `norm_bound` for every record that the schema allows.

    >>> schema = Schema(y=Range(0, 12), educ=Range(5, 20), region=Levels("north", "south"))
    >>> design = Design.parse("y ~ educ + region", schema)
    >>> design.names
    ('Intercept', 'educ', 'region[T.south]')
    >>> design.matrix({"educ": np.array([5.0, 12.5]), "region": np.array([0, 1])})
    array([[ 1., -1., -1.],
           [ 1.,  0.,  1.]], dtype=float32)
    >>> round(design.norm_bound**2, 9)
    3.0
    """

    formula: str
    answer: Term  # the response: a column, or its logarithm
    terms: tuple[Term, ...]
    columns: tuple[str, ...]
    norm_bound: float
    response_step: float = 0.0
    flags: frozenset[str] = frozenset()
    offset: Term | None = None  # a term with the coefficient 1: one more column of the rows, and no coefficient

    @classmethod
    def parse(cls, formula: str, schema: Schema, response: type[Range] | type[Flag] | None = None) -> "Design":
        """The design of `formula` under `schema`; refuses whatever would need the records to be known.

        Also refuses a response that is not declared as the model needs it, if that is given.
        """
        if not isinstance(schema, Schema):
            raise _validate.fail(
                "schema", type(schema).__name__, "a pgbb.Schema", "Write pgbb.Schema(educ=pgbb.Range(5, 20))."
            )
        answer, right = parse(formula, schema)
        name = answer.factors[0].column
        first: dict[str, int] = {}
        products = [product_of(term, schema, first) for term in right]
        for product in products:
            if name in product.columns():
                raise InvalidValue(
                    f"formula = {formula!r} is not allowed: the response {name!r} stands on the right-hand side "
                    "too, in the term " + repr(product.label()) + ". Remove it there."
                )
        terms = coefficients(products, schema, first)
        if not terms:
            raise InvalidValue(
                f"formula = {formula!r} is not allowed: it has no terms, and at least one is needed. "
                "Remove '- 1' or '+ 0', or name a column."
            )
        needed = dict.fromkeys(f.column for t in terms for f in t.factors)
        column = schema[name]
        assert isinstance(column, Range | Flag)
        if response is not None and not isinstance(column, response):
            needs, write = ("public bounds", "Range(low, high)") if response is Range else ("a 0/1 response", "Flag()")
            events = (
                " Of an event LogisticRegression has the probability, and Mean the share." if response is Range else ""
            )
            raise InvalidValue(
                f"response {name!r} is declared as {column!r}, but this model needs {needs}: declare {name}={write}."
                + events
            )
        shift, scale = shift_and_scale(terms)
        bound = norm_bound(terms, shift, scale, schema)
        step = column.step if isinstance(column, Range) and answer.name == name else None
        flags = frozenset(name for name in needed if isinstance(schema[name], Flag))
        return cls(formula, answer, terms, tuple(needed), bound, step or 0.0, flags)

    @property
    def response(self) -> str:
        """The column that the response is, or is the logarithm of."""
        return self.answer.factors[0].column

    @property
    def response_bounds(self) -> tuple[float, float]:
        """The bounds of the response."""
        return self.answer.low, self.answer.high

    def is_flag(self, j: int) -> bool:
        """Whether the j-th term is one column of 0 and 1: a flag, or a dummy of a level."""
        factors = self.terms[j].factors
        if len(factors) != 1:
            return False
        return isinstance(factors[0], Dummy) or factors[0].column in self.flags

    @property
    def rows_need(self) -> tuple[tuple[str, ...], int]:
        """The columns that rows are made of, and how many numbers a row has."""
        if self.offset is None:
            return self.columns, len(self.terms)
        return (*self.columns, *(f.column for f in self.offset.factors)), len(self.terms) + 1

    @property
    def names(self) -> tuple[str, ...]:
        """Coefficient names, in the order of the terms."""
        return tuple(term.name for term in self.terms)

    @property
    def has_intercept(self) -> bool:
        """Whether the first term is the constant 1."""
        return not self.terms[0].factors

    @cached_property
    def shift(self) -> Array:
        """(p,): the value of each term that is mapped to 0; 0 for the intercept."""
        return _read_only(shift_and_scale(self.terms)[0])

    @cached_property
    def scale(self) -> Array:
        """(p,): the distance from there that is mapped to 1; 1 for the intercept."""
        return _read_only(shift_and_scale(self.terms)[1])

    @cached_property
    def to_original(self) -> Array:
        """(p, p) matrix A with β = A b, from coefficients b of mapped terms to coefficients β in original units."""
        matrix = np.diag(1.0 / self.scale)
        if self.has_intercept:
            matrix[0, 1:] = -self.shift[1:] / self.scale[1:]
        return _read_only(matrix)

    @cached_property
    def mapped(self) -> list[tuple[Term, float, float]]:
        """The terms of a row, each with what it is shifted and divided by."""
        terms = [(t, float(a), float(b)) for t, a, b in zip(self.terms, self.shift, self.scale, strict=True)]
        return terms if self.offset is None else [*terms, (self.offset, *self.offset.mapped)]

    def matrix(self, columns: Mapping[str, Array], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Mapped rows, (n, p), from clamped columns; the arithmetic is 64-bit and only the result is rounded."""
        shape = len(next(iter(columns.values()))), len(self.mapped)
        rows = np.empty(shape, dtype=np.float32) if out is None else out
        for j, (term, shift, scale) in enumerate(self.mapped):
            rows[:, j] = term.placed(columns, shift, scale)
        return rows


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


Key = tuple[tuple[Power, ...], tuple[Basis, ...]]
"""The numeric part of a term: powers and bases."""


def coefficients(products: list[Product], schema: Schema, first: Mapping[str, int]) -> tuple[Term, ...]:
    """The terms, one a coefficient, with dummies coded so that the design has full rank; `first` has other bases.

    The term num:r:q spans num × (subset of {r, q}) for every subset. Subsets that an earlier term spans are left out;
    the others are merged, r⁻ + 1 = r with all its levels (the rule of patsy, "redundancy and categorical factors").
    """
    terms: list[Term] = []
    spanned: dict[tuple[Key, frozenset[str]], str] = {}
    seen: dict[tuple[str, Key], list[tuple[Basis | Power, str]]] = {}
    for product in products:
        key = _merge(product, schema), product.bases()
        _refuse_collinear(key, product.label(), seen)
        levels = product.levels()
        many = math.prod(len(c.levels) for name in levels if isinstance(c := schema[name], Levels))
        many *= math.prod(len(basis.curves) for basis in key[1])
        if len(levels) > _MAX_LEVELS or len(terms) + many > MAX_TERMS:
            raise InvalidValue(
                f"term {product.label()!r} is not allowed: it has {len(levels)} Levels columns and {many:,} "
                f"combinations, where at most {_MAX_LEVELS} columns and {MAX_TERMS:,} coefficients in all are "
                "possible. Interact fewer columns, or declare coarser levels."
            )
        subsets = [frozenset(s) for size in range(len(levels) + 1) for s in itertools.combinations(levels, size)]
        fresh = [s for s in subsets if (key, s) not in spanned]
        if not fresh:
            raise InvalidValue(
                f"terms {spanned[key, subsets[-1]]!r} and {product.label()!r} are not allowed together: they are the "
                "same column. Remove one of the two."
            )
        spanned.update(((key, s), product.label()) for s in fresh)
        for coding in _simplify([dict.fromkeys(s, False) for s in fresh]):
            expanded = _expand(product, key[0], coding, schema, first)
            terms += [bounded(name, factors, schema) for name, factors in expanded]
    return tuple(terms)


def _refuse_collinear(key: Key, label: str, seen: dict[tuple[str, Key], list[tuple[Basis | Power, str]]]) -> None:
    """Refuse two curves of a column, or a curve and a power that it spans, where all else in their terms is equal."""
    powers, bases = key
    alone: list[tuple[Basis | Power, Key]] = [(b, (powers, tuple(o for o in bases if o is not b))) for b in bases]
    alone += [(p, (tuple(o for o in powers if o is not p), bases)) for p in powers if not p.log]
    for part, rest in alone:
        others = seen.setdefault((part.column, rest), [])
        for other, there in others:
            spans = [b.degree for b in (part, other) if isinstance(b, Basis)]
            power = [p.power for p in (part, other) if isinstance(p, Power)]
            if part != other and spans and (not power or power[0] <= spans[0]):
                raise InvalidValue(
                    f"terms {there!r} and {label!r} are not allowed together: they have combinations of "
                    f"{part.column!r} in common. Remove one of the two."
                )
        others.append((part, label))


def _merge(product: Product, schema: Schema) -> tuple[Power, ...]:
    """x·x² as x³, and any power of a flag as the flag, so that equal columns have equal keys."""
    total: dict[str, int] = {}
    given = product.powers()
    logs = [p for p in given if p.log]
    bases = [basis.column for basis in product.bases()]
    columns = [*(p.column for p in given), *bases]
    for column in (*(p.column for p in logs), *bases):
        if columns.count(column) > 1:
            raise InvalidValue(
                f"term {product.label()!r} is not allowed: a curve of {column!r} may not be multiplied by another term "
                "of that column. Compute such a column beforehand, record by record, and declare its Range."
            )
    for p in (p for p in given if not p.log):
        total[p.column] = 1 if isinstance(schema[p.column], Flag) else total.get(p.column, 0) + p.power
    return tuple(sorted([*(Power(c, k) for c, k in total.items()), *logs], key=lambda p: p.column))


def _simplify(codings: list[dict[str, bool]]) -> list[dict[str, bool]]:
    """Merge s and s:r⁻ into s:r with all levels of r, until nothing merges."""
    for short, long in itertools.combinations(codings, 2):
        extra = long.keys() - short.keys()
        if len(extra) == 1 and all(long.get(c) == full for c, full in short.items()):
            (column,) = extra
            if not long[column]:
                rest = [c for c in codings if c is not short]
                return _simplify([{**c, column: True} if c is long else c for c in rest])
    return codings


def _expand(
    product: Product, powers: tuple[Power, ...], coding: dict[str, bool], schema: Schema, first: Mapping[str, int]
) -> Iterator[tuple[str, tuple[Factor, ...]]]:
    """Name and factors of each coefficient; the first part with several varies fastest, as in formulaic."""
    choices: list[list[tuple[str, Factor | None]]] = []
    for part in product.parts:
        if isinstance(part, Monomial):
            choices.append([(part.label, None)])
        elif isinstance(part, Basis):
            choices.append([(f"{part.label}[{k}]", curve) for k, curve in enumerate(part.curves, 1)])
        elif part in coding:
            column = schema[part]
            assert isinstance(column, Levels)
            skip, mark = (None, "") if coding[part] else (first.get(part, 0), "T.")
            choices.append(
                [(f"{part}[{mark}{v}]", Dummy(part, v, i)) for i, v in enumerate(column.levels) if i != skip]
            )
    for reverse in itertools.product(*reversed(choices)):
        chosen = reverse[::-1]
        name = ":".join(label for label, _ in chosen) or "Intercept"
        yield name, (*powers, *(factor for _, factor in chosen if factor is not None))
