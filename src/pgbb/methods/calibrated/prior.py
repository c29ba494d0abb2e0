"""What is believed of coefficients before any answer, and how it goes over into what the answers say.

A weakly informative prior: one standard deviation of a covariate, given the others, moves the response by a few
spreads or a few logits. Where the answers show a direction well it is not felt; where noise hides a direction the
posterior is the prior along it, and along it alone. Public arithmetic on answers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import direction_sd, triangle
from pgbb.methods.calibrated.curvature import Curvature

Floats = NDArray[np.float64]

__all__ = ["LOGITS", "SPREADS", "Prior", "Settled", "tempered"]

SPREADS = 5.0  # of the response, for one standard deviation of a covariate: the prior's standard deviation
LOGITS = 8.0  # the same of a logistic regression
SLIGHT = 0.01  # weight of a lost direction on a coefficient that counts as none
HIDDEN = 0.6  # a curvature of this relative noise counts as none, and of less as less of itself
SURELY = 0.25  # the same where noise is small beside the usual curvature: what little stands out of it may be nothing
QUIET, LOUD = 0.02, 0.1  # noise beside the usual curvature that is small, and that is not
PART = 0.25  # of the variance of a coefficient under the prior, along one direction
LOST = 0.8  # share of that noise from which a direction counts as lost
ABSENT = 1e-6  # curvature beside the largest, in a frame that is about white, that single precision does not show
REDRAWN = 0.3  # relative noise with which a covariance is drawn again, at most


@dataclass(frozen=True)
class Settled:
    """A local posterior with its prior: draws are point − H⁻¹(gradient + noise), with the noise that was given."""

    curvature: Floats
    gradient: Floats


@dataclass(frozen=True)
class Prior:
    """Independent normal laws along the axes of a frame.

    Args:
      center: the coefficients that are expected, (d,).
      sd: standard deviations along the axes of the frame, (d,).
      units: leads from internal coefficients to those of the user, (d, d).
      doubtful: coefficients of terms that may be constant: what is seen of them must be clear. None if all vary.
      unseen: says which directions (columns, in the frame) no answer on second moments shows.
    """

    center: Floats
    sd: Floats
    units: Floats
    doubtful: NDArray[np.bool_] | None = None
    unseen: Callable[[Floats], NDArray[np.bool_]] | None = None

    def settle(
        self,
        bend: Curvature,
        drawn: Floats,
        noise: Floats,
        frame: Floats,
        point: Floats,
        best: Floats,
        *,
        known: bool = True,
    ) -> Settled:
        """The posterior of coefficients whose estimate is `best`.

        With curvature H and noise N of the gradient, the answers have the precision HN⁻¹H and the prior P; their sum A
        is XD⁻¹X for one positive matrix X, the geometric mean of A and of the covariance D with which noise is drawn.
        So draws −X⁻¹·noise have the covariance A⁻¹, and no reader of the file needs to know of the prior. A direction
        whose curvature is mostly noise counts as having less of it.

        Args:
          bend: the curvature in the frame.
          drawn: covariance of the noise that draws have, in the frame.
          noise: covariance of the noise of the gradient, in the frame.
          frame: F.
          point: where the gradient was asked.
          best: the estimate that the gradient leads to.
          known: False where the local model does not hold: then the posterior is as wide as the prior, around `best`.
        """
        inverse = np.linalg.inv(frame)
        values, axes = np.linalg.eigh(bend.value)
        own = direction_sd(axes, bend.sd)
        relative = own / np.maximum(values, 1e-12 * float(values[-1]))
        most = np.where(self._doubted(frame @ axes), SURELY, _most(own / float(np.median(values))))
        relative = np.minimum(np.hypot(relative, bend.factor_sd) / most, 1.0)
        relative[values < ABSENT * values[-1]] = 1.0
        if self.unseen is not None:
            relative[self.unseen(axes)] = 1.0
        kept, lost = np.maximum(values, 0.0) * (1 - relative**4) * known, relative > LOST
        apart = self._apart(axes[:, lost], frame)
        _, whiten = _roots(noise)
        root, unroot = _roots(drawn)
        seen, faint = whiten @ (axes * kept * ~lost) @ axes.T @ apart, whiten @ (axes * kept * lost) @ axes.T
        precision, prior = seen.T @ seen + faint.T @ faint, np.diag(self.sd**-2.0)
        total = precision + prior
        center = self.center if known else best
        step = np.linalg.solve(total, precision @ (inverse @ (best - point)) + prior @ (inverse @ (center - point)))
        squares, vectors = np.linalg.eigh(unroot @ total @ unroot)
        middle = root @ (vectors * np.sqrt(np.maximum(squares, 0.0))) @ vectors.T @ root
        middle = (middle + middle.T) / 2
        return Settled(middle, -middle @ step)

    def _doubted(self, line: Floats) -> NDArray[np.bool_]:
        """Which directions (columns) move a doubtful coefficient by a good part of what all of them do."""
        if self.doubtful is None or not self.doubtful.any():
            return np.zeros(line.shape[1], dtype=bool)
        square = line[: len(self.doubtful)][self.doubtful] ** 2
        return np.asarray((square > PART * square.sum(axis=1, keepdims=True)).any(axis=0))

    def _apart(self, lost: Floats, frame: Floats) -> Floats:
        """A projector along the directions that are lost, less what noise alone adds to them.

        A level that never occurs has no share in the coefficient of another column; the direction that was found for it
        has a small one, by noise, and the prior is wide. So coefficients of which a lost direction has less than a
        hundredth are left out of it.
        """
        line = self.units @ frame
        moved = line @ lost
        small = np.sum(moved**2, axis=1) < SLIGHT * np.sum(line**2, axis=1)
        pure = np.linalg.solve(line, np.where(small[:, None], 0.0, moved))
        kept = lost.T @ pure
        sizes = np.linalg.svd(kept, compute_uv=False) if lost.size else np.ones(1)
        if sizes[-1] < 1e-6 * sizes[0]:  # a direction has little of every coefficient: it stays as it is
            pure, kept = lost, np.eye(lost.shape[1])
        away: Floats = np.eye(len(frame)) - pure @ np.linalg.solve(kept, lost.T)
        return away


def _most(noise: Floats) -> Floats:
    """The relative noise of a curvature that hides it, by its `noise` beside the usual curvature.

    A frame magnifies what is there until it is about white. So a curvature far below the usual one that stands out of a
    small noise by two standard deviations is more likely none; beside a large noise it is as likely white.
    """
    steps = np.log(np.maximum(noise, 1e-300) / QUIET) / np.log(LOUD / QUIET)
    return np.asarray(SURELY + (HIDDEN - SURELY) * np.clip(steps, 0.0, 1.0))


def _roots(covariance: Floats) -> tuple[Floats, Floats]:
    """Its square root and the inverse of that."""
    low, turn = np.linalg.eigh(covariance)
    low = np.sqrt(np.maximum(low, 1e-12 * float(low[-1]) + 1e-300))
    return (turn * low) @ turn.T, (turn / low) @ turn.T


def tempered(value: Floats, sd: Floats) -> Floats:
    """The noise with which a positive matrix is drawn again: no more than a share of what it belongs to."""
    i, j, _ = triangle(len(value))
    diagonal = np.maximum(np.diag(value), 0.0)
    return np.minimum(sd, REDRAWN * np.sqrt(diagonal[i] * diagonal[j]))
