"""Rubin's Bayesian bootstrap and the blocked bootstrap, exactly: what a private posterior approximates.

Nothing here is private. The law of the weights and of the blocks is that of
the mechanism, so that differences between a release and these draws are due
to its noise and its generator.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgbb import _validate
from pgbb._numerics.newton import CELLS, Floats, Sample
from pgbb.accountant.description import gamma_star
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.blocks import block_of_position
from pgbb.model.problem import Problem
from pgbb.private.door import NonPrivateRecords
from pgbb.reference.solvers import Solver, as_sample, check_weights, to_original

__all__ = [
    "bayesian_bootstrap",
    "blocked_bootstrap",
    "draw_partition",
    "ridge",
    "ridge_bootstrap",
]

Ints = NDArray[np.int64]


def bayesian_bootstrap(
    problem: Problem, records: NonPrivateRecords, draws: int, seed: int, index: float | None = None
) -> Floats:
    """θ(w) for w ~ Dirichlet(1_n) (Rubin 1981): (draws, d) in the units of the data.

    Args:
      problem, records, index: as in `solve`.
      draws: number of draws.
      seed: the same seed gives the same weights.

    >>> import pandas as pd, pgbb
    >>> from pgbb.private.door import non_private
    >>> schema = pgbb.Schema(x=pgbb.Range(0, 1))
    >>> problem = pgbb.Mean("x", scale=1.0).prepare(schema)
    >>> frame = pd.DataFrame({"x": np.linspace(0, 1, 101)})
    >>> records = non_private(frame, problem, schema)
    >>> draws = bayesian_bootstrap(problem, records, 2000, seed=1)
    >>> draws.shape, round(float(draws.mean()), 2), round(float(draws.std()), 3)
    ((2000, 1), 0.5, 0.029)
    """
    solver = Solver(problem, records, index)
    u = _dirichlet(records.n, 1.0, draws, _streams(seed)[0], solver.rows)
    return to_original(problem, np.concatenate([solver(part) for part in u]))


def blocked_bootstrap(
    problem: Problem,
    records: NonPrivateRecords,
    blocks: int,
    gamma: float | None = None,
    *,
    draws: int,
    seed: int,
    index: float | None = None,
    partition: ArrayLike | None = None,
) -> Floats:
    """θ(w) for w_i = u_s/|I_s| on block s of a random partition, u ~ Dirichlet(γ1_S): (draws, d), original units.

    Args:
      problem, records, index: as in `solve`.
      blocks: S; 1 means constant weights.
      gamma: γ; None means γ*(n, S), which matches the variance of the Bayesian bootstrap.
      draws: number of draws, all of them for one partition.
      seed: u and the partition come from streams of their own, so that either can be held fixed.
      partition: the block 0 … S−1 of each record, (n,); None draws a balanced one.
    """
    solver = Solver(problem, records, index)
    n = records.n
    blocks = _validate.integer("blocks", blocks, low=1, high=n)
    weights, order = _streams(seed)
    labels = draw_partition(n, blocks, order) if partition is None else _labels(partition, n, blocks)
    share = 1 / np.bincount(labels, minlength=blocks)
    u = _block_weights(n, blocks, gamma, draws, weights, solver.rows)
    return to_original(problem, np.concatenate([solver((part * share)[:, labels]) for part in u]))


def draw_partition(n: int, blocks: int, rng: np.random.Generator) -> Ints:
    """The block of each record in a uniformly random balanced partition, (n,)."""
    labels = np.empty(n, dtype=np.int64)
    labels[rng.permutation(n)] = block_of_position(n, blocks)
    return labels


def ridge(x: ArrayLike, y: ArrayLike, weights: ArrayLike, penalty: float = 0.0) -> Floats:
    """(Xᵀdiag(w)X + λI)⁻¹ Xᵀdiag(w)y, the solution in the paper's Figure `thm21-regression`, for all w at once.

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
    stream, order = _streams(seed)
    moments: Callable[[Floats], tuple[Floats, Floats]]
    if blocks is None:
        if gamma is not None or partition is not None:
            raise InvalidValue("gamma or partition without blocks is not allowed: the Bayesian bootstrap has neither.")
        u = _dirichlet(n, 1.0, draws, stream, max(1, CELLS // n))

        def moments(part: Floats) -> tuple[Floats, Floats]:
            return _moments(sample, part)
    else:
        blocks = _validate.integer("blocks", blocks, low=1, high=n)
        labels = draw_partition(n, blocks, order) if partition is None else _labels(partition, n, blocks)
        by_block = np.argsort(labels, kind="stable")
        starts = np.searchsorted(labels[by_block], np.arange(blocks))
        sizes = np.bincount(labels, minlength=blocks)[:, None]
        products = np.einsum("nj,nk->njk", sample.x, sample.x).reshape(n, -1)
        gram = np.add.reduceat(products[by_block], starts) / sizes
        cross = np.add.reduceat((sample.x * sample.y[:, None])[by_block], starts) / sizes
        p = sample.x.shape[1]
        u = _block_weights(n, blocks, gamma, draws, stream, max(1, CELLS // max(blocks, p * p)))

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


def _streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """One generator for weights, one for the partition."""
    seed = _validate.integer("seed", seed, low=0)
    weights, order = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    return weights, order


def _dirichlet(size: int, gamma: float, draws: int, rng: np.random.Generator, rows: int) -> Iterator[Floats]:
    """`draws` rows from Dirichlet(γ1), a chunk at a time; the rows do not depend on the size of a chunk."""
    draws = _validate.integer("draws", draws, low=1)
    for start in range(0, draws, rows):
        yield rng.dirichlet(np.full(size, gamma), size=min(rows, draws - start))


def _block_weights(
    n: int, blocks: int, gamma: float | None, draws: int, rng: np.random.Generator, rows: int
) -> Iterator[Floats]:
    if blocks == 1:
        if gamma is not None:
            raise _validate.fail("gamma", gamma, "None with blocks = 1", "One block means constant weights.")
        draws = _validate.integer("draws", draws, low=1)
        return (np.ones((min(rows, draws - start), 1)) for start in range(0, draws, rows))
    concentration = gamma_star(n, blocks) if gamma is None else _validate.number("gamma", gamma, above=0)
    return _dirichlet(blocks, concentration, draws, rng, rows)


def _labels(partition: ArrayLike, n: int, blocks: int) -> Ints:
    labels = np.asarray(partition)
    if labels.shape != (n,) or labels.dtype.kind not in "iu" or set(np.unique(labels)) != set(range(blocks)):
        raise InvalidValue(
            f"partition of shape {labels.shape} and type {labels.dtype} is not allowed: it must be ({n},) integers "
            f"with every block 0 … {blocks - 1} present. None draws a balanced one."
        )
    return labels.astype(np.int64)
