"""Which mechanism has the least noise: the default method beside mechanisms of the paper's kind."""

import math
from dataclasses import dataclass, replace

from pgbb import _validate
from pgbb.accountant import Mechanism, noise_scale
from pgbb.planning import costs
from pgbb.planning.forecast import Forecast

GRID = (
    (5, 0.01, 10_000, 1),
    *((blocks, q, steps, draws) for blocks in (5, 10, 20) for q, steps, draws in ((0.1, 2_000, 5), (1.0, 1_000, 1))),
)
"""S, q, T, K of the mechanisms of the paper's kind that `search` compares."""


@dataclass(frozen=True)
class Candidate:
    """One way to spend the budget, and the noise that its gradients carry in the end; None where it is too slow."""

    method: str
    blocks: int
    gamma: float | None
    sampling_rate: float
    steps: int
    draws_per_step: int
    seconds: float
    sigma: float | None
    effective: float | None
    chosen: bool = False


def search(result: Forecast, time_limit: float | None = None) -> tuple[Candidate, ...]:
    """The calibrated method beside mechanisms of the paper's kind, by effective noise; the least is marked as chosen.

    After T·K answers the centre is known to v = (σ/q)²H⁻¹H⁻¹/(T·K), whatever the optimiser, so (σ/q)/√(T·K) ranks
    mechanisms, at statistics of norm ≤ 1. Of the calibrated method only the gradients count, with their share of the
    budget. Blocks have γ = γ*(n, S), which makes their spread that of the sample; with one block there would be nothing
    to draw. What would run longer than `time_limit` seconds is listed, but not weighed.
    """
    if time_limit is not None:
        _validate.number("time_limit", time_limit, above=0)
    limit = math.inf if time_limit is None else time_limit
    known = (result.sigma, result.effective) if result.seconds <= limit else (None, None)
    found = [Candidate("calibrated", 1, None, 1.0, result.passes, 1, result.seconds, *known)]
    for blocks, q, steps, draws in GRID:
        if blocks > result.n:
            continue
        m = Mechanism(n=result.n, blocks=blocks, sampling_rate=q, steps=steps, draws_per_step=draws, clip=1.0)
        seconds = costs.seconds("pgbb", m.answers, q * result.n, result.reference.terms)
        sigma = effective = None
        if seconds <= limit:
            sigma = noise_scale(m, result.epsilon, result.delta)
            effective = sigma / q / math.sqrt(m.answers)
        found.append(Candidate("pgbb", blocks, m.concentration, q, steps, draws, seconds, sigma, effective))
    best = min((c.effective for c in found if c.effective is not None), default=None)
    first = next((i for i, c in enumerate(found) if c.effective is not None and c.effective == best), None)
    marked = [replace(c, chosen=i == first) for i, c in enumerate(found)]
    return tuple(sorted(marked, key=lambda c: (c.effective is None, c.effective or c.seconds)))
