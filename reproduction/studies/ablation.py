"""From the printed algorithm to the default method, one ingredient at a time, on data whose truth is known."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from pgbb.custody.run import fit
from pgbb.methods import calibrated
from pgbb.methods.request import Request
from pgbb.model.models import Model
from pgbb.model.schema import Schema
from pgbb.release.file import Release
from reproduction.constants import constants
from reproduction.judge import Line, shown, summarise
from reproduction.simulate import (
    BETA,
    LINEAR_MODEL,
    LINEAR_SCHEMA,
    PROCESS_SCHEMA,
    TAUS,
    all_draws,
    linear_frame,
    process_frame,
    process_model,
    scored,
)
from reproduction.study import Cells, Quick, Results, Row, Study, Table, each

__all__ = ["STUDY", "run"]

DATA = {"linear": {"n": 10_000, "epsilon": 1.0}, "process": {"n": 65_023, "epsilon": 1.0}}


def _steps(data: str) -> dict[str, dict[str, Any]]:
    """The ladder: each rung keeps what the one before it changed."""
    printed = constants("linear" if data == "linear" else "census", "pgbb")
    average = {**printed, "iterate": "average"}
    few = {**average, "blocks": 5}
    constant = {**average, "blocks": 1}
    whole = {**constant, "sampling_rate": 1.0, "steps": 1_000, "draws_per_step": 1}
    rungs: dict[str, dict[str, Any]] = {
        "0-printed": {"accountant": "paper", "constants": {**printed, "iterate": "last"}},
        "1-average": {"accountant": "paper", "constants": average},
        "2-exact": {"accountant": "exact", "constants": average},
        "3-five-blocks": {"accountant": "exact", "constants": few},
        "4-constant-weights": {"accountant": "exact", "constants": constant},
        "5-full-batches": {"accountant": "exact", "constants": whole},
    }
    if printed["blocks"] == 5:
        del rungs["3-five-blocks"]
    found: dict[str, dict[str, Any]] = {name: {"method": "pgbb", **rung} for name, rung in rungs.items()}
    default = {"method": "calibrated", "accountant": "exact", "constants": {}}
    found["6-few-answers"] = {**default, "without": ["whitening", "shrinkage", "redrawing"]}
    found["7-whitening"] = {**default, "without": ["shrinkage", "redrawing"]}
    found["8-shrinkage"] = {**default, "without": ["redrawing"]}
    found["9-calibrated"] = default
    return found


def cells() -> Cells:
    """Both kinds of data, every rung."""
    return {
        f"{data}-{name}": {"data": data, "rung": name, **DATA[data], **rung}
        for data in DATA
        for name, rung in _steps(data).items()
    }


def quick() -> Cells:
    """The regression, the first and last rungs, short."""
    found = {}
    for name in ("linear-1-average", "linear-4-constant-weights", "linear-7-whitening", "linear-9-calibrated"):
        settings = cells()[name]
        short = {"steps": 300} if settings["method"] == "pgbb" else {}
        found[name] = {**settings, "n": 4_000, "constants": {**settings["constants"], **short}}
    return found


def run(settings: Mapping[str, Any], seed: int) -> list[Row]:
    """One replicate."""
    n = settings["n"]
    if settings["data"] == "linear":
        release = _released(settings, LINEAR_MODEL, linear_frame("contaminated_normal", n, seed), LINEAR_SCHEMA, seed)
        return scored(all_draws(release, seed)[:, :, :3], BETA[None], ["x1", "x2", "x3"])
    frame, truth = process_frame(n, seed)
    release = _released(settings, process_model(), frame, PROCESS_SCHEMA, seed)
    return scored(all_draws(release, seed)[:, :, 1:], truth[:, 1:], ["educ", "exper", "black"], TAUS)


def _released(settings: Mapping[str, Any], model: Model, frame: pd.DataFrame, schema: Schema, seed: int) -> Release:
    """A fit; of the default method without the ingredients that the rung leaves out."""
    budget = {"epsilon": settings["epsilon"], "delta": 1 / settings["n"], "insecure_seed": seed}
    accountant = settings["accountant"]
    if "without" in settings:
        request = Request(model, frame, schema, accountant=accountant, **budget)
        return calibrated.run(request, calibrated.Settings(), without=frozenset(settings["without"]))
    how = {"method": settings["method"], "accountant": accountant, **settings["constants"]}
    if how["method"] == "pgbb":
        how["intervals"] = "printed"
    return fit(model, frame, schema=schema, **budget, **how)


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """One line a rung; the quantile process a coefficient at a time, mean over five levels."""
    lines: list[Line] = []
    for outcome in results.values():
        s = outcome.settings
        parts = [("mean of three", outcome.rows)]
        if s["data"] == "process":
            parts = [(str(name), rows) for name, rows in outcome.rows.groupby("coefficient", sort=False)]
        for coefficient, rows in parts:
            where = {"data": s["data"], "coefficient": coefficient, "rung": s["rung"]}
            lines += [shown(where, measure, value) for measure, value in summarise(rows).items()]
    lines.sort(key=lambda line: (line.where["data"], line.where["coefficient"], line.where["rung"]))
    notes = (
        "Each rung keeps the changes before it. Constant weights give the centre only: such a fit has no spread.",
        "From 6 on: a few dozen answers, first in coordinates of the declared box and with matrices as answered.",
        "The last rung, the default method, draws these matrices again with the noise that is left in them.",
    )
    return [Table("One ingredient at a time", lines, notes)]


STUDY = Study(
    name="ablation",
    labels=(),
    title="from the printed algorithm to the default method, one ingredient at a time",
    cells=cells,
    replicates=50,
    run=each(run),
    quick=Quick(quick, 2),
    tables=tables,
)
