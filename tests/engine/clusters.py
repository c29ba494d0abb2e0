"""Tests on Dask clusters. `test_dask.py` runs them in a process of their own: Dask has threads that stay.

python -m pytest --noconftest tests/engine/clusters.py
"""

import contextlib
import gc
import itertools
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref

import dask
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
from dask.utils import parse_timedelta
from distributed import Client, LocalCluster
from distributed.security import Security

import pgbb
from pgbb.engine import dask as module
from pgbb.engine import guard
from pgbb.engine.protocol import Asked, Batch, Question, Receipt, settled
from pgbb.methods.calibrated import statistics
from pgbb.model import blocks
from pgbb.private import poisson, worker
from pgbb.private.door import open_sums
from tests.engine.models import MODELS, SCHEMA, bits, fit, records
from tests.helpers import rest

N = 3001
FRAME = records(N)
CUTS = (0, 700, 700, 1903, 2000, N)  # odd partitions, one of them empty


@contextlib.contextmanager
def workers(count, config=(), **options):
    """Workers that are threads of this process: what they run is what other processes run."""
    kept = {"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False, **dict(config)}
    given = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "4GB", **options}
    with (
        dask.config.set(kept),
        LocalCluster(n_workers=count, **given) as there,
        Client(there, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def three():
    with workers(3) as client:
        client.gather(client.map(abs, range(50)))
        yield client


def partitions(frame=FRAME, cuts=CUTS):
    parts = [frame.iloc[low:high] for low, high in itertools.pairwise(cuts)]
    return dd.from_map(lambda i: parts[i], range(len(parts)), meta=frame.iloc[:0])


@pytest.mark.parametrize("name", rest(MODELS, "huber", "mean", "custom"))
def test_workers_with_odd_partitions_give_the_bits_of_one_process(name, three, tmp_path):
    weights = "w" if name == "huber" else None
    one = fit(MODELS[name], FRAME, weights=weights)
    there = partitions()
    assert bits(fit(MODELS[name], there, cluster=three, weights=weights)) == bits(one)
    if name == "mean":
        for size in (999, N):  # row groups for all workers, and one that they must cut
            FRAME.to_parquet(tmp_path / "b.parquet", row_group_size=size)
            assert bits(fit(MODELS[name], str(tmp_path / "*.parquet"), cluster=three)) == bits(one)
        changed = FRAME.copy()
        changed.loc[1900, "y"] += 0.5
        assert bits(fit(MODELS[name], partitions(changed), cluster=three)) != bits(one)


CELLS = {  # columns, and a cell that makes pandas store the others under another type
    "a missing cell": (pd.Series([0.0, 1.0, 1.0] * 9).astype(int), None),
    "a word": (pd.Series([0.25, -0.5, 1.0] * 9), "4711"),
    "a word among Booleans": (pd.Series([True, False, True] * 9), "x"),
    "a list": (pd.Series([0.25, -0.5, 1.0] * 9), [1]),
}


@pytest.mark.parametrize("hostile", CELLS)
@pytest.mark.parametrize("stored", [None, "string", "category"])
def test_a_cell_of_a_dask_frame_changes_no_other_record_whatever_type_its_partition_has(hostile, stored):
    column, cell = CELLS[hostile]
    if stored and hostile == "a list":
        pytest.skip("pandas has no such column")
    model = pgbb.Mean("a")
    known = worker.told(model, SCHEMA, None)
    other = column.astype(object)
    other.iloc[13] = cell
    other = other.astype(stored or (float if cell is None else object))
    types = {"a": column.dtype}
    honest = worker.encode(known, pd.DataFrame({"a": column}), types)
    found = worker.encode(known, pd.DataFrame({"a": other}), types)
    same = (honest.rows == found.rows).all(axis=1)
    assert other.dtype != column.dtype and np.flatnonzero(~same).tolist() == [13]
    if stored:  # by its own type the partition is refused, or the error would tell of the cell
        with pytest.raises(pgbb.PgbbError, match="wrong dtype"):
            worker.encode(known, pd.DataFrame({"a": other}))


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.float32])
def test_a_word_among_numbers_changes_the_level_of_no_other_record(kind):
    schema = pgbb.Schema(a=pgbb.Levels("007", "1", "2.5"), y=pgbb.Range(-8, 8))
    known = worker.told(pgbb.LinearRegression("y ~ a"), schema, None)
    types = {"a": np.dtype(kind), "y": np.dtype(float)}
    cells = ["007", "1", "2"] * 9 if kind is np.int64 else ["007", "1", "2.5"] * 9
    honest = pd.DataFrame({"a": np.array(cells, float).astype(kind), "y": np.linspace(0, 1, 27)})
    for last in ("x", "", None):
        found = worker.encode(known, honest.assign(a=[*cells[:-1], last]), types)
        same = (worker.encode(known, honest, types).rows == found.rows).all(axis=1)
        assert same[:-1].all() and found.rows[-1, -1] == 0


def test_a_fit_on_a_dask_frame_goes_by_the_types_that_the_frame_says(three):
    missing = FRAME.assign(y=FRAME["y"].where(FRAME.index != 1900))
    parts = [missing.iloc[low:high] for low, high in itertools.pairwise(CUTS)]
    parts[2] = parts[2].assign(y=parts[2]["y"].astype(str))  # pandas has read this one from a file with a word in it
    frame = dd.from_map(lambda i: parts[i], range(len(parts)), meta=FRAME.iloc[:0])
    assert bits(fit(MODELS["mean"], frame, cluster=three)) == bits(fit(MODELS["mean"], missing))


LEVELS = pgbb.QuantileRegression("y ~ a", taus=[0.3, 0.6])
TRAININGS = {
    "noise-aware": (LEVELS, {"method": "pgbb"}),
    "printed, reshuffled": (
        MODELS["huber"],
        {"method": "pgbb", "intervals": "printed", "weights": "w", "clip": 1.5, "reshuffle": True},
    ),
    "custom": (MODELS["custom"], {"method": "sgld"}),
    "chains": (LEVELS, {"method": "sgld", "clip": 0.5}),
}


def test_workers_keep_codes_for_sums_and_dense_rows_for_trainings():
    coded, dense = (worker.encode(worker.told(LEVELS, SCHEMA, None, dense=d), FRAME[:9]) for d in (False, True))
    assert coded.rows.shape == (9, 3) and dense.rows.shape == (9, 4)
    assert np.array_equal(dense.rows.view(np.float32)[:, 1], FRAME["a"][:9].astype(np.float32))


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_whose_steps_ask_workers_has_the_bits_of_one_process(name, three, monkeypatch):
    for place in (blocks, poisson):
        monkeypatch.setattr(place, "CELL", 512)  # as many records as draw together: partitions cut them
    blocks._shares.cache_clear()
    model, settings = TRAININGS[name]
    settings = {"steps": 12, **settings}
    sent, ask = [], module.DaskEngine.sum
    monkeypatch.setattr(module.DaskEngine, "sum", lambda held, asked: sent.append(asked.named()) or ask(held, asked))
    one = bits(fit(model, FRAME, **settings))
    assert bits(fit(model, partitions(), cluster=three, **settings)) == one
    steps = [asked for asked in sent if isinstance(asked, Batch)]
    assert len(steps) == settings["steps"] * (2 if name == "chains" else 1)
    assert max(len(pickle.dumps(asked)) for asked in steps) < 2000  # nothing that grows with n
    if name == "chains":
        with workers(2) as two:
            assert bits(fit(model, partitions(), cluster=two, **settings)) == one
        changed = FRAME.copy()
        changed.loc[1900, ["a", "y"]] = -1.0, 8.0
        assert bits(fit(model, partitions(changed), cluster=three, **settings)) != one


def engine(client, source, name="mean"):
    asked = Asked(module.Dask(client, 60.0), MODELS[name])
    with open_sums(source, MODELS[name].prepare(SCHEMA), SCHEMA, asked=asked) as data:
        return data._held


ASKED = Question(statistics.mean_score, (np.float32(-8), np.float32(8)))


def test_a_partition_that_changes_is_lost_or_comes_twice_stops_the_fit(three):
    held = engine(three, partitions())
    honest = held.sum(ASKED)
    assert held.n == N and held._first.partitions == 5 and len(held._placed()) == 3
    assert np.array_equal(held.sum(ASKED), honest)
    groups = {worker: list(parts) for worker, parts in held._placed().items()}
    first = next(iter(groups))
    for parts in ([*groups[first], groups[first][0]], groups[first][1:]):
        held._groups = {**groups, first: parts}
        with pytest.raises(
            pgbb.PgbbError, match=rf"counted where the first reading had 5 partitions with {N:,} records"
        ):
            held.sum(ASKED)
    held._groups, held._parts[0] = {}, FRAME.iloc[:700].assign(y=0.0)
    held._kept[0] = held._encoded(0)
    with pytest.raises(pgbb.PgbbError, match="a partition is not the one"):
        held.sum(ASKED)


def test_a_worker_is_called_only_about_partitions_that_it_has(three):
    held = engine(three, partitions())
    answers = held._called(ASKED.named())
    assert answers is not None and len(answers) == 3
    honest = settled(held._first, answers)
    workers, parts = zip(*held._placed().items(), strict=True)
    held._groups = dict(zip(workers, (*parts[1:], parts[0]), strict=True))
    assert held._called(ASKED.named()) is None
    assert np.array_equal(held.sum(ASKED), honest)
    held._groups = {"tls://127.0.0.1:1": [i for its in parts for i in its]}  # nobody is there
    assert held._called(ASKED.named()) is None
    assert np.array_equal(held.sum(ASKED), honest)


def test_workers_forget_the_records_of_a_fit_that_is_over(three):
    def held(dask_scheduler):
        return sum(task.nbytes for task in dask_scheduler.tasks.values() if task.state == "memory")

    gc.collect()
    gc.disable()  # what is in a circle would stay on the workers until the driver happens to collect it
    try:
        before = three.run_on_scheduler(held)
        fit(MODELS["mean"], partitions(), cluster=three)
        for _ in range(300):
            if (after := three.run_on_scheduler(held)) < before + 4 * N:  # a word of each record
                break
            time.sleep(0.1)
        assert after < before + 4 * N
    finally:
        gc.enable()


def test_a_worker_makes_the_slabs_of_a_partition_once_and_gives_rows_back(monkeypatch):
    made, real = [], worker.slabs_of
    monkeypatch.setattr(worker, "slabs_of", lambda *given: made.append(1) or real(*given))
    known = worker.told(MODELS["mean"], SCHEMA, None)
    kept = worker.encode(known, pd.concat([FRAME] * 22))  # more than a slab, so that JAX uses these rows
    first, again = (worker.answer(known, ASKED.named(), [kept], [0]) for _ in range(2))
    assert made == [1] and first[1] == again[1] and np.array_equal(first[0], again[0])
    rows = weakref.ref(kept.rows.base)
    del kept
    worker.encode(known, FRAME)
    assert rows() is None


def test_receipts_are_equal_for_the_same_partitions_only():
    vector = np.ones(2, np.int64)
    first = Receipt.total([Receipt(1, 5, 2**64 - 1), Receipt(1, 4, 3)])
    assert first == (2, 9, 2)
    assert settled(first, [(vector, Receipt(1, 4, 3)), (vector, Receipt(1, 5, 2**64 - 1))]).tolist() == [2, 2]


def test_what_is_refused_names_the_cause_before_anything_is_spent(three, monkeypatch, tmp_path):
    def refused(text, data=None, cluster=three, model=MODELS["mean"], **more):
        with pytest.raises(pgbb.PgbbError, match=text):
            fit(model, partitions() if data is None else data, cluster=cluster, **more)

    refused("needs all records in one process: on a cluster take 'calibrated'", method="dp_bootstrap")
    refused("the data has no column 'y'", partitions(FRAME[["a", "b"]]))
    odd = dd.from_map(lambda i: FRAME.rename(columns={"y": "z"} if i else {}), [0, 1], meta=FRAME.iloc[:0])
    refused("KeyError, see its log.*each of its partitions must have the columns", odd)
    refused("0 records", partitions(FRAME.iloc[:0], (0, 0, 0)))
    refused("data is a DataFrame, but the workers of a cluster read", FRAME)
    refused("is no .parquet file", str(tmp_path))
    refused("cannot be reached", "nowhere://x/y.parquet")
    refused("workers import it by its name", model=pgbb.Custom(lambda t, r, _: t[0] * r["y"], 1, 1.0, ["y"], (-1, 1)))
    refused("cannot be read as parquet.*withheld", _damaged(tmp_path))
    refused("local:WORKERS such as local:4", cluster="local:0")
    refused("a pgbb.Cluster; or a distributed.Client", cluster=3)
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        refused(r"the scheduler tcp://127.0.0.1:1 cannot be reached", cluster="tcp://127.0.0.1:1")
    monkeypatch.setattr(module, "versions", lambda: ("pgbb 0", *guard.versions()[1:]))
    refused(r"worker inproc\S+ has pgbb \S+ and not pgbb 0\. Install")


def _damaged(folder):
    path = folder / "damaged.parquet"
    path.write_bytes(b"PAR1" + b"secret" * 9 + b"PAR1")
    return str(path)


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:8786", "tcp://example.org:8786", "ucx://127.0.0.1:8786", 3])
def test_what_would_travel_in_the_open_is_refused(address):
    with pytest.raises(pgbb.InvalidValue, match=r"tls://"):
        pgbb.Cluster(address)


def test_a_url_without_a_cluster_says_what_to_do():
    with pytest.raises(pgbb.InvalidValue, match="give cluster='local:2'"):
        fit(MODELS["mean"], "s3://bucket/census/*.parquet")


def test_a_worker_that_would_spill_has_no_records():
    said = "would write encoded records to its disk"
    with workers(1, {"distributed.worker.memory.spill": 0.7}) as client, pytest.raises(pgbb.PgbbError, match=said):
        fit(MODELS["mean"], partitions(), cluster=client)


def test_what_a_worker_says_of_a_failure_quotes_no_cell(three, caplog):
    result = three.submit(module._task, _raises, guard.versions(), "4711", pure=False).result()
    assert "ValueError; its message is withheld" in result[1].text and "4711" not in str(result) + caplog.text


def _raises(cell):
    raise ValueError(cell)


def test_only_statistics_of_pgbb_have_names_on_a_cluster():
    with pytest.raises(pgbb.InvalidValue, match="only those of pgbb have names"):
        Question(lambda x, y: y, ()).named()
    assert ASKED.named().statistic == "pgbb.methods.calibrated.statistics:mean_score"
    made = statistics.gradient(MODELS["custom"].prepare(SCHEMA))
    assert Question(made, ()).named().statistic == "pgbb.methods.calibrated.statistics:gradient()"


def test_two_processes_give_the_bits_of_one_from_the_command_line(tmp_path):
    (tmp_path / "records").mkdir()
    FRAME.to_parquet(tmp_path / "records" / "a.parquet", row_group_size=999)
    schema = "[columns]\ny = { range = [-8, 8] }\n"
    (tmp_path / "s.toml").write_text(schema)
    command = ["--schema", "s.toml", "--family", "mean", "--column", "y", "-e", "1", "-d", "1e-9", "-o", "r.pgbb"]
    command += ["--insecure-seed", "3", "--i-know-this-is-not-private", "--quiet", "--cluster", "local:2"]
    done = subprocess.run(
        [sys.executable, "-m", "pgbb", "fit", "records", *command], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert bits(pgbb.load(tmp_path / "r.pgbb")) == bits(fit(MODELS["mean"], FRAME))


CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=pgbb "
    "-keyout cluster.key -out cluster.pem"
)
"""The one command of docs/howto/cluster.md."""


def test_a_killed_worker_of_this_machine_may_take_its_time_to_start_again(monkeypatch):
    def waits():
        return parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout"))

    for name in ("LocalCluster", "Client"):
        monkeypatch.setattr(distributed, name, lambda *_, **__: contextlib.nullcontext())
    before = waits()
    with contextlib.ExitStack() as stack:
        module._client(pgbb.Cluster("local:1"), stack)
        assert waits() >= 300 > before  # then Dask gives it up for good, and after three of them no worker is left
    assert waits() == before


def test_a_script_that_its_workers_would_run_again_is_told_what_to_write(monkeypatch):
    def spawned(*_, **__):
        raise RuntimeError("Nanny failed to start.")  # what Dask makes of multiprocessing's refusal

    monkeypatch.setattr(distributed, "LocalCluster", spawned)
    with contextlib.ExitStack() as stack, pytest.raises(pgbb.PgbbError, match=r"__name__ == '__main__'.* Nothing was"):
        module._client(pgbb.Cluster("local:1"), stack)


@contextlib.contextmanager
def overheard(port):
    """A port that leads to another one, and the bytes that pass."""
    heard, server = bytearray(), socket.create_server(("127.0.0.1", 0))

    def copy(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                heard.extend(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                here, there = server.accept()[0], socket.create_connection(("127.0.0.1", port))
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with server:
        yield server.getsockname()[1], heard


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_with_tls_strangers_are_refused_and_no_sum_is_readable(tmp_path, monkeypatch):
    files = {}
    for name in ("ours", "foreign"):
        (tmp_path / name).mkdir()
        subprocess.run(CERTIFICATE.split(), cwd=tmp_path / name, check=True, capture_output=True)
        pem, key = (str(tmp_path / name / f"cluster.{kind}") for kind in ("pem", "key"))
        files[name] = {"ca": pem, "cert": pem, "key": key}
    ours = {
        f"tls_{who}_{what}": files["ours"][what]
        for who in ("client", "worker", "scheduler")
        for what in ("cert", "key")
    }
    security = Security(tls_ca_file=files["ours"]["ca"], require_encryption=True, **ours)
    sums, total = [], module.settled
    monkeypatch.setattr(module, "settled", lambda *given: sums.append(total(*given)) or sums[-1])
    seen = {}
    for kind, given in (("tls", {"security": security}), ("tcp", {})):
        with (
            workers(1, protocol=f"{kind}://", host="127.0.0.1", **given) as client,
            overheard(int(client.scheduler.address.rpartition(":")[2])) as (port, heard),
        ):
            address = f"{kind}://127.0.0.1:{port}"
            trusted = pgbb.Cluster(address, **files["ours"]) if kind == "tls" else address
            assert fit(MODELS["mean"], partitions(), cluster=trusted)
            seen[kind] = sum(vector.tobytes() in heard for vector in sums)
            for stranger in (pgbb.Cluster(address), pgbb.Cluster(address, **files["foreign"])) * (kind == "tls"):
                with (
                    dask.config.set({"distributed.comm.timeouts.connect": "2s"}),  # so long it tries, in vain
                    pytest.raises(pgbb.PgbbError, match="cannot be reached"),
                ):
                    fit(MODELS["mean"], partitions(), cluster=stranger)
        asked, sums[:] = len(sums), []
    assert seen == {"tls": 0, "tcp": asked} and asked > 3
