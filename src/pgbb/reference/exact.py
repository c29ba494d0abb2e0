"""A model's exact fit to the records: NOT PRIVATE, for a comparison that its reader may not publish."""

from typing import TYPE_CHECKING

from pgbb.errors import InvalidValue
from pgbb.model.models import Problem
from pgbb.model.schema import Schema
from pgbb.private.door import non_private
from pgbb.reference import solve, to_original

if TYPE_CHECKING:
    from pgbb.private.door import Source

__all__ = ["exact_fit"]


def exact_fit(
    problem: Problem, data: "Source", schema: Schema, weights: str | None, levels: tuple[float, ...] | None
) -> dict[tuple[float | None, str], float]:
    """The exact minimiser at every level, in original units: NOT PRIVATE."""
    if problem.score is None:
        raise InvalidValue(
            "non_private_reference = True is not allowed with a custom loss: it has no exact solver. Leave it out."
        )
    records = non_private(data, problem, schema, weights)
    found: dict[tuple[float | None, str], float] = {}
    for at in levels or (None,):
        values = to_original(problem, solve(problem, records, index=at))
        found.update({(at, name): float(v) for name, v in zip(problem.names, values, strict=True)})
    return found
