"""`pgbb fit`: confidential records in, one release file out."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.models import HuberRegression, LogisticRegression, Mean, Model, QuantileRegression
from pgbb.release import private_key
from pgbb.schema import Schema

_FAMILIES = ("quantile", "huber", "logistic", "mean")


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with time left on standard error; silent where that is not a terminal."""
    console = Console(stderr=True)
    with Progress(
        TextColumn(label), BarColumn(), MofNCompleteColumn(), TextColumn("steps"), TimeRemainingColumn(),
        console=console, disable=quiet or not console.is_terminal, transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise _validate.fail(name, text, "numbers separated by commas, such as .1,.5,.9") from None


def _model(
    family: str, formula: str | None, taus: str, interval: str | None, bandwidth: float, column: str | None,
    mean_family: str, scale: float | None, clip: float,
) -> Model:  # fmt: skip
    if _validate.one_of("--family", family, _FAMILIES) == "mean":
        if column is None:
            raise InvalidValue("--family mean needs --column NAME: the column whose mean is estimated.")
        return Mean(column, family=mean_family, scale=scale, clip=clip)  # type: ignore[arg-type]
    if formula is None:
        raise InvalidValue(f"--family {family} needs --formula, such as 'logwk ~ educ + exper'.")
    if family == "huber":
        return HuberRegression(formula)
    if family == "logistic":
        return LogisticRegression(formula)
    if interval is not None:
        ends = _numbers("--interval", interval)
        if len(ends) != 2:
            raise _validate.fail("--interval", interval, "two levels, such as .05,.95")
        return QuantileRegression(formula, interval=(ends[0], ends[1]), bandwidth=bandwidth)
    return QuantileRegression(formula, taus=_numbers("--taus", taus), bandwidth=bandwidth)


def _check_target(out: Path, force: bool) -> None:
    """Find out before any budget is spent whether the result can be written."""
    if out.suffix != ".pgbb":
        raise _validate.fail("--out", str(out), "a file name that ends in .pgbb")
    if not out.parent.is_dir():
        raise InvalidValue(f"--out = {str(out)!r} is not allowed: its folder does not exist. Make it first.")
    if out.exists() and not force:
        raise InvalidValue(f"--out = {str(out)!r} exists. Choose another name, or pass --force to replace it.")


def fit_command(
    data: Annotated[Path, typer.Argument(help="Confidential records: .csv, .parquet or .dta.")],
    schema: Annotated[Path, typer.Option("--schema", "-s", help="Public schema (TOML).")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy level ε.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="Failure probability δ, well below 1/n.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Release file to write (.pgbb).")],
    formula: Annotated[str | None, typer.Option("--formula", "-f", help="Such as 'y ~ a + b:c + I(a**2)'.")] = None,
    family: Annotated[str, typer.Option(help="quantile, huber, logistic or mean.")] = "quantile",
    taus: Annotated[str, typer.Option(help="Quantile levels.")] = ".1,.3,.5,.7,.9",
    interval: Annotated[str | None, typer.Option(help="An interval of levels instead, such as .05,.95.")] = None,
    bandwidth: Annotated[float, typer.Option(help="Smoothing of the check loss, in units of the response.")] = 0.1,
    column: Annotated[str | None, typer.Option(help="Column of --family mean.")] = None,
    mean_family: Annotated[str, typer.Option(help="Of --family mean: gaussian or exponential.")] = "gaussian",
    scale: Annotated[float | None, typer.Option(help="Known scale of a Gaussian mean.")] = None,
    clip: Annotated[float, typer.Option(help="Clip of the score of --family mean.")] = 8.0,
    weights: Annotated[str | None, typer.Option(help="Column of survey weights.")] = None,
    blocks: Annotated[int | None, typer.Option(help="S, the number of blocks.")] = None,
    method: Annotated[str, typer.Option(help="paper or sgld.")] = "paper",
    steps: Annotated[int | None, typer.Option("--steps", "-T", help="T.")] = None,
    draws_per_step: Annotated[int | None, typer.Option("--draws-per-step", "-K", help="K.")] = None,
    sampling_rate: Annotated[float | None, typer.Option("--sampling-rate", "-q", help="q.")] = None,
    gamma: Annotated[float | None, typer.Option(help="Dirichlet concentration; default γ*(n, S).")] = None,
    learning_rate: Annotated[float, typer.Option(help="Of Adam.")] = 1e-3,
    accountant: Annotated[str, typer.Option(help="exact, paper or worst-case.")] = "exact",
    group_size: Annotated[int, typer.Option(help="The most records one person may have.")] = 1,
    key: Annotated[Path | None, typer.Option(help="Ed25519 private key (PEM) to sign with.")] = None,
    insecure_seed: Annotated[int | None, typer.Option(help="Reproducible, therefore NOT private.")] = None,
    not_private: Annotated[
        bool, typer.Option("--i-know-this-is-not-private", help="Required with --insecure-seed.")
    ] = False,
    force: Annotated[bool, typer.Option(help="Replace the output file if it exists.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, no table.")] = False,
) -> None:
    """Fit a private posterior and write it to one file.

    Example: pgbb fit census.parquet -s census.toml -f "logwk ~ educ + exper" -e 1 -d 1e-6 -o schooling.pgbb
    """
    if insecure_seed is not None and not not_private:
        raise InvalidValue(
            "--insecure-seed makes the noise reproducible, and the release not private. Leave it out; or, for a test "
            "on public data, add --i-know-this-is-not-private."
        )
    _check_target(out, force)
    model = _model(family, formula, taus, interval, bandwidth, column, mean_family, scale, clip)
    declared = Schema.from_toml(schema)
    signing = None if key is None else private_key(key)

    from pgbb.cli.show import show_command
    from pgbb.fitting import fit

    options: dict[str, Any] = {"blocks": blocks, "sampling_rate": sampling_rate, "gamma": gamma, "weights": weights}
    try:
        with progress_bar("training", quiet=quiet) as progress:
            release = fit(
                model, data, schema=declared, epsilon=epsilon, delta=delta, method=method, steps=steps,
                draws_per_step=draws_per_step, learning_rate=learning_rate, accountant=accountant,
                group_size=group_size, insecure_seed=insecure_seed, progress=progress, **options,
            )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo(
            "stopped. No file was written. Answers were given to the training loop but not released: if nobody saw "
            "them, nothing was spent.",
            err=True,
        )
        sys.exit(130)
    release.save(out, key=signing)
    if not quiet:
        show_command(out)
        typer.echo(f"\nwritten to {out}")
