"""What exact arithmetic costs: fits with whole-number sums and exact noise against the same with floating point.

    python benchmarks/hardening.py [linear|step|default] [RUNS]

The unhardened twin lives here only: sums in single precision, batches and
noise from numpy's generator. The two take turns in one run; printed are medians
of the wall clock and of the processor's time, compilation left out, and the median
ratio of a pair of neighbours.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from pgbb._numerics.compiled import Compiled, dots
from pgbb.model.blocks import block_sizes, draw_weights
from pgbb.private import loop, partial_sums, sums
from pgbb.private.poisson import buffer_size
from pgbb.private.row_layout import EXTRA
from pgbb.private.session import Step
from pgbb.private.slabs import formed, width_of
from pgbb.private.step_randomness import Draws

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # reproduction/ lies beside benchmarks/

SIZE: dict[str, int] = {}  # of the data that are fitted: a constant of the compiled code, as in the hardened one


def plain_batches(n: int, rate: float, count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    size = buffer_size(n, rate)
    positions, sizes = np.empty((count, size + 1), np.int32), np.empty(count, np.int32)
    gaps = np.empty(size + 1)
    for i in range(count):
        inside = size + 1
        while inside > size:
            rng.standard_exponential(out=gaps)
            np.multiply(gaps, -1 / math.log1p(-rate), out=gaps)
            np.minimum(gaps, n, out=gaps)
            steps = gaps.astype(np.int64)
            steps += 1
            ends = np.cumsum(steps)
            inside = int(np.searchsorted(ends, n, side="right"))
        ends -= 1
        np.minimum(ends, n - 1, out=ends)
        positions[i], sizes[i] = ends, inside
    return positions[:, :size], sizes


def plain_draw(self: Any, count: int, start: int) -> dict[str, np.ndarray]:
    m, rng = self.mechanism, self.randomness
    SIZE["n"] = m.n
    k, d, total = m.draws_per_step, self.problem.dim, count * m.draws_per_step
    u = draw_weights(m.blocks, m.concentration, self.pseudo_blocks, m.alpha, total, rng.public)
    index = self.problem.index.draw(total, rng.public) if self.problem.index else np.zeros(total)
    position, size = plain_batches(m.n, m.sampling_rate, total, rng.secret)
    weight = (u / block_sizes(m.n, m.blocks)).reshape(count, k, -1).astype(np.float32)
    return {
        "u": u.reshape(count, k, -1).astype(np.float32),
        "index": index.reshape(count, k).astype(np.float32),
        "batch": {
            "rows": (rows := position.reshape(count, k, -1)),
            "inverse": {"weight": weight, "count": size.reshape(count, k), "rows": rows},
        },
        "noise": (self.sigma * rng.secret.standard_normal((total, d))).reshape(count, k, 1, d).astype(np.float32),
        "t": np.arange(start, start + count, dtype=np.int32),
    }


def plain_sum(problem: Any, rows: Any, batch: Any, theta: Any, index: Any) -> Any:
    """The sum, in the place of its high half."""
    packed, given = loop._rows_at(rows, batch["rows"]), batch["inverse"]
    block = given["rows"] * given["weight"].shape[0] // SIZE["n"]
    weight = jnp.where(jnp.arange(packed.shape[0]) < given["count"], given["weight"][block], 0.0)
    p, limit = packed.shape[1] - EXTRA, problem.clip * (1 - 1e-6)
    y, survey, square_x = packed[:, p], packed[:, p + 1], dots(packed[:, :p], packed[:, :p])
    linear = packed @ jnp.concatenate([theta[:p], jnp.zeros(EXTRA, theta.dtype)])
    score, extra = problem.score(jnp, theta, linear, y, index)
    square = (score / limit) ** 2 * square_x
    if extra is not None:
        square = square + (extra / limit) ** 2
    excess = jnp.sqrt(square) * survey
    finite = jnp.isfinite(excess)
    factor = jnp.where(finite, weight * survey / jnp.maximum(excess, 1.0), 0.0)
    total = ((jnp.where(finite, score, 0.0) * factor) @ packed)[:p]
    total = total if extra is None else jnp.append(total, factor @ jnp.where(finite, extra, 0.0))
    return total[None]


def plain_sums(problem: Any, rows: Any, batch: Any, points: Any, index: Any) -> Any:
    return jax.vmap(partial(plain_sum, problem, rows))(batch, points, index)


@partial(Compiled, static_argnames=("problem", "mechanism", "step", "together"), donate_argnums=(0,))
def plain_run(
    state: Any, data: Any, grid: Any, inputs: Any, problem: Any, mechanism: Any, step: Any, together: Any
) -> Any:
    return loop._loop(state, data, grid, inputs, problem, mechanism, step)


@partial(jax.jit, static_argnames=("statistic", "power", "size", "mesh", "coding"))
def plain_partial_sums(
    statistic: Any, power: int, size: int, mesh: Any, coding: Any, counts: Any, rows: Any, parameters: Any
) -> Any:
    """Sums in single precision, chunk by chunk."""
    width = width_of(rows, coding) - EXTRA

    def chunk(stored: Any) -> Any:
        packed = formed(stored, coding).T
        values = jax.vmap(lambda x, y: jnp.ravel(statistic(x, y, *parameters)))(packed[:, :width], packed[:, width])
        norm = jnp.sqrt(jnp.sum(values**2, axis=1))
        survey = packed[:, width + 1]
        weight = jnp.where(jnp.isfinite(norm) & (survey > 0), survey**power / jnp.maximum(norm, 1.0), 0.0)
        rows = jnp.where(jnp.isfinite(norm)[:, None], values, 0.0) * weight[:, None]
        return jnp.sum(rows * 2.0**sums.BITS, axis=0)

    def add(i: Any, found: Any) -> Any:  # as many chunks as the exact sum has
        part = jax.lax.dynamic_slice_in_dim(rows[0], i * size, size)
        return jax.lax.dynamic_update_index_in_dim(found, chunk(part), i, 1)

    form = jax.eval_shape(chunk, rows[0, :size])
    return jax.lax.fori_loop(0, counts[0], add, jnp.zeros((*form.shape, rows.shape[1] // size), form.dtype))[None]


@contextmanager
def unhardened() -> Iterator[None]:
    def plain_normals(_: Any, sigma: float, grid: float, shape: tuple[int, ...]) -> Any:
        return sigma / grid * rng.standard_normal(shape)

    rng = np.random.default_rng(0)
    with (
        mock.patch.multiple(Draws, draw=plain_draw, grid=1.0),
        mock.patch.object(loop, "_gathered", plain_sums),
        mock.patch.object(loop, "joined", lambda high, _: high),
        mock.patch.object(loop, "run_one", plain_run),
        mock.patch.object(sums, "_program", lambda slabs: plain_partial_sums),
        mock.patch.object(partial_sums, "counts_only", lambda statistic, power: False),
        mock.patch.object(sums, "counts_only", lambda statistic, power: False),
        mock.patch.object(sums, "rounded_normals", plain_normals),
    ):
        yield


def linear() -> Callable[[int], Any]:
    """method="pgbb" at n = 10,000, T = 10⁴, with the settings of the linear study."""
    import pgbb
    from reproduction.constants import constants
    from reproduction.simulate import LINEAR_MODEL, LINEAR_SCHEMA, linear_frame

    frame, settings = linear_frame("contaminated_normal", 10_000, 0), constants("linear", "paper")
    return lambda seed: pgbb.fit(
        LINEAR_MODEL, frame, schema=LINEAR_SCHEMA, epsilon=1.0, delta=1e-4, method="pgbb", accountant="paper",
        insecure_seed=seed, **settings,
    )  # fmt: skip


def default() -> Callable[[int], Any]:
    """The default method on the same data."""
    import pgbb
    from reproduction.simulate import LINEAR_MODEL, LINEAR_SCHEMA, linear_frame

    frame = linear_frame("contaminated_normal", 10_000, 0)
    return lambda seed: pgbb.fit(LINEAR_MODEL, frame, schema=LINEAR_SCHEMA, epsilon=1.0, delta=1e-4, insecure_seed=seed)


def step() -> Callable[[int], Any]:
    """Forty steps of the size of the natality study: n = 1.94M, p = 14, q = .01, K = 5, simulated."""
    from training import _session

    make = _session(1_940_000, 14, 40, 5, 0.01, 5)
    session = make(0)
    point = jnp.tile(jnp.asarray(session.problem.center, jnp.float32), (5, 1))
    asking = Step(
        lambda state, draw: (point + state, None),
        lambda state, draw, memo, answers: (state + 1e-6 * answers.sum(), None),
    )

    def run(seed: int) -> float:
        session = make(seed)
        begin = time.perf_counter(), time.process_time()
        for _ in session.run(jnp.zeros(()), asking, chunk=20):
            pass
        return begin

    return run


def measure(name: str, fit: Callable[[int], Any], runs: int) -> None:
    spent: dict[str, list[tuple[float, float]]] = {"hardened": [], "unhardened": []}

    def once(seed: int) -> tuple[float, float]:
        begin = time.perf_counter(), time.process_time()
        begin = inner if isinstance(inner := fit(seed), tuple) else begin
        return time.perf_counter() - begin[0], time.process_time() - begin[1]

    for seed in range(runs + 1):
        for which in spent:
            if which == "hardened":
                found = once(seed)
            else:
                with unhardened():
                    found = once(seed)
            if seed:  # the first compiles
                spent[which].append(found)
    a, b = np.array(spent["hardened"]), np.array(spent["unhardened"])
    for i, clock in enumerate(("wall clock", "processor")):
        print(
            f"{name}, {clock}: hardened {np.median(a[:, i]):.3f} s, unhardened {np.median(b[:, i]):.3f} s, "
            f"ratio of medians {np.median(a[:, i]) / np.median(b[:, i]):.2f}, "
            f"of minima {a[:, i].min() / b[:, i].min():.2f}",
            flush=True,
        )


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if not name.isdigit()] or ["linear", "step", "default"]
    count = next((int(word) for word in sys.argv[1:] if word.isdigit()), 5)
    for part in wanted:
        measure(part, globals()[part](), count)
