"""Data that cannot tell a coefficient: is it marked, are intervals finite, and do the others stay right?

    python benchmarks/bad_input.py [MODEL …] [--fault NAME …] [--n 20,1000,3000,10000] [--epsilon 1,4] [--replicates 20]

Every model of the default method on simulated records with one fault. A row has the share of fits in which
coefficients that the data cannot tell ("lost") are marked, that of all others, the coverage of those of the others
that are not marked, the share of tables with finite numbers alone, and whether a fit warns as it does of sound records.
A constant response has a true line, but no logits, and nobody's count has no logarithm; where every coefficient is lost
there is no coverage. δ is 1e-6.
"""

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

import pgbb

DELTA = 1e-6
TAU = 0.7  # of the expectile
ROUNDING = 4e-5  # a millionth of the range of the response: what single precision leaves
SCHEMA = pgbb.Schema(
    y=pgbb.Range(-20, 20), z=pgbb.Flag(), count=pgbb.Range(0, 60), a=pgbb.Range(0, 1), b=pgbb.Range(-5, 5),
    c=pgbb.Range(-5, 5), w=pgbb.Range(-5, 5), f=pgbb.Flag(), g=pgbb.Levels("u", "v", "never"),
)  # fmt: skip
TERMS = "a + b + c + f + g"
EFFECTS = {"Intercept": 2.0, "a": 2.0, "b": 1.0, "c": 0.0, "f": 0.5, "g[T.v]": 0.5}
LOGITS = {"Intercept": -0.5, "a": 1.0, "b": 0.8, "c": 0.0, "f": 0.5, "g[T.v]": 0.5}
LOGS = {"Intercept": 0.5, "a": 0.5, "b": 0.3, "c": 0.0, "f": 0.2, "g[T.v]": 0.2}


def above(tau: float) -> float:
    """The expectile of a standard normal law."""

    def balance(m: float) -> float:
        upper = norm.pdf(m) - m * norm.sf(m)
        return float(tau * upper - (1 - tau) * (upper + m))

    return float(brentq(balance, -5, 5))


def line(data: pd.DataFrame, effects: dict[str, float]) -> np.ndarray:
    values = {"Intercept": 1.0, "g[T.v]": (data["g"] == "v").astype(float)}
    return sum(size * values.get(name, data.get(name)) for name, size in effects.items()).to_numpy(float)


@dataclass(frozen=True)
class Case:
    """A model; what its coefficients are on sound records; and which are lost by its faults: all where None."""

    model: Any
    truth: dict[str, float]
    lost: dict[str, list[str] | None]


def regression(model: Any, truth: dict[str, float], constant: list[str] | None) -> Case:
    """Faults of a regression; `constant`: what a constant response leaves unknown."""
    never = "g[T.never]"
    return Case(model, truth, {
        "none": [never],
        "constant column": [never, "b", "Intercept"],
        "column at its end": [never, "b", "Intercept"],
        "equal columns": [never, "b", "c"],
        "flag always 1": [never, "f", "Intercept"],
        "one level": [never, "g[T.v]", "Intercept"],
        "constant response": constant,
        "response at an end": constant,
    })  # fmt: skip


CASES = {
    "quantile": regression(pgbb.QuantileRegression(f"y ~ {TERMS}", taus=[0.5]), EFFECTS, ["g[T.never]"]),
    "linear": regression(pgbb.LinearRegression(f"y ~ {TERMS}"), EFFECTS, ["g[T.never]"]),
    "huber": regression(pgbb.HuberRegression(f"y ~ {TERMS}"), EFFECTS, ["g[T.never]", "scale"]),
    "logistic": regression(pgbb.LogisticRegression(f"z ~ {TERMS}"), LOGITS, None),
    "poisson": regression(pgbb.PoissonRegression(f"count ~ {TERMS}"), LOGS, ["g[T.never]"]),
    "expectile": regression(
        pgbb.Expectile(f"y ~ {TERMS}", TAU), EFFECTS | {"Intercept": EFFECTS["Intercept"] + above(TAU)}, ["g[T.never]"]
    ),
    "iv": Case(pgbb.IV("y ~ b + a + f | w + a + f"), EFFECTS | {"Intercept": 2.25}, {
        "none": [],
        "constant column": ["b", "Intercept"],
        "constant instrument": ["b"],
        "useless instrument": ["b"],
        "flag always 1": ["f", "Intercept"],
        "constant response": [],
        "response at an end": [],
    }),
    "mean": Case(pgbb.Mean("y"), {}, {"none": [], "constant response": [], "response at an end": []}),
    "groups": Case(pgbb.Mean("y", by="g"), {}, {
        "none": ["never"], "one level": ["never", "u"], "constant response": ["never"], "response at an end": ["never"],
    }),
}  # fmt: skip

FAULTS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "none": lambda d: d,
    "constant column": lambda d: d.assign(b=1.0),
    "column at its end": lambda d: d.assign(b=-5.0),
    "equal columns": lambda d: d.assign(c=d["b"]),
    "flag always 1": lambda d: d.assign(f=1),
    "one level": lambda d: d.assign(g="v"),
    "constant instrument": lambda d: d.assign(w=1.0),
    "useless instrument": lambda d: d.assign(w=np.random.default_rng(0).normal(size=len(d))),
    "constant response": lambda d: d.assign(y=3.0, z=1, count=3.0),
    "response at an end": lambda d: d.assign(y=-20.0, z=0, count=0.0),
}


def records(fault: str, n: int, replicate: int) -> pd.DataFrame:
    """Sound records with the fault: in covariates before a response is drawn, in the response after."""
    rng = np.random.default_rng([n, replicate])
    w = rng.normal(size=n)
    data = pd.DataFrame({
        "a": rng.uniform(0, 1, n), "b": 0.8 * w + 0.6 * rng.normal(size=n), "c": rng.normal(size=n), "w": w,
        "f": rng.integers(0, 2, n), "g": rng.choice(["u", "v"], n),
    })  # fmt: skip
    data = FAULTS[fault](data.assign(y=0.0, z=0, count=0.0))
    sound = data.assign(
        y=np.clip(line(data, EFFECTS) + rng.normal(size=n), -20, 20),
        z=(rng.random(n) < expit(line(data, LOGITS))).astype(int),
        count=np.minimum(rng.poisson(np.exp(line(data, LOGS))), 60).astype(float),
    )
    return FAULTS[fault](sound) if "response" in fault else sound


def truth(name: str, fault: str, index: list[str]) -> dict[str, float]:
    """What each coefficient is; a constant response has no slope."""
    if "response" not in fault:
        known = CASES[name].truth
        if name == "mean":
            known = {index[0]: float(np.dot(list(EFFECTS.values()), [1, 0.5, 0, 0, 0.5, 0.5]))}
        elif name == "groups":
            known = dict(zip(index, (EFFECTS["Intercept"] + 1.25 + np.array([0, 0.5])).tolist(), strict=False))
        return known
    constant = fault == "constant response"
    level = 3.0 if constant else -20.0
    if name in ("mean", "groups"):
        return dict.fromkeys(index, level)
    if name == "poisson":  # without a single count the intercept is −∞, and nothing is known of the slopes
        return {k: (math.log(3.0) if k == "Intercept" else 0.0) for k in index} if constant else {}
    return {k: (level if k == "Intercept" else 0.0) for k in index}


def lost(name: str, fault: str, index: list[str]) -> list[str]:
    wanted = CASES[name].lost[fault]
    if name == "poisson" and fault == "response at an end":
        wanted = None
    return index if wanted is None else [k for k in index if k in wanted or k[2:-1] in wanted]


def fit(name: str, fault: str, n: int, epsilon: float, replicate: int) -> tuple[pd.DataFrame, set[str]]:
    """The table of one fit, and what the fit warned of (reading a release may say what it holds)."""
    model = CASES[name].model
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        release = pgbb.fit(
            model, records(fault, n, replicate), schema=SCHEMA, epsilon=epsilon, delta=DELTA, insecure_seed=replicate
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        table = release.summary(tau=0.5) if name == "quantile" else release.summary()
    return table, {str(w.message) for w in told}


def row(name: str, fault: str, n: int, epsilon: float, replicates: int) -> tuple[list[float], bool]:
    """Marks of what is lost and of the others, coverage of these, finite tables; and whether warnings are usual."""
    affected, marked, covers, finite, usual = [], [], [], [], True
    for r in range(replicates):
        table, told = fit(name, fault, n, epsilon, r)
        index = [str(k) for k in table.index]
        missing, known = lost(name, fault, index), truth(name, fault, index)
        free = table["identified"].to_numpy(bool)
        usual &= told == fit(name, "none", n, epsilon, r)[1] if r == 0 else True
        finite.append(bool(np.isfinite(table[["mean", "sd", "lower", "upper"]].to_numpy(float)).all()))
        for k, seen, low, high in zip(index, free, table["lower"], table["upper"], strict=True):
            if k in missing:
                affected.append(not seen)
            elif k in known:
                marked.append(not seen)
                if seen:
                    covers.append(low - ROUNDING <= known[k] <= high + ROUNDING)
    return [float(np.mean(v)) if v else math.nan for v in (affected, marked, covers, finite)], usual


def cells(a: argparse.Namespace) -> Iterator[tuple[str, str, int, float]]:
    for name in a.models or CASES:
        for fault in CASES[name].lost:
            if not a.fault or fault in a.fault:
                yield from ((name, fault, n, e) for n in a.n for e in a.epsilon)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--fault", action="append")
    parser.add_argument("--n", type=lambda s: [int(v) for v in s.split(",")], default=[20, 1_000, 3_000, 10_000])
    parser.add_argument("--epsilon", type=lambda s: [float(v) for v in s.split(",")], default=[1.0, 4.0])
    parser.add_argument("--replicates", type=int, default=20)
    a = parser.parse_args()
    print(f"{'model':10}{'fault':21}{'n':>7}{'ε':>4}{'fits':>6}{'lost, marked':>14}{'others, marked':>16}"
          f"{'covered':>9}{'finite':>8}{'warns':>7}")  # fmt: skip
    for name, fault, n, epsilon in cells(a):
        found, usual = row(name, fault, n, epsilon, a.replicates)
        shown = ["–" if math.isnan(v) else f"{v:.2f}" for v in found]
        print(f"{name:10}{fault:21}{n:7,}{epsilon:4g}{a.replicates:6}{shown[0]:>14}{shown[1]:>16}{shown[2]:>9}{shown[3]:>8}"
              f"{'as usual' if usual else 'CELL':>10}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
