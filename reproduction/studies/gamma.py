"""Choice of γ (Figure 3b): γ = 1 against γ*(n, S) at S = 5 and 20, on the linear regression."""

from collections.abc import Callable

from reproduction.constants import CHOSEN, accountant_of, preset
from reproduction.judge import NOMINAL, Line, goal, shown, summarise
from reproduction.studies.linear import grid, printed_cells, run, variants
from reproduction.study import Cells, Quick, Results, Study, Table, cell_name

__all__ = ["STUDY"]


def cells() -> Cells:
    """2 S × 2 γ on the grid of the regression, less S = 20 with γ*: those are cells of the study `linear`."""
    return {
        cell_name(blocks=blocks, gamma="1" if gamma else "star", noise=noise, n=n, epsilon=epsilon): {
            "method": "pgbb",
            "noise": noise,
            "n": n,
            "epsilon": epsilon,
            "accountant": accountant_of("pgbb"),
            "constants": {**preset("linear"), "blocks": blocks, "gamma": gamma},
        }
        for blocks, gamma in ((5, 1.0), (5, None), (20, 1.0))
        for noise, n, epsilon in grid()
    }


def quick() -> Cells:
    """S = 5, both γ, a short training."""
    return {
        name.replace("n10000", "n4000"): {**settings, "n": 4_000, "constants": {**settings["constants"], "steps": 300}}
        for name, settings in cells().items()
        if name.startswith("S5-") and name.endswith("contaminated_normal-n10000-eps4")
    }


def tables(results: Results, others: Callable[[str], Results]) -> list[Table]:
    """Coverage and width, and what the paper says of them in words."""
    results = results | printed_cells(others("linear"))
    lines: list[Line] = []
    goals: list[Line] = []
    for outcome in results.values():
        s = outcome.settings
        blocks, gamma = s["constants"].get("blocks", 20), "1" if s["constants"].get("gamma") else "γ*"
        for method, rows in variants(outcome):
            where = {"S": blocks, "γ": gamma, "noise": s["noise"], "n": s["n"], "ε": s["epsilon"], "method": method}
            found = summarise(rows)
            lines += [shown(where, measure, value, "the figure prints no numbers") for measure, value in found.items()]
            coverage, error = found["coverage"]
            known = None if error != error else coverage >= NOMINAL - 2 * error
            if gamma == "γ*":
                goals.append(goal(where, "coverage", coverage, known, "γ* covers at least .95 − 2 SE", error))
            elif blocks == 5 and s["epsilon"] == 4 and s["n"] == 10_000:
                dips = coverage < NOMINAL - 2 * error if 2 * error <= NOMINAL - 0.875 else None
                rule = "γ = 1 covers less than .95 at S = 5, ε = 4, n = 10,000; .87 to .88 in the text"
                goals.append(goal(where, "coverage", coverage, dips, rule, error, 0.875))
    errors = "Standard error of coverage: over replicates, each the mean over three coefficients."
    notes = (errors, CHOSEN["slope"])
    return [Table("γ = 1 and γ* (Figure 3b)", lines, notes), Table("What the text says", goals)]


STUDY = Study(
    name="gamma",
    labels=("Figure 3b",),
    title="choice of γ at S = 5 and 20",
    cells=cells,
    replicates=100,
    run=run,
    quick=Quick(quick, 2),
    tables=tables,
)
