"""Verdicts: when the same algorithm agrees with the printed figure, when ours is better, and when a goal is met."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["Line", "average", "beside", "goal", "judged", "reproduces", "shown", "summarise"]

NOMINAL = 0.95
LEAST = 0.93
"""Coverage below which nothing is better."""

SHARE, NEAR = 0.05, 0.02
TOLERANCE = {"ess": 0.25}
"""How far the same algorithm may lie from the printed figure: a share of it, of coverage a distance."""

NO_WORSE = "ours: by 2 standard errors; coverage not below min(printed, .95) − 2 SE, and better only from .93 on"


@dataclass(frozen=True)
class Line:
    """One figure beside the printed one.

    Args:
      where: what it is a figure of, such as {"noise": "student_t", "n": 10000, "method": "pgbb"}.
      measure: "mae", "coverage", "width", "ess" or any other word.
      ours, error: the figure and its Monte Carlo standard error (nan: none).
      printed, printed_error: the same in the paper; None where it prints none.
      difference: (ours − printed) in standard errors of the difference; None where there is no printed figure.
      verdict: "agrees" or "differs" of the same algorithm; "better", "same" or "worse" of a method of ours; "met" or
        "not met" of a goal; "not comparable", or "" where nothing is claimed.
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
    """Each measure averaged within a replicate, then over replicates: {measure: (mean, standard error)}.

    The standard error of coverage is at least that of so many intervals at .95: a few that all cover prove little.
    """
    within = rows.groupby("replicate")[list(measures)].mean()
    found = {measure: average(within[measure]) for measure in measures}
    if "coverage" in found:
        value, error = found["coverage"]
        least = math.sqrt(NOMINAL * (1 - NOMINAL) / len(rows))
        found["coverage"] = value, max(error, least) if error == error else error
    return found


def beside(where: dict[str, Any], measure: str, found: tuple[float, float], printed: dict[str, float]) -> Line:
    """A method of ours: better, same or worse than the printed figure, by two standard errors of the difference.

    Smaller is better for an error and for a width. Coverage is worse below min(printed, .95) − 2 SE, and better where
    it is nearer to .95 than the printed one by two standard errors and at least .93.
    """
    line = _compared(where, measure, found, printed)
    if line.difference is None or line.printed is None:
        return line
    ours, error, value = line.ours, line.error, line.printed
    if measure != "coverage":
        verdict = "better" if line.difference < -2 else "worse" if line.difference > 2 else "same"
    elif ours < min(value, NOMINAL) - 2 * error:
        verdict = "worse"
    else:
        nearer = abs(value - NOMINAL) - abs(ours - NOMINAL) > 2 * error
        verdict = "better" if nearer and ours >= LEAST else "same"
    return replace(line, verdict=verdict, rule=NO_WORSE)


def reproduces(where: dict[str, Any], measure: str, found: tuple[float, float], printed: dict[str, float]) -> Line:
    """The same algorithm: it agrees with the printed figure or differs from it, on either side.

    It agrees within two standard errors of the difference, or within 5 % (coverage: within .02; an effective sample
    size: within 25 %).
    """
    line = _compared(where, measure, found, printed)
    if line.difference is None or line.printed is None:
        return line
    near = TOLERANCE.get(measure, SHARE) * line.printed if measure != "coverage" else NEAR
    agrees = abs(line.difference) <= 2 or abs(line.ours - line.printed) <= near
    text = f"{NEAR:g}" if measure == "coverage" else f"{TOLERANCE.get(measure, SHARE):.0%}"
    rule = f"{measure} of the same algorithm agrees within 2 standard errors or {text}"
    return replace(line, verdict="agrees" if agrees else "differs", rule=rule)


def _compared(where: dict[str, Any], measure: str, found: tuple[float, float], printed: dict[str, float]) -> Line:
    """Ours and the printed figure with their difference in standard errors, and no verdict yet.

    A printed standard error of "≈ 0" counts as half a digit; coverage is printed without one, and taken to have ours,
    or what 300 intervals of that coverage would have, where that is more.
    """
    ours, error = found
    if measure not in printed:
        return Line(where, measure, ours, error, rule="the paper prints no figure")
    value, there = printed[measure], printed.get(f"{measure}_se", math.nan)
    if math.isnan(error):
        return Line(where, measure, ours, error, value, None, None, "not comparable", "a single replicate has no error")
    if measure == "coverage":
        there = max(error, math.sqrt(max(value * (1 - value), 0.0) / 300))
    elif math.isnan(there):
        there = 0.0005
    spread = math.sqrt(error**2 + there**2)
    gap = (ours - value) / spread if spread > 0 else (0.0 if ours == value else math.copysign(math.inf, ours - value))
    return Line(where, measure, ours, error, value, there, gap)


def judged(
    where: dict[str, Any], found: dict[str, tuple[float, float]], printed: dict[str, float], reproduce: bool = False
) -> list[Line]:
    """All measures of one place: whether they reproduce the printed ones, or, of a method of ours, are better.

    Nothing is better whose intervals cover less than .93; and intervals that are wider than the printed ones and cover
    more than .95 by two standard errors are worse, not the same.
    """
    if reproduce:
        return [reproduces(where, measure, value, printed) for measure, value in found.items()]
    lines = [beside(where, measure, value, printed) for measure, value in found.items()]
    coverage, error = found.get("coverage", (NOMINAL, 0.0))
    wider = any(line.measure == "width" and line.verdict == "worse" for line in lines)
    out = []
    for line in lines:
        if line.verdict == "better" and coverage < LEAST:
            line = replace(line, verdict="not comparable", rule=f"covers less than {LEAST:g}")
        if line.measure == "coverage" and line.verdict != "worse" and wider and coverage > NOMINAL + 2 * error:
            line = replace(line, verdict="worse", rule="covers more than .95, by needless width")
        out.append(line)
    return out


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
