"""The default method on very many records, made on the device: seconds of a fit beside those of reading the rows.

    python benchmarks/scale.py [RECORDS] [TERMS] [quantile|linear|logistic …]
    python benchmarks/scale.py kernels        kernels of a GPU beside plain operations: whole numbers of 2¹⁶ rows

Prints the seconds of the first fit (compilation included) and of a second one, and the time to read all rows once for
every answer, which no fit can beat that asks one thing after another. Five levels. Of each statistic it prints the
operations that its definition has for one record, and beside the time of an answer two limits that were measured in
the same run: reading the rows, and so many operations at the rate of a loop of multiplications and additions.
"""

import math
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pgbb
from pgbb._numerics.compiled import Compiled
from pgbb.accountant import noise_scale
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.families import fit
from pgbb.methods.calibrated.stages import composition, questions_for, whole_noise
from pgbb.private import sums as private_sums
from pgbb.private import vectorised
from pgbb.private.local_engine import Here
from pgbb.private.partial_sums import fused_sums, in_one_kernel, slab_sums, traced_for
from pgbb.private.randomness import Randomness
from pgbb.private.row_layout import EXTRA
from pgbb.private.slabs import CORES, slab_rows
from pgbb.private.wide_integers import SPLIT

TAUS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
EPSILON, DELTA, HALF = 1.0, 1e-9, 6.0


def simulated(n: int, p: int, family: str) -> private_sums.Slabs:
    """Packed rows [x, y, weight] on the device, made there slab by slab."""
    size = slab_rows(n, p + EXTRA)
    slopes = jnp.linspace(0.5, -0.5, p)

    @jax.jit
    def slab(key: Any, count: Any) -> Any:
        a, b = jax.random.split(key)
        x = jax.random.uniform(a, (size, p), minval=-1.0, maxval=1.0).at[:, 0].set(1.0)
        y = x @ slopes + 0.5 * jax.random.normal(b, (size,))
        y = jnp.clip(y, -HALF, HALF) if family != "logistic" else (y > 0) * 1.0
        made = jnp.concatenate([x, y[:, None], jnp.ones((size, 1))], axis=1)
        return jnp.where(jnp.arange(size)[:, None] < count, made, 0.0)[None]

    counts = [min(size, n - start) for start in range(0, n, size)]
    keys = jax.random.split(jax.random.key(0), len(counts))
    parts = [(slab(key, count), np.array([count])) for key, count in zip(keys, counts, strict=True)]
    return private_sums.Slabs(jax.block_until_ready(parts), None, n, None)


def read(slabs: private_sums.Slabs) -> float:
    """Seconds to read all rows once, by every core."""

    def once() -> float:
        begin = time.perf_counter()
        if jax.default_backend() == "cpu":
            private_sums._total(lambda part, _: part, lambda part: np.asarray(part).sum(), slabs.parts)
        else:
            jax.block_until_ready([total(part) for part, _ in slabs.parts])
        return time.perf_counter() - begin

    total = jax.jit(jnp.sum)
    return min(once() for _ in range(5))


def rate(size: int = 2**12, turns: int = 16) -> float:
    """Operations a second of all cores or of the device, in a loop that has nothing to read."""
    on_cpu = jax.default_backend() == "cpu"
    cores, size = (CORES, size) if on_cpu else (1, 2**22)

    def chain(x: Any) -> Any:
        return jax.lax.fori_loop(0, 2**12, lambda _, v: reduce(lambda a, _: a * 0.999 + 0.001, range(turns), v), x)

    run, x = Compiled(chain, one_core=True), jnp.ones(size)
    jax.block_until_ready(run(x))
    best = np.inf
    for _ in range(3):
        begin = time.perf_counter()
        with ThreadPoolExecutor(cores) as pool:
            list(pool.map(lambda _: jax.block_until_ready(run(x)), range(cores)))
        best = min(best, time.perf_counter() - begin)
    return 2 * turns * 2**12 * size * cores / best


def operations(traced: Any) -> int:
    """Arithmetic on numbers in a function of one record; comparisons and conversions count, moves do not."""
    found = 0
    for step in traced.jaxpr.eqns:
        inner = step.params.get("jaxpr") or step.params.get("call_jaxpr")
        if inner is not None and hasattr(inner, "jaxpr"):
            found += operations(inner)
        elif step.primitive.name in vectorised._NUMBER_BY_NUMBER:
            found += math.prod(step.outvars[0].aval.shape)
        elif step.primitive.name in vectorised._OVER_AXES:
            found += math.prod(step.invars[0].aval.shape)
    return found


def model(family: str, names: list[str]) -> Any:
    terms = " + ".join(names)
    if family == "quantile":
        return pgbb.QuantileRegression(f"y ~ {terms}", taus=TAUS.tolist())
    return pgbb.LinearRegression(f"y ~ {terms}") if family == "linear" else pgbb.LogisticRegression(f"z ~ {terms}")


def main(n: int = 1_000_000, p: int = 14, family: str = "quantile") -> None:
    slabs = simulated(n, p, family)
    names = [f"x{j}" for j in range(1, p)]
    schema = pgbb.Schema(y=pgbb.Range(-HALF, HALF), z=pgbb.Flag(), **{name: pgbb.Range(-1, 1) for name in names})
    problem = model(family, names).prepare(schema)
    stages = questions_for(problem, len(TAUS), whole_noise(n, EPSILON, DELTA), weighted=False)
    plan = composition(stages, n)
    sigma = noise_scale(plan, EPSILON, DELTA)
    spent: dict[str, list[float]] = defaultdict(list)
    for attempt in ("first", "second"):
        here = Here.__new__(Here)
        here.n, here._rows, here._persons = n, slabs, None
        asked = private_sums.Sums(here, plan, [s.name for s in stages], sigma, Randomness.create(0))
        asker = Asker(asked, problem, stages)
        begin = time.perf_counter()
        asker.compile_ahead()
        spent.clear()
        asker.ask = timed(asker.ask, spent)  # type: ignore[method-assign]
        found, _ = fit(asker, problem, TAUS if family == "quantile" else None)
        whole = time.perf_counter() - begin
        print(
            f"{family}, n = {n:,}, p = {p}, {len(asked.asked)} answers on {jax.devices()[0].platform}: "
            f"{attempt} fit {whole:.3f} s",
            flush=True,
        )
    once, fast = read(slabs), rate()
    inside = sum(map(sum, spent.values()))
    print(f"answers {inside:.3f} s, between answers {whole - inside:.3f} s")
    answers = len(asked.asked)
    print(f"reading the rows {answers} times {answers * once:.3f} s: ratio {whole / answers / once:.1f}")
    print(f"{fast / 1e9:,.0f} thousand million operations a second")
    print(
        f"{'statistic':20}{'answers':>8}{'numbers':>8}{'operations':>11}{'answer':>11}{'reading':>11}{'arithmetic':>11}"
        f"{'all':>11}"
    )
    questions = {q.statistic: q for stage in stages for q in stage.questions}
    for name, times in spent.items():
        q = questions[name]
        traced = traced_for(q.function(problem), q.power, p + EXTRA, q.shapes)
        count, per = operations(traced), sum(times) / len(times)
        print(
            f"{name:20}{len(times):8}{traced.out_avals[0].shape[0]:8}{count:11}{1e3 * per:8.2f} ms{1e3 * once:8.2f} ms"
            f"{1e3 * count * n / fast:8.2f} ms{1e3 * sum(times):8.2f} ms"
        )
    if family != "logistic":
        shifts = np.outer(0.5 * np.array([-1.2816, -0.5244, 0, 0.5244, 1.2816]), np.eye(p)[0])
        true = np.linspace(0.5, -0.5, p) + (shifts if family == "quantile" else 0.0)
        print(f"largest error of a coefficient {np.abs(found.center - true).max():.5f}")


def timed(ask: Any, spent: dict[str, list[float]]) -> Any:
    def asking(stage: str, statistic: str, *parameters: Any) -> Any:
        begin = time.perf_counter()
        out = ask(stage, statistic, *parameters)
        spent[statistic].append(time.perf_counter() - begin)
        return out

    return asking


def kernels(p: int = 14, n: int = 2**16) -> None:
    """Sums of the same rows by the kernel and by plain operations, which round products differently."""
    names = [f"x{j}" for j in range(1, p)]
    schema = pgbb.Schema(y=pgbb.Range(-HALF, HALF), z=pgbb.Flag(), **{name: pgbb.Range(-1, 1) for name in names})
    rng = np.random.default_rng(0)
    seen = set()
    for family in ("quantile", "linear", "logistic"):
        problem = model(family, names).prepare(schema)
        rows = simulated(n, p, family).parts[0][0][0, :n]
        for stage in questions_for(problem, len(TAUS), whole_noise(10**8, EPSILON, DELTA), weighted=False):
            for q in stage.questions:
                function = q.function(problem)
                if (function, q.shapes) in seen or not in_one_kernel(function, q.power, p + EXTRA, q.shapes):
                    continue
                seen.add((function, q.shapes))
                drawn = [rng.uniform(0.2, 1, shape) for shape in q.shapes]
                given = [np.sort(np.atleast_1d(a)).reshape(a.shape).astype(np.float32) for a in map(np.asarray, drawn)]
                found = np.asarray(jax.jit(partial(fused_sums, function, q.power))(rows, given), np.int64)
                plainly = jax.jit(lambda r, g, f=function, w=q.power: slab_sums(f, w, 2**13, None, n // 2**13, r, g))
                whole, plain = (
                    a @ np.array([2**SPLIT, 1]) for a in (found, np.asarray(plainly(rows, given), np.int64))
                )
                print(
                    f"{q.statistic:20} {len(whole):4} sums, largest {np.abs(plain).max():,}; "
                    f"largest difference {np.abs(whole - plain).max() / n:.4f} a record",
                    flush=True,
                )


if __name__ == "__main__":
    if sys.argv[1:] == ["kernels"]:
        kernels()
    else:
        numbers = [int(float(g)) for g in sys.argv[1:3]]
        for family in sys.argv[3:] or ["quantile"]:
            main(*numbers, family=family)
