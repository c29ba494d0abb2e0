"""Effective sample size of a chain, by Geyer's initial monotone sequence estimator, and the note on a small one."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.errors import PgbbWarning

SMALLEST_ESS = 100.0
"""Below this many effective draws a chain's intervals are marked."""


def check_thin(thin: int, draws: int, burn_in: float = 0.0) -> None:
    """Refuse to keep fewer than four of so many draws."""
    kept = draws - int(burn_in * draws)
    _validate.integer("thin", thin, low=1, high=max(kept // 4, 1), remedy=f"{kept:,} draws are there to keep some of.")


def effective_sample_size(chain: NDArray[np.float64]) -> NDArray[np.float64]:
    """Effective number of independent draws in each column of a chain (m, d).

    m/(1 + 2Σρ_t), the sum of autocorrelations cut where the sums of adjacent pairs stop being positive, and made
    non-increasing (Geyer 1992). Its two halves count as two chains (Vehtari et al. 2021): one that still drifts has
    halves that differ, and few draws, however fast it moves.

    >>> rng = np.random.default_rng(0)
    >>> bool(effective_sample_size(rng.standard_normal((4000, 1)))[0] > 3000)
    True
    >>> bool(effective_sample_size(rng.standard_normal((4000, 1)) + np.linspace(0, 3, 4000)[:, None])[0] < 10)
    True
    """
    if len(chain) < 4:  # too few to tell
        return np.ones(chain.shape[1])
    half = len(chain) // 2
    halves = np.asarray(chain, dtype=np.float64)[: 2 * half].reshape(2, half, -1)
    means = halves.mean(axis=1)
    spectrum = np.fft.rfft(halves - means[:, None], 2 ** int(np.ceil(np.log2(2 * half))), axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :half].mean(axis=0) / half
    total = covariance[0] + np.square(means[0] - means[1]) / 2
    most, out = 2 * half * np.log10(max(2 * half, 10)), np.ones(halves.shape[2])
    for j in np.flatnonzero(total > 0):
        rho = 1 - (covariance[0, j] - covariance[:, j]) / total[j]
        pairs = rho[0 : 2 * (half // 2) : 2] + rho[1 : 2 * (half // 2) : 2]
        ends = np.flatnonzero(pairs <= 0)
        kept = np.minimum.accumulate(pairs[: ends[0] if len(ends) else len(pairs)])
        out[j] = min(2 * half / max(2 * kept.sum() - 1, 1e-12), most)
    return out


def too_few(sizes: Sequence[NDArray[np.float64]]) -> list[str]:
    """A note for the certificate, which is warned of too, where a chain has too few effective draws; else nothing."""
    smallest = min(float(size.min()) for size in sizes)
    if smallest >= SMALLEST_ESS:
        return []
    text = f"Too few effective draws ({smallest:.0f} in the worst coefficient): do not trust the intervals."
    warnings.warn(text, PgbbWarning, stacklevel=4)
    return [text]
