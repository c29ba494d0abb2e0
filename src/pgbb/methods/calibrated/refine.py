"""Two rounds of gradients around a rough estimate, and the local posterior that they add up to.

How the rounds become one estimate, and how much wider the posterior must be where the local model does not explain
them. Public arithmetic; the questions are asked by the callables of each family.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from pgbb.methods.calibrated.algebra import floored, limited
from pgbb.methods.calibrated.curvature import Curvature, filtered, kalman
from pgbb.methods.calibrated.prior import Prior, tempered
from pgbb.release.local_gaussian import LocalGaussian

if TYPE_CHECKING:
    from pgbb.methods.calibrated.box import Box
    from pgbb.methods.calibrated.logistic import LogisticCurvature

Floats = NDArray[np.float64]

__all__ = ["combined", "felt", "refine", "widening_for_contradiction", "widening_for_last_step"]

NEGLIGIBLE = 0.02  # privacy variance beside sampling variance
SELDOM = 1e-3  # how often a local model that holds may widen its posterior for nothing
WIDEST = 4.0  # a posterior that would have to be wider than this is given up, where noise does not explain it
RARE = 1e-6  # how often it may be taken for one that does not hold


def refine(
    box: "Box",
    n: int,
    theta: Floats,
    error: Floats,
    frame: Floats,
    curvature: Callable[[Floats, Curvature | None], Curvature],
    gradient: Callable[[str, Floats], tuple[Floats, float]],
    spread: Callable[[Floats, Curvature], tuple[Floats, Floats]],
    settle: Callable[[Floats], Floats],
    prior: Prior,
    bound: float = 1.0,
    model: "LogisticCurvature | None" = None,
    common: Floats | float = 0.0,
    quadratic: bool = False,
    follows: bool = False,
    bends: Callable[[Floats, Floats], tuple[Floats, Floats]] | None = None,
    located: bool = True,
) -> LocalGaussian:
    """Two rounds of curvature and gradient, and the second moments of the score between them.

    Args:
      box: bounds the posterior, which is marked where it touches.
      n: number of records.
      theta: a rough estimate.
      error: covariance of its error, in the frame.
      frame: F, of all parameters.
      curvature: asks for the curvature at a point, the second time with the first answer.
      gradient: asks for the gradient of the stage "refine" or "final" at a point, with its noise.
      spread: asks for the second moments of the score at a point, with the noise that is left in them.
      settle: moves a point to where estimates may lie.
      prior: of all parameters.
      bound: the largest score.
      model: how curvature changes with θ, where that is known: steps then follow it, and the curvature at their end
        is what is released.
      quadratic: whether the loss is: then no step follows the last, however long it was.
      common: covariance of an error that both gradients have.
      follows: whether a posterior over which the curvature of the model varies is widened by axis, and not given up.
      bends: mean and covariance of what a gradient lacks because it bends over the way to the target, where the way is
        normal with a mean and a covariance: a scale looks larger where coefficients are not yet right.
      located: False where noise has hidden the response: then the posterior is that of the prior.
    """

    def straight(stage: str, at: Floats, metric: Floats, error: Floats) -> tuple[Floats, float, Floats]:
        """The gradient as if it did not bend, its noise, and the covariance of what bends."""
        answer, sd = gradient(stage, at)
        if bends is None:
            return answer, sd, np.zeros_like(frame)
        mean, doubt = bends(*kalman(metric, answer, sd, error))
        return answer + mean, sd, doubt

    def newton(bend: Curvature, at: Floats, g: Floats) -> Floats:
        step = bend.step(g)
        if model is not None:
            metric = bend.solid
            most = 2 * np.sqrt(step @ metric @ step)
            for _ in range(6):
                met = bend.plus(model.change(at, settle(at - frame @ step)))
                step = limited(met.step(g), metric, most)
        return step

    bend = curvature(theta, None)
    before, sd_first, early_doubt = straight("refine", theta, bend.solid, error)
    step = newton(bend, theta, before)
    worth, error = (kalman if quadratic else filtered)(bend.solid, bend.solid @ step, sd_first, error)
    point, first = settle(theta - frame @ worth), settle(theta - frame @ step)
    met = bend if model is None else bend.plus(model.change(theta, point))
    bend = curvature(point, bend)
    sampling, left = spread(point, bend)
    sampling = floored(sampling, 1e-9 * float(np.trace(sampling)))
    g, sd_second, doubt = straight("final", point, bend.solid, error)
    inverse = np.linalg.inv(frame)
    walked = inverse @ (point - theta)
    if model is None:
        bend = bend.corrected(walked, g - before, float(np.hypot(sd_first, sd_second)), bound, n)
    second = settle(point - frame @ newton(bend, point, g))
    weight, sd = combined(sd_first, sd_second, float(np.trace(sampling)) / len(sampling) / n)
    best, doubt = weight * second + (1 - weight) * first, weight * doubt + (1 - weight) * early_doubt
    early, late = inverse @ (first - theta), inverse @ (second - point)
    factor = max(
        1.0 if quadratic else widening_for_last_step(early, late, bend.solid, sampling / n, sd_first, sd_second),
        widening_for_contradiction(g - before, walked, late, met, sampling / n, sd_first, sd_second),
    )
    wider = np.zeros_like(frame)
    if model is not None:
        asked, bend = bend, bend.plus(model.at(best) - model.at(point))
        plain = felt(sd, np.zeros_like(frame), sampling / n, factor)[1]
        if follows:
            wider = model.widened(best, frame, bend, plain) - plain
        elif _other(model.at(point), model.at(best)) or any(
            model.varies(where, frame, met, plain) for where, met in ((best, bend), (point, asked))
        ):
            factor, best = np.inf, prior.center  # an estimate that ran away is worth nothing
    step, unseen = kalman(bend.solid, g, sd_second, error)
    blur = bend.blur(unseen, (1 - weight) * walked - step)  # both estimates have a way to go
    privacy, noise = felt(sd, blur + common + doubt, sampling / n, factor)
    noise = noise + wider  # of sampling and of privacy, as both are
    if box.touched(best, frame, bend, noise) or not located:
        factor = np.inf
    drawn = sampling / n + privacy**2 * np.eye(len(theta))
    settled = prior.settle(bend, drawn, noise, frame, point, best, known=factor < np.inf)
    return LocalGaussian(
        center=point[None],
        gradient=settled.gradient[None],
        frame=frame,
        curvature=settled.curvature[None],
        curvature_sd=np.zeros((1, len(bend.sd))),
        privacy=np.array([[privacy]]),
        sampling=sampling / n,
        sampling_sd=tempered(sampling, left) / n,
        free=np.zeros((1, len(theta), len(theta))),
        low=box.low,
        high=box.high,
        prior=prior.sd,
    )


def _other(here: Floats, there: Floats) -> bool:
    """Whether curvature doubles or halves, along any direction, from one point to another."""
    values = np.linalg.eigvals(np.linalg.solve(floored(here, 1e-12 * float(np.trace(here)) + 1e-300), there)).real
    return bool(values.min() < 0.5 or values.max() > 2.0)


def combined(sd_first: float, sd_second: float, sampling: float) -> tuple[float, float]:
    """Weight of the second of two estimates, by the precision of their noise, and the noise of the weighted mean.

    The first is farther from the target and has a larger error of second order. Where the noise of the second
    is small beside the sampling variance, the first has nothing to add.
    """
    if sd_first == 0 or sd_second == 0 or sd_second**2 < NEGLIGIBLE * sampling:
        return 1.0, sd_second
    weight = sd_second**-2 / (sd_first**-2 + sd_second**-2)
    return weight, float(np.hypot(weight * sd_second, (1 - weight) * sd_first))


def widening_for_last_step(
    first: Floats, second: Floats, metric: Floats, sampling: Floats, sd_first: float, sd_second: float
) -> float:
    """How many times wider the posterior must be because the last Newton step was long: the next could leave it.

    In the metric H, steps of length L₁ and L₂, less what noise explains, leave
    an error of about L₂²/L₁ where Newton's method converges; it must stay below
    the posterior's own spread.

    Returns:
      The factor that holds that error, at least 1; infinity where the step is longer than noise makes it (Laurent and
      Massart's bound for weighted χ², RARE).
    """
    weights = 1 / np.linalg.eigvalsh(metric)
    spread, x = float(np.sum(weights)), -np.log(RARE)
    noise = sd_first**2 + sd_second**2
    long = max(float(first @ metric @ first), sd_first**2 * spread, 1e-300)
    late = float(second @ metric @ second)
    short = max(late - 3 * noise * spread, 0.0)
    error, own = min(short, short**2 / long), sd_second**2 * spread + float(np.sum(sampling * np.linalg.inv(metric)))
    if error <= own:
        return 1.0
    most = noise * (spread + 2 * np.sqrt(x * np.sum(weights**2)) + 2 * x * np.max(weights))
    wider = float(np.sqrt(error / own))
    return np.inf if late > most and wider > WIDEST else wider


def widening_for_contradiction(
    change: Floats, step: Floats, last: Floats, bend: Curvature, sampling: Floats, sd_first: float, sd_second: float
) -> float:
    """How many times wider it must be because the gradient did not change over a step as the curvature says.

    Where the local model holds, e = g₂ − g₁ − Hq is made of the noise of two
    answers and of H alone, all known: eᵀV⁻¹e is χ² with d degrees of freedom, and must be in
    its upper tail to count. With little noise any bend of the loss shows, so it must also matter: e,
    carried over to the `last` step in proportion to the lengths in the metric H, exceeds the posterior's own spread.

    Returns:
      The factor that holds e, at least 1; infinity where noise does not explain it.
    """
    e, d = change - bend.value @ step, len(step)
    entry = bend.variances
    covariance = entry * np.outer(step, step)
    covariance[np.diag_indices(d)] = entry @ step**2 + sd_first**2 + sd_second**2
    covariance += bend.factor_sd**2 * np.outer(bend.value @ step, bend.value @ step)
    surprise = e @ np.linalg.pinv(covariance) @ e
    ratio = float(last @ bend.value @ last) / max(float(step @ bend.value @ step), 1e-300)
    matters = min(ratio, 1.0) * float(e @ np.linalg.pinv(sampling + sd_second**2 * np.eye(d)) @ e) / d
    if surprise <= chdtri(d, SELDOM) or matters <= 1:
        return 1.0
    wider = float(np.sqrt(matters))
    return np.inf if surprise > chdtri(d, RARE) and wider > WIDEST else wider


def felt(sd: float, blur: Floats, sampling: Floats, factor: float) -> tuple[float, Floats]:
    """Noise that a gradient is felt to have, where the posterior must be `factor` times as wide: as wide as it was, if
    the factor is infinite. Privacy's part of it, of each coordinate on average, and the covariance of all of it.

    Args:
      sd: of the noise of privacy, on each coordinate.
      blur: covariance of what noise in the curvature adds.
      sampling: covariance of the sampling error.
      factor: at least 1.
    """
    wide = factor**2 if 1 < factor < np.inf else 1.0
    noise = wide * (sampling + sd**2 * np.eye(len(sampling)) + blur)
    return float(np.sqrt(np.trace(noise - sampling) / len(noise))), noise
