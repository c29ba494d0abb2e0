"""What every method is asked: a model, data, public knowledge and a budget; and the claim it may make in return."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pgbb import _validate
from pgbb.accountant import ACCOUNTANTS, Composition, Mechanism, Resampling
from pgbb.accountant.calibrate import Accountant
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.model.models import Custom, Model, Problem
from pgbb.model.schema import Schema
from pgbb.private.door import Together
from pgbb.release.certificate import Certificate, describe

if TYPE_CHECKING:
    from pgbb.custody.checkpoint import Checkpoint

__all__ = ["Planned", "Request", "Spend", "prepared"]


@dataclass(frozen=True)
class Planned:
    """What a method will ask of n records and at which noise: public, and known before any record is read.

    Attributes:
      mechanism, sigma: what is run.
      claim: the ε to certify, where it is not the one asked for.
      notes: what a reader should know about the calibration.
    """

    mechanism: Mechanism | Composition | Resampling
    sigma: float
    claim: float | None = None
    notes: tuple[str, ...] = ()


Spend = Callable[[Planned], None]
"""Called once, right before the first answer; raises where the answers are not paid for."""


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `pgbb.fit` that mean the same for every method; validated here, once.

    `declared_n` and `spend` come from a ledger: the number of records that it was told, and what to call before the
    first answer. `checkpoint` is where a long fit writes what it has so far. `together` are the processes that fit
    with this one.
    """

    model: Model
    data: Any
    schema: Schema
    epsilon: float
    delta: float
    accountant: Accountant = "exact"
    weights: str | None = None
    group_size: int = 1
    insecure_seed: int | None = None
    non_private: bool = False
    progress: Callable[[int, int], None] | None = None
    declared_n: int | None = None
    spend: Spend | None = None
    checkpoint: "Checkpoint | None" = None
    together: Together | None = None

    def __post_init__(self) -> None:
        def store(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        if not hasattr(self.model, "prepare"):
            raise _validate.fail(
                "model", type(self.model).__name__, "a pgbb model such as pgbb.QuantileRegression('y ~ x')"
            )
        if not isinstance(self.schema, Schema):
            raise _validate.fail(
                "schema", type(self.schema).__name__, "a pgbb.Schema", "Write pgbb.Schema(educ=pgbb.Range(5, 20))."
            )
        _validate.one_of("accountant", self.accountant, ACCOUNTANTS)
        store("delta", _validate.delta(self.delta))
        if not self.non_private:
            store("epsilon", _validate.epsilon(self.epsilon))
        store("group_size", _validate.integer("group_size", self.group_size, low=1))
        if self.insecure_seed is not None:
            _validate.integer("insecure_seed", self.insecure_seed, low=0)

    def advise(self, n: int) -> None:
        """Warn where δ would allow publishing whole records, and refuse another n than was declared; n is public."""
        if self.declared_n is not None and n != self.declared_n:
            raise InvalidValue(
                f"{n:,} records were loaded, but the ledger has n = {self.declared_n:,} for this data set. Nothing was "
                "asked. Name the data set that these records are, or declare them under a name of their own."
            )
        if self.delta > 1 / n and not self.non_private:
            warnings.warn(
                f"delta = {self.delta:g} exceeds 1/n = {1 / n:.3g}: it would allow publishing whole records. "
                "Choose it smaller.",
                PgbbWarning,
                stacklevel=4,
            )

    def begin(self, planned: Planned) -> None:
        """To be called right before the first answer: with a ledger, this puts on disk that answers follow.

        With other processes, not before all have loaded their records and will ask the same.
        """
        if self.together is not None:
            self.together.agree({"what will be asked": describe(planned.mechanism), "the noise": repr(planned.sigma)})
        if self.spend is not None:
            self.spend(planned)

    def certify(
        self, mechanism: Any, sigma: float, randomness: str, notes: Sequence[str], epsilon: float | None = None
    ) -> Certificate:
        """The certificate of the run that answered this request; `epsilon` where the claim is not the one asked for."""
        weighted = [f"Survey weights from column {self.weights!r}, divided by their public upper bound."]
        return Certificate.of_run(
            mechanism,
            sigma,
            self.epsilon if epsilon is None else epsilon,
            self.delta,
            accountant=self.accountant,
            randomness=randomness,
            non_private=self.non_private,
            group_size=self.group_size,
            notes=[*notes, *(weighted if self.weights is not None else [])],
        )


@lru_cache(maxsize=64)
def _cached(model: Model, schema: Schema) -> Problem:
    return model.prepare(schema)


def prepared(model: Model, schema: Schema) -> Problem:
    """The problem of a model; the same object for equal arguments, so that repeated fits compile once."""
    if isinstance(model, Custom):  # its loss may read what has changed since
        return model.prepare(schema)
    return _cached(model, schema)
