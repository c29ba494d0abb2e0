"""Closed forms of the paper: leading-order noise with its validity conditions, and the terms of the noise floor.

Nothing here certifies anything; it explains and cross-checks what the
accountants compute.
"""

import math
from dataclasses import dataclass

from pgbb import _validate
from pgbb.accountant.description import Mechanism

__all__ = ["Condition", "LeadingOrder", "NoiseFloor", "leading_order", "noise_floor"]


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

    `sigma` is Cq√(TK log(1/δ) κ)/(n_S ε). `sigma_solved` makes the reduced
    objective c(σ) + 2√(c(σ) log 1/δ) equal to ε; the theorem's ≳ hides the
    factor between the two, about 2√2.
    """

    sigma: float
    sigma_solved: float
    conditions: tuple[Condition, ...]


def leading_order(mechanism: Mechanism, epsilon: float, delta: float) -> LeadingOrder:
    """Theorem 2.1 for this mechanism (with α, by section S2.3), conditions at `sigma_solved`."""
    goal, delta = _validate.epsilon(epsilon), _validate.delta(delta)
    log_inverse = math.log(1 / delta)
    q, answers, kappa = mechanism.sampling_rate, mechanism.answers, mechanism.kappa
    unit = q * mechanism.clip / mechanism.block_size * math.sqrt(answers * kappa)
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
