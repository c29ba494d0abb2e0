"""Stored rows in slabs of one size on the devices, in memory or read from a file, and what is formed of them."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from pgbb._numerics import Ints
from pgbb._numerics.compiled import computed_once, power_of_two
from pgbb._numerics.prefetch import ahead
from pgbb.private.coding import Form

if TYPE_CHECKING:
    from pgbb.private.scratch import Scratch


UNIT = 2**13
"""Devices share records in units of so many, so that the chunks of a sum are the same however many there are."""

CORES = max(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 2)
DEVICE = PartitionSpec("device")  # type: ignore[no-untyped-call]
_SLAB = 2**16  # rows that a program is compiled for, on an accelerator at least
_LONGEST = 2**22  # and at most

Slab: TypeAlias = tuple[Array, Ints]


class Slabs(NamedTuple):
    """Stored rows in slabs of one size, (devices, rows, ·) each, and how many rows of each are records.

    Programs are compiled for a slab, one for few records and one for more (`sums`): a record's row is computed
    by the same operations, however many processes and devices share the records.
    """

    parts: "list[Slab] | Streamed"
    mesh: Mesh | None
    n: int
    form: Form | None


class Streamed:
    """Slabs that are read anew in each pass, one ahead of those that are summed; the first one stays.

    A buffer takes another slab when the sum over the one in it is there: every core has one, and one is read ahead.
    """

    def __init__(self, rows: "Scratch", read: Callable[[int], Slab], starts: range, devices: int) -> None:
        self._read, self._starts, self._first = read, starts, read(starts[0])
        rows.take_turns((CORES + 3) * devices, _SLAB)

    def __getitem__(self, first: Literal[0]) -> Slab:
        return self._first

    def __iter__(self) -> Iterator[Slab]:
        yield self._first
        yield from ahead(map(self._read, self._starts[1:]))


Rows: TypeAlias = "NDArray[np.float32] | NDArray[np.uint32] | Scratch"


def slabs_of(rows: Rows, devices: Sequence[jax.Device] | None = None, form: Form | None = None) -> Slabs:
    """Rows shared over devices in units, filled up with rows of weight zero; on a CPU full slabs are not copied."""
    n, width = rows.shape
    units = max(-(-n // UNIT), 1)
    devices = list(jax.local_devices()[:1] if devices is None else devices)[:units]
    each = -(-units // len(devices)) * UNIT
    mesh = None if len(devices) == 1 else Mesh(np.array(devices), ("device",))
    in_memory = isinstance(rows, np.ndarray | Array)
    size = slab_rows(each, width) if in_memory else _SLAB

    def slab(start: int) -> Slab:
        held = [rows[k * each + start : min(k * each + min(start + size, each), n)] for k in range(len(devices))]
        filled = [_filled(part, size)[None] for part in held]
        put = [jax.device_put(part, d, may_alias=True) for part, d in zip(filled, devices, strict=True)]
        whole = put[0]
        if mesh is not None:
            form, where = (len(devices), size, width), NamedSharding(mesh, DEVICE)
            whole = jax.make_array_from_single_device_arrays(form, where, put)
        return whole, np.array([len(part) for part in held])

    starts = range(0, each, size)
    streamed = None if in_memory else Streamed(cast("Scratch", rows), slab, starts, len(devices))
    return Slabs(streamed or list(map(slab, starts)), mesh, n, form)


def _filled(part: NDArray[Any], size: int) -> NDArray[Any]:
    """A slab from at most as many rows."""
    if len(part) == size:
        return part
    whole = np.zeros((size, part.shape[1]), part.dtype)
    whole[: len(part)] = part
    return whole


def floor(number: int) -> int:
    """The largest power of two that is not larger; 1 at least."""
    return 1 << max(number.bit_length() - 1, 0)


@cache
def device_room() -> int:
    """Bytes for the numbers of one piece on an accelerator: a small part of its memory."""
    known = jax.local_devices()[0].memory_stats() or {}
    return known.get("bytes_limit", 2**33) // 2**9


def slab_rows(n: int, width: int) -> int:
    """Rows that a program is compiled for: on an accelerator as many as there are, as far as it has room."""
    if jax.default_backend() == "cpu":
        return _SLAB
    return max(_SLAB, min(power_of_two(n), floor(device_room() // 4 // width), _LONGEST))


def formed(stored: Array, form: Form | None) -> Array:
    """The columns that statistics see, (width, rows), from stored rows: the one place where they are formed."""
    columns = computed_once(_laid(stored.T))
    return columns if form is None else _laid(computed_once(form.formed(columns, jnp, computed_once)))


def _laid(columns: Array) -> Array:
    """Each column in one piece of memory."""
    laid: Array = with_layout_constraint(columns, Layout((0, 1)))  # type: ignore[no-untyped-call]
    return laid


def width_of(rows: Array, form: Form | None) -> int:
    """Numbers of a row that statistics see."""
    return rows.shape[-1] if form is None else form.width
