"""What a worker of a cluster does: encode its partitions once, keep them, and answer questions about them.

Engine-free: an engine calls these functions and sends what they return. No message may contain a cell, and the driver
alone adds noise: what is answered here is private.
"""

import gc
import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.compiled import squared
from pgbb.engine.protocol import Batch, Failed, Origin, Question, Receipt
from pgbb.errors import InvalidValue
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema
from pgbb.private.coding import Coding
from pgbb.private.parquet_partitions import Partition
from pgbb.private.reading import form_for, stored_for
from pgbb.private.records import NoRecords
from pgbb.private.sources import part_of_frame
from pgbb.private.sums import Slabs, asked, compile_ahead, slabs_of
from pgbb.private.worker_batches import share_of


@dataclass(frozen=True, eq=False, repr=False)
class Kept:
    """A partition on its worker: its stored rows as words of 32 bits, and a digest of them."""

    rows: NDArray[np.uint32]
    digest: int

    def __sizeof__(self) -> int:
        """Bytes that it takes to send this elsewhere: a scheduler goes by them."""
        return int(self.rows.nbytes)


def told(model: Any, schema: Schema, weights: str | None, *, dense: bool = False) -> bytes:
    """What workers must know before they read a record; names of functions travel, and no code.

    Batches need `dense` rows; for sums alone they are coded where that is shorter.
    """
    loss = getattr(model, "loss", None)
    if loss is not None and not _importable(loss):
        raise InvalidValue(
            f"loss = {getattr(loss, '__qualname__', loss)!r} cannot be sent to a cluster: workers import it by its "
            "name. Put the function into a module that is installed on the workers."
        )
    return pickle.dumps((model, schema, weights, dense))


def _importable(function: Any) -> bool:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    return module not in (None, "__main__") and getattr(import_module(module), name, None) is function


@lru_cache(maxsize=8)
def _known(told: bytes) -> tuple[Problem, Schema, str | None]:
    """The problem, the schema and the column of weights; the same problem for the same fit, so that programs stay."""
    model, schema, weights, _ = pickle.loads(told)
    return model.prepare(schema), schema, weights


@lru_cache(maxsize=16)
def _problem(told: bytes, origin: Origin) -> Problem:
    """The model's own problem, or the one that functions by these names make of it."""
    problem, (model, schema, *_) = _known(told)[0], pickle.loads(told)
    for name, args in origin:
        problem = _by_name(name)(problem, *args, model=model, schema=schema)
    return problem


def _by_name(name: str) -> Any:
    """A function of pgbb."""
    module, _, function = name.partition(":")
    if not module.startswith("pgbb."):
        raise InvalidValue(f"{module!r} is no module of pgbb: it holds nothing that a worker may be asked for.")
    return getattr(import_module(module), function)


def encode(told: bytes, partition: Any, types: Mapping[str, object] | None = None) -> Kept:
    """The records of a partition, encoded; there may be none.

    It is a `Partition`, or a frame, and then `types` are those of the columns of all partitions.
    """
    problem, schema, weights = _known(told)
    gc.collect(0)  # JAX gives rows back that nobody keeps any more when Python collects
    source = partition.opened() if isinstance(partition, Partition) else partition
    source = source if types is None else part_of_frame(source, types)
    try:
        held = stored_for(source, problem, schema, weights, dense=_form(told)[1] is None)
        rows = np.asarray(held.rows).view(np.uint32)
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


_SLABS: WeakKeyDictionary[Kept, Slabs] = WeakKeyDictionary()


def _slabs(told: bytes, kept: Kept) -> Slabs:
    """A partition on the devices of this worker, where it stays as long as it is kept."""
    found = _SLABS.get(kept)
    if found is None:
        coding = _form(told)[1]
        rows = kept.rows.view(np.float32) if coding is None else kept.rows
        found = _SLABS[kept] = slabs_of(rows, jax.local_devices(), None if coding is None else coding.form)
    return found


@lru_cache(maxsize=8)
def _form(told: bytes) -> tuple[int, Coding | None]:
    """The words of a record, and its coding."""
    return form_for(*_known(told), dense=pickle.loads(told)[-1])


def _function(question: Question, told: bytes) -> Question:
    """The question with its statistic, found by name among those of pgbb."""
    name = str(question.statistic)
    plain = name.removesuffix("²")
    found = _by_name(plain.removesuffix("()"))
    found = found(_problem(told, question.origin)) if plain.endswith("()") else found
    return replace(question, statistic=squared(found) if name.endswith("²") else found)


def prepare(told: bytes, questions: Sequence[Question], kept: Kept | Failed) -> None:
    """Begin to compile what will be asked about partitions such as this one."""
    if not isinstance(kept, Failed):
        compile_ahead([_function(q, told) for q in questions], _slabs(told, kept))


def answer(
    told: bytes, question: Question | Batch, parts: Sequence[Kept | Failed], firsts: Sequence[int]
) -> tuple[NDArray[np.int64], Receipt] | Failed:
    """The sum over some partitions, without noise, and what was counted."""
    failed = [part for part in parts if isinstance(part, Failed)]
    if failed:
        return failed[0]
    kept = [part for part in parts if isinstance(part, Kept)]
    counted = Receipt.total(Receipt(1, len(part.rows), part.digest) for part in kept)
    if isinstance(question, Batch):
        return share_of(_problem(told, question.origin), question, kept, firsts), counted
    meant = _function(question, told)
    sums = [asked(meant, _slabs(told, part)) for part in kept]
    return np.sum(sums, axis=0, dtype=np.int64), counted
