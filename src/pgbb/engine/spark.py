"""Spark as the engine: a thin adapter that uses `mapInArrow` and nothing else of it.

Accumulators would count a task that is repeated twice. Partitions are encoded once and kept in memory alone; what Spark
drops it makes again, and receipts show whether it is the same.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from pgbb._numerics import Ints
from pgbb.engine.guard import guarded, versions
from pgbb.engine.protocol import Batch, EngineLost, Failed, Question, Receipt, Work, settled
from pgbb.errors import InvalidValue, PgbbError

_KEPT = "rows binary, records long, digest binary, part long, failed string"
_ANSWER = "sum binary, partitions long, records long, digest binary, failed string"


def is_frame(source: object) -> bool:
    """Whether this is a Spark DataFrame; Spark need not be installed."""
    return type(source).__module__.startswith("pyspark.") and hasattr(source, "mapInArrow")


@contextmanager
def connected(frame: Any) -> "Iterator[Spark]":
    """The cluster that has the frame; what it keeps for the fit is freed at the end."""
    spark = Spark(frame)
    try:
        yield spark
    finally:
        for kept in spark.kept:
            kept.unpersist()


class Spark:
    """The session of a Spark DataFrame."""

    workers = 1

    def __init__(self, frame: Any) -> None:
        self.kept: list[Any] = []
        settings = frame.sparkSession.conf
        encrypted = settings.get("spark.network.crypto.enabled", "false") == "true"
        if not settings.get("spark.master", "").startswith("local") and not encrypted:
            raise InvalidValue(
                "this Spark session sends sums of records without noise in the open. Set spark.authenticate and "
                "spark.network.crypto.enabled to true, or take a local master."
            )

    def holds(self, source: Any) -> bool:
        """Whether it is a Spark DataFrame."""
        return is_frame(source)

    def engine(self, source: Any, work: Work) -> "SparkEngine":
        """The executors, once they have encoded what they read."""
        from pyspark import StorageLevel

        names = [name for name in work.columns if name in source.columns]
        if len(names) < len(work.columns):
            missing = ", ".join(repr(name) for name in work.columns if name not in names)
            raise InvalidValue(f"the data has no column {missing}. Correct the name in the schema or in the data.")
        kept = source.select(*names).mapInArrow(partial(_encode, work, versions()), _KEPT)
        kept = kept.persist(StorageLevel(False, True, False, False))  # in memory, and never on disk
        self.kept.append(kept)
        return SparkEngine(kept, work)


class SparkEngine:
    """Partitions that Spark's executors keep."""

    def __init__(self, kept: Any, work: Work) -> None:
        self._kept, self._work = kept, work
        rows = sorted(_collected(kept.drop("rows")), key=lambda row: int(row.part))
        found = [Receipt(1, r.records, _number(r.digest)) for r in rows]
        self._first = Receipt.total(found) if found else Receipt(0, 0, 0)
        ends = accumulate(r.records for r in rows)
        self._starts = {r.part: end - r.records for r, end in zip(rows, ends, strict=True)}  # numbers of first records
        self.n = self._first.records
        if self.n == 0:
            raise InvalidValue("the data has 0 records; at least one is needed. Check the filter before it.")

    def prepare(self, questions: Sequence[Question]) -> None:
        """Nothing to do: executors compile when they are asked."""

    def sum(self, question: Question | Batch) -> Ints:
        """The partial sums of all partitions, added up once their receipts are those of the first reading."""
        answer = partial(_answer, self._work, versions(), question.named(), self._starts)
        found = _collected(self._kept.mapInArrow(answer, _ANSWER))
        answers = [
            (np.frombuffer(r.sum, "<i8").astype(np.int64), Receipt(r.partitions, r.records, _number(r.digest)))
            for r in found
        ]
        return settled(self._first, answers or [(np.zeros(1, np.int64), Receipt(0, 0, 0))])


def _collected(frame: Any) -> list[Any]:
    """The rows of a small frame; errors of executors are replaced by pgbb's own words."""
    try:
        found: list[Any] = frame.collect()
    except Exception as error:  # its message might quote records
        raise EngineLost(
            f"Spark has given up ({type(error).__name__}, see its log). Look at its executors, and that pgbb is "
            "installed on them."
        ) from None
    failed = [row.failed for row in found if row.failed is not None]
    if failed:
        raise PgbbError(failed[0])
    return found


def _number(digest: bytes) -> int:
    return int.from_bytes(digest)


# On an executor ------------------------------------------------------------------------------------------------------


def _encode(work: Work, expected: tuple[str, ...], batches: Iterator[Any]) -> Iterator[Any]:
    """One row for a partition; none where it has no records."""
    import pyarrow as pa
    from pyspark import TaskContext

    given, here = [batch for batch in batches if len(batch)], TaskContext.get()
    if given:
        kept = guarded("an executor", expected, work.encode, work.told, pa.Table.from_batches(given))
        failed = isinstance(kept, Failed)
        part = None if here is None else here.partitionId()
        row = (None, None, None, part, kept.text) if failed else (*work.pack(kept), part, None)
        yield _batch(("rows", "records", "digest", "part", "failed"), row)


def _answer(
    work: Work, expected: tuple[str, ...], question: Question | Batch, starts: dict[int, int], batches: Iterator[Any]
) -> Iterator[Any]:
    """One row for the sum over a partition."""
    for batch in batches:
        for row in batch.to_pylist():
            kept = work.unpack(row["rows"], row["records"], row["digest"])
            found = guarded("an executor", expected, work.answer, work.told, question, [kept], [starts[row["part"]]])
            if isinstance(found, Failed):
                values: tuple[Any, ...] = (None, None, None, None, found.text)
            else:
                total, receipt = found
                digest = receipt.digest.to_bytes(8)
                values = (total.astype("<i8").tobytes(), receipt.partitions, receipt.records, digest, None)
            yield _batch(("sum", "partitions", "records", "digest", "failed"), values)


def _batch(names: Sequence[str], values: Sequence[Any]) -> Any:
    import pyarrow as pa

    kinds = {**dict.fromkeys(("partitions", "records", "part"), pa.int64()), "failed": pa.string()}
    return pa.record_batch(
        [pa.array([v], kinds.get(n, pa.binary())) for n, v in zip(names, values, strict=True)], names
    )
