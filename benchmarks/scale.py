"""The default method on very many records, without pandas: simulated quantile regression, p = 14, five levels.

    python benchmarks/scale.py [RECORDS]

Prints the seconds of the first fit (compilation included) and of a second one; loading is not counted.
"""

import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from pgbb.accountant import noise_scale
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.quantile import fit_quantile
from pgbb.methods.calibrated.questions import composition, questions_for
from pgbb.model.models import Problem
from pgbb.private import sums as private_sums
from pgbb.private.randomness import Randomness
from pgbb.private.rows import EXTRA

TAUS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])


def simulated(n: int, p: int, seed: int) -> Any:
    """Packed rows [x, y, weight] on the device, made there in pieces."""

    @jax.jit
    def fill(rows: Any, start: Any, key: Any) -> Any:
        a, b = jax.random.split(key)
        x = jax.random.uniform(a, (piece, p), minval=-1.0, maxval=1.0).at[:, 0].set(1.0)
        y = x @ jnp.linspace(0.5, -0.5, p) + 0.5 * jax.random.normal(b, (piece,))
        made = jnp.concatenate([x, y[:, None], jnp.ones((piece, 1))], axis=1)
        return jax.lax.dynamic_update_slice(rows, made, (start, 0))

    piece = min(n, 10**6)
    filler = jax.jit(fill, donate_argnums=0)
    rows, key = jnp.zeros((n, p + EXTRA), jnp.float32), jax.random.key(seed)
    for start in range(0, n - piece + 1, piece):
        rows = filler(rows, start, jax.random.fold_in(key, start))
    return jax.block_until_ready(rows)


def main(n: int = 1_000_000, p: int = 14) -> None:
    rows = simulated(n, p, 0)
    half, names = 6.0, ("Intercept", *(f"x{j}" for j in range(1, p)))
    design = SimpleNamespace(
        names=names, has_intercept=True, norm_bound=float(np.sqrt(p)), response_bounds=(-half, half)
    )
    problem = Problem(
        kind="quantile", formula=None, names=design.names, clip=1.0, center=np.zeros(p), radius=np.full(p, half),
        transform=np.eye(p), offset=np.zeros(p), index=None, response="y", shift=0.0, design=cast(Any, design),
    )  # fmt: skip
    stages = questions_for(problem, len(TAUS))
    plan = composition(stages, n)
    sigma = noise_scale(plan, 1.0, 1e-9)
    for attempt in ("first", "second"):
        here = private_sums.Here.__new__(private_sums.Here)
        here.n, here._rows = n, private_sums.slabs_of(rows)
        asked = private_sums.Sums(here, plan, [s.name for s in stages], sigma, Randomness.create(0))
        begin = time.perf_counter()
        found, _ = fit_quantile(Asker(asked, problem, stages), problem, cast(Any, design), TAUS)
        spent = time.perf_counter() - begin
        print(
            f"n = {n:,}, p = {p}, {len(asked.asked)} answers on {jax.devices()[0].platform}: "
            f"{attempt} fit {spent:.2f} s"
        )
    error = np.abs(
        found.center
        - (np.linspace(0.5, -0.5, p) + np.outer(0.5 * np.array([-1.2816, -0.5244, 0, 0.5244, 1.2816]), np.eye(p)[0]))
    ).max()
    print(f"largest error of a coefficient {error:.5f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
