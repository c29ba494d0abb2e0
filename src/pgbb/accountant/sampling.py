"""m draws of a Gibbs posterior with a bounded loss: their description, and what they cost."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betaincc

from pgbb import _validate

_ERROR = 1e-11  # relative error of a binomial tail, with a wide margin
_SMALLEST_DELTA = 1e-100
MOST_DRAWS = 100_000


@dataclass(frozen=True)
class PosteriorDraws:
    """m independent draws of posteriors ∝ π(θ) exp{−Σ_i l(θ, x_i)/σ}, one posterior or several, fixed beforehand.

    Two data sets are neighbours when one of the n records is replaced; n is public. The loss must be bounded:
    for any two records x, x′ the difference l(θ, x) − l(θ, x′) varies by at most Δ over θ. σ is the temperature, 1/ω.

    The privacy loss of a draw lies in an interval of length η = Δ/σ that holds 0 (bounded range). Among all laws with
    that property two points are worst, and m draws have (docs/privacy.md, Lemma 16; Dong, Durfee & Rogers 2020)

        δ(ε) = max_l P(Bin(m, a_l) ≤ l) − e^ε P(Bin(m, b_l) ≤ l),

    with t_l = (ε + (l+1)η)/(m+1) in [0, η], b_l = (1 − e^{−t_l})/(1 − e^{−η}) and a_l = e^{t_l−η} b_l.

    Args:
      n: number of records.
      draws: m, of all posteriors together.
      sensitivity: Δ.

    >>> from pgbb.accountant import epsilon, noise_scale
    >>> one = PosteriorDraws(n=1000, draws=1, sensitivity=2.0)
    >>> round(epsilon(one, sigma=2.0, delta=1e-12), 4), round(noise_scale(one, epsilon=1.0, delta=1e-12), 4)
    (1.0, 2.0)
    >>> round(epsilon(PosteriorDraws(1000, 100, 2.0), sigma=50.0, delta=1e-6), 3)
    0.832
    """

    n: int
    draws: int
    sensitivity: float

    def __post_init__(self) -> None:
        _validate.integers(self, "n", low=1)
        _validate.integers(self, "draws", low=1, high=MOST_DRAWS)
        _validate.numbers(self, "sensitivity", above=0)

    @property
    def answers(self) -> int:
        """m, the number of draws."""
        return self.draws

    def parts(self, sigma: float) -> list[tuple["PosteriorDraws", float]]:
        """Itself with its temperature."""
        return [(self, sigma)]

    def first_guess(self, goal: float, delta: float) -> float:
        """σ by basic composition, or by mη²/8-zero-concentrated privacy where that is less."""
        root = math.sqrt(math.log(1 / delta) + goal) - math.sqrt(math.log(1 / delta))
        return self.sensitivity * min(self.draws / goal, math.sqrt(self.draws / 8) / root)

    def delta_bounds(self, sigma: float, epsilon: float) -> tuple[float, float]:
        """(lower, upper) around the worst δ of the class; the upper end is certified."""
        return _delta_bounds(self.draws, self.sensitivity / sigma, epsilon)


@lru_cache(maxsize=4096)
def _delta_bounds(m: int, eta: float, epsilon: float) -> tuple[float, float]:
    if epsilon >= m * eta:  # no loss is larger
        return 0.0, 0.0
    lows = np.arange(m, dtype=np.float64)  # l = m is a trivial event: F ≤ 0
    t = np.clip((epsilon + (lows + 1) * eta) / (m + 1), 0.0, eta)
    second = np.expm1(-t) / np.expm1(-eta)
    first = np.exp(t - eta) * second
    hit = betaincc(lows + 1, m - lows, np.clip(first, 0.0, 1.0))
    false = np.exp(epsilon) * betaincc(lows + 1, m - lows, np.clip(second, 0.0, 1.0))
    value, error = hit - false, _ERROR * (hit + false)
    high = float(np.max(value + error))
    return max(float(np.max(value - error)), 0.0), min(max(high, _SMALLEST_DELTA), 1.0)
