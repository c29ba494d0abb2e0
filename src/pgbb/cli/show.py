"""`pgbb show`, `sample`, `export` and `verify`: what a reader does with a release. None of them opens data."""

import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pgbb import _validate
from pgbb._io import write_whole
from pgbb.cli import options as o
from pgbb.cli.output import Json, print_json, written
from pgbb.cli.tables import fitting, grouped, number, plain_table
from pgbb.errors import PgbbWarning
from pgbb.release.file import Release, load

if TYPE_CHECKING:
    import pandas as pd

File = Annotated[Path, typer.Argument(help="A release file, such as schooling.pgbb.")]
Draws = Annotated[int, typer.Option("--draws", "-m", help="Number of draws.")]
Seed = Annotated[int | None, typer.Option(help="For reproducible draws; no bearing on privacy.")]
Row: TypeAlias = dict[str, Any]  # a coefficient at one level: its name, the level, and the columns of the summary
FORMATS = (".csv", ".parquet", ".json")
ROOM = (5, 4)  # characters of a number beside its digits, such as "0.000"; one that needs more loses digits


def show_command(
    file: File,
    tau: o.Tau = None,
    level: o.Level = 0.95,
    tests: Annotated[bool, typer.Option("--tests", help="std err, z and P>|z| instead of the parts of sd.")] = False,
    as_json: Json = False,
) -> None:
    """Print coefficients with intervals, in original units, and what is claimed about privacy.

    Where the release knows it, also the parts of sd that sampling and privacy noise make.
    Example: pgbb show schooling.pgbb --tau .5
    """
    show_release(load(file), tau, level, tests=tests, as_json=as_json)


def show_release(
    release: Release,
    tau: str | None = None,
    level: float = 0.95,
    *,
    tests: bool = False,
    as_json: bool = False,
    **more: object,
) -> None:
    """Print a release; `more` joins the JSON object."""
    _validate.level(level)
    levels = shown_levels(release, tau)
    rows = _rows(release, levels, level)
    diagnostics = release.diagnostics()
    if as_json:
        report = {
            "model": release.model.to_dict(),
            "method": release.method,
            "certificate": release.certificate.to_dict(),
            "private": release.certificate.private,
            "level": level,
            "summary": rows,
            "diagnostics": diagnostics.to_dict(),
            **more,
        }
        print_json(report)
        return
    console = Console(highlight=False)
    certificate = release.certificate
    console.print(release.title, style="bold", markup=False)
    console.print(f"by {release.method_words}", markup=False)
    console.print(certificate.headline(), style=None if certificate.private else "bold red", markup=False)
    console.print(
        f"σ = {certificate.sigma:.5g} by accountant '{certificate.accountant}'; randomness: {certificate.randomness}\n",
        markup=False,
    )
    console.print(fitting(console, _tables(rows, release.model.index_name, level, tests)))
    if not all(row.get("identified", True) for row in rows):
        console.print("* not identified at this ε: the interval says little more than was known before", markup=False)
    for remark in diagnostics.remarks:
        console.print(f"\nnote: {remark}", markup=False)


def sample_command(
    file: File,
    m: Draws = 2000,
    tau: o.Tau = None,
    out: Annotated[Path | None, typer.Option(help="A .csv, .parquet or .json file; without it CSV is printed.")] = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Draw from the posterior, as often as you like: draws cost no privacy.

    Several levels give joint draws, in columns such as educ[0.9].
    Example: pgbb sample schooling.pgbb -m 2000 --tau .1,.9 --out draws.csv
    """
    if out is not None and out.suffix.lower() not in FORMATS:
        raise _validate.fail("--out", str(out), "a file that ends in .csv, .parquet or .json")
    release = load(file)
    levels = None if tau is None else o.numbers("--tau", tau)
    frame = release.sample(m, tau=levels, seed=seed)
    if frame.columns.nlevels > 1:
        frame.columns = [f"{name}[{at:g}]" for at, name in frame.columns]
    if out is not None:
        write_whole(out, _written(out.suffix.lower(), frame, release, levels))
        written(out, f"{len(frame):,} draws written to {out}", as_json=as_json, draws=len(frame))
    elif as_json:
        print_json(_plain(frame, release, levels))
    else:
        typer.echo(frame.to_csv(index=False), nl=False)


def export_command(
    file: File,
    kind: Annotated[str, typer.Option("--format", "-f", help="csv, parquet or json.")] = "csv",
    m: Draws = 2000,
    tau: o.Tau = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default beside the release.")] = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Write draws for other software, as `pgbb sample --out` does; for an interval of levels, at five by default.

    JSON also holds model and certificate: {model, certificate, private, index, levels, names, draws: {column: […]}}.
    Example: pgbb export schooling.pgbb --format parquet --draws 4000 --tau .1,.9
    """
    _validate.one_of("--format", kind, tuple(suffix[1:] for suffix in FORMATS))
    target = file.with_suffix(f".{kind}") if out is None else out
    if target.suffix.lower() != f".{kind}":
        raise _validate.fail("--out", str(target), f"a file that ends in .{kind}, as --format says")
    release = load(file)
    if tau is None and release.model.index is not None:
        tau = ",".join(map(repr, release.grid(5)))
    sample_command(file, m, tau, target, seed, as_json)


def _written(kind: str, frame: "pd.DataFrame", release: Release, levels: list[float] | None) -> bytes:
    """The draws in one of `FORMATS`."""
    if kind == ".parquet":
        return bytes(frame.to_parquet(index=False))
    if kind == ".csv":
        return str(frame.to_csv(index=False)).encode("utf-8")
    return json.dumps(_plain(frame, release, levels), ensure_ascii=False, allow_nan=False).encode("utf-8")


def _plain(frame: "pd.DataFrame", release: Release, levels: list[float] | None) -> dict[str, object]:
    if levels is None and release.model.index is not None:
        levels = list(release.grid())
    return {
        "model": release.model.to_dict(),
        "certificate": release.certificate.to_dict(),
        "private": release.certificate.private,
        "index": release.model.index_name,
        "levels": levels,
        "names": list(release.model.names),
        "draws": {name: column.tolist() for name, column in frame.items()},
    }


def verify_command(
    file: File,
    signer: Annotated[str | None, typer.Option(help="Fingerprint that the signature must have.")] = None,
    as_json: Json = False,
) -> None:
    """Recompute ε from the certificate, and check hashes and signature; exit code 1 if anything fails.

    Example: pgbb verify schooling.pgbb
    """
    result = load(file).verify(signer)
    if as_json:
        print_json(result.to_dict())
    else:
        console = Console(highlight=False)
        for line in result.lines:
            console.print(line, markup=False, style="bold" if line == result.lines[-1] else None)
    if not result.ok:
        raise typer.Exit(1)


def shown_levels(release: Release, tau: str | None) -> list[float] | None:
    """The levels of --tau; without it those of the release, five of an interval, None for a model without an index."""
    return list(release.grid(5)) or None if tau is None else o.numbers("--tau", tau)


def _rows(release: Release, levels: list[float] | None, level: float) -> list[Row]:
    with warnings.catch_warnings():  # what is not identified is marked in its row, and noted below the table
        warnings.simplefilter("ignore", PgbbWarning)
        table = release.summary(levels, level)
    if levels is not None and len(levels) > 1:
        keys: list[tuple[float | None, str]] = list(table.index)
    else:
        keys = [(levels[0] if levels else None, name) for name in table.index]
    index = release.model.index_name
    rows = []
    for (at, name), values in zip(keys, table.to_dict("records"), strict=True):
        z = values["mean"] / values["sd"] if values["sd"] > 0 else None
        test = {"z": z, "pvalue": None if z is None else math.erfc(abs(z) / math.sqrt(2))}
        plain = {key: None if value != value else value for key, value in values.items()}  # no part of an sd
        rows.append({**({} if index is None else {index: at}), "name": name, **plain, **test})
    return rows


def _tables(rows: list[Row], index: str | None, level: float, tests: bool = False) -> Iterator[Table]:
    """Versions of the table, the fullest first: with both parts of sd, with that of privacy, with neither.

    Which of them fits depends on names and levels, not on numbers: those of the next fit come in the same columns.
    """
    parts = {"sampling": "sampling_sd", "privacy": "privacy_sd"} if "sampling_sd" in rows[0] else {}
    if tests:
        parts = {"z": "z", "P>|z|": "pvalue"}
    while True:
        for room in ROOM:
            yield _table(rows, index, level, parts, room)
        if not parts:
            return
        parts = dict(list(parts.items())[1:])


def _table(rows: list[Row], index: str | None, level: float, parts: dict[str, str], room: int) -> Table:
    mean, sd = ("coef", "std err") if "z" in parts else ("mean", "sd")
    numbers = {mean: "mean", sd: "sd", f"{level:.4g} lower": "lower", "upper": "upper", **parts}
    widths = {key: max(len(head), _digits(key) + room) for head, key in numbers.items()}

    def cells(row: Row) -> Iterator[str]:
        known = row.get("identified", True)
        yield escape(row["name"]) + (("  " if known else " *") if "identified" in row else "")
        for key, width in widths.items():
            told = row[key] is not None and (known or key not in parts.values())
            yield number(row[key], _digits(key), width) if told else "–"

    labels = ["coefficient"] if index is None else [index, "coefficient"]
    lines = grouped(([] if index is None else [f"{row[index]:g}"], list(cells(row))) for row in rows)
    table = plain_table([*labels, *numbers], labels, lines, no_wrap=True)
    for column, width in zip(table.columns[len(labels) :], widths.values(), strict=True):
        column.min_width = width
    return table


def _digits(key: str) -> int:
    return 3 if key.endswith("sd") or key in ("z", "pvalue") else 4
