"""`method="pgbb"` with its defaults: coverage, width, error and marks, on simulations and on the census.

Seeds of data and noise begin at 150,000; constants were chosen on other ones. S, γ, q, T and K are the paper's in the
regression, and the defaults elsewhere. Marked coefficients have the box as their interval and are counted apart:
coverage, width and error are those of the others. Estimates on the census are judged by the non-private estimate of the
whole file.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from pgbb.model.models import LogisticRegression, Model
from pgbb.model.schema import Flag, Range, Schema
from pgbb.release.file import Release
from reproduction.fits import fit_many
from reproduction.judge import Line, goal, shown, summarise
from reproduction.printed import lookup
from reproduction.simulate import (
    BETA,
    FAMILIES,
    LINEAR_MODEL,
    LINEAR_SCHEMA,
    NOISES,
    PROCESS_SCHEMA,
    RATE,
    TAUS,
    Floats,
    all_draws,
    family,
    linear_frame,
    process_frame,
    process_model,
    scored,
)
from reproduction.studies import census
from reproduction.studies.linear import grid
from reproduction.study import Cells, Quick, Results, Row, Study, Table, cell_name

__all__ = ["STUDY", "problem", "run"]

FIRST = 150_000
FEW = 0.15  # two standard errors of coverage, above which there are too few replicates to judge it
RARE = Schema(x=Range(-2, 2), z=Flag())
REGRESSION = {"blocks": 20, "steps": 10_000, "draws_per_step": 1, "sampling_rate": 0.1}
BOUND: dict[str, dict[str, Any]] = {"gaussian": {}, "exponential": {"clip": 12.0}}
"""C is the paper's 8 where the score is symmetric, so that a clip does not move its root, and else the largest score
that a record in the declared range can have: for exponential records in [0, 12] with means from .5 to 12 that is 12."""
RANGES = {"linear": (0.93, 0.97), "families": (0.92, 0.98), "process": (0.92, 0.985), "blocks": (0.93, 0.97)}
NAMES = {"process": ["Intercept", *census.NAMES], "census": ["Intercept", *census.NAMES], "rare": ["Intercept", "x"]}


def cells() -> Cells:
    """Six groups; the quantile process by the default method, too."""
    places: list[tuple[str, str, int, float, dict[str, Any]]] = [("linear", *place, REGRESSION) for place in grid()]
    places += [("families", f, n, e, BOUND[f]) for f in FAMILIES for n in (500, 5_000) for e in (1.0, 2.0, 4.0)]
    places += [("blocks", NOISES[0], 10_000, 1.0, {**REGRESSION, "blocks": blocks}) for blocks in (5, 10, 20, 100)]
    places += [("process", "process", 65_023, e, {}) for e in (1.0, 4.0)]
    places += [("fails", d, n, e, {}) for d, n in (("exponential", 300), ("rare", 10_000)) for e in (1.0, 4.0)]
    found: Cells = {}
    for group, data, n, epsilon, chosen in places:
        blocks = {"blocks": chosen["blocks"]} if group == "blocks" else {}
        found[cell_name(group=group, data=data, n=n, epsilon=epsilon, **blocks)] = {
            "method": "pgbb", "group": group, "data": data, "n": n, "epsilon": epsilon, "constants": chosen,
        }  # fmt: skip
    for epsilon in (1.0, 4.0):
        beside = {**found[f"process-process-n65023-eps{epsilon:g}"], "method": "calibrated"}
        found[f"process-calibrated-n65023-eps{epsilon:g}"] = beside
        for year in (1980, 2000):
            found[f"census-{year}-eps{epsilon:g}"] = {
                "method": "pgbb", "group": "census", "data": str(year), "epsilon": epsilon, "constants": {},
            }  # fmt: skip
    return found


def quick() -> Cells:
    """One cell of the regression and one of the families, short."""
    chosen = {name: cells()[name] for name in ("linear-student_t-n10000-eps4", "families-gaussian-n500-eps4")}
    return {
        name: {**s, "n": min(s["n"], 4_000), "constants": {**s["constants"], "steps": 600}}
        for name, s in chosen.items()
    }


def problem(settings: Mapping[str, Any], seed: int) -> tuple[Model, pd.DataFrame, Schema, Floats]:
    """Model, data, schema, and the true coefficients (levels, coefficients) that are judged."""
    data, n = settings["data"], settings.get("n", 0)
    if data in NOISES:
        return LINEAR_MODEL, linear_frame(data, n, seed), LINEAR_SCHEMA, BETA[None]
    if data in FAMILIES:
        model, frame, schema = family(data, n, seed)
        return (
            (RATE, frame, schema, np.array([[0.5]]))
            if data == "exponential"
            else (model, frame, schema, np.array([[1.5]]))
        )
    if data == "rare":  # 2 % events
        rng = np.random.default_rng(seed)
        x = rng.uniform(-2, 2, n)
        frame = pd.DataFrame({"x": x, "z": (rng.random(n) < expit(-4.2 + 0.5 * x)).astype(int)})
        return LogisticRegression("z ~ x"), frame, RARE, np.array([[-4.2, 0.5]])
    if data == "process":
        frame, truth = process_frame(n, seed)
        return process_model(), frame, PROCESS_SCHEMA, truth
    return process_model(), census.sample(int(data))[0], PROCESS_SCHEMA, census.estimates(int(data))


def run(settings: Mapping[str, Any], seeds: Sequence[int]) -> list[list[Row]]:
    """Replicates, side by side."""
    posed = [problem(settings, FIRST + seed) for seed in seeds]
    model, frame, schema, _ = posed[0]
    releases = fit_many(
        model, [p[1] for p in posed], schema=schema, epsilon=settings["epsilon"],
        delta=1e-6 if settings["data"] == "process" else 1 / len(frame), method=settings["method"],
        insecure_seeds=[FIRST + seed for seed in seeds], **settings["constants"],
    )  # fmt: skip
    return [_rows(settings, r, seed, p[3]) for r, seed, p in zip(releases, seeds, posed, strict=True)]


def _rows(settings: Mapping[str, Any], release: Release, seed: int, truth: Floats) -> list[Row]:
    """A row a level and coefficient, with its mark; and one for the contrast of schooling between outer levels."""
    names = NAMES.get(settings["group"], NAMES.get(settings["data"], [f"b{j}" for j in range(truth.shape[1])]))
    levels = TAUS if len(truth) > 1 else None
    draws = all_draws(release, seed)[:, :, : truth.shape[1]]
    columns = release.payload.local.columns(levels, np.array(release.model.transform))
    marks = columns["identified"][:, : truth.shape[1]].ravel()
    rows = [
        {**row, "identified": bool(mark)} for row, mark in zip(scored(draws, truth, names, levels), marks, strict=True)
    ]
    if levels is not None:
        gap = (draws[:, -1, 1] - draws[:, 0, 1])[:, None, None]
        (row,) = scored(gap, truth[-1:, 1:2] - truth[:1, 1:2], ["educ, .9 less .1"])
        rows.append({"tau": float("nan"), **row, "identified": bool(marks.reshape(truth.shape)[[0, -1], 1].all())})
    return rows


def tables(results: Results, _: Callable[[str], Results]) -> list[Table]:
    """A table a group, with the goals that its figures have."""
    lines: dict[str, list[Line]] = {}
    for outcome in results.values():
        s = outcome.settings
        lines.setdefault(s["group"], [])
        lines[s["group"]] += _by_level(s, outcome.rows) if s["group"] == "process" else _whole(s, outcome.rows)
    titles = {
        "linear": "Linear regression", "families": "Exponential families", "blocks": "Number of blocks",
        "process": "Known quantile process, census design", "census": "Schooling, % a year, mean over five levels",
        "fails": "Where the loss is not quadratic",
    }  # fmt: skip
    found = [Table(titles[group], lines[group]) for group in titles if group in lines]
    return [Table("Goals", _goals(lines)), *found]


def _goals(lines: Mapping[str, Sequence[Line]]) -> list[Line]:
    """Over the cells of a group: how many cover, and how much wider than the default method's intervals are."""
    found = []
    for group, least in (("linear", 11), ("families", 10)):
        covered = [line.ours for line in lines.get(group, []) if line.measure == "coverage"]
        low, high = RANGES[group]
        count = sum(low <= value <= high for value in covered)
        met = count >= least if len(covered) == 12 else None
        rule = f"coverage from {low:g} to {high:g} in at least {least} of 12 cells"
        found += [goal({"group": group}, "cells", float(count), met, rule)] if covered else []
    widths = {tuple(line.where.values()): line.ours for line in lines.get("process", []) if line.measure == "width"}
    for epsilon in sorted({key[1] for key in widths}):
        ratios = [
            value / widths[("calibrated", *key[1:])]
            for key, value in widths.items()
            if key[:2] == ("pgbb", epsilon) and ("calibrated", *key[1:]) in widths
        ]
        if ratios:
            rule, where = "width at most twice the default method's, every coefficient and level", {"group": "process"}
            found.append(goal({**where, "ε": epsilon}, "width ratio", max(ratios), max(ratios) <= 2, rule))
    return found


def _whole(s: Mapping[str, Any], rows: pd.DataFrame) -> list[Line]:
    """Figures of a cell over its coefficients (those of schooling on the census) that are not marked."""
    where = {"data": s["data"], "n": s.get("n", ""), "ε": s["epsilon"], "S": s["constants"].get("blocks", "")}
    unit = 1.0
    if s["group"] == "census":
        rows, unit = rows[rows["coefficient"] == "educ"], 100.0
    marked = shown(where, "marked", (1 - float(rows["identified"].mean()), float("nan")))
    rows = rows[rows["identified"]]
    if not len(rows):
        return [marked]
    found = summarise(rows)
    mae, width = ((unit * found[k][0], unit * found[k][1]) for k in ("mae", "width"))
    lines = [_covers(s["group"], where, found["coverage"], rows["replicate"].nunique()), marked]
    if s["group"] == "linear":
        printed = lookup("linreg_summary", epsilon=s["epsilon"], n=s["n"], method="PGBB", noise=s["data"])
        most = (0.8, 0.62) if s["epsilon"] == 1 else (None, 1.0)
        for name, (value, error), share in zip(("mae", "width"), (mae, width), most, strict=True):
            if share is None or name not in printed:
                lines.append(shown(where, name, (value, error)))
                continue
            rule = f"{name} at most {share:g} of the printed PGBB's at ε = {s['epsilon']:g}"
            lines.append(goal(where, name, value, value <= share * printed[name], rule, error, printed[name]))
        return lines
    if s["group"] == "census":
        printed = lookup("census", year=int(s["data"]), variable="educ", method="PGBB", epsilon=s["epsilon"])
        limit = 0.3 if s["epsilon"] == 1 else printed["mae"]
        rule = "mae at most .30 at ε = 1, and at most the printed one at ε = 4"
        return [
            *lines,
            goal(where, "mae", mae[0], mae[0] <= limit, rule, mae[1], printed["mae"]),
            shown(where, "width", width),
        ]
    return [*lines, shown(where, "mae", mae), shown(where, "width", width)]


def _covers(group: str, where: dict[str, Any], found: tuple[float, float], replicates: int) -> Line:
    """Coverage, within its range by what two standard errors allow; one-sided on real data and where there is skew.

    The standard error is at least that of so many replicates at the end of the range.
    """
    value, error = found
    low, high = RANGES.get(group, (0.92, 1.0))
    edge = low if value < low else high
    slack = 2 * max(error, math.sqrt(edge * (1 - edge) / replicates)) if error == error else math.inf
    rule = f"coverage from {low:g} to {high:g}, give or take two standard errors"
    met = None if not slack <= FEW else low - slack <= value <= high + slack
    return goal(where, "coverage", value, met, rule, error)


def _by_level(s: Mapping[str, Any], rows: pd.DataFrame) -> list[Line]:
    """Figures of each coefficient and level."""
    lines = []
    for (coefficient, tau), part in rows.groupby(["coefficient", "tau"], sort=False, dropna=False):
        where = {"method": s["method"], "ε": s["epsilon"], "coefficient": coefficient, "τ": "" if tau != tau else tau}
        found = summarise(part[part["identified"]]) if part["identified"].any() else {}
        if found:
            count = part["replicate"].nunique()
            lines += [_covers("process", where, found["coverage"], count), shown(where, "mae", found["mae"])]
            lines.append(shown(where, "width", found["width"]))
        lines.append(shown(where, "marked", (1 - float(part["identified"].mean()), float("nan"))))
    return lines


STUDY = Study(
    name="noise_aware",
    labels=(),
    title="the noise-aware intervals of method pgbb",
    cells=cells,
    replicates=400,
    run=run,
    quick=Quick(quick, 2),
    tables=tables,
    revision=5,
)
