"""Directions that the records do not have: a column that is constant, a level that never occurs.

Noise leaves some curvature along them, which may pass for one that is seen. Public arithmetic on answers.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import direction_sd
from pgbb.methods.calibrated.curvature import Curvature
from pgbb.methods.calibrated.frame import Frame

__all__ = ["absent", "without"]

SEEN = 3.0  # noise above which a direction is there
WHITE = 5.0  # the same of a white one: where noise hides even that, nothing can be said
NOTHING = 1e-9  # of the mean curvature, that is left along a direction that is absent


def absent(near: Frame, also: Floats | None = None, sd: float = 0.0) -> Floats:
    """Directions of a frame, as columns, that its second moments do not show although they would show white ones.

    `also` is another answer about them, with noise `sd`: what it does not show is absent too.
    """
    values, axes = np.linalg.eigh(near.moment)
    hidden = _hidden(values, direction_sd(axes, near.moment_sd), near.reach)
    if also is not None:
        noise = direction_sd(axes, np.full(len(near.moment_sd), sd))
        hidden |= _hidden(np.sum(axes * (also @ axes), axis=0), noise, near.reach)
    return axes[:, hidden]


def _hidden(values: Floats, noise: Floats, reach: float) -> NDArray[np.bool_]:
    low = (values < SEEN * noise) | (values < NOTHING * values.max())
    return low & (WHITE * noise < reach**-2)


def without(bend: Curvature, lost: Floats) -> Curvature:
    """The curvature with next to nothing along these orthonormal directions, so that they are lost."""
    if not lost.size:
        return bend
    away = np.eye(len(bend.value)) - lost @ lost.T
    little = NOTHING * float(np.trace(bend.value)) / len(bend.value)
    return replace(bend, value=away @ bend.value @ away + little * lost @ lost.T)
