"""A mean: where the column lies, roughly, its variance, and the mean of what the clip leaves."""

import numpy as np
from scipy.special import ndtr, ndtri

from pgbb.methods.calibrated.asking import Asker
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import LocalGaussian

__all__ = ["fit_mean"]

PRIOR = 0.5  # how far the variance of a mean may be from that of its family, relative


def fit_mean(asker: Asker, problem: Problem) -> LocalGaussian:
    """Ask all stages of a mean.

    The clipped score vanishes where the mean of y clipped to centre ± reach
    equals the centre, reach being C·s² (Gaussian) or C·m² (exponential): that
    equation, of slope P(no clip), is solved, in the range that the schema declares.
    Where the clip is seen to cut more than the family allows, the whole range is used instead.
    """
    low, high = problem.center[0] - problem.radius[0], problem.center[0] + problem.radius[0]
    bottom, top = float(problem.settings["low"]), float(problem.settings["high"])
    middle, half = (bottom + top) / 2, (top - bottom) / 2
    gaussian, known = problem.settings["family"] == "gaussian", problem.settings["scale"]
    answer, sd = asker.ask("range", "mean_range", middle, half)
    present = float(answer[1]) * np.sqrt(2)  # share of records that have a value
    if present > 1 - 3 * np.sqrt(2) * sd:
        present = 1.0
    present = max(present, 0.05)
    centre, vague = float(np.clip(middle + half * answer[0] * np.sqrt(2) / present, low, high)), 5 * half * sd / present

    def window(at: float, vague: float) -> tuple[float, float]:
        reach = vague + problem.clip * (known**2 if gaussian else (at + vague) ** 2)
        return max(bottom, at - reach), min(top, at + reach)

    ends = window(centre, vague)
    answer, sd = asker.ask("refine", "mean_score", *ends)
    centre = float(np.clip((ends[0] + ends[1]) / 2 + (ends[1] - ends[0]) / 2 * answer[0] / present, low, high))
    early, early_sd = ends, sd * (ends[1] - ends[0]) / 2
    vague = 3 * early_sd / present
    ends = window(centre, vague)
    answer, sd = asker.ask("spread", "mean_spread", *ends, centre)
    inside, noise = (present + answer[0] * np.sqrt(2)) / 2, sd / np.sqrt(2)
    if ends == (bottom, top):  # nothing can be clipped
        inside, noise = present, 0.0
    reach = min(ends[1] - centre, centre - ends[0])
    allowed = present * 2 * ndtr(-reach / known) if gaussian else 0.0  # symmetric, so that it moves no mean
    bites = present - inside > 3 * noise + allowed
    far = max(ends[1] - centre, centre - ends[0]) ** 2
    square, square_sd = far * (present + answer[1] * np.sqrt(2)) / 2, far * sd / np.sqrt(2)
    expected = present * (known**2 if gaussian else (centre + vague / 3) ** 2)
    doubt = max((PRIOR * expected) ** 2, (square - expected) ** 2 - square_sd**2)
    trust = doubt / (doubt + square_sd**2)
    variance = max(trust * square + (1 - trust) * expected, 0.05 * expected)
    if bites:  # ask for the mean itself; what is inside tells how far a normal law would reach
        variance = max(
            variance, present * (reach / float(ndtri((1 + np.clip(inside / present, 0.05, 0.999)) / 2))) ** 2
        )
        ends, inside, noise = (bottom, top), present, 0.0
    answer, sd = asker.ask("final", "mean_score", *ends)
    gradient = present * (centre - (ends[0] + ends[1]) / 2) - (ends[1] - ends[0]) / 2 * answer
    noise_sd = sd * (ends[1] - ends[0]) / 2
    if early == ends and sd > 0:  # the same equation was asked before, and the centre is its root
        weight = early_sd**2 / (early_sd**2 + noise_sd**2)
        gradient, noise_sd = weight * gradient, float(np.hypot(weight * noise_sd, (1 - weight) * early_sd))
    return LocalGaussian(
        center=np.array([[centre]]),
        gradient=gradient[None],
        frame=np.eye(1),
        curvature=np.array([[[max(min(inside, present), 0.05 * present)]]]),
        curvature_sd=np.array([[noise]]),
        privacy=np.array([[noise_sd]]),
        sampling=np.array([[variance]]) / asker.n,
        sampling_sd=np.array([np.sqrt(trust) * square_sd]) / asker.n,
        free=np.array([[[1.0 if inside < 3 * noise else 0.0]]]),
        low=np.array([low]),
        high=np.array([high]),
    )
