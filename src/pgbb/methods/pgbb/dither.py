"""Public Gaussian noise on the query points of a training, so that its answers tell the curvature of the loss.

Without it the point is a function of the weights u, and the curvature cannot be told from the gradients of blocks. A
query may be any point, so that privacy is not affected. How much: the curvature H along each whitened direction is to
be known to about 1/κ of itself. Unit noise ξ on a direction, times its size δ, moves answers by Hδξ; so δ grows while
the mean of answer·ξ is below κ standard deviations of the mean of all answers, and shrinks while it is above. For the
first steps, that is, whose answers serve for nothing else: a size that follows the answers which it is judged by would
make the curvature look larger. Then the size stays, and later on it is smaller, so that the gradient hardly feels that
the loss is not quadratic.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pgbb.accountant import Mechanism
from pgbb.methods.pgbb.all_levels import Joint
from pgbb.methods.pgbb.moment_answers import asks_bend
from pgbb.model.models import Problem
from pgbb.private.door import Step

__all__ = ["BURN_IN", "EARLY", "PRECISION", "start", "step"]

PRECISION = 14.0  # κ
ROUGHLY = 5.0  # κ where the curvature is asked for
BURN_IN = 0.15  # share of the steps in which the size is found
EARLY = 0.4  # share of the steps with full dither
LATER = 0.25  # of that size, afterwards
RATE = 120.0  # steps of the logarithm of the size in a run, at first; slower and slower until the size stays
FIRST = 0.05  # size at the start, and
MOST = 0.5  # largest, as a share of the box
_LEAP = 30.0


def start(problem: Problem, levels: int, whitened: Any, key: Any) -> dict[str, Any]:
    """The state of the dither before the first answer; `whitened` leads from whitened coordinates to θ, (d, d)."""
    matrix = np.asarray(whitened, np.float32)
    longest = np.max(np.abs(matrix) / problem.radius[:, None], axis=0)  # of a unit step, in sides of the box
    return {
        "size": jnp.tile(jnp.asarray(np.log(FIRST / longest), jnp.float32), (levels, 1)),
        "most": jnp.asarray(np.log(MOST / longest), jnp.float32),
        "power": jnp.zeros((levels, len(matrix)), jnp.float32),
        "step": jnp.asarray(matrix),
        "key": key,
    }


def step(
    joint: Joint,
    mechanism: Mechanism,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    box: Any,
    inputs: tuple[Any, Any],
    factor: float = 1.0,
) -> Step:
    """One update of the generator at dithered points, all levels of a joint problem at once; κ times `factor`.

    The gradients of all levels are read off an answer; the generator learns from them in whitened coordinates.
    """
    m, d, k = joint.count, joint.dim, mechanism.draws_per_step
    decode = jnp.asarray(joint.decode, jnp.float32)
    low, high = (jnp.asarray(box[0] + sign * box[1]) for sign in (-1, 1))
    burn_in, early = BURN_IN * mechanism.steps, int(EARLY * mechanism.steps)
    shift, scale = inputs
    precision = factor * (ROUGHLY if asks_bend(joint.problem) else PRECISION)
    levels = None if joint.levels is None else jnp.asarray(joint.levels, jnp.float32)

    def values(u: Any) -> Any:
        if levels is None:
            return u
        return jnp.concatenate([jnp.repeat(u, m, axis=0), jnp.tile(levels, k)[:, None]], axis=1)

    def query(state: Any, draw: dict[str, Any]) -> tuple[Any, Any]:
        net, now = state
        theta, pull = forward(net, (values(draw["u"]) - shift) / scale, draw["t"])
        unit = jax.random.normal(jax.random.fold_in(now["key"], draw["t"]), (k, 1, d))
        size = jnp.exp(now["size"]) * jnp.where(draw["t"] < early, 1.0, LATER)
        moved = theta.reshape(k, m, d) + (size * unit) @ now["step"].T
        points = jnp.clip(moved, low, high).reshape(k, m * d)
        return points, (points, pull, unit, size * unit)

    def update(state: Any, draw: dict[str, Any], memo: Any, answers: Any) -> Any:
        net, now = state
        points, pull, unit, added = memo
        slopes = jnp.einsum("jl,kld->kjd", decode, answers.reshape(k, m, d)) @ now["step"]
        net = backward(net, pull, (slopes @ now["step"].T).reshape(k * m, d), draw["t"])
        share = 1 / (1 + jnp.minimum(draw["t"], 0.1 * mechanism.steps))
        power = now["power"] + share * (jnp.mean(slopes**2, axis=0) - now["power"])
        wanted = precision * jnp.sqrt(power / mechanism.answers) + 1e-30
        push = jnp.mean(jnp.clip(1 - slopes * unit / wanted, -_LEAP, _LEAP), axis=0)
        rate = RATE / mechanism.steps * jnp.maximum(1 - draw["t"] / burn_in, 0.0)
        now = {**now, "power": power, "size": jnp.minimum(now["size"] + rate * push, now["most"])}
        out = {"u": draw["u"], "query": points, "dither": added.reshape(k, m * d), "answer": answers}
        return (net, now), out

    return Step(query, update)
