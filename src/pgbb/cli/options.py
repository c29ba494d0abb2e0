"""What `pgbb fit` and `pgbb compare` have in common: the options that say which data, which model and which budget."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.methods.registry import METHODS
from pgbb.model.models import HuberRegression, LinearRegression, LogisticRegression, Mean, Model, QuantileRegression
from pgbb.private.door import File

__all__ = ["build_model", "check_seed", "data_file", "method_bars", "method_names", "numbers", "progress_bar"]

_FAMILIES = ("quantile", "linear", "huber", "logistic", "mean")

DATA = "Confidential records: .csv, .tsv, .parquet, .xlsx, .dta, .sav, .sas7bdat, .duckdb; or a folder."
DataFile = Annotated[Path, typer.Argument(help=DATA)]
Separator = Annotated[
    str | None, typer.Option(help="Between cells of a text file: a character, or tab, semicolon.", show_default=False)
]
Decimal = Annotated[str, typer.Option(help="Decimal mark of a text file: . or ,")]
Thousands = Annotated[str | None, typer.Option(help="Mark between groups of digits.", show_default=False)]
Currency = Annotated[str | None, typer.Option(help="Sign beside numbers of a text file.", show_default=False)]
Encoding = Annotated[str, typer.Option(help="Of a text file, such as latin-1.")]
Names = Annotated[
    str | None, typer.Option(help="Columns of a text file without a header, between commas.", show_default=False)
]
Sheet = Annotated[str | None, typer.Option(help="Of a workbook with several.", show_default=False)]
Sql = Annotated[str | None, typer.Option(help="SELECT columns FROM a table of a .duckdb file.", show_default=False)]
SchemaFile = Annotated[Path, typer.Option("--schema", "-s", help="Public schema (TOML).")]
Epsilon = Annotated[float, typer.Option("--epsilon", "-e", help="Privacy level ε.")]
Delta = Annotated[float, typer.Option("--delta", "-d", help="Failure probability δ, well below 1/n.")]
Formula = Annotated[str | None, typer.Option("--formula", "-f", help="Such as 'y ~ a + b:c + I(a**2)'.")]
Family = Annotated[str, typer.Option(help="quantile, linear, huber, logistic or mean.")]
Taus = Annotated[str, typer.Option(help="Quantile levels.")]
Interval = Annotated[str | None, typer.Option(help="An interval of levels instead, such as .05,.95.")]
Bandwidth = Annotated[
    float | None,
    typer.Option(help="Smoothing of the check loss, in units of the response; default .1.", show_default=False),
]
Column = Annotated[str | None, typer.Option(help="Column of --family mean.")]
MeanFamily = Annotated[str, typer.Option(help="Of --family mean: gaussian, exponential or bernoulli.")]
Scale = Annotated[float | None, typer.Option(help="Scale of a Gaussian mean, if publicly known.")]
Clip = Annotated[float | None, typer.Option(help="Clip of the score of --family mean; default 8.", show_default=False)]
Weights = Annotated[str | None, typer.Option(help="Column of survey weights.")]
AccountantName = Annotated[str, typer.Option("--accountant", help="exact, paper or worst-case.")]
WeakDelta = Annotated[bool, typer.Option("--allow-weak-delta", help="Allow δ ≥ 1/n, which protects little.")]
GroupSize = Annotated[int, typer.Option(help="The most records one person may have.")]
InsecureSeed = Annotated[int | None, typer.Option(help="Reproducible, therefore NOT private.")]
LEVELS = ".1,.3,.5,.7,.9"


def method_names(joint: str = "or") -> str:
    """The methods in one phrase, such as "pgbb, sgld or noisy_gibbs"."""
    *names, last = METHODS
    return f"{', '.join(names)} {joint} {last}"


def numbers(name: str, text: str) -> list[float]:
    """Numbers between commas; `name` is the option they came from."""
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise _validate.fail(name, text, "numbers separated by commas, such as .1,.5,.9") from None


def data_file(
    path: Path, separator: str | None, decimal: str, thousands: str | None, encoding: str, names: str | None,
    sheet: str | None, sql: str | None, currency: str | None,
) -> File:  # fmt: skip
    """The data file that the options describe."""
    between = {"tab": "\t", "semicolon": ";", "comma": ","}.get(separator or "", separator)
    columns = None if names is None else [part.strip() for part in names.split(",")]
    return File(path, between, decimal, thousands, encoding, columns, sheet, sql, currency)


def build_model(
    family: str, formula: str | None, taus: str, interval: str | None, bandwidth: float | None, column: str | None,
    mean_family: str, scale: float | None, clip: float | None,
) -> Model:  # fmt: skip
    """The model that the options describe."""
    if _validate.one_of("--family", family, _FAMILIES) == "mean":
        if column is None:
            raise InvalidValue("--family mean needs --column NAME: the column whose mean is estimated.")
        return Mean(column, family=mean_family, scale=scale, clip=clip)  # type: ignore[arg-type]
    if formula is None:
        raise InvalidValue(f"--family {family} needs --formula, such as 'logwk ~ educ + exper'.")
    if family == "linear":
        return LinearRegression(formula)
    if family == "huber":
        return HuberRegression(formula)
    if family == "logistic":
        return LogisticRegression(formula)
    if interval is not None:
        ends = numbers("--interval", interval)
        if len(ends) != 2:
            raise _validate.fail("--interval", interval, "two levels, such as .05,.95")
        return QuantileRegression(formula, interval=(ends[0], ends[1]), bandwidth=bandwidth)
    return QuantileRegression(formula, taus=numbers("--taus", taus), bandwidth=bandwidth)


def check_seed(insecure_seed: int | None, not_private: bool) -> None:
    """Refuse a reproducible run unless the user has said that it is not private."""
    if insecure_seed is not None and not not_private:
        raise InvalidValue(
            "--insecure-seed makes the noise reproducible, and the release not private. Leave it out; or, for a test "
            "on public data, add --i-know-this-is-not-private."
        )


def _bar(quiet: bool) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"),
        TextColumn("left"), TimeRemainingColumn(), console=console, transient=True,
        disable=quiet or not sys.stderr.isatty(),  # FORCE_COLOR makes any console a terminal, but not this
    )  # fmt: skip


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with time left on standard error; silent where that is not a terminal."""
    with _bar(quiet) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def method_bars(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """One progress bar a method, each shown when its method begins."""
    with _bar(quiet) as bar:
        tasks: dict[str, TaskID] = {}

        def show(method: str, done: int, total: int) -> None:
            if method not in tasks:
                tasks[method] = bar.add_task(method, total=None)
            bar.update(tasks[method], completed=done, total=total or None)

        yield show
