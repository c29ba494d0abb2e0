"""Intervals of a method on real public files: coverage, marks and width against a floor.

    python benchmarks/real.py faults [F1 F7 …]     the cells in which faults were seen
    python benchmarks/real.py grid [MODEL …]       every model of the development files; names may end in *
    python benchmarks/real.py grid --hold-out      the other half of the files: to be run once, at the end
    python benchmarks/real.py grid --fresh         files that nobody had looked at: run before a change, and after it
    python benchmarks/real.py report [MODEL …]     tables of all that has been run
    options: --replicates 100 --jobs 2 --folder results/real --n 1000,3000 --epsilon 1 (both: all pairs of them)
             --method pgbb: another method, on the same samples; models that it does not serve are left out

A file is a population: fits see samples from it with replacement, and are judged by the estimate of the whole file,
which is exact (quantile regression by an interior-point method, without smoothing). A line is written a fit; running
again goes on where it stopped. Each process computes on one core.

The sampling error of a coefficient is the standard deviation of non-private fits to samples of 5,000, scaled to n. The
floor is one Gaussian answer with the whole budget: a gradient in the coordinates that suit the coefficient best, among
ellipsoids that hold 99.9 % of the records; v = (2Rb/(nμ))² H⁻¹H⁻¹ there, with b the largest score (for a mean, Rb is
the largest |y − mean| of 99.9 % of the records; for least squares the ellipsoids hold 99.9 % of the scores). H is the
curvature of the whole file (for a quantile, over the gap between the quantiles τ ± .02 of its residuals). δ is 1e-6.
"""

import argparse
import fnmatch
import json
import multiprocessing
import os
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from real_files import FILES, MODELS, Case, held_out, population
from scipy.optimize import brentq
from scipy.special import expit, ndtr
from scipy.stats import binom

import pgbb
from pgbb.methods.registry import METHODS
from pgbb.planning.forecast import Reference, forecast

Floats = NDArray[np.float64]
DELTA = 1e-6
Z = 1.959963984540054
REFITS, REFIT_SIZE = 60, 5_000  # non-private fits for the sampling error
C, KAPPA = 1.345, 0.71  # of HuberRegression
LADDER = [(1_000, 1.0), (3_000, 1.0), (10_000, 0.5), (10_000, 1.0), (10_000, 4.0), (30_000, 1.0), (100_000, 1.0)]

# name of a fault: (model, n, ε, ranges ten times too wide)
FAULTS: dict[str, list[tuple[str, int, float, bool]]] = {
    "F1": [("food.q", 20_000, 1.0, False), ("food.h", 20_000, 1.0, False), ("loans.l", 20_000, 1.0, False)],
    "F2": [("cps.mean", 20_000, 1.0, False), ("cps.tens", 20_000, 1.0, False)],
    "F3": [("births.rare", 30_000, 4.0, False), ("births.rare", 100_000, 1.0, False)],
    "F4": [("flights.q", 30_000, 1.0, False), ("flights.q", 30_000, 4.0, False), ("cps.dollars", 30_000, 1.0, False)],
    "F5": [("drinks.q", 30_000, 1.0, False), ("weeks.q", 10_000, 4.0, False),
           ("drinks.step", 30_000, 1.0, False), ("weeks.step", 10_000, 4.0, False)],
    "F6": [("cps.h6", 30_000, 1.0, False), ("cps.q6", 30_000, 1.0, False)],
    "F7": [("cps.q", 10_000, 1.0, False), ("cps.q", 20_000, 1.0, False), ("births.h", 10_000, 1.0, False),
           ("census80.q", 3_000, 1.0, False), ("smoke.l", 10_000, 1.0, False)],
    "F8": [("census00.h", 10_000, 1.0, False), ("births.heavy", 10_000, 1.0, False),
           ("food.absent", 100_000, 4.0, False), ("cps.q", 30_000, 1.0, True)],
    "F9": [("cps.median", 20_000, 1.0, False)],
    "F10": [("visits.line", 20_000, 1.0, False)],
}  # fmt: skip


# --- exact fits -------------------------------------------------------------------------------------------------


def design(case: Case, frame: pd.DataFrame) -> tuple[Floats, Floats, list[str]]:
    """The design matrix and the response in the user's units, by formulaic and not by the code that is judged."""
    if case.kind == "mean":
        return np.ones((len(frame), 1)), frame[case.formula].to_numpy(float), [f"mean({case.formula})"]
    from formulaic import model_matrix

    schema = case.declared()
    coded = {
        name: pd.Categorical(frame[name], categories=list(column.levels))
        for name, column in schema.items()
        if isinstance(column, pgbb.Levels)
    }
    response, right = case.formula.split("~")
    matrix = model_matrix(right.strip(), frame.assign(**coded))
    return matrix.to_numpy(float), frame[response.strip()].to_numpy(float), list(matrix.columns)


def whitener(x: Floats) -> Floats:
    """F with E uuᵀ = I for u = xF, over the directions that vary; (p, rank)."""
    scale = np.sqrt(np.mean(x**2, axis=0))
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh((x / scale).T @ (x / scale) / len(x))
    kept = values > 1e-9 * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None]


def quantile_fit(u: Floats, y: Floats, tau: float) -> Floats:
    """Quantile regression by the predictor-corrector interior-point method of Portnoy and Koenker (1997)."""
    n = len(y)
    scale = max(float(np.std(y)), 1e-12)
    c, a = -(y - y.mean()) / scale, u
    primal = np.full(n, 1 - tau)
    slack = 1.0 - primal
    dual = np.linalg.lstsq(a, c, rcond=None)[0]
    r = c - a @ dual
    r[r == 0] = 1e-3
    z, w = np.maximum(r, 0.0) + 1e-3, np.maximum(-r, 0.0) + 1e-3
    right = (1 - tau) * a.sum(axis=0)

    def room(v: Floats, dv: Floats) -> float:
        down = dv < 0
        return float(np.min(-v[down] / dv[down])) if down.any() else 1e20

    for _ in range(80):
        gap = float(c @ primal - dual @ right + w.sum())
        if gap < 1e-8 * n:
            break
        q = 1 / (z / primal + w / slack)
        r = z - w
        gram, rhs = (a * q[:, None]).T @ a, a.T @ (q * r)
        gram[np.diag_indices(len(gram))] *= 1 + 1e-12
        dy = np.linalg.solve(gram, rhs)
        dx = q * (a @ dy - r)
        dz, dw = -z * (1 + dx / primal), -w * (1 - dx / slack)
        fp = min(0.99995 * min(room(primal, dx), room(slack, -dx)), 1.0)
        fd = min(0.99995 * min(room(z, dz), room(w, dw)), 1.0)
        if min(fp, fd) < 1:
            mu = float(z @ primal + w @ slack)
            g = float((z + fd * dz) @ (primal + fp * dx) + (w + fd * dw) @ (slack - fp * dx))
            mu = mu * (g / mu) ** 3 / (2 * n)
            dxdz, dsdw = dx * dz / primal, -dx * dw / slack
            xi = mu * (1 / primal - 1 / slack)
            dy = np.linalg.solve(gram, rhs + a.T @ (q * (dxdz - dsdw - xi)))
            dx = q * (a @ dy + xi - r - dxdz + dsdw)
            dz = mu / primal - z - z * dx / primal - dxdz
            dw = mu / slack - w + w * dx / slack - dsdw
            fp = min(0.99995 * min(room(primal, dx), room(slack, -dx)), 1.0)
            fd = min(0.99995 * min(room(z, dz), room(w, dw)), 1.0)
        primal, slack = primal + fp * dx, slack - fp * dx
        dual, z, w = dual + fd * dy, z + fd * dz, w + fd * dw
    beta = -dual * scale
    beta += y.mean() * np.linalg.lstsq(u, np.ones(n), rcond=None)[0]
    return beta


def huber_fit(u: Floats, y: Floats) -> Floats:
    """(β, σ_H) by weighted least squares and the equation of the scale in turn."""
    beta = np.linalg.lstsq(u, y, rcond=None)[0]
    sigma = 1.0
    for _ in range(300):
        r = np.abs(y - u @ beta)
        at = np.median(r) + 1e-12
        for _ in range(60):
            at = at * np.sqrt(np.mean(np.minimum((r / at) ** 2, C**2)) / KAPPA)
        weight = np.minimum(1.0, C * at / np.maximum(r, 1e-300))
        new = np.linalg.solve((u * weight[:, None]).T @ u, u.T @ (weight * y))
        moved = max(np.max(np.abs(new - beta)) / at, abs(at / sigma - 1))
        beta, sigma = new, float(at)
        if moved < 1e-8:
            break
    return np.append(beta, sigma)


def logistic_fit(u: Floats, y: Floats) -> Floats:
    """Newton steps; a ridge of a millionth of a record keeps separated data finite."""
    beta = np.zeros(u.shape[1])
    for _ in range(60):
        p = expit(u @ beta)
        step = np.linalg.solve((u * (p * (1 - p))[:, None]).T @ u + 1e-6 * np.eye(len(beta)), u.T @ (y - p))
        beta = beta + step / max(1.0, np.max(np.abs(step)) / 4)
        if np.max(np.abs(step)) < 1e-10:
            break
    return beta


def poisson_fit(u: Floats, y: Floats) -> Floats:
    """Newton steps from the level of the mean; a ridge of a millionth of a record."""
    beta = np.log(max(y.mean(), 1e-3)) * np.linalg.lstsq(u, np.ones(len(u)), rcond=None)[0]
    for _ in range(60):
        mean = np.exp(np.minimum(u @ beta, 30.0))
        step = np.linalg.solve((u * mean[:, None]).T @ u + 1e-6 * np.eye(len(beta)), u.T @ (y - mean))
        beta = beta + step / max(1.0, np.max(np.abs(u @ step)) / 2)
        if np.max(np.abs(step)) < 1e-10:
            break
    return beta


def expectile_fit(u: Floats, y: Floats, tau: float) -> Floats:
    """Least squares again and again, with the weights of the last line."""
    weight = np.ones(len(y))
    for _ in range(100):
        beta = np.linalg.solve((u * weight[:, None]).T @ u, u.T @ (weight * y))
        new = np.where(y > u @ beta, tau, 1 - tau)
        if (new == weight).all():
            break
        weight = new
    return beta


def exact(case: Case, x: Floats, y: Floats) -> Floats:
    """(levels or 1, coefficients) in the user's units; no value for a column that is constant at zero."""
    frame = whitener(x)
    u = x @ frame

    def back(beta: Floats) -> Floats:
        out = frame @ beta
        out[~x.any(axis=0)] = np.nan
        return out

    if case.kind == "quantile":
        around = spread_out(case)
        u, y = np.tile(u, (len(around), 1)), np.concatenate([y + shift for shift in around])
        return np.stack([back(quantile_fit(u, y, tau)) for tau in case.taus])
    if case.kind == "huber":
        beta = huber_fit(u, y)
        return np.append(back(beta[:-1]), beta[-1])[None]
    if case.kind == "linear":
        return back(np.linalg.lstsq(u, y, rcond=None)[0])[None]
    if case.kind == "logistic":
        return back(logistic_fit(u, y))[None]
    if case.kind == "poisson":
        return back(poisson_fit(u, y))[None]
    if case.kind == "expectile":
        return back(expectile_fit(u, y, case.tau))[None]
    return np.array([[y.mean()]])


def spread_out(case: Case) -> Floats:
    """Where a response with a declared step lies, around its value."""
    declared = FILES[case.file].schema | dict(case.schema)
    step = getattr(declared.get(case.formula.split("~")[0].strip()), "step", None)
    return np.zeros(1) if step is None else step * ((np.arange(16) + 0.5) / 16 - 0.5)


def floors(case: Case, x: Floats, y: Floats, truth: Floats) -> Floats:
    """√diag of b² H⁻¹AH⁻¹ for each level, in the user's units; times 2/(nμ) it is the floor's standard deviation."""
    if case.kind == "mean":
        return np.array([[np.quantile(np.abs(y - y.mean()), 0.999)]])
    frame = whitener(x)
    u = x @ frame
    shapes = list(ellipsoids(u[np.random.default_rng(0).permutation(len(u))[:20_000]]))
    rows = []
    for j, theta in enumerate(truth):
        line = x @ np.nan_to_num(theta[: x.shape[1]])
        r = y - line
        if case.kind == "quantile":
            tau = case.taus[j]
            r = r + np.random.default_rng(0).choice(spread_out(case), len(r))
            low, high = np.quantile(r, [max(tau - 0.02, 0.0), min(tau + 0.02, 1.0)])
            width = max((high - low) / 2, 1e-3 * float(np.std(r)))
            curvature = (u * (np.abs(r) < width)[:, None]).T @ u / len(u) / (2 * width)
            bound = max(tau, 1 - tau)
        elif case.kind in ("poisson", "expectile"):
            if case.kind == "poisson":
                weight, factor = np.exp(line), 1.0
                r = y - weight
            else:
                weight = factor = np.where(r > 0, case.tau, 1 - case.tau)
            curvature, bound = (u * weight[:, None]).T @ u / len(u), 1.0
            rows_of = np.random.default_rng(0).permutation(len(u))[:20_000]
            shapes = list(ellipsoids((u * (factor * r)[:, None])[rows_of]))
        elif case.kind == "linear":
            curvature, bound = u.T @ u / len(u), 1.0
            rows_of = np.random.default_rng(0).permutation(len(u))[:20_000]
            shapes = list(ellipsoids((u * r[:, None])[rows_of]))
        elif case.kind == "logistic":
            p = expit(line)
            curvature, bound = (u * (p * (1 - p))[:, None]).T @ u / len(u), 1.0
        else:
            inside = np.abs(r / theta[-1]) < C
            v = np.column_stack([u, r / theta[-1]]) * inside[:, None]
            curvature = v.T @ v / len(u) / theta[-1]
            bound = C
        back, balls = frame, shapes
        if case.kind == "huber":
            back = np.zeros((len(theta), len(curvature)))
            back[:-1, :-1], back[-1, -1] = frame, 1.0
            balls = [np.pad(a, (0, 1)) + np.diag([0.0] * len(a) + [((C**2 - KAPPA) / 2 / C) ** 2]) for a in shapes]
        line = back @ np.linalg.pinv(curvature)
        rows.append(bound * np.sqrt(np.min([np.sum((line @ a) * line, axis=1) for a in balls], axis=0)))
    return np.stack(rows)


def ellipsoids(u: Floats) -> Iterator[Floats]:
    """Matrices A with uᵀA⁻¹u ≤ 1 for 99.9 % of the records: from a multiple of E uuᵀ to the one of least volume."""
    weight = np.full(len(u), 1 / len(u))
    for _ in range(48):
        moment = (u * weight[:, None]).T @ u
        distance = np.sum(np.linalg.solve(moment, u.T).T * u, axis=1)
        yield float(np.quantile(distance, 0.999)) * moment
        weight = weight * distance / u.shape[1]


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The μ of Gaussian differential privacy at (ε, δ)."""

    def excess(mu: float) -> float:
        return float(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)) - delta

    return float(brentq(excess, 1e-3, 50.0))


def facts(name: str, folder: Path) -> dict[str, Any]:
    """What is known of the population: truth, √n × sampling error and floor × nμ/2; kept in the folder."""
    path = folder / "population" / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text())
    case = MODELS[name]
    frame = population(case.file)
    x, y, names = design(case, frame)
    truth = exact(case, x, y)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    refits = []
    for _ in range(REFITS):
        rows = rng.integers(len(y), size=REFIT_SIZE)
        refits.append(exact(case, x[rows], y[rows]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a level that never occurs has no estimate
        sampling = np.sqrt(REFIT_SIZE) * np.nanstd(refits, axis=0)
    found = {
        "names": names + (["scale"] if case.kind == "huber" else []),
        "records": len(y),
        "truth": truth.tolist(),
        "sampling": sampling.tolist(),
        "floor": floors(case, x, y, truth).tolist(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(found))
    partial.replace(path)
    return found


# --- private fits -----------------------------------------------------------------------------------------------


def label(model: str, n: int, epsilon: float, wide: bool) -> str:
    return f"{model}-n{n}-eps{epsilon:g}" + ("-lazy" if wide else "")


def named(cell: str, method: str) -> str:
    return cell if method == "calibrated" else f"{cell} {method}"


def one(job: tuple[str, int, float, bool, str, int]) -> dict[str, Any]:
    """One fit: the interval and the mark of every coefficient."""
    model, n, epsilon, wide, method, replicate = job
    case = MODELS[model]
    cell = label(model, n, epsilon, wide)  # the same samples for all methods
    frame = population(case.file)
    rng = np.random.default_rng([zlib.crc32(cell.encode()), replicate])
    rows = frame.iloc[rng.integers(len(frame), size=n)].reset_index(drop=True)[case.used()]
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        release = pgbb.fit(
            case.model(), rows, schema=case.declared(wide=wide), epsilon=epsilon, delta=DELTA, method=method,
            insecure_seed=replicate,
        )  # fmt: skip
        tables = [release.summary(tau=t) for t in case.taus] or [release.summary()]
    return {
        "cell": named(cell, method), "model": model, "n": n, "epsilon": epsilon, "lazy": wide, "replicate": replicate,
        "mean": [t["mean"].tolist() for t in tables], "low": [t["lower"].tolist() for t in tables],
        "high": [t["upper"].tolist() for t in tables], "identified": [t["identified"].tolist() for t in tables],
        "seconds": round(time.perf_counter() - begin, 3),
    }  # fmt: skip


def read(folder: Path, model: str) -> list[dict[str, Any]]:
    path = folder / "fits" / f"{model}.jsonl"
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def run(
    cells: Iterable[tuple[str, int, float, bool]], replicates: int, jobs: int, folder: Path, method: str = "calibrated"
) -> None:
    """All missing replicates of the cells, then their table."""
    cells = [c for c in dict.fromkeys(cells) if MODELS[c[0]].kind in METHODS[method].serves]
    models = list(dict.fromkeys(c[0] for c in cells))
    (folder / "fits").mkdir(parents=True, exist_ok=True)
    done = {(f["cell"], f["replicate"]) for model in models for f in read(folder, model)}
    todo = [(*c, method, r) for c in cells for r in range(replicates) if (named(label(*c), method), r) not in done]
    for name, value in {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}.items():
        os.environ.setdefault(name, value)  # read by the processes that start below
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, maxtasksperchild=400) as pool:
        pool.starmap(facts, [(model, folder) for model in models], chunksize=1)
        for fit in pool.imap_unordered(one, todo, chunksize=replicates):  # a cell is compiled by few processes
            with (folder / "fits" / f"{fit['model']}.jsonl").open("a") as file:
                file.write(json.dumps(fit) + "\n")
    report(folder, models, {named(label(*c), method) for c in cells})


# --- tables -----------------------------------------------------------------------------------------------------


def measure(fits: list[dict[str, Any]], known: dict[str, Any]) -> dict[str, Any]:
    """Coverage, marks and widths of one cell; a coefficient without a true value (an absent level) does not count."""
    truth, sampling, floor = (np.array(known[k], float) for k in ("truth", "sampling", "floor"))
    n, epsilon = fits[0]["n"], fits[0]["epsilon"]
    sampling, floor = sampling / np.sqrt(n), floor * 2 / (n * gaussian_mu(epsilon, DELTA))
    low, high, free = (np.array([f[k] for f in fits]) for k in ("low", "high", "identified"))
    exists = np.isfinite(truth)
    seen = free.astype(bool) & exists
    slack = 1e-9 * np.maximum(np.abs(truth), 1e-300)
    covers = (low - slack <= truth) & (truth <= high + slack)
    width = (high - low) / (2 * Z)
    times, covered = seen.sum(axis=0), (covers & seen).sum(axis=0)
    share = covered / np.maximum(times, 1)
    judged = times >= min(20, len(fits))
    silent = judged & (share < 0.88)
    chance = binom.cdf(np.ceil(0.88 * times) - 1, times, 0.95)
    plain = _nanmedian(np.where(seen, width, np.nan))
    levels = known.get("taus") or [None] * len(truth)
    names = known["names"]
    worst = [
        f"{names[k]}{'' if levels[j] is None else f'@{levels[j]:g}'} {share[j, k]:.2f}"
        for j, k in zip(*np.nonzero(silent), strict=True)
    ]
    marked = ~free.astype(bool) & exists
    each = marked.sum(axis=(1, 2)) / max(exists.sum(), 1)
    easy = exists & (floor <= 2 * sampling)
    smooth = not known.get("heaped")  # a quantile of few values has no density, hence no floor
    return {
        "fits": len(fits),
        "coverage": float((covers & seen).sum() / max(seen.sum(), 1)) if seen.any() else None,
        "marked": float(each.mean()),
        "marked_sd": float(each.std() / np.sqrt(len(fits))),
        "marked_easy": float(marked[:, easy].mean()) if smooth and easy.any() else None,
        "marked_coverage": float((covers & marked).sum() / marked.sum()) if marked.any() else None,
        "width": _mean(plain / sampling),
        "floor": _mean(np.hypot(sampling, floor) / sampling) if smooth else None,
        "ratio": _mean(plain / np.hypot(sampling, floor)) if smooth else None,
        "silent": worst,
        "judged": int(judged.sum()),
        "by_chance": float(chance[judged].sum()),
        "seconds": float(np.median([f["seconds"] for f in fits])),
    }


def planned(case: Case, fits: list[dict[str, Any]], known: dict[str, Any]) -> tuple[float, float]:
    """What `pgbb plan` says: width in sampling errors, of all coefficients, and the chance that one is identified."""
    kind: Any = case.kind
    terms = len(known["names"]) - (kind == "huber")
    rate = 0.5  # of ones: who plans knows it roughly
    if kind == "logistic":
        rate = float(population(case.file)[case.formula.split("~")[0].strip()].mean())
    reference = Reference(kind, terms, levels=case.taus or (0.5,), rate=rate)
    told = forecast(fits[0]["n"], fits[0]["epsilon"], DELTA, reference)
    return float(np.exp(np.mean([np.log(w.total / w.sampling) for w in told.widths]))), told.identified["column"]


def _nanmedian(values: Floats) -> Floats:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmedian(values, axis=0)


def _mean(values: Floats) -> float | None:
    """Geometric mean over coefficients that have a value."""
    good = values[np.isfinite(values) & (values > 0)]
    return float(np.exp(np.mean(np.log(good)))) if len(good) else None


def rising(marks: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Pairs of cells of which the one with more records, or a larger budget, has more marks, beyond two deviations."""
    found = []
    for less, a, few in marks:
        for more, b, many in marks:
            same = a["model"] == b["model"] and a["lazy"] == b["lazy"] and less != more
            up = same and a["n"] <= b["n"] and a["epsilon"] <= b["epsilon"]
            if up and many["marked"] - few["marked"] > 2 * np.hypot(few["marked_sd"], many["marked_sd"]):
                found.append(f"{less} {few['marked']:.2f} to {more} {many['marked']:.2f}")
    return found


def report(folder: Path, models: Iterable[str], cells: set[str] | None = None) -> None:
    """One line a cell; then the silent misses, a line a file, and what is marked too often or not as planned."""

    def shown(value: float | None, digits: int = 2) -> str:
        return "–" if value is None else f"{value:.{digits}f}"

    print(
        f"{'cell':38}{'fits':>5}{'cov':>6}{'marked':>8}{'cov.m':>7}{'width':>8}{'floor':>7}{'ratio':>7}{'s':>7}  silent"
    )
    by_file: dict[str, list[float]] = {}
    total, close, likely = np.zeros(3), [], []
    marks: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    missed: list[str] = []
    for model in models:
        fits = read(folder, model)
        known = (
            facts(model, folder) | {"taus": list(MODELS[model].taus), "heaped": MODELS[model].heaped} if fits else {}
        )
        for cell in dict.fromkeys(f["cell"] for f in fits):
            if cells is not None and cell not in cells:
                continue
            own = [f for f in fits if f["cell"] == cell]
            m = measure(own, known)
            if " " not in cell:  # of the default method
                width, chance = planned(MODELS[model], own, known)
                marks.append((cell, own[0], m))
                if not known["heaped"]:  # a plan is for a response without heaps
                    likely.append(abs(1 - m["marked"] - chance) <= 0.1)
                    if not likely[-1]:
                        missed.append(f"{cell} {1 - m['marked']:.2f} (chance {chance:.2f})")
                if m["width"] is not None and m["floor"] is not None:
                    close.append(abs(np.log(m["width"] / width)) <= np.log(1.2))
                    if not close[-1]:
                        missed.append(f"{cell} {m['width']:.2f} (width {width:.2f})")
            total += len(m["silent"]), m["judged"], m["by_chance"]
            if m["coverage"] is not None:
                by_file.setdefault(MODELS[model].file, []).append(m["coverage"])
            print(f"{cell:38}{m['fits']:5}{shown(m['coverage']):>6}{shown(m['marked']):>8}{shown(m['marked_coverage']):>7}"
                  f"{shown(m['width']):>8}{shown(m['floor']):>7}{shown(m['ratio']):>7}{shown(m['seconds'], 1):>7}"
                  f"  {'; '.join(m['silent'][:4])}{' …' if len(m['silent']) > 4 else ''}", flush=True)  # fmt: skip
    print(f"\nsilent misses: {total[0]:.0f} of {total[1]:.0f} coefficients; if all were covered .95, chance would make "
          f"{total[2]:.0f}")  # fmt: skip
    print("mean coverage of unmarked coefficients by file: "
          + ", ".join(f"{f} {np.mean(v):.2f}" for f, v in sorted(by_file.items())))  # fmt: skip
    if likely:
        print(f"plan against fits: widths within 20 % in {sum(close)} of {len(close)} cells, "
              f"chance of identification within .1 in {sum(likely)} of {len(likely)}")  # fmt: skip
        print(f"not as planned: {'; '.join(missed) or 'none'}")
        easy = [(cell, m["marked_easy"]) for cell, _, m in marks if m["marked_easy"] is not None]
        often = [f"{cell} {share:.2f}" for cell, share in easy if share > 0.05]
        print(f"marked above .05 where the floor's privacy sd is at most twice the sampling sd: {len(often)} of "
              f"{len(easy)} cells: {'; '.join(often) or 'none'}")  # fmt: skip
        print(f"marks that rise with records or budget: {'; '.join(rising(marks)) or 'none'}")


def chosen(patterns: list[str], which: str) -> Iterator[str]:
    """Models of one set of the files that match a pattern."""
    for name, case in MODELS.items():
        if set_of(case.file) == which and any(fnmatch.fnmatch(name, p) for p in patterns or ["*"]):
            yield name


def set_of(file: str) -> str:
    """Which set of files it belongs to."""
    return "fresh" if FILES[file].fresh else "hold-out" if file in held_out() else "development"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["faults", "grid", "report", "files"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("results/real"))
    parser.add_argument("--n", type=lambda s: {int(v) for v in s.split(",")}, default=None)
    parser.add_argument("--epsilon", type=lambda s: {float(v) for v in s.split(",")}, default=None)
    for which in ("hold-out", "fresh"):
        parser.add_argument(f"--{which}", dest="which", action="store_const", const=which, default="development")
    parser.add_argument("--method", choices=sorted(METHODS), default="calibrated")
    a = parser.parse_args()
    if a.command == "files":
        for name, file in FILES.items():
            print(f"{name:12}{len(population(name)):9,}  {set_of(name):12} {file.about}")
    elif a.command == "faults":
        run([c for f in a.names or FAULTS for c in FAULTS[f]], a.replicates, a.jobs, a.folder, a.method)
    elif a.command == "report":
        report(a.folder, [m for m in MODELS if any(fnmatch.fnmatch(m, p) for p in a.names or ["*"])])
    else:
        ladder = [(n, e) for n, e in LADDER if (not a.n or n in a.n) and (not a.epsilon or e in a.epsilon)]
        if a.n and a.epsilon:
            ladder = [(n, e) for n in sorted(a.n) for e in sorted(a.epsilon)]
        cells = []
        for model in chosen(a.names, a.which):
            records = len(population(MODELS[model].file))
            cells += [(model, n, e, False) for n, e in ladder if n <= 10 * records]
            if not (a.n and a.epsilon) and (not a.n or 30_000 in a.n) and 10 * records >= 30_000:
                cells.append((model, 30_000, 1.0, True))
        run(cells, a.replicates, a.jobs, a.folder, a.method)


if __name__ == "__main__":
    main()
