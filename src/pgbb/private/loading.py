"""From a frame, arrays or files to the `Records` that a prepared model needs: all that `door` knows of reading."""

from typing import TYPE_CHECKING

import numpy as np

from pgbb.engine.protocol import Asked, Engine, Work
from pgbb.errors import InvalidValue
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema
from pgbb.private.arrays import columns_of, single, table
from pgbb.private.files import File
from pgbb.private.partition import survey
from pgbb.private.records import Columns, Encoded, Examined, NonPrivateRecords, Records, Source, encoded, examine, load
from pgbb.private.sources import open_source

if TYPE_CHECKING:
    from pgbb.private.pseudo_samples import PublicSamples

__all__ = [
    "Examined", "File", "NonPrivateRecords", "Records", "Source", "columns_of", "engine_for", "examine", "header",
    "here", "public_samples", "records_for", "single", "table",
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


def records_for(
    source: Source, problem: Problem, schema: Schema, weights: str | None = None, persons: str | None = None
) -> Records:
    """Encode the records for this problem.

    A regression has its mapped design and response; a mean has the constant 1
    and its column; a custom loss has its columns side by side and no response.
    """
    if problem.design is not None:
        return load(source, problem.design, schema, weights, persons)
    if weights is not None:
        raise InvalidValue(f"weights = {weights!r} is not allowed here: only formula models take survey weights.")
    columns, response = problem.columns, problem.response

    def side_by_side(data: Columns) -> Encoded:
        return np.column_stack([data.values[name] for name in columns]).astype(np.float32), 0.0, 1.0

    def alone(data: Columns) -> Encoded:
        return np.ones((data.n, 1), np.float32), data.values[str(response)], 1.0

    if columns:
        return encoded(source, schema, [str(name) for name in columns], len(columns), side_by_side, persons)
    return encoded(source, schema, [str(response)], 1, alone, persons)


def public_samples(source: Source, problem: Problem, schema: Schema) -> "PublicSamples":
    """Pseudo-samples, which are nobody's records: their gradient is computed without noise."""
    from pgbb.private.pseudo_samples import PublicSamples

    return PublicSamples(records_for(source, problem, schema), problem)


def here(records: Records, problem: Problem, group_size: int, *, keep: bool) -> Engine:
    """The engine that is this process; unless it is to `keep` the records, it takes their memory over."""
    from pgbb.private.here import Here  # needs JAX

    return Here(records, problem.shift, group_size, consume=not keep)


def engine_for(source: Source, problem: Problem, schema: Schema, weights: str | None, asked: Asked) -> Engine:
    """The workers of a cluster, which have encoded the records, each its partitions, and keep them."""
    from pgbb.private import worker

    if problem.design is not None:
        columns = [*problem.design.rows_need[0], problem.design.response]
    else:
        columns = [*(problem.columns or [str(problem.response)])]
    columns += [] if weights is None else [weights]
    work = Work(
        worker.told(asked.model, schema, weights), tuple(dict.fromkeys(columns)),
        worker.encode, worker.receipt, worker.answer, worker.prepare, worker.pack, worker.unpack,
    )  # fmt: skip
    given = source.where if isinstance(source, File) else source
    parts = given if asked.cluster.holds(given) else survey(given, asked.cluster.workers)
    return asked.cluster.engine(parts, work)
