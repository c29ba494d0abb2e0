"""`pgbb.fit`: from a data frame to a release, in one call, by the method of your choice."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from pgbb.custody import arguments as to
from pgbb.custody.ledger import Ledger
from pgbb.custody.spending import spending
from pgbb.engine.choice import cluster_for
from pgbb.errors import InvalidValue, PgbbError
from pgbb.methods.registry import METHODS, MethodName, settings_for
from pgbb.methods.request import Planned, Request, prepared
from pgbb.model.models import Model
from pgbb.model.schema import Schema
from pgbb.release.file import Release, check_writable
from pgbb.release.signing import Key, private_key

if TYPE_CHECKING:
    from pgbb.private.door import Source


@overload
def fit(
    model: Model, data: "Source", *, method: Literal["calibrated"] = ..., **given: Unpack[to.Calibrated]
) -> Release: ...
@overload
def fit(model: Model, data: "Source", *, method: Literal["pgbb"], **given: Unpack[to.Pgbb]) -> Release: ...
@overload
def fit(model: Model, data: "Source", *, method: Literal["sgld"], **given: Unpack[to.Sgld]) -> Release: ...
@overload
def fit(model: Model, data: "Source", *, method: Literal["noisy_gibbs"], **given: Unpack[to.NoisyGibbs]) -> Release: ...
@overload
def fit(
    model: Model, data: "Source", *, method: Literal["dp_bootstrap"], **given: Unpack[to.DpBootstrap]
) -> Release: ...
@overload
def fit(
    model: Model, data: "Source", *, method: Literal["posterior_sampling"], **given: Unpack[to.PosteriorSampling]
) -> Release: ...
@overload
def fit(model: Model, data: "Source", *, method: Literal["dp_mcmc"], **given: Unpack[to.DpMcmc]) -> Release: ...
@overload
def fit(model: Model, data: "Source", *, method: Literal["augmented"], **given: Unpack[to.Augmented]) -> Release: ...
@overload
def fit(model: Model, data: "Source", *, method: Literal["abc"], **given: Unpack[to.Abc]) -> Release: ...
@overload
def fit(model: Model, data: "Source", *, method: Literal["repro"], **given: Unpack[to.Repro]) -> Release: ...
def fit(
    model: Model,
    data: "Source",
    *,
    schema: Schema,
    epsilon: float,
    delta: float,
    method: MethodName = "calibrated",
    accountant: to.Accountant = "exact",
    weights: str | None = None,
    group_size: int = 1,
    persons: str | None = None,
    allow_weak_delta: bool = False,
    insecure_seed: int | None = None,
    non_private: bool = False,
    progress: Callable[[int, int], None] | None = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    out: str | Path | None = None,
    key: Key | None = None,
    checkpoint: str | Path | None = None,
    cluster: Any = None,
    scratch: str | Path | None = None,
    **settings: object,
) -> Release:
    """Fit a private posterior under (ε, δ).

    Args:
      model: what to estimate, such as `pgbb.QuantileRegression("y ~ x")`.
      data: a pandas or polars frame, an Arrow table or stream, a DuckDB relation, a structured array or a dict of
        columns; the path of a file or of a folder of .parquet files; or a `pgbb.File`, which says how to read one. On a
        cluster: Parquet by path, URL or pattern, a Dask DataFrame or a Spark DataFrame.
      schema: public knowledge about the columns; bounds come from here, never from the data.
      epsilon, delta: the budget, for replacing one record. Choose δ well below 1/n.
      method: "calibrated", see docs/calibration.md; "pgbb", Algorithms 1 and 2; the other
        names in `pgbb.methods.METHODS` are in docs/methods.md.
      accountant: which one calibrates the noise.
      weights: a column of survey weights, declared as a Range of non-negative numbers.
      group_size: the most records one person may have; stated in the certificate with its ε.
      persons: a column of numbers that say whose record it is, declared as a Range. Then ε and δ are those of a person
        with up to group_size records, and standard errors are clustered by person (docs/howto/persons.md).
      allow_weak_delta: accept δ ≥ 1/n, which would allow publishing a whole record, and which is refused otherwise.
      insecure_seed: makes the release reproducible and therefore not private; the certificate says so.
      non_private: no noise at all; the result is marked everywhere.
      progress: called with (steps done, steps) from time to time.
      ledger, dataset: a ledger file and the name that the data set has in it, see `pgbb.custody.ledger`. What the
        release costs is reserved before the first record is read, and refused if the data set has not enough left. An
        error before the first answer is refunded; after it the cost is spent, whatever becomes of the fit.
      out, key: save the release to this file, signed if a key is given, before the ledger settles: a release that is
        lost on the way to the disk is then reported as spent, not as settled.
      checkpoint: a file for what the fit has so far, every half minute; needs a ledger, and method "pgbb" or "sgld".
        The same call again goes on from there if the process was killed or interrupted: nothing more is spent. The
        file goes when the release is settled. See `pgbb.custody.checkpoint`.
      cluster: workers that read the records, each its partitions, and send sums: "local:4" for so many processes here,
        a Dask scheduler such as "tls://10.0.0.1:8786", a `pgbb.Cluster` with certificates, or a `distributed.Client`.
        Noise, ledger and release stay in this process, and the release is bit for bit that of one process
        (docs/howto/cluster.md).
      scratch: a folder that may hold the encoded records in a file without a name, which only this process can open and
        which goes with it: for more records than memory holds (docs/scale.md). Method "calibrated" without persons.
      settings: constants of the method, such as blocks, steps, draws_per_step, sampling_rate and gamma of "pgbb";
        all are fields of `pgbb.methods.<method>.Settings`, with defaults that are rules on public quantities.
        None means the default.

    Returns:
      A `Release`: draw from it, save it, share it.
    """
    request = Request(
        model=model, data=data, schema=schema, epsilon=epsilon, delta=delta, accountant=accountant,
        weights=weights, group_size=group_size, persons=persons, insecure_seed=insecure_seed, non_private=non_private,
        progress=progress, allow_weak_delta=allow_weak_delta,
    )  # fmt: skip
    chosen, constants = settings_for(method, settings)
    problem = prepared(model, schema)
    chosen.check(model, problem)
    chosen.say_ignored(model, problem.kind)
    elsewhere = cluster_for(cluster, data)
    if persons is not None and not (chosen.persons and problem.kind != "means" and isinstance(elsewhere, nullcontext)):
        those = [repr(name) for name, m in METHODS.items() if m.persons]
        raise InvalidValue(
            f"persons = {persons!r} is not allowed here: {' or '.join(those)} serves persons, in one process, for all "
            "models but means by groups. Leave it out, or take another method or model."
        )
    if not chosen.cluster and not isinstance(elsewhere, nullcontext):
        those = [repr(name) for name, m in METHODS.items() if m.cluster]
        raise InvalidValue(
            f"method = {method!r} needs all records in one process: on a cluster take {' or '.join(those)}."
        )
    if scratch is not None:
        _check_scratch(scratch, chosen.scratch and persons is None and isinstance(elsewhere, nullcontext))
        request = replace(request, scratch=Path(scratch))
    if key is not None and out is None:
        raise InvalidValue("key needs out, the file that it signs: give both, or sign later with Release.save.")
    signer = None if key is None else private_key(key)  # a bad key or path is found out before anything is spent
    if out is not None:
        check_writable(out)
    paid = ledger is not None or dataset is not None
    if checkpoint is not None and not paid:
        raise InvalidValue(
            "checkpoint needs a ledger, which sees to it that no answer is asked twice: give ledger= and dataset= too."
        )
    seen = _Seen()
    with elsewhere as workers:
        request = replace(request, cluster=workers, custodian=seen)
        if paid:
            with spending(request, chosen, constants, ledger=ledger, dataset=dataset, checkpoint=checkpoint) as spent:
                release = chosen.load().run(spent.request, constants)
                spent.by(release)
                if out is not None:
                    release.save(out, key=signer)
            return release
        try:
            release = chosen.load().run(request, constants)
        except PgbbError as error:
            error.answered = seen.answers
            raise
    if out is not None:
        release.save(out, key=signer)
    return release


def _check_scratch(scratch: str | Path, serves: bool) -> None:
    """Refuse a folder for scratch files that cannot serve, before anything is reserved."""
    if not isinstance(scratch, str | Path):
        raise InvalidValue(f"scratch is a {type(scratch).__name__}, it must be the path of a folder.")
    if not Path(scratch).is_dir():
        raise InvalidValue(f"scratch = {str(scratch)!r} is no folder. Make it first, or give another.")
    if not serves:
        raise InvalidValue(
            'scratch is for method = "calibrated" in one process and without persons: other methods read records '
            "at random places, sums by person need them in memory, and the workers of a cluster hold their own. Leave "
            "it out."
        )


class _Seen:
    """Without a ledger: whether answers were given."""

    checkpoint, answers = None, False

    def loaded(self, n: int) -> None:
        """Accept any number of records: without a ledger none is declared."""

    def begin(self, planned: Planned) -> None:
        """Remember that answers were given."""
        self.answers = True
