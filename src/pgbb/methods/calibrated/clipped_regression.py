"""The last stages of a regression whose scores have no bound of their own: Poisson regression and expectiles.

Scores are clipped at a bound that follows their distribution. What the clip takes off is a question of its own, and is
put back as far as it shows, as in least squares (`score_clip`). No record is weighted down. Public arithmetic on
answers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import unpack
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import Box
from pgbb.methods.calibrated.curvature import Curvature, covariance_of
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.logistic import LogisticCurvature
from pgbb.methods.calibrated.prior import Prior
from pgbb.methods.calibrated.refine import refine
from pgbb.methods.calibrated.response import Distribution
from pgbb.methods.calibrated.score_clip import ONE_SIDED, Tails, bound_for, excess, lengths, tails_of
from pgbb.release.local_gaussian import LocalGaussian

Floats = NDArray[np.float64]

__all__ = ["Clipped"]

LOUD = 0.1  # relative noise of the curvature up to which records far out are not cut
NEAREST, FARTHEST = 4.0, 400.0  # squared lengths at which a curvature is cut lie between these, in mean ones


@dataclass(frozen=True)
class Clipped:
    """A regression with clipped scores.

    Args:
      asker: asks the questions.
      near: the frame of the design.
      given: what its statistics need beside θ and the frame; its shape tells the family.
      part: share of the excess length by which the clip may move a coordinate.
      least: least bound.
      aim: mean direction of what is cut off, a vector no longer than 1, where that is known.
      tails: a function that finds the tails that the lengths of scores may have.
    """

    asker: Asker
    near: Frame
    given: Floats | float
    part: float = ONE_SIDED
    least: float = 0.0
    aim: Floats | float = 0.0
    tails: Callable[[Distribution], Tails] = tails_of

    def ask(self, stage: str, statistic: str, at: Floats, *rest: Floats | float) -> tuple[Floats, float]:
        """One answer, and the standard deviation of its noise."""
        return self.asker.ask(stage, f"clipped_{statistic}", at, self.near.matrix, self.given, *rest)

    def score(self, stage: str, at: Floats, bound: float) -> tuple[Floats, float]:
        """The mean of scores cut to length `bound`, and the noise of each coordinate."""
        answer, sd = self.ask(stage, "score", at, bound)
        return answer * bound, sd * bound

    def curvature(self, at: Floats, shape: Floats) -> tuple[Floats, float]:
        """Ask for the curvature, of about `shape`, with terms cut where noise allows. Returns it with its noise."""
        scale = float(np.trace(shape))
        noise = self.asker.noise("curvature") * len(shape) / max(scale, 1e-300)
        square = float(np.clip(LOUD / max(noise, 1e-300), NEAREST, FARTHEST)) * scale
        answer, sd = self.ask("curvature", "curvature", at, np.sqrt(square))
        return unpack(answer, len(shape)) * square, sd * square

    def finish(
        self,
        box: Box,
        theta: Floats,
        error: Floats,
        size: float,
        curvature: Callable[[Floats, Curvature | None], Curvature],
        prior: Prior,
        model: LogisticCurvature | None = None,
        located: bool = True,
    ) -> tuple[LocalGaussian, list[str]]:
        """Choose the clip, estimate what it takes off, and ask two rounds of gradients. Arguments are as for `refine`.

        Returns the posterior, and a note for the certificate.
        """
        asker, near, p, n = self.asker, self.near, len(theta), self.asker.n
        law = lengths(asker, near, theta, size, self.given)
        tails = self.tails(law)
        sampling = float(np.sqrt(law.mean(np.minimum(law.middles, tails.start) ** 2) / p / n))
        part = float(np.hypot(self.part, np.linalg.norm(self.aim) / np.sqrt(p)))
        b, mean, root = bound_for(tails, asker.noise("final"), sampling, part, self.least)
        cut = excess(asker, near, theta, b, self.part * root, sampling, self.given, self.aim * mean)
        square = max(cut.square, tails.square(b))

        def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
            answer, sd = self.score(stage, at, b)
            return answer + cut.moved, sd

        def spread(at: Floats, bend: Curvature) -> tuple[Floats, Floats]:
            raw, sd = asker.score_moments(at, near.matrix, self.given, b)
            found, left = covariance_of(raw * b**2, bend.value, sd * b**2, shrink=asker.shrink)
            wider = 1 + min(square / max(float(np.trace(found)), 1e-300), 2.0)
            return found * wider, left * wider

        asked = curvature, gradient, spread
        posterior = refine(
            box, n, theta, error, near.matrix, *asked, box.clip, prior, b,
            model=model, common=cut.covariance, located=located,
        )  # fmt: skip
        return posterior, [cut.note]
