"""Where the loss is not quadratic: the skew of noise-aware draws of `method="pgbb"`, and of the blocked bootstrap.

    python benchmarks/skew.py [R] [ε …]

Exponential records in their rate, n = 300, and a logistic regression with 2 % events, n = 10,000: R fits each. Columns:
fits that are identified, coverage, skew of the draws; skew of draws without privacy noise and noise of the curvature
(the sampling part); skew of the non-private blocked bootstrap of the same records with S = 20, as five blocks have a
skew of their own; and that of the draws as they would be of a quadratic loss. Means over identified fits, of the
intercept in the logistic regression.
"""

import sys
import warnings
from dataclasses import replace

import numpy as np
from scipy.stats import skew

from pgbb.accountant import gamma_star
from pgbb.errors import PgbbWarning
from pgbb.model.blocks import block_sizes
from reproduction.fits import fit_many
from reproduction.studies.noise_aware import problem

DRAWS, FEW, BLOCKS, FIRST = 20_000, 200, 20, 90_000


def bootstrap(data: str, frame: object, seed: int) -> np.ndarray:
    """Draws of the estimate under block weights, without noise."""
    values = frame.to_numpy(float)  # type: ignore[attr-defined]
    rng = np.random.default_rng(seed)
    u = rng.dirichlet(np.full(BLOCKS, gamma_star(len(values), BLOCKS)), DRAWS if data == "exponential" else FEW)
    block = np.repeat(np.arange(BLOCKS), block_sizes(len(values), BLOCKS).astype(int))
    values = values[rng.permutation(len(values))]
    if data == "exponential":
        clipped = np.minimum(values[:, 0], 12.0)
        return 1 / (u @ np.array([clipped[block == s].mean() for s in range(BLOCKS)]))
    x = np.column_stack([np.ones(len(values)), values[:, 0]])
    theta = np.tile([-4.0, 0.0], (len(u), 1))
    for _ in range(5):  # Newton's method for all weights at once
        p = 1 / (1 + np.exp(-theta @ x.T))
        w = (u / block_sizes(len(values), BLOCKS))[:, block]
        gradient = (w * (p - values[:, 1])) @ x
        bend = np.einsum("mn,na,nb->mab", w * p * (1 - p), x, x, optimize=True)
        theta = theta - np.linalg.solve(bend, gradient[..., None])[..., 0]
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
        variants = (local, quiet, replace(local, bend=None, skew=None))
        draws, own, straight = ((v.draw(DRAWS, None, seed)[0] @ transform.T)[:, 0] for v in variants)
        found.append([skew(draws), skew(own), skew(bootstrap(data, frame, seed)), skew(straight)])
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
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    levels = [float(v) for v in sys.argv[2:]] or [1.0, 4.0, 16.0]
    print("identified, coverage; skew: draws, their sampling part, blocked bootstrap, a quadratic loss")
    for data, n in (("exponential", 300), ("rare", 10_000)):
        for epsilon in levels:
            print(line(data, n, epsilon, replicates), flush=True)


if __name__ == "__main__":
    main()
