"""Fits of a cell as its settings say, and their scores for every iterate that a release holds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from pgbb.fitting import fit_many
from pgbb.models import Model
from pgbb.release import Release
from pgbb.schema import Schema
from pgbb.studies.simulate import Floats, all_draws, scored
from pgbb.studies.study import Row

__all__ = ["fit_cells", "score_cell"]


def fit_cells(
    model: Model, frames: Sequence[pd.DataFrame], schema: Schema, settings: Mapping[str, Any], seeds: Sequence[int]
) -> list[Release]:
    """Fits of replicates at δ = 1/n with the cell's ε, method, accountant and constants, side by side."""
    return fit_many(
        model,
        frames,
        schema=schema,
        epsilon=settings["epsilon"],
        delta=1 / len(frames[0]),
        method=settings["method"],
        accountant=settings["accountant"],
        insecure_seeds=seeds,
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
