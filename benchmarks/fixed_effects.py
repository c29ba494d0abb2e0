"""Fixed effects of hundreds of declared levels: the slope beside them, and the levels themselves.

    python benchmarks/fixed_effects.py [--levels 100,300] [--n 100000] [--epsilon 1,4] [--replicates 20]

y = effect of the level + slope·x + noise, with x that differs between levels, so that leaving the levels out is wrong
("without": the slope then, in its own standard deviations). "cov" is the coverage of coefficients without a mark,
"width" of the slope in non-private standard errors, "s" the seconds of a second fit. δ is 1e-6.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", default="100,300")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--epsilon", default="1,4")
    parser.add_argument("--replicates", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    print(f"n = {options.n:,}, {options.replicates} replicates")
    parts = f"{'cov':>6}{'marked':>8}"
    print(f"{'levels':>6}{'ε':>4}   slope{parts}{'width':>7}   levels{parts}{'without':>9}{'s':>7}")
    for levels in map(int, options.levels.split(",")):
        schema = pgbb.Schema(y=pgbb.Range(-12, 12), x=pgbb.Range(-5, 5), at=pgbb.Levels(*range(levels)))
        for epsilon in map(float, options.epsilon.split(",")):
            rows, away, spent = [], 0.0, 0.0
            for seed in range(options.replicates):
                frame, effects = records(levels, options.n, seed)
                begin = time.perf_counter()
                table = pgbb.fit(
                    pgbb.LinearRegression("y ~ x + at"), frame, schema=schema, epsilon=epsilon, delta=1e-6,
                    insecure_seed=seed,
                ).summary()  # fmt: skip
                spent = time.perf_counter() - begin
                truth = np.where(table.index == "x", SLOPE, 0.0)
                truth[table.index == "Intercept"] = effects[0]
                truth[-(levels - 1) :] = effects[1:] - effects[0]
                inside = ((table["lower"] <= truth) & (truth <= table["upper"])).to_numpy()
                slope = table.index == "x"
                width = float((table["upper"] - table["lower"])[slope].iloc[0]) / 3.92 * np.sqrt(options.n)
                rows.append((inside, table["identified"].to_numpy(), width, slope))
                if not seed:
                    alone = pgbb.fit(
                        pgbb.LinearRegression("y ~ x"), frame, schema=schema, epsilon=epsilon, delta=1e-6,
                        insecure_seed=seed,
                    ).summary().loc["x"]  # fmt: skip
                    away = (alone["mean"] - SLOPE) / alone["sd"]
            inside, known, slope = (np.array([r[k] for r in rows]) for k in (0, 1, 3))
            line = f"{levels:6d}{epsilon:4g}        "
            for which in (slope, ~slope):
                seen = known & which
                covered = f"{inside[seen].mean():6.2f}" if seen.any() else f"{'–':>6}"
                line += f"{covered}{1 - known[which].mean():8.2f}"
                if which is slope:
                    line += f"{np.median([r[2] for r in rows]):7.2f}         "
            print(f"{line}{away:9.1f}{spent:7.2f}", flush=True)


if __name__ == "__main__":
    main()
