"""Linear regression under heavy-tailed errors (section 5.1): 2 noises × 2 n × 3 ε, every method."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reproduction.constants import CHOSEN, PRINTED_NAME, accountant_of, constants, preset
from reproduction.fits import fit_cells, score_cell
from reproduction.judge import Line, goal, judged, summarise
from reproduction.printed import lookup
from reproduction.simulate import BETA, LINEAR_MODEL, LINEAR_SCHEMA, NOISES, linear_frame
from reproduction.study import Cells, Outcome, Quick, Results, Row, Study, Table, cell_name

__all__ = ["METHODS", "OURS", "PRINTED_LINE", "STUDY", "agreement", "grid", "printed_cells", "run", "variants"]

METHODS = ("pgbb", "sgld", "noisy_gibbs", "dp_bootstrap", "calibrated")
NAMES = ["x1", "x2", "x3"]
PRINTED_LINE = "pgbb, last iterate"
OURS = ("pgbb, average iterate", "calibrated")
"""Lines that are no reproduction of what the paper ran."""


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
            "constants": preset("linear") if method == "pgbb" else constants("linear", method),
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
    """The summary table, its goals, and one table a coefficient."""
    summary = _table_lines(results, "linreg_summary", None)
    apart = [_table_lines(results, f"linreg_beta{j + 1}", name) for j, name in enumerate(NAMES)]
    found = [
        Table(
            "Mean over three coefficients (Table S2, Figure 3a)",
            summary,
            (CHOSEN["slope"], CHOSEN["noisy_gibbs"], CHOSEN["dp_bootstrap"]),
        ),
        Table("Goals", _table_goals(summary, apart)),
    ]
    return found + [Table(f"Coefficient {j + 1} (Table S{j + 3})", lines) for j, lines in enumerate(apart)]


def _table_lines(results: Results, printed: str, coefficient: str | None) -> list[Line]:
    lines = []
    for outcome in results.values():
        s = outcome.settings
        row = lookup(printed, epsilon=s["epsilon"], n=s["n"], method=PRINTED_NAME[s["method"]], noise=s["noise"])
        for method, rows in variants(outcome):
            part = rows if coefficient is None else rows[rows["coefficient"] == coefficient]
            where = {"noise": s["noise"], "n": s["n"], "ε": s["epsilon"], "method": method}
            lines += judged(where, summarise(part), row, method not in OURS)
    return lines


def agreement(tables: Sequence[list[Line]], least: int, of: int) -> list[Line]:
    """In how many rows of the tables MAE, coverage and width of the printed algorithm agree with the paper's."""
    rows: dict[tuple[Any, ...], list[str]] = {}
    for i, lines in enumerate(tables):
        for line in lines:
            if line.where["method"] == PRINTED_LINE and line.verdict in ("agrees", "differs"):
                rows.setdefault((i, *line.where.values()), []).append(line.verdict)
    if not rows:
        return []
    count = sum(set(verdicts) == {"agrees"} for verdicts in rows.values())
    rule = f"MAE, coverage and width agree in at least {least} of {of} rows" + _fewer(len(rows), of)
    return [goal({"method": PRINTED_LINE}, "rows", float(count), count >= least if len(rows) == of else None, rule)]


def _fewer(count: int, of: int) -> str:
    return "" if count == of else f"; only {count} are there"


def _table_goals(lines: list[Line], apart: Sequence[list[Line]]) -> list[Line]:
    """The printed algorithm agrees in 30 of 36 rows; the default method is no worse in ten cells of twelve."""
    found = agreement(apart, 30, 36)
    mine = [line for line in lines if line.where["method"] == "calibrated" and line.measure in ("mae", "coverage")]
    keys = {(line.where["noise"], line.where["n"], line.where["ε"]) for line in mine}
    bad = {(x.where["noise"], x.where["n"], x.where["ε"]) for x in mine if x.verdict in ("worse", "not comparable")}
    if keys:
        missed = "; ".join(f"{noise} n = {n} ε = {e:g}" for noise, n, e in sorted(bad))
        rule = "at least 10 of 12 cells no worse than the printed PGBB by 2 standard errors"
        rule += (f"; missed: {missed}" if missed else "") + _fewer(len(keys), 12)
        good = len(keys - bad)
        found.append(
            goal({"method": "calibrated"}, "cells", float(good), good >= 10 if len(keys) == 12 else None, rule)
        )
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
