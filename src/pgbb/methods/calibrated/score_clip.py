"""Chooses the length at which scores are clipped, by a public rule, and what intervals allow for because of the clip.

Public arithmetic on answers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.curvature import covariance_of
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.response import Distribution, asked_law
from pgbb.methods.calibrated.stages import BINS

Floats = NDArray[np.float64]


NOTHING = np.zeros(0)  # what the statistics of least squares need beside θ and the frame
FINEST, FARTHEST = 0.03, 4.0  # lengths are told apart from the first to the second of these, in sizes of the response
QUIETEST = 1e-9  # in place of no noise
NEAREST = 0.9  # the nearest clip is at this quantile of lengths
LENGTH, OF_COUNTS = 1.15, 1.6  # of a clip, see `loudness`; it is longer for counts, since large ones lie on one side
EVEN = 1.5  # root mean square of ordinary scores, over that of the same ones cut at their ninth decile
USUAL = 0.3  # by how much a clip moves a coefficient, in units of the noise that it leaves
UNEVEN = 2.0  # the factor by which a clip is farther out where scores are less even than that, at most
HEAVY = 4.0  # the same, where scores are less even than that by a factor of two
FEW = 1.0  # mean excess of scores, in bounds, that does no harm, in units of the noise of a gradient with b = 1
UNSEEN, SEEN = 1.8, 2.8  # more of it counts from the first of these on, in its noise, and from the second in full
LONG, TOWARD = 1.5, 0.3  # it is longer by this factor than it is asked, and this part of it moves one coordinate
SQUARE = 4.0  # what such scores lack in their squares, in squared bounds, over their excess in bounds
NOISE = 0.5  # of a mean squared length, in that of a share and squared bounds
ROUGH = 0.1  # relative noise of second moments up to which scores are not cut nearer for them
MOST = 4.0  # the most by which second moments are scaled up because scores are cut


@dataclass(frozen=True)
class Clip:
    """A clip of scores.

    Args:
      bound: the length at which scores are cut.
      moves: by how much the clip may move a coefficient, in sampling errors.
      inner: the length at which scores are cut for their second moments, whose noise grows with its square.
      inside: mean squared length of scores that are cut there, by the distribution of lengths.
      inside_sd: its noise.
      whole: mean squared length of all scores over `inside`, as far as they show.
      note: for the certificate.
    """

    bound: float
    moves: float
    inner: float
    inside: float
    inside_sd: float
    whole: float
    note: str

    def moments(self, asker: Asker, shape: Floats, *given: Floats | float) -> tuple[Floats, Floats]:
        """Ask the stage "spread": second moments of scores, of about the `shape`, and their noise.

        Their trace is also the mean squared length, by the distribution of lengths. Both are averaged by precision.
        """
        raw, sd = asker.score_moments(*given, self.inner)
        raw, sd = raw * self.inner**2, sd * self.inner**2
        if asker.counts_each:
            own = len(raw) * sd**2
            trust = own / max(own + self.inside_sd**2, 1e-300)
            raw = raw + trust * (self.inside - float(np.trace(raw))) / max(float(np.trace(shape)), 1e-300) * shape
        found, left = covariance_of(raw, shape, sd, shrink=asker.shrink)
        return found * self.whole, left * self.whole


def loudness(noise: float, n: int, length: float = LENGTH) -> float:
    """The noise c that the last gradients may have, in sampling errors, which decides how far away a clip is.

    A clip at b standard deviations s of a score leaves the noise c = bτ, where τ is √n times the `noise` of a gradient
    with b = 1. If scores have three moments, the clip moves a coefficient by about √n/b² sampling errors. The sum of
    both squares is least where c³ is a multiple of τ²√n; `length` is its cube root.

    >>> [round(loudness(noise, n), 2) for noise, n in ((1.2e-3, 10_000), (4e-4, 30_000), (1.15e-4, 30_000))]
    [1.3, 1.08, 0.47]
    """
    return length * float(np.cbrt(noise**2 * n**1.5))


def ordinary_error(noise: float, n: int, length: float = LENGTH) -> float:
    """What noise and clip add to a coefficient, in sampling errors, where scores are longer by no more than usual."""
    return loudness(noise, n, length) * float(np.hypot(1.0, USUAL))


def excess_of_normal(bound: float) -> float:
    """E min((|z|/b − 1)₊, 1) of a normal z: with many coefficients a clip is so near that ordinary scores show.

    >>> [round(excess_of_normal(b), 5) for b in (2.0, 2.4, 4.0)]
    [0.00848, 0.00227, 0.0]
    """
    at = np.array([bound, 2 * bound])
    density, beyond = np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi), ndtr(-at)
    return float(2 / bound * (density[0] - density[1]) - 2 * (beyond[0] - 2 * beyond[1]))


def clip_for(
    asker: Asker,
    near: Frame,
    theta: Floats,
    size: float,
    given: Floats | float = NOTHING,
    least: float = 0.0,
    length: float = LENGTH,
) -> Clip:
    """Ask for the lengths of scores at θ, choose the bound, and ask how much longer scores are.

    Args:
      asker: asks the stages "residuals" and "tail".
      near: the frame of the design.
      theta: a rough estimate.
      size: of the response.
      given: what the family needs beside θ and the frame.
      least: least bound.
      length: as of `loudness`.
    """
    law, p = _lengths(asker, near, theta, size, given), len(theta)
    early, late = (1 / max(asker.noise(stage), QUIETEST) for stage in ("refine", "final"))
    noise = 1 / float(np.hypot(early, late))
    loud = loudness(noise, asker.n, length)
    bounds = np.geomspace(max(float(law.quantile(np.array(NEAREST))), 1e-3 * law.edges[-1]), law.edges[-1], 241)
    squares = np.array([law.mean(np.minimum(law.middles, b) ** 2) for b in bounds])
    errors = np.sqrt(squares / p / asker.n)
    uneven = np.clip(errors / max(float(errors[0]), 1e-300) / EVEN, 1.0, UNEVEN)
    dear = np.append(noise * bounds > loud * uneven * errors, True)
    place = max(int(np.argmax(dear)) - 1, 0)
    bound, error = max(float(bounds[place]), least), float(errors[place])
    answer, sd = asker.ask("tail", "clipped_excess", theta, near.matrix, given, bound)
    more = max(float(answer[0]) - FEW * noise, 0.0)
    excess = LONG * more * float(np.clip((more / max(sd, QUIETEST) - UNSEEN) / (SEEN - UNSEEN), 0.0, 1.0))
    tail = loud * (USUAL + HEAVY * float(uneven[place] - 1))
    usual = LONG * excess_of_normal(bound / max(float(np.sqrt(squares[place])), 1e-300))
    moves = float(np.hypot(tail, TOWARD * bound * max(excess - usual, 0.0) / max(error, 1e-300)))
    share = 1 - float(np.interp(bound, law.edges, law.below)) + 2 * law.sd
    note = (
        f"Scores longer than a private bound are clipped, at most {min(share, 1.0):.1%} of them; the intervals allow "
        f"for coefficients that this moves by {moves:.1f} standard errors."
    )
    seen = np.sqrt(p) * asker.moments_noise * bounds**2 <= ROUGH * squares
    inner = min(max(int(np.sum(seen)) - 1, 0), place)
    inside = max(float(squares[inner]), 1e-300)
    whole = min((float(squares[place]) + SQUARE * excess * bound**2) / inside, MOST)
    return Clip(bound, moves, float(bounds[inner]), inside, NOISE * law.sd * float(bounds[inner]) ** 2, whole, note)


def _lengths(asker: Asker, near: Frame, theta: Floats, size: float, given: Floats | float) -> Distribution:
    """Ask the stage "residuals": the distribution of lengths of scores at θ."""
    far, unit = FARTHEST * size * np.sqrt(len(theta)), FINEST * size / near.reach
    edges = np.sinh(np.linspace(0, 1, BINS + 1) * np.arcsinh(far / unit)) * unit
    return asked_law(asker, "residuals", "clipped_lengths", edges, theta, near.matrix, given)[0]
