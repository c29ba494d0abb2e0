"""The per-record statistics that the calibrated method asks for, each of norm at most 1.

Pure functions (x, y, *parameters) of one record, which the door of `private/` vectorises and clips again. `frame` is a
public matrix F, and u = xF. A record with ‖u‖ > 1 has its covariates far from the bulk: with ω = 1/‖u‖² (else 1)
gradients have the weight √ω and matrices ω, so that ‖√ωu‖ ≤ 1 and ‖ωuuᵀ‖ ≤ 1: every bound below rests on that and on
the loss alone. Since ω depends on x only, the weighted equation has the same root where the model is right.
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
    """The columns of A of the bins of K numbers of a record, over √K: side by side they have norm at most 1.

    Edges, (K, bins + 1) or (bins + 1,), and A are the last parameters; the outer bins are open. `above` tells of which
    bins each number is in or above: who adds up many records may count instead. `numbers` are those numbers.
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
    """The bins of K terms."""
    return times(x, pick)


def column_means(x: Any, y: Any, pick: Any) -> Any:
    """K terms, each in [−1, 1], over √K."""
    return times(x, pick) / jnp.sqrt(1.0 * pick.shape[1])


def moment(x: Any, y: Any, frame: Any) -> Any:
    """ωuuᵀ."""
    return packed(_bounded(x, frame)[0])


def wide_moment(x: Any, y: Any, frame: Any, most: Any) -> Any:
    """uuᵀ/m², where u is cut to length m."""
    return packed(_cut(times(x, frame), most))


def moment_and_cut(x: Any, y: Any, frame: Any, part: Any) -> Any:
    """(ωuuᵀ, k·1{ω < 1})/√(1 + k²): second moments, and whether the record is weighted down."""
    bounded, root = _bounded(x, frame)
    return jnp.append(packed(bounded), part * (root < 1)) / jnp.sqrt(1 + part**2)


@_looked_up
def distances(x: Any, y: Any, frame: Any) -> Any:
    """The bin of ‖u‖."""
    u = times(x, frame)
    return jnp.sqrt(dots(u, u))


def weighted_response(x: Any, y: Any, theta: Any, reach: Any, frame: Any) -> Any:
    """√ωu·r/reach for the residual r = y − xᵀθ clipped to ± reach: what a least-squares fit needs beside ωuuᵀ."""
    return computed_once(jnp.clip((y - times(x, theta)) / reach, -1.0, 1.0)) * _bounded(x, frame)[0]


@_looked_up
def histogram(x: Any, y: Any, theta: Any) -> Any:
    """The bin of the residual (of y, at θ = 0)."""
    return y - times(x, theta)


def cells(x: Any, y: Any, theta: Any, h: Any, a: Any, frame: Any, around: Any) -> Any:
    """A·c ⊗ √ωu with c the (smoothed) cell of y between the m fitted curves.

    Where curves cross, sorting the m indicators restores their order, so c is a
    point of the simplex and ‖A c‖ ≤ 1. A response with a step lies at once at several places `around` its value.
    """
    above = _decreasing(computed_once(jnp.mean(ndtr((y + around[:, None] - times(x, theta.T)) / h), axis=0)))
    one, zero = jnp.ones_like(above[:1]), jnp.zeros_like(above[:1])
    cell = computed_once(jnp.concatenate([one, above]) - jnp.concatenate([above, zero]))
    return times(cell, a.T)[:, None] * _bounded(x, frame)[0][None, :]


def _decreasing(values: Any) -> Any:
    """In decreasing order; a few numbers by exchanging neighbours, which compiles to faster code."""
    if len(values) > 16:
        return -jnp.sort(-values)
    numbers = list(values)
    for turn in range(len(numbers)):
        for j in range(turn % 2, len(numbers) - 1, 2):
            a, b = numbers[j : j + 2]
            numbers[j : j + 2] = jnp.maximum(a, b), jnp.minimum(a, b)
    return jnp.stack(numbers)


def cell_curvature(x: Any, y: Any, theta: Any, h: Any, overlap: Any, frame: Any, around: Any) -> Any:
    """exp(−r_j²/2h_j²)/overlap · ωuuᵀ for every level j, side by side; on average `around` the response."""
    kernel = jnp.mean(jnp.exp(-0.5 * ((y + around[:, None] - times(x, theta.T)) / h) ** 2), axis=0) / overlap
    kernel, square = computed_once((kernel, packed(_bounded(x, frame)[0])))
    return jnp.concatenate([kernel[j : j + 1] * square for j in range(len(theta))])


def densities(x: Any, y: Any, theta: Any, h: Any, overlap: Any, around: Any) -> Any:
    """exp(−r_j²/2h²)/overlap for every level j and each of its bandwidths h_·j, side by side; on average `around` y."""
    residual = y + around[:, None, None] - times(x, theta.T)
    return jnp.mean(jnp.exp(-0.5 * (residual / h) ** 2), axis=0) / overlap


def _huber(x: Any, y: Any, theta: Any, c: Any) -> tuple[Any, Any]:
    z = (y - times(x, theta[:-1])) / theta[-1]
    return z, jnp.clip(z, -c, c)


def huber_score(x: Any, y: Any, theta: Any, frame: Any, weight: Any, c: Any, kappa: Any, bound: Any) -> Any:
    """(−√ωψu, ωk(κ − ψ²)/2)/b: the gradient in (β, σ_H); its square is convex in ψ², hence largest at 0 or c²."""
    _, psi = _huber(x, y, theta, c)
    extra = weight * (kappa - psi**2) / 2
    return jnp.append(-psi * _bounded(x, frame)[0], extra * _bounded(x, frame)[1] ** 2) / bound


def huber_curvature(x: Any, y: Any, theta: Any, frame: Any, weight: Any, c: Any) -> Any:
    """ω1{|z| < c} v vᵀ/(1 + k²c²), v = (u, kz): σ_H times the Hessian, up to that constant."""
    z, _ = _huber(x, y, theta, c)
    bounded, root = _bounded(x, frame)
    return packed(jnp.append(bounded, weight * z * root) * (jnp.abs(z) < c)) / (1 + (weight * c) ** 2)


def _line(x: Any, y: Any, theta: Any, frame: Any, _: Any) -> tuple[Any, Any]:
    """−ur and u of a linear regression."""
    u = times(x, frame)
    return u * (times(x, theta) - y), u


def _cut(v: Any, most: Any) -> Any:
    """v over m, cut to length 1."""
    return v / jnp.maximum(jnp.sqrt(dots(v, v)), most)


def _beyond(v: Any, bound: Any, most: Any, part: Any) -> Any:
    """(w/(mb), k·1{‖v‖ > b}, k·s)/√(1 + 2k²): what the clip takes off v, that it does, and of ‖v‖².

    w is v − clip(v), cut to length mb, and s = (‖v‖² − b²)₊/((m + 1)b)², cut to 1.
    """
    length = jnp.sqrt(dots(v, v))
    over = jnp.maximum(length - bound, 0.0)
    taken = v / jnp.maximum(length, 1e-30) * jnp.minimum(over / (most * bound), 1.0)
    square = jnp.clip((length**2 - bound**2) / ((most + 1) * bound) ** 2, 0.0, 1.0)
    return jnp.concatenate([taken, part * jnp.stack([1.0 * (over > 0), square])]) / jnp.sqrt(1 + 2 * part**2)


def offset_mean(x: Any, y: Any, terms: Any) -> Any:
    """The column of a row after the terms of the design, in [−1, 1]."""
    return x[len(terms)]


def _poisson(x: Any, y: Any, theta: Any, frame: Any, link: Any) -> tuple[Any, Any]:
    """u(μ − y) and u√μ of a Poisson regression, log μ = xᵀθ, and the offset if a row has one; `link` has its scale.

    link: the largest log μ that counts, and the middle and half the length of the offset's bounds.
    """
    linear = times(x, theta)
    if len(x) > len(theta):
        linear = linear + link[1] + link[2] * x[len(theta)]
    root, u = jnp.exp(0.5 * jnp.minimum(linear, link[0])), times(x, frame)
    return u * (root**2 - y), u * root


def _expectile(x: Any, y: Any, theta: Any, frame: Any, tau: Any) -> tuple[Any, Any]:
    """−uwr and u√w of an expectile regression, w = τ where r = y − xᵀθ > 0, and 1 − τ elsewhere."""
    r, u = y - times(x, theta), times(x, frame)
    w = jnp.where(r > 0, tau, 1 - tau)
    return -u * (w * r), u * jnp.sqrt(w)


def _family(x: Any, y: Any, theta: Any, frame: Any, given: Any) -> tuple[Any, Any]:
    """The score v, with no weight for where u lies, and the root of the curvature, of the family that needs `given`.

    Least squares needs nothing, (0,), expectiles τ, and Poisson regression its link, (3,).
    """
    known = {(0,): _line, (): _expectile, (3,): _poisson}
    return known[jnp.shape(given)](x, y, theta, frame, given)


@_looked_up
def clipped_lengths(x: Any, y: Any, theta: Any, frame: Any, given: Any) -> Any:
    """The bin of ‖v‖."""
    v = _family(x, y, theta, frame, given)[0]
    return jnp.sqrt(dots(v, v))


def clipped_score(x: Any, y: Any, theta: Any, frame: Any, given: Any, bound: Any) -> Any:
    """v/b, cut to length 1."""
    return _cut(_family(x, y, theta, frame, given)[0], bound)


def clipped_curvature(x: Any, y: Any, theta: Any, frame: Any, given: Any, most: Any) -> Any:
    """w wᵀ for the root w of the curvature over m, cut to length 1."""
    return packed(_cut(_family(x, y, theta, frame, given)[1], most))


def clipped_excess(x: Any, y: Any, theta: Any, frame: Any, given: Any, bound: Any, most: Any, part: Any) -> Any:
    """What the clip takes off v, as `_beyond` has it."""
    return _beyond(_family(x, y, theta, frame, given)[0], bound, most, part)


def logistic_score(x: Any, y: Any, theta: Any, frame: Any) -> Any:
    """√ω(expit(xᵀθ) − y)u."""
    return computed_once(jax.nn.sigmoid(times(x, theta)) - y) * _bounded(x, frame)[0]


def logistic_curvature(x: Any, y: Any, theta: Any, frame: Any) -> Any:
    """4 p(1 − p)ωuuᵀ."""
    p = jax.nn.sigmoid(times(x, theta))
    return computed_once(4 * p * (1 - p)) * packed(_bounded(x, frame)[0])


def logistic_slope(x: Any, y: Any, theta: Any, frame: Any) -> Any:
    """(4pq, 6√3·pq(1 − 2p)√ωu)/√2 with q = 1 − p: the slope of p, and how it changes with θ; each at most 1."""
    p = jax.nn.sigmoid(times(x, theta))
    slope = p * (1 - p)
    bend = (6 * 3**0.5) * slope * (1 - 2 * p) * _bounded(x, frame)[0]
    return jnp.concatenate([4 * slope[None], bend]) / jnp.sqrt(2.0)


def mean_score(x: Any, y: Any, low: Any, high: Any) -> Any:
    """y clipped to [low, high], mapped to [−1, 1]."""
    return (jnp.clip(y, low, high) - (low + high) / 2) / ((high - low) / 2)


def mean_spread(x: Any, y: Any, low: Any, high: Any, centre: Any) -> Any:
    """(2·1{low ≤ y ≤ high} − 1, 2(y clipped − centre)²/reach² − 1)/√2, reach the larger distance to an end."""
    reach = jnp.maximum(high - centre, centre - low)
    inside = 2.0 * ((y >= low) & (y <= high)) - 1
    square = 2 * ((jnp.clip(y, low, high) - centre) / reach) ** 2 - 1
    return jnp.stack([inside, square]) / jnp.sqrt(2.0)


def _group(x: Any, y: Any, middle: Any, unit: Any) -> tuple[Any, Any]:
    """e, the dummies of the groups (of norm at most 1, whatever x is), and (y − middle)/unit of the own group."""
    middle, unit = times(x, middle), times(x, unit)
    return x / jnp.maximum(jnp.sqrt(dots(x, x)), 1.0), (y - middle) / jnp.maximum(unit, 1e-30)


def group_moments(x: Any, y: Any, middle: Any, half: Any) -> Any:
    """(e, ez, ez²)/√3 with z = (y − middle)/half, cut to ± 1."""
    e, r = _group(x, y, middle, half)
    z = jnp.clip(r, -1.0, 1.0)
    return jnp.concatenate([e, e * z, e * z**2]) / jnp.sqrt(3.0)


@_looked_up
def group_residuals(x: Any, y: Any, middle: Any, spread: Any) -> Any:
    """The bin of y less the middle of its group, in spreads of the group."""
    return _group(x, y, middle, spread)[1]


def group_excess(x: Any, y: Any, middle: Any, spread: Any, bound: Any, most: Any) -> Any:
    """((r − b)₊, (−r − b)₊), cut to m and over m: how far the same r lies beyond ± b > 0."""
    r = _group(x, y, middle, spread)[1]
    return jnp.clip(jnp.stack([r, -r]) - bound, 0.0, most) / most


def group_score(x: Any, y: Any, middle: Any, half: Any, part: Any) -> Any:
    """(ke, ez)/√(1 + k²) with z = (y − middle)/half of the own group, cut to ± 1."""
    e, r = _group(x, y, middle, half)
    return jnp.concatenate([part * e, e * jnp.clip(r, -1.0, 1.0)]) / jnp.sqrt(1 + part**2)


def group_spread(x: Any, y: Any, middle: Any, half: Any) -> Any:
    """ez², with the same z."""
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
    """∇l/C of a custom loss."""
    return lambda x, y, theta: _clipped(problem, x, theta)


@made_for
def differences(problem: Problem) -> Any:
    """(∇l(θ + ρ_j e_j) − ∇l(θ − ρ_j e_j))/(2C√d) for every j, side by side: curvature over a public distance ρ."""

    def change(x: Any, y: Any, theta: Any, step: Any) -> Any:
        moves = jnp.diag(step)
        up = jax.vmap(lambda m: _clipped(problem, x, theta + m))(moves)
        down = jax.vmap(lambda m: _clipped(problem, x, theta - m))(moves)
        return (up - down) / (2 * jnp.sqrt(1.0 * len(step)))

    return change
