"""What can be said about a posterior from its draws alone, and what deserves a second look. Reads no data."""

import warnings
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pgbb._numerics import Floats
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.release.draws import Draws
from pgbb.release.tables import text

INTERCEPT = "Intercept"
EDGE = 0.99  # a draw beyond this share of the box's radius is "at the edge"
FAINT = 3.0  # a curvature below this many standard deviations of its noise is remarked upon
ADVICE = (
    "The noise hides them, and their intervals say little more than was known before. More records, a larger ε, "
    "narrower declared ranges or a smaller model would help."
)


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

    at_edge: pd.Series | None
    crossing: pd.Series | None
    spread_ratio: pd.Series | None
    linear_share: pd.Series | None
    remarks: tuple[str, ...]
    privacy_share: pd.Series | None = None
    curvature_signal: pd.Series | None = None

    def __repr__(self) -> str:
        parts = [f.name for f in fields(self) if f.name != "remarks" and getattr(self, f.name) is not None]
        return f"<Diagnostics: {' '.join(self.remarks) or 'nothing to remark.'} It has {', '.join(parts)}.>"

    def to_dict(self) -> dict[str, object]:
        """A JSON object; labels are joined as `0.1 educ` and `0.1–0.3`."""

        def plain(series: pd.Series | None) -> dict[str, float] | None:
            if series is None:
                return None
            keys = (" ".join(map(text, k)) if isinstance(k, tuple) else text(k) for k in series.index)
            return {k: float(v) for k, v in zip(keys, series, strict=True)}

        series = [f.name for f in fields(self) if f.name != "remarks"]
        return {name: plain(getattr(self, name)) for name in series} | {"remarks": list(self.remarks)}


def diagnose(source: Draws, draws: int, seed: int | None) -> Diagnostics:
    """Draws at the edge of the box, crossing of quantiles, spread against the law of the blocked bootstrap.

    Of a local posterior: the share of privacy noise, what is not identified, and how well the curvature is known.
    """
    levels = None if source.model.index is None else list(source.grid(5))
    internal = source.internal_draws(draws, levels, seed, None)
    remarks = _usable(source.stored_diagnostics.get("usable"))
    share, signal = None, None
    at_edge = _at_edge(source, internal, levels)
    binding = at_edge
    if source.payload.kind == "local" and at_edge is not None:
        inside = source.payload.local.columns(levels, np.eye(source.model.dim))["identified"]
        binding = at_edge.where(inside.ravel(), 0.0)  # of the others it is known
        share, signal = _local_diagnostics(source, levels, remarks)
    if binding is not None and (binding > 0.05).any():
        worst = binding.idxmax()
        label = " at ".join(map(text, reversed(worst))) if isinstance(worst, tuple) else str(worst)
        remarks.append(
            f"{binding.max():.0%} of the draws of {label} lie at the edge of the parameter box: the box binds, or "
            "the fit did not settle."
        )
    crossing = _crossing(source, internal, levels)
    if crossing is not None and (crossing > 0.05).any():
        remarks.append(f"adjacent quantiles cross at the centre in up to {crossing.max():.0%} of the draws.")
    ratio = _spread_ratio(source, internal, levels)
    if ratio is not None and ((ratio > 1.25) | (ratio < 0.8)).any():
        remarks.append(
            f"the draws spread {ratio.min():.2f} to {ratio.max():.2f} times the reference: "
            "far from 1, do not trust the width of the intervals."
        )
    linear = _linear_share(source, internal, levels, seed)
    if linear is not None and (linear < 0.5).any():
        remarks.append(
            f"as little as {linear.min():.0%} of a coefficient's variance is linear in the block weights: the "
            "generator did not learn the law of the blocked bootstrap, so do not trust the width of the intervals."
        )
    return Diagnostics(at_edge, crossing, ratio, linear, tuple(remarks), share, signal)


def _usable(share: object) -> list[str]:
    """What a fit recorded if few records counted; the file may be a stranger's."""
    if not isinstance(share, float) or not 0 <= share <= 1:
        return []
    return [
        f"at most {share:.0%} of the records have all cells that the model needs, as far as the noise shows. A cell "
        "that is missing, unreadable or not as declared voids its record: whoever holds the data can count them with "
        "pgbb check."
    ]


def _local_diagnostics(
    source: Draws, levels: list[float] | None, remarks: list[str]
) -> tuple[pd.Series, pd.Series | None]:
    """Share of privacy noise, and signal of the curvature at the knots; what is faint joins the remarks."""
    local = source.payload.local
    columns = source.local_columns(levels)
    faint = hidden(source, columns["identified"], levels)
    if faint:
        remarks.append(f"{faint} {ADVICE}")
    signal = local.signal()
    knots = ["all"] if local.knots is None else local.knots.tolist()
    noisy = np.isfinite(signal)
    if (signal < FAINT).any():
        remarks.append(
            f"the smallest curvature is only {signal.min():.1f} times its noise: the width of the intervals is "
            "uncertain."
        )
    known = pd.Series(signal[noisy], index=[k for k, n in zip(knots, noisy, strict=True) if n])
    return _series(source, columns["privacy_share"], levels), known if noisy.any() else None


def _series(source: Draws, values: Floats, levels: list[float] | None) -> pd.Series:
    """(levels, d) as a labelled series."""
    if levels is None or len(levels) == 1:
        return pd.Series(values[0], index=list(source.model.names))
    labels = pd.MultiIndex.from_product([levels, source.model.names], names=[source.model.index_name, "coefficient"])
    return pd.Series(values.ravel(), index=labels)


def _at_edge(source: Draws, internal: Floats, levels: list[float] | None) -> pd.Series | None:
    if source.payload.kind not in ("generator", "local"):
        return None
    t = source.payload.tensors
    if source.payload.kind == "local":
        center, radius = (t["high"] + t["low"]) / 2, (t["high"] - t["low"]) / 2
    else:
        center, radius = t["center"], t["radius"]
    return _series(source, (np.abs(internal - center) > EDGE * radius).mean(axis=1), levels)


def _crossing(source: Draws, internal: Floats, levels: list[float] | None) -> pd.Series | None:
    """Share of draws in which two adjacent quantiles cross at the centre of the declared ranges.

    There every centred term is 0, so that the fit is the internal intercept.
    """
    if source.model.kind != "quantile" or levels is None or len(levels) < 2 or INTERCEPT not in source.model.names:
        return None
    order = np.argsort(levels)
    fit = internal[order][:, :, source.model.names.index(INTERCEPT)]
    labels = [f"{levels[a]:g}–{levels[b]:g}" for a, b in pairwise(order)]
    return pd.Series((np.diff(fit, axis=0) < 0).mean(axis=1), index=labels)


def _spread_ratio(source: Draws, internal: Floats, levels: list[float] | None) -> pd.Series | None:
    reference = source.stored_diagnostics.get("reference_sd")
    if reference is None:
        return None
    sd = source.model.to_original(internal).std(axis=1, ddof=1)
    try:
        expected = np.atleast_2d(np.asarray(reference, dtype=np.float64))
    except (TypeError, ValueError):
        raise InvalidValue("reference_sd is not allowed: it must hold numbers, one a coefficient.") from None
    if expected.shape != sd.shape or not (expected > 0).all():
        given = np.shape(cast(ArrayLike, reference))
        raise InvalidValue(
            f"reference_sd of shape {given} is not allowed: it must be positive, one number a coefficient, with a row "
            f"for each level: {sd.shape}."
        )
    return _series(source, sd / expected, levels)


def _linear_share(source: Draws, internal: Floats, levels: list[float] | None, seed: int | None) -> pd.Series | None:
    """R² of the draws regressed on the block weights that made them; the same seed draws those weights again."""
    if source.payload.kind != "generator" or seed is None or source.payload.settings["blocks"] == 1:
        return None
    u = source.payload.weights(internal.shape[1], np.random.default_rng(seed))
    if internal.shape[1] < 4 * u.shape[1]:
        return None
    basis, _ = np.linalg.qr(u - u.mean(axis=0))
    centred = internal - internal.mean(axis=1, keepdims=True)
    explained = np.square(np.einsum("ms,lmd->lsd", basis, centred)).sum(axis=1)
    return _series(source, explained / np.maximum(np.square(centred).sum(axis=1), 1e-300), levels)


def hidden(source: Draws, identified: NDArray[np.bool_], levels: list[float] | None) -> str:
    """Which coefficients are not identified, as a sentence; empty if all are."""
    together: dict[tuple[int, ...], list[str]] = {}  # coefficients by where they are not
    for i, name in enumerate(source.model.names):
        if len(rows := np.flatnonzero(~identified[:, i])):
            together.setdefault(tuple(rows.tolist()), []).append(name)
    found = []
    for where_not, names in together.items():
        at = sorted(levels[r] for r in where_not) if levels is not None else []
        if len(at) > 5:
            where = f" at {len(at)} values of {source.model.index_name} from {at[0]:g} to {at[-1]:g}"
        else:
            where = f" at {source.model.index_name} = {', '.join(f'{v:g}' for v in at)}" if at else ""
        found.append(", ".join(names) + where)
    return f"not identified at this ε: {'; '.join(found)}." if found else ""


def warn_hidden(source: Draws, identified: NDArray[np.bool_], levels: list[float] | None, stacklevel: int) -> bool:
    """Warn of the coefficients that are not identified; whether there are any."""
    faint = hidden(source, identified, levels)
    if faint:
        warnings.warn(f"{faint} {ADVICE}", PgbbWarning, stacklevel=stacklevel)
    return bool(faint)
