"""Places packed rows on the device, in one copy, in their order or shuffled. Nothing is asked here."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import jax
import numpy as np
from numpy.typing import NDArray

from pgbb.private.row_layout import EXTRA, empty_rows

if TYPE_CHECKING:
    from pgbb.private.records import Records, Stored  # needs pandas, which a machine that only trains may lack


Held: TypeAlias = "Records | Stored"


@dataclass(frozen=True)
class Data:
    """Records on the device, one packed row each: x, response − shift, survey weight (0 if invalid)."""

    rows: jax.Array
    n: int


jax.tree_util.register_dataclass(Data, data_fields=["rows"], meta_fields=["n"])


def shifted(records: "Records", shift: float, *, consume: bool = False) -> NDArray[np.float32]:
    """Packed rows with the response shifted, in a copy of their own; with `consume` the records hand theirs over."""
    rows = records.rows if consume else _copy(records.rows)
    if consume:
        records.rows, records.valid = rows[:0], records.valid[:0]  # else they would be shifted twice
    rows[:, -EXTRA] -= shift
    return rows


def taken(records: Held, shift: float, *, consume: bool = False) -> Any:
    """Stored rows with the response shifted; those that are stored for sums were shifted when they were read."""
    return shifted(cast("Records", records), shift, consume=consume) if hasattr(records, "valid") else records.rows


def place(records: "Records", shift: float, order: np.random.Generator | None, *, consume: bool = False) -> Data:
    """Put records on the device, shuffled in place by `order`, or as they are; `consume` spares a copy.

    A shuffle of whole rows needs no second array: the design exists once.
    """
    rows = shifted(records, shift, consume=consume)
    if order is not None:
        order.shuffle(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0])
    return Data(rows=jax.device_put(rows, may_alias=True), n=len(rows))


def _copy(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    out = empty_rows(rows.shape[0], rows.shape[1] - EXTRA)
    out[:] = rows
    return out
