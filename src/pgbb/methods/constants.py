"""Constants of methods: their types say what is allowed, and those of a working likelihood are shared."""

from dataclasses import dataclass, fields
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from pgbb import _validate


class Limits:
    """What a number may be, in the words of `_validate.integer` and `_validate.number`."""

    def __init__(self, **limits: float | str) -> None:
        self.given: Any = limits


Count: TypeAlias = Annotated[int, Limits(low=1)]
Positive: TypeAlias = Annotated[float, Limits(above=0)]
Share: TypeAlias = Annotated[float, Limits(low=0, below=1)]


class Checked:
    """A dataclass whose fields are checked when it is made, by their types: a number with `Limits`, or a choice."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self), include_extras=True).items():
            value, parts = getattr(self, name), get_args(kind)
            if NoneType in parts:
                if value is None:
                    continue
                kind, parts = parts[0], get_args(parts[0])
            if get_origin(kind) is Literal:
                _validate.one_of(name, value, parts)
            elif get_origin(kind) is Annotated:
                check = _validate.integer if parts[0] is int else _validate.number
                check(name, value, **parts[1].given)


@dataclass(frozen=True, kw_only=True)
class Priors(Checked):
    """Constants that `noisy_gibbs`, `augmented` and `abc` have in common.

    Args:
      response_bound: B_y, the response less its public centre is clipped to ±B_y; None is what the schema allows.
      coefficient_precision: β | σ² ~ N(0, σ²/`coefficient_precision`), for design terms mapped to [−1, 1].
      variance_shape, variance_rate: σ² ~ inverse gamma, in squared units of the response.
      mean_variance: μ ~ N(0, `mean_variance`) of a Gaussian mean.
      rate_shape, rate_rate: λ ~ Gamma of an exponential mean 1/λ.
    """

    response_bound: Positive | None = None
    coefficient_precision: Positive = 0.5
    variance_shape: Positive = 2.0
    variance_rate: Positive = 1.0
    mean_variance: Positive = 100.0
    rate_shape: Positive = 1.0
    rate_rate: Positive = 1.0

    @property
    def shared(self) -> dict[str, Any]:
        """These constants by name, for another method's settings."""
        return {field.name: getattr(self, field.name) for field in fields(Priors)}
