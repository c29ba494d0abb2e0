"""Repro samples (Awan & Wang): from one noisy statistic to intervals that cover at every n, by simulation.

The records are asked once; all else is post-processing. A value of a parameter belongs to the interval unless the
released statistic is far out among R statistics simulated at it, with the same random numbers at every value.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.errors import PgbbWarning
from pgbb.methods.constants import Checked, Limits, Positive
from pgbb.methods.noisy_sums import Answer, ask, middle, plan_of
from pgbb.methods.repro.intervals import ERRORS, Share, confidence_draws, ends, monte_carlo_error
from pgbb.methods.repro.logistic import Logistic
from pgbb.methods.repro.region import Region
from pgbb.methods.repro.regression import LEAST, Regression
from pgbb.methods.request import Planned, Request, prepared
from pgbb.methods.simulators import check_simulator, never_clamped, simulator_of, solved_means
from pgbb.model.models import HuberRegression, LogisticRegression, Mean, Simulated
from pgbb.release.file import Release

Floats = NDArray[np.float64]
JOINT = 0.05  # 1 − level of the joint region that is stored
EXACT = (
    "Repro samples: the intervals cover with at least their level at every n, if the model is true; they are no "
    "posterior. That holds for intervals of single coefficients; how their draws go together is approximate."
)
SEARCHED = (
    "The least favourable values of the other parameters are searched for: that the search finds them is not proved."
)
OUTSIDE = (
    "No parameter in the box could have led to this release, at 95 %: the model or its box is wrong, or a rare event."
)
WIDE = "not identified at this ε: the interval reaches the end of what was searched."


@dataclass(frozen=True)
class Settings(Checked):
    """Constants of repro samples.

    Args:
      replicates: R, simulated releases; None is 999 for a mean, 399 (80 a coefficient, if that is more) for a
        linear regression, 199 (or 80 a coefficient) for a logistic one and 199 for a simulator. Levels up to
        1 − 2/(R + 1) can be told apart.
      candidates: values of the nuisance parameters of a regression that are tried at each point.
      response_bound: B_y, the response less its public centre is clipped to ±B_y; None is what the schema allows.
      draws: m, how many are stored, with the intervals as their central ones; of a mean R + 2 are.
    """

    replicates: Annotated[int, Limits(low=199, remedy="Fewer tell no 99 % interval.")] | None = None
    candidates: Annotated[int, Limits(low=2)] = 16
    response_bound: Positive | None = None
    draws: Annotated[int, Limits(low=401)] = 2001


@dataclass(frozen=True, eq=False)
class Found:
    """Draws in original units, the (lower, upper) of each parameter in the joint region, R, and notes."""

    draws: Floats
    box: Floats
    replicates: int
    notes: tuple[str, ...] = ()


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise."""
    _check(request, settings)
    return plan_of(request, "repro", n, settings.response_bound)


def _check(request: Request, settings: Settings) -> None:
    """Refuse, before anything is asked, what can be found out by then."""
    if isinstance(request.model, Simulated):
        check_simulator(request.model, request.schema)
    elif settings.replicates is not None:
        least = 80 * prepared(request.model, request.schema).dim - 1
        _validate.integer("replicates", settings.replicates, low=least, remedy="That is 80 for each parameter.")


def run(request: Request, settings: Settings) -> Release:
    """Ask the records once, and find which parameters could have led to the answer."""
    _check(request, settings)
    answer = ask(request, "repro", settings.response_bound)
    if isinstance(answer.model, Mean):
        found = _mean(answer, answer.model, settings)
    elif isinstance(answer.model, HuberRegression):
        found = _regression(answer, settings, request)
    elif isinstance(answer.model, LogisticRegression):
        found = _logistic(answer, settings, request)
    else:
        found = _simulated(answer, answer.model, settings, request)
    for note in found.notes:
        warnings.warn(note, PgbbWarning, stacklevel=3)
    problem = answer.problem
    internal = np.linalg.solve(problem.transform, (found.draws - problem.offset).T).T
    notes = [EXACT, *([] if isinstance(answer.model, Mean) else [SEARCHED]), *answer.notes, *found.notes]
    lower, upper = found.box.T.tolist()
    about = {
        "replicates": found.replicates,
        "statistic": answer.total.tolist(),
        "noise": answer.noise,
        "joint_region": {"level": 1 - JOINT, "lower": lower, "upper": upper},
        "monte_carlo_error": [monte_carlo_error(column, found.replicates) for column in found.draws.T],
    }
    return request.release_draws("repro", answer.planned, answer.randomness.source, [internal], notes, about)


def _mean(answer: Answer, model: Mean, settings: Settings) -> Found:
    """The means at which R simulated sums are the released one: their order statistics are the ends at every level.

    #{r: s_r(θ) ≥ z} = #{r: θ_r ≤ θ}, since s_r grows with θ. The two outermost are there twice, so that the
    quantile of level k/(R + 1) of the stored draws is the k-th smallest.
    """
    count, rng, n = settings.replicates or 999, answer.randomness.public, answer.n
    shift, half = middle(answer.problem)
    sums = answer.total[0] - answer.noise * rng.standard_normal(count) + n * shift
    centre, bounds = float(answer.total[0]) / n + shift, (shift - half, shift + half)
    spread = float(model.scale or 1) if model.family == "gaussian" else abs(centre)
    around = centre + np.array([-8, 8]) * (answer.noise / n + spread / np.sqrt(n))
    safe = bool(never_clamped(model, around, n, *bounds).all())
    low, high = answer.problem.center - answer.problem.radius, answer.problem.center + answer.problem.radius
    found = np.sort(solved_means(model, sums, n, bounds, (float(low[0]), float(high[0])), rng, safe=safe))
    draws = np.concatenate([found[:1], found, found[-1:]])[:, None]
    return Found(draws, np.quantile(draws, [JOINT / 2, 1 - JOINT / 2], axis=0).T, count)


@dataclass(frozen=True, eq=False)
class Profile:
    """What is tried of one parameter: the tests of values below and above `centre`, up to the limits; then shifted."""

    tests: tuple[Share, Share]
    centre: float
    step: float
    limits: tuple[float, float]
    shift: float = 0.0


def _profiled(
    profiles: Iterable[Profile], names: Sequence[str], joint: float, settings: Settings, request: Request
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Sorted draws of each parameter, the box at level 1 − joint, and a note on those that reach the ends."""
    errors = sorted({*ERRORS, joint}, reverse=True)
    columns, box, wide = [], [], []
    for name, one in zip(names, profiles, strict=True):
        found = [ends(test, one.centre, one.step, end, errors) for test, end in zip(one.tests, one.limits, strict=True)]
        lower, upper = (dict(zip(errors, side + one.shift, strict=True)) for side in found)
        low, high = (np.array([side[error] for error in ERRORS]) for side in (lower, upper))
        columns.append(confidence_draws(low, high, settings.draws))
        box.append((lower[joint], upper[joint]))
        if lower[JOINT] <= one.limits[0] + one.shift or upper[JOINT] >= one.limits[1] + one.shift:
            wide.append(name)
        request.report(len(columns), len(names))
    return np.column_stack(columns), np.array(box), (f"{', '.join(wide)} {WIDE}",) if wide else ()


def _regression(answer: Answer, settings: Settings, request: Request) -> Found:
    """Profiled intervals of the coefficients in original units, and of the scale; Bonferroni's joint box."""
    problem, rng = answer.problem, answer.randomness.public
    p, d = problem.dim - 1, problem.dim
    count = settings.replicates or max(399, 80 * d - 1)
    regression = Regression(answer.n, answer.total, answer.noise, settings.candidates, count, rng)
    unit = answer.bound  # of the response, in which it lies in [−1, 1]

    def profiles() -> Iterator[Profile]:
        for k in range(p):
            row = unit * problem.transform[k, :p]
            centre, step = regression.estimate(row)
            reach = 2 * float(np.abs(row) @ problem.radius[:p]) / unit + 20 * step
            tests = regression.contrast(row, True), regression.contrast(row, False)
            yield Profile(tests, centre, step, (centre - reach, centre + reach), float(problem.offset[k]))
        centre, tests = unit * regression.deviation, (regression.scale(unit, True), regression.scale(unit, False))
        yield Profile(tests, centre, centre / np.sqrt(answer.n), (LEAST * unit, 2 * unit))

    columns, box, notes = _profiled(profiles(), problem.names, JOINT / d, settings, request)
    rows = problem.transform[:p, :p]
    return Found(_joined(columns, rows @ regression.dependence() @ rows.T, rng), box, count, notes)


def _logistic(answer: Answer, settings: Settings, request: Request) -> Found:
    """Profiled intervals of the coefficients in original units; Bonferroni's joint box."""
    problem, rng, d = answer.problem, answer.randomness.public, answer.problem.dim
    assert problem.design is not None
    count, constant = settings.replicates or max(199, 80 * d - 1), problem.design.has_intercept
    logistic = Logistic(
        answer.n, answer.total, answer.noise, constant, problem.radius, settings.candidates, count, rng
    )  # fmt: skip

    def profiles() -> Iterator[Profile]:
        for row in problem.transform:
            limit = float(np.abs(row) @ problem.radius)
            centre = float(np.clip(logistic.start(row), -0.9 * limit, 0.9 * limit))
            step = min(0.2 * limit, 4 * logistic.spread * float(np.abs(row).sum()))
            yield Profile((logistic.contrast(row, True), logistic.contrast(row, False)), centre, step, (-limit, limit))

    columns, box, notes = _profiled(profiles(), problem.names, JOINT / d, settings, request)
    return Found(_joined(columns, np.eye(d), rng), box, count, notes)


def _simulated(answer: Answer, model: Simulated, settings: Settings, request: Request) -> Found:
    """Projections of the Mahalanobis region, which hold together; the whole box where the region is empty."""
    problem, rng, count = answer.problem, answer.randomness.public, settings.replicates or 199
    simulate = simulator_of(model, request.schema, answer.n, count, rng)
    noise = answer.noise * rng.standard_normal((count, len(answer.total)))
    low, high = problem.center - problem.radius, problem.center + problem.radius
    region = Region(answer.total, lambda theta: simulate(theta) + noise, low, high, rng)
    notes: tuple[str, ...] = ()
    if region.best <= JOINT:
        each = np.ones(len(ERRORS))
        columns = [confidence_draws(a * each, b * each, settings.draws) for a, b in zip(low, high, strict=True)]
        draws, box, notes = np.column_stack(columns), np.column_stack([low, high]), (OUTSIDE,)
    else:
        sides = [(region.parameter(k),) * 2 for k in range(model.dim)]
        steps, limits = 0.05 * (high - low), zip(low.tolist(), high.tolist(), strict=True)
        profiles = map(Profile, sides, region.centre.tolist(), steps.tolist(), limits)
        draws, box, _ = _profiled(profiles, problem.names, JOINT, settings, request)
    return Found(np.clip(_joined(draws, np.eye(model.dim), rng), low, high), box, count, notes)


def _joined(columns: Floats, covariance: Floats, rng: np.random.Generator) -> Floats:
    """Sorted columns, shuffled so that they go together as normal variables with this covariance; others alone."""
    p = len(covariance)
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scale, scale)
    normals = rng.standard_normal(columns.shape)
    normals[:, :p] = rng.multivariate_normal(np.zeros(p), correlation, len(columns), check_valid="ignore")
    places = np.argsort(np.argsort(normals, axis=0), axis=0)
    return np.take_along_axis(columns, places, axis=0)
