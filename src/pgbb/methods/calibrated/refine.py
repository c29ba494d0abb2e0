"""The last two gradients of a regression, and the local posterior that they make.

`refine` combines the two into one estimate, and widens the posterior, or gives it up, where the local model does not
explain them. Public arithmetic; each family passes functions that ask its questions.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtri

from pgbb._numerics import Floats
from pgbb.methods.calibrated.algebra import floored, limited
from pgbb.methods.calibrated.curvature import Curvature, filtered, kalman
from pgbb.methods.calibrated.prior import Prior, tempered
from pgbb.release.local_gaussian import LocalGaussian

if TYPE_CHECKING:
    from pgbb.methods.calibrated.box import Box
    from pgbb.methods.calibrated.logistic import Followed, LogisticCurvature


NEGLIGIBLE = 0.02  # privacy variance over sampling variance below which the second gradient alone is used
SELDOM = 1e-3  # chance with which noise alone may widen the posterior of a local model that holds
RARE = 1e-6  # chance with which noise alone may make such a posterior be given up
WIDEST = 4.0  # a posterior is given up if it would have to be so many times as wide, and noise does not explain that


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
    moves: Callable[[], float] = float,
    quadratic: bool = False,
    follows: "Followed | None" = None,
    bends: Callable[[Floats, Floats], tuple[Floats, Floats]] | None = None,
    located: bool = True,
    steps: int = 0,
) -> LocalGaussian:
    """Ask for curvature and gradient, step, and ask for both again; make the local posterior of all answers.

    Args:
      box: bounds the posterior, which is marked where it touches an end.
      n: number of records.
      theta: a rough estimate.
      error: covariance of its error, in the frame.
      frame: F, for all parameters.
      curvature: asks for the curvature at a point; the second time it is given the first curvature.
      gradient: asks for the gradient of the stage "refine" or "final" at a point, and returns it with its noise.
      spread: asks for the second moments of the score at a point, and returns them with their noise.
      settle: moves a point to the nearest one that an estimate may have.
      prior: of all parameters.
      bound: the largest score.
      model: how the curvature changes with θ, if that is known. Steps then follow it, and the curvature at their end is
        released.
      common: covariance of an error that both gradients have in common.
      moves: says, after the last gradient, how large another such error is, in sampling errors.
      quadratic: whether the loss is quadratic: then a long last step is no sign of another one.
      follows: reads all gradients together by the model, in place of Newton steps.
      bends: mean and covariance of what a gradient lacks because the loss is not quadratic on the way to the target,
        given the mean and covariance of that way. For example, a scale looks larger where coefficients are not yet
        right.
      located: False where noise hides the response: then the posterior is that of the prior.
      steps: how many gradients of a stage "approach" lead nearer first.
    """

    def straight(stage: str, at: Floats, metric: Floats, error: Floats) -> tuple[Floats, float, Floats]:
        """The gradient corrected by `bends`, its noise, and the covariance of the correction."""
        answer, sd = gradient(stage, at)
        if bends is None:
            return answer, sd, np.zeros_like(frame)
        mean, doubt = bends(*kalman(metric, answer, sd, error))
        return answer + mean, sd, doubt

    def newton(bend: Curvature, at: Floats, g: Floats) -> Floats:
        """The Newton step; with a model, by its mean curvature along the step, found by iteration."""
        step = bend.step(g)
        if model is not None:
            metric = bend.solid
            most = 2 * np.sqrt(step @ metric @ step)
            for _ in range(6):
                met = bend.plus(model.change(at, settle(at - frame @ step)))
                step = limited(met.step(g), metric, most)
        return step

    bend = curvature(theta, None)
    for _ in range(steps):
        g, sd, _ = straight("approach", theta, bend.solid, error)
        step, error = filtered(bend.solid, bend.solid @ newton(bend, theta, g), sd, error)
        theta = settle(theta - frame @ step)
    before, sd_first, early_doubt = straight("refine", theta, bend.solid, error)
    if follows is None:
        step = newton(bend, theta, before)
        worth, error = (kalman if quadratic else filtered)(bend.solid, bend.solid @ step, sd_first, error)
    else:
        step, error = follows.step(theta, before, sd_first, bend)
        worth = step
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
    step = newton(bend, point, g) if follows is None else follows.step(point, g, sd_second, bend)[0]
    second = settle(point - frame @ step)
    weight, sd = combined(sd_first, sd_second, float(np.trace(sampling)) / len(sampling) / n)
    best = second if follows is not None else weight * second + (1 - weight) * first
    bent = weight * doubt + (1 - weight) * early_doubt
    early, late = inverse @ (first - theta), inverse @ (second - point)
    factor = max(
        1.0 if quadratic else widening_for_last_step(early, late, bend.solid, sampling / n, sd_first, sd_second),
        widening_for_contradiction(
            g - before, walked, late, met, sampling / n, sd_first, sd_second, early_doubt + doubt
        ),
    )
    wider = np.zeros_like(frame)
    if model is not None:
        asked, bend = bend, bend.plus(model.at(best) - model.at(point))
        plain = felt(sd, np.zeros_like(frame), sampling / n, factor)[1]
        if follows is not None:
            wider = model.widened(best, frame, bend, plain) - plain
        elif (
            _other(model.at(point), model.at(best))
            or model.varies(best, frame, bend, plain)
            or model.varies(point, frame, asked, plain)
        ):
            factor, best = np.inf, prior.center  # the estimate ran away
    step, unseen = kalman(bend.solid, g, sd_second, error)
    blur = bend.blur(unseen, (1 - weight) * walked - step)  # noise of H over the ways that both estimates had to go
    privacy, noise = felt(sd, blur + common + bent + moves() ** 2 * sampling / n, sampling / n, factor)
    noise = noise + wider
    drawn = sampling / n + privacy**2 * np.eye(len(theta))
    settled = prior.settle(bend, drawn, noise, frame, point, best, known=located and factor < np.inf)
    if box.reached(*prior.law(settled, frame, point)):
        settled = prior.settle(bend, drawn, noise, frame, point, best, known=False)
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
    """Whether one of two curvatures is more than twice the other along some direction."""
    values = np.linalg.eigvals(np.linalg.solve(floored(here, 1e-12 * float(np.trace(here)) + 1e-300), there)).real
    return bool(values.min() < 0.5 or values.max() > 2.0)


def combined(sd_first: float, sd_second: float, sampling: float) -> tuple[float, float]:
    """The weight of the second of two estimates, by precision, and the noise of their weighted mean.

    The first has a larger error of second order, since it started farther from the target. It gets no weight where the
    noise of the second is negligible beside the sampling variance.
    """
    if sd_first == 0 or sd_second == 0 or sd_second**2 < NEGLIGIBLE * sampling:
        return 1.0, sd_second
    weight = sd_second**-2 / (sd_first**-2 + sd_second**-2)
    return weight, float(np.hypot(weight * sd_second, (1 - weight) * sd_first))


def widening_for_last_step(
    first: Floats, second: Floats, metric: Floats, sampling: Floats, sd_first: float, sd_second: float
) -> float:
    """The factor by which the posterior is widened because the last Newton step was long.

    Let L₁ and L₂ be the lengths of the two steps in the metric H, less what noise explains. Where Newton's method
    converges, the error that remains is about L₂²/L₁. The widened posterior has at least this spread.

    Returns:
      The factor, at least 1. It is infinite if it exceeds `WIDEST` and the step is longer than noise makes it, by
      Laurent and Massart's bound for a weighted χ² at the level `RARE`.
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
    change: Floats,
    step: Floats,
    last: Floats,
    bend: Curvature,
    sampling: Floats,
    sd_first: float,
    sd_second: float,
    bends: Floats | float = 0.0,
) -> float:
    """The factor by which the posterior is widened because two gradients contradict the curvature between them.

    Where the local model holds, e = g₂ − g₁ − Hq consists of the noise of both gradients, of H, and of the doubt about
    what `bends` in them (its covariance), so that eᵀV⁻¹e is χ² with d degrees of freedom. A contradiction counts if
    this statistic is in its upper tail, at the level `SELDOM`. With little noise every loss shows that it is not
    quadratic. So the contradiction must also matter: carried over to the `last` step, in proportion to the lengths of
    the steps in the metric H, e exceeds the spread of the posterior.

    Returns:
      The factor, at least 1. It is infinite if it exceeds `WIDEST` and the statistic is beyond the level `RARE`.
    """
    e, d = change - bend.value @ step, len(step)
    entry = bend.variances
    covariance = entry * np.outer(step, step)
    covariance[np.diag_indices(d)] = entry @ step**2 + sd_first**2 + sd_second**2
    covariance += bend.factor_sd**2 * np.outer(bend.value @ step, bend.value @ step)
    covariance += bends
    surprise = e @ np.linalg.pinv(covariance) @ e
    ratio = float(last @ bend.value @ last) / max(float(step @ bend.value @ step), 1e-300)
    matters = min(ratio, 1.0) * float(e @ np.linalg.pinv(sampling + sd_second**2 * np.eye(d)) @ e) / d
    if surprise <= chdtri(d, SELDOM) or matters <= 1:
        return 1.0
    wider = float(np.sqrt(matters))
    return np.inf if surprise > chdtri(d, RARE) and wider > WIDEST else wider


def felt(sd: float, blur: Floats, sampling: Floats, factor: float) -> tuple[float, Floats]:
    """The noise of a gradient, widened by a factor.

    Args:
      sd: standard deviation of the privacy noise, on each coordinate.
      blur: covariance of what noise in the curvature, and other errors, add.
      sampling: covariance of the sampling error.
      factor: at least 1. An infinite one counts as 1: the posterior is then given up, and not widened.

    Returns:
      The standard deviation of all but the sampling error, as one number for all coordinates, and the covariance of
      the whole.
    """
    wide = factor**2 if 1 < factor < np.inf else 1.0
    noise = wide * (sampling + sd**2 * np.eye(len(sampling)) + blur)
    return float(np.sqrt(np.trace(noise - sampling) / len(noise))), noise
