"""What a calibrated fit will cost and how wide its intervals will be, before any data is opened.

Public arithmetic: a plan and a budget give the noise of every answer, and a
reference design turns it into standard errors. Where covariates, residuals or
the curvature differ from the reference, so will the intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from pgbb import _validate
from pgbb.accountant import ACCOUNTANTS, Mechanism, noise_scale
from pgbb.accountant.calibrate import Accountant
from pgbb.methods.calibrated.algebra import strategy
from pgbb.methods.calibrated.plan import NEAREST, SPREAD, Stage, composition, squared_reach, stages_for
from pgbb.model.models import Custom, HuberRegression, LogisticRegression, Mean, Model, Problem, QuantileRegression
from pgbb.model.schema import Flag, Range, Schema
from pgbb.planning import costs

__all__ = [
    "FAMILIES",
    "Candidate",
    "Forecast",
    "Reference",
    "Width",
    "calibrated_seconds",
    "forecast",
    "paper_seconds",
    "search",
]

Family = Literal["quantile", "huber", "logistic", "mean", "custom"]
FAMILIES: tuple[Family, ...] = ("quantile", "huber", "logistic", "mean", "custom")

Z = 1.959963984540054  # half a 95 % interval, in standard deviations
REACH, WIDEST = 0.8, 0.15  # bandwidth of the curvature of a level, as in `calibration.quantile`
SCALE_WEIGHT = 0.5  # coordinate of the Huber scale, as in `calibration.smooth`


@dataclass(frozen=True)
class Reference:
    """The design and the errors for which widths are predicted.

    Covariates are whitened: a coefficient is the effect of one standard deviation
    of its covariate, given the others. Errors are normal.

    Args:
      family: kind of model.
      terms: p, the number of coefficients, the intercept included.
      levels: quantile levels, for quantile regression.
      spread: s, standard deviation of the residuals (of the column, for a mean), in units of the response.
      reach: largest squared length of the whitened covariates if it is known to be below R²: an intercept counts 1,
        a covariate that is uniform on its range 3.
      rate: share of ones of a logistic response.
      half: half the window in which the values of a mean are not clipped; default 8s², that of clip = 8, scale = s.
    """

    family: Family
    terms: int = 4
    levels: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    spread: float = 1.0
    reach: float | None = None
    rate: float = 0.5
    half: float | None = None

    def __post_init__(self) -> None:
        _validate.one_of("family", self.family, FAMILIES)
        _validate.integer("terms", self.terms, low=1)
        _validate.number("spread", self.spread, above=0)
        _validate.number("rate", self.rate, above=0, below=1)
        if self.reach is not None:
            _validate.number("reach", self.reach, above=0)
        if self.half is not None:
            _validate.number("half", self.half, above=0)
        levels = tuple(_validate.number("levels", v, above=0, below=1) for v in self.levels)
        if self.family == "quantile" and (not levels or len(set(levels)) < len(levels)):
            raise _validate.fail("levels", self.levels, "a non-empty list of different levels in (0, 1)")
        object.__setattr__(self, "levels", tuple(sorted(levels)))

    @property
    def radius(self) -> float:
        """R: whitened covariates are divided by it, and records beyond it are weighted down."""
        return math.sqrt(self.reach or max(SPREAD[0] * self.terms, NEAREST))

    def problem(self) -> Problem:
        """A problem of this kind and size, over a schema made up for it: what the planner of the method reads."""
        names = [f"x{j}" for j in range(1, self.terms)]
        schema = Schema(y=Range(-1, 1), z=Flag(), **dict.fromkeys(names, Range(-1, 1)))
        terms = " + ".join(names) or "1"
        model: Model
        if self.family == "quantile":
            model = QuantileRegression(f"y ~ {terms}", taus=self.levels)
        elif self.family == "huber":
            model = HuberRegression(f"y ~ {terms}")
        elif self.family == "logistic":
            model = LogisticRegression(f"z ~ {terms}")
        elif self.family == "mean":
            model = Mean("y", scale=1.0)
        else:
            model = Custom(lambda t, r, i: 0.0, dim=self.terms, clip=1.0, columns=["y"], box=(-1, 1))
        return model.prepare(schema)

    def errors(self) -> list[tuple[float | None, float, float]]:
        """For every level: (τ or None; √n times the sampling error; the error that a unit of answer noise makes)."""
        s, radius = self.spread, self.radius
        if self.family == "quantile":
            _, b = strategy(self.levels)
            loud = np.sqrt((b**2).sum(axis=1))
            rows: list[tuple[float | None, float, float]] = []
            for tau, noise in zip(self.levels, loud, strict=True):
                f = _smoothed_density(tau) / s
                rows.append((tau, math.sqrt(tau * (1 - tau)) / f, radius * float(noise) / f))
            return rows
        if self.family == "huber":
            c, kappa = HuberRegression.c, HuberRegression.kappa
            scale = s / _huber_ratio(c, kappa)
            curvature = float(2 * ndtr(c * scale / s) - 1) / scale
            bound = max(math.hypot(c, SCALE_WEIGHT * (c**2 - kappa) / 2), SCALE_WEIGHT * kappa / 2)
            return [(None, math.sqrt(kappa) / curvature, radius * bound / curvature)]
        if self.family == "logistic":
            curvature = self.rate * (1 - self.rate)
            return [(None, 1 / math.sqrt(curvature), radius / curvature)]
        if self.family == "mean":
            return [(None, s, 8 * s**2 if self.half is None else self.half)]
        return []


def _smoothed_density(tau: float) -> float:
    """Standard normal density at its τ-quantile, smoothed as the method's curvature is."""
    reach = min(min(tau, 1 - tau) / 2, WIDEST)
    gap = float(ndtri(tau + reach) - ndtri(tau - reach))
    variance = 1 + (REACH * gap / 2) ** 2
    return math.exp(-(float(ndtri(tau)) ** 2) / variance / 2) / math.sqrt(2 * math.pi * variance)


def _huber_ratio(c: float, kappa: float) -> float:
    """s/σ_H for normal residuals: the r with E min((rz)², c²) = κ."""

    def excess(r: float) -> float:
        t = c / r
        inside = 2 * float(ndtr(t)) - 1
        return r**2 * (inside - 2 * t * math.exp(-(t**2) / 2) / math.sqrt(2 * math.pi)) + c**2 * (1 - inside) - kappa

    if not 0 < kappa < c**2:
        raise _validate.fail("kappa", kappa, f"a number between 0 and c² = {c**2:g}")
    return float(brentq(excess, 1e-6, 1e6))


@dataclass(frozen=True)
class Width:
    """Predicted standard deviations of a coefficient, and the width of its 95 % interval."""

    tau: float | None
    sampling: float
    privacy: float

    @property
    def total(self) -> float:
        """Both together."""
        return math.hypot(self.sampling, self.privacy)

    @property
    def interval(self) -> float:
        """Width of the 95 % interval."""
        return 2 * Z * self.total

    @property
    def share(self) -> float:
        """The part of the variance that privacy causes."""
        return (self.privacy / self.total) ** 2


@dataclass(frozen=True)
class Forecast:
    """What a calibrated fit asks, at which noise, and what comes of it on the reference."""

    n: int
    epsilon: float
    delta: float
    accountant: str
    reference: Reference
    stages: tuple[Stage, ...]
    sigma: float
    widths: tuple[Width, ...]

    @property
    def passes(self) -> int:
        """Answers, each of them one pass over the records."""
        return sum(s.asks for s in self.stages)

    @property
    def seconds(self) -> float:
        """Run time on the machine of the benchmark, compiling and reading apart."""
        r = self.reference
        return costs.calibrated_seconds(r.family, self.stages, self.n, r.terms, len(r.levels))

    @property
    def load_seconds(self) -> float:
        """Time there to read the records from a Parquet file."""
        return costs.load_seconds(self.n, self.reference.terms)

    @property
    def memory(self) -> float:
        """Memory of the process at its peak, in bytes."""
        return costs.memory(self.n, self.reference.terms)

    @property
    def effective(self) -> float:
        """Noise of the combined gradient, for statistics of norm ≤ 1: what (σ/q)/√(T·K) is for batches."""
        return self.sigma / math.sqrt(gradient_share(self.stages))

    def noise(self, stage: Stage) -> float:
        """Standard deviation of the noise on each number that a stage answers."""
        return self.sigma * math.sqrt(stage.asks / stage.share)

    def to_dict(self) -> dict[str, Any]:
        """The forecast as plain data."""
        return {
            "method": "calibrated",
            "n": self.n,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "accountant": self.accountant,
            "sigma": self.sigma,
            "effective_noise": self.effective,
            "passes": self.passes,
            "seconds": self.seconds,
            "load_seconds": self.load_seconds,
            "memory_bytes": self.memory,
            "stages": [
                asdict(s) | {"noise": self.noise(s), "noise_multiplier": self.n * self.noise(s)} for s in self.stages
            ],
            "reference": asdict(self.reference) | {"radius": self.reference.radius},
            "widths": [
                asdict(w) | {"total": w.total, "interval": w.interval, "privacy_share": w.share} for w in self.widths
            ],
        }


def gradient_share(stages: Sequence[Stage]) -> float:
    """The part of the budget that the two rounds of gradients get; their precisions add up."""
    return sum(s.share for s in stages if s.name in ("refine", "final"))


def forecast(
    n: int, epsilon: float, delta: float, reference: Reference, *, accountant: Accountant = "exact"
) -> Forecast:
    """Noise, passes and interval widths of a calibrated fit.

    The gradient of a coefficient is answered with noise R·b·σ/√share, where the
    two rounds of gradients have that share of the budget and the statistic is
    b times a vector of norm ≤ 1; over the curvature f this is the error of the
    coefficient. σ is 2/(nμ) for the μ of Gaussian DP that (ε, δ) allows.

    >>> f = forecast(10_000, 1.0, 1e-4, Reference("quantile", terms=4, levels=(0.5,)))
    >>> f.passes, round(f.widths[0].sampling, 4), round(f.widths[0].privacy, 4)
    (26, 0.0131, 0.0054)
    """
    _validate.one_of("accountant", accountant, ACCOUNTANTS)
    goal, failure = _validate.epsilon(epsilon), _validate.delta(delta)
    n = _validate.integer("n", n, low=1)
    stages = stages_for(reference.problem())
    sigma = noise_scale(composition(stages, n), goal, failure, accountant)
    unit = sigma / math.sqrt(gradient_share(stages))
    farthest = squared_reach(n, reference.terms, sigma / math.sqrt(stages[-1].share))
    reference = replace(reference, reach=min(reference.reach or math.inf, farthest))
    widths = tuple(Width(tau, sampling / math.sqrt(n), slope * unit) for tau, sampling, slope in reference.errors())
    return Forecast(n, goal, failure, accountant, reference, stages, sigma, widths)


# Which mechanism has the least noise ---------------------------------------------------------------------------------


def calibrated_seconds(family: Family, n: int, terms: int, levels: int = 5) -> float:
    """Run time of a calibrated fit on the machine of the benchmark, compiling and reading apart."""
    stages = stages_for(Reference(family, terms).problem())
    return costs.calibrated_seconds(family, stages, n, terms, levels)


def paper_seconds(n: int, rate: float, steps: int, draws: int, terms: int = 4) -> float:
    """Run time of the paper's method on the machine of the benchmark, compiling and reading apart."""
    return costs.paper_seconds(n, rate, steps, draws, terms)


GRID = (
    (5, 0.01, 10_000, 1),
    *((blocks, q, steps, draws) for blocks in (5, 10, 20) for q, steps, draws in ((0.1, 2_000, 5), (1.0, 1_000, 1))),
)
"""S, q, T, K of the mechanisms of the paper's kind that `search` compares."""


@dataclass(frozen=True)
class Candidate:
    """One way to spend the budget, and the noise that its gradients carry in the end; None where it is too slow."""

    method: str
    blocks: int
    gamma: float | None
    sampling_rate: float
    steps: int
    draws_per_step: int
    seconds: float
    sigma: float | None
    effective: float | None
    chosen: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def search(result: Forecast, time_limit: float | None = None) -> tuple[Candidate, ...]:
    """The calibrated method beside mechanisms of the paper's kind, by effective noise; the least is marked as chosen.

    After T·K answers the centre is known to v = (σ/q)²H⁻¹H⁻¹/(T·K), whatever the
    optimiser, so (σ/q)/√(T·K) ranks mechanisms, at statistics of norm ≤ 1. Of the
    calibrated method only the gradients count, with their share of the budget.
    Blocks have γ = γ*(n, S), which makes their spread that of the sample; with
    one block there would be nothing to draw. What would run longer than
    `time_limit` seconds is listed, but not weighed.
    """
    if time_limit is not None:
        _validate.number("time_limit", time_limit, above=0)
    limit = math.inf if time_limit is None else time_limit
    within = result.seconds <= limit
    found = [
        Candidate(
            method="calibrated",
            blocks=1,
            gamma=None,
            sampling_rate=1.0,
            steps=result.passes,
            draws_per_step=1,
            seconds=result.seconds,
            sigma=result.sigma if within else None,
            effective=result.effective if within else None,
        )
    ]
    for blocks, q, steps, draws in GRID:
        if blocks > result.n:
            continue
        m = Mechanism(n=result.n, blocks=blocks, sampling_rate=q, steps=steps, draws_per_step=draws, clip=1.0)
        seconds = paper_seconds(result.n, q, steps, draws, result.reference.terms)
        sigma = effective = None
        if seconds <= limit:
            sigma = noise_scale(m, result.epsilon, result.delta)
            effective = sigma / q / math.sqrt(m.answers)
        found.append(Candidate("paper", blocks, m.concentration, q, steps, draws, seconds, sigma, effective))
    best = min((c.effective for c in found if c.effective is not None), default=None)
    first = next((i for i, c in enumerate(found) if c.effective is not None and c.effective == best), None)
    marked = [replace(c, chosen=i == first) for i, c in enumerate(found)]
    return tuple(sorted(marked, key=lambda c: (c.effective is None, c.effective or c.seconds)))
