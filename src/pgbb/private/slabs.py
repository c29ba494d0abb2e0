"""Stored rows in slabs of one size on the devices, in memory or read from a file, and what is formed of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from pgbb._numerics.ahead import ahead
from pgbb._numerics.compiled import computed_once
from pgbb.private.coding import Coding

if TYPE_CHECKING:
    from pgbb.private.scratch import Scratch

__all__ = ["DEVICE", "RUNNING", "UNIT", "Slabs", "formed", "slabs_of"]

UNIT = 2**13
"""Devices share records in units of so many, so that the chunks of a sum are the same however many there are."""

RUNNING = 2
"""Slabs whose sums may wait for a device."""

DEVICE = PartitionSpec("device")  # type: ignore[no-untyped-call]
_SLAB = 2**16  # rows that a program is compiled for

Rows: TypeAlias = "NDArray[np.float32] | NDArray[np.uint32] | Scratch"
Slab: TypeAlias = tuple[Array, NDArray[np.int64]]


class Slabs(NamedTuple):
    """Stored rows in slabs of one size, (devices, 2¹⁶, ·) each, and how many rows of each are records.

    All programs are compiled for a slab, whatever n is: a record's row is computed
    by the same code, however many processes and devices share the records.
    """

    parts: "list[Slab] | Streamed"
    mesh: Mesh | None
    n: int
    coding: Coding | None


class Streamed:
    """Slabs that are read anew in each pass, one ahead of the one that is summed; the first one stays.

    A buffer takes another slab when the sum over the one in it is there: `sum_of` lets `RUNNING` sums wait.
    """

    def __init__(self, rows: "Scratch", read: Callable[[int], Slab], starts: range, devices: int) -> None:
        self._read, self._starts, self._first = read, starts, read(starts[0])
        rows.take_turns((RUNNING + 3) * devices, _SLAB)

    def __getitem__(self, first: Literal[0]) -> Slab:
        return self._first

    def __iter__(self) -> Iterator[Slab]:
        yield self._first
        yield from ahead(map(self._read, self._starts[1:]))


def slabs_of(rows: Rows, devices: Sequence[jax.Device] | None = None, coding: Coding | None = None) -> Slabs:
    """Rows shared over devices in units, filled up with rows of weight zero; on a CPU full slabs are not copied."""
    n, width = rows.shape
    units = max(-(-n // UNIT), 1)
    devices = list(jax.local_devices()[:1] if devices is None else devices)[:units]
    each = -(-units // len(devices)) * UNIT
    mesh = None if len(devices) == 1 else Mesh(np.array(devices), ("device",))

    def slab(start: int) -> Slab:
        held = [rows[k * each + start : min(k * each + min(start + _SLAB, each), n)] for k in range(len(devices))]
        put = [jax.device_put(_filled(part)[None], d, may_alias=True) for part, d in zip(held, devices, strict=True)]
        whole = put[0]
        if mesh is not None:
            form, where = (len(devices), _SLAB, width), NamedSharding(mesh, DEVICE)
            whole = jax.make_array_from_single_device_arrays(form, where, put)
        return whole, np.array([len(part) for part in held])

    starts = range(0, each, _SLAB)
    streamed = None if isinstance(rows, np.ndarray | Array) else Streamed(rows, slab, starts, len(devices))
    return Slabs(streamed or list(map(slab, starts)), mesh, n, coding)


def _filled(part: NDArray[Any]) -> NDArray[Any]:
    """A slab from at most as many rows."""
    if len(part) == _SLAB:
        return part
    whole = np.zeros((_SLAB, part.shape[1]), part.dtype)
    whole[: len(part)] = part
    return whole


def formed(stored: Array, coding: Coding | None) -> Array:
    """The packed rows that statistics see, from stored ones: the one place where they are formed."""
    if coding is not None:
        stored = coding.formed(computed_once(stored).T, jnp, computed_once).T
    return computed_once(stored)
