"""The prior of the coefficients, and the posterior that it makes with the answers.

The prior is weakly informative: one standard deviation of a covariate, given the others, moves the response by a few
spreads or a few logits. Along a direction that the answers show well, it makes no difference. Along a direction that
noise hides, and along it alone, the posterior is the prior. Public arithmetic on answers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import direction_sd, geometric_mean, roots, triangle
from pgbb.methods.calibrated.curvature import Curvature
from pgbb.release.local_gaussian import HIDDEN

SPREADS = 5.0  # prior standard deviation of the effect of a standard deviation of a covariate, in located spreads
LOGITS = 8.0  # the same prior standard deviation in a logistic regression, in logits
NONE = 0.6  # relative noise at which a curvature counts as none; below it, it counts in part
SURELY = 0.25  # the same limit where noise is small beside the usual curvature, or a term may be constant
QUIET, LOUD = 0.02, 0.1  # noise beside the usual curvature: up to the first `SURELY` holds, from the second `NONE`
LOST = 0.8  # share of that limit from which a direction counts as lost
SLIGHT = 0.01  # a lost direction with less than this weight on a coefficient has nothing to do with it
PART = 0.25  # a direction with more than this share of the prior variance of a doubtful coefficient is doubtful too
ABSENT = 1e-6  # curvature beside the largest one that single precision does not show
REDRAWN = 0.3  # largest relative noise with which a covariance is drawn again


@dataclass(frozen=True)
class Settled:
    """A local posterior that holds its prior: draws are point − X⁻¹(gradient + noise), with X the `curvature`.

    `total` is the precision of the draws, in the frame.
    """

    curvature: Floats
    gradient: Floats
    total: Floats


@dataclass(frozen=True)
class Prior:
    """Independent normal distributions along the axes of a frame.

    Args:
      center: expected coefficients, (d,).
      sd: standard deviations along the axes of the frame, (d,).
      units: matrix from internal coefficients to those of the user, (d, d).
      doubtful: which coefficients belong to terms that may be constant, and so need a clear curvature; None if none do.
      unseen: a function that says which directions (columns, in the frame) no answer on second moments shows.
      clear: a function that says along which directions second moments are clear. A small curvature is then no sign
        that there is none: rare outcomes of a logistic regression have one.
    """

    center: Floats
    sd: Floats
    units: Floats
    doubtful: NDArray[np.bool_] | None = None
    unseen: Callable[[Floats], NDArray[np.bool_]] | None = None
    clear: Callable[[Floats], NDArray[np.bool_]] | None = None

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

        With curvature H and noise N of the gradient, the answers have the precision HN⁻¹H, and the prior has P. Let A
        be their sum, and D the covariance with which noise is drawn. A = XD⁻¹X for one positive matrix X, the geometric
        mean of A and D. So draws of −X⁻¹·noise have the covariance A⁻¹, and no reader of the file needs to know of the
        prior. H is reduced along directions in which it is mostly noise.

        Args:
          bend: H, in the frame.
          drawn: D, in the frame.
          noise: N, in the frame.
          frame: F.
          point: where the gradient was asked.
          best: the estimate that the gradient leads to.
          known: False where the local model does not hold: the posterior is then as wide as the prior, around `best`.
        """
        axes, kept, lost = self._shown(bend, frame)
        kept = kept * known
        inverse, (_, whiten) = np.linalg.inv(frame), roots(noise)
        seen = whiten @ (axes * kept * ~lost) @ axes.T @ self._apart(axes[:, lost], frame)
        faint = whiten @ (axes * kept * lost) @ axes.T
        precision, prior = seen.T @ seen + faint.T @ faint, np.diag(self.sd**-2.0)
        total = precision + prior
        center = self.center if known else best
        step = np.linalg.solve(total, precision @ (inverse @ (best - point)) + prior @ (inverse @ (center - point)))
        curvature = geometric_mean(drawn, total)
        return Settled(curvature, -curvature @ step, total)

    def law(self, settled: Settled, frame: Floats, point: Floats) -> tuple[Floats, Floats]:
        """The mean of the coefficients, and their standard deviations: 0 for those that are mostly the prior's."""
        mean = point - frame @ np.linalg.solve(settled.curvature, settled.gradient)
        sd = np.sqrt(np.maximum(np.sum(frame * np.linalg.solve(settled.total, frame.T).T, axis=1), 0.0))
        known = sd <= HIDDEN * np.sqrt(np.sum((frame * self.sd) ** 2, axis=1))
        return np.where(known, mean, self.center), np.where(known, sd, 0.0)

    def _shown(self, bend: Curvature, frame: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """The axes of H (columns), the curvature along each as far as it stands out of noise, and which are lost."""
        values, axes = np.linalg.eigh(bend.value)
        own = direction_sd(axes, bend.sd)
        relative = own / np.maximum(values, 1e-12 * float(values[-1]))
        usual = _most(own / float(np.median(values)))
        if self.clear is not None:
            usual = np.where(self.clear(axes), NONE, usual)
        most = np.where(self._doubted(frame @ axes), SURELY, usual)
        relative = np.minimum(np.hypot(relative, bend.factor_sd) / most, 1.0)
        relative[values < ABSENT * values[-1]] = 1.0
        if self.unseen is not None:
            relative[self.unseen(axes)] = 1.0
        return axes, np.maximum(values, 0.0) * (1 - relative**4), relative > LOST

    def _doubted(self, line: Floats) -> NDArray[np.bool_]:
        """Which directions (columns) have a large share of the prior variance of a doubtful coefficient."""
        if self.doubtful is None or not self.doubtful.any():
            return np.zeros(line.shape[1], dtype=bool)
        square = line[: len(self.doubtful)][self.doubtful] ** 2
        return np.asarray((square > PART * square.sum(axis=1, keepdims=True)).any(axis=0))

    def _apart(self, lost: Floats, frame: Floats) -> Floats:
        """A projector that removes the lost directions, without their small parts in other coefficients.

        A level that never occurs should not widen the coefficient of another column. By noise, the direction that was
        found for it has a small part of that coefficient, and the prior is wide. So parts below `SLIGHT` are set to 0.
        """
        line = self.units @ frame
        moved = line @ lost
        small = np.sum(moved**2, axis=1) < SLIGHT * np.sum(line**2, axis=1)
        pure = np.linalg.solve(line, np.where(small[:, None], 0.0, moved))
        kept = lost.T @ pure
        sizes = np.linalg.svd(kept, compute_uv=False) if lost.size else np.ones(1)
        if sizes[-1] < 1e-6 * sizes[0]:  # a direction has a small part of every coefficient: it stays as it is
            pure, kept = lost, np.eye(lost.shape[1])
        away: Floats = np.eye(len(frame)) - pure @ np.linalg.solve(kept, lost.T)
        return away


def _most(noise: Floats) -> Floats:
    """The relative noise at which a curvature counts as none, by its `noise` beside the usual curvature.

    A frame magnifies every direction until it is about white. So where noise is small, a curvature far below the usual
    one that stands out by two standard deviations is more likely none. Where noise is large, it is as likely white.
    """
    steps = np.log(np.maximum(noise, 1e-300) / QUIET) / np.log(LOUD / QUIET)
    return np.asarray(SURELY + (NONE - SURELY) * np.clip(steps, 0.0, 1.0))


def tempered(value: Floats, sd: Floats) -> Floats:
    """The noise with which a positive matrix is drawn again: at most `REDRAWN` of its diagonal, by entry."""
    i, j, _ = triangle(len(value))
    diagonal = np.maximum(np.diag(value), 0.0)
    return np.minimum(sd, REDRAWN * np.sqrt(diagonal[i] * diagonal[j]))
