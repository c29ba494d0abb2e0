"""`python -m reproduction`: the paper's experiments, regenerated and set beside its figures."""

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from pgbb import _validate
from pgbb.cli.output import Json, print_json
from pgbb.errors import InvalidValue

if TYPE_CHECKING:
    from reproduction.report.markdown import Section
    from reproduction.study import Study

app = typer.Typer(
    name="reproduction",
    help="The paper's experiments: list, run, report.\n\n    Example: python -m reproduction run budget",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the results.")]
DEVICES = ("cpu", "gpu")
RESULTS = Path(__file__).parent / "results"


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """The studies, with what they regenerate and how large they are.

    Example: python -m reproduction list
    """
    from reproduction.registry import every

    if as_json:
        print_json({"studies": [_described(study) for study in every()]})
        return
    table = Table(box=None, pad_edge=False)
    for head in ("study", "cells", "replicates", "in the paper", "what"):
        table.add_column(head, justify="right" if head in ("cells", "replicates") else "left", overflow="fold")
    for study in every():
        what = study.title + (f"; needs {', '.join(study.data)} in PGBB_DATA" if study.data else "")
        what += f"; from the cells of {' and '.join(study.judges)}" if study.judges else ""
        table.add_row(
            study.name, str(len(study.cells())), str(study.replicates), ", ".join(study.labels) or "–", escape(what)
        )
    Console(highlight=False).print(table)


@app.command("run")
def run_command(
    name: Annotated[str, typer.Argument(help="A study, as in `python -m reproduction list`.")],
    replicates: Annotated[int | None, typer.Option("--replicates", "-r", help="Seeds 0 … R−1; default all.")] = None,
    cells: Annotated[str | None, typer.Option(help="Only cells whose name this regular expression finds.")] = None,
    quick: Annotated[bool, typer.Option(help="The short version, kept apart in OUT/quick.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes; they share a GPU.")] = 1,
    device: Annotated[str | None, typer.Option(help="cpu or gpu; default what JAX finds.")] = None,
    out: Out = RESULTS,
    fresh: Annotated[bool, typer.Option(help="Replace results of other settings, revisions or versions.")] = False,
) -> None:
    """Run what is missing of a study; an interrupted run continues where it stopped.

    Example: python -m reproduction run linear --cells 'calibrated' --replicates 20
    """
    from reproduction.runner import run

    if device is not None:
        _use(_validate.one_of("--device", device, DEVICES))
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(), console=console, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task(name, total=None)

        def show(cell: str, done: int, total: int) -> None:
            bar.update(task, description=cell, completed=done, total=total)

        try:
            files = run(
                name, replicates=replicates, cells=cells, quick=quick, jobs=jobs, out=out, fresh=fresh, progress=show
            )
        except KeyboardInterrupt:
            typer.echo("stopped. What is written stays; run the same command to continue.", err=True)
            sys.exit(130)
    typer.echo(f"{len(files)} cells in {files[0].parent}")


@app.command("merge")
def merge_command(
    folder: Annotated[Path, typer.Argument(help="Results of a run elsewhere: FOLDER/STUDY/CELL.parquet.")],
    out: Out = RESULTS,
) -> None:
    """Add replicates that were run elsewhere; cells of other settings, revisions or versions are left alone.

    Example: python -m reproduction merge ../other/results
    """
    from reproduction import store

    files = sorted(folder.glob("*/*.parquet"))
    if not files:
        raise InvalidValue(f"FOLDER = {str(folder)!r} holds no results: it must have a folder a study.")
    for path in files:
        done = store.merge(path, store.path_of(out, path.parent.name, path.stem))
        typer.echo(f"{path.parent.name}/{path.stem}: {done}")


@app.command("report")
def report_command(
    out: Out = RESULTS,
    quick: Annotated[bool, typer.Option(help="Report the short versions instead.")] = False,
    page: Annotated[bool, typer.Option("--html/--no-html", help="Also write OUT/report.html, with figures.")] = True,
    short: Annotated[Path | None, typer.Option("--summary", help="Also write a page of verdicts here.")] = None,
    as_json: Json = False,
) -> None:
    """Set everything in the folder beside the printed figures, with verdicts: printed, and written to OUT/report.md.

    Example: python -m reproduction report --summary docs/reproduction.md
    """
    from reproduction import store
    from reproduction.report.markdown import markdown, sections, summary
    from reproduction.runner import folder

    root = folder(out, quick)
    found = sections(root)
    if not found:
        raise InvalidValue(
            f"--out = {str(out)!r} holds no results: run a study first, such as python -m reproduction run budget."
        )
    text = markdown(found)
    if not as_json:
        typer.echo(text)
    written = {root / "report.md": text}
    if short is not None:
        written[short] = summary(found)
    if page:
        from reproduction.report.page import page as make_page

        written[root / "report.html"] = make_page(found, lambda name: store.load_all(root, name))
    for target, content in written.items():
        target.write_text(content, encoding="utf-8")
        if not as_json:
            typer.echo(f"written to {target}", err=True)
    if as_json:
        print_json({"studies": [_judged(section) for section in found], "files": [str(f) for f in written]})


def _described(study: "Study") -> dict[str, Any]:
    return {
        "study": study.name,
        "title": study.title,
        "cells": len(study.cells()),
        "replicates": study.replicates,
        "labels": list(study.labels),
        "data": list(study.data),
    }


def _plain(value: Any) -> Any:
    """For JSON: numbers of numpy as Python's, and null for what is not finite."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _judged(section: "Section") -> dict[str, Any]:
    """A study of the report: how much of it is there, and each figure with its verdict; null where there is none."""
    lines = [(table, line) for table in section.tables for line in table.lines]
    return {
        **_described(section.study),
        "present": len(section.results),
        "old": section.old,
        "verdicts": dict(section.counts),
        "lines": [{"table": table.title} | {k: _plain(v) for k, v in vars(line).items()} for table, line in lines],
    }


def _use(device: str) -> None:
    """Bind JAX to a device before it is imported; child processes inherit it."""
    os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[device]
