"""The exponential tilt under which the composed loss is computed, chosen by plain quadrature.

The tilt moves the bulk of the sum to the ε or δ that is asked about; without it the FFT would lose small δ in
rounding. Quadrature gives no guarantee and needs none: a bad tilt makes the bounds of bounds.py wider, never wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from pgbb.accountant.description import Mechanism
from pgbb.accountant.exact import one_loss, weight_bins

Floats = NDArray[np.float64]

__all__ = ["Tilt", "tilt_for_delta", "tilt_for_epsilon"]


@dataclass(frozen=True)
class Tilt:
    """θ, log E[e^{θL}] and mean of the sum under the tilt, and the standard deviation of one tilted answer."""

    theta: float
    log_mgf: float
    centre: float
    spread: float


class _Quadrature:
    """log-moment generating function K(θ) of one answer's loss, on a coarse grid."""

    def __init__(self, mechanism: Mechanism, sigma: float, far: float) -> None:
        q = mechanism.sampling_rate
        bins = weight_bins(mechanism, sigma, 0.05, above=True)
        z = np.linspace(-far, far, 161)
        normal = np.exp(-0.5 * z**2)
        normal /= normal.sum()
        mu = bins.shift[:, None]
        loss = np.stack([one_loss(z, q, mu), one_loss(z + mu, q, mu)])
        weight = np.array([1 - q, q])[:, None, None] * bins.probability[:, None] * normal
        keep = weight > 0
        self.loss, self.log_weight = loss[keep], np.log(weight[keep])
        self.count = mechanism.answers

    def moments(self, theta: float) -> tuple[float, float, float]:
        """K(θ) with its first two derivatives."""
        exponent = theta * self.loss + self.log_weight
        peak = exponent.max()
        w = np.exp(exponent - peak)
        total = w.sum()
        mean = float((w * self.loss).sum() / total)
        return float(peak + np.log(total)), mean, float((w * (self.loss - mean) ** 2).sum() / total)


_LOG_THETA = (np.log(1e-3), np.log(1e7))


def _best_theta(objective: Callable[[float], float]) -> float:
    grid = np.linspace(*_LOG_THETA, 36)
    values = [objective(np.exp(t)) for t in grid]
    i = int(np.argmin(values))
    low, high = grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]
    best = minimize_scalar(
        lambda t: objective(np.exp(t)), bounds=(low, high), method="bounded", options={"xatol": 1e-3}
    )
    return float(np.exp(best.x))


def _tilt(parts: list[_Quadrature], theta: float) -> Tilt:
    moments = [(p.count, *p.moments(theta)) for p in parts]
    centre = sum(n * mean for n, _, mean, _ in moments)
    variance = sum(n * v for n, _, _, v in moments)
    answers = sum(p.count for p in parts)
    log_mgf = sum(n * k for n, k, _, _ in moments)
    return Tilt(theta, log_mgf, centre, float(np.sqrt(variance / answers)))


def tilt_for_delta(parts: list[tuple[Mechanism, float]], delta: float, far: float) -> Tilt:
    """The tilt for finding ε at a given δ: that of the best Chernoff bound on ε.

    Observations beyond `far` standard deviations are left out: so rare that
    they cannot matter at this δ, they would still attract the tilt.
    """
    laws = [_Quadrature(m, s, far) for m, s in parts]
    log_delta = np.log(delta)
    return _tilt(laws, _best_theta(lambda t: (sum(p.count * p.moments(t)[0] for p in laws) - log_delta) / t))


def tilt_for_epsilon(parts: list[tuple[Mechanism, float]], epsilon: float, far: float) -> Tilt:
    """The tilt for finding δ at a given ε: that of the best Chernoff bound on δ."""
    laws = [_Quadrature(m, s, far) for m, s in parts]
    theta = _best_theta(lambda t: sum(p.count * p.moments(t)[0] for p in laws) - t * epsilon)
    plain = _tilt(laws, 0.0)
    if plain.centre >= epsilon:  # ε lies in the bulk: a tilt of half a standard deviation is as good as none
        theta = 0.5 / (plain.spread * np.sqrt(sum(p.count for p in laws)))
    return _tilt(laws, theta)
