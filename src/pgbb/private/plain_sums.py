"""Sums without compiled code: statistics of the response alone, of at most a slab of records, by NumPy: the same bits.

A mean asks nothing else, and its first fit would take longer to compile than to run. A statistic says by `plain`, a
function (y, *parameters) of the responses of all records, that NumPy computes what compiled code does: it adds up no
products, which a processor may round once or twice, and where compiled code divides by a parameter it multiplies by
the reciprocal, as that does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pgbb._numerics import Ints, Singles
from pgbb.private.clipping import FULL_BATCH, clipped, limit

_LOWEST = np.finfo(np.float32).min
_TINY = np.finfo(np.float32).tiny


def _parts(statistic: Any, parameters: Sequence[Singles]) -> tuple[Sequence[Singles], Sequence[Singles]]:
    """The parameters of the numbers, and of the table in which they are looked up, if there is one."""
    first = len(parameters) - 2 * hasattr(statistic, "above")
    return parameters[:first], parameters[first:]


def serves(statistic: Any, parameters: Sequence[Singles], power: int) -> bool:
    """Whether NumPy computes it: that it tells so does not depend on a record."""
    first, table = _parts(statistic, parameters)
    if not hasattr(statistic, "plain") or (table and power):
        return False
    with np.errstate(all="ignore"):
        return statistic.plain(np.zeros(0, np.float32), *first) is not None


def plain_sum(statistic: Any, rows: Singles, parameters: Sequence[Singles], power: int, unit: float) -> Ints:
    """What `sum_of` gives for these rows, in whole numbers of 1/`unit`."""
    first, table = _parts(statistic, parameters)
    y, weight = rows[:, -2], rows[:, -1]
    y = np.where(np.abs(y) < _TINY, np.float32(0), y)  # as compiled code reads them
    with np.errstate(all="ignore"):  # no cell may warn
        if table:
            return _looked_up(statistic.plain(y, *first)[weight > 0], table[0], entries(table[1], 1, unit))
        numbers = np.atleast_2d(statistic.plain(y, *first))
        scale = np.where(weight > 0, weight**power * np.float32(unit), np.float32(0))
        return np.asarray(_whole(numbers, scale).sum(axis=1))


def entries(table: Singles, times: int, unit: float) -> Ints:
    """What a record in each bin adds for each of so many numbers, (m, bins), clipped to norm 1 together."""
    return _whole(table * (np.float32(1) / np.sqrt(np.float32(times))), np.float32(unit), times)


def _whole(numbers: Singles, scale: Any, times: int = 1) -> Ints:
    """The columns in whole units, toward zero, clipped so that so many of them have norm at most 1."""

    def square(v: Singles) -> Singles:
        return np.asarray(times * np.sum(v.astype(np.float64) ** 2, axis=0), np.float32)

    most = scale * np.float32(limit(times * len(numbers), FULL_BATCH))
    return np.asarray(clipped([numbers], square, most)[0].astype(np.int64))


def _looked_up(number: Singles, edges: Singles, added: Ints) -> Ints:
    """The sum of what the bins of these numbers add; what is no number is in the last bin."""
    bins = np.searchsorted(edges[1:-1], np.maximum(number, _LOWEST))
    return np.asarray(added @ np.bincount(bins, minlength=len(edges) - 1))
