"""Noisy statistics of bootstrap resamples: ridge-penalised refits, and means, for `method="dp_bootstrap"`.

Resampling and noise come from the secret stream; what is returned has its noise. The `Resampling` that the accountant
certifies is the object that this code runs: n, the number of answers and the sensitivity are read from it.

A refit minimises F(θ) = (1/n) Σ k_i w_i l(θ, x_i) + (λ/2)‖θ‖² with k_i the count of record i in the resample and w_i ∈
[0, 1] its survey weight, 0 if invalid; for a Huber regression over σ_H ≥ its public lower bound. Each l is C-Lipschitz
there and convex (the Huber loss with scale is a perspective), so replacing a record drawn k times changes F by a
2kC/n-Lipschitz function and moves the minimiser of the λ-strongly convex F by at most kΔ, Δ = 2C/(λn). A point with ‖∇F
+ normal cone‖ ≤ g is within g/λ of the minimiser: g ≤ TOLERANCE·C/n adds at most TOLERANCE·Δ for the two data sets
together; a point is returned only if it was found to hold that, but for rounding. Records that a resample does not hold
are not passed on, so they change nothing at all.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pgbb._numerics import Floats, Ints
from pgbb._numerics import newton as _newton
from pgbb.accountant import Resampling
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.problem import Problem
from pgbb.private.noise import rounded_normals, uniform_integers
from pgbb.private.randomness import Randomness

if TYPE_CHECKING:
    from pgbb.private.records import Records


Progress = Callable[[int, int], None]

TOLERANCE = 1e-3
"""Largest norm of a refit's remaining gradient, in units of C/n; Δ is certified with this share on top."""

_UNIT = float(np.finfo(np.float64).eps)
_BITS = 30  # minimisers are rounded to 2⁻³⁰ of their sensitivity, means to 2⁻³⁰ of one record's share
_KINDS = ("quantile", "huber", "logistic")


def refit_sensitivity(problem: Problem, n: int, penalty: float, clip: float | None = None) -> float:
    """Δ = 2C/(λn), with what unfinished optimisation and rounding may add; public.

    Rounding of a computed gradient is at most eps·(nC + steepness·reach·‖x‖): sums of n terms, and scores at residuals
    rounded to eps·reach. Rounding of two minimisers to a grid of at most Δ·2⁻³⁰ moves them apart by at most √d·Δ·2⁻³⁰.
    """
    size = problem.clip if clip is None else clip
    rounding = _rounding(problem, n, penalty, size) + math.sqrt(problem.dim) * 2.0**-_BITS
    if rounding > 0.1:
        raise InvalidValue(
            f"penalty = {penalty:g} with n = {n} leaves too few digits: in double precision the refits would be off by "
            f"{rounding:.2g} of their sensitivity. Take a larger penalty, bandwidth or lower end of the scale."
        )
    return 2 * size / (penalty * n) * (1 + TOLERANCE + rounding)


def _rounding(problem: Problem, n: int, penalty: float, size: float) -> float:
    """Four times the rounding of a computed gradient, in units of C/n; public."""
    radius = _norm_bound(problem)
    theta = size / penalty + 2 * _lowest_scale(problem)  # a bound on ‖θ‖ at the minimum
    reach = len(problem.names) * (_largest_response(problem) + radius * theta)
    return 4 * _UNIT * n * (n + _steepness(problem) * reach * radius / size)


def largest_sensitivity(problems: Sequence[Problem], n: int, penalty: float) -> float:
    """max Δ_j·(max C/C_j): what to certify where problem j has noise σC_j/max C; public.

    Δ_j is not quite proportional to C_j: rounding weighs more where C_j is small.
    """
    largest = max(p.clip for p in problems)
    return max(refit_sensitivity(p, n, penalty) * largest / p.clip for p in problems)


def mean_sensitivity(bounds: tuple[float, float], n: int) -> float:
    """Δ = (b − a)/n, with a margin for the rounding of a sum; public."""
    return (bounds[1] - bounds[0]) / n * (1 + 1e-9 + 4 * n * _UNIT)


def _check(records: "Records", target: Resampling, sensitivity: float) -> None:
    if records.n != target.n:
        raise PgbbError(f"the refits are described for n = {target.n} records, but {records.n} were loaded.")
    if target.sensitivity < sensitivity * (1 - 1e-12):
        raise PgbbError(
            f"the description certifies a sensitivity of {target.sensitivity:g}, but that of the refits is "
            f"{sensitivity:g}."
        )


def noisy_refits(
    records: "Records",
    problems: Sequence[Problem],
    target: Resampling,
    sigma: float,
    randomness: Randomness,
    *,
    penalty: float,
    progress: Progress | None = None,
) -> Floats:
    """B/K refits for each of K problems, on resamples of their own, with noise: (K, B/K, d), internal coordinates.

    Problem j has noise σC_j/max C, and `target` certifies max Δ_j·(max C/C_j): no
    answer has a larger ratio. No error here depends on a value.
    """
    for problem in problems:
        if problem.kind not in _KINDS:
            raise InvalidValue(
                f"a {problem.kind} problem cannot be refitted privately: its gradient must be bounded without a clip. "
                "Use quantile, Huber or logistic regression."
            )
    _check(records, target, largest_sensitivity(problems, target.n, penalty))
    largest, count = max(p.clip for p in problems), target.replicates // len(problems)
    if count * len(problems) != target.replicates:
        raise PgbbError(f"{target.replicates} answers cannot be shared out to {len(problems)} problems.")
    x, y, survey = _plain(records, problems[0])
    out = np.empty((len(problems), count, len(problems[0].names)))
    for i, problem in enumerate(problems):
        index = problem.index.levels[0] if problem.index is not None else None
        grid = 2 * problem.clip / (penalty * target.n) * 2.0**-_BITS
        for b in range(count):
            weights = _counts(records.n, randomness) * survey
            held = weights > 0
            task = _Task(problem, index, x[held], y[held], weights[held] / records.n, penalty, records.n)
            out[i, b] = _noisy(_fit(task), grid, sigma * problem.clip / largest, randomness)
            if progress is not None:
                progress(i * count + b + 1, target.replicates)
    return out


def noisy_means(
    records: "Records", bounds: tuple[float, float], target: Resampling, sigma: float, randomness: Randomness
) -> Floats:
    """B resampled means of the response, truncated to its public bounds, with noise: (B, 1).

    An invalid record counts as the middle of the bounds: n is public, how many records are invalid is not.
    """
    _check(records, target, mean_sensitivity(bounds, target.n))
    low, high = bounds
    middle = low / 2 + high / 2
    y = records.y.astype(np.float64)
    usable = records.valid & np.isfinite(y)
    centred = np.where(usable, np.clip(np.where(usable, y, middle), low, high) - middle, 0.0)
    unit = (high - low) * 2.0**-_BITS
    whole = (centred / unit).astype(np.int64)  # toward zero; a sum of n draws stays below 2⁶³
    sums = np.array([_counts(records.n, randomness) @ whole for _ in range(target.replicates)])
    grid = unit / records.n
    noisy = sums + rounded_normals(randomness.noise, sigma, grid, sums.shape)
    return middle + (noisy.astype(np.float64) * grid)[:, None]


def _counts(n: int, randomness: Randomness) -> Ints:
    """How often each record occurs among n draws with replacement."""
    return np.bincount(uniform_integers(randomness.batches, n, n), minlength=n)


def _noisy(value: Floats, grid: float, sigma: float, randomness: Randomness) -> Floats:
    """A vector rounded to the grid, with noise rounded to the same."""
    whole = np.rint(value / grid).astype(np.int64)
    return (whole + rounded_normals(randomness.noise, sigma, grid, value.shape)).astype(np.float64) * grid


def _plain(records: "Records", problem: Problem) -> tuple[Floats, Floats, Floats]:
    """Design, internal response and weight in double precision, clipped by record to the bounds that Δ assumes."""
    x, y = records.x.astype(np.float64), records.y.astype(np.float64) - problem.shift
    survey = np.clip(records.weight.astype(np.float64), 0.0, 1.0)
    usable = records.valid & np.isfinite(x).all(axis=1) & np.isfinite(y) & np.isfinite(survey)
    x[~usable], y[~usable], survey[~usable] = 0.0, 0.0, 0.0
    x /= np.maximum(np.sqrt(np.einsum("ij,ij->i", x, x)) / _norm_bound(problem), 1.0)[:, None]
    if problem.kind == "logistic":
        np.clip(y, 0.0, 1.0, out=y)
    else:
        limit = _largest_response(problem)
        np.clip(y, -limit, limit, out=y)
    return x, y, survey


# Public facts about a problem ----------------------------------------------------------------------------------------


def _norm_bound(problem: Problem) -> float:
    assert problem.design is not None
    return problem.design.norm_bound


def _largest_response(problem: Problem) -> float:
    assert problem.design is not None
    return max(abs(b - problem.shift) for b in problem.design.response_bounds)


def _lowest_scale(problem: Problem) -> float:
    """The lower end of σ_H in a Huber regression; 0 where there is no scale."""
    return float(problem.center[-1] - problem.radius[-1]) if problem.kind == "huber" else 0.0


def _steepness(problem: Problem) -> float:
    """Largest derivative of a score in the residual."""
    if problem.kind == "huber":
        return 1 / _lowest_scale(problem)
    return 0.4 / float(problem.settings["bandwidth"]) if problem.kind == "quantile" else 0.25


# One refit -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """One objective F: the records that a resample holds, with weights k_i w_i/n."""

    problem: Problem
    index: float | None
    x: Floats
    y: Floats
    weights: Floats
    penalty: float
    n: int

    @property
    def lowest(self) -> float | None:
        """The bound on the last coordinate, of a Huber regression."""
        return _lowest_scale(self.problem) if self.problem.kind == "huber" else None

    @property
    def tolerance(self) -> float:
        return TOLERANCE * self.problem.clip / self.n

    @property
    def rounding(self) -> float:
        """Three quarters of what Δ allows for the rounding of a gradient; a computed residual is off by the fourth."""
        share = _rounding(self.problem, self.n, self.penalty, self.problem.clip)
        return 0.75 * share * self.problem.clip / self.n

    def project(self, theta: Floats) -> Floats:
        """The nearest point of the domain."""
        if self.lowest is None:
            return theta
        return np.append(theta[:-1], max(theta[-1], self.lowest))

    def gradient(self, theta: Floats) -> Floats:
        """∇F by the model's own score, which the Newton steps do not use."""
        assert self.problem.score is not None
        p = self.x.shape[1]
        score, extra = self.problem.score(np, theta, self.x @ theta[:p], self.y, self.index)
        total = (self.weights * score) @ self.x
        if extra is not None:
            total = np.append(total, self.weights @ extra)
        return total + self.penalty * theta

    def residual(self, theta: Floats) -> float:
        """The smallest norm in ∇F + normal cone: λ times a bound on the distance to the minimum."""
        if not np.isfinite(theta).all():
            return math.inf
        gradient = self.gradient(theta)
        if self.lowest is not None:
            if theta[-1] < self.lowest:
                return math.inf
            if theta[-1] == self.lowest:
                gradient[-1] = min(gradient[-1], 0.0)
        return float(np.linalg.norm(gradient))


@np.errstate(all="ignore")
def _fit(task: _Task) -> Floats:
    """The minimiser to `task.tolerance`: by Newton steps, or by the slow method that cannot fail.

    Every point returned has been checked. That of the slow method may miss by the rounding that Δ has room for; a point
    that missed by more would have another sensitivity than the one certified, so the public start takes its place.
    """
    start = task.project(np.zeros(task.problem.dim))
    if task.residual(start) <= task.tolerance:  # nothing usable was drawn, or nothing that pulls
        return start
    try:
        for theta in _candidates(task):
            if task.residual(theta) <= task.tolerance:
                return theta
    except np.linalg.LinAlgError:
        pass
    theta = _accelerated(task, start)
    return theta if task.residual(theta) <= task.tolerance + task.rounding else start


def _candidates(task: _Task) -> Iterator[Floats]:
    """Points that Newton's method proposes; the caller judges them."""
    mass = float(task.weights.sum())
    sample, weights, ridge = _newton.Sample(task.x, task.y), task.weights[None] / mass, task.penalty / mass
    if task.problem.kind == "huber":
        yield from _huber_candidates(task, sample, weights, ridge)
    elif task.problem.kind == "logistic":
        loss = _newton.ridged(_newton.logistic_loss(sample), ridge)
        yield _newton.minimise(loss, np.zeros((1, task.problem.dim)), weights, 1.0)[0][0]
    else:
        assert task.index is not None
        bandwidth = task.problem.settings["bandwidth"]
        yield _newton.minimise_quantile(sample, task.index, bandwidth, weights, penalty=ridge)[0][0]


def _huber_candidates(task: _Task, sample: _newton.Sample, weights: Floats, ridge: float) -> Iterator[Floats]:
    """First the minimum with σ_H free, then the one on the edge of the domain, where many records fit exactly."""
    c, kappa, lowest = task.problem.settings["c"], task.problem.settings["kappa"], _lowest_scale(task.problem)
    loss = _newton.ridged(_newton.huber_loss(sample, c, kappa), ridge)

    def inside(theta: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        within = np.column_stack([theta[:, :-1], np.maximum(theta[:, -1], lowest)])
        value, gradient, hessian = loss(within, weights)
        return np.where(theta[:, -1] >= lowest, value, np.inf), gradient, hessian

    def edge(beta: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        value, gradient, hessian = loss(np.column_stack([beta, np.full(len(beta), lowest)]), weights)
        return value, gradient[:, :-1], hessian[:, :-1, :-1]

    beta = _newton.least_squares(sample, weights, ridge)
    scale = np.maximum(_newton.spread(sample, beta, weights) / math.sqrt(kappa), lowest)
    free, _ = _newton.minimise(inside, np.column_stack([beta, scale]), weights, float(scale[0]))
    yield free[0]
    bound, _ = _newton.minimise(edge, free[:, :-1], weights, lowest)
    yield np.append(bound[0], lowest)


def _accelerated(task: _Task, start: Floats) -> Floats:
    """Nesterov's projected method with constant momentum: slow, and certain to arrive.

    With L the largest curvature, t = √(λ/L) and every point in the domain, the excess of F falls by the factor 1 − t in
    each step, from at most LR², where R is the distance to the minimum; a residual is at most 2√(2L · excess).
    """
    problem, radius = task.problem, _norm_bound(task.problem)
    width = radius**2 + (problem.settings["c"] ** 2 if problem.kind == "huber" else 0.0)
    top = task.penalty + _steepness(problem) * width
    far = problem.clip / task.penalty + 2 * _lowest_scale(problem)
    t = math.sqrt(task.penalty / top)
    steps = math.ceil(math.log(8 * (top * far / task.tolerance) ** 2) / t)
    x = z = start
    for i in range(steps):
        y = (x + t * z) / (1 + t)
        z = task.project((1 - t) * z + t * y - t / task.penalty * task.gradient(y))
        x = (1 - t) * x + t * z
        if i % 16 == 0 or i == steps - 1:
            found = task.project(x - task.gradient(x) / top)
            if task.residual(found) <= task.tolerance:
                break
    return found
