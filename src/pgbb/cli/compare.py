"""`pgbb compare`: several methods on one problem, one budget each, one table, and what all of them cost together."""

import sys
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pgbb import _validate
from pgbb.accountant.calibrate import Accountant
from pgbb.cli import options as o
from pgbb.cli.output import Json, print_json
from pgbb.cli.tables import fitting, grouped, plain_table
from pgbb.errors import InvalidValue
from pgbb.methods.registry import METHODS, OLDER_NAMES, MethodName
from pgbb.model.models import Model
from pgbb.model.schema import Schema
from pgbb.private.door import File
from pgbb.reference.comparison import Comparison, compare

VERSIONS = ((True, 5), (False, 5), (False, 4), (False, 3))  # with the width of intervals, and so many digits
NOT_PRIVATE = "NOT PRIVATE: the reference is computed from the records without any noise. Do not publish or share it."


@o.with_options
def compare_command(
    source: File,
    schema: o.SchemaFile,
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy level ε of each method.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="Failure probability δ of each, well below 1/n.")],
    model: Model,
    methods: Annotated[
        str | None,
        typer.Option(help=f"Of {o.method_names('and')}, between commas; default all that serve.", show_default=False),
    ] = None,
    weights: o.Weights = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A constant of a method, such as sgld.steps=2000; may be given several times."),
    ] = None,
    tau: Annotated[str | None, typer.Option(help="Levels to tabulate; default all, or five of an interval.")] = None,
    level: o.Level = 0.95,
    accountant: o.AccountantName = "exact",
    group_size: o.GroupSize = 1,
    allow_weak_delta: o.WeakDelta = False,
    reference: Annotated[bool, typer.Option("--reference", help="Also an exact fit, which is NOT private.")] = False,
    insecure_seed: o.InsecureSeed = None,
    not_private: Annotated[
        bool, typer.Option("--i-know-this-is-not-private", help="Required with --reference and with --insecure-seed.")
    ] = False,
    save: Annotated[Path | None, typer.Option(help="Folder for the release files, METHOD.pgbb.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the intervals here: .png, .pdf or .svg.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace release files that exist.")] = False,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Run several methods, each under (ε, δ), and print their intervals side by side.

    Each method spends its own budget: the last lines say what all of them cost together.
    Example: pgbb compare census.parquet -s census.toml -f "logwk ~ educ" --family huber -e 1 -d 1e-6 --plot both.png
    """
    o.check_seed(insecure_seed, not_private)
    if reference and not not_private:
        raise InvalidValue(
            "--reference fits the records without any noise, and its output is not private. Leave it out; or, where "
            "the table stays inside, add --i-know-this-is-not-private."
        )
    names = None if methods is None else [part.strip() for part in methods.split(",") if part.strip()]
    if save is not None:
        _check_folder(save, [OLDER_NAMES.get(name, name) for name in names or METHODS], force)
    if plot is not None:
        from pgbb.report import plots

        plots.check_target(plot)
    declared, constants = Schema.from_toml(schema), o.constants_of(settings or [])
    try:
        with o.method_bars(quiet=quiet or as_json) as progress:
            found = compare(
                model, source, schema=declared, epsilon=epsilon, delta=delta, settings=constants,
                methods=cast(list[MethodName] | None, names), accountant=cast(Accountant, accountant),
                level=level, tau=None if tau is None else o.numbers("--tau", tau),
                weights=weights, group_size=group_size, insecure_seed=insecure_seed,
                non_private_reference=reference, progress=progress, allow_weak_delta=allow_weak_delta,
            )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo(
            "stopped. Nothing was written. Answers were given but not released: if nobody saw them, nothing was spent.",
            err=True,
        )
        sys.exit(130)
    files: list[Path] = []
    if save is not None:
        save.mkdir(exist_ok=True)
        files = [release.save(save / f"{name}.pgbb") for name, release in found.releases.items()]
    if plot is not None:
        files.append(plots.save(plots.method_intervals(found), plot))
    if as_json:
        print_json({**found.to_dict(), "files": [str(f) for f in files]})
        return
    _show(found, Console(highlight=False))
    for file in files:
        typer.echo(f"written to {file}")


def _check_folder(folder: Path, names: list[str], force: bool) -> None:
    """Find out before any budget is spent whether the releases can be written."""
    if folder.exists() and not folder.is_dir():
        raise _validate.fail("--save", str(folder), "a folder")
    if not folder.parent.is_dir():
        raise InvalidValue(f"--save = {str(folder)!r} is not allowed: its parent does not exist. Make it first.")
    there = [f"{name}.pgbb" for name in names if (folder / f"{name}.pgbb").exists()]
    if there and not force:
        raise InvalidValue(
            f"--save = {str(folder)!r} holds {', '.join(there)}. Choose another folder, or pass --force to replace."
        )


def _show(found: Comparison, console: Console) -> None:
    first = found.outcomes[0].release
    console.print(first.title, style="bold", markup=False)
    if found.reference is not None:
        console.print(NOT_PRIVATE, style="bold red", soft_wrap=True)
    console.print()
    print_table(found, console)
    console.print()
    for outcome in found.outcomes:
        certificate = outcome.release.certificate
        console.print(f"[bold]{escape(outcome.method)}[/bold]")
        lines = [f"assumes: {outcome.assumes}", f"draws: {METHODS[outcome.method].draws}", *certificate.notes]
        for line in (certificate.headline(), *lines):
            console.print(f"  {line}", markup=False, soft_wrap=True)
    for method, reason in found.skipped.items():
        console.print(f"{method} was left out: {reason}", markup=False, soft_wrap=True)
    for method, reason in found.failed.items():
        console.print(f"{method} failed after its answers, which count: {reason}", markup=False, soft_wrap=True)
    console.print()
    console.print(_cost(found), markup=False, soft_wrap=True, style=None if found.cost.private else "bold red")


def print_table(found: Comparison, console: Console | None = None) -> None:
    """The intervals side by side, and what a mark means."""
    console = console or Console(highlight=False)
    console.print(fitting(console, (_table(found, width, digits) for width, digits in VERSIONS)))
    if not all(row["identified"] for row in found.rows()):
        console.print("* not identified at this ε: the interval says little more than was known before", markup=False)


def _cost(found: Comparison) -> str:
    cost, count = found.cost, len(found.outcomes) + len(found.failed)
    line = "It costs" if count == 1 else f"All {count} together cost"
    line += f" ε = {cost.epsilon:.4g}, δ = {cost.delta:.3g} by basic composition"
    if cost.tighter is not None and cost.tighter < cost.epsilon:
        part = "" if len(cost.composed) == count else f" ({', '.join(cost.composed)} composed, the rest added)"
        line += f"; ε = {cost.tighter:.4g} at the same δ by exact composition{part}"
    line += ". Choosing a method by this table spends all of it."
    return line if cost.private else f"NOT PRIVATE: insecure seed. Nominal: {line}"


def _table(found: Comparison, width: bool, digits: int) -> Table:
    index = [] if found.index_name is None else [found.index_name]
    text, numbers = [*index, "coefficient", "method"], ["estimate", "lower", "upper", *(["width"] if width else [])]
    heads = [*text, "estimate", f"{found.level:.4g} lower", *numbers[2:]]
    if found.reference is not None:
        heads.append("exact\n(NOT\nPRIVATE)")
    exact = dict(found.reference or {})
    lines = []
    for row in found.rows():
        cells = [row["method"] + ("" if row["identified"] else " *"), *(f"{row[key]:.{digits}g}" for key in numbers)]
        if found.reference is not None:  # said once, beside the first method
            value = exact.pop((row.get(found.index_name or ""), row["coefficient"]), None)
            cells.append("" if value is None else f"{value:.{digits}g}")
        lines.append(([f"{row[name]:g}" for name in index] + [escape(row["coefficient"])], cells))
    return plain_table(heads, text, grouped(lines), no_wrap=True)
