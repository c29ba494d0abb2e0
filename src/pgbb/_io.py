"""The files of a data set that is a folder, and opening one."""

from pathlib import Path
from typing import Any

__all__ = ["parquet_file", "parquet_files"]

_BUFFER = 2**16  # bytes of a column that are read ahead


def parquet_file(path: Path) -> Any:
    """An open Parquet file of which no more than is decoded is in memory."""
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)


def parquet_files(folder: Path) -> list[Path]:
    """The .parquet files in a folder, by name: the order in which their records are numbered."""
    return sorted(file for file in folder.iterdir() if file.suffix.lower() == ".parquet" and file.is_file())
