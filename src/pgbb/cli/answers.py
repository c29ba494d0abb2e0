"""`pgbb wald`, `predict`, `difference` and `combine`: what is made of releases. None of them opens data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from pgbb import _validate
from pgbb.cli import options as o
from pgbb.cli.output import Json, print_json
from pgbb.cli.show import File, show_release, shown_levels
from pgbb.cli.tables import number, plain_table
from pgbb.release.file import combine, load
from pgbb.release.signing import private_key

if TYPE_CHECKING:
    import pandas as pd


def wald_command(
    file: File,
    hypotheses: Annotated[list[str], typer.Argument(help="Such as educ=0, educ@.9=.1 or educ@.9=educ@.1.")],
    tau: Annotated[float | None, typer.Option("--tau", "--index", help="Level of names without @.")] = None,
    level: o.Level = 0.95,
    as_json: Json = False,
) -> None:
    """Test several hypotheses about coefficients together, and print their joint region.

    A hypothesis says that a coefficient is a number, or that it is another coefficient; educ@.9 is that at level .9.
    Example: pgbb wald schooling.pgbb educ=0 exper=0 --tau .5
    """
    release = load(file)
    values: dict[Any, float] = {}
    sums: list[dict[Any, float]] = []
    for text in hypotheses:
        left, equals, right = text.rpartition("=")
        if not equals:
            raise _validate.fail("hypothesis", text, "of the form NAME=VALUE or NAME=NAME, such as educ=0")
        try:
            values[_coefficient(left)] = float(right)
        except ValueError:
            sums.append({_coefficient(left): 1.0, _coefficient(right): -1.0})
    if values and sums:
        raise _validate.fail("hypotheses", " ".join(hypotheses), "all with a number, or all with two coefficients")
    found = release.wald(values or sums, tau, level)
    if as_json:
        print_json(found.to_dict())
        return
    console = Console(highlight=False)
    console.print(f"χ²({found.df}) = {found.statistic:.4g}, P = {found.pvalue:.4g}", style="bold")
    console.print(f"lower and upper hold all of them together with probability {level:g}\n")
    _print(console, found.table, "coefficient")


def _coefficient(text: str) -> str | tuple[str, float]:
    name, at, level = text.strip().rpartition("@")
    try:
        return (name, float(level)) if at else text.strip()
    except ValueError:
        return text.strip()


def predict_command(
    file: File,
    at: Annotated[list[str] | None, typer.Argument(help="Covariates, such as educ=16 exper=20.")] = None,
    rows: Annotated[Path | None, typer.Option(help="A .csv file of covariates instead; public values.")] = None,
    kind: Annotated[str | None, typer.Option(help="mean or quantile (the fit), or response (a new one).")] = None,
    tau: o.Tau = None,
    level: o.Level = 0.95,
    as_json: Json = False,
) -> None:
    """Print the fit, or an interval of a new response, at covariates of your choice: public values, not records.

    Example: pgbb predict schooling.pgbb educ=16 exper=20 --kind response --level .8
    """
    import pandas as pd

    release = load(file)
    if bool(at) == (rows is not None):
        raise _validate.fail("covariates", at or "none", "given once: as NAME=VALUE, or as --rows FILE.csv")
    given: dict[str, Any] = {}
    for text in at or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise _validate.fail("covariate", text, "of the form NAME=VALUE, such as educ=16")
        given[name.strip()] = [o.number_or_text(value.strip())]
    if rows is not None and not rows.is_file():
        raise _validate.fail("--rows", str(rows), "a .csv file that exists")
    frame = pd.read_csv(rows) if rows is not None else pd.DataFrame(given)
    table = release.predict(frame, None if tau is None else o.numbers("--tau", tau), level, kind=kind)
    if as_json:
        print_json({"level": level, "kind": kind or "fit", "rows": _records(table, release.model.index_name, "row")})
        return
    _print(Console(highlight=False), table, "row")


def difference_command(
    file: File, other: File, tau: o.Tau = None, level: o.Level = 0.95, as_json: Json = False
) -> None:
    """Print the first release less the second, of the same model on other records: another year, another country.

    Example: pgbb difference schooling-2000.pgbb schooling-1980.pgbb --tau .5
    """
    release = load(file)
    table = release.compare(load(other), shown_levels(release, tau), level)
    if as_json:
        print_json({"level": level, "rows": _records(table, release.model.index_name, "name")})
        return
    _print(Console(highlight=False), table, "coefficient")


def combine_command(
    files: Annotated[list[Path], typer.Argument(help="Release files of custodians with disjoint records.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Release file to write.")],
    key: o.Key = None,
    as_json: Json = False,
) -> None:
    """Pool releases of one model by custodians of disjoint records into one release that holds and lists them all.

    Example: pgbb combine north.pgbb south.pgbb west.pgbb --out country.pgbb
    """
    if out.exists():
        raise _validate.fail("--out", str(out), "a file that does not exist yet")
    signing = None if key is None else private_key(key)
    release = combine([load(file) for file in files])
    release.save(out, signing)
    if as_json:
        show_release(release, as_json=True, file=str(out))
    else:
        show_release(release)
        typer.echo(f"\nwritten to {out}")


def _records(table: "pd.DataFrame", index: str | None, label: str) -> list[dict[str, object]]:
    """Rows of a table as JSON objects, with their label and level."""
    several = table.index.nlevels > 1
    keys: list[dict[str, object]] = [{str(index): k[0], label: k[1]} if several else {label: k} for k in table.index]
    return [{**key, **row} for key, row in zip(keys, table.to_dict("records"), strict=True)]


def _print(console: Console, table: "pd.DataFrame", label: str) -> None:
    """A table of numbers; * marks what is not identified."""
    several = table.index.nlevels > 1
    heads = [str(table.index.names[0])] * several + [label]
    columns = [c for c in table.columns if c != "identified"]
    rows = []
    for key, row in zip(table.index, table.to_dict("records"), strict=True):
        at, name = ([f"{key[0]:g}"], key[1]) if several else ([], key)
        mark = "" if row.get("identified", True) else " *"
        rows.append([*at, escape(f"{name}{mark}"), *(number(row[c], 4, 10) for c in columns)])
    console.print(plain_table([*heads, *columns], heads, rows))
    if not all(table.get("identified", [True])):
        console.print("* not identified at this ε in one of the two: the interval says little", markup=False)
