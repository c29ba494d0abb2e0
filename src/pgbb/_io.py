"""Files: one written whole or not at all, and the Parquet files of a data set that is a folder.

Knows no format of pgbb. No message here may contain a cell.
"""

import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from pgbb.errors import InvalidValue, PgbbError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


_BUFFER = 2**16  # bytes of a column that are read ahead


def write_whole(path: str | Path, data: bytes, error: type[PgbbError] = PgbbError) -> Path:
    """Write a file whole or not at all, and return its path.

    The bytes go to a temporary file beside it, which takes its name when they are on disk. A reader, or whoever comes
    after a power cut, finds the old content or the new, never a part.

    Args:
      path: where to; what is there is replaced.
      data: the content.
      error: the class that is raised when the file cannot be written.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        write_new(temporary, data)
        put_in_place(temporary, target)
    except OSError as found:
        raise error(
            f"{target} cannot be written: {found.strerror}. Choose a folder that exists and can be written."
        ) from None
    finally:
        with contextlib.suppress(OSError):  # such as a parent that is a file: the error above says so
            temporary.unlink(missing_ok=True)
    return target


def check_writable(path: str | Path, name: str = "out") -> None:
    """Find out whether `write_whole` can write this file, before anything is spent: a file beside it is tried."""
    said = f"{name} = {str(path)!r} is not allowed:"
    try:
        target = Path(path)
        if not target.parent.is_dir():
            raise InvalidValue(f"{said} its folder does not exist. Make it first.")
        if target.is_dir():
            raise InvalidValue(f"{said} it is a folder. Choose another name.")
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        write_new(temporary, b"")
        temporary.unlink()
    except (OSError, ValueError) as found:  # ValueError: a name with a zero byte
        if isinstance(found, InvalidValue):
            raise
        why = found.strerror if isinstance(found, OSError) else "no file has such a name"
        raise InvalidValue(f"{said} it cannot be written ({why}). Choose another name or folder.") from None


def write_new(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file that must not exist yet; its bytes are on disk when this returns, and its name is too.

    Raises `OSError`. `mode` is what the process's mask is applied to: 0o600 is for the owner alone.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a file of the same folder this name, in one step that lasts through a power cut; raises `OSError`."""
    os.replace(temporary, path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Write a folder's list of names to disk, where the file system can: without it a new name may be lost."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # not on this file system
        pass
    finally:
        os.close(descriptor)


def parquet_file(path: Path) -> "ParquetFile":
    """An open Parquet file of which no more than is decoded is in memory."""
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)


def parquet_files(folder: Path) -> list[Path]:
    """The .parquet files in a folder, by name: the order in which their records are numbered."""
    return sorted(file for file in folder.iterdir() if file.suffix.lower() == ".parquet" and file.is_file())
