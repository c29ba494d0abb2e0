"""Parses a formula into products of declared columns, and nothing else.

formulaic only parses. Its transforms may compute from the data (a mean, a knot, the set of levels seen), which would
leak, and its parser evaluates some calls, so whatever is not a column or one of the calls that are known here (I, C,
log, bs and poly) is refused beforehand.
"""

import ast
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.schema import Flag, Levels, Range, Schema
from pgbb.model.terms import Basis, Curve, Power, Term

_DATA_DEPENDENT = {"center", "scale", "standardize", "poly", "bs", "cr", "cs", "cc", "ns", "te", "hashed", "lag"}
_LOGARITHM = re.compile(r"log\s*\(")
_MAX_POWER = 20
_MAX_DEGREE = 5  # largest degree of a spline
_MAX_KNOTS = 100
_MAX_LENGTH = 20_000  # most letters of a formula
_BEFOREHAND = "Compute the column beforehand, record by record, and declare its Range"
MAX_TERMS = 5_000
"""Products and coefficients of one formula: (a+b+c)**99 has few letters, but could mean more than any machine holds."""


class Factor(Protocol):
    """A factor as formulaic parses it: text, and whether that is a column, a number or a call."""

    expr: object
    eval_method: Enum


class ParsedTerm(Protocol):
    """A term as formulaic parses it."""

    factors: Sequence[Factor]


def parse(formula: str, schema: Schema) -> tuple[Term, list[ParsedTerm]]:
    """The response, and formulaic's terms right of `~`, by degree, as R, patsy and formulaic order them."""
    # Imported here: formulaic brings pandas, which readers of a release should not wait for.
    from formulaic.parser import DefaultFormulaParser

    shape = "response ~ term + term"
    if not isinstance(formula, str) or not formula.strip():
        raise _validate.fail("formula", formula, f"text of the form '{shape}'")
    if len(formula) > _MAX_LENGTH:
        raise InvalidValue(f"formula of {len(formula):,} letters is not allowed: it may have up to {_MAX_LENGTH:,}.")
    try:
        text = _without_code(formula, schema)
        parser = DefaultFormulaParser()
        if (size := _size(parser.get_ast(text))) > MAX_TERMS:
            raise InvalidValue(
                f"formula = {formula!r} is not allowed: written out it has {size:g} products of columns, more than the "
                f"{MAX_TERMS:,} that are possible. Write the terms that are meant, or lower a power."
            )
        parsed = parser.get_terms(text)
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
    return _response(list(left), schema, logarithm=text != formula), [list(right)[i] for i in order]


def _nested(side: Iterable[object]) -> bool:
    return isinstance(side, tuple) or not all(hasattr(term, "factors") for term in side)


def _without_code(formula: str, schema: Schema) -> str:
    """The formula for formulaic's parser: known calls right of the `~`, and left of it, where it *evaluates*, none.

    A formula may come from a stranger's release. The logarithm of a column as response becomes that column.
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
    first, column = tildes[0], None
    for i, token in enumerate(tokens):
        if token.kind is Token.Kind.NAME and token.token.strip("`") == "1" and i > first:
            remedy = "Give the column another name, in the data and in the schema."
            raise _refused("`1`", "in a formula 1 is the intercept", remedy)
        if token.kind is Token.Kind.PYTHON:
            found = _call(token.token, schema, {}) if i > first or _LOGARITHM.match(token.token) else None
            if i < first and (first > 1 or not isinstance(found, Monomial)):
                raise _no_response(token.token)
            if i < first and isinstance(found, Monomial):
                column = found.powers[0].column
    return formula if column is None else f"`{column}` {formula[tokens[first].source_start :]}"


def _size(node: object) -> float:
    """At most how many products formulaic would write out: it has no limit of its own, and would fill the memory."""
    symbol = getattr(getattr(node, "operator", None), "symbol", None)
    if symbol is None:
        return 1.0
    arguments: Sequence[object] = getattr(node, "args", ())
    if symbol in ("**", "^"):
        power = int(str(arguments[1]))
        if power > 1 and not hasattr(arguments[0], "operator"):
            why = "in a formula a power means interactions, and those of one column are the column itself"
            raise _refused(
                f"{arguments[0]}{symbol}{arguments[1]}", why, f"Write I({arguments[0]}**{power}) for a power."
            )
        return math.inf if power > _MAX_POWER else _size(arguments[0]) ** max(power, 1)
    sizes = [_size(argument) for argument in arguments]
    if symbol in ("*", ":"):
        return math.prod(size + (symbol == "*") for size in sizes)
    return sum(sizes)


def _no_response(text: str) -> InvalidValue:
    return InvalidValue(
        f"response {text!r} is not allowed: it must be one declared column, or log() of one with a positive Range. "
        "Compute any other response as a column of its own and declare its Range."
    )


def _response(terms: list[ParsedTerm], schema: Schema, *, logarithm: bool) -> Term:
    """The one declared column on the left of `~`, or its logarithm, with its bounds."""
    text = " + ".join(map(str, terms))
    if len(terms) != 1 or len(terms[0].factors) != 1 or terms[0].factors[0].eval_method.name != "LOOKUP":
        raise _no_response(text)
    name = str(terms[0].factors[0].expr)
    column = _declared(name, schema)
    if isinstance(column, Levels):
        raise InvalidValue(
            f"response {name!r} is declared as Levels, it must be a Range or a Flag. "
            "For a yes-or-no outcome, make a column of 0 and 1 and declare it as Flag()."
        )
    low, high = column.bounds
    if logarithm:
        Range(math.log(low), math.log(high))  # refused where single precision does not tell its values apart
        return Term(f"log({name})", (Power(name, 1, True),), math.log(low), math.log(high))
    return Term(name, (Power(name),), low, high)


def _declared(name: str, schema: Schema) -> Range | Flag | Levels:
    if name not in schema:
        from difflib import get_close_matches

        near = get_close_matches(name, schema, 1)
        raise InvalidValue(
            f"column {name!r} is not declared; the schema declares {', '.join(schema) or 'none'}. "
            + (f"Did you mean {near[0]!r}? " if near else "")
            + "Correct the name, or declare its Range, Flag or Levels: bounds are never taken from the records."
        )
    return schema[name]


@dataclass(frozen=True)
class Monomial:
    """A product of powers and logarithms of numeric columns, as a person wrote it."""

    label: str
    powers: tuple[Power, ...]


Part = Monomial | Basis | str


@dataclass(frozen=True)
class Product:
    """A parsed term: its parts in written order, each a monomial, a basis or the name of a Levels column."""

    parts: tuple[Part, ...]

    def powers(self) -> list[Power]:
        """The powers of all monomials of the term."""
        return [p for part in self.parts if isinstance(part, Monomial) for p in part.powers]

    def bases(self) -> tuple[Basis, ...]:
        """The bases of the term, by column."""
        return tuple(sorted((p for p in self.parts if isinstance(p, Basis)), key=lambda basis: basis.column))

    def columns(self) -> set[str]:
        """Every column that occurs in the term."""
        return {*self.levels(), *(p.column for p in self.powers()), *(b.column for b in self.bases())}

    def label(self) -> str:
        """The term as the user may have written it."""
        return ":".join(part if isinstance(part, str) else part.label for part in self.parts) or "1"

    def levels(self) -> tuple[str, ...]:
        """The Levels columns of the term."""
        return tuple(part for part in self.parts if isinstance(part, str))


def product_of(term: ParsedTerm, schema: Schema, first: dict[str, int]) -> Product:
    """A term of formulaic's as a product of declared columns; anything else is refused.

    What C(x, base=...) says is put into `first`: the place of the base among the levels, by column.
    """
    parts: dict[Part, None] = {}
    for factor in term.factors:
        text, kind = str(factor.expr), factor.eval_method.name
        if kind == "LITERAL":
            if text != "1":
                remedy = f"Remove {text!r}; coefficients come in the units of the column."
                raise _refused(str(term), "a number may not multiply a term", remedy)
        elif kind == "LOOKUP":
            numeric = not isinstance(_declared(text, schema), Levels)
            parts[Monomial(text, (Power(text),)) if numeric else text] = None
        else:
            parts[_call(text, schema, first)] = None
    return Product(tuple(parts))


def _call(text: str, schema: Schema, first: dict[str, int]) -> Part:
    """The part that a call means; what is unknown is refused, by reading the syntax tree, never by eval."""
    try:
        node = ast.parse(text, mode="eval").body
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
        node, name = ast.Constant(None), ""
    known = {"I": _powers, "C": _category, "log": _logarithm, "bs": _spline, "poly": _polynomial}
    if isinstance(node, ast.Call) and name in known:
        return known[name](node, text, schema, first)
    if name.split(".")[-1].lower() in _DATA_DEPENDENT:
        raise _refused(
            text,
            f"{name}() computes something from the confidential data (a mean, a scale, knots, neighbouring rows), and "
            "that would leave outside the privacy guarantee",
            "Declare public bounds in the schema, which pgbb centres and scales by itself, and write powers as "
            "I(x**2).",
        )
    if name in ("factor", "as.factor"):
        raise _refused(
            text, "a column that is declared as Levels has dummies by itself", f"Write {text[len(name) + 1 : -1]}."
        )
    if name:
        raise _refused(
            text,
            f"the function {name}() is unknown to pgbb, so its bounds are unknown and it might compute something from "
            "the confidential data",
            f"{_BEFOREHAND}; powers and products are I(x**2) and I(x*z).",
        )
    known_bounds = "only columns, interactions, powers I(x**2) and products I(x*z) have known bounds"
    raise _refused(text, known_bounds, f"{_BEFOREHAND}.")


def _refused(text: str, why: str, instead: str) -> InvalidValue:
    return InvalidValue(f"term {text!r} is not allowed: {why}. {instead}")


def _arguments(node: ast.Call, text: str, shape: str, names: tuple[str, ...]) -> tuple[str, dict[str, object]]:
    """The column of a call and its other arguments, which must be plain numbers, words or lists of them."""
    given = dict(zip(names, node.args[1:], strict=False)) | {k.arg or "": k.value for k in node.keywords}
    column = node.args[0] if node.args else None
    if (
        not isinstance(column, ast.Name)
        or not set(given) <= set(names)
        or len(given) < len(node.args[1:] + node.keywords)
    ):
        raise _refused(text, f"it must be {shape}", "Knots, centres and bases are written out, as public numbers.")
    try:
        return column.id, {name: ast.literal_eval(value) for name, value in given.items()}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):  # the last ones: nested too deep
        raise _refused(text, f"it must be {shape}", "Knots, centres and bases are written out.") from None


def _range_of(column: str, text: str, schema: Schema) -> Range:
    declared = _declared(column, schema)
    if not isinstance(declared, Range):
        raise _refused(text, f"{column!r} is declared as {declared!r} and must be a Range", f"Write {column} alone.")
    return declared


def _powers(node: ast.Call, text: str, schema: Schema, _: dict[str, int]) -> Part:
    if len(node.args) != 1 or node.keywords:
        raise _refused(text, "I() takes one power or product", "Write I(x**2) or I(x*z).")
    return Monomial(text, _monomial(node.args[0], text, schema))


def _category(node: ast.Call, text: str, schema: Schema, first: dict[str, int]) -> Part:
    """C(x, base="level"): x with another level than the first as base, in the whole formula."""
    column, given = _arguments(node, text, 'C(x) or C(x, base="level")', ("base",))
    declared = _declared(column, schema)
    if not isinstance(declared, Levels):
        why = f"{column!r} is not declared as Levels, and its levels may not be taken from the confidential data"
        raise _refused(text, why, f"Declare {column} = Levels(...), or write {column} alone.")
    if "base" in given:
        names = [str(level) for level in declared.levels]
        if str(given["base"]) not in names:
            raise _refused(text, f"base = {given['base']!r} is no declared level", f"Take one of {', '.join(names)}.")
        place = names.index(str(given["base"]))
        if first.setdefault(column, place) != place:
            raise _refused(text, f"{column!r} has the base {names[first[column]]!r} in another term", "Name one base.")
    return column


def _logarithm(node: ast.Call, text: str, schema: Schema, _: dict[str, int]) -> Part:
    argument = node.args[0] if len(node.args) == 1 and not node.keywords else None
    column = _declared(argument.id, schema) if isinstance(argument, ast.Name) else None
    if not isinstance(column, Range) or not column.low > 0 or not isinstance(argument, ast.Name):
        remedy = "Raise the low end of its range above 0: values below are clamped to it."
        raise _refused(text, "log() takes one column, declared as a Range of positive numbers", remedy)
    return Monomial(text, (Power(argument.id, 1, True),))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _spline(node: ast.Call, text: str, schema: Schema, _: dict[str, int]) -> Part:
    """bs(x, knots=[...], degree=3): B-splines over the declared range, without the first, as in R and formulaic."""
    shape = "bs(x, knots=[a, b, ...]) or bs(x, knots=[a, b, ...], degree=3), with public knots"
    column, given = _arguments(node, text, shape, ("knots", "degree"))
    low, high = _range_of(column, text, schema).bounds
    knots, degree = given.get("knots"), given.get("degree", 3)
    if not isinstance(knots, list | tuple) or not 0 < len(knots) <= _MAX_KNOTS or not all(map(_is_number, knots)):
        raise _refused(
            text,
            f"it must be {shape}, at most {_MAX_KNOTS}: knots taken from the confidential data would leave outside the "
            "privacy guarantee",
            f"Choose them by what is known of {column} beforehand.",
        )
    edges = [low, *map(float, knots), high]
    if any(a >= b for a, b in itertools.pairwise(edges)):
        raise _refused(text, f"knots must increase and lie inside the declared range ({low:g}, {high:g})", "Move them.")
    if type(degree) is not int or not 1 <= degree <= _MAX_DEGREE:
        raise _refused(text, f"degree = {degree!r} must be an integer from 1 to {_MAX_DEGREE}", "3 is usual.")
    from scipy.interpolate import PPoly

    full = np.array([low] * degree + edges + [high] * degree)
    with np.errstate(all="ignore"):
        made = [PPoly.from_spline((full, unit, degree)) for unit in np.eye(len(edges) + degree - 1)[1:]]
    inside = slice(degree, degree + len(edges) - 1)  # the ends stand degree + 1 times
    pieces = [spline.c.T[inside] for spline in made]
    if not np.isfinite(pieces).all():
        raise _refused(text, "its knots are too close for double precision", "Change the unit of the column.")
    starts = np.array(edges[:-1])
    return Basis(text, tuple(Curve.over(column, (low, high), starts, piece) for piece in pieces), degree)


def _polynomial(node: ast.Call, text: str, schema: Schema, _: dict[str, int]) -> Part:
    """poly(x, 2, centre=c): the powers of x − c, whose first coefficient is the slope at c."""
    shape = f"poly(x, degree) or poly(x, degree, centre=c), with a degree from 1 to {_MAX_POWER} and a public centre"
    column, given = _arguments(node, text, shape, ("degree", "centre"))
    bounds = _range_of(column, text, schema).bounds
    degree, centre = given.get("degree"), given.get("centre", bounds[0] / 2 + bounds[1] / 2)
    if type(degree) is not int or not 1 <= degree <= _MAX_POWER or not _is_number(centre):
        raise _refused(text, f"it must be {shape}", "Without a centre, the middle of the declared range is taken.")
    powers = [np.eye(1, k + 1) for k in range(1, degree + 1)]
    start = np.array([centre], dtype=np.float64)
    return Basis(text, tuple(Curve.over(column, bounds, start, power) for power in powers), degree)


def _monomial(node: ast.expr, text: str, schema: Schema) -> tuple[Power, ...]:
    """The powers inside I(...): a column, column**k, or a product of these."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _monomial(node.left, text, schema) + _monomial(node.right, text, schema)
    base, power = node, 1
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant):
        base, exponent = node.left, node.right.value
        if type(exponent) is not int or not 1 <= exponent <= _MAX_POWER:
            remedy = "Compute other powers beforehand, and declare the Range of the result."
            raise _refused(text, f"the power {exponent!r} must be an integer from 1 to {_MAX_POWER}", remedy)
        power = exponent
    if not isinstance(base, ast.Name):
        known = "inside I() only a column, a power x**2 and products x*z are known"
        raise _refused(text, known, f"{_BEFOREHAND}.")
    if isinstance(_declared(base.id, schema), Levels):
        why = f"{base.id!r} is declared as Levels and has no powers or products"
        raise _refused(text, why, "Write an interaction with ':' instead.")
    return (Power(base.id, power),)
