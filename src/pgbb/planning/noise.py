"""The noise with which block-weighted batches meet a budget, by every accountant, and what theory expects of it.

Public arithmetic on a mechanism: what `pgbb plan` prints for the printed algorithms.
"""

import math
from dataclasses import asdict, dataclass
from typing import get_args

from pgbb import _validate
from pgbb.accountant import ACCOUNTANTS, Composition, Mechanism, delta, epsilon, leading_order, noise_floor, noise_scale
from pgbb.accountant.calibrate import Accountant
from pgbb.accountant.theory import LeadingOrder, NoiseFloor

_CURVE = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  # multiples of ε at which the curve is tabulated


@dataclass(frozen=True)
class NoiseForecast:
    """What a mechanism costs at the noise that meets its budget.

    `target` is all that is asked: the mechanism, or a composition of which it is the first.
    """

    target: Mechanism | Composition
    mechanism: Mechanism
    epsilon: float
    delta: float
    accountant: str
    sigma: float
    certified: dict[str, float]  # accountant -> ε at sigma
    noise: dict[str, float]  # accountant -> σ it would need
    leading: LeadingOrder
    floor: NoiseFloor
    dim: int
    curve: tuple[tuple[float, float, float], ...]  # ε, δ exact, δ⋆ of the paper

    @property
    def amplification(self) -> float:
        """σ over the σ of the worst case: what Dirichlet randomness saves; √κ at leading order."""
        return self.sigma / self.noise["worst-case"]

    @property
    def beside(self) -> list[tuple[Mechanism, float]]:
        """What is asked beside the mechanism, each with its noise."""
        return self.target.parts(self.sigma)[1:] if isinstance(self.target, Composition) else []

    def to_dict(self) -> dict[str, object]:
        """The forecast as plain data, non-finite numbers as None."""
        m = self.mechanism
        data: dict[str, object] = {
            "mechanism": asdict(m) | {"concentration": m.concentration, "block_size": m.block_size, "kappa": m.kappa},
            "beside": [
                {"answers": b.answers, "noise": noise, "noise_multiplier": 1 / b.signal(noise)}
                for b, noise in self.beside
            ],
            "epsilon": self.epsilon,
            "delta": self.delta,
            "accountant": self.accountant,
            "sigma": self.sigma,
            "noise_to_signal": 1 / m.signal(self.sigma),
            "epsilon_by_accountant": self.certified,
            "sigma_by_accountant": self.noise,
            "ratio_to_worst_case": self.amplification or None,
            "leading_order": {
                "sigma": self.leading.sigma,
                "sigma_solved": self.leading.sigma_solved,
                "conditions": [asdict(c) | {"holds": c.holds} for c in self.leading.conditions],
            },
            "noise_floor": asdict(self.floor) | {"total": self.floor.total, "dim": self.dim},
            "curve": [{"epsilon": e, "delta_exact": d, "delta_paper": p} for e, d, p in self.curve],
        }
        return {key: _finite(value) for key, value in data.items()}


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def forecast_noise(
    target: Mechanism | Composition, epsilon_: float, delta_: float, *, accountant: Accountant = "exact", dim: int = 1
) -> NoiseForecast:
    """Calibrate the noise to (ε, δ) and report what every accountant and the theory say about it.

    The mechanism of a composition is its first one. Where anything has `sampling_rate = 1` the paper's expansion does
    not apply; its entries are then inf (ε, σ) and 1 (δ).
    """
    goal, failure = _validate.epsilon(epsilon_), _validate.delta(delta_)
    dim = _validate.integer("dim", dim, low=1)
    _validate.one_of("accountant", accountant, ACCOUNTANTS)
    members = target.mechanisms if isinstance(target, Composition) else (target,)
    mechanism, full = members[0], any(m.sampling_rate == 1 for m in members)
    usable: tuple[Accountant, ...] = ("exact",) if full else get_args(Accountant)
    unknown = dict.fromkeys(ACCOUNTANTS, math.inf)
    noise = unknown | {name: noise_scale(target, goal, failure, name) for name in usable}
    sigma = noise[accountant] if accountant in usable else noise_scale(target, goal, failure, accountant)
    certified = unknown | {name: epsilon(target, sigma, failure, name) for name in usable}
    curve = tuple(
        (
            goal * factor,
            delta(target, sigma, goal * factor),
            1.0 if full else delta(target, sigma, goal * factor, "paper", conversion="mironov"),
        )
        for factor in _CURVE
    )
    leading, floor = leading_order(mechanism, goal, failure), noise_floor(mechanism, sigma, dim)
    return NoiseForecast(
        target, mechanism, goal, failure, accountant, sigma, certified, noise, leading, floor, dim, curve
    )
