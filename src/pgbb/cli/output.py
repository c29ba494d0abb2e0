"""What commands print for programs: JSON objects, which output.schema.json beside this file describes."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead; see docs/json.md.")]


def print_json(report: Mapping[str, object]) -> None:
    """One JSON object on standard output; numbers are finite, text is readable."""
    typer.echo(json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False))


def written(path: Path, text: str, *, as_json: bool, **facts: object) -> None:
    """Say that a file was written: in words, or as {file, bytes, …}."""
    if as_json:
        print_json({"file": str(path), "bytes": path.stat().st_size, **facts})
    else:
        typer.echo(text)


def schema(command: str) -> dict[str, object]:
    """The JSON Schema of what `pgbb COMMAND --json` prints; "ledger show" is a command, too.

    >>> schema("verify")["$ref"]
    '#/$defs/verify'
    """
    text = (files("pgbb.cli") / "output.schema.json").read_text(encoding="utf-8")
    whole: dict[str, object] = json.loads(text, object_hook=_closed)
    return {**whole, "$ref": f"#/$defs/{command.replace(' ', '-')}"}


def _closed(part: dict[str, object]) -> dict[str, object]:
    """An object of the schema has all of its properties and no others, where nothing else is said."""
    known = part.get("properties")
    return {"required": list(known), "additionalProperties": False, **part} if isinstance(known, dict) else part
