"""Quantile levels where spreads differ with the covariates, simulated; and what a sandwich without privacy covers.

    python benchmarks/spreads.py [CASE …] [--replicates 20] [--n 10000] [--epsilon 1]
    python benchmarks/spreads.py sandwich MODEL … [--replicates 80] [--n 10000]

Coverage and width (in sampling errors) of the coefficients of y ~ x + a that are not marked, by the default method,
and the coverage of exact fits of the same records with Powell's sandwich (kernel over the quantiles τ ± .05). `line`
has one spread; `grow`, `skewed` and `group` have xᵀγ; `valley` has the least in the middle of x, `bent` a concave mean
too. The truth is an exact fit of 300,000 records. The second form: the same sandwich (that of White for least squares)
on samples of a file of `real.py`, and the coefficients that it covers in less than .9.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from real import DELTA, design, facts, quantile_fit, whitener
from real_files import MODELS, population

import pgbb

Floats = NDArray[np.float64]
TAUS = (0.1, 0.5, 0.9)
Z, AROUND = 1.959963984540054, 0.05
TRUTH = 300_000


def _skewed(rng: np.random.Generator, n: int) -> Floats:
    return np.minimum(np.exp(0.8 * rng.standard_normal(n)), 30.0)


def _case(
    spread: Callable[[Floats, Floats], Floats],
    mean: Callable[[Floats], Floats] = lambda x: x,
    x: Callable[[np.random.Generator, int], Floats] = _skewed,
    errors: Callable[[np.random.Generator, int], Floats] = lambda rng, n: rng.standard_normal(n),
) -> Callable[[np.random.Generator, int], pd.DataFrame]:
    def drawn(rng: np.random.Generator, n: int) -> pd.DataFrame:
        covariate, flag = x(rng, n), (rng.random(n) < 0.15).astype(int)
        y = 1 + mean(covariate) + flag + spread(covariate, flag) * errors(rng, n)
        return pd.DataFrame({"x": covariate, "a": flag, "y": np.clip(y, -100, 200)})

    return drawn


def _normal(rng: np.random.Generator, n: int) -> Floats:
    return np.clip(rng.standard_normal(n), -10, 30)


CASES = {
    "line": _case(lambda x, a: np.ones_like(x), x=_normal),
    "grow": _case(lambda x, a: 0.2 + 0.8 * x),
    "skewed": _case(lambda x, a: 0.1 + 0.5 * x, errors=lambda rng, n: np.exp(rng.standard_normal(n)) - 1),
    "group": _case(lambda x, a: 1 + 2.0 * a, x=_normal),
    "valley": _case(lambda x, a: 0.3 + np.abs(x), x=_normal),
    "bent": _case(lambda x, a: 0.3 + 0.3 * np.sqrt(x), mean=lambda x: 2 * np.log(x)),
}
SCHEMA = pgbb.Schema(x=pgbb.Range(-10, 30), a=pgbb.Flag(), y=pgbb.Range(-100, 200))


def matrix(data: pd.DataFrame) -> Floats:
    return np.column_stack([np.ones(len(data)), data["x"], data["a"]])


def sandwich(x: Floats, y: Floats, tau: float | None) -> tuple[Floats, Floats]:
    """Coefficients and their standard errors; of least squares without a level."""
    frame = whitener(x)
    u = x @ frame
    if tau is None:
        beta = np.linalg.lstsq(u, y, rcond=None)[0]
        score = residual = y - u @ beta
        kernel = np.ones(len(y))
    else:
        beta = quantile_fit(u, y, tau)
        residual = y - u @ beta
        low, high = np.quantile(residual, [max(tau - AROUND, 0.0), min(tau + AROUND, 1.0)])
        width = max((high - low) / 2, 1e-9)
        kernel, score = np.exp(-0.5 * (residual / width) ** 2) / width / np.sqrt(2 * np.pi), tau - (residual < 0)
    back = frame @ np.linalg.inv((u.T * kernel) @ u / len(y))
    spread = (u.T * score**2) @ u / len(y)
    return frame @ beta, np.sqrt(np.diag(back @ spread @ back.T) / len(y))


def simulated(name: str, n: int, epsilon: float, replicates: int) -> None:
    """The lines of a case."""
    all_of_it = CASES[name](np.random.default_rng(1), TRUTH)
    x, y = matrix(all_of_it), all_of_it["y"].to_numpy()
    exact = [sandwich(x, y, tau) for tau in TAUS]
    truth, unit = (np.stack([e[k] for e in exact]) for k in (0, 1))
    unit = unit * np.sqrt(TRUTH / n)
    tables, plain = [], []
    model = pgbb.QuantileRegression("y ~ x + a", taus=list(TAUS))
    for r in range(replicates):
        data = CASES[name](np.random.default_rng([7, r]), n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pgbb.PgbbWarning)
            release = pgbb.fit(model, data, schema=SCHEMA, epsilon=epsilon, delta=DELTA, insecure_seed=r)
            tables.append([release.summary(tau=tau)[["lower", "upper", "identified"]].to_numpy(float) for tau in TAUS])
        found = [sandwich(matrix(data), data["y"].to_numpy(), tau) for tau in TAUS]
        plain.append([np.abs(b - t) < Z * sd for (b, sd), t in zip(found, truth, strict=True)])
    low, high, seen = np.moveaxis(np.array(tables), -1, 0)
    covers, seen = (low <= truth) & (truth <= high), seen > 0
    width = np.median((high - low) / 2 / Z / unit, axis=0)
    for j, tau in enumerate(TAUS):
        each = "  ".join(
            f"{covers[:, j, k][seen[:, j, k]].mean():5.2f}{width[j, k]:6.2f}{np.mean(plain, axis=0)[j, k]:6.2f}"
            for k in range(3)
        )
        print(f"{name if j == 0 else '':8}{tau:4}  {each}  {1 - seen[:, j].mean():6.2f}", flush=True)


def of_a_file(name: str, n: int, replicates: int, folder: Path) -> None:
    """The line of a model of `real.py`."""
    case, known = MODELS[name], facts(name, folder)
    x, y, names = design(case, population(case.file))
    rng, truth, levels = np.random.default_rng(5), np.array(known["truth"]), case.taus or (None,)
    covers = []
    for _ in range(replicates):
        rows = rng.integers(len(y), size=n)
        found = [sandwich(x[rows], y[rows], tau) for tau in levels]
        covers.append([np.abs(b - t) < Z * sd for (b, sd), t in zip(found, truth, strict=True)])
    share = np.mean(covers, axis=0)
    low = [f"{names[k]}{f'@{levels[j]:g}' if levels[j] else ''} {share[j, k]:.2f}" for j, k in np.argwhere(share < 0.9)]
    print(f"{name:14} n {n:7,}  {replicates} samples  {share.mean():.3f}  {'; '.join(low)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path("results/real"))
    options = parser.parse_args()
    if options.names[:1] == ["sandwich"]:
        for name in options.names[1:]:
            of_a_file(name, options.n, options.replicates, options.folder)
        return
    print(f"{'':8}{'tau':>4}  " + "  ".join(f"{f'{c}: cov':>5} width exact" for c in "1xa") + "  marked")
    for name in options.names or CASES:
        simulated(name, options.n, options.epsilon, options.replicates)


if __name__ == "__main__":
    main()
