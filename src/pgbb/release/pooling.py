"""One local posterior of several, each from records of its own: inverse-variance weights in local coordinates.

What the answers of each member say of a coefficient, without its prior, adds up; one prior is put back. Public
arithmetic on payloads: the members publish their releases, and nobody shares a record.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import geometric_mean
from pgbb.errors import InvalidValue
from pgbb.release.local_gaussian import LocalGaussian

NOTHING = 1e-6  # precision beside the prior's, or beside the largest, that counts as none


@dataclass(frozen=True)
class Heterogeneity:
    """Cochran's Q: how far the members' estimates lie apart, beside what their own uncertainty explains."""

    q: float
    df: int
    pvalue: float

    def to_dict(self) -> dict[str, float]:
        """A JSON object."""
        return {"q": self.q, "df": self.df, "pvalue": self.pvalue}


@dataclass(frozen=True)
class _Said:
    """What one member says at each knot, in the common frame, as seen from the common point.

    `precision` (m, d, d) is that of its answers without the prior; `pull` (m, d) is precision times estimate;
    `square` (m,) is estimateᵀ·pull; `prior` (d, d) is the covariance of its prior, None without one; `expected`
    (m, d) is where that has its centre.
    """

    precision: Floats
    pull: Floats
    square: Floats
    prior: Floats | None
    expected: Floats
    rank: NDArray[np.int64]


def pool(members: Sequence[LocalGaussian], located: Sequence[bool]) -> tuple[LocalGaussian, Heterogeneity]:
    """The posterior of all records together, and how far the members' estimates lie apart.

    Draws have, at each knot, the covariance (Σ L_i + P)⁻¹ for precisions L_i of the answers and one prior P. Between
    levels, and in its parts, it is that of members alike.

    Args:
      members: posteriors of one model, from disjoint records.
      located: coefficients around whose estimate the prior lies (an intercept, a scale); the others' is around 0.
    """
    knots = _common_knots(members)
    reference = min(members, key=lambda member: float(np.sum(member.privacy**2)))
    frame, point = reference.frame, reference.center
    said = [_said(member, frame, point, np.array(located)) for member in members]
    total = np.sum([s.precision for s in said], axis=0)
    priors = [s.prior for s in said if s.prior is not None]
    free = np.zeros_like(total)
    if priors:
        prior = np.mean(priors, axis=0)
        belief = np.linalg.inv(prior)
        precision = total + belief
    else:
        free, precision = _nowhere_seen(total)
    shares = _shares(said, precision)
    pull = np.sum([s.pull for s in said], axis=0)
    if priors:
        pull = pull + np.einsum("i,ijd->jd", shares, np.array([s.expected for s in said])) @ belief
    steps = np.linalg.solve(precision, pull[..., None])[..., 0]
    turns = [frame.T @ np.linalg.inv(member.frame).T for member in members]
    sampling = np.sum([w**2 * t @ m.sampling @ t.T for w, t, m in zip(shares, turns, members, strict=True)], axis=0)
    sampling = (sampling + sampling.T) / 2
    size = [w * np.sqrt(np.mean(np.sum(t**2, axis=1))) for w, t in zip(shares, turns, strict=True)]
    privacy = np.concatenate([w * m.privacy for w, m in zip(size, members, strict=True)], axis=1)
    noise = _noise(sampling, privacy, knots)
    pooled = LocalGaussian(
        center=point + steps @ frame.T,
        gradient=np.zeros_like(point),
        frame=frame,
        curvature=np.stack([geometric_mean(n, a) for n, a in zip(noise, precision, strict=True)]),
        curvature_sd=_root_sum([w * m.curvature_sd for w, m in zip(shares, members, strict=True)]),
        privacy=privacy,
        sampling=sampling,
        sampling_sd=_root_sum([w**2 * m.sampling_sd for w, m in zip(shares, members, strict=True)]),
        free=free,
        low=np.min([m.low for m in members], axis=0),
        high=np.max([m.high for m in members], axis=0),
        knots=knots,
        prior=np.sqrt(np.diag(prior)) if priors else None,
        floor=min(m.floor for m in members),
    )
    return pooled, _apart(said, total)


def _common_knots(members: Sequence[LocalGaussian]) -> Floats | None:
    """The knots of all members, which must be the same."""
    first = members[0].knots
    for member in members[1:]:
        mine, its = (np.zeros(1) if knots is None else knots for knots in (first, member.knots))
        if mine.shape != its.shape or not np.allclose(mine, its, rtol=1e-9):
            raise InvalidValue("posteriors with other knots are not allowed: fit all of them with the same levels.")
    return first


def _shares(said: Sequence[_Said], precision: Floats) -> Floats:
    """The part of each member in the common precision, on average over coefficients and knots."""
    shares = np.array([np.mean(np.trace(np.linalg.solve(precision, s.precision), axis1=1, axis2=2)) for s in said])
    return shares / shares.sum() if shares.sum() > 0 else np.full(len(said), 1 / len(said))


def _root_sum(parts: Sequence[Floats]) -> Floats:
    """The root of the sum of squares: standard deviations of independent noise added up."""
    return np.asarray(np.sqrt(np.sum([part**2 for part in parts], axis=0)))


def _said(member: LocalGaussian, frame: Floats, point: Floats, located: NDArray[np.bool_]) -> _Said:
    """What a member says, seen from `point` in the common `frame`."""
    own = np.linalg.inv(member.frame)
    turn = own @ frame  # from the common frame to the member's
    levels = None if member.knots is None else member.knots.tolist()
    away = np.eye(member.dim) - member.free
    straight: Floats = -np.linalg.solve(member.curvature, member.gradient[..., None])[..., 0].astype(np.float64)
    step = member.bent(straight)
    estimate = member.center + np.einsum("ab,jbc,jc->ja", member.frame, away, step)
    seen, expected = (estimate - point) @ own.T, (np.where(located, estimate, 0.0) - point) @ own.T
    precision = np.linalg.inv(own @ sum(member.parts(levels)) @ own.T)
    if member.prior is None:
        precision = away @ precision @ away
        pull, prior = np.einsum("jab,jb->ja", precision, seen), None
        square, rank = np.einsum("ja,ja->j", pull, seen), np.rint(np.trace(away, axis1=1, axis2=2)).astype(np.int64)
    else:
        sd = member.prior
        values, axes = np.linalg.eigh(sd[:, None] * precision * sd)
        ratio = np.where(values - 1 > NOTHING, values - 1, 0.0)  # precision of the answers beside the prior's
        there, center = (np.einsum("jba,jb->ja", axes, v / sd) for v in (seen, expected))
        pulls = np.where(ratio > 0, values * there - center, 0.0)
        scaled = axes / sd[:, None]
        precision = np.einsum("jab,jb,jcb->jac", scaled, ratio, scaled)
        pull = np.einsum("jab,jb->ja", scaled, pulls)
        square = np.sum(pulls**2 / np.where(ratio > 0, ratio, 1.0), axis=1)
        inverse = np.linalg.inv(turn)
        prior, rank = (inverse * sd**2) @ inverse.T, np.sum(ratio > 0, axis=1)
    return _Said(turn.T @ precision @ turn, pull @ turn, square, prior, expected @ np.linalg.inv(turn).T, rank)


def _nowhere_seen(total: Floats) -> tuple[Floats, Floats]:
    """Projectors on directions of which no member says anything, and the precision, with the largest along these."""
    values, axes = np.linalg.eigh(total)
    none = values <= NOTHING**2 * values[:, -1:]
    free = np.einsum("jab,jb,jcb->jac", axes, none.astype(float), axes)
    return free, total + np.maximum(values[:, -1], 1e-300)[:, None, None] * free


def _noise(sampling: Floats, privacy: Floats, knots: Floats | None) -> Floats:
    """The covariance of all noise of the gradient at each knot, in the frame."""
    factor = np.ones(1) if knots is None else knots * (1 - knots)
    isotropic = np.sum(privacy**2, axis=1)[:, None, None] * np.eye(len(sampling))
    return factor[:, None, None] * sampling + isotropic


def _apart(said: Sequence[_Said], total: Floats) -> Heterogeneity:
    """Cochran's Q at the knot where it is least likely, its chance times the number of knots."""
    pull = np.sum([s.pull for s in said], axis=0)
    common = np.einsum("ja,jab,jb->j", pull, np.linalg.pinv(total, hermitian=True), pull)
    q = np.maximum(np.sum([s.square for s in said], axis=0) - common, 0.0)
    df = np.maximum(np.sum([s.rank for s in said], axis=0) - np.linalg.matrix_rank(total, hermitian=True), 0)
    chance = np.where(df > 0, chdtrc(np.maximum(df, 1), q), 1.0)
    worst = int(np.argmin(chance))
    return Heterogeneity(float(q[worst]), int(df[worst]), float(min(chance[worst] * len(chance), 1.0)))
