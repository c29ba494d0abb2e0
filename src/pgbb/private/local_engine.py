"""The engine that is this process: it holds the records on its devices, and sums what each adds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import jax
import numpy as np

from pgbb._numerics import Ints
from pgbb.engine.protocol import Batch, Question
from pgbb.errors import PgbbError
from pgbb.private.device_layout import Held, taken
from pgbb.private.partial_sums import BITS, Statistic, one_by_one
from pgbb.private.persons import outer_sums
from pgbb.private.row_layout import EXTRA
from pgbb.private.slabs import slabs_of
from pgbb.private.sums import asked, compile_ahead


class Here:
    """The engine that is this process with all its devices; it holds the records out of sight.

    With `consume` it takes their memory over. Where records tell their persons, outer products are of what persons
    with up to `group_size` records add.
    """

    def __init__(self, records: Held, shift: float, group_size: int = 1, *, consume: bool = False) -> None:
        self.n, self._bytes = records.n, records.rows.nbytes
        self._persons, self._group_size = records.persons, group_size
        with self._room():
            rows = taken(records, shift, consume=consume)
            form = None if records.coding is None else records.coding.form
            self._rows = slabs_of(rows, jax.local_devices(), form)
            self._alone = None if self._persons is None else slabs_of(rows, jax.local_devices()[:1])

    def _by_person(self, question: Question) -> bool:
        return self._persons is not None and hasattr(question.statistic, "root")

    def prepare(self, questions: Sequence[Question]) -> None:
        """Compile what will be asked."""
        compile_ahead([q for q in questions if not self._by_person(q)], self._rows, self)

    def sum(self, question: Question | Batch) -> Ints:
        """`sum_of` all records."""
        question = cast(Question, question)
        with self._room():
            return self._of_persons(question) if self._by_person(question) else asked(question, self._rows)

    def _of_persons(self, question: Question) -> Ints:
        """The sum over persons of outer products of what their records add."""
        assert self._persons is not None and self._alone is not None
        root, given = cast(Statistic, question.statistic.root), question.parameters  # type: ignore[union-attr]
        width = self._alone.parts[0][0].shape[-1] - EXTRA
        form = jax.eval_shape(root, *(np.empty(s, np.float32) for s in ((width,), (), *(p.shape for p in given)))).shape
        parts = [
            np.asarray(one_by_one(root, question.power, part[0], given))[: int(counts[0])]
            for part, counts in self._alone.parts
        ]
        added = np.concatenate(parts).reshape(self.n, -1, form[-1] if form else 1)
        return outer_sums(added, self._persons, self._group_size, BITS)

    @contextmanager
    def _room(self) -> Iterator[None]:
        """A device without room, in our words."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            device = jax.local_devices()[0].device_kind
            raise PgbbError(
                f"the memory of the device ({device}) does not suffice for {self.n:,} records of {self._bytes:,} bytes "
                "and a piece of an answer. Take a device with more memory, several of them, or the processor "
                "(JAX_PLATFORMS=cpu)."
            ) from None
