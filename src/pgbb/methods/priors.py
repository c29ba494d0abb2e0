"""The priors of the methods with a working likelihood, and the bound of the response: constants that they share."""

from dataclasses import dataclass, fields
from typing import Any

from pgbb import _validate

__all__ = ["Priors"]


@dataclass(frozen=True, kw_only=True)
class Priors:
    """Constants that `noisy_gibbs`, `augmented` and `abc` have in common.

    Args:
      response_bound: B_y, the response less its public centre is clipped to ±B_y; None is what the schema allows.
      coefficient_precision: β | σ² ~ N(0, σ²/`coefficient_precision`), for design terms mapped to [−1, 1].
      variance_shape, variance_rate: σ² ~ inverse gamma, in squared units of the response.
      mean_variance: μ ~ N(0, `mean_variance`) of a Gaussian mean.
      rate_shape, rate_rate: λ ~ Gamma of an exponential mean 1/λ.
    """

    response_bound: float | None = None
    coefficient_precision: float = 0.5
    variance_shape: float = 2.0
    variance_rate: float = 1.0
    mean_variance: float = 100.0
    rate_shape: float = 1.0
    rate_rate: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(Priors):
            value = getattr(self, field.name)
            if field.name != "response_bound" or value is not None:
                _validate.number(field.name, value, above=0)

    @property
    def shared(self) -> dict[str, Any]:
        """These constants by name, for another method's settings."""
        return {field.name: getattr(self, field.name) for field in fields(Priors)}
