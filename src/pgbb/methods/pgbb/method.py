"""The printed method: Algorithm 1 (one target) and Algorithm 2 (jointly over an index), with a neural generator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pgbb import _validate
from pgbb._numerics.threads import mapped
from pgbb.accountant import Mechanism, noise_scale
from pgbb.errors import InvalidValue
from pgbb.methods.position import position_of_first
from pgbb.methods.request import Planned, Request, prepared
from pgbb.model.models import Problem
from pgbb.model.schema import Schema
from pgbb.private.door import Randomness, open_dataset, public_samples
from pgbb.release.file import Release
from pgbb.release.payloads import Payload, summary_of

__all__ = ["Settings", "plan", "run", "run_many"]


PARTIAL = (
    "Intervals are those of the printed algorithm: they carry only part of the privacy noise, and can be too narrow."
)


@dataclass(frozen=True)
class Settings:
    """Constants of Algorithms 1 and 2. None means a rule on public quantities.

    Args:
      blocks: S; default 5 (constant weights below 100 records). More blocks follow the bootstrap law more
        closely where there is little noise, and learn it worse where there is much.
      steps, draws_per_step: T and K. The noise grows with √(T·K): more is not better.
      sampling_rate: q; default the rate that gives batches of about 1,000 records, at least .01.
      gamma: Dirichlet concentration; default γ*(n, S).
      learning_rate: of Adam, decaying by a cosine.
      slope: how far θ moves with the output of the network at the centre of the box: 1 for the paper's linear output;
        by default 1/20 of the distance from the centre of the box to its side, which suits any units.
      iterate: which generator `sample` uses: the "average" of the later iterates, or the "last". Both are stored.
      average_from: the share of steps after which iterates are averaged: about 500 of them at equal distances, for
        neighbours are alike.
      operator_norm: bound on the operator norm of the generator's kernels, or None.
      pseudo, pseudo_blocks, alpha: public pseudo-samples from F_base, their blocks and Dirichlet mass.
      reshuffle: a fresh partition for every answer; γ* is not calibrated for this variant.
      keep_transcript: also store the noisy answers, which are as private as the rest.
    """

    blocks: int | None = None
    steps: int = 5_000
    draws_per_step: int = 4
    sampling_rate: float | None = None
    gamma: float | None = None
    learning_rate: float = 1e-3
    slope: float | None = None
    iterate: Literal["average", "last"] = "average"
    average_from: float = 0.5
    operator_norm: float | None = None
    pseudo: Any = None
    pseudo_blocks: int | None = None
    alpha: float = 0.0
    reshuffle: bool = False
    keep_transcript: bool = False

    def __post_init__(self) -> None:
        _validate.one_of("iterate", self.iterate, ("average", "last"))
        _validate.number("learning_rate", self.learning_rate, above=0)
        _validate.number("average_from", self.average_from, low=0, below=1)
        _validate.number("alpha", self.alpha, low=0)
        if self.slope is not None:
            _validate.number("slope", self.slope, above=0)
        if self.operator_norm is not None:
            _validate.number("operator_norm", self.operator_norm, above=0)
        if (self.alpha > 0) != (self.pseudo is not None):
            raise InvalidValue(
                f"alpha = {self.alpha!r} with pseudo = {'given' if self.pseudo is not None else None} is not allowed: "
                "pseudo-samples and their Dirichlet mass alpha > 0 go together."
            )

    def describe(self, n: int, clip: float) -> Mechanism:
        """The mechanism on n records whose statistics are bounded by `clip`."""
        return Mechanism(
            n=n,
            blocks=(5 if n >= 100 else 1) if self.blocks is None else self.blocks,
            gamma=self.gamma,
            alpha=self.alpha,
            sampling_rate=min(1.0, max(0.01, 1000 / n)) if self.sampling_rate is None else self.sampling_rate,
            steps=self.steps,
            draws_per_step=self.draws_per_step,
            clip=clip,
        )


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise."""
    mechanism = settings.describe(n, prepared(request.model, request.schema).clip)
    if request.non_private:
        return Planned(mechanism, 0.0)
    return Planned(mechanism, noise_scale(mechanism, request.epsilon, request.delta, request.accountant))


def run(request: Request, settings: Settings) -> Release:
    """Train the generator under the budget and pack it."""
    from pgbb.methods.pgbb import training  # JAX is needed from here on

    session, public_part, planned = _open(request, settings, prepared(request.model, request.schema))
    trained = training.train(
        session,
        _learning(settings),
        public_part=public_part,
        keep_transcript=settings.keep_transcript,
        progress=request.progress,
        checkpoint=request.checkpoint,
        begin=lambda: request.begin(planned),
    )
    return _packed(request, settings, session, trained)


def run_many(requests: Sequence[Request], settings: Settings) -> list[Release]:
    """The same for data sets of one size, model and budget, trained side by side on the device: for replicates."""
    if len(requests) == 1:
        return [run(requests[0], settings)]
    from pgbb.methods.pgbb import training

    if settings.keep_transcript:
        raise InvalidValue("keep_transcript = True is not allowed for fits side by side: fit one data set at a time.")
    problem = prepared(requests[0].model, requests[0].schema)
    opened = [_open(requests[0], settings, problem)]  # which finds the noise scale for all
    opened += mapped(lambda request: _open(request, settings, problem), requests[1:])
    for request, (_, _, planned) in zip(requests, opened, strict=True):
        request.begin(planned)
    sessions = [session for session, _, _ in opened]
    trained = training.train_many(sessions, _learning(settings), public_part=opened[0][1])
    return [_packed(r, settings, s, t) for r, s, t in zip(requests, sessions, trained, strict=True)]


def _open(request: Request, settings: Settings, problem: Problem) -> tuple[Any, Any, Planned]:
    """A session that is ready to answer, the gradient of public pseudo-samples, if any, and what is to be paid."""
    together = request.together
    data = open_dataset(request.data, problem, request.schema, request.weights, together, copies=2)
    request.advise(data.n)
    planned = plan(request, settings, data.n)
    mechanism = settings.describe(data.n, problem.clip)
    public_part, extra_blocks = None, 0
    if settings.pseudo is not None:
        public_part, extra_blocks = _pseudo_gradient(settings, problem, request.schema, mechanism)
    saved = None if request.checkpoint is None else request.checkpoint.saved
    position = None if saved is None else saved.position
    if together is not None:
        position = position_of_first(together, position)
    order = None if position is None or settings.reshuffle else position.order  # else partitions would come again
    session = data.session(
        mechanism, planned.sigma, Randomness.create(request.insecure_seed, order=order, together=together),
        pseudo_blocks=extra_blocks, reshuffle=settings.reshuffle, resume=position,
    )  # fmt: skip
    return session, public_part, planned


def _learning(settings: Settings) -> Any:
    from pgbb.methods.pgbb import training

    return training.Learning(
        learning_rate=settings.learning_rate,
        slope=settings.slope,
        average_from=settings.average_from,
        operator_norm=settings.operator_norm,
    )


def _packed(request: Request, settings: Settings, session: Any, trained: Any) -> Release:
    """The release of a trained generator."""
    problem, mechanism = session.problem, session.mechanism
    tensors = {f"average/{k}": v for k, v in trained.average.items()} | {
        f"last/{k}": v for k, v in trained.last.items()
    }
    tensors |= {
        "input_shift": trained.input_shift,
        "input_scale": trained.input_scale,
        "center": problem.center.astype(np.float32),
        "radius": problem.radius.astype(np.float32),
    }
    if trained.transcript is not None:
        tensors |= {f"transcript/{k}": v for k, v in trained.transcript.items()}
    notes = [] if request.non_private else [PARTIAL]
    if settings.reshuffle:
        notes.append("The partition was reshuffled for every answer; γ* is not calibrated for this variant.")
    return Release(
        model=summary_of(problem),
        schema=request.schema.to_dict(),
        certificate=request.certify(mechanism, session.sigma, session.randomness.source, notes),
        payload=Payload(
            kind="generator",
            settings={
                "blocks": mechanism.blocks,
                "pseudo_blocks": session.pseudo_blocks,
                "concentration": None if mechanism.blocks == 1 else mechanism.concentration,
                "alpha": mechanism.alpha,
                "index": problem.index is not None,
                "default_iterate": settings.iterate,
            },
            tensors=tensors,
        ),
    )


def _pseudo_gradient(settings: Settings, problem: Problem, schema: Schema, mechanism: Mechanism) -> tuple[Any, int]:
    """q times the block-weighted gradient of public pseudo-samples (SM `app:pseudo-sample-alpha`), and their blocks."""
    samples = public_samples(settings.pseudo, problem, schema)
    count = min(mechanism.blocks, samples.n) if settings.pseudo_blocks is None else settings.pseudo_blocks
    count = _validate.integer("pseudo_blocks", count, low=1, high=samples.n)
    return samples.gradient(mechanism, count), count
