"""Exact minimisers of Σ w_i l(θ, x_i) for every formula model, for many weight vectors at once.

Nothing here is private: functions take `NonPrivateRecords`, and what they return must not be published. Parameters are
in internal coordinates; `to_original` gives the units of the data. Neither the box nor the clip of a model binds here:
the minimiser is that of its loss.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pgbb import _validate
from pgbb._numerics import newton as _newton
from pgbb._numerics.newton import CELLS, TOLERANCE, Bools, Floats, Sample
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema
from pgbb.private.door import NonPrivateRecords, non_private

if TYPE_CHECKING:
    from pgbb.private.door import Source


def to_original(problem: Problem, theta: ArrayLike) -> Floats:
    """θ in the units of the data; the last axis of `theta` has length d."""
    return np.asarray(theta, dtype=np.float64) @ problem.transform.T + problem.offset


def solve(
    problem: Problem, records: NonPrivateRecords, weights: ArrayLike | None = None, index: float | None = None
) -> Floats:
    """The minimiser θ(w) of Σ w_i l(θ, x_i), in internal coordinates, to a gradient norm of 1e-8.

    Args:
      problem: a prepared model with a formula or a mean; a custom loss has no solver.
      records: handed over by `private.door.non_private`. Survey weights multiply w; invalid ones count for nothing.
      weights: w, (n,) or (m, n), non-negative; each row counts up to a factor. None means equal weights.
      index: τ of a quantile regression; it may be left out if the model has one level.

    Returns:
      (d,), or (m, d) for many weight vectors.

    >>> import pandas as pd, pgbb
    >>> from pgbb.private.door import non_private
    >>> schema = pgbb.Schema(x=pgbb.Range(0, 10))
    >>> problem = pgbb.Mean("x", scale=1.0).prepare(schema)
    >>> records = non_private(pd.DataFrame({"x": [1.0, 2.0, 6.0]}), problem, schema)
    >>> solve(problem, records), solve(problem, records, [[1, 1, 0], [0, 0, 1]])[:, 0]
    (array([3.]), array([1.5, 6. ]))
    """
    solver = Solver(problem, records, index)
    if weights is None:
        return solver.full.copy()
    array = check_weights(weights, records.n)
    many, rows = np.atleast_2d(array), solver.rows
    theta = np.concatenate([solver(many[start : start + rows]) for start in range(0, len(many), rows)])
    return theta[0] if array.ndim == 1 else theta


def exact_fit(
    problem: Problem, data: "Source", schema: Schema, weights: str | None, levels: tuple[float, ...] | None
) -> dict[tuple[float | None, str], float]:
    """The exact minimiser at every level, or the two-stage estimate, in original units: NOT PRIVATE."""
    if problem.kind == "iv":
        values = to_original(problem, _two_stages(problem, non_private(data, problem, schema, weights)))
        return {(None, name): float(v) for name, v in zip(problem.names, values, strict=True)}
    if problem.score is None:
        raise InvalidValue(
            "non_private_reference = True is not allowed with a custom loss: it has no exact solver. Leave it out."
        )
    records = non_private(data, problem, schema, weights)
    found: dict[tuple[float | None, str], float] = {}
    for at in levels or (None,):
        values = to_original(problem, solve(problem, records, index=at))
        found.update({(at, name): float(v) for name, v in zip(problem.names, values, strict=True)})
    return found


def _two_stages(problem: Problem, records: NonPrivateRecords) -> Floats:
    """Least squares on regressors as the instruments predict them; rows hold the terms of both sides of the bar."""
    root = np.sqrt(np.where(records.valid, records.weight.astype(np.float64), 0.0))
    rows, y = records.x.astype(np.float64) * root[:, None], (records.y.astype(np.float64) - problem.shift) * root
    x, z = (rows[:, problem.settings[name]] for name in ("rows", "uses"))
    predicted = z @ np.linalg.lstsq(z, x)[0]
    found, _, rank, _ = np.linalg.lstsq(predicted, y)
    if rank < x.shape[1]:
        raise PgbbError("the instruments do not move the regressors: there is no two-stage estimate.")
    return np.asarray(found, np.float64)


class Solver:
    """Minimisers for one problem and one set of records; later calls start from the fit with equal weights.

    Calling it with weights (m, n) gives (m, d). It holds about ten arrays of the size of the weights, so give it `rows`
    of them at a time.
    """

    def __init__(self, problem: Problem, records: NonPrivateRecords, index: float | None = None) -> None:
        check_records(records)
        if problem.score is None:
            raise PgbbError(
                f"a {problem.kind} problem has no exact solver: only quantile, Huber and logistic regression and means "
                "have one. Minimise your own loss with scipy.optimize."
            )
        offset = None if problem.design is None else problem.design.offset
        p = len(problem.names) - (problem.kind == "huber")
        if p + (offset is not None) != records.p:
            raise InvalidValue(
                f"records with p = {records.p} do not belong to this problem, which has the parameters "
                f"{', '.join(problem.names)}. Encode them with the same model and schema."
            )
        self.problem, self.index = problem, as_index(problem, index)
        self.n, self.rows = records.n, max(1, CELLS // records.n)
        self._survey = np.where(records.valid, records.weight.astype(np.float64), 0.0)
        x, y = records.x.astype(np.float64), records.y.astype(np.float64) - problem.shift
        if offset is not None:  # a count over its exposure, weighted by the exposure, has the same score
            middle, half = offset.mapped
            exposure = np.exp(middle + half * x[:, -1])
            x, y, self._survey = x[:, :p], y / exposure, self._survey * exposure
        self._sample = Sample(x, y)
        self._full: Floats | None = None

    @property
    def full(self) -> Floats:
        """The fit with equal weights, (d,)."""
        if self._full is None:
            weights = self._normalised(np.ones((1, self.n)))
            self._full = self._checked(*self._minimised(weights), weights)[0]
        return self._full

    def __call__(self, weights: Floats) -> Floats:
        """θ(w) for each row of weights (m, n)."""
        weights = self._normalised(weights)
        if self.problem.kind == "mean":
            return self._checked(*self._minimised(weights), weights)
        theta, done = self._minimised(weights, np.tile(self.full, (len(weights), 1)))
        again = np.flatnonzero(~done)
        if len(again):
            theta[again], done[again] = self._minimised(weights[again])
        return self._checked(theta, done, weights)

    def _normalised(self, weights: Floats) -> Floats:
        total = weights * self._survey
        mass = total.sum(axis=1, keepdims=True)
        if not (mass > 0).all():
            raise PgbbError(
                "a weight vector puts no mass on usable records, so there is nothing to fit. Every row needs a "
                "positive weight on a record without missing cells and with a positive survey weight."
            )
        return total / mass

    def _minimised(self, weights: Floats, start: Floats | None = None) -> tuple[Floats, Bools]:
        """The fits, and which of them converged; from scratch, or from fits with other weights."""
        sample, settings = self._sample, self.problem.settings
        if self.problem.kind == "logistic":
            return _newton.minimise_logistic(sample, weights, start)
        if self.problem.kind == "poisson":
            return _newton.minimise_poisson(sample, weights, start)
        if self.problem.kind == "expectile":
            return _newton.minimise_expectile(sample, settings["tau"], weights)
        if self.problem.kind in ("linear", "means"):
            return _newton.minimise_squares(sample, weights)
        if self.problem.kind == "huber":
            return _newton.minimise_huber(sample, settings["c"], settings["kappa"], weights, start)
        if self.problem.kind == "quantile":
            assert self.index is not None
            return _newton.minimise_quantile(sample, self.index, settings["bandwidth"], weights, start)
        mean = weights @ sample.y
        return mean[:, None], np.isfinite(mean) if settings["family"] == "gaussian" else mean > 0

    def _gradient(self, theta: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """The averaged gradient (m, d), and the averaged size of its terms (m,)."""
        assert self.problem.score is not None
        sample = self._sample
        p = sample.x.shape[1]
        # Parameters come first in a score, so a batch of them is (d, m, 1), against records (m, n).
        score, extra = self.problem.score(np, theta.T[..., None], theta[:, :p] @ sample.x.T, sample.y, self.index)
        total = (weights * score) @ sample.x
        size = np.einsum("mn,mn->m", weights, np.abs(score))
        if extra is not None:
            total = np.column_stack([total, np.einsum("mn,mn->m", weights, extra)])
        return total, size

    def _checked(self, theta: Floats, done: Bools, weights: Floats) -> Floats:
        """`theta`, if the model's own score, which the iteration did not use, agrees that it is a minimum.

        A mean with an unknown scale has no score, and is exact.
        """
        s = self.problem.settings
        if done.all() and not (s.get("family") == "gaussian" and s.get("scale") is None):
            total, size = self._gradient(theta, weights)
            done = np.linalg.norm(total, axis=1) <= TOLERANCE * np.maximum(1, size)
        if not done.all():
            why = {
                "quantile": "columns are collinear under the weights, or the bandwidth is too small and the loss flat",
                "poisson": "columns are collinear, or a level has no counts above 0: there is no finite minimum",
                "huber": "columns are collinear under the weights, or so many records fit exactly that the scale is 0",
                "logistic": "columns are collinear or separate the two classes, so that there is no finite minimum",
                "means": "a group has no records of positive weight",
                "mean": "an exponential mean needs positive values",
            }.get(self.problem.kind, "columns are collinear under the weights")
            raise PgbbError(
                f"{int((~done).sum())} of {len(done)} weighted fits did not converge to a gradient of {TOLERANCE:g}: "
                f"{why}. Use fewer terms, a larger bandwidth or smoother weights (more blocks, larger gamma)."
            )
        return theta


def check_records(records: object) -> None:
    """Refuse whatever was not handed over by `non_private`."""
    if not isinstance(records, NonPrivateRecords):
        raise InvalidValue(
            f"records of type {type(records).__name__} are not allowed here: a reference protects nothing and takes "
            "NonPrivateRecords only. Read them with pgbb.private.door.non_private(...), and publish nothing of it."
        )


def as_index(problem: Problem, index: float | None) -> float | None:
    """The level that is meant; None for a model without an index."""
    if problem.index is None:
        if index is not None:
            raise _validate.fail("index", index, "None", "This model has no index.")
        return None
    if index is None:
        if len(problem.index.levels) != 1:
            raise _validate.fail("index", None, f"a level {problem.index.name} in (0, 1)", "Pass index=0.5.")
        return problem.index.levels[0]
    return _validate.number("index", index, above=0, below=1)


def check_weights(weights: ArrayLike, n: int) -> Floats:
    """Weights (n,) or (m, n), finite and not negative."""
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim not in (1, 2) or array.shape[-1] != n or not array.size:
        raise InvalidValue(f"weights of shape {array.shape} are not allowed: they must be ({n},) or (m, {n}).")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise InvalidValue(
            "weights that are negative or not finite are not allowed: they must be ≥ 0. Clip them first."
        )
    return array
