"""From the text of a formula to products of declared columns, and nothing else.

formulaic only parses. Its transforms may compute from the data (a mean, a knot, the set of levels seen), which would
leak, and its parser evaluates some calls, so whatever is not a column, I(...) or C(...) is refused here beforehand.
"""

import ast
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.schema import Flag, Levels, Range, Schema
from pgbb.model.terms import Power

__all__ = ["MAX_TERMS", "Product", "parse", "product_of", "response_of"]

_DATA_DEPENDENT = {"center", "scale", "standardize", "poly", "bs", "cr", "cs", "cc", "ns", "te", "hashed", "lag"}
_MAX_POWER = 20
_MAX_LENGTH = 20_000  # letters of a formula
MAX_TERMS = 5_000
"""Products and coefficients of one formula: (a+b+c)**99 has few letters, but could mean more than any machine holds."""


class Factor(Protocol):
    """A factor as formulaic parses it: text, and whether that is a column, a number or a call."""

    expr: object
    eval_method: Enum


class ParsedTerm(Protocol):
    """A term as formulaic parses it."""

    factors: Sequence[Factor]


def parse(formula: str, schema: Schema) -> tuple[list[ParsedTerm], list[ParsedTerm]]:
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
        if (size := _size(parser.get_ast(formula))) > MAX_TERMS:
            raise InvalidValue(
                f"formula = {formula!r} is not allowed: written out it has {size:g} products of columns, more than the "
                f"{MAX_TERMS:,} that are possible. Write the terms that are meant, or lower a power."
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


def _nested(side: Iterable[object]) -> bool:
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


def _size(node: object) -> float:
    """At most how many products formulaic would write out: it has no limit of its own, and would fill the memory."""
    symbol = getattr(getattr(node, "operator", None), "symbol", None)
    if symbol is None:
        return 1.0
    arguments: Sequence[object] = getattr(node, "args", ())
    if symbol in ("**", "^"):
        power = int(str(arguments[1]))
        return math.inf if power > _MAX_POWER else _size(arguments[0]) ** max(power, 1)
    sizes = [_size(argument) for argument in arguments]
    if symbol in ("*", ":"):
        return math.prod(size + (symbol == "*") for size in sizes)
    return sum(sizes)


def _no_response(text: str) -> InvalidValue:
    return InvalidValue(
        f"response {text!r} is not allowed: it must be one declared column. "
        "Compute a transformed response, such as a logarithm, as a column of its own and declare its Range."
    )


def response_of(terms: list[ParsedTerm], schema: Schema) -> str:
    """The one declared column on the left of `~`."""
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
            f"column {name!r} is not declared; the schema declares {', '.join(schema) or 'none'}. "
            "Correct the name, or declare its Range, Flag or Levels: bounds are never taken from the records."
        )
    return schema[name]


@dataclass(frozen=True)
class Product:
    """A parsed term: its parts in written order, each a numeric monomial with its label or a Levels column."""

    parts: tuple[tuple[str, tuple[Power, ...]] | str, ...]

    def columns(self) -> set[str]:
        """Every column that occurs in it."""
        return {c for part in self.parts for c in ([part] if isinstance(part, str) else [p.column for p in part[1]])}

    def label(self) -> str:
        """The term as the user may have written it."""
        return ":".join(part if isinstance(part, str) else part[0] for part in self.parts) or "1"

    def levels(self) -> tuple[str, ...]:
        """Its Levels columns."""
        return tuple(part for part in self.parts if isinstance(part, str))


def product_of(term: ParsedTerm, schema: Schema) -> Product:
    """A term of formulaic's as a product of declared columns; anything else is refused."""
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
    return Product(tuple(parts))


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
    if name == "log" and isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        argument = node.args[0]
        column = _declared(argument.id, schema) if isinstance(argument, ast.Name) else None
        if not isinstance(column, Range) or not column.low > 0 or not isinstance(argument, ast.Name):
            raise InvalidValue(
                f"term {text!r} is not allowed: log() takes one column, declared as a Range of positive numbers. "
                "Raise the low end of its range above 0: values below are clamped to it."
            )
        return text, (Power(argument.id, 1, True),)
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
