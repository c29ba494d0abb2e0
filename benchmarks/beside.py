"""The default method beside software without privacy, on the same records and the same cores.

    python benchmarks/beside.py [RECORDS] [TERMS]

Five quantile levels of ours beside one of statsmodels (`QuantReg`), and logistic regression beside scikit-learn's
(lbfgs, no penalty). All read a frame in memory; ours is the second fit of a process, so that programs are compiled.
"""

import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd

import pgbb


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main(n: int = 1_000_000, p: int = 14) -> None:
    from sklearn.linear_model import LogisticRegression
    from statsmodels.regression.quantile_regression import QuantReg

    warnings.simplefilter("ignore")
    rng, names = np.random.default_rng(0), [f"x{j}" for j in range(1, p)]
    x = rng.uniform(-1, 1, (n, p - 1))
    y = x[:, :3].sum(axis=1) / 2 + rng.normal(0, 0.5, n)
    frame = pd.DataFrame(x, columns=names).assign(y=y, z=(y > 0).astype(np.int8))
    schema = pgbb.Schema(y=pgbb.Range(-6, 6), z=pgbb.Flag(), **{name: pgbb.Range(-1, 1) for name in names})
    terms, design = " + ".join(names), np.column_stack([np.ones(n), x])
    quantiles = pgbb.QuantileRegression(f"y ~ {terms}", taus=[0.1, 0.3, 0.5, 0.7, 0.9])
    events = pgbb.LogisticRegression(f"z ~ {terms}")
    others: dict[str, tuple[object, Callable[[], object]]] = {
        "five levels beside QuantReg at .5": (quantiles, lambda: QuantReg(y, design).fit(q=0.5)),
        "logistic beside lbfgs": (events, lambda: LogisticRegression(C=np.inf, max_iter=1000).fit(x, frame["z"])),
    }
    for name, (model, other) in others.items():
        ours = [
            seconds(lambda m=model: pgbb.fit(m, frame, schema=schema, epsilon=1.0, delta=1e-9)) for _ in range(3)
        ]  # fmt: skip
        theirs = seconds(other)
        print(f"n = {n:,}, p = {p}, {name}: {min(ours[1:]):.2f} s, {theirs:.2f} s, ratio {min(ours[1:]) / theirs:.2f}")


if __name__ == "__main__":
    main(*(int(float(g)) for g in sys.argv[1:]))
