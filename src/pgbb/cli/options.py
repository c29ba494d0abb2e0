"""What commands have in common: the options that say which data, which model and which budget."""

import copy
import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.methods.registry import METHODS
from pgbb.model.models import (
    IV,
    Expectile,
    HuberRegression,
    LinearRegression,
    LogisticRegression,
    Mean,
    Model,
    PoissonRegression,
    QuantileRegression,
)
from pgbb.private.door import File

__all__ = [
    "build_model",
    "check_seed",
    "constants_of",
    "method_bars",
    "method_names",
    "numbers",
    "progress_bar",
    "reads_a_file",
]

_FAMILIES = ("quantile", "linear", "expectile", "iv", "huber", "logistic", "poisson", "mean")

DATA = "Confidential records: .csv, .tsv, .parquet, .xlsx, .dta, .sav, .sas7bdat, .duckdb; or a folder."
DataFile = Annotated[str, typer.Argument(help=f"{DATA} On a cluster Parquet: a path, URL or pattern.")]
Separator = Annotated[
    str | None, typer.Option(help="Between cells of a text file: a character, or tab, semicolon.", show_default=False)
]
Decimal = Annotated[str, typer.Option(help="Decimal mark of a text file: . or ,")]
Thousands = Annotated[str | None, typer.Option(help="Mark between groups of digits.", show_default=False)]
Currency = Annotated[str | None, typer.Option(help="Sign beside numbers of a text file.", show_default=False)]
Dates = Annotated[str, typer.Option(help="How a text file writes days, such as dd.mm.yyyy.")]
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
Family = Annotated[str, typer.Option(help="quantile, linear, expectile, iv, huber, logistic, poisson or mean.")]
Taus = Annotated[str, typer.Option(help="Quantile levels.")]
Interval = Annotated[str | None, typer.Option(help="An interval of levels instead, such as .05,.95.")]
Bandwidth = Annotated[
    float | None,
    typer.Option(help="Smoothing of the check loss, in units of the response; default .1.", show_default=False),
]
Column = Annotated[str | None, typer.Option(help="Column of --family mean.")]
ExpectileLevel = Annotated[float, typer.Option(help="Level of --family expectile, such as .8.")]
Exposure = Annotated[
    str | None, typer.Option(help="Of --family poisson: a column of positive numbers, such as years at risk.")
]
By = Annotated[str | None, typer.Option(help="Of --family mean: Levels columns, between commas: a mean a group.")]
MeanFamily = Annotated[str, typer.Option(help="Of --family mean: gaussian, exponential or bernoulli.")]
Scale = Annotated[float | None, typer.Option(help="Scale of a Gaussian mean, if publicly known.")]
Clip = Annotated[float | None, typer.Option(help="Clip of the score of --family mean; default 8.", show_default=False)]
Weights = Annotated[str | None, typer.Option(help="Column of survey weights.")]
AccountantName = Annotated[str, typer.Option("--accountant", help="exact, paper or worst-case.")]
WeakDelta = Annotated[bool, typer.Option("--allow-weak-delta", help="Allow δ ≥ 1/n, which protects little.")]
GroupSize = Annotated[int, typer.Option(help="The most records one person may have.")]
Persons = Annotated[
    str | None, typer.Option(help="Column that says whose record it is: ε is then a person's, with --group-size.")
]
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


def _data_file(
    data: DataFile, separator: Separator = None, decimal: Decimal = ".", thousands: Thousands = None,
    encoding: Encoding = "utf-8", names: Names = None, sheet: Sheet = None, sql: Sql = None, currency: Currency = None,
    dates: Dates = "yyyy-mm-dd",
) -> File | str:  # fmt: skip
    if "://" in data:
        return data
    between = {"tab": "\t", "semicolon": ";", "comma": ","}.get(separator or "", separator)
    columns = None if names is None else [part.strip() for part in names.split(",")]
    return File(Path(data), between, decimal, thousands, encoding, columns, sheet, sql, currency, dates)


def reads_a_file(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `_data_file` in place of its parameter `source`, the file that they describe."""
    options = list(inspect.signature(_data_file).parameters.values())
    for i, option in enumerate(options[1:], 1):
        kind, info = get_args(option.annotation)
        info = copy.copy(info)
        info.rich_help_panel = "How to read the file"
        options[i] = option.replace(annotation=Annotated[kind, info])
    own = inspect.signature(command).parameters
    shown = [q for name, p in own.items() for q in (options if name == "source" else [p])]

    @functools.wraps(command)
    def run(**given: object) -> None:
        file: Callable[..., File | str] = _data_file
        command(source=file(**{p.name: given.pop(p.name) for p in options}), **given)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shown]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def build_model(
    family: str, formula: str | None, taus: str, interval: str | None, bandwidth: float | None, column: str | None,
    mean_family: str, scale: float | None, clip: float | None, by: str | None = None, exposure: str | None = None,
    expectile: float = 0.5,
) -> Model:  # fmt: skip
    """The model that the options describe."""
    for option, value, own in (("--by", by, "mean"), ("--exposure", exposure, "poisson")):
        if value is not None and family != own:
            raise InvalidValue(
                f"{option} {value} with --family {family} is not allowed: it is for --family {own}. Leave it out."
            )
    if _validate.one_of("--family", family, _FAMILIES) == "mean":
        if column is None:
            raise InvalidValue("--family mean needs --column NAME: the column whose mean is estimated.")
        groups = None if by is None else [part.strip() for part in by.split(",")]
        return Mean(column, family=mean_family, scale=scale, clip=clip, by=groups)  # type: ignore[arg-type]
    if formula is None:
        raise InvalidValue(f"--family {family} needs --formula, such as 'logwk ~ educ + exper'.")
    plain: dict[str, Callable[[str], Model]] = {
        "linear": LinearRegression,
        "expectile": partial(Expectile, tau=expectile),
        "iv": IV,
        "huber": HuberRegression,
        "logistic": LogisticRegression,
        "poisson": partial(PoissonRegression, exposure=exposure),
    }
    if family in plain:
        return plain[family](formula)
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


def constants_of(given: list[str]) -> dict[str, dict[str, object]]:
    """`method.setting=value` as {method: {setting: value}}; values are numbers, true, false, null or text."""
    found: dict[str, dict[str, object]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        method, dot, setting = name.strip().partition(".")
        if not (equals and dot and method and setting):
            raise _validate.fail("--set", text, "METHOD.SETTING=VALUE, such as sgld.steps=2000")
        try:
            found.setdefault(method, {})[setting] = json.loads(value.lower() if value.isalpha() else value)
        except json.JSONDecodeError:
            found.setdefault(method, {})[setting] = _text_or_number(value)
    return found


def _text_or_number(value: str) -> float | str:
    try:
        return float(value)  # .1 is no JSON number
    except ValueError:
        return value
