"""Converts Rényi log-moments to (ε, δ): the Mironov form and the tighter Asoodeh form.

Everything takes arrays over orders λ and the total log-moment A(λ) = (λ−1) D_λ at each; the caller minimises over λ.
Paper: SM section S1.4.
"""

from typing import Literal

import numpy as np

from pgbb.accountant.description import Floats

Conversion = Literal["asoodeh", "mironov"]

__all__ = ["Conversion", "delta_at", "epsilon_at"]


def _log_zeta(orders: Floats) -> Floats:
    """log ζ_λ = (λ−1) log(λ−1) − λ log λ, stable for large λ."""
    return (orders - 1) * np.log1p(-1 / orders) - np.log(orders)


def _log_expm1(x: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return x + np.log(-np.expm1(-x))


def epsilon_at(orders: Floats, log_moments: Floats, delta: float, conversion: Conversion = "asoodeh") -> Floats:
    """Smallest ε that each order certifies at δ.

    Mironov (2017, Prop. 3): ε = (A + log 1/δ)/(λ−1). Asoodeh et al. (2021, Lemma 1): equation `asoo-conversion` where
    λδ ≤ 1, and (A/(λ−1) + log(1−δ))₊ where λδ ≥ 1.
    """
    if conversion == "mironov":
        return np.maximum(log_moments - np.log(delta), 0.0) / (orders - 1)
    first = np.maximum(log_moments - np.log(delta) + _log_zeta(orders), 0.0)
    second = np.logaddexp(0.0, _log_expm1(log_moments) - np.log(orders * delta))
    small = np.minimum(first, second) / (orders - 1)
    large = np.maximum(log_moments / (orders - 1) + np.log1p(-delta), 0.0)
    return np.where(orders * delta < 1, small, large)


def delta_at(orders: Floats, log_moments: Floats, epsilon: float, conversion: Conversion = "asoodeh") -> Floats:
    """Smallest δ that each order certifies at ε ≥ 0; the inverse of `epsilon_at`, at most 1."""
    exponent = log_moments - (orders - 1) * epsilon
    if conversion == "mironov":
        return np.exp(np.minimum(exponent, 0.0))
    first = np.exp(np.minimum(exponent + _log_zeta(orders), 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_second = _log_expm1(log_moments) - np.log(orders) - _log_expm1((orders - 1) * epsilon)
    second = np.exp(np.minimum(np.nan_to_num(log_second, nan=0.0, posinf=0.0), 0.0))
    small = np.minimum(first, second)
    large = np.maximum(1 / orders, -np.expm1(np.minimum(epsilon - log_moments / (orders - 1), 0.0)))
    return np.minimum(np.where(orders * small <= 1, small, large), 1.0)
