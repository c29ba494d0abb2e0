"""What the figures of `method="pgbb"` depend on that the paper does not print: what the studies' reasons rest on.

    python benchmarks/gaps.py [RUNS]

MAE and width of both iterates in one cell of the linear study: with the constants of the study, with the slope of the
output that `pgbb.fit` takes by default (the box is wide there, and θ moves twice as far in a step), without any noise,
with a narrower box of the scale, and with initial weights and biases as PyTorch draws them. Then the exponential mean
by learning rate, and the variance ratio of the blocked bootstrap at γ* for the linear part of a regression, where no
draws are needed.
"""

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pgbb
from pgbb.accountant.description import gamma_star
from pgbb.methods.pgbb import generator

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # reproduction/ lies beside benchmarks/

from reproduction.constants import constants
from reproduction.printed import lookup
from reproduction.registry import get
from reproduction.simulate import BETA, LINEAR_MODEL, LINEAR_SCHEMA, linear_frame
from reproduction.studies import blocking

N, EPSILON = 40_000, 4.0


def uniform(inputs: int, outputs: int, width: int, depth: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights and biases uniform within 1/√(inputs of the layer), the default of PyTorch's linear layer."""
    params: dict[str, np.ndarray] = {}
    size = inputs
    for i in range(depth + 1):
        form = (size + 1, width if i < depth else outputs)
        drawn = rng.uniform(-1, 1, form).astype(np.float32) / np.float32(np.sqrt(size))
        params[f"kernel{i}"], params[f"bias{i}"] = drawn[:-1], drawn[-1]
        size = width + inputs
    return params


def figures(runs: int, *, noise: bool = True, model: Any = LINEAR_MODEL, **changes: Any) -> str:
    found = []
    for r in range(runs):
        release = pgbb.fit(
            model, linear_frame("student_t", N, r), schema=LINEAR_SCHEMA, epsilon=EPSILON, delta=1 / N,
            method="pgbb", accountant="paper", insecure_seed=r, non_private=not noise,
            **constants("linear", "paper") | changes,
        )  # fmt: skip
        for iterate in ("last", "average"):
            draws = release.sample(2000, seed=r, iterate=iterate)[["x1", "x2", "x3"]].to_numpy()
            low, high = np.quantile(draws, [0.025, 0.975], axis=0)
            found.append((float(np.abs(draws.mean(axis=0) - BETA).mean()), float(np.mean(high - low))))
    table = np.reshape(found, (runs, 2, 2))
    (last, last_width), (average, average_width) = table.mean(axis=0)
    error = table.std(axis=0, ddof=1)[:, 0] / np.sqrt(runs)
    return (f"last MAE {last:.4f} ± {error[0]:.4f}, width {last_width:.4f}; "
            f"average MAE {average:.4f} ± {error[1]:.4f}, width {average_width:.4f}")  # fmt: skip


def linear_part(n: int, blocks: int, data_sets: int) -> tuple[float, float]:
    """Variance of the linear part of the regression of the study `blocking`, blocked at γ* over unblocked.

    To first order θ(w) = θ̂ + Σ w_i ψ_i with ψ_i = n(XᵀX)⁻¹x_i e_i. Weights of Dirichlet(c, …, c), m of them, give
    Σ w_i a_i the variance (mean a² − (mean a)²)/(mc + 1).
    """

    def spread(values: np.ndarray, concentration: float) -> float:
        return float(values.var(axis=0).sum() / (len(values) * concentration + 1))

    found = []
    for seed in range(data_sets):
        rng = np.random.default_rng(seed)
        x, noise = rng.normal(size=(n, blocking.DIM)), rng.normal(size=n)
        left = noise - x @ np.linalg.lstsq(x, noise)[0]
        influence = n * np.linalg.solve(x.T @ x, (x * left[:, None]).T).T
        means = rng.permutation(influence).reshape(blocks, -1, blocking.DIM).mean(axis=1)
        found.append({"variance": spread(means, gamma_star(n, blocks)), "unblocked": spread(influence, 1.0)})
    return blocking._table_ratio(pd.DataFrame(found))


def main(runs: int = 8) -> None:
    printed = lookup("linreg_summary", epsilon=EPSILON, n=N, method="PGBB", noise="student_t")
    print(f"linear, Student t, n = {N:,}, ε = {EPSILON:g}, {runs} runs; printed MAE {printed['mae']}, "
          f"width {printed['width']}")  # fmt: skip
    print(f"   as in the study        {figures(runs)}", flush=True)
    print(f"   default slope          {figures(runs, slope=None)}", flush=True)
    print(f"   no noise               {figures(runs, noise=False)}", flush=True)
    narrow = replace(LINEAR_MODEL, scale=(0.05, 1.0))  # θ moves as far as z there
    print(f"   scale at most 1        {figures(runs, model=narrow)}", flush=True)
    ours, generator.initialise = generator.initialise, uniform
    print(f"   uniform weights        {figures(runs)}", flush=True)
    generator.initialise = ours
    study = get("families")
    cell = study.cells()["paper-exponential-n500-eps1"]
    print(f"exponential mean, n = 500, ε = 1, {4 * runs} runs, average iterate")
    for rate in (1.25e-4, 5e-4, 2e-3):
        changed = {**cell, "constants": cell["constants"] | {"learning_rate": rate}}
        rows = pd.DataFrame([row for rows in study.run(changed, range(4 * runs)) for row in rows])
        mean = rows[rows["variant"] == "average"][["mae", "sd", "coverage"]].mean()
        print(f"   learning rate {rate:g}: MAE {mean['mae']:.3f}, sd of the draws {mean['sd']:.3f}, coverage "
              f"{mean['coverage']:.2f}", flush=True)  # fmt: skip
    ratio, error = linear_part(200, 20, 20_000)
    print(f"variance ratio at γ* of the linear part, n = 200, S = 20, 20,000 data sets: {ratio:.4f} ± {error:.4f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    main(*map(int, sys.argv[1:]))
