"""Stored records in an unnamed file, in a folder that the user allows, for more records than memory holds.

The file has mode 0600, is out of the folder's list from the beginning (`O_TMPFILE`, or unlinked when just opened; on
Windows it goes when it is closed) and its room is reserved before records are read. Whatever ends the process gives
the room back. Deleted is not erased: what the disk keeps is as confidential as the records.
"""

import os
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Words
from pgbb.errors import InvalidValue, PgbbError
from pgbb.private.in_memory import more_room
from pgbb.private.row_layout import aligned


class Scratch:
    """Rows of so many words in a file: room for n, or for as many as come.

    They are written once from the beginning, then read by slices, as numbers of `dtype`.
    """

    def __init__(self, folder: Path, n: int | None, words: int) -> None:
        self.dtype: type[np.uint32 | np.float32] = np.uint32
        self._buffers = deque[Words]()
        self.shape, self._row, self._folder = (0, words), 4 * words, folder
        self._grows, self._at = n is None, 0
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise InvalidValue(
                f"scratch = {str(folder)!r} cannot take a file: {error.strerror}. Give a folder that exists and in "
                "which you may write. Nothing was read or spent."
            ) from None
        self.close = finalize(self, self._file.close)
        self._reserve(more_room(0, words) if n is None else n)

    def _reserve(self, n: int) -> None:
        """Room for n rows, and for no more."""
        self.shape = (n, self.shape[1])
        with self._spoken():
            if hasattr(os, "posix_fallocate") and n:
                os.posix_fallocate(self._file.fileno(), 0, self.nbytes)
            self._file.truncate(self.nbytes)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return len(self) * self._row

    def next(self, count: int) -> Words:
        """Where the next rows go; `append` them when they are filled."""
        while self._grows and self._at + count > len(self):
            self._reserve(more_room(*self.shape))
        return np.empty((count, self.shape[1]), np.uint32)

    def done(self) -> Self:
        """All rows."""
        if self._grows:
            self._reserve(self._at)
        return self

    def append(self, rows: Words) -> None:
        """The next rows."""
        self._at += len(rows)
        left = np.ascontiguousarray(rows).data.cast("B") if rows.size else memoryview(b"")  # a piece may be empty
        with self._spoken():
            while left:
                left = left[self._file.write(left) :]

    def view(self, dtype: type[np.uint32 | np.float32]) -> Self:
        """These rows, read as numbers of another type of 32 bits."""
        self.dtype = dtype
        return self

    def take_turns(self, buffers: int, rows: int) -> None:
        """Read slices of at most so many rows into buffers in turn; a slice is valid until its buffer is used again."""
        self._buffers.extend(aligned((rows, self.shape[1]), np.uint32) for _ in range(buffers))

    def __getitem__(self, part: slice) -> NDArray[np.uint32 | np.float32]:
        """Some rows, read into memory of their own, or into the next buffer."""
        start, stop, _ = part.indices(len(self))
        size = max(stop - start, 0)
        rows = self._buffers[0][:size] if self._buffers else aligned((size, self.shape[1]), np.uint32)
        self._buffers.rotate(-1)
        left = rows.data.cast("B") if rows.size else memoryview(b"")
        self._file.seek(start * self._row)
        with self._spoken():
            while left:
                got = self._file.readinto(left)
                if not got:
                    raise OSError("the file is shorter than what was written")
                left = left[got:]
        return rows.view(self.dtype)

    @contextmanager
    def _spoken(self) -> Iterator[None]:
        """Replace an error of the disk by one of pgbb's."""
        try:
            yield
        except OSError as error:
            self.close()
            there = os.statvfs(self._folder) if hasattr(os, "statvfs") else None
            free = "" if there is None else f", and {there.f_bavail * there.f_frsize / 2**30:,.1f} GiB are free"
            raise PgbbError(
                f"the scratch folder {str(self._folder)!r} failed: {error.strerror or error}. "
                f"{self.shape[0]:,} records need {self.nbytes / 2**30:,.1f} GiB there{free}. Make room, "
                "or give another folder. Its file is gone."
            ) from None
