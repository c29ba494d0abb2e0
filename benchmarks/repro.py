"""Repro samples beside their published code, and their coverage at small n beside that of the default method.

python benchmarks/repro.py table2 --replicates 1000     # Awan & Wang, Table 2: location-scale normal
python benchmarks/repro.py coverage --replicates 400    # n = 100, 500; ε = .5, 1
"""

import argparse
import itertools
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd

import pgbb
from pgbb.methods.repro.intervals import ends
from pgbb.methods.repro.region import Region

PRINTED = {"mu": (0.989, 0.598781, 0.003227), "sigma": (0.984, 0.755614, 0.004252)}
"""Coverage, mean width and its standard error in their result files, 1,000 replicates each."""
SCHEMA = pgbb.Schema(y=pgbb.Range(-5, 5), e=pgbb.Range(0, 20), b=pgbb.Flag(), x=pgbb.Range(-1, 1))
PROBLEMS = ("gaussian", "exponential", "bernoulli", "regression", "logistic")
LINES, PARTS = ("regression", "logistic"), 4  # PARTS of a cell go to processes of their own
LINE = (0.5, 1.0, 0.5)  # intercept, slope, standard deviation


def table2(replicates: int) -> None:
    """n = 100 from N(1, 1), clamped to [0, 3]; mean and variance with Gaussian noise, 1-GDP each; R = 200."""
    n, count, box = 100, 200, (np.array([-5.0, 0.05]), np.array([5.0, 5.0]))

    def statistic(x, noise):
        c = np.clip(x, 0, 3)
        return np.column_stack([c.mean(axis=1), c.var(axis=1, ddof=1)]) + noise * np.array([3 / n, 9 / n])

    found = []
    for seed in range(replicates):
        rng = np.random.default_rng(seed)
        z = statistic(1 + rng.standard_normal((1, n)), rng.standard_normal((1, 2)))[0]
        e, noise = rng.standard_normal((count, n)), rng.standard_normal((count, 2))
        region = Region(z, lambda t, e=e, noise=noise: statistic(t[0] + t[1] * e, noise), *box, rng)
        row = []
        for k in (0, 1):
            low, high = (ends(region.parameter(k), region.centre[k], 0.1, b[k], [0.05])[0] for b in box)
            row += [low <= 1 <= high, high - low]
        found.append(row)
    table = np.array(found, float)
    print(f"Table 2 of Awan & Wang, {replicates} replicates: coverage (printed), mean width ± s.e. (printed ± s.e.)")
    for k, (name, (coverage, width, error)) in enumerate(PRINTED.items()):
        covered, wide = table[:, 2 * k], table[:, 2 * k + 1]
        ours = wide.std(ddof=1) / np.sqrt(replicates)
        print(
            f"{name:<6} {covered.mean():.3f} ({coverage})  {wide.mean():.4f} ± {ours:.4f} ({width:.4f} ± {error:.4f})"
        )


def data(name: str, n: int, rng):
    if name == "gaussian":
        return {"y": rng.normal(1, 1, n)}, pgbb.Mean("y", scale=1.0), [1.0]
    if name == "exponential":
        return {"e": rng.exponential(2, n)}, pgbb.Mean("e", family="exponential"), [2.0]
    if name == "bernoulli":
        return {"b": rng.random(n) < 0.1}, pgbb.Mean("b", family="bernoulli"), [0.1]
    x = rng.uniform(-1, 1, n)
    if name == "logistic":
        chance = 1 / (1 + np.exp(-LINE[0] - LINE[1] * x))
        return {"x": x, "b": rng.random(n) < chance}, pgbb.LogisticRegression("b ~ x"), LINE[:2]
    y = LINE[0] + LINE[1] * x + LINE[2] * rng.standard_normal(n)
    return {"x": x, "y": y}, pgbb.HuberRegression("y ~ x"), LINE[:2]


def covered(method: str, name: str, n: int, epsilon: float, seeds: range) -> tuple[list[Any], list[Any], bool]:
    """Whether intervals hold the truth, how wide they are, and whether any is marked; R = 199 for means."""
    warnings.simplefilter("ignore")
    settings = {"replicates": 199} if method == "repro" and name not in LINES else {}
    hits, widths, marked = [], [], False
    for seed in seeds:
        columns, model, truth = data(name, n, np.random.default_rng(seed))
        release = pgbb.fit(
            model, pd.DataFrame(columns), schema=SCHEMA, epsilon=epsilon, delta=1e-6, method=method,
            insecure_seed=seed, **settings,
        )  # fmt: skip
        table = release.summary().iloc[: len(truth)]
        hits.append((table["lower"] <= truth) & (truth <= table["upper"]))
        widths.append(table["upper"] - table["lower"])
        marked |= "identified" in table and not table["identified"].all()
    return hits, widths, marked


def coverage(replicates: int, problems: list[str], jobs: int) -> None:
    """A quarter as many replicates for regressions, whose coverage is over two coefficients."""
    print(f"coverage (median width) of 95 % intervals, {replicates} replicates, δ = 1e-6; * some are marked")
    cells = [c for c in enumerate(itertools.product(PROBLEMS, (100, 500), (0.5, 1.0))) if c[1][0] in problems]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        asked = []
        for at, cell in cells:
            count = replicates // (4 if cell[0] in LINES else 1)
            parts = [range(10_000 * at + i, 10_000 * at + count, PARTS) for i in range(PARTS)]
            asked.append({m: [pool.submit(covered, m, *cell, part) for part in parts] for m in ("repro", "calibrated")})
        for (_, (name, n, epsilon)), methods in zip(cells, asked, strict=True):
            shown = []
            for method, futures in methods.items():
                hits, widths, marked = zip(*(f.result() for f in futures), strict=True)
                mean, width = np.mean([h for part in hits for h in part]), np.median([w for p in widths for w in p])
                shown.append(f"{method} {mean:.3f} ({width:.3f}){'*' if any(marked) else ' '}")
            print(f"{name:<12} n {n:<4} ε {epsilon:<4} {'   '.join(shown)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table2", "coverage"))
    parser.add_argument("--replicates", type=int, default=400)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    if given.what == "table2":
        table2(given.replicates)
    else:
        coverage(given.replicates, given.problems, given.jobs)
