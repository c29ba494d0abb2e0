"""The columns of a design, a product of powers, curves and dummies each, and what they can be at most by the schema.

Interval arithmetic on declared bounds. It sees no records; that the bounds hold for every record that the schema
allows is what the privacy of a fit rests on.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb.errors import InvalidValue
from pgbb.model.schema import Flag, Levels, Range, Schema

Array = NDArray[np.float64]

_MAX_CORNERS = 4096


@dataclass(frozen=True)
class Power:
    """The factor column**power of a Range or Flag column, or log(column) of a Range of positive numbers."""

    column: str
    power: int = 1
    log: bool = False


@dataclass(frozen=True)
class Dummy:
    """The factor 1{column = level}; `code` is the level's place in its declaration."""

    column: str
    level: str | int
    code: int


@dataclass(frozen=True)
class Curve:
    """The factor f(column) of a Range column, where f is a polynomial of column − start between public starts.

    Attributes:
      ends: the declared range of the column.
      starts: where each piece starts; the first also holds below its start, the last up to the end of the range.
      pieces: coefficients of each piece, the highest power first.
      low, high: the least and the largest value over the declared range.
    """

    column: str
    ends: tuple[float, float]
    starts: tuple[float, ...]
    pieces: tuple[tuple[float, ...], ...]
    low: float
    high: float

    @classmethod
    def over(cls, column: str, ends: tuple[float, float], starts: Array, pieces: Array) -> "Curve":
        """The curve with its bounds, which a polynomial takes at an end of a piece or where its derivative is 0.

        >>> square = Curve.over("x", (0, 3), np.array([1.0]), np.array([[1.0, 0.0, 0.0]]))  # (x − 1)²
        >>> square.low, square.high
        (0.0, 4.0)
        """
        edges = [ends[0], *starts[1:], ends[1]]
        values: list[float] = []
        with np.errstate(over="ignore"):  # what is not finite is refused with its name
            for start, piece, (a, b) in zip(starts, pieces, itertools.pairwise(edges), strict=True):
                flat = np.roots(np.polyder(piece)).real + start  # of a complex root: one more point of the range
                values += np.polyval(piece, np.clip([*flat, a, b], a, b) - start).tolist()
        plain = tuple(tuple(map(float, piece)) for piece in pieces)
        return cls(column, ends, tuple(map(float, starts)), plain, min(values), max(values))

    def evaluate(self, x: Array) -> Array:
        """f(x)."""
        starts, pieces = np.array(self.starts), np.array(self.pieces)
        which = np.searchsorted(starts[1:], x, side="right")
        value = np.zeros(len(x))
        for coefficients in pieces.T:
            value = value * (x - starts[which]) + coefficients[which]
        return value


@dataclass(frozen=True)
class Basis:
    """Curves of one column that enter a formula together, as bs(x, knots=[…]) or poly(x, 2).

    Attributes:
      label: the call, as a person wrote it.
      curves: one a coefficient.
      degree: powers of the column up to this one are combinations of the curves.
    """

    label: str = field(compare=False)
    curves: tuple[Curve, ...]
    degree: int

    @property
    def column(self) -> str:
        """The column that all curves are of."""
        return self.curves[0].column


Factor = Power | Dummy | Curve


@dataclass(frozen=True)
class Term:
    """One coefficient's column of the design: a product of factors, with its bounds. No factors: the intercept."""

    name: str
    factors: tuple[Factor, ...]
    low: float
    high: float

    @property
    def mapped(self) -> tuple[float, float]:
        """The middle of its bounds and half their distance: what maps it to [−1, 1]."""
        return (self.low + self.high) / 2, (self.high - self.low) / 2

    def evaluate(self, columns: Mapping[str, Array]) -> Array:
        """The term in original units, (n,). Levels columns hold codes 0, 1, ..., and −1 for missing.

        >>> Term("x:g[T.b]", (Power("x"), Dummy("g", "b", 1)), 0.0, 9.0).evaluate(
        ...     {"x": np.array([2.0, 3.0]), "g": np.array([0, 1])})
        array([0., 3.])
        """
        if not columns:
            raise InvalidValue("columns = {} is not allowed: give at least one array, which tells the number of rows.")
        needed = [f.column for f in self.factors]
        missing = [name for name in needed if name not in columns]
        if missing:
            raise InvalidValue(
                f"term {self.name!r} needs the column {missing[0]!r}, which was not given. Give {', '.join(needed)}."
            )
        value: Array | None = None
        for factor in self.factors:
            array = columns[factor.column]
            if isinstance(factor, Dummy):
                found = (array == factor.code).astype(np.float64)
            elif isinstance(factor, Curve):
                found = factor.evaluate(np.asarray(array, dtype=np.float64))
            elif factor.log:
                found = np.log(np.asarray(array, dtype=np.float64))
            else:
                found = np.asarray(array, dtype=np.float64)
                found = found if factor.power == 1 else found**factor.power
            value = found if value is None else value * found
        return np.ones(len(next(iter(columns.values()))), dtype=np.float64) if value is None else value

    def within(self, columns: Mapping[str, Array]) -> Array:
        """The term within its bounds, which a rounded logarithm might leave."""
        logs = any(isinstance(factor, Power) and factor.log for factor in self.factors)
        return np.clip(self.evaluate(columns), self.low, self.high) if logs else self.evaluate(columns)

    def placed(self, columns: Mapping[str, Array], shift: float, scale: float) -> Array:
        """The term less `shift` over `scale`, in [−1, 1]."""
        value = self.evaluate(columns) - shift
        value /= scale
        return np.clip(value, -1.0, 1.0, out=value)


_Interval = tuple[Any, Any]  # low and high: numbers, or arrays over corners of the box


def _bounds(factors: Iterable[Factor], box: Mapping[str, _Interval]) -> _Interval:
    """Interval arithmetic; exact, because every column occurs in one factor. A dummy's interval is that of 1{code}."""
    low: Any = 1.0
    high: Any = 1.0
    for factor in factors:
        a, b = box[factor.column]
        if isinstance(factor, Dummy):
            # A code that is not fixed (a < b) may or may not be this level.
            a, b = (
                np.where((a == b) & (a == factor.code), 1.0, 0.0),
                np.where((a <= factor.code) & (factor.code <= b), 1.0, 0.0),
            )
        elif isinstance(factor, Curve):
            a, b = factor.low, factor.high
        elif factor.log:
            a, b = np.log(a), np.log(b)
        elif factor.power > 1:
            crosses, even = (a < 0) & (b > 0), factor.power % 2 == 0
            a, b = a**factor.power, b**factor.power
            if even:
                a, b = np.where(crosses, 0.0, np.minimum(a, b)), np.maximum(a, b)
        corners = (low * a, low * b, high * a, high * b)
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    return low, high


def _interval(column: Range | Flag | Levels) -> _Interval:
    low, high = (0.0, len(column.levels) - 1.0) if isinstance(column, Levels) else column.bounds
    return np.float64(low), np.float64(high)


def bounded(name: str, factors: tuple[Factor, ...], schema: Schema) -> Term:
    """The term with its bounds, which must be finite and apart for its map to [−1, 1] to exist."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        low, high = map(float, _bounds(factors, {f.column: _interval(schema[f.column]) for f in factors}))
    if factors and not (low < high and math.isfinite(high - low)):
        raise InvalidValue(
            f"term {name!r} is not allowed: by the declared bounds it lies in [{low:g}, {high:g}], which must be "
            "finite and of positive length. Declare narrower bounds, in other units if need be."
        )
    return Term(name, factors, low, high)


def shift_and_scale(terms: tuple[Term, ...]) -> tuple[Array, Array]:
    """What each term is shifted by and divided by to lie in [−1, 1]; `Design` says why an intercept matters."""
    low, high = (np.array([getattr(t, end) for t in terms], dtype=np.float64) for end in ("low", "high"))
    if terms[0].factors:
        return np.zeros(len(terms)), np.maximum(abs(low), abs(high))
    shift, scale = low / 2 + high / 2, (high - low) / 2
    shift[0], scale[0] = 0.0, 1.0
    return shift, scale


def norm_bound(terms: tuple[Term, ...], shift: Array, scale: Array, schema: Schema) -> float:
    """The largest Euclidean norm of a mapped row, over the declared box.

    Terms without a common column add their own maxima. Within a group of linked columns the squared norm is convex in a
    column that enters with power 1 only, so its two ends suffice; flags and levels are tried one by one, which counts
    exclusive dummies once. Over any other column each term takes its own maximum: exact for one term, else from above.
    """
    total = 0.0
    for group in _linked(terms):
        members = [j for j, t in enumerate(terms) if t.factors and t.factors[0].column in group]
        curved = {
            f.column
            for j in members
            for f in terms[j].factors
            if isinstance(f, Curve) or (isinstance(f, Power) and (f.power > 1 or f.log))
        }
        states: dict[str, list[_Interval]] = {}
        for name in sorted(group, key=lambda c: not isinstance(schema[c], Levels)):
            column = schema[name]
            if isinstance(column, Levels):
                points = [float(i) for i in range(len(column.levels))]
            else:
                points = [] if name in curved else list(column.bounds)
            many = math.prod(map(len, states.values())) * len(points) > _MAX_CORNERS
            states[name] = [_interval(column)] if many or not points else [(p, p) for p in points]
        corners = list(itertools.product(*states.values()))
        box = {
            name: (np.array([c[i][0] for c in corners]), np.array([c[i][1] for c in corners]))
            for i, name in enumerate(states)
        }
        square = np.zeros(len(corners))
        for j in members:
            low, high = _bounds(terms[j].factors, box)
            square += (np.maximum(abs(low - shift[j]), abs(high - shift[j])) / scale[j]) ** 2
        total += float(square.max())
    return math.sqrt(total + (not terms[0].factors))


def _linked(terms: tuple[Term, ...]) -> list[set[str]]:
    """Columns grouped so that no term has columns of two groups."""
    groups: list[set[str]] = []
    for term in terms:
        joined = {f.column for f in term.factors}
        if joined:
            apart = [g for g in groups if not g & joined]
            groups = [*apart, joined.union(*(g for g in groups if g & joined))]
    return groups
