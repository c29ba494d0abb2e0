"""Processor time of the non-private references, and how much faster they are than a plain loop over scipy.

    python benchmarks/references.py [DRAWS] [N]

The paper's linear regression with five coefficients (Figure 2) at n = 2,000, and the Huber, logistic
and quantile regressions of the same design: 20,000 draws of the Bayesian bootstrap, and of the blocked one at S = 20.
The loop refits with `scipy.optimize.minimize` (L-BFGS-B with gradient, from the full fit; the ridge with
`scipy.linalg.solve`) on the first 20 of the weights, and its time is scaled to all draws.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import solve as linear_solve
from scipy.optimize import minimize

import pgbb
from pgbb._numerics import newton as _newton
from pgbb.private.door import non_private
from pgbb.reference import solve

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # reproduction/ lies beside benchmarks/

from reproduction.references.bootstrap import bayesian_bootstrap, blocked_bootstrap
from reproduction.references.ridge import ridge, ridge_bootstrap

FEW = 20
FORMULA = "y ~ x1 + x2 + x3 + x4 + x5 - 1"
MODELS = {
    "huber": pgbb.HuberRegression(FORMULA),
    "logistic": pgbb.LogisticRegression(FORMULA.replace("y", "z", 1)),
    "quantile": pgbb.QuantileRegression(FORMULA, taus=[0.5], bandwidth=0.1),
}
SCHEMA = pgbb.Schema(**{f"x{j}": pgbb.Range(-6, 6) for j in range(1, 6)}, y=pgbb.Range(-30, 30), z=pgbb.Flag())


def _sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 5))
    return x, x @ ((-1.0) ** np.arange(5) / (1 + np.arange(5))) + rng.normal(size=n)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    found = call()
    return time.process_time() - begin, found


def _scipy_loop(name: str, problem: Any, records: Any, weights: np.ndarray) -> np.ndarray:
    """One refit at a time, with the loss and gradient of the model."""
    sample = _newton.Sample(records.x.astype(float), records.y.astype(float) - problem.shift)
    loss: Any = {
        "huber": lambda: _newton.huber_loss(sample, 1.345, 0.71),
        "logistic": lambda: _newton.logistic_loss(sample),
        "quantile": lambda: _newton.quantile_loss(sample, 0.5, 0.1),
    }[name]()
    start = solve(problem, records)
    box = [(None, None)] * (problem.dim - 1) + [(1e-3 if name == "huber" else None, None)]

    def refit(w: np.ndarray) -> np.ndarray:
        def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope, _ = loss(theta[None], w[None])
            return float(value[0]), slope[0]

        options = {"ftol": 1e-14, "gtol": 1e-8}
        return minimize(objective, start, jac=True, method="L-BFGS-B", bounds=box, options=options).x

    return np.array([refit(w) for w in weights])


def _line(name: str, seconds: float, blocked: float, loop: float, gap: float) -> None:
    print(f"{name:10}{seconds:12.1f}{blocked:12.1f}{loop:14.0f}{loop / seconds:9.1f}{gap:12.1e}")


def main(draws: int = 20_000, n: int = 2_000) -> None:
    x, y = _sample(n)
    data = pd.DataFrame({f"x{j + 1}": x[:, j] for j in range(5)} | {"y": y, "z": (y > 0).astype(int)})
    weights = np.random.default_rng(1).dirichlet(np.ones(n), FEW)
    print(f"{draws:,} draws, five coefficients, n = {n:,}; seconds of processor time")
    print(f"{'':10}{'Bayesian':>12}{'blocked':>12}{'scipy loop':>14}{'ratio':>9}{'difference':>12}")
    seconds, _ = _timed(lambda: ridge_bootstrap(x, y, draws=draws, seed=1, penalty=1e-4))
    blocked, _ = _timed(lambda: ridge_bootstrap(x, y, draws=draws, seed=1, penalty=1e-4, blocks=20))
    loop, slow = _timed(
        lambda: np.array([linear_solve((x.T * w) @ x + 1e-4 * np.eye(5), (x.T * w) @ y) for w in weights])
    )
    gap = np.abs(slow - ridge(x, y, weights, 1e-4)).max()
    _line("ridge", seconds, blocked, loop * draws / FEW, gap)
    for name, model in MODELS.items():
        problem = model.prepare(SCHEMA)
        records = non_private(data, problem, SCHEMA)
        seconds, _ = _timed(lambda: bayesian_bootstrap(problem, records, draws, seed=1))  # noqa: B023
        blocked, _ = _timed(lambda: blocked_bootstrap(problem, records, 20, draws=draws, seed=1))  # noqa: B023
        loop, slow = _timed(lambda: _scipy_loop(name, problem, records, weights))  # noqa: B023
        gap = np.abs(slow - solve(problem, records, weights)).max()
        _line(name, seconds, blocked, loop * draws / FEW, gap)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
