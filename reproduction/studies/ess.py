"""Effective sample sizes of the two chains (Table S7), after burn-in, mean over coefficients.

From the chains of the studies `linear` and `families`; in the regression the mean over both kinds of errors, as the
table does not say which it has. Chains are not thinned: printed sizes exceed the number of thinned draws.
"""

from collections.abc import Callable

import pandas as pd

from reproduction.constants import CHOSEN
from reproduction.judge import Line, reproduces, summarise
from reproduction.printed import lookup
from reproduction.study import Cells, Quick, Results, Study, Table

__all__ = ["CASES", "COLUMN", "STUDY"]

CASES = {
    ("exponential", 500): "Exp, n=500",
    ("exponential", 5_000): "Exp n=5k",
    ("gaussian", 500): "Gauss, n=500",
    ("gaussian", 5_000): "Gauss, n=5k",
    ("linear", 10_000): "n=10k",
    ("linear", 40_000): "n=40k",
}
COLUMN = {"sgld": "sgld_ess", "noisy_gibbs": "gibbs_ess"}
SOURCES = ("families", "linear")


def cells() -> Cells:
    """None: the chains are those of other studies."""
    return {}


def tables(_: Results, others: Callable[[str], Results]) -> list[Table]:
    """The printed table beside ours."""
    found: dict[tuple[str, str, int, float], list[pd.DataFrame]] = {}
    for source in SOURCES:
        for outcome in others(source).values():
            s = outcome.settings
            if s["method"] in COLUMN:
                place = (s["method"], s.get("family", "linear"), s["n"], s["epsilon"])
                found.setdefault(place, []).append(outcome.rows)
    lines: list[Line] = []
    for (method, data, n, epsilon), rows in found.items():
        printed = lookup("ess", case=CASES.get((data, n), ""), epsilon=epsilon)
        value = {"ess": printed[COLUMN[method]]} if printed else {}
        where = {"data": data, "n": n, "ε": epsilon, "method": method}
        lines.append(reproduces(where, "ess", summarise(pd.concat(rows), ("ess",))["ess"], value))
    return [Table("Effective sample size (Table S7)", lines, (CHOSEN["sgld families"], CHOSEN["noisy_gibbs"]))]


STUDY = Study(
    name="ess",
    labels=("Table S7",),
    title="effective sample sizes of the chains",
    cells=cells,
    replicates=0,
    run=lambda settings, seeds: [],
    quick=Quick(cells, 0),
    tables=tables,
    judges=SOURCES,
)
