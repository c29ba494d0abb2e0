"""Figures of comparisons and budgets, beside those of a release. Matplotlib is imported when one is asked for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pgbb.accountant import Mechanism, delta
from pgbb.release.figures import check_target, chosen, panel_each, panels, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pgbb.reference.comparison import Comparison

__all__ = ["budget_panels", "check_target", "method_intervals", "save"]


PANELS = {
    "n": "(a) sample size n",
    "S": "(b) block count S",
    "sigma": "(c) noise scale σ",
    "J": "(d) truncation order J",
}


def curves(panel: str, base: Mechanism, sigma: float) -> list[tuple[float, Mechanism, float, int]]:
    """The curves of a panel around a base: (varied value, mechanism, σ, J)."""
    if panel == "n":
        gamma = None if base.blocks > 2 else base.gamma
        sizes = [n for n in (base.n // 2, base.n, 2 * base.n) if n >= base.blocks]
        return [(n, replace(base, n=n, gamma=gamma), sigma, 32) for n in sizes]
    if panel == "S":
        counts = [s for s in sorted({5, 10, 20, 50, base.blocks} - {1, 2, 3, 4}) if s <= base.n]
        return [(s, replace(base, blocks=s, gamma=None), sigma, 32) for s in counts]
    if panel == "sigma":
        return [(factor * sigma, base, factor * sigma, 32) for factor in (0.8, 1.0, 1.25, 1.6)]
    return [(j, base, sigma, j) for j in (1, 2, 4, 8, 32)]


def budget_panels(base: Mechanism, sigma: float, epsilon: float) -> "Figure":
    """Figure 1: δ⋆(ε) of Proposition 2.2, varying n, S, σ and J around a base mechanism."""
    figure, axes = panels(1, 4, (14.0, 3.6))
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


def method_intervals(comparison: "Comparison", coefficients: Sequence[str] | None = None) -> "Figure":
    """Estimates and intervals of a `pgbb.reference.comparison.Comparison`: a panel a coefficient, a colour a method.

    A model with an index has its levels on the horizontal axis, the methods side by side at each.
    """
    model = comparison.outcomes[0].release.model
    names, methods = chosen(model.names, coefficients), [o.method for o in comparison.outcomes]
    levels = comparison.levels or (None,)
    where, gap = np.arange(len(levels)), 0.7 / len(methods)
    figure, axes = panel_each(names, 2.9, extra=1.0)
    rows = comparison.rows()
    for name, axis in zip(names, axes, strict=True):
        for j, method in enumerate(methods):
            part = [r for r in rows if r["coefficient"] == name and r["method"] == method]
            at = where + gap * (j - (len(methods) - 1) / 2)
            lower, upper = ([r[end] for r in part] for end in ("lower", "upper"))
            axis.vlines(at, lower, upper, color=f"C{j}", linewidth=2.0, label=method)
            axis.plot(at, [r["estimate"] for r in part], "_", color="black", markersize=7)
        if comparison.reference is not None:
            exact = [comparison.reference[t, name] for t in levels]
            label = "exact fit, NOT PRIVATE"
            axis.hlines(exact, where - 0.42, where + 0.42, color="red", linewidth=0.8, linestyle=":", label=label)
        axis.set_title(name, fontsize=10)
        axis.set_xlim(-0.6, len(levels) - 0.4)
        axis.set_xticks(where, ["" if t is None else f"{t:g}" for t in levels])
        axis.set_xlabel(comparison.index_name or "")
        axis.grid(alpha=0.3, axis="y")
        axis.tick_params(labelsize=8)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    figure.suptitle(f"estimates and {comparison.level:.4g} intervals; {_claim(comparison)}", fontsize=8)
    return figure


def _claim(comparison: "Comparison") -> str:
    cost = comparison.cost
    line = f"all together ε = {cost.epsilon:g}, δ = {cost.delta:g}"
    if not cost.private:
        return f"NOT PRIVATE: insecure seed or no noise. Nominal {line}"
    return line if comparison.private else f"NOT PRIVATE: with an exact fit. Without it {line}"
