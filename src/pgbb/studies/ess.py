"""Effective sample sizes of the two chains (Table `tab:ess-expo`), after burn-in, mean over coefficients.

Chains are not thinned here: printed sizes exceed the number of thinned draws.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pgbb.methods.ess import effective_sample_size
from pgbb.studies.cellfit import fit_cells
from pgbb.studies.constants import CHOSEN, accountant_of, constants
from pgbb.studies.families import fit_family
from pgbb.studies.judge import Line, reproduces, summarise
from pgbb.studies.printed import lookup
from pgbb.studies.simulate import LINEAR_MODEL, LINEAR_SCHEMA, NOISES, Floats, all_draws, linear_frame
from pgbb.studies.study import Cells, Quick, Results, Row, Study, Table, cell_name

__all__ = ["STUDY", "run"]

CASES = {
    ("exponential", 500): "Exp, n=500",
    ("exponential", 5_000): "Exp n=5k",
    ("gaussian", 500): "Gauss, n=500",
    ("gaussian", 5_000): "Gauss, n=5k",
    ("linear", 10_000): "n=10k",
    ("linear", 40_000): "n=40k",
}
COLUMN = {"sgld": "sgld_ess", "noisy_gibbs": "gibbs_ess"}


def cells() -> Cells:
    """Both chains on every case of the table."""
    return {
        cell_name(method=method, family=name, n=n, epsilon=epsilon): {
            "method": method,
            "family": name,
            "n": n,
            "epsilon": epsilon,
            "accountant": accountant_of(method),
            "constants": {**constants("linear" if name == "linear" else "families", method), "thin": 1},
        }
        for method in COLUMN
        for name, n in CASES
        for epsilon in (1.0, 2.0, 4.0)
    }


def quick() -> Cells:
    """The Gaussian mean at n = 500; the chain of NoisyGibbs whole, that of DP-SGLD short."""
    found = {name: s for name, s in cells().items() if (s["family"], s["n"], s["epsilon"]) == ("gaussian", 500, 4.0)}
    return {
        name: {**s, "constants": {**s["constants"], **({"steps": 2_000} if s["method"] == "sgld" else {})}}
        for name, s in found.items()
    }


def run(settings: Mapping[str, Any], seeds: Sequence[int]) -> list[list[Row]]:
    """One chain a replicate; in the regression one for each kind of errors, as the table does not say which it has."""
    if settings["family"] != "linear":
        return [[_row(settings["family"], draws[""])] for draws in fit_family(settings, seeds)]
    found: list[list[Row]] = [[] for _ in seeds]
    for noise in NOISES:
        frames = [linear_frame(noise, settings["n"], seed) for seed in seeds]
        releases = fit_cells(LINEAR_MODEL, frames, LINEAR_SCHEMA, settings, seeds)
        for rows, release, seed in zip(found, releases, seeds, strict=True):
            rows.append(_row(noise, all_draws(release, seed)[:, :, :3]))
    return found


def _row(data: str, draws: Floats) -> Row:
    return {"data": data, "ess": float(effective_sample_size(draws[:, 0]).mean()), "kept": len(draws)}


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """The printed table beside ours."""
    lines: list[Line] = []
    for outcome in results.values():
        s = outcome.settings
        printed = lookup("ess", case=CASES[s["family"], s["n"]], epsilon=s["epsilon"])
        value = {"ess": printed[COLUMN[s["method"]]]} if printed else {}
        where = {"data": s["family"], "n": s["n"], "ε": s["epsilon"], "method": s["method"]}
        lines.append(reproduces(where, "ess", summarise(outcome.rows, ("ess",))["ess"], value))
    return [Table("Effective sample size (tab:ess-expo)", lines, (CHOSEN["sgld families"], CHOSEN["noisy_gibbs"]))]


STUDY = Study(
    name="ess",
    labels=("tab:ess-expo",),
    title="effective sample sizes of the chains",
    cells=cells,
    replicates=100,
    run=run,
    quick=Quick(quick, 2),
    tables=tables,
)
