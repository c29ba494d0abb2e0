"""Checkpoints: the state of a long fit on disk, from which another process can continue.

A checkpoint holds post-processing alone: the state of the training, the public generator, the seed of the order of the
records; never a record, and never the keys of batches or noise. What makes it safe to go on from is the ledger: only
the file whose digest was recorded last counts (docs/privacy.md, section 11). One safetensors file, whose header has a
JSON object; nothing in it is executed.
"""

import contextlib
import glob
import hashlib
import json
import os
import secrets
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from pgbb import _validate
from pgbb._io import put_in_place, write_new
from pgbb.custody.entries import Entry
from pgbb.custody.ledger import Ledger
from pgbb.errors import PgbbWarning
from pgbb.methods.run_state import ANEW, CheckpointError, Saved, Tree, plain, position_from_dict, position_to_dict
from pgbb.private.door import Position

__all__ = ["Checkpoint", "CheckpointError"]

SECONDS = 30.0
"""Time between two checkpoints, at least."""

FORMAT = "pgbb-checkpoint 1"
_FIELDS = {"format", "entry", "identity", "stage", "steps", "chunk", "order", "public"}


class Checkpoint:
    """The checkpoint file of one fit. Written beside its place, recorded in the ledger, then renamed, in this order.

    Args:
      path: the file; nothing else may be there.
      ledger: where checkpoints are recorded.
      identity: digest of all that makes a fit what it is, so that another one does not go on from its file.
    """

    def __init__(self, path: str | Path, ledger: Ledger, identity: str) -> None:
        given: object = path
        if not isinstance(given, str | Path) or str(given) == "":
            raise _validate.fail("checkpoint", type(given).__name__, "the path of a file")
        self.path = Path(given)
        self._beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.next")  # of this process alone
        self._ledger, self._identity = ledger, identity
        self._entry: Entry | None = None
        self._written = -SECONDS
        self.saved: Saved | None = None
        """What an earlier process wrote, once the ledger has given its entry to this one."""
        self.finished = False
        """Whether the state after the last step is recorded: before that nothing may be released."""

    def find(self, dataset: str) -> tuple[Entry, str] | None:
        """The entry to resume and the digest of its checkpoint; None if there is no file, an error if it cannot be."""
        if not self.path.parent.is_dir():
            raise CheckpointError(f"checkpoint = {str(self.path)!r}: its folder does not exist. Make it first.")
        digests = {path: _digest(path) for path in (self.path, *self._siblings()) if os.path.lexists(path)}
        known = {path: self._ledger.checkpointed(digest) for path, digest in digests.items()}
        for path, entry in known.items():
            if entry is not None and entry.checkpoint == digests[path]:
                if entry.dataset != dataset:
                    raise CheckpointError(f"{path} belongs to data set {entry.dataset!r}, not {dataset!r}. {ANEW}")
                if entry.state == "refunded":  # it ended before the first answer: there is nothing to go on from
                    path.unlink()
                    continue
                self._read(path, entry)  # refuses another fit's before anything is taken over
                return entry, digests[path]
        if not os.path.lexists(self.path):  # what lies beside was never recorded, and is of no use
            if not os.access(self.path.parent, os.W_OK):  # to be found out before anything is spent
                raise CheckpointError(f"checkpoint = {str(self.path)!r}: its folder cannot be written. Take another.")
            return None
        stale = known[self.path]
        if stale is not None:
            raise CheckpointError(
                f"{self.path} is an older checkpoint of release {stale.number}, which went on to step {stale.steps:,} "
                f"of {stale.total:,}. Going on from an older one would ask again what was answered. {ANEW}"
            )
        raise CheckpointError(
            f"{self.path} is no checkpoint that {self._ledger.path} has recorded: it is damaged, another kind of file, "
            f"or belongs to another ledger. {ANEW}"
        )

    def hold(self, entry: Entry, digest: str | None = None) -> None:
        """Write for this entry from now on; with a digest, after reading what was written for it before."""
        if digest is not None:
            for path in self._siblings():
                if _digest(path) == digest:  # recorded, but not yet in its place when the process ended
                    os.replace(path, self.path)
            self.saved = self._read(self.path, entry)
            self.finished = entry.steps == entry.total
            self._written = time.monotonic()
        for path in self._siblings():  # their answers are in no history: nobody may see them
            path.unlink(missing_ok=True)
        self._entry = entry

    def _siblings(self) -> list[Path]:
        """Files of any process that were written for this checkpoint and not yet put in its place."""
        return sorted(self.path.parent.glob(f".{glob.escape(self.path.name)}.*.next"))

    def due(self, last: bool = False) -> bool:
        """Whether it is time to write; always before the first step and after the last one."""
        return last or time.monotonic() - self._written >= SECONDS

    def save(
        self,
        position: Position,
        state: Tree,
        kept: Mapping[str, np.ndarray],
        *,
        total: int,
        stage: int = 0,
        before: int = 0,
    ) -> None:
        """Write, record, rename; the arguments are those of `pgbb.methods.request.Checkpoint.save`."""
        import jax

        assert self._entry is not None
        tensors = {f"state/{i}": plain(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        tensors |= {f"kept/{name}": np.ascontiguousarray(value) for name, value in kept.items()}
        header = {
            "format": FORMAT,
            "entry": self._entry.number,
            "identity": self._identity,
            "stage": stage,
            **position_to_dict(position),
        }
        data = safetensors.save(tensors, metadata={"pgbb": json.dumps(header, sort_keys=True)})
        done = before + position.steps
        try:
            if done == 0 and os.path.lexists(self.path):
                raise CheckpointError(
                    f"{self.path} has appeared meanwhile: another fit writes there. Name another file."
                )
            self._beside.unlink(missing_ok=True)
            write_new(self._beside, data, mode=0o600)
        except OSError as error:
            self._beside.unlink(missing_ok=True)
            if done in (0, total):
                raise CheckpointError(f"{self.path} cannot be written: {error.strerror}.") from None
            warnings.warn(
                f"no checkpoint at step {done:,}: {error.strerror}. The fit goes on.", PgbbWarning, stacklevel=2
            )
            self._written = time.monotonic()
            return
        try:
            self._ledger.checkpoint(self._entry, done, total, hashlib.sha256(data).hexdigest())
        except Exception:
            self._beside.unlink(missing_ok=True)
            raise
        self.finished = done == total
        with contextlib.suppress(OSError):  # found beside its place when it is needed
            put_in_place(self._beside, self.path)
        self._written = time.monotonic()

    def remove(self) -> None:
        """Delete the file, after the release is settled."""
        with contextlib.suppress(OSError):
            for path in (self.path, *self._siblings()):
                path.unlink(missing_ok=True)

    def _read(self, path: Path, entry: Entry) -> Saved:
        """The content of a checkpoint file; its digest is checked against the ledger's, and its form too."""
        try:
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != entry.checkpoint:
                raise ValueError
            tensors = safetensors.load(data)  # checks the header, sizes and types
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            held = json.loads(header["__metadata__"]["pgbb"])
            if set(held) != _FIELDS or held["format"] != FORMAT:
                raise ValueError
            identity, number = held["identity"], held["entry"]
            position = position_from_dict(held)
            stage = _validate.integer("stage", held["stage"], low=0)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError, OverflowError):
            raise CheckpointError(f"{path} is not a readable checkpoint: it is damaged. {ANEW}") from None
        if identity != self._identity or number != entry.number:
            raise CheckpointError(
                f"{path} belongs to release {entry.number}, a fit with other settings: another model, schema, method, "
                f"budget, or another version of pgbb. Repeat that command to finish it. {ANEW}"
            )
        return Saved(stage, position, tensors)


def _digest(path: Path) -> str:
    """SHA-256 of a plain file; empty for anything else."""
    try:
        if path.is_symlink() or not path.is_file():
            return ""
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
