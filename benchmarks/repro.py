"""Repro samples beside their published code, and their coverage at small n beside that of the default method.

python benchmarks/repro.py table2 --replicates 1000     # Awan & Wang, Table 2: location-scale normal
python benchmarks/repro.py exponential --replicates 1000    # their supplement, Table 1: clamped exponential records
python benchmarks/repro.py tests --replicates 200    # their Figure 5, left: tests of a regression slope
python benchmarks/repro.py coverage --replicates 5000 --jobs 12    # n = 100, 500; ε = .5, 1
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
CLAMPED = {10: (0.944, 6.070877, 0.043548), 20: (0.942, 4.956181, 0.025081), 50: (0.949, 5.119992, 0.018774),
           100: (0.955, 7.306600, 0.023659)}  # fmt: skip
"""The same by the upper end of the clamp."""
REJECTED = {(100, 1.0): 0.762, (200, 0.4): 0.666, (300, 0.2): 0.278, (500, 0.2): 0.836, (200, 0.0): 0.0}
"""Share of 1,000 tests of a slope of zero that reject, by n and the true slope; 1-GDP."""
SCHEMA = pgbb.Schema(y=pgbb.Range(-5, 5), e=pgbb.Range(0, 20), b=pgbb.Flag(), x=pgbb.Range(-1, 1))
PROBLEMS = ("gaussian", "exponential", "bernoulli", "regression", "logistic")
LINES, PARTS = ("regression", "logistic"), 8  # PARTS of a cell go to processes of their own
FIRST = 1_000_000  # seeds of data and noise begin here, 10,000 a cell
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


def exponential(replicates: int) -> None:
    """n = 100 with mean 10, clamped to [0, u]; their mean with Laplace noise of scale u/n (ε = 1); R = 200."""
    n, count, box = 100, 200, (np.array([1e-4]), np.array([1000.0]))
    print(
        f"Table 1 of their supplement, {replicates} replicates: coverage (printed), mean width ± s.e. (printed ± s.e.)"
    )
    for clamp, (coverage, width, error) in CLAMPED.items():
        found = []
        for seed in range(replicates):
            rng = np.random.default_rng(seed)

            def statistic(mean, e, noise, top=clamp):
                return (np.minimum(mean * e, top).mean(axis=1) + top / n * noise)[:, None]

            z = statistic(10.0, rng.standard_exponential((1, n)), rng.laplace(size=1))[0]
            e, noise = rng.standard_exponential((count, n)), rng.laplace(size=count)
            region = Region(z, lambda t, e=e, noise=noise, of=statistic: of(t[0], e, noise), *box, rng)
            low, high = (ends(region.parameter(0), region.centre[0], 1.0, b[0], [0.05])[0] for b in box)
            found.append([low <= 10 <= high, high - low])
        covered, wide = np.array(found, float).T
        ours = wide.std(ddof=1) / np.sqrt(replicates)
        printed = f"({width:.4f} ± {error:.4f})"
        print(f"u = {clamp:<4} {covered.mean():.3f} ({coverage})  {wide.mean():.4f} ± {ours:.4f} {printed}", flush=True)


def slope_rejected(n: int, slope: float, seed: int) -> bool:
    """Whether a slope of zero is rejected at 5 %: five noisy means of clamped products, 1-GDP together; R = 200."""
    count, top = 200, 2.0
    sizes = np.array([2 * top, 2 * top, top**2, top**2, 2 * top**2]) * np.sqrt(5) / n

    def statistic(t, ux, uy, noise):
        x = t[2] + t[3] * ux
        y = t[1] + t[0] * x + t[4] * uy
        xc, yc, xy = np.clip(x, -top, top), np.clip(y, -top, top), np.clip(x * y, -(top**2), top**2)
        return np.column_stack([v.mean(axis=1) for v in (xc, yc, xc**2, yc**2, xy)]) + sizes * noise

    rng = np.random.default_rng(seed)
    drawn = [
        (rng.standard_normal((r, n)), rng.standard_normal((r, n)), rng.standard_normal((r, 5))) for r in (1, count)
    ]
    z = statistic([slope, -0.5, 0.5, 1.0, 0.5], *drawn[0])[0]
    low, high = np.array([-5, -5, -5, 0.001, 0.001]), np.full(5, 5.0)
    region = Region(z, lambda t: statistic(t, *drawn[1]), low, high, rng)
    return not region.parameter(0)(0.0, 0.05) > 0.05


def tests(replicates: int, jobs: int) -> None:
    print(f"Figure 5, left, of Awan & Wang, {replicates} replicates: share of tests that reject ± s.e. (printed)")
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for (n, slope), printed in REJECTED.items():
            found = list(pool.map(slope_rejected, *zip(*((n, slope, i) for i in range(replicates)), strict=True)))
            share = np.mean(found)
            error = np.sqrt(share * (1 - share) / replicates)
            print(f"n = {n}, slope {slope:g}: {share:.3f} ± {error:.3f} ({printed})", flush=True)


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


def covered(method: str, name: str, n: int, epsilon: float, seeds: range) -> list[Any]:
    """Of each fit: whether intervals hold the truth, how wide they are, whether they are marked; R = 199 for means."""
    warnings.simplefilter("ignore")
    settings = {"replicates": 199} if method == "repro" and name not in LINES else {}
    found = []
    for seed in seeds:
        columns, model, truth = data(name, n, np.random.default_rng(seed))
        release = pgbb.fit(
            model, pd.DataFrame(columns), schema=SCHEMA, epsilon=epsilon, delta=1e-6, method=method,
            insecure_seed=seed, **settings,
        )  # fmt: skip
        table = release.summary().iloc[: len(truth)]
        inside, marked = (table["lower"] <= truth) & (truth <= table["upper"]), np.zeros(len(truth), bool)
        marked |= ~table["identified"].to_numpy(bool) if "identified" in table else False
        found.append([inside, table["upper"] - table["lower"], marked])
    return found


def shown(method: str, found: list[Any]) -> str:
    """Coverage over what is not marked, and the share that is."""
    inside, widths, marked = np.array(found, float).transpose(1, 0, 2)
    part = f"{method}, {len(found)} fits: "
    if marked.all():
        return part + "all marked"
    kept = np.where(marked > 0, np.nan, inside)
    each = np.nanmean(kept[~np.isnan(kept).all(axis=1)], axis=1)
    width, error = np.median(widths[marked == 0]), each.std() / np.sqrt(len(each))
    share = f", {marked.mean():.2f} marked" if marked.any() else ""
    return part + f"{each.mean():.4f} ± {error:.4f} ({width:.3f}){share}"


def coverage(replicates: int, problems: list[str], jobs: int) -> None:
    """A quarter as many replicates for regressions, which have two coefficients; of the default method a fifth."""
    print("coverage ± its standard error (median width) of 95 % intervals that are not marked, δ = 1e-6", flush=True)
    cells = [c for c in enumerate(itertools.product(PROBLEMS, (100, 500), (0.5, 1.0))) if c[1][0] in problems]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        asked = []
        for at, cell in cells:
            count, first = replicates // (4 if cell[0] in LINES else 1), FIRST + 10_000 * at
            asked.append({})
            for method, some in (("repro", count), ("calibrated", max(count // 5, 1))):
                parts = [range(first + i, first + some, PARTS) for i in range(PARTS)]
                asked[-1][method] = [pool.submit(covered, method, *cell, part) for part in parts]
        for (_, (name, n, epsilon)), methods in zip(cells, asked, strict=True):
            lines = [shown(m, [fit for future in futures for fit in future.result()]) for m, futures in methods.items()]
            print(f"{name:<12} n {n:<4} ε {epsilon:<4} {';  '.join(lines)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table2", "exponential", "tests", "coverage"))
    parser.add_argument("--replicates", type=int, default=400)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    if given.what == "table2":
        table2(given.replicates)
    elif given.what == "exponential":
        exponential(given.replicates)
    elif given.what == "tests":
        tests(given.replicates, given.jobs)
    else:
        coverage(given.replicates, given.problems, given.jobs)
