"""Birth weights (Table S9) on the 1997 sample: n = 50,000 of another year, not a replication.

The paper gives no unit for the bandwidth: ours is 50 grams. Fits are in kilograms, near the scale of a log wage (the
steps of a Langevin chain are not free of units); tables in grams.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from pgbb.model.models import QuantileRegression
from reproduction.constants import CHOSEN
from reproduction.fits import fit_cells, score_cell
from reproduction.judge import Line, shown, summarise
from reproduction.printed import lookup
from reproduction.real import COVARIATES, NATALITY_SCHEMA, natality_1997
from reproduction.references.quantile import multiplier_bootstrap, smoothed_quantile
from reproduction.simulate import TAUS, Floats
from reproduction.studies.census import application_cells, own_name, printed_method, reference_rows, spread_lines
from reproduction.study import Cells, Quick, Results, Row, Study, Table

__all__ = ["STUDY", "run"]

NAMES = list(COVARIATES)
GRAMS = 1000.0
OTHER = "n = 50,000 of 1997, where the paper has 1.94 million of 2024"


def cells() -> Cells:
    """Every method on the sample of 1997."""
    found = {n: {**s, "bandwidth": 0.05} for n, s in application_cells("natality", {"year": 1997}).items()}
    found["reference-1997"]["draws"] = 100  # of the paper's 500
    return found


def quick() -> Cells:
    """The default method, and a reference of few draws."""
    chosen = {name: cells()[name] for name in ("reference-1997", "calibrated-1997-eps4")}
    chosen["reference-1997"] = {**chosen["reference-1997"], "draws": 5}
    return chosen


@lru_cache(maxsize=1)
def _sample() -> tuple[pd.DataFrame, Floats, Floats]:
    frame = natality_1997()
    x = np.column_stack([np.ones(len(frame)), frame[NAMES].to_numpy(float)])
    return frame, x, frame["WEIGHT"].to_numpy(float)


@lru_cache(maxsize=2)
def _truth(bandwidth: float) -> Floats:
    """The smoothed quantile fit, as the paper's reference for these data: (levels, 13), grams."""
    _, x, y = _sample()
    return np.stack([smoothed_quantile(x, y, t, bandwidth) for t in TAUS])[:, 1:] * GRAMS


def run(settings: Mapping[str, Any], seeds: Sequence[int]) -> list[list[Row]]:
    """Runs: the data are fixed, the seed is that of the method."""
    h = settings["bandwidth"]
    frame, x, y = _sample()
    truth = _truth(h)
    if settings["method"] == "reference":
        boot = [multiplier_bootstrap(x, y, t, h, settings["draws"], seeds[0])[:, 1:] * GRAMS for t in TAUS]
        return [reference_rows(truth, np.stack(boot, axis=1), NAMES)]
    model = QuantileRegression("WEIGHT ~ " + " + ".join(COVARIATES), taus=list(TAUS), bandwidth=h)
    releases = fit_cells(model, [frame] * len(seeds), NATALITY_SCHEMA, settings, seeds)
    return [
        score_cell(release, settings["method"], seed, lambda d: d[:, :, 1:] * GRAMS, truth, NAMES, TAUS)
        for release, seed in zip(releases, seeds, strict=True)
    ]


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """Our figures beside the printed ones, which are of other data: shown, and not judged."""
    lines: list[Line] = []
    for outcome in results.values():
        s = outcome.settings
        for (coefficient, variant), rows in outcome.rows.groupby(["coefficient", "variant"], sort=False):
            where = {"variable": coefficient, "ε": s.get("epsilon", "∞")}
            if s["method"] == "reference":
                lines.append(shown({**where, "method": "non-private"}, "width", (float(rows["width"].mean()), np.nan)))
                continue
            printed = lookup("natality", variable=coefficient, method=printed_method(s), epsilon=s["epsilon"])
            where["method"] = own_name(s, variant)
            for measure, (value, error) in summarise(rows).items():
                lines.append(
                    Line(where, measure, value, error, printed.get(measure), None, None, "not comparable", OTHER)
                )
    notes = (
        f"Not comparable with the printed figures: {OTHER}.",
        "Bandwidth: h = 50 grams is our assumption. Scaled covariates are in [0, 1] by age 18–45, 0–98 cigarettes, "
        "0–98 pounds.",
        CHOSEN["slope"],
        CHOSEN["sgld census"],
    )
    spread = spread_lines(results, lambda s: {"year": s["year"]})
    return [
        Table("Births of 1997 (after Table S9)", lines, notes),
        Table("Variance decomposition (Figure 6), medians", spread),
    ]


STUDY = Study(
    name="natality",
    labels=("Table S9", "Figure 5b", "Figure S2", "Figure 6"),
    title="birth weights, 50,000 births of 1997 (another year and size than the paper's)",
    cells=cells,
    replicates=10,
    run=run,
    quick=Quick(quick, 1),
    tables=tables,
    data=("bweight_1997_sashelp.parquet",),
)
