"""Small seeded problems that the tests of the references share."""

import numpy as np
import pandas as pd

import pgbb
from pgbb.private.loading import records_for
from pgbb.reference import Solver

SCHEMA = pgbb.Schema(
    y=pgbb.Range(-20, 20),
    x=pgbb.Range(-4, 4),
    z=pgbb.Range(0, 10),
    group=pgbb.Flag(),
    buys=pgbb.Flag(),
    waits=pgbb.Range(0, 50),
)
MODELS = {
    "quantile": pgbb.QuantileRegression("y ~ x + z + group", taus=[0.2], bandwidth=0.3),
    "narrow quantile": pgbb.QuantileRegression("y ~ x + z + group", taus=[0.9], bandwidth=0.01),
    "huber": pgbb.HuberRegression("y ~ x + z + group"),
    "logistic": pgbb.LogisticRegression("buys ~ x + z + group"),
    "gaussian mean": pgbb.Mean("y", scale=2.0),
    "exponential mean": pgbb.Mean("waits", family="exponential"),
}


def frame(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x, z, group = rng.normal(size=n), rng.uniform(0, 10, n), rng.integers(0, 2, n)
    linear = 0.5 + x - 0.2 * z + 0.7 * group
    return pd.DataFrame(
        {
            "y": linear + rng.standard_t(3, n),
            "x": x,
            "z": z,
            "group": group,
            "buys": (rng.uniform(size=n) < 1 / (1 + np.exp(-linear))).astype(float),
            "waits": rng.exponential(3.0, n),
        }
    )


def problem_and_records(name, n=300, seed=0, data=None):
    problem = MODELS[name].prepare(SCHEMA)
    return problem, records_for(frame(n, seed) if data is None else data, problem, SCHEMA).as_non_private()


def gradient(problem, records, theta, weights=None):
    """Σ w̄_i ∇l(θ, x_i) with w̄ = w/Σw, from the model's own score; (d,), or (m, d) for many points or weights."""
    solver, weights = Solver(problem, records), np.ones(records.n) if weights is None else weights
    found, _ = solver._gradient(np.atleast_2d(theta), solver._normalised(np.atleast_2d(weights)))
    return found[0] if np.ndim(theta) == np.ndim(weights) == 1 else found
