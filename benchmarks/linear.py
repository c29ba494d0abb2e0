"""Linear regression on real public files, side by side: the default method, diffprivlib and AdaSSP.

    python benchmarks/linear.py [MODEL …] [--replicates 40] [--n 10000,30000] [--epsilon 1,4]

Files are populations, as in `real.py`, which also has the truth and the floor; names may end in *. Every method sees
the same records and the same declared ranges. "ratio" is the width over √(sampling² + floor²), "least" the coverage of
the worst coefficient, marked or not. MAE is over coefficients, each in units of its own non-private sampling error.
diffprivlib (`pip install --no-deps diffprivlib`) is (ε, 0)-private, AdaSSP (Wang 2018, Algorithm 2) (ε, 1e-6)-private;
neither has intervals.
"""

import argparse
import fnmatch
import sys
import types
import warnings
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from real import DELTA, design, facts, measure, one
from real_files import MODELS, held_out, population

from pgbb.model.formula import Design

Floats = NDArray[np.float64]


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
    """Coefficients by the other two, of the records that `real.one` sees."""
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
    ends = np.array([[t.low for t in terms.terms[1:]], [t.high for t in terms.terms[1:]]])
    model = diffprivlib_model()(epsilon=epsilon, bounds_X=tuple(ends), bounds_y=(low, high), random_state=replicate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[:, 1:], y)
    return found | {"diffprivlib": np.append(model.intercept_, model.coef_)}


def diffprivlib_model() -> type:
    """Its linear regression; its forests do not import with recent versions of scikit-learn, and are not needed."""
    if "diffprivlib.models.forest" not in sys.modules:
        forest = types.ModuleType("diffprivlib.models.forest")
        forest.RandomForestClassifier = forest.DecisionTreeClassifier = None  # type: ignore[attr-defined]
        sys.modules["diffprivlib.models.forest"] = forest
    from diffprivlib.models import LinearRegression

    return LinearRegression


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["*"])
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--n", default="10000,30000")
    parser.add_argument("--epsilon", default="1,4")
    parser.add_argument("--folder", type=Path, default=Path("results/real"))
    options = parser.parse_args()
    linear = [m for m, case in MODELS.items() if case.kind == "linear"]
    chosen = [m for m in linear if any(fnmatch.fnmatch(m, pattern) for pattern in options.models)]
    print(
        f"{'cell':30}{'cov':>6}{'least':>7}{'marked':>8}{'width':>7}{'ratio':>7}{'MAE':>8}{'AdaSSP':>9}{'diffprivlib':>13}"
        f"{'non-private':>13}{'s':>6}"
    )
    total: list[dict[str, float]] = []
    for name in sorted(chosen, key=lambda m: MODELS[m].file in held_out()):
        known = facts(name, options.folder)
        truth, sampling = np.array(known["truth"])[0], np.array(known["sampling"])[0]
        for n in map(int, options.n.split(",")):
            for epsilon in map(float, options.epsilon.split(",")):
                fits = [one((name, n, epsilon, False, r)) for r in range(options.replicates)]
                cell = measure(fits, known)
                unit = sampling / np.sqrt(n)
                errors = {"ours": np.mean([np.abs(f["mean"][0] - truth) / unit for f in fits])}
                others = [competitors(name, n, epsilon, r) for r in range(options.replicates)]
                for method in others[0]:
                    errors[method] = np.mean([np.abs(o[method] - truth) / unit for o in others])
                inside = [np.array(f["low"][0]) <= truth for f in fits], [np.array(f["high"][0]) >= truth for f in fits]
                least = np.mean(np.logical_and(*inside), axis=0).min()
                best = min(errors["AdaSSP"], errors["diffprivlib"])
                total.append({"covers": cell["coverage"] or np.nan, "half": errors["ours"] <= best / 2,
                              "ratio": cell["ratio"] or np.nan, "silent": len(cell["silent"])})  # fmt: skip
                held = " (held out)" if MODELS[name].file in held_out() else ""
                print(
                    f"{f'{name} n {n // 1000}k ε {epsilon:g}{held}':30}{cell['coverage'] or np.nan:6.3f}{least:7.2f}"
                    f"{cell['marked']:8.2f}{cell['width'] or np.nan:7.2f}{cell['ratio'] or np.nan:7.2f}"
                    f"{errors['ours']:8.2f}"
                    f"{errors['AdaSSP']:9.1f}{errors['diffprivlib']:13.1f}{np.sqrt(2 / np.pi):13.2f}"
                    f"{cell['seconds']:6.2f}"
                    f"  {' '.join(cell['silent'])}",
                    flush=True,
                )
    means = {key: float(np.nanmean([t[key] for t in total])) for key in total[0]}
    print(
        f"{len(total)} cells, {options.replicates} replicates: mean coverage {means['covers']:.3f}, mean ratio to the "
        f"floor {means['ratio']:.2f}, MAE at most half of the better of the two in {means['half']:.0%} of the cells, "
        f"{sum(t['silent'] for t in total):g} coefficients covered in fewer than .88 of the fits without a mark"
    )


if __name__ == "__main__":
    main()
