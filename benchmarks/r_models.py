"""The R reader on a release of every model: means and spreads of its draws beside those of Python.

python benchmarks/r_models.py          needs Rscript with jsonlite
"""

import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import pgbb

READER = Path(__file__).parents[1] / "R" / "pgbb" / "R" / "pgbb.R"
Flag, Range = pgbb.Flag(), pgbb.Range
SCHEMA = pgbb.Schema(
    x=Range(-1, 1),
    g=pgbb.Levels(0, 1, 2),
    z=Flag,
    t=Flag,
    y=Range(-6, 8),
    b=Flag,
    c=Range(0, 30, step=1),
    e=Range(1, 3),
)
MODELS = {
    "quantile": pgbb.QuantileRegression("y ~ x", taus=[0.25, 0.75]),
    "linear": pgbb.LinearRegression("y ~ x"),
    "huber": pgbb.HuberRegression("y ~ x"),
    "expectile": pgbb.Expectile("y ~ x", 0.8),
    "logistic": pgbb.LogisticRegression("b ~ x"),
    "poisson": pgbb.PoissonRegression("c ~ x", exposure="e"),
    "mean": pgbb.Mean("y"),
    "groups": pgbb.Mean("y", by="g"),
    "iv": pgbb.IV("y ~ t | z"),
}


def records(n: int) -> pd.DataFrame:
    """Columns for all of the models."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1, 1, n), rng.integers(2, size=n)
    t = (rng.random(n) < 0.3 + 0.4 * z).astype(int)
    return pd.DataFrame({
        "x": x, "z": z, "t": t, "g": rng.integers(3, size=n), "y": 1 + 2 * x + t + rng.normal(size=n),
        "b": (rng.random(n) < 0.5 + 0.3 * x).astype(int), "c": rng.poisson(np.exp(0.5 + 0.4 * x)),
        "e": rng.uniform(1, 3, n),
    })  # fmt: skip


def main() -> None:
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    data, releases, code = records(6000), {}, f'source("{READER}"); set.seed(1);'
    with tempfile.TemporaryDirectory() as folder:
        for name, model in MODELS.items():
            releases[name] = pgbb.fit(model, data, schema=SCHEMA, epsilon=4, delta=1e-6, insecure_seed=1)
            path = releases[name].save(Path(folder) / f"{name}.pgbb")
            code += f'd <- do.call(cbind, pgbb_sample(pgbb_load("{path}"), 2000));'
            code += 'cat(colMeans(d), apply(d, 2, sd), "\\n");'
        done = subprocess.run(["Rscript", "-e", code], capture_output=True, text=True, check=True)
    print(f"{'model':12}{'|mean of R − of Python| / sd':>30}{'sd of R / of Python':>26}")
    for (name, release), line in zip(releases.items(), done.stdout.splitlines(), strict=True):
        mean, sd = np.array(line.split(), float).reshape(2, -1)
        draws = release.sample(20_000, seed=2).to_numpy()
        away, ratio = np.abs(mean - draws.mean(axis=0)) / draws.std(axis=0), sd / draws.std(axis=0)
        print(f"{name:12}{away.max():30.3f}{f'{ratio.min():.3f} to {ratio.max():.3f}':>26}")


if __name__ == "__main__":
    main()
