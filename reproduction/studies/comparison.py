"""The method comparison (Table S1): what each method of pgbb needs and gives, beside the paper."""

from collections.abc import Callable, Mapping
from typing import Any

from pgbb.methods.registry import COLUMNS, METHODS
from reproduction.constants import RENAMED
from reproduction.judge import Line, goal
from reproduction.printed import table
from reproduction.study import Cells, Quick, Results, Row, Study, Table, each

__all__ = ["STUDY", "run"]

VALUE = {"no": 0.0, "simulated": 0.5, "yes": 1.0}
KIN = {
    "pgbb": "PGBB",
    "calibrated": "PGBB",
    "sgld": "Stochastic Gradient Langevin Dynamics",
    "noisy_gibbs": "Noisy Summary Statistics",
    "dp_bootstrap": "Nonparametric bootstrap",
    "augmented": "Noisy Summary Statistics",
    "abc": "Approximate Bayesian Computation",
    "repro": "Repro-sample inference",
    "posterior_sampling": "Posterior sampling",
    "dp_mcmc": "MCMC",
}


def cells() -> Cells:
    """One: the registry has all methods."""
    return {"methods": {"columns": list(COLUMNS), "once": True}}


def run(settings: Mapping[str, Any], seed: int) -> list[Row]:
    """A row a method; nothing is random."""
    return [
        {"name": name, **{column: VALUE[method.columns[column]] for column in settings["columns"]}}
        for name, method in METHODS.items()
    ]


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """Each declaration beside the printed tick or cross."""
    printed = table("method_comparison").set_index("method")
    lines: list[Line] = []
    for outcome in results.values():
        for _, row in outcome.rows.iterrows():
            name = RENAMED.get(row["name"], row["name"])
            kin = KIN[name]
            for column in COLUMNS:
                there = VALUE[str(printed.loc[kin, column])]
                where = {"method": name, "printed as": kin}
                agrees = float(row[column]) == there
                rule = "declares what the paper prints"
                lines.append(goal(where, column.replace("_", " "), float(row[column]), agrees, rule, printed=there))
    others = ", ".join(name for name in printed.index if name not in KIN.values())
    notes = (f"Not implemented: {others}.",) if others else ()
    return [Table("Private methods (Table S1); 1 is yes, 0.5 needs simulated data", lines, notes)]


STUDY = Study(
    name="comparison",
    labels=("Table S1",),
    title="what each method needs and gives",
    cells=cells,
    replicates=1,
    run=each(run),
    quick=Quick(cells, 1),
    tables=tables,
    revision=2,
)
