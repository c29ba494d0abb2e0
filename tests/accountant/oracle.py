"""Slow, independent evaluations: the printed formulas in multiprecision, and quadrature.

Written from the paper's formulas as they stand (alternating sums and all), not
from the code under test.
"""

import mpmath as mp
import numpy as np
from scipy.stats import norm


def log_moment(signal, law, q, order, J=32, m=5):
    """A_{J,λ,m}(q) with precision doubled until two evaluations agree to 1e-12 relative."""
    digits, before = 50, None
    while True:
        with mp.workdps(digits):
            value = _log_moment(mp.mpf(signal), law, mp.mpf(q), order, J, m)
        if before is not None and value is not None and abs(value - before) <= mp.mpf("1e-12") * abs(value):
            return value
        before, digits = value if value is not None else None, 2 * digits
        if digits > 60_000:
            raise RuntimeError("the oracle did not settle")


def _log_moment(signal, law, q, lam, J, m):
    eta = signal**2
    top = lam + m + 2

    def rising(x, k):
        return mp.rf(x, k)

    def ratio(k):
        return mp.mpf(1) if law is None else rising(mp.mpf(law[0]), k) / rising(mp.mpf(law[0]) + mp.mpf(law[1]), k)

    # leading term, eq. bir-MR-def
    if law is None:
        leading = mp.sinh(eta)
    else:
        plain = [eta ** (2 * j + 1) / mp.factorial(2 * j + 1) for j in range(J + 1)]
        leading = sum(t * ratio(4 * j + 2) for j, t in enumerate(plain)) + mp.sinh(eta) - sum(plain)
    leading *= 2 * lam * (lam - 1)

    # building blocks T and R, then M-bar, eqs. bir-g and bir-Mbar
    moments = [ratio(2 * j) for j in range(J + 1)]
    T, R = {}, {}
    for ell in range(2, top + 1):
        x = ell * (ell - 1) * eta / 2
        if law is None:
            T[ell], R[ell] = mp.exp(x), mp.mpf(0)
            continue
        terms, term = [], mp.mpf(1)
        for j in range(J + 1):
            terms.append(term)
            term = term * x / (j + 1)
        T[ell] = mp.fdot(terms, moments)
        R[ell] = mp.exp(x) - mp.fsum(terms)

    def m_bar(k):
        if k < 2:
            return mp.mpf(0)
        total = mp.mpf((-1) ** (k - 1) * (k - 1))
        for ell in range(2, k + 1):
            c = mp.binomial(k, ell)
            total += (-1) ** (k - ell) * c * T[ell]
            if (k - ell) % 2 == 0:
                total += c * R[ell]
        return total

    cache = {}

    def M(k):
        if k not in cache:
            cache[k] = m_bar(k)
        return cache[k]

    class Lost(Exception):
        pass

    def B(k):
        if k % 2 == 0:
            return M(k)
        product = M(k - 1) * M(k + 1)
        if product < 0:
            raise Lost
        return mp.sqrt(product)

    try:
        total = q**2 * leading
        for k in range(3, m):
            spread = mp.mpf(0)
            for j in range(k + 1):
                product = mp.mpf(lam) / (lam - 1)
                for i in range(j):
                    product *= 1 - mp.mpf(i) / lam
                for i in range(k - j):
                    product *= 1 + mp.mpf(i - 1) / lam
                spread += mp.binomial(k, j) * abs(product - 1)
            first = 4 * M(k) if k % 2 == 0 else 3 * B(k)
            total += q**k / mp.factorial(k) * mp.mpf(lam) ** (k - 1) * (lam - 1) * (first + B(k) * spread)
        remainder = mp.mpf(0)
        for j in range(m + 1):
            factor = mp.binomial(m, j) * (1 - q) ** (-(lam + m - j - 1))
            for i in range(j):
                factor *= abs(lam - i)
            for i in range(m - j):
                factor *= lam + i - 1
            if factor == 0:
                continue
            if j >= lam:
                theta = (1 - q) ** (lam - j) * B(m)
            else:
                theta = B(m)
                for i in range(lam - j + 1):
                    c = mp.factorial(lam - j) * mp.factorial(m) / (mp.factorial(lam - j - i) * mp.factorial(m + i))
                    theta += q**i * c * B(m + i)
            remainder += factor * theta
        total += q**m / mp.factorial(m) * remainder
    except Lost:
        return None
    return mp.log1p(total) if total > 0 else None


def antipodal(q, mu, points=400_001, reach=14.0):
    """Grid, spacing and the two densities of the antipodal pair."""
    x = np.linspace(-reach - mu, reach + mu, points)
    p = (1 - q) * norm.pdf(x) + q * norm.pdf(x - mu)
    r = (1 - q) * norm.pdf(x) + q * norm.pdf(x + mu)
    return x, x[1] - x[0], p, r


def hockey_stick(q, mu, epsilon):
    """∫(p − e^ε q)₊ by the trapezoidal rule."""
    _, step, p, r = antipodal(q, mu)
    return float(np.maximum(p - np.exp(epsilon) * r, 0).sum() * step)


def renyi_log_moment(q, mu, order):
    """log ∫ p^λ q^{1−λ} by the trapezoidal rule, in logarithms."""
    x = np.linspace(-14 - mu, 14 + mu * order, 600_001)
    stay, move = np.log1p(-q), np.log(q)
    base = norm.logpdf(x)
    log_p = base + np.logaddexp(stay, move + mu * x - mu**2 / 2)
    log_r = base + np.logaddexp(stay, move - mu * x - mu**2 / 2)
    terms = order * log_p + (1 - order) * log_r
    return float(np.logaddexp.reduce(terms) + np.log(x[1] - x[0]))
