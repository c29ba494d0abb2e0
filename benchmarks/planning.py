"""The costs that `pgbb plan` predicts run times with, measured: a full pass over the records, and a step of training.

    python benchmarks/planning.py

Prints the measured times beside those that `pgbb.planning.forecast` predicts from its
constants ANSWER, PASS, STEP and ROW.
"""

import time
import warnings

import numpy as np
import pandas as pd

import pgbb
from pgbb.planning.forecast import Family, calibrated_seconds, paper_seconds

TAUS = (0.1, 0.3, 0.5, 0.7, 0.9)


def frame(n: int, p: int) -> tuple[pd.DataFrame, pgbb.Schema, str]:
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(1, p)]
    x = rng.uniform(-1, 1, (n, p - 1))
    data = pd.DataFrame(x, columns=names).assign(y=x.sum(axis=1) + rng.standard_normal(n))
    schema = pgbb.Schema(y=pgbb.Range(-20, 20), **dict.fromkeys(names, pgbb.Range(-1, 1)))
    return data, schema, "y ~ " + " + ".join(names)


def seconds(
    model: pgbb.QuantileRegression | pgbb.HuberRegression, data: pd.DataFrame, schema: pgbb.Schema, **settings: object
) -> float:
    """Wall time of a second fit, when everything is compiled."""
    times = []
    for seed in range(2):
        begin = time.perf_counter()
        pgbb.fit(model, data, schema=schema, epsilon=1.0, delta=1e-8, insecure_seed=seed, **settings)  # type: ignore[arg-type]
        times.append(time.perf_counter() - begin)
    return times[-1]


def main() -> None:
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    print(f"{'calibrated':34}{'measured':>10}{'predicted':>10}")
    for n, p in ((100_000, 4), (1_000_000, 4), (300_000, 14)):
        data, schema, formula = frame(n, p)
        for model in (pgbb.HuberRegression(formula), pgbb.QuantileRegression(formula, taus=TAUS)):
            kind: Family = model.prepare(schema).kind  # type: ignore[assignment]
            found = seconds(model, data, schema, method="calibrated")
            print(
                f"{kind:10} n = {n:9,} p = {p:2}      {found:10.2f}{calibrated_seconds(kind, n, p):10.2f}", flush=True
            )
    print(f"{'pgbb':34}{'measured':>10}{'predicted':>10}")
    for n, q, steps, k in (
        (10_000, 0.1, 10_000, 1),
        (10_000, 1.0, 1_000, 1),
        (100_000, 0.01, 10_000, 1),
        (100_000, 0.1, 2_000, 5),
    ):
        data, schema, formula = frame(n, 4)
        model = pgbb.HuberRegression(formula)
        found = seconds(model, data, schema, method="pgbb", blocks=5, sampling_rate=q, steps=steps, draws_per_step=k)
        print(
            f"n = {n:9,} q = {q:g} T·K = {steps:6,}·{k}  {found:8.2f}{paper_seconds(n, q, steps, k, 4):10.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
