"""One model of every kind and records for it; in a module, because a cluster imports losses by their names."""

import numpy as np
import pandas as pd

import pgbb

SCHEMA = pgbb.Schema(
    y=pgbb.Range(-8, 8), a=pgbb.Range(-1, 1), b=pgbb.Flag(), w=pgbb.Range(0, 2), g=pgbb.Levels("north", "south"),
    c=pgbb.Range(0, 20, step=1), z=pgbb.Range(-2, 2),
)  # fmt: skip


def square(theta, record, _):
    """A loss."""
    return (record["y"] - theta[0]) ** 2


MODELS = {
    "quantile": pgbb.QuantileRegression("y ~ a", taus=[0.3]),
    "huber": pgbb.HuberRegression("y ~ a"),
    "linear": pgbb.LinearRegression("y ~ a"),
    "logistic": pgbb.LogisticRegression("b ~ a"),
    "poisson": pgbb.PoissonRegression("c ~ a"),
    "expectile": pgbb.Expectile("y ~ a", 0.8),
    "iv": pgbb.IV("y ~ a | z"),
    "means": pgbb.Mean("y", by="g"),
    "mean": pgbb.Mean("y"),
    "custom": pgbb.Custom(square, 1, 1.0, ["y"], (-9, 9)),
}


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.uniform(-1, 1, n)
    y = 1 + 2 * a + rng.standard_t(4, n)
    more = {"g": np.where(a + rng.normal(0, 1, n) > 0, "north", "south"), "c": rng.poisson(np.exp(1 + a / 2)) * 1.0}
    return pd.DataFrame({"a": a, "y": y, "b": y > 0, "w": rng.uniform(0, 2, n), "z": a + rng.normal(0, 0.2, n), **more})


def fit(model, data, **more):
    return pgbb.fit(model, data, schema=SCHEMA, **{"epsilon": 1.0, "delta": 1e-9, "insecure_seed": 3, **more})


def bits(release):
    return {name: np.asarray(tensor).tobytes() for name, tensor in release.payload.tensors.items()}
