"""Digests of seeded releases of every method and model: whether a change of the code changes a bit of a release.

    python benchmarks/digests.py write FILE [METHOD …]     make the list, of all methods or of these
    python benchmarks/digests.py check FILE [METHOD …]     make it again and compare

Bits depend on the processor and on the versions of JAX and numpy, so a list is of use on the machine it was made on.
What is hashed are the tensors of a release and the noise it is certified with, not names or versions.
"""

import hashlib
import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import pgbb

N = 4000
PRINTED = "pgbb"
OLD_PRINTED = "paper"  # the name of the printed algorithms in releases made before the method had its own


def people(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    x, z = rng.uniform(0, 10, n), rng.integers(0, 2, n)
    y = 2 + 0.3 * x - 0.5 * z + rng.standard_t(4, n)
    region = rng.choice(["north", "south", "west"], n, p=[0.5, 0.3, 0.2])
    bought = (rng.uniform(size=n) < 1 / (1 + np.exp(1 - 0.3 * x))).astype(int)
    w = rng.uniform(0.5, 2, n)
    known = {"x": x, "z": z, "y": y, "region": region, "bought": bought, "w": w}
    visits, years, near = rng.poisson(np.exp(0.1 * x)), rng.uniform(1, 3, n), np.clip(x + rng.normal(size=n), 0, 10)
    return pd.DataFrame({**known, "visits": visits, "years": years, "near": near})


SCHEMA = pgbb.Schema(
    x=pgbb.Range(0, 10), z=pgbb.Flag(), y=pgbb.Range(-10, 15), region=pgbb.Levels("north", "south", "west"),
    bought=pgbb.Flag(), w=pgbb.Range(0, 2), visits=pgbb.Range(0, 20), years=pgbb.Range(1, 3), near=pgbb.Range(0, 10),
)  # fmt: skip


def _square(theta: Any, record: Any, index: Any) -> Any:
    return 0.5 * (record["y"] - theta[0] - theta[1] * record["x"]) ** 2 / 100


def _normal(key: Any, theta: Any) -> Any:
    return {"y": theta[0] + theta[1] * jax.random.normal(key)}


def _moments(record: Any) -> Any:
    return jnp.stack([record["y"], record["y"] ** 2 / 10])


MODELS: dict[str, Any] = {
    "quantile": pgbb.QuantileRegression("y ~ x + z + region", taus=[0.1, 0.5, 0.9], bandwidth=0.2),
    "quantile one": pgbb.QuantileRegression("y ~ x + z", taus=[0.5], bandwidth=0.2),
    "quantile interval": pgbb.QuantileRegression("y ~ x", interval=(0.1, 0.9), bandwidth=0.2),
    "huber": pgbb.HuberRegression("y ~ x + z"),
    "logistic": pgbb.LogisticRegression("bought ~ x + z"),
    "mean": pgbb.Mean("y", family="gaussian", scale=1.5, clip=3.0),
    "linear": pgbb.LinearRegression("y ~ x + z + region"),
    "expectile": pgbb.Expectile("y ~ x + z", tau=0.8),
    "poisson": pgbb.PoissonRegression("visits ~ x + z", exposure="years"),
    "instruments": pgbb.IV("y ~ x + z | near + z"),
    "groups": pgbb.Mean("y", by=["region"]),
    "proportions": pgbb.Mean("bought", by="region"),
    "proportion": pgbb.Mean("bought", family="bernoulli"),
    "exponential": pgbb.Mean("visits", family="exponential"),
    "simulated": pgbb.Simulated(
        simulator=_normal, statistic=_moments, clip=30.0, columns=["y"], dim=2, box=([-5, 0.5], [10, 6])
    ),
    "custom": pgbb.Custom(loss=_square, dim=2, clip=1.0, columns=["x", "y"], box=(-10, 10)),
}
SHORT: dict[str, dict[str, Any]] = {
    PRINTED: {"steps": 300, "draws_per_step": 2},
    "sgld": {"steps": 400},
    "dp_bootstrap": {},
    "noisy_gibbs": {},
    "augmented": {"iterations": 400},
    "abc": {"proposals": 2000},
    "repro": {},
    "posterior_sampling": {"draws": 10},
    "dp_mcmc": {"steps": 400},
    "calibrated": {},
}


def digest(release: Any) -> str:
    state = hashlib.sha256(repr(release.certificate.sigma).encode())
    for name, value in sorted(release.payload.tensors.items()):
        value = np.ascontiguousarray(value)
        state.update(f"{name} {value.dtype} {value.shape}".encode())
        state.update(value.tobytes())
    return state.hexdigest()[:24]


def make(methods: list[str]) -> dict[str, str]:
    everybody, found = people(), {}
    for method, settings in ((method, SHORT[method]) for method in methods):
        for kind, model in MODELS.items():
            frame = everybody[:300] if kind == "simulated" else everybody  # each record is simulated thousands of times
            for weights in (None, "w"):
                name = f"{method}, {kind}{', weighted' if weights else ''}"
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        try:
                            release = _fit(model, frame, method, weights, settings)
                        except pgbb.InvalidValue as error:
                            if method != PRINTED or "method" not in str(error):
                                raise
                            release = _fit(model, frame, OLD_PRINTED, weights, settings)
                except pgbb.PgbbError as error:
                    found[name] = f"refused: {type(error).__name__}"
                    continue
                found[name] = digest(release)
                print(f"{name}: {found[name]}", flush=True)
    return found


def _fit(model: Any, frame: pd.DataFrame, method: str, weights: str | None, settings: dict[str, Any]) -> Any:
    return pgbb.fit(
        model,
        frame,
        schema=SCHEMA,
        epsilon=2.0,
        delta=1e-6,
        method=method,
        weights=weights,
        insecure_seed=5,
        **settings,
    )


def main() -> None:
    what, path = sys.argv[1], Path(sys.argv[2])
    methods = sys.argv[3:] or list(SHORT)
    made = make(methods)
    about = {"jax": version("jax"), "numpy": version("numpy"), "single": str(jnp.float32(1).dtype)}
    if what == "write":
        path.write_text(json.dumps({"about": about, "digests": made}, indent=1) + "\n")
        return
    wanted = json.loads(path.read_text())
    wanted["digests"] = {name: d for name, d in wanted["digests"].items() if name.split(",")[0] in methods}
    if wanted["about"] != about:
        print(f"made with {wanted['about']}, checked with {about}: bits may differ for that reason")
    differ = [name for name in wanted["digests"] if made.get(name) != wanted["digests"][name]]
    for name in differ:
        print(f"DIFFERS {name}")
    print(f"{len(wanted['digests']) - len(differ)} of {len(wanted['digests'])} equal")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
