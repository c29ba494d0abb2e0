"""Fits on Dask workers: killed ones, sizes and seconds, and an object store.

    python benchmarks/cluster.py kills [FITS] [N] [T]  workers are killed while they read and while they answer: of the
                                                      default method, or of DP-SGLD with T steps
    python benchmarks/cluster.py hang                 a worker is stopped
    python benchmarks/cluster.py seconds [N] [WORKERS] against one process and a star of processes on pipes: seconds,
                                                      answers, memory of workers
    python benchmarks/cluster.py asking [WORKERS]     what an answer costs beside the sums: few records
    python benchmarks/cluster.py steps [N] [WORKERS]  a step of a training against one process
    python benchmarks/cluster.py large [N] [WORKERS]  from Parquet that is larger than a worker's share of memory
    python benchmarks/cluster.py spark                every model and a chain on Spark in local mode: bits (needs Java)
    python benchmarks/cluster.py paper [N] [WORKERS]  a fit on paper, from parts that are measured here
    python benchmarks/cluster.py store                from the command line, from a store that speaks S3 (needs moto)

Seconds need cores that are free; `kills` and `store` do not.
"""

import asyncio
import contextlib
import hashlib
import itertools
import math
import multiprocessing
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


def write(folder: Path, n: int, columns: int = COLUMNS) -> None:
    """`FILES` files of row groups of 2¹⁸ records, or more of them where a file would not fit into memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = max(FILES, n // 2_500_000)
    ends = np.linspace(0, n, files + 1).astype(int)
    for i in range(files):
        rng, count = np.random.default_rng(i), int(ends[i + 1] - ends[i])
        x = rng.uniform(-1, 1, (count, columns)).astype(np.float32)
        y = (x @ np.linspace(1, -1, columns) + 0.5 * rng.standard_normal(count)).astype(np.float32)
        table = pa.table({**{f"x{j}": x[:, j] for j in range(columns)}, "y": y})
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


class Star:
    """Processes that run the code of workers and are asked through pipes, with no engine between: what it costs more.

    Offers `engine.protocol.Workers` and the engine; nothing is checked, encrypted, or read again when one is lost.
    """

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.workers, pairs = count, [context.Pipe() for _ in range(count)]
        self._pipes = [here for here, _ in pairs]
        self._processes = [context.Process(target=_ray, args=(there,), daemon=True) for _, there in pairs]
        for process in self._processes:
            process.start()

    def holds(self, _: Any) -> bool:
        return False

    def engine(self, parts: Any, work: Any) -> "Star":
        self.n, self._told, count = sum(part.n for part in parts), work.told, len(parts)
        self._all([("read", work.told, parts[i * count // self.workers : (i + 1) * count // self.workers])
                   for i in range(self.workers)])  # fmt: skip
        return self

    def prepare(self, questions: Any) -> None:
        self._all([("prepare", self._told, [q.named() for q in questions])] * self.workers)

    def sum(self, question: Any) -> Any:
        return sum(vector for vector, _ in self._all([("answer", self._told, question.named())] * self.workers))

    def _all(self, given: list[Any]) -> list[Any]:
        for pipe, one in zip(self._pipes, given, strict=True):
            pipe.send(one)
        return [pipe.recv() for pipe in self._pipes]

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
            process.join()


def _ray(pipe: Any) -> None:
    """A process of the star."""
    from pgbb.engine.dask import _keep_memory
    from pgbb.private import worker

    _keep_memory()
    kept: list[Any] = []
    while True:
        what, told, given = pipe.recv()
        if what == "read":
            kept.clear()
            kept += [worker.encode(told, part) for part in given]
            pipe.send(None)
        elif what == "prepare":
            pipe.send(worker.prepare(told, given, kept[0]))
        else:
            pipe.send(worker.answer(told, given, kept, [0] * len(kept)))


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


def kills(fits: int = 20, n: int = 400_000, steps: int = 0) -> None:
    """One or two of three workers are killed in each fit; its noise is made to repeat, which a ledger would refuse."""
    from pgbb.methods.calibrated import method
    from pgbb.private import session

    session._chunk = lambda _: 1  # type: ignore[assignment,misc]  # who kills hears of every step
    model, create = pgbb.QuantileRegression("y ~ x0", taus=[0.5]), method.Randomness.create
    settings: dict[str, Any] = {"method": "sgld", "steps": steps} if steps else {}
    with tempfile.TemporaryDirectory() as name, workers(3) as client:
        folder = Path(name)
        write(folder, n)
        expected, _ = fitted(model, name, insecure_seed=1, **settings)
        method.Randomness.create = lambda _: create(1)  # type: ignore[method-assign,assignment]
        same = charged = killed = 0
        for i in range(fits):
            ledger = pgbb.Ledger(folder / f"{i}.db")
            ledger.set("records", n=n, epsilon=10.0, delta=1e-6)
            killer = Killer(client, i)
            killer.start()
            more = {"ledger": ledger, "dataset": "records", "progress": killer.progress, **settings}
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
    """One process against a star and workers; the faster of two fits of each, after one that compiles."""
    from pgbb.engine import dask

    model = pgbb.QuantileRegression(f"y ~ {' + '.join(f'x{j}' for j in range(COLUMNS))}", taus=list(LEVELS))
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), n)
        start, ours = (time.perf_counter(), cores()), os.times()
        one, here = thrice(model, name)
        begin = time.process_time()
        fitted(model, name, insecure_seed=1)
        alone = time.process_time() - begin
        star, connected = Star(count), dask.connected
        dask.connected = contextlib.nullcontext  # type: ignore[assignment]
        plain, rays = thrice(model, name, cluster=star)
        dask.connected = connected
        star.close()
        with workers(count) as client:
            several, there = thrice(model, name, cluster=client)
            begin, before = time.process_time(), sum(client.run(time.process_time).values())
            fitted(model, name, insecure_seed=1, cluster=client)
            shared = time.process_time() - begin + sum(client.run(time.process_time).values()) - before
            peak = max(client.run(highest).values()) / 2**20
        spent = time.perf_counter() - start[0]
        others = (cores() - start[1] - sum(os.times()[:4]) + sum(ours[:4])) / spent
        held = n / count * (COLUMNS + 3) * 4 / 2**30
        bits = "same bits" if len({digest for digest, _ in one + plain + several}) == 1 else "OTHER BITS"
        times = [min(spent for _, spent in found[1:]) for found in (one, plain, several)]
        print(
            f"n = {n:,}, {COLUMNS + 1} terms, {others:.2f} of {os.cpu_count()} cores busy with other work: one process "
            f"{times[0]:.2f} s, star of {count} {times[1]:.2f} s, {count} workers {times[2]:.2f} s, ratio "
            f"{times[2] / times[0]:.2f} and {times[2] / times[1]:.2f}; of processors {alone:.1f} and {shared:.1f} s, "
            f"ratio {shared / alone:.2f}; an answer {here:.0f}, {rays:.0f} and {there:.0f} ms; "
            f"peak of a worker {peak:.2f} GiB, which holds {held:.2f} GiB (at most {0.5 + 1.5 * held:.2f}); {bits}"
        )


def asking(count: int = 2, n: int = 20_000) -> None:
    """Few records, so that an answer takes what asking takes; the third fit of each, as the first compiles."""
    model = pgbb.QuantileRegression(f"y ~ {' + '.join(f'x{j}' for j in range(COLUMNS))}", taus=list(LEVELS))
    with tempfile.TemporaryDirectory() as name, workers(count) as client:
        write(Path(name), n)
        times = []
        for where in ({}, {"cluster": client}):
            moments: list[float] = []
            for _ in range(3):
                moments.clear()
                fitted(model, name, progress=clock(moments), insecure_seed=1, **where)
            times.append(np.sort(1e3 * np.diff(moments)))
        (here, there), middle = times, len(times[0]) // 2
        print(
            f"n = {n:,}, {busy()}: an answer takes {here[middle]:.1f} ms in one process and {there[middle]:.1f} ms on "
            f"{count} workers (medians of {len(there)}; least {here[0]:.1f} and {there[0]:.1f}): asking costs "
            f"{there[middle] - here[middle]:.1f} ms (least {there[0] - here[0]:.1f})"
        )


def cores() -> float:
    """Seconds that all cores together have worked."""
    user, nice, system, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def busy() -> str:
    """How many processes wanted a core in the last minute, those of this command among them."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def thrice(model: Any, data: Any, **more: Any) -> tuple[list[tuple[str, float]], float]:
    """Three seeded fits, the first of which compiles, and the milliseconds of an answer of the others, at least."""
    moments: list[float] = []
    found, answers = [], []
    for _ in range(3):
        moments.clear()
        found.append(fitted(model, data, progress=clock(moments), insecure_seed=1, **more))
        answers.append(1e3 * (moments[-1] - moments[0]) / (len(moments) - 1))
    return found, min(answers[1:])


def steps(n: int = 1_000_000, count: int = 2, asked: int = 200) -> None:
    """Steps of PGBB (K = 4, q = .01) and of DP-SGLD (q = .1); what a chunk of steps takes after the first one."""
    from pgbb.private import session

    chunk, model = 40, pgbb.HuberRegression(f"y ~ {' + '.join(f'x{j}' for j in range(COLUMNS))}")
    session._chunk = lambda _: chunk  # type: ignore[assignment,misc]
    with tempfile.TemporaryDirectory() as name, workers(count) as client:
        write(Path(name), n)
        for method, rate in (("pgbb", 0.01), ("sgld", 0.1)):
            found, times = set(), []
            for where in ({}, {"cluster": client}):
                moments: list[float] = []
                given = {"method": method, "steps": asked, "sampling_rate": rate, "insecure_seed": 1, **where}
                digest, _ = fitted(model, name, progress=clock(moments), **given)
                found.add(digest)
                times.append(1e3 * min(b - a for a, b in itertools.pairwise(moments)) / chunk)
            here, there = times
            asks = max(there - here / count, 0.0)  # what asking costs beside the sums, which workers share
            pays = asks * n / (here * (1 - 1 / count)) if count > 1 else math.inf
            print(
                f"{method}, q = {rate:g}, n = {n:,}, {COLUMNS + 1} terms, {busy()}: a step {here:.2f} ms in one "
                f"process, {there:.2f} ms on {count} workers, which pays from n = {pays:.1g} on; "
                f"{'same bits' if len(found) == 1 else 'OTHER BITS'}",
                flush=True,
            )


def clock(moments: list[float]) -> Any:
    """A progress that notes when it is called."""
    return lambda *_: moments.append(time.perf_counter())


def large(n: int = 100_000_000, count: int = 4, share: int = 2) -> None:
    """Eight columns; `share` GiB of memory for each worker, and the file is larger."""
    from dask import config
    from distributed import Client, LocalCluster

    from pgbb.engine import dask

    model = pgbb.LinearRegression(f"y ~ {' + '.join(f'x{j}' for j in range(COLUMNS + 1))}")
    schema = pgbb.Schema(**SCHEMA, **{f"x{COLUMNS}": pgbb.Range(-1, 1)})
    options = {"threads_per_worker": 1, "host": "127.0.0.1", "security": True, "dashboard_address": "127.0.0.1:0"}
    with tempfile.TemporaryDirectory() as name, config.set(dask._LOCAL):
        write(Path(name), n, COLUMNS + 1)
        size, moments = sum(file.stat().st_size for file in Path(name).iterdir()) / 2**30, [time.perf_counter()]
        with (
            LocalCluster(n_workers=count, memory_limit=share * 2**30, **options) as there,
            Client(there, set_as_default=False) as client,
        ):
            release = pgbb.fit(
                model, name, schema=schema, epsilon=1.0, delta=1e-10, cluster=client, progress=clock(moments)
            )
            peak = max(client.run(highest).values()) / 2**20
        begin, first, *rest = moments
        held, slope = n / count * (COLUMNS + 4) * 4 / 2**30, release.summary().loc["x0", "mean"]
        print(
            f"n = {n:,} x {COLUMNS + 2}, Parquet of {size:.2f} GiB, {count} workers of {share} GiB, {busy()}: first "
            f"answer after {first - begin:.0f} s, {len(rest)} more {1e3 * (rest[-1] - first) / len(rest):.0f} ms each; "
            f"peak of a worker {peak:.2f} GiB, which holds {held:.2f} GiB (at most {0.5 + 1.5 * held:.2f}); slope of "
            f"x0 {slope:.4f} (1)"
        )


def paper(n: int = 10_000_000_000, count: int = 1000, size: int = 2**19) -> None:
    """From parts: a core's time to read a record and to count it in an answer, that of asking a worker, bytes.

    Times are those of processors, which hardly depend on who else is there; fixed costs go by a difference of sizes.
    """
    import pickle

    from pgbb.private import worker
    from pgbb.private.parquet_partitions import survey

    model = pgbb.QuantileRegression(f"y ~ {' + '.join(f'x{j}' for j in range(COLUMNS))}", taus=list(LEVELS))
    told = worker.told(model, SCHEMA, None)
    reads, fits = [], []
    for records in (size, 4 * size):
        with tempfile.TemporaryDirectory() as name:
            write(Path(name), records)
            worker.encode(told, survey(name, 8)[0])  # imports
            begin = time.process_time()
            for part in survey(name, 1):
                worker.encode(told, part)
            reads.append(time.process_time() - begin)
            moments: list[float] = []
            fitted(model, name, insecure_seed=1)  # compiles
            begin = time.process_time()
            fitted(model, name, insecure_seed=1, progress=clock(moments))
            fits.append(time.process_time() - begin)
    answers = len(moments)
    read = (reads[1] - reads[0]) / (3 * size)
    summed = ((fits[1] - fits[0]) / (3 * size) - read) / answers
    spent = []
    with workers(2) as client, client.as_current():  # its scheduler is in this process
        there = sorted(client.scheduler_info()["workers"])

        async def calls(many: int) -> None:
            for _ in range(many // 100):
                await asyncio.gather(*[client.run(abs, 1, workers=[there[i % 2]]) for i in range(100)])

        for many in (100, 100, 1100):  # the first opens connections
            begin = time.process_time()
            client.sync(calls, many)
            spent.append(time.process_time() - begin)
    call, sent, mine = (spent[2] - spent[1]) / 1000, len(pickle.dumps(told)) + 2000, n / count
    answer = mine * summed + count * call
    print(
        f"measured, {busy()}: of a core {1e9 * read:.0f} ns to read a record and {1e9 * summed:.1f} ns to count it in "
        f"an answer; of scheduler and driver {1e6 * call:.0f} us a call; a question of {sent / 1e3:.1f} kB\n"
        f"on paper, n = {n:,} on {count:,} workers of one core: {mine:,.0f} records and "
        f"{mine * (COLUMNS + 3) * 4 / 2**30:.2f} GiB each; reading {mine * read:.1f} s; an answer {mine * summed:.2f} "
        f"s of workers and {count * call:.2f} s of scheduler and driver, {sent * count / 1e6:.1f} MB sent; {answers} "
        f"answers and the fit {mine * read + answers * answer:.0f} s"
    )


def spark(n: int = 3001) -> None:
    """Seeded releases from a Spark DataFrame of two partitions, against those of one process."""
    from pyspark.sql import SparkSession

    sys.path.insert(0, str(Path(__file__).parents[1]))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from tests.engine.models import MODELS, bits, fit, records

    session = SparkSession.builder.master("local[2]").config("spark.log.level", "OFF").getOrCreate()
    frame = records(n)
    there = session.createDataFrame(frame).coalesce(2)
    asked: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in MODELS}
    asked["huber"] = "huber", {"weights": "w"}
    asked["a chain of quantiles"] = "quantile", {"method": "sgld", "steps": 5}
    asked["a training of logits"] = "logistic", {"method": "pgbb", "steps": 5}
    for name, (model, more) in asked.items():
        begin = time.perf_counter()
        equal = bits(fit(MODELS[model], there, **more)) == bits(fit(MODELS[model], frame, **more))
        print(f"{name}: {'same bits' if equal else 'OTHER BITS'}, {time.perf_counter() - begin:.0f} s", flush=True)
    session.stop()


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
    commands = {f.__name__: f for f in (asking, hang, kills, large, paper, seconds, spark, steps, store)}
    commands[sys.argv[1]](*map(int, sys.argv[2:]))
