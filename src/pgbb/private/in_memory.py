"""Stored records in memory, in one array that grows where only reading tells how many there are."""

from pathlib import Path

import numpy as np
import psutil

from pgbb._numerics import Words
from pgbb.errors import PgbbError
from pgbb.private.row_layout import LINE

_GROUP = Path("/sys/fs/cgroup")
_SPARE = 2**28  # bytes for all else: pieces, compiled code, the accountant
_STEP, _PART = 2**26, 32  # bytes of room that are taken at once, or a part of what there is


def free_memory() -> int:
    """Bytes that this process may still take, by the system and by the limit of its control group.

    psutil tells the first. It does not read control groups, whose limit is the smaller one in a container.
    """
    free = psutil.virtual_memory().available
    try:
        limit, used = (int((_GROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no control group; where there is no limit the file holds the word max
        return free
    return min(free, max(limit - used, 0))


def more_room(n: int, words: int) -> int:
    """The next size of a growing array of n rows of so many words."""
    return n + max(_STEP // (4 * words), n // _PART, 1)


class InMemory:
    """Rows of so many words in memory: room for n, or for as many as come. They are written once, in order.

    Rows begin where a cache line does, so that JAX can use them without a copy. Where they grow they are held once,
    as the allocator of Linux moves the pages of a large array and copies nothing.
    """

    def __init__(self, n: int | None, words: int) -> None:
        self._n, self._words, self._at, self._room, self._start = n, words, 0, 0, 0
        self._raw, self._free = np.empty(0, np.uint8), free_memory()
        self._reserve(1 if n is None else n)

    def _reserve(self, n: int) -> None:
        """Allocate n rows; refuse if memory has no room for them."""
        row = 4 * self._words
        most = max((self._free - _SPARE) // row, 0)
        try:
            if n > most:
                raise MemoryError
            while self._room < n:
                self._room = n if self._n is not None else more_room(self._room, self._words)
            self._resize(min(self._room, most) if self._n is None else self._room)
        except MemoryError:
            many = n if self._n is not None else most + 1
            raise PgbbError(
                f"{f'{many:,}' if self._n is not None else f'more than {many - 1:,}'} records of {row:,} bytes need "
                f"{(many * row + _SPARE) / 2**30:,.1f} GiB of memory, and {self._free / 2**30:,.1f} GiB "
                "are available. Allow a folder for them (scratch=, --scratch), or take a machine with more memory, a "
                "formula with fewer terms, or a cluster (--cluster) with more workers. Nothing was spent."
            ) from None

    def _resize(self, n: int) -> None:
        """Change the room to exactly n rows; rows that are written stay."""
        size, before = 4 * n * self._words + LINE, self._start
        if self._raw.size:
            self._raw.resize(size, refcheck=False)
        else:  # unlike `resize` this touches no page
            self._raw = np.empty(size, np.uint8)
        self._room, self._start = n, -self._raw.ctypes.data % LINE
        kept = 4 * self._at * self._words
        if self._start != before and kept:
            self._raw[self._start : self._start + kept] = self._raw[before : before + kept]

    def next(self, count: int) -> Words:
        """Where the next rows go; `append` them when they are filled."""
        if self._n is None and self._at + count > self._room:
            self._reserve(self._at + count)
        return self._rows(self._at, count)

    def _rows(self, first: int, count: int) -> Words:
        start = self._start + 4 * first * self._words
        return self._raw[start : start + 4 * count * self._words].view(np.uint32).reshape(count, self._words)

    def append(self, rows: Words) -> None:
        """The rows that were filled."""
        self._at += len(rows)

    def done(self) -> Words:
        """All rows."""
        if self._at < self._room:
            self._resize(self._at)
        return self._rows(0, self._at)

    def close(self) -> None:
        """Nothing to close: memory is given back by itself."""
