"""The files of a data set that is a folder."""

from pathlib import Path

__all__ = ["parquet_files"]


def parquet_files(folder: Path) -> list[Path]:
    """The .parquet files in a folder, by name: the order in which their records are numbered."""
    return sorted(file for file in folder.iterdir() if file.suffix.lower() == ".parquet" and file.is_file())
