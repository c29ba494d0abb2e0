"""Opens the session of a request: records are loaded and the mechanism is described, but nothing is asked."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgbb import _validate
from pgbb.accountant import Composition, Mechanism
from pgbb.methods.pgbb.all_levels import Joint
from pgbb.methods.pgbb.moment_answers import STAGE
from pgbb.methods.pgbb.settings import Settings, asked_of, plan, roomy
from pgbb.methods.request import Planned, Request
from pgbb.model.models import Problem
from pgbb.model.schema import Schema
from pgbb.private.door import Randomness, open_dataset, public_samples

if TYPE_CHECKING:
    from pgbb.methods.pgbb.posterior import SecondMoments


@dataclass(frozen=True, eq=False)
class Opened:
    """A session that is ready to answer, and what belongs to it.

    Attributes:
      session: gives T·K answers.
      planned: what is to be paid.
      problem: what is estimated, with its bound for so many records.
      joint, second: with noise-aware intervals, how answers are read, and who asks for second moments.
      public_part: the gradient of public pseudo-samples, if any.
    """

    session: Any
    planned: Planned
    problem: Problem
    joint: Joint | None
    second: "SecondMoments | None"
    public_part: Any


def open_for(request: Request, settings: Settings, problem: Problem) -> Opened:
    """Load the records and make ready to ask them; nothing is asked yet."""
    asked_of(request, settings, problem)  # refuses what is not served before anything is read
    data = open_dataset(request.data, problem, request.schema, request.weights, request.asked)
    request.advise(data.n)
    planned = plan(request, settings, data.n)
    problem = roomy(request, settings, problem, data.n)
    joint = asked_of(request, settings, problem)
    asked = problem if joint is None else joint.problem
    target = planned.mechanism
    mechanism = target.mechanisms[0] if isinstance(target, Composition) else target
    assert isinstance(mechanism, Mechanism)
    public_part, extra_blocks = None, 0
    if settings.pseudo is not None:
        public_part, extra_blocks = _pseudo_gradient(settings, problem, request.schema, mechanism)
    saved = None if request.checkpoint is None else request.checkpoint.saved
    position = None if saved is None else saved.position
    order = None if position is None or settings.reshuffle else position.order  # else partitions would come again
    randomness = Randomness.create(request.insecure_seed, order=order)
    second = None
    if joint is not None:
        from pgbb.methods.pgbb.posterior import SecondMoments

        assert isinstance(target, Composition)
        extra = Composition(target.mechanisms[1:], target.scales[1:])
        sums = data.sums(extra, [STAGE], planned.sigma, randomness, keep=True)
        second = SecondMoments(sums, problem, joint, mechanism, planned.sigma)
    session = data.session(
        mechanism, planned.sigma, randomness, problem=asked, pseudo_blocks=extra_blocks,
        reshuffle=settings.reshuffle, resume=position,
    )  # fmt: skip
    return Opened(session, planned, problem, joint, second, public_part)


def _pseudo_gradient(settings: Settings, problem: Problem, schema: Schema, mechanism: Mechanism) -> tuple[Any, int]:
    """q times the block-weighted gradient of public pseudo-samples (section S2.3.2), and their blocks."""
    samples = public_samples(settings.pseudo, problem, schema)
    count = min(mechanism.blocks, samples.n) if settings.pseudo_blocks is None else settings.pseudo_blocks
    count = _validate.integer("pseudo_blocks", count, low=1, high=samples.n)
    return samples.gradient(mechanism, count), count
