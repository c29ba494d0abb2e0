"""Algorithms 1 and 2: the generator learns the map from block weights to the estimate, from noisy answers alone.

Everything here is post-processing of the answers. Records are behind
`pgbb.private`, which calls the step defined here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pgbb import generator
from pgbb.accountant import Mechanism
from pgbb.models import Problem
from pgbb.private.mechanism import Session, Step, run_many

if TYPE_CHECKING:
    from pgbb.checkpoint import Checkpoint  # needs safetensors, which a machine that only trains may lack

__all__ = ["Settings", "Trained", "train", "train_many"]

PublicPart = Callable[[Any, Any, Any], Any] | None


@dataclass(frozen=True)
class Settings:
    """How the generator learns; nothing here affects privacy.

    Args:
      learning_rate: of Adam, at the start; decays by a cosine to `floor` times that.
      slope: how far θ moves with the network's output; see `generator.reach_of`.
      average_from: the fraction of steps after which iterates are averaged.
      operator_norm: bound on each kernel's operator norm, or None.
      unit_weights: scale the block weights to unit length, for a run without noise; see `generator.input_map`.
    """

    learning_rate: float = 1e-3
    floor: float = 0.01
    slope: float | None = None
    average_from: float = 0.5
    width: int = 256
    depth: int = 3
    operator_norm: float | None = None
    unit_weights: bool = False


@dataclass(frozen=True)
class Trained:
    """Both iterates of the generator as a release stores them, its input map, and the transcript if it was kept."""

    last: dict[str, np.ndarray]
    average: dict[str, np.ndarray]
    input_shift: np.ndarray
    input_scale: np.ndarray
    transcript: dict[str, np.ndarray] | None


@lru_cache(maxsize=16)
def _make_step(
    problem: Problem, mechanism: Mechanism, settings: Settings, pseudo_blocks: int, keep: bool, public_part: PublicPart
) -> tuple[Step, Any]:
    """One update of Algorithm 1 or 2, and its optimiser; cached, so that equal arguments compile once."""
    shift, scale = generator.input_map(problem, mechanism, pseudo_blocks, unit=settings.unit_weights)
    center, radius = jnp.asarray(problem.center, jnp.float32), jnp.asarray(problem.radius, jnp.float32)
    reach = jnp.asarray(generator.reach_of(problem.radius, settings.slope))
    schedule = optax.cosine_decay_schedule(settings.learning_rate, mechanism.steps, settings.floor)
    optimiser = optax.adam(schedule)
    first = int(settings.average_from * mechanism.steps)

    def query(state: Any, draw: dict[str, Any]) -> tuple[Any, Any]:
        values = draw["u"]
        if problem.index is not None:
            values = jnp.concatenate([values, draw["index"][:, None]], axis=1)
        inputs = (values - shift) / scale
        theta, pull = jax.vjp(lambda p: generator.forward(p, inputs, center, radius, reach), state[0])
        return theta, (theta, pull)

    def update(state: Any, draw: dict[str, Any], memo: Any, answers: Any) -> Any:
        params, opt, average = state
        theta, pull = memo
        full = answers if public_part is None else answers + public_part(theta, draw["u"], draw["index"])
        (gradient,) = pull(full / full.shape[0])
        updates, opt = optimiser.update(gradient, opt, params)
        params = optax.apply_updates(params, updates)
        if settings.operator_norm is not None:
            params = generator.spectral_clip(params, settings.operator_norm)
        share = 1.0 / jnp.maximum(draw["t"] - first + 1, 1)
        average = jax.tree.map(lambda a, p: a + share * (p - a), average, params)
        out = {"u": draw["u"], "index": draw["index"], "query": theta, "answer": answers} if keep else None
        return (params, opt, average), out

    return Step(query, update), optimiser


def _initial(session: Session, settings: Settings) -> dict[str, np.ndarray]:
    size = session.mechanism.blocks + session.pseudo_blocks + (session.problem.index is not None)
    return generator.initialise(size, session.problem.dim, settings.width, settings.depth, session.randomness.public)


def _state(params: Any, optimiser: Any) -> Any:
    """Parameters, the optimiser's memory, and the average."""
    params = jax.tree.map(jnp.asarray, params)
    return params, optimiser.init(params), jax.tree.map(jnp.copy, params)


def train(
    session: Session,
    settings: Settings = Settings(),
    *,
    public_part: PublicPart = None,
    keep_transcript: bool = False,
    progress: Callable[[int, int], None] | None = None,
    checkpoint: "Checkpoint | None" = None,
    begin: Callable[[], None] | None = None,
) -> Trained:
    """Run the session's T steps and return the last and the averaged generator.

    `public_part(θ, u, index)` is the gradient of public pseudo-samples, if any;
    `progress(done, steps)` is called after each compiled chunk. With a checkpoint
    that was found, it goes on from there, as the session must have been told.
    `begin` is called right before the first answer.
    """
    problem, mechanism = session.problem, session.mechanism
    step, optimiser = _make_step(problem, mechanism, settings, session.pseudo_blocks, keep_transcript, public_part)
    kept: list[dict[str, np.ndarray]] = []
    names = ("u", "index", "query", "answer") if keep_transcript else ()
    state = _state(_initial(session, settings), optimiser)
    if session.resumed is not None:
        session.randomness.public.bit_generator.state = dict(session.resumed.public)  # the start has drawn from it
    if checkpoint is not None and checkpoint.saved is None:
        checkpoint.save(session.position, state, {}, total=mechanism.steps)
    elif checkpoint is not None and checkpoint.saved is not None:
        state = checkpoint.saved.state(state)
        if session.position.steps:
            kept.append(checkpoint.saved.kept(names, session.position.steps))
    if begin is not None:
        begin()

    def joined() -> dict[str, np.ndarray]:
        return {k: np.concatenate([c[k] for c in kept]) for k in names if kept}

    for done, latest, out in session.run(state, step):
        state = latest
        if keep_transcript:
            kept.append({k: np.asarray(v) for k, v in out.items()})
        if checkpoint is not None and checkpoint.due(last=done == mechanism.steps):
            checkpoint.save(session.position, state, joined(), total=mechanism.steps)
        if progress is not None:
            progress(done, mechanism.steps)
    params, _, average = state
    transcript = {k: v.reshape(-1, *v.shape[2:]) for k, v in joined().items()} if keep_transcript else None
    shift, scale = generator.input_map(problem, mechanism, session.pseudo_blocks, unit=settings.unit_weights)
    reach = generator.reach_of(problem.radius, settings.slope)
    return Trained(generator.export(params, reach), generator.export(average, reach), shift, scale, transcript)


def train_many(
    sessions: Sequence[Session], settings: Settings = Settings(), *, public_part: PublicPart = None
) -> list[Trained]:
    """Train several sessions of one problem and mechanism side by side: for replicates, on a GPU."""
    first = sessions[0]
    step, optimiser = _make_step(first.problem, first.mechanism, settings, first.pseudo_blocks, False, public_part)
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *[_initial(s, settings) for s in sessions])
    state = jax.vmap(lambda p: _state(p, optimiser))(params)
    for _, latest, _ in run_many(sessions, state, step):
        state = latest
    params, _, average = jax.device_get(state)
    shift, scale = generator.input_map(first.problem, first.mechanism, first.pseudo_blocks, unit=settings.unit_weights)

    reach = generator.reach_of(first.problem.radius, settings.slope)

    def pick(tree: Any, i: int) -> dict[str, np.ndarray]:
        return generator.export({k: v[i] for k, v in tree.items()}, reach)

    return [Trained(pick(params, i), pick(average, i), shift, scale, None) for i in range(len(sessions))]
