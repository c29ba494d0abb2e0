"""What is published of a posterior: joint tests and regions, a table of z statistics, intervals of a new response.

Arithmetic on draws, which knows no payload and no model; posterior.py labels the draws and passes them here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import chdtrc, chdtri, logit, ndtr

from pgbb import _validate
from pgbb._numerics import Floats
from pgbb.errors import InvalidValue
from pgbb.release.tables import cell

SINGULAR = 1e-10  # eigenvalue of a correlation matrix below which two hypotheses say the same


@dataclass(frozen=True, eq=False)
class Wald:
    """A joint test of hypotheses about coefficients, and the joint region of their values; prints as a report.

    Attributes:
      statistic: the squared distance of the hypothesis from the estimate, in units of the posterior's covariance.
      df: its degrees of freedom.
      pvalue: how often χ² with so many degrees of freedom is larger.
      level: probability of the region.
      table: a row for each hypothesis: estimate, std err, value (the hypothesis), lower and upper. All estimates
        together lie between lower and upper with at least this probability: they are the shadows of the region.
      covariance: of the estimates.
    """

    statistic: float
    df: int
    pvalue: float
    level: float
    table: pd.DataFrame
    covariance: Floats

    def contains(self, values: ArrayLike) -> bool:
        """Whether these values, one for each row of `table`, lie in the joint region."""
        given = np.asarray(values, dtype=np.float64)
        if given.shape != (self.df,) or not np.isfinite(given).all():
            raise _validate.fail("values", values, f"{self.df} finite numbers, one for each row of table")
        return bool(
            _distance(given - self.table["estimate"].to_numpy(), self.covariance) <= chdtri(self.df, 1 - self.level)
        )

    def to_dict(self) -> dict[str, object]:
        """A JSON object."""
        rows = [{"name": str(n), **r} for n, r in zip(self.table.index, self.table.to_dict("records"), strict=True)]
        head = {"statistic": self.statistic, "df": self.df, "pvalue": self.pvalue, "level": self.level}
        return {**head, "table": rows, "covariance": self.covariance.tolist()}

    def __str__(self) -> str:
        line = f"χ²({self.df}) = {self.statistic:.4g}, P = {self.pvalue:.4g}"
        return f"{line}\n{self.table.to_string(float_format=cell)}"


def _distance(away: Floats, covariance: Floats) -> float:
    return float(away @ np.linalg.solve(covariance, away))


def wald(draws: Floats, values: Floats, labels: Sequence[str], level: float) -> Wald:
    """The test that the sums whose draws are (m, k) have these values; all k hypotheses together.

    >>> draws = np.random.default_rng(0).standard_normal((4000, 2)) + [0.0, 3.0]
    >>> found = wald(draws, np.zeros(2), ["a", "b"], 0.95)
    >>> round(found.statistic), found.df, found.pvalue < 0.05
    (9, 2, True)
    """
    count, k = draws.shape
    if count < 10 * k:
        raise InvalidValue(f"{count} draws are not allowed: {k} hypotheses need at least {10 * k}. Ask for more draws.")
    mean, covariance = draws.mean(axis=0), np.atleast_2d(np.cov(draws.T))
    sd = np.sqrt(np.diag(covariance))
    if not (sd > 0).all() or np.linalg.eigvalsh(covariance / np.outer(sd, sd))[0] < SINGULAR:
        raise InvalidValue(
            "these hypotheses are not allowed together: one of them follows from the others, or has no uncertainty. "
            "Leave it out."
        )
    statistic, reach = _distance(values - mean, covariance), np.sqrt(chdtri(k, 1 - level)) * sd
    columns = {"estimate": mean, "std err": sd, "value": values, "lower": mean - reach, "upper": mean + reach}
    table = pd.DataFrame(columns, index=list(labels))
    return Wald(statistic, k, float(chdtrc(k, statistic)), level, table, covariance)


def z_table(summary: pd.DataFrame, level: float) -> pd.DataFrame:
    """A summary with the heads that statsmodels prints: coef, std err, z, P>|z|, [0.025, 0.975]."""
    sd = summary["sd"].where(summary["sd"] > 0)
    z = summary["mean"] / sd
    columns = {"coef": summary["mean"], "std err": summary["sd"], "z": z, "P>|z|": 2 * ndtr(-z.abs())}
    ends = {f"[{(1 - level) / 2:.4g}": summary["lower"], f"{(1 + level) / 2:.4g}]": summary["upper"]}
    marks = {"identified": summary["identified"]} if "identified" in summary else {}
    return pd.DataFrame({**columns, **ends, **marks})


def new_responses(quantiles: Floats, levels: Floats, seed: int | None) -> Floats:
    """One new response for each draw, (m,): the quantile process at a uniform level.

    Between levels, and beyond the outer ones, quantiles are linear in log τ/(1 − τ). Where the curves of a draw
    cross they are put in order. The uniform numbers are evenly spread over the draws.

    Args:
      quantiles: draws of the process, (levels, m).
      levels: increasing, at least two.
      seed: of the pairing of uniform numbers and draws.
    """
    m = quantiles.shape[1]
    ordered, at = np.sort(quantiles, axis=0), logit(levels)
    uniform = logit((np.random.default_rng(seed).permutation(m) + 0.5) / m)
    left = np.clip(np.searchsorted(at, uniform) - 1, 0, len(at) - 2)
    weight = (uniform - at[left]) / (at[left + 1] - at[left])
    draws = np.arange(m)
    return (1 - weight) * ordered[left, draws] + weight * ordered[left + 1, draws]
