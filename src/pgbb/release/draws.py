"""Draws from a fitted posterior, at the levels asked for, in the units of the data.

All of it is post-processing: it costs no privacy, and needs numpy and pandas only, so that readers of a release do
not need JAX. What is drawn from is in payloads.py, tables made of draws in posterior.py.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pgbb import _validate
from pgbb._numerics import Floats
from pgbb.errors import InvalidValue, PgbbError
from pgbb.release.payloads import ModelSummary, Payload, forward

Levels = float | Sequence[float] | None


class Draws:
    """The model, its payload, and joint draws at one level or several.

    Attributes:
      model: names, units and index of the model.
      schema: the public schema, as `Schema.to_dict` wrote it.
      payload: what is drawn from.
      stored_diagnostics: what the fit recorded; `reference_sd` (d, or levels×d, in original units) feeds `diagnostics`.
    """

    def __init__(
        self,
        model: ModelSummary,
        schema: Mapping[str, object],
        payload: Payload,
        diagnostics: Mapping[str, object] | None = None,
    ) -> None:
        payload.check(model)
        self.model, self.schema, self.payload = model, dict(schema), payload
        self.stored_diagnostics = dict(diagnostics or {})
        self._warned = False

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__ and not name.startswith("_"):
            raise AttributeError(f"{name} cannot be exchanged: the parts of a release are checked together.")
        super().__setattr__(name, value)

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
        values = [asked] if np.ndim(asked) == 0 else list(cast(Sequence[float], asked))
        if not values:
            raise _validate.fail(name, asked, "a number or a non-empty list of numbers")
        found = [self._level(name, _validate.number(name, v)) for v in values]
        if len(set(found)) < len(found):
            raise _validate.fail(name, asked, "a list of distinct numbers")
        return found

    def _level(self, name: str, value: float) -> float:
        index = self.model.index
        assert index is not None
        if index["kind"] == "interval" and self.payload.kind != "draws":
            return _validate.number(name, value, low=index["low"], high=index["high"])
        for level in self.grid():
            if math.isclose(level, value, rel_tol=1e-9, abs_tol=1e-12):
                return level
        raise _validate.fail(
            name, value, "one of " + ", ".join(f"{v:g}" for v in self.grid()), "Other levels need another fit."
        )

    def internal_draws(self, m: int, levels: list[float] | None, seed: int | None, iterate: str | None) -> Floats:
        """Joint draws in internal coordinates: (levels, m, d), with one level for a model without index."""
        m = _validate.integer("m", m, low=1)
        if seed is not None:
            seed = _validate.integer("seed", seed, low=0)
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
        return self.model.to_original(self.internal_draws(draws, levels, seed, None))

    def local_columns(self, levels: list[float] | None) -> dict[str, NDArray[Any]]:
        """What a local posterior says beside its draws, (levels, d) each, in original units; of others nothing."""
        return (
            self.payload.local.columns(levels, np.array(self.model.transform)) if self.payload.kind == "local" else {}
        )

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
        values = self.model.to_original(self.internal_draws(m, levels, seed, iterate))
        if levels is None or len(levels) == 1:
            return pd.DataFrame(values[0], columns=list(self.model.names))
        columns = pd.MultiIndex.from_product([levels, self.model.names], names=[self.model.index_name, "coefficient"])
        return pd.DataFrame(np.concatenate(list(values), axis=1), columns=columns)

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
        values = self.model.to_original(self.internal_draws(draws, levels, seed, None))
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
