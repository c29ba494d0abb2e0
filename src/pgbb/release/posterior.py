"""A posterior as its reader uses it: summaries, intervals, contrasts and predictions, labelled by coefficient.

All of it is post-processing and costs no privacy. Draws come from draws.py; files and certificates are in file.py.
"""

import html
import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pgbb import _validate
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.model.schema import Flag, Range, Schema
from pgbb.model.schema import Levels as LevelsColumn
from pgbb.release.diagnostics import ADVICE, Diagnostics, diagnose, hidden
from pgbb.release.draws import Draws, Levels
from pgbb.release.tables import cell, latex, moments, picture, table

__all__ = ["ADVICE", "Diagnostics", "Posterior"]

Floats = NDArray[np.float64]


class Posterior(Draws):
    """Draws, intervals and contrasts. Every table is in original units and labelled by coefficient.

    Methods of a model with an index take `tau=`: a number, a list for joint
    draws that share the same u, or None for all declared levels. `index=` is
    the same argument under the name that fits a custom model.
    """

    def summary(
        self,
        tau: Levels = None,
        level: float = 0.95,
        draws: int = 4000,
        seed: int | None = 0,
        *,
        index: Levels = None,
    ) -> pd.DataFrame:
        """Mean, sd and equal-tailed interval of each coefficient; several levels give rows (level, name).

        A local posterior knows where its variance comes from: `sampling_sd` and
        `privacy_sd` are the parts of sd, before the parameter box cuts any draw;
        `privacy_share` is the share of privacy noise in the variance; `identified`
        is False where the noise hides a coefficient: its interval is then the box, and its sd has no parts (NaN).
        """
        level = _validate.level(level)
        levels = self._levels(tau, index)
        values = self._draws(levels, draws, seed)
        table = self._table(values, levels, level, list(self.model.names), "coefficient")
        if self.payload.kind == "local":
            columns = self.payload.local.columns(levels, np.array(self.model.transform))
            for name, column in columns.items():
                known = name == "identified" or columns["identified"]
                table[name] = (column if known is True else np.where(known, column, np.nan)).ravel()
            faint = hidden(self, columns["identified"], levels)
            if faint and not self._warned:
                self._warned = True
                warnings.warn(f"{faint} {ADVICE}", PgbbWarning, stacklevel=2)
        return table

    def _table(
        self, values: Floats, levels: list[float] | None, level: float, rows: Sequence[Hashable], label: str
    ) -> pd.DataFrame:
        return table(values, level, rows, levels, (self.model.index_name, label))

    def conf_int(
        self,
        level: float = 0.95,
        tau: Levels = None,
        draws: int = 4000,
        seed: int | None = 0,
        *,
        index: Levels = None,
    ) -> pd.DataFrame:
        """Lower and upper end of each coefficient's interval."""
        return self.summary(tau, level, draws, seed, index=index)[["lower", "upper"]]

    def contrast(
        self,
        weights: Mapping[str, float] | Mapping[tuple[str, float], float],
        level: float = 0.95,
        tau: float | None = None,
        draws: int = 4000,
        seed: int | None = 0,
    ) -> pd.Series:
        """The posterior of a weighted sum of coefficients, within a level or across levels.

        Args:
          weights: {name: weight}, or {(name, level): weight} across levels; {("educ", .9): 1, ("educ", .1): -1} is
            the difference of the schooling coefficients.
          level: probability of the interval.
          tau: the level that plain names refer to; without it a model with one level needs none.
          draws, seed: as for `summary`.

        Returns:
          mean, sd, lower, upper and prob_positive, the posterior probability that the sum is above 0.
        """
        level = _validate.level(level)
        if not isinstance(weights, Mapping) or not weights:
            raise _validate.fail(
                "weights", weights, "a non-empty dict from coefficient, or (coefficient, level), to weight"
            )
        terms = [(*self._term(key, tau), _validate.number("weight", w)) for key, w in weights.items()]
        levels = None if self.model.index is None else sorted({cast(float, t[1]) for t in terms})
        values = self._draws(levels, draws, seed)
        total = np.zeros(values.shape[1])
        for name, at, weight in terms:
            total += weight * values[0 if levels is None else levels.index(cast(float, at)), :, name]
        result = {k: float(v[0]) for k, v in moments(total[:, np.newaxis], level).items()}
        return pd.Series({**result, "prob_positive": float(np.mean(total > 0))})

    def _term(self, key: object, tau: float | None) -> tuple[int, float | None]:
        name, at = key if isinstance(key, tuple) and len(key) == 2 else (key, tau)
        if name not in self.model.names:
            raise _validate.fail("coefficient", name, "one of " + ", ".join(self.model.names))
        levels = self._levels(at)
        if levels is not None and len(levels) != 1:
            raise InvalidValue(
                f"coefficient {name!r} without a level is not allowed: this model has several. "
                f"Write ({name!r}, {levels[0]:g}) as the key, or pass tau={levels[0]:g}."
            )
        return self.model.names.index(name), None if levels is None else levels[0]

    def predict(
        self,
        at: pd.DataFrame | Mapping[str, ArrayLike],
        tau: Levels = None,
        level: float = 0.95,
        draws: int = 4000,
        seed: int | None = 0,
        *,
        index: Levels = None,
    ) -> pd.DataFrame:
        """The posterior of the fit at covariates of your choice: public values, not records.

        Args:
          at: a data frame, or a dict from column to value or values, in original units.
          tau, level, draws, seed, index: as for `summary`.

        Returns:
          One row for each row of `at` (and level): mean, sd, lower, upper of the fitted quantile, location, or
          (logistic) probability. It is an interval of the curve, not of a new response.
        """
        level = _validate.level(level)
        levels = self._levels(tau, index)
        design, labels = self._design(at)
        values = self._draws(levels, draws, seed) @ design.T
        if self.model.kind == "logistic":
            from scipy.special import expit

            values = expit(values)
        return self._table(values, levels, level, labels, "row")

    def _design(self, at: pd.DataFrame | Mapping[str, ArrayLike]) -> tuple[Floats, list[Hashable]]:
        """(rows, d): the terms in original units, and 0 for a coefficient that is no term, such as a scale."""
        if self.model.formula is None:
            raise InvalidValue(f"predict is not allowed: this {self.model.kind} model has no formula. Use summary().")
        from pgbb.model.formula import Design

        schema = Schema.from_dict(self.schema)
        terms = Design.parse(self.model.formula, schema).terms
        if not isinstance(at, Mapping | pd.DataFrame):
            raise _validate.fail("at", type(at).__name__, "a data frame, or a dict from column to value")
        try:
            frame = at if isinstance(at, pd.DataFrame) else pd.DataFrame({k: np.atleast_1d(v) for k, v in at.items()})
        except ValueError:
            raise _validate.fail("at", dict(at), "columns of one length") from None
        if not len(frame):
            raise _validate.fail("at", "an empty frame", "a frame of at least one row")
        needed = sorted({factor.column for term in terms for factor in term.factors})
        missing = [c for c in needed if c not in frame.columns]
        if missing:
            raise _validate.fail("at", list(frame.columns), "a frame with the columns " + ", ".join(needed))
        columns = {c: _coded(c, schema[c], frame[c]) for c in needed} or {"": np.zeros(len(frame))}
        design = np.zeros((len(frame), self.model.dim))
        for term in terms:
            design[:, self.model.names.index(term.name)] = term.evaluate(columns)
        return design, list(frame.index)

    def diagnostics(self, draws: int = 4000, seed: int | None = 0) -> Diagnostics:
        """Draws at the edge of the box, crossing of quantiles, spread against the law of the blocked bootstrap.

        Of a local posterior: the share of privacy noise, what is not identified, and how well the curvature is known.
        """
        return diagnose(self, draws, seed)

    def _display(self, level: float = 0.95, tau: Levels = None) -> pd.DataFrame:
        """The summary that is printed: all levels, or five over an interval."""
        if tau is None and self.model.index is not None:
            tau = list(self.grid(5))
        return self.summary(tau, level)

    def to_html(self, tau: Levels = None, level: float = 0.95) -> str:
        """The summary as an HTML table."""
        return str(self._display(level, tau).to_html(float_format=cell, na_rep="–", border=0))

    def to_latex(self, tau: Levels = None, level: float = 0.95) -> str:
        """The summary as a LaTeX tabular, with booktabs rules."""
        return latex(self._display(level, tau))

    @property
    def title(self) -> str:
        """The kind of model, with its formula."""
        kind = {"quantile": "quantile regression", "huber": "Huber regression", "logistic": "logistic regression"}
        name = kind.get(self.model.kind, f"{self.model.kind} model")
        return name if self.model.formula is None else f"{name}: {self.model.formula}"

    def _header(self) -> list[str]:
        return [self.title]

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self._header())
        with warnings.catch_warnings():  # what is not identified is a column of the table, and hollow in the picture
            warnings.simplefilter("ignore", PgbbWarning)
            notes = "".join(f"<p>{html.escape(line)}</p>" for line in self._notes())
            return f"<div>{lines}{picture(self._display(), 0.95)}{self.to_html()}{notes}</div>"

    def _notes(self) -> list[str]:
        return [f"note: {remark}" for remark in self.diagnostics().remarks]

    def __repr__(self) -> str:
        with warnings.catch_warnings():  # what is not identified is a column of the table, and among the notes
            warnings.simplefilter("ignore", PgbbWarning)
            table = str(self._display().to_string(float_format=cell, na_rep="–"))
        return "\n".join([*self._header(), "", table, *self._notes()])


def _coded(name: str, declared: Range | Flag | LevelsColumn, values: pd.Series) -> NDArray[np.float64]:
    """A column as `Term.evaluate` takes it: numbers, or codes of declared levels."""
    if isinstance(declared, LevelsColumn):
        codes = {str(level): code for code, level in enumerate(declared.levels)}
        unknown = [v for v in values if str(v) not in codes]
        if unknown:
            raise _validate.fail(name, unknown[0], "one of the declared levels " + ", ".join(codes))
        return np.array([codes[str(v)] for v in values])
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise _validate.fail(name, "text", "a column of numbers") from None
    if not np.isfinite(numbers).all():
        raise _validate.fail(name, "NaN or inf", "a column of finite numbers")
    low, high = declared.bounds
    if ((numbers < low) | (numbers > high)).any():
        warnings.warn(
            f"column {name!r} leaves its declared range [{low:g}, {high:g}]: the prediction extrapolates.",
            PgbbWarning,
            stacklevel=5,
        )
    return numbers
