"""Runs the cells of a study that are not there yet, and puts each into its file; nothing here knows any study."""

import multiprocessing
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from pgbb import _validate
from pgbb.errors import InvalidValue, PgbbWarning
from reproduction import provenance, store
from reproduction.registry import get
from reproduction.study import Cells, Row, Settings, Study

__all__ = ["Progress", "folder", "run", "stale"]

BATCH_SECONDS = 20.0
"""A cell in progress is written at least this often."""

SIDE_BY_SIDE = 100
"""Replicates of a process that share a GPU."""

CHUNK = 10
"""Replicates that a process of several takes at a time on a CPU."""

Progress = Callable[[str, int, int], None]
"""Called with (cell, replicates done, replicates) over all cells of the run."""


@dataclass(frozen=True)
class _Task:
    study: str
    cell: str
    settings: Settings
    seeds: tuple[int, ...]


def folder(out: Path, quick: bool) -> Path:
    """Where results lie; those of the short version in a folder of their own."""
    return out / "quick" if quick else out


def _chosen(study: Study, pattern: str | None, quick: bool) -> Cells:
    cells = study.quick.cells() if quick else study.cells()
    if pattern is None:
        return cells
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise _validate.fail("--cells", pattern, f"a regular expression ({error})") from None
    found = {name: settings for name, settings in cells.items() if wanted.search(name)}
    if not found:
        raise _validate.fail("--cells", pattern, "a regular expression that some cell matches", _listing(cells))
    return found


def _listing(cells: Cells) -> str:
    names = list(cells)
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"Cells: {', '.join(names[:8])}{more}."


def stale(study: Study, cells: Cells, root: Path) -> dict[str, str]:
    """Cells whose file must not be added to, and why."""
    found: dict[str, str] = {}
    installed = provenance.versions()
    for name, settings in cells.items():
        path = store.path_of(root, study.name, name)
        if path.exists():
            wanted = store.identity(study.name, settings, provenance.revision(study, settings), installed)
            why = store.mismatch(store.load(path).provenance, wanted)
            if why is not None:
                found[name] = why
    return found


def run(
    name: str,
    *,
    replicates: int | None = None,
    cells: str | None = None,
    quick: bool = False,
    jobs: int = 1,
    out: str | Path = Path(__file__).parent / "results",
    fresh: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Run a study, or what is missing of it.

    Replicates that are in the folder and have the same settings, revisions and versions are kept; a file that differs
    in one of these is refused before anything runs, or replaced with `fresh`. A run that is stopped continues where it
    was.

    Args:
      name: of the study.
      replicates: number of seeds, from 0; None is the study's own number.
      cells: a regular expression; only cells whose name it finds.
      quick: the short version, in the folder "quick".
      jobs: processes.
      out: folder of results.
      fresh: replace files of other settings, revisions or versions instead of refusing.
      progress: see `Progress`.

    Returns:
      The files of the chosen cells.
    """
    study = get(name)
    if study.judges:
        raise InvalidValue(
            f"study = {name!r} has no cells of its own: it judges those of {' and '.join(study.judges)}. Run these."
        )
    root = folder(Path(out), quick)
    chosen = _chosen(study, cells, quick)
    default = study.quick.replicates if quick else study.replicates
    count = default if replicates is None else _validate.integer("--replicates", replicates, low=1)
    jobs = _validate.integer("--jobs", jobs, low=1)
    old = stale(study, chosen, root)
    if old and not fresh:
        lines = [f"{cell}: {why}" for cell, why in list(old.items())[:5]]
        raise InvalidValue(
            f"{root / name} holds results that must not be mixed with new ones, in {len(old)} of {len(chosen)} cells: "
            f"{'; '.join(lines)}. Pass --fresh to replace these cells, or another --out."
        )
    installed = provenance.versions()
    files = [store.path_of(root, name, cell) for cell in chosen]
    open_cells: dict[str, _Open] = {}
    for (cell, settings), path in zip(chosen.items(), files, strict=True):
        known = None if cell in old or not path.exists() else store.load(path)
        done = set() if known is None else set(known.rows["replicate"].tolist())
        seeds = range(1 if settings.get("once") else count)
        missing = tuple(seed for seed in seeds if seed not in done)
        if missing:
            about = store.identity(name, settings, provenance.revision(study, settings), installed)
            about |= {"cell": cell, "labels": list(study.labels), "quick": quick, "runs": []}
            if known is not None:
                about["runs"] = known.provenance["runs"]
            task = _Task(name, cell, about["settings"], missing)
            open_cells[cell] = _Open(path, about, None if known is None else known.rows, task)
    total = sum(len(c.task.seeds) for c in open_cells.values())
    finished = 0
    for cell, part in _batches([c.task for c in open_cells.values()], jobs):
        finished += len({row["replicate"] for row in part})
        open_cells[cell].add(part)
        if progress is not None:
            progress(cell, finished, total)
    return files


@dataclass
class _Open:
    """A cell that is being filled."""

    path: Path
    about: dict[str, Any]
    rows: pd.DataFrame | None
    task: _Task

    def add(self, part: list[Row]) -> None:
        """Store the rows so far with these, and add them to the history of the file."""
        new = pd.DataFrame(part)
        rows = new if self.rows is None else pd.concat([self.rows, new], ignore_index=True)
        self.rows = rows.sort_values("replicate", kind="stable", ignore_index=True)
        seconds = {int(row["replicate"]): float(row["seconds"]) for row in part}
        self.about["commit"] = provenance.commit()
        self.about["runs"].append(
            {
                "commit": self.about["commit"],
                "version": self.about["versions"]["pgbb"],
                "device": part[0]["device"],
                "seeds": sorted(seconds),
                "seconds": round(sum(seconds.values()), 3),
            }
        )
        store.save(self.path, self.rows, self.about)


def _batches(tasks: Sequence[_Task], jobs: int) -> Iterator[tuple[str, list[Row]]]:
    """(cell, rows of some replicates), a batch whenever it is worth writing."""
    if jobs == 1:
        for task in tasks:
            for rows in _serial(task):
                yield task.cell, rows
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # who share a GPU take what they need of its memory
    pieces = _pieces(tasks, provenance.device())
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(_whole, piece): piece.cell for piece in pieces}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _pieces(tasks: Sequence[_Task], place: str) -> list[_Task]:
    """What one process takes at a time: some replicates on a CPU, as many as run side by side on a GPU."""
    size = CHUNK if place == "cpu" else SIDE_BY_SIDE
    return [replace(t, seeds=t.seeds[i : i + size]) for t in tasks for i in range(0, len(t.seeds), size)]


def _whole(task: _Task) -> list[Row]:
    return [row for batch in _serial(task) for row in batch]


def _serial(task: _Task) -> Iterator[list[Row]]:
    """One replicate after another on a CPU, many side by side on a GPU; each has its share of the time."""
    study, place = get(task.study), provenance.device()
    step = 1 if place == "cpu" else SIDE_BY_SIDE
    waiting: list[Row] = []
    begin = time.perf_counter()
    for i in range(0, len(task.seeds), step):
        seeds, start = task.seeds[i : i + step], time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PgbbWarning)  # weak δ, unidentified coefficients: part of the design
            found = study.run(task.settings, seeds)
        seconds = (time.perf_counter() - start) / len(seeds)
        for seed, rows in zip(seeds, found, strict=True):
            waiting += [{"replicate": seed, **row, "seconds": seconds, "device": place} for row in rows]
        if time.perf_counter() - begin > BATCH_SECONDS:
            yield waiting
            waiting, begin = [], time.perf_counter()
    if waiting:
        yield waiting
