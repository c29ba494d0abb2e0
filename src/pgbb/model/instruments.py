"""Two-stage least squares with declared instruments, bound to a public schema."""

from dataclasses import dataclass

import numpy as np

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.formula import Design
from pgbb.model.problem import Problem
from pgbb.model.schema import Range, Schema

__all__ = ["instruments"]


@dataclass(frozen=True)
class Parts:
    """The structural formula, and the terms right of the bar."""

    structural: str
    instruments: str


def parts_of(formula: str) -> Parts:
    """Both sides of the bar of "y ~ x + w | z + w"."""
    left, bar, right = formula.partition("|") if isinstance(formula, str) else ("", "", "")
    if not bar or "|" in right or "~" in right or not left.strip() or not right.strip():
        raise _validate.fail(
            "formula",
            formula,
            "'y ~ x + w | z + w'",
            "Right of the bar stand all instruments, exogenous terms too.",
        )
    return Parts(left.strip(), right.strip())


def instruments(formula: str, schema: Schema) -> Problem:
    """The problem of E x̂(y − xᵀβ) = 0, x̂ the regressors as instruments predict them; an error if it has no answer."""
    if not isinstance(schema, Schema):
        raise _validate.fail("schema", type(schema).__name__, "a pgbb.Schema")
    parts = parts_of(formula)
    response = parts.structural.partition("~")[0].strip()
    x = Design.parse(parts.structural, schema)
    z = Design.parse(f"{response} ~ {parts.instruments}", schema)
    design = Design.parse(f"{parts.structural} + {parts.instruments}", schema)
    declared = schema[x.response]
    if not isinstance(declared, Range):
        raise InvalidValue(
            f"response {x.response!r} is declared as {declared!r}, but this model needs public bounds: "
            f"declare {x.response}=Range(low, high)."
        )
    if not (x.has_intercept and z.has_intercept) or not {*x.names, *z.names} <= {*design.names}:
        raise InvalidValue(
            f"formula = {formula!r} is not allowed: both sides of the bar have an intercept, and a term on both "
            "is written in the same way on both."
        )
    endogenous, excluded = (tuple(n for n in a.names if n not in b.names) for a, b in ((x, z), (z, x)))
    if not endogenous or len(excluded) < len(endogenous):
        raise InvalidValue(
            f"formula = {formula!r} is not allowed: {len(endogenous)} regressors have to be replaced "
            f"({', '.join(endogenous) or 'none'}) by {len(excluded)} instruments that are no regressors "
            f"({', '.join(excluded) or 'none'}), and at least as many are needed. An instrument "
            "that is among the regressors adds nothing."
        )
    low, high = x.response_bounds
    rows = [design.names.index(name) for name in x.names]
    p = len(rows)
    return Problem(
        kind="iv",
        formula=parts.structural,
        names=x.names,
        clip=(high - low) * design.norm_bound,
        center=np.zeros(p),
        radius=np.full(p, (high - low) / 2),
        transform=design.to_original[np.ix_(rows, rows)],
        offset=np.where(np.arange(p) == 0, (low + high) / 2, 0.0),
        index=None,
        response=x.response,
        shift=(low + high) / 2,
        design=design,
        settings={"instruments": parts.instruments, "rows": rows, "uses": [design.names.index(n) for n in z.names]},
    )
