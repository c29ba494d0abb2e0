"""The last stages of a regression whose scores have no bound of their own: Poisson regression and expectiles.

Scores are cut at a bound that follows their private law; what is cut off is asked apart and put back as far as it
shows, as in least squares (`tails`). No record is weighted down. Public arithmetic on answers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import unpack
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import Box
from pgbb.methods.calibrated.curvature import Curvature
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.logistic import LogisticCurvature
from pgbb.methods.calibrated.prior import Prior
from pgbb.methods.calibrated.refine import refine
from pgbb.methods.calibrated.score_clip import clip_scores, score_spread
from pgbb.release.local_gaussian import LocalGaussian

Floats = NDArray[np.float64]

__all__ = ["Clipped"]

LOUD = 0.1  # noise of the curvature, relative, where its reach is chosen by it
NEAREST, FARTHEST = 4.0, 400.0  # squared lengths at which a curvature is cut, in mean ones


@dataclass(frozen=True)
class Clipped:
    """A family of scores that are clipped.

    Args:
      asker: asks.
      near: the frame of the design.
      given: what its statistics need beside θ and the frame, which says what family it is.
      least: bound.
      aim: where what is cut off points, on average: a vector no longer than one.
    """

    asker: Asker
    near: Frame
    given: Floats | float
    least: float = 0.0
    aim: Floats | float = 0.0

    def ask(self, stage: str, statistic: str, at: Floats, *rest: Floats | float) -> tuple[Floats, float]:
        """One answer, and the standard deviation of its noise."""
        return self.asker.ask(stage, f"clipped_{statistic}", at, self.near.matrix, self.given, *rest)

    def score(self, stage: str, at: Floats, bound: float) -> tuple[Floats, float]:
        """The mean of scores cut to length `bound`, and the noise of each coordinate."""
        answer, sd = self.ask(stage, "score", at, bound)
        return answer * bound, sd * bound

    def curvature(self, at: Floats, shape: Floats, uneven: float = 1.0) -> tuple[Floats, float]:
        """The curvature, whose terms are cut where noise allows and which is about `shape`; its noise.

        `uneven`: the largest weight of a record in it, beside the mean one.
        """
        scale = float(np.trace(shape))
        noise = self.asker.noise("curvature") * len(shape) / max(scale, 1e-300)
        square = float(np.clip(LOUD / max(noise, 1e-300), NEAREST * uneven, FARTHEST * uneven)) * scale
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
        """The bound, what it takes off, two rounds of gradients; the posterior, and a note. Arguments as `refine`."""
        asker, near, n = self.asker, self.near, self.asker.n
        cut = clip_scores(asker, near, theta, size, np.zeros(len(theta)), self.given, self.aim, self.least)

        def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
            answer, sd = self.score(stage, at, cut.bound)
            return answer + cut.moved, sd

        def spread(at: Floats, bend: Curvature) -> tuple[Floats, Floats]:
            return score_spread(asker, near, at, cut, bend.value, self.given)

        asked = curvature, gradient, spread
        posterior = refine(
            box, n, theta, error, near.matrix, *asked, box.clip, prior, cut.bound, model=model, common=cut.covariance,
            located=located,
        )  # fmt: skip
        return posterior, [cut.note]
