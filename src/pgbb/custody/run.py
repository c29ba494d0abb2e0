"""`pgbb.fit`: from a data frame to a release, in one call, by the method of your choice."""

import hashlib
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pgbb
from pgbb.accountant.calibrate import Accountant
from pgbb.accountant.filters import Charge
from pgbb.custody.checkpoint import Checkpoint, CheckpointError
from pgbb.custody.ledger import STOPPED, BudgetExceeded, Entry, Ledger, LedgerError
from pgbb.errors import InvalidValue, NotCertifiable, PgbbError, PgbbNote, PgbbWarning
from pgbb.methods.registry import METHODS, settings_for
from pgbb.methods.request import Planned, Request, prepared
from pgbb.model.models import Model
from pgbb.model.schema import Schema
from pgbb.private.door import HostLost, Hosts, agreed_listing, connected
from pgbb.release.certificate import describe
from pgbb.release.file import Release, load
from pgbb.release.payloads import summary_of

__all__ = ["fit", "fit_many"]


def fit(
    model: Model,
    data: Any,
    *,
    schema: Schema,
    epsilon: float,
    delta: float,
    method: str = "calibrated",
    accountant: str = "exact",
    weights: str | None = None,
    group_size: int = 1,
    insecure_seed: int | None = None,
    non_private: bool = False,
    progress: Callable[[int, int], None] | None = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    keep: Callable[[Release], Any] | None = None,
    checkpoint: str | Path | None = None,
    hosts: Hosts | str | None = None,
    **settings: Any,
) -> Release:
    """Fit a private posterior under (ε, δ).

    Args:
      model: what to estimate, such as `pgbb.QuantileRegression("y ~ x")`.
      data: a pandas frame, or the path of a .csv, .parquet or .dta file, or of a folder of .parquet files.
      schema: public knowledge about the columns; bounds come from here, never from the data.
      epsilon, delta: the budget, for replacing one record. Choose δ well below 1/n.
      method: "calibrated", see docs/calibration.md; "paper", the printed algorithms; "sgld", "noisy_gibbs" or
        "dp_bootstrap", see docs/methods.md.
      accountant: which one calibrates the noise.
      weights: a column of survey weights, declared as a Range of non-negative numbers.
      group_size: the most records one person may have; stated in the certificate with its ε.
      insecure_seed: makes the release reproducible and therefore not private; the certificate says so.
      non_private: no noise at all; the result is marked everywhere.
      progress: called with (steps done, steps) from time to time.
      ledger, dataset: a ledger file and the name that the data set has in it, see `pgbb.custody.ledger`. What the
        release costs is reserved before the first record is read, and refused if the data set has not enough left. An
        error before the first answer is refunded; after it the cost is spent, whatever becomes of the fit.
      keep: called with the release before the ledger settles, such as `lambda r: r.save("schooling.pgbb")`: a release
        that is lost on the way to the disk is then reported as spent, not as settled.
      checkpoint: a file for what the fit has so far, every half minute; needs a ledger, and method "paper" or "sgld".
        The same call again goes on from there if the process was killed or interrupted: nothing more is spent. The
        file goes when the release is settled. See `pgbb.custody.checkpoint`.
      hosts: processes that share the records, each reading its part of a Parquet file or folder: a `pgbb.Hosts`,
        "ADDRESS:PORT,PROCESSES,PROCESS", or "auto" under SLURM or Open MPI. All make the same call; ledger,
        checkpoint and keep are those of process 0. The answers are bit for bit those of one process
        (docs/howto/hosts.md).
      settings: constants of the method, such as blocks, steps, draws_per_step, sampling_rate and gamma of "paper";
        all are fields of `pgbb.methods.<method>.Settings`, with defaults that are rules on public quantities.
        None means the default.

    Returns:
      A `Release`: draw from it, save it, share it.
    """
    request = Request(
        model=model, data=data, schema=schema, epsilon=epsilon, delta=delta, accountant=cast(Accountant, accountant),
        weights=weights, group_size=group_size, insecure_seed=insecure_seed, non_private=non_private,
        progress=progress,
    )  # fmt: skip
    chosen, constants = settings_for(method, settings)
    chosen.check(model, prepared(model, schema))
    if hosts is None:
        return _run(request, chosen.name, chosen.load(), constants, ledger, dataset, keep, checkpoint)
    if not chosen.hosts:
        those = [repr(name) for name, m in METHODS.items() if m.hosts]
        raise InvalidValue(
            f"method = {method!r} needs all records in one process: with hosts take {' or '.join(those)}."
        )
    with connected(Hosts.of(hosts)) as together:
        listing = agreed_listing(data, together, _facts(request, chosen.name, constants))  # before anything is reserved
        request = replace(request, data=listing, together=together)
        if together.leads:
            release = _run(request, chosen.name, chosen.load(), constants, ledger, dataset, keep, checkpoint)
            try:
                together.first(_sent(release))
            except (PgbbError, OSError) as error:
                text = f"the release is complete, but not all processes have received it: {error}"
                warnings.warn(text, PgbbWarning, stacklevel=2)
            return release
        chosen.load().run(replace(request, progress=None), constants)
        return _received(together.first(b""))


def _run(
    request: Request,
    method: str,
    module: ModuleType,
    settings: Any,
    ledger: str | Path | Ledger | None,
    dataset: str | None,
    keep: Callable[[Release], Any] | None,
    checkpoint: str | Path | None,
) -> Release:
    """What the process does that leads, or is alone."""
    if ledger is not None or dataset is not None:
        return _charged(request, method, module, settings, ledger, dataset, keep, checkpoint)
    if checkpoint is not None:
        raise InvalidValue(
            "checkpoint needs a ledger, which sees to it that no answer is asked twice: give ledger= and dataset= too."
        )
    release: Release = module.run(request, settings)
    if keep is not None:
        keep(release)
    return release


def _facts(request: Request, method: str, settings: Any) -> dict[str, Any]:
    """What processes that fit together must agree on, beside the data, before anything is reserved; public."""
    return {
        "the version of pgbb": pgbb.__version__,
        "the version of jax": version("jax"),
        "the version of numpy": version("numpy"),
        "method": method,
        "the model": summary_of(prepared(request.model, request.schema)).to_dict(),
        "the schema": request.schema.to_dict(),
        "epsilon": request.epsilon,
        "delta": request.delta,
        "accountant": request.accountant,
        "weights": request.weights,
        "group_size": request.group_size,
        "insecure_seed": request.insecure_seed,
        "non_private": request.non_private,
        **{f.name: getattr(settings, f.name) for f in fields(settings)},
    }


def _sent(release: Release) -> bytes:
    """A release as bytes, for the other processes."""
    with tempfile.TemporaryDirectory() as folder:
        return release.save(Path(folder) / "r.pgbb").read_bytes()


def _received(data: bytes) -> Release:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.pgbb"
        path.write_bytes(data)
        return load(path)


def fit_many(
    model: Model,
    data: Sequence[Any],
    *,
    schema: Schema,
    epsilon: float,
    delta: float,
    method: str = "calibrated",
    accountant: str = "exact",
    insecure_seeds: Sequence[int],
    **settings: Any,
) -> list[Release]:
    """Fit data sets of one size under one budget each, side by side where the method can: for simulations on a GPU.

    Every release is that of `fit` with the seed of its data set, up to the order in which a device adds numbers.
    """
    requests = [
        Request(
            model=model, data=one, schema=schema, epsilon=epsilon, delta=delta,
            accountant=cast(Accountant, accountant), insecure_seed=seed,
        )
        for one, seed in zip(data, insecure_seeds, strict=True)
    ]  # fmt: skip
    chosen, constants = settings_for(method, settings)
    chosen.check(model, prepared(model, schema))
    module = chosen.load()
    together = getattr(module, "run_many", None)
    if together is None:
        return [module.run(request, constants) for request in requests]
    return list(together(requests, constants))


def _charged(
    request: Request,
    method: str,
    module: ModuleType,
    settings: Any,
    path: str | Path | Ledger | None,
    dataset: str | None,
    keep: Callable[[Release], Any] | None,
    checkpoint: str | Path | None,
) -> Release:
    """Run under a ledger: reserve, load, say that answers follow, answer, settle; each on disk before the next.

    With a checkpoint that was found, the entry is resumed instead of reserved.
    """
    if path is None or dataset is None:
        raise InvalidValue("ledger and dataset go together: the file, and the name of these records in it.")
    if request.insecure_seed is not None or request.non_private:
        raise InvalidValue(
            "insecure_seed and non_private are not allowed with a ledger: such a run has no privacy, so no budget can "
            "pay for it. Leave them out; or, for a test on public data, leave the ledger out."
        )
    ledger = path if isinstance(path, Ledger) else Ledger(path)
    known = ledger.dataset(dataset)
    declared = known.budget.group_size
    if request.group_size not in (1, declared):
        raise InvalidValue(
            f"group_size = {request.group_size} is not allowed: the ledger has group_size = {declared} for data set "
            f"{dataset!r}. Leave it out."
        )
    request = replace(request, declared_n=known.n, group_size=declared)
    planned = _plan(request, module, settings)
    point, found = None, None
    if checkpoint is not None:
        if not METHODS[method].checkpoints:
            those = [name for name, m in METHODS.items() if m.checkpoints]
            raise InvalidValue(
                f"method = {method!r} writes no checkpoints: only {' and '.join(those)} do. Leave it out."
            )
        point = Checkpoint(checkpoint, ledger, _identity(request, method, settings, planned))
        found = point.find(dataset)
    if found is None:
        entry = _reserve(request, method, module, settings, planned, ledger, dataset)
    else:
        entry = ledger.resume(*found)
    answering = False

    def spend(asked: Planned) -> None:
        nonlocal answering
        if asked != planned:
            raise PgbbError("the answers about to be asked are not those that were reserved. Nothing was asked.")
        ledger.begin(entry)
        answering = True

    try:
        if point is not None:
            point.hold(entry, found[1] if found is not None else None)
        if found is not None:
            text = f"continuing at step {entry.steps:,} of {entry.total:,}; nothing more is spent."
            warnings.warn(text, PgbbNote, stacklevel=3)
        release: Release = module.run(replace(request, spend=spend, checkpoint=point), settings)
        if point is not None and not point.finished:  # else a later resume could lead to another release
            raise PgbbError("the state after the last step was not recorded, so that nothing may be released.")
        if keep is not None:
            keep(release)
    except BaseException as error:
        outside = isinstance(error, KeyboardInterrupt | CheckpointError | LedgerError | HostLost)
        stopped = point is not None and (outside or (found is not None and not answering))
        try:
            ledger.close(entry, STOPPED if stopped else f"ended by {type(error).__name__}")
        except PgbbError as failed:  # the entry stays open, and counts until its process is gone
            error.add_note(str(failed))
        raise
    try:
        ledger.settle(entry, release.certificate_hash)
    except PgbbError as failed:
        warnings.warn(
            f"the release exists, but could not be settled: {failed} It counts as spent all the same.",
            PgbbWarning,
            stacklevel=3,
        )
    else:
        if point is not None:
            point.remove()
    return release


def _reserve(
    request: Request, method: str, module: ModuleType, settings: Any, planned: Planned, ledger: Ledger, dataset: str
) -> Entry:
    """The reservation; where it does not fit, the refusal says what would."""
    known = ledger.dataset(dataset)
    try:
        return ledger.reserve(
            dataset, planned.mechanism, planned.sigma, method=method, epsilon=request.epsilon, delta=request.delta
        )
    except BudgetExceeded as error:
        fits = _fitting_epsilon(
            lambda e: known.budget.charge(*_noise(_plan(replace(request, epsilon=e), module, settings))),
            request.epsilon,
            error.left,
        )
        advice = (
            "No ε that is of use would fit."
            if fits is None
            else f"With this method and δ = {request.delta:g}, ε = {fits:g} would fit."
        )
        raise BudgetExceeded(f"{error} {advice}", error.left, error.epsilon, error.delta) from None


def _identity(request: Request, method: str, settings: Any, planned: Planned) -> str:
    """A digest of all that decides what a fit asks and makes of the answers, but for the code of a custom loss."""
    whole = {
        "version": pgbb.__version__,
        "method": method,
        "model": summary_of(prepared(request.model, request.schema)).to_dict(),
        "schema": request.schema.to_dict(),
        "settings": {f.name: getattr(settings, f.name) for f in fields(settings)},
        "budget": [request.epsilon, request.delta, request.accountant, request.group_size],
        "weights": request.weights,
        "mechanism": describe(planned.mechanism),
        "sigma": planned.sigma,
        "n": request.declared_n,
    }
    text = json.dumps(whole, sort_keys=True, default=lambda value: type(value).__name__)  # pseudo-samples: by type only
    return hashlib.sha256(text.encode()).hexdigest()


def _plan(request: Request, module: ModuleType, settings: Any) -> Planned:
    """What the method will ask of the declared number of records; its advice comes when it runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PgbbWarning)
        return cast(Planned, module.plan(request, settings, request.declared_n))


def _noise(planned: Planned) -> tuple[Any, float]:
    return planned.mechanism, planned.sigma


SMALLEST_USE = 1e-3
"""An ε below this is not worth proposing."""


def _fitting_epsilon(charge: Callable[[float], Charge], start: float, left: Charge) -> float | None:
    """The largest ε below `start`, to two or three digits, whose charge fits into `left`; None if none is of use.

    The charge grows like ε² or a little slower: a few secant steps on a double logarithmic scale, then steps of one
    per cent to the safe side.
    """

    def excess(e: float) -> float:
        """How far above the room, as a logarithm."""
        try:
            cost = charge(e)
        except (NotCertifiable, InvalidValue):
            return math.inf
        ratios = [cost.square / left.square] + ([cost.failure / left.failure] if cost.failure else [])
        return math.log(max(ratios)) if max(ratios) > 0 else -math.inf

    if left.square <= 0 or left.failure <= 0:
        return None
    guess, value = start, excess(start)
    for _ in range(5):
        if not math.isfinite(value) or abs(value) < 0.004:
            break
        guess = min(guess * math.exp(-value / 2), start)
        if guess < SMALLEST_USE:
            return None
        value = excess(guess)
    for i in range(10):
        rounded = _rounded_down(guess * 0.99**i)
        if rounded < start and excess(rounded) <= 0:
            return rounded
    return None


def _rounded_down(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / unit) * unit:.3g}")
