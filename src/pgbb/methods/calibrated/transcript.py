"""Reads noisy gradients at several points together: the minimum of the loss, its curvature, and their errors.

Near its minimum a loss has the gradient g(x) = Hx − b. Answers are g(x) at known points and H itself, each with noise
of known covariance. They are linear in (H, b), so (H, b) given all answers is normal and has a closed form. Answers far
from the minimum tell H along the way that was walked, better than a curvature matrix with little budget does; answers
near it tell b. Public arithmetic on answers.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import triangle
from pgbb.methods.calibrated.algebra import floored
from pgbb.methods.calibrated.curvature import Curvature
from pgbb.release.local_gaussian import FLOOR

SILENT = 1e-7  # least noise of an answer; gradients are at most 1
ROUNDING = 1e-12  # share of the largest variance that is added to all, against rounding
TURNS = 3  # iterations for the minimum: errors of the answers depend on their distances to it


@dataclass(frozen=True)
class Read:
    """What all answers say together.

    Args:
      point: the root of the expected gradient, in the frame.
      bend: the curvature.
      noise: covariance of the gradient there: privacy noise, and the error of the curvature along the way to it.
    """

    point: Floats
    bend: Curvature
    noise: Floats


@dataclass(frozen=True)
class Transcript:
    """Noisy gradients of one loss, in the frame.

    Args:
      points: where they were asked, (T, p).
      gradients: as answered, (T, p).
      noise: covariances of their noise, (T, p, p).
      width: bandwidth over which each of them is smoothed, in units of the response, (T,).
      bends: covariance of the error of the quadratic model of the loss, at a squared distance of 1, (p, p).
      metric: gives distances in units of the response, (p, p).
    """

    points: Floats
    gradients: Floats
    noise: Floats
    width: Floats
    bends: Floats
    metric: Floats

    @classmethod
    def begun(cls, point: Floats, error: Floats, bend: Floats, bends: Floats, metric: Floats) -> "Transcript":
        """The transcript before any answer: the minimum is normal around `point` with the covariance `error`.

        For a curvature of about `bend`, that is an answer of zero at the point with the covariance bend·error·bend.
        """
        return cls(point[None], np.zeros((1, len(point))), (bend @ error @ bend)[None], np.zeros(1), bends, metric)

    def adding(
        self, point: Floats, gradient: Floats, sd: float, width: float = 0.0, ball: Floats | None = None
    ) -> "Transcript":
        """This transcript with one more answer, with noise of the covariance sd²·`ball`, or sd² on each coordinate."""
        noise = max(sd, SILENT) ** 2 * (np.eye(len(point)) if ball is None else ball)
        return replace(
            self,
            points=np.vstack([self.points, point]),
            gradients=np.vstack([self.gradients, gradient]),
            noise=np.concatenate([self.noise, noise[None]]),
            width=np.append(self.width, width),
        )

    def read(self, bend: Curvature) -> Read:
        """What all answers say, together with a noisy curvature."""
        center = self.points[-1]
        for _ in range(TURNS):
            found = self._around(center, bend)
            center = found.point
        return found

    def _around(self, center: Floats, bend: Curvature) -> Read:
        """What all answers say if the loss is quadratic near the center: farther answers have larger errors.

        Kriging: the unknown level g(center) has a flat prior, H − Ĥ has the covariance of `bend`.
        """
        x, (turns, p) = self.points - center, self.points.shape
        factors = cho_factor(self._covariance(x, bend))
        slopes, ones = x @ bend.value, np.tile(np.eye(p), (turns, 1))
        solved = cho_solve(factors, np.column_stack([ones, (self.gradients - slopes).ravel()]))
        known = np.linalg.inv(ones.T @ solved[:, :p])  # covariance of the gradient at the center
        level = known @ ones.T @ solved[:, p]  # that gradient
        left = (solved[:, p] - solved[:, :p] @ level).reshape(turns, p)
        now = _updated(bend, left, x)
        step = -now.step(level)
        along = _slope_covariance(bend, x, step[None]).reshape(turns * p, p)
        gone = cho_solve(factors, along)
        miss = np.eye(p) - ones.T @ gone
        own = _slope_covariance(bend, step[None], step[None])[0, :, 0]
        doubt = own - along.T @ gone + miss.T @ known @ miss
        return Read(center + step, now, (doubt + doubt.T) / 2)

    def _covariance(self, x: Floats, bend: Curvature) -> Floats:
        """Covariance of all answers at distances x from the center, (T·p, T·p): noise, and errors of the model."""
        turns, p = x.shape
        far = np.einsum("ta,ab,tb->t", x, self.metric, x) + self.width**2
        found = _slope_covariance(bend, x, x)
        found[np.arange(turns), :, np.arange(turns), :] += self.noise + (far**2)[:, None, None] * self.bends
        square = found.reshape(turns * p, turns * p)
        square[np.diag_indices(turns * p)] += ROUNDING * float(np.max(np.diag(square)))
        return square


def _updated(bend: Curvature, left: Floats, x: Floats) -> Curvature:
    """The curvature given all answers; `left` are the residuals of the gradients in units of their covariance."""
    twice = left.T @ x
    twice = bend.variances * (twice + twice.T)
    twice[np.diag_indices(len(twice))] /= 2
    change = twice + bend.factor_sd**2 * float(np.sum(left * (x @ bend.value))) * bend.value
    least = FLOOR * max(float(np.linalg.eigvalsh(bend.value)[0]), 1e-300)
    value = floored(bend.value + change, least)
    more = np.sqrt(np.maximum(np.diag(value) / np.maximum(np.diag(bend.value), least), 1.0))
    i, j, _ = triangle(len(value))
    return replace(bend, value=value, sd=bend.sd * more[i] * more[j])  # a larger H is not known better


def _slope_covariance(bend: Curvature, x: Floats, y: Floats) -> Floats:
    """Covariance of (Hx)_a and (Hy)_c for all pairs of rows of x and y, (len(x), p, len(y), p)."""
    entry, diagonal = bend.variances, np.arange(x.shape[1])
    mixed = np.einsum("ac,tc,sa->tasc", entry, x, y)
    mixed[:, diagonal, :, diagonal] = np.einsum("ab,tb,sb->ats", entry, x, y)
    return mixed + bend.factor_sd**2 * np.einsum("ta,sc->tasc", x @ bend.value, y @ bend.value)
