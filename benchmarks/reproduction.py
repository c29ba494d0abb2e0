"""Why some figures of `method="paper"` are not the printed ones: what the studies' reasons rest on.

    python benchmarks/reproduction.py [RUNS]

The generator's output is θ = center + radius · tanh(z/20), where the paper's is linear in z: at the box of the linear
study a step of Adam moves θ a quarter as far. Widths with the printed learning rate, with four times that, and
without any noise.
"""

import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd

import pgbb
from pgbb.studies.constants import constants
from pgbb.studies.printed import lookup
from pgbb.studies.registry import get
from pgbb.studies.simulate import BETA, LINEAR_MODEL, LINEAR_SCHEMA, linear_frame

N, EPSILON = 40_000, 4.0


def widths(runs: int, **changes: Any) -> str:
    settings, found = constants("linear", "paper"), []
    noise = changes.pop("noise", True)
    for r in range(runs):
        release = pgbb.fit(
            LINEAR_MODEL, linear_frame("student_t", N, r), schema=LINEAR_SCHEMA, epsilon=EPSILON, delta=1 / N,
            method="paper", accountant="paper", insecure_seed=r, non_private=not noise, **settings | changes,
        )  # fmt: skip
        for iterate in ("last", "average"):
            draws = release.sample(2000, seed=r, iterate=iterate)[["x1", "x2", "x3"]].to_numpy()
            low, high = np.quantile(draws, [0.025, 0.975], axis=0)
            found.append((float(np.mean(high - low)), float(np.abs(draws.mean(axis=0) - BETA).mean())))
    (last, last_error), (average, average_error) = np.reshape(found, (runs, 2, 2)).mean(axis=0)
    return f"width {last:.4f} last, {average:.4f} average; MAE {last_error:.4f}, {average_error:.4f}"


def main(runs: int = 8) -> None:
    printed = lookup("linreg_summary", epsilon=EPSILON, n=N, method="PGBB", noise="student_t")
    print(f"linear, Student t, n = {N:,}, ε = {EPSILON:g}, {runs} runs; printed width {printed['width']}, "
          f"MAE {printed['mae']}")  # fmt: skip
    rate = constants("linear", "paper")["learning_rate"]
    print(f"   printed learning rate    {widths(runs)}", flush=True)
    print(f"   four times that          {widths(runs, learning_rate=4 * rate)}", flush=True)
    print(f"   printed rate, no noise   {widths(runs, noise=False)}", flush=True)
    study = get("families")
    cell = study.cells()["paper-exponential-n500-eps1"]
    print(f"exponential mean, n = 500, ε = 1, {4 * runs} runs, average iterate")
    for rate in (5e-4, 2e-3):
        changed = {**cell, "constants": cell["constants"] | {"learning_rate": rate}}
        rows = pd.DataFrame([row for rows in study.run(changed, range(4 * runs)) for row in rows])
        mean = rows[rows["variant"] == "average"][["mae", "sd", "coverage"]].mean()
        print(f"   learning rate {rate:g}: MAE {mean['mae']:.3f}, sd of the draws {mean['sd']:.3f}, coverage "
              f"{mean['coverage']:.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    main(*map(int, sys.argv[1:]))
