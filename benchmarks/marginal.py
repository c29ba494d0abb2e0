"""Average marginal effects of logistic regressions: coverage of those of the population, beside a twin.

    python benchmarks/marginal.py [--replicates 100] [--n 10000,30000] [--epsilon 1,4] [--jobs 1]

Simulated: a rare and a frequent outcome, a skewed covariate and a flag. The truth is the mean of p(1 − p)β over a
million records. "cov" is the coverage of all effects, "lowest" of the worst; "width" the median width in non-private
standard errors (statsmodels' `get_margeff`); "twin" has the coefficient's posterior times the slope at the mean of the
covariates, which is the usual mistake. δ is 1e-6.
"""

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
import pandas as pd
from scipy.special import expit

import pgbb

SCHEMA = pgbb.Schema(x=pgbb.Range(0, 40), z=pgbb.Range(-4, 4), g=pgbb.Flag(), y=pgbb.Flag())
MODEL = pgbb.LogisticRegression("y ~ x + z + g")
CASES = {"frequent": np.array([-1.5, 0.25, 0.8, 0.7]), "rare": np.array([-4.0, 0.15, 1.0, 0.5])}


def people(case: str, n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Records, and the probability of each."""
    rng = np.random.default_rng(seed)
    x, z = np.clip(rng.lognormal(1.5, 0.6, n), 0, 40), np.clip(rng.normal(size=n), -4, 4)
    g = (rng.random(n) < 0.3).astype(int)
    p = expit(np.column_stack([np.ones(n), x, z, g]) @ CASES[case])
    return pd.DataFrame({"x": x, "z": z, "g": g, "y": (rng.random(n) < p).astype(int)}), p


def replicate(case: str, n: int, epsilon: float, truth: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """What is covered, widths, and what the twin covers."""
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    frame, _ = people(case, n, seed)
    release = pgbb.fit(MODEL, frame, schema=SCHEMA, epsilon=epsilon, delta=1e-6, insecure_seed=seed)
    table, other = release.marginal_effects(), release.summary().loc[["x", "z", "g"]]
    middle = release.predict(frame[["x", "z", "g"]].mean().to_dict() | {"g": 0})["mean"].iloc[0]
    ends = other[["lower", "upper"]] * middle * (1 - middle)
    covered, twin = ((t["lower"] <= truth) & (truth <= t["upper"]) for t in (table, ends))
    return covered.to_numpy(), (table["upper"] - table["lower"]).to_numpy(), twin.to_numpy()


def error(case: str, n: int) -> np.ndarray:
    """Non-private standard errors of the effects of n records, by the delta method on a million."""
    frame, p = people(case, 10**6, 77)
    x = np.column_stack([np.ones(len(frame)), frame[["x", "z", "g"]]])
    slope, beta = p * (1 - p), CASES[case]
    inverse = np.linalg.inv((x.T * slope) @ x / len(x))
    jacobian = np.outer(beta, (slope * (1 - 2 * p)) @ x / len(x)) + slope.mean() * np.eye(4)
    spread = jacobian @ inverse @ jacobian.T + slope.var() * np.outer(beta, beta)
    return np.sqrt(np.diag(spread)[1:] / n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--n", default="10000,30000")
    parser.add_argument("--epsilon", default="1,4")
    parser.add_argument("--jobs", type=int, default=1)
    o = parser.parse_args()
    print(f"{o.replicates} replicates\n{'cell':34}{'cov':>6}{'lowest':>8}{'width':>7}{'twin':>6}")
    with ProcessPoolExecutor(o.jobs, mp_context=get_context("spawn")) as pool:
        for case, beta in CASES.items():
            p = people(case, 10**6, 77)[1]
            truth = float(np.mean(p * (1 - p))) * beta[1:]
            for n in map(int, o.n.split(",")):
                for epsilon in map(float, o.epsilon.split(",")):
                    found = pool.map(partial(replicate, case, n, epsilon, truth), range(o.replicates))
                    cov, width, twin = (np.array(v) for v in zip(*found, strict=True))
                    ratio = np.median(width / 3.92 / error(case, n))
                    head = f"{case}, n = {n:,}, ε = {epsilon:g}"
                    low = cov.mean(axis=0).min()
                    print(f"{head:34}{cov.mean():6.3f}{low:8.2f}{ratio:7.2f}{twin.mean():6.2f}", flush=True)


if __name__ == "__main__":
    main()
