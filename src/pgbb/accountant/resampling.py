"""B noisy statistics, each of a bootstrap resample of the records: their description, and what they cost.

The counts of the replaced record in the resamples are treated as public. Given them the whole release is one Gaussian
mechanism, so no composition theorem and no limit in B is needed: δ is a finite sum, evaluated with its error added.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from pgbb import _validate
from pgbb.accountant.description import Floats
from pgbb.accountant.gaussian import gdp_mu

MOST_REPLICATES = 5_000
_SMALLEST_DELTA = 1e-100  # as for the other mechanisms: below, normal tails are not trusted
_VACUOUS = 400.0  # an ε beyond this is reported as infinite
_ERROR = 1e-11  # relative error of a normal tail, of a probability, and of sums of them, with a wide margin
_COUNTS = 64  # a record drawn so often in one resample goes to the tail


@dataclass(frozen=True)
class Resampling:
    """B answers f(D_b) + N(0, σ²I), each on a fresh resample D_b of n records, drawn n times with replacement.

    Two data sets are neighbours when one of the n records is replaced; n is public. f must move by at most kΔ when the
    replaced record is in the resample k times, and not at all when it is not in it. The resamples stay secret.

    If resample b draws the replaced record k_b times (docs/privacy.md, Lemma 9),

        δ(ε) ≤ Σ_m P(Σ_b k_b² = m) · δ_GDP((Δ/σ)√m, ε),    k_b ~ Binomial(n, 1/n), independent.

    The law of m is the B-fold convolution of that of k² on the integers; what is cut off is added to δ. The bound is
    exact for an adversary who sees the k_b. The printed σ = √((2−2/e)B)·Δ/μ also hides the event k_b = 0, and is a
    limit as B → ∞. At B = 20 this bound asks for 1.35 to 1.5 times that σ: √(2/1.264) = 1.26 because E k² = 2 − 1/n,
    and the rest because m varies.

    Answers may differ in scale: the one with sensitivity Δ′ ≤ Δ and noise σΔ′/Δ
    has the same ratio, which is all that enters.

    Args:
      n: number of records.
      replicates: B.
      sensitivity: Δ, the largest movement of f for each time that the record was drawn.

    >>> r = Resampling(n=10_000, replicates=20, sensitivity=.02648)
    >>> from pgbb.accountant import epsilon, noise_scale
    >>> round(epsilon(r, sigma=.4242, delta=1e-4), 3), round(noise_scale(r, epsilon=1.0, delta=1e-4), 3)
    (1.507, 0.602)
    """

    n: int
    replicates: int
    sensitivity: float

    def __post_init__(self) -> None:
        _validate.integers(self, "n", low=1)
        _validate.integers(self, "replicates", low=1, high=MOST_REPLICATES)
        _validate.numbers(self, "sensitivity", above=0)

    @property
    def answers(self) -> int:
        """B, the number of noisy answers."""
        return self.replicates

    def parts(self, sigma: float) -> list[tuple["Resampling", float]]:
        """Itself with its noise scale."""
        return [(self, sigma)]

    def first_guess(self, goal: float, delta: float) -> float:
        """σ of the Gaussian mechanism at the mean of m, which is 2B."""
        return self.sensitivity * math.sqrt(2 * self.replicates) / gdp_mu(goal, delta)

    def delta_bounds(self, sigma: float, epsilon: float) -> tuple[float, float]:
        """(lower, upper) around the δ of an adversary who sees the counts; the upper end is certified."""
        probability, lost = self.law
        mu = self.sensitivity / sigma * np.sqrt(np.arange(1, len(probability)))
        inner, outer = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        first = log_ndtr(inner)
        tail = np.exp(first)
        value = tail * -np.expm1(np.minimum(epsilon + log_ndtr(outer) - first, 0.0))
        error = _ERROR * tail
        low = float(probability[1:] @ np.maximum(value - error, 0.0)) * (1 - _ERROR)
        high = (float(probability[1:] @ (value + error)) + lost) * (1 + _ERROR)
        return low, min(max(high, _SMALLEST_DELTA), 1.0)

    @property
    def law(self) -> tuple[Floats, float]:
        """(P(Σ_b k_b² = m) for m = 0, 1, …, and the probability that is not listed)."""
        return _law(self.n, self.replicates)


@lru_cache(maxsize=64)
def _law(n: int, replicates: int) -> tuple[Floats, float]:
    """The law of Σ_b k_b², by repeated squaring of positive numbers: every probability has full relative accuracy."""
    size = 2 * replicates + math.ceil(50 * math.sqrt(replicates)) + 1600
    one = np.zeros(min(_COUNTS, n) ** 2 + 1)
    # P(k+1)/P(k) = (n−k)/((k+1)(n−1)) from P(0) = (1 − 1/n)^n
    probability = math.exp(n * math.log1p(-1 / n)) if n > 1 else 0.0
    one[0] = probability
    for k in range(min(_COUNTS, n)):
        probability = probability * (n - k) / ((k + 1) * (n - 1)) if n > 1 else 1.0
        one[(k + 1) ** 2] = probability
    beyond = 2 * probability * (n > _COUNTS)  # each further term is less than half of the one before
    law = _cut(one, beyond, size)
    total: tuple[Floats, float] | None = None
    count = replicates
    while True:
        if count & 1:
            total = law if total is None else _add(total, law, size)
        count >>= 1
        if not count:
            break
        law = _add(law, law, size)
    assert total is not None
    total[0].setflags(write=False)
    return total


def _cut(full: Floats, lost: float, size: int) -> tuple[Floats, float]:
    return full[:size], lost + float(full[size:].sum())


def _add(a: tuple[Floats, float], b: tuple[Floats, float], size: int) -> tuple[Floats, float]:
    return _cut(np.convolve(a[0], b[0]), a[1] + b[1], size)


def crossing(feasible: Callable[[float], bool]) -> tuple[float, float]:
    """An infeasible ε and a feasible one, close together; both 0 if 0 is feasible, inf where nothing is."""
    if feasible(0.0):
        return 0.0, 0.0
    low, high = 0.0, 1.0
    while not feasible(high):
        if high >= _VACUOUS:
            return high, math.inf
        low, high = high, 2 * high
    while high - low > 1e-10 * high:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return low, high
