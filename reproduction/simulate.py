"""Simulated data of the paper and of our own checks, with schemas, models and true values; and how draws are scored.

Everything is a pure function of a seed. Nothing here is confidential.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from pgbb.model.models import Custom, HuberRegression, Mean, QuantileRegression
from pgbb.model.schema import Flag, Range, Schema
from pgbb.release.file import Release
from reproduction.real import COVARIATES
from reproduction.study import Row

__all__ = [
    "BETA",
    "FAMILIES",
    "FAMILY_TRUTH",
    "LINEAR_MODEL",
    "LINEAR_SCHEMA",
    "NOISES",
    "PROCESS_FORMULA",
    "PROCESS_SCHEMA",
    "RATE",
    "TAUS",
    "all_draws",
    "births_frame",
    "family",
    "linear_errors",
    "linear_frame",
    "process_frame",
    "process_model",
    "scored",
]

Floats = NDArray[np.float64]

NOISES = ("contaminated_normal", "student_t")
FAMILIES = ("gaussian", "exponential")
BETA = np.array([1.5, -1.5, 1.0])
TAUS = (0.1, 0.3, 0.5, 0.7, 0.9)

LINEAR_SCHEMA = Schema(x1=Range(-1, 1), x2=Range(-1, 1), x3=Range(-1, 1), y=Range(-20, 20))
LINEAR_MODEL = HuberRegression("y ~ x1 + x2 + x3 - 1", scale=(0.05, 5.0))


def linear_errors(noise: str, n: int, rng: np.random.Generator) -> Floats:
    """Errors of the paper's regression (section 5.1), σ_ε = .5."""
    if noise == "student_t":
        return 0.5 * rng.standard_t(3, n)
    return 0.5 * rng.standard_normal(n) * np.where(rng.random(n) < 0.1, 8, 1)


def linear_frame(noise: str, n: int, seed: int) -> pd.DataFrame:
    """x uniform on [−1, 1]³ and y = xᵀβ + ε."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 3))
    return pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "x3": x[:, 2], "y": x @ BETA + linear_errors(noise, n, rng)})


FAMILY_TRUTH = {"gaussian": 1.5, "exponential": 2.0}


def family(name: str, n: int, seed: int) -> tuple[Mean, pd.DataFrame, Schema]:
    """Model, data and public truncation of a well-specified mean (section 5.2), clipped at C = 8."""
    rng = np.random.default_rng(seed)
    if name == "gaussian":
        frame = pd.DataFrame({"x": rng.normal(1.5, 0.5, n)})
        return Mean("x", family="gaussian", scale=0.5, clip=8.0), frame, Schema(x=Range(-5, 5))
    frame = pd.DataFrame({"x": rng.exponential(2.0, n)})
    return Mean("x", family="exponential", clip=8.0), frame, Schema(x=Range(0, 12))


def _rate_loss(theta: Any, record: dict[str, Any], _: Any) -> Any:
    import jax.numpy as jnp

    return theta[0] * record["x"] - jnp.log(theta[0])


RATE = Custom(_rate_loss, dim=1, clip=8.0, columns=("x",), box=(1 / 12, 2.0), names=("rate",))
"""The exponential likelihood in its rate λ. In the mean its score is so small that a clip of 8 drowns it in noise."""


PROCESS_SCHEMA = Schema(educ=Range(5, 20), exper=Range(14, 38), black=Flag(), logwk=Range(0, 12))
PROCESS_FORMULA = "logwk ~ educ + exper + black"
_BASE, _SPREAD = np.array([4.7, 0.072, 0.006, -0.24]), np.array([0.45, 0.013, 0.0015, 0.02])


def process_frame(n: int, seed: int) -> tuple[pd.DataFrame, Floats]:
    """A census-like design, log wages whose τ-quantile is xᵀ(b + g·t₅⁻¹(τ)) exactly, and those coefficients (5, 4)."""
    rng = np.random.default_rng(seed)
    age = rng.integers(40, 50, n)
    educ = np.clip(np.round(rng.normal(12.9, 3.1, n)), 5, 20)
    black = rng.random(n) < 0.08
    x = np.column_stack([np.ones(n), educ, np.clip(age - educ - 6, 14, 38), black])
    y = x @ _BASE + (x @ _SPREAD) * rng.standard_t(5, n)
    truth = _BASE + np.outer(stats.t.ppf(TAUS, 5), _SPREAD)
    return pd.DataFrame({"educ": x[:, 1], "exper": x[:, 2], "black": x[:, 3], "logwk": y}), truth


def process_model(bandwidth: float = 0.1) -> QuantileRegression:
    """Five levels of the census regression, h in log points."""
    return QuantileRegression(PROCESS_FORMULA, taus=list(TAUS), bandwidth=bandwidth)


_BIRTH = np.array([2.6, -0.2, 0.06, 0.11, 0.11, 0.12, -0.55, 0.9, -0.15, 0.01, 0.03, 0.02, 0.04, 0.03])
_BIRTH_SPREAD = np.array([0.4, 0.025, -0.01, 0.01, 0.01, -0.02, 0.06, -0.06, 0.08, 0.01, 0.02, -0.01, -0.015, -0.02])


def births_frame(n: int, seed: int) -> tuple[pd.DataFrame, Floats]:
    """Simulated births in the coding of `real.COVARIATES`, and the true quantile process (5, 14) in kilograms."""
    rng = np.random.default_rng(seed)
    smokes = rng.random(n) < 0.1
    care = rng.choice(4, n, p=[0.015, 0.785, 0.15, 0.05])
    school = rng.choice(4, n, p=[0.15, 0.33, 0.25, 0.27])
    columns = [
        rng.random(n) < 0.15,
        rng.random(n) < 0.6,
        rng.random(n) < 0.51,
        (np.clip(np.round(rng.normal(28, 6, n)), 18, 45) - 18) / 27,
        ~smokes,
        np.where(smokes, 1 + rng.poisson(9, n), 0).clip(0, 98) / 98,
        np.clip(np.round(rng.normal(30, 13, n)), 0, 98) / 98,
        *[care == k for k in (0, 2, 3)],
        *[school == k for k in (1, 2, 3)],
    ]
    x = np.column_stack([np.ones(n), *columns])
    errors = rng.standard_t(5, n)
    frame = pd.DataFrame(x[:, 1:], columns=list(COVARIATES))
    frame["WEIGHT"] = x @ _BIRTH + (x @ _BIRTH_SPREAD) * errors
    return frame, _BIRTH + np.outer(stats.t.ppf(TAUS, 5), _BIRTH_SPREAD)


def all_draws(release: Release, seed: int, iterate: str | None = None, draws: int = 2000) -> Floats:
    """Draws in original units, (draws, levels, coefficients): those stored, else `draws` fresh ones."""
    levels = release.grid() or None
    stored = release.payload.tensors.get("draws")
    if stored is not None:
        values = np.asarray(release.model.to_original(stored.astype(np.float64)))
        if levels is None:
            return values[:, None, :]
        order = list(release.payload.settings["index_values"])
        return np.moveaxis(values[[order.index(t) for t in levels]], 0, 1)
    if levels is None:
        return release.sample(draws, seed=seed, iterate=iterate).to_numpy()[:, None, :]
    frames = release.sample(draws, tau=list(levels), seed=seed, iterate=iterate)
    return np.stack([frames[t].to_numpy() for t in levels], axis=1)


def scored(draws: Floats, truth: Floats, names: list[str], levels: tuple[float, ...] | None = None) -> list[Row]:
    """A row for each level and coefficient: error of the mean, coverage, and width of the central 95 % interval.

    Args:
      draws: (m, levels, coefficients).
      truth: (levels, coefficients).
      names: of the coefficients.
      levels: of the index; None without one.
    """
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    mean, sd = draws.mean(axis=0), draws.std(axis=0, ddof=1)
    rows = []
    for i in range(draws.shape[1]):
        for j, name in enumerate(names):
            row: Row = {} if levels is None else {"tau": levels[i]}
            row |= {"coefficient": name, "mean": float(mean[i, j]), "sd": float(sd[i, j])}
            row |= {"lower": float(low[i, j]), "upper": float(high[i, j])}
            row |= {"mae": float(abs(mean[i, j] - truth[i, j]))}
            row |= {"coverage": float(low[i, j] <= truth[i, j] <= high[i, j]), "width": float(high[i, j] - low[i, j])}
            rows.append(row)
    return rows
