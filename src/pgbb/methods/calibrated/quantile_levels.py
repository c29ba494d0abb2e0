"""Where the levels of a quantile regression start, and the gradients that are asked of all of them at once.

The gradients of all levels come from the same answers: a record lies in one cell between the fitted curves, and
`algebra.strategy` asks for cells, not for levels. Public arithmetic on answers.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from pgbb._numerics import Floats
from pgbb.methods.calibrated.algebra import limited, strategy
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import Box, box_for
from pgbb.methods.calibrated.densities import Curvatures
from pgbb.methods.calibrated.frame import Frame, design_frame, score_of
from pgbb.methods.calibrated.response import Distribution, Located
from pgbb.methods.calibrated.start import locate_response, places_around, robust_fit, spread_of_residuals
from pgbb.methods.calibrated.transcript import Read, Transcript
from pgbb.model.formula import Design
from pgbb.model.models import Problem

WIDEST = 0.15  # the neighbours of level τ are τ ± min(τ, 1 − τ)/2, and at most this far away
REACH = 0.8  # bandwidth of the curvature, in units of the distance to the neighbouring quantiles
UNLIKE = 0.2  # prior difference of the slopes of a level from those of the mean, per standard normal quantile of it
BENDS = 1.0  # relative change of a density over the longest step that is allowed, as in an exponential tail
CLEARLY = 3.0  # records are missing if their share stands so many standard deviations above 0
BLUR = 2.0  # largest bandwidth of a gradient, in standard deviations of the error of the quantile


@dataclass(frozen=True)
class Start:
    """What is known of all levels before the first gradient; arrays (m,) or (m, p).

    Args:
      levels: τ.
      wrong: mean score of each level far out where a line is wrong, over that of the median.
      at, size: where the response lies, and its size.
      near, box: the frame of the design, and the box of the coefficients.
      residuals: distribution of the residuals of a rough fit.
      theta, error: coefficients of the levels, and the covariance of the error of the fit, in the frame.
      reach, density: half the distance to the neighbours of each level, and its density by the residuals.
      around: places over which a response with a step is spread.
      finest: least bandwidth.
      constant: whether the first term is the intercept.
    """

    levels: Floats
    wrong: Floats
    at: Located
    size: float
    near: Frame
    box: Box
    residuals: Distribution
    theta: Floats
    error: Floats
    reach: Floats
    density: Floats
    around: Floats
    finest: float
    constant: bool

    @property
    def counted(self) -> float:
        """Share of the records, or of their weight, that counts: 1 unless it clearly does not."""
        total, sd = self.residuals.total, self.residuals.sd
        return total if total < 1 - CLEARLY * sd else 1.0

    @property
    def scores(self) -> Floats:
        """Variance of the score of each level."""
        return self.levels * (1 - self.levels)

    def widths(self, reach: Floats, most: Floats | float, density: Floats | None = None) -> Floats:
        """Bandwidths of the curvature of each level, for these densities or those of the residuals."""
        return np.clip(REACH * reach / (self.density if density is None else density), self.finest, most)


def started(asker: Asker, problem: Problem, design: Design, levels: Floats, wrong: Floats) -> Start:
    """Locate the response, find the frame, and start all levels from a rough fit and its residuals."""
    p, constant = problem.dim, design.has_intercept
    at = locate_response(asker, problem, design)
    scores = levels * (1 - levels)
    most = float(np.sqrt(scores @ wrong**2 / np.sum(scores)))
    near, size = design_frame(asker, design, score_of(levels), wrong=most, alone=False), at.size(constant)
    box = box_for(problem, near, size, at.start(p, constant))
    start, error, _, residuals = robust_fit(asker, near, at, box, constant)
    reach = np.minimum(np.minimum(levels, 1 - levels) / 2, WIDEST)
    around = places_around(design)
    theta = np.repeat(start[None], len(levels), axis=0)
    if constant:
        theta[:, 0] += residuals.quantile(levels)
    return Start(
        levels, wrong, at, size, near, box, residuals, theta, error, reach,
        residuals.density(levels, reach), around, max(1e-4 * size, design.response_step / len(around)), constant,
    )  # fmt: skip


def _transcripts(start: Start, inverse: Floats) -> list[Transcript]:
    """The transcript of each level before its first answer: where it may be, and how far its loss is not quadratic."""
    p, near, residuals, density = len(inverse), start.near, start.residuals, start.density
    away = np.abs(residuals.quantile(start.levels) - residuals.quantile(np.array(0.5)))
    spread = spread_of_residuals(residuals, start.at)
    unlike = (UNLIKE * np.maximum(np.abs(ndtri(start.levels)) * spread, away) * near.reach) ** 2
    shifts = (residuals.sd / density) ** 2 * start.constant  # the intercept starts at a noisy quantile
    level = np.outer(inverse[:, 0], inverse[:, 0])
    bends = _bends(start, inverse, density)
    return [
        Transcript.begun(inverse @ t, start.error + v * np.eye(p) + s * level, f * near.solid, bend, near.solid)
        for t, v, s, f, bend in zip(start.theta, unlike, shifts, density, bends, strict=True)
    ]


def _bends(start: Start, inverse: Floats, density: Floats) -> list[Floats]:
    """Covariance of the error of the quadratic model of each level at a squared distance of 1, for these densities."""
    toward = start.near.moment @ inverse[:, 0] if start.constant else np.zeros(len(inverse))  # E u
    uneven = np.outer(toward, toward) + start.near.solid
    return [(BENDS * f**2 / (4 * r)) ** 2 * uneven for f, r in zip(density, start.reach, strict=True)]


class Answers:
    """Asks for the gradients of all levels at once, and reads all answers so far together."""

    def __init__(self, asker: Asker, start: Start, levels: Floats) -> None:
        self._asker, self._start = asker, start
        self._a, self.loads = strategy(tuple(levels.tolist()))
        self.loudness = np.sum(self.loads**2, axis=1)
        self.inverse: Floats = np.linalg.inv(start.near.matrix).astype(np.float64)
        self._farthest = 2 * start.reach / start.density  # the most by which a step may move fitted values
        self._transcripts = _transcripts(start, self.inverse)
        self.ball = start.near.ball
        self._inward = np.linalg.cholesky(self.ball)  # from the frame in which gradients are asked
        self._asked = np.linalg.solve(self._inward, start.near.matrix.T).T
        self._spread = float(np.trace(np.linalg.solve(start.near.solid, self.ball)))

    def ask(self, stage: str, at: Floats, width: Floats) -> tuple[Floats, float]:
        """The gradients of all levels in the frame, (m, p), and sd, where their noise is sd·B ⊗ C; they are kept.

        They are asked in a frame in which the ellipsoid with C = `ball` is round, and brought back.
        """
        answer, sd = self._asker.ask(stage, "cells", at, width, self._a, self._asked, self._start.around)
        g, here = self.loads @ answer.reshape(-1, at.shape[1]) @ self._inward.T, at @ self.inverse.T
        noise = (sd * np.sqrt(self.loudness)).tolist()
        given = zip(self._transcripts, here, g, noise, width.tolist(), strict=True)
        self._transcripts = [t.adding(at, g, sd, w, self.ball) for t, at, g, sd, w in given]
        return g, sd

    def bend_with(self, density: Floats) -> None:
        """Take these densities of the levels: for the errors of all answers, for bandwidths and for longest steps."""
        self._start = replace(self._start, density=density)
        self._farthest = 2 * self._start.reach / density
        bends = _bends(self._start, self.inverse, density)
        self._transcripts = [replace(t, bends=b) for t, b in zip(self._transcripts, bends, strict=True)]

    def followed(self, at: Floats, bends: Curvatures) -> tuple[Floats, list[Read]]:
        """Where all answers so far place the levels, with steps of limited length from `at`; and what they say."""
        near = self._start.near
        reads = [t.read(c) for t, c in zip(self._transcripts, bends, strict=True)]
        steps = limited(np.stack([r.point for r in reads]) - at @ self.inverse.T, near.solid, self._farthest)
        return self._start.box.clip(at + steps @ near.matrix.T), reads

    def narrow(self, stage: str, most: Floats) -> Floats:
        """Bandwidths in proportion to noise and sampling error, so that their bias, of second order, vanishes."""
        start, noise = self._start, self._asker.noise(stage)
        own = self.loudness * self._spread / len(self.inverse) * noise**2
        error = np.sqrt(start.scores / self._asker.n + own)
        return np.clip(BLUR * error / start.density, start.finest, np.maximum(most, start.finest))
