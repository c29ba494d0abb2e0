"""Figures of releases, comparisons and budgets. Matplotlib is imported when a figure is asked for, not before."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pgbb.accountant import Mechanism, delta
from pgbb.errors import InvalidValue
from pgbb.planning.curves import PANELS, curves

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pgbb.reference.comparison import Comparison
    from pgbb.release.file import Release

__all__ = [
    "budget_panels",
    "check_target",
    "coefficient_intervals",
    "method_intervals",
    "quantile_process",
    "save",
]

GREY = "0.55"


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple["Figure", np.ndarray]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, np.atleast_1d(figure.subplots(rows, columns))


def check_target(path: str | Path) -> Path:
    """The path, if a figure can be written to it: for a caller who must know before anything is spent."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    target = Path(path)
    kinds = FigureCanvasAgg.get_supported_filetypes()
    if target.suffix.lstrip(".").lower() not in kinds:
        raise InvalidValue(
            f"figure file {str(path)!r} is not allowed: the file must end in one of "
            + ", ".join(f".{k}" for k in sorted(kinds))
        )
    if not target.parent.is_dir():
        raise InvalidValue(f"figure file {str(path)!r} is not allowed: its folder does not exist. Make it first.")
    return target


def save(figure: "Figure", path: str | Path) -> Path:
    """Write a figure to a file whose suffix names the format."""
    target = check_target(path)
    figure.savefig(target, dpi=150)
    return target


def budget_panels(base: Mechanism, sigma: float, epsilon: float) -> "Figure":
    """Figure 1: δ⋆(ε) of Proposition 2.2, varying n, S, σ and J around a base mechanism."""
    figure, axes = _figure(1, 4, (14.0, 3.6))
    grid = epsilon * np.linspace(0.2, 2.5, 24)
    for axis, (panel, title) in zip(axes.ravel(), PANELS.items(), strict=True):
        for value, mechanism, noise, order in curves(panel, base, sigma):
            values = [delta(mechanism, noise, float(e), "paper", J=order, conversion="mironov") for e in grid]
            label = f"σ = {value:.3g}" if panel == "sigma" else f"{panel} = {value:,.0f}"
            axis.semilogy(grid, np.maximum(values, 1e-20), label=label, linewidth=1.4)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("ε")
        axis.set_ylim(1e-10, 1.5)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    axes.ravel()[0].set_ylabel("δ⋆(ε)")
    return figure


def quantile_process(release: "Release", level: float = 0.95, coefficients: Sequence[str] | None = None) -> "Figure":
    """Each coefficient over the index: posterior mean with its pointwise band, one panel a coefficient.

    Levels at which a coefficient is not identified are grey and hollow.
    """
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
        if "identified" in part and not part["identified"].all():
            _hollow(axis, [v for v, known in zip(levels, part["identified"], strict=True) if not known], part)
        axis.set_xlabel(model.index_name)
        axis.grid(alpha=0.3)
    axes.ravel()[0].legend(fontsize=8)
    _headline(figure, release)
    return figure


def coefficient_intervals(
    release: "Release", level: float = 0.95, coefficients: Sequence[str] | None = None
) -> "Figure":
    """Mean and interval of each coefficient, for a model without an index; each on its own scale.

    A coefficient that is not identified is grey and hollow.
    """
    if release.model.index is not None:
        raise InvalidValue("this model has an index: use quantile_process, which draws over it.")
    names = _chosen(release.model.names, coefficients)
    table = release.summary(level=level)
    figure, axes = _figure(len(names), 1, (6.0, 0.6 + 0.75 * len(names)))
    for name, axis in zip(names, axes.ravel(), strict=True):
        row = table.loc[name]
        known = bool(row.get("identified", True))
        axis.plot(
            [row["lower"], row["upper"]], [0, 0], color="C0" if known else GREY, linewidth=2.0, solid_capstyle="butt"
        )
        axis.plot([row["mean"]], [0], "o", color="black" if known else GREY, markersize=4, mfc=None if known else "w")
        axis.set_yticks([0], [name if known else f"{name}\n(not identified)"])
        axis.set_ylim(-1, 1)
        axis.margins(x=0.15)
        axis.grid(alpha=0.3, axis="x")
        axis.tick_params(labelsize=8)
    _headline(figure, release, f"mean and {level:.4g} interval; ")
    return figure


def _hollow(axis: "Axes", levels: Sequence[float], part: "pd.DataFrame") -> None:
    """Mark the levels at which a coefficient is not identified: `part` is its table over all levels."""
    hidden = part[~part["identified"].astype(bool)]
    axis.vlines(levels, hidden["lower"], hidden["upper"], color=GREY, linewidth=1.0, linestyle=":")
    axis.plot(levels, hidden["mean"], "o", color=GREY, mfc="white", markersize=5, zorder=3)
    axis.set_title(f"{axis.get_title()} (hollow: not identified)", fontsize=9, color=GREY)


def method_intervals(comparison: "Comparison", coefficients: Sequence[str] | None = None) -> "Figure":
    """Estimates and intervals of a `pgbb.reference.comparison.Comparison`: a panel a coefficient, a colour a method.

    A model with an index has its levels on the horizontal axis, the methods side by side at each.
    """
    model = comparison.outcomes[0].release.model
    names, methods = _chosen(model.names, coefficients), [o.method for o in comparison.outcomes]
    levels = comparison.levels or (None,)
    where, gap = np.arange(len(levels)), 0.7 / len(methods)
    columns = min(3, len(names))
    panels = -(-len(names) // columns)
    figure, axes = _figure(panels, columns, (3.6 * columns, 1.0 + 2.9 * panels))
    rows = comparison.rows()
    for i, axis in enumerate(axes.ravel()):
        if i >= len(names):
            axis.set_visible(False)
            continue
        for j, method in enumerate(methods):
            part = [r for r in rows if r["coefficient"] == names[i] and r["method"] == method]
            at = where + gap * (j - (len(methods) - 1) / 2)
            lower, upper = ([r[end] for r in part] for end in ("lower", "upper"))
            axis.vlines(at, lower, upper, color=f"C{j}", linewidth=2.0, label=method)
            axis.plot(at, [r["estimate"] for r in part], "_", color="black", markersize=7)
        if comparison.reference is not None:
            exact = [comparison.reference[t, names[i]] for t in levels]
            label = "exact fit, NOT PRIVATE"
            axis.hlines(exact, where - 0.42, where + 0.42, color="red", linewidth=0.8, linestyle=":", label=label)
        axis.set_title(names[i], fontsize=10)
        axis.set_xlim(-0.6, len(levels) - 0.4)
        axis.set_xticks(where, ["" if t is None else f"{t:g}" for t in levels])
        axis.set_xlabel(comparison.index_name or "")
        axis.grid(alpha=0.3, axis="y")
        axis.tick_params(labelsize=8)
    figure.legend(*axes.ravel()[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    figure.suptitle(f"estimates and {comparison.level:.4g} intervals; {_claim(comparison)}", fontsize=8)
    return figure


def _claim(comparison: "Comparison") -> str:
    cost = comparison.cost
    line = f"all together ε = {cost.epsilon:g}, δ = {cost.delta:g}"
    if not cost.private:
        return f"NOT PRIVATE: insecure seed or no noise. Nominal {line}"
    return line if comparison.private else f"NOT PRIVATE: with an exact fit. Without it {line}"


def _chosen(names: Sequence[str], coefficients: Sequence[str] | None) -> list[str]:
    chosen = list(names) if not coefficients else list(coefficients)
    for name in chosen:
        if name not in names:
            raise InvalidValue(f"coefficient = {name!r} is not allowed: the model has {', '.join(names)}.")
    return chosen


def _headline(figure: "Figure", release: "Release", lead: str = "") -> None:
    """The privacy claim, or its absence, on every picture that may travel alone."""
    figure.suptitle(f"{lead}by {release.method_words}\n{release.certificate.headline()}", fontsize=8)
