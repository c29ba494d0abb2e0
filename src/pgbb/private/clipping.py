"""The bound on what one record adds to an answer."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from pgbb._numerics.compiled import computed_once

__all__ = ["clipped", "margins"]

_SAFETY = 1e-6


def margins(d: int) -> tuple[float, float]:
    """What gradients of d numbers are clipped to, and the largest square let pass: for the rounding of a norm."""
    return 1 - _SAFETY - d * 2.0**-22, 1 - (2 * d + 16) * 2.0**-24


def clipped(
    clip: float,
    d: int,
    score: Any,
    extra: Any,
    square_x: Any,
    survey: Any,
    *,
    once: Callable[[Any], Any] = computed_once,
) -> tuple[Any, Any]:
    """Score and extra of the gradients (score·x, extra), times the survey weight, in units of C and of norm at most 1.

    A row that is too long all the same, or no number, becomes zero: the bound rests on products and sums alone, not
    on a root or a quotient.
    """
    keep, bound = margins(d)
    limit = clip * keep
    score, extra, square_x = once((score / limit * survey, extra / limit * survey, square_x))
    factor = keep / jnp.maximum(jnp.sqrt(score**2 * square_x + extra**2), 1.0)
    score, extra = once((score * factor, extra * factor))
    short = score**2 * square_x + extra**2 <= bound
    return jnp.where(short, score, 0.0), jnp.where(short, extra, 0.0)
