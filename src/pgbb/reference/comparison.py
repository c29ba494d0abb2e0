"""`pgbb.compare`: several methods on one problem, one budget each, one table, and what all of them cost together.

Each method runs through `pgbb.fit` as it would alone; nothing here sees
records, except for the non-private reference that a caller may ask for.
"""

import html
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd

from pgbb import _validate
from pgbb.accountant.calibrate import Accountant
from pgbb.custody.run import fit
from pgbb.errors import InvalidValue, PgbbError, PgbbWarning
from pgbb.methods.registry import METHODS, OLDER_NAMES, ByMethod, MethodName, method_called, settings_for
from pgbb.methods.request import Request, prepared
from pgbb.model.models import Model, Problem
from pgbb.model.schema import Schema
from pgbb.reference.solvers import exact_fit
from pgbb.release.cost import Cost, total_cost
from pgbb.release.file import Release
from pgbb.release.tables import Bar, intervals

Row: TypeAlias = dict[str, Any]  # values by name
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One method's release, and how long it took: a time depends on the records, so it is in no table and no JSON."""

    method: str
    release: Release
    seconds: float

    @property
    def assumes(self) -> str:
        """What must hold for the intervals to mean what they say."""
        return METHODS[self.method].assumes

    def to_dict(self) -> dict[str, object]:
        """A JSON object without the draws."""
        return {
            "method": self.method,
            "draws": METHODS[self.method].draws,
            "assumes": self.assumes,
            "headline": self.release.certificate.headline(),
            "certificate": self.release.certificate.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several methods on one problem.

    Attributes:
      outcomes: one for each method, in the order in which they ran.
      level: probability of the intervals.
      levels: the levels of the index that are tabulated; None for a model without one.
      reference: exact minimisers by (level, coefficient), NOT PRIVATE; None unless asked for.
      skipped: methods that refused, with the reason; one that was named ends the comparison unless others have run.
      failed: methods that ended after records had answered, with the reason: each counts with `budget`.
      budget: (ε, δ) of each method.
    """

    outcomes: tuple[Outcome, ...]
    level: float
    levels: tuple[float, ...] | None
    reference: dict[tuple[float | None, str], float] | None
    skipped: dict[str, str]
    failed: dict[str, str] = field(default_factory=dict)
    budget: tuple[float, float] = (0.0, 0.0)

    @property
    def releases(self) -> dict[str, Release]:
        """The releases by method."""
        return {o.method: o.release for o in self.outcomes}

    @property
    def cost(self) -> Cost:
        """What all releases cost together, and all that failed after answers."""
        found, lost = total_cost({o.method: o.release.certificate for o in self.outcomes}), len(self.failed)
        (epsilon, delta), tighter = (lost * part for part in self.budget), found.tighter
        tighter = None if tighter is None else tighter + epsilon
        return replace(found, epsilon=found.epsilon + epsilon, delta=found.delta + delta, tighter=tighter)

    @property
    def private(self) -> bool:
        """Whether everything here may be published at `cost`."""
        return self.reference is None and all(o.release.certificate.private for o in self.outcomes)

    @property
    def index_name(self) -> str | None:
        """The name of the index, such as "tau"."""
        return self.outcomes[0].release.model.index_name

    def rows(self) -> list[Row]:
        """One for each level, coefficient and method, methods side by side; original units.

        `identified` is false where a method says that its budget does not tell this coefficient.
        """
        tables = {o.method: self._summary(o.release) for o in self.outcomes}
        index, found = self.index_name, []
        for at in self.levels or (None,):
            for name in self.outcomes[0].release.model.names:
                for outcome in self.outcomes:
                    line = tables[outcome.method][at, name]
                    row: Row = {} if index is None else {index: at}
                    row |= {"coefficient": name, "method": outcome.method, "estimate": line["mean"]}
                    row |= {"lower": line["lower"], "upper": line["upper"], "width": line["upper"] - line["lower"]}
                    row |= {"identified": bool(line.get("identified", True))}
                    if self.reference is not None:
                        row["reference (NOT PRIVATE)"] = self.reference[at, name]
                    found.append(row)
        return found

    def _summary(self, release: Release) -> dict[tuple[float | None, str], dict[str, float]]:
        found = {}
        for at in self.levels or (None,):
            with warnings.catch_warnings():  # what is not identified is marked in its row
                warnings.simplefilter("ignore", PgbbWarning)
                table = release.summary(at, self.level)
            found.update({(at, str(name)): line for name, line in table.to_dict("index").items()})
        return found

    def table(self) -> pd.DataFrame:
        """The rows as a frame, with what each method assumes in the last column."""
        assumes = {o.method: o.assumes for o in self.outcomes}
        frame = pd.DataFrame(self.rows())
        return frame.assign(assumes=frame["method"].map(assumes))

    def to_dict(self) -> dict[str, object]:
        """A JSON object."""
        return {
            "private": self.private,
            "level": self.level,
            "cost": self.cost.to_dict(),
            "methods": [o.to_dict() for o in self.outcomes],
            "skipped": self.skipped,
            "failed": self.failed,
            "rows": self.rows(),
        }

    def _repr_html_(self) -> str:
        index, groups = self.index_name, dict[str, list[Bar]]()
        rows = self.rows()
        for row in rows:
            group = row["coefficient"] if index is None else f"{row['coefficient']}, {index} {row[index]:g}"
            bar = Bar(row["method"], row["estimate"], row["lower"], row["upper"], row["identified"])
            groups.setdefault(group, []).append(bar)
        picture = intervals(list(groups.items()), f"estimates and {self.level:g} intervals by method")
        cost = self.cost
        claim = f"all together ε = {cost.epsilon:g}, δ = {cost.delta:g}" + ("" if self.private else "; NOT PRIVATE")
        title = html.escape(f"{self.outcomes[0].release.title}; {claim}")
        table = pd.DataFrame(rows).to_html(index=False, border=0, float_format=lambda v: f"{v:.4g}")
        return f"<div><p>{title}</p>{picture}{table}</div>"

    def __repr__(self) -> str:
        return pd.DataFrame(self.rows()).to_string(index=False, float_format=lambda v: f"{v:.4g}")


def methods_for(model: Model, problem: Problem) -> list[str]:
    """The methods that serve the model.

    >>> import pgbb
    >>> model = pgbb.QuantileRegression("y ~ x", interval=(.1, .9))
    >>> found = methods_for(model, model.prepare(pgbb.Schema(y=pgbb.Range(0, 1), x=pgbb.Range(0, 1))))
    >>> "pgbb" in found, "sgld" in found
    (True, False)
    """

    def serves(name: str) -> bool:
        try:
            METHODS[name].check(model, problem)
        except InvalidValue:
            return False
        return True

    return [name for name in METHODS if serves(name)]


def compare(
    model: Model,
    data: object,
    *,
    schema: Schema,
    epsilon: float,
    delta: float,
    methods: Sequence[MethodName] | None = None,
    settings: ByMethod | Mapping[str, Mapping[str, object]] | None = None,
    level: float = 0.95,
    tau: float | Sequence[float] | None = None,
    accountant: Accountant = "exact",
    weights: str | None = None,
    group_size: int = 1,
    allow_weak_delta: bool = False,
    insecure_seed: int | None = None,
    non_private_reference: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Run several methods on one problem, each under (ε, δ), and tabulate their intervals.

    Every method is its own release and spends its own budget: `Comparison.cost` has the sum. Whoever chooses a method
    by looking at the table has spent all of it. All methods, settings and levels are validated before the first
    record is read.

    Args:
      model, data, schema, epsilon, delta, accountant, weights, group_size, allow_weak_delta, insecure_seed: as
        for `pgbb.fit`.
      methods: which, in this order; None means all that serve the model. A method that is named and does not serve
        the model is an error.
      settings: constants by method, such as {"sgld": {"steps": 2_000}}.
      level: probability of the intervals.
      tau: levels to tabulate; None means all of a list, and five of an interval.
      non_private_reference: also fit the model exactly. The result must not be published.
      progress: called with (method, steps done, steps); (method, 0, 0) when a method begins.

    Returns:
      A `Comparison` with a table, the releases and the joint cost.
    """
    Request(
        model=model, data=data, schema=schema, epsilon=epsilon, delta=delta, accountant=accountant,
        weights=weights, group_size=group_size, insecure_seed=insecure_seed,
    )  # fmt: skip
    level = _validate.level(level)
    problem = prepared(model, schema)
    chosen = _chosen(model, problem, methods)
    constants = _settings(chosen, cast(Mapping[str, Mapping[str, object]], settings or {}))
    levels = _levels(problem, tau)
    reference = exact_fit(problem, data, schema, weights, levels) if non_private_reference else None
    outcomes: list[Outcome] = []
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name in chosen:
        begin = time.perf_counter()
        report = None
        if progress is not None:
            progress(name, 0, 0)

            def report(done: int, total: int, name: str = name) -> None:
                progress(name, done, total)

        try:
            release = fit(
                model, data, schema=schema, epsilon=epsilon, delta=delta, accountant=accountant,
                weights=weights, group_size=group_size, insecure_seed=insecure_seed, progress=report,
                allow_weak_delta=allow_weak_delta, **constants[name],
            )  # fmt: skip
        except PgbbError as error:
            if not error.answered and not outcomes and not failed:  # nothing is lost by ending here
                if not isinstance(error, InvalidValue):
                    raise
                if methods is not None:
                    raise InvalidValue(f"{name}: {error}") from error
            (failed if error.answered else skipped)[name] = str(error)
            continue
        outcomes.append(Outcome(name, release, time.perf_counter() - begin))
    if not outcomes:
        reasons = " ".join(f"{k}: {v}" for k, v in (skipped | failed).items())
        spent = f"Records answered {', '.join(failed)}, whose budgets count as spent. " if failed else ""
        raise InvalidValue(f"no method serves this problem. {spent}{reasons}")
    return Comparison(tuple(outcomes), level, levels, reference, skipped, failed, (epsilon, delta))


def _chosen(model: Model, problem: Problem, methods: Sequence[str] | None) -> list[str]:
    if methods is None:
        return methods_for(model, problem)
    names = [methods] if isinstance(methods, str) else list(methods)
    found = [method_called(name, "methods") for name in names]
    if not found or len({method.name for method in found}) < len(found):
        raise _validate.fail("methods", methods, f"a non-empty list of different methods, of {', '.join(METHODS)}")
    for method in found:
        method.check(model, problem)
    return [method.name for method in found]


def _settings(chosen: Sequence[str], given: Mapping[str, Mapping[str, object]]) -> dict[str, Row]:
    """The constants of each method, validated, with its name: arguments of `fit`."""
    given = {OLDER_NAMES.get(name, name): values for name, values in given.items()}
    for name in given:
        if name not in chosen:
            raise _validate.fail(
                "settings", name, f"for a method that is compared: {', '.join(chosen)}", "Leave the others out."
            )
    constants = {name: dict(given.get(name, {})) for name in chosen}
    for name, values in constants.items():
        settings_for(name, values)
    return {name: {"method": name, **values} for name, values in constants.items()}


def _levels(problem: Problem, tau: float | Sequence[float] | None) -> tuple[float, ...] | None:
    index = problem.index
    if index is None:
        if tau is not None:
            raise InvalidValue(f"tau = {tau!r} is not allowed: this model has no index. Leave it out.")
        return None
    declared = index.levels
    if tau is None:
        return declared or tuple(np.linspace(index.low, index.high, 5).tolist())
    asked = [tau] if isinstance(tau, int | float) else list(tau)
    if not asked or len(set(asked)) < len(asked):
        raise _validate.fail(index.name, tau, "a number or a list of different numbers")
    if not declared:
        return tuple(_validate.number(index.name, t, low=index.low, high=index.high) for t in asked)
    found = []
    for value in asked:
        near = [t for t in declared if math.isclose(t, _validate.number(index.name, value), rel_tol=1e-9)]
        if not near:
            raise _validate.fail(
                index.name, value, "one of " + ", ".join(f"{t:g}" for t in declared), "Other levels need another fit."
            )
        found.append(near[0])
    return tuple(found)
