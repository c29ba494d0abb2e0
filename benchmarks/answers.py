"""Answers that are made of a release: joint tests, intervals of new responses, and custodians pooled.

    python benchmarks/answers.py wald [400]         how often a joint test rejects what is true, at level .05
    python benchmarks/answers.py response [100]     how often an interval of a new response holds it
    python benchmarks/answers.py combine [100]      three custodians of 10,000 against one of 30,000

The number is that of simulations in a cell. Fits are seeded; δ is 1e-6. The spread of the errors grows with age unless
it is said to be equal, and the true coefficients are known.
"""

import sys
import warnings

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, ndtri

import pgbb
from pgbb.model.models import Model

DELTA = 1e-6
SCHEMA = pgbb.Schema(
    y=pgbb.Range(-30, 60), sick=pgbb.Flag(), age=pgbb.Range(18, 90), female=pgbb.Flag(), dose=pgbb.Range(0, 40)
)
TERMS = "age + female + dose"
SLOPES = {"age": 0.05, "female": 1.0, "dose": -0.2}
SPREAD = (1.0, 0.02)  # of the errors: constant, and a year of age


def covariates(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Ages, a flag and a skewed dose, correlated."""
    age = np.clip(rng.normal(50, 15, n), 18, 90).round()
    female = (rng.random(n) < 0.5).astype(int)
    return pd.DataFrame({"age": age, "female": female, "dose": np.clip(rng.gamma(2, 2 + age / 40, n), 0, 40)})


def center(x: pd.DataFrame) -> NDArray[np.float64]:
    """What the error is added to."""
    return 3 + sum(slope * x[name].to_numpy(float) for name, slope in SLOPES.items())


def sample(n: int, rng: np.random.Generator, *, equal: bool = False) -> pd.DataFrame:
    """Records; the errors' spread grows with age unless it is `equal`."""
    x = covariates(n, rng)
    spread = 2.0 if equal else SPREAD[0] + SPREAD[1] * x["age"].to_numpy(float)
    x["y"] = center(x) + spread * rng.normal(0, 1, n)
    x["sick"] = (rng.random(n) < expit(-2 + 0.03 * x["age"] - 0.5 * x["female"] + 0.05 * x["dose"])).astype(int)
    return x


def quantile(name: str, tau: float) -> float:
    """The true coefficient of `sample`."""
    constant = {"Intercept": 3.0, **SLOPES}[name]
    return constant + float(ndtri(tau)) * {"Intercept": SPREAD[0], "age": SPREAD[1]}.get(name, 0.0)


LOGIT = {"Intercept": -2.0, "age": 0.03, "female": -0.5, "dose": 0.05}


def fitted(model: Model, frame: pd.DataFrame, epsilon: float, seed: int) -> pgbb.Release:
    return pgbb.fit(model, frame, schema=SCHEMA, epsilon=epsilon, delta=DELTA, insecure_seed=seed)


def wald(simulations: int) -> None:
    """The size of joint tests."""
    quantiles = pgbb.QuantileRegression(f"y ~ {TERMS}", taus=[0.25, 0.5, 0.75])
    logistic = pgbb.LogisticRegression(f"sick ~ {TERMS}")
    print(f"{'test':44}{'n':>8}{'ε':>4}{'size':>7}{'median P':>10}")
    for n, epsilon in ((10_000, 1.0), (10_000, 4.0)):
        found: dict[str, list[float]] = {}
        for r in range(simulations):
            rng = np.random.default_rng([r, n])
            for equal in (False, True):
                release = fitted(quantiles, sample(n, rng, equal=equal), epsilon, r)
                if equal:
                    same = [{(c, 0.75): 1, (c, 0.25): -1} for c in SLOPES]
                    found.setdefault("3 slopes equal at .25 and .75", []).append(release.wald(same).pvalue)
                else:
                    all_of = {(c, t): quantile(c, t) for c in SLOPES for t in (0.25, 0.5, 0.75)}
                    found.setdefault("9 quantile slopes are the true ones", []).append(release.wald(all_of).pvalue)
                    one = {(c, 0.5): SLOPES[c] for c in SLOPES}
                    found.setdefault("3 median slopes are the true ones", []).append(release.wald(one).pvalue)
            release = fitted(logistic, sample(n, rng), epsilon, r)
            found.setdefault("4 logistic coefficients are the true ones", []).append(release.wald(LOGIT).pvalue)
        for name, p in found.items():
            print(f"{name:44}{n:8,}{epsilon:4g}{np.mean(np.array(p) < 0.05):7.3f}{np.median(p):10.2f}", flush=True)


def response(simulations: int) -> None:
    """Coverage of new responses."""
    model = pgbb.QuantileRegression(f"y ~ {TERMS}", interval=(0.025, 0.975))
    print(f"{'n':>8}{'ε':>4}{'level':>7}{'coverage':>10}{'least':>7}{'width':>8}{'true width':>12}")
    for n, epsilon in ((3_000, 1.0), (10_000, 1.0), (10_000, 4.0), (30_000, 1.0)):
        covered: dict[float, list[float]] = {0.95: [], 0.8: []}
        widths: dict[float, list[float]] = {0.95: [], 0.8: []}
        for r in range(simulations):
            rng = np.random.default_rng([r, n, 1])
            release = fitted(model, sample(n, rng), epsilon, r)
            new = sample(50, rng)
            for level in covered:
                table = release.predict(new, kind="response", level=level)
                covered[level].append(float(np.mean(new["y"].between(table["lower"], table["upper"]))))
                widths[level].append(float(np.mean(table["upper"] - table["lower"])))
        for level in covered:
            true = 2 * float(ndtri((1 + level) / 2)) * (SPREAD[0] + SPREAD[1] * 50)
            print(
                f"{n:8,}{epsilon:4g}{level:7g}{np.mean(covered[level]):10.3f}{np.min(covered[level]):7.2f}"
                f"{np.mean(widths[level]):8.2f}{true:12.2f}",
                flush=True,
            )


def combine(simulations: int) -> None:
    """Three custodians of 10,000 against one of 30,000: width, coverage, marks."""
    taus = [0.25, 0.5, 0.75]
    models = {
        "quantile": (pgbb.QuantileRegression(f"y ~ {TERMS}", taus=taus), [quantile(c, t) for t in taus for c in LOGIT]),
        "logistic": (pgbb.LogisticRegression(f"sick ~ {TERMS}"), list(LOGIT.values())),
    }
    print(f"{'model':10}{'ε':>4}{'width':>8}{'coverage':>10}{'least':>7}{'marked':>8}{'of one':>8}{'Q < .05':>9}")
    for name, (model, truth) in models.items():
        for epsilon in (1.0, 4.0):
            ratios, hits, alone, marks, chances = [], [], [], [], []
            for r in range(simulations):
                rng = np.random.default_rng([r, 2])
                frames = [sample(10_000, rng) for _ in range(3)]
                pooled = pgbb.combine([fitted(model, f, epsilon, 3 * r + i) for i, f in enumerate(frames)])
                both = [pooled.summary(), fitted(model, pd.concat(frames), epsilon, r).summary()]
                inside = [t["lower"].le(truth).to_numpy() & t["upper"].ge(truth).to_numpy() for t in both]
                hits.append(inside[0])
                alone.append(inside[1])
                marks.append(~both[0]["identified"].to_numpy(bool))
                ratios.append((both[0]["upper"] - both[0]["lower"]) / (both[1]["upper"] - both[1]["lower"]))
                chances.append(pooled.stored_diagnostics["heterogeneity"]["pvalue"])
            print(
                f"{name:10}{epsilon:4g}{np.median(ratios):8.3f}{np.mean(hits):10.3f}{np.mean(hits, axis=0).min():7.2f}"
                f"{np.mean(marks):8.3f}{np.mean(alone):8.3f}{np.mean(np.array(chances) < 0.05):9.3f}",
                flush=True,
            )


if __name__ == "__main__":
    chosen = {"wald": (wald, 400), "response": (response, 100), "combine": (combine, 100)}
    if len(sys.argv) < 2 or sys.argv[1] not in chosen:
        sys.exit(__doc__)
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    study, usual = chosen[sys.argv[1]]
    study(int(sys.argv[2]) if len(sys.argv) > 2 else usual)
