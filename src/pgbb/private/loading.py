"""From a frame, arrays or files to the `Records` that a prepared model needs: all that `door` knows of reading."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pgbb.engine.protocol import Asked, Engine, Work
from pgbb.errors import InvalidValue
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema
from pgbb.private.arrays import columns_of, single, table
from pgbb.private.coding import Coding, coding_of
from pgbb.private.files import File
from pgbb.private.partition import survey
from pgbb.private.records import (
    Columns,
    Examined,
    NonPrivateRecords,
    Reading,
    Records,
    Singles,
    Source,
    Stored,
    Words,
    encoded,
    examine,
    of_design,
    stored,
)  # fmt: skip
from pgbb.private.sources import open_source

if TYPE_CHECKING:
    from pgbb.private.pseudo_samples import PublicSamples

__all__ = [
    "Examined", "File", "NonPrivateRecords", "Records", "Source", "Stored", "columns_of", "engine_for", "examine",
    "form_for", "header", "here", "public_samples", "records_for", "single", "stored_for", "table",
]  # fmt: skip


def header(source: Source) -> list[tuple[str | None, str]]:
    """Names of the columns, each with "number", "flag" or "text" by its stored type, or "" where none says."""
    opened = open_source(source)
    if not opened.typed:
        return [(name, "") for name in opened.names]
    kinds = opened.kinds([name for name in opened.names if name is not None], Schema())
    words = {"bool": "flag", "cell": "", "date": "", "str": "text", "string": "text"}
    return [
        (n, words.get(k.name, "number" if k.numbers else "") if n and (k := kinds[n]) else "") for n in opened.names
    ]


def _reading(problem: Problem, schema: Schema, weights: str | None) -> Reading:
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
    return encoded(source, schema, _reading(problem, schema, weights), persons)


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
    reading = _reading(problem, schema, weights)
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
    return _reading(problem, schema, weights).words, None


def public_samples(source: Source, problem: Problem, schema: Schema) -> "PublicSamples":
    """Pseudo-samples, which are nobody's records: their gradient is computed without noise."""
    from pgbb.private.pseudo_samples import PublicSamples

    return PublicSamples(records_for(source, problem, schema), problem)


def here(records: Records | Stored, problem: Problem, group_size: int, *, keep: bool) -> Engine:
    """The engine that is this process; unless it is to `keep` the records, it takes their memory over."""
    from pgbb.private.here import Here  # needs JAX

    return Here(records, problem.shift, group_size, consume=not keep)


def engine_for(
    source: Source, problem: Problem, schema: Schema, weights: str | None, asked: Asked, *, dense: bool = False
) -> Engine:
    """The workers of a cluster, which have encoded the records, each its partitions, and keep them.

    Rows must be `dense` where batches are asked for.
    """
    from pgbb.private import worker

    work = Work(
        worker.told(asked.model, schema, weights, dense=dense), _reading(problem, schema, weights).names,
        worker.encode, worker.receipt, worker.answer, worker.prepare, worker.pack, worker.unpack,
    )  # fmt: skip
    given = source.where if isinstance(source, File) else source
    parts = given if asked.cluster.holds(given) else survey(given, asked.cluster.workers)
    return asked.cluster.engine(parts, work)
