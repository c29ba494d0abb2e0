"""Tells whether a clip moves the mean that a chain is about: scores of exponential and Bernoulli laws grow near 0."""

import warnings

from pgbb._numerics import Floats
from pgbb.errors import PgbbWarning
from pgbb.model.models import Problem

REACH = 7.0  # exponential records beyond so many means, 1 in 1,000, may be cut off


def largest_score(problem: Problem, mean: float) -> float:
    """The largest score at this mean: 1/m or 1/(1 − m) of a Bernoulli law, (REACH − 1)/m of an exponential, else 0."""
    family = problem.settings.get("family") if problem.kind == "mean" else None
    if family == "bernoulli":
        return 1 / max(min(mean, 1 - mean), 1e-12)
    return (REACH - 1) / max(mean, 1e-300) if family == "exponential" else 0.0


def cut_off(problem: Problem, chain: Floats) -> list[str]:
    """A note for the certificate, which is warned of too, where scores at the mean of a chain exceed C."""
    largest = largest_score(problem, float(chain[:, 0].mean()))
    if largest <= problem.clip:
        return []
    text = f"Scores up to {largest:.3g} are clipped to C = {problem.clip:g}, which moves the mean: give a larger clip."
    warnings.warn(text, PgbbWarning, stacklevel=4)
    return [text]
