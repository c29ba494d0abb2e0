"""Times on one accelerator, compilation and loading excluded where it says so.

    python benchmarks/device.py check            lists of members and sums over them, against plain array operations
    python benchmarks/device.py natality         the printed algorithm at the paper's natality setting, simulated births
    python benchmarks/device.py linear [JOBS] [R]  12 cells × R = 100 fits of the linear study by method="pgbb", in
                                                 one process, or in so many that share the device (by MPS, if it is
                                                 there); with printed intervals and with noise-aware ones
    python benchmarks/device.py profile          the kernels of a step of both
    python benchmarks/device.py kernels          a step of the generator with and without kernels of its own

The default method at n = 10⁸ is in `benchmarks/scale.py`.
"""

import collections
import glob
import gzip
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # processes share the memory

import jax
import jax.numpy as jnp
import numpy as np

import pgbb
from pgbb.accountant import Mechanism
from pgbb.methods.pgbb import kernels as network
from pgbb.methods.pgbb import training
from pgbb.methods.pgbb.settings import Settings, plan
from pgbb.methods.request import Request, prepared
from pgbb.model.blocks import block_of_position
from pgbb.private import poisson_on_device as batches
from pgbb.private.batch_sums import add_batch_sums, noise_totals
from pgbb.private.gradients import weighted_rows
from pgbb.private.randomness import Randomness
from pgbb.private.records import Records
from pgbb.private.row_layout import EXTRA, empty_rows
from pgbb.private.session import Session
from pgbb.private.wide_integers import joined, wide_sum

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # reproduction/ lies beside benchmarks/

from reproduction.constants import constants
from reproduction.fits import fit_many
from reproduction.real import NATALITY_SCHEMA
from reproduction.simulate import LINEAR_MODEL, LINEAR_SCHEMA, NOISES, births_frame, linear_frame
from reproduction.studies.births import MODEL

N = 1_940_000
INTERVALS = ("printed", "noise-aware")


def check() -> None:
    """Exit status 1 if a list differs, or a sum by more than rounding."""
    cells = [
        (LINEAR_MODEL, LINEAR_SCHEMA, n, q, k, s)
        for n, q, k, s in ((40_000, 0.1, 1, 20), (10_000, 0.1, 2, 5), (500, 0.2, 1, 20))
    ]
    right = [_compared(*cell) for cell in [(MODEL, NATALITY_SCHEMA, N, 0.01, 5, 5), *cells]]
    if not all(right):
        sys.exit(1)


def _compared(model: Any, schema: Any, n: int, rate: float, k: int, blocks: int) -> bool:
    """Whether the kernels list whom the mask has, and add up as plain operations do, in the last of four steps."""
    problem, plan, rng = prepared(model, schema), batches.sampler(n, rate), np.random.default_rng(0)
    p, steps = problem.dim - (problem.kind == "huber"), 4
    key = jnp.asarray(rng.integers(0, 2**32, (steps, k, 4), dtype=np.uint32))
    rows = rng.uniform(-1, 1, (n, p + EXTRA)).astype(np.float32)
    rows[:, p + 1] = 1
    rows = jnp.asarray(rows)
    block = jnp.asarray(block_of_position(n, blocks))
    drawn = {
        "key": key,
        "whole": jnp.asarray(np.floor(rng.random((steps, k, blocks)) * 2**24), jnp.float32),
        "listed": jax.vmap(jax.vmap(partial(batches.candidates, plan)))(key),
        "index": jnp.asarray(rng.random((steps, k)), jnp.float32),
    }
    noise = jnp.asarray(rng.integers(-(2**10), 2**10, (steps, k, 2, problem.dim)), jnp.int32)
    theta = jnp.asarray(rng.uniform(0.2, 1, (k, problem.dim)), jnp.float32)
    totals = add_batch_sums(problem, plan, rows, block, drawn, 3, theta, noise_totals(noise, rows.shape[1]))
    totals = totals[..., : problem.dim]
    same, apart = bool((totals[:3] == noise[:3]).all()), 0.0

    @jax.jit
    def plainly(key: Any, whole: Any, point: Any, index: Any, noise: Any) -> tuple[Any, Any]:
        joins, spare = batches.mask(plan, key), -n % 64
        inverse = jnp.pad(jnp.where(joins, 1 / whole[block], jnp.inf), (0, spare), constant_values=jnp.inf)
        values = weighted_rows(problem, jnp.pad(rows, ((0, spare), (0, 0))), inverse, point, index)
        high, low = (half[: problem.dim] + part for half, part in zip(wide_sum(values), noise, strict=True))
        return joins, joined(high, low)

    for i in range(k):
        joins, expected = plainly(key[3, i], drawn["whole"][3, i], theta[i], drawn["index"][3, i], noise[3, i])
        listed = drawn["listed"][3, i]
        same &= np.array_equal(listed[batches.joins(plan, key[3, i], listed)], np.flatnonzero(joins))
        difference = joined(totals[3, i, 0], totals[3, i, 1]) - expected
        apart = max(apart, float(jnp.abs(difference).max() / jnp.abs(expected).max()))
    print(
        f"{problem.kind}, n = {n:,}: lists {'equal' if same else 'DIFFER'}, sums differ by {apart:.1e} of the largest"
    )
    return same and apart < 1e-5


def births(frame: Any, steps: int, seed: int) -> list[tuple[float, int]]:
    """(time, steps done) after every chunk of a fit."""
    seen: list[tuple[float, int]] = []
    settings = constants("natality", "paper") | {"steps": steps}
    pgbb.fit(
        MODEL, frame, schema=NATALITY_SCHEMA, epsilon=1.0, delta=1 / N, method="pgbb", accountant="paper",
        insecure_seed=seed, progress=lambda done, _: seen.append((time.perf_counter(), done)), **settings,
    )  # fmt: skip
    return seen


def natality() -> None:
    frame, _ = births_frame(N, 0)
    for seed in range(2):  # the second is compiled
        begin = time.perf_counter()
        seen = births(frame, 10_000, seed)
        whole = time.perf_counter() - begin
    (start, first), (end, last) = seen[0], seen[-1]
    each = (end - start) / (last - first)
    print(f"natality, n = {N:,}, K = 5, T = 10,000: {each * 1e6:.0f} µs a step, {each * 1e4:.2f} s for the steps; "
          f"{whole:.1f} s with loading")  # fmt: skip


def _cell(frames: list[Any], epsilon: float, seeds: Any, intervals: str = "printed", **settings: Any) -> None:
    n, accountant = len(frames[0]), "paper" if intervals == "printed" else "exact"
    fit_many(
        LINEAR_MODEL, frames, schema=LINEAR_SCHEMA, epsilon=epsilon, delta=1 / n, method="pgbb", accountant=accountant,
        insecure_seeds=seeds, intervals=intervals, **constants("linear", "paper") | settings,
    )  # fmt: skip


def _noise(frame: Any, epsilon: float, intervals: str) -> None:
    """Find the noise scale of a cell; it is remembered."""
    request = Request(
        model=LINEAR_MODEL, data=frame, schema=LINEAR_SCHEMA, epsilon=epsilon, delta=1 / len(frame),
        accountant="paper" if intervals == "printed" else "exact",
    )  # fmt: skip
    plan(request, Settings(intervals=intervals, **constants("linear", "paper")), len(frame))


def _cells(cells: list[tuple[str, int, float]], replicates: int, ready: Any, seconds: Any) -> None:
    """Some cells of the study; data, programs and noise scales are there before all processes begin."""
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    frames = {(k, n): [linear_frame(k, n, r) for r in range(replicates)] for k, n, _ in cells}
    for intervals in INTERVALS:
        begin = time.perf_counter()
        for n in sorted({n for _, n, _ in cells}):
            _cell(next(found for (_, m), found in frames.items() if m == n), 1.0, range(replicates), intervals)
        for kind, n, epsilon in cells:
            _noise(frames[kind, n][0], epsilon, intervals)
        before = time.perf_counter() - begin
        ready.wait()
        for kind, n, epsilon in cells:
            begin = time.perf_counter()
            _cell(frames[kind, n], epsilon, range(replicates), intervals)
            seconds.put((time.perf_counter() - begin, before))


def linear(jobs: int = 1, replicates: int = 100) -> None:
    cells = [(kind, n, e) for n in (10_000, 40_000) for kind in NOISES for e in (1.0, 2.0, 4.0)]
    spawn = multiprocessing.get_context("spawn")
    sharing = shutil.which("nvidia-cuda-mps-control") if jobs > 1 else None
    if sharing:
        subprocess.run([sharing, "-d"], check=False)
    ready, seconds = spawn.Barrier(jobs + 1), spawn.Queue()
    parts = [[cells[i] for i in part] for part in np.array_split(range(len(cells)), jobs)]
    workers = [spawn.Process(target=_cells, args=(part, replicates, ready, seconds)) for part in parts]
    try:
        for worker in workers:
            worker.start()
        times = {}
        for intervals in INTERVALS:
            ready.wait(timeout=600)
            begin = time.perf_counter()
            found = [seconds.get(timeout=600) for _ in cells]
            times[intervals] = whole = time.perf_counter() - begin
            print(f"linear, {intervals}, 12 cells × {replicates} fits, processes: {jobs}: {whole:.1f} s, cells "
                  f"{min(found)[0]:.2f} to {max(found)[0]:.2f} s (before: {max(b for _, b in found):.1f} s)",
                  flush=True)  # fmt: skip
        print(f"noise-aware intervals take {times['noise-aware'] / times['printed']:.2f} of the time of printed ones")
    finally:
        for worker in workers:
            worker.join(timeout=10)
        if sharing:
            subprocess.run([sharing], input="quit\n", text=True, check=False)


def _kernels(work: Callable[[], Any], steps: int, top: int = 18) -> None:
    """Do the work twice, the second time under the profiler, and print where the device spends its time."""
    work()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            work()
        with gzip.open(glob.glob(f"{folder}/**/*.json.gz", recursive=True)[-1]) as file:
            events = json.load(file)["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    spent: collections.Counter[str] = collections.Counter()
    for e in events:
        if e.get("ph") == "X" and "GPU" in names.get(e["pid"], ""):
            spent[e["name"]] += e["dur"]
    print(f"   {sum(spent.values()) / steps:8.1f} µs a step in all")
    for name, total in spent.most_common(top):
        print(f"   {total / steps:8.1f}  {name[:80]}")


def profile() -> None:
    frame, _ = births_frame(N, 0)
    print("natality")
    _kernels(lambda: births(frame, 500, 0), 500)
    for n in (10_000, 40_000):
        frames = [linear_frame("student_t", n, r) for r in range(100)]
        for intervals in INTERVALS:
            print(f"linear, {intervals}, n = {n:,}, 100 side by side")
            _kernels(partial(_cell, frames, 1.0, range(100), intervals, steps=500), 500)


def kernels() -> None:
    """Two fits each, in turn; the same answers, and a network that is written out or left to the compiler."""
    found = network.find_layout
    for n, d, q, draws, blocks in ((N, 14, 0.01, 5, 5), (10_000, 4, 0.1, 1, 20)):
        model = pgbb.Custom(
            lambda t, r, i, d=d: 0.5 * jnp.sum((t - r["a"] * jnp.linspace(-1, 1, d) - r["b"]) ** 2),
            dim=d, clip=1.0, columns=["a", "b"], box=(-2, 2),
        )  # fmt: skip
        problem = model.prepare(pgbb.Schema(a=pgbb.Range(-1, 1), b=pgbb.Range(-1, 1)))
        x = np.random.default_rng(0).uniform(-1, 1, (n, 2)).astype(np.float32)
        rows = empty_rows(*x.shape)
        rows[:, :-2], rows[:, -2], rows[:, -1] = x, 0, 1
        records = Records(rows, np.ones(n, bool))
        mechanism = Mechanism(n=n, blocks=blocks, sampling_rate=q, steps=10_000, draws_per_step=draws, clip=1.0)
        for name in ("kernels", "plain") * 2:
            network.find_layout = found if name == "kernels" else lambda *_, **__: None
            training._make_step.cache_clear()
            seen: list[tuple[float, int]] = []
            training.train(
                Session(records, problem, mechanism, 0.02, Randomness.create(1)),
                progress=lambda done, _, seen=seen: seen.append((time.perf_counter(), done)),
            )
            (start, first), (end, last) = seen[0], seen[-1]
            print(
                f"n = {n:,}, d = {d}, K = {draws}, S = {blocks}, {name}: {(end - start) / (last - first) * 1e6:.1f} µs"
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    word, *rest = sys.argv[1:] or sys.exit(__doc__)
    words = {"check": check, "natality": natality, "linear": linear, "profile": profile, "kernels": kernels}
    words[word](*map(int, rest))
    print(jax.devices()[0].device_kind)
