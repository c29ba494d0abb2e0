"""The last stages of a regression whose scores have no bound of their own: Poisson regression and expectiles.

Scores are clipped as in least squares (`score_clip`). No record is weighted down. Public arithmetic on answers.
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
from pgbb.methods.calibrated.score_clip import EITHER, OF_COUNTS, clip_for
from pgbb.release.local_gaussian import LocalGaussian

Floats = NDArray[np.float64]


LOUD = 0.1  # relative noise of the curvature up to which records far out are not cut
NEAREST, FARTHEST = 4.0, 400.0  # squared lengths at which a curvature is cut lie between these, in mean ones


@dataclass(frozen=True)
class Clipped:
    """A regression with clipped scores.

    Args:
      asker: asks the questions.
      near: the frame of the design.
      given: what its statistics need beside θ and the frame; its shape tells the family.
      least: least bound.
      side: share of the records whose scores are long.
      counts: whether the response counts, so that these are few.
    """

    asker: Asker
    near: Frame
    given: Floats | float
    least: float = 0.0
    side: float = EITHER
    counts: bool = False

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
        """Choose the clip, and ask two rounds of gradients. Arguments are as for `refine`.

        Returns the posterior, and a note for the certificate.
        """
        asker, near = self.asker, self.near
        clip = clip_for(asker, near, theta, size, self.given, self.least, OF_COUNTS if self.counts else self.side)

        def gradient(stage: str, at: Floats) -> tuple[Floats, float]:
            return self.score(stage, at, clip.bound)

        def spread(at: Floats, bend: Curvature) -> tuple[Floats, Floats]:
            return clip.moments(asker, bend.value, at, near.matrix, self.given)

        asked = curvature, gradient, spread
        posterior = refine(
            box, asker.n, theta, error, near.matrix, *asked, box.clip, prior, clip.bound,
            model=model, moves=lambda: clip.moves, located=located,
        )  # fmt: skip
        return posterior, [clip.note]
