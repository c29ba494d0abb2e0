"""What a worker of a cluster does: encode its partitions once, keep them, and answer questions about them.

Engine-free: an engine calls these functions and sends what they return. No message may contain a cell, and the driver
alone adds noise: what is answered here is private.
"""

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from pgbb.engine.protocol import Failed, Question, Receipt
from pgbb.errors import InvalidValue
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema
from pgbb.private.coding import Coding
from pgbb.private.loading import form_for, stored_for
from pgbb.private.partition import Partition
from pgbb.private.records import NoRecords
from pgbb.private.sums import Slabs, asked, compile_ahead, slabs_of

__all__ = ["Kept", "answer", "encode", "pack", "prepare", "receipt", "told", "unpack"]


@dataclass(frozen=True, eq=False, repr=False)
class Kept:
    """A partition on its worker: its stored rows as words of 32 bits, and a digest of them."""

    rows: NDArray[np.uint32]
    digest: int

    def __sizeof__(self) -> int:
        """Bytes that it takes to send this elsewhere: a scheduler goes by them."""
        return int(self.rows.nbytes)


def told(model: Any, schema: Schema, weights: str | None) -> bytes:
    """What workers must know before they read a record; names of functions travel, and no code."""
    loss = getattr(model, "loss", None)
    if loss is not None and not _importable(loss):
        raise InvalidValue(
            f"loss = {getattr(loss, '__qualname__', loss)!r} cannot be sent to a cluster: workers import it by its "
            "name. Put the function into a module that is installed on the workers."
        )
    return pickle.dumps((model, schema, weights))


def _importable(function: Any) -> bool:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    return module not in (None, "__main__") and getattr(import_module(module), name, None) is function


@lru_cache(maxsize=8)
def _known(told: bytes) -> tuple[Problem, Schema, str | None]:
    """The problem, the schema and the column of weights; the same problem for the same fit, so that programs stay."""
    model, schema, weights = pickle.loads(told)
    return model.prepare(schema), schema, weights


def encode(told: bytes, partition: Any) -> Kept:
    """The records of a partition, a `Partition` or a frame, encoded; there may be none."""
    problem, schema, weights = _known(told)
    source = partition.opened() if isinstance(partition, Partition) else partition
    try:
        rows = np.asarray(stored_for(source, problem, schema, weights).rows).view(np.uint32)
    except NoRecords:
        rows = np.empty((0, _form(told)[0]), np.uint32)
    return Kept(rows, int.from_bytes(hashlib.blake2b(rows.data, digest_size=8).digest()))


def receipt(kept: Kept | Failed) -> Receipt | Failed:
    """What the partition is, by numbers: compared with whatever is counted later."""
    return kept if isinstance(kept, Failed) else Receipt(1, len(kept.rows), kept.digest)


def pack(kept: Kept) -> tuple[bytes, int, bytes]:
    """A partition as bytes, for an engine that keeps nothing else."""
    return kept.rows.tobytes(), len(kept.rows), kept.digest.to_bytes(8)


def unpack(rows: bytes, records: int, digest: bytes) -> Kept:
    """The partition from its bytes."""
    return Kept(np.frombuffer(rows, np.uint32).reshape(records, -1), int.from_bytes(digest))


def _slabs(told: bytes, rows: NDArray[np.uint32]) -> Slabs:
    """The rows on the devices of this worker."""
    coding = _form(told)[1]
    return slabs_of(rows.view(np.float32) if coding is None else rows, jax.local_devices(), coding)


@lru_cache(maxsize=8)
def _form(told: bytes) -> tuple[int, Coding | None]:
    return form_for(*_known(told))


def _function(question: Question, problem: Problem) -> Question:
    """The question with its statistic, found by name among those of pgbb."""
    module, _, name = str(question.statistic).partition(":")
    if not module.startswith("pgbb."):
        raise InvalidValue(f"{module!r} holds no statistic of pgbb.")
    found = getattr(import_module(module), name.removesuffix("()"))
    return replace(question, statistic=found(problem) if name.endswith("()") else found)


def prepare(told: bytes, questions: Sequence[Question], kept: Kept | Failed) -> None:
    """Begin to compile what will be asked about partitions such as this one."""
    if not isinstance(kept, Failed):
        problem = _known(told)[0]
        compile_ahead([_function(q, problem) for q in questions], _slabs(told, kept.rows[:1]))


def answer(
    told: bytes, question: Question, parts: Sequence[Kept | Failed]
) -> tuple[NDArray[np.int64], Receipt] | Failed:
    """The sum over some partitions, without noise, and what was counted."""
    failed = [part for part in parts if isinstance(part, Failed)]
    if failed:
        return failed[0]
    kept = [part for part in parts if isinstance(part, Kept)]
    meant = _function(question, _known(told)[0])
    sums = [asked(meant, _slabs(told, part.rows)) for part in kept]
    counted = Receipt.total(Receipt(1, len(part.rows), part.digest) for part in kept)
    return np.sum(sums, axis=0, dtype=np.int64), counted
