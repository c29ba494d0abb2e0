"""Entries and data sets of a ledger, the arithmetic of their budgets, and its errors.

The life of an entry, each step on disk before the next begins:

    reserved ──► answering ──► settled      the release exists
        │            ├───────► spent        the fit ended without a release, or its process is gone
        │            └── ◄ ─── spent        a fit that wrote checkpoints is resumed, by one process
        └──────► refunded                   the fit ended, or its process is gone, before the first answer

All but the refunded ones count.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from pgbb.accountant.filters import Charge, Filter
from pgbb.custody.owner import Owner
from pgbb.errors import PgbbError

State = Literal["reserved", "answering", "settled", "spent", "refunded"]

GONE = "the process ended without a word"
STOPPED = "stopped from outside"


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
    mechanism: Mapping[str, object]
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
        return self.reason in (GONE, STOPPED) or self.steps == self.total

    def to_dict(self) -> dict[str, object]:
        """A JSON object."""
        same = ("number", "dataset", "state", "counts", "method", "epsilon", "delta", "sigma", "reserved", "resumes")
        at = {"steps": self.steps, "total": self.total, "sha256": self.checkpoint}
        return {name: getattr(self, name) for name in (*same, "resumable")} | {
            "charge": asdict(self.charge),
            "mechanism": dict(self.mechanism),
            "closed": self.closed or None,
            "certificate_sha256": self.certificate,
            "reason": self.reason or None,
            "checkpoint": at if self.checkpoint else None,
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
        """The share of the budget that is spent or reserved."""
        return self.share_of(self.budget.total(self.charges))

    def share_of(self, charge: Charge) -> float:
        """The share of the budget that a charge takes: the larger of its two parts."""
        limit = self.budget.limit
        return max(charge.square / limit.square, charge.failure / limit.failure)

    @property
    def room(self) -> Charge:
        """What the charges of further releases may add up to."""
        total, limit = self.budget.total(self.charges), self.budget.limit
        return Charge(max(limit.square - total.square, 0.0), max(limit.failure - total.failure, 0.0))

    def to_dict(self) -> dict[str, object]:
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


def rounded_down(value: float) -> float:
    """A positive number rounded down to three digits, so that an ε that is said to be left is left.

    >>> rounded_down(0.12399), rounded_down(0.0)
    (0.123, 0.0)
    """
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / unit) * unit:.3g}")
