"""The per-record statistics that the default method asks for, each of norm at most 1 where residuals are as expected.

They are pure functions (x, y, *parameters) of one record; the door of `private/` vectorises them and clips again, which
cuts kernels of several quantile levels that overlap more than was expected.
`frame` is a public matrix F, and u = xF. A record with ‖u‖ > 1 lies far from the bulk and has the weight ω = 1/‖u‖²;
all others have ω = 1. Gradients are multiplied by √ω and matrices by ω, so that ‖√ωu‖ ≤ 1 and ‖ωuuᵀ‖ ≤ 1. Every bound
below follows from that and from the loss. Since ω depends on x only, the weighted estimating equation has the root of
the unweighted one where the model is right.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from pgbb._numerics.compiled import computed_once, dots, packed, times
from pgbb.engine.protocol import made_for
from pgbb.model.models import Problem

__all__ = [
    "cell_curvature",
    "cells",
    "clipped_curvature",
    "clipped_excess",
    "clipped_lengths",
    "clipped_score",
    "column_histograms",
    "column_means",
    "densities",
    "differences",
    "distances",
    "gradient",
    "group_excess",
    "group_moments",
    "group_residuals",
    "group_score",
    "group_spread",
    "histogram",
    "huber_curvature",
    "huber_score",
    "level_means",
    "logistic_curvature",
    "logistic_score",
    "logistic_slope",
    "mean_score",
    "mean_spread",
    "moment",
    "moment_and_cut",
    "offset_mean",
    "weighted_response",
    "wide_moment",
]


def _bounded(x: Any, frame: Any) -> tuple[Any, Any]:
    """√ω u, of norm at most 1, and √ω."""
    u = times(x, frame)
    root = computed_once(1 / jnp.maximum(jnp.sqrt(dots(u, u)), 1.0))
    return computed_once(u * root), root


def _looked_up(numbers: Callable[..., Any]) -> Callable[..., Any]:
    """Make a histogram of a statistic with K `numbers`: for each number the column of A that belongs to its bin.

    The K columns, of norm at most 1, stand side by side and are divided by √K. The last parameters are the edges,
    (K, bins + 1) or (bins + 1,), and A; the outer bins are open. The attributes `above` (which bins a number is in or
    above) and `numbers` let the sum over many records count bins instead of adding columns.
    """

    def above(x: Any, y: Any, *given: Any) -> Any:
        *first, edges, a = given
        lower = edges.reshape(-1, edges.shape[-1])[:, :-1]
        number = computed_once(jnp.atleast_1d(numbers(x, y, *first)))
        return (np.arange(len(a)) == 0) | ~(number[:, None] <= lower)  # also what is no number

    @wraps(numbers)
    def statistic(x: Any, y: Any, *given: Any) -> Any:
        found = above(x, y, *given)
        return given[-1].T[jnp.sum(found, axis=1, dtype=jnp.int32) - 1].reshape(-1) / jnp.sqrt(1.0 * len(found))

    statistic.above, statistic.numbers = above, numbers  # type: ignore[attr-defined]
    return statistic


@_looked_up
def column_histograms(x: Any, y: Any, pick: Any) -> Any:
    """The bins of K terms of the design."""
    return times(x, pick)


def column_means(x: Any, y: Any, pick: Any) -> Any:
    """K terms of the design, each in [−1, 1], over √K."""
    return times(x, pick) / jnp.sqrt(1.0 * pick.shape[1])


def level_means(x: Any, y: Any, pick: Any, middle: Any, half: Any, levels: Any) -> Any:
    """K terms of the design, in units of windows and cut to [−1, 1], times x·`levels` of norm at most 1, over √K."""
    inside = jnp.clip((times(x, pick) - middle) / half, -1.0, 1.0) / jnp.sqrt(1.0 * pick.shape[1])
    return (inside[:, None] * times(x, levels)).reshape(-1)


def moment(x: Any, y: Any, frame: Any) -> Any:
    """ωuuᵀ, packed."""
    return packed(_bounded(x, frame)[0])


def wide_moment(x: Any, y: Any, frame: Any, most: Any) -> Any:
    """uuᵀ/m², packed, where u is cut to length m (`most`)."""
    return packed(_cut(times(x, frame), most))


def moment_and_cut(x: Any, y: Any, frame: Any, part: Any, steep: Any) -> Any:
    """(ωuuᵀ, k·min(s(‖u‖ − 1)₊, 1))/√(1 + k²): second moments, and how far the record is beyond the reach.

    k is `part`, s is `steep`.
    """
    bounded, root = _bounded(x, frame)
    beyond = jnp.clip(steep * (1 / root - 1), 0.0, 1.0)
    return jnp.append(packed(bounded), part * beyond) / jnp.sqrt(1 + part**2)


@_looked_up
def distances(x: Any, y: Any, frame: Any) -> Any:
    """The bin of ‖u‖."""
    u = times(x, frame)
    return jnp.sqrt(dots(u, u))


def weighted_response(x: Any, y: Any, theta: Any, reach: Any, frame: Any) -> Any:
    """√ωu·r/reach, with the residual r = y − xᵀθ clipped to ± reach: what least squares needs beside E ωuuᵀ."""
    return computed_once(jnp.clip((y - times(x, theta)) / reach, -1.0, 1.0)) * _bounded(x, frame)[0]


@_looked_up
def histogram(x: Any, y: Any, theta: Any) -> Any:
    """The bin of the residual y − xᵀθ."""
    return y - times(x, theta)


histogram.plain = lambda y, theta: y if theta.shape == (1,) and not theta.any() else None  # type: ignore[attr-defined]


def cells(x: Any, y: Any, theta: Any, h: Any, a: Any, frame: Any, around: Any) -> Any:
    """A·c ⊗ √ωu, where c is the smoothed indicator of the cell of y between the m fitted curves.

    Where curves cross, sorting the m indicators restores their order, so that c is a point of the simplex and
    ‖A c‖ ≤ 1. A response with a declared step is averaged over the places `around` its value.
    """
    above = _decreasing(computed_once(jnp.mean(ndtr((y + around[:, None] - times(x, theta.T)) / h), axis=0)))
    one, zero = jnp.ones_like(above[:1]), jnp.zeros_like(above[:1])
    edges = jnp.concatenate([one, above, zero])
    cell = computed_once(edges[:-1] - edges[1:])
    return times(cell, a.T)[:, None] * _bounded(x, frame)[0][None, :]


def _decreasing(values: Any) -> Any:
    """The values in decreasing order. A few are sorted by exchanging neighbours, which compiles to faster code."""
    if len(values) > 16:
        return -jnp.sort(-values)
    numbers = list(values)
    for turn in range(len(numbers)):
        for j in range(turn % 2, len(numbers) - 1, 2):
            a, b = numbers[j : j + 2]
            numbers[j : j + 2] = jnp.maximum(a, b), jnp.minimum(a, b)
    return jnp.stack(numbers)


def cell_curvature(x: Any, y: Any, theta: Any, h: Any, overlap: Any, frame: Any, around: Any) -> Any:
    """exp(−r_j²/2h_j²)/overlap · ωuuᵀ for every level j, side by side, averaged over places `around` y.

    `overlap` bounds the norm of the kernels of all levels at one point.
    """
    kernel = jnp.mean(jnp.exp(-0.5 * ((y + around[:, None] - times(x, theta.T)) / h) ** 2), axis=0) / overlap
    kernel, square = computed_once((kernel, packed(_bounded(x, frame)[0])))
    return jnp.ravel(kernel[:, None] * square)


def densities(x: Any, y: Any, theta: Any, h: Any, overlap: Any, around: Any) -> Any:
    """exp(−r_j²/2h_kj²)/overlap for every level j and bandwidth k, side by side, averaged over places `around` y."""
    residual = y + around[:, None, None] - times(x, theta.T)
    return jnp.mean(jnp.exp(-0.5 * (residual / h) ** 2), axis=0) / overlap


def _huber(x: Any, y: Any, theta: Any, c: Any) -> tuple[Any, Any]:
    z = (y - times(x, theta[:-1])) / theta[-1]
    return z, jnp.clip(z, -c, c)


def huber_score(x: Any, y: Any, theta: Any, frame: Any, weight: Any, c: Any, kappa: Any, bound: Any) -> Any:
    """(−√ωψu, ωk(κ − ψ²)/2)/b: the gradient in (β, σ_H), with b = `bound` and k = `weight`.

    Its squared norm is convex in ψ², hence largest at ψ² = 0 or c²; `huber.score_bound` is that maximum.
    """
    _, psi = _huber(x, y, theta, c)
    extra = weight * (kappa - psi**2) / 2
    return jnp.append(-psi * _bounded(x, frame)[0], extra * _bounded(x, frame)[1] ** 2) / bound


def huber_curvature(x: Any, y: Any, theta: Any, frame: Any, weight: Any, c: Any) -> Any:
    """ω1{|z| < c} vvᵀ/(1 + k²c²) with v = (u, kz): σ_H times the Hessian in (β, σ_H), up to the constant."""
    z, _ = _huber(x, y, theta, c)
    bounded, root = _bounded(x, frame)
    return packed(jnp.append(bounded, weight * z * root) * (jnp.abs(z) < c)) / (1 + (weight * c) ** 2)


def _line(x: Any, y: Any, theta: Any, frame: Any, _: Any) -> tuple[Any, Any]:
    """Score −ur and root u of the curvature of a linear regression."""
    u = times(x, frame)
    return u * (times(x, theta) - y), u


def _cut(v: Any, most: Any) -> Any:
    """v/m, cut to length 1; m is `most`."""
    return v / jnp.maximum(jnp.sqrt(dots(v, v)), most)


def offset_mean(x: Any, y: Any, terms: Any) -> Any:
    """The offset, in [−1, 1]: the column of a row that follows the terms of the design."""
    return x[len(terms)]


def _poisson(x: Any, y: Any, theta: Any, frame: Any, link: Any) -> tuple[Any, Any]:
    """Score u(μ − y) and root u√μ of the curvature of a Poisson regression.

    log μ is xᵀθ plus the offset, if a row has one. `link` holds the largest log μ that counts, and the middle and half
    the length of the range of the offset.
    """
    linear = times(x, theta)
    if len(x) > len(theta):
        linear = linear + link[1] + link[2] * x[len(theta)]
    root, u = jnp.exp(0.5 * jnp.minimum(linear, link[0])), times(x, frame)
    return u * (root**2 - y), u * root


def _expectile(x: Any, y: Any, theta: Any, frame: Any, tau: Any) -> tuple[Any, Any]:
    """Score −uwr and root u√w of the curvature of an expectile regression.

    The weight w is τ where the residual r = y − xᵀθ is positive, and 1 − τ elsewhere.
    """
    r, u = y - times(x, theta), times(x, frame)
    w = jnp.where(r > 0, tau, 1 - tau)
    return -u * (w * r), u * jnp.sqrt(w)


def _family(x: Any, y: Any, theta: Any, frame: Any, given: Any) -> tuple[Any, Any]:
    """The score v and the root of the curvature, without ω, of the family that the shape of `given` belongs to.

    Least squares has an empty array, (0,); expectiles have the number τ, (); Poisson regression its link, (3,).
    """
    known = {(0,): _line, (): _expectile, (3,): _poisson}
    return known[jnp.shape(given)](x, y, theta, frame, given)


@_looked_up
def clipped_lengths(x: Any, y: Any, theta: Any, frame: Any, given: Any) -> Any:
    """The bin of the length ‖v‖ of the score."""
    v = _family(x, y, theta, frame, given)[0]
    return jnp.sqrt(dots(v, v))


def clipped_score(x: Any, y: Any, theta: Any, frame: Any, given: Any, bound: Any) -> Any:
    """The score over b, v/b, cut to length 1."""
    return _cut(_family(x, y, theta, frame, given)[0], bound)


def clipped_curvature(x: Any, y: Any, theta: Any, frame: Any, given: Any, most: Any) -> Any:
    """wwᵀ, packed, where w is the root of the curvature over m, cut to length 1."""
    return packed(_cut(_family(x, y, theta, frame, given)[1], most))


def clipped_excess(x: Any, y: Any, theta: Any, frame: Any, given: Any, bound: Any) -> Any:
    """By how many bounds b the score is longer than b, at most one, as one number."""
    v = _family(x, y, theta, frame, given)[0]
    return jnp.clip(jnp.sqrt(dots(v, v)) / bound - 1, 0.0, 1.0)[None]


def logistic_score(x: Any, y: Any, theta: Any, frame: Any) -> Any:
    """√ω(p − y)u with p = expit(xᵀθ)."""
    return computed_once(jax.nn.sigmoid(times(x, theta)) - y) * _bounded(x, frame)[0]


def logistic_curvature(x: Any, y: Any, theta: Any, frame: Any) -> Any:
    """4p(1 − p)ωuuᵀ, packed."""
    p = jax.nn.sigmoid(times(x, theta))
    return computed_once(4 * p * (1 - p)) * packed(_bounded(x, frame)[0])


def logistic_slope(x: Any, y: Any, theta: Any, frame: Any) -> Any:
    """(4pq, 6√3·pq(1 − 2p)√ωu)/√2 with q = 1 − p: the slope of p, and its derivative in θ; each has norm at most 1."""
    p = jax.nn.sigmoid(times(x, theta))
    slope = p * (1 - p)
    bend = (6 * 3**0.5) * slope * (1 - 2 * p) * _bounded(x, frame)[0]
    return jnp.concatenate([4 * slope[None], bend]) / jnp.sqrt(2.0)


def _of_response(statistic: Callable[..., Any]) -> Callable[..., Any]:
    """A statistic of y alone, which takes a NumPy array of many as well (`private/plain_sums.py`)."""
    statistic.plain = lambda y, *given: statistic(None, y, *given)  # type: ignore[attr-defined]
    return statistic


@_of_response
def mean_score(x: Any, y: Any, low: Any, high: Any) -> Any:
    """y clipped to [low, high], mapped to [−1, 1]."""
    return (y.clip(low, high) - (low + high) / 2) * (1 / ((high - low) / 2))


@_of_response
def mean_spread(x: Any, y: Any, low: Any, high: Any, centre: Any) -> Any:
    """(2·1{low ≤ y ≤ high} − 1, 2(clip(y) − centre)²/reach² − 1)/√2.

    `reach` is the larger distance of the centre to an end of the window.
    """
    reach = (high - centre).clip(centre - low)
    inside = 2 * ((y >= low) & (y <= high)).astype(y.dtype) - 1
    square = 2 * ((y.clip(low, high) - centre) * (1 / reach)) ** 2 - 1
    stack = np.stack if isinstance(y, np.ndarray) else jnp.stack
    return stack([inside, square]) * (1 / np.sqrt(np.float32(2)))


def _group(x: Any, y: Any, middle: Any, unit: Any) -> tuple[Any, Any]:
    """The dummies e of the groups, of norm at most 1 whatever x is, and (y − middle)/unit in the record's own group."""
    middle, unit = times(x, middle), times(x, unit)
    return x / jnp.maximum(jnp.sqrt(dots(x, x)), 1.0), (y - middle) / jnp.maximum(unit, 1e-30)


def group_moments(x: Any, y: Any, middle: Any, half: Any) -> Any:
    """(e, ez, ez²)/√3 with z = (y − middle)/half of the own group, cut to ± 1."""
    e, r = _group(x, y, middle, half)
    z = jnp.clip(r, -1.0, 1.0)
    return jnp.concatenate([e, e * z, e * z**2]) / jnp.sqrt(3.0)


@_looked_up
def group_residuals(x: Any, y: Any, middle: Any, spread: Any) -> Any:
    """The bin of r, which is y less the middle of its group, in spreads of the group."""
    return _group(x, y, middle, spread)[1]


def group_excess(x: Any, y: Any, middle: Any, spread: Any, bound: Any, most: Any) -> Any:
    """((r − b)₊, (−r − b)₊)/m, cut to 1: how far r lies beyond ± b, with r as in `group_residuals` and b > 0."""
    r = _group(x, y, middle, spread)[1]
    return jnp.clip(jnp.stack([r, -r]) - bound, 0.0, most) / most


def group_score(x: Any, y: Any, middle: Any, half: Any, part: Any) -> Any:
    """(ke, ez)/√(1 + k²) with z as in `group_moments`: sizes and means of the groups."""
    e, r = _group(x, y, middle, half)
    return jnp.concatenate([part * e, e * jnp.clip(r, -1.0, 1.0)]) / jnp.sqrt(1 + part**2)


def group_spread(x: Any, y: Any, middle: Any, half: Any) -> Any:
    """ez² with z as in `group_moments`."""
    e, r = _group(x, y, middle, half)
    return e * jnp.clip(r, -1.0, 1.0) ** 2


def _clipped(problem: Problem, x: Any, theta: Any) -> Any:
    """∇l/C of a custom loss, clipped to norm 1."""
    assert problem.gradient is not None
    slope = problem.gradient(theta, x, 0.0) / problem.clip
    slope = computed_once(jnp.where(jnp.all(jnp.isfinite(slope)), slope, 0.0))
    return slope / jnp.maximum(jnp.sqrt(dots(slope, slope)), 1.0)


@made_for
def gradient(problem: Problem) -> Any:
    """Make the statistic ∇l/C of a custom loss."""
    return lambda x, y, theta: _clipped(problem, x, theta)


@made_for
def differences(problem: Problem) -> Any:
    """Make the statistic (∇l(θ + ρ_j e_j) − ∇l(θ − ρ_j e_j))/(2C√d) for every j: curvature over a public distance ρ."""

    def change(x: Any, y: Any, theta: Any, step: Any) -> Any:
        moves = jnp.diag(step)
        up = jax.vmap(lambda m: _clipped(problem, x, theta + m))(moves)
        down = jax.vmap(lambda m: _clipped(problem, x, theta - m))(moves)
        return (up - down) / (2 * jnp.sqrt(1.0 * len(step)))

    return change
