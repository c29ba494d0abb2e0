"""Noisy gradients at several points, read together: where the loss is least, its curvature, and the doubt of both.

Near its minimum a loss has the gradients g(x) = Hx − b. Each answer says them at one point, up to noise that is known;
the curvature answer says H, up to noise that is known. Both are linear in (H, b), so their law given all answers is
normal and has a closed form. Answers far from the minimum tell H along the way that was walked, better than a
curvature matrix with little budget; those near it tell b. Public arithmetic on answers.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import triangle
from pgbb.methods.calibrated.algebra import floored
from pgbb.methods.calibrated.curvature import Curvature
from pgbb.release.local_gaussian import FLOOR

__all__ = ["Read", "Transcript"]

SILENT = 1e-7  # noise of an answer, at least: gradients are at most 1
ROUNDING = 1e-12  # of variances that are added up
TURNS = 3  # how often the distance to the minimum, which says how far an answer is to be trusted, is found again


@dataclass(frozen=True)
class Read:
    """What all answers say.

    Args:
      point: where the gradient is zero, in the frame.
      bend: the curvature.
      noise: covariance of the gradient at the point: noise of privacy, and doubt of the curvature along the way to it.
    """

    point: Floats
    bend: Curvature
    noise: Floats


@dataclass(frozen=True)
class Transcript:
    """Gradients of one loss, all in the frame.

    Args:
      points: where they were asked, (T, p).
      gradients: as answered, (T, p).
      noise: their covariances, (T, p, p).
      width: over which each of them is smoothed, in units of the response.
      bends: covariance of the error that the loss not being quadratic makes over a squared distance of one, (p, p).
      metric: of distances in units of the response, (p, p).
    """

    points: Floats
    gradients: Floats
    noise: Floats
    width: Floats
    bends: Floats
    metric: Floats

    @classmethod
    def begun(cls, point: Floats, error: Floats, bend: Floats, bends: Floats, metric: Floats) -> "Transcript":
        """With what is known of the minimum before any answer: it lies around the point with this covariance.

        Where the curvature is about `bend`, that is an answer of zero with noise of its own.
        """
        return cls(point[None], np.zeros((1, len(point))), (bend @ error @ bend)[None], np.zeros(1), bends, metric)

    def adding(self, point: Floats, gradient: Floats, sd: float, width: float = 0.0) -> "Transcript":
        """With one more answer."""
        return replace(
            self,
            points=np.vstack([self.points, point]),
            gradients=np.vstack([self.gradients, gradient]),
            noise=np.concatenate([self.noise, max(sd, SILENT) ** 2 * np.eye(len(point))[None]]),
            width=np.append(self.width, width),
        )

    def read(self, bend: Curvature) -> Read:
        """All answers together with a curvature that is in doubt."""
        center = self.points[-1]
        for _ in range(TURNS):
            found = self._around(center, bend)
            center = found.point
        return found

    def _around(self, center: Floats, bend: Curvature) -> Read:
        """The same, where the loss is quadratic near the center: farther answers are trusted less."""
        x, (turns, p) = self.points - center, self.points.shape
        far = np.einsum("ta,ab,tb->t", x, self.metric, x) + self.width**2
        noise = self.noise + (far**2)[:, None, None] * self.bends
        entry, slopes = bend.variances, x @ bend.value
        covariance = _covariance(entry, x, x) + bend.factor_sd**2 * np.einsum("ta,sc->tasc", slopes, slopes)
        covariance[np.arange(turns), :, np.arange(turns), :] += noise
        square = covariance.reshape(turns * p, turns * p)
        ones = np.tile(np.eye(p), (turns, 1))
        square[np.diag_indices(turns * p)] += ROUNDING * float(np.max(np.diag(square)))
        factors = cho_factor(square)
        solved = cho_solve(factors, np.column_stack([ones, (self.gradients - slopes).ravel()]))
        known = np.linalg.inv(ones.T @ solved[:, :p])
        level = known @ ones.T @ solved[:, p]  # g at the center
        left = (solved[:, p] - solved[:, :p] @ level).reshape(turns, p)
        twice = left.T @ x
        twice = entry * (twice + twice.T)
        twice[np.diag_indices(p)] /= 2
        change = twice + bend.factor_sd**2 * float(np.sum(left * slopes)) * bend.value
        least = FLOOR * max(float(np.linalg.eigvalsh(bend.value)[0]), 1e-300)
        value = floored(bend.value + change, least)
        more = np.sqrt(np.maximum(np.diag(value) / np.maximum(np.diag(bend.value), least), 1.0))
        i, j, _ = triangle(p)
        now = replace(bend, value=value, sd=bend.sd * more[i] * more[j])  # what was not seen is not seen by noise
        step = -now.step(level)
        at = step[None]
        along = _covariance(entry, x, at) + bend.factor_sd**2 * np.einsum("ta,sc->tasc", slopes, at @ bend.value)
        along = along.reshape(turns * p, p)
        own = _covariance(entry, at, at)[0, :, 0] + bend.factor_sd**2 * np.outer(at @ bend.value, at @ bend.value)
        gone = cho_solve(factors, along)
        miss = np.eye(p) - ones.T @ gone
        doubt = own - along.T @ gone + miss.T @ known @ miss
        return Read(center + step, now, (doubt + doubt.T) / 2)


def _covariance(entry: Floats, x: Floats, y: Floats) -> Floats:
    """Of (Hx)_a and (Hy)_c for all pairs of rows, where entries of H have these variances: (len(x), p, len(y), p)."""
    mixed = np.einsum("ac,tc,sa->tasc", entry, x, y)
    diagonal = np.arange(x.shape[1])
    mixed[:, diagonal, :, diagonal] = np.einsum("ab,tb,sb->ats", entry, x, y)
    return mixed
