"""The request to a method (model, data, public knowledge, budget) and the claim that it makes in return.

A method does not know who pays for its answers. It tells a `Custodian`, if there is one, how many records were loaded
and that answers follow, and gives a `Checkpoint` what it has so far. `pgbb.custody` has both.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from pgbb import _validate
from pgbb.accountant import ACCOUNTANTS, Target, noise_scale
from pgbb.accountant.calibrate import Accountant
from pgbb.engine.protocol import Asked, Workers
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.methods.run_state import Saved, Tree
from pgbb.model.models import Custom, Model, Problem, QuantileRegression, Simulated
from pgbb.model.schema import Range, Schema
from pgbb.private.door import Dataset, Position, open_dataset
from pgbb.release.certificate import ADJACENCY, BY_PERSON, Certificate, Randomness, versions_here
from pgbb.release.file import Release
from pgbb.release.payloads import Payload, summary_of

if TYPE_CHECKING:
    from pgbb.private.door import Source


@dataclass(frozen=True)
class Planned:
    """What a method will ask of n records and at which noise: public, and known before any record is read.

    Attributes:
      mechanism, sigma: what is run.
      claim: the ε to certify, where it is not the one asked for.
      notes: what a reader should know about the calibration.
    """

    mechanism: Target
    sigma: float
    claim: float | None = None
    notes: tuple[str, ...] = ()


class Checkpoint(Protocol):
    """Where a long fit puts what it has so far, so that another process can go on if this one is killed."""

    @property
    def saved(self) -> Saved | None:
        """What to go on from; None at the start."""

    def due(self, last: bool = False) -> bool:
        """Whether it is time to save; always after the last step."""

    def save(
        self,
        position: Position,
        state: Tree,
        kept: Mapping[str, np.ndarray],
        *,
        total: int,
        stage: int = 0,
        before: int = 0,
    ) -> None:
        """Save the state before the first step and after a chunk of steps.

        Args:
          position: of the run, after the chunk to which `state` belongs.
          state: of the method.
          kept: outputs so far, one row a step.
          total: steps of all runs.
          stage, before: which run it is, and the steps of all runs before it.
        """


class Custodian(Protocol):
    """Answers for the records: refuses questions that are not paid for, before they are asked."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Where to put what the fit has so far, if anywhere."""

    def loaded(self, n: int) -> None:
        """Note that so many records were loaded; raises if another number was declared."""

    def begin(self, planned: Planned) -> None:
        """Record that these answers follow, right after this returns; raises if they are not paid for."""


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `pgbb.fit` that mean the same for every method; validated here, once.

    `custodian` answers for the records, where there is a ledger; `cluster` has workers that read them; `scratch` is a
    folder that may hold them.
    """

    model: Model
    data: "Source"
    schema: Schema
    epsilon: float
    delta: float
    accountant: Accountant = "exact"
    weights: str | None = None
    group_size: int = 1
    persons: str | None = None
    insecure_seed: int | None = None
    non_private: bool = False
    progress: Callable[[int, int], None] | None = None
    allow_weak_delta: bool = False
    custodian: Custodian | None = None
    cluster: Workers | None = None
    scratch: Path | None = None

    def __post_init__(self) -> None:
        def store(name: str, value: object) -> None:
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
        if self.persons is not None:
            self._check_persons(self.persons)
        if self.insecure_seed is not None:
            _validate.integer("insecure_seed", self.insecure_seed, low=0)

    def _check_persons(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise _validate.fail("persons", name, "the name of a column")
        column = self.schema.get(name)
        if not isinstance(column, Range):
            given = "not declared" if column is None else f"declared as {column!r}"
            raise InvalidValue(
                f"persons = {name!r} is {given}, it must be declared as a Range of numbers that tell persons apart. "
                f"Declare {name} = Range(0, high); number persons whose names are words first."
            )
        if max(map(abs, column.bounds)) > 2**53:
            raise InvalidValue(
                f"persons = {name!r} is declared up to {max(map(abs, column.bounds)):g}, where numbers next to each "
                "other are one. Number persons below 2**53."
            )
        if self.group_size < 2:
            raise InvalidValue(
                f"group_size = {self.group_size} with persons = {name!r} is not allowed: give the most records that a "
                "person may have, at least 2. Without persons every record counts as a person of its own."
            )

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Where a long fit puts what it has so far, if anywhere."""
        return None if self.custodian is None else self.custodian.checkpoint

    @property
    def asked(self) -> Asked | None:
        """Who is asked for sums: a cluster, or None for this process."""
        return None if self.cluster is None else Asked(self.cluster, self.model)

    def advise(self, n: int) -> None:
        """Refuse a δ that would allow publishing a whole record, and another n than was declared; n is public.

        Where that is allowed, or nothing is private anyway, a δ above 1/n is warned of.
        """
        _validate.integer("group_size", self.group_size, low=1, high=n)
        if self.custodian is not None:
            self.custodian.loaded(n)
        if self.non_private or self.delta < 1 / n:
            return
        weak = f"delta = {self.delta:g} is not below 1/n = {1 / n:.3g}: it would allow publishing a whole record."
        if self.insecure_seed is None and not self.allow_weak_delta:
            raise InvalidValue(
                f"{weak} Choose it ten times smaller than 1/n or less; or, if that is meant, pass "
                "allow_weak_delta=True (--allow-weak-delta). Nothing was asked of the records."
            )
        if self.delta > 1 / n:
            warnings.warn(f"{weak} Choose it smaller.", PgbbWarning, stacklevel=4)

    def refuse(self, method: str, *, weights: str = "", non_private: str = "") -> None:
        """Raise where survey weights, or no noise, are asked of a method that has a reason to refuse them."""
        if weights and self.weights is not None:
            raise InvalidValue(
                f"weights = {self.weights!r} is not allowed with method = {method!r}: {weights}. Leave the weights "
                "out, or take another method."
            )
        if non_private and self.non_private:
            raise InvalidValue(f"non_private is not allowed with method = {method!r}: {non_private}")

    def open(self, problem: Problem) -> Dataset:
        """Load the records, here or on a cluster, and `advise`: nothing is asked yet."""
        data = open_dataset(self.data, problem, self.schema, self.weights, self.asked)
        self.advise(data.n)
        return data

    def calibrate(self, target: Target) -> Planned:
        """These answers with the least noise that meets the budget; without any, where nothing is private."""
        if self.non_private:
            return Planned(target, 0.0)
        return Planned(target, noise_scale(target, self.epsilon, self.delta, self.accountant))

    def report(self, done: int, total: int) -> None:
        """Report progress to the caller, if it asked for that."""
        if self.progress is not None:
            self.progress(done, total)

    def begin(self, planned: Planned) -> None:
        """To be called right before the first answer: with a ledger, this puts on disk that answers follow."""
        if self.custodian is not None:
            self.custodian.begin(planned)

    def certify(
        self, mechanism: Target, sigma: float, randomness: str, notes: Sequence[str], epsilon: float | None = None
    ) -> Certificate:
        """The certificate of the run that answered this request; `epsilon` where the claim is not the one asked for."""
        weighted = [f"Survey weights from column {self.weights!r}, divided by their public upper bound."]
        return Certificate(
            epsilon=math.inf if self.non_private else self.epsilon if epsilon is None else epsilon,
            delta=self.delta,
            sigma=sigma,
            mechanism=mechanism,
            accountant=self.accountant,
            randomness=cast(Randomness, randomness),
            non_private=self.non_private,
            group_size=self.group_size,
            adjacency=ADJACENCY if self.persons is None else BY_PERSON,
            versions=versions_here(),
            notes=(*notes, *(weighted if self.weights is not None else [])),
        )

    def release_draws(
        self,
        method: str,
        planned: Planned,
        randomness: str,
        draws: Sequence[np.ndarray],
        notes: Sequence[str],
        diagnostics: Mapping[str, object],
        levels: list[float] | None = None,
    ) -> Release:
        """The release of stored draws, (m, d) for each of the levels, or one such array without them."""
        stored = draws[0] if levels is None else np.stack(draws)
        return Release(
            model=summary_of(prepared(self.model, self.schema)),
            schema=self.schema.to_dict(),
            certificate=self.certify(planned.mechanism, planned.sigma, randomness, notes, planned.claim),
            payload=Payload(kind="draws", settings={"index_values": levels}, tensors={"draws": stored}),
            diagnostics={"method": method, **diagnostics},
        )


def by_level(model: Model, schema: Schema) -> tuple[list[Problem], list[float] | None]:
    """A problem for each quantile level, with the gradient bound of that level, and the levels; or the model itself."""
    if isinstance(model, QuantileRegression):
        assert model.taus is not None  # the registry refuses an interval where this is called
        return [at_level(prepared(model, schema), t, model=model, schema=schema) for t in model.taus], list(model.taus)
    return [prepared(model, schema)], None


@lru_cache(maxsize=64)
def at_level(problem: Problem, tau: float, *, model: QuantileRegression, schema: Schema) -> Problem:
    """The problem of one quantile level; `problem` is that of the model, of which workers of a cluster make it."""
    origin = (*problem.origin, ("pgbb.methods.request:at_level", (tau,)))
    return replace(prepared(replace(model, taus=(tau,)), schema), origin=origin)


@lru_cache(maxsize=64)
def clipped(problem: Problem, clip: float | None, **_: object) -> Problem:
    """The problem with this bound C on its gradient, to which each record's is clipped; None leaves it as it is.

    The same object for equal arguments, so that repeated fits compile once.
    """
    if clip is None:
        return problem
    return replace(problem, clip=clip, origin=(*problem.origin, ("pgbb.methods.request:clipped", (clip,))))


@lru_cache(maxsize=64)
def _cached(model: Model, schema: Schema) -> Problem:
    return model.prepare(schema)


def prepared(model: Model, schema: Schema) -> Problem:
    """The problem of a model; the same object for equal arguments, so that repeated fits compile once."""
    if isinstance(model, Custom | Simulated):  # its code may read what has changed since
        return model.prepare(schema)
    return _cached(model, schema)
