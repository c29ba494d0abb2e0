"""Verdicts: when a figure is better than, the same as or worse than the printed one, and when it meets a goal."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["Line", "average", "beside", "goal", "judged", "reproduces", "shown", "summarise"]

NOMINAL = 0.95
TOLERANCE = {"mae": 0.20, "width": 0.10, "ess": 0.25}
"""What "the same method" may differ by, for the competing methods."""

NO_WORSE = "no worse than printed by 2 standard errors; coverage not below min(printed, .95) − 2 SE"


@dataclass(frozen=True)
class Line:
    """One figure beside the printed one.

    Args:
      where: what it is a figure of, such as {"noise": "student_t", "n": 10000, "method": "pgbb"}.
      measure: "mae", "coverage", "width", "ess" or any other word.
      ours, error: the figure and its Monte Carlo standard error (nan: none).
      printed, printed_error: the same in the paper; None where it prints none.
      difference: (ours − printed) in standard errors of the difference; None where there is no printed figure.
      verdict: "better", "same", "worse", "met", "not met", "not comparable", or "" where nothing is claimed.
      rule: by which the verdict was found, or why there is none.
    """

    where: dict[str, Any]
    measure: str
    ours: float
    error: float = math.nan
    printed: float | None = None
    printed_error: float | None = None
    difference: float | None = None
    verdict: str = ""
    rule: str = ""


def average(values: Any) -> tuple[float, float]:
    """Mean of independent replicates and its standard error (nan for a single one)."""
    array = np.asarray(values, dtype=float)
    error = float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else math.nan
    return float(array.mean()), error


def summarise(rows: pd.DataFrame, measures: tuple[str, ...] = ("mae", "coverage", "width")) -> dict[str, Any]:
    """Each measure averaged within a replicate, then over replicates: {measure: (mean, standard error)}."""
    within = rows.groupby("replicate")[list(measures)].mean()
    return {measure: average(within[measure]) for measure in measures}


def beside(where: dict[str, Any], measure: str, found: tuple[float, float], printed: dict[str, float]) -> Line:
    """Better, same or worse than the printed figure, by two standard errors of the difference.

    Smaller is better for an error and for a width. Coverage is worse only below min(printed, .95) − 2 SE, and better
    only where the printed one is short of .95. A printed standard error of "≈ 0" counts as half a digit.
    """
    ours, error = found
    if measure not in printed:
        return Line(where, measure, ours, error, rule="the paper prints no figure")
    value = printed[measure]
    there = printed.get(f"{measure}_se", math.nan)
    if measure == "coverage":
        there = 0.0 if math.isnan(there) else there
    elif math.isnan(there):
        there = 0.0005
    if math.isnan(error):
        return Line(
            where, measure, ours, error, value, there, None, "not comparable", "a single replicate has no error"
        )
    spread = math.sqrt(error**2 + there**2)
    gap = (ours - value) / spread if spread > 0 else (0.0 if ours == value else math.copysign(math.inf, ours - value))
    if measure == "coverage":
        verdict = "same"
        if ours < min(value, NOMINAL) - 2 * error:
            verdict = "worse"
        elif value < NOMINAL and ours > value + 2 * error:
            verdict = "better"
    else:
        verdict = "better" if gap < -2 else "worse" if gap > 2 else "same"
    return Line(where, measure, ours, error, value, there, gap, verdict, NO_WORSE)


def reproduces(where: dict[str, Any], measure: str, found: tuple[float, float], printed: dict[str, float]) -> Line:
    """Met where a figure is within its tolerance of the printed one; coverage is judged as in `beside`."""
    if measure not in TOLERANCE or measure not in printed:
        return beside(where, measure, found, printed)
    ours, error = found
    value, there = printed[measure], printed.get(f"{measure}_se")
    spread = math.sqrt(error**2 + (0.0 if there is None or math.isnan(there) else there) ** 2)
    gap = (ours - value) / spread if spread > 0 else None
    allowed = TOLERANCE[measure] * value
    verdict = "met" if abs(ours - value) <= allowed else "not met"
    rule = f"within {TOLERANCE[measure]:.0%} of the printed {measure}"
    if not 2 * error <= allowed:
        verdict, rule = "not comparable", f"{rule}; two standard errors are more than that: too few replicates"
    return Line(where, measure, ours, error, value, there, gap, verdict, rule)


def judged(
    where: dict[str, Any], found: dict[str, tuple[float, float]], printed: dict[str, float], reproduce: bool = False
) -> list[Line]:
    """All measures of one place: set beside the printed ones, or judged by whether they reproduce them.

    An interval that is narrower and covers less than it should is not better.
    """
    rule = reproduces if reproduce else beside
    lines = [rule(where, measure, value, printed) for measure, value in found.items()]
    if any(line.measure == "coverage" and line.verdict == "worse" for line in lines):
        why = "narrower, and covers too little"
        return [
            replace(line, verdict="not comparable", rule=why)
            if line.measure == "width" and line.verdict == "better"
            else line
            for line in lines
        ]
    return lines


def goal(
    where: dict[str, Any], measure: str, ours: float, met: bool | None, rule: str, error: float = math.nan,
    printed: float | None = None,
) -> Line:  # fmt: skip
    """A figure with a goal of its own; `met` None where the results do not suffice to say."""
    verdict = "not comparable" if met is None else "met" if met else "not met"
    return Line(where, measure, ours, error, printed, verdict=verdict, rule=rule)


def shown(where: dict[str, Any], measure: str, found: tuple[float, float], why: str = "") -> Line:
    """A figure without a verdict."""
    return Line(where, measure, found[0], found[1], rule=why)
