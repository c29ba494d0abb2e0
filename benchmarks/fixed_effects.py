"""Fixed effects of hundreds of declared levels: the slope beside them, and the levels themselves.

    python benchmarks/fixed_effects.py [--levels 100,300] [--n 100000] [--epsilon 1,4] [--replicates 20] [--jobs 1]

y = effect of the level + slope·x + noise, with x that differs between levels, so that leaving the levels out is wrong
("without": the slope then, in its own standard deviations). "cov" is the coverage of coefficients without a mark,
"width" in non-private standard errors (for levels the median of all), "s" the seconds of a fit. δ is 1e-6.
"""

import argparse
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import pgbb

SLOPE = 0.5


def records(levels: int, n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A sample, and the effects of the levels."""
    effects = np.random.default_rng(levels).normal(size=levels)
    rng = np.random.default_rng([seed, levels, n])
    at = rng.integers(levels, size=n)
    x = (0.7 * effects[at] + rng.normal(size=n)).clip(-5, 5)
    y = (effects[at] + SLOPE * x + rng.normal(size=n)).clip(-12, 12)
    return pd.DataFrame({"y": y, "x": x, "at": at}), effects


def fitted(formula: str, frame: pd.DataFrame, levels: int, epsilon: float, seed: int) -> pd.DataFrame:
    """The table of one regression."""
    schema = pgbb.Schema(y=pgbb.Range(-12, 12), x=pgbb.Range(-5, 5), at=pgbb.Levels(*range(levels)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        release = pgbb.fit(
            pgbb.LinearRegression(formula), frame, schema=schema, epsilon=epsilon, delta=1e-6, insecure_seed=seed
        )
        return release.summary()


def one(job: tuple[int, int, float, int]) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64], float]:
    """Which coefficients of a replicate are covered, and which known; their widths, and the seconds."""
    levels, n, epsilon, seed = job
    frame, effects = records(levels, n, seed)
    begin = time.perf_counter()
    table = fitted("y ~ x + at", frame, levels, epsilon, seed)
    spent = time.perf_counter() - begin
    truth = np.concatenate([[effects[0], SLOPE], effects[1:] - effects[0]])
    inside = ((table["lower"] <= truth) & (truth <= table["upper"])).to_numpy()
    x = np.column_stack([np.ones(n), frame["x"], frame["at"].to_numpy()[:, None] == np.arange(1, levels)])
    error = np.sqrt(np.diag(np.linalg.inv(x.T @ x)))  # residuals have the variance 1
    return (
        inside,
        table["identified"].to_numpy(bool),
        (table["upper"] - table["lower"]).to_numpy() / 3.92 / error,
        spent,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", default="100,300")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--epsilon", default="1,4")
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    print(f"n = {options.n:,}, {options.replicates} replicates")
    parts = f"{'cov':>6}{'marked':>8}{'width':>7}"
    print(f"{'levels':>6}{'ε':>4}   slope{parts}   levels{parts}{'without':>9}{'s':>7}")
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for levels in map(int, options.levels.split(",")):
            for epsilon in map(float, options.epsilon.split(",")):
                jobs = [(levels, options.n, epsilon, seed) for seed in range(options.replicates)]
                inside, known, width, spent = (np.array(v) for v in zip(*pool.map(one, jobs), strict=True))
                alone = fitted("y ~ x", records(levels, options.n, 0)[0], levels, epsilon, 0).loc["x"]
                line = f"{levels:6d}{epsilon:4g}        "
                for which in ([1], [0, *range(2, levels + 1)]):
                    seen = known[:, which]
                    covered = f"{inside[:, which][seen].mean():6.2f}" if seen.any() else f"{'–':>6}"
                    line += f"{covered}{1 - seen.mean():8.2f}{np.median(width[:, which]):7.2f}         "
                away = (alone["mean"] - SLOPE) / alone["sd"]
                print(f"{line[:-9]}{away:9.1f}{np.median(spent):7.2f}", flush=True)


if __name__ == "__main__":
    main()
