"""The gradient of public pseudo-samples from F_base: no noise, because they are nobody's records."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from pgbb.accountant import Mechanism
from pgbb.model.blocks import block_of_position, block_sizes
from pgbb.model.problem import Problem
from pgbb.private.device_layout import Data, place
from pgbb.private.gradients import weighted_rows
from pgbb.private.records import Records


class PublicSamples:
    """Pseudo-samples, which are public, encoded for a problem."""

    def __init__(self, records: Records, problem: Problem) -> None:
        self.n, self._records, self._problem = records.n, records, problem

    def gradient(self, mechanism: Mechanism, blocks: int) -> Callable[[Array, Array, Array], Array]:
        """A function (θ, (u, ũ), index) → q·Σ_j (ũ_{block(j)}/|block(j)|)·∇l(θ, X̃_j), for K rows at once.

        The factor q puts it on the scale of the private answers, whose batches hold each record with probability q.
        """
        n, problem = self.n, self._problem
        data = place(self._records, problem.shift, None)
        block = jnp.asarray(block_of_position(n, blocks))
        sizes = jnp.asarray(block_sizes(n, blocks), jnp.float32)
        rows, first, rate = jnp.arange(n), mechanism.blocks, mechanism.sampling_rate

        def one(theta: Array, u: Array, index: Array) -> Array:
            weight = (u[first:] / sizes)[block]
            return rate * answer(problem, data, rows, weight, theta, index)

        return jax.vmap(one)


def answer(problem: Problem, data: Data, rows: Array, weight: Array, theta: Array, index: Array) -> Array:
    """Σ over `rows` of weight · clipped gradient at θ, without noise, in single precision; shape (d,)."""
    values = weighted_rows(problem, data.rows[rows], 1 / weight, theta, index)
    return problem.clip * jnp.sum(values[:, : problem.dim], axis=0)
