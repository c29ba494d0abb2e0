"""Second and third derivatives of a custom loss, where its code tells them: nothing is asked of a record.

The loss of an exponential family in its natural parameters is A(θ) − θᵀt(x): its second derivatives are the same for
every record, and so are those of all higher orders. JAX shows by tracing whether a loss is of that kind.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.clipped_means import largest_score
from pgbb.methods.pgbb.coordinates import Coordinates
from pgbb.methods.pgbb.moment_answers import slope_of
from pgbb.model.models import Problem

FEW = 0.05  # share of the curvature that clipped records may have, at most
HARM = 2.0  # the same in units of 1/(C√n), with C in standard deviations


@lru_cache(maxsize=32)
def bends_alike(problem: Problem) -> bool:
    """Whether ∇²l is the same for every record; False for a loss that cannot be differentiated twice.

    >>> import pgbb
    >>> schema = pgbb.Schema(x=pgbb.Range(0, 12))
    >>> rate = lambda t, record, _: t[0] * record["x"] - __import__("jax").numpy.log(t[0])
    >>> bends_alike(pgbb.Custom(rate, dim=1, clip=8.0, columns=("x",), box=(0.1, 2.0)).prepare(schema))
    True
    >>> mean = lambda t, record, _: record["x"] / t[0] + __import__("jax").numpy.log(t[0])
    >>> bends_alike(pgbb.Custom(mean, dim=1, clip=8.0, columns=("x",), box=(0.5, 9.0)).prepare(schema))
    False
    """
    if problem.design is not None or problem.kind != "custom" or problem.index is not None:
        return False
    import jax

    try:
        traced = jax.make_jaxpr(_bends(problem))(*_record(problem), np.zeros(problem.dim, np.float32))
    except Exception:  # whatever a loss raises when it is differentiated
        return False
    return not any(_touched(traced.jaxpr, [True, True, False]))


def bend_at(problem: Problem, theta: Floats) -> float:
    """The norm of ∇²l at θ, for a loss whose ∇²l is the same for every record."""
    return float(np.linalg.norm(_bends(problem)(*_record(problem), np.asarray(theta, np.float32))))


def shape_of(problem: Problem, where: Coordinates, theta: Floats) -> Floats:
    """κ along each coordinate: the gradient Hy/(1 + κy) has the second and third derivatives of l at θ."""
    import jax

    record, point = _record(problem), np.asarray(theta, np.float32)
    found = np.zeros(len(theta))
    for j, step in enumerate(where.step.T.astype(np.float32)):
        line = lambda t, step=step: slope_of(problem, *record, point + t * step) @ step  # noqa: E731
        second = jax.grad(line)(0.0)
        third = jax.grad(jax.grad(line))(0.0)
        found[j] = -0.5 * float(third) / float(second) if float(second) != 0 else 0.0
    return np.where(np.isfinite(found), found, 0.0)


def is_cut(problem: Problem, n: int, curvature: float, mean: float) -> bool:
    """Whether so many scores of a mean are clipped that it moves: H of a Gaussian mean then falls short of 1/s².

    A share f of n records beyond C standard deviations takes about f·C/2 of them off, where sampling has 1/√n.
    """
    scale = problem.settings["scale"]
    if scale is not None and curvature * scale**2 < 1 - min(FEW, HARM / (problem.clip * scale * np.sqrt(n))):
        return True
    return largest_score(problem, mean) > problem.clip


def _record(problem: Problem) -> tuple[Any, Any]:
    """Any record, since all have the same ∇²l."""
    return np.ones(max(1, len(problem.columns)), np.float32), np.float32(0)


def _bends(problem: Problem) -> Any:
    """Make the function ∇²l of one record."""
    import jax

    return lambda x, y, theta: jax.jacfwd(lambda t: slope_of(problem, x, y, t))(theta)


def _touched(jaxpr: Any, given: list[bool]) -> list[bool]:
    """Which outputs of a traced function depend on the inputs that are `given`."""
    known = {var for var, yes in zip(jaxpr.invars, given, strict=True) if yes}
    for step in jaxpr.eqns:
        into = _among(known, step.invars)
        if any(into) and step.primitive.name in ("jit", "pjit"):
            out = _touched(step.params["jaxpr"].jaxpr, into)
        else:
            out = [any(into)] * len(step.outvars)
        known.update(var for var, yes in zip(step.outvars, out, strict=True) if yes)
    return _among(known, jaxpr.outvars)


def _among(known: set[Any], variables: list[Any]) -> list[bool]:
    """Which of these are among the known ones; a constant never is."""
    return [not hasattr(var, "val") and var in known for var in variables]
