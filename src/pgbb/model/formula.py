"""From a formula and a schema to terms with public bounds. Sees no records: every number here is declared.

formulaic only parses. Its transforms may compute from the data (a mean, a knot,
the set of levels seen), which would leak, so a term is a product of powers of
declared columns and of dummies of declared levels, and nothing else.
"""

import ast
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.schema import Flag, Levels, Range, Schema

__all__ = ["Design", "Dummy", "Power", "Term"]

Array = NDArray[np.float64]

_DATA_DEPENDENT = {"center", "scale", "standardize", "poly", "bs", "cr", "cs", "cc", "ns", "te", "hashed", "lag"}
_MAX_POWER = 20
_MAX_CORNERS = 4096
_MAX_LENGTH = 20_000  # letters of a formula
_MAX_TERMS = 5_000  # a formula of a few letters, (a+b+c)**99, could mean more than any machine holds
_MAX_LEVELS = 6  # Levels columns in one interaction


@dataclass(frozen=True)
class Power:
    """The factor column**power, of a Range or Flag column."""

    column: str
    power: int = 1


@dataclass(frozen=True)
class Dummy:
    """The factor 1{column = level}; `code` is the level's place in its declaration."""

    column: str
    level: str | int
    code: int


@dataclass(frozen=True)
class Term:
    """One coefficient's column of the design: a product of factors, with its bounds. No factors: the intercept."""

    name: str
    factors: tuple[Power | Dummy, ...]
    low: float
    high: float

    def evaluate(self, columns: Mapping[str, NDArray[Any]]) -> Array:
        """The term in original units, (n,). Levels columns hold codes 0, 1, ..., and −1 for missing.

        >>> Term("x:g[T.b]", (Power("x"), Dummy("g", "b", 1)), 0.0, 9.0).evaluate(
        ...     {"x": np.array([2.0, 3.0]), "g": np.array([0, 1])})
        array([0., 3.])
        """
        if not columns:
            raise InvalidValue("columns = {} is not allowed: give at least one array, which tells the number of rows.")
        missing = [f.column for f in self.factors if f.column not in columns]
        if missing:
            raise InvalidValue(
                f"term {self.name!r} needs the column {missing[0]!r}, which was not given. Give {_list(self._needs())}."
            )
        value = np.ones(len(next(iter(columns.values()))), dtype=np.float64)
        for factor in self.factors:
            array = columns[factor.column]
            if isinstance(factor, Dummy):
                value *= array == factor.code
            else:
                value *= np.asarray(array, dtype=np.float64) ** factor.power
        return value

    def _needs(self) -> list[str]:
        return [f.column for f in self.factors]


@dataclass(frozen=True)
class Design:
    """The columns of a regression, in original units and mapped publicly to [−1, 1].

    With an intercept a term t is centred, (t − mid)/(half its range); without
    one it is only scaled, t/max(|low|, |high|), because a shift would need an
    intercept to absorb it. The mapped row has Euclidean norm ≤ `norm_bound`
    for every record that the schema allows.

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
    response: str
    response_bounds: tuple[float, float]
    terms: tuple[Term, ...]
    columns: tuple[str, ...]
    norm_bound: float

    @classmethod
    def parse(cls, formula: str, schema: Schema) -> "Design":
        """The design of `formula` under `schema`; refuses whatever would need the records to be known."""
        if not isinstance(schema, Schema):
            raise InvalidValue(
                f"schema is a {type(schema).__name__}, it must be a pgbb.Schema. Declare the columns there."
            )
        left, right = _parse(formula, schema)
        response = _response(left, schema)
        products = [_product(term, schema) for term in right]
        for product in products:
            if response in product.columns():
                raise InvalidValue(
                    f"formula = {formula!r} is not allowed: the response {response!r} stands on the right-hand side "
                    "too, in the term " + repr(product.label()) + ". Remove it there."
                )
        terms = _terms(products, schema)
        if not terms:
            raise InvalidValue(
                f"formula = {formula!r} is not allowed: it has no terms, and at least one is needed. "
                "Remove '- 1' or '+ 0', or name a column."
            )
        needed = dict.fromkeys(f.column for t in terms for f in t.factors)
        column = schema[response]
        assert isinstance(column, Range | Flag)
        shift, scale = _map(terms)
        return cls(formula, response, column.bounds, terms, tuple(needed), _norm_bound(terms, shift, scale, schema))

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
        return _read_only(_map(self.terms)[0])

    @cached_property
    def scale(self) -> Array:
        """(p,): the distance from there that is mapped to 1; 1 for the intercept."""
        return _read_only(_map(self.terms)[1])

    @cached_property
    def to_original(self) -> Array:
        """(p, p) matrix A with β = A b, from coefficients b of mapped terms to coefficients β in original units."""
        matrix = np.diag(1.0 / self.scale)
        if self.has_intercept:
            matrix[0, 1:] = -self.shift[1:] / self.scale[1:]
        return _read_only(matrix)

    def matrix(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Mapped rows, (n, p), from clamped columns; the arithmetic is 64-bit and only the result is rounded."""
        rows: NDArray[np.float32] | None = None
        for j, term in enumerate(self.terms):
            value = term.evaluate(columns)
            if rows is None:
                rows = np.empty((len(value), len(self.terms)), dtype=np.float32)
            rows[:, j] = np.clip((value - self.shift[j]) / self.scale[j], -1.0, 1.0)
        assert rows is not None
        return rows


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


# Parsing -------------------------------------------------------------------------------------------------------------


def _parse(formula: str, schema: Schema) -> tuple[list[Any], list[Any]]:
    """formulaic's terms left and right of `~`, those on the right by degree, as R, patsy and formulaic order them."""
    # Imported here: formulaic brings pandas, which readers of a release should not wait for.
    from formulaic.parser import DefaultFormulaParser

    shape = "response ~ term + term"
    if not isinstance(formula, str) or not formula.strip():
        raise _validate.fail("formula", formula, f"text of the form '{shape}'")
    if len(formula) > _MAX_LENGTH:
        raise InvalidValue(f"formula of {len(formula):,} letters is not allowed: it may have up to {_MAX_LENGTH:,}.")
    try:
        _refuse_code(formula, schema)
        parser = DefaultFormulaParser()
        if (size := _size(parser.get_ast(formula))) > _MAX_TERMS:
            raise InvalidValue(
                f"formula = {formula!r} is not allowed: written out it has {size:g} products of columns, more than the "
                f"{_MAX_TERMS:,} that are possible. Write the terms that are meant, or lower a power."
            )
        parsed = parser.get_terms(formula)
        left, right = getattr(parsed, "lhs", None), getattr(parsed, "rhs", None)
    except InvalidValue:
        raise
    except Exception as error:  # the parser raises errors of several families, and nothing here is private
        why = str(error).split("\n")[0].rstrip(".")
        if "`.` operator" in why:
            why = "the wildcard '.' would take its columns from the records"
        raise InvalidValue(
            f"formula = {formula!r} does not parse: {why}. Write '{shape}' with declared columns, interactions "
            "a:b or a*b, and powers I(a**2)."
        ) from None
    ends = formula.rstrip().endswith("~")  # formulaic would read an intercept, which is written 1
    if ends or not isinstance(left, Iterable) or not isinstance(right, Iterable) or _nested(left) or _nested(right):
        raise InvalidValue(
            f"formula = {formula!r} is not allowed: it must have one response, one '~' and one list of terms. "
            f"Write '{shape}'."
        )
    degree = [sum(f.eval_method.name != "LITERAL" for f in term.factors) for term in right]
    order = sorted(range(len(degree)), key=degree.__getitem__)
    return list(left), [list(right)[i] for i in order]


def _nested(side: Any) -> bool:
    return isinstance(side, tuple) or not all(hasattr(term, "factors") for term in side)


def _refuse_code(formula: str, schema: Schema) -> None:
    """Let nothing but I(...) and C(...) reach formulaic's parser, which *evaluates* parts of calls left of the `~`.

    A formula may come from a stranger's release.
    """
    from formulaic.parser.algos.tokenize import tokenize
    from formulaic.parser.types import Token

    tokens = list(tokenize(formula))
    tildes = [i for i, token in enumerate(tokens) if token.kind is Token.Kind.OPERATOR and "~" in token.token]
    if len(tildes) != 1 or not tokens[tildes[0]].token.startswith("~"):
        raise InvalidValue(
            f"formula = {formula!r} does not parse: it must have one '~', between response and terms. "
            "Write 'response ~ term + term'."
        )
    first = tildes[0]
    for i, token in enumerate(tokens):
        if token.kind is Token.Kind.PYTHON:
            if i < first:
                raise _no_response(token.token)
            _call(token.token, schema)


def _size(node: Any) -> float:
    """How many products formulaic would write out, at most; it would begin without asking."""
    symbol = getattr(getattr(node, "operator", None), "symbol", None)
    if symbol is None:
        return 1.0
    if symbol in ("**", "^"):
        power = int(str(node.args[1]))
        return math.inf if power > _MAX_POWER else _size(node.args[0]) ** max(power, 1)
    sizes = [_size(argument) for argument in node.args]
    if symbol in ("*", ":"):
        return math.prod(size + (symbol == "*") for size in sizes)
    return sum(sizes)


def _no_response(text: str) -> InvalidValue:
    return InvalidValue(
        f"response {text!r} is not allowed: it must be one declared column. "
        "Compute a transformed response, such as a logarithm, as a column of its own and declare its Range."
    )


def _response(terms: list[Any], schema: Schema) -> str:
    text = " + ".join(map(str, terms))
    if len(terms) != 1 or len(terms[0].factors) != 1 or terms[0].factors[0].eval_method.name != "LOOKUP":
        raise _no_response(text)
    name = str(terms[0].factors[0].expr)
    if isinstance(_declared(name, schema), Levels):
        raise InvalidValue(
            f"response {name!r} is declared as Levels, it must be a Range or a Flag. "
            "For a yes-or-no outcome, make a column of 0 and 1 and declare it as Flag()."
        )
    return name


def _declared(name: str, schema: Schema) -> Range | Flag | Levels:
    if name not in schema:
        raise InvalidValue(
            f"column {name!r} is not declared; the schema declares {_list(schema)}. "
            "Correct the name, or declare its Range, Flag or Levels: bounds are never taken from the records."
        )
    return schema[name]


@dataclass(frozen=True)
class _Product:
    """A parsed term: its parts in written order, each a numeric monomial with its label or a Levels column."""

    parts: tuple[tuple[str, tuple[Power, ...]] | str, ...]

    def columns(self) -> set[str]:
        return {c for part in self.parts for c in ([part] if isinstance(part, str) else [p.column for p in part[1]])}

    def label(self) -> str:
        return ":".join(part if isinstance(part, str) else part[0] for part in self.parts) or "1"

    def levels(self) -> tuple[str, ...]:
        return tuple(part for part in self.parts if isinstance(part, str))


def _product(term: Any, schema: Schema) -> _Product:
    parts: dict[tuple[str, tuple[Power, ...]] | str, None] = {}
    for factor in term.factors:
        text, kind = str(factor.expr), factor.eval_method.name
        if kind == "LITERAL":
            if text != "1":
                raise InvalidValue(
                    f"term {str(term)!r} is not allowed: a number may not multiply a term. Remove {text!r}; "
                    "coefficients come in the units of the column."
                )
        elif kind == "LOOKUP":
            numeric = not isinstance(_declared(text, schema), Levels)
            parts[(text, (Power(text),)) if numeric else text] = None
        else:
            parts[_call(text, schema)] = None
    return _Product(tuple(parts))


def _call(text: str, schema: Schema) -> tuple[str, tuple[Power, ...]] | str:
    """The part that I(...) or C(...) means; everything else is refused, by reading the syntax tree, never by eval."""
    try:
        node = ast.parse(text, mode="eval").body
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
        node, name = ast.Constant(None), ""
    if name.split(".")[-1].lower() in _DATA_DEPENDENT:
        raise InvalidValue(
            f"term {text!r} is not allowed: {name}() computes something from the confidential data (a mean, a scale, "
            "knots, neighbouring rows), and that would leave outside the privacy guarantee. Declare public bounds in "
            "the schema, which pgbb centres and scales by itself, and write powers as I(x**2)."
        )
    if isinstance(node, ast.Call) and name in ("I", "C") and len(node.args) == 1 and not node.keywords:
        if name == "I":
            return text, _monomial(node.args[0], text, schema)
        argument = node.args[0]
        if isinstance(argument, ast.Name):
            if isinstance(_declared(argument.id, schema), Levels):
                return argument.id
            raise InvalidValue(
                f"term {text!r} is not allowed: {argument.id!r} is not declared as Levels, and its levels may not be "
                f"taken from the confidential data. Declare {argument.id} = Levels(...), or write {argument.id} alone."
            )
    if name == "C":
        raise InvalidValue(
            f"term {text!r} is not allowed: C() takes one Levels column and no contrasts. Write the column alone; "
            "the first declared level is the base."
        )
    if name:
        raise InvalidValue(
            f"term {text!r} is not allowed: the function {name}() is unknown to pgbb, so its bounds are unknown and it "
            "might compute something from the confidential data. Compute the column beforehand, record by record, and "
            "declare its Range; powers and products are I(x**2) and I(x*z)."
        )
    raise InvalidValue(
        f"term {text!r} is not allowed: only columns, interactions, powers I(x**2) and products I(x*z) have known "
        "bounds. Compute the column beforehand, record by record, and declare its Range."
    )


def _monomial(node: ast.expr, text: str, schema: Schema) -> tuple[Power, ...]:
    """The powers inside I(...): a column, column**k, or a product of these."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _monomial(node.left, text, schema) + _monomial(node.right, text, schema)
    base, power = node, 1
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant):
        base, exponent = node.left, node.right.value
        if type(exponent) is not int or not 1 <= exponent <= _MAX_POWER:
            raise InvalidValue(
                f"term {text!r} is not allowed: the power {exponent!r} must be an integer from 1 to {_MAX_POWER}. "
                "Compute other powers beforehand, and declare the Range of the result."
            )
        power = exponent
    if not isinstance(base, ast.Name):
        raise InvalidValue(
            f"term {text!r} is not allowed: inside I() only a column, a power x**2 and products x*z are known. "
            "Compute the column beforehand, record by record, and declare its Range."
        )
    if isinstance(_declared(base.id, schema), Levels):
        raise InvalidValue(
            f"term {text!r} is not allowed: {base.id!r} is declared as Levels and has no powers or products. "
            f"Write an interaction with ':' instead."
        )
    return (Power(base.id, power),)


# Terms, with dummies coded so that the design has full rank -----------------------------------------------------------


def _terms(products: list[_Product], schema: Schema) -> tuple[Term, ...]:
    """One term a coefficient.

    The term num:r:q spans num × (subset of {r, q}) for every subset. Subsets that an earlier term spans are left out;
    the others are merged, r⁻ + 1 = r with all its levels (the rule of patsy, "redundancy and categorical factors").
    """
    terms: list[Term] = []
    spanned: dict[tuple[tuple[Power, ...], frozenset[str]], str] = {}
    for product in products:
        key = _merge((p for part in product.parts if not isinstance(part, str) for p in part[1]), schema)
        levels = product.levels()
        many = math.prod(len(c.levels) for name in levels if isinstance(c := schema[name], Levels))
        if len(levels) > _MAX_LEVELS or len(terms) + many > _MAX_TERMS:
            raise InvalidValue(
                f"term {product.label()!r} is not allowed: it has {len(levels)} Levels columns and {many:,} "
                f"combinations, where at most {_MAX_LEVELS} columns and {_MAX_TERMS:,} coefficients in all are "
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
            terms += [_bounded(name, factors, schema) for name, factors in _expand(product, key, coding, schema)]
    return tuple(terms)


def _merge(powers: Iterable[Power], schema: Schema) -> tuple[Power, ...]:
    """x·x² as x³, and any power of a flag as the flag, so that equal columns have equal keys."""
    total: dict[str, int] = {}
    for p in powers:
        total[p.column] = 1 if isinstance(schema[p.column], Flag) else total.get(p.column, 0) + p.power
    return tuple(Power(c, total[c]) for c in sorted(total))


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
    product: _Product, key: tuple[Power, ...], coding: dict[str, bool], schema: Schema
) -> Iterator[tuple[str, tuple[Power | Dummy, ...]]]:
    """Name and factors of each coefficient; the first categorical factor varies fastest, as in formulaic."""
    choices: list[list[tuple[str, Dummy | None]]] = []
    for part in product.parts:
        if not isinstance(part, str):
            choices.append([(part[0], None)])
        elif part in coding:
            column = schema[part]
            assert isinstance(column, Levels)
            skip, mark = (0, "") if coding[part] else (1, "T.")
            choices.append(
                [(f"{part}[{mark}{v}]", Dummy(part, v, i)) for i, v in enumerate(column.levels) if i >= skip]
            )
    for reverse in itertools.product(*reversed(choices)):
        chosen = reverse[::-1]
        name = ":".join(label for label, _ in chosen) or "Intercept"
        yield name, (*key, *(dummy for _, dummy in chosen if dummy is not None))


# Bounds --------------------------------------------------------------------------------------------------------------

_Interval = tuple[Any, Any]  # low and high: numbers, or arrays over corners of the box


def _bounds(factors: Iterable[Power | Dummy], box: Mapping[str, _Interval]) -> _Interval:
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


def _bounded(name: str, factors: tuple[Power | Dummy, ...], schema: Schema) -> Term:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        low, high = map(float, _bounds(factors, {f.column: _interval(schema[f.column]) for f in factors}))
    if factors and not (low < high and math.isfinite(high - low)):
        raise InvalidValue(
            f"term {name!r} is not allowed: by the declared bounds it lies in [{low:g}, {high:g}], which must be "
            "finite and of positive length. Declare narrower bounds, in other units if need be."
        )
    return Term(name, factors, low, high)


def _map(terms: tuple[Term, ...]) -> tuple[Array, Array]:
    """Shift and scale of every term."""
    low, high = (np.array([getattr(t, end) for t in terms], dtype=np.float64) for end in ("low", "high"))
    if terms[0].factors:
        return np.zeros(len(terms)), np.maximum(abs(low), abs(high))
    shift, scale = low / 2 + high / 2, (high - low) / 2
    shift[0], scale[0] = 0.0, 1.0
    return shift, scale


def _norm_bound(terms: tuple[Term, ...], shift: Array, scale: Array, schema: Schema) -> float:
    """The largest Euclidean norm of a mapped row, over the declared box.

    Terms without a common column add their own maxima. Within a group of linked columns the squared norm is convex in a
    column that enters with power 1 only, so its two ends suffice; flags and levels are tried one by one, which counts
    exclusive dummies once. Over any other column each term takes its own maximum: exact for one term, else from above.
    """
    total = 0.0
    for group in _linked(terms):
        members = [j for j, t in enumerate(terms) if t.factors and t.factors[0].column in group]
        curved = {f.column for j in members for f in terms[j].factors if isinstance(f, Power) and f.power > 1}
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
