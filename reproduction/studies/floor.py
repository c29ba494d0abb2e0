"""The information floor: what T·K gradient answers can tell in the simulations, and the non-private limit."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from pgbb.accountant import Mechanism, noise_scale
from reproduction.judge import Line, shown, summarise
from reproduction.simulate import FAMILIES, linear_errors
from reproduction.studies.linear import grid, variants
from reproduction.study import Cells, Outcome, Quick, Results, Row, Study, Table, cell_name, each

__all__ = ["STUDY", "population", "run"]

Z = 1.959964


def cells() -> Cells:
    """The printed mechanism on every cell of the regression (at S = 5) and of the exponential families."""
    regression = {"blocks": 5, "sampling_rate": 0.1, "steps": 10_000, "clip": 2.648}
    families = {"blocks": 20, "gamma": 1.0, "sampling_rate": 0.2, "steps": 2_000, "clip": 8.0}
    places = [("linear", *place, regression) for place in grid()]
    places += [("families", f, n, e, families) for f in FAMILIES for n in (500, 5_000) for e in (1.0, 2.0, 4.0)]
    return {
        cell_name(data=data, n=n, epsilon=epsilon): {
            "study": study,
            "data": data,
            "n": n,
            "epsilon": epsilon,
            "mechanism": mechanism,
            "errors": 4_000_000,
            "once": True,
        }
        for study, data, n, epsilon, mechanism in places
    }


def quick() -> Cells:
    """A cell of each, fewer errors."""
    chosen = ("contaminated_normal-n10000-eps1", "gaussian-n500-eps4")
    return {name: {**cells()[name], "errors": 400_000} for name in chosen}


FAMILY_POPULATION = {"gaussian": (0.25, 4.0), "exponential": (4.0, 1.0)}
"""(V, h) of the means: the Gaussian score is (x − θ)/σ², that of the rate in units of the mean x − μ."""


@lru_cache(maxsize=8)
def population(data: str, errors: int) -> tuple[float, float]:
    """(V, h): n times the sampling variance and the curvature; of a Huber coefficient from simulated errors."""
    if data in FAMILY_POPULATION:
        return FAMILY_POPULATION[data]
    r = linear_errors(data, errors, np.random.default_rng(0))
    c, kappa, low, high = 1.345, 0.71, 0.05, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(np.minimum((r / middle) ** 2, c**2)) > kappa else (low, middle)
    z = r / low
    curvature = np.mean(np.abs(z) < c) / low / 3
    return float(np.mean(np.clip(z, -c, c) ** 2) / 3 / curvature**2), float(curvature)


def run(settings: Mapping[str, Any], seed: int) -> list[Row]:
    """V/n, and V/n + v with v = (σ/q)²h⁻²/(T·K) at the paper's σ: as MAE and width of an honest interval."""
    variance, curvature = population(settings["data"], settings["errors"])
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
    """The floor, and how far above it the fits of the studies `linear` and `families` are."""
    lines: list[Line] = []
    fits = {
        name: {(_data(o), o.settings["n"], o.settings["epsilon"], cell): o for cell, o in others(name).items()}
        for name in ("linear", "families")
    }
    for outcome in results.values():
        s = outcome.settings
        where = {"data": s["data"], "n": s["n"], "ε": s["epsilon"]}
        bottom: dict[str, float] = {}
        for _, row in outcome.rows.iterrows():
            for measure in ("mae", "width"):
                lines.append(shown({**where, "method": row["kind"]}, measure, (float(row[measure]), math.nan)))
                if row["kind"] == "floor":
                    bottom[measure] = float(row[measure])
        for place, fitted in fits[s["study"]].items():
            if place[:3] != (s["data"], s["n"], s["epsilon"]):
                continue
            for method, rows in variants(fitted):
                found = summarise(rows)
                for measure in ("mae", "width"):
                    mean, error = found[measure]
                    ratio = (mean / bottom[measure], error / bottom[measure])
                    lines.append(shown({**where, "method": method}, f"{measure} / floor", ratio))
    note = (
        "Floor: the printed mechanism with the paper's σ, in the regression at S = 5. Full batches and constant "
        "weights can go below it."
    )
    return [Table("Information floor and non-private limit of the simulations", lines, (note,))]


def _data(outcome: Outcome) -> str:
    return str(outcome.settings.get("noise", outcome.settings.get("family")))


STUDY = Study(
    name="floor",
    labels=(),
    title="information floor and non-private limit of the simulations",
    cells=cells,
    replicates=1,
    run=each(run),
    quick=Quick(quick, 1),
    tables=tables,
)
