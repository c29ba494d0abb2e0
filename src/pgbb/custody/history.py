"""The events of a ledger, replayed to the present state of its entries.

Events are only appended. Each has the digest of all before it, so that an edit shows. Which event may follow which is
decided here, for writers and for readers alike; where the events are stored, by `pgbb.custody.ledger_file`.
"""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from pgbb import _validate
from pgbb.accountant.filters import Charge, Filter
from pgbb.custody.entries import GONE, Dataset, Entry, LedgerError
from pgbb.custody.owner import Owner
from pgbb.errors import InvalidValue

Event: TypeAlias = Mapping[str, Any]  # an object of JSON, each value of which is validated when it is read

LEASE = timedelta(hours=1)
"""A reservation without an answer lapses after this time, wherever its process may be."""

RESTORE = "Restore the file from a copy, and count everything released since then as spent."


class History:
    """The events of a ledger, replayed; each holds the digest of all before it, so that an edit shows."""

    def __init__(self, path: Path, connection: sqlite3.Connection, write: bool) -> None:
        self._path, self._connection, self._write = path, connection, write
        self._declared: dict[str, Dataset] = {}
        self.entries: dict[int, Entry] = {}
        self.checkpoints: dict[str, int] = {}
        self.digest, self.stored = "", 0
        for number, body, digest in connection.execute("SELECT number, body, digest FROM events ORDER BY number"):
            try:
                if number != self.stored + 1 or digest != digest_of(self.digest, body):
                    raise ValueError
                self._apply(number, json.loads(body, parse_constant=_refuse))
            except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
                raise LedgerError(
                    f"{path}: event {self.stored + 1} is not what was written: it was edited or damaged. {RESTORE}"
                ) from None
            self.stored, self.digest = number, digest

    @property
    def datasets(self) -> dict[str, Dataset]:
        """All data sets with their entries."""
        held: dict[str, list[Entry]] = {name: [] for name in self._declared}
        for entry in self.entries.values():
            held[entry.dataset].append(entry)
        return {name: replace(d, entries=tuple(held[name])) for name, d in self._declared.items()}

    def append(self, event: dict[str, object]) -> int:
        """Add an event, to the file if this is a writer; returns its number."""
        event = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **event}
        try:
            body = json.dumps(event, sort_keys=True, ensure_ascii=False, allow_nan=False)
            number, digest = self.stored + 1, digest_of(self.digest, body)
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

    def _apply(self, number: int, event: Event) -> None:
        kind, time = event["kind"], event["time"]
        if datetime.fromisoformat(time).tzinfo is None:
            raise ValueError
        if kind == "set":
            name = dataset_name(event["dataset"])
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
                entry = replace(entry, state="settled", closed=time, certificate=text(event["certificate"]), reason="")
            elif kind == "refund" and entry.state == "reserved":
                entry = replace(entry, state="refunded", closed=time, reason=text(event["reason"]))
            elif kind == "spend" and entry.state == "answering":
                entry = replace(entry, state="spent", closed=time, reason=text(event["reason"]))
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

    def _recorded(self, entry: Entry, event: Event) -> Entry:
        """The entry with one more checkpoint; steps never go back."""
        digest, total = text(event["sha256"]), _validate.integer("total", event["total"], low=1)
        most = 0 if entry.state == "reserved" else total  # the start is recorded before the first answer
        steps = _validate.integer("steps", event["steps"], low=entry.steps, high=most)
        if self.checkpoints.setdefault(digest, entry.number) != entry.number or entry.total not in (0, total):
            raise ValueError
        return replace(entry, checkpoint=digest, steps=steps, total=total)


def _owner(plain: Event) -> Owner:
    return Owner(
        text(plain["host"]),
        _validate.integer("pid", plain["pid"], low=1),
        *(text(plain[k]) for k in ("started", "boot", "space")),
    )


def _entry(number: int, event: Event) -> Entry:
    return Entry(
        number=number,
        dataset=dataset_name(event["dataset"]),
        method=text(event["method"]),
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


def digest_of(before: str, body: str) -> str:
    """The digest over an event and all before it."""
    return hashlib.sha256(f"{before}\n{body}".encode()).hexdigest()


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def text(value: object) -> str:
    """A value that must be text."""
    if not isinstance(value, str):
        raise InvalidValue(f"a {type(value).__name__} is not allowed here: a ledger holds text.")
    return value


def dataset_name(value: object) -> str:
    """A value that must be the name of a data set."""
    if not isinstance(value, str) or not value.strip() or len(value) > 100 or not value.isprintable():
        raise InvalidValue(f"dataset = {value!r} is not allowed: a data set has a printable name of up to 100 letters.")
    return value
