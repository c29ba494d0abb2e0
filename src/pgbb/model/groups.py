"""Means and proportions by groups: `Mean(column, by=…)` bound to a public schema.

The design is one dummy a declared group, and no intercept: a record belongs to one group and moves nothing else.
"""

from collections.abc import Sequence

import numpy as np

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.formula import Design
from pgbb.model.problem import Namespace, Problem, Values
from pgbb.model.schema import Flag, Levels, Schema


def by_columns(by: str | Sequence[str]) -> tuple[str, ...]:
    """The columns whose levels make the groups."""
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Sequence) else ()
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise _validate.fail("by", by, "a column declared as Levels, or a list of different ones")
    return names


def group_means(column: str, by: tuple[str, ...], family: str, schema: Schema) -> Problem:
    """The problem of E(column | group), one coefficient a group; an error if the schema does not fit."""
    for name in by:
        declared = schema.get(name)
        if not isinstance(declared, Levels):
            given = "not declared" if declared is None else f"declared as {declared!r}"
            levels = "'a', 'b', …"
            if isinstance(declared, Flag):
                levels = "0, 1" if declared.words is None else ", ".join(map(repr, declared.words))
            raise InvalidValue(
                f"by = {name!r} is {given}, but groups are declared levels: declare it as Levels({levels})."
            )
    if column in by:
        raise InvalidValue(f"by = {column!r} is not allowed: it is the column whose mean is asked. Name another.")
    formula = f"{_quoted(column)} ~ {':'.join(map(_quoted, by))} - 1"
    design = Design.parse(formula, schema)
    low, high = design.response_bounds
    share = isinstance(schema[column], Flag) or family == "bernoulli"
    middle = (low + high) / 2

    def score(xp: Namespace, theta: Values, linear: Values, y: Values, _: Values) -> tuple[Values, None]:
        return linear - y, None

    groups = len(design.names)
    return Problem(
        kind="means",
        formula=formula,
        names=design.names,
        clip=high - low,
        center=np.zeros(groups),
        radius=np.full(groups, (high - low) / 2),
        transform=np.eye(groups),
        offset=np.full(groups, middle),
        response=column,
        shift=middle,
        score=score,
        design=design,
        settings={"by": list(by), "family": "bernoulli" if share else "gaussian"},
    )


def _quoted(name: str) -> str:
    """The column as a formula names it."""
    return name if name.isidentifier() else f"`{name}`"
