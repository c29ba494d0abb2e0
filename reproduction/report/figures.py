"""The paper's figures from results, in its layout. Matplotlib is imported when a figure is asked for, not before."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pgbb.report.plots import PANELS
from reproduction.constants import PRINTED_NAME
from reproduction.judge import summarise
from reproduction.printed import lookup
from reproduction.studies.census import own_name
from reproduction.studies.linear import printed_cells, variants
from reproduction.study import Outcome, Results

__all__ = ["figures"]

RUNS = 3
"""Runs of a method that are drawn over each other."""

Figure = tuple[str, str, Any]
"""Label in the paper, caption, and the figure."""


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _legend(figure: Any, axes: Any) -> None:
    found: dict[str, Any] = {}
    for axis in axes.ravel():
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        columns = max(1, min(len(found), int(figure.get_figwidth() / 1.9)))
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def _budget(results: Results) -> Any:
    figure, axes = _figure(1, 4, (14.0, 3.6))
    for axis, (panel, title) in zip(axes.ravel(), PANELS.items(), strict=True):
        if panel in results:
            for value, rows in results[panel].rows.groupby("value"):
                label = f"σ = {value:.3g}" if panel == "sigma" else f"{panel} = {value:,.0f}"
                axis.semilogy(rows["epsilon"], np.maximum(rows["delta"], 1e-20), label=label)
        axis.set(title=title, xlabel="ε", ylim=(1e-10, 1.5))
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("δ⋆(ε)")
    return figure


def _blocking(results: Results) -> Any:
    rows = pd.concat([o.rows.assign(n=o.settings["n"]) for o in results.values()])
    sizes = sorted(rows["n"].unique())
    figure, axes = _figure(1, 3, (12.0, 3.8))
    titles = ("(a) 1-Wasserstein distance", "(b) total variance ratio", "(c) 95 % coverage: — quantile, -- normal")
    for i, ((arm, gamma), part) in enumerate(rows[rows["arm"] != "unblocked"].groupby(["arm", "gamma"], sort=False)):
        mean = part.groupby("n")[["wasserstein", "variance", "unblocked", "quantile", "normal"]].mean()
        label, style = f"{arm}, γ = {gamma}", {"color": f"C{i}", "marker": "o", "markersize": 3}
        axes[0, 0].loglog(mean.index, mean["wasserstein"], label=label, **style)
        axes[0, 1].semilogx(mean.index, mean["variance"] / mean["unblocked"], label=label, **style)
        axes[0, 2].semilogx(mean.index, mean["quantile"], label=label, **style)
        axes[0, 2].semilogx(mean.index, mean["normal"], linestyle="--", **style)
    axes[0, 1].axhline(1, color="0.5", linewidth=0.8)
    axes[0, 2].axhline(0.95, color="0.5", linewidth=0.8)
    for axis, title in zip(axes.ravel(), titles, strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("n")
        axis.set_xticks(sizes, [f"{n:,}" for n in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    _legend(figure, axes)
    return figure


def _over_epsilon(
    results: Results,
    column: Callable[[Mapping[str, Any]], str],
    named: Callable[[Outcome], list[tuple[str, Any]]],
    measures: Sequence[str],
    printed: Callable[[Mapping[str, Any]], dict[str, float]] = lambda s: {},
) -> Any:
    """Measures over ε, a row each; a column a data set; a colour a method; bars are ± 2 standard errors.

    Crosses are printed figures.
    """
    heads = list(dict.fromkeys(column(o.settings) for o in results.values()))
    names = list(dict.fromkeys(name for o in results.values() for name, _ in named(o)))
    figure, axes = _figure(len(measures), len(heads), (3.2 * len(heads) + 0.6, 2.3 * len(measures) + 0.6))
    for j, head in enumerate(heads):
        points: dict[str, dict[float, Any]] = {}
        for outcome in results.values():
            s = outcome.settings
            if column(s) == head:
                for name, rows in named(outcome):
                    points.setdefault(name, {})[s["epsilon"]] = (summarise(rows), printed(s))
        for name, found in points.items():
            order = sorted(found)
            at = np.arange(len(order)) + 0.06 * (names.index(name) - len(names) / 2)
            for i, measure in enumerate(measures):
                value = [found[e][0][measure][0] for e in order]
                bar = [2 * found[e][0][measure][1] for e in order]
                axis, colour = axes[i, j], f"C{names.index(name)}"
                style = {"color": colour, "marker": "o", "markersize": 3, "label": name}
                axis.errorbar(at, value, None if measure == "coverage" else bar, **style)
                there = [found[e][1].get(measure, np.nan) for e in order]
                axis.plot(at, there, "x", color=colour, markersize=6)
                axis.set_xticks(range(len(order)), [f"{e:g}" for e in order])
                if measure == "coverage":
                    axis.axhline(0.95, color="0.5", linewidth=0.8)
                elif len(points) > 2:
                    axis.set_yscale("log")
    for i, measure in enumerate(measures):
        axes[i, 0].set_ylabel(measure)
    for j, head in enumerate(heads):
        axes[0, j].set_title(head, fontsize=9)
        axes[-1, j].set_xlabel("ε")
    _legend(figure, axes)
    return figure


def _gamma_names(outcome: Outcome) -> list[tuple[str, Any]]:
    constants = outcome.settings["constants"]
    gamma = "1" if constants.get("gamma") else "γ*"
    return [(f"S = {constants.get('blocks', 20)}, γ = {gamma}", outcome.rows[outcome.rows["variant"] == "last"])]


def _processes(results: Results, names: Sequence[str], columns: int) -> Any:
    """Coefficients over τ, a panel each for a data set and ε: three runs of each method, and the non-private fit."""
    fitted = [o for o in results.values() if o.settings["method"] != "reference"]
    free = {o.settings["year"]: o.rows for o in results.values() if o.settings["method"] == "reference"}
    places = list(dict.fromkeys((o.settings["year"], o.settings["epsilon"], name) for name in names for o in fitted))
    methods = list(dict.fromkeys(own_name(o.settings, v) for o in fitted for v in o.rows["variant"].unique()))
    height = -(-len(places) // columns)
    figure, axes = _figure(height, columns, (3.3 * columns, 2.5 * height + 0.6))
    for axis in axes.ravel()[len(places) :]:
        axis.set_visible(False)
    for axis, (year, epsilon, name) in zip(axes.ravel(), places, strict=False):
        for outcome in fitted:
            if (outcome.settings["year"], outcome.settings["epsilon"]) != (year, epsilon):
                continue
            part = outcome.rows[(outcome.rows["coefficient"] == name) & (outcome.rows["replicate"] < RUNS)]
            for (variant, run), rows in part.groupby(["variant", "replicate"], sort=False):
                k = methods.index(own_name(outcome.settings, str(variant)))
                at = rows["tau"] + 0.025 * (k - (len(methods) - 1) / 2) + 0.005 * (run - 1)
                label = methods[k] if run == 0 else None
                axis.vlines(at, rows["lower"], rows["upper"], color=f"C{k}", alpha=0.6, linewidth=1.6, label=label)
                axis.plot(at, rows["mean"], "_", color=f"C{k}", markersize=4)
        if year in free:
            rows = free[year][free[year]["coefficient"] == name]
            axis.plot(rows["tau"], rows["estimate"], color="black", marker=".", linewidth=1, label="non-private")
            axis.fill_between(rows["tau"], rows["lower"], rows["upper"], color="0.5", alpha=0.3, linewidth=0)
        axis.set_title(f"{name}, {year}, ε = {epsilon:g}", fontsize=9)
        axis.grid(alpha=0.3)
    _legend(figure, axes)
    return figure


def _decomposition(results: Sequence[Results]) -> Any:
    """Within-run, between-run and total standard deviation against the non-private one, ε = 1, all coefficients."""
    figure, axes = _figure(1, 3, (12.0, 4.0))
    colours: dict[str, str] = {}
    for part in results:
        free = {
            o.settings["year"]: o.rows.set_index(["tau", "coefficient"])["sd"]
            for o in part.values()
            if o.settings["method"] == "reference"
        }
        for outcome in part.values():
            s = outcome.settings
            if s.get("epsilon") != 1.0 or s["year"] not in free or outcome.rows["replicate"].nunique() < 2:
                continue
            for variant, rows in outcome.rows.groupby("variant", sort=False):
                name = own_name(s, str(variant))
                new = name not in colours
                colour = colours.setdefault(name, f"C{len(colours)}")
                by = rows.groupby(["tau", "coefficient"])
                within = np.sqrt(by["sd"].apply(lambda v: float(np.mean(np.square(v)))))
                between = by["mean"].std(ddof=1)
                for axis, value in zip(axes[0], (within, between, np.hypot(within, between)), strict=True):
                    base = free[s["year"]].reindex(value.index)
                    axis.loglog(base, value, ".", color=colour, label=name if new else None)
    for axis, title in zip(axes[0], ("(a) within runs", "(b) between runs", "(c) total"), strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("non-private standard error")
        axis.grid(alpha=0.3)
        ends = [max(axis.get_xlim()[0], 1e-6), axis.get_xlim()[1]]
        axis.plot(ends, ends, color="0.5", linewidth=0.8)
    _legend(figure, axes)
    return figure


def figures(study: str, results: Results, others: Callable[[str], Results]) -> Iterator[Figure]:
    """The figures that a study's results suffice for."""
    if study == "budget":
        yield "Figure 1", "Privacy curves.", _budget(results)
    elif study == "blocking":
        yield "Figure 2", "Blocked against Bayesian bootstrap.", _blocking(results)
    elif study == "linear":

        def printed(s: Mapping[str, Any]) -> dict[str, float]:
            name = PRINTED_NAME[s["method"]]
            return lookup("linreg_summary", epsilon=s["epsilon"], n=s["n"], method=name, noise=s["noise"])

        found = _over_epsilon(
            results, lambda s: f"{s['noise']}, n = {s['n']:,}", variants, ("mae", "coverage", "width"), printed
        )
        yield "Figure 3a", "Competing methods; bars are ± 2 standard errors, crosses are printed.", found
    elif study == "gamma":
        results = results | printed_cells(others("linear"))
        found = _over_epsilon(results, lambda s: f"{s['noise']}, n = {s['n']:,}", _gamma_names, ("coverage", "width"))
        yield "Figure 3b", "γ = 1 and γ*, last iterate.", found
    elif study == "families":
        found = _over_epsilon(
            results, lambda s: f"{s['family']}, n = {s['n']:,}", variants, ("mae", "coverage", "width")
        )
        yield "Figure 4", "Exponential families.", found
    elif study == "census" and any(o.settings["method"] != "reference" for o in results.values()):
        yield "Figure 5a", "Returns to schooling, %/yr; three runs overlaid.", _processes(results, ["educ"], 2)
        yield "Figure S1", "All covariates.", _processes(results, ["educ", "exper", "black"], 4)
        yield "Figure 6", "Posterior variability, with natality.", _decomposition([results, others("natality")])
    elif study == "natality" and any(o.settings["method"] != "reference" for o in results.values()):
        names = list(dict.fromkeys(c for o in results.values() for c in o.rows["coefficient"]))
        caption = "Births of 1997, grams; three runs overlaid."
        yield "Figure 5b", caption, _processes(results, ["NOSMOKE", "BLACK"], 2)
        yield "Figure S2", caption, _processes(results, names, 4)
