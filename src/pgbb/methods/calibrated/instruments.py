"""Two-stage least squares by the default method: from second moments of all terms, and means of u(y − xᵀβ).

Let w be the terms of regressors and instruments, u = wF and M = E uuᵀ. The regressors are x = uX and the instruments
z = uZ. The first stage predicts the regressors by uL with L = Z(ZᵀMZ)⁻¹ZᵀMX. The estimate solves LᵀE u(y − xᵀβ) = 0,
whose curvature is Q = LᵀMX = LᵀML. Answers about u(y − xᵀβ) are clipped as the scores of least squares. Public
arithmetic on answers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import EFFECT, Box
from pgbb.methods.calibrated.curvature import Curvature, filtered, raised
from pgbb.methods.calibrated.frame import Frame, design_frame
from pgbb.methods.calibrated.linear import wide_curvature
from pgbb.methods.calibrated.prior import SPREADS, Prior
from pgbb.methods.calibrated.refine import refine
from pgbb.methods.calibrated.score_clip import NOTHING, Clips, lengths_at
from pgbb.methods.calibrated.start import locate_response
from pgbb.model.formula import Design
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stages:
    """The first stage, computed from second moments.

    Args:
      turn: LG, with orthonormal columns: the matrix from answers about u to gradients in the frame G of β.
      frame: G.
      curvature: GᵀQG.
      regressors: XᵀMX.
    """

    turn: Floats
    frame: Floats
    curvature: Curvature
    regressors: Floats


def first_stage(near: Frame, moments: Curvature, rows: list[int], uses: list[int]) -> Stages:
    """The first stage from noisy second moments of all terms; `rows` are the regressors, `uses` the instruments."""
    inverse = np.linalg.inv(near.matrix)
    x, z, m = inverse[:, rows], inverse[:, uses], raised(moments.value, moments.sd)
    predicts = z @ np.linalg.solve(z.T @ m @ z, z.T @ m @ x)
    values, vectors = np.linalg.eigh(predicts.T @ predicts)
    frame = (vectors / np.sqrt(np.maximum(values, 1e-12 * float(values[-1])))) @ vectors.T
    turn = predicts @ frame
    each = np.sqrt(np.mean(moments.sd**2)) * np.linalg.norm(x @ frame, axis=0)
    i, j = np.triu_indices(len(rows))
    noise = np.sqrt((each[i] ** 2 + each[j] ** 2) / np.where(i == j, 2.0, 1.0))
    bend = turn.T @ m @ turn
    return Stages(turn, frame, Curvature((bend + bend.T) / 2, noise), x.T @ m @ x)


def fit_instruments(asker: Asker, problem: Problem, design: Design) -> tuple[LocalGaussian, list[str]]:
    """Ask the stages of least squares on all terms. Returns the posterior of β, and notes for the certificate."""
    p, n, rows = problem.dim, asker.n, problem.settings["rows"]
    at = locate_response(asker, problem, design)
    near = design_frame(asker, design)
    moments = wide_curvature(asker, near)
    found = first_stage(near, moments, rows, problem.settings["uses"])
    size, start = at.size(True), at.start(p, True)
    reach = EFFECT * size * np.sqrt(np.diag(np.linalg.inv(found.regressors)))
    radius = np.maximum(problem.radius, reach)
    box = Box(start - radius, start + radius)
    moved = np.sqrt(np.diag(found.frame.T @ found.regressors @ found.frame))  # fitted values, by a step in the frame

    def everywhere(beta: Floats) -> Floats:
        """Coefficients of all terms, which are 0 for instruments."""
        theta = np.zeros(len(near.matrix))
        theta[rows] = beta
        return theta

    answer, sd = asker.ask("start", "weighted_response", everywhere(start), size, near.matrix)
    believed = np.diag((at.spread / moved) ** 2)
    step, error = filtered(found.curvature.solid, found.turn.T @ answer * size, sd * size, believed)
    beta = box.clip(start + found.frame @ step)
    clips = Clips(asker, near, lengths_at(asker, near, everywhere(beta), size).bound, size)

    def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
        answer, sd = asker.ask(stage, "clipped_score", everywhere(at), near.matrix, NOTHING, clips.bound)
        return found.turn.T @ answer * clips.bound, sd * clips.bound

    def spread(at: Floats, _: Curvature) -> tuple[Floats, Floats]:
        value, left = clips.choose(everywhere(at)).moments(asker, moments.value, everywhere(at), near.matrix, NOTHING)
        value = found.turn.T @ value @ found.turn
        return (value + value.T) / 2, np.full(p * (p + 1) // 2, float(np.sqrt(np.mean(left**2))))

    doubtful = None if near.doubtful is None else near.doubtful[rows]
    prior = Prior(
        start, SPREADS * at.spread / moved, problem.transform, doubtful, lambda axes: near.unseen(found.turn @ axes)
    )
    asked = (lambda *_: found.curvature), gradient, spread  # the curvature is the same everywhere
    posterior = refine(
        box, n, beta, error, found.frame, *asked, box.clip, prior, clips.bound, moves=clips.moves, quadratic=True,
        located=at.found,
    )  # fmt: skip
    return posterior, [clips.chosen.note]
