"""Linear algebra of the default method: shrinkage of noisy matrices, and the matrix mechanism for levels and prefixes.

Public arithmetic on noisy answers; nothing here sees a record.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import direction_sd, pack, triangle, unpack

Shrink = Callable[..., tuple[Floats, Floats]]
"""`shrink` or `as_answered`: (raw, target, sd, …) → the matrix, and the noise left in its packed coordinates."""


def floored(a: Floats, floor: float) -> Floats:
    """The symmetric matrix with eigenvalues raised to at least `floor`."""
    values, vectors = np.linalg.eigh(a)
    return (vectors * np.maximum(values, floor)) @ vectors.T


_SPREADS = np.concatenate([[0.0], np.geomspace(0.01, 3.0, 40)])  # grid for t, the size of relative deviations
USUAL = 0.1  # prior mean of t
SELDOM, FAR = 0.003, 0.7  # prior share of entries that deviate much more than the others, and the size of that


def as_answered(raw: Floats, target: Floats, sd: Floats | float, *_: object, **__: object) -> tuple[Floats, Floats]:
    """The matrix as it was answered, with all of its noise: `shrink` of a fit without shrinkage."""
    return raw.copy(), np.full(len(pack(raw)), sd)


def shrink(
    raw: Floats,
    target: Floats,
    sd: Floats | float,
    target_sd: Floats | float = 0.0,
    pulled: Any = True,
    usual: float = USUAL,
) -> tuple[Floats, Floats]:
    """Shrink a noisy symmetric matrix toward a target T. Returns it, and the noise left on each packed coordinate.

    Hierarchical Bayes with known noise: entry (a, b) deviates from the target by √(T_aa T_bb)·N(0, t²), with one t for
    all entries. t has an exponential prior with mean `usual`, and is averaged over its posterior on a grid. A few
    entries deviate by `FAR` instead, and those that clearly do are left as they are. Weak directions, where noise is
    large beside the target, are therefore pulled more than strong ones.

    Args:
      raw: the matrix as answered.
      target: T.
      sd: noise of each packed coordinate of the answer.
      target_sd: noise of the packed coordinates of the target.
      pulled: which packed coordinates are shrunk; the others stay as answered, with all of their noise.
      usual: prior mean of t.
    """
    if not np.any(sd):
        return as_answered(raw, target, sd)
    root = np.sqrt(np.diag(target))
    i, j, _ = triangle(len(raw))
    unit = root[i] * root[j]
    away, noise = pack(raw - target) / unit, np.maximum(sd / unit, 1e-100)
    near, far = _SPREADS[:, None] ** 2, FAR**2
    near_fit, far_fit = (
        np.log(share) - 0.5 * (np.log(v + noise**2) + away**2 / (v + noise**2))
        for share, v in ((1 - SELDOM, near), (SELDOM, np.full_like(near, far)))
    )
    both = np.logaddexp(near_fit, far_fit)
    fit = np.sum(both, axis=1, where=np.broadcast_to(pulled, both.shape))
    fit += np.log(np.maximum(_SPREADS, _SPREADS[1])) - _SPREADS / usual
    chance = np.exp(fit - fit.max())
    chance /= chance.sum()
    differs = np.exp(far_fit - both)
    near_keep, far_keep = near / (near + noise**2), far / (far + noise**2)
    keeps = (1 - differs) * near_keep + differs * far_keep
    keep = chance @ keeps
    spread = (1 - differs) * (near_keep - keep) ** 2 + differs * (far_keep - keep) ** 2
    left = keep * noise**2 + chance @ spread * away**2
    remaining = np.sqrt(left * unit**2 + ((1 - keep) * target_sd) ** 2)
    value = target + unpack(np.where(pulled, keep, 1.0) * away * unit, len(raw))
    return value, np.where(pulled, remaining, sd)


def clear_of(vectors: Floats, sd: Floats) -> Floats:
    """The value that an eigenvalue along each of these vectors (columns) must exceed to stand clear of noise.

    It is the larger of three standard deviations and 2√(Σ_a v_a² Σ_b Var N_ab). The latter is the radius within which
    the eigenvalues of symmetric noise N lie: √(2d) standard deviations where all packed coordinates have the same.
    """
    i, j, _ = triangle(len(vectors))
    variance = np.empty((len(vectors), len(vectors)))
    variance[i, j] = variance[j, i] = np.asarray(sd) ** 2 / 2
    radius: Floats = 2 * np.sqrt(np.sum(variance, axis=1) @ vectors**2)
    return np.maximum(3 * direction_sd(vectors, sd), radius)


def limited(step: Floats, metric: Floats, most: Floats | float) -> Floats:
    """A step in the frame, (…, p), shortened to length `most` in the metric, which says how far fitted values move."""
    square = np.maximum(np.sum((step @ metric) * step, axis=-1), 1e-300)
    return step * (1 / np.maximum(np.sqrt(square) / np.maximum(most, 1e-300), 1.0))[..., None]


def monotone(values: Floats) -> Floats:
    """The increasing sequence nearest to the given one (pool adjacent violators).

    >>> monotone(np.array([0.0, 2.0, 1.0, 3.0])).tolist()
    [0.0, 1.5, 1.5, 3.0]
    """
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        means.append(value)
        sizes.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            last, size = means.pop(), sizes.pop()
            means[-1] = (means[-1] * sizes[-1] + last * size) / (sizes[-1] + size)
            sizes[-1] += size
    return np.repeat(means, sizes)


@lru_cache(maxsize=64)
def strategy(levels: tuple[float, ...]) -> tuple[Floats, Floats]:
    """The optimal matrix mechanism for the gradients of all quantile levels: (A, B) with BA = W.

    A record lies in one of m + 1 cells between the fitted curves, and the score of level j on cell a is
    W_ja = (1 − τ_j) − 1{a > j}. The means of A_·a ⊗ x, of norm at most ‖x‖, are asked and multiplied by B. Level j then
    has noise of variance Σ_l B_jl². The sum over levels is least where X = AᵀA minimises tr(W X⁻¹ Wᵀ) under
    diag X ≤ 1. The solution is the fixed point of v ← v∘diag X(v) with X(v) = D⁻¹(D WᵀW D)^{1/2}D⁻¹ and D = diag √v
    (Denisov et al. 2022, Theorem 3.2).

    >>> A, B = strategy((0.1, 0.3, 0.5, 0.7, 0.9))
    >>> (B**2).sum(axis=1).round(2), float((A**2).sum(axis=0).max().round(6))
    (array([0.95, 0.81, 0.73, 0.81, 0.95]), 1.0)
    """
    tau = np.array(levels)
    m = len(tau)
    w = (1 - tau)[:, None] - (np.arange(m + 1)[None, :] > np.arange(m)[:, None])
    return _factors(w, 500)


@lru_cache(maxsize=4)
def prefixes(bins: int) -> tuple[Floats, Floats]:
    """The optimal matrix mechanism for a distribution function on bins: (A, B) with BA the matrix of prefix sums.

    Asking for single bins and adding them up would give noise of variance up to `bins`.

    >>> float((prefixes(64)[1] ** 2).sum(axis=1).max()) < 6
    True
    """
    return _factors(np.tril(np.ones((bins, bins))), 60)


def _factors(w: Floats, rounds: int) -> tuple[Floats, Floats]:
    """(A, B) for W by the fixed point of `strategy`; columns of A have norm at most 1."""
    gram, v = w.T @ w, np.full(w.shape[1], 1 / w.shape[1])
    for _ in range(rounds):
        root = np.sqrt(v)
        values, vectors = np.linalg.eigh(root[:, None] * gram * root)
        values = np.where(values > 1e-13 * values[-1], values, 0.0)  # the root of a rounding error is none
        x = (vectors * np.sqrt(values)) @ vectors.T / np.outer(root, root)
        v = v * np.maximum(np.diag(x), 1e-6)
        v = np.maximum(v, 1e-12 * v.max())  # a cell whose bound does not bind would vanish
    values, vectors = np.linalg.eigh(x)
    a = (vectors * np.sqrt(np.where(values > 1e-9 * values[-1], values, 0.0))).T
    a /= np.sqrt((a**2).sum(axis=0).max())
    b = w @ np.linalg.pinv(a)
    a.flags.writeable = b.flags.writeable = False
    return a, b
