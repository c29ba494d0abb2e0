"""Draws from a fitted posterior, and the tables made of them, in the units of the data.

All of it is post-processing: it costs no privacy, and needs numpy and pandas
only, so that readers of a release do not need JAX. What is drawn from lives in
payload.py, files and certificates in release.py.
"""

import html
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.errors import InvalidValue, PgbbError, PgbbWarning
from pgbb.release.bars import Bar, intervals
from pgbb.release.payloads import ModelSummary, Payload, forward

__all__ = ["Diagnostics", "Posterior"]

INTERCEPT = "Intercept"
EDGE = 0.99  # a draw beyond this share of the box's radius is "at the edge"
FAINT = 3.0  # a curvature below this many standard deviations of its noise is remarked upon
ADVICE = (
    "The noise hides them, and their intervals are as wide as the parameter box. More records, a larger ε, narrower "
    "declared ranges or a smaller model would help."
)

Floats = NDArray[np.float64]
Levels = float | Sequence[float] | None


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What can be said about a posterior without data.

    Attributes:
      at_edge: share of draws within 1 % of the edge of the parameter box, by coefficient; None without a box.
      crossing: share of draws in which the fit at the centre of the declared ranges crosses between two adjacent
        levels; None unless this is a quantile model with an intercept and at least two levels.
      spread_ratio: sd of the draws over the reference sd stored at the fit; None without one.
      linear_share: share of a coefficient's variance that is linear in the block weights u. The blocked bootstrap is
        linear in u to first order, so a share far below 1 means that the generator did not learn its law, and that the
        spread of the draws is an artefact of training; None without blocks.
      remarks: what deserves a second look, a sentence each.
      privacy_share: share of a coefficient's variance that privacy noise makes; None unless the posterior is local.
      curvature_signal: smallest curvature over its noise, by level. Below about 3 the width of the intervals is
        itself a guess; None unless the posterior is local and its curvature noisy.
    """

    at_edge: Any
    crossing: Any
    spread_ratio: Any
    linear_share: Any
    remarks: tuple[str, ...]
    privacy_share: Any = None
    curvature_signal: Any = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; labels are joined as `0.1 educ` and `0.1–0.3`."""

        def plain(series: Any) -> dict[str, float] | None:
            if series is None:
                return None
            keys = (" ".join(map(_text, k)) if isinstance(k, tuple) else _text(k) for k in series.index)
            return {k: float(v) for k, v in zip(keys, series, strict=True)}

        return {
            "at_edge": plain(self.at_edge),
            "crossing": plain(self.crossing),
            "spread_ratio": plain(self.spread_ratio),
            "linear_share": plain(self.linear_share),
            "privacy_share": plain(self.privacy_share),
            "curvature_signal": plain(self.curvature_signal),
            "remarks": list(self.remarks),
        }


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


class Posterior:
    """Draws, intervals and contrasts. Every table is in original units and labelled by coefficient.

    Methods of a model with an index take `tau=`: a number, a list for joint
    draws that share the same u, or None for all declared levels. `index=` is
    the same argument under the name that fits a custom model.
    """

    def __init__(
        self,
        model: ModelSummary,
        schema: Mapping[str, Any],
        payload: Payload,
        diagnostics: Mapping[str, Any] | None = None,
    ) -> None:
        payload.check(model)
        self._model, self._schema, self._payload = model, dict(schema), payload
        self._stored = dict(diagnostics or {})
        self._warned = False

    @property
    def model(self) -> ModelSummary:
        """Names, units and index of the model."""
        return self._model

    @property
    def schema(self) -> dict[str, Any]:
        """The public schema, as `Schema.to_dict` wrote it."""
        return self._schema

    @property
    def payload(self) -> Payload:
        """What is drawn from."""
        return self._payload

    @property
    def stored_diagnostics(self) -> dict[str, Any]:
        """What the fit recorded; `reference_sd` (d, or levels×d, in original units) feeds `diagnostics`."""
        return self._stored

    def grid(self, points: int = 21) -> tuple[float, ...]:
        """Levels to draw a curve over: the declared ones, or `points` over a declared interval."""
        if self.model.index is None:
            return ()
        if self.payload.kind == "draws":
            return tuple(sorted(self.payload.settings["index_values"]))
        if self.model.levels is not None:
            return self.model.levels
        return tuple(np.linspace(self.model.index["low"], self.model.index["high"], points).tolist())

    def _levels(self, tau: Levels, index: Levels = None) -> list[float] | None:
        """The levels asked for, each declared; None for a model without an index."""
        if tau is not None and index is not None:
            raise InvalidValue("tau and index are the same argument under two names: give one of them.")
        asked = index if tau is None else tau
        model, name = self.model, self.model.index_name or "tau"
        if model.index is None:
            if asked is not None:
                raise InvalidValue(f"tau = {asked!r} is not allowed: this model has no index. Leave it out.")
            return None
        if asked is None:
            if model.levels is None:
                low, high = model.index["low"], model.index["high"]
                raise InvalidValue(
                    f"{name} = None is not allowed: this model covers every {name} in [{low:g}, {high:g}]. "
                    f"Say which, for example tau={(low + high) / 2:g}."
                )
            return list(self.grid())
        values = [asked] if np.ndim(cast(Any, asked)) == 0 else list(cast(Sequence[float], asked))
        if not values:
            raise _validate.fail(name, asked, "a number or a non-empty list of numbers")
        found = [self._level(name, _validate.number(name, v)) for v in values]
        if len(set(found)) < len(found):
            raise _validate.fail(name, asked, "a list of distinct numbers")
        return found

    def _level(self, name: str, value: float) -> float:
        index = cast(dict[str, Any], self.model.index)
        if index["kind"] == "interval" and self.payload.kind != "draws":
            return _validate.number(name, value, low=index["low"], high=index["high"])
        for level in self.grid():
            if math.isclose(level, value, rel_tol=1e-9, abs_tol=1e-12):
                return level
        raise _validate.fail(
            name, value, "one of " + ", ".join(f"{v:g}" for v in self.grid()), "Other levels need another fit."
        )

    def _internal(self, m: int, levels: list[float] | None, seed: int | None, iterate: str | None) -> Floats:
        """Joint draws in internal coordinates: (levels, m, d), with one level for a model without index."""
        m = _validate.integer("m", m, low=1)
        if seed is not None:
            seed = _validate.integer("seed", seed, low=0)
        if self.payload.kind == "transcript":
            raise PgbbError(
                "this release holds a transcript of noisy answers and no draws: it needs re-analysis first. Train a "
                "generator on it, which costs no privacy, then sample from the release which that gives."
            )
        if iterate is not None and (self.payload.kind != "generator" or iterate not in self.payload.iterates):
            raise _validate.fail(
                "iterate", iterate, " or ".join(map(repr, self.payload.iterates)) or "left out: no training is stored"
            )
        if self.payload.kind == "local":
            return self.payload.local.draw(m, levels, seed)
        rng = np.random.default_rng(seed)
        if self.payload.kind == "draws":
            return self._stored_rows(m, levels, rng)
        which = iterate or self.payload.settings["default_iterate"]
        u = self.payload.weights(m, rng)
        if levels is None:
            return forward(self.payload, u, which)[np.newaxis]
        inputs = [np.column_stack([u, np.full(m, level)]) for level in levels]
        return np.stack([forward(self.payload, v, which) for v in inputs])

    def _stored_rows(self, m: int, levels: list[float] | None, rng: np.random.Generator) -> Floats:
        draws = self.payload.tensors["draws"].astype(np.float64)
        size = draws.shape[-2]
        rows = rng.permutation(size)[:m] if m <= size else rng.integers(size, size=m)
        if levels is None:
            return draws[np.newaxis, rows]
        stored = self.payload.settings["index_values"]
        return draws[[stored.index(level) for level in levels]][:, rows]

    def _draws(self, levels: list[float] | None, draws: int, seed: int | None) -> Floats:
        """(levels, m, d) in original units, for tables: stored draws are used whole."""
        if self.payload.kind == "draws":
            draws = self.payload.tensors["draws"].shape[-2]
        return self.model.to_original(self._internal(draws, levels, seed, None))

    def sample(
        self, m: int, tau: Levels = None, seed: int | None = None, iterate: str | None = None, *, index: Levels = None
    ) -> pd.DataFrame:
        """m draws, one a row; several levels give joint draws with columns (level, name).

        Args:
          m: number of draws; any number, at no privacy cost.
          tau: level or levels of the index.
          seed: for reproducible draws; it has no bearing on privacy. None draws afresh.
          iterate: "average" or "last" of the training; None is the release's own choice.
          index: another name of `tau`.
        """
        levels = self._levels(tau, index)
        values = self.model.to_original(self._internal(m, levels, seed, iterate))
        if levels is None or len(levels) == 1:
            return pd.DataFrame(values[0], columns=list(self.model.names))
        columns = pd.MultiIndex.from_product([levels, self.model.names], names=[self.model.index_name, "coefficient"])
        return pd.DataFrame(np.concatenate(list(values), axis=1), columns=columns)

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
        is False where the noise hides a coefficient, whose interval is then the box.
        """
        level = _level_of_interval(level)
        levels = self._levels(tau, index)
        values = self._draws(levels, draws, seed)
        table = self._table(values, levels, level, list(self.model.names), "coefficient")
        if self.payload.kind == "local":
            columns = self.payload.local.columns(levels, np.array(self.model.transform))
            for name, column in columns.items():
                table[name] = column.ravel()
            hidden = self._hidden(columns["identified"], levels)
            if hidden and not self._warned:
                self._warned = True
                warnings.warn(f"{hidden} {ADVICE}", PgbbWarning, stacklevel=2)
        return table

    def _hidden(self, identified: NDArray[Any], levels: list[float] | None) -> str:
        """Which coefficients are not identified, as a sentence; empty if all are."""
        found = []
        for i, name in enumerate(self.model.names):
            rows = np.flatnonzero(~identified[:, i])
            at = sorted(levels[r] for r in rows) if levels is not None else []
            if len(at) > 5:
                found.append(f"{name} at {len(at)} values of {self.model.index_name} from {at[0]:g} to {at[-1]:g}")
            elif at:
                found.append(f"{name} at {self.model.index_name} = {', '.join(f'{v:g}' for v in at)}")
            elif len(rows):
                found.append(name)
        return f"not identified at this ε: {'; '.join(found)}." if found else ""

    def _table(self, values: Floats, levels: list[float] | None, level: float, rows: Sequence[Any], label: str) -> Any:
        columns = {k: v.ravel() for k, v in _moments(values, level).items()}
        if levels is None or len(levels) == 1:
            return pd.DataFrame(columns, index=pd.Index(rows))
        return pd.DataFrame(
            columns, index=pd.MultiIndex.from_product([levels, rows], names=[self.model.index_name, label])
        )

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
        weights: Mapping[Any, float],
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
        level = _level_of_interval(level)
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
        result = {k: float(v[0]) for k, v in _moments(total[:, np.newaxis], level).items()}
        return pd.Series({**result, "prob_positive": float(np.mean(total > 0))})

    def _term(self, key: Any, tau: float | None) -> tuple[int, float | None]:
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
        at: Any,
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
        level = _level_of_interval(level)
        levels = self._levels(tau, index)
        design, labels = self._design(at)
        values = self._draws(levels, draws, seed) @ design.T
        if self.model.kind == "logistic":
            from scipy.special import expit

            values = expit(values)
        return self._table(values, levels, level, labels, "row")

    def _design(self, at: Any) -> tuple[Floats, list[Any]]:
        """(rows, d): the terms in original units, and 0 for a coefficient that is no term, such as a scale."""
        if self.model.formula is None:
            raise InvalidValue(f"predict is not allowed: this {self.model.kind} model has no formula. Use summary().")
        from pgbb.model.formula import Design
        from pgbb.model.schema import Schema

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

    def to_arviz(self, draws: int = 2000, tau: Levels = None, seed: int | None = 0) -> Any:
        """The draws as one chain for ArviZ; each coefficient is a variable, with the levels as its dimension.

        Returns:
          `arviz.InferenceData` with ArviZ below 1.0 (Python 3.11); `xarray.DataTree` with ArviZ 1.0 and later
          (Python 3.12 and later).
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                import arviz
        except ImportError:
            raise PgbbError("to_arviz needs ArviZ, which is not installed: pip install 'pgbb[arviz]'.") from None
        levels = self._levels(tau)
        values = self.model.to_original(self._internal(draws, levels, seed, None))
        name = self.model.index_name
        posterior = {
            c: (values[0, :, i] if levels is None else values[:, :, i].T)[np.newaxis]
            for i, c in enumerate(self.model.names)
        }
        options: dict[str, Any] = {}
        if levels is not None:
            options = {"coords": {name: levels}, "dims": {c: [name] for c in self.model.names}}
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict({"posterior": posterior}, **options)
        return arviz.from_dict(posterior=posterior, **options)

    def diagnostics(self, draws: int = 4000, seed: int | None = 0) -> Diagnostics:
        """Draws at the edge of the box, crossing of quantiles, spread against the law of the blocked bootstrap.

        Of a local posterior: the share of privacy noise, what is not identified, and how well the curvature is known.
        """
        levels = None if self.model.index is None else list(self.grid(5))
        internal = self._internal(draws, levels, seed, None)
        remarks: list[str] = []
        share, signal = None, None
        at_edge = self._at_edge(internal, levels)
        binding = at_edge
        if self.payload.kind == "local" and at_edge is not None:
            inside = self.payload.local.columns(levels, np.eye(self.model.dim))["identified"]
            binding = at_edge.where(inside.ravel(), 0.0)  # of the others it is known
            share, signal = self._local_diagnostics(levels, remarks)
        if binding is not None and (binding > 0.05).any():
            worst = binding.idxmax()
            label = " at ".join(map(_text, reversed(worst))) if isinstance(worst, tuple) else str(worst)
            remarks.append(
                f"{binding.max():.0%} of the draws of {label} lie at the edge of the parameter box: the box binds, or "
                "the fit did not settle."
            )
        crossing = self._crossing(internal, levels)
        if crossing is not None and (crossing > 0.05).any():
            remarks.append(f"adjacent quantiles cross at the centre in up to {crossing.max():.0%} of the draws.")
        ratio = self._spread_ratio(internal, levels)
        if ratio is not None and ((ratio > 1.25) | (ratio < 0.8)).any():
            remarks.append(
                f"the draws spread {ratio.min():.2f} to {ratio.max():.2f} times the reference: "
                "far from 1, do not trust the width of the intervals."
            )
        linear = self._linear_share(internal, levels, seed)
        if linear is not None and (linear < 0.5).any():
            remarks.append(
                f"as little as {linear.min():.0%} of a coefficient's variance is linear in the block weights: the "
                "generator did not learn the law of the blocked bootstrap, so do not trust the width of the intervals."
            )
        return Diagnostics(at_edge, crossing, ratio, linear, tuple(remarks), share, signal)

    def _local_diagnostics(self, levels: list[float] | None, remarks: list[str]) -> tuple[Any, Any]:
        """Share of privacy noise, and signal of the curvature at the knots; what is faint joins the remarks."""
        local = self.payload.local
        columns = local.columns(levels, np.array(self.model.transform))
        hidden = self._hidden(columns["identified"], levels)
        if hidden:
            remarks.append(f"{hidden} {ADVICE}")
        signal = local.signal()
        knots = ["all"] if local.knots is None else local.knots.tolist()
        noisy = np.isfinite(signal)
        if (signal < FAINT).any():
            remarks.append(
                f"the smallest curvature is only {signal.min():.1f} times its noise: the width of the intervals is "
                "uncertain."
            )
        known = pd.Series(signal[noisy], index=[k for k, n in zip(knots, noisy, strict=True) if n])
        return self._series(columns["privacy_share"], levels), known if noisy.any() else None

    def _series(self, values: Floats, levels: list[float] | None) -> pd.Series:
        """(levels, d) as a labelled series."""
        if levels is None or len(levels) == 1:
            return pd.Series(values[0], index=list(self.model.names))
        labels = pd.MultiIndex.from_product([levels, self.model.names], names=[self.model.index_name, "coefficient"])
        return pd.Series(values.ravel(), index=labels)

    def _at_edge(self, internal: Floats, levels: list[float] | None) -> pd.Series | None:
        if self.payload.kind not in ("generator", "local"):
            return None
        t = self.payload.tensors
        if self.payload.kind == "local":
            center, radius = (t["high"] + t["low"]) / 2, (t["high"] - t["low"]) / 2
        else:
            center, radius = t["center"], t["radius"]
        return self._series((np.abs(internal - center) > EDGE * radius).mean(axis=1), levels)

    def _crossing(self, internal: Floats, levels: list[float] | None) -> pd.Series | None:
        """The internal intercept is the fit at the centre of the declared ranges, where every centred term is 0."""
        if self.model.kind != "quantile" or levels is None or len(levels) < 2 or INTERCEPT not in self.model.names:
            return None
        order = np.argsort(levels)
        fit = internal[order][:, :, self.model.names.index(INTERCEPT)]
        labels = [f"{levels[a]:g}–{levels[b]:g}" for a, b in pairwise(order)]
        return pd.Series((np.diff(fit, axis=0) < 0).mean(axis=1), index=labels)

    def _spread_ratio(self, internal: Floats, levels: list[float] | None) -> pd.Series | None:
        reference = self._stored.get("reference_sd")
        if reference is None:
            return None
        sd = self.model.to_original(internal).std(axis=1, ddof=1)
        try:
            expected = np.atleast_2d(np.asarray(reference, dtype=np.float64))
        except (TypeError, ValueError):
            raise InvalidValue("reference_sd is not allowed: it must hold numbers, one a coefficient.") from None
        if expected.shape != sd.shape or not (expected > 0).all():
            raise InvalidValue(
                f"reference_sd of shape {np.shape(reference)} is not allowed: it must be positive, one number a "
                f"coefficient, with a row for each level: {sd.shape}."
            )
        return self._series(sd / expected, levels)

    def _linear_share(self, internal: Floats, levels: list[float] | None, seed: int | None) -> pd.Series | None:
        """R² of the draws on the weights that made them, which the same seed gives again."""
        if self.payload.kind != "generator" or seed is None or self.payload.settings["blocks"] == 1:
            return None
        u = self.payload.weights(internal.shape[1], np.random.default_rng(seed))
        if internal.shape[1] < 4 * u.shape[1]:
            return None
        basis, _ = np.linalg.qr(u - u.mean(axis=0))
        centred = internal - internal.mean(axis=1, keepdims=True)
        explained = np.square(np.einsum("ms,lmd->lsd", basis, centred)).sum(axis=1)
        return self._series(explained / np.maximum(np.square(centred).sum(axis=1), 1e-300), levels)

    def _display(self, level: float = 0.95, tau: Levels = None) -> pd.DataFrame:
        """The summary that is printed: all levels, or five over an interval."""
        if tau is None and self.model.index is not None:
            tau = list(self.grid(5))
        return self.summary(tau, level)

    def to_html(self, tau: Levels = None, level: float = 0.95) -> str:
        """The summary as an HTML table."""
        return str(self._display(level, tau).to_html(float_format=_cell, border=0))

    def to_latex(self, tau: Levels = None, level: float = 0.95) -> str:
        """The summary as a LaTeX tabular, with booktabs rules."""
        table = self._display(level, tau)
        labels = table.index.nlevels
        heads = [_escape(n or "") for n in table.index.names] + [_escape(str(c)) for c in table.columns]
        lines = [f"\\begin{{tabular}}{{{'l' * labels}{'r' * len(table.columns)}}}", "\\toprule"]
        lines += [" & ".join(heads) + " \\\\", "\\midrule"]
        for label, row in zip(table.index, table.to_numpy(), strict=True):
            cells = [_escape(_text(p)) for p in (label if isinstance(label, tuple) else (label,))]
            lines.append(" & ".join(cells + [_latex_number(v) for v in row]) + " \\\\")
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])

    @property
    def title(self) -> str:
        """The kind of model, with its formula."""
        kind = {"quantile": "quantile regression", "huber": "Huber regression", "logistic": "logistic regression"}
        name = kind.get(self.model.kind, f"{self.model.kind} model")
        return name if self.model.formula is None else f"{name}: {self.model.formula}"

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self._header())
        if self.payload.kind == "transcript":
            return f"<div>{lines}<p>a transcript: re-analyse it to draw</p></div>"
        with warnings.catch_warnings():  # what is not identified is a column of the table, and hollow in the picture
            warnings.simplefilter("ignore", PgbbWarning)
            return f"<div>{lines}{self._picture()}{self.to_html()}</div>"

    def _picture(self, level: float = 0.95) -> str:
        """The intervals of the table, by coefficient, as SVG."""
        table = self._display(level)
        several = table.index.nlevels > 1
        groups: dict[str, list[Bar]] = {}
        for key, row in zip(table.index, table.to_dict("records"), strict=True):
            at, name = (f"{key[0]:g}", key[1]) if several else ("", key)
            bar = Bar(at, row["mean"], row["lower"], row["upper"], bool(row.get("identified", True)))
            groups.setdefault(str(name), []).append(bar)
        over = f" by {self.model.index_name}" if several else ""
        return intervals(list(groups.items()), f"posterior means and {level:g} intervals{over}")

    def _header(self) -> list[str]:
        return [self.title]

    def __repr__(self) -> str:
        if self.payload.kind == "transcript":
            return "\n".join([*self._header(), "a transcript: re-analyse it to draw"])
        return "\n".join([*self._header(), "", str(self._display().to_string(float_format=_cell))])


def _coded(name: str, declared: Any, values: Any) -> NDArray[Any]:
    """A column as terms want it: numbers, or codes of declared levels."""
    levels = getattr(declared, "levels", None)
    if levels is not None:
        codes = {str(level): code for code, level in enumerate(levels)}
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


def _cell(value: float) -> str:
    return f"{value:.4g}"


def _latex_number(value: float | bool) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    digits, _, power = _cell(value).partition("e")
    return f"${digits}$" if not power else f"${digits} \\times 10^{{{int(power)}}}$"


def _escape(text: str) -> str:
    """Text for LaTeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)


def _level_of_interval(level: Any) -> float:
    return _validate.number("level", level, above=0, below=1, remedy="0.95 is usual.")


def _moments(values: Floats, level: float) -> dict[str, Floats]:
    """Mean, sd and equal-tailed interval over the second-last axis."""
    lower, upper = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=-2)
    ddof = 1 if values.shape[-2] > 1 else 0
    return {"mean": values.mean(axis=-2), "sd": values.std(axis=-2, ddof=ddof), "lower": lower, "upper": upper}
