"""SIGKILL at random moments of fits, ledger writes and saves: nothing is lost, overspent or cut short.

    python benchmarks/kills.py [KILLS [SEED]]         200 kills by default
    python benchmarks/kills.py fits [ROUNDS]          8 concurrent `pgbb fit` against room for 5

A worker logs what the ledger has confirmed to it; after each kill the ledger must hold all of it, no
reservation may be open, the total must be within the budget, and every release file must load. Kills cycle
through fits with their saves, ledger writes alone, saves alone, and (every 20th) the command line with the
default method. Exits with 1 if anything is found.
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
from pgbb.ledger import BudgetExceeded, Entry, Ledger

SCHEMA = pgbb.Schema(y=pgbb.Range(-5, 5))
N, DELTA = 500, 1e-6
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
                fit(model, data, ledger=ledger, dataset="d", keep=lambda made, name=name: made.save(name))
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
    sys.exit(kills(int(given[0]) if given else 200, int(given[1]) if len(given) > 1 else 0))
