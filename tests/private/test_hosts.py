import contextlib
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import pgbb
from pgbb.cli import app
from pgbb.custody.entries import GONE, STOPPED
from pgbb.custody.ledger import Ledger
from pgbb.private import loading, partition, records
from pgbb.private.hosts import KEY, HostLost, Hosts, connected
from pgbb.private.partition import UNIT, Listing, Share, records_of, survey
from pgbb.private.placement import place, place_share
from pgbb.private.poisson import members_here
from pgbb.private.records import Records
from tests.helpers import keeping, patience
from tests.private.hosts_process import MODEL, PGBB, SCHEMA, digest, fit

N = 4 * UNIT + 777
SCRIPT = Path(__file__).with_name("hosts_process.py")
ROOT = SCRIPT.parents[2]


def frame(n=N, seed=0):
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(
        {"a": rng.uniform(-1.1, 1.1, n), "g": rng.choice(["p", "q", "r", "?"], n, p=[0.5, 0.3, 0.19, 0.01])}
    )
    found["y"] = found.a + (found.g == "q") + rng.standard_t(3, n)
    found.loc[::997, "a"] = np.nan
    return found


def written(folder, made, cuts=(0, 9000, 9001, 25_000, None), size=4000):
    """A folder of Parquet files whose row groups have nothing to do with units."""
    folder.mkdir()
    ends = [N if c is None else c for c in cuts]
    for i, (a, b) in enumerate(itertools.pairwise(ends)):
        made[a:b].to_parquet(folder / f"part-{i}.parquet", row_group_size=size, index=False)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    made = frame()
    other = made.copy()
    other.loc[N - 5, "y"] = -7.5  # held by the last process
    made.to_parquet(folder / "all.parquet", index=False)
    (folder / "code").mkdir()
    return {
        "code": folder / "code",
        "file": folder / "all.parquet",
        "folder": written(folder / "parts", made),
        "other": written(folder / "other", other),
        "frame": made,
    }


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.db")
    made.set("d", n=N, epsilon=3.0, delta=1e-6)
    return made


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(jobs, code, devices=1):
    """A process that runs these jobs; the folder keeps compiled code, so that later processes need not compile."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(jobs, default=str)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=ROOT,
        env={**os.environ, **keeping(code), "XLA_FLAGS": flags, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )  # fmt: skip


def ended(process):
    """What a process printed, one object a job, and its standard error."""
    out, err = process.communicate(timeout=patience())
    return [json.loads(line) for line in out.splitlines()], err


def reached(at):
    """A connection to a port of this machine, as soon as somebody listens there."""
    end = time.monotonic() + patience(60)
    while True:
        try:
            return socket.create_connection(("127.0.0.1", at), timeout=patience(60))
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def greeting(at, ready):
    """Process 1, which joins when all is ready for it, and process 0, which says hello to it."""

    def late():
        ready.wait(patience())
        with connected(Hosts(f"127.0.0.1:{at}", 2, 1)) as together:
            return together.first(b"")

    def leader():
        with connected(Hosts(f"127.0.0.1:{at}", 2, 0)) as together:
            return together.first(b"hello")

    return late, leader


def in_threads(*calls):
    """Run calls side by side; returns what each returned or raised."""
    found = [None] * len(calls)

    def one(i):
        try:
            found[i] = calls[i]()
        except BaseException as error:
            found[i] = error

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(calls))]
    with warnings.catch_warnings():  # those of the threads may end in another order than they began
        for t in threads:
            t.start()
        for t in threads:
            t.join(patience())
    return found


# The same, bit for bit -----------------------------------------------------------------------------------------------


def test_two_processes_and_four_devices_give_the_same_bits_as_one(data):
    """Process 0 has four virtual devices, process 1 has one; in the twins a record of process 1 is another.

    Batches are drawn as process 0 draws them, whatever the other would do.
    """
    seed = {"insecure_seed": 3}
    alone = [{"data": data["file"], **seed}, {"data": data["file"], **seed, **PGBB}]
    drawn_there = {**alone[1], "device_batches": True}
    ports = [port() for _ in range(6)]

    def of(process):
        at = [{"data": data["folder"], "hosts": f"127.0.0.1:{number},2,{process}", **seed} for number in ports]
        twin = {"data": data["other"]}
        mixed = [{**PGBB, "device_batches": process == leader} for leader in (0, 1)]
        changes = [{}, PGBB, twin, {**PGBB, **twin}, *mixed]
        return [{**job, **change} for job, change in zip(at, changes, strict=True)]

    first, second = start([*of(0), *alone], data["code"], devices=4), start([*of(1), drawn_there], data["code"])
    one = [digest(fit(**job)) for job in alone]
    (zero, zero_err), (other, other_err) = ended(first), ended(second)
    assert len(zero) == 8 and len(other) == 7, zero_err + other_err
    assert zero[0]["devices"] == 4 and other[0]["devices"] == 1
    assert [found["digest"] for found in zero[6:]] == one  # four devices alone
    assert [found["digest"] for found in zero[:2]] == one
    assert zero[2]["digest"] != one[0] and zero[3]["digest"] != one[1]
    assert zero[4]["digest"] == other[6]["digest"] != one[1] and zero[5]["digest"] == one[1]  # process 0 decides
    assert [found["digest"] for found in zero[:6]] == [found["digest"] for found in other[:6]]  # all have the release


def test_positions_are_those_of_the_shuffle_of_all_rows():
    rng = np.random.default_rng(0)
    n = 3 * UNIT + 5

    def some(part):
        x = rng0.normal(size=(n, 2)).astype(np.float32)[part]
        ones = np.ones(len(x), np.float32)
        return Records(x, np.arange(n, dtype=np.float32)[part], ones, ones.astype(bool))

    rng0 = np.random.default_rng(1)
    whole = np.asarray(place(some(slice(None)), 0.0, np.random.default_rng(7)).rows)
    found, seen = np.empty_like(whole), []
    for a, b in ((0, UNIT), (UNIT, n)):
        rng0 = np.random.default_rng(1)
        share = Share(n, a, b)
        part, held = place_share(some(slice(a, b)), 0.0, np.random.default_rng(7), share)
        found[held] = np.asarray(part.rows)
        seen.append(held)
        assert np.array_equal(np.asarray(part.position), held) and np.all(np.diff(held) > 0)
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(n)) and np.array_equal(found, whole)
    assert not np.array_equal(whole[:, 2], np.arange(n)) and rng is not rng0


def test_the_members_here_are_those_of_the_batch_and_overflow_loses_none():
    rng = np.random.default_rng(0)
    rows = rng.integers(-1, 50, (30, 128)).astype(np.int32)
    inverse = rng.random((30, 128)).astype(np.float32)
    inverse[:, 100:] = np.inf
    for expected in (128, 100, 3):
        found = members_here(rows, inverse, expected)
        assert found["rows"].shape[1] % 64 == 0
        for i in range(30):
            kept = np.isfinite(found["inverse"][i])
            wanted = (rows[i] >= 0) & np.isfinite(inverse[i])
            assert np.array_equal(found["rows"][i, kept], rows[i, wanted])
            assert np.array_equal(found["inverse"][i, kept], inverse[i, wanted])


class Of:
    """As much of the processes as a share asks for."""

    def __init__(self, process, processes):
        self.process, self.processes, self.leads = process, processes, process == 0


@pytest.mark.parametrize("n", [2 * UNIT - 1, 5 * UNIT, 64 * UNIT + 1])
def test_shares_cover_all_records_in_whole_units(n):
    for processes in (1, 2, 3):
        if processes > -(-n // UNIT):
            continue
        shares = [Share.of(n, Of(k, processes)) for k in range(processes)]
        assert shares[0].first == 0 and shares[-1].last == n and {s.n for s in shares} == {n}
        assert all(a.last == b.first and b.first % UNIT == 0 for a, b in itertools.pairwise(shares))
        assert max(s.last - s.first for s in shares) - min(s.last - s.first for s in shares) <= 2 * UNIT


@pytest.mark.parametrize("piece", [2**15, 999])
def test_each_process_reads_its_own_row_groups_and_encodes_them_as_one_would(data, monkeypatch, piece):
    monkeypatch.setattr("pgbb.private.opened.CHUNK", piece)
    opened = []
    real = partition._opened
    monkeypatch.setattr(partition, "_opened", lambda path: (opened.append(path.name), real(path))[1])
    problem, listing = MODEL.prepare(SCHEMA), survey(data["folder"])
    from pgbb.private.loading import records_for

    whole = records_for(data["frame"], problem, SCHEMA)
    opened.clear()
    for a, b in ((0, UNIT), (UNIT, 4 * UNIT), (4 * UNIT, N)):
        part = records_of(listing, problem, SCHEMA, None, Share(N, a, b))
        assert np.array_equal(part.rows, whole.rows[a:b]) and np.array_equal(part.valid, whole.valid[a:b])
    assert len(opened) < 2 * len(listing.groups) and opened[0] == "part-0.parquet" and opened[-1] == "part-3.parquet"


# Lost processes ------------------------------------------------------------------------------------------------------


def test_a_lost_process_ends_the_fit_and_a_restart_goes_on(data, tmp_path):
    """First the other process is killed, then process 0; the third start finishes, and all is charged once."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set("d", n=N, epsilon=3.0, delta=1e-6)
    common = {
        "data": data["folder"],
        **PGBB,
        "steps": 100,
        "ledger": ledger.path,
        "dataset": "d",
        "checkpoint": tmp_path / "c",
        "often": True,
    }

    def both(**kill):
        at = f"127.0.0.1:{port()},2"
        jobs = [
            {**common, "hosts": f"{at},{k}", **({"kill": kill["at"]} if kill.get("who") == k else {})} for k in (0, 1)
        ]
        begun = [start([job], data["code"]) for job in jobs]
        found = [ended(process) for process in begun]
        return [f[0] for f in found], [p.returncode for p in begun], [f[1] for f in found]

    (zero, one), codes, errors = both(who=1, at=1)
    assert codes == [0, -9] and not one, errors
    assert zero[0]["error"] == "HostLost" and "process 1 of 2 is gone" in zero[0]["text"]
    assert "Start all processes again" in zero[0]["text"] and "Traceback" not in errors[0]
    (entry,) = ledger.dataset("d").entries
    assert (entry.state, entry.reason) == ("spent", STOPPED) and entry.resumable and 0 < entry.steps < 60 < entry.total
    share = ledger.dataset("d").share

    (zero, one), codes, errors = both(who=0, at=1)
    assert codes == [-9, 0] and not zero, errors
    assert one[0]["error"] == "HostLost" and "process 0 of 2 is gone" in one[0]["text"]
    (entry,) = ledger.dataset("d").entries
    assert (entry.state, entry.reason) == ("spent", GONE) and entry.resumable

    (zero, one), codes, errors = both()
    assert codes == [0, 0] and zero[0] == one[0] and "digest" in zero[0], errors
    (entry,) = ledger.dataset("d").entries
    assert entry.state == "settled" and entry.resumes == 2 and ledger.dataset("d").share == share


@pytest.mark.parametrize("why", [HostLost("process 1 of 2 is gone."), OSError(28, "No space left on device")])
def test_a_process_that_is_lost_after_the_release_was_made_is_a_warning(data, ledger, monkeypatch, why):
    def lost(release):
        raise why

    monkeypatch.setattr(pgbb.Release, "to_bytes", lost)
    with pytest.warns(pgbb.PgbbWarning, match="the release is complete, but not all processes have received it"):
        at = f"127.0.0.1:{port()}"
        arguments = {"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-7}
        zero, one = in_threads(
            lambda: pgbb.fit(MODEL, data["folder"], **arguments, hosts=f"{at},2,0", ledger=ledger, dataset="d"),
            lambda: pgbb.fit(MODEL, data["folder"], **arguments, hosts=f"{at},2,1"),
        )
    assert isinstance(zero, pgbb.Release) and isinstance(one, HostLost)
    assert [e.state for e in ledger.dataset("d").entries] == ["settled"]


def talk(*blocks, **changes):
    """Processes in threads, joined at a port of their own; each runs its block."""
    at = f"127.0.0.1:{port()}"

    def one(k):
        with connected(Hosts(at, len(blocks), k, **{"wait": patience(60), **changes})) as together:
            return blocks[k](together)

    return in_threads(*(lambda k=k: one(k) for k in range(len(blocks))))


def test_sums_and_words_of_process_0_reach_all():
    values = np.array([[2**61, -5], [7, 0]])
    found = talk(*([lambda t: (t.total(values * (t.process + 1)), t.first(b"%d" % t.process))] * 3))
    for total, said in found:
        assert np.array_equal(total, np.array([[2**61 * 6 - 2**64, -30], [42, 0]])) and said == b"0"
    wrapped = talk(*([lambda t: t.total_of(np.array([2**31 - 1, 4095], np.int32))] * 2))
    assert all(np.array_equal(w, np.array([-2, 8190], np.int32)) for w in wrapped)
    large = np.arange(2**15)  # more than a system takes in unread: sent when process 0 asks
    assert all(np.array_equal(total, 3 * large) for total in talk(*([lambda t: t.total(large)] * 3)))


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such option")
def test_unacknowledged_data_end_a_connection_within_a_minute():
    def limits(together):
        return [c.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for c in together._peers.values()]

    assert talk(limits, limits) == [[45_000], [45_000]]


def test_large_sums_wait_for_a_busy_process_0_outside_the_connection():
    def busy(together):
        assert select.select([together._peers[1]], [], [], 0.5)[0] == []
        return together.total(np.ones(2**14, np.int64))

    found = talk(busy, lambda t: t.total(np.ones(2**14, np.int64)))
    assert all(np.array_equal(total, np.full(2**14, 2)) for total in found)


def test_one_that_fails_says_why_but_quotes_no_other_librarys_error():
    def refuse(together):
        raise pgbb.InvalidValue("the schema is odd.")

    def broken(together):
        raise RuntimeError("cell 12345")

    first, second = talk(lambda t: t.total(np.zeros(2, np.int64)), refuse)
    assert str(first) == "process 1 ended: the schema is odd." and not isinstance(first, HostLost)
    first, second = talk(broken, lambda t: t.first(b""))
    assert isinstance(second, pgbb.PgbbError) and "RuntimeError" in str(second) and "12345" not in str(second)


def test_an_interrupt_counts_as_stopped_from_outside():
    def stop(together):
        raise KeyboardInterrupt

    first, _ = talk(lambda t: t.total(np.zeros(2, np.int64)), stop)
    assert isinstance(first, HostLost) and "process 1 was stopped" in str(first)


def test_a_silent_process_counts_as_lost():
    first, _ = talk(lambda t: t.total(np.zeros(2, np.int64)), lambda t: time.sleep(2), patience=0.3)
    assert isinstance(first, HostLost) and "has not answered for 0.3 s" in str(first)


def test_errors_inside_a_compiled_loop_are_raised_after_it():
    def ask(together):
        together._peers[1].close()
        assert np.array_equal(together.total_of(np.ones(3, np.int32)), np.zeros(3))
        together.check()

    first, _ = talk(ask, lambda t: time.sleep(0.5))
    assert isinstance(first, HostLost)


# Refused before anything is spent ------------------------------------------------------------------------------------


def pair(zero, one, ledger=None):
    """Two fits, in threads, that begin together; what each raised."""
    at = f"127.0.0.1:{port()}"
    paid = {} if ledger is None else {"ledger": ledger, "dataset": "d"}
    return in_threads(
        lambda: fit(**{"hosts": Hosts(at, 2, 0), **paid, **zero}),
        lambda: fit(**{"hosts": Hosts(at, 2, 1), **one}),
    )


@pytest.mark.parametrize(("change", "words"), [
    ({"method": "pgbb"}, 'method is "calibrated" in process 0 and "pgbb" in process 1'),
    ({"group_size": 2}, "group_size is 1 in process 0 and 2 in process 1"),
    ({"knots": 19}, "knots is 17 in process 0 and 19 in process 1"),
    ({"weights": "a"}, 'weights is null in process 0 and "a" in process 1'),
])  # fmt: skip
def test_processes_that_disagree_are_refused(data, ledger, change, words):
    found = pair({"data": data["folder"]}, {"data": data["folder"], **change}, ledger)
    assert all(isinstance(error, pgbb.InvalidValue) and words in str(error) for error in found), found
    assert ledger.dataset("d").entries == ()


def test_processes_with_other_records_counts_or_versions_are_refused(data, ledger, tmp_path, monkeypatch):
    short = written(tmp_path / "short", data["frame"][:-1])
    found = pair({"data": data["folder"]}, {"data": short}, ledger)
    assert all(f"n is {N} in process 0 and {N - 1} in process 1" in str(error) for error in found)
    split = written(tmp_path / "split", data["frame"], size=5000)
    found = pair({"data": data["folder"]}, {"data": split}, ledger)
    assert all("the number of row groups is" in str(error) for error in found)
    (split / "part-3.parquet").unlink()
    found = pair({"data": data["folder"]}, {"data": split}, ledger)
    assert all(f"n is {N} in process 0 and 25000" in str(error) for error in found)
    kind = data["frame"].astype({"y": "float32"})
    found = pair({"data": data["folder"]}, {"data": written(tmp_path / "kind", kind)}, ledger)
    assert all("the columns is" in str(error) for error in found)
    from pgbb.custody import identity

    facts, turns = identity.facts, iter(("0.9.9", "0.1.0"))
    monkeypatch.setattr(identity, "facts", lambda *a: facts(*a) | {"the version of pgbb": next(turns)})
    found = pair({"data": data["folder"]}, {"data": data["folder"]}, ledger)
    assert all("the version of pgbb is" in str(error) and '"0.9.9"' in str(error) for error in found)
    assert ledger.dataset("d").entries == ()


def test_processes_whose_copies_differ_are_refused_and_no_digest_is_said(data, ledger, tmp_path, monkeypatch):
    """Rows in another order have the footer's counts, and may have its bytes; then only the whole content tells."""
    n = 2 * UNIT + 5
    x = pd.DataFrame({"a": np.tile([-1.0, 0.5, 1.0], n)[:n], "g": "p", "y": np.tile([1.0, 2.0, 3.0], n)[:n]})
    plain = {"row_group_size": n, "index": False, "compression": "none", "use_dictionary": False}
    for name, made in (("one", x), ("two", x.iloc[[1, 0, *range(2, n)]])):
        (tmp_path / name).mkdir()
        made.to_parquet(tmp_path / name / "all.parquet", **plain)
    assert (tmp_path / "one/all.parquet").stat().st_size == (tmp_path / "two/all.parquet").stat().st_size
    for zero, one in ((tmp_path / "one", tmp_path / "two"), (data["folder"], data["other"])):
        found = pair({"data": zero}, {"data": one}, ledger)
        name = "all.parquet" if zero == tmp_path / "one" else "part-3.parquet"
        words = f'the processes disagree: process 1 has another copy of "{name}" than process 0. Start'
        assert all(isinstance(error, pgbb.InvalidValue) and words in str(error) for error in found), found
        digests = {word for path in (zero, one) for _, digest in survey(path).digests for word in digest.split()[2:]}
        assert len(digests) > 1 and not any(word in str(error) for word in digests for error in found)
    assert ledger.dataset("d").entries == ()
    monkeypatch.setattr(partition, "_WHOLE", 1000)  # beyond it, footers only
    assert survey(tmp_path / "one").digests == survey(tmp_path / "two").digests
    other = written(tmp_path / "many", data["frame"][::-1])
    found = pair({"data": data["folder"]}, {"data": other}, ledger)
    assert all('another copy of "part-0.parquet" and 3 more than' in str(error) for error in found), found


def test_a_row_group_that_is_gone_or_damaged_when_it_is_read_is_refunded(data, ledger, tmp_path, monkeypatch):
    parts = written(tmp_path / "parts", data["frame"])
    monkeypatch.setattr(loading, "survey", lambda _, once=survey(parts): once)
    (parts / "part-3.parquet").unlink()
    found = pair({"data": parts}, {"data": parts}, ledger)
    assert all("part-3.parquet" in str(error) and "Restore the file" in str(error) for error in found), found
    assert "process 1 ended" in str(found[0])
    assert [e.state for e in ledger.dataset("d").entries] == ["refunded"]


def test_too_little_memory_is_refused_and_refunded(data, ledger, monkeypatch):
    monkeypatch.setattr(records, "free_memory", lambda: 100_000)
    found = pair({"data": data["folder"]}, {"data": data["folder"]}, ledger)
    assert all("GiB are available. Take" in str(error) and "or more hosts" in str(error) for error in found)
    assert [e.state for e in ledger.dataset("d").entries] == ["refunded"]


def test_a_share_that_is_held_twice_needs_twice_the_memory_and_is_refused_unread(data, monkeypatch):
    monkeypatch.setattr(records, "free_memory", lambda: records._SPARE + 30 * N)
    listing, problem = survey(data["folder"]), MODEL.prepare(SCHEMA)
    assert records_of(listing, problem, SCHEMA, None, Share(N, 0, N)).n == N
    monkeypatch.setattr(records, "_clamped", None)
    with pytest.raises(pgbb.PgbbError, match=f"{N:,} records of 4 terms need .* more hosts"):
        records_of(listing, problem, SCHEMA, None, Share(N, 0, N), copies=2)


def test_free_memory_is_what_the_system_says():
    free = records.free_memory()
    assert free is None or 0 < free < 2**50


def test_a_data_set_is_a_parquet_file_or_a_folder_of_equal_ones(data, tmp_path):
    made = data["frame"]
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "text.csv").write_text("a\n1\n")
    (tmp_path / "broken.parquet").write_text("12345 is a cell")
    for source, words in (
        (made, "DataFrame, but hosts need the path"),
        (empty, "has no .parquet file"),
        (tmp_path / "none.parquet", "does not exist"),
        (tmp_path / "text.csv", "is not a .parquet file"),
        (tmp_path / "broken.parquet", "cannot be read as parquet"),
    ):
        with pytest.raises(pgbb.PgbbError, match=words) as error:
            survey(source)
        assert "12345" not in str(error.value)
    lacking = tmp_path / "lacking.parquet"
    made.drop(columns="g").to_parquet(lacking, index=False)
    with pytest.raises(pgbb.InvalidValue, match="the data has no column 'g'"):
        records_of(survey(lacking), MODEL.prepare(SCHEMA), SCHEMA, None, Share.of(N, None))
    mixed = written(tmp_path / "mixed", made)
    made[:10].rename(columns={"a": "b"}).to_parquet(mixed / "part-2.parquet", index=False)
    with pytest.raises(pgbb.InvalidValue, match=r"'part-2.parquet' has other columns than 'part-0.parquet': 'a', 'b'"):
        survey(mixed)
    made[:10][["g", "a", "y"]].to_parquet(mixed / "part-2.parquet", index=False)
    with pytest.raises(pgbb.InvalidValue, match="name, type or order"):
        survey(mixed)
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "zero.parquet")
    with pytest.raises(pgbb.InvalidValue, match="0 records"):
        survey(tmp_path / "zero.parquet")


def test_a_row_group_with_other_records_than_listed_is_refused(data):
    path, group, rows = survey(data["folder"]).groups[0]
    wrong = Listing(((path, group, rows + 1),), survey(data["folder"]).columns)
    with pytest.raises(pgbb.PgbbError, match=r"row group 0 of 'part-0.parquet' is missing"):
        records_of(wrong, MODEL.prepare(SCHEMA), SCHEMA, None, Share(rows + 1, 0, rows + 1))


def test_too_few_records_and_methods_that_cannot_share_are_refused(data, ledger, tmp_path):
    small = tmp_path / "small.parquet"
    data["frame"][:100].to_parquet(small, index=False)
    found = pair({"data": small}, {"data": small}, ledger)
    assert all("too few for 2 processes" in str(error) for error in found)
    assert ledger.dataset("d").entries == ()
    with pytest.raises(pgbb.InvalidValue, match="with hosts take 'calibrated' or 'pgbb'"):
        fit(data["folder"], method="sgld", hosts="127.0.0.1:1,2,0")


@pytest.mark.parametrize(("given", "words"), [
    ("127.0.0.1:5555", "ADDRESS:PORT,PROCESSES,PROCESS"),
    ("127.0.0.1:5555,2", "ADDRESS:PORT,PROCESSES,PROCESS"),
    ("127.0.0.1:5555,2,x", "ADDRESS:PORT,PROCESSES,PROCESS"),
    ("127.0.0.1:5555,2,2", "process must be from 0 to 1"),
    ("127.0.0.1,2,0", "an address and a port"),
    ("127.0.0.1:99999,2,0", "an address and a port"),
    ("h:5555,0,0", "processes must be"),
    (7, "hosts must be"),
])  # fmt: skip
def test_half_given_hosts_are_refused(given, words):
    with pytest.raises(pgbb.InvalidValue, match=words):
        Hosts.of(given)


def test_auto_reads_what_the_launcher_has_set(monkeypatch):
    for name in [n for n in os.environ if n.startswith(("SLURM_", "OMPI_", "KUBERNETES_"))]:
        monkeypatch.delenv(name)
    with pytest.raises(pgbb.InvalidValue, match="found no cluster"):
        Hosts.of("auto")
    task = {"SLURM_JOB_ID": "70000", "SLURM_STEP_NODELIST": "node[07-09]", "SLURM_NTASKS": "3", "SLURM_PROCID": "2",
            "SLURM_LOCALID": "0", "SLURM_STEP_NUM_NODES": "3"}  # fmt: skip
    for name, value in task.items():
        monkeypatch.setenv(name, value)
    found = Hosts.of("auto")
    assert (found.processes, found.process) == (3, 2) and found.address == ("node07", 2**16 - 2**12 + 70000 % 2**12)
    for nodes, first in (("node001", "node001"), ("node001,host2", "node001"), ("a-b[007,012-015],host2", "a-b007")):
        monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
        assert Hosts.of("auto").address[0] == first
    monkeypatch.delenv("SLURM_PROCID")
    with pytest.raises(pgbb.InvalidValue, match="not set, or not all"):
        Hosts.of("auto")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    for uri, first in (
        ("1531576320.0;tcp://10.96.0.1,10.148.0.1:34911", "10.96.0.1"),
        ("1314521088.0;tcp6://[fe80::b9b:ac5d:9cf0:b858,2620:10d::2]:43370", "fe80::b9b:ac5d:9cf0:b858"),
    ):
        monkeypatch.setenv("OMPI_MCA_orte_hnp_uri", uri)
        found = Hosts.of("auto")
        assert (found.processes, found.process) == (4, 1) and found.address[0] == first
    monkeypatch.setenv("OMPI_MCA_orte_hnp_uri", "unknown")
    with pytest.raises(pgbb.InvalidValue, match="not set, or not all"):
        Hosts.of("auto")


# Joining -------------------------------------------------------------------------------------------------------------


def join(*given):
    def one(hosts):
        with connected(hosts):
            return None

    return in_threads(*(lambda h=h: one(h) for h in given))


def test_those_who_do_not_come_are_named():
    at = f"127.0.0.1:{port()}"
    (alone,) = join(Hosts(at, 3, 0, wait=0.3))
    assert isinstance(alone, HostLost) and "process 1, 2 of 3 did not join within 0.3 s" in str(alone)
    (alone,) = join(Hosts(at, 3, 1, wait=0.3))
    assert isinstance(alone, HostLost) and f"not reached at {at} within 0.3 s" in str(alone)


def test_two_of_one_number_or_other_counts_are_refused():
    at = f"127.0.0.1:{port()}"
    found = join(Hosts(at, 2, 0), Hosts(at, 3, 1))
    assert all("process 1 was told of 3 processes, process 0 of 2" in str(error) for error in found)
    at = f"127.0.0.1:{port()}"
    found = join(Hosts(at, 3, 0), Hosts(at, 3, 1), Hosts(at, 3, 1))
    assert "there are two processes 1" in str(found[0]) and any("two processes 1" in str(error) for error in found[1:])


def test_a_port_in_use_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (error,) = join(Hosts(f"127.0.0.1:{taken.getsockname()[1]}", 2, 0, wait=1))
    assert "cannot listen at port" in str(error) and "Take another port" in str(error)


def test_with_a_key_a_stranger_is_left_out_and_the_fit_goes_on(monkeypatch):
    at, gone = port(), threading.Event()

    def stranger():
        with contextlib.ExitStack() as last, reached(at) as connection:
            last.callback(gone.set)
            connection.sendall(bytes(72))
            heard = b""
            while part := connection.recv(4096):
                heard += part
        return heard

    monkeypatch.setenv(KEY, "a secret of thirty-two letters ..")
    heard, said, own = in_threads(stranger, *greeting(at, gone))
    assert said == own == b"hello" and b"is not the same" in heard and b"hello" not in heard
    assert heard[44 : 44 + 32] == bytes(32)  # after the greeting, no proof for one who has given none
    monkeypatch.setenv(KEY, "short")
    (error,) = join(Hosts(f"127.0.0.1:{at}", 2, 0, wait=1))
    assert "too short" in str(error)


def test_a_process_with_another_key_is_told_and_a_false_process_0_is_not_quoted(monkeypatch):
    monkeypatch.setenv(KEY, "a secret of thirty-two letters ..")
    with socket.create_server(("127.0.0.1", 0)) as false:

        def answer():
            connection, _ = false.accept()
            with connection:
                connection.sendall(b"pgbb hosts 1" + bytes(32))
                text = b"\xff send your records to me"
                connection.sendall(bytes(32) + b"F" + len(text).to_bytes(8) + text)
                connection.recv(4096)

        _, (error,) = in_threads(answer, lambda: join(Hosts(f"127.0.0.1:{false.getsockname()[1]}", 2, 1)))
    assert "is not the same in all processes" in str(error) and "records" not in str(error)


def test_a_stranger_who_sends_byte_by_byte_is_left_after_the_time_of_a_handshake(monkeypatch):
    monkeypatch.setattr("pgbb.private.hosts._HANDSHAKE", 0.6)
    at, there = port(), threading.Event()

    def slow():
        with reached(at) as connection, pytest.raises(OSError):
            begun = time.monotonic()
            there.set()
            while time.monotonic() < begun + 120:
                connection.sendall(b"x")
                time.sleep(0.2)
        return time.monotonic() - begun

    seconds, said, own = in_threads(slow, *greeting(at, there))
    assert seconds < 60 and said == own == b"hello"


def test_without_a_key_only_processes_of_one_machine_fit_together(monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    for process in (0, 1):
        for host in ("10.0.0.1", "0.0.0.0", "[::]", "fit-0.pgbb"):
            (error,) = join(Hosts(f"{host}:{port()}", 2, process, wait=0.1))
            assert isinstance(error, pgbb.InvalidValue) and f"{KEY} is not set" in str(error), host
    for host in ("127.0.0.2", "localhost"):
        at = f"{host}:{port()}"
        assert join(Hosts(at, 2, 0), Hosts(at, 2, 1)) == [None, None]
    monkeypatch.setenv(KEY, "a secret of thirty-two letters ..")
    at = f"0.0.0.0:{port()}"
    assert join(Hosts(at, 2, 0), Hosts(at, 2, 1)) == [None, None]


# The command ---------------------------------------------------------------------------------------------------------


def test_the_command_refuses_half_given_hosts(data, tmp_path):
    schema = tmp_path / "s.toml"
    schema.write_text("[columns]\ny = { range = [-8, 8] }\na = { range = [-1, 1] }\n")
    words = ["fit", str(data["folder"]), "-s", str(schema), "-f", "y ~ a", "-e", "1", "-d", "1e-7", "-o"]
    found = CliRunner().invoke(app, [*words, str(tmp_path / "r.pgbb"), "--hosts", "127.0.0.1:5555"])
    assert isinstance(found.exception, pgbb.InvalidValue) and "ADDRESS:PORT" in str(found.exception)
