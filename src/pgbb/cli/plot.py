"""`pgbb plot`: the quantile process with its bands, or coefficients with intervals, from a release alone."""

from pathlib import Path
from typing import Annotated

import typer

from pgbb import _validate
from pgbb.cli.output import Json, written
from pgbb.release.file import load


def plot_command(
    file: Annotated[Path, typer.Argument(help="A release file, such as schooling.pgbb.")],
    out: Annotated[Path, typer.Option("--out", help="Where to draw; the suffix names the format: .png, .pdf, .svg.")],
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    coefficients: Annotated[
        list[str] | None, typer.Option("--coef", help="Only this coefficient; may be given several times.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw each coefficient over the quantile levels with its band, or coefficients with intervals.

    Example: pgbb plot schooling.pgbb --out schooling.png --coef educ
    """
    from pgbb.report.plots import coefficient_intervals, quantile_process, save

    _validate.level(level)
    release = load(file)
    draw = coefficient_intervals if release.model.index is None else quantile_process
    target = save(draw(release, level, coefficients), out)
    written(target, f"figure written to {target}", as_json=as_json)
