"""DP-MCMC beside its papers: the Rényi bound of Heikkilä et al. (2019), and the Gaussian mixture of both papers.

    python benchmarks/dp_mcmc.py bound
    python benchmarks/dp_mcmc.py mixture
    python benchmarks/dp_mcmc.py batches

`bound` prints the ε of their Theorem 1 with subsampling (Figures 1 and 2 of the paper draw it; the formula is that of
exact_rdp.py in DPBayes/DP-MCMC-NeurIPS2019) beside ours for a batch, clip and noise of the same size. `mixture` runs
x ~ ½N(θ₁, 2) + ½N(θ₁ + θ₂, 2) with n = 50,000 and the likelihood to the power 1/500, 20,000 steps: the defaults of
mog/dpfastmh.jl in ruqizhang/dpfastmh. It has means and spreads by quadrature, by plain Metropolis with their
proposals (to which their code comes down at its defaults: the sensitivity of a step is below its ε, where it adds no
noise), and by pgbb. `batches` has the noise of a log ratio in their two branches, over all records and over a small
batch, at the same (ε, δ) a step: that of mog/dpfastmh.jl, with its mixture.
"""

import argparse
import math
import warnings

import numpy as np
import pandas as pd

import pgbb
from pgbb.accountant import Mechanism, epsilon
from pgbb.methods.effective_size import effective_sample_size

N, POWER, STEPS, REACH = 50_000, 1 / 500, 20_000, 3.0


def theorem(batch: int, n: int, steps: int, delta: float) -> float:
    """ε of their Theorem 1, amplified by sampling without replacement (Wang, Balle & Kasiviswanathan 2019)."""
    q, best = batch / n, math.inf
    plain = [
        5 / (2 * batch) + math.log(2 * batch / (batch - 5 * a)) / (2 * (a - 1)) + 2 * a / (batch - 5 * a)
        for a in range(2, min(200, batch // 5))
    ]
    for order in range(3, len(plain) + 1):
        second = q**2 * math.comb(order, 2) * min(4 * math.expm1(plain[0]), 2 * math.exp(plain[0]))
        logs = [
            j * math.log(q) + math.log(2 * math.comb(order, j)) + (j - 1) * plain[j - 2] for j in range(3, order + 1)
        ]
        moment = np.logaddexp.reduce([0.0, math.log(second), *logs])
        best = min(best, (steps * float(moment) - math.log(delta)) / (order - 1))
    return best


def ours(batch: int, n: int, steps: int, delta: float) -> float:
    """Sums over Poisson batches of the same mean size: a record moves a log ratio by 1/√b, with noise of variance 1.

    That is the least noise that they allow; theirs is 2 less the variance of the batch.
    """
    run = Mechanism(n=n, blocks=1, sampling_rate=batch / n, steps=steps, clip=1.0)
    return epsilon(run, 2 * math.sqrt(batch) / n, delta)


def bound() -> None:
    print("      n     b      T   their ε   exact, fixed noise   (δ = 1/n)")
    for n, batch, steps in (
        (10**5, 100, 5_000), (10**5, 1_000, 5_000), (10**6, 1_000, 5_000), (10**6, 1_000, 20_000),
        (10**6, 1_000, 100_000), (10**7, 10_000, 100_000),
    ):  # fmt: skip
        theirs, exact = theorem(batch, n, steps, 1 / n), ours(batch, n, steps, 1 / n)
        print(f"{n:>8} {batch:>5} {steps:>6} {theirs:>9.3f} {exact:>12.3f}")


def records() -> np.ndarray:
    rng = np.random.default_rng(1111)
    return rng.normal(0, math.sqrt(2), N) + (rng.random(N) >= 0.5)


def log_posterior(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Of many θ, from a fine histogram of the records."""
    counts, ends = np.histogram(x, 2000)
    at = (ends[:-1] + ends[1:]) / 2
    found = []
    for part in np.array_split(theta, max(1, len(theta) // 500)):
        one, two = part[:, :1], part.sum(axis=1, keepdims=True)
        found.append(POWER * (np.logaddexp(-((at - one) ** 2) / 4, -((at - two) ** 2) / 4) @ counts))
    return np.concatenate(found)


def report(name: str, draws: np.ndarray, weights: np.ndarray | None = None) -> None:
    """Mean and sd of θ₁, |θ₂| and θ₁ + θ₂/2; the mode is symmetric in the two components."""
    shown = np.column_stack([draws[:, 0], np.abs(draws[:, 1]), draws[:, 0] + draws[:, 1] / 2])
    mean = np.average(shown, axis=0, weights=weights)
    sd = np.sqrt(np.average((shown - mean) ** 2, axis=0, weights=weights))
    error = "exact" if weights is not None else " ".join(f"{s:.3f}" for s in sd / np.sqrt(effective_sample_size(shown)))
    print(f"{name:<34}" + "  ".join(f"{m:6.3f} ({s:.3f})" for m, s in zip(mean, sd, strict=True)) + f"   {error}")


def mixture() -> None:
    import jax.numpy as jnp

    x = records()
    print(f"{'':<34}mean (sd) of θ₁, |θ₂|, θ₁ + θ₂/2                       s.e. of the means")
    axis = np.linspace(-REACH, REACH, 241)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log = log_posterior(x, grid)
    report("quadrature", grid, np.exp(log - log.max()))
    rng = np.random.default_rng(0)
    proposals = 0.06 * rng.standard_normal((STEPS, 2))
    theta, value, chain = np.zeros(2), float(log_posterior(x, np.zeros((1, 2)))[0]), np.empty((STEPS, 2))
    for i, step in enumerate(proposals):
        there = theta + step
        new = float(log_posterior(x, there[None])[0]) if (np.abs(there) <= REACH).all() else -math.inf
        if math.log(rng.random()) < new - value:
            theta, value = there, new
        chain[i] = theta
    report("Metropolis, steps of .06", chain[STEPS // 10 :])
    model = pgbb.Custom(
        loss=lambda t, r, _: -jnp.logaddexp(-((r["x"] - t[0]) ** 2) / 4, -((r["x"] - t[0] - t[1]) ** 2) / 4),
        dim=2, clip=8.0, columns=["x"], box=(-REACH, REACH), names=["one", "two"],
    )  # fmt: skip
    for budget in (1.0, 4.0):
        for test in ("penalty", "barker"):
            release = pgbb.fit(
                model, pd.DataFrame({"x": x}), schema=pgbb.Schema(x=pgbb.Range(-8, 9)), epsilon=budget, delta=1e-5,
                method="dp_mcmc", test=test, steps=STEPS, tempering=POWER, burn_in=0.1, insecure_seed=1,
            )  # fmt: skip
            report(f"dp_mcmc, {test}, ε = {budget:g}", release.payload.tensors["draws"].astype(float))


def batches() -> None:
    """Both branches have normal noise √(2 log(1.25/δ))/ε times a sensitivity; that of a batch has an ε and a δ that are
    larger, as the chance that a record is drawn is small, and a far larger sensitivity, 2 log(1 + L/λ)."""
    x, budget, delta, rate = records(), 0.05, 1e-5, 10.0
    slope = (
        np.hypot(2 * np.abs(x) + 3 * REACH, np.abs(x) + 2 * REACH) / 2 * POWER
    )  # bounds how fast a record's term moves
    total, most = float(slope.sum()), float(slope.max())
    print(f"n = {N:,}, power 1/500, ε = {budget:g} and δ = {delta:g} a step; noise (sd) of a log ratio")
    print(f"{'step':>6}{'records drawn':>15}{'batch':>9}{'all records':>13}{'their ratio':>13}")
    for step in (0.01, 0.02, 0.04, 0.0849):
        drawn = rate + total * step
        larger = total / (drawn * most)
        ours = math.sqrt(2 * math.log(1.25 / delta)) / budget * 2 * most * step
        of_batch = min(delta * larger / 2, 1.0)
        theirs = math.sqrt(2 * math.log(1.25 / of_batch)) / (budget * larger / 6) * 2 * math.log1p(total * step / rate)
        print(f"{step:6.3g}{drawn:15.0f}{theirs:9.2f}{ours:13.3f}{theirs / ours:13.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("bound", "mixture", "batches"))
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    {"bound": bound, "mixture": mixture, "batches": batches}[parser.parse_args().what]()
