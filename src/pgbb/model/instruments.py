"""Two-stage least squares with declared instruments, bound to a public schema."""

import numpy as np

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.formula import Design
from pgbb.model.problem import Problem
from pgbb.model.schema import Range, Schema


def instruments(formula: str, schema: Schema) -> Problem:
    """The problem of E x̂(y − xᵀβ) = 0, x̂ the regressors as instruments predict them; an error if it has no answer."""
    left, bar, right = (part.strip() for part in formula.partition("|")) if isinstance(formula, str) else ("", "", "")
    if not bar or "|" in right or "~" in right or not left or not right:
        remedy = "Right of the bar stand all instruments, exogenous terms too."
        raise _validate.fail("formula", formula, "'y ~ x + w | z + w'", remedy)
    response = left.partition("~")[0].strip()
    x = Design.parse(left, schema, response=Range)
    z = Design.parse(f"{response} ~ {right}", schema)
    design = Design.parse(f"{left} + {right}", schema)
    if not (x.has_intercept and z.has_intercept) or not {*x.names, *z.names} <= {*design.names}:
        raise InvalidValue(
            f"formula = {formula!r} is not allowed: both sides of the bar have an intercept, and a term on both "
            "is written in the same way on both."
        )
    endogenous, excluded = (tuple(n for n in a.names if n not in b.names) for a, b in ((x, z), (z, x)))
    if not endogenous:
        raise InvalidValue(
            f"formula = {formula!r} is not allowed: every regressor stands right of the bar, too, so that none is to "
            "be replaced. Leave the endogenous ones out there, or take LinearRegression."
        )
    if len(excluded) < len(endogenous):
        raise InvalidValue(
            f"formula = {formula!r} is not allowed: {len(endogenous)} regressors have to be replaced "
            f"({', '.join(endogenous)}) by {len(excluded)} instruments that are no regressors "
            f"({', '.join(excluded) or 'none'}), and at least as many are needed. An instrument "
            "that is among the regressors adds nothing."
        )
    low, high = x.response_bounds
    rows = [design.names.index(name) for name in x.names]
    p = len(rows)
    return Problem(
        kind="iv",
        formula=left,
        names=x.names,
        clip=(high - low) * design.norm_bound,
        center=np.zeros(p),
        radius=np.full(p, (high - low) / 2),
        transform=design.to_original[np.ix_(rows, rows)],
        offset=np.where(np.arange(p) == 0, (low + high) / 2, 0.0),
        response=x.answer.name,
        shift=(low + high) / 2,
        design=design,
        settings={"instruments": right, "rows": rows, "uses": [design.names.index(n) for n in z.names]},
    )
