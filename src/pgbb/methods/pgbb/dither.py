"""Public Gaussian noise on the query points of a training, so that its answers tell the curvature of the loss.

Without it the point is a function of the weights u, and the curvature cannot be told from the gradients of blocks. A
query may be any point, so that privacy is not affected. How much: the curvature H along each whitened direction is to
be known to about 1/κ of itself. Unit noise ξ on a direction, times its size δ, moves answers by Hδξ; so δ is such that
the mean of answer·ξ is κ standard deviations of the mean of all answers, or what a loss allows that is quadratic near
its estimate alone. Answers by which the size is judged do not tell the curvature, which they would make look larger.

With a design H is about one number in every direction, so that the size follows early from few answers with little
dither, while the generator learns. Then it rests, and answers with full dither are asked around where it is. Without a
design each direction has a size of its own, full dither comes first, and less later on, so that the gradient hardly
feels that the loss is not quadratic.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pgbb._numerics.compiled import computed_once
from pgbb.accountant import Mechanism
from pgbb.methods.pgbb.all_levels import Joint
from pgbb.methods.pgbb.coordinates import Coordinates
from pgbb.methods.pgbb.moment_answers import asks_bend
from pgbb.model.models import Problem
from pgbb.private.door import Step

PRECISION = 14.0  # κ
WHITE = 8.0  # κ with a design; more along directions that may vary less than they seem
ROUGHLY = 5.0  # κ where the curvature is asked for
BURN_IN = 0.15  # share of the steps in which the size is found where there is no design
LOUD = 0.4  # share of the steps with full dither where there is no design
LATER = 0.25  # of that size, afterwards
LEARNS = 0.05  # share of the steps in which points are not near the estimate, with a design
RESTS = 0.3  # share of the steps after which the generator rests, with a design
QUIET = 0.4  # of the size, before that
WARM = 0.01  # share of the steps before the size follows the curvature
FORGOTTEN = 10.0  # times in a run that what is known of the curvature is forgotten
RATE = 120.0  # steps of the logarithm of the size in a run, at first; slower and slower until the size stays
FIRST = 0.05  # size at the start, and
MOST = 0.5  # largest, as a share of the box
LOCAL = 0.5  # of the largest score on the smaller side of a line, by which the dither may move scores
FASTER = 8.0  # times that a scale moves with the network's output of what coefficients do
ROOM = 2.0  # times what fitted values need, that query points have
_LEAP = 30.0


def start(problem: Problem, levels: int, where: Coordinates, key: np.ndarray) -> dict[str, np.ndarray]:
    """The state of the dither before the first answer, with the data of a random key."""
    matrix = where.step.astype(np.float32)
    _, radius = white_box(problem)
    if problem.design is not None:  # of half the range of the response, and not of its room
        radius[: len(problem.design.names)] /= ROOM
    return {
        "bend": np.zeros((2, levels, len(matrix)), np.float32),
        "size": np.tile(np.log(FIRST * radius).astype(np.float32), (levels, 1)),
        "most": np.log(MOST * radius).astype(np.float32),
        "power": np.zeros((levels, len(matrix)), np.float32),
        "step": matrix,
        "least": where.least.astype(np.float32),
        "key": key,
    }


def white_box(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Centre and sides of the box of query points, in whitened coordinates: public.

    A unit along a whitened coordinate moves the predictor by one, in the mean square over the records. Fitted values
    lie in the range of the response, so that no more than half of it is needed, and twice that leaves room where noise
    hides how little the design varies.
    """
    if problem.design is None:
        return problem.center / problem.radius, np.ones(problem.dim)
    p, radius = len(problem.design.names), problem.radius.copy()
    radius[:p] *= ROOM
    return problem.center, radius


def reach_of(problem: Problem, reach: np.ndarray) -> np.ndarray:
    """How far the network's output must go to cross most of the box: less for a scale.

    It lies near the lower end of its box, where θ moves slowly: as the logarithm of the distance from that end does.
    """
    if problem.design is None:
        return reach
    return np.where(np.arange(problem.dim) < len(problem.design.names), reach, reach / FASTER)


@dataclass(frozen=True)
class Phases:
    """Shares of the steps: after which the generator rests, answers are used, and points count as late."""

    rest: float
    used: float
    late: float


def phases_of(problem: Problem) -> Phases:
    """With a design, answers count once points may be near; without one, once the size is found."""
    return Phases(0.5, BURN_IN, LOUD) if problem.design is None else Phases(RESTS, LEARNS, RESTS)


def _times(v: Any, matrix: Any) -> Any:
    """v @ matrix in one kernel of a GPU with its neighbours; a product has one of its own."""
    return jnp.sum(v[..., :, None] * matrix, axis=-2)


def _local(joint: Joint) -> np.ndarray:
    """How far the dither of one direction may move the mean score of each level, (m,); no bound without a design.

    Directions add up in the mean square. Beyond that a loss is not quadratic: an outer quantile of responses with noise
    of their size lies farther out.
    """
    problem, tau = joint.problem, np.array(joint.levels or [0.5])
    largest = np.minimum(tau, 1 - tau) * (2 * problem.settings["c"] if problem.kind == "huber" else 1.0)
    return LOCAL * largest / np.sqrt(joint.dim) if problem.design is not None else np.full(1, np.inf)


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
    burn_in, loud, rests = (share * mechanism.steps for share in (BURN_IN, LOUD, RESTS))
    shift, scale = inputs
    p = 0 if joint.problem.design is None else len(joint.problem.design.names)
    precision = factor * (WHITE if p else ROUGHLY if asks_bend(joint.problem) else PRECISION)
    levels = None if joint.levels is None else jnp.asarray(joint.levels, jnp.float32)
    most = jnp.asarray(mechanism.sampling_rate * _local(joint), jnp.float32)[:, None]  # answers are sums over batches

    one = np.arange(d) < p  # coordinates whose curvature is known together; a scale has its own
    alike = jnp.asarray(np.where(np.outer(one, one), 1.0, np.eye(d)), jnp.float32)

    def values(u: Any) -> Any:
        if levels is None:
            return u
        return jnp.concatenate([jnp.repeat(u, m, axis=0), jnp.tile(levels, k)[:, None]], axis=1)

    def share_of(t: Any) -> Any:
        if not p:
            return jnp.where(t < int(loud), 1.0, LATER)
        return jnp.where((t < int(rests)) & (jnp.arange(d) < p), QUIET, 1.0)

    def ahead(state: Any, numbers: Any) -> Any:
        key = jax.random.wrap_key_data(state[1]["key"])
        return computed_once(jax.vmap(lambda t: jax.random.normal(jax.random.fold_in(key, t), (k, 1, d)))(numbers))

    def query(state: Any, draw: dict[str, Any]) -> tuple[Any, Any]:
        net, now = state
        y, pull = forward(net, (values(draw["u"]) - shift) / scale, draw["t"])
        unit = draw["ahead"]
        size = jnp.exp(now["size"]) * share_of(draw["t"])
        added = computed_once(size * unit)  # the same bits whether or not the update is in one program with this
        moved = jnp.clip(y.reshape(k, m, d) + added, low, high)
        points = _times(moved, now["step"].T).reshape(k, m * d)
        return points, (points, pull, unit, added)

    def update(state: Any, draw: dict[str, Any], memo: Any, answers: Any) -> Any:
        net, now = state
        points, pull, unit, added = memo
        gradients = jnp.sum(decode[:, :, None] * answers.reshape(k, 1, m, d), axis=2)
        slopes = _times(gradients, now["step"])
        net = backward(net, pull, slopes.reshape(k * m, d), draw["t"])
        share = 1 / (1 + jnp.minimum(draw["t"], 0.1 * mechanism.steps))
        power = now["power"] + share * (jnp.mean(slopes**2, axis=0) - now["power"])
        wanted = jnp.minimum(precision / now["least"] * jnp.sqrt(power / mechanism.answers), most) + 1e-30
        size, bend = now["size"], now["bend"] * (1 - FORGOTTEN / mechanism.steps)
        if p:
            bend = bend + _times(jnp.stack([jnp.sum(added * v / power, axis=0) for v in (slopes, added)]), alike)
            known = jnp.maximum(bend[0], 0) / (bend[1] + 1e-30) + 1 / jnp.sqrt(bend[1] + 1e-30)
            fixed = (draw["t"] < WARM * mechanism.steps) | (draw["t"] >= int(rests))
            size = jnp.where(fixed, size, jnp.log(wanted / known))
        else:
            push = jnp.mean(jnp.clip(1 - slopes * unit / wanted, -_LEAP, _LEAP), axis=0)
            size = size + RATE / mechanism.steps * jnp.maximum(1 - draw["t"] / burn_in, 0.0) * push
        now = {**now, "power": power, "size": jnp.minimum(size, now["most"]), "bend": bend}
        out = {"u": draw["u"], "query": points, "dither": added.reshape(k, m * d), "answer": answers}
        return (net, now), out

    return Step(query, update, ahead)
