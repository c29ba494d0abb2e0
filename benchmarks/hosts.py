"""The default method on records that one or two processes share, each process on a core of its own.

    python benchmarks/hosts.py [RECORDS]

Writes simulated records to a folder of Parquet files, fits them with one process and then with two on loopback, each
bound to one core, and prints the seconds of a second fit in the same process (the first one compiles), loading
included, their ratio, and whether the releases are equal bit for bit. Needs two cores that are free.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = 6
FILES = 8
LEVELS = (0.1, 0.5, 0.9)


def write(folder: Path, n: int) -> None:
    """`FILES` files of row groups of 2¹⁸ records."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ends = np.linspace(0, n, FILES + 1).astype(int)
    for i in range(FILES):
        rng, count = np.random.default_rng(i), int(ends[i + 1] - ends[i])
        x = rng.uniform(-1, 1, (count, COLUMNS)).astype(np.float32)
        y = (x @ np.linspace(1, -1, COLUMNS) + 0.5 * rng.standard_normal(count)).astype(np.float32)
        table = pa.table({**{f"x{j}": x[:, j] for j in range(COLUMNS)}, "y": y})
        pq.write_table(table, folder / f"part-{i}.parquet", row_group_size=2**18)


def worker(folder: str, hosts: str) -> None:
    """Fit twice, and say how long the second fit took and what came of it."""
    import pgbb

    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    schema = pgbb.Schema(y=pgbb.Range(-8, 8), **{f"x{j}": pgbb.Range(-1, 1) for j in range(COLUMNS)})
    formula = f"y ~ {' + '.join(f'x{j}' for j in range(COLUMNS))}"
    model = pgbb.QuantileRegression(formula, taus=list(LEVELS))
    address, processes, process = hosts.rsplit(",", 2)
    host, port = address.rsplit(":", 1)
    said: dict[str, Any] = {}
    for attempt in range(2):
        answered: list[float] = []
        begin, busy = time.perf_counter(), time.process_time()
        release = pgbb.fit(
            model, folder, schema=schema, epsilon=1.0, delta=1e-9, insecure_seed=1,
            hosts=f"{host}:{int(port) + attempt},{processes},{process}",
            progress=lambda done, total, seen=answered: seen.append(time.perf_counter()),
        )  # fmt: skip
        said["first" if attempt == 0 else "second"] = time.perf_counter() - begin
        said["processor"] = time.process_time() - busy
        said["answers"] = answered[-1] - answered[0] if answered else None
    tensors = sorted(release.payload.tensors.items())
    found = hashlib.sha256(b"".join(name.encode() + np.ascontiguousarray(t).tobytes() for name, t in tensors))
    print(json.dumps({**said, "digest": found.hexdigest()}))


def together(folder: Path, processes: int) -> dict[str, Any]:
    """One run with so many processes, each bound to its core; what process 0 says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0))
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", str(folder), f"127.0.0.1:{port},{processes},{k}"],
            stdout=subprocess.PIPE, text=True, preexec_fn=lambda core=cores[k]: os.sched_setaffinity(0, {core}),
        )
        for k in range(processes)
    ]  # fmt: skip
    texts = [process.communicate()[0] for process in started]
    said: dict[str, Any] = json.loads(texts[0])
    return said


def main(n: int = 10_000_000) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("two cores are needed, one for each process.")
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), n)
        found = {count: together(Path(name), count) for count in (1, 2)}
    for count, said in found.items():
        print(
            f"n = {n:,}, {COLUMNS + 1} terms, {len(LEVELS)} levels, {count} process{'es' if count > 1 else ''}: first "
            f"fit {said['first']:.1f} s, second fit {said['second']:.1f} s, of which answers {said['answers']:.1f} s; "
            f"processor time of process 0 {said['processor']:.1f} s"
        )
    one, two = found[1], found[2]
    print(
        f"two processes are {one['second'] / two['second']:.2f} times as fast, answers alone "
        f"{one['answers'] / two['answers']:.2f} times, by processor time {one['processor'] / two['processor']:.2f}; "
        f"releases are "
        f"{'equal bit for bit' if one['digest'] == two['digest'] else 'DIFFERENT'}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        main(*map(int, sys.argv[1:]))
