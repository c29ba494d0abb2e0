"""The method comparison (Table S1): what each method of pgbb needs and gives, beside the paper."""

from collections.abc import Callable, Mapping
from typing import Any

from pgbb.methods.registry import METHODS
from reproduction.constants import RENAMED
from reproduction.judge import Line, goal
from reproduction.printed import table
from reproduction.study import Cells, Quick, Results, Row, Study, Table, each

__all__ = ["STUDY", "run"]

COLUMNS = ("data_model_free", "scaling_free", "budget_free_draws", "multiple_rules")
HAS = {
    "calibrated": COLUMNS,
    "pgbb": COLUMNS,
    "sgld": ("data_model_free",),
    "noisy_gibbs": ("scaling_free", "budget_free_draws"),
    "dp_bootstrap": ("data_model_free", "scaling_free"),
}
"""The columns in which a method has a tick."""
KIN = {
    "pgbb": "PGBB",
    "calibrated": "PGBB",
    "sgld": "Stochastic Gradient Langevin Dynamics",
    "noisy_gibbs": "Noisy Summary Statistics",
    "dp_bootstrap": "Nonparametric bootstrap",
}


def cells() -> Cells:
    """One: the registry has all methods."""
    return {"methods": {"columns": list(COLUMNS), "once": True}}


def run(settings: Mapping[str, Any], seed: int) -> list[Row]:
    """A row a method; nothing is random."""
    return [{"name": name, **{column: column in HAS[name] for column in settings["columns"]}} for name in METHODS]


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """Each declaration beside the printed tick or cross."""
    printed = table("method_comparison").set_index("method")
    lines: list[Line] = []
    for outcome in results.values():
        for _, row in outcome.rows.iterrows():
            name = RENAMED.get(row["name"], row["name"])
            kin = KIN[name]
            for column in COLUMNS:
                there = printed.loc[kin, column] == "yes"
                where = {"method": name, "printed as": kin}
                agrees = bool(row[column]) == there
                rule = "declares what the paper prints"
                lines.append(
                    goal(where, column.replace("_", " "), float(row[column]), agrees, rule, printed=float(there))
                )
    others = ", ".join(name for name in printed.index if name not in KIN.values())
    return [Table("Private methods (Table S1); 1 is yes", lines, (f"Not implemented: {others}.",))]


STUDY = Study(
    name="comparison",
    labels=("Table S1",),
    title="what each method needs and gives",
    cells=cells,
    replicates=1,
    run=each(run),
    quick=Quick(cells, 1),
    tables=tables,
)
