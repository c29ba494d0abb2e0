"""Fits of a cell as its settings say, and their scores for every iterate that a release holds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pandas as pd

from pgbb.accountant.calibrate import Accountant
from pgbb.methods.effective_size import effective_sample_size
from pgbb.methods.registry import settings_for
from pgbb.methods.request import Request, prepared
from pgbb.model.models import Model
from pgbb.model.schema import Schema
from pgbb.release.file import Release
from reproduction.simulate import Floats, all_draws, scored
from reproduction.study import Row

__all__ = ["CHAINS", "chain_size", "fit_cells", "fit_many", "score_cell"]

CHAINS = ("sgld", "noisy_gibbs")
"""Methods whose draws are correlated."""


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


def fit_many(
    model: Model,
    data: Sequence[Any],
    *,
    schema: Schema,
    epsilon: float,
    delta: float,
    method: str = "calibrated",
    accountant: str = "exact",
    insecure_seeds: Sequence[int],
    **settings: Any,
) -> list[Release]:
    """Fit data sets of one size under one budget each, side by side where the method can: for simulations on a GPU.

    Every release is that of `fit` with the seed of its data set, up to the order in which a device adds numbers.
    """
    requests = [
        Request(
            model=model, data=one, schema=schema, epsilon=epsilon, delta=delta,
            accountant=cast(Accountant, accountant), insecure_seed=seed,
        )
        for one, seed in zip(data, insecure_seeds, strict=True)
    ]  # fmt: skip
    chosen, constants = settings_for(method, settings)
    chosen.check(model, prepared(model, schema))
    module = chosen.load()
    together = getattr(module, "run_many", None)
    if together is None:
        return [module.run(request, constants) for request in requests]
    return list(together(requests, constants))


def score_cell(
    release: Release,
    method: str,
    seed: int,
    shown: Callable[[Floats], Floats],
    truth: Floats,
    names: list[str],
    levels: tuple[float, ...] | None = None,
) -> list[Row]:
    """Rows of `scored` on what is shown of the draws: for both iterates of the printed method, else once.

    A chain without levels has its effective sample size too, mean over what is shown.
    """
    rows = []
    for iterate in ("last", "average") if method == "pgbb" else (None,):
        draws = shown(all_draws(release, seed, iterate))
        size = chain_size(draws) if method in CHAINS and levels is None else float("nan")
        rows += [{"variant": iterate or "", **row, "ess": size} for row in scored(draws, truth, names, levels)]
    return rows


def chain_size(draws: Floats) -> float:
    """Effective sample size of (m, 1, coefficients), mean over coefficients."""
    return float(effective_sample_size(draws[:, 0]).mean())
