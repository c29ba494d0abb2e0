"""A privacy filter: a total budget for releases of which each is chosen after seeing the earlier ones.

Exact composition (`compose`) is for mechanisms fixed in advance. Releases that follow one another are chosen by what
the earlier ones said; for them this module charges each release in one currency, Gaussian differential privacy with a
small failure probability, whose sums may not pass a limit fixed beforehand.

A release is charged (μ², d) when its hockey-stick curve satisfies H_c ≤ d + (1−d)·G_μ(c) for all c ≥ 0, with G_μ the
curve of N(μ, 1) against N(0, 1): it is dominated by a mechanism that gives everything away with probability d,
whatever the records, and is μ-GDP otherwise. If always Σμᵢ² ≤ b and Σdᵢ ≤ d, all releases together satisfy
H_c ≤ d + G_√b(c) for all c ≥ 0: the theorem of docs/privacy.md, section 11.

A Rényi filter (Feldman & Zrnic 2021) would serve too, but gives away 7 % of ε for Gaussian releases, and has no
finite order for refits on resamples: the failure probabilities are what such heavier tails need.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from pgbb import _validate
from pgbb.accountant import bounds
from pgbb.accountant.calibrate import Own, Target, epsilon_bounds
from pgbb.accountant.description import Floats
from pgbb.accountant.gaussian import gdp_epsilon, gdp_mu
from pgbb.errors import InvalidValue

SLACK = 1e-3
"""Share of δ kept for failure probabilities. A Gaussian release has none, and a thousandth hardly changes its ε."""

SMALLEST_DELTA = 1e-290
"""Failure probabilities below this would soon leave double precision."""

_SMALLEST_SHARE = 1e-3  # least share of the slack that one release may take
_LARGEST_MU = 50.0  # a release beyond this is charged as infinite
_POINTS = 160  # number of points at which a curve is bounded
_BETWEEN = 24  # number of points in a cell at which it is compared


@dataclass(frozen=True)
class Charge:
    """What a release costs: μ² of Gaussian DP, except with probability `failure`."""

    square: float
    failure: float = 0.0


@dataclass(frozen=True)
class Filter:
    """A total budget for releases on one data set that are chosen adaptively.

    Args:
      epsilon, delta: what all releases together may cost a person.
      group_size: the most records that one person may have. For g > 1 the filter guards one record at ε/g and
        δ(e^{ε/g} − 1)/(e^ε − 1): the chain of g replacements of one record each then costs at most (ε, δ).

    >>> from pgbb.accountant import Mechanism
    >>> f = Filter(1.0, 1e-6)
    >>> m = Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    >>> one = f.charge(m, sigma=.02)
    >>> round(one.square, 12), one.failure, f.fits([one] * 5), f.fits([one] * 6)
    (0.01, 0.0, True, False)
    >>> round(f.left([one] * 5), 3)
    0.303
    """

    epsilon: float
    delta: float
    group_size: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        object.__setattr__(self, "group_size", _validate.integer("group_size", self.group_size, low=1))

    @property
    def record(self) -> tuple[float, float]:
        """(ε, δ) for one record."""
        if self.group_size == 1:
            return self.epsilon, self.delta
        one = self.epsilon / self.group_size
        log_ratio = one - self.epsilon + math.log(math.expm1(-one) / math.expm1(-self.epsilon))
        return one, _validate.number(
            "delta", self.delta * math.exp(log_ratio), above=0, remedy="Take a smaller epsilon or group_size."
        )

    @property
    def limit(self) -> Charge:
        """The sum that charges must not exceed: a small share of δ is for failures, the rest for Gaussian DP at ε."""
        epsilon, delta = self.record
        if delta * SLACK < SMALLEST_DELTA:
            raise InvalidValue(
                f"δ = {self.delta:g} is too small to be computed with: for one record it is {delta:g}, and it must be "
                f"at least {SMALLEST_DELTA / SLACK:g}. Take a larger one."
            )
        return Charge(gdp_mu(epsilon, delta * (1 - SLACK)) ** 2, delta * SLACK)

    def total(self, charges: list[Charge]) -> Charge:
        """The sum of charges, rounded up."""
        up = 1 + 1e-12
        return Charge(math.fsum(c.square for c in charges) * up, math.fsum(c.failure for c in charges) * up)

    def fits(self, charges: list[Charge]) -> bool:
        """Whether releases with these charges, chosen one after another, are within the budget."""
        total, limit = self.total(charges), self.limit
        return total.square <= limit.square and total.failure <= limit.failure

    def left(self, charges: list[Charge]) -> float:
        """ε, at the δ of one record, of the largest single Gaussian release that still fits; 0 if none does."""
        room = self.limit.square - self.total(charges).square
        return gdp_epsilon(math.sqrt(room), self.record[1]) if room > 1e-24 else 0.0

    def charge(self, mechanism: Target, sigma: float) -> Charge:
        """What the mechanism costs at noise σ; an infinite square where no charge is proved.

        Gaussian releases cost their Σμ² exactly. For others the certified curve is compared with Gaussian ones; the
        failure probability is the same share of the slack as the square is of its limit, so that neither runs out
        before the other.
        """
        sigma, limit = _validate.sigma(sigma), self.limit
        exact = gaussian_square(mechanism, sigma)
        if exact is not None:
            return Charge(exact)
        curve = _Curve.of(mechanism, sigma, limit.failure * _SMALLEST_SHARE)
        share = _smallest(lambda s: curve.square(s * limit.failure) <= s * limit.square, _SMALLEST_SHARE, 1.0)
        failure = limit.failure * min(share, 1.0)
        return Charge(curve.square(failure), failure)


def gaussian_square(mechanism: Target, sigma: float) -> float | None:
    """Σμ² with μ = 2C/(nσ) where every answer is a sum over all records with constant weights; None elsewhere."""
    if isinstance(mechanism, Own):
        return None
    parts = mechanism.parts(sigma)
    if any(m.blocks != 1 or m.sampling_rate != 1 for m, _ in parts):
        return None
    signals = [(m.answers, 2 * m.signal(s)) for m, s in parts]
    if any(signal > 1e100 for _, signal in signals):  # its square need not be a number
        return math.inf
    return math.fsum(answers * signal**2 for answers, signal in signals) * (1 + 1e-12)


@dataclass(frozen=True)
class _Curve:
    """Upper bounds on δ(ε) of a mechanism whose dominating pair is symmetric, at points from 0 on.

    By symmetry H_c = 1 − c + c·H_{1/c}, and the same for what it is compared with: c ≥ 1 is enough. H_c is convex
    in c, so that chords bound it between the points; and non-increasing, so that on a finer grid the value on the left
    of a cell is compared with the Gaussian curve on its right.
    """

    points: Floats
    above: Floats

    @classmethod
    def of(cls, mechanism: Target, sigma: float, smallest: float) -> "_Curve":
        """The curve down to δ = `smallest`, on points at which δ falls by about the same factor."""
        far = epsilon_bounds(mechanism, sigma, smallest)[1]
        if math.isinf(far):
            return cls(np.array([0.0]), np.array([1.0]))
        points = np.linspace(0.0, far, _POINTS)
        if isinstance(mechanism, Own):
            return cls(points, np.array([mechanism.delta_bounds(sigma, e)[1] for e in points]))
        return cls(points, bounds.delta_above(mechanism, sigma, points, smallest))

    def square(self, failure: float) -> float:
        """The smallest μ² with which the mechanism is dominated except with probability `failure`; inf if none is."""
        if self.above[0] <= failure:
            return 0.0
        if self.above[-1] > failure:
            return math.inf
        ends = np.arange(len(self.points))
        fine = np.interp(np.linspace(0, ends[-1], _BETWEEN * ends[-1] + 1), ends, self.points)
        above = np.interp(np.exp(fine), np.exp(self.points), self.above)[:-1]
        exceeding = np.flatnonzero(above > failure)
        high = np.log(above[exceeding] - failure) - math.log1p(-failure)
        points = fine[exceeding + 1]

        def dominates(mu: float) -> bool:
            first = log_ndtr(mu / 2 - points / mu)
            second = points + log_ndtr(-mu / 2 - points / mu)
            curve = first + np.log(-np.expm1(np.minimum(second - first, -1e-300)))
            return bool(np.all(high <= curve - 1e-9))

        mu = _smallest(dominates, 1e-6, _LARGEST_MU)
        return mu**2 if mu <= _LARGEST_MU else math.inf


def _smallest(feasible: Callable[[float], bool], low: float, high: float) -> float:
    """The feasible end of a narrow bracket on a logarithmic scale; `low` if that is feasible, inf if `high` is not."""
    if feasible(low):
        return low
    if not feasible(high):
        return math.inf
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high
