"""Closed forms of the paper: leading-order noise with its conditions, the noise floor, the bound 𝓑_T and γ̃*.

Nothing here certifies anything; it explains and cross-checks what the accountants compute.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pgbb import _validate
from pgbb.accountant.description import Mechanism, gamma_star
from pgbb.accountant.minimum import minimum_between

FARTHEST = 50.0  # γ̃* is looked for up to so many times γ*


@dataclass(frozen=True)
class Condition:
    """One condition of Theorem 2.1: a value, the bound it should respect, and whether it does.

    "≪ 1" and "= o(1)" are read as at most 0.1, "= O(1)" as at most 10.
    """

    name: str
    value: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the value respects the bound."""
        return self.value <= self.bound


@dataclass(frozen=True)
class LeadingOrder:
    """σ of Theorem 2.1 with its constant taken as 1, and the constant solved for.

    `sigma` is Cq√(TK log(1/δ) κ)/(n_S ε). `sigma_solved` makes the reduced objective c(σ) + 2√(c(σ) log 1/δ) equal to
    ε; the theorem's ≳ hides the factor between the two, about 2√2.
    """

    sigma: float
    sigma_solved: float
    conditions: tuple[Condition, ...]


def leading_order(mechanism: Mechanism, epsilon: float, delta: float) -> LeadingOrder:
    """Theorem 2.1 for this mechanism (with α, by section S2.3), conditions at `sigma_solved`."""
    goal, delta = _validate.epsilon(epsilon), _validate.delta(delta)
    log_inverse = math.log(1 / delta)
    q, answers, kappa = mechanism.sampling_rate, mechanism.answers, mechanism.kappa
    unit = q * mechanism.signal(1.0) * math.sqrt(answers * kappa)
    root = math.sqrt(log_inverse + goal) - math.sqrt(log_inverse)
    solved = math.sqrt(2) * unit / root
    conditions = (
        Condition("C/(σ n_S) = o(1)", mechanism.signal(solved), 0.1),
        Condition("2TKq²C²κ/(σ n_S)² ≤ log(1/δ)", root**2, log_inverse),
        Condition("√(log(1/δ)/(2TKκ)) ≪ 1", math.sqrt(log_inverse / (2 * answers * kappa)), 0.1),
        Condition("q log(1/δ)/((1−q)ε) = O(1)", q * log_inverse / ((1 - q) * goal) if q < 1 else math.inf, 10.0),
    )
    return LeadingOrder(unit * math.sqrt(log_inverse) / goal, solved, conditions)


@dataclass(frozen=True)
class NoiseFloor:
    """The three terms of Π_total in Theorem 3.1, for a generator with β₁ = 1."""

    subsampling: float
    monte_carlo: float
    privacy: float

    @property
    def total(self) -> float:
        """Π_total."""
        return self.subsampling + self.monte_carlo + self.privacy


def noise_floor(mechanism: Mechanism, sigma: float, dim: int) -> NoiseFloor:
    """Π_total of Theorem 3.1 with d_θ = `dim` and β₁ = 1.

    The factor (γ+1)S/(Sγ+1) of the first term is 1 for constant weights.
    """
    sigma, dim = _validate.sigma(sigma), _validate.integer("dim", dim, low=1)
    q, k, clip = mechanism.sampling_rate, mechanism.draws_per_step, mechanism.clip
    spread = 1.0
    if mechanism.blocks > 1:
        g, s = mechanism.concentration, mechanism.blocks
        spread = (g + 1) * s / (s * g + 1)
    return NoiseFloor(
        subsampling=clip**2 * q * (1 - q) * spread / (k * mechanism.n),
        monte_carlo=q**2 * clip**2 / k,
        privacy=dim * sigma**2 / k,
    )


@dataclass(frozen=True)
class TrainingBound:
    """The terms of 𝓑_T in Theorem 3.1, which bounds E‖G(u) − θ*(u)‖² of the last iterate up to a constant."""

    transient: float
    noise: float
    approximation: float
    remainder: float

    @property
    def total(self) -> float:
        """𝓑_T."""
        return self.transient + self.noise + self.approximation + self.remainder


def training_bound(
    mechanism: Mechanism,
    sigma: float,
    dim: int,
    *,
    learning_rate: float,
    smoothness: float,
    convexity: float,
    start: float,
    approximation: float = 0.0,
) -> TrainingBound:
    """𝓑_T = (1 − ηqμ)^T Δ₀ + Mη/(qμ)·Π_total + ε_app + n⁻², with β₁ = 1.

    Args:
      mechanism, sigma, dim: what is run, its noise, and d_θ.
      learning_rate: η, at most 1/(qM).
      smoothness: M, that of the objective in φ.
      convexity: μ of the Polyak–Łojasiewicz condition, at most M.
      start: Δ₀, the gap of the objective at the first iterate.
      approximation: ε_app, what no generator of the class can reach.

    >>> m = Mechanism(n=10_000, blocks=20, sampling_rate=.1, steps=10_000, clip=2.648)
    >>> found = training_bound(m, .0266, 4, learning_rate=.05, smoothness=1.0, convexity=.5, start=1.0)
    >>> round(found.noise, 5), found.remainder
    (0.07308, 1e-08)
    """
    q = mechanism.sampling_rate
    m = _validate.number("smoothness", smoothness, above=0)
    mu = _validate.number("convexity", convexity, above=0, high=m)
    eta = _validate.number("learning_rate", learning_rate, above=0, high=1 / (q * m))
    gap = _validate.number("start", start, low=0)
    floor = noise_floor(mechanism, sigma, dim).total
    return TrainingBound(
        transient=(1 - eta * q * mu) ** mechanism.steps * gap,
        noise=m * eta / (q * mu) * floor,
        approximation=_validate.number("approximation", approximation, low=0),
        remainder=float(mechanism.n) ** -2,
    )


def gamma_tilde(
    n: int, blocks: int, training_error: Callable[[float], float], *, spread: float, diameter: float
) -> float:
    """γ̃* of Remark 4.1: the γ ≥ γ*(n, S) where |a_{S,n}(γ)|·a_n + 2D√Δ_T(γ) is least; γ* where that is least.

    Args:
      n, blocks: records and blocks.
      training_error: Δ_T, the mean squared error of a generator trained at γ. It depends on the records: take a bound,
        such as `training_bound`, or a simulation; an estimate from records would have to be paid for.
      spread: a_n, the factor of the variance gap in Corollary 4.1.
      diameter: D of the parameter box.

    >>> gamma_tilde(1_000, 10, lambda g: 1.0, spread=1.0, diameter=1.0) == gamma_star(1_000, 10)
    True
    """
    first = gamma_star(n, blocks)
    a_n, d = _validate.number("spread", spread, low=0), _validate.number("diameter", diameter, above=0)

    def risk(gamma: float) -> float:
        gap = (blocks - 1) / ((blocks * gamma + 1) * (n - 1)) - 1 / (n + 1)
        return abs(gap) * a_n + 2 * d * math.sqrt(training_error(gamma))

    return min(minimum_between(risk, first, FARTHEST * first, 1e-6 * first), first, key=risk)
