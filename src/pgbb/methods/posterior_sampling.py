"""Posterior sampling: draws of a posterior with a bounded loss are private by themselves.

Wang, Fienberg & Smola 2015 (one posterior sample, the Gibbs posterior of a bounded loss) and Jewson, Ghalebikesabi &
Holmes 2023 (the loss of a β-divergence, bounded whatever the box). The budget decides the temperature, for m draws
together; nothing else is asked of the records.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from pgbb.accountant import PosteriorDraws, epsilon, noise_scale
from pgbb.errors import InvalidValue
from pgbb.methods.constants import Checked, Limits, Positive
from pgbb.methods.request import Planned, Request, by_level
from pgbb.model.loss_values import BoundedLoss, bounded_loss, has_likelihood
from pgbb.model.models import HuberRegression, Problem
from pgbb.private.door import Randomness
from pgbb.release.certificate import ASSUMES
from pgbb.release.file import Release

EXACT = (
    "Each draw is that of the exponential mechanism on a public grid, with whole-number weights: the sampler is exact."
)
ASSUMED = (
    f"{ASSUMES}: draws come from Markov chains of fixed length, and no bound on their distance "
    "to the posterior is proved. A total variation v of the m draws together would add (1 + e^ε)·v to δ."
)


@dataclass(frozen=True)
class Settings(Checked):
    """Constants of posterior sampling.

    Args:
      draws: m, of each level; all draws together have the budget.
      loss: "gibbs", the model's own on its box; "beta", that of the β-divergence of its likelihood; None is "beta" for
        a Gaussian or Bernoulli mean and logistic regression, and "gibbs" elsewhere.
      beta: β; a smaller one is nearer the likelihood, and its loss has a larger bound.
      tempering: ω, the power of the loss likelihood; None is the largest that the budget allows, and at most 1.
    """

    draws: Annotated[int, Limits(low=1, high=10_000)] = 100
    loss: Literal["gibbs", "beta"] | None = None
    beta: Annotated[float, Limits(above=0, high=2)] = 0.5
    tempering: Positive | None = None


def _losses(request: Request, settings: Settings) -> tuple[list[Problem], list[float] | None, list[BoundedLoss]]:
    """The problem of each level, the levels and the bounded losses; refuses what has none."""
    request.refuse(
        "posterior_sampling",
        weights="its loss counts every record once",
        non_private="there is no noise to leave out. Give a large epsilon.",
    )
    problems, levels = by_level(request.model, request.schema)
    kind = settings.loss
    if kind is None:
        kind = "beta" if has_likelihood(problems[0]) and not isinstance(request.model, HuberRegression) else "gibbs"
    return problems, levels, [bounded_loss(request.model, p, kind, settings.beta) for p in problems]


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """m draws a level, at the temperature that the budget asks for."""
    return _plan(request, settings, n, _losses(request, settings)[2])


def _plan(request: Request, settings: Settings, n: int, losses: list[BoundedLoss]) -> Planned:
    target = PosteriorDraws(n, settings.draws * len(losses), max(loss.sensitivity for loss in losses))
    coolest = noise_scale(target, request.epsilon, request.delta, request.accountant)
    if settings.tempering is None:
        return Planned(target, max(coolest, 1.0))
    if settings.tempering * coolest > 1 + 1e-9:
        cost = epsilon(target, 1 / settings.tempering, request.delta, request.accountant)
        raise InvalidValue(
            f"tempering = {settings.tempering:g} costs ε = {cost:.3g} for {target.draws} draws, but epsilon = "
            f"{request.epsilon:g}: the budget allows tempering up to {1 / coolest:.3g}. Leave it out to take that, or "
            "ask for fewer draws."
        )
    return Planned(target, max(1 / settings.tempering, coolest))


def run(request: Request, settings: Settings) -> Release:
    """Draw from the posterior of each level."""
    problems, levels, losses = _losses(request, settings)
    problem = problems[0]
    _plan(request, settings, 1, losses)  # refuses a temperature before anything is read: it does not depend on n
    data = request.open(problem)
    planned = _plan(request, settings, data.n, losses)
    assert isinstance(planned.mechanism, PosteriorDraws)
    randomness = Randomness.create(request.insecure_seed)
    request.begin(planned)
    draws = data.posterior_draws(losses, planned.mechanism, planned.sigma, randomness)
    omegas = [planned.mechanism.sensitivity / (planned.sigma * loss.sensitivity) for loss in losses]
    notes = [
        EXACT if problem.dim == 1 else ASSUMED,
        f"Draws of a tempered posterior, ω = {omegas[0]:.3g}: an interval of them is wider than that of the estimate "
        "where ω is below 1. A record with a missing cell has no loss.",
    ]
    stored = [level.astype(np.float32) for level in draws]
    found = {"tempering": omegas}
    return request.release_draws("posterior_sampling", planned, randomness.source, stored, notes, found, levels)
