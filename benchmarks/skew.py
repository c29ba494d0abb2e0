"""Where the loss is not quadratic: the skew of noise-aware draws of `method="pgbb"`, and of the blocked bootstrap.

    python benchmarks/skew.py exponential|rare [R] [ε …]

Exponential records in their rate, n = 300, and a logistic regression with 2 % events, n = 10,000: R fits each. Columns:
fits that are identified, coverage, skew of the draws; skew of the non-private blocked bootstrap of the same records,
with as many blocks, whose scores have the privacy noise of the release (exponential records alone); skew of draws
without privacy noise and noise of the curvature (the sampling part); skew of the blocked bootstrap as it is; and that
of the draws as they would be of a quadratic loss. Means over identified fits, of the intercept in the logistic
regression.
"""

import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import skew

from pgbb.accountant import gamma_star
from pgbb.errors import PgbbWarning
from pgbb.model.blocks import block_sizes

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # reproduction/ lies beside benchmarks/

from reproduction.fits import fit_many
from reproduction.studies.noise_aware import problem

DRAWS, FEW, BLOCKS, FIRST = 20_000, 1_000, 5, 190_000


def bootstrap(data: str, frame: object, seed: int, noise: float = 0.0) -> np.ndarray:
    """Draws of the estimate under block weights, with this noise on the weighted score."""
    values = frame.to_numpy(float)  # type: ignore[attr-defined]
    rng = np.random.default_rng(seed)
    u = rng.dirichlet(np.full(BLOCKS, gamma_star(len(values), BLOCKS)), DRAWS if data == "exponential" else FEW)
    block = np.repeat(np.arange(BLOCKS), block_sizes(len(values), BLOCKS).astype(int))
    values = values[rng.permutation(len(values))]
    if data == "exponential":
        clipped = np.minimum(values[:, 0], 12.0)
        means = u @ np.array([clipped[block == s].mean() for s in range(BLOCKS)])
        return 1 / np.maximum(means + noise * rng.standard_normal(len(means)), 0.5)
    return np.concatenate([logistic(values, u[i : i + 100], block) for i in range(0, len(u), 100)])


def logistic(values: np.ndarray, u: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Intercepts of the logistic regression under these weights of blocks, by Newton's method."""
    x = np.column_stack([np.ones(len(values)), values[:, 0]])
    pairs = (x[:, :, None] * x[:, None, :]).reshape(len(x), 4)
    theta, w = np.tile([-4.2, 0.5], (len(u), 1)), (u / block_sizes(len(values), BLOCKS))[:, block]
    for _ in range(4):
        p = 1 / (1 + np.exp(-theta @ x.T))
        bend = ((w * p * (1 - p)) @ pairs).reshape(-1, 2, 2)
        theta = theta - np.linalg.solve(bend, ((w * (p - values[:, 1])) @ x)[..., None])[..., 0]
    return theta[:, 0]


def line(data: str, n: int, epsilon: float, replicates: int) -> str:
    """A row of the table."""
    posed = [problem({"data": data, "n": n}, FIRST + seed) for seed in range(replicates)]
    releases = fit_many(
        posed[0][0], [p[1] for p in posed], schema=posed[0][2], epsilon=epsilon, delta=1 / n, method="pgbb",
        insecure_seeds=range(FIRST, FIRST + replicates),
    )  # fmt: skip
    found, inside = [], []
    for seed, (release, (_, frame, _, truth)) in enumerate(zip(releases, posed, strict=True)):
        local, transform = release.payload.local, np.array(release.model.transform)
        if not local.columns(None, transform)["identified"][0, 0]:
            continue
        quiet = replace(local, privacy=0 * local.privacy, curvature_sd=0 * local.curvature_sd)
        known = replace(local, curvature_sd=0 * local.curvature_sd, sampling_sd=0 * local.sampling_sd)
        variants = (local, quiet, replace(local, bend=None, skew=None), known)
        draws, own, straight, sure = ((v.draw(DRAWS, None, seed)[0] @ transform.T)[:, 0] for v in variants)
        loud = float(np.sqrt(np.sum(local.privacy**2)))
        noisy = skew(bootstrap(data, frame, seed, loud)) if data == "exponential" else np.nan
        found.append([skew(draws), noisy, skew(own), skew(bootstrap(data, frame, seed)), skew(straight), skew(sure)])
        low, high = np.quantile(draws + release.model.offset[0], [0.025, 0.975])
        inside.append(low <= truth[0, 0] <= high)
    if not found:
        return f"{data:12} n = {n:6,}  ε = {epsilon:g}  all {replicates} marked"
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    figures = "  ".join(f"{m:+.2f} ± {e:.2f}" for m, e in zip(mean, error, strict=True))
    return f"{data:12} n = {n:6,}  ε = {epsilon:g}  {len(found):3} of {replicates}  {np.mean(inside):.2f}  {figures}"


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore", PgbbWarning)
    data, *rest = sys.argv[1:] or sys.exit(__doc__)
    replicates = int(rest[0]) if rest else 100
    print(
        "identified, coverage; skew: draws, bootstrap with noise; their sampling part, bootstrap; a quadratic loss; "
        "second moments as if known"
    )
    for epsilon in [float(v) for v in rest[1:]] or [1.0, 4.0]:
        print(line(data, {"exponential": 300, "rare": 10_000}[data], epsilon, replicates), flush=True)


if __name__ == "__main__":
    main()
