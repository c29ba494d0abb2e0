"""Rubin's Bayesian bootstrap and the blocked bootstrap, exactly: what a private posterior approximates.

Nothing here is private. The law of the weights and of the blocks is that of
the mechanism, so that differences between a release and these draws are due
to its noise and its generator.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgbb import _validate
from pgbb._numerics.newton import Floats
from pgbb.accountant.description import gamma_star
from pgbb.errors import InvalidValue
from pgbb.model.blocks import block_of_position
from pgbb.model.problem import Problem
from pgbb.private.door import NonPrivateRecords
from pgbb.reference.solvers import Solver, to_original

__all__ = [
    "bayesian_bootstrap",
    "blocked_bootstrap",
    "draw_partition",
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
    u = dirichlet(records.n, 1.0, draws, streams(seed)[0], solver.rows)
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
    weights, order = streams(seed)
    labels = draw_partition(n, blocks, order) if partition is None else checked_labels(partition, n, blocks)
    share = 1 / np.bincount(labels, minlength=blocks)
    u = block_weights(n, blocks, gamma, draws, weights, solver.rows)
    return to_original(problem, np.concatenate([solver((part * share)[:, labels]) for part in u]))


def draw_partition(n: int, blocks: int, rng: np.random.Generator) -> Ints:
    """The block of each record in a uniformly random balanced partition, (n,)."""
    labels = np.empty(n, dtype=np.int64)
    labels[rng.permutation(n)] = block_of_position(n, blocks)
    return labels


def streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """One generator for weights, one for the partition."""
    seed = _validate.integer("seed", seed, low=0)
    weights, order = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    return weights, order


def dirichlet(size: int, gamma: float, draws: int, rng: np.random.Generator, rows: int) -> Iterator[Floats]:
    """`draws` rows from Dirichlet(γ1), a chunk at a time; the rows do not depend on the size of a chunk."""
    draws = _validate.integer("draws", draws, low=1)
    for start in range(0, draws, rows):
        yield rng.dirichlet(np.full(size, gamma), size=min(rows, draws - start))


def block_weights(
    n: int, blocks: int, gamma: float | None, draws: int, rng: np.random.Generator, rows: int
) -> Iterator[Floats]:
    if blocks == 1:
        if gamma is not None:
            raise _validate.fail("gamma", gamma, "None with blocks = 1", "One block means constant weights.")
        draws = _validate.integer("draws", draws, low=1)
        return (np.ones((min(rows, draws - start), 1)) for start in range(0, draws, rows))
    concentration = gamma_star(n, blocks) if gamma is None else _validate.number("gamma", gamma, above=0)
    return dirichlet(blocks, concentration, draws, rng, rows)


def checked_labels(partition: ArrayLike, n: int, blocks: int) -> Ints:
    labels = np.asarray(partition)
    if labels.shape != (n,) or labels.dtype.kind not in "iu" or set(np.unique(labels)) != set(range(blocks)):
        raise InvalidValue(
            f"partition of shape {labels.shape} and type {labels.dtype} is not allowed: it must be ({n},) integers "
            f"with every block 0 … {blocks - 1} present. None draws a balanced one."
        )
    return labels.astype(np.int64)
