"""Answers of a logistic regression, read by how its gradient changes: where events are rare it is far from a line.

A made-up design with the second moments that were asked tells E p·u at every point, up to what is not normal of the
design. Near the estimate an answer is then Σ_s u_s g_s + M(E p·u(θ) − E p·u(c)) + noise with M about a multiple of the
identity, and the curvature at the estimate is M times that of the design there.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pgbb._numerics.symmetric import pack, triangle, unpack
from pgbb.methods.calibrated.algebra import shrink
from pgbb.methods.calibrated.logistic import UNLIKE, LogisticCurvature, logistic_curvature
from pgbb.methods.pgbb.coordinates import Coordinates
from pgbb.methods.pgbb.noise_aware import Found, analyse

Floats = NDArray[np.float64]

ROWS = 2**10  # points whose scores are computed at once
ROUNDS, HALVINGS = 30, 12  # Newton steps to the point of a score, and halvings of each


def read(
    answers: Floats,
    u: Floats,
    query: Floats,
    dither: Floats,
    late: NDArray[np.bool_],
    where: Coordinates,
    noise: float,
    *,
    constant: bool,
) -> Found:
    """What the answers say, around the estimate that they lead to; the arguments are those of `analyse`.

    The dither is the instrument here, too: half of what it changes the score by, there and back.
    """
    d = len(where.root)
    model = logistic_curvature(np.eye(d), where.moment_sd, where.step, constant)  # of a design that is white in y
    y = where.whitened(query)
    center = y[late].mean(axis=0)
    at = scores_of(model, center[np.newaxis])[0]
    scores, mirrored = (scores_of(model, points) - at for points in (y, y - 2 * dither))
    turned = replace(where, frame=np.eye(d))
    part = analyse(
        answers @ where.frame, u, scores / where.root, (scores - mirrored) / 2, late, turned, noise,
    )  # fmt: skip
    factor, left = _factor(part.curvature, part.curvature_sd, where)
    away = np.linalg.solve(factor, part.gradient).astype(np.float64)
    end = _point_of(model, at + part.reference * where.root - away, center)
    here = model.at(where.internal(end))
    size, root, spread = float(np.mean(np.diag(here))), np.sqrt(np.diag(here)), y[late].std(axis=0)
    i, j, _ = triangle(d)
    more = float(np.mean(unpack(left**2, d) @ away**2 * where.root**2)) / noise**2  # noise of M, over the distance
    return replace(
        part,
        reference=where.internal(end),
        gradient=np.zeros(d),
        variance=part.variance + more,
        curvature=(factor @ here + here @ factor) / 2,
        curvature_sd=left * root[i] * root[j],
        spread=spread,
        bend=(size * part.bend[0], size * part.bend[1]),
        far=float(np.sqrt(np.mean(((end - center) / spread) ** 2))),
        shape=_shape_of(model, end),
        known=True,
    )


def _factor(raw: Floats, sd: Floats, where: Coordinates) -> tuple[Floats, Floats]:
    """M, of which a model without noise says one, within `UNLIKE`; and the noise left in its packed coordinates."""
    diagonal = pack(np.eye(len(raw))) > 0
    known = np.hypot(sd, where.moment_sd)[diagonal]
    precision = 1 / UNLIKE**2 + float(np.sum(1 / known**2))
    size = (1 / UNLIKE**2 + float(np.sum(np.diag(raw) / known**2))) / precision
    target = max(size, UNLIKE) * np.eye(len(raw))
    return shrink(raw, target, np.hypot(sd, where.moment_sd), pack(target) / np.sqrt(precision), usual=UNLIKE)


def scores_of(model: LogisticCurvature, y: Floats) -> Floats:
    """E p·u at points y in white coordinates, (N, d)."""
    parts = np.array_split(y, max(1, len(y) // ROWS))
    share = model.mass / len(model.points)
    return np.concatenate([expit(part @ model.points.T) @ model.points * share for part in parts])


def _point_of(model: LogisticCurvature, score: Floats, y: Floats) -> Floats:
    """The point with this score, from y on; near the last point that helps where there is none."""
    frame = np.linalg.inv(model.inverse)

    def missed(y: Floats) -> Floats:
        return score - scores_of(model, y[np.newaxis])[0]

    rest = missed(y)
    for _ in range(ROUNDS):
        step = np.linalg.solve(model.at(frame @ y), rest)
        for _ in range(HALVINGS):
            now = missed(y + step)
            if now @ now <= rest @ rest:
                break
            step = step / 2
        y, rest = y + step, missed(y + step)
    return y


def _shape_of(model: LogisticCurvature, y: Floats) -> Floats:
    """κ of each coordinate: half of how the curvature along it falls on the way."""
    p = expit(model.points @ y)
    bend, third = p * (1 - p), p * (1 - p) * (1 - 2 * p)
    found: Floats = -0.5 * (third @ model.points**3) / (bend @ model.points**2)
    return found
