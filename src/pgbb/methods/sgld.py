"""DP-SGLD: stochastic gradient Langevin dynamics on noisy clipped gradients (paper, section S3.1).

Targets the tempered Gibbs posterior ∝ exp{−ω Σ l(θ, x_i)}. Every step asks the mechanism of `pgbb.private` once, with
constant weights; a grid of quantile levels is one chain a level, all under one budget.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

import numpy as np

from pgbb.accountant import Mechanism, compose
from pgbb.methods.clipped_means import cut_off
from pgbb.methods.constants import Checked, Count, Limits, Positive, Share
from pgbb.methods.effective_size import effective_sample_size, too_few
from pgbb.methods.request import Planned, Request, by_level, clipped
from pgbb.methods.run_state import Saved, Tree
from pgbb.model.models import Problem
from pgbb.private.door import Randomness
from pgbb.release.file import Release

if TYPE_CHECKING:
    from pgbb.private.door import Session, Step


@dataclass(frozen=True)
class Settings(Checked):
    """Constants of the chain; the defaults reproduce the printed widths of the paper's regression.

    Args:
      steps: T, Langevin updates of each chain.
      sampling_rate: q.
      tempering: ω, the power of the loss likelihood.
      step_size: η₀n; step t has η_t = η₀ t^(−1/3).
      burn_in: share of each chain that is dropped.
      thin: keep every `thin`-th draw.
      clip: C, to which each record's gradient is clipped; default the largest norm that it can have.
    """

    steps: Annotated[int, Limits(low=2)] = 20_000
    sampling_rate: Annotated[float, Limits(above=0, high=1)] = 0.1
    tempering: Positive = 1.0
    step_size: Positive = 20.0
    burn_in: Share = 0.5
    thin: Count = 1
    clip: Positive | None = None


@lru_cache(maxsize=32)
def _make_step(problem: Problem, mechanism: Mechanism, settings: Settings) -> "Step":
    """θ ← θ − (η_t/2) ω ĝ + √η_t ξ with ĝ = n·answer/q, the scale of a Huber regression on its logarithm.

    The answer is (Σ_{i∈B} clip ∇l_i + noise)/n, so ĝ estimates the gradient of the whole sum. θ stays in the box.
    """
    import jax
    import jax.numpy as jnp

    from pgbb.private.door import Step

    n, q = mechanism.n, mechanism.sampling_rate
    low = jnp.asarray(problem.center - problem.radius, jnp.float32)
    high = jnp.asarray(problem.center + problem.radius, jnp.float32)
    logged = problem.kind == "huber"

    def query(state: tuple[jax.Array, jax.Array], draw: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        return state[0][None], None

    def update(
        state: tuple[jax.Array, jax.Array], draw: dict[str, jax.Array], _: None, answers: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        theta, key = state
        key, fresh = jax.random.split(key)
        eta = settings.step_size / n * (draw["t"].astype(theta.dtype) + 1.0) ** (-1 / 3)
        total = answers[0] * (n / q)
        noise = jnp.sqrt(eta) * jax.random.normal(fresh, theta.shape, theta.dtype)
        pull = 0.5 * eta * settings.tempering
        moved = theta - pull * total + noise
        if logged:  # chain rule: the gradient in log σ is σ times that in σ
            moved = moved.at[-1].set(theta[-1] * jnp.exp(-pull * theta[-1] * total[-1] + noise[-1]))
        theta = jnp.clip(moved, low, high)
        return (theta, key), theta

    return Step(query, update)


def _problems(request: Request, settings: Settings) -> tuple[list[Problem], list[float] | None]:
    """A problem for each level, with the gradient bound of the settings, and the levels."""
    problems, levels = by_level(request.model, request.schema)
    return [clipped(problem, settings.clip) for problem in problems], levels


def _mechanisms(problems: list[Problem], settings: Settings, n: int) -> list[Mechanism]:
    """The mechanism of each chain."""
    return [
        Mechanism(n=n, blocks=1, sampling_rate=settings.sampling_rate, steps=settings.steps, clip=p.clip)
        for p in problems
    ]


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise; several chains have one noise multiplier."""
    members = _mechanisms(_problems(request, settings)[0], settings, n)
    return request.calibrate(members[0] if len(members) == 1 else compose(members, scales=[m.clip for m in members]))


def run(request: Request, settings: Settings) -> Release:
    """Fit by DP-SGLD; several quantile levels share one budget, composed before anything is spent.

    Certified like every release: T noisy sums a level, with the same noise multiplier σ/C for all. The effective sample
    size is stored, and a chain with fewer than 100 effective draws is noted in the certificate and warned about.
    """
    return run_many([request], settings)[0]


def run_many(requests: Sequence[Request], settings: Settings) -> list[Release]:
    """Fit data sets of one size, model and budget, with their chains side by side on the device: for replicates."""
    first = requests[0]
    problems, levels = _problems(first, settings)
    loaded = [request.open(problems[0]) for request in requests]
    mechanisms = _mechanisms(problems, settings, loaded[0].n)
    planned = plan(first, settings, loaded[0].n)
    streams = [Randomness.create(r.insecure_seed) for r in requests]
    checkpoint, steps, total = first.checkpoint, settings.steps, len(problems) * settings.steps
    saved = None if checkpoint is None else checkpoint.saved
    chains: list[np.ndarray] = []  # (data sets, steps, d) each
    for i, (problem, mechanism) in enumerate(zip(problems, mechanisms, strict=True)):
        if saved is not None and i < saved.stage:
            chains.append(_kept(saved, i, steps))
            continue
        here = saved if saved is not None and i == saved.stage else None
        noise = planned.sigma if len(mechanisms) == 1 else planned.sigma * mechanism.clip
        sessions = [
            data.session(
                mechanism, noise, stream, problem=problem, keep=i < len(problems) - 1,
                resume=None if here is None else here.position,
            )
            for data, stream in zip(loaded, streams, strict=True)
        ]  # fmt: skip
        state, draws = _start(problem, streams), list[np.ndarray]()
        if here is not None:
            streams[0].public.bit_generator.state = dict(here.position.public)  # a key was drawn for the template
            state = here.state(state)
            draws += [_kept(here, i, here.position.steps)] if here.position.steps else []
        elif checkpoint is not None and i == 0:
            checkpoint.save(sessions[0].position, state, {}, total=total)
        if i == (0 if saved is None else saved.stage):
            for request in requests:
                request.begin(planned)
        for done, latest, out in _chunks(sessions, state, _make_step(problem, mechanism, settings)):
            draws.append(out)
            if checkpoint is not None and checkpoint.due(last=i * steps + done == total):
                every = [*chains, np.concatenate(draws, axis=1)]
                kept = {f"draws{j}": chain[0] for j, chain in enumerate(every)}
                checkpoint.save(sessions[0].position, latest, kept, total=total, stage=i, before=i * steps)
            first.report(i * steps + done, total)
        chains.append(np.concatenate(draws, axis=1))
    thinned = [chain[:, int(settings.burn_in * steps) :: settings.thin] for chain in chains]
    return [
        _released(request, planned, stream.source, levels, [chain[j] for chain in thinned], problems[0])
        for j, (request, stream) in enumerate(zip(requests, streams, strict=True))
    ]


def _kept(saved: Saved, level: int, steps: int) -> np.ndarray:
    """The first steps of a chain in a checkpoint, (1, steps, d)."""
    name = f"draws{level}"
    return saved.kept([name], steps)[name][None]


def _start(problem: Problem, streams: Sequence[Randomness]) -> Tree:
    """θ at the centre of the box and a key for the noise of the chain; side by side for several data sets."""
    import jax
    import jax.numpy as jnp

    keys = [jax.random.key(int(stream.public.integers(2**63))) for stream in streams]
    start = jnp.asarray(problem.center, jnp.float32)
    return (start, keys[0]) if len(keys) == 1 else (jnp.tile(start, (len(keys), 1)), jnp.stack(keys))


def _chunks(sessions: "Sequence[Session]", state: Tree, step: "Step") -> Iterator[tuple[int, Tree, np.ndarray]]:
    """Run the sessions. After each chunk: steps done, the state, and the draws of the chunk, (data sets, steps, d)."""
    from pgbb.private.door import run_many

    if len(sessions) > 1:
        for done, latest, out in run_many(sessions, state, step):
            yield done, latest, np.asarray(out)
        return
    for done, latest, out in sessions[0].run(state, step):
        yield done, latest, np.asarray(out)[None]


def _released(
    request: Request,
    planned: Planned,
    source: str,
    levels: list[float] | None,
    chains: list[np.ndarray],
    problem: Problem,
) -> Release:
    """The release of stored chains, one a level."""
    sizes = [effective_sample_size(chain.astype(np.float64)) for chain in chains]
    note = "Chains of DP-SGLD: intervals target the tempered Gibbs posterior, and widen with the privacy noise."
    notes = [note, *too_few(sizes), *cut_off(problem, chains[0])]
    found = {"effective_sample_size": [s.tolist() for s in sizes]}
    return request.release_draws("sgld", planned, source, chains, notes, found, levels)
