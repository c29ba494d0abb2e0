"""What the user estimates: quantile, linear, expectile, Huber, logistic and Poisson regression, and a mean.

A model is a small frozen description; `prepare(schema)` turns it into a `Problem`, for which it derives the gradient
of one record and proves its bound C. A loss of the user's own is in custom.py. Nothing here sees a record.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pgbb import _validate
from pgbb.errors import InvalidValue
from pgbb.model.custom import Custom, Simulated
from pgbb.model.poisson import PoissonRegression
from pgbb.model.problem import Index, Namespace, Problem, Values
from pgbb.model.schema import Flag, Range, Schema

__all__ = [
    "IV",
    "Custom",
    "Expectile",
    "HuberRegression",
    "Index",
    "LinearRegression",
    "LogisticRegression",
    "Mean",
    "Model",
    "PoissonRegression",
    "Problem",
    "QuantileRegression",
    "Simulated",
]

BANDWIDTH, FINE = 0.1, 1000
"""Smoothing of the check loss, where a model has none of its own: .1, or a thousandth of the range where that is less.

It moves quantiles by about its square over twice the spread of the residuals. Values with a declared step are spread
over it: by at least 1/√12 of the step, the standard deviation of what is even over half a step to either side."""
CLIP = 8.0
"""Clip of the score of a mean, where a model has none of its own; of a Gaussian one, in its standard deviations."""


def _pair(name: str, value: object, *, above: float, below: float | None = None) -> tuple[float, float]:
    """A pair low < high of finite numbers inside the ends."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise _validate.fail(name, value, "a pair (low, high)")
    low, high = (_validate.number(name, v, above=above, below=below) for v in value)
    if not low < high:
        raise _validate.fail(name, value, "a pair with low < high")
    return low, high


def normal_cdf(xp: object, z: Values) -> Values:
    """Φ, in a numpy-like module."""
    if xp is np:
        from scipy.special import ndtr

        return ndtr(z)
    if hasattr(xp, "normal_cdf"):
        return xp.normal_cdf(z)
    from jax.scipy.special import ndtr as jax_ndtr

    return jax_ndtr(z)


def _on_range(
    kind: str,
    formula: str,
    schema: Schema,
    score: "Callable[..., tuple[Values, Values | None]]",
    steepest: Callable[[float], float],
    settings: dict[str, float] | None = None,
    index: Index | None = None,
) -> Problem:
    """A regression whose response has public bounds; its score is at most `steepest` of half their distance.

    With an intercept the response is centred and every coefficient is bounded by half its range: an effect of a whole
    range between the ends of a term. Without one, by twice the largest absolute response.
    """
    from pgbb.model.formula import Design

    design = Design.parse(formula, schema, response=Range)
    low, high = design.response_bounds
    centre, half, p = (low + high) / 2, (high - low) / 2, len(design.names)
    shift, radius = (centre, half) if design.has_intercept else (0.0, 2 * (abs(centre) + half))
    return Problem.regression(
        kind, design, score, clip=steepest(half) * design.norm_bound, center=np.zeros(p), radius=np.full(p, radius),
        shift=shift, index=index, settings=settings,
    )  # fmt: skip


@dataclass(frozen=True)
class QuantileRegression:
    """Quantile regression with the Gaussian-smoothed check loss, jointly over a list or an interval of τ.

    The derivative of the smoothed loss in the residual r is Φ(r/h) − (1−τ), which lies in (τ−1, τ): so
    ‖∇l‖ ≤ max(τ, 1−τ)·‖x‖, and C is its largest value over the declared τ and the declared box of x; no smaller one
    will do, since r may be any number.

    Args:
      formula: such as "logwk ~ educ + exper + black".
      taus: levels, drawn in training with P_τ ∝ 1/(τ(1−τ)); or None with `interval`.
      bandwidth: h, in units of the response; by default .1, or a thousandth of the declared range where that is less,
        and at least .29 of a declared step. Smaller is less biased and slower to settle. The method "calibrated" has no
        use for it.
      interval: (low, high) of levels, instead of a list.
    """

    formula: str
    taus: Sequence[float] | None = (0.5,)
    bandwidth: float | None = None
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.bandwidth is not None:
            _validate.number("bandwidth", self.bandwidth, above=0)
        if self.interval is not None:
            low, high = _pair("interval", self.interval, above=0, below=1)
            object.__setattr__(self, "taus", None)
            object.__setattr__(self, "interval", (low, high))
            return
        given = [self.taus] if isinstance(self.taus, int | float) else list(self.taus or [])
        taus = tuple(_validate.number("taus", t, above=0, below=1) for t in given)
        if not taus or len(set(taus)) < len(taus):
            raise _validate.fail("taus", self.taus, "a non-empty list of different levels in (0, 1)")
        object.__setattr__(self, "taus", tuple(sorted(taus)))

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: gradient of a record, bound C, box and units; an error if it does not fit."""
        if self.interval is not None:
            low, high = self.interval
            index = Index("tau", low=low, high=high, logit=True)
            steepest = max(high, 1 - low)
        else:
            assert self.taus is not None
            raw = np.array([1 / (t * (1 - t)) for t in self.taus])
            index = Index("tau", levels=tuple(self.taus), weights=tuple((raw / raw.sum()).tolist()))
            steepest = max(max(t, 1 - t) for t in self.taus)
        bandwidth = self.bandwidth
        if bandwidth is None:
            from pgbb.model.formula import Design

            design = Design.parse(self.formula, schema, response=Range)
            low, high = design.response_bounds
            bandwidth = max(min(BANDWIDTH, (high - low) / FINE), design.response_step / math.sqrt(12))

        def score(xp: Namespace, theta: Values, linear: Values, y: Values, tau: Values) -> tuple[Values, None]:
            return (1 - tau) - normal_cdf(xp, (y - linear) / bandwidth), None

        return _on_range("quantile", self.formula, schema, score, lambda _: steepest, {"bandwidth": bandwidth}, index)


@dataclass(frozen=True)
class LinearRegression:
    """Linear regression by least squares: the coefficients minimise E(y − xᵀβ)² over the declared ranges.

    The gradient is (xᵀθ − y)x. A prediction and a response inside the declared range differ by no more than its length
    L, so C = L·sup‖x‖ for such θ; the default method finds a smaller bound privately, and says what it clips.

    Args:
      formula: such as "wage ~ educ + exper".
    """

    formula: str

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: gradient of a record, bound C, box and units; an error if it does not fit."""

        def score(xp: Namespace, theta: Values, linear: Values, y: Values, _: Values) -> tuple[Values, None]:
            return linear - y, None

        return _on_range("linear", self.formula, schema, score, lambda half: 2 * half)


@dataclass(frozen=True)
class IV:
    """Two-stage least squares: E z(y − xᵀβ) = 0 for instruments z, weighted by how they predict the regressors.

    Its answers are those of least squares on all terms of both sides, so C = L·sup‖(x, z)‖; the default method finds a
    smaller bound privately. Regressors that the instruments do not move beyond noise are marked.

    Args:
      formula: such as "lwage ~ educ + exper | near + exper": right of the bar stand all instruments, those regressors
        that are exogenous among them.
    """

    formula: str

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: gradient of a record, bound C, box and units; an error if it does not fit."""
        from pgbb.model.instruments import instruments

        return instruments(self.formula, schema)


@dataclass(frozen=True)
class Expectile:
    """Expectile regression: the coefficients minimise E w(y − xᵀβ)² with w = τ above the line and 1 − τ below.

    Expectiles are to means what quantiles are to medians: τ = .5 is least squares, and a large τ follows the upper
    part of the response, by how far it lies and not only by how much of it there is. The gradient is −w(y − xᵀθ)x, so
    C = max(τ, 1 − τ)·L·sup‖x‖ for predictions inside the declared range, of length L; the default method finds a
    smaller bound privately.

    Args:
      formula: such as "wage ~ educ + exper".
      tau: the level, between 0 and 1.
    """

    formula: str
    tau: float = 0.5

    def __post_init__(self) -> None:
        _validate.number("tau", self.tau, above=0, below=1)

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: gradient of a record, bound C, box and units; an error if it does not fit."""
        tau, most = float(self.tau), max(self.tau, 1 - self.tau)

        def score(xp: Namespace, theta: Values, linear: Values, y: Values, _: Values) -> tuple[Values, None]:
            below = linear - y
            return below * ((1 - tau) * (below > 0) + tau * (below <= 0)), None

        return _on_range("expectile", self.formula, schema, score, lambda half: most * 2 * half, {"tau": tau})


@dataclass(frozen=True)
class HuberRegression:
    """Huber regression with its scale σ_H: l = σ_H ρ_c(r/σ_H) + κσ_H/2.

    With z = r/σ_H the gradient is (−ψ_c(z) x, (κ − min(z², c²))/2). Its squared norm
    min(z², c²)‖x‖² + (κ − min(z², c²))²/4 is convex in min(z², c²) ∈ [0, c²], hence largest at an end:
    C² = max(κ²/4, c²‖x‖² + (c²−κ)²/4). (The paper's C_H bounds the two parts apart, with (c²+κ)/2 for the second.)

    Args:
      formula: such as "y ~ x1 + x2 + x3 - 1".
      c: Huber's constant.
      kappa: κ, the consistency constant of the scale.
      scale: (low, high) box of σ_H in units of the response; default from 1/100,000 to 1/2 of its public range.
    """

    formula: str
    c: float = 1.345
    kappa: float = 0.71
    scale: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _validate.number("c", self.c, above=0)
        _validate.number("kappa", self.kappa, above=0)
        if self.scale is not None:
            low, high = _pair("scale", self.scale, above=0)
            object.__setattr__(self, "scale", (low, high))

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: gradient of a record, bound C, box and units; an error if it does not fit."""
        c, kappa = self.c, self.kappa

        def score(xp: Namespace, theta: Values, linear: Values, y: Values, _: Values) -> tuple[Values, Values]:
            psi = xp.clip((y - linear) / theta[-1], -c, c)
            return -psi, (kappa - psi**2) / 2

        beta = _on_range("huber", self.formula, schema, score, lambda _: c, {"c": c, "kappa": kappa})
        assert beta.design is not None
        bottom, top = beta.design.response_bounds
        low, high = self.scale or ((top - bottom) / 2 / 50_000, (top - bottom) / 2)
        p, c2 = beta.dim, c**2
        transform = np.eye(p + 1)
        transform[:p, :p] = beta.transform
        return replace(
            beta,
            names=(*beta.names, "scale"),
            clip=max(kappa / 2, math.sqrt(c2 * beta.design.norm_bound**2 + (c2 - kappa) ** 2 / 4)),
            center=np.append(beta.center, (low + high) / 2),
            radius=np.append(beta.radius, (high - low) / 2),
            transform=transform,
            offset=np.append(beta.offset, 0.0),
        )


@dataclass(frozen=True)
class LogisticRegression:
    """Logistic regression of a 0/1 response.

    The gradient is (expit(xᵀθ) − y) x and |expit − y| < 1, so C = sup ‖x‖, which is approached as xᵀθ → ±∞.

    Args:
      formula: such as "smoker ~ age + educ".
      bound: largest absolute coefficient of a term mapped to [−1, 1]; default 8, or, for the calibrated method, what
        16 logits for one standard deviation of a covariate make of it.
    """

    formula: str
    bound: float | None = None

    def __post_init__(self) -> None:
        if self.bound is not None:
            _validate.number("bound", self.bound, above=0)

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: gradient of a record, bound C, box and units; an error if it does not fit."""
        from pgbb.model.formula import Design

        design = Design.parse(self.formula, schema, response=Flag)
        p, given = len(design.names), {} if self.bound is None else {"bound": self.bound}

        def score(xp: Namespace, theta: Values, linear: Values, y: Values, _: Values) -> tuple[Values, None]:
            return 0.5 * (1 + xp.tanh(0.5 * linear)) - y, None

        return Problem.regression(
            "logistic", design, score, clip=design.norm_bound, center=np.zeros(p),
            radius=np.full(p, 8.0 if self.bound is None else self.bound), settings=given,
        )  # fmt: skip


@dataclass(frozen=True)
class Mean:
    """Mean of one column by a clipped score: Gaussian, exponential, or Bernoulli; of all records, or by groups.

    Gaussian: l = (x−μ)²/(2s²), score (μ−x)/s². Exponential with mean m: l = log m + x/m, score 1/m − x/m². Bernoulli:
    score (m−x)/(m(1−m)). The score is clipped to [−C, C].

    Args:
      column: a column declared as Range; for Bernoulli as Flag, or as Range(0, 1).
      family: "gaussian", "exponential" or "bernoulli".
      scale: s, the standard deviation (Gaussian) where it is publicly known. The methods "calibrated" and
        "dp_bootstrap" do without it; the others need it.
      clip: C, for the methods that ask for scores; 8 by default, and for a Gaussian mean 8/s: records within eight
        standard deviations of it. With "pgbb" an exponential or Bernoulli mean has C = high − low by default, of the
        score m − x, which has the same root and is never clipped.
      by: a column of declared Levels, or several: then the mean, or of a Flag the proportion, of each group (of each
        combination), all in one release. The groups are disjoint, so all have the noise that one of them would have.
    """

    column: str
    family: Literal["gaussian", "exponential", "bernoulli"] = "gaussian"
    scale: float | None = None
    clip: float | None = None
    by: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        _validate.one_of("family", self.family, ("gaussian", "exponential", "bernoulli"))
        if self.by is not None:
            self._check_by()
        if self.clip is not None:
            _validate.clip(self.clip)
        if self.scale is not None:
            _validate.number("scale", self.scale, above=0)

    def _check_by(self) -> None:
        """Groups have means and proportions, whose scales are found out."""
        from pgbb.model.groups import by_columns

        assert self.by is not None
        object.__setattr__(self, "by", by_columns(self.by))
        for name, value in (("scale", self.scale), ("clip", self.clip)):
            if value is not None:
                raise _validate.fail(name, value, "None with by", "Groups need no such thing: leave it out.")
        if self.family == "exponential":
            raise _validate.fail("family", self.family, "'gaussian' or 'bernoulli' with by", "Leave it out.")

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: gradient of a record, bound C, box and units; an error if it does not fit."""
        bounds = schema.get(self.column)
        flags = self.family == "bernoulli" or self.by is not None
        if not isinstance(bounds, Range) and not (flags and isinstance(bounds, Flag)):
            raise InvalidValue(
                f"column {self.column!r} is not declared as a Range: "
                f"write pgbb.Schema({self.column}=pgbb.Range(low, high))."
            )
        bottom, top = bounds.bounds
        low, high = bottom, top
        if self.family == "exponential":
            if high <= 0:
                raise InvalidValue(
                    f"column {self.column!r} is declared as {bounds!r}: an exponential mean is positive."
                )
            low = max(low, 1e-6 * high)
        elif self.family == "bernoulli" and (low, high) != (0, 1):
            raise InvalidValue(
                f"column {self.column!r} is declared as {bounds!r}: a Bernoulli column is 0 or 1. Declare it as a Flag."
            )
        if self.by is not None:
            from pgbb.model.groups import by_columns, group_means

            return group_means(self.column, by_columns(self.by), self.family, schema)
        scale, family = self.scale, self.family

        def score(xp: Namespace, theta: Values, linear: Values, y: Values, _: Values) -> tuple[Values, None]:
            m = linear  # the design is the constant 1
            if family == "gaussian":
                assert scale is not None  # a method that asks for scores refuses such a model
                return (m - y) / scale**2, None
            if family == "exponential":
                return (1 - y / m) / m, None
            inside = xp.clip(m, 1e-3, 1 - 1e-3)
            return (m - y) / (inside * (1 - inside)), None

        return Problem(
            kind="mean",
            formula=None,
            names=(f"mean({self.column})",),
            clip=self.clip or (CLIP / scale if family == "gaussian" and scale is not None else CLIP),
            center=np.array([(low + high) / 2]),
            radius=np.array([(high - low) / 2]),
            transform=np.eye(1),
            offset=np.zeros(1),
            response=self.column,
            score=score,
            settings={"family": self.family, "scale": self.scale, "low": bottom, "high": top},
        )


Model = (
    QuantileRegression
    | LinearRegression
    | HuberRegression
    | LogisticRegression
    | PoissonRegression
    | Expectile
    | IV
    | Mean
    | Custom
    | Simulated
)
