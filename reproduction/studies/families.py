"""Exponential families (Figure 4): a Gaussian and an exponential mean, public truncation, C = 8."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.constants import CHOSEN, accountant_of, constants, preset
from reproduction.fits import fit_cells, score_cell
from reproduction.judge import NOMINAL, Line, goal, shown, summarise
from reproduction.simulate import FAMILIES, FAMILY_TRUTH, RATE, family
from reproduction.studies.linear import variants
from reproduction.study import Cells, Quick, Results, Row, Study, Table, cell_name

__all__ = ["STUDY", "run"]

BY_RATE = ("pgbb", "sgld")
"""Score-based methods estimate the exponential by its rate, as the paper does: in the mean, C = 8 drowns the score."""
METHODS = ("pgbb", "sgld", "noisy_gibbs", "dp_bootstrap", "calibrated")


def cells() -> Cells:
    """2 families × 2 n × 3 ε, every method."""
    return {
        cell_name(method=method, family=name, n=n, epsilon=epsilon): {
            "method": method,
            "family": name,
            "n": n,
            "epsilon": epsilon,
            "accountant": accountant_of(method),
            "constants": preset("families") if method == "pgbb" else constants("families", method),
        }
        for method in METHODS
        for name in FAMILIES
        for n in (500, 5_000)
        for epsilon in (1.0, 2.0, 4.0)
    }


def quick() -> Cells:
    """One cell a method, with short chains and trainings."""
    short: dict[str, dict[str, Any]] = {"pgbb": {"steps": 200}, "sgld": {"steps": 2_000}}
    return {
        name: {**s, "constants": {**s["constants"], **short.get(s["method"], {})}}
        for name, s in cells().items()
        if (s["family"], s["n"], s["epsilon"]) == ("gaussian", 500, 4.0)
    }


def run(settings: Mapping[str, Any], seeds: Sequence[int]) -> list[list[Row]]:
    """Replicates; a rate is shown as the mean that it is the inverse of."""
    name, method = settings["family"], settings["method"]
    model, _, schema = family(name, 1, 0)
    frames = [family(name, settings["n"], seed)[1] for seed in seeds]
    by_rate = name == "exponential" and method in BY_RATE
    releases = fit_cells(RATE if by_rate else model, frames, schema, settings, seeds)
    truth = np.array([[FAMILY_TRUTH[name]]])
    return [
        score_cell(release, method, seed, lambda d: 1 / d if by_rate else d, truth, ["mean"])
        for release, seed in zip(releases, seeds, strict=True)
    ]


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """Error, coverage and width; every method should cover, and NoisyGibbs is the gold standard of the paper."""
    lines: list[Line] = []
    gold: dict[tuple[Any, ...], float] = {}
    widths: list[tuple[tuple[Any, ...], dict[str, Any], float]] = []
    for outcome in results.values():
        s = outcome.settings
        for method, rows in variants(outcome):
            where = {"family": s["family"], "n": s["n"], "ε": s["epsilon"], "method": method}
            found = summarise(rows)
            coverage, error = found["coverage"]
            known = None if error != error else coverage >= NOMINAL - 2 * error
            lines.append(shown(where, "mae", found["mae"]))
            lines.append(goal(where, "coverage", coverage, known, "covers at least .95 − 2 SE", error))
            lines.append(shown(where, "width", found["width"]))
            key = (s["family"], s["n"], s["epsilon"])
            if method == "noisy_gibbs":
                gold[key] = found["width"][0]
            widths.append((key, where, found["width"][0]))
    lines += [shown(w, "width / NoisyGibbs", (v / gold[k], float("nan"))) for k, w, v in widths if k in gold]
    notes = ("The figure prints no numbers.", CHOSEN["slope"], CHOSEN["order"], CHOSEN["sgld families"])
    return [Table("Exponential families (Figure 4)", lines, notes)]


STUDY = Study(
    name="families",
    labels=("Figure 4",),
    title="means of exponential families",
    cells=cells,
    replicates=100,
    run=run,
    quick=Quick(quick, 2),
    tables=tables,
)
