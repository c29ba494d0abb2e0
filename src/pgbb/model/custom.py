"""A model whose loss the user writes: the only one whose gradient JAX derives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.problem import Floats, Index, Problem, Values
from pgbb.model.schema import Schema

if TYPE_CHECKING:
    import jax

__all__ = ["Custom", "parameter_box"]


def parameter_box(box: tuple[ArrayLike, ArrayLike], dim: int) -> tuple[Floats, Floats]:
    """The two corners of a box that is given as a pair of bounds, each a number or `dim` numbers."""
    try:
        low = np.broadcast_to(np.asarray(box[0], float), (dim,)).copy()
        high = np.broadcast_to(np.asarray(box[1], float), (dim,)).copy()
    except (TypeError, ValueError, IndexError):
        raise _validate.fail("box", box, f"a pair of bounds, each a number or {dim} numbers") from None
    if not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
        raise _validate.fail("box", box, "a pair of finite bounds with low < high")
    return low, high


@dataclass(frozen=True)
class Custom:
    """Your own loss f(θ, record, index), differentiated by JAX and clipped at C.

    `record` is a dictionary of scalars, one per declared column named in
    `columns`. The gradient is clipped, so its size needs no bound; where the
    clip binds, the estimate is that of the clipped score. The loss must be an
    ordinary function of one record: code that looks at other records through
    JAX's own machinery (custom batching rules, callbacks) breaks the promise.

    Args:
      loss: a function of (theta, record, index) written with jax.numpy; index is 0.0 if there is none.
      dim: length of θ.
      clip: C.
      columns: names of the declared columns it reads.
      box: (low, high), each a number or a list of `dim` numbers.
      names: names of the parameters; default theta0, theta1, …
      index: (low, high), or a list of values, of a tuning index; None for none. Only method="pgbb" serves an index:
        the default method and the others refuse it.
    """

    loss: "Callable[..., jax.Array | float]"
    dim: int
    clip: float
    columns: Sequence[str]
    box: tuple[ArrayLike, ArrayLike]
    names: Sequence[str] | None = None
    index: Sequence[float] | tuple[float, float] | None = None
    index_is_interval: bool = False

    def __post_init__(self) -> None:
        _validate.integer("dim", self.dim, low=1)
        _validate.number("clip", self.clip, above=0)
        if not callable(self.loss):
            raise _validate.fail("loss", self.loss, "a function of (theta, record, index)")
        if self.names is not None and (len(self.names) != self.dim or len(set(self.names)) < self.dim):
            raise _validate.fail("names", self.names, f"a list of dim = {self.dim} different names")
        if not self.columns:
            raise _validate.fail("columns", self.columns, "a non-empty list of declared columns")
        if self.index is not None and (not self.index or len(set(self.index)) < len(self.index)):
            raise _validate.fail("index", self.index, "a non-empty list of different numbers")

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: gradient of a record, bound C, box and units; an error if it does not fit."""
        for name in self.columns:
            if name not in schema:
                raise InvalidValue(f"column {name!r} is not declared in the schema; declared: {', '.join(schema)}.")
        low, high = parameter_box(self.box, self.dim)
        index = None
        if self.index is not None:
            values = [_validate.number("index", v) for v in self.index]
            if self.index_is_interval:
                index = Index("index", low=min(values), high=max(values))
            else:
                index = Index("index", levels=tuple(sorted(values)), weights=(1 / len(values),) * len(values))
        loss, columns = self.loss, tuple(self.columns)

        def gradient(theta: Values, row: Values, value: Values) -> Values:
            import jax

            return jax.grad(loss)(theta, {name: row[i] for i, name in enumerate(columns)}, value)

        return Problem(
            kind="custom",
            formula=None,
            names=tuple(self.names) if self.names is not None else tuple(f"theta{i}" for i in range(self.dim)),
            clip=self.clip,
            center=(low + high) / 2,
            radius=(high - low) / 2,
            transform=np.eye(self.dim),
            offset=np.zeros(self.dim),
            index=index,
            response=None,
            shift=0.0,
            gradient=gradient,
            columns=columns,
        )
