"""Chooses the length at which scores are clipped, by a public rule, and what intervals allow for because of the clip.

Public arithmetic on answers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb.methods.calibrated import pareto
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.curvature import covariance_of
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.response import Distribution, asked_law
from pgbb.methods.calibrated.stages import BINS

Floats = NDArray[np.float64]


NOTHING = np.zeros(0)  # what the statistics of least squares need beside θ and the frame
FINEST, FARTHEST = 0.03, 4.0  # lengths are told apart from the first to the second of these, in sizes of the response
QUIETEST = 1e-9  # in place of no noise
EITHER, OF_COUNTS = 0.5, 0.25  # share of the records whose scores are long; large counts lie on one side
NEAREST = 0.2  # the nearest clip cuts the scores of this part of them
LENGTH = 1.15  # of a clip, see `loudness`
EVEN = 1.5  # root mean square of ordinary scores, over that of the same ones cut at their ninth decile
USUAL = 0.45  # by how much a clip moves a coefficient, in units of the noise that it leaves
UNEVEN = 2.0  # the factor by which a clip is farther out where scores are less even than that, at most
HEAVY = 4.0  # the same, where scores are less even than that by a factor of two
FEW = 1.0  # mean excess of scores, in bounds, that does no harm, in units of the noise of a gradient with b = 1
UNSEEN, SEEN = 1.8, 2.8  # more of it counts from the first of these on, in its noise, and from the second in full
LONG, TOWARD = 1.5, 0.4  # it is longer by this factor than it is asked, and this part of it moves one coordinate
FARTHER = 2.0  # the most by which a clip is moved out because much lies beyond it
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


class Clips:
    """The clip of the first of two gradients of least squares, and the one that is chosen between them.

    The first fit may be off by far more than the residuals of the right line are wide, and then scores look longer than
    they are.

    Args:
      asker: asks the questions.
      near: the frame of the design.
      bound: of the first gradient.
      size: of the response.
    """

    def __init__(self, asker: Asker, near: Frame, bound: float, size: float) -> None:
        self._asked = asker, near
        self._size = size
        self.bound = bound
        self.chosen: Clip

    def choose(self, theta: Floats) -> Clip:
        """Choose the clip at an estimate after the first gradient."""
        self.chosen = clip_for(*self._asked, theta, self._size)
        self.bound = self.chosen.bound
        return self.chosen

    def moves(self) -> float:
        """By how much the clip may move a coefficient, in sampling errors."""
        return self.chosen.moves


def loudness(noise: float, n: int, side: float = EITHER) -> float:
    """The noise c that the last gradients may have, in sampling errors, which decides how far away a clip is.

    A clip at b standard deviations s of a score leaves the noise c = bτ, where τ is √n times the `noise` of a gradient
    with b = 1. If scores have three moments, the clip moves a coefficient by about √n/b² sampling errors. The sum of
    both squares is least where c³ is a multiple of τ²√n; `LENGTH` is its cube root. It is longer where a smaller share
    of the records, on one `side`, has long scores: it counts in root mean squares of these.

    >>> [round(loudness(noise, n), 2) for noise, n in ((1.2e-3, 10_000), (4e-4, 30_000), (1.15e-4, 30_000))]
    [1.3, 1.08, 0.47]
    """
    return LENGTH / (2 * side) ** 0.5 * float(np.cbrt(noise**2 * n**1.5))


def ordinary_error(noise: float, n: int, side: float = EITHER) -> float:
    """What noise and clip add to a coefficient, in sampling errors, where scores are longer by no more than usual."""
    return loudness(noise, n, side) * float(np.hypot(1.0, USUAL))


def ordinary_excess(bound: float) -> float:
    """E min((x/b − 1)₊, 1) of exponential lengths x with mean square 1: such tails on both sides move no coefficient.

    With many coefficients a clip is so near that they show.

    >>> [round(ordinary_excess(b), 5) for b in (2.0, 2.4, 4.0)]
    [0.01966, 0.00956, 0.00062]
    """
    slope = 2**0.5 * bound
    return float((np.exp(-slope) - np.exp(-2 * slope)) / slope)


@dataclass(frozen=True)
class Lengths:
    """The distribution of lengths of scores at an estimate, and the bounds at which they may be cut.

    Args:
      law: the distribution.
      bounds: increasing.
      squares: mean squared length of scores that are cut there.
      errors: sampling errors of a coordinate of their mean.
      uneven: root mean squares of scores that are cut there, over that of ordinary ones; between 1 and `UNEVEN`.
      loud: the noise that gradients may have, in sampling errors, before it is multiplied by `uneven`.
      noise: of the last gradients together, with b = 1.
    """

    law: Distribution
    bounds: Floats
    squares: Floats
    errors: Floats
    uneven: Floats
    loud: float
    noise: float

    @property
    def place(self) -> int:
        """Which of the bounds is the farthest whose noise is not too loud."""
        dear = np.append(self.noise * self.bounds > self.loud * self.uneven * self.errors, True)
        return max(int(np.argmax(dear)) - 1, 0)

    @property
    def bound(self) -> float:
        """That bound."""
        return float(self.bounds[self.place])


def lengths_at(
    asker: Asker,
    near: Frame,
    theta: Floats,
    size: float,
    given: Floats | float = NOTHING,
    side: float = EITHER,
) -> Lengths:
    """Ask the stage "residuals" for the lengths of scores at θ. Arguments are as for `clip_for`.

    Beyond what the histogram shows they follow a generalised Pareto tail: noise in its last bins would look like scores
    of any length.
    """
    far, unit = FARTHEST * size * np.sqrt(len(theta)), FINEST * size / near.reach
    edges = np.sinh(np.linspace(0, 1, BINS + 1) * np.arcsinh(far / unit)) * unit
    law = asked_law(asker, "residuals", "clipped_lengths", edges, theta, near.matrix, given)[0]
    early, late = (1 / max(asker.noise(stage), QUIETEST) for stage in ("refine", "final"))
    noise = 1 / float(np.hypot(early, late))
    bounds = np.geomspace(
        max(float(law.quantile(np.array(1 - NEAREST * side))), 1e-3 * law.edges[-1]), law.edges[-1], 241
    )
    squares = pareto.Lengths(law, float(law.edges[-1])).cut_square(bounds)
    errors = np.sqrt(squares / len(theta) / asker.n)
    uneven = np.clip(errors / max(float(errors[0]), 1e-300) / EVEN, 1.0, UNEVEN)
    return Lengths(law, bounds, squares, errors, uneven, loudness(noise, asker.n, side), noise)


def clip_for(
    asker: Asker,
    near: Frame,
    theta: Floats,
    size: float,
    given: Floats | float = NOTHING,
    least: float = 0.0,
    side: float = EITHER,
) -> Clip:
    """Ask for the lengths of scores at θ, choose the bound, and ask how much longer scores are.

    Args:
      asker: asks the stages "residuals" and "tail".
      near: the frame of the design.
      theta: a rough estimate.
      size: of the response.
      given: what the family needs beside θ and the frame.
      least: least bound.
      side: share of the records whose scores are long: half of them, less if scores of one side are longer.
    """
    found, p = lengths_at(asker, near, theta, size, given, side), len(theta)
    law, squares, place = found.law, found.squares, found.place
    bound, error = max(found.bound, least), float(found.errors[place])
    answer, sd = asker.ask("tail", "clipped_excess", theta, near.matrix, given, bound)
    more = max(float(answer[0]) - FEW * found.noise, 0.0)
    excess = LONG * more * float(np.clip((more / max(sd, QUIETEST) - UNSEEN) / (SEEN - UNSEEN), 0.0, 1.0))
    tail = found.loud * (USUAL + HEAVY * float(found.uneven[place] - 1))
    usual = LONG * ordinary_excess(bound * float(np.sqrt(2 * side / max(squares[place], 1e-300))))
    shown = TOWARD * bound * max(excess - usual, 0.0) / max(error, 1e-300)
    farther = float(np.clip(np.sqrt(shown / (found.noise * bound / max(error, 1e-300))), 1.0, FARTHER))
    whole = float(squares[place]) + SQUARE * excess * bound**2
    bound = farther * bound
    moves = float(np.hypot(tail, shown / farther))
    share = 1 - float(np.interp(bound, law.edges, law.below)) + 2 * law.sd
    note = (
        f"Scores longer than a private bound are clipped, at most {min(share, 1.0):.1%} of them; the intervals allow "
        f"for coefficients that this moves by {moves:.1f} standard errors."
    )
    seen = np.sqrt(p) * asker.moments_noise * found.bounds**2 <= ROUGH * squares
    inner = min(max(int(np.sum(seen)) - 1, 0), place)
    inside = max(float(squares[inner]), 1e-300)
    cut = float(found.bounds[inner])
    return Clip(bound, moves, cut, inside, NOISE * law.sd * cut**2, min(whole / inside, MOST), note)
