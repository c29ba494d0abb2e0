"""Questions to an engine, its answers, and the receipts by which the driver checks that every record counts once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Ints
from pgbb.errors import InvalidValue, PgbbError

Statistic = Callable[..., Any]
Origin = tuple[tuple[str, tuple[Any, ...]], ...]


class EngineLost(PgbbError):
    """Workers, or the connection to them, are gone; no answer can have caused this."""


@dataclass(frozen=True, eq=False)
class Question:
    """The sum over all records of a statistic, clipped to norm 1, times the survey weight to a power.

    Attributes:
      statistic: a pure function of one record. In this process the function; to another one its name travels.
      parameters: of the statistic, in single precision.
      power: of the survey weights.
      origin: how the problem that a statistic was made for follows from the model; see `Batch`.
    """

    statistic: Statistic | str
    parameters: tuple[NDArray[np.float32], ...]
    power: int = 1
    origin: Origin = ()

    def named(self) -> "Question":
        """The question in a form that can be sent: names, numbers and a power."""
        given = self.statistic
        if isinstance(given, str):
            return self
        return Question(name_of(given), self.parameters, self.power, getattr(given, "origin", ()))


@dataclass(frozen=True, eq=False)
class Batch:
    """K sums of weighted gradients, clipped to norm 1, over Poisson batches: a step of a training.

    Attributes:
      origin: how the problem follows from the model: names of functions that make one problem of another, each with
        its arguments.
      n, rate, blocks: of the mechanism.
      count: batches that the key decides.
      key: of the batches; each belongs to some steps, and to nothing else.
      places: of these K batches under the key.
      orders: seeds of the partition of each batch into blocks.
      inverse: 1/W of each block, (K, S).
      points: θ, (K, d).
      index: (K,).
    """

    origin: Origin
    n: int
    rate: float
    blocks: int
    count: int
    key: bytes
    places: tuple[int, ...]
    orders: tuple[int, ...]
    inverse: NDArray[np.float32]
    points: NDArray[np.float32]
    index: NDArray[np.float32]

    def named(self) -> "Batch":
        """The question in a form that can be sent, which is itself."""
        return self


def name_of(statistic: Statistic) -> str:
    """`module:function`, with "()" where the function makes it for a problem, and "²" for its outer products."""
    root = getattr(statistic, "root", None)
    if root is not None:
        return f"{name_of(root)}²"
    made = getattr(statistic, "made_by", None)
    name = made or f"{statistic.__module__}:{statistic.__qualname__}"
    if "<" in name or not name.startswith("pgbb."):
        raise InvalidValue(f"the statistic {name!r} cannot be asked on a cluster: only those of pgbb have names there.")
    return f"{name}()" if made else name


def made_for(make: Callable[[Any], Statistic]) -> Callable[[Any], Statistic]:
    """Marks a function that makes a statistic for a problem: the same one each time, and it has a name on a cluster."""

    @lru_cache(maxsize=32)
    @wraps(make)
    def made(problem: Any) -> Statistic:
        statistic: Any = make(problem)
        statistic.made_by, statistic.origin = f"{make.__module__}:{make.__qualname__}", problem.origin
        return statistic

    return made


class Receipt(NamedTuple):
    """What a sum was taken over: partitions, records, and the sum of the partitions' digests modulo 2⁶⁴."""

    partitions: int
    records: int
    digest: int

    @classmethod
    def total(cls, parts: "Iterable[Receipt]") -> "Receipt":
        """The receipt of several sums together."""
        partitions, records, digest = (sum(column) for column in zip(*parts, strict=True))
        return cls(partitions, records, digest % 2**64)


class Failed(NamedTuple):
    """Why a worker has no result, in words that quote no record."""

    text: str


def settled(first: Receipt, answers: Sequence[tuple[Ints, Receipt]]) -> Ints:
    """The sum of partial sums, if together they count what the first reading counted, once; an error otherwise."""
    found = Receipt.total(receipt for _, receipt in answers)
    if found != first:
        kind = (
            f"{found.partitions:,} partitions with {found.records:,} records were counted"
            if found[:2] != first[:2]
            else "a partition is not the one"
        )
        raise PgbbError(
            f"{kind} where the first reading had {first.partitions:,} partitions with {first.records:,} records: the "
            "data have changed, or the cluster has lost or repeated a part. No noise was added to this sum, and nobody "
            "saw it. Leave the data alone while a fit runs, and keep what makes them free of chance."
        )
    return np.sum([vector for vector, _ in answers], axis=0, dtype=np.int64)


class Engine(Protocol):
    """Answers questions about all records by whole numbers, without noise."""

    @property
    def n(self) -> int:
        """How many records there are; public."""

    def prepare(self, questions: Sequence[Question]) -> None:
        """Start to compile questions that will be asked, with parameters of these shapes."""

    def sum(self, question: Question | Batch) -> Ints:
        """The sum in units of 2⁻²⁰, or of a batch in those of its weights, exactly. PRIVATE: who asks adds noise."""


class Work(NamedTuple):
    """What workers do, engine-free: functions of a module that every worker can import, and what they are told first.

    Attributes:
      told: model, schema and weights, pickled by names alone.
      columns: that are read.
      encode: (told, partition, of a frame the types of its columns) → what is kept of it on the worker.
      receipt: (kept) → its `Receipt`, or why there is none.
      answer: (told, question, kept partitions, the number of the first record of each) → a partial sum and its receipt.
      prepare: (told, questions, kept) → nothing; begins to compile them.
      pack: (kept) → bytes, number of records and digest, for an engine that keeps bytes.
      unpack: (bytes, number of records, digest) → kept.
    """

    told: bytes
    columns: tuple[str, ...]
    encode: Callable[..., Any]
    receipt: Callable[..., "Receipt | Failed"]
    answer: Callable[..., "tuple[Ints, Receipt] | Failed"]
    prepare: Callable[..., None]
    pack: Callable[..., tuple[bytes, int, bytes]]
    unpack: Callable[..., Any]


class Workers(Protocol):
    """An open connection to workers."""

    @property
    def workers(self) -> int:
        """Number of workers at the beginning."""

    def holds(self, source: Any) -> bool:
        """Whether the source is a frame whose partitions this cluster has already."""

    def engine(self, source: Any, work: Work) -> Engine:
        """Let the workers encode partitions, a list of them or a distributed frame; raises what a worker refuses."""


class Asked(NamedTuple):
    """The cluster that is asked, and the model, which workers prepare themselves."""

    cluster: Workers
    model: Any
