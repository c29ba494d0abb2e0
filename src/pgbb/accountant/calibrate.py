"""The questions users ask: ε at σ and δ, δ at σ and ε, and the σ that meets a budget.

One front for all accountants. Arguments are validated here; a question that
cannot be answered raises, and never yields a number.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.accountant import bounds
from pgbb.accountant.description import Composition, Floats, Mechanism
from pgbb.accountant.paper import LARGEST_ORDER, Conversion, Expansion, delta_at, epsilon_at, log_moments
from pgbb.accountant.resampling import Resampling, crossing
from pgbb.accountant.sampling import PosteriorDraws
from pgbb.errors import NotCertifiable

Accountant = Literal["exact", "paper", "worst-case"]
ACCOUNTANTS: tuple[str, ...] = ("exact", "paper", "worst-case")
Sums = Mechanism | Composition
Own = Resampling | PosteriorDraws
"""Mechanisms with an accountant of their own, which has δ at every ε; `exact` alone covers them."""
Target = Sums | Own


def _target(mechanism: Target) -> Target:
    if not isinstance(mechanism, Target):
        raise _validate.fail("mechanism", mechanism, "a description of pgbb.accountant, such as a Mechanism")
    return mechanism


def _sums(target: Target, accountant: str) -> Sums:
    """The target, if it consists of noisy weighted sums: the accountants of the paper know nothing else."""
    if isinstance(target, Own):
        raise NotCertifiable(
            f"accountant = {accountant!r} does not cover a {type(target).__name__}: the paper's moments are those of "
            "noisy weighted sums, not of refits or of draws. Use accountant='exact'."
        )
    return target


Score = Callable[[Floats, Floats], Floats]


def _best_order(
    target: Target, sigma: float, accountant: Accountant, J: int, m: int, conversion: Conversion, score: Score
) -> float:
    """The least score(λ, A(λ)) over integer orders λ, with the log moments A of an accountant of the paper.

    A coarse geometric set of orders is extended while its best member is the last. Then the gap around the best is
    filled until its neighbours are consecutive integers.
    """
    _validate.one_of("conversion", conversion, ("asoodeh", "mironov"))
    sums, worst, expansion = _sums(target, accountant), accountant == "worst-case", Expansion(J, m)

    def scores(orders: NDArray[np.int64]) -> Floats:
        moments = log_moments(sums, sigma, orders, worst_case=worst, expansion=expansion)
        return score(orders.astype(float), moments)

    top = 128
    while True:
        coarse = np.geomspace(33, top, int(24 * math.log(top / 32)))
        orders = np.unique(np.concatenate([np.arange(2, 33), coarse]).astype(np.int64))
        values = scores(orders)
        best = int(np.argmin(values))
        if best < len(orders) - 1 or top >= LARGEST_ORDER:
            break
        top *= 2
    result = float(values[best])
    low, high = orders[max(best - 1, 0)], orders[min(best + 1, len(orders) - 1)]
    while high - low > 2:
        orders = np.unique(np.linspace(low, high, 17).astype(np.int64))
        values = scores(orders)
        best = int(np.argmin(values))
        result = min(result, float(values[best]))
        low, high = orders[max(best - 1, 0)], orders[min(best + 1, len(orders) - 1)]
    return result


def epsilon(
    mechanism: Target,
    sigma: float,
    delta: float,
    accountant: Accountant = "exact",
    *,
    J: int = 32,
    m: int = 5,
    conversion: Conversion = "asoodeh",
) -> float:
    """Certified ε of the mechanism run with noise scale σ, at δ, under replace-one adjacency.

    Args:
      mechanism: what is run: a `Mechanism`, several from `compose`, a `Resampling` or `PosteriorDraws`.
      sigma: standard deviation of the noise on each coordinate of an answer.
      delta: δ, strictly between 0 and 1.
      accountant: "exact" (default), "paper" (Proposition 2.2), or
        "worst-case" (the paper's, without the Dirichlet randomness).
      J, m: truncation orders of the paper's expansion; "exact" has none.
      conversion: from Rényi moments, "asoodeh" or "mironov"; "exact" needs none.

    Returns:
      An upper bound on the true ε; inf where the bound says nothing.

    >>> m = Mechanism(n=10_000, blocks=20, sampling_rate=.1, steps=10_000, clip=2.648)
    >>> round(epsilon(m, sigma=.0266, delta=1e-4, accountant="paper"), 3)
    1.0
    >>> round(epsilon(m, sigma=.0266, delta=1e-4), 2)
    0.89
    """
    target, sigma, delta = _target(mechanism), _validate.sigma(sigma), _validate.delta(delta)
    _validate.one_of("accountant", accountant, ACCOUNTANTS)
    if accountant == "exact":
        return _epsilon_bounds(target, sigma, delta)[1]
    value = _best_order(target, sigma, accountant, J, m, conversion, lambda o, a: epsilon_at(o, a, delta, conversion))
    return value if math.isfinite(value) else math.inf


def delta(
    mechanism: Target,
    sigma: float,
    epsilon: float,
    accountant: Accountant = "exact",
    *,
    J: int = 32,
    m: int = 5,
    conversion: Conversion = "asoodeh",
) -> float:
    """Certified δ of the mechanism run with noise scale σ, at ε ≥ 0; arguments as for `epsilon`.

    With `accountant="paper", conversion="mironov"` this is δ⋆(ε) of Proposition 2.2, as drawn in Figure 1.
    """
    target, sigma = _target(mechanism), _validate.sigma(sigma)
    epsilon = _validate.number("epsilon", epsilon, low=0)
    _validate.one_of("accountant", accountant, ACCOUNTANTS)
    if accountant == "exact":
        if isinstance(target, Own):
            return target.delta_bounds(sigma, epsilon)[1]
        return bounds.delta_bounds(target, sigma, epsilon)[1]
    value = _best_order(target, sigma, accountant, J, m, conversion, lambda o, a: delta_at(o, a, epsilon, conversion))
    return value if math.isfinite(value) else 1.0


def epsilon_bounds(mechanism: Target, sigma: float, delta: float) -> tuple[float, float]:
    """(lower, upper) around the exact ε of the dominating mixture; `epsilon(…, "exact")` is the upper end.

    The lower end belongs to an adversary who sees the block weights u and attacks with the worst records and query
    points (for a `Resampling`: who sees how often each resample holds the record); it tells how much of the upper end
    is discretisation.
    """
    return _epsilon_bounds(_target(mechanism), _validate.sigma(sigma), _validate.delta(delta))


@lru_cache(maxsize=256)  # a plan, its certificate and its verification ask the same
def _epsilon_bounds(target: Target, sigma: float, delta: float) -> tuple[float, float]:
    if delta < bounds.SMALLEST_DELTA:
        raise NotCertifiable(
            f"delta = {delta!r} is below {bounds.SMALLEST_DELTA!r}, the smallest that accountant='exact' can certify. "
            "Choose a larger delta: below 1e-20 it makes no practical difference."
        )
    if isinstance(target, Own):
        low = crossing(lambda e: target.delta_bounds(sigma, e)[0] <= delta)[0]
        return low, crossing(lambda e: target.delta_bounds(sigma, e)[1] <= delta)[1]
    return bounds.epsilon_bounds(target, sigma, delta)


_epsilon = epsilon  # `noise_scale` has an argument of that name
_TOLERANCE = {"exact": 1e-4, "paper": 1e-7, "worst-case": 1e-7}


def noise_scale(
    mechanism: Target,
    epsilon: float,
    delta: float,
    accountant: Accountant = "exact",
    *,
    J: int = 32,
    m: int = 5,
    conversion: Conversion = "asoodeh",
) -> float:
    """The smallest certified σ: `epsilon(mechanism, σ, delta, accountant) ≤ epsilon` holds for the σ returned.

    Bracketing and bisection on log σ (section S1.5), sped up by secant steps, to a relative width of 1e-4 ("exact", for
    noisy sums) or 1e-7; the feasible end is returned. For a `Composition` the result multiplies its `scales`.

    >>> m = Mechanism(n=10_000, blocks=20, sampling_rate=.1, steps=10_000, clip=1.0)
    >>> round(noise_scale(m, epsilon=1.0, delta=1e-4, accountant="paper") * m.block_size, 3)
    5.022
    """
    target, goal, delta = _target(mechanism), _validate.epsilon(epsilon), _validate.delta(delta)
    _validate.one_of("accountant", accountant, ACCOUNTANTS)
    return _noise_scale(target, goal, delta, accountant, J, m, conversion)


@lru_cache(maxsize=256)
def _noise_scale(
    target: Target, goal: float, delta: float, accountant: Accountant, J: int, m: int, conversion: Conversion
) -> float:

    def excess_of(ask: Callable[[float], float]) -> Callable[[float], float]:
        def excess(log_sigma: float) -> float:
            value = ask(math.exp(log_sigma))
            return math.log(max(value, 1e-12 * goal) / goal) if value < math.inf else math.inf

        return excess

    start, width, tolerance = math.log(_first_guess(target, goal, delta)), 0.1, _TOLERANCE[accountant]
    if isinstance(target, Own):
        tolerance = 1e-7
    elif accountant == "exact":  # a loose and quick search first
        start = _smallest_feasible(excess_of(lambda s: bounds.rough_epsilon(target, s, delta)), start, width, 5e-3)
        width = 5e-3
    certified = excess_of(lambda s: _epsilon(target, s, delta, accountant, J=J, m=m, conversion=conversion))
    return math.exp(_smallest_feasible(certified, start, width, tolerance))


def _first_guess(target: Target, goal: float, delta: float) -> float:
    """σ at which the leading-order ε of Theorem 2.1, c + 2√(c log 1/δ), equals the goal.

    A mechanism with an accountant of its own has a guess of its own.
    """
    if isinstance(target, Own):
        return target.first_guess(goal, delta)
    log_inverse = math.log(1 / delta)
    root = math.sqrt(log_inverse + goal) - math.sqrt(log_inverse)
    signal = sum(2 * p.answers * (p.sampling_rate * p.signal(s)) ** 2 * p.kappa for p, s in target.parts(1.0))
    return math.sqrt(signal) / root


def _smallest_feasible(excess: Callable[[float], float], start: float, width: float, tolerance: float) -> float:
    """The feasible end (excess ≤ 0) of a bracket of relative width `tolerance` around the sign change.

    The bracket grows from `start` in steps of `width` and more; then secant
    steps, with bisection whenever they fail to halve it.
    """
    (low, f_low), (high, f_high) = _bracket(excess, start, width)
    use_secant = True
    while high - low > tolerance:
        middle = 0.5 * (low + high)
        if use_secant and f_low < math.inf and f_low - f_high > 0:
            # aim a little to the feasible side, so that the bracket closes from both ends
            aim = low + (high - low) * f_low / (f_low - f_high)
            margin = 0.4 * tolerance
            middle = min(max(aim + (margin if high - aim > aim - low else -margin), low + margin), high - margin)
        before = high - low
        value = excess(middle)
        if value > 0:
            low, f_low = middle, value
        else:
            high, f_high = middle, value
        use_secant = high - low < 0.5 * before or not use_secant
    return high


def _bracket(excess: Callable[[float], float], start: float, width: float) -> tuple[tuple[float, float], ...]:
    """An infeasible and a feasible point, the nearest ones found, each with its excess."""
    x, value = start, excess(start)
    before, feasible = (x, value), value <= 0
    while (value <= 0) == feasible:
        before = x, value
        step = max(width, min(abs(value), 1.0))
        x, width = x + (-step if feasible else step), 2 * width
        value = _bounded(excess, x, start)
    return ((x, value), before) if feasible else (before, (x, value))


def _bounded(excess: Callable[[float], float], x: float, start: float) -> float:
    """The excess at x; an error far from the start."""
    if abs(x - start) > 60:
        raise NotCertifiable(
            "no noise scale within a factor e^60 of the leading-order one meets the budget. "
            "Check epsilon, delta and the mechanism: this usually means a budget that no noise can meet."
        )
    return excess(x)
