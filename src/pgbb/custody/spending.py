"""One release under a ledger: reserve, begin, settle, each on disk before the next.

    with spending(request, method, settings, ledger=…, dataset=…) as spent:   # reserved, or resumed at a checkpoint
        release = method.load().run(spent.request, settings)                  # `begin` before the first answer
        spent.by(release)
        release.save(…)
                                                                              # settled

The block ends with a release that is where it belongs, and the ledger settles; or it ends with an error, and the ledger
refunds what no answer was given for and counts the rest as spent.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Self

import pgbb
from pgbb.accountant.filters import Charge
from pgbb.custody.checkpoint import Checkpoint, CheckpointError
from pgbb.custody.entries import STOPPED, BudgetExceeded, Dataset, Entry, LedgerError, rounded_down
from pgbb.custody.ledger import Ledger
from pgbb.engine.protocol import EngineLost
from pgbb.errors import InvalidValue, NotCertifiable, PgbbError, PgbbNote, PgbbWarning
from pgbb.methods.registry import METHODS, Constants, Method
from pgbb.methods.request import Planned, Request, prepared
from pgbb.release.certificate import describe
from pgbb.release.file import Release
from pgbb.release.payloads import summary_of

SMALLEST_USE = 1e-3
"""An ε below this is not worth proposing."""


class Spending:
    """An entry of a ledger and the fit that it pays for; the custodian that the method sees.

    Attributes:
      request: what to run: the request as the ledger knows the data set, with this as its custodian.
      checkpoint: where the fit puts what it has so far, if anywhere.
      release: what was made of the answers, once it is made.
    """

    def __init__(
        self, request: Request, ledger: Ledger, known: Dataset, entry: Entry, planned: Planned,
        checkpoint: Checkpoint | None, resumed: str | None,
    ) -> None:  # fmt: skip
        self.request = replace(request, custodian=self)
        self.checkpoint = checkpoint
        self.release: Release | None = None
        self._ledger, self._known, self._entry, self._planned = ledger, known, entry, planned
        self._resumed = resumed  # digest of the checkpoint from which the fit goes on
        self._answering = False

    def loaded(self, n: int) -> None:
        """Refuse another number of records than the ledger was told; n is public."""
        if n != self._known.n:
            raise InvalidValue(
                f"{n:,} records were loaded, but the ledger has n = {self._known.n:,} for this data set. Nothing was "
                "asked. Name the data set that these records are, or declare them under a name of their own."
            )

    def begin(self, planned: Planned) -> None:
        """Put on disk that answers follow; refuse those that were not reserved."""
        if planned != self._planned:
            raise PgbbError("the answers about to be asked are not those that were reserved. Nothing was asked.")
        self._ledger.begin(self._entry)
        self._answering = True

    def by(self, release: Release) -> None:
        """Tell the entry which release was made, before the release is shown to anybody or saved."""
        if self.checkpoint is not None and not self.checkpoint.finished:
            # otherwise a later resume could lead to another release
            raise PgbbError("the state after the last step was not recorded, so that nothing may be released.")
        self.release = release

    @contextmanager
    def settled(self) -> Iterator[Self]:
        """The block that runs the fit: a release settles the entry, an error closes it."""
        try:
            if self.checkpoint is not None:
                self.checkpoint.hold(self._entry, self._resumed)
            if self._resumed is not None:
                at = f"continuing at step {self._entry.steps:,} of {self._entry.total:,}; nothing more is spent."
                warnings.warn(at, PgbbNote, stacklevel=2)
            yield self
            if self.release is None:
                raise PgbbError("the fit ended without a release.")
        except BaseException as error:
            self._close(error)
            raise
        self._settle(self.release)

    def _close(self, error: BaseException) -> None:
        """End the entry without a release; a fit with a checkpoint can go on if no answer can have ended it."""
        outside = isinstance(error, KeyboardInterrupt | CheckpointError | LedgerError | EngineLost)
        stopped = self.checkpoint is not None and (outside or (self._resumed is not None and not self._answering))
        try:
            self._ledger.close(self._entry, STOPPED if stopped else f"ended by {type(error).__name__}")
        except PgbbError as failed:  # the entry stays open, and counts until its process is gone
            error.add_note(str(failed))

    def _settle(self, release: Release) -> None:
        try:
            self._ledger.settle(self._entry, release.certificate_hash)
        except PgbbError as failed:
            text = f"the release exists, but could not be settled: {failed} It counts as spent all the same."
            warnings.warn(text, PgbbWarning, stacklevel=2)
        else:
            if self.checkpoint is not None:
                self.checkpoint.remove()


def spending(
    request: Request,
    method: Method,
    settings: Constants,
    *,
    ledger: str | Path | Ledger | None,
    dataset: str | None,
    checkpoint: str | Path | None = None,
) -> AbstractContextManager[Spending]:
    """Reserve what a release costs, or resume it at its checkpoint; the block of this context settles it."""
    if ledger is None or dataset is None:
        raise InvalidValue("ledger and dataset go together: the file, and the name of these records in it.")
    if request.insecure_seed is not None or request.non_private:
        raise InvalidValue(
            "insecure_seed and non_private are not allowed with a ledger: such a run has no privacy, so no budget can "
            "pay for it. Leave them out; or, for a test on public data, leave the ledger out."
        )
    book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    known = book.dataset(dataset)
    declared = known.budget.group_size
    if request.group_size not in (1, declared):
        raise InvalidValue(
            f"group_size = {request.group_size} is not allowed: the ledger has group_size = {declared} for data set "
            f"{dataset!r}. Leave it out."
        )
    request = replace(request, group_size=declared)
    planned = _plan(request, method, settings, known.n)
    point, found = None, None
    if checkpoint is not None:
        if not method.checkpoints:
            those = [name for name, m in METHODS.items() if m.checkpoints]
            raise InvalidValue(
                f"method = {method.name!r} writes no checkpoints: only {' and '.join(those)} do. Leave it out."
            )
        point = Checkpoint(checkpoint, book, _identity(request, method.name, settings, planned, known.n))
        found = point.find(dataset)
    entry = _reserved(request, method, settings, planned, book, known) if found is None else book.resume(*found)
    return Spending(request, book, known, entry, planned, point, None if found is None else found[1]).settled()


def _identity(request: Request, method: str, settings: Constants, planned: Planned, n: int) -> str:
    """A digest of all that decides what a fit asks and makes of the answers, but for the code of a custom loss.

    All of it is public: a fit that goes on after a checkpoint must agree on it.
    """
    whole = {
        "version": pgbb.__version__,
        "method": method,
        "model": summary_of(prepared(request.model, request.schema)).to_dict(),
        "schema": request.schema.to_dict(),
        "settings": {f.name: getattr(settings, f.name) for f in fields(settings)},
        "budget": [request.epsilon, request.delta, request.accountant, request.group_size, request.persons],
        "weights": request.weights,
        "mechanism": describe(planned.mechanism),
        "sigma": planned.sigma,
        "n": n,
    }
    text = json.dumps(whole, sort_keys=True, default=lambda value: type(value).__name__)  # pseudo-samples: by type only
    return hashlib.sha256(text.encode()).hexdigest()


def _reserved(
    request: Request, method: Method, settings: Constants, planned: Planned, ledger: Ledger, known: Dataset
) -> Entry:
    """The reservation; where it does not fit, the refusal says what would."""
    epsilon, delta = request.epsilon, request.delta
    try:
        return ledger.reserve(
            known.name, planned.mechanism, planned.sigma, method=method.name, epsilon=epsilon, delta=delta
        )
    except BudgetExceeded as error:

        def charge(epsilon: float) -> Charge:
            smaller = _plan(replace(request, epsilon=epsilon), method, settings, known.n)
            return known.budget.charge(smaller.mechanism, smaller.sigma)

        fits = _fitting_epsilon(charge, epsilon, error.left)
        advice = "No ε that is of use would fit."
        if fits is not None:
            advice = f"With this method and δ = {delta:g}, ε = {fits:g} would fit."
        raise BudgetExceeded(f"{error} {advice}", error.left, error.epsilon, error.delta) from None


def _plan(request: Request, method: Method, settings: Constants, n: int) -> Planned:
    """What the method will ask of the declared number of records; its advice comes when it runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PgbbWarning)
        return method.load().plan(request, settings, n)


def _fitting_epsilon(charge: Callable[[float], Charge], start: float, left: Charge) -> float | None:
    """The largest ε below `start`, to two or three digits, whose charge fits into `left`; None if none is of use.

    The charge grows like ε² or a little slower: a few secant steps on a double logarithmic scale, then steps of one
    per cent to the safe side.
    """

    def excess(e: float) -> float:
        """How far above the room, as a logarithm."""
        try:
            cost = charge(e)
        except (NotCertifiable, InvalidValue):
            return math.inf
        ratios = [cost.square / left.square] + ([cost.failure / left.failure] if cost.failure else [])
        return math.log(max(ratios)) if max(ratios) > 0 else -math.inf

    if left.square <= 0 or left.failure <= 0:
        return None
    guess, value = start, excess(start)
    for _ in range(5):
        if not math.isfinite(value) or abs(value) < 0.004:
            break
        guess = min(guess * math.exp(-value / 2), start)
        if guess < SMALLEST_USE:
            return None
        value = excess(guess)
    for i in range(10):
        rounded = rounded_down(guess * 0.99**i)
        if rounded < start and excess(rounded) <= 0:
            return rounded
    return None
