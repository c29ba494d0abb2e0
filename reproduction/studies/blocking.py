"""Blocking theory (Figure 2): the blocked bootstrap of a ridge regression against Rubin's.

Wasserstein distance with its rate, total variance ratio and coverage, with S = 20 fixed and with n_S = 10 fixed, at
γ = 1 and γ*. The paper prints neither the grid of n nor any number.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproduction.judge import Line, average, goal, shown
from reproduction.references.ridge import ridge_bootstrap
from reproduction.study import Cells, Quick, Results, Row, Study, Table, each

__all__ = ["STUDY", "run"]

Floats = NDArray[np.float64]
PENALTY, DIM = 1e-4, 5
ARMS: dict[str, Callable[[int], int]] = {"S = 20": lambda n: 20, "n_S = 10": lambda n: n // 10}
Z = 1.959964


def cells() -> Cells:
    """A cell a sample size: all arms share its Bayesian bootstrap."""
    return {f"n{n}": {"n": n, "draws": 20_000} for n in (200, 400, 800, 1_600, 3_200)}


def quick() -> Cells:
    """Three sample sizes, 2,000 draws."""
    return {f"n{n}": {"n": n, "draws": 2_000} for n in (200, 400, 800)}


def _covers(draws: Floats, truth: Floats) -> tuple[float, float]:
    """Share of coefficients inside the quantile and inside the normal interval."""
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    half = Z * draws.std(axis=0, ddof=1)
    normal = np.abs(draws.mean(axis=0) - truth) <= half
    return float(((low <= truth) & (truth <= high)).mean()), float(normal.mean())


def run(settings: Mapping[str, Any], seed: int) -> list[Row]:
    """One data set; distances are between samples of equal size, hence sorted differences."""
    n, count = settings["n"], settings["draws"]
    rng = np.random.default_rng(seed)
    truth = (-1.0) ** np.arange(DIM) / (1 + np.arange(DIM))
    x = rng.normal(size=(n, DIM))
    y = x @ truth + rng.normal(size=n)
    free = ridge_bootstrap(x, y, draws=count, seed=2 * seed, penalty=PENALTY)
    ordered, spread = np.sort(free, axis=0), float(free.var(axis=0, ddof=1).sum())
    quantile, normal = _covers(free, truth)
    rows: list[Row] = [{"arm": "unblocked", "gamma": "", "variance": spread, "quantile": quantile, "normal": normal}]
    for arm, blocks in ARMS.items():
        for gamma in (1.0, None):
            found = ridge_bootstrap(
                x, y, draws=count, seed=2 * seed + 1, penalty=PENALTY, blocks=blocks(n), gamma=gamma
            )
            quantile, normal = _covers(found, truth)
            rows.append(
                {
                    "arm": arm,
                    "gamma": "1" if gamma else "γ*",
                    "wasserstein": float(np.abs(np.sort(found, axis=0) - ordered).mean()),
                    "variance": float(found.var(axis=0, ddof=1).sum()),
                    "unblocked": spread,
                    "quantile": quantile,
                    "normal": normal,
                }
            )
    return rows


def _table_ratio(rows: pd.DataFrame) -> tuple[float, float]:
    """Ratio of mean variances, with the standard error of a ratio estimate."""
    a, b = rows["variance"].to_numpy(), rows["unblocked"].to_numpy()
    ratio = float(a.mean() / b.mean())
    _, error = average(a - ratio * b)
    return ratio, error / float(b.mean())


def _table_slope(points: list[tuple[int, float, float]]) -> tuple[float, float]:
    """Slope of log distance on log n and its standard error, from the errors of the points."""
    x = np.log([p[0] for p in points])
    y = np.log([p[1] for p in points])
    error = np.array([p[2] / p[1] for p in points])
    c = (x - x.mean()) / np.square(x - x.mean()).sum()
    return float(c @ y), float(np.sqrt(np.square(c * error).sum()))


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """Three panels, the rates, and the variance ratio at γ*."""
    lines: list[Line] = []
    goals: list[Line] = []
    distances: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for outcome in sorted(results.values(), key=lambda o: int(o.settings["n"])):
        n = outcome.settings["n"]
        for (arm, gamma), rows in outcome.rows.groupby(["arm", "gamma"], sort=False):
            where = {"arm": arm, "γ": gamma, "n": n}
            if arm != "unblocked":
                found = average(rows["wasserstein"])
                distances.setdefault((arm, gamma), []).append((n, *found))
                lines.append(shown(where, "W₁", found))
                ratio, error = _table_ratio(rows)
                lines.append(shown(where, "variance ratio", (ratio, error)))
                if gamma == "γ*":
                    rule = "variance ratio at γ* within 2 Monte Carlo standard errors of 1"
                    known = None if error != error else abs(ratio - 1) <= 2 * error
                    goals.append(goal(where, "variance ratio", ratio, known, rule, error))
            for kind in ("quantile", "normal"):
                lines.append(shown(where, f"coverage, {kind}", average(rows[kind])))
    for (arm, gamma), points in distances.items():
        if len(points) > 1:
            slope, error = _table_slope(points)
            expected = -0.5 if arm == "S = 20" else -1.0
            rule = f"slope of log W₁ on log n within .1 of {expected:g}"
            where = {"arm": arm, "γ": gamma, "n": "all"}
            known = abs(slope - expected) <= 0.1 if arm == "S = 20" else None
            rule += (
                "" if known is not None else ", the rate of γ*; not judged: draws are finite, and W₁ nears its floor"
            )
            goals.append(goal(where, "slope of W₁", slope, known, rule, error))
    note = "Coverage: mean over five coefficients. W₁: between 20,000 draws of each law, mean over coefficients."
    return [Table("Blocked and Bayesian bootstrap (Figure 2)", lines, (note,)), Table("Goals", goals)]


STUDY = Study(
    name="blocking",
    labels=("Figure 2",),
    title="blocked against Bayesian bootstrap: distance, variance, coverage",
    cells=cells,
    replicates=300,
    run=each(run),
    quick=Quick(quick, 20),
    tables=tables,
)
