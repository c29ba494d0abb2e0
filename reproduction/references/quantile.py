"""Quantile regression on plain arrays: smoothed, with its multiplier bootstrap, and exact, by linear programming.

Nothing here is private. Coefficients are those of the columns of x as given:
no intercept is added.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from pgbb import _validate
from pgbb._numerics import newton as _newton
from pgbb._numerics.newton import CELLS, Floats, Sample
from pgbb.errors import InvalidValue, PgbbError
from pgbb.reference.solvers import check_weights

__all__ = ["as_sample", "exact_quantile", "multiplier_bootstrap", "smoothed_quantile"]


def smoothed_quantile(
    x: ArrayLike, y: ArrayLike, tau: float, bandwidth: float, weights: ArrayLike | None = None
) -> Floats:
    """The minimiser of Σ w_i l_τ(y_i − x_iᵀθ), the check loss smoothed by a Gaussian of standard deviation h.

    Args:
      x: (n, p); add a column of ones for an intercept.
      y: (n,).
      tau: τ in (0, 1).
      bandwidth: h, in units of y.
      weights: (n,) or (m, n), non-negative; None means equal weights.

    Returns:
      (p,), or (m, p) for many weight vectors.

    >>> smoothed_quantile(np.ones((5, 1)), [0.0, 1.0, 2.0, 3.0, 4.0], tau=0.5, bandwidth=0.5).round(6)
    array([2.])
    """
    sample, back = _whitened(x, y)
    tau, bandwidth = _level(tau, bandwidth)
    n = len(sample.y)
    array = np.ones(n) if weights is None else check_weights(weights, n)
    rows = np.atleast_2d(array)
    total = rows.sum(axis=1, keepdims=True)
    if not (total > 0).all():
        raise InvalidValue("weights that are all 0 are not allowed: every row needs a positive weight.")
    step = max(1, CELLS // n)
    parts = []
    for start in range(0, len(rows), step):
        part = rows[start : start + step] / total[start : start + step]
        parts.append(_trusted(*_newton.minimise_quantile(sample, tau, bandwidth, part)))
    theta = back(np.concatenate(parts))
    return theta[0] if array.ndim == 1 else theta


def multiplier_bootstrap(x: ArrayLike, y: ArrayLike, tau: float, bandwidth: float, draws: int, seed: int) -> Floats:
    """Refits of `smoothed_quantile` under weights from Exp(1), each started at the full fit: (draws, p).

    >>> y = np.random.default_rng(0).normal(size=400)
    >>> draws = multiplier_bootstrap(np.ones((400, 1)), y, tau=0.5, bandwidth=0.2, draws=500, seed=1)
    >>> draws.shape, bool(0.04 < draws.std() < 0.09)  # √(π/2)/√400 = .063
    ((500, 1), True)
    """
    sample, back = _whitened(x, y)
    tau, bandwidth = _level(tau, bandwidth)
    draws = _validate.integer("draws", draws, low=1)
    rng = np.random.default_rng(_validate.integer("seed", seed, low=0))
    n = len(sample.y)
    equal = np.full((1, n), 1 / n)
    full = _trusted(*_newton.minimise_quantile(sample, tau, bandwidth, equal))
    out = np.empty((draws, full.shape[1]))
    step = max(1, CELLS // n)
    for start in range(0, draws, step):
        weights = rng.standard_exponential((min(step, draws - start), n))
        weights /= weights.sum(axis=1, keepdims=True)
        start_at = np.tile(full, (len(weights), 1))
        theta, done = _newton.minimise_quantile(sample, tau, bandwidth, weights, start_at)
        again = np.flatnonzero(~done)
        if len(again):
            theta[again] = _trusted(*_newton.minimise_quantile(sample, tau, bandwidth, weights[again]))
        out[start : start + step] = theta
    return back(out)


def exact_quantile(x: ArrayLike, y: ArrayLike, tau: float) -> Floats:
    """A minimiser of Σ ρ_τ(y_i − x_iᵀθ), the check loss itself; (p,).

    Solves the dual linear program, max yᵀa with Xᵀa = (1−τ)Xᵀ1 and 0 ≤ a ≤ 1
    (Koenker, Quantile Regression, §6.2), whose multipliers are θ. Where the
    minimiser is not unique this is one vertex of the set of minimisers.

    >>> exact_quantile(np.ones((5, 1)), [0.0, 1.0, 2.0, 3.0, 10.0], tau=0.7)
    array([3.])
    """
    sample, back = _whitened(x, y)
    tau = _validate.number("tau", tau, above=0, below=1)
    found = linprog(-sample.y, A_eq=sample.x.T, b_eq=(1 - tau) * sample.x.sum(axis=0), bounds=(0, 1), method="highs")
    if found.status != 0:
        raise PgbbError(
            f"the linear program of the quantile fit ended with status {found.status} of scipy.optimize.linprog "
            "instead of a solution. Rescale y to moderate numbers, or use smoothed_quantile."
        )
    return back(-np.atleast_2d(found.eqlin.marginals))[0]


def _whitened(x: ArrayLike, y: ArrayLike) -> tuple[Sample, Callable[[Floats], Floats]]:
    """The sample with orthonormal columns (up to √n), and the way back: tolerances then mean the same for any units."""
    sample = as_sample(x, y)
    n, p = sample.x.shape
    scale = np.sqrt(np.mean(np.square(sample.x), axis=0))
    if n >= p and (scale > 0).all():
        q, r = np.linalg.qr(sample.x / scale)
        diagonal = np.abs(np.diag(r))
        if diagonal.min() > 1e-10 * diagonal.max():

            def back(theta: Floats) -> Floats:
                return np.linalg.solve(r, theta.T * np.sqrt(n)).T / scale

            return Sample(np.sqrt(n) * q, sample.y), back
    raise InvalidValue(
        f"x of shape {sample.x.shape} has collinear columns, so its coefficients are not determined. Remove some."
    )


def _level(tau: float, bandwidth: float) -> tuple[float, float]:
    return _validate.number("tau", tau, above=0, below=1), _validate.number("bandwidth", bandwidth, above=0)


def _trusted(theta: Floats, done: _newton.Bools) -> Floats:
    if not done.all():
        raise PgbbError(
            f"{int((~done).sum())} of {len(done)} smoothed quantile fits did not converge to a gradient of "
            f"{_newton.TOLERANCE:g}: the bandwidth is so small that the loss is flat, or the weights leave too few "
            "records. Pass a larger bandwidth."
        )
    return theta


def as_sample(x: ArrayLike, y: ArrayLike) -> Sample:
    """x (n, p) and y (n,) in double precision, validated."""
    try:
        design, response = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidValue(
            f"x of type {type(x).__name__} and y of type {type(y).__name__} are not allowed: they must be arrays of "
            "numbers. Take x and y of pgbb.private.door.non_private(...), and publish nothing that comes of them."
        ) from None
    if design.ndim != 2 or response.shape != design.shape[:1] or not len(response):
        raise InvalidValue(
            f"x of shape {design.shape} with y of shape {response.shape} is not allowed: they must be (n, p) and (n,)."
        )
    if not (np.isfinite(design).all() and np.isfinite(response).all()):
        raise InvalidValue("x or y holds NaN or infinite values, which no fit allows. Remove those rows first.")
    return Sample(design, response)
