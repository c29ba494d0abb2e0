"""One fit of a cell as its settings say, and its scores for every iterate that a release holds."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from pgbb.fitting import fit
from pgbb.models import Model
from pgbb.release import Release
from pgbb.schema import Schema
from pgbb.studies.simulate import Floats, all_draws, scored
from pgbb.studies.study import Row

__all__ = ["fit_cell", "score_cell"]


def fit_cell(model: Model, frame: pd.DataFrame, schema: Schema, settings: Mapping[str, Any], seed: int) -> Release:
    """A fit at δ = 1/n with the cell's ε, method, accountant and constants."""
    return fit(
        model,
        frame,
        schema=schema,
        epsilon=settings["epsilon"],
        delta=1 / len(frame),
        method=settings["method"],
        accountant=settings["accountant"],
        insecure_seed=seed,
        **settings["constants"],
    )


def score_cell(
    release: Release,
    method: str,
    seed: int,
    shown: Callable[[Floats], Floats],
    truth: Floats,
    names: list[str],
    levels: tuple[float, ...] | None = None,
) -> list[Row]:
    """Rows of `scored` on what is shown of the draws: for both iterates of the printed method, else once."""
    iterates: tuple[str | None, ...] = ("last", "average") if method == "paper" else (None,)
    return [
        {"variant": iterate or "", **row}
        for iterate in iterates
        for row in scored(shown(all_draws(release, seed, iterate)), truth, names, levels)
    ]
