"""Damped Newton for many weighted convex losses at once: the numerical core of references and private refits.

Works on plain arrays and knows neither models nor records. A loss maps a batch of parameters (m, d) and of normalised
weights (m, n) to values (m,), gradients (m, d) and Hessians (m, d, d).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Loss = Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]

TOLERANCE = 1e-8  # largest norm of the averaged gradient at an answer
_TARGET = 1e-11  # what the iteration aims at
_STEP = 1e-5  # largest remaining Newton step, in units of the parameter: where the loss is flat no answer is exact
_ROUND = 1e-13  # relative rounding of an averaged loss
_TRIALS = 200
CELLS = 2**15  # weights handled at once: a dozen arrays of this size stay in the cache


@dataclass(frozen=True)
class Sample:
    """Design (n, p) and response (n,), in double precision."""

    x: Floats
    y: Floats

    @cached_property
    def _products(self) -> Floats | None:
        """The products x_j x_k for j ≤ k, side by side; None where they would fill the memory."""
        n, p = self.x.shape
        if n * p * (p + 1) // 2 > 2**25:
            return None
        rows, columns = np.triu_indices(p)
        return self.x[:, rows] * self.x[:, columns]

    def gram(self, weights: Floats) -> Floats:
        """Σ_i w_i x_i x_iᵀ for each row of weights (m, n); (m, p, p)."""
        p = self.x.shape[1]
        out = np.empty((len(weights), p, p))
        if self._products is None:
            for row, weight in zip(out, weights, strict=True):
                row[:] = (self.x * weight[:, None]).T @ self.x
            return out
        rows, columns = np.triu_indices(p)
        flat = weights @ self._products
        out[:, rows, columns] = flat
        out[:, columns, rows] = flat
        return out


def quantile_loss(sample: Sample, tau: float, bandwidth: float) -> Loss:
    """The check loss smoothed by a Gaussian: r(Φ(r/h) − (1−τ)) + hφ(r/h), with curvature φ(r/h)/h in r."""

    def loss(theta: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        residual = sample.y - theta @ sample.x.T
        z = residual / bandwidth
        slope = ndtr(z) - (1 - tau)
        density = np.exp(-0.5 * np.square(z)) / math.sqrt(2 * math.pi)
        value = np.einsum("mn,mn->m", weights, residual * slope + bandwidth * density)
        return value, -(weights * slope) @ sample.x, sample.gram(weights * density / bandwidth)

    return loss


def logistic_loss(sample: Sample) -> Loss:
    """log(1 + e^η) − yη with η = xᵀθ."""

    def loss(theta: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        linear = theta @ sample.x.T
        mean = expit(linear)
        value = np.einsum("mn,mn->m", weights, np.logaddexp(0, linear) - sample.y * linear)
        return value, (weights * (mean - sample.y)) @ sample.x, sample.gram(weights * mean * expit(-linear))

    return loss


def huber_loss(sample: Sample, c: float, kappa: float) -> Loss:
    """σρ_c(r/σ) + κσ/2, convex in (β, σ) jointly, being a perspective; infinite for σ ≤ 0.

    Its Hessian is (x, z)(x, z)ᵀ/σ with z = r/σ for |z| < c, and 0 beyond.
    """

    def loss(theta: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        p = sample.x.shape[1]
        inside = theta[:, -1] > 0
        scale = np.where(inside, theta[:, -1], 1.0)[:, None]
        residual = sample.y - theta[:, :p] @ sample.x.T
        z = residual / scale
        psi = np.clip(z, -c, c)
        value = np.einsum("mn,mn->m", weights, psi * (residual - scale * psi / 2))
        value = np.where(inside, value + kappa * theta[:, -1] / 2, np.inf)
        gradient = np.empty_like(theta)
        gradient[:, :p] = -(weights * psi) @ sample.x
        gradient[:, p] = (kappa - np.einsum("mn,mn->m", weights, np.square(psi))) / 2
        inner = weights * (np.abs(z) < c) / scale
        hessian = np.empty((len(theta), p + 1, p + 1))
        hessian[:, :p, :p] = sample.gram(inner)
        hessian[:, :p, p] = hessian[:, p, :p] = (inner * z) @ sample.x
        hessian[:, p, p] = np.einsum("mn,mn->m", inner, np.square(z))
        return value, gradient, hessian

    return loss


def ridged(loss: Loss, penalty: float) -> Loss:
    """The loss plus (penalty/2)‖θ‖²."""
    if penalty == 0:
        return loss

    def penalised(theta: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        value, gradient, hessian = loss(theta, weights)
        square = np.einsum("md,md->m", theta, theta)
        return value + penalty / 2 * square, gradient + penalty * theta, hessian + penalty * np.eye(theta.shape[1])

    return penalised


@np.errstate(over="ignore", invalid="ignore")  # a step may be absurd: it is refused
def minimise(loss: Loss, start: Floats, weights: Floats, unit: float) -> tuple[Floats, Bools]:
    """Minimise for every row of weights (m, n) from `start` (m, d); returns (m, d) and which rows converged.

    A step solves (H + μD)δ = −∇ with D the diagonal of H at the start. It is taken if it lowers the loss, or the
    gradient where the loss no longer changes in double precision; otherwise μ grows, which shortens the step. A row has
    converged when its gradient and its undamped step are small: the second, measured in `unit`, fails where there is no
    minimum (separated classes) or where it is not unique.
    """
    theta = start.copy()
    value, gradient, hessian = loss(theta, weights)
    metric = np.einsum("mdd->md", hessian).copy()
    metric = np.maximum(metric, 1e-8 * metric.max(axis=1, keepdims=True) + 1e-30)
    damping = np.zeros(len(theta))
    stalled = np.zeros(len(theta), dtype=np.bool_)
    done = np.zeros(len(theta), dtype=np.bool_)
    live = np.arange(len(theta))
    for _ in range(_TRIALS):
        norm = _norm(gradient[live])
        near = live[norm <= TOLERANCE]
        if len(near):
            length = _norm(_steps(gradient[near], hessian[near], np.zeros_like(metric[near])))
            enough = (_norm(gradient[near]) <= _TARGET) | stalled[near]  # rounding allows no better
            done[near] = enough & (length <= _STEP * (unit + _norm(theta[near])))
        stop = done[live] | (damping[live] > 1e12)
        live, norm = live[~stop], norm[~stop]
        if not len(live):
            break
        steps = _steps(gradient[live], hessian[live], damping[live, None] * metric[live])
        good = np.asarray(np.isfinite(steps).all(axis=1))
        trial = theta[live] + np.where(good[:, None], steps, 0.0)
        new_value, new_gradient, new_hessian = loss(trial, weights[live])
        slack = _ROUND * np.abs(value[live])
        slope = np.einsum("md,md->m", gradient[live], steps)
        lower = new_value <= value[live] + 1e-4 * slope - slack
        flatter = (new_value <= value[live] + slack) & (_norm(new_gradient) < norm)
        taken = good & np.isfinite(new_value) & (lower | flatter)
        into = live[taken]
        theta[into], value[into] = trial[taken], new_value[taken]
        gradient[into], hessian[into] = new_gradient[taken], new_hessian[taken]
        damping[into] = np.where(damping[into] < 1e-7, 0.0, damping[into] / 10)
        refused = live[~taken]
        damping[refused] = np.maximum(10 * damping[refused], 1e-6)
        stalled[live] = ~taken
    return theta, done & _unique(hessian)


def _unique(hessian: Floats) -> Bools:
    """Whether each Hessian, with its diagonal scaled to 1, is positive definite beyond rounding."""
    scale = np.sqrt(np.maximum(np.einsum("mdd->md", hessian), 1e-300))
    return np.linalg.eigvalsh(hessian / (scale[:, :, None] * scale[:, None, :]))[:, 0] > 1e-12


def _steps(gradient: Floats, hessian: Floats, ridge: Floats) -> Floats:
    """−(H + diag(ridge))⁻¹∇ for each row; NaN where the matrix is singular."""
    matrix = hessian + ridge[:, :, None] * np.eye(hessian.shape[1])
    try:
        steps = np.asarray(-np.linalg.solve(matrix, gradient[..., None])[..., 0], dtype=np.float64)
    except np.linalg.LinAlgError:
        steps = np.full_like(gradient, np.nan)
        for row in range(len(matrix)):
            try:
                steps[row] = -np.linalg.solve(matrix[row], gradient[row])
            except np.linalg.LinAlgError:
                continue
    return steps


def _norm(rows: Floats) -> Floats:
    return np.sqrt(np.einsum("md,md->m", rows, rows))


def least_squares(sample: Sample, weights: Floats, penalty: float = 0.0) -> Floats:
    """Weighted least squares for each row of weights (m, n); a tiny ridge makes sure that a solution exists."""
    gram = sample.gram(weights)
    trace = np.einsum("mdd->m", gram)[:, None, None]
    gram = gram + (penalty + 1e-10 * trace + 1e-30) * np.eye(gram.shape[1])
    return np.linalg.solve(gram, ((weights * sample.y) @ sample.x)[..., None])[..., 0]


def spread(sample: Sample, theta: Floats, weights: Floats) -> Floats:
    """Root of the weighted mean squared residual, for each row; (m,)."""
    return np.sqrt(np.einsum("mn,mn->m", weights, np.square(sample.y - theta @ sample.x.T)))


def minimise_squares(sample: Sample, weights: Floats) -> tuple[Floats, Bools]:
    """The least-squares fit of each row of weights; it converges where columns are not collinear."""
    theta, gram = least_squares(sample, weights), sample.gram(weights)
    rest = np.einsum("mn,mn,nd->md", weights, sample.y - theta @ sample.x.T, sample.x)  # the tiny ridge is taken back
    theta = theta + np.einsum("mde,me->md", np.linalg.pinv(gram), rest)
    return theta, np.linalg.cond(gram) < 1e12


def minimise_quantile(
    sample: Sample, tau: float, bandwidth: float, weights: Floats, start: Floats | None = None, penalty: float = 0.0
) -> tuple[Floats, Bools]:
    """The smoothed quantile fit for each row of weights, by continuation: h falls by thirds to its value.

    From scratch it begins at the spread of the residuals of least squares; from
    the fit with other weights, at the distance to be expected, which is of the
    order of the spread times √(p/n). With `penalty` it is that of the loss plus (penalty/2)‖θ‖².
    """
    theta = least_squares(sample, weights, penalty) if start is None else start
    unit = float(spread(sample, theta, weights).max())
    n, p = sample.x.shape
    first = unit if start is None else unit * math.sqrt(p / n)
    stages = max(0, math.ceil(math.log(max(first, 1e-300) / bandwidth, 3)))
    done = np.zeros(len(weights), dtype=np.bool_)
    for stage in range(stages, -1, -1):
        loss = ridged(quantile_loss(sample, tau, bandwidth * 3.0**stage), penalty)
        theta, done = minimise(loss, theta, weights, unit)
    return theta, done


def minimise_huber(
    sample: Sample, c: float, kappa: float, weights: Floats, start: Floats | None = None
) -> tuple[Floats, Bools]:
    """The Huber fit with its scale; from scratch at least squares and the σ = √(Q/κ) of residuals all within c."""
    if start is None:
        beta = least_squares(sample, weights)
        sigma = np.maximum(spread(sample, beta, weights), 1e-300) / math.sqrt(kappa)
        start = np.column_stack([beta, sigma])
    return minimise(huber_loss(sample, c, kappa), start, weights, float(start[:, -1].max()))


def poisson_loss(sample: Sample) -> Loss:
    """e^η − yη with η = xᵀθ."""

    def loss(theta: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        linear = np.minimum(theta @ sample.x.T, 300.0)
        mean = np.exp(linear)
        value = np.einsum("mn,mn->m", weights, mean - sample.y * linear)
        return value, (weights * (mean - sample.y)) @ sample.x, sample.gram(weights * mean)

    return loss


def minimise_poisson(sample: Sample, weights: Floats, start: Floats | None = None) -> tuple[Floats, Bools]:
    """The Poisson fit; from scratch at the logarithm of the mean, as far as the columns reach it."""
    if start is None:
        level = np.log(np.maximum(weights @ sample.y, 1e-300))
        start = level[:, None] * least_squares(Sample(sample.x, np.ones_like(sample.y)), weights)
    return minimise(poisson_loss(sample), start, weights, 1.0)


def minimise_expectile(sample: Sample, tau: float, weights: Floats) -> tuple[Floats, Bools]:
    """Weighted least squares, again and again, until no residual changes its sign."""
    theta, done = minimise_squares(sample, weights)
    for _ in range(200):
        above = sample.y > theta @ sample.x.T
        theta, done = minimise_squares(sample, weights * np.where(above, tau, 1 - tau))
        if ((sample.y > theta @ sample.x.T) == above).all():
            break
    return theta, done


def minimise_logistic(sample: Sample, weights: Floats, start: Floats | None = None) -> tuple[Floats, Bools]:
    """The logistic fit; from scratch at zero."""
    start = np.zeros((len(weights), sample.x.shape[1])) if start is None else start
    return minimise(logistic_loss(sample), start, weights, 1.0)
