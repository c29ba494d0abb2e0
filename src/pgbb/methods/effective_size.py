"""Effective sample size of a chain, by Geyer's initial monotone sequence estimator, and what is said of a small one."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pgbb.errors import PgbbWarning

__all__ = ["effective_sample_size", "too_few"]

SMALLEST_ESS = 100.0
"""Below this many effective draws a chain's intervals are marked."""


def effective_sample_size(chain: NDArray[np.float64]) -> NDArray[np.float64]:
    """Effective number of independent draws in each column of a chain (m, d).

    m/(1 + 2Σρ_t), the sum of autocorrelations cut where the sums of adjacent
    pairs stop being positive, and made non-increasing (Geyer 1992).

    >>> rng = np.random.default_rng(0)
    >>> bool(effective_sample_size(rng.standard_normal((4000, 1)))[0] > 3000)
    True
    """
    chain = np.asarray(chain, dtype=np.float64)
    m = len(chain)
    centred = chain - chain.mean(axis=0)
    size = 2 ** int(np.ceil(np.log2(2 * m)))
    spectrum = np.fft.rfft(centred, size, axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, size, axis=0)[:m] / m
    out = np.empty(chain.shape[1])
    for j in range(chain.shape[1]):
        if covariance[0, j] <= 0:
            out[j] = 1.0
            continue
        rho = covariance[:, j] / covariance[0, j]
        pairs = rho[0 : 2 * (m // 2) : 2] + rho[1 : 2 * (m // 2) : 2]
        ends = np.flatnonzero(pairs <= 0)
        kept = np.minimum.accumulate(pairs[: ends[0] if len(ends) else len(pairs)])
        out[j] = m / max(2 * kept.sum() - 1, 1.0 / np.log10(max(m, 10)))
    return np.minimum(out, m * np.log10(max(m, 10)))


def too_few(sizes: Sequence[NDArray[np.float64]]) -> list[str]:
    """A note for the certificate, which is warned of too, where a chain has too few effective draws; else nothing."""
    smallest = min(float(size.min()) for size in sizes)
    if smallest >= SMALLEST_ESS:
        return []
    text = f"Too few effective draws ({smallest:.0f} in the worst coefficient): do not trust the intervals."
    warnings.warn(text, PgbbWarning, stacklevel=4)
    return [text]
