"""One noisy sum of a model's statistics, asked once: all that the methods which post-process it ask of the records.

A mean has the sum of its column, a linear regression the sum of products (xxᵀ, xy, y²), a simulated model the mean
of the user's statistic. Which law they have under a parameter is in `simulators`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb.accountant import Composition, Mechanism, compose, noise_scale
from pgbb.errors import InvalidValue
from pgbb.methods.request import Planned, Request, prepared
from pgbb.model.models import HuberRegression, LogisticRegression, Mean, Problem, Simulated
from pgbb.private.door import Moment, Randomness, open_dataset

__all__ = ["Answer", "ask", "middle", "plan_of", "question", "response_bound"]

Floats = NDArray[np.float64]
MOST_SIMULATED = 80_000
"""Records times coefficients of a logistic regression, whose records are simulated."""
Served = Mean | HuberRegression | LogisticRegression | Simulated


@dataclass(frozen=True, eq=False)
class Answer:
    """What the records have said, and all that is public about it.

    Attributes:
      model, problem: what was asked about.
      n: number of records.
      total: the noisy sum; of a simulated model the noisy mean; of a regression with the response over its bound.
      noise: τ, the standard deviation of its Gaussian noise, on each number.
      bound: half the range of the response around its shift; clip C of a simulated statistic.
      shift: of the response; public.
      planned, randomness: of the run.
      notes: what a reader should know.
    """

    model: Served
    problem: Problem
    n: int
    total: Floats
    noise: float
    bound: float
    shift: float
    planned: Planned
    randomness: Randomness
    notes: tuple[str, ...]


def middle(problem: Problem) -> tuple[float, float]:
    """Middle and half of the declared range [a, b] of a mean: the sum of x less the middle has sensitivity b − a."""
    low, high = float(problem.settings["low"]), float(problem.settings["high"])
    return (low + high) / 2, (high - low) / 2


def response_bound(problem: Problem, given: float | None) -> float:
    """B_y: as given, or the largest |response − shift| that the schema allows."""
    if given is not None:
        return given
    assert problem.design is not None
    low, high = problem.design.response_bounds
    return max(abs(low - problem.shift), abs(high - problem.shift))


def question(request: Request, method: str, bound: float | None) -> tuple[Served, Problem, Moment | None, float]:
    """The model, its problem, the moment that is summed (None: the user's statistic) and the shift of the response."""
    model, problem = request.model, prepared(request.model, request.schema)
    if request.weights is not None:
        raise InvalidValue(
            f"weights = {request.weights!r} is not allowed with method = {method!r}: its likelihood counts every "
            "record once. Leave the weights out, or take another method."
        )
    if isinstance(model, HuberRegression):
        largest = response_bound(problem, bound)
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
    if request.non_private:
        return Planned(target, 0.0)
    return Planned(target, noise_scale(target, request.epsilon, request.delta, request.accountant))


def _law(model: Served, bound: float, shift: float) -> tuple[str, ...]:
    """What is taken for granted about the records."""
    if isinstance(model, Mean):
        missing = "A record with a missing cell counts as the middle of the public range."
        return f"The model is taken as true: independent records with a {model.family} law. {missing}", ""
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
    return "The simulator is taken as true. A record with a missing cell counts as a statistic of zeros.", ""


def ask(request: Request, method: str, bound: float | None = None) -> Answer:
    """Load the records, ask them once, and let go of them: all that follows is post-processing."""
    model, problem, moment, shift = question(request, method, bound)
    data = open_dataset(request.data, problem, request.schema)
    request.advise(data.n)
    planned = plan_of(request, method, data.n, bound)
    target, randomness = planned.mechanism, Randomness.create(request.insecure_seed)
    if moment is not None:
        assert isinstance(target, Mechanism)
        request.begin(planned)
        ((total, noise),) = data.moments([moment], target, planned.sigma, randomness, shift=shift)
        size = moment.bound
    else:
        assert isinstance(model, Simulated) and isinstance(target, Composition)
        from pgbb.methods.simulators import scaled

        sums = data.sums(target, ["statistic"], planned.sigma, randomness)
        request.begin(planned)
        mean, sd = sums.ask("statistic", scaled(model))
        size = model.clip
        total, noise = mean * size, sd * size
    notes = tuple(note for note in _law(model, size, shift) if note)
    return Answer(model, problem, data.n, total, noise, size, shift, planned, randomness, notes)
