"""Effects of a treatment: the difference in means of two groups, and the coefficient that covariates adjust.

    python benchmarks/effects.py [--replicates 100] [--n 10000,30000] [--epsilon 1,4] [--first 0]

Populations are files of `real_files.py`. `star` is an experiment (pupils in small classes against all others), `births`
compares mothers who smoke with others. The difference is `contrast` of `Mean(outcome, by=treatment)`, the adjusted
effect the coefficient of `LinearRegression`; both are judged by the whole file. Widths are in non-private standard
errors. δ is 1e-6.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from real_files import FILES, population

import pgbb

CASES = {
    "star": ("star", "score", lambda d: d.classk == "small.class", "totexpk + girl + lunch + race"),
    "births": ("births", "Weight", lambda d: d.MomSmoke == 1, "Black + Married + Boy + MomAge"),
}


def truth(frame: pd.DataFrame, outcome: str, right: str) -> tuple[np.ndarray, np.ndarray]:
    """Both effects without privacy, and their standard errors times √n."""
    from formulaic import model_matrix

    x = model_matrix("treated" if not right else f"treated + {right}", frame).to_numpy(float)
    y = frame[outcome].to_numpy(float)
    inverse = np.linalg.inv(x.T @ x / len(x))
    beta = inverse @ (x.T @ y / len(x))
    score = x * (y - x @ beta)[:, None]
    return beta[1], np.sqrt((inverse @ (score.T @ score / len(x)) @ inverse)[1, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--n", default="10000,30000")
    parser.add_argument("--epsilon", default="1,4")
    options = parser.parse_args()
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    print(f"{'cell':30}{'difference: cov':>17}{'width':>7}{'adjusted: cov':>15}{'width':>7}")
    for name, (file, outcome, treated, right) in CASES.items():
        frame = population(file).assign(treated=lambda d, t=treated: t(d).astype(int))
        columns = {k: c for k, c in FILES[file].schema.items() if k == outcome or k in right}
        columns = {k: pgbb.Flag() if c is pgbb.Flag else c for k, c in columns.items()}
        both = [truth(frame, outcome, ""), truth(frame, outcome, right)]
        groups = pgbb.Schema(**{outcome: columns[outcome]}, treated=pgbb.Levels(0, 1))
        lines = pgbb.Schema(**columns, treated=pgbb.Flag())
        for n in map(int, options.n.split(",")):
            for epsilon in map(float, options.epsilon.split(",")):
                hits, widths = [], []
                for r in range(options.first, options.first + options.replicates):
                    rows = np.random.default_rng([r, n]).integers(len(frame), size=n)
                    sample = frame.iloc[rows].reset_index(drop=True)
                    budget = {"epsilon": epsilon, "delta": 1e-6, "insecure_seed": r}
                    means = pgbb.fit(pgbb.Mean(outcome, by="treated"), sample, schema=groups, **budget)
                    line = pgbb.fit(
                        pgbb.LinearRegression(f"{outcome} ~ treated + {right}"), sample, schema=lines, **budget
                    )
                    found = means.contrast({"treated[1]": 1, "treated[0]": -1}), line.summary().loc["treated"]
                    hits.append([f["lower"] <= t <= f["upper"] for f, (t, _) in zip(found, both, strict=True)])
                    ends = zip(found, both, strict=True)
                    widths.append([(f["upper"] - f["lower"]) / 3.92 / (s / np.sqrt(n)) for f, (_, s) in ends])
                cover, width = np.mean(hits, axis=0), np.median(widths, axis=0)
                cell = f"{name} n {n // 1000}k ε {epsilon:g}"
                print(f"{cell:30}{cover[0]:17.2f}{width[0]:7.2f}{cover[1]:15.2f}{width[1]:7.2f}", flush=True)


if __name__ == "__main__":
    main()
