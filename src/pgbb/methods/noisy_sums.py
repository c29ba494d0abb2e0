"""One noisy sum of a model's statistics: all that the methods which post-process it ask of the records.

A mean has the sum of its column, a linear regression the sum of products (xxᵀ, xy, y²), a simulated model the mean
of the user's statistic. Which law they have under a parameter is in `simulators`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgbb._numerics import Floats
from pgbb.accountant import Composition, Mechanism, Own, compose
from pgbb.errors import InvalidValue
from pgbb.methods.request import Planned, Request, prepared
from pgbb.model.models import HuberRegression, LogisticRegression, Mean, Problem, Simulated
from pgbb.private.door import Moment, Randomness

MOST_SIMULATED = 80_000
"""Records times coefficients of a logistic regression, whose records are simulated."""
Served = Mean | HuberRegression | LogisticRegression | Simulated


@dataclass(frozen=True, eq=False)
class Answer:
    """What the records have said, and all that is public about it.

    Attributes:
      sums: noisy sums, each with the standard deviation of its Gaussian noise on each number.
      bound: half the range of the response around its shift; clip C of a simulated statistic.
      shift: of the response; public.
      notes: what a reader should know.
    """

    model: Served
    problem: Problem
    n: int
    sums: list[tuple[Floats, float]]
    bound: float
    shift: float
    planned: Planned
    randomness: Randomness
    notes: tuple[str, ...]

    @property
    def total(self) -> Floats:
        """The first sum; of a simulated model the noisy mean; of a regression with the response over its bound."""
        return self.sums[0][0]

    @property
    def noise(self) -> float:
        """τ, the standard deviation of the noise of `total`."""
        return self.sums[0][1]


def middle(problem: Problem) -> tuple[float, float]:
    """Middle and half of the declared range [a, b] of a mean: the sum of x less the middle has sensitivity b − a."""
    low, high = float(problem.settings["low"]), float(problem.settings["high"])
    return (low + high) / 2, (high - low) / 2


def question(request: Request, method: str, bound: float | None) -> tuple[Served, Problem, Moment | None, float]:
    """The model, its problem, the moment that is summed (None: the user's statistic) and the shift of the response.

    A response is clipped to the bound B_y around its shift: as given, or the largest that the schema allows.
    """
    request.refuse(method, weights="its likelihood counts every record once")
    model, problem = request.model, prepared(request.model, request.schema)
    if isinstance(model, HuberRegression):
        assert problem.design is not None
        largest = bound or max(abs(end - problem.shift) for end in problem.design.response_bounds)
        return model, problem, Moment("products", problem.dim - 1, largest, unit=largest), problem.shift
    assert isinstance(model, Mean | LogisticRegression | Simulated)  # the registry refuses the others
    if bound is not None:
        raise InvalidValue(
            f"response_bound = {bound!r} is not allowed for {type(model).__name__}: declare the column with a narrower "
            "Range instead."
        )
    if isinstance(model, LogisticRegression):  # the response 2y − 1
        return model, problem, Moment("products", problem.dim, 0.5, unit=0.5), 0.5
    if isinstance(model, Mean):
        shift, half = middle(problem)
        return model, problem, Moment("response", bound=half), shift
    return model, problem, None, 0.0


def plan_of(request: Request, method: str, n: int, bound: float | None) -> Planned:
    """What will be asked of n records, and at which noise: one answer over all records, with the whole budget."""
    model, problem, moment, _ = question(request, method, bound)
    if isinstance(model, LogisticRegression) and n * problem.dim > MOST_SIMULATED:
        raise InvalidValue(
            f"n = {n:,} records with {problem.dim} coefficients are too many for method = {method!r}, which simulates "
            f"them: n times coefficients may be {MOST_SIMULATED:,}. Take 'calibrated'. Nothing was asked."
        )
    target: Mechanism | Composition
    if moment is None:
        target = compose([Mechanism(n=n, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)])
    else:
        target = moment.describe(n)
    return request.calibrate(target)


def _law(model: Served, bound: float, shift: float) -> tuple[str, ...]:
    """Notes on what is assumed of the records."""
    if isinstance(model, Mean):
        missing = "A record with a missing cell counts as the middle of the public range."
        return (f"The model is taken as true: independent records with a {model.family} law. {missing}",)
    if isinstance(model, HuberRegression):
        return (
            "The model is taken as true: a linear regression with Gaussian errors; Huber's constants are not used, and "
            "'scale' is the standard deviation of the errors.",
            f"The response less {shift:g} is clipped to ±{bound:g}, taken to be beyond all responses. A record with a "
            "missing cell counts as zeros, which lowers 'scale'.",
        )
    if isinstance(model, LogisticRegression):
        return (
            "The model is taken as true: a logistic regression, and covariates that are normal on their mapped scale, "
            "with any mean and covariance, clamped to [−1, 1]. A record with a missing cell counts as zeros.",
        )
    return ("The simulator is taken as true. A record with a missing cell counts as a statistic of zeros.",)


def answered(
    request: Request,
    model: Served,
    problem: Problem,
    moments: Sequence[Moment],
    shift: float,
    notes: Sequence[str],
    plan: Callable[[int], Planned],
) -> Answer:
    """Load the records, ask them once for sums, and let go of them: all that follows is post-processing."""
    data = request.open(problem)
    planned, randomness = plan(data.n), Randomness.create(request.insecure_seed)
    assert not isinstance(planned.mechanism, Own)
    request.begin(planned)
    sums = data.moments(moments, planned.mechanism, planned.sigma, randomness, shift=shift)
    bound, said = moments[0].bound, (*notes, *planned.notes)
    return Answer(model, problem, data.n, sums, bound, shift, planned, randomness, said)


def ask(request: Request, method: str, bound: float | None = None) -> Answer:
    """The answer to the one question of a model."""
    model, problem, moment, shift = question(request, method, bound)

    def plan(n: int) -> Planned:
        return plan_of(request, method, n, bound)

    if moment is not None:
        return answered(request, model, problem, [moment], shift, _law(model, moment.bound, shift), plan)
    assert isinstance(model, Simulated)
    from pgbb.methods.simulators import scaled

    data = request.open(problem)
    planned, randomness = plan(data.n), Randomness.create(request.insecure_seed)
    assert isinstance(planned.mechanism, Composition)
    asked = data.sums(planned.mechanism, ["statistic"], planned.sigma, randomness)
    request.begin(planned)
    mean, sd = asked.ask("statistic", scaled(model))
    sums = [(mean * model.clip, sd * model.clip)]
    return Answer(model, problem, data.n, sums, model.clip, 0.0, planned, randomness, _law(model, model.clip, 0.0))
