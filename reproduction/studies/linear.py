"""Linear regression under heavy-tailed errors (section 5.1): 2 noises × 2 n × 3 ε, every method."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reproduction.constants import CHOSEN, PRINTED_NAME, accountant_of, constants
from reproduction.fits import fit_cells, score_cell
from reproduction.judge import Line, goal, judged, summarise
from reproduction.printed import lookup
from reproduction.simulate import BETA, LINEAR_MODEL, LINEAR_SCHEMA, NOISES, linear_frame
from reproduction.study import Cells, Outcome, Quick, Results, Row, Study, Table, cell_name

__all__ = ["METHODS", "STUDY", "grid", "printed_cells", "run", "variants"]

METHODS = ("pgbb", "sgld", "noisy_gibbs", "dp_bootstrap", "calibrated")
NAMES = ["x1", "x2", "x3"]
MEASURES = ("mae", "coverage", "width")


def grid() -> list[tuple[str, int, float]]:
    """The twelve cells of the paper: (noise, n, ε)."""
    return [(noise, n, epsilon) for noise in NOISES for n in (10_000, 40_000) for epsilon in (1.0, 2.0, 4.0)]


def cells() -> Cells:
    """All methods on the grid."""
    return {
        cell_name(method=method, noise=noise, n=n, epsilon=epsilon): {
            "method": method,
            "noise": noise,
            "n": n,
            "epsilon": epsilon,
            "accountant": accountant_of(method),
            "constants": constants("linear", method),
        }
        for method in METHODS
        for noise, n, epsilon in grid()
    }


def quick() -> Cells:
    """One cell a method, with short chains and trainings."""
    short = {"pgbb": {"steps": 300}, "sgld": {"steps": 1_000}, "noisy_gibbs": {"iterations": 4_000}}
    found = {}
    for name, settings in cells().items():
        if (settings["noise"], settings["n"], settings["epsilon"]) == ("contaminated_normal", 10_000, 4.0):
            extra = short.get(settings["method"], {})
            found[name.replace("n10000", "n4000")] = {
                **settings,
                "n": 4_000,
                "constants": {**settings["constants"], **extra},
            }
    return found


def run(settings: Mapping[str, Any], seeds: Sequence[int]) -> list[list[Row]]:
    """Replicates; the printed algorithm gives rows for its last iterate and for the average."""
    frames = [linear_frame(settings["noise"], settings["n"], seed) for seed in seeds]
    releases = fit_cells(LINEAR_MODEL, frames, LINEAR_SCHEMA, settings, seeds)
    return [
        score_cell(release, settings["method"], seed, lambda d: d[:, :, :3], BETA[None], NAMES)
        for release, seed in zip(releases, seeds, strict=True)
    ]


def printed_cells(results: Results) -> Results:
    """The cells of the printed algorithm, which other studies vary."""
    return {name: outcome for name, outcome in results.items() if outcome.settings["method"] == "pgbb"}


def variants(outcome: Outcome) -> list[tuple[str, Any]]:
    """The methods of a cell with their rows: "pgbb" is two, its last iterate and the average."""
    method = outcome.settings["method"]
    return [
        (f"{method}, {variant} iterate" if variant else method, rows)
        for variant, rows in outcome.rows.groupby("variant", sort=False)
    ]


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """The summary table, one table a coefficient, and the goal of ten cells in twelve."""
    summary = _table_lines(results, "linreg_summary", None)
    found = [
        Table(
            "Mean over three coefficients (Table S2, Figure 3a)",
            summary,
            (CHOSEN["slope"], CHOSEN["clip"], CHOSEN["noisy_gibbs"], CHOSEN["dp_bootstrap"]),
        ),
        Table("PGBB no worse than printed, in MAE and coverage", _table_goals(summary)),
    ]
    for j, name in enumerate(NAMES):
        found.append(Table(f"Coefficient {j + 1} (Table S{j + 3})", _table_lines(results, f"linreg_beta{j + 1}", name)))
    return found


def _table_lines(results: Results, printed: str, coefficient: str | None) -> list[Line]:
    lines = []
    for outcome in results.values():
        s = outcome.settings
        reproduce = PRINTED_NAME[s["method"]] != "PGBB"
        row = lookup(printed, epsilon=s["epsilon"], n=s["n"], method=PRINTED_NAME[s["method"]], noise=s["noise"])
        for method, rows in variants(outcome):
            part = rows if coefficient is None else rows[rows["coefficient"] == coefficient]
            where = {"noise": s["noise"], "n": s["n"], "ε": s["epsilon"], "method": method}
            lines += judged(where, summarise(part), row, reproduce)
    return lines


def _table_goals(lines: list[Line]) -> list[Line]:
    found = []
    for method in ("pgbb, last iterate", "pgbb, average iterate", "calibrated"):
        mine = [line for line in lines if line.where["method"] == method and line.measure in ("mae", "coverage")]
        keys = {(line.where["noise"], line.where["n"], line.where["ε"]) for line in mine if line.printed is not None}
        bad = {(x.where["noise"], x.where["n"], x.where["ε"]) for x in mine if x.verdict in ("worse", "not comparable")}
        if keys:
            enough = len(keys) == 12
            rule = "at least 10 of 12 cells no worse than printed by 2 standard errors"
            missed = "; ".join(f"{noise} n = {n} ε = {e:g}" for noise, n, e in sorted(bad & keys))
            rule += f"; missed: {missed}" if missed else ""
            rule += "" if enough else f"; only {len(keys)} cells were run"
            good = len(keys - bad)
            found.append(goal({"method": method}, "cells", float(good), good >= 10 if enough else None, rule))
    return found


STUDY = Study(
    name="linear",
    labels=("Figure 3a", "Table S2", "Table S3", "Table S4", "Table S5"),
    title="linear regression under heavy-tailed errors, every method",
    cells=cells,
    replicates=100,
    run=run,
    quick=Quick(quick, 2),
    tables=tables,
)
