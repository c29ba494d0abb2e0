"""`pgbb report` and `pgbb plot`: a release as a page that draws in the browser, or as a figure. Neither opens data."""

from pathlib import Path
from typing import Annotated

import typer

from pgbb import _validate
from pgbb._io import write_whole
from pgbb.cli.output import Json, written
from pgbb.release.file import load


def report_command(
    file: Annotated[Path, typer.Argument(help="A release file, such as schooling.pgbb.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Page to write (.html); default beside the file.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.", show_default=False)] = None,
    source: Annotated[str | None, typer.Option(help="Where the records come from.", show_default=False)] = None,
    contact: Annotated[str | None, typer.Option(help="Whom to ask.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Write the release as one self-contained page: estimates, certificate, and draws made in the reader's browser.

    The page asks nothing of any network, so it can be mailed, archived or put on any web server.
    Example: pgbb report schooling.pgbb --out schooling.html
    """
    from pgbb.report import page

    target = file.with_suffix(".html") if out is None else out
    if target.suffix.lower() not in (".html", ".htm"):
        raise _validate.fail("--out", str(target), "a file name that ends in .html")
    text = page(load(file), file, title=title, origin=source, contact=contact).encode("utf-8")
    write_whole(target, text)
    written(target, f"page written to {target} ({len(text):,} bytes)", as_json=as_json)


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
    from pgbb.release.figures import save

    target = save(load(file).plot(level=_validate.level(level), coefficients=coefficients), out)
    written(target, f"figure written to {target}", as_json=as_json)
