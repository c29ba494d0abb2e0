"""A query of a DuckDB database: columns of one table or view, row by row, so that a record stays a record.

The file is opened to be read and cannot lead to another. Types are those of the table. A condition
decides who is a record, and so n: it may rest on public columns alone, which is the word of who writes it.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from pgbb.errors import InvalidValue, PgbbError, PgbbNote
from pgbb.private.files import File
from pgbb.private.open_table import Opened, quietly

_CLASSES = {"COLUMN_REF", "STAR", "CONSTANT", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN"}
_ROW_BY_ROW = (
    "Write SELECT columns FROM one table or view, with or without WHERE: no join, group, order, limit, function or "
    "second statement, because a record must stay a record. For anything else make a view: its rows are the records."
)


def open_query(file: File, arrow: Callable[[object], Opened]) -> Opened:
    """The rows that the query gives, through Arrow."""
    try:
        import duckdb
    except ImportError:
        raise PgbbError("databases are read by duckdb: pip install 'pgbb[files]'.") from None
    path, sql = file.where, str(file.sql)
    config: dict[str, str | bool | int | float | list[str]] = {"enable_external_access": False}
    with quietly(path, lambda: duckdb.connect(str(path), read_only=True, config=config)) as base:
        text = base.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0]
        if _has_condition(json.loads(text)):
            warnings.warn(
                "WHERE decides who is a record, and their number is published: it may rest on public columns alone.",
                PgbbNote,
                stacklevel=2,
            )
        try:
            base.execute(f"EXPLAIN {sql}").fetchall()
        except duckdb.Error as error:  # names of tables and columns; no record was read
            raise InvalidValue(f"sql = {sql!r} is not allowed: {str(error).splitlines()[0]}") from None
        return quietly(path, lambda: arrow(base.sql(sql)))


def _has_condition(parsed: Any) -> bool:
    """Whether a query that is read row by row has one; an error for any other query."""
    if parsed["error"] or not parsed["statements"]:
        raise InvalidValue(f"sql is not a SELECT statement that can be read. {_ROW_BY_ROW} Nothing was run.")
    node = parsed["statements"][0]["node"]
    empty = ("modifiers", "group_expressions", "group_sets", "having", "qualify", "sample")
    source = node.get("from_table") or {}
    plain = (
        len(parsed["statements"]) == 1
        and node["type"] == "SELECT_NODE"
        and not any(node.get(key) for key in empty)
        and not node.get("cte_map", {}).get("map")
        and source.get("type") == "BASE_TABLE"
        and not source.get("sample")
        and all(item["class"] in ("COLUMN_REF", "STAR") for item in node["select_list"])
        and set(_classes([node["select_list"], node["where_clause"]])) <= _CLASSES
    )
    if not plain:
        raise InvalidValue(f"sql is not read row by row. {_ROW_BY_ROW} Nothing was run.")
    return node["where_clause"] is not None


def _classes(part: Any) -> Iterator[str]:
    """The classes of all expressions within."""
    if isinstance(part, dict):
        if isinstance(part.get("class"), str):
            yield part["class"]
        yield from _classes(list(part.values()))
    elif isinstance(part, list):
        for item in part:
            yield from _classes(item)
