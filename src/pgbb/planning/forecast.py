"""How wide the intervals of the default method will be, and what a fit asks, before any data is opened.

Public arithmetic: the questions and a budget give the noise of every answer, and a reference design turns it into
standard errors. Where covariates, residuals or the curvature differ from the reference, so will the intervals.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from pgbb import _validate
from pgbb.accountant.calibrate import ACCOUNTANTS, Accountant, noise_scale
from pgbb.methods.calibrated.algebra import strategy
from pgbb.methods.calibrated.frame import SCORE, score_of, squared_reach
from pgbb.methods.calibrated.mean import CLOSEST, UNCLEAR, half_window
from pgbb.methods.calibrated.quantile import REACH, WIDEST
from pgbb.methods.calibrated.score_clip import EITHER, OF_COUNTS, ordinary_error
from pgbb.methods.calibrated.stages import Stage, composition, questions_for, whole_noise
from pgbb.methods.calibrated.start import score_bound
from pgbb.model import models
from pgbb.model.models import HuberRegression, Model, Problem
from pgbb.model.schema import Flag, Levels, Range, Schema
from pgbb.planning import costs

Family = Literal["quantile", "linear", "expectile", "huber", "logistic", "poisson", "iv", "mean", "means", "custom"]
MEANS = ("mean", "means")
SIZES = 1.22  # factor of the noise of means by groups, since the last answer asks for sizes too
CLIPPED = {"linear": EITHER, "expectile": EITHER, "iv": EITHER, "poisson": OF_COUNTS}  # where long scores lie
FAMILIES: tuple[Family, ...] = get_args(Family)

Z = 1.959963984540054  # half a 95 % interval, in standard deviations
HALF_OF_LEVEL = 0.05  # relative noise of the second moments of a rare level that hides it every second time
RARE = 0.01  # share of the records that have a rare level
BEYOND = 2.5  # typical distance of records beyond the window of a mean, in spreads, as fits have it
DOUBT = 0.12  # relative error of the curvature of a quantile, through which its sampling error is seen


@dataclass(frozen=True)
class Usual:
    """How fits to real files differ from the reference, chosen by fits of `benchmarks/real.py`.

    Args:
      farther: factor of the noise, since usual covariates and errors are not normal.
      blurred: noise of gradients through noisy curvature, over the noise of second moments.
      half: relative noise of second moments that hides a coefficient every second time.
    """

    farther: float
    blurred: float
    half: float


USUAL: dict[str, Usual] = {
    "quantile": Usual(1.3, 7.0, 0.26),
    "huber": Usual(1.3, 8.0, 0.38),
    "logistic": Usual(1.4, 5.0, 0.28),
    "linear": Usual(1.1, 8.0, 0.24),
    "expectile": Usual(1.3, 5.0, 0.11),
    "poisson": Usual(1.1, 0.0, 0.11),
}
OTHERWISE = Usual(1.1, 8.0, 0.24)  # as least squares


@dataclass(frozen=True)
class Reference:
    """The design and the errors for which widths are predicted.

    Covariates are whitened: a coefficient is the effect of one standard deviation of its covariate, given the others.
    Errors are normal.

    Args:
      family: kind of model.
      terms: p, the number of coefficients, the intercept included; of means by groups how many groups of one size.
      levels: quantile levels, for quantile regression.
      spread: s, standard deviation of the residuals (of the column, for a mean), in units of the response. Counts have
        it as the root of their mean.
      reach: largest squared length of the whitened covariates if it is known to be below R²: an intercept counts 1,
        a covariate that is uniform on its range 3.
      rate: share of ones of a logistic response.
      half: half the window in which the values of a mean are not clipped; default that of the method.
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
        _validate.integer("terms", self.terms, low=2 if self.family in ("iv", "means") else 1)
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
        return math.sqrt(self.reach or squared_reach(1, self.terms, math.inf))

    def problem(self) -> Problem:
        """A problem of this kind and size, over a schema made up for it: what `questions_for` reads."""
        model, schema = replace(self, spread=1.0).model(1.0)
        return model.prepare(schema)

    def model(self, half: float) -> tuple[Model, Schema]:
        """A model of this kind and size, and a schema made up for it, with the response within ±half."""
        names = [f"x{j}" for j in range(1, self.terms)]
        numbers = dict.fromkeys(names, Range(-1, 1))
        schema = Schema(
            y=Range(-half, half), z=Flag(), count=Range(0, 1), w=Range(-1, 1), group=Levels(*range(max(self.terms, 2))),
            **numbers,
        )  # fmt: skip
        terms = " + ".join(names) or "1"
        made: dict[Family, Callable[[], Model]] = {
            "quantile": lambda: models.QuantileRegression(f"y ~ {terms}", taus=self.levels),
            "linear": lambda: models.LinearRegression(f"y ~ {terms}"),
            "expectile": lambda: models.Expectile(f"y ~ {terms}", 0.5),
            "poisson": lambda: models.PoissonRegression(f"count ~ {terms}"),
            "huber": lambda: HuberRegression(f"y ~ {terms}"),
            "logistic": lambda: models.LogisticRegression(f"z ~ {terms}"),
            "mean": lambda: models.Mean("y", scale=self.spread),
            "means": lambda: models.Mean("y", by="group"),
            "iv": lambda: models.IV(f"y ~ {terms} | {' + '.join(['w', *names[1:]])}"),
            "custom": lambda: models.Custom(lambda *_: 0.0, self.terms, clip=1.0, columns=["y"], box=(-1, 1)),
        }
        return made[self.family](), schema

    def errors(self) -> list[tuple[float | None, float, float]]:
        """For every level: (τ or None; √n times the sampling error; the error that a unit of answer noise makes).

        The last is 0 where scores are clipped: that error is a multiple of the sampling error.
        """
        s, radius = self.spread, self.radius
        if self.family == "quantile":
            loud = np.sqrt((strategy(self.levels)[1] ** 2).sum(axis=1)).tolist()
            each = [(tau, noise, _smoothed_density(tau) / s) for tau, noise in zip(self.levels, loud, strict=True)]
            return [(tau, math.sqrt(tau * (1 - tau)) / f, radius * noise / f) for tau, noise, f in each]
        if self.family == "means":
            return [(None, s * math.sqrt(self.terms), (self.half or CLOSEST * s) * SIZES * self.terms)]
        if self.family in ("linear", "expectile", "iv"):
            return [(None, s, 0.0)]
        if self.family == "poisson":
            return [(None, 1 / s, 0.0)]
        if self.family == "huber":
            c, kappa = HuberRegression.c, HuberRegression.kappa
            scale = s / _huber_ratio(c, kappa)
            curvature = float(2 * ndtr(c * scale / s) - 1) / scale
            return [(None, math.sqrt(kappa) / curvature, radius * score_bound(c, kappa) / curvature)]
        if self.family == "logistic":
            curvature = self.rate * (1 - self.rate)
            return [(None, 1 / math.sqrt(curvature), radius / curvature)]
        if self.family == "mean":
            return [(None, s, CLOSEST * s if self.half is None else self.half)]
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
    def identified(self) -> dict[str, float]:
        """The chance that a coefficient is identified: of a column, and of a level that one record in 100 has."""
        noise = whole_noise(self.n, self.epsilon, self.delta)
        half = USUAL.get(self.reference.family, OTHERWISE).half
        column = 1 / (1 + (_loudness(noise, self.reference) / half) ** 3)
        level = 1 / (1 + (noise / RARE / HALF_OF_LEVEL) ** 4)
        return {"column": column, "level_of_one_percent": min(column, level)}

    @property
    def passes(self) -> int:
        """Answers, each of them one pass over the records."""
        return sum(s.asks for s in self.stages)

    @property
    def seconds(self) -> float:
        """Run time on the machine of the benchmark, compiling and reading apart."""
        return costs.seconds("calibrated", self.passes, self.n, self.reference.terms)

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
        return self.sigma * stage.scale

    def to_dict(self) -> dict[str, object]:
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
                {"name": s.name, "asks": s.asks, "share": s.share, "why": s.why, "noise": self.noise(s)}
                | {"noise_multiplier": self.n * self.noise(s)}
                for s in self.stages
            ],
            "identified": self.identified,
            "reference": asdict(self.reference) | {"radius": self.reference.radius},
            "widths": [
                asdict(w) | {"total": w.total, "interval": w.interval, "privacy_share": w.share} for w in self.widths
            ],
        }


def _loudness(noise: float, reference: Reference) -> float:
    """Noise of second moments with the whole budget, beside those of a white design; 0 for a mean, which needs none."""
    return 0.0 if reference.family in MEANS else noise * squared_reach(1, reference.terms, math.inf)


def gradient_share(stages: Sequence[Stage]) -> float:
    """The part of the budget that the two rounds of gradients get; their precisions add up."""
    return sum(s.share for s in stages if s.name in ("refine", "final"))


def forecast(
    n: int, epsilon: float, delta: float, reference: Reference, *, accountant: Accountant = "exact"
) -> Forecast:
    """Noise, passes and interval widths of a calibrated fit.

    The gradient of a coefficient is answered with noise R·b·σ/√share, where the two rounds of gradients have that share
    of the budget and the statistic is b times a vector of norm ≤ 1; over the curvature f this is the error of the
    coefficient. Where scores are clipped, noise and clip are a public multiple of the sampling error. Where second
    moments are hard to see the error is larger, and so it is for usual designs, whose records lie farther out than
    those of the reference (not where `reach` is told), by factors that were found by fits. σ is 2/(nμ) for the μ of
    Gaussian DP that (ε, δ) allows.

    >>> f = forecast(10_000, 1.0, 1e-4, Reference("quantile", terms=4, levels=(0.5,)))
    >>> f.passes, round(f.widths[0].sampling, 4), round(f.widths[0].privacy, 4)
    (22, 0.0131, 0.0086)
    """
    _validate.one_of("accountant", accountant, ACCOUNTANTS)
    goal, failure = _validate.epsilon(epsilon), _validate.delta(delta)
    n = _validate.integer("n", n, low=1)
    noise = whole_noise(n, goal, failure)
    stages = questions_for(reference.problem(), len(reference.levels), noise, weighted=False)
    sigma = noise_scale(composition(stages, n), goal, failure, accountant)
    unit = alone = sigma / math.sqrt(gradient_share(stages))
    score = score_of(np.array(reference.levels)) if reference.family == "quantile" else SCORE
    farthest = squared_reach(n, reference.terms, sigma * stages[-1].scale, score)
    told, reference = reference.reach, replace(reference, reach=min(reference.reach or math.inf, farthest))
    if reference.family in MEANS and reference.half is None:
        groups, last = reference.terms if reference.family == "means" else 1, sigma * stages[-1].scale
        reference = replace(reference, half=half_window(reference.spread, max(n // groups, 1), last * groups))
    if reference.family not in MEANS:
        usual = USUAL.get(reference.family, OTHERWISE)
        unit *= math.hypot(1, usual.blurred * _loudness(noise, reference)) * (usual.farther if told is None else 1.0)
    through = DOUBT * math.sqrt(3 * (reference.terms + 1) / n) if reference.family == "quantile" else 0.0
    beyond = 0.0
    if reference.family == "mean":
        share = next(s.scale for s in stages if s.name == "spread") * sigma / math.sqrt(2)
        beyond = UNCLEAR * share * BEYOND * reference.spread
    if reference.family in CLIPPED:
        through = unit / alone * ordinary_error(alone, n, CLIPPED[reference.family]) / math.sqrt(n)
    widths = tuple(
        Width(tau, sampling / math.sqrt(n), math.hypot(slope * unit, through * sampling, beyond))
        for tau, sampling, slope in reference.errors()
    )
    return Forecast(n, goal, failure, accountant, reference, stages, sigma, widths)
