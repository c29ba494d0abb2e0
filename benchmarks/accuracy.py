"""Accuracy of `method="paper"` on the paper's regression and on the census of 1980, against printed figures.

    python benchmarks/accuracy.py regression [REPLICATES]
    PGBB_DATA=… python benchmarks/accuracy.py census [RUNS]
    python benchmarks/accuracy.py sgld [REPLICATES]

Regression: contaminated normal errors, n = 10,000, ε = 1, δ = 1/n, S = 20,
T = 10⁴, K = 1, q = .1; mean absolute error, coverage and width of 95 % intervals
over three coefficients. Census: five quantile levels jointly, ε = 4, δ = 1/n,
S = 5, T = 5,000, K = 5, q = .01; the schooling coefficient in %/yr against the
non-private fit (exact linear programme, figures of the data's README). SGLD:
the same regression by DP-SGLD at ε = 1 and 4 with the paper's accountant.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

import pgbb

BETA = np.array([1.5, -1.5, 1.0])
TAUS = (0.1, 0.3, 0.5, 0.7, 0.9)
SCHOOLING_1980 = np.array([7.24, 7.02, 6.80, 6.97, 7.93])  # %/yr


def _regression_frame(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 3))
    noise = 0.5 * rng.standard_normal(n) * np.where(rng.random(n) < 0.1, 8, 1)
    return pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "x3": x[:, 2], "y": x @ BETA + noise})


def _score(draws: np.ndarray, truth: np.ndarray) -> tuple[float, float, float]:
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    covered = ((low <= truth) & (truth <= high)).mean()
    return float(np.abs(draws.mean(axis=0) - truth).mean()), float(covered), float((high - low).mean())


def regression(replicates: int = 100) -> None:
    schema = pgbb.Schema(x1=pgbb.Range(-1, 1), x2=pgbb.Range(-1, 1), x3=pgbb.Range(-1, 1), y=pgbb.Range(-20, 20))
    model = pgbb.HuberRegression("y ~ x1 + x2 + x3 - 1", scale=(0.05, 5.0))
    rows: dict[str, list[tuple[float, float, float]]] = {"average": [], "last": []}
    begin = time.perf_counter()
    for r in range(replicates):
        release = pgbb.fit(
            model, _regression_frame(10_000, r), schema=schema, epsilon=1.0, delta=1e-4, method="paper", blocks=20,
            steps=10_000, draws_per_step=1, sampling_rate=0.1, insecure_seed=r,
        )  # fmt: skip
        for iterate, found in rows.items():
            draws = release.sample(2000, seed=r, iterate=iterate)[["x1", "x2", "x3"]].to_numpy()
            found.append(_score(draws, BETA))
    print(f"regression, {replicates} replicates, {(time.perf_counter() - begin) / replicates:.1f} s each")
    print(f"{'':12}{'MAE':>9}{'coverage':>10}{'width':>9}   (Monte Carlo standard errors below)")
    for iterate, found in rows.items():
        mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(replicates)
        print(f"{iterate:12}{mean[0]:9.4f}{mean[1]:10.3f}{mean[2]:9.4f}")
        print(f"{'':12}{error[0]:9.4f}{error[1]:10.3f}{error[2]:9.4f}")
    print(f"{'printed':12}{0.0142:9.4f}{0.983:10.3f}{0.104:9.4f}")


def sgld(replicates: int = 20) -> None:
    schema = pgbb.Schema(x1=pgbb.Range(-1, 1), x2=pgbb.Range(-1, 1), x3=pgbb.Range(-1, 1), y=pgbb.Range(-20, 20))
    model = pgbb.HuberRegression("y ~ x1 + x2 + x3 - 1", scale=(0.05, 5.0))
    print(f"DP-SGLD, contaminated normal, n = 10,000, {replicates} replicates")
    print(f"{'':12}{'MAE':>9}{'coverage':>10}{'width':>9}{'ESS':>7}   printed MAE, coverage, width")
    for epsilon, printed in ((1.0, ".0096, 1.000, .738"), (4.0, ".0084, 1.000, .225")):
        found, sizes = [], []
        for r in range(replicates):
            release = pgbb.fit(
                model, _regression_frame(10_000, r), schema=schema, epsilon=epsilon, delta=1e-4, method="sgld",
                accountant="paper", insecure_seed=r,
            )  # fmt: skip
            found.append(_score(release.payload.tensors["draws"][:, :3], BETA))
            sizes.append(np.mean(release.stored_diagnostics["effective_sample_size"][0][:3]))
        mean = np.mean(found, axis=0)
        print(f"ε = {epsilon:<8g}{mean[0]:9.4f}{mean[1]:10.3f}{mean[2]:9.4f}{np.mean(sizes):7.0f}   {printed}")


def census(runs: int = 10) -> None:
    path = Path(os.environ.get("PGBB_DATA", "data")) / "census80.parquet"
    if not path.exists():
        sys.exit(f"{path} is not there: set PGBB_DATA to the folder that holds census80.parquet")
    schema = pgbb.Schema(educ=pgbb.Range(5, 20), exper=pgbb.Range(14, 38), black=pgbb.Flag(), logwk=pgbb.Range(0, 12))
    model = pgbb.QuantileRegression("logwk ~ educ + exper + black", taus=TAUS, bandwidth=0.1)
    rows: dict[str, list[tuple[float, float, float]]] = {"average": [], "last": []}
    begin = time.perf_counter()
    for r in range(runs):
        release = pgbb.fit(
            model, path, schema=schema, epsilon=4.0, delta=1 / 65_023, method="paper", blocks=5, steps=5_000, draws_per_step=5,
            sampling_rate=0.01, insecure_seed=r,
        )  # fmt: skip
        for iterate, found in rows.items():
            draws = release.sample(2000, tau=list(TAUS), seed=r, iterate=iterate)
            schooling = np.column_stack([draws[(t, "educ")] for t in TAUS]) * 100
            found.append(_score(schooling, SCHOOLING_1980))
    print(f"census 1980, ε = 4, {runs} runs, {(time.perf_counter() - begin) / runs:.1f} s each; schooling in %/yr")
    print(f"{'':12}{'MAE':>9}{'coverage':>10}{'width':>9}")
    for iterate, found in rows.items():
        mean = np.mean(found, axis=0)
        print(f"{iterate:12}{mean[0]:9.3f}{mean[1]:10.2f}{mean[2]:9.2f}")
    print(f"{'printed':12}{0.17:9.3f}{0.84:10.2f}{0.77:9.2f}")


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["regression"]
    {"regression": regression, "census": census, "sgld": sgld}[command](*map(int, rest))
