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

import sys
import time
from pathlib import Path

import numpy as np

import pgbb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # reproduction/ lies beside benchmarks/

from reproduction.printed import lookup
from reproduction.real import census as census_frame
from reproduction.simulate import (
    BETA,
    LINEAR_MODEL,
    LINEAR_SCHEMA,
    PROCESS_SCHEMA,
    all_draws,
    linear_frame,
    process_model,
)

SCHOOLING_1980 = np.array([7.24, 7.02, 6.80, 6.97, 7.93])  # %/yr
CELL = {"n": 10_000, "noise": "contaminated_normal"}


def _printed(found: dict[str, float]) -> str:
    return f"{found['mae']:9.4f}{found['coverage']:10.3f}{found['width']:9.4f}"


def _score(draws: np.ndarray, truth: np.ndarray) -> tuple[float, float, float]:
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    covered = ((low <= truth) & (truth <= high)).mean()
    return float(np.abs(draws.mean(axis=0) - truth).mean()), float(covered), float((high - low).mean())


def regression(replicates: int = 100) -> None:
    rows: dict[str, list[tuple[float, float, float]]] = {"average": [], "last": []}
    begin = time.perf_counter()
    for r in range(replicates):
        release = pgbb.fit(
            LINEAR_MODEL, linear_frame("contaminated_normal", 10_000, r), schema=LINEAR_SCHEMA, epsilon=1.0, delta=1e-4,
            method="paper", blocks=20, steps=10_000, draws_per_step=1, sampling_rate=0.1, insecure_seed=r,
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
    print(f"{'printed':12}{_printed(lookup('linreg_summary', epsilon=1, method='PGBB', **CELL))}")


def sgld(replicates: int = 20) -> None:
    print(f"DP-SGLD, contaminated normal, n = 10,000, {replicates} replicates")
    print(f"{'':12}{'MAE':>9}{'coverage':>10}{'width':>9}{'ESS':>7}   printed MAE, coverage, width")
    for epsilon in (1.0, 4.0):
        printed = _printed(lookup("linreg_summary", epsilon=epsilon, method="DP-SGLD", **CELL))
        found, sizes = [], []
        for r in range(replicates):
            release = pgbb.fit(
                LINEAR_MODEL, linear_frame("contaminated_normal", 10_000, r), schema=LINEAR_SCHEMA, epsilon=epsilon,
                delta=1e-4, method="sgld", accountant="paper", insecure_seed=r,
            )  # fmt: skip
            found.append(_score(release.payload.tensors["draws"][:, :3], BETA))
            sizes.append(np.mean(release.stored_diagnostics["effective_sample_size"][0][:3]))
        mean = np.mean(found, axis=0)
        print(f"ε = {epsilon:<8g}{mean[0]:9.4f}{mean[1]:10.3f}{mean[2]:9.4f}{np.mean(sizes):7.0f}   {printed}")


def census(runs: int = 10) -> None:
    frame, model = census_frame(1980), process_model()
    rows: dict[str, list[tuple[float, float, float]]] = {"average": [], "last": []}
    begin = time.perf_counter()
    for r in range(runs):
        release = pgbb.fit(
            model, frame, schema=PROCESS_SCHEMA, epsilon=4.0, delta=1 / 65_023, method="paper", blocks=5, steps=5_000,
            draws_per_step=5, sampling_rate=0.01, insecure_seed=r,
        )  # fmt: skip
        for iterate, found in rows.items():
            found.append(_score(all_draws(release, r, iterate)[:, :, 1] * 100, SCHOOLING_1980))
    print(f"census 1980, ε = 4, {runs} runs, {(time.perf_counter() - begin) / runs:.1f} s each; schooling in %/yr")
    print(f"{'':12}{'MAE':>9}{'coverage':>10}{'width':>9}")
    for iterate, found in rows.items():
        mean = np.mean(found, axis=0)
        print(f"{iterate:12}{mean[0]:9.3f}{mean[1]:10.2f}{mean[2]:9.2f}")
    print(f"{'printed':12}{_printed(lookup('census', year=1980, variable='educ', method='PGBB', epsilon=4))}")


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["regression"]
    {"regression": regression, "census": census, "sgld": sgld}[command](*map(int, rest))
