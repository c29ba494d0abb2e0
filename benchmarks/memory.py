"""Peak memory of a fit from a Parquet file, beside the design matrix; time against n.

    python benchmarks/memory.py [RECORDS] [TERMS]
    python benchmarks/memory.py curve [LARGEST]

Each fit has a process of its own. Its peak is VmHWM less VmRSS of the same process after all imports, before anything
is read or compiled; and less VmRSS after a small fit of the same kind, which has loaded compiler and accountant, whose
memory does not grow with n. Divided by the design matrix, n·p·4 bytes, intercept included; and by the n·(p + 2)·4 bytes
of the packed rows, which hold the response and the survey weight beside it.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

N, TERMS = 10_000_000, 14


def write(path: Path, n: int, p: int) -> None:
    """A file of p − 1 covariates and a response in double precision, in row groups of the usual size."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    names = [*(f"x{j}" for j in range(1, p)), "y"]
    kind = pa.schema([(name, pa.float64()) for name in names])
    with pq.ParquetWriter(path, kind) as file:
        for start in range(0, n, 2**20):
            size = min(2**20, n - start)
            x = rng.uniform(-1, 1, (p - 1, size))
            y = x[: min(3, p - 1)].sum(axis=0) / 2 + rng.normal(0, 0.5, size)
            file.write_table(pa.table([*x, y], schema=kind))


def status(field: str) -> float:
    """A line of /proc/self/status in MiB (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(field)


def measure(path: str, small: str, method: str, p: int, repeats: int) -> None:
    """One fit, or the fastest of several; prints what it took."""
    import warnings

    import jax
    import pyarrow.parquet as pq

    import pgbb
    import pgbb.methods.calibrated.statistics
    import pgbb.methods.pgbb.training
    import pgbb.private.loading
    from pgbb.private.rows import EXTRA

    warnings.simplefilter("ignore")
    jax.devices()
    names = [f"x{j}" for j in range(1, p)]
    schema = pgbb.Schema(y=pgbb.Range(-6, 6), **{name: pgbb.Range(-1, 1) for name in names})
    model = pgbb.QuantileRegression("y ~ " + " + ".join(names), taus=[0.1, 0.3, 0.5, 0.7, 0.9])
    paper = {"blocks": 5, "draws_per_step": 5, "sampling_rate": 0.01, "steps": 40} if method == "pgbb" else {}
    n = pq.read_metadata(path).num_rows

    def fit(file: str) -> None:
        pgbb.fit(model, file, schema=schema, epsilon=1.0, delta=1e-9, method=method, **paper)

    idle = status("VmRSS")
    if small:
        fit(small)
    ready = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    times = []
    for _ in range(repeats):
        begin, busy = time.perf_counter(), time.process_time()
        fit(path)
        times += [time.perf_counter() - begin, time.process_time() - busy]  # other work on the machine counts less
    seconds = min(times)
    peak = status("VmHWM")
    matrix = n * p * 4 / 2**20
    print(
        json.dumps(
            {"method": method, "n": n, "p": p, "seconds": seconds, "matrix": matrix, "idle": idle, "ready": ready}
            | {"peak": peak, "over_idle": (peak - idle) / matrix, "over_ready": (peak - ready) / matrix}
            | {"packed_over_idle": (peak - idle) / (matrix * (p + EXTRA) / p), "warm": bool(small)}
            | {"packed_over_ready": (peak - ready) / (matrix * (p + EXTRA) / p)}
        )
    )


def child(path: Path, small: Path | None, method: str, p: int, repeats: int = 1) -> dict[str, float]:
    command = [sys.executable, __file__, "child", str(path), str(small or ""), method, str(p), str(repeats)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])


def main(n: int = N, p: int = TERMS) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "d.parquet", Path(folder) / "s.parquet"
        write(path, n, p)
        write(small, 20_000, p)
        print(
            f"n = {n:,}, p = {p}: design matrix {n * p * 4 / 2**20:.0f} MiB, file {path.stat().st_size / 2**20:.0f} MiB"
        )
        for method in ("calibrated", "pgbb"):
            r, w = child(path, None, method, p), child(path, small, method, p)
            print(f"{method:12} peak {r['peak']:.0f} MiB, idle {r['idle']:.0f} MiB, {r['seconds']:.0f} s")
            for label, part in (("idle", (r, "over_idle")), ("idle after a small fit", (w, "over_ready"))):
                found, key = part
                whole = found[f"packed_{key}"]
                print(f"  over {label:24}{found[key]:.3f} of the matrix, {whole:.3f} of the rows", flush=True)


def curve(largest: int = N, p: int = 4) -> list[dict[str, float]]:
    """Seconds of a fit against n, least of three, reading included, compiled before; and the slope of their logs."""
    import numpy as np

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "d.parquet", Path(folder) / "s.parquet"
        for n in (100_000, 316_228, 1_000_000, 3_162_278, 10_000_000):
            if n > largest:
                break
            write(path, n, p)
            write(small, n, p)
            rows.append(child(path, small, "calibrated", p, repeats=3))
            print(f"n = {n:10,}  {rows[-1]['seconds']:8.2f} s", flush=True)
    slope = np.polyfit(np.log([r["n"] for r in rows]), np.log([r["seconds"] for r in rows]), 1)[0]
    print(f"slope of log time on log n: {slope:.3f}")
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        measure(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
    elif sys.argv[1:2] == ["curve"]:
        curve(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
