"""Posterior sampling with the β-divergence beside the published code of Jewson, Ghalebikesabi & Holmes (2023).

    python benchmarks/beta.py FOLDER        a clone of sghalebikesabi/beta-bayes-ops

Their paper prints figures and no table, and their programs need Stan. What their Python code computes is set beside
ours: the β of an ε, the log likelihood of a logistic regression, and, by quadrature over it, the law of a draw.
"""

import importlib.util
import sys
import types
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import kstest

import pgbb
from pgbb.model.loss_values import bounded_loss

SCHEMA = pgbb.Schema(x=pgbb.Range(-1, 1), y=pgbb.Flag(), z=pgbb.Range(-9, 9))
LOGIT = pgbb.LogisticRegression("y ~ x - 1")
PROBLEM = LOGIT.prepare(SCHEMA)


def published(folder: Path) -> types.ModuleType:
    """Their src/methods.py; its imports that need Stan or a log-in are empty modules."""
    for name in ("cmdstanpy", "eval", "utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["cmdstanpy"].CmdStanModel = lambda stan_file: SimpleNamespace(sample=None, optimize=None)
    sys.modules["utils"].get_project_root = lambda: str(folder)
    spec = importlib.util.spec_from_file_location("methods", folder / "src" / "methods.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cost(beta: float, least: float | None = None) -> float:
    """What one draw costs: of the logistic regression, or of a normal law whose variance is at least so large."""
    if least is None:
        return bounded_loss(LOGIT, PROBLEM, "beta", beta).sensitivity
    mean = pgbb.Mean("z", scale=float(np.sqrt(least)))
    return bounded_loss(mean, mean.prepare(SCHEMA), "beta", beta).sensitivity


def at_cost(epsilon: float, least: float | None = None) -> float:
    """The β at which one draw costs ε."""
    return float(brentq(lambda beta: cost(beta, least) - epsilon, 0.01, 50))


def budgets(theirs: types.ModuleType) -> None:
    """The β at which one draw costs ε; σ² of the linear model is at least `least`, and their code takes 9 for it."""
    print("  ε    β logistic: theirs   ours      β linear: theirs   ours, σ² ≥ 9   ε of theirs at their own σ² ≥ .01")
    find = {
        task: theirs.init(task, ["BetaBayes"], "stan_files", 1e-5, 1, 1)["BetaBayes"] for task in ("logReg", "linReg")
    }
    for epsilon in (1.0, 2.0, 4.0, 10.0):
        logit, line = (float(find[task]["add_eps_data_fn"]["beta_p"](epsilon, 1)) for task in find)

        ours, normal = at_cost(epsilon), at_cost(epsilon, 9.0)
        print(f"{epsilon:4g} {logit:17.4f} {ours:10.4f} {line:17.4f} {normal:11.4f} {cost(line, 0.01):17.2f}")


def likelihoods(theirs: types.ModuleType, count: int = 200) -> None:
    """The largest difference of the two log likelihoods over random parameters and data."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, 500), (rng.random(500) < 0.6).astype(float)
    for epsilon in (1.0, 4.0, 10.0):
        log = theirs.create_loglik_fn("logReg", "BetaBayes", epsilon)
        part = bounded_loss(LOGIT, PROBLEM, "beta", 2 / epsilon).part
        off = [
            abs(
                log(SimpleNamespace(x=x[:, None], y=2 * y - 1), {"theta": t}) * len(x)
                + part(t[None], x[:, None], y).sum()
            )
            for t in rng.uniform(-5, 5, (count, 1))
        ]
        print(f"log likelihood, β = {2 / epsilon:g}: farthest apart {max(off):.1e} of {len(x)} records, {count} points")


def draws(theirs: types.ModuleType, fits: int = 100, each: int = 20) -> None:
    """Our draws against quadrature over their log likelihood; the twin has the likelihood itself, without β."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, 300)
    y = (rng.random(300) < 1 / (1 + np.exp(-1.5 * x))).astype(int)
    low, high = PROBLEM.center[0] - PROBLEM.radius[0], PROBLEM.center[0] + PROBLEM.radius[0]
    grid = np.linspace(low, high, 20_001)
    for epsilon in (1.0, 2.0, 4.0):
        parts = [
            pgbb.fit(
                LOGIT, pd.DataFrame({"x": x, "y": y}), schema=SCHEMA, epsilon=20 * epsilon, delta=1e-6, draws=each,
                method="posterior_sampling", loss="beta", beta=2 / epsilon, tempering=1.0, insecure_seed=seed,
            ).payload.tensors["draws"][:, 0]
            for seed in range(fits)
        ]  # fmt: skip
        values = np.concatenate(parts).astype(float)
        said = []
        for method in ("BetaBayes", "Minami"):
            log = theirs.create_loglik_fn("logReg", method, epsilon)
            logs = np.array([log(SimpleNamespace(x=x[:, None], y=2 * y - 1), {"theta": np.array([t])}) for t in grid])
            mass = np.cumsum(np.exp(len(x) * (logs - logs.max())))
            said.append(kstest(values, lambda t, c=mass / mass[-1]: np.interp(t, grid, c)).pvalue)
        print(
            f"{len(values)} draws, β = {2 / epsilon:g}: KS P = {said[0]:.3f}; of the likelihood without β {said[1]:.1e}"
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    code = published(Path(sys.argv[1]))
    budgets(code)
    likelihoods(code)
    draws(code)
