"""Every method on problems that all can serve, one budget each: means of two families, and the paper's regression."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pgbb.accountant import gdp_mu
from pgbb.methods.calibrated.stages import whole_noise
from pgbb.methods.registry import METHODS
from pgbb.model.models import CLIP, Model
from reproduction.fits import fit_many
from reproduction.judge import NOMINAL, Line, goal, shown, summarise
from reproduction.simulate import (
    BETA,
    FAMILY_TRUTH,
    LINEAR_MODEL,
    LINEAR_SCHEMA,
    RATE,
    all_draws,
    family,
    linear_frame,
    scored,
)
from reproduction.studies.families import BY_RATE
from reproduction.studies.floor import Z, population
from reproduction.study import Cells, Quick, Results, Row, Study, Table, cell_name

__all__ = ["STUDY", "run"]

DATA = ("gaussian", "exponential", "contaminated_normal")
SUMS = ("noisy_gibbs", "augmented", "abc", "repro")
"""Methods that release sums: their response is clipped to ±5 in the regression, as in the paper's tables."""
LENGTH = {"gaussian": 5.0, "exponential": 6.0, "contaminated_normal": LINEAR_MODEL.prepare(LINEAR_SCHEMA).clip}
"""Half the range of a mean, and the gradient bound of the regression: what one answer has noise in proportion to."""
RATES = (*BY_RATE, "posterior_sampling", "dp_mcmc")
"""Methods that estimate the exponential by its rate: in the mean its loss is unbounded."""
RULE = "covers at least .95 − 2 SE"


def _constants(method: str, data: str, n: int, epsilon: float) -> dict[str, Any]:
    """Settings where they are not the defaults of the method; shorter chains, and ω of `dp_mcmc` so that it mixes.

    Its effective draws are about .07·n·μ²/(ωC²d), with μ of Gaussian differential privacy; 150 are aimed at.
    """
    regression = data == "contaminated_normal"
    found: dict[str, Any] = {"response_bound": 5.0} if regression and method in SUMS else {}
    if method == "augmented":
        found["iterations"] = {500: 10_000, 5_000: 4_000, 10_000: 4_000}[n]
    if method == "noisy_gibbs" and regression:
        found["iterations"] = 100_000
    if method == "abc" and not regression and n > 500:
        found["proposals"] = 5_000
    if method == "dp_mcmc":
        clip, dim = (LENGTH[data], 4) if regression else (CLIP, 1)
        power = 0.07 * n * (gdp_mu(epsilon, 1 / n) / clip) ** 2 / (150 * dim)
        found["tempering"] = float(f"{min(1.0, power):.1g}")
    return found


def cells() -> Cells:
    """All methods of pgbb × 3 problems × 3 n × 2 ε."""
    return {
        cell_name(method=method, data=data, n=n, epsilon=epsilon): {
            "method": method,
            "data": data,
            "n": n,
            "epsilon": epsilon,
            "constants": _constants(method, data, n, epsilon),
        }
        for method in METHODS
        for data in DATA
        for n in (500, 5_000, 10_000)
        for epsilon in (1.0, 4.0)
    }


def quick() -> Cells:
    """One cell of each method that asks for sums."""
    found = {}
    for name, settings in cells().items():
        if (settings["data"], settings["n"], settings["epsilon"]) == ("gaussian", 500, 4.0):
            short = {"augmented": {"iterations": 400}, "abc": {"proposals": 2_000}}.get(settings["method"])
            if short is not None or settings["method"] in ("repro", "calibrated"):
                found[name] = {**settings, "constants": short or {}}
    return found


def run(settings: Mapping[str, Any], seeds: Sequence[int]) -> list[list[Row]]:
    """Replicates at δ = 1/n; score-based methods estimate the exponential by its rate, as the paper does."""
    data, n, method = settings["data"], settings["n"], settings["method"]
    by_rate = data == "exponential" and method in RATES
    model: Model = LINEAR_MODEL
    if data == "contaminated_normal":
        schema, truth, names = LINEAR_SCHEMA, BETA[None], ["x1", "x2", "x3"]
        frames = [linear_frame(data, n, seed) for seed in seeds]
    else:
        mean, _, schema = family(data, 1, 0)
        model, truth, names = RATE if by_rate else mean, np.array([[FAMILY_TRUTH[data]]]), ["mean"]
        frames = [family(data, n, seed)[1] for seed in seeds]
    releases = fit_many(
        model, frames, schema=schema, epsilon=settings["epsilon"], delta=1 / n, method=method, insecure_seeds=seeds,
        **settings["constants"],
    )  # fmt: skip
    found = []
    for release, seed in zip(releases, seeds, strict=True):
        draws = all_draws(release, seed)[:, :, : len(names)]
        marks = release.summary().get("identified")
        rows = scored(1 / draws if by_rate else draws, truth, names)
        mixed = not any(note.startswith("Too few") for note in release.certificate.notes)
        identified = [mixed] * len(names) if marks is None else marks.to_list()[: len(names)]
        found.append([{**row, "identified": float(mark)} for row, mark in zip(rows, identified, strict=True)])
    return found


def _limits(settings: Mapping[str, Any]) -> dict[str, float]:
    """Width of an honest interval without noise, and with that of one answer at the estimate for the whole budget."""
    variance, curvature = population(settings["data"], 400_000)
    n, regression = settings["n"], settings["data"] == "contaminated_normal"
    noise = LENGTH[settings["data"]] * whole_noise(n, settings["epsilon"], 1 / n) / (curvature if regression else 1.0)
    return {"non-private": 2 * Z * math.sqrt(variance / n), "floor": 2 * Z * math.sqrt(variance / n + noise**2)}


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """Error, coverage, width beside the two limits, and seconds; a table for each problem."""
    made = []
    for data in DATA:
        lines: list[Line] = []
        for outcome in sorted(results.values(), key=lambda o: (o.settings["n"], o.settings["epsilon"])):
            s, rows = outcome.settings, outcome.rows
            if s["data"] != data:
                continue
            where = {"n": s["n"], "ε": s["epsilon"], "method": s["method"]}
            found, limits = summarise(rows, ("mae", "coverage", "width", "identified", "seconds")), _limits(s)
            coverage, error = found["coverage"]
            met = None if error != error else coverage >= NOMINAL - 2 * error
            lines.append(shown(where, "mae", found["mae"]))
            lines.append(goal(where, "coverage", coverage, met, RULE, error))
            lines.append(shown(where, "width", found["width"]))
            for name, limit in limits.items():
                lines.append(shown(where, f"width / {name}", (found["width"][0] / limit, math.nan)))
            lines.append(shown(where, "identified", (found["identified"][0], math.nan)))
            lines.append(shown(where, "seconds", (found["seconds"][0], math.nan)))
        made.append(Table(f"Every method: {data.replace('_', ' ')}", lines))
    notes = (
        "Floor: sampling error, and the noise of one answer about the gradient at the estimate for the whole budget.",
        "identified: the share that a method does not mark; the others have the box as their interval.",
        *(f"{name}: {method.draws}." for name, method in METHODS.items()),
    )
    return [*made[:-1], Table(made[-1].title, made[-1].lines, notes)]


STUDY = Study(
    name="every_row",
    labels=(),
    title="every method on problems that all can serve",
    cells=cells,
    replicates=20,
    run=run,
    quick=Quick(quick, 1),
    tables=tables,
)
