"""Effect of K (Table S6): one and ten Monte Carlo draws a step, on the linear regression."""

from collections.abc import Callable

from reproduction.constants import CHOSEN, accountant_of, preset
from reproduction.judge import Line, judged, summarise
from reproduction.printed import lookup
from reproduction.studies.linear import OURS, agreement, grid, printed_cells, run, variants
from reproduction.study import Cells, Quick, Results, Study, Table, cell_name

__all__ = ["STUDY"]

PRINTED_NOISE = {"contaminated_normal": "Contam. normal", "student_t": "Student-t"}


def cells() -> Cells:
    """K = 10 on the grid of the regression; K = 1 are cells of the study `linear`."""
    return {
        cell_name(K=draws, noise=noise, n=n, epsilon=epsilon): {
            "method": "pgbb",
            "noise": noise,
            "n": n,
            "epsilon": epsilon,
            "accountant": accountant_of("pgbb"),
            "constants": {**preset("linear"), "draws_per_step": draws},
        }
        for draws in (10,)
        for noise, n, epsilon in grid()
    }


def quick() -> Cells:
    """K = 10, a short training."""
    return {
        name.replace("n10000", "n4000"): {**settings, "n": 4_000, "constants": {**settings["constants"], "steps": 200}}
        for name, settings in cells().items()
        if name == "K10-contaminated_normal-n10000-eps4"
    }


def tables(results: Results, others: Callable[[str], Results]) -> list[Table]:
    """The printed table beside ours."""
    results = printed_cells(others("linear")) | results
    lines: list[Line] = []
    for outcome in results.values():
        s = outcome.settings
        draws = s["constants"].get("draws_per_step", 1)
        printed = lookup("k_comparison", noise=PRINTED_NOISE[s["noise"]], n=s["n"], epsilon=s["epsilon"], K=draws)
        for method, rows in variants(outcome):
            where = {"noise": s["noise"], "n": s["n"], "ε": s["epsilon"], "K": draws, "method": method}
            lines += judged(where, summarise(rows), printed, method not in OURS)
    return [Table("Goals", agreement([lines], 20, 24)), Table("K = 1 and K = 10 (Table S6)", lines, (CHOSEN["slope"],))]


STUDY = Study(
    name="k",
    labels=("Table S6",),
    title="effect of the Monte Carlo draws K",
    cells=cells,
    replicates=100,
    run=run,
    quick=Quick(quick, 1),
    tables=tables,
)
