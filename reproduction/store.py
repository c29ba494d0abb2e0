"""Results on disk: one Parquet file a cell, which is there whole or not at all, and says where it comes from."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pgbb.errors import PgbbError
from reproduction.study import Outcome, Row, Settings

__all__ = ["identity", "load", "load_all", "mismatch", "path_of", "save"]

KEY = b"pgbb-study"
FIXED = ("study", "settings", "fingerprint", "versions")
"""What must agree before rows may be added to a file."""
COMPUTE = ("numpy", "scipy", "jax")
"""Libraries whose versions must agree; the code of pgbb has its fingerprint."""


def path_of(out: Path, study: str, cell: str) -> Path:
    """The file of a cell."""
    return out / study / f"{cell}.parquet"


def identity(study: str, settings: Settings, fingerprint: str, versions: dict[str, str]) -> dict[str, Any]:
    """What a result depends on, besides its seed."""
    plain: Settings = json.loads(json.dumps(settings))
    return {"study": study, "settings": plain, "fingerprint": fingerprint, "versions": versions}


def save(path: Path, rows: Sequence[Row] | pd.DataFrame, provenance: dict[str, Any]) -> None:
    """Write a cell beside its place and move it there: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: json.dumps(provenance).encode()})
    part = path.with_name(f".{path.stem}.{os.getpid()}.part")
    try:
        pq.write_table(table, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load(path: Path) -> Outcome:
    """A cell from its file."""
    try:
        table = pq.read_table(path)
        provenance = json.loads(table.schema.metadata[KEY])
        return Outcome(provenance["settings"], table.to_pandas(), provenance)
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):
        raise PgbbError(f"{path} holds no results of a study: it was not written by pgbb. Move it away.") from None


def load_all(out: Path, study: str) -> dict[str, Outcome]:
    """All cells of a study that are in the folder, by name."""
    return {path.stem: load(path) for path in sorted((out / study).glob("*.parquet"))}


def mismatch(found: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """Why rows of `found` and `wanted` must not be mixed; None where they may."""
    for name in FIXED:
        here, there = found.get(name), wanted.get(name)
        if name == "versions":
            here, there = ({k: (v or {}).get(k) for k in COMPUTE} for v in (here, there))
        if here == there:
            continue
        if name == "fingerprint":
            return f"other code (commit {str(found.get('commit'))[:12]})"
        assert isinstance(here, dict | None) and isinstance(there, dict)
        changed = [k for k in {**there, **(here or {})} if (here or {}).get(k) != there.get(k)]
        return f"other {name}: " + ", ".join(
            f"{k} = {(here or {}).get(k)!r}, now {there.get(k)!r}" for k in sorted(changed)
        )
    return None
