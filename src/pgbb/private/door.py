"""The door: every way to ask confidential records, what one record can do to the answer, and where noise is added.

A reviewer of privacy begins here. Nothing else of this package may be imported from outside it.

| way to ask        | answer                                      | one record adds at most | noise is added in        |
|-------------------|---------------------------------------------|-------------------------|--------------------------|
| `Dataset.sums`    | (1/n) Σ_i a_t(x_i) over all records         | 1/n (`sums`)            | `Sums.ask`               |
| `Dataset.session` | Σ_{i∈B} w̄_i ∇l(θ, x_i), B a Poisson batch  | w̄_i·C (`gradients`)    | `loop`, `elsewhere`      |
| `Dataset.moments` | Σ_i t(x_i, y_i) over all records            | C (`Moment.clip`)       | `moments.noisy_sums`     |
| `Dataset.refits`  | minimisers on bootstrap resamples           | Δ (`refit_sensitivity`) | `refits.noisy_refits`    |
| `Dataset.means`   | means of bootstrap resamples                | Δ (`mean_sensitivity`)  | `refits.noisy_means`     |
| `Dataset.posterior_draws` | draws of a posterior                | Δ/(2σ) to a log density | none: a draw is random |

The first three are bounded by one function, `clipping.clipped`, whatever the statistic or the model says of itself. A
statistic or a gradient is a function of one record, which this package vectorises: it cannot see another row. How
often may be asked, and at which noise, is read from the object that the accountant certifies, and no handle gives one
answer more. What leaves without noise: n, which is public; `examine`, for the custodian's own eyes; and `non_private`,
by name. The proof is docs/privacy.md. This module loads neither pandas nor JAX before they are needed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from pgbb.accountant import Composition, Mechanism, PosteriorDraws
from pgbb.engine.protocol import Asked, Engine
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema
from pgbb.private.gibbs_posterior import BoundedLoss, posterior_draws
from pgbb.private.moments import Moment, entries, noisy_sums
from pgbb.private.randomness import Position, Randomness
from pgbb.private.refits import largest_sensitivity, mean_sensitivity, noisy_means, noisy_refits, refit_sensitivity
from pgbb.private.row_layout import EXTRA

if TYPE_CHECKING:
    from pgbb.private.loading import (
        Examined,
        File,
        NonPrivateRecords,
        Records,
        Source,
        Stored,
        columns_of,
        examine,
        header,
        public_samples,
        single,
        table,
    )
    from pgbb.private.session import Session, Step, run_many
    from pgbb.private.sums import Sums

__all__ = [
    "EXTRA", "Dataset", "Examined", "File", "Moment", "NonPrivateRecords", "Position", "Randomness", "Session",
    "Source", "Step", "Sums", "columns_of", "entries", "examine", "header", "largest_sensitivity", "mean_sensitivity",
    "non_private", "open_dataset", "open_sums", "public_samples", "refit_sensitivity", "run_many",
    "session_without_noise", "single", "table",
]  # fmt: skip

Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]
_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")

_LATER = {
    **dict.fromkeys(("Examined", "File", "NonPrivateRecords", "Source"), "loading"),
    **dict.fromkeys(("columns_of", "examine", "header", "public_samples", "single", "table"), "loading"),
    **dict.fromkeys(("Session", "Step", "run_many"), "session"),
    "Sums": "sums",
}


def __getattr__(name: str) -> object:
    """Names whose modules need pandas or JAX, imported on first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pgbb.private.{_LATER[name]}"), name)


def _of_records(
    ask: "Callable[Concatenate[Records, _Given], _Answer]",
) -> "Callable[Concatenate[Dataset, _Given], _Answer]":
    """A way to ask records, as a method of the data set that holds them."""

    @wraps(ask)
    def asked(data: "Dataset", /, *given: _Given.args, **more: _Given.kwargs) -> _Answer:
        return ask(data._records(), *given, **more)

    return asked


class Dataset:
    """The records of one source, encoded for one problem and out of sight; `open_dataset` makes one.

    A handle takes the memory of the records over, unless it is told to `keep` them for another one.
    Every method runs what the accountant certifies, and checks that it is described for these records.
    """

    def __init__(self, records: "Records | Stored | Engine", problem: Problem) -> None:
        self._held, self._problem = records, problem
        self.n = records.n
        """How many records there are, here or on the workers of a cluster; public."""

    def __repr__(self) -> str:
        return f"Dataset(n={self.n})"

    def _records(self) -> "Records":
        """The records in this process: the registry lets no method ask for them that are elsewhere."""
        return cast("Records", self._held)

    def sums(
        self,
        plan: Composition,
        names: Sequence[str],
        sigma: float,
        randomness: Randomness,
        *,
        progress: Progress | None = None,
        keep: bool = False,
        group_size: int = 1,
    ) -> "Sums":
        """Noisy means of statistics over all records, asked one after another, by stages with names.

        Where records tell their persons, second moments are of sums over the records of a person (`persons`).
        """
        from pgbb.private.loading import Records, Stored, here
        from pgbb.private.sums import Sums

        engine = self._held
        if isinstance(engine, Records | Stored):
            engine = here(engine, self._problem, group_size, keep=keep)
        return Sums(engine, plan, names, sigma, randomness, progress=progress)

    def session(
        self,
        mechanism: Mechanism,
        sigma: float,
        randomness: Randomness,
        *,
        problem: Problem | None = None,
        pseudo_blocks: int = 0,
        reshuffle: bool = False,
        resume: Position | None = None,
        keep: bool = False,
    ) -> "Session":
        """T·K noisy block-weighted sums of gradients over Poisson batches.

        Another `problem` may be asked about than the one the records were encoded for if it has the same columns, such
        as another level of a quantile regression.
        """
        from pgbb.private.loading import Records
        from pgbb.private.session import Session

        return Session(
            cast("Records | Engine", self._held), problem or self._problem, mechanism, sigma, randomness,
            pseudo_blocks=pseudo_blocks, reshuffle=reshuffle, consume=not keep, resume=resume,
            elsewhere=not isinstance(self._held, Records),
        )  # fmt: skip

    moments = _of_records(noisy_sums)
    refits = _of_records(noisy_refits)
    means = _of_records(noisy_means)

    def posterior_draws(
        self, losses: Sequence[BoundedLoss], target: PosteriorDraws, sigma: float, randomness: Randomness
    ) -> Floats:
        """Draws of the Gibbs posterior of each loss at temperature σ: (losses, m, d), internal coordinates."""
        return posterior_draws(self._records(), losses, target, sigma, randomness, shift=self._problem.shift)


def open_dataset(
    source: "Source", problem: Problem, schema: Schema, weights: str | None = None, asked: Asked | None = None
) -> Dataset:
    """Read and encode the records, here or on a cluster; errors depend on names, types and counts, never on a cell.

    The source is a frame, the path of a file or folder; `weights` is a column of survey weights.
    """
    from pgbb.private.loading import engine_for, records_for

    if asked is not None:
        return Dataset(engine_for(source, problem, schema, weights, asked, dense=True), problem)
    return Dataset(records_for(source, problem, schema, weights), problem)


@contextmanager
def open_sums(
    source: "Source",
    problem: Problem,
    schema: Schema,
    weights: str | None = None,
    *,
    asked: Asked | None = None,
    persons: str | None = None,
    scratch: Path | None = None,
) -> Iterator[Dataset]:
    """`open_dataset` for `Dataset.sums` alone: coded rows, here, in a folder for scratch files, or on a cluster.

    `persons` is a column that says whose record it is; then rows are dense, and here.
    """
    from pgbb.private.loading import engine_for, records_for, stored_for

    if persons is not None:
        yield Dataset(records_for(source, problem, schema, weights, persons), problem)
    elif asked is not None:
        yield Dataset(engine_for(source, problem, schema, weights, asked), problem)
    else:
        with closing(stored_for(source, problem, schema, weights, scratch)) as held:
            yield Dataset(held, problem)


def non_private(source: "Source", problem: Problem, schema: Schema, weights: str | None = None) -> "NonPrivateRecords":
    """The encoded records themselves, for `pgbb.reference`. NOT PRIVATE: publish nothing that comes of them."""
    from pgbb.private.loading import records_for

    return records_for(source, problem, schema, weights).as_non_private()


def session_without_noise(
    records: "NonPrivateRecords", problem: Problem, mechanism: Mechanism, randomness: Randomness
) -> "Session":
    """A session about records that were handed over by `non_private`, without noise. NOT PRIVATE."""
    from pgbb.private.loading import Records
    from pgbb.private.session import Session

    return Session(Records(records.rows, records.valid), problem, mechanism, 0.0, randomness)
