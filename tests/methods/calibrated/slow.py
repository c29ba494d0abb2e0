"""Every statistic of the calibrated method once more: record by record, in double precision, from the docstrings."""

import math

import numpy as np
from scipy.special import expit, ndtr

from pgbb import Custom, Range, Schema
from pgbb._numerics.compiled import squared
from pgbb.methods.calibrated import statistics as ask_for
from pgbb.methods.calibrated.algebra import prefixes, strategy
from pgbb.methods.calibrated.stages import BINS

P = 3
C, KAPPA, WEIGHT = 1.345, 0.71, 0.5
OVERLAP = 1.2
TAUS = (0.2, 0.5, 0.9)
EDGES = np.concatenate([[-9.0], np.linspace(-3, 3, BINS - 1), [9.0]])
LENGTHS = np.concatenate([[0.0], np.geomspace(0.01, 9, BINS)])
LOW, HIGH, CENTRE = -1.2, 1.5, 0.3


SCHEMA = Schema(x0=Range(-1, 1), x1=Range(-1, 1), x2=Range(-1, 1), y=Range(-4, 4))
CUSTOM = Custom(
    lambda t, r, i: 0.5 * (r["x0"] - t[0] - t[1] * r["x1"]) ** 2,
    dim=2,
    clip=0.9,
    columns=["x0", "x1", "x2"],
    box=(-3, 3),
).prepare(SCHEMA)


def packed(v):
    """The outer product v vᵀ by a double loop: diagonal, and √2 times what is above it, row by row."""
    return np.array([v[i] * v[j] * (1 if i == j else math.sqrt(2)) for i in range(len(v)) for j in range(i, len(v))])


def weighted(x, frame):
    """u, ω."""
    u = np.array([sum(x[i] * frame[i, j] for i in range(len(x))) for j in range(frame.shape[1])])
    size = math.sqrt(sum(v * v for v in u))
    return u, 1.0 if size <= 1 else 1 / size**2


def moment(x, y, frame):
    u, omega = weighted(x, frame)
    return omega * packed(u)


def moment_and_cut(x, y, frame, part, steep):
    u, omega = weighted(x, frame)
    beyond = min(max(steep * (omega**-0.5 - 1), 0.0), 1.0)
    return np.append(omega * packed(u), part * beyond) / math.sqrt(1 + part**2)


def distances(x, y, frame, edges, a):
    u, _ = weighted(x, frame)
    size = math.sqrt(sum(v * v for v in u))
    return a[:, sum(size > edge for edge in edges[1:-1])]


def weighted_response(x, y, theta, reach, frame):
    u, omega = weighted(x, frame)
    return max(-1.0, min(1.0, (y - x @ theta) / reach)) * math.sqrt(omega) * u


def column_histograms(x, y, pick, edges, a):
    parts = []
    for k in range(pick.shape[1]):
        value = sum(x[i] * pick[i, k] for i in range(len(x)))
        parts.append(a[:, sum(value > e for e in edges[k, 1:-1])])
    return np.concatenate(parts) / math.sqrt(pick.shape[1])


def column_means(x, y, pick):
    return np.array([sum(x[i] * pick[i, k] for i in range(len(x))) for k in range(pick.shape[1])]) / math.sqrt(
        pick.shape[1]
    )


def level_means(x, y, pick, middle, half, levels):
    inside = [max(-1.0, min(1.0, (sum(x * pick[:, k]) - middle[k]) / half[k])) for k in range(len(half))]
    return np.array([z * sum(x * column) for z in inside for column in levels.T]) / math.sqrt(len(half))


def histogram(x, y, theta, edges, a):
    r = y - x @ theta
    return a[:, sum(r > e for e in edges[1:-1])]


def cells(x, y, theta, h, a, frame, around):
    u, omega = weighted(x, frame)
    chances = [sum(ndtr((y + s - x @ theta[j]) / h[j]) for s in around) / len(around) for j in range(len(theta))]
    above = sorted(chances, reverse=True)
    bounds = [1.0, *above, 0.0]
    cell = np.array([bounds[j] - bounds[j + 1] for j in range(len(theta) + 1)])
    return np.concatenate([v * math.sqrt(omega) * u for v in a @ cell])


def bell(residual, width, around):
    """The kernel, on average around the response."""
    return sum(math.exp(-(((residual + s) / width) ** 2) / 2) for s in around) / len(around)


def cell_curvature(x, y, theta, h, overlap, frame, around):
    u, omega = weighted(x, frame)
    kernel = [bell(y - x @ t, w, around) / overlap for t, w in zip(theta, h, strict=True)]
    return np.concatenate([k * omega * packed(u) for k in kernel])


def densities(x, y, theta, h, overlap, around):
    return np.array([bell(y - x @ t, w, around) / overlap for row in h for t, w in zip(theta, row, strict=True)])


def huber_score(x, y, theta, frame, weight, c, kappa, bound):
    u, omega = weighted(x, frame)
    psi = max(-c, min(c, (y - x @ theta[:-1]) / theta[-1]))
    return np.append(-psi * math.sqrt(omega) * u, omega * weight * (kappa - psi**2) / 2) / bound


def huber_curvature(x, y, theta, frame, weight, c):
    u, omega = weighted(x, frame)
    z = (y - x @ theta[:-1]) / theta[-1]
    return omega * (abs(z) < c) * packed(np.append(u, weight * z)) / (1 + (weight * c) ** 2)


def wide_moment(x, y, frame, most):
    u, _ = weighted(x, frame)
    return packed(u / max(most, math.sqrt(sum(v * v for v in u))))


def binned(v, edges, a):
    return a[:, int(np.searchsorted(edges[1:-1], math.sqrt(sum(v * v))))]


def cut(v, most):
    return v / max(math.sqrt(sum(v * v)), most)


def longer(v, bound):
    return np.array([min(max(math.sqrt(sum(v * v)) / bound - 1, 0.0), 1.0)])


def linear(x, y, theta, frame, _):
    u, _ = weighted(x, frame)
    return (x @ theta - y) * u, u


def poisson(x, y, theta, frame, link):
    p = len(theta)
    linear = x[:p] @ theta + (link[1] + link[2] * x[p] if len(x) > p else 0.0)
    mean, u = math.exp(min(linear, link[0])), x[:p] @ frame
    return u * (mean - y), u * math.sqrt(mean)


def expectile(x, y, theta, frame, tau):
    r, u = y - x @ theta, x @ frame
    w = tau if r > 0 else 1 - tau
    return -u * w * r, u * math.sqrt(w)


FAMILY = {
    "lengths": lambda of: lambda x, y, t, f, g, edges, a: binned(of(x, y, t, f, g)[0], edges, a),
    "score": lambda of: lambda x, y, t, f, g, bound: cut(of(x, y, t, f, g)[0], bound),
    "curvature": lambda of: lambda x, y, t, f, g, most: packed(cut(of(x, y, t, f, g)[1], most)),
    "excess": lambda of: lambda x, y, t, f, g, bound: longer(of(x, y, t, f, g)[0], bound),
}


def offset_mean(x, y, terms):
    return np.array([x[len(terms)]])


def logistic_score(x, y, theta, frame):
    u, omega = weighted(x, frame)
    return math.sqrt(omega) * (expit(x @ theta) - y) * u


def logistic_curvature(x, y, theta, frame):
    u, omega = weighted(x, frame)
    p = expit(x @ theta)
    return 4 * p * (1 - p) * omega * packed(u)


def logistic_slope(x, y, theta, frame):
    u, omega = weighted(x, frame)
    p = expit(x @ theta)
    bend = 6 * math.sqrt(3) * p * (1 - p) * (1 - 2 * p) * math.sqrt(omega) * u
    return np.append(4 * p * (1 - p), bend) / math.sqrt(2)


def mean_score(x, y, low, high):
    return np.array([(min(max(y, low), high) - (low + high) / 2) / ((high - low) / 2)])


def mean_spread(x, y, low, high, centre):
    reach = max(high - centre, centre - low)
    inside = 1.0 if low <= y <= high else -1.0
    return np.array([inside, 2 * ((min(max(y, low), high) - centre) / reach) ** 2 - 1]) / math.sqrt(2)


def in_group(x, y, middle, unit):
    """Dummies over their length, if that is above 1, and the distance of y from the middle of its group, in units."""
    e = x / max(1.0, math.sqrt(sum(v * v for v in x)))
    return e, (y - sum(x * middle)) / max(sum(x * unit), 1e-30)


def group_moments(x, y, middle, half):
    e, r = in_group(x, y, middle, half)
    z = min(max(r, -1.0), 1.0)
    return np.concatenate([e, e * z, e * z * z]) / math.sqrt(3)


def group_residuals(x, y, middle, spread, edges, a):
    return a[:, int(np.searchsorted(edges[1:-1], in_group(x, y, middle, spread)[1]))]


def group_excess(x, y, middle, spread, bound, most):
    r = in_group(x, y, middle, spread)[1]
    return np.array([min(max(r - bound, 0.0), most), min(max(-r - bound, 0.0), most)]) / most


def group_score(x, y, middle, half, part):
    e, r = in_group(x, y, middle, half)
    return np.concatenate([part * e, e * min(max(r, -1.0), 1.0)]) / math.sqrt(1 + part**2)


def group_spread(x, y, middle, half):
    e, r = in_group(x, y, middle, half)
    return e * min(abs(r), 1.0) ** 2


def gradient(x, y, theta):
    r = x[0] - theta[0] - theta[1] * x[1]
    g = np.array([-r, -r * x[1]]) / CUSTOM.clip
    return g / max(1.0, math.hypot(*g))


def differences(x, y, theta, step):
    rows = []
    for j, distance in enumerate(step):
        move = np.eye(len(theta))[j] * distance
        rows.append((gradient(x, y, theta + move) - gradient(x, y, theta - move)) / (2 * math.sqrt(len(theta))))
    return np.concatenate(rows)


def parameters(rng, scale=1.0, spread=1.0):
    """For every statistic: the fast one, the slow one, random parameters, and whether the response is 0/1.

    `spread` > 1 puts records outside ‖u‖ ≤ 1; `scale` is that of the coefficients.
    """
    frame = rng.normal(size=(P, P)) * spread
    theta, h = rng.normal(size=P) * scale, float(rng.uniform(0.1, 2))
    many, widths = rng.normal(size=(len(TAUS), P)) * scale, rng.uniform(0.2, 1.5, len(TAUS))
    huber = (np.append(theta, rng.uniform(0.3, 2)), frame, WEIGHT, C)
    score = (*huber, KAPPA, max(math.hypot(C, WEIGHT * (C**2 - KAPPA) / 2), WEIGHT * KAPPA / 2))
    a = np.array(strategy(TAUS)[0])
    pair, around = rng.normal(size=2) * scale, np.array([-0.3, -0.1, 0.1, 0.3])
    first, pick = np.array(prefixes(BINS)[0]), np.eye(P)[:, [0, 2]]
    own = theta, np.linspace(1.0, 2.0, P) * h
    columns = np.sort(np.random.default_rng(99).uniform(-1, 1, (2, BINS + 1)), axis=1)
    return {
        "moment": (ask_for.moment, moment, (frame,), False),
        "moment_and_cut": (ask_for.moment_and_cut, moment_and_cut, (frame, 1 / 3, 3.0), False),
        "distances": (ask_for.distances, distances, (frame, LENGTHS, first), False),
        "weighted_response": (ask_for.weighted_response, weighted_response, (theta, h, frame), False),
        "column_histograms": (ask_for.column_histograms, column_histograms, (pick, columns, first), False),
        "column_means": (ask_for.column_means, column_means, (pick,), False),
        "level_means": (
            ask_for.level_means,
            level_means,
            (pick, np.array([0.1, -0.2]), np.array([0.3, 2.0]), 0.5 * np.eye(P)),
            False,
        ),
        "histogram": (ask_for.histogram, histogram, (theta, EDGES, first), False),
        "cells": (ask_for.cells, cells, (many, widths, a, frame, around), False),
        "cell_curvature": (ask_for.cell_curvature, cell_curvature, (many, widths, OVERLAP, frame, around), False),
        "densities": (ask_for.densities, densities, (many, np.stack([widths, widths / 3]), 2 * OVERLAP, around), False),
        "huber_score": (ask_for.huber_score, huber_score, score, False),
        "huber_curvature": (ask_for.huber_curvature, huber_curvature, huber, False),
        "wide_moment": (ask_for.wide_moment, wide_moment, (frame, 2.0), False),
        "offset_mean": (ask_for.offset_mean, offset_mean, (np.zeros(P - 1),), False),
        **{
            f"{family}: clipped_{what}": (
                getattr(ask_for, f"clipped_{what}"),
                FAMILY[what](of),
                (*head, given, *rest),
                False,
            )
            for family, of, head, given in (
                ("linear", linear, (theta, frame), np.zeros(0)),
                ("poisson", poisson, (theta[:-1], frame[:-1, :-1]), np.array([1.5, 0.2, 0.7])),
                ("expectile", expectile, (theta, frame), 0.8),
            )
            for what, rest in {
                "lengths": (LENGTHS, first),
                "score": (0.7,),
                "curvature": (0.7,),
                "excess": (0.7,),
            }.items()
        },
        "logistic_score": (ask_for.logistic_score, logistic_score, (theta, frame), True),
        "logistic_curvature": (ask_for.logistic_curvature, logistic_curvature, (theta, frame), True),
        "logistic_slope": (ask_for.logistic_slope, logistic_slope, (theta, frame), True),
        "mean_score": (ask_for.mean_score, mean_score, (LOW, HIGH), False),
        "mean_spread": (ask_for.mean_spread, mean_spread, (LOW, HIGH, CENTRE), False),
        "group_moments": (ask_for.group_moments, group_moments, own, False),
        "group_residuals": (ask_for.group_residuals, group_residuals, (*own, EDGES, first), False),
        "group_excess": (ask_for.group_excess, group_excess, (*own, 0.5, 3.0), False),
        "group_score": (ask_for.group_score, group_score, (*own, 0.7), False),
        "group_spread": (ask_for.group_spread, group_spread, own, False),
        "gradient": (ask_for.gradient(CUSTOM), gradient, (pair,), False),
        "squared: huber_score": (
            squared(ask_for.huber_score),
            lambda *given: packed(huber_score(*given)),
            score,
            False,
        ),
        "differences": (ask_for.differences(CUSTOM), differences, (pair, rng.uniform(0.1, 0.5, 2)), False),
    }


NAMES = tuple(parameters(np.random.default_rng(0)))
