"""Intervals of the default method on simulations and on real data, against floors, printed figures and other methods.

    python benchmarks/calibration.py linear [REPLICATES]      12 cells of the paper's regression; also takes kinds of
                                                              errors and sizes, such as student_t 10000
    python benchmarks/calibration.py families [REPLICATES]    12 cells of exponential families, beside NoisyGibbs
    python benchmarks/calibration.py process [RUNS]           a known quantile process on a census-like design
    python benchmarks/calibration.py births [RUNS]            a known process on a natality-like design
    python benchmarks/calibration.py logistic [REPLICATES]    d = 8 and 20, small n, a near-collinear design
    python benchmarks/calibration.py hostile [RUNS]           data made to break it; logistic and hostile take the
                                                              first letters of the cases to run
    PGBB_DATA=… python benchmarks/calibration.py census [RUNS]
    PGBB_DATA=… python benchmarks/calibration.py natality [RUNS]

Fits are seeded, hence reproducible; every line is printed when its cell is done.
"""

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import pgbb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # reproduction/ lies beside benchmarks/

from reproduction.printed import lookup
from reproduction.real import census as census_frame
from reproduction.real import data_file
from reproduction.simulate import (
    BETA,
    LINEAR_MODEL,
    LINEAR_SCHEMA,
    NOISES,
    PROCESS_FORMULA,
    PROCESS_SCHEMA,
    TAUS,
    all_draws,
    linear_frame,
    process_frame,
)
from reproduction.studies import floor as floors
from reproduction.study import cell_name

Z = float(stats.norm.ppf(0.975))


def linear_floor(kind: str, n: int, epsilon: float) -> tuple[float, float, float]:
    """MAE and width of the floor V/n + v, v = (σ/q)²H⁻²/(T·K) at the paper's σ and S = 5; MAE of V/n alone."""
    settings = floors.cells()[cell_name(noise=kind, n=n, epsilon=epsilon)]
    limit, floor = floors.run(settings, 0)
    return floor["mae"], floor["width"], limit["mae"]


def score(draws: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Absolute error of the mean, coverage and width of the central 95 % interval; an entry a coefficient."""
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return np.abs(draws.mean(axis=0) - truth), (low <= truth) & (truth <= high), high - low


def linear(replicates: int = 400, *only: str | int) -> None:
    """The column "paired" multiplies the floor by what the non-private fits of the same data have over their limit."""
    print(f"{'':40}{'MAE':>8}{'× floor':>9}{'paired':>8}{'coverage':>10}{'width':>8}{'× floor':>9}{'printed':>9}"
          "  non-private MAE")  # fmt: skip
    begin = time.perf_counter()
    for kind in [k for k in only if isinstance(k, str)] or NOISES:
        for n in [k for k in only if isinstance(k, int)] or (10_000, 40_000):
            free = float(np.mean([np.abs(_exact(linear_frame(kind, n, r)) - BETA).mean() for r in range(replicates)]))
            for epsilon in (1.0, 2.0, 4.0):
                found = []
                for r in range(replicates):
                    release = pgbb.fit(
                        LINEAR_MODEL, linear_frame(kind, n, r), schema=LINEAR_SCHEMA, epsilon=epsilon, delta=1 / n,
                        insecure_seed=r,
                    )  # fmt: skip
                    draws = release.sample(2000, seed=r)[["x1", "x2", "x3"]].to_numpy()
                    found.append(np.mean(score(draws, BETA), axis=1))
                mae, coverage, width = np.mean(found, axis=0)
                floor = linear_floor(kind, n, epsilon)
                printed = lookup("linreg_summary", epsilon=epsilon, n=n, method="PGBB", noise=kind)["width"]
                print(
                    f"{kind:20} n = {n:6,} ε = {epsilon:g}   {mae:8.4f}{mae / floor[0]:9.3f}"
                    f"{mae / floor[0] / (free / floor[2]):8.3f}{coverage:10.3f}{width:8.4f}{width / floor[1]:9.3f}"
                    f"{printed:9.3f}  {free:.4f}",
                    flush=True,
                )
    print(f"{replicates} replicates a cell, {time.perf_counter() - begin:.0f} s in all")


def _exact(frame: pd.DataFrame) -> np.ndarray:
    from pgbb.private.door import non_private
    from pgbb.reference import solve

    problem = LINEAR_MODEL.prepare(LINEAR_SCHEMA)
    return solve(problem, non_private(frame, problem, LINEAR_SCHEMA))[:3]


def families(replicates: int = 400) -> None:
    cells: list[tuple[str, Any, pgbb.Schema, float, Callable[[np.random.Generator, int], np.ndarray]]] = [
        ("gaussian", pgbb.Mean("x", scale=0.5), pgbb.Schema(x=pgbb.Range(-5, 5)), 1.5,
         lambda g, n: g.normal(1.5, 0.5, n)),
        ("exponential", pgbb.Mean("x", family="exponential"), pgbb.Schema(x=pgbb.Range(0, 12)), 2.0,
         lambda g, n: g.exponential(2.0, n)),
    ]  # fmt: skip
    print(f"{'':36}{'MAE':>8}{'coverage':>10}{'width':>8}   NoisyGibbs MAE, coverage, width   ratios")
    for name, model, schema, truth, draw in cells:
        for n in (500, 5_000):
            for epsilon in (1.0, 2.0, 4.0):
                found: dict[str, list[Any]] = {"calibrated": [], "noisy_gibbs": []}
                for r in range(replicates):
                    frame = pd.DataFrame({"x": draw(np.random.default_rng(r), n)})
                    for method, rows in found.items():
                        release = pgbb.fit(
                            model, frame, schema=schema, epsilon=epsilon, delta=1 / n, method=method, insecure_seed=r
                        )
                        draws = release.sample(2000, seed=r).to_numpy()
                        rows.append([v.mean() for v in score(draws, np.array([truth]))])
                ours, theirs = (np.mean(found[m], axis=0) for m in ("calibrated", "noisy_gibbs"))
                print(
                    f"{name:12} n = {n:5,} ε = {epsilon:g}        {ours[0]:8.4f}{ours[1]:10.3f}{ours[2]:8.4f}   "
                    f"{theirs[0]:8.4f}{theirs[1]:8.3f}{theirs[2]:8.4f}   "
                    f"{ours[0] / theirs[0]:8.3f}{ours[2] / theirs[2]:8.3f}",
                    flush=True,
                )


def process(runs: int = 100, n: int = 65_023) -> None:
    model = pgbb.QuantileRegression(PROCESS_FORMULA, taus=TAUS)
    for epsilon in (1.0, 4.0):
        found, contrasts = [], []
        for r in range(runs):
            frame, truth = process_frame(n, r)
            release = pgbb.fit(
                model, frame, schema=PROCESS_SCHEMA, epsilon=epsilon, delta=1 / n, method="calibrated", insecure_seed=r
            )
            draws = _levels(release, r)
            found.append(score(draws, truth))
            contrasts.append(score(draws[:, -1] - draws[:, 0], truth[-1] - truth[0]))
        mae, coverage, width = (np.mean([f[i] for f in found], axis=0) for i in range(3))
        print(f"known quantile process, n = {n:,}, ε = {epsilon:g}, {runs} runs; rows τ = {TAUS}, then .9 − .1")
        print(f"{'coverage':>12}: intercept, educ, exper, black{'MAE':>12}{'width':>30}")
        change = [np.mean([c[i] for c in contrasts], axis=0) for i in range(3)]
        rows = [*zip(coverage, mae, width, strict=True), (change[1], change[0], change[2])]
        for c, m, w in rows:
            print("   " + " ".join(f"{v:6.2f}" for v in c) + "   " + " ".join(f"{v:8.4f}" for v in m) + "   "
                  + " ".join(f"{v:8.4f}" for v in w), flush=True)  # fmt: skip


BIRTH_SCHEMA = pgbb.Schema(
    weight=pgbb.Range(200, 8000), black=pgbb.Flag(), married=pgbb.Flag(), boy=pgbb.Flag(), age=pgbb.Range(18, 45),
    smoke=pgbb.Flag(), cigs=pgbb.Range(0, 60), gain=pgbb.Range(0, 98), visit=pgbb.Levels(0, 1, 2, 3),
    educ=pgbb.Levels(0, 1, 2, 3),
)  # fmt: skip
BIRTH_FORMULA = "weight ~ black + married + boy + age + smoke + cigs + gain + visit + educ"


def births_frame(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Simulated births with rare and nearly collinear covariates, and their true quantile process."""
    rng = np.random.default_rng(seed)
    smoke = rng.random(n) < 0.1
    frame = pd.DataFrame({
        "black": rng.random(n) < 0.15, "married": rng.random(n) < 0.6, "boy": rng.random(n) < 0.51,
        "age": np.clip(np.round(rng.normal(28, 6, n)), 18, 45), "smoke": smoke,
        "cigs": np.clip(np.where(smoke, 1 + rng.poisson(9, n), 0), 0, 60),
        "gain": np.clip(np.round(rng.normal(30, 13, n)), 0, 98),
        "visit": rng.choice(4, n, p=[0.015, 0.15, 0.05, 0.785]), "educ": rng.choice(4, n, p=[0.33, 0.25, 0.27, 0.15]),
    }).astype(float)  # fmt: skip
    dummies = [(frame[c] == v).to_numpy(float) for c in ("visit", "educ") for v in (1, 2, 3)]
    x = np.column_stack([np.ones(n), frame.drop(columns=["visit", "educ"]), *dummies])
    b = np.array([2600, -200, 60, 110, 4, -120, -6, 9, 90, 100, 130, 20, 40, -30.0])
    g = np.array([480, 30, -10, 10, 0.5, 20, 1, -1, -60, -50, -90, -10, -20, 10.0])
    frame[["visit", "educ"]] = frame[["visit", "educ"]].astype(int)
    frame["weight"] = x @ b + (x @ g) * rng.standard_t(5, n) * np.sqrt(3 / 5)
    return frame, b + np.outer(stats.t.ppf(TAUS, 5) * np.sqrt(3 / 5), g)


def births(runs: int = 20, n: int = 50_000) -> None:
    model = pgbb.QuantileRegression(BIRTH_FORMULA, taus=TAUS, bandwidth=50.0)
    for epsilon in (1.0, 4.0):
        found, marks = [], []
        for r in range(runs):
            frame, truth = births_frame(n, r)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", pgbb.PgbbWarning)
                release = pgbb.fit(
                    model,
                    frame,
                    schema=BIRTH_SCHEMA,
                    epsilon=epsilon,
                    delta=1 / n,
                    method="calibrated",
                    insecure_seed=r,
                )
                marks.append([~release.summary(tau=t)["identified"].to_numpy(bool) for t in TAUS])
            found.append(score(_levels(release, r), truth))
        mae, coverage, width = (np.mean([f[i] for f in found], axis=(0, 1)) for i in range(3))
        print(f"simulated births, n = {n:,}, ε = {epsilon:g}, {runs} runs; mean over τ")
        print(f"{'':18}{'coverage':>9}{'MAE':>9}{'width':>9}{'marked':>8}")
        for j, name in enumerate(release.model.names):
            print(
                f"{name:18}{coverage[j]:9.3f}{mae[j]:9.2f}{width[j]:9.1f}{np.mean(marks, axis=(0, 1))[j]:8.2f}",
                flush=True,
            )


def _levels(release: pgbb.Release, seed: int) -> np.ndarray:
    """Joint draws (2000, levels, coefficients)."""
    draws = release.sample(2000, tau=list(TAUS), seed=seed)
    return np.stack([draws[t].to_numpy() for t in TAUS], axis=1)


def logistic(replicates: int = 200, *only: str) -> None:
    cells = [("d = 8", 8, 20_000, 1.0, 0.0), ("d = 8", 8, 20_000, 4.0, 0.0), ("d = 20", 20, 20_000, 1.0, 0.0),
             ("d = 20", 20, 20_000, 4.0, 0.0), ("d = 4", 4, 1_000, 4.0, 0.0), ("near-collinear", 4, 20_000, 1.0, 0.97),
             ("near-collinear", 4, 20_000, 4.0, 0.97)]  # fmt: skip
    print(f"{'':38}{'coverage':>10}{'least':>8}{'MAE':>9}{'width':>9}{'× non-private':>15}{'marked':>9}")
    for name, d, n, epsilon, correlation in cells:
        if only and not any(name.replace(" ", "").startswith(o) for o in only):
            continue
        columns = [f"x{j}" for j in range(1, d)]
        schema = pgbb.Schema(y=pgbb.Flag(), **dict.fromkeys(columns, pgbb.Range(-1, 1)))
        model = pgbb.LogisticRegression("y ~ " + " + ".join(columns))
        truth = np.concatenate([[-0.3], np.tile([0.8, -0.5, 0.3, 0.0], d)[: d - 1]])
        found, marks = [], []
        for r in range(replicates):
            rng = np.random.default_rng(r)
            x = rng.uniform(-1, 1, (n, d - 1))
            x[:, 1] = correlation * x[:, 0] + np.sqrt(1 - correlation**2) * x[:, 1]
            x[:, 1] /= correlation + np.sqrt(1 - correlation**2)
            p = 1 / (1 + np.exp(-(truth[0] + x @ truth[1:])))
            frame = pd.DataFrame(x, columns=columns).assign(y=(rng.random(n) < p).astype(int))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", pgbb.PgbbWarning)
                release = pgbb.fit(
                    model, frame, schema=schema, epsilon=epsilon, delta=1 / n, method="calibrated", insecure_seed=r
                )
                marks.append(~release.summary()["identified"].to_numpy(bool))
            found.append(score(release.sample(2000, seed=r).to_numpy(), truth))
            if r == 0:
                design = np.column_stack([np.ones(n), x])
                free = 2 * Z * np.sqrt(np.diag(np.linalg.inv(design.T @ (design * (p * (1 - p))[:, None]))))
        mae, coverage, width = (np.mean([f[i] for f in found], axis=0) for i in range(3))
        print(
            f"{name:16} n = {n:6,} ε = {epsilon:g}      {coverage.mean():10.3f}{coverage.min():8.3f}{mae.mean():9.4f}"
            f"{width.mean():9.4f}{(width / free).mean():15.3f}{np.mean(marks):9.3f}",
            flush=True,
        )


HOSTILE_SCHEMA = pgbb.Schema(
    x1=pgbb.Range(-1, 1), x2=pgbb.Range(-1, 1), x3=pgbb.Range(-1, 1), far=pgbb.Range(0, 50), y=pgbb.Range(-20, 20),
    z=pgbb.Flag(), w=pgbb.Range(-20, 20), age=pgbb.Range(16, 100), year=pgbb.Range(1990, 2020), union=pgbb.Flag(),
    rare=pgbb.Flag(), region=pgbb.Levels("north", "south", "west"), wage=pgbb.Range(0, 200),
)  # fmt: skip
Hostile = Callable[[np.random.Generator, int], tuple[pd.DataFrame, np.ndarray]]
"""(generator, n) → a frame and the true coefficients, (levels, coefficients)."""


def _uniform(rng: np.random.Generator, n: int) -> pd.DataFrame:
    return pd.DataFrame(rng.uniform(-1, 1, (n, 3)), columns=["x1", "x2", "x3"])


def _binary(*truth: float) -> Hostile:
    def draw(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, np.ndarray]:
        frame = _uniform(rng, n)
        chance = 1 / (1 + np.exp(-(truth[0] + frame.to_numpy() @ truth[1:])))
        return frame.assign(z=(rng.random(n) < chance).astype(int)), np.array([truth])

    return draw


def _located(errors: Callable[[np.random.Generator, int], np.ndarray], centre: Callable[[np.ndarray], Any]) -> Hostile:
    """y = 1 + x1 − x2 + errors; `centre` of errors is what the intercept (at each level) adds, by 4·10⁶ draws."""
    levels = np.atleast_1d(centre(errors(np.random.default_rng(0), 4_000_000)))

    def draw(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, np.ndarray]:
        frame = _uniform(rng, n)
        frame["y"] = 1 + frame["x1"] - frame["x2"] + errors(rng, n)
        return frame, np.array([[1 + c, 1.0, -1.0, 0.0] for c in levels])

    return draw


def _two_humps(apart: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: np.where(rng.random(n) < 0.5, apart, -apart) + 0.5 * rng.standard_normal(n)


def _uneven_humps(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.where(rng.random(n) < 0.25, 2.0, -2.0) + 0.3 * rng.standard_normal(n)


def _heaped(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Errors of a log-normal answer rounded to one part in twenty; quantiles of y move by less than the rounding."""
    frame = _uniform(rng, n)
    level = np.exp(3 + 0.5 * (frame["x1"] - frame["x2"]) + 0.5 * rng.standard_normal(n))
    frame["y"] = np.log(np.maximum(np.round(level), 1))
    return frame, np.array([[3 + 0.5 * stats.norm.ppf(t), 0.5, -0.5, 0.0] for t in (0.25, 0.5, 0.75)])


def _huber_centre(errors: np.ndarray) -> float:
    """The root (location, scale) of Huber's two equations."""
    c, kappa, centre, scale = 1.345, 0.71, float(np.median(errors)), float(np.std(errors))
    for _ in range(200):
        psi = np.clip((errors - centre) / scale, -c, c)
        centre += scale * float(psi.mean())
        scale *= float(np.sqrt(np.mean(psi**2) / kappa))
    return centre


def _column(errors: Callable[[np.random.Generator, int], np.ndarray], mean: float) -> Hostile:
    return lambda rng, n: (pd.DataFrame({"y": errors(rng, n)}), np.array([[mean]]))


def _bent(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A concave median in a skewed covariate: the truth is the best linear approximation without weights."""
    frame = pd.DataFrame({"far": np.minimum(np.exp(0.9 * rng.standard_normal(n)), 50)})
    frame["y"] = 2 * np.sqrt(frame["far"]) + 0.5 * rng.standard_normal(n)
    return frame, BENT


BENT = np.array([[0.882, 0.642], [1.212, 0.683], [1.544, 0.710]])  # quantile regressions of 2·10⁶ such records


def _survey(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Covariates as users have them: wide ranges, far from zero, x2 almost x1, and a flag that one in 200 has."""
    frame = pd.DataFrame({
        "age": rng.integers(18, 80, n), "year": rng.integers(1990, 2021, n), "union": (rng.random(n) < 0.2).astype(int),
        "rare": (rng.random(n) < 0.005).astype(int), "region": rng.choice(["north", "south", "west"], n),
        "far": rng.uniform(0, 50, n), "x1": rng.uniform(-0.9, 0.9, n),
    })  # fmt: skip
    return frame.assign(x2=frame["x1"] + rng.uniform(-0.05, 0.05, n))


def _unrelated(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Wages that nothing explains."""
    frame = _survey(rng, n).assign(wage=np.exp(rng.normal(3, 0.5, n)).round(2))
    return frame, np.array([[np.exp(3), 0, 0, 0, 0, 0]])


DESIGNS: dict[str, tuple[str, dict[str, float]]] = {
    "age and its square": (
        "age + I(age**2) + union + region",
        {"1": -0.6, "age": 0.05, "age**2": -5e-4, "union": 0.5, "region == 'south'": 0.2, "region == 'west'": -0.3},
    ),
    "cubic": ("far + I(far**2) + I(far**3)", {"1": -0.5, "far": 0.1, "far**2": -4e-3, "far**3": 5e-5}),
    "calendar year": ("year + union", {"1": -59.9, "year": 0.03, "union": 0.5}),
    "flag, one in 200": ("rare + x1 + union", {"1": 0.2, "rare": 1.0, "x1": 0.5, "union": -0.5}),
    "two of a kind": ("x1 + x2 + union", {"1": 0.2, "x1": 1.0, "x2": -0.5, "union": 0.5}),
    "interactions": (
        "age*union + year:union",
        {"1": -0.6, "age": 0.01, "union": -9.6, "age*union": 0.01, "year*union": 0.005},
    ),
}
"""Right-hand sides, and the true coefficients of their terms."""


def _design(terms: dict[str, float]) -> Hostile:
    """A normal y with standard deviation 1 and a binary z about the same line; quantiles are .25, .5 and .75."""

    def draw(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, np.ndarray]:
        frame = _survey(rng, n)
        line = sum(b * frame.eval(term) for term, b in terms.items())
        frame = frame.assign(y=line + rng.standard_normal(n), z=(line + rng.logistic(size=n) > 0).astype(int))
        return frame, np.array([list(terms.values())])

    return draw


def _quarters(draw: Hostile) -> Hostile:
    def moved(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, np.ndarray]:
        frame, truth = draw(rng, n)
        return frame, truth + np.outer(stats.norm.ppf([0.25, 0.5, 0.75]), np.eye(truth.shape[1])[0])

    return moved


def _designs() -> list[tuple[str, Any, Hostile, int, tuple[float, ...]]]:
    """Nearly collinear and badly scaled designs."""
    wages = pgbb.QuantileRegression("wage ~ age + I(age**2) + union + region", taus=[0.5])
    cells: list[tuple[str, Any, Hostile, int, tuple[float, ...]]] = [
        ("wages, age and square", wages, _unrelated, n, (0.5, 2.0, 4.0)) for n in (5_000, 50_000)
    ]
    for name, (right, terms) in DESIGNS.items():
        draw = _design(terms)
        cells += [
            (f"{name}: quantile", pgbb.QuantileRegression(f"y ~ {right}", taus=[0.25, 0.5, 0.75]), _quarters(draw),
             5_000, (1.0, 4.0)),
            (f"{name}: Huber", pgbb.HuberRegression(f"y ~ {right}", scale=(0.05, 5.0)), draw, 5_000, (1.0, 4.0)),
            (f"{name}: logistic", pgbb.LogisticRegression(f"z ~ {right}"), draw, 20_000, (1.0, 4.0)),
        ]  # fmt: skip
    return cells


def hostile(runs: int = 60, *only: str) -> None:
    """Coverage of coefficients that are not marked, and how many are.

    "noted": the certificate says how many records are weighted down, beyond noise.
    """
    logistic_model = pgbb.LogisticRegression("z ~ x1 + x2 + x3")
    quantile = pgbb.QuantileRegression("y ~ x1 + x2 + x3", taus=[0.25, 0.5, 0.75])
    huber = pgbb.HuberRegression("y ~ x1 + x2 + x3", scale=(0.05, 5.0))
    quarters = lambda e: np.quantile(e, [0.25, 0.5, 0.75])  # noqa: E731
    skew = lambda rng, n: rng.exponential(1.0, n)  # noqa: E731
    skewer = lambda rng, n: np.exp(rng.standard_normal(n))  # noqa: E731
    normal = lambda rng, n: 1.5 + rng.standard_normal(n)  # noqa: E731
    cells: list[tuple[str, Any, Hostile, int, tuple[float, ...]]] = [
        ("rare outcome, 1 %", logistic_model, _binary(-4.8, 0.8, -0.5, 0.3), 5_000, (0.3, 1.0)),
        ("rare outcome, 1 %", logistic_model, _binary(-4.8, 0.8, -0.5, 0.3), 20_000, (0.3, 1.0, 4.0)),
        ("strong effects", logistic_model, _binary(0.0, 4.0, -3.0, 5.0), 5_000, (0.3, 1.0)),
        ("strong effects", logistic_model, _binary(0.0, 4.0, -3.0, 5.0), 20_000, (0.3, 1.0, 4.0)),
        ("two humps, ±1", quantile, _located(_two_humps(1.0), quarters), 20_000, (1.0, 4.0)),
        ("two humps, ±1.5", quantile, _located(_two_humps(1.5), quarters), 20_000, (1.0, 4.0)),
        ("two humps, ±2", quantile, _located(_two_humps(2.0), quarters), 20_000, (1.0, 4.0)),
        ("skewed quantiles", quantile, _located(skewer, quarters), 20_000, (1.0, 4.0)),
        ("heaped response", quantile, _heaped, 20_000, (1.0, 4.0)),
        ("Huber, exponential", huber, _located(skew, _huber_centre), 10_000, (1.0, 4.0)),
        ("Huber, log-normal", huber, _located(skewer, _huber_centre), 10_000, (1.0, 4.0)),
        ("Huber, uneven humps", huber, _located(_uneven_humps, _huber_centre), 10_000, (1.0,)),
        ("Huber, uneven humps", huber, _located(_uneven_humps, _huber_centre), 20_000, (0.7, 4.0)),
        ("scale said half", pgbb.Mean("y", scale=0.5), _column(normal, 1.5), 2_000, (1.0, 4.0)),
        ("scale said a quarter", pgbb.Mean("y", scale=0.25), _column(normal, 1.5), 2_000, (1.0, 4.0)),
        ("scale said double", pgbb.Mean("y", scale=2.0), _column(normal, 1.5), 2_000, (1.0, 4.0)),
        ("skewed mean", pgbb.Mean("y", scale=0.5), _column(skew, 1.0), 2_000, (1.0, 4.0)),
        ("skewed mean", pgbb.Mean("y", scale=0.5), _column(skew, 1.0), 20_000, (1.0, 4.0)),
        ("far out and bent", pgbb.QuantileRegression("y ~ far", taus=[0.25, 0.5, 0.75]), _bent, 20_000, (1.0, 4.0)),
        *_designs(),
    ]  # fmt: skip
    print(f"{'':42}{'coverage':>9}{'least':>7}{'MAE':>9}{'width':>9}{'marked':>8}{'noted':>7}")
    for name, model, draw, n, budgets in cells:
        if only and not any(name.startswith(o) for o in only):
            continue
        for epsilon in budgets:
            found, marks, notes = [], [], []
            for r in range(runs):
                frame, truth = draw(np.random.default_rng(r), n)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", pgbb.PgbbWarning)
                    release = pgbb.fit(
                        model, frame, schema=HOSTILE_SCHEMA, epsilon=epsilon, delta=1 / n, insecure_seed=r
                    )
                    taus = release.grid() or [None]
                    tables = [release.summary(tau=t, draws=10) for t in taus]
                marks.append([~t["identified"].to_numpy(bool)[: truth.shape[1]] for t in tables])
                notes.append(any("(±" in note for note in release.certificate.notes))
                one = len(taus) == 1
                draws = release.sample(2000, seed=r).to_numpy()[:, None] if one else all_draws(release, r)
                found.append(score(draws[:, :, : truth.shape[1]], truth))
            mae, coverage, width = (np.array([f[i] for f in found], float) for i in range(3))
            hidden = np.array(marks)
            shown, error, length = (np.where(hidden, np.nan, v) for v in (coverage, mae, width))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # where all are marked
                each = np.nanmean(shown, axis=0)
                print(
                    f"{name:22} n = {n:6,} ε = {epsilon:<5g}{np.nanmean(shown):9.3f}{np.nanmin(each):7.2f}"
                    f"{np.nanmean(error):9.4f}{np.nanmean(length):9.4f}"
                    f"{hidden.mean():8.3f}{np.mean(notes):7.2f}",
                    flush=True,
                )


def census(runs: int = 20) -> None:
    from reproduction.references.quantile import exact_quantile, multiplier_bootstrap

    model = pgbb.QuantileRegression(PROCESS_FORMULA, taus=TAUS)
    unit = np.array([100.0, 1.0, 1.0])
    for year in (1980, 2000):
        frame = census_frame(year)
        n = len(frame)
        x = np.column_stack([np.ones(n), frame[["educ", "exper", "black"]]])
        truth = np.stack([exact_quantile(x, frame["logwk"], t) for t in TAUS])[:, 1:] * unit
        boot = [multiplier_bootstrap(x, frame["logwk"], t, 0.05, 200, 0) for t in TAUS]
        free = np.mean([np.diff(np.quantile(b, [0.025, 0.975], axis=0), axis=0)[0] for b in boot], axis=0)[1:] * unit
        for epsilon in (1.0, 4.0):
            begin, found = time.perf_counter(), []
            for r in range(runs):
                release = pgbb.fit(
                    model,
                    frame,
                    schema=PROCESS_SCHEMA,
                    epsilon=epsilon,
                    delta=1 / n,
                    method="calibrated",
                    insecure_seed=r,
                )
                found.append(score(_levels(release, r)[:, :, 1:] * unit, truth))
            mae, coverage, width = (np.mean([f[i] for f in found], axis=(0, 1)) for i in range(3))
            each = (time.perf_counter() - begin) / runs
            names = ("educ", "exper", "black")
            printed = [lookup("census", year=year, variable=v, method="PGBB", epsilon=epsilon) for v in names]
            print(f"census {year}, ε = {epsilon:g}, {runs} runs, {each:.1f} s each")
            for j, name in enumerate(("educ %/yr", "exper", "black")):
                print(
                    f"   {name:10} MAE {mae[j]:.4f} ({printed[j]['mae']:g})  coverage {coverage[j]:.2f}  "
                    f"width {width[j]:.4f} ({printed[j]['width']:g})  non-private width {free[j]:.4f}",
                    flush=True,
                )


NATALITY_SCHEMA = pgbb.Schema(
    weight=pgbb.Range(0.2, 8.0), AGE_s=pgbb.Range(-9, 18), CIGAR_s=pgbb.Range(0, 60), WTGAIN_s=pgbb.Range(-30, 68),
    **dict.fromkeys(("BLACK", "MARRIED", "BOY", "NOSMOKE", "NOVISIT", "NATAL2", "NATAL3", "HSGRAD", "SOMECOLL",
                     "COLLGRAD"), pgbb.Flag()),
)  # fmt: skip
NATALITY_NAMES = ("BLACK", "MARRIED", "BOY", "AGE_s", "HSGRAD", "SOMECOLL", "COLLGRAD", "NATAL2", "NATAL3", "NOVISIT",
                  "NOSMOKE", "CIGAR_s", "WTGAIN_s")  # fmt: skip


def natality_frame() -> pd.DataFrame:
    """The 1997 sample with the paper's thirteen covariates, weight in kg; bounds follow from the study's design."""
    raw = pd.read_parquet(data_file("bweight_1997_sashelp.parquet"))
    return pd.DataFrame({
        "weight": raw.Weight / 1000, "BLACK": raw.Black, "MARRIED": raw.Married, "BOY": raw.Boy, "AGE_s": raw.MomAge,
        "HSGRAD": (raw.MomEdLevel == 0) * 1, "SOMECOLL": (raw.MomEdLevel == 1) * 1,
        "COLLGRAD": (raw.MomEdLevel == 2) * 1, "NATAL2": (raw.Visit == 1) * 1, "NATAL3": (raw.Visit == 2) * 1,
        "NOVISIT": (raw.Visit == 0) * 1, "NOSMOKE": 1 - raw.MomSmoke, "CIGAR_s": raw.CigsPerDay,
        "WTGAIN_s": raw.MomWtGain,
    })  # fmt: skip


def natality(runs: int = 20, chains: int = 1) -> None:
    """n = 50,000 births of 1997, not the paper's 2024 file: no replication; in grams.

    DP-SGLD has the paper's settings; the unit of its response matters, and kilograms are near the census study's.
    """
    from reproduction.references.quantile import exact_quantile

    frame = natality_frame()
    n, epsilon = len(frame), 4.0
    model = pgbb.QuantileRegression("weight ~ " + " + ".join(NATALITY_NAMES), taus=TAUS, bandwidth=0.05)
    x = np.column_stack([np.ones(n), frame[list(NATALITY_NAMES)]])
    truth = np.stack([exact_quantile(x, frame["weight"], t) for t in TAUS])[:, 1:] * 1000
    found, others, marks, begin = [], [], [], time.perf_counter()
    for r in range(runs):
        release = pgbb.fit(
            model, frame, schema=NATALITY_SCHEMA, epsilon=epsilon, delta=1 / n, method="calibrated", insecure_seed=r
        )
        marks.append([~release.summary(tau=t)["identified"].to_numpy(bool)[1:] for t in TAUS])
        found.append(score(_levels(release, r)[:, :, 1:] * 1000, truth))
    each = (time.perf_counter() - begin) / runs
    for r in range(chains):
        release = pgbb.fit(
            model, frame, schema=NATALITY_SCHEMA, epsilon=epsilon, delta=1 / n, method="sgld", accountant="paper",
            steps=200_000, sampling_rate=0.01, thin=10, insecure_seed=r,
        )  # fmt: skip
        others.append(score(_levels(release, r)[:, :, 1:] * 1000, truth))
        print(f"DP-SGLD: least effective sample size {np.min(release.stored_diagnostics['effective_sample_size']):.0f}")
    mae, coverage, width = (np.mean([f[i] for f in found], axis=(0, 1)) for i in range(3))
    theirs = [np.mean([f[i] for f in others], axis=(0, 1)) for i in range(3)]
    print(f"natality 1997, n = {n:,}, ε = {epsilon:g}, {runs} runs of {each:.1f} s; DP-SGLD {chains} runs")
    print(f"{'':12}{'MAE':>8}{'coverage':>10}{'width':>9}{'marked':>8}   DP-SGLD MAE, coverage, width")
    for j, name in enumerate(NATALITY_NAMES):
        print(f"{name:12}{mae[j]:8.2f}{coverage[j]:10.2f}{width[j]:9.1f}{np.mean(marks, axis=(0, 1))[j]:8.2f}   "
              f"{theirs[0][j]:8.2f}{theirs[1][j]:8.2f}{theirs[2][j]:9.1f}")  # fmt: skip
    print(f"mean coverage {coverage.mean():.3f}; narrower than DP-SGLD for {int((width < theirs[2]).sum())} of 13")


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["linear"]
    chosen = {
        "linear": linear,
        "families": families,
        "process": process,
        "logistic": logistic,
        "births": births,
        "hostile": hostile,
        "census": census,
        "natality": natality,
    }
    chosen[command](*(int(r) if r.isdigit() else r for r in rest))
