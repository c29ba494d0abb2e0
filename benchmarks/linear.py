"""Linear regression on real public files, side by side: the default method and four others at the same budget.

    python benchmarks/linear.py [MODEL …] [--replicates 40] [--n 10000,30000] [--epsilon 1,4] [--jobs 1]

Files are populations, as in `real.py`, which also has the truth and the floor; names may end in *. Every method sees
the same records and the same declared ranges. "ratio" is the width over √(sampling² + floor²), "least" the coverage of
the worst coefficient, marked or not. MAE is over coefficients, each in units of its own non-private sampling error.
diffprivlib (`pip install --no-deps diffprivlib`; left out where it is not installed) is (ε, 0)-private, the others
(ε, 1e-6)-private: AdaSSP (Wang 2018, Algorithm 2), and methods "noisy_gibbs" and "repro" of pgbb, on `SLOW` replicates.
Estimates of the others are kept in the folder.
"""

import argparse
import fnmatch
import importlib.util
import json
import sys
import types
import warnings
import zlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from real import DELTA, design, facts, measure, one
from real_files import MODELS, held_out, population

import pgbb
from pgbb.model.formula import Design

Floats = NDArray[np.float64]
SLOW = 1  # replicates of methods that take seconds
OTHERS = {"AdaSSP": 9, "diffprivlib": 13, "noisy_gibbs": 13, "repro": 8}  # width of a column


def adassp(x: Floats, y: Floats, bound: float, half: float, epsilon: float, rng: np.random.Generator) -> Floats:
    """Adaptive sufficient statistics perturbation, for ‖x‖ ≤ `bound` and |y| ≤ `half`."""
    d, share = x.shape[1], epsilon / 3
    log = np.log(6 / DELTA)
    gram = x.T @ x
    least = (
        np.linalg.eigvalsh(gram)[0] + np.sqrt(log) / share * bound**2 * rng.standard_normal() - log / share * bound**2
    )
    ridge = max(0.0, np.sqrt(d * log * np.log(2 * d**2 / 0.05)) * bound**2 / share - max(least, 0.0))
    noise = np.triu(rng.standard_normal((d, d)))
    noise = noise + np.triu(noise, 1).T
    gram = gram + np.sqrt(log) / share * bound**2 * noise
    cross = x.T @ y + np.sqrt(log) / share * bound * half * rng.standard_normal(d)
    return np.linalg.lstsq(gram + ridge * np.eye(d), cross, rcond=None)[0]


def competitors(name: str, n: int, epsilon: float, replicate: int) -> dict[str, Floats]:
    """Coefficients by the others, of the records that `real.one` sees."""
    case = MODELS[name]
    frame = population(case.file)
    rng = np.random.default_rng([zlib.crc32(f"{name}-n{n}-eps{epsilon:g}".encode()), replicate])
    rows = frame.iloc[rng.integers(len(frame), size=n)].reset_index(drop=True)
    terms = Design.parse(case.formula, case.declared())
    x, y, _ = design(case, rows)
    low, high = terms.response_bounds
    middle, half = (low + high) / 2, (high - low) / 2
    mapped = (x - terms.shift) / terms.scale
    theta = adassp(mapped, y - middle, terms.norm_bound, half, epsilon, rng)
    found = {"AdaSSP": terms.to_original @ theta + middle * np.eye(len(theta))[0]}
    given: dict[str, Any] = {"schema": case.declared(), "epsilon": epsilon, "delta": DELTA, "insecure_seed": replicate}
    for method in ("noisy_gibbs", "repro") if replicate < SLOW else ():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            release = pgbb.fit(pgbb.HuberRegression(case.formula), rows[case.used()], method=method, **given)
        found[method] = release.summary()["mean"].to_numpy()[: len(theta)]
    if importlib.util.find_spec("diffprivlib") is None:
        return found
    ends = np.array([[t.low for t in terms.terms[1:]], [t.high for t in terms.terms[1:]]])
    model = diffprivlib_model()(epsilon=epsilon, bounds_X=tuple(ends), bounds_y=(low, high), random_state=replicate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[:, 1:], y)
    return found | {"diffprivlib": np.append(model.intercept_, model.coef_)}


def kept(name: str, n: int, epsilon: float, replicate: int, folder: Path) -> dict[str, Floats]:
    """`competitors`, kept in the folder: they do not change with the default method."""
    path = folder / "others" / f"{name}-n{n}-eps{epsilon:g}-{replicate}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        found = competitors(name, n, epsilon, replicate)
        path.write_text(json.dumps({method: theta.tolist() for method, theta in found.items()}))
    return {method: np.array(theta) for method, theta in json.loads(path.read_text()).items()}


def diffprivlib_model() -> type:
    """Its linear regression; its forests do not import with recent versions of scikit-learn, and are not needed."""
    if "diffprivlib.models.forest" not in sys.modules:
        forest = types.ModuleType("diffprivlib.models.forest")
        forest.RandomForestClassifier = forest.DecisionTreeClassifier = None  # type: ignore[attr-defined]
        sys.modules["diffprivlib.models.forest"] = forest
    from diffprivlib.models import LinearRegression

    return LinearRegression


def cell(name: str, n: int, epsilon: float, replicates: int, folder: Path) -> tuple[str, dict[str, float]]:
    """Its line of the table, and what the last line counts."""
    known = facts(name, folder)
    truth, unit = np.array(known["truth"])[0], np.array(known["sampling"])[0] / np.sqrt(n)
    fits = [one((name, n, epsilon, False, "calibrated", r)) for r in range(replicates)]
    found, others = measure(fits, known), [kept(name, n, epsilon, r, folder) for r in range(replicates)]
    ours = float(np.mean([np.abs(f["mean"][0] - truth) / unit for f in fits]))
    errors = {
        method: float(np.mean([np.abs(o[method] - truth) / unit for o in others if method in o]))
        for method in OTHERS
        if any(method in o for o in others)
    }
    inside = [(np.array(f["low"][0]) <= truth) & (np.array(f["high"][0]) >= truth) for f in fits]
    held = " (held out)" if MODELS[name].file in held_out() else ""
    shown = "".join(f"{errors[m]:{w}.1f}" if m in errors else f"{'–':>{w}}" for m, w in OTHERS.items())
    line = (
        f"{f'{name} n {n // 1000}k ε {epsilon:g}{held}':34}{found['coverage'] or np.nan:6.3f}"
        f"{np.mean(inside, axis=0).min():7.2f}{found['marked']:8.2f}{found['width'] or np.nan:7.2f}"
        f"{found['ratio'] or np.nan:7.2f}{ours:8.2f}{shown}{np.sqrt(2 / np.pi):13.2f}  {' '.join(found['silent'])}"
    )
    best = min(errors.values())
    return line, {"covers": found["coverage"] or np.nan, "half": ours <= best / 2, "ratio": found["ratio"] or np.nan,
                  "silent": len(found["silent"])}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["*"])
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--n", default="10000,30000")
    parser.add_argument("--epsilon", default="1,4")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("results/real"))
    options = parser.parse_args()
    linear = [m for m, case in MODELS.items() if case.kind == "linear"]
    chosen = [m for m in linear if any(fnmatch.fnmatch(m, pattern) for pattern in options.models)]
    print(
        f"{'cell':34}{'cov':>6}{'least':>7}{'marked':>8}{'width':>7}{'ratio':>7}{'MAE':>8}"
        + "".join(f"{m:>{w}}" for m, w in OTHERS.items())
        + f"{'non-private':>13}"
    )
    total: list[dict[str, float]] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        asked = [
            pool.submit(cell, name, n, epsilon, options.replicates, options.folder)
            for name in sorted(chosen, key=lambda m: MODELS[m].file in held_out())
            for n in map(int, options.n.split(","))
            for epsilon in map(float, options.epsilon.split(","))
        ]
        for line, counted in (f.result() for f in asked):
            print(line, flush=True)
            total.append(counted)
    means = {key: float(np.nanmean([t[key] for t in total])) for key in total[0]}
    print(
        f"{len(total)} cells, {options.replicates} replicates: mean coverage {means['covers']:.3f}, mean ratio to the "
        f"floor {means['ratio']:.2f}, MAE at most half of the best of the others in {means['half']:.0%} of the cells, "
        f"{sum(t['silent'] for t in total):g} coefficients covered in fewer than .88 of the fits without a mark"
    )


if __name__ == "__main__":
    main()
