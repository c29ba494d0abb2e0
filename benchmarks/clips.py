"""What the clip of least squares does to the coefficients of public files, without privacy.

    python benchmarks/clips.py [MODEL …] [--n 10000] [--epsilon 1]

A file is the population (`real.py`). Scores are those of all its records at its own line, in coordinates in which the
design is white, and the clip is the one of the public rule with the exact distribution of lengths. For every file the
two coefficients that it moves most are shown, in units of the sampling error: "moved" is the exact bias of the clipped
equation, "variance" the share of the coefficient's variance that the clip takes off, "noise" the noise that it leaves,
"covariates" the most that a clip moves because of far-out covariates alone: as if all residuals had the usual length
and the same sign. The last lines say what an answer on the direction of what is cut off would tell. δ is 1e-6.
"""

import argparse
import fnmatch
from pathlib import Path

import numpy as np
from real import DELTA, design, facts, whitener
from real_files import MODELS, held_out, population

from pgbb.accountant.calibrate import noise_scale
from pgbb.methods.calibrated.score_clip import EVEN, NEAREST, UNEVEN, loudness
from pgbb.methods.calibrated.stages import composition, questions_for, whole_noise
from pgbb.planning.forecast import Reference


def noises(terms: int, n: int, epsilon: float) -> tuple[float, float]:
    """The noise of the last two gradients together, and of the answer on what is cut off, with a bound of one."""
    stages = questions_for(Reference("linear", terms).problem(), 0, whole_noise(n, epsilon, DELTA), weighted=False)
    sigma = noise_scale(composition(stages, n), epsilon, DELTA, "exact")
    scale = {stage.name: stage.scale * sigma for stage in stages}
    return float(np.hypot(1 / scale["refine"], 1 / scale["final"])) ** -1, scale["tail"]


def study(name: str, n: int, epsilon: float, folder: Path) -> tuple[float, float]:
    """Print its lines. Returns what the clip moves, root mean square over c, and the noise of a direction."""
    case = MODELS[name]
    x, y, names = design(case, population(case.file))
    known = facts(name, folder)
    truth, unit = np.array(known["truth"])[0], np.array(known["sampling"])[0] / np.sqrt(n)
    frame = whitener(x)
    u, residual = x @ frame, y - x @ truth
    score = -u * residual[:, None]
    length, terms = np.linalg.norm(score, axis=1), len(names)
    gradients, direction = noises(terms, n, epsilon)

    def size(bound: float) -> float:
        return float(np.sqrt(np.mean(np.minimum(length, bound) ** 2) / terms))

    bounds = np.geomspace(np.quantile(length, 1 - NEAREST / 2), length.max(), 241)
    sizes = np.array([size(b) for b in bounds])
    uneven = np.clip(sizes / sizes[0] / EVEN, 1.0, UNEVEN)
    loud = loudness(gradients, n)
    place = max(int(np.argmax(np.append(gradients * bounds > loud * uneven * sizes / np.sqrt(n), True))) - 1, 0)
    bound, c = bounds[place], gradients * bounds[place] / sizes[place] * np.sqrt(n)
    kept = score * (bound / np.maximum(length, bound))[:, None]
    moved, left = -frame @ kept.mean(axis=0), np.std(kept @ frame.T, axis=0)
    lost = 1 - (left / np.std(score @ frame.T, axis=0)) ** 2
    usual = np.sqrt(np.mean(np.minimum(np.abs(residual), np.quantile(np.abs(residual), 1 - NEAREST / 2)) ** 2))
    far = np.maximum(1 - bound / np.maximum(EVEN * usual * np.linalg.norm(u, axis=1), 1e-300), 0.0)
    alone = EVEN * usual * np.mean(np.abs(u @ frame.T) * far[:, None], axis=0)
    held = " (held out)" if case.file in held_out() else ""
    for j in np.argsort(-np.abs(moved / unit))[:2]:
        noise = gradients * bound * np.linalg.norm(frame[j])
        print(f"{name + held:26}{names[j][:22]:23}{np.mean(length > bound):8.4f}{c:6.2f}{moved[j] / unit[j]:8.2f}"
              f"{lost[j]:10.2f}{noise / unit[j]:8.2f}{alone[j] / unit[j]:12.2f}", flush=True)  # fmt: skip
    return float(np.sqrt(np.mean((moved / left) ** 2 * n)) / c), direction * bound / sizes[place] * np.sqrt(n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["*"])
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path("results/real"))
    a = parser.parse_args()
    models = [m for m, case in MODELS.items() if case.kind == "linear" and any(fnmatch.fnmatch(m, p) for p in a.models)]
    print(
        f"{'file':26}{'coefficient':23}{'beyond':>8}{'c':>6}{'moved':>8}{'variance':>10}{'noise':>8}{'covariates':>12}"
    )
    found = np.array([study(m, a.n, a.epsilon, a.folder) for m in models])
    print(f"\nmoved, root mean square over coefficients, in c: median of files {np.median(found[:, 0]):.2f}, "
          f"largest {found[:, 0].max():.2f}")  # fmt: skip
    loud = np.median(found[:, 1])
    print(f"noise of an answer on the direction of what is cut off, in sampling errors: median {loud:.1f}")


if __name__ == "__main__":
    main()
