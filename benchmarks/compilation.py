"""Seconds that the default method spends on compiling: cold, and in a second process that finds the code of the first.

    python benchmarks/compilation.py

Compilation is the time of a first fit less that of an equal second one in the same process; beside it, the same in
seconds of processor time, which other work on the machine changes less, and of which two cores do two a second.
n = 65,023, p = 4, as in the census of 1980; five levels.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

FAMILIES = ("quantile", "huber", "logistic", "mean")
N, TERMS = 65_023, 4


def measure(family: str) -> None:
    import warnings

    import jax
    import numpy as np
    import pandas as pd

    import pgbb
    import pgbb.methods.calibrated.statistics  # what is imported is not compiled

    warnings.simplefilter("ignore")
    counted = {"programs": 0}

    def listen(event: str, seconds: float, **_: object) -> None:
        counted["programs"] += event.endswith("backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(listen)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{j}": rng.uniform(-1, 1, N) for j in range(1, TERMS)})
    frame["y"] = frame.sum(axis=1) / 2 + rng.normal(0, 0.5, N)
    frame["z"] = (frame["y"] > 0).astype(int)
    names = [f"x{j}" for j in range(1, TERMS)]
    schema = pgbb.Schema(y=pgbb.Range(-4, 4), z=pgbb.Flag(), **{name: pgbb.Range(-1, 1) for name in names})
    terms = " + ".join(names)
    model = {
        "quantile": pgbb.QuantileRegression(f"y ~ {terms}", taus=[0.1, 0.3, 0.5, 0.7, 0.9]),
        "huber": pgbb.HuberRegression(f"y ~ {terms}"),
        "logistic": pgbb.LogisticRegression(f"z ~ {terms}"),
        "mean": pgbb.Mean("y", scale=0.5),
    }[family]
    jax.block_until_ready(jax.jit(lambda v: v + 1)(jax.numpy.zeros(2)))  # the compiler itself is loaded
    counted["programs"] = 0
    times, work, programs = [], [], 0
    for seed in range(2):
        begin, busy = time.perf_counter(), time.process_time()
        pgbb.fit(model, frame, schema=schema, epsilon=1.0, delta=1e-7, insecure_seed=seed)
        times.append(time.perf_counter() - begin)
        work.append(time.process_time() - busy)
        programs = programs or counted["programs"]
    print(json.dumps({"first": times[0], "second": times[1], "cpu": work[0] - work[1], "programs": programs}))


def run(family: str, cache: str | None) -> dict[str, float]:
    settings = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"} if cache else {}  # fmt: skip
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")}
    command = [sys.executable, __file__, family]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=kept | settings)
    return json.loads(done.stdout)


def collect(families: tuple[str, ...] = FAMILIES) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for family in families:
        with tempfile.TemporaryDirectory() as folder:
            cold, filled, cached = run(family, None), run(family, folder), run(family, folder)
        assert filled["programs"] == cold["programs"]
        row = {"family": family, "programs": cold["programs"]}
        for name, r in (("cold", cold), ("cached", cached)):
            row |= {name: r["first"] - r["second"], f"{name}_cpu": r["cpu"], f"{name}_fit": r["second"]}
        rows.append(row)
    return rows


def main() -> None:
    print(f"{'default method':16}{'programs':>9}{'cold':>9}{'of CPU':>9}{'cached':>9}{'a fit after that':>19}")
    for family in FAMILIES:
        (r,) = collect((family,))
        print(
            f"{family:16}{r['programs']:9}{r['cold']:8.2f}s{r['cold_cpu']:8.2f}s{r['cached']:8.2f}s{r['cold_fit']:18.2f}s",
            flush=True,
        )


if __name__ == "__main__":
    measure(sys.argv[1]) if len(sys.argv) == 2 else main()
