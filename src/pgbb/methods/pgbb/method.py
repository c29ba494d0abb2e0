"""Algorithm 1 (one target) and Algorithm 2 (jointly over an index), with a neural generator.

By default what is released are noise-aware draws: a local posterior from the answers that the generator was trained
with (`noise_aware`). `intervals="printed"` releases the generator itself, as the paper does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pgbb import _validate
from pgbb._numerics.threads import mapped
from pgbb.accountant import Composition, Mechanism, noise_scale
from pgbb.errors import InvalidValue
from pgbb.methods.calibrated.method import levels_of
from pgbb.methods.pgbb.joint import Joint, joint_of
from pgbb.methods.pgbb.moments import STAGE, with_moments
from pgbb.methods.position import position_of_first
from pgbb.methods.request import Planned, Request, prepared
from pgbb.model.models import Problem
from pgbb.model.schema import Schema
from pgbb.private.door import Randomness, open_dataset, public_samples
from pgbb.release.file import Release
from pgbb.release.payloads import Payload, summary_of

if TYPE_CHECKING:
    from pgbb.methods.pgbb.second import SecondMoments

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
      keep_transcript: also store the noisy answers, which are as private as the rest; with printed intervals.
      intervals: "noise-aware", a local posterior that carries the sampling error and the privacy noise; or "printed",
        the generator of the paper, whose draws carry only part of that noise. By default noise-aware where that is
        served: not for a custom loss with an index, pseudo-samples, a kept transcript, a run without noise, or an
        accountant of the paper, which does not cover answers over all records.
      knots: levels asked for when the model has an interval of τ, with noise-aware intervals.
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
    intervals: Literal["noise-aware", "printed"] | None = None
    knots: int = 9

    def __post_init__(self) -> None:
        if self.intervals is not None:
            _validate.one_of("intervals", self.intervals, ("noise-aware", "printed"))
        _validate.integer("knots", self.knots, low=3, high=33)
        _validate.one_of("iterate", self.iterate, ("average", "last"))
        if self.blocks == 2 and self.gamma is None:
            raise InvalidValue(
                "blocks = 2 with gamma = None is not allowed: γ*(n, S) needs blocks ≥ 3. Take more blocks, blocks = 1 "
                "for constant weights, or pass gamma > 0 yourself."
            )
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

    def target(self, mechanism: Mechanism, *, aware: bool) -> Mechanism | Composition:
        """All that is asked of the records: what is certified, planned and run."""
        return with_moments(mechanism) if aware else mechanism

    def serves(self, accountant: str, *, pseudo: bool = False, non_private: bool = False, index: bool = False) -> bool:
        """Whether intervals are noise-aware; an error where that was asked for and is not served.

        `index` is that of a custom loss.
        """
        obstacles = {
            "a custom loss with an index": index,
            "pseudo-samples": pseudo,
            "keep_transcript = True": self.keep_transcript,
            "non_private = True": non_private,
            f"accountant = {accountant!r}": accountant != "exact",
        }
        met = [name for name, there in obstacles.items() if there]
        if met and self.intervals == "noise-aware":
            raise InvalidValue(
                f"intervals = 'noise-aware' with {met[0]} is not allowed: leave that out, or write intervals='printed'."
            )
        return not met and self.intervals != "printed"


def asked_of(request: Request, settings: Settings, problem: Problem) -> Joint | None:
    """What the mechanism is asked about with noise-aware intervals; None with printed ones."""
    index = problem.index is not None and problem.kind != "quantile"
    pseudo = settings.pseudo is not None
    if not settings.serves(request.accountant, pseudo=pseudo, non_private=request.non_private, index=index):
        return None
    levels = levels_of(problem, settings.knots)
    return joint_of(problem, None if levels is None else tuple(levels.tolist()))


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise."""
    problem = prepared(request.model, request.schema)
    joint = asked_of(request, settings, problem)
    clip = problem.clip if joint is None else joint.problem.clip
    target = settings.target(settings.describe(n, clip), aware=joint is not None)
    if request.non_private:
        return Planned(target, 0.0)
    return Planned(target, noise_scale(target, request.epsilon, request.delta, request.accountant))


def run(request: Request, settings: Settings) -> Release:
    """Train the generator under the budget and pack what is drawn from."""
    from pgbb.methods.pgbb import training  # JAX is needed from here on

    problem = prepared(request.model, request.schema)
    opened = _open(request, settings, problem)
    trained = training.train(
        opened.session,
        _learning(settings),
        problem=problem,
        second=opened.second,
        joint=opened.joint,
        public_part=opened.public_part,
        keep_transcript=settings.keep_transcript,
        progress=request.progress,
        checkpoint=request.checkpoint,
        begin=lambda: request.begin(opened.planned),
    )
    return _packed(request, settings, problem, opened, trained)


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
    for request, one in zip(requests, opened, strict=True):
        request.begin(one.planned)
    seconds = [one.second for one in opened if one.second is not None]
    trained = training.train_many(
        [one.session for one in opened],
        _learning(settings),
        problem=problem,
        seconds=seconds or None,
        joint=opened[0].joint,
        public_part=opened[0].public_part,
    )
    return [_packed(r, settings, problem, o, t) for r, o, t in zip(requests, opened, trained, strict=True)]


@dataclass(frozen=True, eq=False)
class _Opened:
    """A session that is ready to answer, and what belongs to it.

    Attributes:
      session: gives T·K answers.
      planned: what is to be paid.
      joint, second: with noise-aware intervals, how answers are read, and who asks for second moments.
      public_part: the gradient of public pseudo-samples, if any.
    """

    session: Any
    planned: Planned
    joint: Joint | None
    second: "SecondMoments | None"
    public_part: Any


def _open(request: Request, settings: Settings, problem: Problem) -> _Opened:
    joint = asked_of(request, settings, problem)
    together = request.together
    copies = 2 if joint is None else 3
    data = open_dataset(request.data, problem, request.schema, request.weights, together, copies=copies)
    request.advise(data.n)
    planned = plan(request, settings, data.n)
    asked = problem if joint is None else joint.problem
    mechanism = settings.describe(data.n, asked.clip)
    public_part, extra_blocks = None, 0
    if settings.pseudo is not None:
        public_part, extra_blocks = _pseudo_gradient(settings, problem, request.schema, mechanism)
    saved = None if request.checkpoint is None else request.checkpoint.saved
    position = None if saved is None else saved.position
    if together is not None:
        position = position_of_first(together, position)
    order = None if position is None or settings.reshuffle else position.order  # else partitions would come again
    randomness = Randomness.create(request.insecure_seed, order=order, together=together)
    second = None
    if joint is not None:
        from pgbb.methods.pgbb.second import SecondMoments

        target = planned.mechanism
        assert isinstance(target, Composition) and target.mechanisms[0] == mechanism
        extra = Composition(target.mechanisms[1:], target.scales[1:])
        sums = data.sums(extra, [STAGE], planned.sigma, randomness, keep=True)
        second = SecondMoments(sums, problem, joint, mechanism, planned.sigma)
    session = data.session(
        mechanism, planned.sigma, randomness, problem=asked, pseudo_blocks=extra_blocks,
        reshuffle=settings.reshuffle, resume=position,
    )  # fmt: skip
    return _Opened(session, planned, joint, second, public_part)


def _learning(settings: Settings) -> Any:
    from pgbb.methods.pgbb import training

    return training.Learning(
        learning_rate=settings.learning_rate,
        slope=settings.slope,
        average_from=settings.average_from,
        operator_norm=settings.operator_norm,
    )


def _packed(request: Request, settings: Settings, problem: Problem, opened: _Opened, trained: Any) -> Release:
    """The release of a training."""
    session, planned, second = opened.session, opened.planned, opened.second
    notes = [] if request.non_private else [PARTIAL]
    payload, diagnostics = None, None
    if second is not None:
        posterior, diagnostics, notes = second.posterior(trained.moments, trained.transcript)
        kept_settings, tensors = posterior.to_tensors()
        payload = Payload(kind="local", settings=kept_settings, tensors=tensors)
    if settings.reshuffle:
        notes.append("The partition was reshuffled for every answer; γ* is not calibrated for this variant.")
    return Release(
        model=summary_of(problem),
        schema=request.schema.to_dict(),
        certificate=request.certify(planned.mechanism, planned.sigma, session.randomness.source, notes),
        payload=_generator(settings, session, trained) if payload is None else payload,
        diagnostics=diagnostics,
    )


def _generator(settings: Settings, session: Any, trained: Any) -> Payload:
    """The generator, as the paper releases it."""
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
    return Payload(
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
    )


def _pseudo_gradient(settings: Settings, problem: Problem, schema: Schema, mechanism: Mechanism) -> tuple[Any, int]:
    """q times the block-weighted gradient of public pseudo-samples (SM `app:pseudo-sample-alpha`), and their blocks."""
    samples = public_samples(settings.pseudo, problem, schema)
    count = min(mechanism.blocks, samples.n) if settings.pseudo_blocks is None else settings.pseudo_blocks
    count = _validate.integer("pseudo_blocks", count, low=1, high=samples.n)
    return samples.gradient(mechanism, count), count
