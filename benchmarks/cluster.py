"""Fits on Dask workers: killed ones, sizes and seconds, and an object store.

    python benchmarks/cluster.py kills [FITS]         workers are killed while they read and while they answer
    python benchmarks/cluster.py hang                 a worker is stopped
    python benchmarks/cluster.py seconds [N] [WORKERS] against one process: seconds, answers, memory of workers
    python benchmarks/cluster.py store                from the command line, from a store that speaks S3 (needs moto)

Seconds need cores that are free; `kills` and `store` do not.
"""

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pgbb

COLUMNS = 6
FILES = 8
LEVELS = (0.1, 0.5, 0.9)
SCHEMA = pgbb.Schema(y=pgbb.Range(-8, 8), **{f"x{j}": pgbb.Range(-1, 1) for j in range(COLUMNS)})


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


def fitted(model: Any, data: Any, **more: Any) -> tuple[str, float]:
    """The digest of a seeded release, and how long it took."""
    begin = time.perf_counter()
    release = pgbb.fit(model, data, schema=SCHEMA, epsilon=1.0, delta=1e-9, **more)
    spent = time.perf_counter() - begin
    tensors = sorted(release.payload.tensors.items())
    found = hashlib.sha256(b"".join(name.encode() + np.ascontiguousarray(t).tobytes() for name, t in tensors))
    return found.hexdigest(), spent


@contextlib.contextmanager
def workers(count: int) -> Iterator[Any]:
    """A client of so many processes here, which Dask's nannies start again when they are killed."""
    from pgbb.engine import dask

    with contextlib.ExitStack() as stack:
        yield dask._client(dask.Cluster(f"local:{count}"), stack)


class Killer(threading.Thread):
    """Kills one or two workers: while they read, or right after some answer."""

    def __init__(self, client: Any, seed: int) -> None:
        super().__init__()
        self.client, self.choice = client, random.Random(seed)
        self.after = sorted(self.choice.choices([0, 0, 0, *range(1, 12)], k=self.choice.choice([1, 2])))
        self.answers, self.killed, self.done = 0, list[int](), threading.Event()

    def progress(self, answers: int, _: int) -> None:
        self.answers = answers

    def run(self) -> None:
        for after in self.after:
            self.done.wait(self.choice.uniform(0, 0.5))
            while self.answers < after and not self.done.is_set():
                time.sleep(0.002)
            with contextlib.suppress(Exception):  # a worker that is just starting
                os.kill(self.choice.choice(list(self.client.run(os.getpid).values())), signal.SIGKILL)
                self.killed.append(self.answers)


def kills(fits: int = 20, n: int = 400_000) -> None:
    """One or two of three workers are killed in each fit; its noise is made to repeat, which a ledger would refuse."""
    from pgbb.methods.calibrated import method

    model, create = pgbb.QuantileRegression("y ~ x0", taus=[0.5]), method.Randomness.create
    with tempfile.TemporaryDirectory() as name, workers(3) as client:
        folder = Path(name)
        write(folder, n)
        expected, _ = fitted(model, name, insecure_seed=1)
        method.Randomness.create = lambda _: create(1)  # type: ignore[method-assign,assignment]
        same = charged = killed = 0
        for i in range(fits):
            ledger = pgbb.Ledger(folder / f"{i}.db")
            ledger.set("records", n=n, epsilon=10.0, delta=1e-6)
            killer = Killer(client, i)
            killer.start()
            more = {"ledger": ledger, "dataset": "records", "progress": killer.progress}
            found, spent = fitted(model, name, cluster=client, **more)
            killer.done.set()
            killer.join()
            states = [str(entry.state) for entry in ledger.dataset("records").entries]
            same, charged, killed = (
                same + (found == expected),
                charged + (len(states) == 1),
                killed + len(killer.killed),
            )
            print(
                f"{i}: {spent:.1f} s, killed after answers {killer.killed}, {found == expected}, {states}", flush=True
            )
        print(f"{killed} workers killed in {fits} fits: same bits {same} of {fits}, one charge {charged} of {fits}")


def hang(n: int = 100_000) -> None:
    """A worker is stopped while it reads, or after the first answer: the fit ends with a message."""
    from dask import config as settings
    from distributed import LocalCluster

    from pgbb.engine import dask

    model = pgbb.Mean("y")
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), n)
        for after in (1, 0):
            ledger = pgbb.Ledger(Path(name) / f"{after}.db")
            ledger.set("records", n=n, epsilon=10.0, delta=1e-6)
            with settings.set(dask._LOCAL), LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1") as there:
                patient = pgbb.Cluster(there.scheduler_address)
                fitted(model, name, cluster=patient, insecure_seed=1)
                pid = next(iter(there.workers.values())).pid

                def stop(answers: int, _: int, after: int = after, pid: int = pid) -> None:
                    if answers == after:
                        os.kill(pid, signal.SIGSTOP)

                begin = time.perf_counter()
                stop(0, 0)
                try:
                    hasty = pgbb.Cluster(there.scheduler_address, patience=15.0)
                    fitted(model, name, cluster=hasty, ledger=ledger, dataset="records", progress=stop)
                    print(f"a worker stopped after {after} answers: NOT NOTICED")
                except pgbb.PgbbError as error:
                    states = [str(entry.state) for entry in ledger.dataset("records").entries]
                    spent = time.perf_counter() - begin
                    print(f"stopped after {after} answers: {spent:.0f} s, {type(error).__name__}: {error} {states}")
                os.kill(pid, signal.SIGCONT)


def highest() -> int:
    """Peak of this process in KiB; getrusage would count what its parent had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def seconds(n: int = 10_000_000, count: int = 2) -> None:
    """One process against workers; the second fit of each, as the first compiles."""
    model = pgbb.QuantileRegression(f"y ~ {' + '.join(f'x{j}' for j in range(COLUMNS))}", taus=list(LEVELS))
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), n)
        moments: list[float] = []

        def progress(done: int, total: int) -> None:
            moments.append(time.perf_counter())

        one = [fitted(model, name, insecure_seed=1) for _ in range(2)]
        with workers(count) as client:
            several = []
            for _ in range(2):
                moments.clear()
                several.append(fitted(model, name, cluster=client, progress=progress, insecure_seed=1))
            peak = max(client.run(highest).values()) / 2**20
        held = n / count * (COLUMNS + 3) * 4 / 2**30
        each = 1e3 * (moments[-1] - moments[0]) / (len(moments) - 1)
        print(
            f"n = {n:,}, {COLUMNS + 1} terms: one process {one[1][1]:.2f} s, {count} workers {several[1][1]:.2f} s, of "
            f"which {len(moments)} answers {each:.0f} ms each; peak of a "
            f"worker {peak:.2f} GiB, which holds {held:.2f} GiB; "
            f"{'same bits' if len({d for d, _ in one + several}) == 1 else 'OTHER BITS'}"
        )


def store(n: int = 20_000) -> None:
    """`pgbb fit s3://…` with two workers, against the same records from a folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "records").mkdir()
        write(folder / "records", n)
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", "5055"], stderr=subprocess.DEVNULL)
        try:
            address = "http://127.0.0.1:5055"
            access = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
            os.environ.update(access, AWS_ENDPOINT_URL=address, FSSPEC_S3_ENDPOINT_URL=address)
            import s3fs

            files = s3fs.S3FileSystem(endpoint_url=address)
            for _ in range(100):
                with contextlib.suppress(Exception):
                    files.mkdir("bucket")
                    break
                time.sleep(0.2)
            files.put(f"{name}/records/", "bucket/census/", recursive=True)
            lines = "".join(f"{column} = {{ range = [{d.low}, {d.high}] }}\n" for column, d in SCHEMA.items())
            (folder / "s.toml").write_text(f"[columns]\n{lines}")
            options = ["--schema", "s.toml", "-f", "y ~ x0", "--taus", ".5", "-e", "1", "-d", "1e-9", "--quiet"]
            options += ["--insecure-seed", "1", "--i-know-this-is-not-private", "--cluster", "local:2", "-o"]
            command = [sys.executable, "-m", "pgbb", "fit"]
            subprocess.run([*command, "s3://bucket/census/*.parquet", *options, "s3.pgbb"], cwd=name, check=True)
            subprocess.run([*command, "records", *options, "folder.pgbb"], cwd=name, check=True)
            found = [pgbb.load(folder / f"{which}.pgbb").payload.tensors for which in ("s3", "folder")]
            equal = all(np.array_equal(found[0][key], found[1][key]) for key in found[1])
            print(f"s3://bucket/census/*.parquet, {n:,} records: {'same bits' if equal else 'OTHER BITS'} as a folder")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    {"hang": hang, "kills": kills, "seconds": seconds, "store": store}[sys.argv[1]](*map(int, sys.argv[2:]))
