"""Answers that are made of a release: joint tests, intervals of new responses, and custodians pooled.

    python benchmarks/answers.py wald [400] [1]         how often a joint test rejects what is true, at level .05
    python benchmarks/answers.py response [100] [1]     how often an interval of a new response holds it
    python benchmarks/answers.py combine [100] [1]      three custodians of 10,000 against one of 30,000

The first number is that of simulations in a cell, the second that of processes. Fits are seeded; δ is 1e-6. The spread
of the errors grows with age unless it is said to be equal, and the true coefficients are known.
"""

import sys
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from real import floors, gaussian_mu
from real_files import Case
from scipy.special import expit, ndtri

import pgbb
from pgbb.model.models import Model

Floats = NDArray[np.float64]
DELTA, Z = 1e-6, 1.959963984540054
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


TAUS = (0.25, 0.5, 0.75)
MODELS: dict[str, tuple[Model, list[float]]] = {
    "quantile": (
        pgbb.QuantileRegression(f"y ~ {TERMS}", taus=list(TAUS)), [quantile(c, t) for t in TAUS for c in LOGIT]
    ),
    "logistic": (pgbb.LogisticRegression(f"sick ~ {TERMS}"), list(LOGIT.values())),
    "linear": (pgbb.LinearRegression(f"y ~ {TERMS}"), [3.0, *SLOPES.values()]),
}  # fmt: skip
Jobs = Callable[[Callable[..., Any], Iterable[Any]], Iterable[Any]]


def tests(job: tuple[int, int, float]) -> dict[str, float]:
    """P values of what is true, of one simulation."""
    r, n, epsilon = job
    rng, found = np.random.default_rng([r, n]), {}
    for equal in (False, True):
        release = fitted(MODELS["quantile"][0], sample(n, rng, equal=equal), epsilon, r)
        if equal:
            same = [{(c, 0.75): 1, (c, 0.25): -1} for c in SLOPES]
            found["3 slopes equal at .25 and .75"] = release.wald(same).pvalue
        else:
            all_of = {(c, t): quantile(c, t) for c in SLOPES for t in TAUS}
            found["9 quantile slopes are the true ones"] = release.wald(all_of).pvalue
            found["3 median slopes are the true ones"] = release.wald({(c, 0.5): SLOPES[c] for c in SLOPES}).pvalue
    for kind in ("logistic", "linear"):
        model, truth = MODELS[kind]
        release = fitted(model, sample(n, rng), epsilon, r)
        found[f"4 {kind} coefficients are the true ones"] = release.wald(dict(zip(LOGIT, truth, strict=True))).pvalue
    return found


def wald(simulations: int, each: Jobs) -> None:
    """The size of joint tests."""
    print(f"{'test':44}{'n':>8}{'ε':>4}{'size':>7}{'median P':>10}   {simulations} simulations")
    for n, epsilon in ((10_000, 1.0), (10_000, 4.0)):
        found = pd.DataFrame(each(tests, [(r, n, epsilon) for r in range(simulations)]))
        for name, p in found.items():
            print(f"{name:44}{n:8,}{epsilon:4g}{np.mean(p < 0.05):7.3f}{np.median(p):10.2f}", flush=True)


def new_responses(job: tuple[int, int, float]) -> list[tuple[float, float, float]]:
    """(level, share of 50 new responses that are inside, mean width) of one simulation."""
    r, n, epsilon = job
    rng = np.random.default_rng([r, n, 1])
    model = pgbb.QuantileRegression(f"y ~ {TERMS}", interval=(0.025, 0.975))
    release, found = fitted(model, sample(n, rng), epsilon, r), []
    new = sample(50, rng)
    for level in (0.95, 0.8):
        table = release.predict(new, kind="response", level=level)
        inside = float(np.mean(new["y"].between(table["lower"], table["upper"])))
        found.append((level, inside, float(np.mean(table["upper"] - table["lower"]))))
    return found


def response(simulations: int, each: Jobs) -> None:
    """Coverage of new responses."""
    print(
        f"{'n':>8}{'ε':>4}{'level':>7}{'coverage':>10}{'least':>7}{'width':>8}{'true width':>12}   {simulations} fits"
    )
    for n, epsilon in ((3_000, 1.0), (10_000, 1.0), (10_000, 4.0), (30_000, 1.0)):
        rows = [row for rows in each(new_responses, [(r, n, epsilon) for r in range(simulations)]) for row in rows]
        for level, found in pd.DataFrame(rows, columns=["level", "inside", "width"]).groupby("level", sort=False):
            true = 2 * float(ndtri((1 + level) / 2)) * (SPREAD[0] + SPREAD[1] * 50)
            print(
                f"{n:8,}{epsilon:4g}{level:7g}{found.inside.mean():10.3f}{found.inside.min():7.2f}"
                f"{found.width.mean():8.2f}{true:12.2f}",
                flush=True,
            )


def pooled(job: tuple[int, str, float]) -> dict[str, Any]:
    """Three custodians and one, of one simulation."""
    r, name, epsilon = job
    model, truth = MODELS[name]
    rng = np.random.default_rng([r, 2])
    frames = [sample(10_000, rng) for _ in range(3)]
    members = [fitted(model, f, epsilon, 3 * r + i) for i, f in enumerate(frames)]
    together = pgbb.combine(members)
    tables = [
        together.summary(),
        fitted(model, pd.concat(frames), epsilon, r).summary(),
        *(m.summary() for m in members),
    ]
    inside = [t["lower"].le(truth).to_numpy() & t["upper"].ge(truth).to_numpy() for t in tables]
    width = [(t["upper"] - t["lower"]).to_numpy() for t in tables[:2]]
    share = tables[1]["privacy_share"].to_numpy()
    return {
        "inside": inside[0], "alone": inside[1], "each": np.mean(inside[2:], axis=0),
        "marked": ~tables[0]["identified"].to_numpy(bool), "ratio": width[0] / width[1],
        "paid": np.sqrt(1 + 2 * share), "sampling": tables[1]["sampling_sd"].to_numpy(), "width": width[1],
        "chance": together.stored_diagnostics["heterogeneity"]["pvalue"],
    }  # fmt: skip


def floor(name: str) -> Floats:
    """The noise of one answer with the whole budget, times nμ/2, for each coefficient: see `real.py`."""
    frame, (_, truth) = sample(100_000, np.random.default_rng(3)), MODELS[name]
    x = np.column_stack([np.ones(len(frame)), frame[list(SLOPES)]])
    y = frame["sick" if name == "logistic" else "y"].to_numpy(float)
    case = Case("cps", name, f"answer ~ {TERMS}", TAUS)  # of which only the kind and the levels are read
    return floors(case, x, y, np.reshape(truth, (-1, len(LOGIT)))).ravel()


def combine(simulations: int, each: Jobs) -> None:
    """Three custodians of 10,000 against one of 30,000: width, coverage, marks.

    "Width" is the ratio of the pooled interval to that of the one fit. Each custodian has the noise of the whole budget
    on a third of the records. "Ideal" is the ratio for three custodians that know all but the answer: each makes one
    Gaussian answer with its whole budget, in the coordinates that suit the coefficient best, and the sampling error is
    known. "Paid": if a share s of the variance of the one fit is noise of privacy, and custodians are as good as it at
    a third of its size, their pooled interval has √(1 + 2s) times its width.
    """
    print(
        f"{'model':10}{'ε':>4}{'width':>8}{'ideal':>7}{'paid':>7}{'coverage':>10}{'least':>7}{'of each':>9}"
        f"{'of one':>8}{'marked':>8}{'Q < .05':>9}   {simulations} simulations"
    )
    for name in MODELS:
        least = floor(name)
        for epsilon in (1.0, 4.0):
            rows = list(each(pooled, [(r, name, epsilon) for r in range(simulations)]))
            f = {key: np.array([row[key] for row in rows]) for key in rows[0]}
            noise = least * 2 / (30_000 * gaussian_mu(epsilon, DELTA))
            ideal = 2 * Z * np.hypot(f["sampling"], np.sqrt(3) * noise) / f["width"]
            print(
                f"{name:10}{epsilon:4g}{np.median(f['ratio']):8.3f}{np.median(ideal):7.3f}{np.median(f['paid']):7.3f}"
                f"{f['inside'].mean():10.3f}{f['inside'].mean(axis=0).min():7.2f}{f['each'].mean():9.3f}"
                f"{f['alone'].mean():8.3f}"
                f"{f['marked'].mean():8.3f}{np.mean(f['chance'] < 0.05):9.3f}",
                flush=True,
            )


def main() -> None:
    chosen = {"wald": (wald, 400), "response": (response, 100), "combine": (combine, 100)}
    if len(sys.argv) < 2 or sys.argv[1] not in chosen:
        sys.exit(__doc__)
    study, usual = chosen[sys.argv[1]]
    simulations, jobs = (int(sys.argv[i]) if len(sys.argv) > i else v for i, v in ((2, usual), (3, 1)))
    quiet = warnings.simplefilter, ("ignore", pgbb.PgbbWarning)
    with ProcessPoolExecutor(jobs, get_context("spawn"), *quiet) as pool:
        study(simulations, lambda one, todo: list(pool.map(one, todo, chunksize=max(1, simulations // (2 * jobs)))))


if __name__ == "__main__":
    main()
