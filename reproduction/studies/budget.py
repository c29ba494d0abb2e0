"""Privacy curves (Figure 1): δ⋆(ε) of Proposition 2.2, varying n, S, σ and J one at a time."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pgbb.accountant import Mechanism, delta, noise_scale
from pgbb.report.plots import PANELS, curves
from reproduction.judge import Line, goal, shown
from reproduction.study import Cells, Quick, Results, Row, Study, Table, each

__all__ = ["STUDY", "run"]

SHRINKS = {"n": True, "S": False, "sigma": True, "J": True}
"""Whether δ⋆ falls as the varied quantity grows."""


def cells() -> Cells:
    """A cell a panel, around the mechanism of the linear regression at ε = 1."""
    return {
        panel: {
            "panel": panel,
            "mechanism": {"n": 10_000, "blocks": 20, "sampling_rate": 0.1, "steps": 10_000, "clip": 2.648},
            "epsilon": 1.0,
            "delta": 1e-4,
            "points": 24,
            "exact": True,
            "once": True,
        }
        for panel in PANELS
    }


def quick() -> Cells:
    """Four points a curve, and the paper's accountant only."""
    return {name: {**settings, "points": 4, "exact": False} for name, settings in cells().items()}


def run(settings: Mapping[str, Any], seed: int) -> list[Row]:
    """All curves of a panel; nothing is random. The exact accountant speaks at one ε a curve."""
    base = Mechanism(**settings["mechanism"])
    goal_epsilon = settings["epsilon"]
    sigma = noise_scale(base, goal_epsilon, settings["delta"], "paper")
    rows: list[Row] = []
    for value, mechanism, noise, order in curves(settings["panel"], base, sigma):
        exact = delta(mechanism, noise, goal_epsilon) if settings["exact"] else math.nan
        for e in goal_epsilon * np.linspace(0.2, 2.5, settings["points"]):
            star = delta(mechanism, noise, float(e), "paper", J=order, conversion="mironov")
            rows.append({"value": float(value), "epsilon": float(e), "delta": star, "exact_at_goal": exact})
    return rows


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """Monotone dependence, which is what the figure shows; and δ⋆ at ε = 1 for a reader without the figure."""
    lines: list[Line] = []
    goals: list[Line] = []
    for panel, outcome in results.items():
        wide = outcome.rows.pivot_table(index="epsilon", columns="value", values="delta").sort_index(axis=1)
        steps = np.diff(wide.to_numpy(), axis=1)
        slack = 1e-12 + 1e-9 * wide.to_numpy()[:, 1:]
        fine = bool((steps <= slack).all() if SHRINKS[panel] else (steps >= -slack).all())
        rule = f"δ⋆ {'falls' if SHRINKS[panel] else 'grows'} with {panel} at every ε of the grid"
        goals.append(goal({"panel": PANELS[panel]}, "curves", float(wide.shape[1]), fine, rule))
        middle = outcome.rows.loc[(outcome.rows["epsilon"] - outcome.settings["epsilon"]).abs().idxmin(), "epsilon"]
        for value, rows in outcome.rows.groupby("value"):
            where = {"panel": PANELS[panel], "value": float(value)}
            star = float(rows.loc[rows["epsilon"] == middle, "delta"].iloc[0])
            lines.append(shown(where, f"δ⋆ near ε = {outcome.settings['epsilon']:g}", (star, float("nan"))))
            lines.append(shown(where, "exact δ", (float(rows["exact_at_goal"].iloc[0]), float("nan"))))
    return [
        Table("Monotone privacy curves (Figure 1)", goals),
        Table("The curves at one point", lines, ("The figure prints no numbers.",)),
    ]


STUDY = Study(
    name="budget",
    labels=("Figure 1",),
    title="privacy curves, four panels",
    cells=cells,
    replicates=1,
    run=each(run),
    quick=Quick(quick, 1),
    tables=tables,
)
