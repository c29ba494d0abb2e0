"""Persons with several records: coverage by person, beside a twin that takes every record for a person of its own.

    python benchmarks/persons.py [MODEL …] [--replicates 100] [--persons 10000] [--size 4] [--epsilon 8] [--jobs 1]

Persons have one to `size` records, which share an effect (half of the variance of the response) and a covariate. ε and
δ are those of a person. "cov" is the coverage of all slopes, levels or means; "width" the median width over that of a
non-private fit with standard errors by person; "twin" the coverage with other names for the records of each person:
the same noise, and a sampling variance as if records were independent. δ is 1e-6.
"""

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
import pandas as pd
from scipy.stats import norm

import pgbb

SCHEMA = pgbb.Schema(
    id=pgbb.Range(0, 1e9), x=pgbb.Range(0, 10), z=pgbb.Range(-4, 4), y=pgbb.Range(-12, 18), b=pgbb.Flag(),
    k=pgbb.Range(0, 60, step=1), v=pgbb.Range(-8, 8),
)  # fmt: skip
MODELS = {
    "linear": pgbb.LinearRegression("y ~ x + z"),
    "huber": pgbb.HuberRegression("y ~ x + z"),
    "quantile": pgbb.QuantileRegression("y ~ x + z", taus=[0.2, 0.5, 0.8]),
    "logistic": pgbb.LogisticRegression("b ~ x + z"),
    "mean": pgbb.Mean("y"),
    "expectile": pgbb.Expectile("y ~ x + z", tau=0.8),
    "poisson": pgbb.PoissonRegression("k ~ x + z"),
    "iv": pgbb.IV("y ~ v + x | z + x"),
}
SLOPES = np.array([0.5, -0.7])
RATES = np.array([0.1, -0.2])
EXCHANGED = np.array([-0.7, 0.5])  # of v, which moves with the errors and, one for one, with z; and of x


def people(persons: int, size: int, seed: int) -> pd.DataFrame:
    """Records of persons: x is the person's, z that of the record, and half of the error is the person's."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(persons), rng.integers(1, size + 1, persons))
    x, own = rng.uniform(0, 10, persons)[who], rng.normal(size=persons)[who]
    z, error = rng.normal(size=len(who)), (own + rng.normal(size=len(who))) / np.sqrt(2)
    line = SLOPES[0] * x + SLOPES[1] * z
    # a latent line with logistic errors that are shared within a person
    bought = line - 2.5 + np.log(norm.cdf(error) / norm.sf(error)) > 0
    often = rng.gamma(2, 0.5, persons)[who] * np.exp(0.3 + RATES[0] * x + RATES[1] * z)  # a rate of the person's own
    found = {"id": who * 7919 % 10**9, "x": x, "z": z, "y": 1 + line + error, "b": bought.astype(int)}
    return pd.DataFrame(found | {"k": rng.poisson(often), "v": z + 0.8 * error + 0.5 * rng.normal(size=len(who))})


def judged(name: str, release: pgbb.Release) -> tuple[np.ndarray, np.ndarray]:
    """Whether each true number is covered, and widths."""
    if name == "mean":
        table, truth = release.summary(), np.array([1 + 5 * SLOPES[0]])
    elif name == "quantile":
        table = pd.concat([release.summary(tau=t).loc[["x", "z"]] for t in (0.2, 0.5, 0.8)])
        truth = np.tile(SLOPES, 3)
    elif name == "iv":
        table, truth = release.summary().loc[["v", "x"]], EXCHANGED
    else:
        table, truth = release.summary().loc[["x", "z"]], RATES if name == "poisson" else SLOPES
    covered = (table["lower"] <= truth) & (truth <= table["upper"])
    return covered.to_numpy(), (table["upper"] - table["lower"]).to_numpy()


def replicate(name: str, persons: int, size: int, epsilon: float, seed: int) -> tuple[np.ndarray, ...]:
    """What is covered, width over a fit without noise, and what the twin covers."""
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    frame, given = people(persons, size, seed), {"schema": SCHEMA, "delta": 1e-6, "group_size": size, "persons": "id"}
    noisy = given | {"epsilon": epsilon, "insecure_seed": seed}
    covered, width = judged(name, pgbb.fit(MODELS[name], frame, **noisy))
    free = judged(name, pgbb.fit(MODELS[name], frame, **given, epsilon=1, non_private=True))[1]
    twin = judged(name, pgbb.fit(MODELS[name], frame.assign(id=np.arange(len(frame))), **noisy))[0]
    return covered, width / free, twin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--persons", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=4)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--jobs", type=int, default=1)
    o = parser.parse_args()
    print(f"{o.replicates} replicates, {o.persons:,} persons, up to {o.size} records, ε = {o.epsilon:g}")
    print(f"{'model':10}{'cov':>6}{'lowest':>8}{'width':>7}{'twin':>6}{'lowest':>8}")
    with ProcessPoolExecutor(o.jobs, mp_context=get_context("spawn")) as pool:
        for name in o.models or MODELS:
            one = partial(replicate, name, o.persons, o.size, o.epsilon)
            found = zip(*pool.map(one, range(o.replicates)), strict=True)
            cov, width, twin = (np.array(v) for v in found)
            low, other = cov.mean(axis=0).min(), twin.mean(axis=0).min()
            print(
                f"{name:10}{cov.mean():6.3f}{low:8.2f}{np.median(width):7.2f}{twin.mean():6.3f}{other:8.2f}", flush=True
            )


if __name__ == "__main__":
    main()
