"""`pgbb init`: a schema template from the header of a data file: names and stored types, and no value of a record.

The first line of a CSV file is its header, by agreement alone: a line that has the marks of a record is refused,
and of any other the template says what it was made of.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pgbb._io import parquet_files, write_whole
from pgbb.cli import options as o
from pgbb.cli.output import Json, written
from pgbb.errors import InvalidValue
from pgbb.model.schema import toml_key
from pgbb.private.door import File
from pgbb.private.door import header as stored_header

Types = dict[str, str]  # column -> "number", "flag", "text" or "", which is unknown

HEAD = """\
# Schema of {data}, made by pgbb init from {source}. Every line needs an answer.
#
# Fill each blank from public knowledge: a codebook, a questionnaire, the law, common sense. Never from the records,
# because what you write here is published with the result and is outside the privacy guarantee. Do not look at the
# smallest and largest value in the file: choose bounds that would be right for any data of this kind.
#
#   educ   = {{ range = [0, 20] }}                   a number; values outside are clamped. Narrower is more precise.
#   weeks  = {{ range = [0, 52], step = 1 }}         a number that is counted, or rounded to the step
#   union  = "flag"                                0 and 1, or false and true
#   member = {{ flag = ["no", "yes"] }}              two words, that for 0 first
#   region = {{ levels = ["north", "south"] }}       categories; the first is the base. missing = "unknown"
#                                                  beside it makes a level of empty cells
#   born   = {{ date = ["1950-01-01", "2000-12-31"] }}   days between two days; enters a formula in years
#
# Inside braces, label = "weekly wage" and unit = "$" are for the readers of pages and figures.
#
# Delete the lines of columns that no formula will use. The file is refused until no blank is left.

[columns]
"""
HEADER = "its header and declared types. No value was read"
FIRST_LINE = """\
its first line, which must be a header of column names. No other line
# was read. If the names below are the cells of a record, delete this file, and give the data a header first"""
BLANKS = {"number": "{ range = [] }", "flag": '"flag"', "text": "{ levels = [] }", "": '""'}
HINTS = {
    "number": 'write [lowest, highest] that is possible; "flag" if only 0 and 1; { levels = [1, 2] } if it is a code',
    "flag": "stored as true and false: nothing to fill in",
    "text": 'write all categories that can occur, the base first, such as ["north", "south"]',
    "": 'write { range = [0, 20] }, "flag", { levels = ["base", "other"] } or { date = ["2000-01-01", "2020-12-31"] }',
}


@o.with_options
def init_command(
    source: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="Template to write (.toml); never replaces a file.")] = Path(
        "schema.toml"
    ),
    as_json: Json = False,
) -> None:
    """Write a schema template with a line for each column, to be filled in from public knowledge.

    It reads column names and the types that the file declares, and no value: of a .csv file, the names alone.
    Example: pgbb init survey.csv --out survey.toml
    """

    if out.suffix.lower() != ".toml":
        raise InvalidValue(f"--out = {str(out)!r} is not allowed: it must be a file name that ends in .toml.")
    if out.exists():
        raise InvalidValue(
            f"--out = {str(out)!r} exists, and may hold declarations that somebody wrote. Choose another name, or "
            "move it away."
        )
    types = header(source)
    write_whole(out, template(source.where.name, types).encode("utf-8"))
    blanks = sum(kind != "flag" for kind in types.values())
    text = f"{len(types)} columns, {blanks} blanks to fill: {out}"
    if not any(types.values()):
        text += "\nThe names are the first line of the file: if that is a record, and no header, delete the template."
    written(out, text, as_json=as_json, columns=list(types), blanks=blanks)


def header(file: File) -> Types:
    """The columns of a data file with their stored types; an error where names are missing, repeated or not names."""
    columns = stored_header(file)
    index = _index(file.where)
    return _checked(file.where, [(name, kind) for name, kind in columns if name not in index])


def _checked(path: Path, columns: list[tuple[str | None, str]]) -> Types:
    """The columns, if every one has a name of its own. Messages give places, not texts that may be values."""
    names = [name or "" for name, _ in columns]
    if not names:
        raise InvalidValue(f"data file {str(path)!r} has no columns.")
    faults: dict[str, Callable[[str], bool]] = {
        "without a name. Give every column a name in the first line; a name left blank is often a row number, which "
        "should be left out.": lambda name: not name.strip(),
        "named by a number, a date, a truth value or a mark for what is missing: the first line seems to be a record, "
        "not a header. Put a line of column names first.": _is_value,
        "with spaces at the ends of the name.": lambda name: name != name.strip(),
        "with the name of another. Rename one: a schema, and a formula, must know which is meant.": (
            lambda name: names.count(name) > 1
        ),
    }
    for said, found in faults.items():
        at = [i for i, name in enumerate(names, 1) if found(name)]
        if at:
            shown = ", ".join(map(str, at[:5])) + (", …" if len(at) > 5 else "")
            raise InvalidValue(f"data file {str(path)!r} has column{'' if len(at) == 1 else 's'} {shown} {said}")
    return {name: kind for name, (_, kind) in zip(names, columns, strict=True)}


def template(name: str, types: Types) -> str:
    """The text of the template: a blank and a hint for each column.

    >>> print(template("d.csv", {"educ": "number"}).splitlines()[-1])
    educ = { range = [] }  # write [lowest, highest] that is possible; "flag" if only 0 and 1; { levels = [1, 2] } ...
    """
    source = HEADER if any(types.values()) else FIRST_LINE
    lines = [f"{toml_key(column)} = {BLANKS[kind]}  # {HINTS[kind]}" for column, kind in types.items()]
    return HEAD.format(data=json.dumps(name, ensure_ascii=False), source=source) + "\n".join(lines) + "\n"


_VALUE = re.compile(r"[\d\s.,:;/%€$£+'()-]*\d[\d\s.,:;/%€$£+'()TZ-]*", re.ASCII)  # numbers, dates, times, prices
_WORDS = {"true", "True", "TRUE", "false", "False", "FALSE", "yes", "Yes", "NA", "N/A", "NaN", "nan", "null", "NULL"}
_WORDS |= {"None", "<NA>", "?", "-", "."}


def _is_value(text: str) -> bool:
    """Whether the text is a number, date or truth value, or stands for a missing one: no name of a column."""
    try:
        float(text)
    except ValueError:
        return text.strip() in _WORDS or _VALUE.fullmatch(text.strip()) is not None
    return True


def _index(path: Path) -> set[object]:
    """Columns of a Parquet file in which pandas keeps an index: they are no columns of the frame."""
    path = next(iter(parquet_files(path)), path) if path.is_dir() else path
    if path.suffix.lower() != ".parquet":
        return set()
    from pyarrow.parquet import read_schema

    columns = (read_schema(path).pandas_metadata or {}).get("index_columns", [])
    return {name for name in columns if isinstance(name, str)}
