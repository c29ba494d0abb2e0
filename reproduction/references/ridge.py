"""Weighted ridge regression in closed form and its bootstraps, of the study `blocking`. Nothing here is private."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from pgbb import _validate
from pgbb._numerics.newton import CELLS, Floats, Sample
from pgbb.errors import InvalidValue, PgbbError
from pgbb.reference.solvers import check_weights
from reproduction.references.bootstrap import block_weights, checked_labels, dirichlet, draw_partition, streams
from reproduction.references.quantile import as_sample

__all__ = ["ridge", "ridge_bootstrap"]


def ridge(x: ArrayLike, y: ArrayLike, weights: ArrayLike, penalty: float = 0.0) -> Floats:
    """(Xᵀdiag(w)X + λI)⁻¹ Xᵀdiag(w)y, the solution in the paper's Figure 2, for all w at once.

    Args:
      x: (n, p).
      y: (n,).
      weights: (n,) or (m, n), non-negative, taken as they are: w of the paper sums to 1.
      penalty: λ ≥ 0.

    Returns:
      (p,), or (m, p).

    >>> ridge([[1.0], [1.0]], [1.0, 3.0], [[0.5, 0.5], [0.25, 0.75]])
    array([[2. ],
           [2.5]])
    """
    sample, penalty = as_sample(x, y), _validate.number("penalty", penalty, low=0)
    array = check_weights(weights, len(sample.y))
    rows = np.atleast_2d(array)
    step = max(1, CELLS // len(sample.y))
    parts = [_normal_equations(*_moments(sample, rows[i : i + step]), penalty) for i in range(0, len(rows), step)]
    theta = np.concatenate(parts)
    return theta[0] if array.ndim == 1 else theta


def ridge_bootstrap(
    x: ArrayLike,
    y: ArrayLike,
    *,
    draws: int,
    seed: int,
    penalty: float = 0.0,
    blocks: int | None = None,
    gamma: float | None = None,
    partition: ArrayLike | None = None,
) -> Floats:
    """Bootstrap draws of `ridge`, (draws, p): Bayesian with blocks=None, else blocked with S = blocks.

    The blocked draws need only the S block means of xxᵀ and xy, and cost next
    to nothing; arguments are as in `blocked_bootstrap`.
    """
    sample, penalty = as_sample(x, y), _validate.number("penalty", penalty, low=0)
    n = len(sample.y)
    stream, order = streams(seed)
    moments: Callable[[Floats], tuple[Floats, Floats]]
    if blocks is None:
        if gamma is not None or partition is not None:
            raise InvalidValue("gamma or partition without blocks is not allowed: the Bayesian bootstrap has neither.")
        u = dirichlet(n, 1.0, draws, stream, max(1, CELLS // n))

        def moments(part: Floats) -> tuple[Floats, Floats]:
            return _moments(sample, part)
    else:
        blocks = _validate.integer("blocks", blocks, low=1, high=n)
        labels = draw_partition(n, blocks, order) if partition is None else checked_labels(partition, n, blocks)
        by_block = np.argsort(labels, kind="stable")
        starts = np.searchsorted(labels[by_block], np.arange(blocks))
        sizes = np.bincount(labels, minlength=blocks)[:, None]
        products = np.einsum("nj,nk->njk", sample.x, sample.x).reshape(n, -1)
        gram = np.add.reduceat(products[by_block], starts) / sizes
        cross = np.add.reduceat((sample.x * sample.y[:, None])[by_block], starts) / sizes
        p = sample.x.shape[1]
        u = block_weights(n, blocks, gamma, draws, stream, max(1, CELLS // max(blocks, p * p)))

        def moments(part: Floats) -> tuple[Floats, Floats]:
            return (part @ gram).reshape(-1, p, p), part @ cross

    return np.concatenate([_normal_equations(*moments(part), penalty) for part in u])


def _moments(sample: Sample, weights: Floats) -> tuple[Floats, Floats]:
    return sample.gram(weights), weights @ (sample.x * sample.y[:, None])


def _normal_equations(gram: Floats, cross: Floats, penalty: float) -> Floats:
    try:
        theta = np.linalg.solve(gram + penalty * np.eye(gram.shape[1]), cross[..., None])[..., 0]
    except np.linalg.LinAlgError:
        raise PgbbError(
            f"the weighted normal equations are singular at penalty = {penalty:g}: columns of x are collinear under "
            "some weights. Pass penalty > 0, or fewer columns."
        ) from None
    return np.asarray(theta, dtype=np.float64)
