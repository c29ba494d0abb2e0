"""Least squares by the default method, with clipped scores.

The target is the least-squares coefficient over the declared ranges, whatever the errors are and wherever covariates
lie: no record is weighted down. A score ur longer than a bound b is cut to length b. The bound follows the private
distribution of lengths, before and after the first of two gradients. How much is cut off is a question of its own, and
widens the posterior as far as it stands out of its noise.
"""

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import unpack
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import box_for
from pgbb.methods.calibrated.curvature import Curvature, curvature_of
from pgbb.methods.calibrated.frame import Frame, design_frame
from pgbb.methods.calibrated.prior import SPREADS, Prior
from pgbb.methods.calibrated.refine import refine
from pgbb.methods.calibrated.score_clip import NOTHING, Clips, lengths_at
from pgbb.methods.calibrated.start import first_fit, locate_response
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

Floats = NDArray[np.float64]


LOUD = 0.1  # relative noise of the curvature up to which records far out are not cut


def fit_linear(asker: Asker, problem: Problem, design: Design) -> tuple[LocalGaussian, list[str]]:
    """Ask all stages of a linear regression. Returns the posterior, and notes for the certificate."""
    p, n, constant = problem.dim, asker.n, design.has_intercept
    at = locate_response(asker, problem, design)
    near = design_frame(asker, design)
    box = box_for(problem, near, at.size(constant), at.start(p, constant))
    bend = wide_curvature(asker, near)
    theta, error = first_fit(asker, near, at, box, constant)
    size = at.size(constant)
    clips = Clips(asker, near, lengths_at(asker, near, theta, size).bound, size)

    def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
        answer, sd = asker.ask(stage, "clipped_score", at, near.matrix, NOTHING, clips.bound)
        return answer * clips.bound, sd * clips.bound

    def spread(at: Floats, _: Curvature) -> tuple[Floats, Floats]:
        return clips.choose(at).moments(asker, bend.value, at, near.matrix, NOTHING)

    prior = Prior(
        at.start(p, constant),
        np.full(p, SPREADS * at.spread * near.reach),
        problem.transform,
        near.doubtful,
        near.unseen,
    )
    asked = (lambda *_: bend), gradient, spread  # the curvature is the same everywhere
    posterior = refine(
        box, n, theta, error, near.matrix, *asked, box.clip, prior, clips.bound, moves=clips.moves, quadratic=True,
        located=at.found,
    )  # fmt: skip
    return posterior, [clips.chosen.note]


def wide_curvature(asker: Asker, near: Frame) -> Curvature:
    """Ask the stage "curvature": E uuᵀ with u cut at a length that noise allows, in place of 1."""
    longest = float(np.sum(np.abs(near.matrix @ near.matrix.T)))  # entries of x lie in [−1, 1]
    noise = (asker.noise("curvature") or 2.0**-17) * near.reach**2  # without noise: what whole numbers leave
    square = min(max(LOUD / noise, 1.0), max(longest, 1.0))
    answer, sd = asker.ask("curvature", "wide_moment", near.matrix, np.sqrt(square))
    raw = unpack(answer, len(near.matrix)) * square
    return curvature_of(raw, near.moment, sd * square, near.moment_sd, shrink=asker.shrink)
