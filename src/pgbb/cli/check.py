"""`pgbb check`: what is missing or out of range in a data file. It reads the records, so its output is private."""

from typing import TYPE_CHECKING

import typer
from rich.console import Console

from pgbb.cli import options as o
from pgbb.cli.output import Json, print_json
from pgbb.cli.tables import plain_table
from pgbb.model.schema import Schema
from pgbb.private.door import File

if TYPE_CHECKING:
    from pgbb.private.door import Examined

NOTICE = (
    "PRIVATE: these counts are computed from the records without any noise. Do not publish or share them, "
    "and do not choose the schema's bounds by them."
)


@o.with_options
def check_command(source: File, schema: o.SchemaFile, as_json: Json = False) -> None:
    """Print what is missing, unreadable or outside its declaration, column by column. The output is PRIVATE.

    Exit code 0 even if some cells are bad, since a fit clamps values and skips unusable records; 1 if a fit would
    refuse the data, because there is no record or a declared column is missing or is not numeric, or if no cell of a
    column can be read: the exit code is then PRIVATE, too.

    Example: pgbb check survey.parquet --schema survey.toml
    """
    from pgbb.private.door import examine

    rows = examine(source, Schema.from_toml(schema))
    if as_json:
        columns = [{**row, "unreadable": _unreadable(row)} for row in rows]
        print_json({"private": True, "notice": NOTICE, "columns": columns})
    else:
        _show(rows, Console(highlight=False, markup=False))
    if any(row["problem"] or _unreadable(row) or not row["records"] for row in rows):
        raise typer.Exit(1)


def _unreadable(row: "Examined") -> bool:
    """Whether no cell of the column can be used as it is declared; a private fact."""
    lost = (row["missing"] or 0) + (0 if row["declared"].startswith(("Range", "Date")) else row["outside"] or 0)
    return 0 < row["records"] <= lost


def _show(rows: "list[Examined]", console: Console) -> None:
    console.print(NOTICE, style="bold red", soft_wrap=True)
    console.print()
    if rows:
        console.print(f"{rows[0]['records']:,} records")
    words = ("column", "declared", "dtype")
    cells = (
        [row["column"], row["declared"], row["dtype"] or "—"]
        + ["—" if count is None else f"{count:,}" for count in (row["missing"], row["outside"])]
        for row in rows
    )
    console.print(plain_table((*words, "missing or unreadable", "outside"), words, cells))
    console.print()
    for row in rows:
        if row["problem"]:
            console.print(f"{row['column']}: {row['problem']}; a fit that needs it would refuse.", soft_wrap=True)
        elif not row["records"]:
            console.print("There are no records; a fit would refuse. Check the path or the filter before it.")
            break
        elif _unreadable(row):
            console.print(
                f"{row['column']}: no cell can be read as {row['declared']}; a fit that needs it would spend its "
                "budget on nothing. Look at the marks of numbers (--decimal, --thousands, --currency), at how days are "
                "written (--dates), at --encoding, and at the declaration. (PRIVATE)",
                soft_wrap=True,
            )
    console.print(
        "In a fit, values outside a range are clamped; a record with a missing or unreadable cell, an undeclared level "
        "or a flag other than 0 and 1 stays in n and contributes nothing.",
        soft_wrap=True,
    )
