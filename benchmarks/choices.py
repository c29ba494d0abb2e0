"""Multinomial and ordered logit as losses of one's own, by the default method: coverage and width.

    python benchmarks/choices.py [--replicates 100] [--n 10000,30000] [--epsilon 1,4] [--jobs 1]

Simulated: three levels, a uniform and a normal covariate. "cov" is the coverage of intervals that are not marked,
"lowest" that of the worst parameter, "width" their median in non-private standard errors (from the information on a
million records), "of all" the coverage of all. δ is 1e-6.
"""

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
import pandas as pd

import pgbb

SCHEMA = pgbb.Schema(x=pgbb.Range(-1, 1), z=pgbb.Range(-1, 1), k=pgbb.Range(0, 2, step=1))
TRUTH = {
    "multinomial": np.array([0.5, 1.0, -0.5, -0.5, -0.5, 1.0]),  # constant, x, z of the second level; of the third
    "ordered": np.array([-0.5, np.log(1.5), 1.0, -0.5]),  # first cut, log of the distance to the second, x, z
}
CLIP = {"multinomial": 6**0.5, "ordered": 2.5}


def multinomial(theta, record, _):
    """−log P(k), the first level being the base."""
    import jax
    import jax.numpy as jnp

    line = theta.reshape(2, 3) @ jnp.stack([1.0, record["x"], record["z"]])
    scores = jnp.concatenate([jnp.zeros(1), line])
    return jax.nn.logsumexp(scores) - scores[record["k"].astype(int)]


def ordered(theta, record, _):
    """−log P(k), P(k ≤ j) = expit(cut_j − xᵀβ)."""
    import jax
    import jax.numpy as jnp

    line, cuts = theta[2] * record["x"] + theta[3] * record["z"], theta[0] + jnp.array([0.0, 1.0]) * jnp.exp(theta[1])
    low, high = jax.nn.sigmoid(cuts - line)
    return -jnp.log(jnp.stack([low, high - low, 1 - high])[record["k"].astype(int)])


def model(name: str) -> pgbb.Custom:
    """The loss, its bound and its box."""
    loss, dim = {"multinomial": multinomial, "ordered": ordered}[name], len(TRUTH[name])
    return pgbb.Custom(loss, dim=dim, clip=CLIP[name], columns=["x", "z", "k"], box=(-4, 4))


def people(name: str, n: int, seed: int) -> pd.DataFrame:
    """Records of the law with the true parameters."""
    rng, truth = np.random.default_rng(seed), TRUTH[name]
    x, z = rng.uniform(-1, 1, n), np.clip(rng.normal(0, 0.4, n), -1, 1)
    if name == "ordered":
        latent = truth[2] * x + truth[3] * z + rng.logistic(size=n)
        k = np.searchsorted([truth[0], truth[0] + np.exp(truth[1])], latent)
    else:
        lines = np.column_stack([np.ones(n), x, z]) @ truth.reshape(2, 3).T
        k = np.argmax(np.column_stack([np.zeros(n), lines]) + rng.gumbel(size=(n, 3)), axis=1)
    return pd.DataFrame({"x": x, "z": z, "k": k.astype(float)})


def error(name: str) -> np.ndarray:
    """Non-private standard errors of one record's share: the root of the inverse information, on 200,000 records."""
    import jax
    import jax.numpy as jnp

    records = {c: jnp.asarray(v, jnp.float32) for c, v in people(name, 200_000, 77).items()}
    gradient = jax.grad({"multinomial": multinomial, "ordered": ordered}[name])
    scores = np.asarray(jax.vmap(lambda r: gradient(jnp.asarray(TRUTH[name], jnp.float32), r, 0.0))(records))
    return np.sqrt(np.diag(np.linalg.inv(scores.T @ scores / len(scores))))


def replicate(name: str, n: int, epsilon: float, seed: int) -> tuple[np.ndarray, ...]:
    """What is covered, marked, and widths."""
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    fit = pgbb.fit(model(name), people(name, n, seed), schema=SCHEMA, epsilon=epsilon, delta=1e-6, insecure_seed=seed)
    table, truth = fit.summary(), TRUTH[name]
    covered = (table["lower"] <= truth) & (truth <= table["upper"])
    seen = table["identified"].to_numpy(bool)
    return covered.to_numpy(), seen, (table["upper"] - table["lower"]).to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--n", default="10000,30000")
    parser.add_argument("--epsilon", default="1,4")
    parser.add_argument("--jobs", type=int, default=1)
    o = parser.parse_args()
    print(f"{o.replicates} replicates\n{'cell':36}{'cov':>6}{'lowest':>8}{'marked':>8}{'width':>7}{'of all':>8}")
    with ProcessPoolExecutor(o.jobs, mp_context=get_context("spawn")) as pool:
        for name in TRUTH:
            unit = 3.92 * error(name)
            for n in map(int, o.n.split(",")):
                for epsilon in map(float, o.epsilon.split(",")):
                    found = pool.map(partial(replicate, name, n, epsilon), range(o.replicates), chunksize=5)
                    cov, seen, width = (np.array(v) for v in zip(*found, strict=True))
                    each = np.where(seen, cov, np.nan)
                    ratio = np.nanmedian(np.where(seen, width, np.nan) / unit * np.sqrt(n))
                    head = f"{name}, n = {n:,}, ε = {epsilon:g}"
                    print(
                        f"{head:36}{np.nanmean(each):6.3f}{np.nanmin(np.nanmean(each, axis=0)):8.2f}"
                        f"{1 - seen.mean():8.3f}{ratio:7.2f}{cov.mean():8.3f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
