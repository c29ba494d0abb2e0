"""Loads the `Records` of a prepared model from a frame, arrays or files: all that `door` knows of reading."""

from typing import TYPE_CHECKING

from pgbb.engine.protocol import Asked, Engine, Work
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema
from pgbb.private.arrays import columns_of, single, table
from pgbb.private.files import File
from pgbb.private.parquet_partitions import survey
from pgbb.private.reading import reading_for, records_for, stored_for
from pgbb.private.records import Examined, NonPrivateRecords, Records, Stored, examine
from pgbb.private.sources import Source, open_shown

if TYPE_CHECKING:
    from pgbb.private.pseudo_samples import PublicSamples

__all__ = [
    "Examined", "File", "NonPrivateRecords", "Records", "Source", "Stored", "columns_of", "engine_for", "examine",
    "header", "here", "public_samples", "records_for", "single", "stored_for", "table",
]  # fmt: skip


def header(source: Source) -> list[tuple[str | None, str]]:
    """Names of the columns, each with "number", "flag" or "text" by its stored type, or "" where none says."""
    opened = open_shown(source)
    if not opened.typed:
        return [(name, "") for name in opened.names]
    kinds = opened.kinds([name for name in opened.names if name is not None], Schema())
    return [(name, "" if name is None else kinds[name].word) for name in opened.names]


def public_samples(source: Source, problem: Problem, schema: Schema) -> "PublicSamples":
    """Encode pseudo-samples, which are nobody's records: their gradient is computed without noise."""
    from pgbb.private.pseudo_samples import PublicSamples

    return PublicSamples(records_for(source, problem, schema), problem)


def here(records: Records | Stored, problem: Problem, group_size: int, *, keep: bool) -> Engine:
    """The engine that is this process; unless it is to `keep` the records, it takes their memory over."""
    from pgbb.private.local_engine import Here  # needs JAX

    return Here(records, problem.shift, group_size, consume=not keep)


def engine_for(
    source: Source, problem: Problem, schema: Schema, weights: str | None, asked: Asked, *, dense: bool = False
) -> Engine:
    """The workers of a cluster, which have encoded the records, each its partitions, and keep them.

    Rows must be `dense` where batches are asked for.
    """
    from pgbb.private import worker

    work = Work(
        worker.told(asked.model, schema, weights, dense=dense), reading_for(problem, schema, weights).names,
        worker.encode, worker.receipt, worker.answer, worker.prepare, worker.pack, worker.unpack,
    )  # fmt: skip
    given = source.where if isinstance(source, File) else source
    parts = given if asked.cluster.holds(given) else survey(given, asked.cluster.workers)
    return asked.cluster.engine(parts, work)
