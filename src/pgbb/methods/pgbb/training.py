"""Algorithms 1 and 2: the generator learns the map from block weights to the estimate, from noisy answers alone.

Everything here is post-processing of the answers. Records are behind
`pgbb.private`, which calls the step defined here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pgbb._numerics.compiled import computed_once
from pgbb._numerics.threads import FEW, mapped
from pgbb.accountant import Mechanism
from pgbb.methods.pgbb import dither, generator, kernels
from pgbb.methods.pgbb.all_levels import Joint
from pgbb.methods.pgbb.coordinates import Coordinates
from pgbb.methods.pgbb.kernels import Layout
from pgbb.model.models import Problem
from pgbb.private.door import Session, Step, run_many

if TYPE_CHECKING:
    from pgbb.methods.request import Checkpoint  # needs libraries that a machine that only trains may lack


PublicPart = Callable[[Any, Any, Any], Any] | None

_AVERAGED = 500  # iterates, about, whose average is taken


@dataclass(frozen=True)
class Learning:
    """How the generator learns; nothing here affects privacy.

    Args:
      learning_rate: of Adam, at the start; decays by a cosine to `floor` times that over `decay` of the steps.
      slope: how far θ moves with the network's output; see `generator.reach_of`.
      average_from: the fraction of steps after which iterates are averaged: about 500 of them at equal
        distances, for neighbours are alike.
      operator_norm: bound on each kernel's operator norm, or None.
      unit_weights: scale the block weights to unit length, for a run without noise; see `generator.input_map`.
      dither: size of the noise on query points as a multiple of the rule's.
      printed: Xavier's Gaussian weights and a linear output that is clipped to the box, as the paper has it.
    """

    learning_rate: float = 1e-3
    floor: float = 0.01
    decay: float = 1.0
    slope: float | None = None
    average_from: float = 0.5
    width: int = 256
    depth: int = 3
    operator_norm: float | None = None
    unit_weights: bool = False
    dither: float = 1.0
    printed: bool = False


class Second(Protocol):
    """Who asks for second moments, before the first answer of a training and after the last one."""

    def before(self) -> tuple[Any, Coordinates]:
        """A noisy answer, and the coordinates that follow from it."""

    def after(self, found: Any, transcript: dict[str, np.ndarray]) -> Any:
        """A noisy answer, given that of `before` and the transcript."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of the two answers."""


@dataclass(frozen=True)
class Trained:
    """Both iterates of the generator as a release stores them, its input map, and what was kept.

    Attributes:
      last, average: weights.
      input_shift, input_scale: the input map.
      transcript: weights u, index, query points and answers, one row an answer; None where it was not kept.
      moments: the answers of second moments, before and after; None in a training without dither.
    """

    last: dict[str, np.ndarray]
    average: dict[str, np.ndarray]
    input_shift: np.ndarray
    input_scale: np.ndarray
    transcript: dict[str, np.ndarray] | None
    moments: tuple[np.ndarray, ...] | None = None


@lru_cache(maxsize=16)
def _make_step(
    problem: Problem,
    mechanism: Mechanism,
    settings: Learning,
    pseudo_blocks: int,
    keep: bool,
    public_part: PublicPart,
    fuse: bool | None = None,
    alone: bool = True,
    joint: Joint | None = None,
) -> tuple[Step, Any, Layout | None]:
    """One update of Algorithm 1 or 2, its optimiser, and the layout of its state where it runs in kernels of its own.

    Cached, so that equal arguments compile once. Kernels are used on a GPU, where the sizes allow it; tests ask
    for them elsewhere by `fuse`, in an interpreter. With a `joint` problem query points are dithered, and the state is
    that of the network and that of the dither.
    """
    shift, scale = generator.input_map(problem, mechanism, pseudo_blocks, unit=settings.unit_weights)
    center, radius = (problem.center, problem.radius) if joint is None else dither.white_box(problem)
    reach = generator.reach_of(radius, settings.slope)
    if joint is not None:
        reach = dither.reach_of(problem, reach)
    box = jnp.asarray(np.stack([center, radius, reach]), jnp.float32)
    decay = max(1, round(settings.decay * mechanism.steps))
    schedule = optax.cosine_decay_schedule(settings.learning_rate, decay, settings.floor)
    optimiser = optax.adam(schedule)
    first = int(settings.average_from * mechanism.steps)
    every = max(1, (mechanism.steps - first) // _AVERAGED)

    def share(t: Any) -> Any:
        """Of the iterate after step t in the average; 0 if it is not averaged."""
        due = (t >= first) & ((t - first) % every == 0)
        return jnp.where(due, 1.0 / jnp.maximum((t - first) // every + 1, 1), 0.0)

    on_gpu = jax.default_backend() == "gpu"
    wanted = settings.operator_norm is None and (on_gpu if fuse is None else fuse)
    size = len(shift), problem.dim, settings.width, settings.depth
    rows = mechanism.draws_per_step * (1 if joint is None else joint.count)
    layout = kernels.find_layout(rows, *size, alone=alone, clipped=settings.printed) if wanted else None
    if layout is None:
        forward, backward = _network(settings, optimiser, box, share)
    else:
        forward, backward = kernels.network(layout, schedule, box, share, interpret=not on_gpu)
    if joint is not None:
        step = dither.step(joint, mechanism, forward, backward, box, (shift, scale), settings.dither)
        return step, optimiser, layout

    def query(state: Any, draw: dict[str, Any]) -> tuple[Any, Any]:
        values = draw["u"]
        if problem.index is not None:
            values = jnp.concatenate([values, draw["index"][:, None]], axis=1)
        theta, pull = forward(state, (values - shift) / scale, draw["t"])
        return theta, (theta, pull)

    def update(state: Any, draw: dict[str, Any], memo: Any, answers: Any) -> Any:
        theta, pull = memo
        full = answers if public_part is None else answers + public_part(theta, draw["u"], draw["index"])
        state = backward(state, pull, full, draw["t"])
        out = {"u": draw["u"], "index": draw["index"], "query": theta, "answer": answers} if keep else None
        return state, out

    return Step(query, update), optimiser, layout


def _network(settings: Learning, optimiser: Any, box: Any, share: Callable[[Any], Any]) -> Any:
    """Both passes in plain array operations; `kernels.network` does the same."""

    def forward(state: Any, inputs: Any, t: Any) -> tuple[Any, Any]:
        return jax.vjp(lambda p: generator.forward(p, inputs, *box, clipped=settings.printed), state[0])

    def backward(state: Any, pull: Any, answers: Any, t: Any) -> Any:
        params, opt, average = state
        (gradient,) = pull(answers / answers.shape[0])
        # The gradient of the first layer comes last: parameters that wait for it are updated in place, and not copied.
        params, gradient["kernel0"] = computed_once((params, gradient["kernel0"]))
        updates, opt = optimiser.update(gradient, opt, params)
        params = optax.apply_updates(params, updates)
        if settings.operator_norm is not None:
            params = generator.spectral_clip(params, settings.operator_norm)

        def averaged() -> Any:
            return jax.tree.map(lambda a, p: a + share(t) * (p - a), average, params)

        return params, opt, jax.lax.cond(share(t) > 0, averaged, lambda: average)

    return forward, backward


def _initial(session: Session, settings: Learning, problem: Problem) -> dict[str, np.ndarray]:
    size = session.mechanism.blocks + session.pseudo_blocks + (problem.index is not None)
    rng = session.randomness.public
    params = generator.initialise(size, problem.dim, settings.width, settings.depth, rng, xavier=settings.printed)
    if settings.printed:  # θ is the output itself, and not its distance from the centre
        reach = generator.reach_of(problem.radius, settings.slope)
        params[f"bias{settings.depth}"] -= (problem.center / problem.radius).astype(np.float32) * reach
    return params


def _state(params: Any, optimiser: Any) -> Any:
    """Parameters, the optimiser's memory, and the average."""
    params = jax.tree.map(jnp.asarray, params)
    return params, optimiser.init(params), jax.tree.map(jnp.copy, params)


def _packed(layout: Layout | None, state: Any) -> Any:
    return state if layout is None else layout.pack(state)


def _plain(layout: Layout | None, state: Any, steps: int) -> Any:
    """The state as `_state` begins it and checkpoints hold it."""
    return state if layout is None else layout.unpack(state, steps)


def _within(params: dict[str, Any], settings: Learning) -> dict[str, Any]:
    """Parameters of a generator whose kernels have the operator norm that the settings allow."""
    if settings.operator_norm is None:
        return params
    return generator.spectral_clip(params, settings.operator_norm, exactly=True)


def _unasked(second: Second, session: Session) -> tuple[np.ndarray, Any]:
    """The random key of the dither, and both answers of second moments as they are before anything is asked."""
    key = np.asarray(jax.random.key_data(jax.random.key(int(session.randomness.public.integers(2**63)))))
    before, after = (np.zeros(size, np.float32) for size in second.sizes)
    return key, {"before": before, "after": after}


def train(
    session: Session,
    settings: Learning = Learning(),
    *,
    problem: Problem | None = None,
    second: Second | None = None,
    joint: Joint | None = None,
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
    `begin` is called right before the first answer. With `second` and a `joint` problem, which is the session's, query
    points are dithered and second moments asked for; the transcript is then kept, and `problem` is what is estimated.
    Answers of second moments are part of the state: a run that goes on asks for none again that a checkpoint holds.
    """
    mechanism = session.mechanism
    problem = session.problem if problem is None else problem
    keep = keep_transcript or second is not None
    step, optimiser, layout = _make_step(
        problem, mechanism, settings, session.pseudo_blocks, keep, public_part, joint=joint
    )
    kept: list[dict[str, np.ndarray]] = []
    names: tuple[str, ...] = ("u", "index", "query", "answer") if keep else ()
    if second is not None:
        names = ("u", "query", "dither", "answer")
    net = _state(_initial(session, settings, problem), optimiser)
    moved: Any = {}
    moments: Any = {}
    levels = 1 if joint is None else joint.count
    if second is not None:
        key, moments = _unasked(second, session)
        moved = dither.start(problem, levels, Coordinates.of_box(np.ones(problem.dim)), key)
    if session.resumed is not None:
        session.randomness.public.bit_generator.state = dict(session.resumed.public)  # the start has drawn from it
    done = session.position.steps
    if checkpoint is not None and checkpoint.saved is None:
        checkpoint.save(session.position, (net, moved, moments), {}, total=mechanism.steps)
    elif checkpoint is not None and checkpoint.saved is not None:
        net, moved, moments = checkpoint.saved.state((net, moved, moments))
        if done:
            kept.append(checkpoint.saved.kept(names, done))
    if begin is not None:
        begin()
    if second is not None and not done:
        answer, where = second.before()
        moments["before"] = np.asarray(answer, np.float32)
        moved = dither.start(problem, len(moved["size"]), where, moved["key"])

    def joined() -> dict[str, np.ndarray]:
        return {k: np.concatenate([c[k] for c in kept]) for k in names if kept}

    def flat() -> dict[str, np.ndarray]:
        return {k: v.reshape(-1, *v.shape[2:]) for k, v in joined().items()}

    state = _packed(layout, net) if second is None else (_packed(layout, net), moved)
    for reached, latest, out in session.run(state, step):
        state = latest
        kept += [{k: np.asarray(v) for k, v in out.items()}] if keep else []
        last = reached == mechanism.steps
        if last and second is not None:
            moments["after"] = np.asarray(second.after(moments["before"], flat()), np.float32)
        if checkpoint is not None and checkpoint.due(last=last):
            now, dithers = (state, {}) if second is None else state
            saved = (_plain(layout, now, reached), dithers, moments)
            checkpoint.save(session.position, saved, joined(), total=mechanism.steps)
        if progress is not None:
            progress(reached, mechanism.steps)
    params, _, average = _plain(layout, state if second is None else state[0], mechanism.steps)
    params, average = (_within(tree, settings) for tree in (params, average))
    shift, scale = generator.input_map(problem, mechanism, session.pseudo_blocks, unit=settings.unit_weights)
    reach = generator.reach_of(problem.radius, settings.slope)
    both = tuple(np.asarray(moments[name]) for name in ("before", "after") if moments)
    return Trained(
        generator.export(params, reach), generator.export(average, reach), shift, scale,
        flat() if keep else None, both or None,
    )  # fmt: skip


def train_many(
    sessions: Sequence[Session],
    settings: Learning = Learning(),
    *,
    problem: Problem | None = None,
    seconds: Sequence[Second] | None = None,
    joint: Joint | None = None,
    public_part: PublicPart = None,
) -> list[Trained]:
    """Train several sessions of one problem and mechanism side by side: for replicates, on a GPU."""
    first = sessions[0]
    problem = first.problem if problem is None else problem
    step, optimiser, layout = _make_step(
        problem, first.mechanism, settings, first.pseudo_blocks, seconds is not None, public_part,
        alone=False, joint=joint,
    )  # fmt: skip
    initial = mapped(lambda session: _initial(session, settings, problem), sessions)
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *initial)
    state = jax.vmap(lambda p: _packed(layout, _state(p, optimiser)))(params)
    moments: Sequence[Any] = ()
    kept: list[Any] = []
    levels = 1 if joint is None else joint.count
    if seconds is not None:

        def asked(pair: tuple[Session, Second]) -> tuple[Any, Any]:
            key, found = _unasked(pair[1], pair[0])
            found["before"], where = pair[1].before()
            return dither.start(problem, levels, where, key), found

        pairs = list(zip(sessions, seconds, strict=True))
        dithers, moments = zip(asked(pairs[0]), *mapped(asked, pairs[1:], FEW), strict=True)  # the first one compiles
        state = (state, jax.tree.map(lambda *leaves: np.stack(leaves), *dithers))
    for _, latest, out in run_many(sessions, state, step):
        state = latest
        if seconds is not None:
            for part in out.values():
                part.copy_to_host_async()  # while the next chunk is computed
            kept.append(out)
    kept = [jax.device_get(part) for part in kept]
    net = state if seconds is None else state[0]
    params, _, average = jax.device_get(jax.vmap(lambda s: _plain(layout, s, first.mechanism.steps))(net))
    shift, scale = generator.input_map(problem, first.mechanism, first.pseudo_blocks, unit=settings.unit_weights)
    reach = generator.reach_of(problem.radius, settings.slope)

    def pick(tree: Any, i: int) -> dict[str, np.ndarray]:
        return generator.export(_within({k: v[i] for k, v in tree.items()}, settings), reach)

    def trained(i: int) -> Trained:
        transcript, both = None, None
        if seconds is not None:
            parts = {k: np.concatenate([c[k][i] for c in kept]) for k in kept[0]}
            transcript = {k: v.reshape(-1, *v.shape[2:]) for k, v in parts.items()}
            both = moments[i]["before"], np.asarray(seconds[i].after(moments[i]["before"], transcript))
        return Trained(pick(params, i), pick(average, i), shift, scale, transcript, both)

    return mapped(trained, range(len(sessions)), FEW)
