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
from reproduction.constants import RENAMED
from reproduction.study import Outcome, Row, Settings

__all__ = ["identity", "load", "load_all", "merge", "mismatch", "path_of", "save", "stale"]

KEY = b"pgbb-study"
COMPUTE = ("numpy", "scipy", "jax")
"""Libraries whose versions must agree before rows may be added to a file."""


def path_of(out: Path, study: str, cell: str) -> Path:
    """The file of a cell."""
    return out / study / f"{cell}.parquet"


def identity(study: str, settings: Settings, revision: dict[str, int], versions: dict[str, str]) -> dict[str, Any]:
    """What a result depends on, besides its seed."""
    plain: Settings = json.loads(json.dumps(settings))
    return {"study": study, "settings": plain, "revision": revision, "versions": versions}


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
        settings = provenance["settings"]
        if settings.get("method") in RENAMED:
            settings["method"] = RENAMED[settings["method"]]
        return Outcome(settings, table.to_pandas(), provenance)
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):
        raise PgbbError(f"{path} holds no results of a study: it was not written by pgbb. Move it away.") from None


def load_all(out: Path, study: str) -> dict[str, Outcome]:
    """All cells of a study that are in the folder, by name."""
    return {path.stem: load(path) for path in sorted((out / study).glob("*.parquet"))}


def merge(path: Path, into: Path) -> str:
    """Add the replicates of a file that another one of the same cell lacks, and say what was done.

    A file that must not be mixed with the other one (`mismatch`) is left alone.
    """
    new = load(path)
    if not into.exists():
        save(into, new.rows, new.provenance)
        return f"{new.rows['replicate'].nunique()} replicates, a cell that was not there"
    old = load(into)
    why = mismatch(new.provenance, old.provenance)
    if why is not None:
        return f"left alone, {why}"
    more = new.rows[~new.rows["replicate"].isin(old.rows["replicate"])]
    if len(more):
        known = old.provenance["runs"]
        runs = known + [run for run in new.provenance["runs"] if run not in known]
        rows = pd.concat([old.rows, more], ignore_index=True).sort_values("replicate", kind="stable", ignore_index=True)
        save(into, rows, old.provenance | {"runs": runs})
    return f"{more['replicate'].nunique()} replicates more"


def stale(found: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """Why a result is not what a run would give: its settings differ, or a revision does; None where neither does.

    A file that names no revision is of the first.
    """
    first = dict.fromkeys(wanted["revision"], 1)
    return _differ("settings", found.get("settings") or {}, wanted["settings"]) or _differ(
        "revision", found.get("revision", first), wanted["revision"]
    )


def mismatch(found: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """Why rows of `found` and `wanted` must not be in one file: `stale`, or other libraries; None where they may."""
    here, there = ({k: (about.get("versions") or {}).get(k) for k in COMPUTE} for about in (found, wanted))
    return stale(found, wanted) or _differ("versions", here, there)


def _differ(what: str, here: dict[str, Any], there: dict[str, Any]) -> str | None:
    changed = sorted(k for k in {**there, **here} if here.get(k) != there.get(k))
    if not changed:
        return None
    return f"other {what}: " + ", ".join(f"{k} = {here.get(k)!r}, now {there.get(k)!r}" for k in changed)
