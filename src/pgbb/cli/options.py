"""What commands have in common: the options that say which data, which model and which budget."""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.methods.registry import METHODS
from pgbb.model import models
from pgbb.model.formula import Design
from pgbb.model.schema import Schema
from pgbb.private.door import File

SchemaFile = Annotated[Path, typer.Option("--schema", "-s", help="Public schema (TOML).")]
Epsilon = Annotated[float, typer.Option("--epsilon", "-e", help="Privacy level ε.")]
Delta = Annotated[float, typer.Option("--delta", "-d", help="Failure probability δ, well below 1/n.")]
Level = Annotated[float, typer.Option(help="Probability of the intervals.")]
Tau = Annotated[str | None, typer.Option("--tau", "--index", help="Levels of the index, such as .1,.5,.9.")]
Weights = Annotated[str | None, typer.Option(help="Column of survey weights.", rich_help_panel="Which model")]
AccountantName = Annotated[str, typer.Option("--accountant", help="exact, paper or worst-case.")]
WeakDelta = Annotated[bool, typer.Option("--allow-weak-delta", help="Allow δ ≥ 1/n, which protects little.")]
GroupSize = Annotated[int, typer.Option(help="The most records one person may have.")]
InsecureSeed = Annotated[int | None, typer.Option(help="Reproducible, therefore NOT private.")]
Key = Annotated[Path | None, typer.Option(help="Ed25519 private key (PEM) to sign with.")]
LEVELS = ".1,.3,.5,.7,.9"

_read = partial(typer.Option, show_default=False, rich_help_panel="How to read the file")
_asked = partial(typer.Option, rich_help_panel="Which model")


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


def number_or_text(value: str) -> float | str:
    """A value that is a number where it reads as one."""
    try:
        return float(value)
    except ValueError:
        return value


def _data_file(
    data: Annotated[
        str,
        typer.Argument(
            help="Confidential records: .csv, .tsv, .parquet, .xlsx, .dta, .sav, .sas7bdat, .duckdb; or a folder. On a "
            "cluster Parquet: a path, URL or pattern."
        ),
    ],
    separator: Annotated[
        str | None, _read(help="Between cells of a text file: a character, or tab, semicolon.")
    ] = None,
    decimal: Annotated[str, _read(help="Decimal mark of a text file: . or ,", show_default=True)] = ".",
    thousands: Annotated[str | None, _read(help="Mark between groups of digits.")] = None,
    encoding: Annotated[str, _read(help="Of a text file, such as latin-1.", show_default=True)] = "utf-8",
    names: Annotated[str | None, _read(help="Columns of a text file without a header, between commas.")] = None,
    sheet: Annotated[str | None, _read(help="Of a workbook with several.")] = None,
    sql: Annotated[str | None, _read(help="SELECT columns FROM a table of a .duckdb file.")] = None,
    currency: Annotated[str | None, _read(help="Sign beside numbers of a text file.")] = None,
    dates: Annotated[str, _read(help="How a text file writes days: dd.mm.yyyy.", show_default=True)] = "yyyy-mm-dd",
) -> File | str:
    if "://" in data:
        return data
    between = {"tab": "\t", "semicolon": ";", "comma": ","}.get(separator or "", separator)
    columns = None if names is None else [part.strip() for part in names.split(",")]
    return File(Path(data), between, decimal, thousands, encoding, columns, sheet, sql, currency, dates)


def _model(
    formula: Annotated[str | None, _asked("--formula", "-f", help="Such as 'y ~ a + b:c + I(a**2)'.")] = None,
    family: Annotated[
        str, _asked(help="quantile, linear, expectile, iv, huber, logistic, poisson or mean.")
    ] = "quantile",
    taus: Annotated[str, _asked(help="Quantile levels.")] = LEVELS,
    interval: Annotated[str | None, _asked(help="An interval of levels instead, such as .05,.95.")] = None,
    bandwidth: Annotated[
        float | None,
        _asked(
            help="Smoothing of the check loss; default .1, or a thousandth of the range. Of no use to calibrated.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[str | None, _asked(help="Column of --family mean.")] = None,
    by: Annotated[str | None, _asked(help="Of --family mean: Levels columns, between commas: a mean a group.")] = None,
    exposure: Annotated[
        str | None, _asked(help="Of --family poisson: a column of positive numbers, such as years at risk.")
    ] = None,
    expectile: Annotated[float, _asked(help="Level of --family expectile, such as .8.")] = 0.5,
    mean_family: Annotated[str, _asked(help="Of --family mean: gaussian, exponential or bernoulli.")] = "gaussian",
    scale: Annotated[float | None, _asked(help="Scale of a Gaussian mean, if publicly known.")] = None,
    clip: Annotated[
        float | None,
        _asked(
            help="Clip of the score of --family mean; default by its law. Of no use to calibrated.", show_default=False
        ),
    ] = None,
) -> models.Model:
    regressions: dict[str, Callable[[str], models.Model]] = {
        "quantile": partial(_quantiles, taus=taus, interval=interval, bandwidth=bandwidth),
        "linear": models.LinearRegression,
        "expectile": partial(models.Expectile, tau=expectile),
        "iv": models.IV,
        "huber": models.HuberRegression,
        "logistic": models.LogisticRegression,
        "poisson": partial(models.PoissonRegression, exposure=exposure),
    }
    _validate.one_of("--family", family, (*regressions, "mean"))
    of_family: dict[str, dict[str, tuple[object, object]]] = {  # what is given, and the default
        "mean": {"--column": (column, None), "--by": (by, None), "--mean-family": (mean_family, "gaussian"),
                 "--scale": (scale, None), "--clip": (clip, None)},
        "poisson": {"--exposure": (exposure, None)},
        "expectile": {"--expectile": (expectile, 0.5)},
        "quantile": {"--taus": (taus, LEVELS), "--interval": (interval, None), "--bandwidth": (bandwidth, None)},
    }  # fmt: skip
    for own, options in of_family.items():
        for option, (value, default) in options.items():
            if value != default and family != own:
                raise InvalidValue(
                    f"{option} {value} with --family {family} is not allowed: it is for --family {own}. Leave it out."
                )
    if interval is not None and taus != LEVELS:
        raise InvalidValue(f"--interval {interval} with --taus {taus} is not allowed: give one of them.")
    if family == "mean":
        if column is None or formula is not None:
            raise InvalidValue("--family mean needs --column NAME, whose mean is estimated, and no --formula.")
        groups = None if by is None else [part.strip() for part in by.split(",")]
        return models.Mean(column, family=mean_family, scale=scale, clip=clip, by=groups)  # type: ignore[arg-type]
    if formula is None:
        raise InvalidValue(f"--family {family} needs --formula, such as 'logwk ~ educ + exper'.")
    return regressions[family](formula)


def _quantiles(formula: str, taus: str, interval: str | None, bandwidth: float | None) -> models.Model:
    if interval is None:
        return models.QuantileRegression(formula, taus=numbers("--taus", taus), bandwidth=bandwidth)
    ends = numbers("--interval", interval)
    if len(ends) != 2:
        raise _validate.fail("--interval", interval, "two levels, such as .05,.95")
    return models.QuantileRegression(formula, interval=(ends[0], ends[1]), bandwidth=bandwidth)


_MAKERS: dict[str, Callable[..., object]] = {"source": _data_file, "model": _model}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with options in place of its parameters `source` and `model`, which are made of them."""
    own = inspect.signature(command).parameters
    made = {name: inspect.signature(_MAKERS[name]).parameters for name in own if name in _MAKERS}

    @functools.wraps(command)
    def run(**given: object) -> None:
        for name, options in made.items():
            given[name] = _MAKERS[name](**{option: given.pop(option) for option in options})
        command(**given)

    shown = [q for name, p in own.items() for q in (made[name].values() if name in made else [p])]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shown]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def check_seed(insecure_seed: int | None, not_private: bool) -> None:
    """Refuse a reproducible run unless the user has said that it is not private."""
    if insecure_seed is not None and not not_private:
        raise InvalidValue(
            "--insecure-seed makes the noise reproducible, and the release not private. Leave it out; or, for a test "
            "on public data, add --i-know-this-is-not-private."
        )


@contextmanager
def method_bars(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """One progress bar a method, each shown when its method begins; silent where standard error is no terminal."""
    silent = quiet or not sys.stderr.isatty()  # FORCE_COLOR makes any console a terminal, but not this
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"),
        TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True), transient=True, disable=silent,
    ) as bar:  # fmt: skip
        tasks: dict[str, TaskID] = {}

        def show(method: str, done: int, total: int) -> None:
            if method not in tasks:
                tasks[method] = bar.add_task(method, total=None)
            bar.update(tasks[method], completed=done, total=total or None)

        yield show


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """One progress bar, shown at once."""
    with method_bars(quiet=quiet) as show:
        show(label, 0, 0)
        yield partial(show, label)


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
            found.setdefault(method, {})[setting] = number_or_text(value)  # .1 is no JSON number
    return found


def coefficients_of(terms: int | None, formula: str | None, schema: Path | None) -> int | None:
    """The number of coefficients: as given, or those of a formula under a schema file."""
    if formula is None and schema is None:
        return terms
    if formula is None or schema is None or terms is not None:
        raise InvalidValue("--formula and --schema go together, in place of --terms: pass both, or --terms alone.")
    return len(Design.parse(formula, Schema.from_toml(schema)).names)
