"""Peak memory of a fit from a Parquet file, beside the design matrix; time against n.

    python benchmarks/memory.py [RECORDS] [TERMS]
    python benchmarks/memory.py curve [LARGEST]
    python benchmarks/memory.py coded [RECORDS]     10 numbers and 4 factors of 50 levels, stored as codes
    python benchmarks/memory.py scratch [RECORDS] [TERMS] [FOLDER]     rows in a scratch file, beside reading it
    python benchmarks/memory.py reader [RECORDS] [TERMS]     from Parquet and CSV to stored rows, beside pyarrow

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


def write_coded(path: Path, n: int) -> None:
    """Ten numbers, four factors of 50 levels and a flag that depends on two of them."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    kind = pa.schema([(f"x{j}", pa.float64()) for j in range(10)] + [(f"g{j}", pa.int8()) for j in range(4)])
    kind = kind.append(pa.field("y", pa.int8()))
    with pq.ParquetWriter(path, kind) as file:
        for start in range(0, n, 2**20):
            size = min(2**20, n - start)
            x, g = rng.uniform(-1, 1, (10, size)), rng.integers(0, 50, (4, size)).astype(np.int8)
            y = (rng.uniform(size=size) < 1 / (1 + np.exp(-x[0] - (g[0] > 25)))).astype(np.int8)
            file.write_table(pa.table([*x, *g, y], schema=kind))


def measure_coded(path: str) -> None:
    """Load the rows, and ask for the score of a logistic regression with 207 coefficients; prints what it took."""
    import jax
    import numpy as np

    import pgbb
    from pgbb.accountant import Composition, Mechanism
    from pgbb.methods.calibrated.statistics import logistic_score
    from pgbb.private.door import Randomness, open_sums

    jax.devices()
    names = [*(f"x{j}" for j in range(10)), *(f"g{j}" for j in range(4))]
    schema = pgbb.Schema(
        y=pgbb.Flag(), **{f"x{j}": pgbb.Range(-1, 1) for j in range(10)},
        **{f"g{j}": pgbb.Levels(*range(50)) for j in range(4)},
    )  # fmt: skip
    problem = pgbb.LogisticRegression("y ~ " + " + ".join(names)).prepare(schema)
    idle = status("VmRSS")
    with open_sums(path, problem, schema) as data:
        held, p = data._held.rows.nbytes / 2**20, len(problem.names)  # type: ignore[union-attr]
        loaded = status("VmHWM")
        m = Mechanism(n=data.n, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
        sums = data.sums(Composition((m,), (1.0,)), ["score"], 0.0, Randomness.create(0))
        sums.ask("score", logistic_score, np.zeros(p), np.eye(p) / 20)
        found = {"n": data.n, "p": p, "dense": data.n * (p + 2) * 4 / 2**20}
    print(json.dumps(found | {"rows": held, "idle": idle, "loaded": loaded, "peak": status("VmHWM")}))


def coded(n: int = N) -> None:
    """Memory of coded rows beside that of dense ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d.parquet"
        write_coded(path, n)
        r = _run("coded", str(path))
        print(
            f"n = {n:,}, {r['p']} coefficients: dense {r['dense']:,.0f} MiB, stored {r['rows']:,.0f} MiB; idle "
            f"{r['idle']:.0f} MiB, peak {r['loaded']:.0f} MiB when loaded, {r['peak']:.0f} MiB after a pass"
        )


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
    from pgbb.private.row_layout import EXTRA

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


def measure_scratch(path: str, p: int, folder: str) -> None:
    """A fit with rows in a scratch file, and the file of its size read as often as it was asked; prints both."""
    import warnings

    import jax
    import numpy as np
    import pyarrow.parquet as pq

    import pgbb
    import pgbb.methods.calibrated.statistics
    import pgbb.private.loading
    from pgbb.private.row_layout import EXTRA
    from pgbb.private.scratch import Scratch

    warnings.simplefilter("ignore")
    jax.devices()
    names, n = [f"x{j}" for j in range(1, p)], pq.read_metadata(path).num_rows
    schema = pgbb.Schema(y=pgbb.Range(-6, 6), **{name: pgbb.Range(-1, 1) for name in names})
    model = pgbb.QuantileRegression("y ~ " + " + ".join(names), taus=[0.1, 0.3, 0.5, 0.7, 0.9])
    idle, answers = status("VmRSS"), [time.perf_counter()]
    pgbb.fit(
        model, path, schema=schema, epsilon=1.0, delta=1e-10, scratch=folder,
        progress=lambda *_: answers.append(time.perf_counter()),
    )  # fmt: skip
    peak, end = status("VmHWM"), time.perf_counter()
    rows, step = Scratch(Path(folder), n, p + EXTRA), 2**16
    for start in range(0, n, step):
        rows.append(np.zeros((min(step, n - start), p + EXTRA), np.uint32))
    begin = time.perf_counter()
    for start in range(0, n, step):
        rows[start : start + step]
    read = (time.perf_counter() - begin) * (len(answers) - 1)
    found = {"n": n, "p": p, "file": n * (p + EXTRA) * 4 / 2**20, "idle": idle, "peak": peak, "read": read}
    passes = end - answers[1]  # all but the first answer, which waits for the compiler
    print(json.dumps(found | {"answers": len(answers) - 1, "before": answers[1] - answers[0], "passes": passes}))


def scratch(n: int = N, p: int = TERMS, folder: str = tempfile.gettempdir()) -> None:
    """Peak memory of a fit whose rows are in a file, and its passes beside reading that file from the cache."""
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        path = Path(inside) / "d.parquet"
        write(path, n, p)
        r = _run("scratch", str(path), str(p), inside)
        print(
            f"n = {n:,}, p = {p}: scratch file {r['file']:,.0f} MiB; idle {r['idle']:.0f} MiB, peak {r['peak']:.0f} "
            f"MiB; {r['before']:.1f} s to the first answer, {r['passes']:.1f} s for {r['answers'] - 1} more, "
            f"{r['passes'] / r['read']:.2f} times reading the file {r['answers']} times ({r['read']:.1f} s)"
        )


def measure_reader(path: str, p: int) -> None:
    """From a file to stored rows, and Arrow's own scan of it: the least of five, in turns; prints both."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    import pgbb
    from pgbb.private.loading import stored_for

    names = [f"x{j}" for j in range(1, p)]
    schema = pgbb.Schema(y=pgbb.Range(-6, 6), **{name: pgbb.Range(-1, 1) for name in names})
    problem = pgbb.LinearRegression("y ~ " + " + ".join(names)).prepare(schema)

    def scan() -> None:
        if path.endswith(".csv"):
            for _ in pyarrow.csv.open_csv(path):
                pass
        else:
            for _ in pq.ParquetFile(path).iter_batches():
                pass

    found: dict[str, list[tuple[float, float]]] = {"scan": [], "ours": []}
    for _ in range(5):
        for name, read in (("scan", scan), ("ours", lambda: stored_for(path, problem, schema))):
            begin, busy = time.perf_counter(), time.process_time()
            read()
            found[name].append((time.perf_counter() - begin, time.process_time() - busy))
    print(json.dumps({name: [min(times) for times in zip(*each, strict=True)] for name, each in found.items()}))


def reader(n: int = N, p: int = TERMS) -> None:
    """Arrow's scan over ours, in time on the clock and of processors."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        path, text = Path(folder) / "d.parquet", Path(folder) / "d.csv"
        write(path, n, p)
        file = pq.ParquetFile(path)
        with pyarrow.csv.CSVWriter(text, file.schema_arrow) as out:
            for batch in file.iter_batches():
                out.write_batch(batch)
        for each in (path, text):
            r = _run("reader", str(each), str(p))
            (wall, busy), (our_wall, our_busy) = r["scan"], r["ours"]  # type: ignore[misc]
            print(
                f"{each.suffix[1:]:8} n = {n:,}, p = {p}, {each.stat().st_size / 2**20:,.0f} MiB: scan {wall:.2f} s "
                f"({busy:.2f} s of processors), to stored rows {our_wall:.2f} s ({our_busy:.2f} s): "
                f"{wall / our_wall:.0%} of its speed, {busy / our_busy:.0%} by processor time",
                flush=True,
            )


def _run(*arguments: str) -> dict[str, float]:
    """What a process of its own prints as JSON."""
    command = [sys.executable, __file__, "child", *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])


def child(path: Path, small: Path | None, method: str, p: int, repeats: int = 1) -> dict[str, float]:
    return _run("fit", str(path), str(small or ""), method, str(p), str(repeats))


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
    if sys.argv[1:3] == ["child", "fit"]:
        measure(sys.argv[3], sys.argv[4], sys.argv[5], int(sys.argv[6]), int(sys.argv[7]))
    elif sys.argv[1:3] == ["child", "coded"]:
        measure_coded(sys.argv[3])
    elif sys.argv[1:3] == ["child", "scratch"]:
        measure_scratch(sys.argv[3], int(sys.argv[4]), sys.argv[5])
    elif sys.argv[1:2] == ["scratch"]:
        scratch(*map(int, sys.argv[2:4]), *sys.argv[4:])
    elif sys.argv[1:3] == ["child", "reader"]:
        measure_reader(sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1:2] == ["reader"]:
        reader(*map(int, sys.argv[2:]))
    elif sys.argv[1:2] == ["coded"]:
        coded(*map(int, sys.argv[2:]))
    elif sys.argv[1:2] == ["curve"]:
        curve(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
