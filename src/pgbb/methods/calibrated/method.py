"""The default method: a local Gaussian posterior from noisy means over all records.

Its draws carry sampling error and privacy noise. `docs/calibration.md` derives the method.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logit

from pgbb import _validate
from pgbb._numerics import Floats
from pgbb.accountant import Composition, noise_scale
from pgbb.methods.calibrated.asking import INGREDIENTS, Asker, Ingredient
from pgbb.methods.calibrated.families import fit
from pgbb.methods.calibrated.stages import Stage, composition, questions_for, whole_noise
from pgbb.methods.request import Planned, Request, prepared
from pgbb.model.models import Problem
from pgbb.private.door import Dataset, Randomness, open_sums
from pgbb.release.file import Release
from pgbb.release.payloads import Payload, summary_of

FEW = 0.5  # share of usable records below which a release says so


@dataclass(frozen=True)
class Settings:
    """Settings of the default method, which has no constants to tune.

    Args:
      knots: number of levels that are asked when the model has an interval of τ; draws between them are interpolated.
    """

    knots: int = 17

    def __post_init__(self) -> None:
        _validate.integer("knots", self.knots, low=3, high=99)


def levels_of(problem: Problem, knots: int) -> Floats | None:
    """The declared levels, or a grid on the declared interval, equidistant in log τ/(1 − τ); None without an index."""
    if problem.index is None:
        return None
    if problem.index.levels:
        return np.array(problem.index.levels)
    low, high = problem.index.low, problem.index.high
    levels = expit(np.linspace(logit(low), logit(high), knots))
    levels[[0, -1]] = low, high
    return levels


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """The questions to n records and their noise, as the accountant certifies them."""
    target = composition(_stages(request, settings, n), n)
    if request.non_private:
        return Planned(target, 0.0)
    sigma = noise_scale(target, request.epsilon, request.delta, request.accountant)
    return Planned(target, sigma * _records(request))


def _records(request: Request) -> int:
    """How many records may change together: all of a person where persons are told, otherwise one."""
    return 1 if request.persons is None else request.group_size


def _stages(request: Request, settings: Settings, n: int) -> tuple[Stage, ...]:
    problem = prepared(request.model, request.schema)
    levels = levels_of(problem, settings.knots)
    noise = 0.0 if request.non_private else whole_noise(n, request.epsilon, request.delta) * _records(request)
    asked, persons = 0 if levels is None else len(levels), request.persons is not None
    return questions_for(problem, asked, noise, weighted=request.weights is not None, persons=persons)


def run(request: Request, settings: Settings, without: frozenset[Ingredient] = frozenset()) -> Release:
    """Ask the planned questions under the budget and return the release of the posterior.

    `without` names ingredients that a study of their worth leaves out.
    """
    problem = prepared(request.model, request.schema)
    given = request.data, problem, request.schema, request.weights
    with open_sums(*given, asked=request.asked, persons=request.persons, scratch=request.scratch) as data:
        return _released(request, settings, without, problem, data)


def _few(request: Request, share: float) -> dict[str, float]:
    """For the diagnostics, where at most `share` of the records count; a share of weights does not tell how many."""
    told = share < FEW and request.weights is None and request.persons is None
    return {"usable": max(share, 0.0)} if told else {}


def _released(
    request: Request, settings: Settings, without: frozenset[Ingredient], problem: Problem, data: Dataset
) -> Release:
    request.advise(data.n)
    stages = _stages(request, settings, data.n)
    planned = plan(request, settings, data.n)
    target, sigma = planned.mechanism, planned.sigma
    assert isinstance(target, Composition)
    randomness = Randomness.create(request.insecure_seed)
    names, size = [s.name for s in stages], request.group_size
    sums = data.sums(target, names, sigma, randomness, progress=request.progress, group_size=size)
    asker = Asker(sums, problem, stages, without, size)
    asker.compile_ahead()
    request.begin(planned)
    posterior, notes = fit(asker, problem, levels_of(problem, settings.knots))
    if "redrawing" in without:
        posterior = replace(
            posterior,
            curvature_sd=np.zeros_like(posterior.curvature_sd),
            sampling_sd=np.zeros_like(posterior.sampling_sd),
        )
    more: dict[str, object] = {"without": [name for name in INGREDIENTS if name in without]} if without else {}
    more |= _few(request, asker.usable)
    payload_settings, tensors = posterior.to_tensors()
    return Release(
        model=summary_of(problem),
        schema=request.schema.to_dict(),
        certificate=request.certify(target, sigma, randomness.source, notes),
        payload=Payload(kind="local", settings=payload_settings, tensors=tensors),
        diagnostics={"method": "calibrated", "stages": [[s.name, s.asks, s.share] for s in stages], **more},
    )
