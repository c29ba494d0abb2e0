"""A model that the user can only simulate: records given a parameter, and a statistic of one record."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.custom import Custom, parameter_box
from pgbb.model.problem import Problem
from pgbb.model.schema import Schema

if TYPE_CHECKING:
    import jax

__all__ = ["Custom", "Simulated"]


@dataclass(frozen=True)
class Simulated:
    """Your own simulator of one record, and the statistic whose mean over the records is released with noise.

    Both are written with JAX. The private statistic of a record is clipped to
    norm C; simulated records are clamped to their declared ranges and clipped in
    the same way, so that nothing about the law of the release is approximated.

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
        _validate.integer("dim", self.dim, low=1)
        _validate.number("clip", self.clip, above=0)
        for name in ("simulator", "statistic"):
            if not callable(getattr(self, name)):
                raise _validate.fail(name, getattr(self, name), "a function written with JAX")
        if self.names is not None and (len(self.names) != self.dim or len(set(self.names)) < self.dim):
            raise _validate.fail("names", self.names, f"a list of dim = {self.dim} different names")
        if not self.columns or isinstance(self.columns, str):
            raise _validate.fail("columns", self.columns, "a non-empty list of declared columns")

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: names and box of θ; an error if a column is not declared."""
        for name in self.columns:
            if name not in schema or not hasattr(schema[name], "bounds"):
                raise InvalidValue(
                    f"column {name!r} is not declared as a Range or a Flag: write pgbb.Schema({name}=pgbb.Range(…))."
                )
        low, high = parameter_box(self.box, self.dim)
        return Problem(
            kind="simulated",
            formula=None,
            names=tuple(self.names) if self.names is not None else tuple(f"theta{i}" for i in range(self.dim)),
            clip=self.clip,
            center=(low + high) / 2,
            radius=(high - low) / 2,
            transform=np.eye(self.dim),
            offset=np.zeros(self.dim),
            index=None,
            response=None,
            shift=0.0,
            columns=tuple(self.columns),
        )
