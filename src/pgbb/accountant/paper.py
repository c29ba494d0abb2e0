"""The accountant of the paper: Proposition 2.2 (section S2.2).

One answer's Rényi log-moment A(λ) at integer orders, by the replace-one expansion of Birrell et al. (2024, Theorem C.9)
integrated over the Beta law of a record's weight. Every quantity is a sum of positive terms held as a logarithm. The
moments M_k, alternating in the paper, are written in falling factorials, where all coefficients are non-negative.

Only even moments are ever needed: an odd one enters as √(M_{k−1} M_{k+1}).
Arrays named `log_even` hold log M_{2i} at index i.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln, logsumexp

from pgbb import _validate
from pgbb.accountant.description import Composition, Floats, Mechanism
from pgbb.errors import InvalidValue

Conversion = Literal["asoodeh", "mironov"]
Law = tuple[tuple[float, float, float], ...]


LARGEST_ORDER = 16_384
"""Orders above this are not searched; ε = .01 at δ = 1e-9 needs about 4,200."""

_ROUNDING = 1e-10
"""Each log-moment is inflated by this relative amount, above the error of double precision."""

_ROWS = 512  # rows of a binomial transform held in memory at once


@dataclass(frozen=True)
class Expansion:
    """Truncation orders of Proposition 2.2: J of the Beta moments, m of the expansion in q."""

    J: int = 32
    m: int = 5

    def __post_init__(self) -> None:
        _validate.integer("J", self.J, low=1, high=2000)
        _validate.integer("m", self.m, low=3, high=64)


def log_moments(
    mechanism: Mechanism | Composition,
    sigma: float,
    orders: NDArray[np.int64],
    *,
    worst_case: bool = False,
    expansion: Expansion = Expansion(),
) -> Floats:
    """Total log-moment T·K·A_{J,λ,m}(q) at each integer order λ ≥ 2; additive over a `Composition`.

    With `worst_case` the weight w̄ is replaced by its bound 1/n_S, so that the integration over the Beta law (and with
    it J) drops out. The same holds for `blocks=1`, where the result is Birrell et al.'s Theorem C.9 itself.
    """
    if isinstance(mechanism, Composition):
        return np.sum(
            [log_moments(m, s, orders, worst_case=worst_case, expansion=expansion) for m, s in mechanism.parts(sigma)],
            axis=0,
        )
    if mechanism.sampling_rate == 1:
        raise InvalidValue(
            "sampling_rate = 1 is not allowed with this accountant: the expansion in q is proved for q < 1. "
            "Use accountant='exact', which covers full batches."
        )
    law = None if worst_case else _law(mechanism)
    signal = mechanism.signal(sigma)
    m = expansion.m
    top = int(orders.max()) + m + 1
    log_even = _log_even_constant(signal, top) if law is None else _log_even_beta(signal, law, top, expansion.J)
    log_odd = 0.5 * (log_even[:-1] + log_even[1:])
    log_b = np.empty(2 * len(log_even) - 1)  # log of the envelope B_k at index k
    log_b[0::2], log_b[1::2] = log_even, log_odd
    total = np.logaddexp.reduce(
        [
            _log_leading(signal, law, orders, expansion.J) + 2 * np.log(mechanism.sampling_rate),
            _log_taylor(mechanism.sampling_rate, orders, m, log_b),
            _log_remainder(mechanism.sampling_rate, orders, m, log_b),
        ]
    )
    return np.logaddexp(0.0, total) * (1 + _ROUNDING) * mechanism.answers


def _law(mechanism: Mechanism) -> Law | None:
    """The independent factors of n_S·w̄/reach: (a, b, scale) of scale·Beta(a, b); None for constant weights."""
    outer, inner = mechanism.beta_law, mechanism.nested_law
    if outer is None:
        return None
    return ((*outer, 1.0),) if inner is None else ((*outer, 1.0), (*inner, mechanism.block_size / mechanism.reach))


def _log_beta_moments(law: Law, count: int) -> Floats:
    """log of the moments k = 0 … count of a product of Betas, at most 1: Π scale^k (a)_k/(a+b)_k; no cancellation."""
    k = np.arange(count)
    total = sum(np.log(scale * (a + k) / (a + b + k)) for a, b, scale in law)
    return np.concatenate([[0.0], np.minimum(np.cumsum(total), 0.0)])


def _log_leading(signal: float, law: Law | None, orders: NDArray[np.int64], J: int) -> Floats:
    """log(M_{J,λ} + R_{J,λ}): 2λ(λ−1) E[sinh(w̄²C²/σ²)], eq. `bir-MR-def`."""
    eta = signal**2
    extra = int(8 * eta) + 64  # the tail decays like e^{-j} from here on
    odd = 2 * np.arange(J + extra) + 1.0
    terms = odd * np.log(eta) - gammaln(odd + 1)
    if law is not None:
        moments = _log_beta_moments(law, 4 * J + 2)
        terms[: J + 1] += moments[2 + 4 * np.arange(J + 1)]
    lam = orders.astype(float)
    return np.log(2 * lam * (lam - 1)) + logsumexp(terms)


def _log_taylor(q: float, orders: NDArray[np.int64], m: int, log_b: Floats) -> Floats:
    """log Σ_{k=3}^{m−1} q^k F_k/k!, eq. `bir-Ftilde`."""
    lam = orders.astype(float)
    parts = [np.full(len(orders), -np.inf)]
    for k in range(3, m):
        spread = np.zeros(len(orders))
        for j in range(k + 1):
            product = lam / (lam - 1)
            for i in range(j):
                product = product * (1 - i / lam)
            for i in range(k - j):
                product = product * (1 + (i - 1) / lam)
            spread += np.exp(gammaln(k + 1) - gammaln(j + 1) - gammaln(k - j + 1)) * np.abs(product - 1)
        size = (4 if k % 2 == 0 else 3) + spread
        parts.append(k * np.log(q) - gammaln(k + 1) + np.log(lam - 1) + (k - 1) * np.log(lam) + log_b[k] + np.log(size))
    return np.logaddexp.reduce(parts)


def _log_remainder(q: float, orders: NDArray[np.int64], m: int, log_b: Floats) -> Floats:
    """log of the integral remainder E_{λ,m}(q), eqs. `bir-Etilde` and `bir-Theta`."""
    top = int(orders.max())
    k = np.arange(top + 1)
    weights = k * np.log(q) + gammaln(m + 1) + log_b[m : m + top + 1] - gammaln(m + k + 1)
    needed = np.unique(np.concatenate([orders - j for j in range(m + 1)]))
    needed = needed[needed >= 1]
    inner = dict(zip(needed.tolist(), _log_binomial_rows(weights, needed), strict=True))
    lam = orders.astype(float)
    parts = []
    for j in range(m + 1):
        log_theta = np.array([np.logaddexp(log_b[m], inner[r]) if r > 0 else log_b[m] for r in (orders - j).tolist()])
        factors = np.zeros(len(orders))
        with np.errstate(divide="ignore"):
            for i in range(j):
                factors += np.log(np.abs(lam - i))  # zero at λ = i: orders below j drop out
        for i in range(m - j):
            factors += np.log(lam + i - 1)
        choose = gammaln(m + 1) - gammaln(j + 1) - gammaln(m - j + 1)
        parts.append(choose - (lam + m - j - 1) * np.log1p(-q) + factors + log_theta)
    return m * np.log(q) - gammaln(m + 1) + np.logaddexp.reduce(parts)


def _log_binomial_rows(log_terms: Floats, rows: NDArray[np.int64]) -> Floats:
    """log Σ_{k ≤ r} r!/(r−k)! e^{log_terms[k]} for each r in `rows`."""
    out = np.empty(len(rows))
    log_factorial = gammaln(np.arange(int(rows.max()) + 1) + 1.0)
    for start in range(0, len(rows), _ROWS):
        r = rows[start : start + _ROWS]
        k = np.arange(int(r.max()) + 1)
        gap = r[:, None] - k
        terms = np.where(gap >= 0, log_terms[k] - log_factorial[np.maximum(gap, 0)], -np.inf)
        out[start : start + _ROWS] = log_factorial[r] + logsumexp(terms, axis=1)
    return out


@lru_cache(maxsize=8)
def _log_falling(J: int) -> Floats:
    """log a_{j,k} with [x(x−1)]^j = Σ_k a_{j,k} (x)_k in falling factorials, for j ≤ J, k ≤ 2J.

    x(x−1)·(x)_k = (x)_{k+2} + 2k (x)_{k+1} + k(k−1) (x)_k gives a recursion whose
    terms are all non-negative; k! a_{j,k} is the k-th finite difference at 0.
    """
    k = np.arange(2 * J + 1)
    table = np.full((J + 1, 2 * J + 1), -np.inf)
    table[0, 0] = 0.0
    with np.errstate(divide="ignore"):
        stay, up = np.log(k * (k - 1.0)), np.log(2.0 * k[:-1])
    for j in range(J):
        row = table[j] + stay
        row[1:] = np.logaddexp(row[1:], table[j, :-1] + up)
        row[2:] = np.logaddexp(row[2:], table[j, :-2])
        table[j + 1] = row
    return table


def _log_exponential_tail(x: Floats, J: int) -> Floats:
    """log Σ_{j>J} x^j/j! for x > 0, without underflow."""
    out = np.empty_like(x)
    large = x > J + 2
    out[large] = x[large] + np.log(gammainc(J + 1, x[large]))
    small = x[~large]
    term, series, i = np.ones_like(small), np.ones_like(small), J + 1
    while term.size and term.max() > 1e-18:
        i += 1
        term = term * small / i
        series = series + term
    out[~large] = (J + 1) * np.log(small) - gammaln(J + 2) + np.log(series)
    return out


def _log_even_beta(signal: float, law: Law, top: int, J: int) -> Floats:
    """log of the bound on E[M_k(w̄)], k = 0, 2, …, ≥ top, eq. `bir-Mbar` rearranged.

    Truncated part: Σ_{j ≤ J} E[u^{2j}] τ^j/j! · k! a_{j,k}. Remainder: the terms C(k, ℓ) R_{J,ℓ} with ℓ even.
    """
    size = top // 2 + 2
    log_tau = 2 * np.log(signal) - np.log(2)
    ell = 2.0 * np.arange(size)
    log_tail = np.full(size, -np.inf)
    log_tail[1:] = _log_exponential_tail(ell[1:] * (ell[1:] - 1) * np.exp(log_tau), J)
    out = _log_even_binomials(log_tail)
    j = np.arange(J + 1)
    weights = j * log_tau - gammaln(j + 1) + _log_beta_moments(law, 2 * J)[::2]
    even = min(size, J + 1)
    k = 2 * np.arange(even)
    series = logsumexp(weights[1:, None] + _log_falling(J)[1:, 0::2][:, :even], axis=0) + gammaln(k + 1.0)
    out[:even] = np.logaddexp(out[:even], series)
    return out


def _log_even_binomials(log_terms: Floats) -> Floats:
    """log Σ_{ℓ ≤ k, ℓ even} C(k, ℓ) e^{log_terms[ℓ/2]} for even k; index k/2."""
    size = len(log_terms)
    log_factorial = gammaln(2.0 * np.arange(size) + 1)
    scaled = log_terms - log_factorial
    out = np.empty(size)
    for start in range(0, size, _ROWS):
        rows = np.arange(start, min(start + _ROWS, size))
        columns = np.arange(rows[-1] + 1)
        gap = rows[:, None] - columns
        terms = np.where(gap >= 0, scaled[columns] - log_factorial[np.maximum(gap, 0)], -np.inf)
        peak = np.maximum(terms.max(axis=1), -1e300)
        with np.errstate(divide="ignore"):
            out[rows] = log_factorial[rows] + peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1))
    return out


def _log_even_constant(signal: float, top: int) -> Floats:
    """log M_k for the constant weight 1/n_S, k = 0, 2, …, ≥ top (index k/2; M_0 is 0 by convention).

    M_k = E[(Y−1)^k] with Y = exp(μz − μ²/2), z standard normal, μ = C/(σn_S). For even k the integrand is positive with
    one peak on either side of z = μ/2, each no wider than the normal density, so the trapezoidal rule on a grid of step
    1/4 around the two peaks is exact to double precision.
    """
    mu, step, reach = signal, 0.25, 13.0
    k = 2.0 * np.arange(1, top // 2 + 2)
    offsets = np.arange(-int(reach / step), int(reach / step) + 1) * step
    sides = []
    for sign in (1.0, -1.0):
        low, high = np.zeros_like(k), k * mu + np.sqrt(k) + mu + 1
        for _ in range(60):
            v = 0.5 * (low + high)
            with np.errstate(over="ignore"):
                slope = k * mu / (-np.expm1(-mu * v) if sign > 0 else np.expm1(mu * v)) - (v + sign * mu / 2)
            low, high = np.where(slope > 0, v, low), np.where(slope > 0, high, v)
        v = np.round(low / step)[:, None] * step + offsets
        with np.errstate(divide="ignore", invalid="ignore"):
            log_y = np.where(v > 0, np.log(-np.expm1(-mu * v)) + (mu * v if sign > 0 else 0.0), -np.inf)
        sides.append(k[:, None] * log_y - 0.5 * (mu / 2 + sign * v) ** 2)
    out = np.full(len(k) + 1, -np.inf)
    out[1:] = logsumexp(np.hstack(sides), axis=1) + np.log(step) - 0.5 * np.log(2 * np.pi)
    return out


# From log-moments A(λ) = (λ−1) D_λ at orders λ to (ε, δ), section S1.4 ------------------------------------------------


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
