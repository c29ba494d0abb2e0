"""Public pseudo-samples (section S2.3): bias and variance of a Gaussian mean against their Dirichlet mass α and number.

The pseudo-samples are of a law whose mean is half a standard deviation of the records below theirs, so that a share
α/(Sγ + α) of the weight moves the estimate by as much of that distance.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reproduction.constants import constants
from reproduction.fits import fit_many
from reproduction.judge import Line, goal, shown, summarise
from reproduction.simulate import FAMILY_TRUTH, all_draws, family, scored
from reproduction.study import Cells, Quick, Results, Row, Study, Table

__all__ = ["STUDY", "run"]

AWAY = -0.25
"""Mean of the pseudo-samples less that of the records, whose standard deviation is .5."""


def cells() -> Cells:
    """α from none to as much as five blocks have, from few and from many pseudo-samples."""
    found: Cells = {}
    for epsilon in (1.0, 4.0):
        for count, alpha in ((0, 0.0), (100, 0.2), (100, 1.0), (100, 5.0), (2_000, 1.0), (2_000, 5.0)):
            found[f"alpha{alpha:g}-m{count}-eps{epsilon:g}"] = {
                "method": "pgbb", "n": 5_000, "epsilon": epsilon, "alpha": alpha, "count": count,
                "constants": {**constants("families", "pgbb"), "intervals": "printed", "iterate": "average"},
            }  # fmt: skip
    return found


def quick() -> Cells:
    """With and without, short."""
    return {
        name: {**s, "n": 1_000, "constants": {**s["constants"], "steps": 200}}
        for name, s in cells().items()
        if name in ("alpha0-m0-eps4", "alpha5-m100-eps4")
    }


def run(settings: Mapping[str, Any], seeds: Sequence[int]) -> list[list[Row]]:
    """Replicates; the pseudo-samples are the same for all."""
    n, count, truth = settings["n"], settings["count"], FAMILY_TRUTH["gaussian"]
    model, _, schema = family("gaussian", 1, 0)
    more: dict[str, Any] = {}
    if count:
        base = np.random.default_rng(count).normal(0.0, 0.5, count)
        more = {"alpha": settings["alpha"], "pseudo": pd.DataFrame({"x": base - base.mean() + truth + AWAY})}
    releases = fit_many(
        model, [family("gaussian", n, seed)[1] for seed in seeds], schema=schema, epsilon=settings["epsilon"],
        delta=1 / n, method="pgbb", accountant="paper", insecure_seeds=seeds, **settings["constants"], **more,
    )  # fmt: skip
    found = []
    for release, seed in zip(releases, seeds, strict=True):
        rows = scored(all_draws(release, seed), np.array([[truth]]), ["mean"])
        found.append([{**row, "noise": release.certificate.sigma} for row in rows])
    return found


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """Bias beside its expectation, spread between and within runs, and the noise, against α and the number."""
    lines: list[Line] = []
    for outcome in results.values():
        s, rows = outcome.settings, outcome.rows
        where = {"ε": s["epsilon"], "pseudo-samples": s["count"], "α": s["alpha"]}
        mass = s["constants"]["blocks"] * s["constants"]["gamma"]
        expected = AWAY * s["alpha"] / (mass + s["alpha"])
        error = float(rows["mean"].std(ddof=1) / np.sqrt(len(rows)))
        bias = float(rows["mean"].mean()) - FAMILY_TRUTH["gaussian"]
        met = abs(bias - expected) <= 3 * error + 0.1 * abs(expected)
        rule = "bias AWAY·α/(Sγ + α), within 3 standard errors and a tenth".replace("AWAY", f"{AWAY:g}")
        lines.append(goal(where, "bias", bias, met, rule, error))
        lines.append(shown(where, "expected bias", (expected, float("nan"))))
        lines.append(shown(where, "sd between runs", (float(rows["mean"].std(ddof=1)), float("nan"))))
        lines.append(shown(where, "sd within", (float(rows["sd"].mean()), float("nan"))))
        lines.append(shown(where, "noise σ", (float(rows["noise"].mean()), float("nan"))))
        lines.append(shown(where, "coverage", summarise(rows)["coverage"]))
    return [Table("Pseudo-samples: bias and variance of a Gaussian mean", lines)]


STUDY = Study(
    name="alpha",
    labels=(),
    title="public pseudo-samples: bias and variance against their mass and number",
    cells=cells,
    replicates=100,
    run=run,
    quick=Quick(quick, 2),
    tables=tables,
)
