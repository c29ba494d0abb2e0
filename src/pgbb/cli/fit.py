"""`pgbb fit`: confidential records in, one release file out."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pgbb import _validate
from pgbb._io import check_writable
from pgbb.cli import options as o
from pgbb.cli.output import Json
from pgbb.engine.dask import Cluster
from pgbb.errors import InvalidValue
from pgbb.model.models import Model
from pgbb.model.schema import Schema
from pgbb.private.door import File
from pgbb.release.signing import private_key

_setting = partial(typer.Option, rich_help_panel="By which method")
_protecting = partial(typer.Option, rich_help_panel="Whom it protects, and who pays", show_default=False)
_place = partial(typer.Option, rich_help_panel="More records than one machine holds", show_default=False)


def _check_target(out: Path, force: bool) -> None:
    """Find out before any budget is spent whether the result can be written."""
    if out.suffix != ".pgbb":
        raise _validate.fail("--out", str(out), "a file name that ends in .pgbb")
    check_writable(out, "--out")
    if out.exists() and not force:
        raise InvalidValue(f"--out = {str(out)!r} exists. Choose another name, or pass --force to replace it.")


def _stamp(path: Path) -> tuple[int, int] | None:
    """What tells a file from one that takes its place; None if there is none."""
    found = path.stat() if path.exists() else None
    return None if found is None else (found.st_ino, found.st_mtime_ns)


@o.with_options
def fit_command(
    source: File | str,
    schema: o.SchemaFile,
    epsilon: o.Epsilon,
    delta: o.Delta,
    out: Annotated[Path, typer.Option("--out", "-o", help="Release file to write (.pgbb).")],
    model: Model,
    weights: o.Weights = None,
    method: Annotated[str, _setting(help=f"{o.method_names()}.")] = "calibrated",
    blocks: Annotated[int | None, _setting(help="Of pgbb: S, the number of blocks.")] = None,
    steps: Annotated[int | None, _setting("--steps", "-T", help="T, of a training or a chain.")] = None,
    draws_per_step: Annotated[
        int | None, _setting("--draws-per-step", "-K", help="Of pgbb: K, answers in a step.")
    ] = None,
    intervals: Annotated[str | None, _setting(help="Of pgbb: noise-aware (default) or printed.")] = None,
    settings: Annotated[str | None, _setting(help="Of pgbb: printed, the constants of the paper.")] = None,
    sampling_rate: Annotated[
        float | None, _setting("--sampling-rate", "-q", help="q, the share of records in a batch.")
    ] = None,
    gamma: Annotated[float | None, _setting(help="Dirichlet concentration; default γ*(n, S).")] = None,
    learning_rate: Annotated[float | None, _setting(help="Of Adam; default .001.", show_default=False)] = None,
    accountant: o.AccountantName = "exact",
    group_size: o.GroupSize = 1,
    persons: Annotated[
        str | None, _protecting(help="Column that says whose record it is: ε is then a person's, with --group-size.")
    ] = None,
    allow_weak_delta: o.WeakDelta = False,
    ledger: Annotated[Path | None, _protecting(help="Ledger file that pays for the release.")] = None,
    dataset: Annotated[str | None, _protecting(help="Name of the records in the ledger.")] = None,
    checkpoint: Annotated[
        Path | None, _protecting(help="File to go on from if the fit is killed; with --ledger.")
    ] = None,
    cluster: Annotated[
        str | None, _place(help="Workers that read the records: local:4, or tls://ADDRESS:PORT of Dask.")
    ] = None,
    tls_ca: Annotated[str | None, _place(help="Certificate authority of the cluster (PEM).")] = None,
    tls_cert: Annotated[str | None, _place(help="Certificate for the cluster (PEM).")] = None,
    tls_key: Annotated[str | None, _place(help="Its key (PEM).")] = None,
    scratch: Annotated[
        Path | None, _place(help="Folder that may hold the encoded records, for more than memory does.")
    ] = None,
    key: o.Key = None,
    insecure_seed: o.InsecureSeed = None,
    not_private: Annotated[
        bool, typer.Option("--i-know-this-is-not-private", help="Required with --insecure-seed.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, no table.")] = False,
    as_json: Json = False,
) -> None:
    """Fit a private posterior and write it to one file.

    Example: pgbb fit census.parquet -s census.toml -f "logwk ~ educ + exper" -e 1 -d 1e-6 -o schooling.pgbb
    """
    o.check_seed(insecure_seed, not_private)
    _check_target(out, force)
    workers = None if cluster is None else Cluster(cluster, tls_ca, tls_cert, tls_key)
    declared = Schema.from_toml(schema)
    signing = None if key is None else private_key(key)

    from pgbb.cli.show import show_release
    from pgbb.custody.run import fit

    before = _stamp(out)
    how: dict[str, Any] = {
        "method": method, "accountant": accountant, "steps": steps, "draws_per_step": draws_per_step,
        "learning_rate": learning_rate, "blocks": blocks, "sampling_rate": sampling_rate, "gamma": gamma,
        "intervals": intervals, "settings": settings,
    }  # fmt: skip
    try:
        with o.progress_bar("training", quiet=quiet or as_json) as progress:
            release = fit(
                model, source, schema=declared, epsilon=epsilon, delta=delta, group_size=group_size, persons=persons,
                insecure_seed=insecure_seed, progress=progress, ledger=ledger, dataset=dataset, out=out, key=signing,
                checkpoint=checkpoint, cluster=workers, scratch=scratch, weights=weights,
                allow_weak_delta=allow_weak_delta, **how,
            )  # fmt: skip
    except KeyboardInterrupt:
        text = (
            "Answers were given to the training loop but not released: if nobody saw them, nothing was spent."
            if ledger is None
            else "See `pgbb ledger history` for whether answers had been given: then their cost is spent."
        )
        if checkpoint is not None and checkpoint.exists():
            text = f"The same command goes on from {checkpoint}, and nothing more is spent."
        typer.echo(f"stopped. {out if _stamp(out) != before else 'No file'} was written. {text}", err=True)
        sys.exit(130)
    if as_json:
        show_release(release, as_json=True, file=str(out))
    elif not quiet:
        show_release(release)
        typer.echo(f"\nwritten to {out}")
