"""Finds the columns that can be read off a row of the design: by a term of their own, or by their curves.

Public arithmetic on the formula.
"""

from dataclasses import dataclass

import numpy as np

from pgbb._numerics import Floats
from pgbb.model.formula import Curve, Design, Dummy, Power

MANY = 16  # number of levels of a column from which covariates are asked by level


@dataclass(frozen=True, eq=False)
class Own:
    """A numeric column that can be read off a row: it is shift + scale·(row · weights), or its logarithm is."""

    column: str
    weights: Floats
    shift: float
    scale: float
    log: bool = False


def own_terms(design: Design) -> tuple[tuple[Own, ...], tuple[int, ...]] | None:
    """The numeric columns that can be read off a row, and the 0/1 terms; None if a column is of neither kind."""
    alone = {j: t.factors[0] for j, t in enumerate(design.terms) if len(t.factors) == 1}
    shares = tuple(j for j in alone if design.is_flag(j))
    unit = np.eye(len(design.terms))
    numeric = [
        Own(f.column, unit[j], float(design.shift[j]), float(design.scale[j]), f.log)
        for j, f in alone.items()
        if isinstance(f, Power) and f.power == 1 and j not in shares
    ]
    curved: dict[str, dict[int, Curve]] = {}
    for j, f in alone.items():
        if isinstance(f, Curve):
            curved.setdefault(f.column, {})[j] = f
    numeric += [own for curves in curved.values() if (own := _line(design, curves)) is not None]
    found = {*(own.column for own in numeric), *(alone[j].column for j in shares)}
    return (tuple(numeric), shares) if found == set(design.columns) else None


def _line(design: Design, curves: dict[int, Curve]) -> Own | None:
    """The column as a linear combination of its curves and the intercept; None if there is none, unlike for splines."""
    low, high = next(iter(curves.values())).ends
    x = np.linspace(low, high, 20 * len(curves))
    terms = [0, *curves] if design.has_intercept else list(curves)
    values = {0: np.ones(len(x))} | {j: (c.evaluate(x) - design.shift[j]) / design.scale[j] for j, c in curves.items()}
    rows, target = np.column_stack([values[j] for j in terms]), np.linspace(-1, 1, len(x))
    found = np.linalg.lstsq(rows, target)[0]
    if np.abs(rows @ found - target).max() > 1e-6:
        return None
    weights = np.zeros(len(design.terms))
    weights[terms] = found
    return Own(curves[terms[-1]].column, weights, (low + high) / 2, (high - low) / 2)


def many_levels(design: Design) -> list[list[int]]:
    """The terms of each column that has a term of its own for each of `MANY` levels, beside an intercept."""
    columns: dict[str, list[int]] = {}
    if not design.has_intercept:
        return []
    for j, term in enumerate(design.terms):
        if len(term.factors) == 1 and isinstance(term.factors[0], Dummy):
            columns.setdefault(term.factors[0].column, []).append(j)
    return [terms for terms in columns.values() if len(terms) >= MANY]
