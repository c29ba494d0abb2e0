"""Coordinates in which the design is about white: found by rounds of noisy second moments, before anything else.

Serves every regression. What is asked later, gradients and curvatures, lives in this frame: its noise is paid in units
of the data and not of the declared box.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import triangle, unpack
from pgbb.methods.calibrated.algebra import Shrink, clear_of
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.curvature import raised
from pgbb.model.formula import Design

Floats = NDArray[np.float64]
Chosen = NDArray[np.bool_]

__all__ = ["LEAST_REACH", "REACH_PER_TERM", "Cut", "Frame", "design_frame", "squared_reach"]

LEAST_REACH = 25.0  # R² is at least this: a category of one record in 25 is never weighted down
REACH_PER_TERM = (4.0, 25.0)  # and, beyond that, between these many times the number of terms
CUT = 1 / 3  # part of the last answer on moments that asks how many records ω weights down; its noise grows by 5 %


def squared_reach(n: int, p: int, noise: float) -> float:
    """R²: records whose p covariates are farther out, in Mahalanobis distance, are weighted down.

    As far out as the noise of the last gradient, R·noise, stays at a quarter of
    its sampling error, about .45/√n, within bounds; all of it public.
    """
    affordable = (0.25 * 0.45 / (math.sqrt(n) * max(noise, 1e-12))) ** 2
    return max(min(max(affordable, REACH_PER_TERM[0] * p), REACH_PER_TERM[1] * p), LEAST_REACH)


@dataclass(frozen=True)
class Cut:
    """P(ω < 1), the share of records that are weighted down, as answered, and the standard deviation of its noise."""

    share: float
    sd: float

    @property
    def clear(self) -> bool:
        """Whether there are any, beyond noise."""
        return self.share > max(3 * self.sd, 1e-3)


@dataclass(frozen=True)
class Frame:
    """F, with u = xF; E ωuuᵀ and the noise of its packed coordinates; how many records ω weights down; and R."""

    matrix: Floats
    moment: Floats
    moment_sd: Floats
    cut: Cut
    reach: float

    @property
    def solid(self) -> Floats:
        """The moment with eigenvalues raised to where they stand clear of its noise."""
        return raised(self.moment, self.moment_sd)


def design_frame(asker: Asker, design: Design) -> Frame:
    """Coordinates u = xF in which E xxᵀ is about I/R² and most ‖u‖ ≤ 1: the stage "moments".

    Whitening by rounds, as in CoinPress (Biswas, Dong, Kamath, Ullman 2020): the first
    answer is bounded by the declared box, the later ones by R², some multiple of the
    typical square, so that directions in which the covariates hardly vary are
    seen at their own scale. An eigenvalue below its noise is raised to it, and such a
    direction is magnified again in the next round. A direction that stands clear of
    noise and yet stays below half of 1/R² is one that the weights ω cut: a rare
    category. Magnifying it would only cut more, so it is scaled back until ω
    leaves it alone, and then left as it is.
    """
    p = len(design.names)
    frame, farthest = np.eye(p) / design.norm_bound, squared_reach(asker.n, p, asker.noise("final"))
    seen, done = np.ones(p, bool), np.zeros(p, bool)  # of the frame's axes
    for turn in range(asker.question("moments", "moment").times if asker.whitens else 0):
        answer, sd = asker.ask("moments", "moment", frame)
        found, left = _moment(answer, sd, seen, asker.shrink)
        values, axes = np.linalg.eigh(found)
        floor = np.maximum(clear_of(axes, left), 1e-12)
        scale = 1 / np.sqrt(np.maximum(values, floor))
        level = np.sqrt(farthest)  # leaves a direction as it is
        rare = (turn > 0) & (_share(seen, axes) > 0.5) & (values > floor) & (values * level**2 < 0.5)
        scale = np.where(rare, level * np.sqrt(np.maximum(values, 0.0)) * level, scale)
        scale = np.where(_share(done, axes) > 0.5, level, scale)
        done = rare | (_share(done, axes) > 0.5)
        seen = values > floor
        frame = frame @ (axes * scale)
        box = float(np.sum(np.abs(frame @ frame.T)))  # ‖xF‖² is no larger: entries of x lie in [−1, 1]
        farthest = min(farthest, box)
        frame = frame / np.sqrt(farthest)
    answer, sd = asker.ask("moments", "moment_and_cut", frame, CUT)
    unit = np.sqrt(1 + CUT**2)
    found, left = _moment(answer[:-1] * unit, sd * unit, seen, asker.shrink)
    return Frame(
        frame, raised(found, left, 0.3), left, Cut(float(answer[-1]) * unit / CUT, sd * unit / CUT), farthest**0.5
    )


def _share(chosen: Chosen, axes: Floats) -> Floats:
    """How much of each axis lies in the span of the chosen coordinates."""
    return np.asarray(np.sum(axes[chosen] ** 2, axis=0))


def _moment(answer: Floats, sd: float, seen: Chosen, shrink: Shrink) -> tuple[Floats, Floats]:
    """E ωuuᵀ, and the noise left in it: axes that were seen are pulled apart, toward no correlation.

    The diagonal is what the answer says. So is all that belongs to an axis that was not seen: of its correlations
    nothing is known, and to pull them to zero would make up variance where there may be none.
    """
    p = len(seen)
    raw = unpack(answer, p)
    raw[np.diag_indices(p)] = np.maximum(np.diag(raw), max(sd, 1e-9))
    i, j, _ = triangle(p)
    return shrink(raw, np.diag(np.diag(raw)), sd, pulled=(i != j) & seen[i] & seen[j])
