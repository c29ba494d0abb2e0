"""The information floor of the linear regression, what T·K gradient answers can tell, and the non-private limit."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from pgbb.accountant import Mechanism, noise_scale
from pgbb.studies.judge import Line, shown, summarise
from pgbb.studies.linear import grid, variants
from pgbb.studies.simulate import linear_errors
from pgbb.studies.study import Cells, Quick, Results, Row, Study, Table, cell_name

__all__ = ["STUDY", "population", "run"]

Z = 1.959964


def cells() -> Cells:
    """The printed mechanism at S = 5 on every cell of the grid."""
    return {
        cell_name(noise=noise, n=n, epsilon=epsilon): {
            "noise": noise,
            "n": n,
            "epsilon": epsilon,
            "mechanism": {"blocks": 5, "sampling_rate": 0.1, "steps": 10_000, "clip": 2.648},
            "errors": 4_000_000,
            "once": True,
        }
        for noise, n, epsilon in grid()
    }


def quick() -> Cells:
    """One cell, fewer errors."""
    name, settings = next(iter(cells().items()))
    return {name: {**settings, "errors": 400_000}}


@lru_cache(maxsize=8)
def population(noise: str, errors: int) -> tuple[float, float]:
    """(V, h): n times the sampling variance of a Huber coefficient, and its curvature, from simulated errors."""
    r = linear_errors(noise, errors, np.random.default_rng(0))
    c, kappa, low, high = 1.345, 0.71, 0.05, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(np.minimum((r / middle) ** 2, c**2)) > kappa else (low, middle)
    z = r / low
    curvature = np.mean(np.abs(z) < c) / low / 3
    return float(np.mean(np.clip(z, -c, c) ** 2) / 3 / curvature**2), float(curvature)


def run(settings: Mapping[str, Any], seed: int) -> list[Row]:
    """V/n, and V/n + v with v = (σ/q)²h⁻²/(T·K) at the paper's σ: as MAE and width of an honest interval."""
    variance, curvature = population(settings["noise"], settings["errors"])
    m = Mechanism(n=settings["n"], **settings["mechanism"])
    sigma = noise_scale(m, settings["epsilon"], 1 / settings["n"], "paper")
    free = variance / settings["n"]
    noise = (sigma / m.sampling_rate) ** 2 / curvature**2 / m.answers
    rows = []
    for kind, total in (("non-private", free), ("floor", free + noise)):
        sd = math.sqrt(total)
        rows.append({"kind": kind, "mae": sd * math.sqrt(2 / math.pi), "width": 2 * Z * sd, "sigma": sigma})
    return rows


def tables(results: Results, others: Callable[[str], Results]) -> list[Table]:
    """The floor, and how far above it the fits of the study `linear` are."""
    lines: list[Line] = []
    fits = list(others("linear").values())
    for outcome in results.values():
        s = outcome.settings
        where = {"noise": s["noise"], "n": s["n"], "ε": s["epsilon"]}
        bottom: dict[str, float] = {}
        for _, row in outcome.rows.iterrows():
            for measure in ("mae", "width"):
                lines.append(shown({**where, "method": row["kind"]}, measure, (float(row[measure]), math.nan)))
                if row["kind"] == "floor":
                    bottom[measure] = float(row[measure])
        for fitted in fits:
            f = fitted.settings
            if (f["noise"], f["n"], f["epsilon"]) != (s["noise"], s["n"], s["epsilon"]):
                continue
            for method, rows in variants(fitted):
                found = summarise(rows)
                for measure in ("mae", "width"):
                    mean, error = found[measure]
                    ratio = (mean / bottom[measure], error / bottom[measure])
                    lines.append(shown({**where, "method": method}, f"{measure} / floor", ratio))
    note = (
        "Floor: the printed mechanism with the paper's σ at S = 5. Full batches and constant weights can go below it."
    )
    return [Table("Information floor of the linear regression", lines, (note,))]


STUDY = Study(
    name="floor",
    labels=(),
    title="information floor and non-private limit of the linear regression",
    cells=cells,
    replicates=1,
    run=run,
    quick=Quick(quick, 1),
    tables=tables,
)
