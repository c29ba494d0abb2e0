"""Models whose code the user writes: a loss, of which JAX derives the gradient, or a simulator of one record."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.problem import Index, Problem, Values
from pgbb.model.schema import Schema

if TYPE_CHECKING:
    import jax


def _check(model: "Custom | Simulated", **functions: str) -> None:
    """Check what both models are given: functions, the dimension of θ, its names, C and columns."""
    _validate.integer("dim", model.dim, low=1)
    _validate.clip(model.clip)
    for name, allowed in functions.items():
        if not callable(getattr(model, name)):
            raise _validate.fail(name, getattr(model, name), allowed)
    if model.names is not None and (len(model.names) != model.dim or len(set(model.names)) < model.dim):
        raise _validate.fail("names", model.names, f"a list of dim = {model.dim} different names")
    if not model.columns or (isinstance(model, Simulated) and isinstance(model.columns, str)):
        raise _validate.fail("columns", model.columns, "a non-empty list of declared columns")


def _problem(
    kind: str,
    model: "Custom | Simulated",
    index: Index | None = None,
    gradient: "Callable[..., jax.Array] | None" = None,
) -> Problem:
    """The parameters in their box, which is given as a pair of bounds, each a number or `dim` numbers."""
    dim, box = model.dim, model.box
    try:
        low, high = (np.broadcast_to(np.asarray(box[end], float), (dim,)).copy() for end in (0, 1))
    except (TypeError, ValueError, IndexError):
        raise _validate.fail("box", box, f"a pair of bounds, each a number or {dim} numbers") from None
    if not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
        raise _validate.fail("box", box, "a pair of finite bounds with low < high")
    return Problem(
        kind=kind,
        formula=None,
        names=tuple(f"theta{i}" for i in range(dim)) if model.names is None else tuple(model.names),
        clip=model.clip,
        center=(low + high) / 2,
        radius=(high - low) / 2,
        transform=np.eye(dim),
        offset=np.zeros(dim),
        index=index,
        gradient=gradient,
        columns=tuple(model.columns),
    )


@dataclass(frozen=True)
class Custom:
    """Your own loss f(θ, record, index), differentiated by JAX and clipped at C.

    `record` is a dictionary of scalars, one per declared column named in `columns`. The gradient is clipped, so its
    size needs no bound; where the clip binds, the estimate is that of the clipped score. The loss must be an ordinary
    function of one record: code that looks at other records through JAX's own machinery (custom batching rules,
    callbacks) breaks the promise.

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
        _check(self, loss="a function of (theta, record, index)")
        if self.index is not None and (not self.index or len(set(self.index)) < len(self.index)):
            raise _validate.fail("index", self.index, "a non-empty list of different numbers")

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: gradient of a record, bound C, box and units; an error if it does not fit."""
        for name in self.columns:
            if name not in schema:
                raise InvalidValue(f"column {name!r} is not declared in the schema; declared: {', '.join(schema)}.")
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

        return _problem("custom", self, index, gradient)


@dataclass(frozen=True)
class Simulated:
    """Your own simulator of one record, and the statistic whose mean over the records is released with noise.

    Both are written with JAX. The private statistic of a record is clipped to norm C; simulated records are clamped to
    their declared ranges and clipped in the same way, so that nothing about the law of the release is approximated.

    Args:
      simulator: a function of (key, theta) → dictionary of scalars, one record; records are independent.
      statistic: a function of such a dictionary → numbers; it sees one record.
      clip: C, the largest norm of the statistic of one record.
      columns: names of the declared columns of a record.
      dim: length of θ.
      box: (low, high), each a number or a list of `dim` numbers: where θ may lie.
      names: names of the parameters; default theta0, theta1, …
    """

    simulator: "Callable[[jax.Array, jax.Array], Mapping[str, jax.Array]]"
    statistic: "Callable[[Mapping[str, jax.Array]], jax.Array]"
    clip: float
    columns: Sequence[str]
    dim: int
    box: tuple[ArrayLike, ArrayLike]
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        _check(self, simulator="a function written with JAX", statistic="a function written with JAX")

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: names and box of θ; an error if a column is not declared."""
        for name in self.columns:
            if name not in schema or not hasattr(schema[name], "bounds"):
                raise InvalidValue(
                    f"column {name!r} is not declared as a Range or a Flag: write pgbb.Schema({name}=pgbb.Range(…))."
                )
        return _problem("simulated", self)
