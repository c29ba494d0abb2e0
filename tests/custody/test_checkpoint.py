import json
import os
import sys
import threading
import warnings
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from safetensors import numpy as safetensors
from typer.testing import CliRunner

import pgbb
from pgbb.accountant.filters import Filter
from pgbb.cli import main
from pgbb.cli.ledger import ledger_app
from pgbb.custody import checkpoint as module
from pgbb.custody.checkpoint import CheckpointError
from pgbb.custody.entries import GONE, STOPPED, LedgerError
from pgbb.custody.ledger import Ledger
from pgbb.custody.owner import Owner
from pgbb.private import noise, randomness, session, step_randomness, sums

N, CHUNK = 200, 10
CHARGE = lru_cache(Filter.charge)  # the slow part of a short fit
SCHEMA = pgbb.Schema(y=pgbb.Range(-5, 5))
MODEL = pgbb.Mean("y", scale=0.5)
LEVEL = pgbb.QuantileRegression("y ~ 1", taus=[0.5])
PGBB = {"method": "pgbb", "steps": 40, "draws_per_step": 1, "sampling_rate": 0.3, "keep_transcript": True}
SGLD = {"method": "sgld", "steps": 40, "sampling_rate": 0.3}

pytestmark = pytest.mark.filterwarnings("ignore::pgbb.PgbbWarning")


@pytest.fixture(scope="module")
def data():
    return pd.DataFrame({"y": np.random.default_rng(0).normal(1, 0.5, N)})


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.db")
    made.set("d", n=N, epsilon=3.0, delta=1e-6)
    made.set("e", n=N, epsilon=3.0, delta=1e-6)
    return made


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A checkpoint after every chunk of ten steps."""
    monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(session, "_chunk", lambda sessions: CHUNK)
    monkeypatch.setattr(Filter, "charge", lambda *given: CHARGE(*given))


def fit(data, ledger, **changes):
    arguments = {"schema": SCHEMA, "epsilon": 0.5, "delta": 1e-6, "ledger": ledger, "dataset": "d",
                 "checkpoint": ledger.path.with_name("c.pgbb-part"), **PGBB}  # fmt: skip
    arguments = {**arguments, **changes}
    if arguments["method"] == "sgld":
        arguments = {k: v for k, v in arguments.items() if k not in ("draws_per_step", "keep_transcript")}
    return pgbb.fit(changes.pop("model", MODEL), data, **{k: v for k, v in arguments.items() if k != "model"})


class Killed(BaseException):
    """What SIGKILL is to a process: it says no word to the ledger."""


def kill(data, ledger, monkeypatch, at, **changes):
    """Run until the chunk that ends at step `at` has been checkpointed, then end as if the process had been killed."""

    def progress(done, total):
        if done >= at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "close", lambda *_: None)
        with pytest.raises(Killed):
            fit(data, ledger, progress=progress, **changes)
    bury(ledger, monkeypatch)


def bury(ledger, monkeypatch):
    """All owners so far are gone."""
    alive, dead = Owner.alive, {e.holder for d in ledger.datasets().values() for e in d.entries}
    monkeypatch.setattr(Owner, "current", classmethod(lambda cls: cls("here", 10_000 + max(dead, default=0))))
    monkeypatch.setattr(Owner, "alive", lambda self: self == Owner.current() or (alive(self) and None) or False)


def entries(ledger):
    return ledger.dataset("d").entries


def path_of(ledger):
    return ledger.path.with_name("c.pgbb-part")


# Going on ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [CHUNK, 30, 40])
def test_a_killed_fit_goes_on_is_charged_once_and_verifies(ledger, data, tmp_path, monkeypatch, at):
    kill(data, ledger, monkeypatch, at)
    (entry,) = entries(ledger)
    assert (entry.state, entry.reason, entry.steps, entry.total) == ("spent", GONE, at, 40) and entry.resumable
    share, out = ledger.dataset("d").share, tmp_path / "r.pgbb"
    with pytest.warns(pgbb.errors.PgbbNote, match=f"continuing at step {at} of 40; nothing more is spent"):
        release = fit(data, ledger, out=out)
    (entry,) = entries(ledger)
    assert entry.state == "settled" and entry.certificate == release.certificate_hash and entry.resumes == 1
    assert ledger.dataset("d").share == share and pgbb.load(out).verify().ok
    assert len(release.payload.tensors["transcript/u"]) == 40
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.db", "r.pgbb"]


@pytest.mark.parametrize(
    "model, at, asked",
    [(MODEL, 10, [[], [1, 1]]), (MODEL, 40, [[1, 1], []]), (LEVEL, 10, [[2], []]), (LEVEL, 40, [[2], []])],
    ids=["mean", "mean, at the end", "quantile", "quantile, at the end"],
)
def test_a_fit_that_goes_on_asks_for_no_second_moment_that_a_checkpoint_holds(
    ledger, data, monkeypatch, model, at, asked
):
    """A mean asks for both after the training, a quantile before it; they are part of the recorded state."""
    seen, ask = [], sums.Sums.ask_often

    def counted(self, stage, times, *given, **options):
        seen.append(times)
        return ask(self, stage, times, *given, **options)

    monkeypatch.setattr(sums.Sums, "ask_often", counted)
    kill(data, ledger, monkeypatch, at, model=model, keep_transcript=None)
    before = list(seen)
    release = fit(data, ledger, model=model, keep_transcript=None)
    assert [before, seen[len(before) :]] == asked
    assert release.payload.kind == "local" and release.verify().ok and entries(ledger)[0].resumes == 1


def test_many_kills_are_one_charge(ledger, data, monkeypatch):
    for at in (10, 10, 20, 30):
        kill(data, ledger, monkeypatch, at)
    fit(data, ledger)
    (entry,) = entries(ledger)
    assert entry.state == "settled" and entry.resumes == 4


def test_the_public_weights_are_those_of_the_uninterrupted_run_and_the_noise_is_not(ledger, data, monkeypatch):
    """Both runs are given the same seed of the public stream; batches and noise have keys of their own."""
    bits = iter([11, 22] * 2)
    monkeypatch.setattr(randomness.secrets, "randbits", lambda _: next(bits, 99))
    whole = fit(data, ledger, checkpoint=None).payload.tensors
    kill(data, ledger, monkeypatch, 20)
    parts = fit(data, ledger).payload.tensors
    assert np.array_equal(whole["transcript/u"], parts["transcript/u"])
    assert np.array_equal(whole["transcript/query"][0], parts["transcript/query"][0])  # the same start
    assert not np.isclose(whole["transcript/answer"], parts["transcript/answer"]).any()


def spy(monkeypatch):
    """What is drawn: keys, noise, and the blocks of the records; and the records as they are held."""
    seen = {"keys": [], "noise": [], "blocks": [], "placed": []}
    make, draw, part, put = (
        noise.Stream.__init__,
        step_randomness.rounded_normals,
        step_randomness.random_blocks,
        session.place,
    )

    def made(stream, key, number=0):
        seen["keys"] += [key] if number == 0 else []
        make(stream, key, number)

    def noted(what, function):
        return lambda *a, **k: (seen[what].append(function(*a, **k)), seen[what][-1])[1]

    monkeypatch.setattr(noise.Stream, "__init__", made)
    monkeypatch.setattr(step_randomness, "rounded_normals", noted("noise", draw))
    monkeypatch.setattr(step_randomness, "random_blocks", noted("blocks", part))
    monkeypatch.setattr(session, "place", noted("placed", put))
    return seen


@pytest.mark.parametrize("settings", [PGBB, SGLD])
def test_a_resumed_fit_draws_fresh_noise_and_batches_for_the_same_partition(ledger, data, monkeypatch, settings):
    seen = spy(monkeypatch)
    kill(data, ledger, monkeypatch, 20, **settings)
    before = len(seen["noise"])
    fit(data, ledger, **settings)
    assert len(set(seen["keys"])) == len(seen["keys"]) > 4  # batches and noise, twice, and batches of a chunk
    again = seen["noise"][before:]
    assert len(again) == 2  # 20 of 40 steps were left: two chunks of ten
    drawn = {tuple(map(tuple, part)) for part in seen["noise"]}
    assert len(drawn) == len(seen["noise"])
    assert len(seen["blocks"]) == 2 and np.array_equal(*seen["blocks"])
    if settings is PGBB:  # a chain has one block
        fit(data, ledger, checkpoint=None, **settings)
        assert not np.array_equal(*seen["blocks"][1:])


def test_what_was_answered_after_the_last_checkpoint_is_asked_again(ledger, data, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 1e9)
    kill(data, ledger, monkeypatch, 30)
    assert entries(ledger)[0].steps == 0
    seen = spy(monkeypatch)
    release = fit(data, ledger)
    assert sum(map(len, seen["noise"])) == len(release.payload.tensors["transcript/answer"]) == 40


def test_several_chains_go_on_in_the_chain_that_was_killed(ledger, monkeypatch):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, N), "y": rng.normal(0, 1, N)})
    changes = {
        "model": pgbb.QuantileRegression("y ~ x", taus=[0.3, 0.7]),
        "schema": pgbb.Schema(x=pgbb.Range(-1, 1), y=pgbb.Range(-5, 5)),
        **SGLD,
    }
    kill(frame, ledger, monkeypatch, 40, **changes)  # at the end of the first
    kill(frame, ledger, monkeypatch, 60, **changes)  # within the second
    seen = spy(monkeypatch)
    release = fit(frame, ledger, **changes)
    assert release.payload.tensors["draws"].shape == (2, 20, 2) and len(seen["noise"]) == 2
    assert entries(ledger)[0].state == "settled" and entries(ledger)[0].total == 80


def test_a_release_that_could_not_be_kept_is_made_again_as_it_was(ledger, data, monkeypatch):
    first = []

    def save(release, *_, **__):
        first.append(release)
        raise OSError

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(pgbb.Release, "save", save)
        fit(data, ledger, out=ledger.path.with_name("r.pgbb"))
    assert entries(ledger)[0].state == "spent"
    again = fit(data, ledger)
    assert all(np.array_equal(v, first[0].payload.tensors[k]) for k, v in again.payload.tensors.items())
    assert entries(ledger)[0].state == "settled"


def test_an_interrupted_fit_goes_on_and_one_that_failed_does_not(ledger, data):
    def ending(at, error):
        def progress(done, total):
            if done == at:
                raise error

        return progress

    with pytest.raises(KeyboardInterrupt):
        fit(data, ledger, progress=ending(20, KeyboardInterrupt))
    assert entries(ledger)[0].reason == STOPPED
    with pytest.raises(FloatingPointError):
        fit(data, ledger, progress=ending(30, FloatingPointError))
    with pytest.raises(LedgerError, match=r"FloatingPointError.*is spent"):
        fit(data, ledger)
    assert [e.state for e in entries(ledger)] == ["spent"]


def test_a_mistake_in_the_second_call_loses_nothing(ledger, data, monkeypatch):
    kill(data, ledger, monkeypatch, 20)
    with pytest.raises(pgbb.PgbbError):
        fit("missing.csv", ledger)
    with pytest.raises(pgbb.InvalidValue, match="n = 200"):
        fit(data[:7], ledger)
    assert entries(ledger)[0].reason == STOPPED
    fit(data, ledger)
    assert [e.state for e in entries(ledger)] == ["settled"]


# One line of history -------------------------------------------------------------------------------------------------


def test_an_older_checkpoint_is_refused(ledger, data, monkeypatch):
    path = path_of(ledger)
    kill(data, ledger, monkeypatch, 10)
    older = path.read_bytes()
    kill(data, ledger, monkeypatch, 20)
    newer = path.read_bytes()
    path.write_bytes(older)
    with pytest.raises(CheckpointError, match="older checkpoint of release 3, which went on to step 20 of 40"):
        fit(data, ledger)
    path.write_bytes(newer)
    fit(data, ledger)
    path.write_bytes(newer)
    with pytest.raises(CheckpointError, match="older"):
        fit(data, ledger)
    assert len(entries(ledger)) == 1


def test_a_finished_release_is_not_resumed(ledger, data, monkeypatch):
    monkeypatch.setattr(module.Checkpoint, "remove", lambda self: None)
    fit(data, ledger)
    with pytest.raises(LedgerError, match="it is settled"):
        fit(data, ledger)


@pytest.mark.parametrize("lost", ["rename", "record"])
def test_a_kill_between_two_steps_of_a_checkpoint(ledger, data, monkeypatch, lost):
    """Recorded but not renamed: found beside its place. Written but not recorded: erased, and asked again."""
    real = os.replace

    def beside():
        return list(path_of(ledger).parent.glob(".c.pgbb-part.*.next"))

    record = Ledger.checkpoint

    def die_at(steps):
        if steps == 20:
            raise Killed

    def checkpoint(self, entry, steps, total, digest):
        if lost == "record":
            die_at(steps)
        record(self, entry, steps, total, digest)
        if lost == "rename":
            die_at(steps)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "checkpoint", checkpoint)
        patch.setattr(Ledger, "close", lambda *_: None)
        with pytest.raises(Killed):
            fit(data, ledger)
    bury(ledger, monkeypatch)
    assert len(beside()) == 1 and os.replace is real
    with pytest.warns(pgbb.errors.PgbbNote, match=f"at step {20 if lost == 'rename' else 10} of"):
        release = fit(data, ledger)
    assert not beside() and len(release.payload.tensors["transcript/u"]) == 40


def test_of_two_that_resume_at_once_one_gets_it(ledger, data, monkeypatch):
    kill(data, ledger, monkeypatch, 20)
    digest, outcomes, barrier = entries(ledger)[0].checkpoint, [], threading.Barrier(6)

    def one():
        barrier.wait()
        try:
            outcomes.append(ledger.resume(entries(ledger)[0], digest))
        except LedgerError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    refusals = [o for o in outcomes if isinstance(o, str)]
    assert len(refusals) == 5 and all("at work on it" in text for text in refusals)


def test_a_fit_that_is_running_is_not_resumed(ledger, data):
    def progress(done, total):
        if done == 20:
            fit(data, ledger)

    with pytest.raises(LedgerError, match="at work on it"):
        fit(data, ledger, progress=progress)


def test_who_has_lost_an_entry_can_neither_record_nor_release(ledger, data, monkeypatch):
    """A process that seems dead, but is not: what it knows stays with it."""
    out = ledger.path.with_name("r.pgbb")

    def progress(done, total):
        if done == 20:
            bury(ledger, monkeypatch)
            fit(data, ledger, checkpoint=path_of(ledger))

    with pytest.raises(LedgerError, match="this one has lost it"):
        fit(data, ledger, progress=progress, out=out)
    assert not out.exists() and [e.state for e in entries(ledger)] == ["settled"]


# What a checkpoint may not be ----------------------------------------------------------------------------------------


OTHERS = [
    {"epsilon": 0.6},
    {"learning_rate": 0.01},
    {"slope": 1.0},
    {"method": "sgld"},
    {"schema": pgbb.Schema(y=pgbb.Range(-5, 6))},
    {"model": pgbb.Mean("y", scale=0.4)},
]


def test_another_fit_does_not_go_on_from_it(ledger, data, monkeypatch):
    kill(data, ledger, monkeypatch, 20)
    for changes in OTHERS:
        with pytest.raises(CheckpointError, match="other settings"):
            fit(data, ledger, **changes)
    assert entries(ledger)[0].resumable


def test_another_data_set_or_ledger_does_not_go_on_from_it(ledger, data, monkeypatch, tmp_path):
    kill(data, ledger, monkeypatch, 20)
    with pytest.raises(CheckpointError, match="data set 'd', not 'e'"):
        fit(data, ledger, dataset="e")
    other = Ledger(tmp_path / "other.db")
    other.set("d", n=N, epsilon=3.0, delta=1e-6)
    with pytest.raises(CheckpointError, match=r"no checkpoint that .*other.db has recorded"):
        fit(data, other)
    assert entries(ledger)[0].resumable


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"ledger": None, "dataset": None}, "needs a ledger"),
        ({"method": "calibrated", "steps": None, "sampling_rate": None}, "only pgbb and sgld"),
        ({"checkpoint": 3}, "path of a file"),
        ({"checkpoint": "no/such/folder/c"}, "folder does not exist"),
    ],
)
def test_where_a_checkpoint_cannot_be_is_said_before_anything_is_reserved(ledger, data, changes, word):
    arguments = {"schema": SCHEMA, "epsilon": 0.5, "delta": 1e-6, "ledger": ledger, "dataset": "d", "checkpoint": "c",
                 "method": "pgbb", "steps": 40, "sampling_rate": 0.3}  # fmt: skip
    with pytest.raises(pgbb.PgbbError, match=word):
        pgbb.fit(MODEL, data, **{**arguments, **changes})
    assert entries(ledger) == ()


def test_anything_else_in_its_place_is_refused_and_left_alone(ledger, data, monkeypatch):
    kill(data, ledger, monkeypatch, 20)
    path, whole = path_of(ledger), path_of(ledger).read_bytes()
    for content in (b"", b"PK\x03\x04", whole[:-1], whole + b" ", (2**62).to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="damaged, another kind of file"):
            fit(data, ledger)
        assert path.read_bytes() == content
    path.unlink()
    path.symlink_to(ledger.path)
    with pytest.raises(CheckpointError, match="damaged, another kind of file"):
        fit(data, ledger)


def changed(path, **changes):
    """The file with other fields."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    plain = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["pgbb"])
    tensors = {**safetensors.load(data), **changes.pop("tensors", {})}
    plain = {k: v for k, v in {**plain, **changes}.items() if v != "absent"}
    return safetensors.save(tensors, metadata={"pgbb": json.dumps(plain)})


FORGED = [
    {"steps": -1},
    {"steps": 41},
    {"steps": 1.5},
    {"steps": 30},
    {"chunk": 0},
    {"order": "x"},
    {"order": "f" * 65},
    {"order": "absent"},
    {"more": 1},
    {"format": "pgbb-checkpoint 2"},
    {"entry": 99},
    {"stage": -1},
    {"public": {}},
    {"public": {"state": "f" * 33, "inc": "1", "has_uint32": 0, "uinteger": 0}},
    {"public": 3},
    {"tensors": {"state/0": np.zeros(3, np.float32)}},
    {"tensors": {"kept/u": np.zeros((20, 1, 5), np.float64)}},
]


def test_a_file_that_pgbb_did_not_write_is_refused_even_if_the_ledger_vouches_for_it(ledger, data, monkeypatch):
    kill(data, ledger, monkeypatch, 20)
    path, entry = path_of(ledger), entries(ledger)[0]
    whole = path.read_bytes()
    for changes in FORGED:
        path.write_bytes(whole)
        path.write_bytes(changed(path, **changes))
        found = replace(entry, checkpoint=module._digest(path))
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "checkpointed", lambda *_, found=found: found)
            patch.setattr(Ledger, "resume", lambda *_, found=found: found)
            with pytest.raises(pgbb.PgbbError):
                fit(data, ledger)
            assert path.exists(), changes


def test_the_file_holds_no_record_and_no_key_and_is_its_owners(ledger, monkeypatch):
    seen = spy(monkeypatch)
    planted = np.float32(1.2345678)
    frame = pd.DataFrame({"y": np.full(N, planted)})
    held = seen["placed"]
    kill(frame, ledger, monkeypatch, 20)
    path = path_of(ledger)
    content = path.read_bytes()
    assert os.name != "posix" or path.stat().st_mode & 0o777 == 0o600
    y = np.asarray(held[0].rows)[0, -2]
    for value in (planted, np.float64(planted), np.float32(y)):
        assert value.tobytes() not in content and repr(float(value)).encode() not in content
    for key in seen["keys"]:
        assert key not in content and key.hex().encode() not in content
    for part in seen["noise"]:  # of 20 answers and one chunk ahead
        assert part.astype(np.int64).tobytes() not in content and part.astype(np.int32).tobytes() not in content
    names = set(safetensors.load(content))
    assert names == {f"state/{i}" for i in range(34)} | {"kept/u", "kept/index", "kept/query", "kept/answer"}


def test_a_kill_before_the_first_answer_is_refunded_and_the_next_fit_begins_anew(ledger, data, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "close", lambda *_: None)
        patch.setattr(Ledger, "begin", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            fit(data, ledger)
    bury(ledger, monkeypatch)
    assert path_of(ledger).exists() and [e.state for e in entries(ledger)] == ["refunded"]
    fit(data, ledger)
    assert [e.state for e in entries(ledger)] == ["refunded", "settled"] and entries(ledger)[1].resumes == 0


def test_an_old_ledger_still_opens_and_its_releases_cannot_be_resumed(ledger):
    from pgbb.accountant import Mechanism

    plain = Mechanism(n=N, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    entry = ledger.reserve("d", plain, 0.1, method="pgbb", epsilon=0.5, delta=1e-6)
    ledger.begin(entry)
    ledger.close(entry, GONE)
    assert not entries(ledger)[0].resumable and ledger.checkpointed("") is None
    with pytest.raises(LedgerError, match="cannot be resumed"):
        ledger.resume(entry, "")


# The command line ----------------------------------------------------------------------------------------------------

COMMAND = ["fit", "d.csv", "-s", "s.toml", "--family", "mean", "--column", "y", "--scale", ".5", "-e", ".5", "-d",
           "1e-6", "--method", "pgbb", "--steps", "40", "-q", ".3", "-K", "1", "--quiet", "-o", "r.pgbb", "--ledger",
           "ledger.db", "--dataset", "d", "--checkpoint", "c.part"]  # fmt: skip


def test_the_same_command_goes_on_and_the_history_tells(ledger, data, tmp_path, monkeypatch, capsys):
    def progress(done, total):
        if done == 20:
            raise KeyboardInterrupt

    def history():
        told = CliRunner().invoke(ledger_app, ["history", str(ledger.path)], env={"COLUMNS": "300"})
        return " ".join(told.stdout.split())

    data.to_csv(tmp_path / "d.csv", index=False)
    (tmp_path / "s.toml").write_text("[columns]\ny = { range = [-5, 5] }\n")
    with pytest.raises(KeyboardInterrupt):
        fit(data, ledger, keep_transcript=False, checkpoint=tmp_path / "c.part", progress=progress)
    assert f"{STOPPED}; checkpoint at step 20 of 40, can be resumed" in history()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGBB_NO_CACHE", "1")
    monkeypatch.setattr(sys, "argv", ["pgbb", *COMMAND])
    with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
        warnings.simplefilter("default")
        main()
    assert ended.value.code in (0, None)
    assert "note: continuing at step 20 of 40; nothing more is spent." in capsys.readouterr().err
    assert pgbb.load(tmp_path / "r.pgbb").verify().ok and not (tmp_path / "c.part").exists()
    (entry,) = entries(ledger)
    assert entry.state == "settled" and entry.to_dict()["checkpoint"]["steps"] == 40
    assert "; resumed once" in history()
