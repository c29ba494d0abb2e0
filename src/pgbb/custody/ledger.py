"""A custodian's ledger: what has been released about each data set, and what may still be.

One SQLite file that is only appended to. It holds public facts alone: names,
budgets, descriptions of mechanisms, times and hashes; never a record. Which
sums are allowed is decided by `pgbb.accountant.filters`; who calls what and
when, by `pgbb.custody.run`.

The life of an entry, each step on disk before the next begins:

    reserved ──► answering ──► settled      the release exists
        │            ├───────► spent        the fit ended without a release, or its process is gone
        │            └── ◄ ─── spent        a fit that wrote checkpoints is resumed, by one process
        └──────► refunded                   the fit ended, or its process is gone, before the first answer

All but the refunded ones count. Answers are given only after `answering` is on
disk, and that step is refused unless the entry is still reserved: refunding an
entry whose process merely seems gone is therefore safe.

A checkpoint (`pgbb.custody.checkpoint`) is recorded by its digest. A fit is resumed
from the last one only, and who had it before can then record and settle no
more: the checkpoints of an entry are one line of history (docs/privacy.md,
section 11), for which it was charged once.
"""

import hashlib
import json
import math
import os
import platform
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self

from pgbb import _validate
from pgbb.accountant.filters import Charge, Filter
from pgbb.errors import InvalidValue, PgbbError
from pgbb.release.certificate import describe

__all__ = ["BudgetExceeded", "Dataset", "Entry", "Ledger", "LedgerError", "Owner"]

State = Literal["reserved", "answering", "settled", "spent", "refunded"]

APPLICATION = 0x70676262  # "pgbb", in the header of the file
VERSION = 1
LEASE = timedelta(hours=1)
"""A reservation without an answer lapses after this time, wherever its process may be."""

GONE = "the process ended without a word"
STOPPED = "stopped from outside"
_AS_IF_KILLED = (GONE, STOPPED)  # ends that cannot have come from an answer
WAIT = 60.0  # seconds to wait for another process's transaction
LARGEST = 2**28  # bytes of a ledger file
_TABLE = "CREATE TABLE events (number INTEGER PRIMARY KEY, body TEXT NOT NULL, digest TEXT NOT NULL)"
_GUARDS = {
    f"no_{action}": f"CREATE TRIGGER no_{action} BEFORE {action.upper()} ON events "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is only appended to'); END"
    for action in ("update", "delete")
}
_KEEP = "Restore the file from a copy, and count everything released since then as spent."


class LedgerError(PgbbError):
    """A ledger cannot be read or written, or does not allow what was asked."""


class BudgetExceeded(LedgerError):
    """A release would cost more than the data set has left.

    Attributes:
      left: what the charges may still add up to.
      epsilon: ε of the largest single Gaussian release that fits, at `delta`.
      delta: δ of one record.
    """

    def __init__(self, message: str, left: Charge, epsilon: float, delta: float) -> None:
        super().__init__(message)
        self.left, self.epsilon, self.delta = left, epsilon, delta


@dataclass(frozen=True)
class Owner:
    """The process that holds an entry, such that another process can tell whether it is still there.

    A number is given to another process sooner or later, a number with its start
    time is not. `boot` and `space` say which running system and which set of process numbers it belongs to.
    """

    host: str
    pid: int
    started: str = ""
    boot: str = ""
    space: str = ""

    @classmethod
    def current(cls) -> Self:
        """This process."""
        return cls(_host(), os.getpid(), _started(os.getpid()), *_system())

    def alive(self) -> bool | None:
        """Whether the process is there; None where this machine cannot know."""
        boot, space = _system()
        if self.host != _host() or os.name != "posix":
            return None
        if self.boot != boot:
            return False
        if self.space != space:
            return None
        if self.started:
            return _started(self.pid) == self.started
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass
        return True


def _host() -> str:
    """The name of this machine, with a number that tells it from another of the same name, where there is one."""
    try:
        return f"{platform.node()} {Path('/etc/machine-id').read_text(encoding='ascii').strip()[:12]}".strip()
    except (OSError, UnicodeDecodeError):
        return platform.node()


def _started(pid: int) -> str:
    """When a process began, in clock ticks since the system did; empty if it is not there, or unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if len(fields) < 20 or fields[0] in "ZX" else fields[19]


def _system() -> tuple[str, str]:
    """Which start of the system this is, and which set of process numbers; empty where that is not told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return boot, os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""


@dataclass(frozen=True)
class Entry:
    """One release, or the attempt at one.

    Attributes:
      number: of the event that reserved it.
      dataset, method: what was fitted, and how.
      epsilon, delta: what was asked for, for one record.
      mechanism, sigma: the description that the certificate has too, and its noise.
      charge: what the filter counts.
      state: see the module.
      reserved, closed: times, in UTC; `closed` is empty while the entry is open.
      certificate: SHA-256 of certificate.json in the release file.
      reason: why it was refunded or spent.
      checkpoint: SHA-256 of the last checkpoint, written after `steps` of `total` steps; empty if there was none.
      resumes: how often it was resumed.
      holder: the event by which its present process came to it: another than the last one has lost it.
    """

    number: int
    dataset: str
    method: str
    epsilon: float
    delta: float
    mechanism: Mapping[str, Any]
    sigma: float
    charge: Charge
    owner: Owner
    reserved: str
    state: State = "reserved"
    closed: str = ""
    certificate: str | None = None
    reason: str = ""
    checkpoint: str = ""
    steps: int = 0
    total: int = 0
    resumes: int = 0
    holder: int = 0

    @property
    def counts(self) -> bool:
        """Whether it counts against the budget."""
        return self.state != "refunded"

    @property
    def open(self) -> bool:
        """Whether its fit may still be running."""
        return self.state in ("reserved", "answering")

    @property
    def resumable(self) -> bool:
        """Whether it can be taken up again from its last checkpoint.

        An error may have come from an answer that is in no checkpoint; asking again would then be a choice between
        answers. After the last step there is none to ask again.
        """
        if self.state != "spent" or not self.checkpoint:
            return False
        return self.reason in _AS_IF_KILLED or self.steps == self.total

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "number": self.number,
            "dataset": self.dataset,
            "state": self.state,
            "counts": self.counts,
            "method": self.method,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "charge": {"square": self.charge.square, "failure": self.charge.failure},
            "mechanism": dict(self.mechanism),
            "sigma": self.sigma,
            "reserved": self.reserved,
            "closed": self.closed or None,
            "certificate_sha256": self.certificate,
            "reason": self.reason or None,
            "checkpoint": (
                {"steps": self.steps, "total": self.total, "sha256": self.checkpoint} if self.checkpoint else None
            ),
            "resumes": self.resumes,
            "resumable": self.resumable,
        }


@dataclass(frozen=True)
class Dataset:
    """A data set by the name that its custodian declared, its total budget, and all that was asked of it."""

    name: str
    n: int
    budget: Filter
    entries: tuple[Entry, ...] = field(default=(), repr=False)

    @property
    def charges(self) -> list[Charge]:
        """What counts against the budget."""
        return [e.charge for e in self.entries if e.counts]

    @property
    def left(self) -> float:
        """ε of the largest single Gaussian release that still fits, at the δ of one record."""
        return self.budget.left(self.charges)

    @property
    def share(self) -> float:
        """The share of the budget that is spent or reserved, by whichever part of the charge has less left."""
        total, limit = self.budget.total(self.charges), self.budget.limit
        return max(total.square / limit.square, total.failure / limit.failure)

    @property
    def room(self) -> Charge:
        """What the charges of further releases may add up to."""
        total, limit = self.budget.total(self.charges), self.budget.limit
        return Charge(max(limit.square - total.square, 0.0), max(limit.failure - total.failure, 0.0))

    def to_dict(self) -> dict[str, Any]:
        """A JSON object without the entries."""
        states = [e.state for e in self.entries]
        return {
            "name": self.name,
            "n": self.n,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "group_size": self.budget.group_size,
            "share_used": self.share,
            "left": {"epsilon": self.left, "delta": self.budget.record[1]},
            "entries": {s: states.count(s) for s in ("settled", "spent", "reserved", "answering", "refunded")},
        }


class Ledger:
    """A ledger file. Every call is one transaction, on disk when it returns; processes and threads may share the file.

    Args:
      path: the file. `set` makes it if there is none, and nothing else does.

    >>> import tempfile
    >>> from pgbb.accountant import Mechanism
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(Path(folder) / "ledger.db")
    ...     _ = ledger.set("census", n=1000, epsilon=1.0, delta=1e-6)
    ...     m = Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    ...     entry = ledger.reserve("census", m, .02, method="calibrated", epsilon=.5, delta=1e-6)
    ...     ledger.begin(entry)
    ...     ledger.settle(entry, "0" * 64)
    ...     round(ledger.dataset("census").share, 3)
    0.178
    """

    def __init__(self, path: str | Path) -> None:
        given: Any = path
        if not isinstance(given, str | Path) or str(given) == "":
            raise _validate.fail("ledger", type(given).__name__, "the path of a ledger file")
        self.path: Path = Path(given)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    # What custodians do ----------------------------------------------------------------------------------------------

    def set(
        self, name: str, *, n: int, epsilon: float, delta: float, group_size: int = 1, change: bool = False
    ) -> Dataset:
        """Declare a data set with its total budget; with `change`, give one that is declared another budget.

        n and the group size are facts and do not change. A budget is never reset: what was spent stays spent. Changed
        after releases were seen, it promises what the largest budget that might have been declared does.
        """
        name = _name(name)
        n = _validate.integer("n", n, low=1)
        budget = Filter(epsilon, delta, _validate.integer("group_size", group_size, low=1, high=n))
        _ = budget.limit  # raises where the budget cannot be computed with
        self._create()
        with self._transaction() as book:
            known = book.datasets.get(name)
            if known is not None:
                if (known.n, known.budget.group_size) != (n, budget.group_size):
                    raise LedgerError(
                        f"data set {name!r} is declared with n = {known.n:,} and group_size = "
                        f"{known.budget.group_size}, which do not change. Declare other records under another name."
                    )
                if known.budget == budget:
                    return known
                if not change:
                    raise LedgerError(
                        f"data set {name!r} has the budget ε = {known.budget.epsilon:g}, δ = {known.budget.delta:g}. "
                        "Say that you mean to change it (--change, or change=True); what was spent stays spent."
                    )
                if not budget.fits(known.charges):
                    raise LedgerError(
                        f"ε = {budget.epsilon:g}, δ = {budget.delta:g} is less than data set {name!r} has spent "
                        "already. Take a larger budget."
                    )
            book.append(
                {
                    "kind": "set",
                    "dataset": name,
                    "n": n,
                    "epsilon": budget.epsilon,
                    "delta": budget.delta,
                    "group_size": budget.group_size,
                }
            )
            return book.datasets[name]

    def datasets(self) -> dict[str, Dataset]:
        """All data sets by name; entries of processes that are gone are shown as what they have become."""
        with self._transaction(write=False) as book:
            book.sweep()
            return book.datasets

    def dataset(self, name: str) -> Dataset:
        """One data set."""
        name, found = _name(name), self.datasets()
        if name not in found:
            there = ", ".join(repr(known) for known in found) or "none yet"
            raise LedgerError(
                f"{self.path} has no data set {name!r}; it has {there}. Declare it first: "
                f"pgbb ledger set {self.path} NAME --n N --epsilon E --delta D."
            )
        return found[name]

    def seal(self) -> tuple[int, str]:
        """The number of events and the digest over all of them: write it down to notice a ledger that was cut back."""
        with self._transaction(write=False) as book:
            return book.stored, book.digest

    # What a fit does -------------------------------------------------------------------------------------------------

    def reserve(
        self, dataset: str, mechanism: Any, sigma: float, *, method: str, epsilon: float, delta: float
    ) -> Entry:
        """Set aside what a release will cost; on disk when this returns. Raises `BudgetExceeded` if it does not fit."""
        method, epsilon, delta = _text(method), _validate.epsilon(epsilon), _validate.delta(delta)
        charge = self.dataset(dataset).budget.charge(mechanism, sigma)  # slow for some mechanisms: before the lock
        with self._transaction() as book:
            book.sweep()
            known = book.datasets[dataset]
            if not known.budget.fits([*known.charges, charge]):
                left, at = known.left, known.budget.record[1]
                rest = f"a single Gaussian release of ε = {_down(left):g} at δ = {at:g}" if left > 0 else "nothing"
                raise BudgetExceeded(
                    f"data set {dataset!r} has not enough left for this release, which would take "
                    f"{_percent(known, charge)} of its budget (ε = {known.budget.epsilon:g}, δ = "
                    f"{known.budget.delta:g}): {known.share:.1%} is taken, and {rest} is left.",
                    known.room,
                    left,
                    at,
                )
            number = book.append(
                {
                    "kind": "reserve",
                    "dataset": dataset,
                    "method": method,
                    "epsilon": epsilon,
                    "delta": delta,
                    "mechanism": describe(mechanism),
                    "sigma": sigma,
                    "square": charge.square,
                    "failure": charge.failure,
                    "owner": asdict(Owner.current()),
                }
            )
            return book.entries[number]

    def begin(self, entry: Entry) -> None:
        """Say that answers follow; on disk when this returns. From here on nothing is refunded."""
        with self._transaction() as book:
            state = _held(book, entry).state
            if entry.resumes and state == "answering":  # was said by the process that began
                return
            if state != "reserved":
                raise LedgerError(
                    f"reservation {entry.number} is {state}: it lapsed before the first answer, and nothing was asked. "
                    "Fit again."
                )
            book.append({"kind": "answer", "entry": entry.number})

    def settle(self, entry: Entry, certificate: str) -> None:
        """Say that the release exists, by the hash of its certificate."""
        with self._transaction() as book:
            _held(book, entry)
            book.append({"kind": "settle", "entry": entry.number, "certificate": certificate})

    def close(self, entry: Entry, reason: str) -> State:
        """End an entry without a release: refunded if no answer was given, spent otherwise; returns which."""
        with self._transaction() as book:
            if _held(book, entry).open:
                book.end(entry.number, reason)
            return book.entries[entry.number].state

    def checkpoint(self, entry: Entry, steps: int, total: int, digest: str) -> None:
        """Record a checkpoint: from here on, its entry is resumed from this file or not at all."""
        with self._transaction() as book:
            _held(book, entry)
            book.append({"kind": "checkpoint", "entry": entry.number, "steps": steps, "total": total, "sha256": digest})

    def checkpointed(self, digest: str) -> Entry | None:
        """The entry that recorded this checkpoint, last or earlier; None if there is none."""
        with self._transaction(write=False) as book:
            book.sweep()
            number = book.checkpoints.get(digest)
            return None if number is None else book.entries[number]

    def resume(self, entry: Entry, digest: str) -> Entry:
        """Take an entry over from a process that is gone, at its last checkpoint; on disk when this returns.

        Costs nothing more. Of several processes that ask for the same entry, one gets it.
        """
        with self._transaction() as book:
            book.sweep()
            now = book.entries[entry.number]
            if now.checkpoint != digest:
                raise LedgerError(
                    f"release {now.number} has a later checkpoint, at step {now.steps:,} of {now.total:,}, and can be "
                    "resumed from that one only."
                )
            if not now.resumable:
                raise LedgerError(f"release {now.number} cannot be resumed: {_why_not(now)}")
            book.append({"kind": "resume", "entry": now.number, "owner": asdict(Owner.current())})
            return book.entries[now.number]

    # The file --------------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        """An empty file, readable by its owner only, unless there is one."""
        try:
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "no file has such a name"
            raise LedgerError(
                f"{self.path} cannot be made: {why}. Choose a folder that exists and can be written."
            ) from None

    @contextmanager
    def _transaction(self, *, write: bool = True) -> "Iterator[_Book]":
        """The content of the file, to be read and appended to; what is appended is kept if the block ends well.

        A writer holds the file alone from before it reads until its commit has
        reached the disk (BEGIN IMMEDIATE, synchronous = EXTRA), so that two cannot both find the same room.
        """
        try:
            found = self.path.stat()
        except (OSError, ValueError):  # the latter: a path with a null character
            raise LedgerError(
                f"{self.path}: there is no such ledger. Check the path, or make one: "
                f"pgbb ledger set {self.path} NAME --n N --epsilon E --delta D."
            ) from None
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            raise LedgerError(f"{self.path} is not a ledger: it is no plain file, or larger than any ledger.")
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode=rw", uri=True, timeout=WAIT, isolation_level=None
            )
        except sqlite3.Error as error:
            raise self._failed(error) from None
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            self._check_schema(connection, write)
            yield _Book(self.path, connection, write)
            connection.execute("COMMIT")
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged name in the file need not be text
            raise self._failed(error) from None
        finally:
            connection.close()  # rolls back what was not committed

    def _check_schema(self, connection: sqlite3.Connection, write: bool) -> None:
        """A fresh file becomes a ledger; any other must be one, with nothing beside it."""
        there = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if not there and not application and not version:
            if not write:
                raise LedgerError(
                    f"{self.path} is empty. Declare a data set first: "
                    f"pgbb ledger set {self.path} NAME --n N --epsilon E --delta D."
                )
            for statement in (_TABLE, *_GUARDS.values()):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            return
        if application != APPLICATION:
            raise LedgerError(f"{self.path} is a database, but not a pgbb ledger. Give the path of the ledger.")
        if version > VERSION:
            raise LedgerError(
                f"{self.path} has version {version}; this pgbb reads up to {VERSION}. Upgrade pgbb: "
                "pip install --upgrade pgbb."
            )
        expected = {("table", "events", _TABLE), *(("trigger", name, sql) for name, sql in _GUARDS.items())}
        if version != VERSION or {tuple(row) for row in there} != expected:
            raise LedgerError(f"{self.path}: the tables are not those of a ledger; it was changed outside. {_KEEP}")

    def _failed(self, error: Exception) -> LedgerError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return LedgerError(f"{self.path} was held by other processes for {WAIT:g} s. Nothing was asked; try again.")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return LedgerError(
                f"{self.path} cannot be opened for writing. The file and its folder must be writable by you."
            )
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return LedgerError(f"{self.path} could not be written: the disk is full or fails. Make room; try again.")
        return LedgerError(f"{self.path} is not a readable ledger: it is damaged, or another kind of file. {_KEEP}")


class _Book:
    """The events of a ledger, replayed; each holds the digest of all before it, so that an edit shows."""

    def __init__(self, path: Path, connection: sqlite3.Connection, write: bool) -> None:
        self._path, self._connection, self._write = path, connection, write
        self._declared: dict[str, Dataset] = {}
        self.entries: dict[int, Entry] = {}
        self.checkpoints: dict[str, int] = {}
        self.digest, self.stored = "", 0
        for number, body, digest in connection.execute("SELECT number, body, digest FROM events ORDER BY number"):
            try:
                if number != self.stored + 1 or digest != _digest(self.digest, body):
                    raise ValueError
                self._apply(number, json.loads(body, parse_constant=_refuse))
            except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
                raise LedgerError(
                    f"{path}: event {self.stored + 1} is not what was written: it was edited or damaged. {_KEEP}"
                ) from None
            self.stored, self.digest = number, digest

    @property
    def datasets(self) -> dict[str, Dataset]:
        """All data sets with their entries."""
        held: dict[str, list[Entry]] = {name: [] for name in self._declared}
        for entry in self.entries.values():
            held[entry.dataset].append(entry)
        return {name: replace(d, entries=tuple(held[name])) for name, d in self._declared.items()}

    def append(self, event: dict[str, Any]) -> int:
        """Add an event, to the file if this is a writer; returns its number."""
        event = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **event}
        try:
            body = json.dumps(event, sort_keys=True, ensure_ascii=False, allow_nan=False)
            number, digest = self.stored + 1, _digest(self.digest, body)
        except (TypeError, ValueError):  # a lone surrogate, a number that is not finite, no plain value at all
            raise LedgerError("a ledger holds text and finite numbers only. Nothing was written.") from None
        self._apply(number, event)
        if self._write:
            self._connection.execute("INSERT INTO events VALUES (?, ?, ?)", (number, body, digest))
        self.stored, self.digest = number, digest
        return number

    def end(self, number: int, reason: str) -> None:
        """Close an open entry without a release."""
        kind = "refund" if self.entries[number].state == "reserved" else "spend"
        self.append({"kind": kind, "entry": number, "reason": reason})

    def sweep(self) -> None:
        """Close the entries of processes that are gone, and reservations that have lapsed."""
        now = datetime.now(UTC)
        for entry in [e for e in self.entries.values() if e.open]:
            if entry.owner.alive() is False:
                self.end(entry.number, GONE)
            elif entry.state == "reserved" and now - datetime.fromisoformat(entry.reserved) > LEASE:
                self.end(entry.number, "the reservation lapsed")

    def _apply(self, number: int, event: Mapping[str, Any]) -> None:
        kind, time = event["kind"], event["time"]
        if datetime.fromisoformat(time).tzinfo is None:
            raise ValueError
        if kind == "set":
            name = _name(event["dataset"])
            budget = Filter(event["epsilon"], event["delta"], event["group_size"])
            before = self._declared.get(name)
            n = _validate.integer("n", event["n"], low=1)
            if before is not None and (before.n, before.budget.group_size) != (n, budget.group_size):
                raise ValueError
            self._declared[name] = Dataset(name, n, budget)
            return
        if kind == "reserve":
            entry = _entry(number, event)
            if entry.dataset not in self._declared:
                raise ValueError
        else:
            entry = self.entries[event["entry"]]
            if kind == "answer" and entry.state == "reserved":
                entry = replace(entry, state="answering")
            elif kind == "settle" and entry.state in ("answering", "spent"):  # a process taken for gone may come back
                entry = replace(entry, state="settled", closed=time, certificate=_text(event["certificate"]), reason="")
            elif kind == "refund" and entry.state == "reserved":
                entry = replace(entry, state="refunded", closed=time, reason=_text(event["reason"]))
            elif kind == "spend" and entry.state == "answering":
                entry = replace(entry, state="spent", closed=time, reason=_text(event["reason"]))
            elif kind == "checkpoint" and entry.state in ("reserved", "answering", "spent"):
                entry = self._recorded(entry, event)
            elif kind == "resume" and entry.resumable:
                entry = replace(
                    entry, state="answering", closed="", reason="", owner=_owner(event["owner"]),
                    resumes=entry.resumes + 1, holder=number,
                )  # fmt: skip
            else:
                raise InvalidValue(f"entry {entry.number} is {entry.state}, after which {kind!r} is not allowed.")
        self.entries[entry.number] = entry

    def _recorded(self, entry: Entry, event: Mapping[str, Any]) -> Entry:
        """The entry with one more checkpoint; steps never go back."""
        digest, total = _text(event["sha256"]), _validate.integer("total", event["total"], low=1)
        most = 0 if entry.state == "reserved" else total  # the start is recorded before the first answer
        steps = _validate.integer("steps", event["steps"], low=entry.steps, high=most)
        if self.checkpoints.setdefault(digest, entry.number) != entry.number or entry.total not in (0, total):
            raise ValueError
        return replace(entry, checkpoint=digest, steps=steps, total=total)


def _held(book: _Book, entry: Entry) -> Entry:
    """The entry as it is now; refused to a process from which it was taken over."""
    now = book.entries[entry.number]
    if now.holder != entry.holder:
        raise LedgerError(
            f"release {entry.number} was resumed by process {now.owner.pid} on {now.owner.host}: this one has lost it, "
            "and must not release anything."
        )
    return now


def _why_not(entry: Entry) -> str:
    if entry.state == "settled":
        return "it is settled. A new fit is a new release, with its own cost, and needs a checkpoint file of its own."
    if entry.open:
        return (
            f"process {entry.owner.pid} on {entry.owner.host} is at work on it, or may be: whether it is there cannot "
            "be told from here. Wait for it, or end it."
        )
    return f"it {entry.reason}, which may have to do with an answer that is in no checkpoint. Its cost is spent."


def _owner(plain: Mapping[str, Any]) -> Owner:
    return Owner(
        _text(plain["host"]),
        _validate.integer("pid", plain["pid"], low=1),
        *(_text(plain[k]) for k in ("started", "boot", "space")),
    )


def _entry(number: int, event: Mapping[str, Any]) -> Entry:
    return Entry(
        number=number,
        dataset=_name(event["dataset"]),
        method=_text(event["method"]),
        epsilon=_validate.epsilon(event["epsilon"]),
        delta=_validate.delta(event["delta"]),
        mechanism=dict(event["mechanism"]),
        sigma=_validate.sigma(event["sigma"]),
        charge=Charge(
            _validate.number("square", event["square"], low=0, high=1e100),
            _validate.number("failure", event["failure"], low=0, high=1),
        ),
        owner=_owner(event["owner"]),
        reserved=event["time"],
        holder=number,
    )


def _digest(before: str, body: str) -> str:
    return hashlib.sha256(f"{before}\n{body}".encode()).hexdigest()


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"a {type(value).__name__} is not allowed here: a ledger holds text.")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 100 or not value.isprintable():
        raise InvalidValue(f"dataset = {value!r} is not allowed: a data set has a printable name of up to 100 letters.")
    return value


def _down(value: float) -> float:
    """Rounded down to three digits, so that what is said to be left is left."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.floor(value / unit) * unit


def _percent(known: Dataset, charge: Charge) -> str:
    share = max(charge.square / known.budget.limit.square, charge.failure / known.budget.limit.failure)
    return f"{share:.1%}" if math.isfinite(share) and share < 100 else "far more than all"
