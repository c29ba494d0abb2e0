"""The paper's natality setting at its own size, n = 1.94 million, on simulated births: for speed and scale only.

The quantile process is known, so coverage is of the truth; seconds are those of a fit, loading included.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pgbb.model.models import QuantileRegression
from reproduction.constants import accountant_of, constants, preset
from reproduction.fits import fit_cells, score_cell
from reproduction.judge import Line, average, shown, summarise
from reproduction.real import COVARIATES, NATALITY_SCHEMA
from reproduction.simulate import TAUS, births_frame
from reproduction.studies.linear import variants
from reproduction.study import Cells, Quick, Results, Row, Study, Table, cell_name

__all__ = ["STUDY", "run"]

MODEL = QuantileRegression("WEIGHT ~ " + " + ".join(COVARIATES), taus=list(TAUS), bandwidth=0.05)
GRAMS = 1000.0


def cells() -> Cells:
    """The printed algorithm and the default method at ε = 1 and 4."""
    return {
        cell_name(method=method, n=n, epsilon=epsilon): {
            "method": method,
            "n": n,
            "epsilon": epsilon,
            "accountant": accountant_of(method),
            "constants": preset("natality") if method == "pgbb" else constants("natality", method),
        }
        for method in ("pgbb", "calibrated")
        for n in (1_940_000,)
        for epsilon in (1.0, 4.0)
    }


def quick() -> Cells:
    """50,000 births by the default method."""
    (settings,) = (s for s in cells().values() if (s["method"], s["epsilon"]) == ("calibrated", 4.0))
    return {"calibrated-n50000-eps4": {**settings, "n": 50_000}}


def run(settings: Mapping[str, Any], seeds: Sequence[int]) -> list[list[Row]]:
    """One after another: each fills the device."""
    found = []
    for seed in seeds:
        frame, truth = births_frame(settings["n"], seed)
        (release,) = fit_cells(MODEL, [frame], NATALITY_SCHEMA, settings, [seed])
        names = list(COVARIATES)
        show = truth[:, 1:] * GRAMS
        found.append(score_cell(release, settings["method"], seed, lambda d: d[:, :, 1:] * GRAMS, show, names, TAUS))
    return found


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """Means over thirteen covariates and five levels, in grams, with the time of a replicate."""
    lines: list[Line] = []
    for outcome in results.values():
        s = outcome.settings
        for method, rows in variants(outcome):
            where = {"n": s["n"], "ε": s["epsilon"], "method": method, "device": str(rows["device"].iloc[0])}
            lines += [shown(where, measure, value) for measure, value in summarise(rows).items()]
            worst = float(rows.groupby("coefficient")["coverage"].mean().min())
            lines.append(shown(where, "least coverage", (worst, np.nan)))
            lines.append(shown(where, "seconds", average(rows.groupby("replicate")["seconds"].first())))
    notes = (
        "Simulated births with a known quantile process: not the paper's data. Coverage is of the truth; least: over "
        "covariates, mean over levels. Seconds: simulating, loading, fitting, drawing.",
    )
    return [Table("n = 1.94 million, simulated (setting of Table S9)", lines, notes)]


STUDY = Study(
    name="births",
    labels=(),
    title="the natality setting at n = 1.94 million, on simulated births",
    cells=cells,
    replicates=3,
    run=run,
    quick=Quick(quick, 1),
    tables=tables,
)
