"""A model bound to a public schema: gradient of one record, bound C, box and units of the parameter.

This is what training, accountant and release read. It holds nothing that depends on records, and needs no JAX:
gradients are written for any numpy-like module.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from pgbb._numerics import Floats
from pgbb.errors import InvalidValue

if TYPE_CHECKING:
    import jax

    from pgbb.model.formula import Design  # its parser is needed to prepare a model, not to train one

__all__ = ["Floats", "Index", "Namespace", "Problem", "Values"]

Values: TypeAlias = "jax.Array"  # numbers over records, of JAX or another numpy-like module


class Namespace(Protocol):
    """What a score needs of a numpy-like module: numpy, jax.numpy, or that of a GPU kernel."""

    def clip(self, x: Values, low: float, high: float, /) -> Values:
        """Each number, moved into [low, high]."""

    def tanh(self, x: Values, /) -> Values:
        """The hyperbolic tangent."""

    def exp(self, x: Values, /) -> Values:
        """e to the power x."""


@dataclass(frozen=True)
class Index:
    """The law of the index (τ for quantiles): a list of levels with weights, or an interval.

    On an interval of quantile levels the density is ∝ 1/(τ(1−τ)), on any other index it is uniform.
    """

    name: str
    levels: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    low: float = 0.0
    high: float = 0.0
    logit: bool = False

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """`count` independent values."""
        if self.levels:
            return rng.choice(np.array(self.levels), size=count, p=np.array(self.weights))
        if not self.logit:
            return rng.uniform(self.low, self.high, count)
        a, b = math.log(self.low / (1 - self.low)), math.log(self.high / (1 - self.high))
        return 1 / (1 + np.exp(-rng.uniform(a, b, count)))

    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation, to centre the generator's input."""
        if self.levels:
            mean = float(np.dot(self.levels, self.weights))
            return mean, max(math.sqrt(float(np.dot(np.square(np.subtract(self.levels, mean)), self.weights))), 1e-3)
        return (self.low + self.high) / 2, max((self.high - self.low) / math.sqrt(12), 1e-3)

    def to_dict(self) -> dict[str, object]:
        """As stored in a release."""
        if self.levels:
            return {"kind": "levels", "values": list(self.levels)}
        return {"kind": "interval", "low": self.low, "high": self.high}


@dataclass(frozen=True, eq=False)
class Problem:
    """A model bound to a public schema, in internal coordinates.

    The gradient of record i is the vector (score_i·x_i, extra_i), where `score` maps (xp, θ, xᵀθ, y, index) to the pair
    (score, extra) of arrays over records, xp being a numpy-like module, and extra is None or one more component; or,
    for a custom loss, `gradient` maps (θ, row, index) to the gradient of one record; or, for several targets
    that are answered at once, `joint` maps (θ, x, y) to a vector of one record with as many numbers as θ.
    θ_original = transform @ θ + offset.
    """

    kind: str
    formula: str | None
    names: tuple[str, ...]
    clip: float
    center: Floats
    radius: Floats
    transform: Floats
    offset: Floats
    index: Index | None = None
    response: str | None = None
    shift: float = 0.0  # internal response = response − shift
    score: "Callable[..., tuple[Values, Values | None]] | None" = None
    gradient: "Callable[..., jax.Array] | None" = None
    joint: "Callable[..., jax.Array] | None" = None
    design: "Design | None" = None
    columns: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    origin: tuple[tuple[str, tuple[Any, ...]], ...] = ()  # functions by name that made it of the model's own problem

    def __post_init__(self) -> None:
        for names in (self.names, () if self.design is None else self.design.names):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise InvalidValue(
                    f"two coefficients would be called {twice[0]!r}: rename the column or level that has the name of "
                    "another term, in the data and in the schema."
                )

    @classmethod
    def regression(
        cls,
        kind: str,
        design: "Design",
        score: "Callable[..., tuple[Values, Values | None]]",
        *,
        clip: float,
        center: Floats,
        radius: Floats,
        shift: float = 0.0,
        index: Index | None = None,
        settings: dict[str, Any] | None = None,
    ) -> "Problem":
        """The problem of the coefficients of a design, of which an intercept takes back the shift of the response."""
        offset = np.zeros(len(design.names))
        if design.has_intercept:
            offset[0] = shift
        return cls(
            kind, design.formula, design.names, clip, center, radius, design.to_original, offset, index,
            response=design.answer.name, shift=shift, score=score, design=design, settings=settings or {},
        )  # fmt: skip

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.names)
