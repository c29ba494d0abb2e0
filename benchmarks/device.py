"""Times on one accelerator, compilation and loading excluded where it says so.

    python benchmarks/device.py natality    the printed algorithm at the paper's natality setting (simulated births)
    python benchmarks/device.py linear      12 cells × 100 fits of the linear study by method="paper"
    python benchmarks/device.py profile     the kernels of a step of both

The default method at n = 10⁸ is in `benchmarks/scale.py`.
"""

import collections
import glob
import gzip
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

import pgbb
from pgbb.fitting import fit_many
from pgbb.studies.births import MODEL
from pgbb.studies.constants import constants
from pgbb.studies.real import NATALITY_SCHEMA
from pgbb.studies.simulate import LINEAR_MODEL, LINEAR_SCHEMA, NOISES, births_frame, linear_frame

N = 1_940_000


def births(frame: Any, steps: int, seed: int) -> list[tuple[float, int]]:
    """(time, steps done) after every chunk of a fit."""
    seen: list[tuple[float, int]] = []
    settings = constants("natality", "paper") | {"steps": steps}
    pgbb.fit(
        MODEL, frame, schema=NATALITY_SCHEMA, epsilon=1.0, delta=1 / N, method="paper", accountant="paper",
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


def linear(replicates: int = 100) -> None:
    frames = {(k, n): [linear_frame(k, n, r) for r in range(replicates)] for k in NOISES for n in (10_000, 40_000)}
    settings = constants("linear", "paper")

    def cell(kind: str, n: int, epsilon: float, steps: int) -> float:
        begin = time.perf_counter()
        fit_many(
            LINEAR_MODEL, frames[kind, n], schema=LINEAR_SCHEMA, epsilon=epsilon, delta=1 / n, method="paper",
            accountant="paper", insecure_seeds=range(replicates), **settings | {"steps": steps},
        )  # fmt: skip
        return time.perf_counter() - begin

    kind = next(iter(NOISES))
    warm = sum(cell(kind, n, 1.0, settings["steps"]) for n in (10_000, 40_000))
    times = [cell(kind, n, e, settings["steps"]) for kind, n in frames for e in (1.0, 2.0, 4.0)]
    print("seconds a cell: " + " ".join(f"{t:.2f}" for t in times))
    print(f"linear, 12 cells × {replicates} fits: {sum(times):.1f} s (two cells with compilation: {warm:.1f} s)")


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
        settings = constants("linear", "paper") | {"steps": 500}
        fits = partial(
            fit_many, LINEAR_MODEL, frames, schema=LINEAR_SCHEMA, epsilon=1.0, delta=1 / n, method="paper",
            accountant="paper", insecure_seeds=range(100), **settings,
        )  # fmt: skip
        print(f"linear, n = {n:,}, 100 side by side")
        _kernels(fits, 500)


if __name__ == "__main__":
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    print(jax.devices()[0].device_kind)
    for word in sys.argv[1:] or ["natality", "linear"]:
        {"natality": natality, "linear": linear, "profile": profile}[word]()
