"""Seconds of a first and a second fit of every model in one process: what compilation costs, and what is left without.

    python benchmarks/second_fits.py [MODEL …] [--n 10000]

Simulated records with two covariates and a level; no compiled code is kept between runs. The first fit of a model
compiles what no model before it has asked, in the order of the table; "alone" is the first fit of a process of its own.
"""

import argparse
import os
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd

import pgbb

Flag, Levels, Range = pgbb.Flag, pgbb.Levels, pgbb.Range
SCHEMA = pgbb.Schema(
    y=Range(-8, 8), c=Range(0, 60, step=1), d=Flag(), x=Range(-4, 4), z=Range(-6, 6), g=Levels("a", "b", "c")
)
MODELS = {
    "mean": pgbb.Mean("y"),
    "means by group": pgbb.Mean("y", by="g"),
    "linear": pgbb.LinearRegression("y ~ x + g"),
    "expectile": pgbb.Expectile("y ~ x + g", 0.8),
    "Poisson": pgbb.PoissonRegression("c ~ x + g"),
    "instruments": pgbb.IV("y ~ x + g | z + g"),
    "Huber": pgbb.HuberRegression("y ~ x + g"),
    "logistic": pgbb.LogisticRegression("d ~ x + g"),
    "quantile": pgbb.QuantileRegression("y ~ x + g", taus=(0.1, 0.5, 0.9)),
}


def records(n: int) -> pd.DataFrame:
    """As many records; every model is right for them."""
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=n).clip(-4, 4), rng.choice(["a", "b", "c"], size=n)
    line = 0.3 + 0.4 * x + 0.2 * (g == "b")
    return pd.DataFrame({
        "y": (line + rng.normal(size=n)).clip(-8, 8), "c": rng.poisson(np.exp(line)).clip(0, 60), "x": x, "g": g,
        "d": (rng.random(n) < 1 / (1 + np.exp(-line))).astype(int), "z": (x + rng.normal(size=n)).clip(-6, 6),
    })  # fmt: skip


def seconds(name: str, frame: pd.DataFrame) -> float:
    """Of one fit."""
    begin = time.perf_counter()
    pgbb.fit(MODELS[name], frame, schema=SCHEMA, epsilon=1.0, delta=1e-6, insecure_seed=0)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--alone", action="store_true", help="print the seconds of one first fit, and nothing else")
    options = parser.parse_args()
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    frame, names = records(options.n), options.models or list(MODELS)
    if options.alone:
        print(seconds(names[0], frame))
        return
    print(f"{'model':16}{'alone':>8}{'first':>8}{'second':>8}   seconds, n = {options.n:,}, ε = 1")
    for name in names:
        command = [sys.executable, __file__, name, "--n", str(options.n), "--alone"]
        alone = float(subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout)
        first, second = seconds(name, frame), min(seconds(name, frame) for _ in range(3))
        print(f"{name:16}{alone:8.2f}{first:8.2f}{second:8.2f}", flush=True)


if __name__ == "__main__":
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    main()
