"""A custodian's ledger: what has been released about each data set, and what may still be.

One file that is only appended to. It holds public facts alone: names, budgets, descriptions of mechanisms, times and
hashes; never a record. Which sums are allowed is decided by `pgbb.accountant.filters`; who calls what and when, by
`pgbb.custody.spending`. The life of an entry is drawn in `pgbb.custody.entries`.

Answers are given only after `answering` is on disk, and that step is refused unless the entry is still reserved:
refunding an entry whose process merely seems gone is therefore safe.

A checkpoint (`pgbb.custody.checkpoint`) is recorded by its digest. A fit is resumed from the last one only, and who had
it before can then record and settle no more: the checkpoints of an entry are one line of history (docs/privacy.md,
section 11), for which it was charged once.
"""

import math
from dataclasses import asdict
from pathlib import Path

from pgbb import _validate
from pgbb.accountant import Target
from pgbb.accountant.filters import Charge, Filter
from pgbb.custody.entries import BudgetExceeded, Dataset, Entry, LedgerError, State, rounded_down
from pgbb.custody.history import History, dataset_name, text
from pgbb.custody.ledger_file import create, transaction
from pgbb.custody.owner import Owner
from pgbb.release.certificate import describe


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
        given: object = path
        if not isinstance(given, str | Path) or str(given) == "":
            raise _validate.fail("ledger", type(given).__name__, "the path of a ledger file")
        self.path: Path = Path(given)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def set(
        self, name: str, *, n: int, epsilon: float, delta: float, group_size: int = 1, change: bool = False
    ) -> Dataset:
        """Declare a data set with its total budget; with `change`, give one that is declared another budget.

        n and the group size are facts and do not change. A budget is never reset: what was spent stays spent. Changed
        after releases were seen, it promises what the largest budget that might have been declared does.
        """
        name = dataset_name(name)
        n = _validate.integer("n", n, low=1)
        budget = Filter(epsilon, delta, _validate.integer("group_size", group_size, low=1, high=n))
        _ = budget.limit  # raises where the budget cannot be computed with
        create(self.path)
        with transaction(self.path) as history:
            known = history.datasets.get(name)
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
            history.append({"kind": "set", "dataset": name, "n": n, **asdict(budget)})
            return history.datasets[name]

    def datasets(self) -> dict[str, Dataset]:
        """All data sets by name; entries of processes that are gone are shown as what they have become."""
        with transaction(self.path, write=False) as history:
            history.sweep()
            return history.datasets

    def dataset(self, name: str) -> Dataset:
        """One data set."""
        name, found = dataset_name(name), self.datasets()
        if name not in found:
            there = ", ".join(repr(known) for known in found) or "none yet"
            raise LedgerError(
                f"{self.path} has no data set {name!r}; it has {there}. Declare it first: "
                f"pgbb ledger set {self.path} NAME --n N --epsilon E --delta D."
            )
        return found[name]

    def seal(self) -> tuple[int, str]:
        """The number of events and the digest over all of them: write it down to notice a ledger that was cut back."""
        with transaction(self.path, write=False) as history:
            return history.stored, history.digest

    def reserve(
        self, dataset: str, mechanism: Target, sigma: float, *, method: str, epsilon: float, delta: float
    ) -> Entry:
        """Set aside what a release will cost; on disk when this returns. Raises `BudgetExceeded` if it does not fit."""
        method, epsilon, delta = text(method), _validate.epsilon(epsilon), _validate.delta(delta)
        charge = self.dataset(dataset).budget.charge(mechanism, sigma)  # slow for some mechanisms: before the lock
        with transaction(self.path) as history:
            history.sweep()
            known = history.datasets[dataset]
            if not known.budget.fits([*known.charges, charge]):
                raise _exceeded(known, charge)
            asked = {"dataset": dataset, "method": method, "epsilon": epsilon, "delta": delta}
            run = {"mechanism": describe(mechanism), "sigma": sigma, **asdict(charge)}
            number = history.append({"kind": "reserve", **asked, **run, "owner": asdict(Owner.current())})
            return history.entries[number]

    def begin(self, entry: Entry) -> None:
        """Say that answers follow; on disk when this returns. From here on nothing is refunded."""
        with transaction(self.path) as history:
            state = _held(history, entry).state
            if entry.resumes and state == "answering":  # was said by the process that began
                return
            if state != "reserved":
                raise LedgerError(
                    f"reservation {entry.number} is {state}: it lapsed before the first answer, and nothing was asked. "
                    "Fit again."
                )
            history.append({"kind": "answer", "entry": entry.number})

    def settle(self, entry: Entry, certificate: str) -> None:
        """Say that the release exists, by the hash of its certificate."""
        with transaction(self.path) as history:
            _held(history, entry)
            history.append({"kind": "settle", "entry": entry.number, "certificate": certificate})

    def close(self, entry: Entry, reason: str) -> State:
        """End an entry without a release: refunded if no answer was given, spent otherwise; returns which."""
        with transaction(self.path) as history:
            if _held(history, entry).open:
                history.end(entry.number, reason)
            return history.entries[entry.number].state

    def checkpoint(self, entry: Entry, steps: int, total: int, digest: str) -> None:
        """Record a checkpoint: from here on, its entry is resumed from this file or not at all."""
        with transaction(self.path) as history:
            _held(history, entry)
            at = {"steps": steps, "total": total, "sha256": digest}
            history.append({"kind": "checkpoint", "entry": entry.number, **at})

    def checkpointed(self, digest: str) -> Entry | None:
        """The entry that recorded this checkpoint, last or earlier; None if there is none."""
        with transaction(self.path, write=False) as history:
            history.sweep()
            number = history.checkpoints.get(digest)
            return None if number is None else history.entries[number]

    def resume(self, entry: Entry, digest: str) -> Entry:
        """Take an entry over from a process that is gone, at its last checkpoint; on disk when this returns.

        Costs nothing more. Of several processes that ask for the same entry, one gets it.
        """
        with transaction(self.path) as history:
            history.sweep()
            now = history.entries[entry.number]
            if now.checkpoint != digest:
                raise LedgerError(
                    f"release {now.number} has a later checkpoint, at step {now.steps:,} of {now.total:,}, and can be "
                    "resumed from that one only."
                )
            if not now.resumable:
                raise LedgerError(f"release {now.number} cannot be resumed: {_why_not(now)}")
            history.append({"kind": "resume", "entry": now.number, "owner": asdict(Owner.current())})
            return history.entries[now.number]


def _exceeded(known: Dataset, charge: Charge) -> BudgetExceeded:
    """What to say where a charge does not fit."""
    left, at, share = known.left, known.budget.record[1], known.share_of(charge)
    rest = f"a single Gaussian release of ε = {rounded_down(left):g} at δ = {at:g}" if left > 0 else "nothing"
    takes = f"{share:.1%}" if math.isfinite(share) and share < 100 else "far more than all"
    return BudgetExceeded(
        f"data set {known.name!r} has not enough left for this release, which would take {takes} of its budget (ε = "
        f"{known.budget.epsilon:g}, δ = {known.budget.delta:g}): {known.share:.1%} is taken, and {rest} is left.",
        known.room,
        left,
        at,
    )


def _held(history: History, entry: Entry) -> Entry:
    """The entry as it is now; refused to a process from which it was taken over."""
    now = history.entries[entry.number]
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
