"""Asks for all levels of a quantile regression in one answer: for cells between the fitted curves.

A record lies in one of m + 1 cells between the curves of m levels. The answer is A·c ⊗ x with c its (smoothed) cell and
‖A c‖ ≤ 1, so that ‖A c ⊗ x‖ ≤ ‖x‖; multiplied by B it holds the gradient of every level (`algebra.strategy`).
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.calibrated.algebra import strategy
from pgbb.model.models import Problem


@dataclass(frozen=True, eq=False)
class Joint:
    """A problem as the mechanism is asked about it, and how its answers are read.

    Attributes:
      problem: what the session runs: θ has the parameters of all levels, one after another.
      levels: of the index; None without one.
      decode: B, (m, m): the gradients of the levels are B times the rows of an answer.
    """

    problem: Problem
    levels: tuple[float, ...] | None
    decode: Floats

    @property
    def count(self) -> int:
        """m, the number of levels; 1 without an index."""
        return len(self.decode)

    @property
    def dim(self) -> int:
        """Parameters of one level."""
        return self.problem.dim // self.count

    def gradients(self, answers: Floats) -> Floats:
        """(N, m, d) gradients of the levels, from answers (N, m·d)."""
        return np.einsum("jl,nld->njd", self.decode, answers.reshape(len(answers), self.count, -1))


@lru_cache(maxsize=32)
def joint_of(problem: Problem, levels: tuple[float, ...] | None, clip: float | None = None) -> Joint:
    """The problem itself without levels; else one that asks about all of them at once, clipped to sup ‖x‖ or `clip`."""
    if levels is None:
        return Joint(problem, None, np.eye(1))
    assert problem.design is not None
    m, p = len(levels), problem.dim
    a, b = strategy(levels)
    kept = np.sum(a**2, axis=1) > 1e-12  # the score of a level is no more than m numbers know
    a, b = a[kept], b[:, kept]
    h = float(problem.settings["bandwidth"])

    def cells(theta: Any, x: Any, y: Any) -> Any:
        import jax.numpy as jnp
        from jax.scipy.special import ndtr

        from pgbb._numerics.compiled import computed_once, times

        above = ndtr((y - times(x, theta.reshape(m, p).T)) / h)
        one, zero = jnp.ones_like(above[:1]), jnp.zeros_like(above[:1])
        cell = computed_once(jnp.concatenate([one, above]) - jnp.concatenate([above, zero]))
        return (times(cell, jnp.asarray(a.T, cell.dtype))[:, None] * x[None, :]).ravel()

    names = tuple(f"{name} at {level:g}" for level in levels for name in problem.names)
    whole = replace(
        problem,
        names=names,
        clip=problem.design.norm_bound if clip is None else clip,
        center=np.tile(problem.center, m),
        radius=np.tile(problem.radius, m),
        transform=np.eye(m * p),
        offset=np.zeros(m * p),
        index=None,
        score=None,
        joint=cells,
        origin=(*problem.origin, ("pgbb.methods.pgbb.all_levels:asked_at_once", (levels, clip))),
    )
    return Joint(whole, levels, b)


def asked_at_once(problem: Problem, levels: tuple[float, ...], clip: float | None, **_: object) -> Problem:
    """The joint problem as workers of a cluster make it from the model's own."""
    return joint_of(problem, levels, clip).problem
