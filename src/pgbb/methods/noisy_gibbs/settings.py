"""Constants of NoisyGibbs with their defaults, and the noise that its sums get under a budget."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pgbb import _validate
from pgbb.accountant import compose, noise_scale
from pgbb.accountant import epsilon as certified_epsilon
from pgbb.accountant.gaussian import gaussian_noise_scale
from pgbb.errors import PgbbWarning
from pgbb.methods.noisy_gibbs.sampler import Prior
from pgbb.methods.priors import Priors
from pgbb.methods.request import Planned, Request
from pgbb.private.door import Moment

__all__ = ["Settings", "calibrated"]


@dataclass(frozen=True)
class Settings(Priors):
    """Constants of the method; the defaults, with `noise="classical"`, are those of the paper's tables.

    Args:
      noise: "analytic" composes the releases exactly; "classical" gives each Δ√(2 log(1.25/δ'))/ε' at its (ε', δ').
      shares: of the budget, for (XᵀX, Xᵀy, yᵀy), the second and the fourth moments of x; a mean has one release.
      iterations: of the sampler; None is 400,000 for a regression and 4,000 for a mean.
      burn_in: share of the chain that is dropped.
      thin: keep every `thin`-th draw; None is 10 for a regression and 2 for a mean.
      Beside these, the constants of `Priors`.
    """

    noise: Literal["analytic", "classical"] = "analytic"
    shares: tuple[float, float, float] = (0.5, 0.25, 0.25)
    iterations: int | None = None
    burn_in: float = 0.5
    thin: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.one_of("noise", self.noise, ("analytic", "classical"))
        given: object = self.shares
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 3:
            raise _validate.fail("shares", given, "three positive numbers with sum 1")
        shares = tuple(_validate.number("shares", s, above=0, below=1) for s in given)
        if abs(sum(shares) - 1) > 1e-9:
            raise _validate.fail("shares", given, "three positive numbers with sum 1")
        object.__setattr__(self, "shares", shares)
        if self.iterations is not None:
            _validate.integer("iterations", self.iterations, low=20)
        _validate.number("burn_in", self.burn_in, low=0, below=1)
        if self.thin is not None:
            _validate.integer("thin", self.thin, low=1)

    @property
    def prior(self) -> Prior:
        """Of a regression."""
        return Prior(self.coefficient_precision, self.variance_shape, self.variance_rate)

    def kept(self, iterations: int, thin: int) -> slice:
        """Positions of a chain that are released."""
        return slice(int(self.burn_in * iterations), None, thin)


def calibrated(request: Request, settings: Settings, moments: Sequence[Moment], n: int) -> Planned:
    """What is released at which noise.

    Analytic noise has scale C_i/share_i, so that the multiplier of a release is proportional to its share.
    """
    clips = [m.clip for m in moments]
    shares = settings.shares if len(moments) > 1 else (1.0,)
    classical = settings.noise == "classical" and not request.non_private
    if classical:
        noises = _classical(clips, shares, request.epsilon, request.delta)
    else:
        noises = [c / s for c, s in zip(clips, shares, strict=True)]
    members = [m.describe(n) for m in moments]
    target = compose(members, scales=[v / noises[0] for v in noises]) if len(members) > 1 else members[0]
    if request.non_private:
        return Planned(target, 0.0)
    if not classical:
        return Planned(target, noise_scale(target, request.epsilon, request.delta, request.accountant))
    sigma = noises[0] / n
    spent = certified_epsilon(target, sigma, request.delta, request.accountant)
    notes = (f"Classical Gaussian noise for a nominal ε = {request.epsilon:g}; it amounts to ε = {spent:.4g}.",)
    if spent <= request.epsilon:
        return Planned(target, sigma, None, notes)
    warnings.warn(
        f"noise = 'classical' at epsilon = {request.epsilon:g} amounts to ε = {spent:.4g}, which is what the "
        "certificate claims. Use noise='analytic' to keep the budget.",
        PgbbWarning,
        stacklevel=4,
    )
    return Planned(target, sigma, spent, notes)


def _classical(clips: Sequence[float], shares: Sequence[float], epsilon: float, delta: float) -> list[float]:
    """Noise of each sum, Δ√(2 log(1.25/δ'))/ε' with Δ = 2C and (ε', δ') = share·(ε, δ)."""
    if max(shares) * epsilon >= 1:
        warnings.warn(
            f"noise = 'classical' at epsilon = {epsilon:g} gives one release ε' = {max(shares) * epsilon:g}: the "
            "classical Gaussian mechanism is proved for ε' < 1 only. What is certified is computed from the noise.",
            PgbbWarning,
            stacklevel=5,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PgbbWarning)
        return [
            gaussian_noise_scale(2 * c, s * epsilon, s * delta, variant="classical")
            for c, s in zip(clips, shares, strict=True)
        ]
