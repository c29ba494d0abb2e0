"""From a frame, arrays or files to the `Records` that a prepared model needs: all that `door` knows of reading."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pgbb.errors import InvalidValue
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema
from pgbb.private.arrays import columns_of, single, table
from pgbb.private.files import File
from pgbb.private.hosts import Together
from pgbb.private.partition import Listing, Share, records_of, survey
from pgbb.private.records import Columns, Encoded, Examined, NonPrivateRecords, Records, Source, encoded, examine, load
from pgbb.private.sources import open_source

if TYPE_CHECKING:
    from pgbb.private.pseudo_samples import PublicSamples

__all__ = [
    "Examined", "File", "Listing", "NonPrivateRecords", "Records", "Share", "Source", "agreed", "columns_of", "examine",
    "header", "public_samples", "records_for", "share_for", "single", "table",
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


def records_for(source: Source, problem: Problem, schema: Schema, weights: str | None = None) -> Records:
    """Encode the records for this problem.

    A regression has its mapped design and response; a mean has the constant 1
    and its column; a custom loss has its columns side by side and no response.
    """
    if problem.design is not None:
        return load(source, problem.design, schema, weights)
    if weights is not None:
        raise InvalidValue(f"weights = {weights!r} is not allowed here: only formula models take survey weights.")
    columns, response = problem.columns, problem.response

    def side_by_side(data: Columns) -> Encoded:
        return np.column_stack([data.values[name] for name in columns]).astype(np.float32), 0.0, 1.0

    def alone(data: Columns) -> Encoded:
        return np.ones((data.n, 1), np.float32), data.values[str(response)], 1.0

    if columns:
        return encoded(source, schema, [str(name) for name in columns], len(columns), side_by_side)
    return encoded(source, schema, [str(response)], 1, alone)


def public_samples(source: Source, problem: Problem, schema: Schema) -> "PublicSamples":
    """Pseudo-samples, which are nobody's records: their gradient is computed without noise."""
    from pgbb.private.pseudo_samples import PublicSamples

    return PublicSamples(records_for(source, problem, schema), problem)


def share_for(
    source: Source | Listing,
    problem: Problem,
    schema: Schema,
    weights: str | None = None,
    together: Together | None = None,
    *,
    copies: int = 1,
) -> tuple[Records, Share]:
    """The records of this process, encoded, and which they are: all, where there are no others.

    With others, `source` is the listing that all have agreed on. `copies` is how many times they are in memory at once.
    """
    if not isinstance(source, Listing):
        records = records_for(source, problem, schema, weights)
        return records, Share.of(records.n, None)
    share = Share.of(source.n, together)
    return records_of(source, problem, schema, weights, share, copies=copies), share


def agreed(source: Source, together: Together, facts: Mapping[str, object]) -> Listing:
    """The listing of a data set that all processes have agreed on, as on other public facts; too few are refused."""
    listing = survey(source)
    together.agree(listing.facts() | dict(facts), copies=dict(listing.digests))
    Share.of(listing.n, together)
    return listing
