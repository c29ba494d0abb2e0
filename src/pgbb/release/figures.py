"""Figures of one release: the quantile process, a forest of intervals, densities.

Matplotlib is imported when a figure is asked for, not before.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pgbb._io import check_writable
from pgbb.errors import InvalidValue
from pgbb.model.schema import Schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pgbb.release.file import Release


GREY = "0.55"
POINTS = 256  # number of points of a density


def panels(rows: int, columns: int, size: tuple[float, float]) -> tuple["Figure", np.ndarray]:
    """A figure and its axes, as an array."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, np.atleast_1d(figure.subplots(rows, columns))


def panel_each(names: Sequence[str], height: float, extra: float = 0.0) -> tuple["Figure", list["Axes"]]:
    """A figure with a panel for each name, at most three in a row, and the axes of these."""
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, axes = panels(rows, columns, (3.6 * columns, extra + height * rows))
    for axis in axes.ravel()[len(names) :]:
        axis.set_visible(False)
    return figure, list(axes.ravel()[: len(names)])


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
    check_writable(target, "figure file")
    return target


def save(figure: "Figure", path: str | Path) -> Path:
    """Write a figure to a file whose suffix names the format."""
    target = check_target(path)
    figure.savefig(target, dpi=150)
    return target


def _zero(axis: "Axes", *, vertical: bool) -> None:
    """A thin line at 0, where the drawing reaches it."""
    low, high = axis.get_xlim() if vertical else axis.get_ylim()
    if low < 0 < high:
        (axis.axvline if vertical else axis.axhline)(0, color="0.4", linewidth=0.8, linestyle="--", zorder=0)


def quantile_process(release: "Release", level: float = 0.95, coefficients: Sequence[str] | None = None) -> "Figure":
    """Each coefficient over the index: posterior mean with its pointwise band, one panel a coefficient.

    Levels at which a coefficient is not identified are grey and hollow.
    """
    model = release.model
    if model.index is None:
        raise InvalidValue("this model has no index to draw over: use coefficient_intervals.")
    names = chosen(model.names, coefficients)
    levels = list(release.grid())
    table = release.summary(levels, level)
    figure, axes = panel_each(names, 2.9)
    for name, axis in zip(names, axes, strict=True):
        part = table.xs(name, level=1) if len(levels) > 1 else table.loc[[name]]
        marker = "o" if len(levels) <= 12 else ""
        hidden = ~part["identified"].to_numpy(dtype=bool) if "identified" in part else np.zeros(len(levels), dtype=bool)
        label, ends = f"{100 * level:.4g} % band", (part["lower"], part["upper"])
        axis.fill_between(levels, *ends, where=~hidden, alpha=0.25, linewidth=0, label=label)
        axis.plot(levels, part["mean"], marker=marker, markersize=3.5, linewidth=1.4, label="posterior mean")
        axis.set_title(_named(release, name), fontsize=10)
        if hidden.any():
            near = hidden | np.append(hidden[1:], False) | np.insert(hidden[:-1], 0, False)
            hatched = {"where": near, "hatch": "///", "facecolor": "0.93", "edgecolor": GREY, "linewidth": 0}
            axis.fill_between(levels, part["lower"], part["upper"], **hatched)
            at, out = np.array(levels)[hidden], part[hidden]
            axis.vlines(at, out["lower"], out["upper"], color=GREY, linewidth=1.0, linestyle=":")
            axis.plot(at, out["mean"], "o", color=GREY, mfc="white", markersize=5, zorder=3)
            axis.set_title(f"{axis.get_title()} (hollow: not identified)", fontsize=9, color=GREY)
        axis.set_xlabel("quantile level τ" if model.index_name == "tau" else model.index_name or "")
        axis.grid(alpha=0.3)
        _zero(axis, vertical=False)
    axes[0].legend(fontsize=8)
    _headline(figure, release)
    return figure


def coefficient_intervals(
    release: "Release", level: float = 0.95, coefficients: Sequence[str] | None = None, tau: float | None = None
) -> "Figure":
    """Mean and interval of each coefficient, each on its own scale; of a model with an index, at one level.

    A coefficient that is not identified is grey and hollow.
    """
    if release.model.index is not None and tau is None:
        raise InvalidValue("this model has an index: give a level, such as tau=0.5, or draw its whole process.")
    names = chosen(release.model.names, coefficients)
    table = release.summary(tau, level)
    figure, axes = panels(len(names), 1, (6.0, 0.6 + 0.75 * len(names)))
    for name, axis in zip(names, axes.ravel(), strict=True):
        row = table.loc[name]
        known = bool(row.get("identified", True))
        axis.plot(
            [row["lower"], row["upper"]], [0, 0], color="C0" if known else GREY, linewidth=2.0, solid_capstyle="butt"
        )
        axis.plot([row["mean"]], [0], "o", color="black" if known else GREY, markersize=4, mfc=None if known else "w")
        axis.set_yticks([0], [_named(release, name) + ("" if known else "\n(not identified)")])
        axis.set_ylim(-1, 1)
        axis.margins(x=0.15)
        axis.grid(alpha=0.3, axis="x")
        axis.tick_params(labelsize=8)
        _zero(axis, vertical=True)
    at = "" if tau is None else f" at {release.model.index_name} = {tau:g}"
    _headline(figure, release, f"mean and {level:.4g} interval{at}; ")
    return figure


def densities(
    release: "Release", level: float = 0.95, coefficients: Sequence[str] | None = None, tau: float | None = None
) -> "Figure":
    """The posterior density of each coefficient with its interval shaded; of a model with an index, at one level."""
    from scipy.stats import gaussian_kde

    if release.model.index is not None and tau is None:
        raise InvalidValue("this model has an index: give a level, such as tau=0.5.")
    names = chosen(release.model.names, coefficients)
    draws, table = release.sample(4000, tau=tau, seed=0), release.summary(tau, level)
    figure, axes = panel_each(names, 2.6)
    for name, axis in zip(names, axes, strict=True):
        values, row = draws[name].to_numpy(), table.loc[name]
        known = bool(row.get("identified", True))
        axis.set_title(_named(release, name) + ("" if known else " (not identified)"), fontsize=10)
        axis.set_yticks([])
        axis.locator_params(axis="x", nbins=5)
        if values.std() == 0:
            axis.axvline(values[0], color="C0")
            continue
        grid = np.linspace(values.min(), values.max(), POINTS)
        height = gaussian_kde(values)(grid)
        colour, inside = "C0" if known else GREY, (grid >= row["lower"]) & (grid <= row["upper"])
        axis.plot(grid, height, color=colour, linewidth=1.4)
        axis.fill_between(
            grid, height, where=inside, color=colour, alpha=0.25, linewidth=0, hatch=None if known else "//"
        )
    at = "" if tau is None else f" at {release.model.index_name} = {tau:g}"
    _headline(figure, release, f"posterior densities{at}, {level:.4g} intervals shaded; ")
    return figure


def chosen(names: Sequence[str], coefficients: Sequence[str] | None) -> list[str]:
    """The coefficients that are asked for, or all."""
    found = list(names) if not coefficients else list(coefficients)
    for name in found:
        if name not in names:
            raise InvalidValue(f"coefficient = {name!r} is not allowed: the model has {', '.join(names)}.")
    return found


def _named(release: "Release", name: str) -> str:
    """A coefficient for a reader: with the label and unit of its column, where it has them."""
    meaning = Schema.from_dict(release.schema).meaning(name) if release.schema else ""
    return f"{name}: {meaning}" if meaning and not meaning.startswith(f"{name} (") else meaning or name


def _headline(figure: "Figure", release: "Release", lead: str = "") -> None:
    """The privacy claim, or its absence, on every picture that may travel alone."""
    title = textwrap.fill(release.title, 120)
    figure.suptitle(f"{title}\n{lead}by {release.method_words}\n{release.certificate.headline()}", fontsize=8)
