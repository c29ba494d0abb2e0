"""A posterior as its reader uses it: summaries, intervals, contrasts and predictions, labelled by coefficient.

All of it is post-processing and costs no privacy. Draws come from draws.py; files and certificates are in file.py.
"""

import html
import warnings
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import expit

from pgbb import _validate
from pgbb._numerics import Floats
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.release.answers import Wald, new_responses, wald, z_table
from pgbb.release.diagnostics import ADVICE, Diagnostics, diagnose, warn_hidden
from pgbb.release.draws import Draws, Levels
from pgbb.release.payloads import same_payload
from pgbb.release.predictions import design_at, exposure_at
from pgbb.release.tables import cell, latex, moments, picture, table, text

__all__ = ["ADVICE", "Diagnostics", "Posterior", "Wald"]

_HIDDEN = 0.025  # a mean slope is hidden if so many of its draws are 0: its interval of 95 % ends there
PROCESS = 41  # levels of an interval at which a new response is drawn


class Posterior(Draws):
    """Draws, intervals and contrasts. Every table is in original units and labelled by coefficient.

    Methods of a model with an index take `tau=`: a number, a list for joint draws that share the same u, or None for
    all declared levels. `index=` is the same argument under the name that fits a custom model.
    """

    def summary(
        self, tau: Levels = None, level: float = 0.95, draws: int = 4000, seed: int | None = 0, *, index: Levels = None
    ) -> pd.DataFrame:
        """Mean, sd, equal-tailed interval and P(> 0) of each coefficient; several levels give rows (level, name).

        A local posterior knows where its variance comes from: `sampling_sd` and
        `privacy_sd` are the parts of sd, before the parameter box cuts any draw;
        `privacy_share` is the share of privacy noise in the variance; `identified`
        is False where the noise hides a coefficient: its interval is then the box, and its sd has no parts (NaN).
        """
        level = _validate.level(level)
        levels = self._levels(tau, index)
        table = self._coefficients(self._draws(levels, draws, seed), levels, level)
        columns = self.local_columns(levels)
        for name, column in columns.items():
            known = name == "identified" or columns["identified"]
            table[name] = (column if known is True else np.where(known, column, np.nan)).ravel()
        if columns and not self._warned:
            self._warned = warn_hidden(self, columns["identified"], levels, stacklevel=3)
        return table

    def _coefficients(
        self, values: Floats, levels: list[float] | None, level: float, names: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """A table of draws (levels, m, coefficients): their moments, and how often they are positive."""
        labels = list(self.model.names if names is None else names)
        found = table(values, level, labels, levels, (self.model.index_name, "coefficient"))
        found["prob_positive"] = (values > 0).mean(axis=1).ravel()
        return found

    def conf_int(
        self, level: float = 0.95, tau: Levels = None, draws: int = 4000, seed: int | None = 0, *, index: Levels = None
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
        total = self._sums([weights], tau, draws, seed)
        result = {k: float(v[0]) for k, v in moments(total, level).items()}
        return pd.Series({**result, "prob_positive": float(np.mean(total > 0))})

    def _sums(
        self, sums: Sequence[Mapping[Any, float]], tau: float | None, draws: int, seed: int | None, warn: bool = False
    ) -> Floats:
        """Joint draws of weighted sums of coefficients, (m, sums); may warn of coefficients that are not identified."""
        terms = []
        for k, weights in enumerate(sums):
            if not isinstance(weights, Mapping) or not weights:
                raise _validate.fail(
                    "weights", weights, "a non-empty dict from coefficient, or (coefficient, level), to weight"
                )
            terms += [(k, *self._term(key, tau), _validate.number("weight", w)) for key, w in weights.items()]
        levels = None if self.model.index is None else sorted({cast(float, at) for _, _, at, _ in terms})
        values = self._draws(levels, draws, seed)
        if warn:
            self._warn(levels, [self.model.names[name] for _, name, _, weight in terms if weight])
        total = np.zeros((values.shape[1], len(sums)))
        for k, name, at, weight in terms:
            total[:, k] += weight * values[0 if levels is None else levels.index(cast(float, at)), :, name]
        return total

    def _warn(self, levels: list[float] | None, names: Collection[str], stacklevel: int = 4) -> None:
        """Warn where any of these coefficients is not identified: an answer made of it says little."""
        known = self.local_columns(levels).get("identified")
        if known is not None:
            warn_hidden(self, known | ~np.isin(self.model.names, list(names)), levels, stacklevel + 1)

    def wald(
        self,
        hypotheses: Mapping[Any, float] | Sequence[Mapping[Any, float]],
        tau: float | None = None,
        level: float = 0.95,
        draws: int = 4000,
        seed: int | None = 0,
    ) -> Wald:
        """A joint test of several hypotheses, and their joint region, from the posterior's mean and covariance.

        Args:
          hypotheses: {name: value} or {(name, level): value}, all of which hold; or a list of weighted sums as
            `contrast` takes them, each of which is 0: [{("educ", .9): 1, ("educ", .1): -1}, …].
          tau: the level that plain names refer to.
          level: probability of the region.
          draws, seed: as for `summary`.
        """
        level = _validate.level(level)
        if not isinstance(hypotheses, Mapping | list | tuple) or not hypotheses:
            raise _validate.fail(
                "hypotheses", hypotheses, "a non-empty dict from coefficient to value, or list of dicts"
            )
        if isinstance(hypotheses, Mapping):
            values = [_validate.number("value", v) for v in hypotheses.values()]
            sums: list[Mapping[Any, float]] = [{key: 1.0} for key in hypotheses]
        else:
            values, sums = [0.0] * len(hypotheses), list(hypotheses)
        found = self._sums(sums, tau, draws, seed, warn=True)
        return wald(found, np.array(values), [_label(s) for s in sums], level)

    def coef_table(
        self, tau: Levels = None, level: float = 0.95, draws: int = 4000, seed: int | None = 0, *, index: Levels = None
    ) -> pd.DataFrame:
        """The summary in the words of statsmodels: coef, std err, z, P>|z| and the ends of the interval.

        The standard error carries sampling and privacy uncertainty; z and P>|z| are of the hypothesis that the
        coefficient is 0. Where a coefficient is not identified a warning says so: its P>|z| has no meaning.
        """
        self._warn(self._levels(tau, index), self.model.names, stacklevel=3)
        with warnings.catch_warnings():  # it is said above, each time
            warnings.simplefilter("ignore", PgbbWarning)
            return z_table(self.summary(tau, level, draws, seed, index=index), level)

    def cov_params(self, tau: Levels = None, draws: int = 4000, seed: int | None = 0) -> pd.DataFrame:
        """The covariance of the coefficients; of several levels that of all of them together."""
        return self.sample(draws, tau, seed).cov()

    def compare(
        self, other: "Posterior", tau: Levels = None, level: float = 0.95, draws: int = 4000, seed: int = 0
    ) -> pd.DataFrame:
        """The coefficients of this release less those of another, of the same model on other records: another year.

        The two are taken as independent, which they are if they have no record, and no noise, in common.

        Args:
          other: a release of the same model.
          tau, level, draws: as for `summary`.
          seed: of the draws; those of the other release have the next one.

        Returns:
          mean, sd, lower, upper and prob_positive of the difference; identified, where both releases know it.
        """
        level = _validate.level(level)
        if not isinstance(other, Posterior):
            raise _validate.fail("other", type(other).__name__, "a release")
        mine, its = ((m.model.kind, m.model.response, m.model.names, m.model.index_name) for m in (self, other))
        if mine != its:
            raise InvalidValue(
                f"compare is not allowed with a release of another model: this one is a {_words(*mine)}, the other a "
                f"{_words(*its)}. Fit the same model to both."
            )
        if same_payload(self.payload, other.payload):
            raise InvalidValue("compare is not allowed with the same release: its difference from itself is no news.")
        levels = self._levels(tau)
        pair = [p.sample(draws, levels, s).to_numpy() for p, s in ((self, seed), (other, seed + 1))]
        values = np.swapaxes((pair[0] - pair[1]).reshape(draws, -1, self.model.dim), 0, 1)
        table = self._coefficients(values, levels, level)
        if self.payload.kind == other.payload.kind == "local":
            known = self.local_columns(levels)["identified"] & other.local_columns(levels)["identified"]
            table["identified"] = known.ravel()
            warn_hidden(self, known, levels, stacklevel=3)
        return table

    def _term(self, key: object, tau: float | None) -> tuple[int, float | None]:
        name, at = key if isinstance(key, tuple) and len(key) == 2 else (key, tau)
        if name not in self.model.names:
            raise _validate.fail("coefficient", name, "one of " + ", ".join(self.model.names))
        levels = self._levels(at)
        if levels is not None and len(levels) != 1:
            raise InvalidValue(
                f"coefficient {name!r} without a level is not allowed: this model has several. Write "
                f"({name!r}, {levels[0]:g}) as the key, in a shell {name}@{levels[0]:g}, or pass tau={levels[0]:g}."
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
        kind: str | None = None,
    ) -> pd.DataFrame:
        """The posterior of the fit at covariates of your choice: public values, not records.

        Args:
          at: a data frame, or a dict from column to value or values, in original units.
          tau, level, draws, seed, index: as for `summary`.
          kind: "quantile" or "mean", what the model estimates, is an interval of the curve: of the fitted quantile, of
            the location, or (logistic) of the probability. "response" is an interval of a new response, from the
            quantile process: `level` may not reach beyond the levels that were fitted.

        Returns:
          One row for each row of `at` (and level): mean, sd, lower, upper; of a new response median, lower, upper.
        """
        level = _validate.level(level)
        own = "quantile" if self.model.kind == "quantile" else "mean"
        _validate.one_of("kind", own if kind is None else kind, ("mean", "quantile", "response"))
        if kind == "response":
            if tau is not None or index is not None:
                raise InvalidValue(
                    "tau with kind = 'response' is not allowed: its levels follow from level. Leave it out."
                )
            return self._response(*design_at(self.model, self.schema, at), level, draws, seed)
        if kind not in (None, own):
            raise InvalidValue(
                f"kind = {kind!r} is not allowed: this {self.model.kind} model estimates a {own}. "
                f"Write kind={own!r}, or fit a model of the {kind}."
            )
        levels = self._levels(tau, index)
        design, labels = design_at(self.model, self.schema, at)
        values = self._draws(levels, draws, seed) @ design.T
        if self.model.kind == "logistic":
            values = expit(values)
        if self.model.kind == "poisson":
            values = np.exp(values) * exposure_at(self.model, at)
        return table(values, level, labels, levels, (self.model.index_name, "row"))

    def _response(
        self, design: Floats, labels: list[Hashable], level: float, draws: int, seed: int | None
    ) -> pd.DataFrame:
        """Median and interval of a new response at each row, from the quantile process."""
        low, high = (1 - level) / 2, (1 + level) / 2
        grid = np.array(self.grid(PROCESS))
        if self.model.kind != "quantile":
            raise InvalidValue(
                f"kind = 'response' is not allowed: a {self.model.kind} model does not know how responses spread. "
                f"Fit a QuantileRegression with interval=({low:g}, {high:g})."
            )
        if len(grid) < 2 or grid[0] > low + 1e-9 or grid[-1] < high - 1e-9:
            raise InvalidValue(
                f"level = {level:g} is not allowed: an interval of a new response ends at the quantiles {low:g} and "
                f"{high:g}, and this release has {grid[0]:g} to {grid[-1]:g}. Ask for a smaller level, or fit these."
            )
        self._warn(grid.tolist(), self.model.names)
        values = self._draws(grid.tolist(), draws, seed)
        drawn = [new_responses(values @ row, grid, seed) for row in design]
        columns = np.quantile(drawn, [0.5, low, high], axis=1)
        return pd.DataFrame(dict(zip(("median", "lower", "upper"), columns, strict=True)), index=pd.Index(labels))

    def marginal_effects(self, level: float = 0.95, draws: int = 4000, seed: int | None = 0) -> pd.DataFrame:
        """Average marginal effects of a logistic regression: what a unit of a term adds to the probability, on average.

        The mean over the records of ∂p/∂x, as `get_margeff` of statsmodels has it, and its posterior: mean, sd, lower,
        upper, prob_positive and identified. A term inside another, such as x in I(x**2), is a term of its own. None is
        identified where the mean slope of the probability may be 0: effects of other terms hide it, or the noise.

        Args:
          level, draws, seed: as for `summary`.
        """
        level = _validate.level(level)
        local = self.payload.local if self.payload.kind == "local" else None
        if local is None or local.slope is None:
            raise InvalidValue(
                "marginal_effects is not allowed here: a logistic regression by the default method has them, pooled "
                "ones have not. Fit LogisticRegression, or predict at covariates of your choice."
            )
        internal, rng = self.internal_draws(draws, None, seed, None)[0], np.random.default_rng(seed)
        slope = local.slope[0] + (internal - local.center[0]) @ local.slope[2:]
        slope = slope + np.sqrt(local.slope[1]) * rng.standard_normal(draws)
        seen, slope = np.mean(slope <= 0.0) < _HIDDEN, np.clip(slope, 0.0, 0.25)
        terms = [j for j, name in enumerate(self.model.names) if name != "Intercept"]
        values = (self.model.to_original(internal) * slope[:, None])[None, :, terms]
        table = self._coefficients(values, None, level, [self.model.names[j] for j in terms])
        table["identified"] = self.local_columns(None)["identified"][0, terms] & seen
        return table

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
        if self.model.kind == "means":
            return f"means of {self.model.response} by {' and '.join(map(str, self.model.settings['by']))}"
        if self.model.kind == "iv":
            return f"two-stage least squares: {self.model.formula} | {self.model.settings['instruments']}"
        family = {"huber": "Huber", "poisson": "Poisson"}.get(self.model.kind, self.model.kind)
        name = f"{family} {'model' if family in ('mean', 'custom') else 'regression'}"
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


def _label(weights: Mapping[Any, float]) -> str:
    """A weighted sum as a row of a table: educ, or educ[0.9] − educ[0.1]."""

    def name(key: object) -> str:
        return f"{key[0]}[{text(key[1])}]" if isinstance(key, tuple) else str(key)

    parts = []
    for key, weight in weights.items():
        size = "" if abs(weight) == 1 else f"{abs(weight):g}·"
        parts.append(f"{'− ' if weight < 0 else '+ '}{size}{name(key)}")
    return " ".join(parts).removeprefix("+ ")


def _words(kind: str, response: str | None, names: Sequence[str], index: str | None) -> str:
    of = "" if response is None else f" of {response!r}"
    return f"{kind} model{of} on {', '.join(names)}" + ("" if index is None else f", over {index}")
