"""What is read for a prepared model, and the rows that are made of it: dense ones, or coded ones for sums."""

from pathlib import Path

import numpy as np

from pgbb._numerics import Singles, Words
from pgbb.errors import InvalidValue
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema
from pgbb.private.coding import Coding, coding_of
from pgbb.private.records import Columns, Reading, Records, Stored, encoded, of_design, stored
from pgbb.private.sources import Source


def reading_for(problem: Problem, schema: Schema, weights: str | None) -> Reading:
    """What is read for this problem.

    A regression has its mapped design and response; a mean has the constant 1
    and its column; a custom loss has its columns side by side and no response.
    """
    if problem.design is not None:
        return of_design(problem.design, schema, weights)
    if weights is not None:
        raise InvalidValue(f"weights = {weights!r} is not allowed here: only formula models take survey weights.")
    columns, response = tuple(map(str, problem.columns)), str(problem.response)

    def side_by_side(data: Columns, rows: Singles) -> None:
        for j, name in enumerate(columns):
            rows[:, j] = data.values[name]
        rows[:, -2], rows[:, -1] = 0, 1

    def alone(data: Columns, rows: Singles) -> None:
        rows[:, 0], rows[:, 1], rows[:, 2] = 1, data.values[response], 1

    return Reading(columns, len(columns), side_by_side) if columns else Reading((response,), 1, alone)


def records_for(
    source: Source, problem: Problem, schema: Schema, weights: str | None = None, persons: str | None = None
) -> Records:
    """Encode the records for this problem, as dense rows."""
    return encoded(source, schema, reading_for(problem, schema, weights), persons)


def stored_for(
    source: Source,
    problem: Problem,
    schema: Schema,
    weights: str | None = None,
    scratch: Path | None = None,
    *,
    dense: bool = False,
) -> Stored:
    """Encode the records for sums over all of them: coded where that is shorter, in memory or in a folder."""
    reading = reading_for(problem, schema, weights)
    words, coding = form_for(problem, schema, weights, dense=dense)

    def fill(data: Columns, out: Words) -> None:
        if coding is None:
            reading.dense(data, out, problem.shift)
        else:
            coding.store(data.values, data.valid, out)

    rows = stored(source, schema, reading.names, words, fill, scratch)
    return Stored(rows.view(np.float32) if coding is None else rows, coding)


def form_for(
    problem: Problem, schema: Schema, weights: str | None, *, dense: bool = False
) -> tuple[int, Coding | None]:
    """The words of a stored record, and its coding unless it is dense: by the schema and the formula alone."""
    if problem.design is not None and not dense:
        coding = coding_of(problem.design, schema, weights, problem.shift)
        if coding is not None:
            return coding.words, coding
    return reading_for(problem, schema, weights).words, None
