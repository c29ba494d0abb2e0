"""Which engine a call means: by what it says of a cluster, and by the kind of its data. Loads no engine before that."""

from contextlib import AbstractContextManager, nullcontext

from pgbb.engine import dask, spark
from pgbb.engine.protocol import Workers
from pgbb.errors import InvalidValue


def cluster_for(given: object, source: object) -> AbstractContextManager[Workers | None]:
    """The cluster to ask, open inside the block; None where this process reads the records."""
    if given is None and isinstance(source, str) and "://" in source:
        raise InvalidValue(
            f"data {source!r} is a URL, which workers of a cluster read: give cluster='local:2' (--cluster local:2)."
        )
    if spark.is_frame(source):
        if given is not None:
            raise InvalidValue("data is a Spark DataFrame, whose own session is asked: leave cluster out.")
        return spark.connected(source)
    if given is None and not dask.is_frame(source):
        return nullcontext()
    return dask.connected(given)
