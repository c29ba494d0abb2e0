"""Returns to schooling, 1980 and 2000 (Table 1, Table S8): private quantile regressions."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from reproduction.constants import CHOSEN, accountant_of, constants, preset
from reproduction.fits import fit_cells, score_cell
from reproduction.judge import Line, goal, judged, shown, summarise
from reproduction.printed import lookup
from reproduction.real import census
from reproduction.references.quantile import exact_quantile, multiplier_bootstrap
from reproduction.simulate import PROCESS_SCHEMA, TAUS, Floats, process_model, scored
from reproduction.study import Cells, Quick, Results, Row, Study, Table, cell_name

__all__ = ["NAMES", "STUDY", "application_cells", "estimates", "reference_rows", "run", "sample", "spread_lines"]

NAMES = ["educ", "exper", "black"]
UNIT = np.array([100.0, 1.0, 1.0])
"""Schooling in %/yr, the others as they are."""


def _constants(experiment: str, method: str, **extra: Any) -> dict[str, Any]:
    """With the step size of a tempered chain: η₀nω is one number."""
    found = {**constants(experiment, method), **extra}
    return found | ({"step_size": found["step_size"] / found["tempering"]} if method == "sgld" else {})


def application_cells(experiment: str, where: Mapping[str, Any]) -> Cells:
    """Every method at ε = 1 and 4, and the non-private reference, on one data set."""
    found: Cells = {
        cell_name(method="reference", **where): {"method": "reference", **where, "draws": 200, "once": True}
    }
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("pgbb", "pgbb", {}),
        ("sgld_omega1", "sgld", {"tempering": 1.0}),
        ("sgld_omega0.1", "sgld", {"tempering": 0.1}),
        ("calibrated", "calibrated", {}),
    ]
    for name, method, extra in kinds:
        for epsilon in (1.0, 4.0):
            found[cell_name(method=name, **where, epsilon=epsilon)] = {
                "method": method,
                **where,
                "epsilon": epsilon,
                "accountant": accountant_of(method),
                "constants": preset(experiment) if method == "pgbb" else _constants(experiment, method, **extra),
            }
    return found


def cells() -> Cells:
    """Both years."""
    return application_cells("census", {"year": 1980}) | application_cells("census", {"year": 2000})


def quick() -> Cells:
    """The default method in 1980, and the reference."""
    chosen = {name: cells()[name] for name in ("reference-1980", "calibrated-1980-eps4")}
    chosen["reference-1980"] = {**chosen["reference-1980"], "draws": 20}
    return chosen


def sample(year: int) -> tuple[pd.DataFrame, Floats, Floats]:
    """An extract, its design and its response."""
    frame = census(year)
    x = np.column_stack([np.ones(len(frame)), frame[NAMES].to_numpy(float)])
    return frame, x, frame["logwk"].to_numpy(float)


@lru_cache(maxsize=2)
def estimates(year: int) -> Floats:
    """The exact quantile fit, (levels, 4) in units of the data."""
    _, x, y = sample(year)
    return np.stack([exact_quantile(x, y, t) for t in TAUS])


def reference_rows(truth: Floats, boot: Floats, names: list[str]) -> list[Row]:
    """The non-private fit with its bootstrap: rows like those of a method, without error."""
    rows = scored(boot, truth, names, TAUS)
    flat = truth.ravel()
    return [{"variant": "", **row, "estimate": float(value)} for row, value in zip(rows, flat, strict=True)]


def run(settings: Mapping[str, Any], seeds: Sequence[int]) -> list[list[Row]]:
    """Runs: the data are fixed, the seed is that of the method."""
    year = settings["year"]
    frame, x, y = sample(year)
    truth = estimates(year)[:, 1:] * UNIT
    if settings["method"] == "reference":
        boot = [multiplier_bootstrap(x, y, t, 0.05, settings["draws"], seeds[0])[:, 1:] * UNIT for t in TAUS]
        return [reference_rows(truth, np.stack(boot, axis=1), NAMES)]
    releases = fit_cells(process_model(), [frame] * len(seeds), PROCESS_SCHEMA, settings, seeds)
    return [
        score_cell(release, settings["method"], seed, lambda d: d[:, :, 1:] * UNIT, truth, NAMES, TAUS)
        for release, seed in zip(releases, seeds, strict=True)
    ]


def printed_method(settings: Mapping[str, Any]) -> str:
    """The name of a cell's method in the paper's tables of applications."""
    if settings["method"] != "sgld":
        return "PGBB"
    return f"DP-SGLD(omega={settings['constants']['tempering']:g})"


def own_name(settings: Mapping[str, Any], variant: str) -> str:
    """The name of a cell's method in ours."""
    if settings["method"] == "sgld":
        return f"sgld, ω = {settings['constants']['tempering']:g}"
    return f"{settings['method']}, {variant} iterate" if variant else str(settings["method"])


def spread_lines(results: Results, where: Callable[[Mapping[str, Any]], dict[str, Any]]) -> list[Line]:
    """Figure 6 in numbers: within-run, between-run and total sd over the non-private sd, at ε = 1.

    Each is the median over coefficients and levels.
    """
    lines: list[Line] = []
    free = {
        tuple(where(o.settings).items()): o.rows.set_index(["tau", "coefficient"])["sd"]
        for o in results.values()
        if o.settings["method"] == "reference" and len(o.rows)
    }
    for outcome in results.values():
        s = outcome.settings
        base = free.get(tuple(where(s).items()))
        if base is None or s.get("epsilon") != 1.0:
            continue
        for variant, rows in outcome.rows.groupby("variant", sort=False):
            if rows["replicate"].nunique() < 2:
                continue
            by = rows.groupby(["tau", "coefficient"])
            within = np.sqrt(by["sd"].apply(lambda v: float(np.mean(np.square(v)))))
            between = by["mean"].std(ddof=1)
            total = np.sqrt(within**2 + between**2)
            at = {**where(s), "method": own_name(s, str(variant))}
            for name, values in (("within", within), ("between", between), ("total", total)):
                lines.append(shown(at, f"{name} / non-private sd", (float((values / base).median()), float("nan"))))
    return lines


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """The printed table beside ours, with the non-private widths, and the decomposition of variance."""
    lines: list[Line] = []
    goals: list[Line] = []
    for outcome in results.values():
        s = outcome.settings
        for (coefficient, variant), rows in outcome.rows.groupby(["coefficient", "variant"], sort=False):
            where = {"year": s["year"], "variable": coefficient, "ε": s.get("epsilon", "∞")}
            if s["method"] == "reference":
                lines.append(shown({**where, "method": "non-private"}, "width", (float(rows["width"].mean()), np.nan)))
                continue
            printed = lookup(
                "census", year=s["year"], variable=coefficient, method=printed_method(s), epsilon=s["epsilon"]
            )
            where["method"] = own_name(s, variant)
            found = summarise(rows)
            lines += judged(where, found, printed, reproduce=s["method"] == "sgld" or variant == "last")
            if s["method"] == "calibrated" and printed and rows["replicate"].nunique() > 1:
                rule = "MAE of the default method below the printed PGBB's"
                met = found["mae"][0] < printed["mae"]
                goals.append(goal(where, "mae", found["mae"][0], met, rule, found["mae"][1], printed["mae"]))
    chains = [x for x in lines if x.measure == "width" and x.printed and x.where["method"].startswith("sgld")]
    if chains:
        count = sum(abs(x.ours / float(x.printed or 1.0) - 1) <= 0.1 for x in chains)
        rule = "widths of DP-SGLD within a tenth of the printed ones, in 24 of 24 rows"
        met = count == 24 if len(chains) == 24 else None
        goals.append(goal({"method": "sgld"}, "widths", float(count), met, rule))
    spread = spread_lines(results, lambda s: {"year": s["year"]})
    note = "Against the exact non-private fit; mean over five levels, then over runs. Its width: 200 bootstrap draws."
    black = (
        "The printed width of black in 2000 at ε = 4 (.040) is below the non-private one: no honest interval has it."
    )
    found_tables = [
        Table(
            "All covariates (Table S8; its educ rows are Table 1)",
            lines,
            (note, black, CHOSEN["slope"], CHOSEN["sgld census"]),
        ),
        Table("Goals", goals),
    ]
    return [*found_tables, Table("Variance decomposition (Figure 6), medians", spread)]


STUDY = Study(
    name="census",
    labels=("Table 1", "Table S8", "Figure 5a", "Figure S1", "Figure 6"),
    title="returns to schooling, 1980 and 2000",
    cells=cells,
    replicates=10,
    run=run,
    quick=Quick(quick, 2),
    tables=tables,
    data=("census80.parquet", "census00.parquet"),
)
