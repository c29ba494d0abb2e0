"""Figures. Matplotlib is imported when a figure is asked for, not before."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pgbb.accountant import Mechanism, delta
from pgbb.errors import InvalidValue

__all__ = ["budget_panels", "save"]


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, np.atleast_1d(figure.subplots(rows, columns))


def save(figure: Any, path: str | Path) -> Path:
    """Write a figure to a file whose suffix names the format."""
    target = Path(path)
    kinds = figure.canvas.get_supported_filetypes()
    if target.suffix.lstrip(".").lower() not in kinds:
        raise InvalidValue(
            f"figure file {str(path)!r} is not allowed: the file must end in one of "
            + ", ".join(f".{k}" for k in sorted(kinds))
        )
    figure.savefig(target, dpi=150)
    return target


def _panels(base: Mechanism, sigma: float) -> Iterator[tuple[str, Sequence[tuple[str, Mechanism, float, int]]]]:
    """The four panels of Figure `fig:budget`: n, S, σ and J varied one at a time around a base."""
    yield (
        "(a) sample size n",
        [
            (f"n = {n:,}", replace(base, n=n, gamma=None if base.blocks > 2 else base.gamma), sigma, 32)
            for n in (base.n // 2, base.n, 2 * base.n)
            if n >= base.blocks
        ],
    )
    yield (
        "(b) block count S",
        [
            (f"S = {s}", replace(base, blocks=s, gamma=None), sigma, 32)
            for s in sorted({5, 10, 20, 50, base.blocks} - {1, 2, 3, 4})
            if s <= base.n
        ],
    )
    yield (
        "(c) noise scale σ",
        [(f"σ = {factor * sigma:.3g}", base, factor * sigma, 32) for factor in (0.8, 1.0, 1.25, 1.6)],
    )
    yield "(d) truncation order J", [(f"J = {j}", base, sigma, j) for j in (1, 2, 4, 8, 32)]


def budget_panels(base: Mechanism, sigma: float, epsilon: float) -> Any:
    """Figure `fig:budget`: δ⋆(ε) of Proposition `prop:formal-dp`, varying n, S, σ and J around a base mechanism."""
    figure, axes = _figure(1, 4, (14.0, 3.6))
    grid = epsilon * np.linspace(0.2, 2.5, 24)
    for axis, (title, curves) in zip(axes.ravel(), _panels(base, sigma), strict=True):
        for label, mechanism, noise, order in curves:
            values = [delta(mechanism, noise, float(e), "paper", J=order, conversion="mironov") for e in grid]
            axis.semilogy(grid, np.maximum(values, 1e-20), label=label, linewidth=1.4)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("ε")
        axis.set_ylim(1e-10, 1.5)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    axes.ravel()[0].set_ylabel("δ⋆(ε)")
    return figure


def quantile_process(release: Any, level: float = 0.95, coefficients: Sequence[str] | None = None) -> Any:
    """Each coefficient over the index: posterior mean with its pointwise band, one panel a coefficient."""
    model = release.model
    if model.index is None:
        raise InvalidValue("this model has no index to draw over: use coefficient_intervals.")
    names = _chosen(model.names, coefficients)
    levels = list(release.grid())
    table = release.summary(levels, level)
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, axes = _figure(rows, columns, (3.6 * columns, 2.9 * rows))
    for i, axis in enumerate(axes.ravel()):
        if i >= len(names):
            axis.set_visible(False)
            continue
        part = table.xs(names[i], level=1) if len(levels) > 1 else table.loc[[names[i]]]
        marker = "o" if len(levels) <= 12 else ""
        axis.fill_between(levels, part["lower"], part["upper"], alpha=0.25, linewidth=0, label=f"{level:.4g} band")
        axis.plot(levels, part["mean"], marker=marker, markersize=3.5, linewidth=1.4, label="posterior mean")
        axis.set_title(names[i], fontsize=10)
        axis.set_xlabel(model.index_name)
        axis.grid(alpha=0.3)
    axes.ravel()[0].legend(fontsize=8)
    _headline(figure, release)
    return figure


def coefficient_intervals(release: Any, level: float = 0.95, coefficients: Sequence[str] | None = None) -> Any:
    """Mean and interval of each coefficient, for a model without an index; each on its own scale."""
    if release.model.index is not None:
        raise InvalidValue("this model has an index: use quantile_process, which draws over it.")
    names = _chosen(release.model.names, coefficients)
    table = release.summary(level=level)
    figure, axes = _figure(len(names), 1, (6.0, 0.6 + 0.75 * len(names)))
    for name, axis in zip(names, axes.ravel(), strict=True):
        row = table.loc[name]
        axis.plot([row["lower"], row["upper"]], [0, 0], linewidth=2.0, solid_capstyle="butt")
        axis.plot([row["mean"]], [0], marker="o", color="black", markersize=4)
        axis.set_yticks([0], [name])
        axis.set_ylim(-1, 1)
        axis.margins(x=0.15)
        axis.grid(alpha=0.3, axis="x")
        axis.tick_params(labelsize=8)
    _headline(figure, release, f"mean and {level:.4g} interval; ")
    return figure


def _chosen(names: Sequence[str], coefficients: Sequence[str] | None) -> list[str]:
    chosen = list(names) if not coefficients else list(coefficients)
    for name in chosen:
        if name not in names:
            raise InvalidValue(f"coefficient = {name!r} is not allowed: the model has {', '.join(names)}.")
    return chosen


def _headline(figure: Any, release: Any, lead: str = "") -> None:
    """The privacy claim, or its absence, on every picture that may travel alone."""
    figure.suptitle(lead + release.certificate.headline(), fontsize=8)


__all__ += ["coefficient_intervals", "quantile_process"]
