"""The Gaussian mechanism by itself, and Gaussian differential privacy.

For a statistic of ℓ₂ sensitivity Δ released once with noise N(0, σ²I): exact (Balle & Wang 2018) and classical (Dwork &
Roth 2014, Theorem A.1) calibration. With μ = Δ/σ the same curve is μ-GDP (Dong, Roth & Su 2022, Corollary 2.13).
"""

import math
import warnings
from typing import Literal

from scipy.special import log_ndtr

from pgbb import _validate
from pgbb.errors import NotCertifiable, PgbbWarning


def gdp_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of μ-GDP: Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

    >>> round(gdp_delta(1.0, 1.0), 6)
    0.126937
    """
    mu = _validate.number("mu", mu, above=0)
    epsilon = _validate.number("epsilon", epsilon, low=0)
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest ε ≥ 0 at which μ-GDP gives `delta`; rounded up in the last digits."""
    mu, delta = _validate.number("mu", mu, above=0), _validate.delta(delta)
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    from scipy.optimize import brentq  # slow to import

    high = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9  # Chernoff
    root = float(brentq(lambda e: gdp_delta(mu, e) - delta, 0.0, high, xtol=1e-14, rtol=1e-14))
    return root * (1 + 1e-12) + 1e-13


def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest μ such that μ-GDP implies (ε, δ)-DP; rounded down in the last digits.

    >>> round(gdp_mu(1.0, 1e-5), 6)
    0.268051
    """
    from scipy.optimize import brentq

    epsilon, delta = _validate.epsilon(epsilon), _validate.delta(delta)
    low, high = 1e-12, 1.0
    while gdp_delta(high, epsilon) <= delta:
        high *= 2
    if not gdp_delta(low, epsilon) < delta < gdp_delta(high, epsilon):
        raise NotCertifiable(
            f"epsilon = {epsilon:g}, delta = {delta:g} is beyond what can be computed with. Choose an epsilon between "
            "1e-6 and 1e6."
        )
    return float(brentq(lambda mu: gdp_delta(mu, epsilon) - delta, low, high, xtol=1e-15, rtol=1e-13)) * (1 - 1e-12)


def gaussian_noise_scale(
    sensitivity: float, epsilon: float, delta: float, *, variant: Literal["analytic", "classical"] = "analytic"
) -> float:
    """Noise σ that makes one release of a statistic of the given ℓ₂ sensitivity (ε, δ)-DP.

    "analytic" is the smallest such σ. "classical" is Δ√(2 log(1.25/δ))/ε, proved
    for ε < 1 only: at ε ≥ 1 it warns, because its guarantee is then unproved.

    >>> round(gaussian_noise_scale(1.0, 0.5, 1e-5), 4)
    7.0318
    >>> round(gaussian_noise_scale(1.0, 0.5, 1e-5, variant="classical"), 4)
    9.6896
    """
    sensitivity = _validate.number("sensitivity", sensitivity, above=0)
    epsilon, delta = _validate.epsilon(epsilon), _validate.delta(delta)
    if _validate.one_of("variant", variant, ("analytic", "classical")) == "analytic":
        return sensitivity / gdp_mu(epsilon, delta)
    if epsilon >= 1:
        warnings.warn(
            f"variant = 'classical' at epsilon = {epsilon:g}: the classical Gaussian mechanism is proved for "
            "epsilon < 1 only. Use variant='analytic' for a certified noise scale.",
            PgbbWarning,
            stacklevel=2,
        )
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
