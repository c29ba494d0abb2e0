"""What the calibrated method will ask, by public settings alone, so that it can be compiled before it is asked."""

from typing import Any

from pgbb.methods.calibrated import statistics as ask_for
from pgbb.methods.calibrated.ingredients import uses
from pgbb.model.models import Problem

__all__ = ["programs"]


def programs(problem: Problem, levels: int) -> list[tuple[Any, tuple[tuple[int, ...], ...], int]]:
    """Statistics in the order in which they are first asked, with the shapes of their parameters and the power.

    A statistic that is missing here, or has other shapes, is compiled when it is asked.
    """
    if problem.kind == "mean":
        return [
            (ask_for.mean_range, ((), ()), 1),
            (ask_for.mean_score, ((), ()), 1),
            (ask_for.mean_spread, ((), (), ()), 1),
        ]
    if problem.design is None:
        d = (problem.dim,)
        return [
            (ask_for.gradient(problem), (d,), 1),
            (ask_for.differences(problem), (d, d), 1),
            (ask_for.outer_gradient(problem), (d,), 2),
        ]
    p = len(problem.design.names)
    theta, frame, bins = (p,), (p, p), ask_for.BINS
    found: list[tuple[Any, tuple[tuple[int, ...], ...], int]] = []
    if uses("whitening"):
        found.append((ask_for.moment, (frame,), 0))
    found.append((ask_for.moment_and_cut, (frame, ()), 1))
    if problem.kind == "logistic":
        return [
            *found,
            (ask_for.logistic_score, (theta, frame), 1),
            (ask_for.logistic_curvature, (theta, frame), 1),
            (ask_for.logistic_spread, (theta, frame), 2),
        ]
    found += [
        (ask_for.median, (theta, (), frame), 1),
        (ask_for.window, (theta, ()), 0),
        (ask_for.histogram, (theta, (bins + 1,), (bins, bins)), 1),
    ]
    if problem.kind == "huber":
        both = (p + 1,)
        return [
            *found,
            (ask_for.huber_curvature, (both, frame, (), ()), 1),
            (ask_for.huber_score, (both, frame, (), (), (), ()), 1),
            (ask_for.huber_spread, (both, frame, (), (), (), ()), 2),
        ]
    m, curves = (levels,), (levels, p)
    return [
        *found,
        (ask_for.cells, (curves, m, (levels + 1, levels + 1), frame), 1),
        (ask_for.densities, (curves, (2, levels), ()), 1),
        (ask_for.cell_curvature, (curves, m, (), frame), 1),
        (ask_for.square_moment, (frame,), 2),
    ]
