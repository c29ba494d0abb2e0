"""SIGKILL at random moments of fits, ledger writes and saves: nothing is lost, overspent or cut short.

    python benchmarks/kills.py [KILLS [SEED]]         200 kills by default
    python benchmarks/kills.py fits [ROUNDS]          8 concurrent `pgbb fit` against room for 5
    python benchmarks/kills.py resumes [KILLS [SEED]] fits with checkpoints, each killed and resumed until it is done

A worker logs what the ledger has confirmed to it; after each kill the ledger must hold all of it, no
reservation may be open, the total must be within the budget, and every release file must load. Kills cycle
through fits with their saves, ledger writes alone, saves alone, and (every 20th) the command line with the
default method. Exits with 1 if anything is found.

With `resumes`, each fit by method "pgbb" must end as one settled release that loads and verifies, charged once
however often it was killed; one that is killed before its first answer is refunded, and begins anew.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pgbb
from pgbb.accountant import Mechanism
from pgbb.custody import checkpoint
from pgbb.custody.entries import BudgetExceeded, Entry, LedgerError
from pgbb.custody.ledger import Ledger

SCHEMA = pgbb.Schema(y=pgbb.Range(-5, 5))
N, DELTA = 500, 1e-6
MEAN = pgbb.Mean("y", scale=0.5)
COMMAND = ["--family", "mean", "--column", "y", "--scale", ".5", "--dataset", "d", "--quiet"]


ALLOWED = {
    "reserved": ("refunded", "spent", "settled"),
    "answering": ("spent", "settled"),
    "settled": ("settled",),
}  # what an entry may be after the kill, by what had been confirmed


def frame() -> pd.DataFrame:
    return pd.DataFrame({"y": np.random.default_rng(0).normal(1, 0.5, N)})


class Logged(Ledger):
    """Writes down what has been confirmed to this process, unbuffered."""

    log: int

    def _say(self, *words: Any) -> None:
        os.write(self.log, (" ".join(map(str, words)) + "\n").encode())

    def reserve(self, *args: Any, **kwargs: Any) -> Entry:
        entry = super().reserve(*args, **kwargs)
        self._say("reserved", entry.number)
        return entry

    def begin(self, entry: Entry) -> None:
        super().begin(entry)
        self._say("answering", entry.number)

    def settle(self, entry: Entry, certificate: str) -> None:
        super().settle(entry, certificate)
        self._say("settled", entry.number)


def work(kind: str, folder: Path, log: int, tag: int) -> None:
    """What the process does until it is killed."""
    ledger = Logged(folder / "ledger.db")
    ledger.log = log
    mechanism = Mechanism(n=N, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    data, model = frame(), pgbb.Mean("y", scale=0.5)
    if kind == "save":
        release = fit(model, data)
    for i in range(10**6):
        try:
            if kind == "fit":
                name = folder / f"{tag}-{i}.pgbb"
                fit(model, data, ledger=ledger, dataset="d", out=name)
            elif kind == "ledger":
                entry = ledger.reserve("d", mechanism, 0.1, method="none", epsilon=0.5, delta=DELTA)
                ledger.begin(entry)
                ledger.settle(entry, "0" * 64)
            else:
                release.save(folder / f"{tag}-{i % 3}.pgbb")
        except BudgetExceeded:
            time.sleep(0.01)


def fit(model: Any, data: Any, **more: Any) -> Any:
    return pgbb.fit(
        model, data, schema=SCHEMA, epsilon=0.5, delta=DELTA, method="noisy_gibbs", iterations=400, thin=1, **more
    )


def fork(kind: str, folder: Path, tag: int, rng: random.Random) -> str:
    """Start a worker, kill it after a random time, and return what had been confirmed to it."""
    path = folder / f"{tag}.log"
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    pid = os.fork()
    if pid == 0:
        try:
            work(kind, folder, log, tag)
        finally:
            os._exit(3)
    time.sleep(rng.uniform(0.02, 1.0))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(log)
    assert os.WIFSIGNALED(status), "the worker ended by itself"
    return path.read_text()


def command(folder: Path, tag: int, rng: random.Random, longest: float) -> str:
    """The same with `pgbb fit` itself."""
    data, schema = folder / "d.csv", folder / "s.toml"
    process = start(folder, data, schema, f"{tag}.pgbb", "0.5")
    time.sleep(rng.uniform(0.5, longest))
    process.send_signal(signal.SIGKILL)
    process.wait()
    return ""


def start(folder: Path, data: Path, schema: Path, out: str, epsilon: str) -> "subprocess.Popen[str]":
    call = [sys.executable, "-m", "pgbb", "fit", str(data), "-s", str(schema), "-e", epsilon, "-d", str(DELTA)]
    call += [*COMMAND, "-o", str(folder / out), "--ledger", str(folder / "ledger.db")]
    return subprocess.Popen(call, stderr=subprocess.PIPE, text=True)


def prepare(folder: Path, epsilon: float) -> None:
    frame().to_csv(folder / "d.csv", index=False)
    (folder / "s.toml").write_text("[columns]\ny = { range = [-5, 5] }\n")
    Ledger(folder / "ledger.db").set("d", n=N, epsilon=epsilon, delta=DELTA)


def check(folder: Path, log: str) -> list[str]:
    """What is wrong, a sentence each."""
    known = Ledger(folder / "ledger.db").dataset("d")
    states = {e.number: e.state for e in known.entries}
    wrong = []
    for line in log.splitlines():
        word, number = line.split()
        state = states.get(int(number))
        if state not in ALLOWED[word]:
            wrong.append(f"{line}, but the ledger says {state}")
    if any(e.open for e in known.entries):
        wrong.append("an entry is open though its process is dead")
    if not known.budget.fits(known.charges):
        wrong.append("the total is overspent")
    for file in folder.glob("*.pgbb"):
        try:
            if not pgbb.load(file).verify().ok:
                wrong.append(f"{file.name} does not verify")
        except pgbb.PgbbError as error:
            wrong.append(f"{file.name} does not load: {error}")
    return wrong


STEPS = 2_000
BUDGET = {"schema": SCHEMA, "epsilon": 0.5, "delta": DELTA}
SETTINGS = {"steps": STEPS, "draws_per_step": 1, "sampling_rate": 0.2}


def warm(folder: Path) -> None:
    """What every fit computes first, once, before anything is forked: most kills shall find a fit at its steps."""
    import jax

    from pgbb.accountant.filters import Filter
    from pgbb.methods import request
    from pgbb.methods.pgbb import settings as printed
    from pgbb.methods.pgbb import training  # noqa: F401

    planned = printed.plan(request.Request(MEAN, None, **BUDGET), printed.Settings(**SETTINGS), N)
    charge = Ledger(folder / "ledger.db").dataset("d").budget.charge(planned.mechanism, planned.sigma)
    printed.noise_scale = lambda *_: planned.sigma
    Filter.charge = lambda *_: charge  # type: ignore[method-assign]
    jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def resumable(folder: Path) -> None:
    """A fit that writes a checkpoint after every fifty steps; the same call begins it and goes on with it."""
    from pgbb.private import session

    checkpoint.SECONDS, session._chunk = 0.0, lambda sessions: 50
    try:
        pgbb.fit(
            MEAN, frame(), method="pgbb", ledger=folder / "ledger.db", dataset="d", checkpoint=folder / "c.part",
            out=folder / "r.pgbb", **BUDGET, **SETTINGS,
        )  # fmt: skip
    except LedgerError as error:
        if "it is settled" not in str(error):  # killed after that, but before the file was removed
            raise


def run_for(seconds: float, folder: Path) -> int:
    """The exit status of a fit, or −9 if it had to be killed after so many seconds."""
    pid = os.fork()
    if pid == 0:
        try:
            resumable(folder)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(3)
    limit = time.perf_counter() + seconds
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.perf_counter() < limit:
        time.sleep(0.002)
    if ended == (0, 0):
        os.kill(pid, signal.SIGKILL)
        ended = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended[1])


def finished(folder: Path) -> list[str]:
    """What is wrong after a fit has ended by itself."""
    known, wrong = Ledger(folder / "ledger.db").dataset("d"), check(folder, "")
    settled = [e for e in known.entries if e.state == "settled"]
    if len(settled) != 1 or len(known.charges) != 1:
        wrong.append(f"charged for {[e.state for e in known.entries if e.counts]}")
    release = folder / "r.pgbb"
    if not release.exists() or pgbb.load(release).certificate_hash not in [e.certificate for e in settled]:
        wrong.append("the release is not the one that was settled")
    if (folder / ".c.part.next").exists():
        wrong.append("something was left beside the checkpoint")
    return wrong


def resumes(count: int, seed: int) -> int:
    """Kill fits until so many kills have been made; every fit goes on until it has ended by itself."""
    rng, made, found, fits, begin = random.Random(seed), 0, 0, 0, time.perf_counter()
    where: list[int] = []
    refunded = 0
    with tempfile.TemporaryDirectory() as common:
        prepare(Path(common), epsilon=8.0)
        warm(Path(common))
        run_for(1e9, Path(common))  # compiles
        prepare(again := Path(tempfile.mkdtemp(dir=common)), epsilon=8.0)
        started = time.perf_counter()
        run_for(1e9, again)
        longest = time.perf_counter() - started
        while made < count:
            with tempfile.TemporaryDirectory() as name:
                folder, fits = Path(name), fits + 1
                prepare(folder, epsilon=8.0)
                while (code := run_for(rng.uniform(0.2, longest) if made < count else 1e9, folder)) == -9:
                    made += 1
                    where += [e.steps for e in Ledger(folder / "ledger.db").dataset("d").entries if e.resumable]
                wrong = finished(folder) + ["the fit did not end well"] * (code != 0)
                refunded += sum(e.state == "refunded" for e in Ledger(folder / "ledger.db").dataset("d").entries)
                found += len(wrong)
                for sentence in wrong:
                    print(f"fit {fits}: {sentence}")
    inside = sum(0 < steps < STEPS for steps in where)
    print(
        f"{made} kills of {fits} fits in {time.perf_counter() - begin:.0f} s: {found} findings; {len(where)} could be "
        f"resumed, {inside} of them between the first step and the last; {refunded} refunded before the first answer"
    )
    return int(found > 0)


def kills(count: int, seed: int) -> int:
    rng, found, files, states = random.Random(seed), 0, 0, []
    begin = time.perf_counter()
    fit(pgbb.Mean("y", scale=0.5), frame())  # imports, once, before anything is forked
    for first in range(0, count, 10):  # a ledger lasts for ten kills, and runs out in some of them
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            prepare(folder, epsilon=4.0)
            for tag in range(first, min(first + 10, count)):
                if tag % 20 == 19:
                    log = command(folder, tag, rng, 8.0)
                else:
                    log = fork(("fit", "ledger", "save")[tag % 3], folder, tag, rng)
                for sentence in check(folder, log):
                    found += 1
                    print(f"kill {tag}: {sentence}")
            files += len(list(folder.glob("*.pgbb")))
            states += [e.state for e in Ledger(folder / "ledger.db").dataset("d").entries]
    tally = ", ".join(f"{states.count(s)} {s}" for s in ("settled", "spent", "refunded"))
    print(
        f"{count} kills in {time.perf_counter() - begin:.0f} s: {found} findings; {files} release files, all loaded; "
        f"{len(states)} entries: {tally}"
    )
    return int(found > 0)


def fits(rounds: int) -> int:
    """Eight processes at once, with room for five: exactly five must succeed."""
    failed = 0
    for i in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            prepare(folder, epsilon=1.25)  # room for 5.5 releases of ε = .5
            begin = time.perf_counter()
            running = [start(folder, folder / "d.csv", folder / "s.toml", f"{k}.pgbb", "0.5") for k in range(8)]
            codes = []
            for process in running:
                process.communicate()
                codes.append(process.returncode)
            known = Ledger(folder / "ledger.db").dataset("d")
            files = len(list(folder.glob("*.pgbb")))
            good = codes.count(0) == files == 5 and codes.count(2) == 3 and len(known.charges) == 5
            failed += not good
            print(f"round {i}: {codes.count(0)} of 8 succeeded, {files} files, {known.share:.1%} taken, "
                  f"{time.perf_counter() - begin:.1f} s")  # fmt: skip
    return int(failed > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    given = sys.argv[1:]
    if given[:1] == ["fits"]:
        sys.exit(fits(int(given[1]) if len(given) > 1 else 1))
    if given[:1] == ["resumes"]:
        sys.exit(resumes(*(int(g) for g in given[1:]), *(20, 0)[len(given) - 1 :]))
    sys.exit(kills(int(given[0]) if given else 200, int(given[1]) if len(given) > 1 else 0))
