"""From a frame or a file to the `Records` that a prepared model needs."""

import numpy as np

from pgbb.errors import InvalidValue
from pgbb.hosts import Together
from pgbb.models import Problem
from pgbb.private.records import Records, Source, load, load_columns
from pgbb.private.shards import Share, records_of, survey
from pgbb.schema import Schema

__all__ = ["records_for", "share_for"]


def records_for(source: Source, problem: Problem, schema: Schema, weights: str | None = None) -> Records:
    """Encode the records for this problem.

    A regression has its mapped design and response; a mean has the constant 1
    and its column; a custom loss has its columns side by side and no response.
    """
    if problem.design is not None:
        return load(source, problem.design, schema, weights)
    if weights is not None:
        raise InvalidValue(f"weights = {weights!r} is not allowed here: only formula models take survey weights.")
    names = problem.columns or ((problem.response,) if problem.response else ())
    columns = load_columns(source, schema, [str(name) for name in names])
    n = columns.n
    if problem.columns:
        x = np.column_stack([columns.values[name] for name in problem.columns]).astype(np.float32)
        y = np.zeros(n, np.float32)
    else:
        x = np.ones((n, 1), np.float32)
        y = columns.values[str(problem.response)].astype(np.float32)
    return Records(x, y, columns.valid.astype(np.float32), columns.valid)


def share_for(
    source: Source,
    problem: Problem,
    schema: Schema,
    weights: str | None = None,
    together: Together | None = None,
    *,
    copies: int = 1,
) -> tuple[Records, Share]:
    """The records of this process, encoded, and which they are: all, where there are no others.

    `copies` is how many times they are in memory at once.
    """
    if together is None:
        records = records_for(source, problem, schema, weights)
        return records, Share.of(records.n, None)
    listing = survey(source)
    share = Share.of(listing.n, together)
    return records_of(listing, problem, schema, weights, share, copies=copies), share
