"""A session: one run of a mechanism of Poisson batches on one set of records.

A `Session` holds records and takes a `Step` from outside: points to ask about, and what to do with the K answers
s̃ = Σ_{i∈B} w̄_i ∇l(θ, x_i) + N(0, σ²I); T·K of them in all. The `Mechanism` that the accountant certifies is the object
that this code runs: blocks, concentration, rate, steps, draws and clip are read from it. Everything random is drawn
by `draws`, a chunk of steps ahead; `loop` computes the sums and adds the noise.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from pgbb._numerics.threads import mapped
from pgbb.accountant import Mechanism
from pgbb.errors import PgbbError
from pgbb.model.problem import Problem
from pgbb.private import loop
from pgbb.private.device_layout import Data, place
from pgbb.private.loop import Inputs, Step, Tree
from pgbb.private.loop_on_workers import asked_elsewhere
from pgbb.private.poisson import MULTIPLE, buffer_size
from pgbb.private.randomness import Position, Randomness
from pgbb.private.step_randomness import Draws, Who

if TYPE_CHECKING:
    from pgbb.engine.protocol import Engine
    from pgbb.private.records import Records  # needs pandas, which a machine that only trains may lack

__all__ = ["Session", "Step", "run_many"]

Chunk: TypeAlias = tuple[int, Tree, Tree]
"""Steps done, the state after them, and the stacked outputs of the last of them."""

_CLIPS = (1e-12, 1e12)  # outside, squares and noise would leave single precision
_CHUNK_CELLS = 2**21  # batch positions drawn ahead at once
_ROWS = 2**24  # most rows of a batch, so that low parts add up in 32 bits


class Session:
    """One run of a mechanism on one set of records: T·K answers at noise σ, and no more.

    Holds the records out of sight; with `consume` it takes their memory over instead of a copy. What is public about
    it: `problem`, `mechanism`, `sigma`, `pseudo_blocks`, `reshuffle` and `randomness.public`. With `resume` it gives
    only the answers that are left after that position, with the u of the run that reached it, and batches and noise of
    its own.

    On a CPU, the members of a batch are drawn on the host and their rows gathered.
    On other devices batches are drawn there (`device_batches`, see `poisson_on_device`): a keystream that is keyed
    afresh for every answer decides for each record whether it joins. Records that are `elsewhere` are an engine's,
    whose workers draw who of theirs joins; the bits are those of a CPU that holds them all.
    """

    def __init__(
        self,
        records: "Records | Engine",
        problem: Problem,
        mechanism: Mechanism,
        sigma: float,
        randomness: Randomness,
        *,
        elsewhere: bool = False,
        pseudo_blocks: int = 0,
        reshuffle: bool = False,
        consume: bool = False,
        device_batches: bool | None = None,
        resume: Position | None = None,
    ) -> None:
        _check(records.n, problem, mechanism, pseudo_blocks, elsewhere=elsewhere)
        self.problem, self.mechanism, self.sigma = problem, mechanism, sigma
        self.randomness, self.pseudo_blocks, self.reshuffle = randomness, pseudo_blocks, reshuffle
        fits = mechanism.n <= _ROWS and not reshuffle and not elsewhere and mechanism.nested is None
        on_device = fits and (jax.default_backend() != "cpu" if device_batches is None else device_batches)
        rate = 1.0 if on_device else mechanism.sampling_rate
        if (rows := buffer_size(mechanism.n, rate)) > _ROWS and not elsewhere:
            raise PgbbError(
                f"batches of up to {rows:,} records are too large: their exact sum is proved to fit up to {_ROWS:,}. "
                'Take a smaller sampling rate, or method="calibrated".'
            )
        kind: Who = "elsewhere" if elsewhere else "device" if on_device else "here"
        self._draws = Draws(problem, mechanism, sigma, randomness, pseudo_blocks, reshuffle, kind)
        if resume is not None:
            if resume.steps > mechanism.steps:
                raise PgbbError(f"a run of {mechanism.steps:,} steps cannot go on after step {resume.steps:,}.")
            randomness.public.bit_generator.state = dict(resume.public)
        self._resume, self._reached = resume, resume
        self._spent = False
        if elsewhere:
            self._data: Data | Engine = cast("Engine", records)
            return
        self._data = place(
            cast("Records", records), problem.shift, randomness.secret if on_device else None, consume=consume
        )
        if on_device and (extra := -mechanism.n % MULTIPLE):
            self._data = replace(self._data, rows=jnp.pad(self._data.rows, ((0, extra), (0, 0))))

    @property
    def resumed(self) -> Position | None:
        """The position from which the run resumes; None for a run from the start."""
        return self._resume

    @property
    def position(self) -> Position:
        """Where the run stands, after the last chunk that it has yielded."""
        if self._reached is not None:
            return self._reached
        return Position(0, _chunk([self]), self.randomness.public.bit_generator.state, self.randomness.order)

    def run(self, state: Tree, step: Step, *, chunk: int | None = None) -> Iterator[Chunk]:
        """Run the steps that are left; yields (steps done, state, stacked outputs of a chunk). A session runs once."""
        return _drive([self], state, step, chunk, many=False)


def _check(n: int, problem: Problem, mechanism: Mechanism, pseudo_blocks: int, *, elsewhere: bool = False) -> None:
    """Refuse what is not certified for these n records and this problem, or cannot be computed as it is proved."""
    if n != mechanism.n:
        raise PgbbError(f"the mechanism is described for n = {mechanism.n} records, but {n} were loaded.")
    if n >= 2**31 and not elsewhere:
        raise PgbbError(f"{n:,} records are too many for one process: their numbers have 31 bits. Take a cluster.")
    if elsewhere and mechanism.nested is not None:
        raise PgbbError("nested weights are drawn in one process: leave out `nested`, or the cluster.")
    if (mechanism.alpha > 0) != (pseudo_blocks > 0):
        raise PgbbError(
            f"alpha = {mechanism.alpha:g} with {pseudo_blocks} blocks of pseudo-samples is not what is certified: "
            "mass and blocks go together."
        )
    if mechanism.clip < problem.clip:
        raise PgbbError(f"the mechanism certifies C = {mechanism.clip:g}, but the model clips at {problem.clip:g}.")
    if not _CLIPS[0] <= problem.clip <= _CLIPS[1]:
        raise PgbbError(
            f"C = {problem.clip:g} is outside [{_CLIPS[0]:g}, {_CLIPS[1]:g}], where single precision could neither "
            "clip nor carry the noise. Change the unit of the response or the loss."
        )


def run_many(sessions: Sequence[Session], state: Tree, step: Step, *, chunk: int | None = None) -> Iterator[Chunk]:
    """Run sessions that share problem, mechanism and σ side by side (`vmap`); state and outputs have a leading axis."""
    return _drive(list(sessions), state, step, chunk, many=True)


def _chunk(sessions: list[Session]) -> int:
    """How many steps are drawn at once: 500, or what fits into memory."""
    first = sessions[0]
    if first._resume is not None:
        return first._resume.chunk
    m = first.mechanism
    cells = m.blocks if first._draws.batches == "device" else buffer_size(m.n, m.sampling_rate)
    return max(1, min(500, _CHUNK_CELLS // (cells * m.draws_per_step * len(sessions))))


def _drive(sessions: list[Session], state: Tree, step: Step, chunk: int | None, *, many: bool) -> Iterator[Chunk]:
    """Run one session, or several side by side, by chunks; the next chunk is drawn while one is computed."""
    first = sessions[0]
    m, problem = first.mechanism, first.problem
    for session in sessions:
        if session._spent:
            raise PgbbError("this session has already given its answers; a second run would not be covered.")
        if session.mechanism != m or session.problem is not problem:
            raise PgbbError("sessions run side by side must share one problem and one mechanism.")
        if session._resume is not None and many:
            raise PgbbError("sessions run side by side begin at the first step.")
        if session._draws.batches == "elsewhere" and many:
            raise PgbbError("sessions about records of a cluster run one at a time.")
        session._spent = True
    chunk = chunk or _chunk(sessions)
    elsewhere = first._draws.batches == "elsewhere"
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[s._data for s in sessions]) if many else first._data
    grid = jnp.asarray([s._draws.grid for s in sessions] if many else first._draws.grid, jnp.float32)
    starts = list(range(first._resume.steps if first._resume else 0, m.steps, chunk))

    def draw(start: int) -> tuple[Inputs, list[Position]]:
        done = min(start + chunk, m.steps)
        drawn = mapped(lambda session: session._draws.draw(done - start, start), sessions)
        inputs = jax.tree.map(lambda *parts: np.stack(parts) if many else parts[0], *drawn)
        reached = [Position(done, chunk, s.randomness.public.bit_generator.state, s.randomness.order) for s in sessions]
        return inputs if elsewhere else jax.device_put(inputs, may_alias=True), reached

    with ThreadPoolExecutor(max_workers=1) as drawing:  # the next chunk is drawn while this one runs
        ahead = drawing.submit(draw, starts[0]) if starts else None
        for i, start in enumerate(starts):
            assert ahead is not None
            inputs, positions = ahead.result()
            if i + 1 < len(starts):
                ahead = drawing.submit(draw, starts[i + 1])
            if elsewhere:
                state, out = asked_elsewhere(state, cast("Engine", data), grid, inputs, problem, m, step)
            else:
                run = loop.run_many if many else loop.run_one
                state, out = run(state, data, grid, inputs, problem, m, step)
            jax.block_until_ready(state)  # type: ignore[no-untyped-call]
            for session, position in zip(sessions, positions, strict=True):
                session._reached = position
            yield min(start + chunk, m.steps), state, out
