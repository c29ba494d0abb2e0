import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.accountant import Mechanism
from pgbb.custody import history, ledger_file
from pgbb.custody import owner as owner_module
from pgbb.custody.entries import BudgetExceeded, LedgerError
from pgbb.custody.ledger import Ledger
from pgbb.custody.owner import Owner
from tests.helpers import python, run

N = 400
SCHEMA = pgbb.Schema(y=pgbb.Range(-5, 5))
MODEL = pgbb.Mean("y", scale=0.5)
PLAIN = Mechanism(n=N, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
QUICK = {"method": "noisy_gibbs", "iterations": 400, "thin": 1}

pytestmark = pytest.mark.filterwarnings("ignore::pgbb.PgbbWarning")


@pytest.fixture(scope="module")
def data():
    return pd.DataFrame({"y": np.random.default_rng(0).normal(1, 0.5, N)})


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.db")
    made.set("d", n=N, epsilon=1.0, delta=1e-6)
    return made


def fit(data, book, **changes):
    arguments = {"schema": SCHEMA, "epsilon": 0.5, "delta": 1e-6, "ledger": book, "dataset": "d", **QUICK}
    return pgbb.fit(MODEL, data, **{**arguments, **changes})


def reserve(ledger, sigma=0.05, dataset="d"):
    return ledger.reserve(dataset, PLAIN, sigma, method="calibrated", epsilon=0.5, delta=1e-6)


def states(ledger):
    return [e.state for e in ledger.dataset("d").entries]


def child(code, *arguments):
    return python(code, *arguments)


RESERVE = """
import os, sys
from pgbb.accountant import Mechanism
from pgbb.custody.entries import BudgetExceeded
from pgbb.custody.ledger import Ledger
m = Mechanism(n=400, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
ledger = Ledger(sys.argv[1])
try:
    entry = ledger.reserve("d", m, float(sys.argv[2]), method="calibrated", epsilon=.5, delta=1e-6)
except BudgetExceeded:
    os._exit(2)
if sys.argv[3] != "reserve":
    ledger.begin(entry)
if sys.argv[3] == "settle":
    ledger.settle(entry, "0" * 64)
os._exit(0)
"""
EIGHT_AT_ONCE = f"""
import os, sys
import pgbb.accountant, pgbb.custody.ledger
ready, go = os.pipe()
children = []
for _ in range(8):
    child = os.fork()
    if not child:
        os.close(go)
        os.read(ready, 1)  # ends when all are there
        break
    children.append(child)
else:
    os.close(go)
    print(*sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
    sys.exit()
{RESERVE}"""


# Budgets -------------------------------------------------------------------------------------------------------------


def test_a_release_is_settled_with_its_mechanism_and_the_hash_of_its_certificate(ledger, data, tmp_path):
    release = fit(data, ledger, out=tmp_path / "r.pgbb")
    (entry,) = ledger.dataset("d").entries
    assert entry.state == "settled" and entry.certificate == release.certificate_hash
    assert entry.mechanism == release.certificate.to_dict()["mechanism"] and entry.sigma == release.certificate.sigma
    assert pgbb.load(tmp_path / "r.pgbb").certificate_hash == entry.certificate
    assert 0.2 < ledger.dataset("d").share < 0.3


@pytest.mark.parametrize(
    "method, settings",
    [
        ("calibrated", {}),
        ("pgbb", {"steps": 5, "draws_per_step": 2, "sampling_rate": 0.2}),
        ("sgld", {"steps": 10, "sampling_rate": 0.2}),
        ("noisy_gibbs", {"iterations": 400}),
        ("dp_bootstrap", {"replicates": 5}),
        ("augmented", {"iterations": 200}),
        ("abc", {"proposals": 1000}),
        ("repro", {"replicates": 199}),
        ("posterior_sampling", {"draws": 5}),
        ("dp_mcmc", {"steps": 100}),
    ],
)
def test_every_method_reserves_what_it_then_runs(ledger, data, method, settings):
    ledger.set("d", n=N, epsilon=3.0, delta=1e-6, change=True)
    settings = {"iterations": None, "thin": None, **settings}
    release = fit(data, ledger, method=method, **settings)
    (entry,) = ledger.dataset("d").entries
    assert (entry.state, entry.method, entry.sigma) == ("settled", method, release.certificate.sigma)
    assert entry.mechanism == release.certificate.to_dict()["mechanism"]


def test_a_refusal_comes_before_the_data_and_what_it_proposes_fits(ledger, data):
    fit(data, ledger, epsilon=0.8)
    for method in ("calibrated", "dp_bootstrap"):
        with pytest.raises(BudgetExceeded, match="would fit") as caught:
            fit("no such file.csv", ledger, epsilon=0.8, method=method, iterations=None, thin=None)
        text = str(caught.value)
        assert "a single Gaussian release of ε = " in text
        proposed = float(re.search(r"ε = ([0-9.]+) would fit", text)[1])
        assert 0.3 < proposed < 0.8
        with pytest.raises(BudgetExceeded):
            fit(data, ledger, epsilon=proposed * 1.03, method=method, iterations=None, thin=None)
    assert len(ledger.dataset("d").entries) == 1
    fit(data, ledger, epsilon=proposed, method="dp_bootstrap", iterations=None, thin=None)
    with pytest.raises(BudgetExceeded):
        fit(data, ledger, epsilon=0.4)


def test_a_budget_is_never_reset(ledger, data):
    fit(data, ledger)
    before = ledger.dataset("d").share
    ledger.set("d", n=N, epsilon=1.0, delta=1e-6)  # the same again: nothing happens
    with pytest.raises(LedgerError, match="change"):
        ledger.set("d", n=N, epsilon=2.0, delta=1e-6)
    with pytest.raises(LedgerError, match="already"):
        ledger.set("d", n=N, epsilon=0.3, delta=1e-6, change=True)
    for fact in ({"n": N + 1}, {"group_size": 2}):
        with pytest.raises(LedgerError, match="do not change"):
            ledger.set("d", **{"n": N, "epsilon": 9.0, "delta": 1e-6, "change": True, **fact})
    raised = ledger.set("d", n=N, epsilon=2.0, delta=1e-6, change=True)
    assert 0 < raised.share < before and len(raised.charges) == 1


def test_a_group_is_charged_for_a_person_and_certified_as_declared(ledger, data):
    ledger.set("p", n=N, epsilon=1.0, delta=1e-6, group_size=3)
    release = fit(data, ledger, dataset="p", epsilon=0.2)
    assert release.certificate.group_size == 3
    assert ledger.dataset("p").share > 0.3  # of ε = 1/3 for one record
    with pytest.raises(BudgetExceeded):
        fit(data, ledger, dataset="p", epsilon=0.34)
    with pytest.raises(pgbb.InvalidValue, match="group_size"):
        fit(data, ledger, dataset="p", epsilon=0.1, group_size=2)


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"insecure_seed": 1}, "no privacy"),
        ({"non_private": True}, "no privacy"),
        ({"dataset": None}, "go together"),
        ({"ledger": None}, "go together"),
        ({"dataset": "other"}, "'d'"),
        ({"ledger": "nowhere.db"}, "no such ledger"),
        ({"ledger": 3}, "path"),
    ],
)
def test_what_a_ledger_cannot_pay_for_is_refused(ledger, data, changes, word):
    with pytest.raises(pgbb.PgbbError, match=word):
        fit(data, ledger, **changes)
    assert states(ledger) == []


@pytest.mark.parametrize(
    "arguments", [{"n": 0}, {"epsilon": 0}, {"delta": 1}, {"group_size": N + 1}, {"name": ""}, {"name": "a\nb"}]
)
def test_impossible_declarations_are_refused_and_make_no_file(tmp_path, arguments):
    with pytest.raises(pgbb.InvalidValue):
        Ledger(tmp_path / "x.db").set(**{"name": "d", "n": N, "epsilon": 1.0, "delta": 1e-6, **arguments})
    assert list(tmp_path.iterdir()) == []


# The order of events -------------------------------------------------------------------------------------------------


def test_the_reservation_is_on_disk_before_a_record_is_read_and_the_mark_before_the_first_answer(
    ledger, data, monkeypatch
):
    from pgbb.private import door, loading

    seen, load, ask = [], loading.records_for, door.Dataset.moments

    def on_disk():
        with closing(sqlite3.connect(ledger.path)) as connection:
            events = connection.execute("SELECT body FROM events ORDER BY number").fetchall()
        return json.loads(events[-1][0])["kind"]

    monkeypatch.setattr(loading, "records_for", lambda *a, **k: (seen.append(on_disk()), load(*a, **k))[1])
    monkeypatch.setattr(door.Dataset, "moments", lambda *a, **k: (seen.append(on_disk()), ask(*a, **k))[1])
    fit(data, ledger)
    assert seen == ["reserve", "answer"] and on_disk() == "settle"


@pytest.mark.parametrize("source", ["missing.csv", pd.DataFrame({"z": [1.0]}), pd.DataFrame({"y": np.zeros(N - 1)})])
def test_an_error_before_the_first_answer_is_refunded(ledger, source):
    with pytest.raises(pgbb.PgbbError):
        fit(source, ledger)
    assert states(ledger) == ["refunded"] and ledger.dataset("d").share == 0


def test_another_number_of_records_than_declared_is_named(ledger):
    with pytest.raises(pgbb.InvalidValue, match="n = 400"):
        fit(pd.DataFrame({"y": np.zeros(7)}), ledger)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_an_error_after_the_first_answer_is_spent(ledger, data, error, monkeypatch):
    from pgbb.private import door

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(door.Dataset, "moments", fail)
    with pytest.raises(error):
        fit(data, ledger)
    (entry,) = ledger.dataset("d").entries
    assert entry.state == "spent" and error.__name__ in entry.reason and ledger.dataset("d").share > 0.2


def test_a_release_that_cannot_be_saved_is_spent(ledger, data, tmp_path):
    """Somebody makes a folder of its name while the fit runs."""
    target = tmp_path / "r.pgbb"
    with pytest.raises(pgbb.PgbbError, match="cannot be written"):
        fit(data, ledger, out=target, progress=lambda *_: target.mkdir(exist_ok=True))
    assert states(ledger) == ["spent"]


@pytest.mark.parametrize(
    "changes, word",
    [({"out": "none/r.pgbb"}, "folder"), ({"out": "r.pgbb", "key": "none.pem"}, "key"), ({"key": "k.pem"}, "out")],
)
def test_a_file_or_key_that_cannot_be_is_said_before_anything_is_reserved(ledger, data, tmp_path, changes, word):
    with pytest.raises(pgbb.PgbbError, match=word):
        fit(data, ledger, **{name: tmp_path / value for name, value in changes.items()})
    assert states(ledger) == []


def test_answers_other_than_those_reserved_are_refused_before_they_are_asked(ledger, data, monkeypatch):
    from pgbb.methods import noisy_gibbs

    plan = noisy_gibbs.plan
    monkeypatch.setattr(noisy_gibbs, "plan", lambda *a: replace(plan(*a), sigma=plan(*a).sigma * 2))
    with pytest.raises(pgbb.PgbbError, match="not those that were reserved"):
        fit(data, ledger)
    assert states(ledger) == ["refunded"]


# Processes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last, state", [("reserve", "refunded"), ("answer", "spent"), ("settle", "settled")])
def test_a_process_that_ends_without_a_word_is_spent_only_if_it_had_begun_to_answer(ledger, last, state):
    assert child(RESERVE, ledger.path, 0.05, last).returncode == 0
    assert states(ledger) == [state]
    reserve(ledger)  # a writer puts it on disk
    assert states(ledger) == [state, "reserved"]


def test_a_process_is_known_by_its_number_and_its_start():
    me = Owner.current()
    assert me.alive() is True
    assert replace(me, started="1").alive() is False  # the number was given to another process
    assert replace(me, boot="before").alive() is False
    assert replace(me, host="elsewhere").alive() is None
    assert replace(me, space="pid:[1]").alive() is None
    for pid in (2**30, 2**31, 10**30):  # no process has such a number
        assert replace(me, pid=pid).alive() is False and replace(me, pid=pid, started="").alive() is False


def test_a_process_that_has_ended_is_gone_even_before_its_parent_has_heard_of_it():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(Owner.current(), pid=process.pid, started=owner_module._started(process.pid))
    assert owner.started and owner.alive() is True
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet waited for
    assert owner.alive() is False
    process.wait()
    assert owner.alive() is False


def test_a_reservation_that_lapsed_cannot_begin_to_answer(ledger, monkeypatch):
    entry = reserve(ledger)
    monkeypatch.setattr(history, "LEASE", -history.LEASE)
    reserve(ledger)
    with pytest.raises(LedgerError, match="lapsed"):
        ledger.begin(entry)
    assert states(ledger)[0] == "refunded"


def test_a_fit_that_is_answering_does_not_lapse(ledger, monkeypatch):
    entry = reserve(ledger)
    ledger.begin(entry)
    monkeypatch.setattr(history, "LEASE", -history.LEASE)
    assert states(ledger) == ["answering"]
    ledger.settle(entry, "0" * 64)
    assert states(ledger) == ["settled"]


def test_of_eight_fits_at_once_exactly_the_five_that_fit_succeed(ledger, data):
    ledger.set("d", n=N, epsilon=1.25, delta=1e-6, change=True)  # 5.5 times what ε = .5 takes
    outcomes, barrier = [], threading.Barrier(8)

    def one():
        barrier.wait()
        try:
            fit(data, ledger)
            outcomes.append("released")
        except BudgetExceeded:
            outcomes.append("refused")

    threads = [threading.Thread(target=one) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(outcomes) == ["refused"] * 3 + ["released"] * 5
    assert states(ledger) == ["settled"] * 5 and 0.9 < ledger.dataset("d").share <= 1


def test_of_eight_processes_at_once_exactly_five_get_a_reservation(ledger):
    room = ledger.dataset("d").budget.limit.square
    sigma = 2 / (N * (room / 5.5) ** 0.5)
    assert child(EIGHT_AT_ONCE, ledger.path, sigma, "settle").stdout.split() == ["0"] * 5 + ["2"] * 3
    assert states(ledger) == ["settled"] * 5


def test_five_kills_lose_nothing_overspend_nothing_and_cut_nothing_short():
    script = Path(__file__).parents[2] / "benchmarks" / "kills.py"
    done = run(sys.executable, script, 5, 11)
    assert done.returncode == 0 and "5 kills" in done.stdout and " 0 findings" in done.stdout, done.stdout + done.stderr


def test_the_check_after_a_kill_notices_a_lost_reservation(ledger, tmp_path):
    import importlib.util

    path = Path(__file__).parents[2] / "benchmarks" / "kills.py"
    spec = importlib.util.spec_from_file_location("kills", path)
    kills = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kills)
    assert kills.check(tmp_path, "") == []
    assert kills.check(tmp_path, "reserved 7") == ["reserved 7, but the ledger says None"]
    (tmp_path / "r.pgbb").write_bytes(b"PK\x03\x04 cut short")
    assert "does not load" in kills.check(tmp_path, "")[0]


# Files that are not ledgers ------------------------------------------------------------------------------------------


def forge(ledger, statement, *values, unguarded=True):
    with closing(sqlite3.connect(ledger.path)) as connection:
        if unguarded:
            connection.executescript("DROP TRIGGER no_update; DROP TRIGGER no_delete")
        connection.execute(statement, values)
        if unguarded:
            for guard in ledger_file.GUARDS.values():
                connection.execute(guard)
        connection.commit()


def test_events_cannot_be_changed_or_deleted_by_accident(ledger):
    for statement in ("UPDATE events SET body = '{}'", "DELETE FROM events"):
        with pytest.raises(sqlite3.IntegrityError, match="only appended"):
            forge(ledger, statement, unguarded=False)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET body = replace(body, '0.05', '5.0')",
        "UPDATE events SET digest = 'x' WHERE number = 2",
        "DELETE FROM events WHERE number = 2",
        "INSERT INTO events VALUES (9, '{}', '')",
        "UPDATE events SET body = x'00ff' WHERE number = 1",
    ],
)
def test_an_edited_ledger_is_refused(ledger, data, statement):
    for _ in range(2):
        reserve(ledger)
    forge(ledger, statement)
    for use in (ledger.datasets, lambda: fit(data, ledger), ledger.seal):
        with pytest.raises(LedgerError, match="edited or damaged"):
            use()


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "set", "dataset": "e", "n": -1, "epsilon": 1, "delta": 1e-6, "group_size": 1},
        {"kind": "refund", "entry": 77, "reason": ""},
        {"kind": "nonsense", "entry": 2},
        {"kind": "answer", "entry": [2]},
        {"kind": "reserve"},
        {},
        [],
        None,
    ],
)
def test_an_event_that_pgbb_does_not_write_is_refused_even_with_a_right_digest(ledger, event):
    count, before = ledger.seal()
    if isinstance(event, dict) and event:
        event["time"] = "2026-01-01T00:00:00+00:00"
    body = json.dumps(event)
    forge(ledger, "INSERT INTO events VALUES (?, ?, ?)", count + 1, body, history.digest_of(before, body))
    with pytest.raises(LedgerError, match="edited or damaged"):
        ledger.datasets()


def test_foreign_and_broken_files_are_refused_in_one_sentence(ledger, tmp_path):
    files = {name: tmp_path / name for name in ("text", "foreign.db", "cut.db", "later.db", "more.db", "view.db")}
    files["text"].write_text("not a database " * 200)
    connection = sqlite3.connect(files["foreign.db"])
    connection.execute("CREATE TABLE events (a)")
    connection.commit()
    connection.close()
    files["cut.db"].write_bytes(ledger.path.read_bytes()[:5000])
    for name, statement in (
        ("later.db", "PRAGMA user_version = 2"),
        ("more.db", "CREATE TABLE extra (a)"),
        ("view.db", "CREATE VIEW v AS SELECT 1"),
    ):
        shutil.copy(ledger.path, files[name])
        connection = sqlite3.connect(files[name])
        connection.execute(statement)
        connection.commit()
        connection.close()
    (tmp_path / "empty.db").touch()
    (tmp_path / "folder").mkdir()
    for path in (*files.values(), tmp_path / "folder", tmp_path / "none.db", tmp_path / "empty.db"):
        with pytest.raises(LedgerError) as caught:
            Ledger(path).datasets()
        assert str(path) in str(caught.value)
    for name in ("text", "foreign.db", "more.db"):
        before = files[name].read_bytes()
        with pytest.raises(LedgerError):
            Ledger(files[name]).set("d", n=N, epsilon=1.0, delta=1e-6)
        assert files[name].read_bytes() == before


def test_a_ledger_with_any_bytes_changed_opens_as_it_was_or_not_at_all(ledger, tmp_path):
    for _ in range(3):
        reserve(ledger, sigma=0.5)
    original, rng, path = ledger.path.read_bytes(), random.Random(0), tmp_path / "changed.db"
    expected, refused = ledger.dataset("d").share, 0
    for _ in range(300):
        changed = bytearray(original)
        for _ in range(rng.choice([1, 4, 40])):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        path.write_bytes(changed[: rng.choice([len(changed), rng.randrange(len(changed))])])
        try:
            found = Ledger(path).datasets()
        except LedgerError:
            refused += 1
        else:
            assert found["d"].share == expected
    assert refused > 100


def test_only_the_owner_can_read_a_new_ledger(ledger):
    assert os.name != "posix" or ledger.path.stat().st_mode & 0o077 == 0
