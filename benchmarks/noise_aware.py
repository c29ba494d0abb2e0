"""Noise-aware intervals of `method="pgbb"`: coverage, width, error and marks, on simulations and on the census.

    python benchmarks/noise_aware.py run STUDY … [--replicates 20] [--folder results/noise-aware]
    python benchmarks/noise_aware.py report [--folder results/noise-aware]

Studies: linear, families, process, census, blocks, fails. A line is written a fit; running again goes on where it
stopped. S, γ, q, T and K are the paper's for linear and families, and the defaults elsewhere. Seeds begin at 50,000;
constants were chosen on other ones. The census needs PGBB_DATA; its estimates are judged by the non-private estimate of
the whole file.

Coverage is that of 95 % intervals, over coefficients and levels; marked coefficients have the box as their interval and
are counted apart: `identified` is the share of the others, `coverage` and `width` are theirs.
"""

import argparse
import json
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

import pgbb
from pgbb.custody.run import fit_many
from reproduction.constants import constants
from reproduction.printed import lookup
from reproduction.real import census
from reproduction.simulate import (
    BETA,
    LINEAR_MODEL,
    LINEAR_SCHEMA,
    NOISES,
    PROCESS_SCHEMA,
    RATE,
    TAUS,
    all_draws,
    family,
    linear_frame,
    process_frame,
    process_model,
)

FIRST, TOGETHER = 50_000, 20
Cell = dict[str, Any]
RARE = pgbb.Schema(x=pgbb.Range(-2, 2), z=pgbb.Flag())


def cells(study: str) -> list[Cell]:
    """The settings of each cell."""
    linear, means = (
        {k: v for k, v in constants(name, "pgbb").items() if k not in ("slope", "learning_rate")}
        for name in ("linear", "families")
    )
    grids: dict[str, list[tuple[str, int, float, dict[str, Any]]]] = {
        "linear": [(d, n, e, linear) for d in NOISES for n in (10_000, 40_000) for e in (1.0, 2.0, 4.0)],
        "families": [
            (d, n, e, means) for d in ("gaussian", "exponential") for n in (500, 5_000) for e in (1.0, 2.0, 4.0)
        ],
        "process": [("process", 65_023, e, {}) for e in (1.0, 4.0)],
        "census": [(f"census {year}", 0, e, {}) for year in (1980, 2000) for e in (1.0, 4.0)],
        "blocks": [(NOISES[0], 10_000, 1.0, {**linear, "blocks": blocks}) for blocks in (5, 10, 20, 100)],
        "fails": [(d, n, e, {}) for d, n in (("exponential", 300), ("rare", 10_000)) for e in (1.0, 4.0)],
    }
    found = [{"data": d, "n": n, "epsilon": e, "settings": settings} for d, n, e, settings in grids[study]]
    beside = [{**cell, "method": "calibrated"} for cell in found] if study == "process" else []
    return found + beside


def problem(cell: Cell, seed: int) -> tuple[Any, pd.DataFrame, Any, Any, slice]:
    """Model, data, schema, truth (levels, coefficients) and the coefficients that are judged."""
    data, n = cell["data"], cell["n"]
    if data in NOISES:
        return LINEAR_MODEL, linear_frame(data, n, seed), LINEAR_SCHEMA, BETA[None], slice(0, 3)
    if data in ("gaussian", "exponential"):
        model, frame, schema = family(data, n, seed)
        rate = data == "exponential"
        return RATE if rate else model, frame, schema, np.array([[0.5 if rate else 1.5]]), slice(0, 1)
    if data == "process":
        frame, truth = process_frame(n, seed)
        return process_model(), frame, PROCESS_SCHEMA, truth, slice(0, 4)
    if data == "rare":  # 2 % events
        rng = np.random.default_rng(seed)
        x = rng.uniform(-2, 2, n)
        truth = np.array([[-4.2, 0.5]])
        frame = pd.DataFrame({"x": x, "z": (rng.random(n) < expit(-4.2 + 0.5 * x)).astype(int)})
        return pgbb.LogisticRegression("z ~ x"), frame, RARE, truth, slice(0, 2)
    frame, truth = whole(int(data.split()[1]))
    return process_model(), frame, PROCESS_SCHEMA, truth, slice(0, 4)


@lru_cache(maxsize=2)
def whole(year: int) -> tuple[pd.DataFrame, Any]:
    """A census extract, and its non-private quantile regressions."""
    from statsmodels.regression.quantile_regression import QuantReg

    frame = census(year)
    x = np.column_stack([np.ones(len(frame)), frame[["educ", "exper", "black"]]])
    y = frame["logwk"].to_numpy()
    return frame, np.stack([QuantReg(y, x).fit(q=t).params for t in TAUS])


def rows_of(cell: Cell, seeds: list[int]) -> list[dict[str, Any]]:
    """Fits side by side, scored."""
    posed = [problem(cell, seed) for seed in seeds]
    model, frame, schema, truth, shown = posed[0]
    delta = 1e-6 if cell["data"] == "process" else 1 / len(frame)
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        releases = fit_many(
            model, [p[1] for p in posed], schema=schema, epsilon=cell["epsilon"], delta=delta,
            method=cell.get("method", "pgbb"), insecure_seeds=seeds, **cell["settings"],
        )  # fmt: skip
    seconds = (time.perf_counter() - begun) / len(seeds)
    return [
        {"seed": seed, "seconds": seconds, **_scored(release, seed, truth, shown)}
        for seed, release in zip(seeds, releases, strict=True)
    ]


def _scored(release: pgbb.Release, seed: int, truth: Any, shown: slice) -> dict[str, Any]:
    """Error, coverage, width and marks, (levels, coefficients) each; coverage of a contrast where there are levels."""
    draws = all_draws(release, seed)[:, :, shown]
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    levels = list(TAUS) if len(truth) > 1 else None
    marks = release.payload.local.columns(levels, np.array(release.model.transform))["identified"][:, shown]
    found = {
        "error": np.abs(draws.mean(axis=0) - truth),
        "covered": (low <= truth) & (truth <= high),
        "width": high - low,
        "identified": marks,
    }
    if levels is not None:  # the schooling coefficient at .9 less that at .1
        gap, true = draws[:, -1, 1] - draws[:, 0, 1], truth[-1, 1] - truth[0, 1]
        ends = np.quantile(gap, [0.025, 0.975])
        found["contrast"] = np.array([[ends[0] <= true <= ends[1]]])
    return {name: np.asarray(v).tolist() for name, v in found.items()}


def run(study: str, replicates: int, folder: Path) -> None:
    """Fits of a study, one line each; those of a custom loss side by side, since each call compiles it anew."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{study}.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(json.dumps(d["cell"], sort_keys=True), d["row"]["seed"]) for d in done}
    for first in range(FIRST, FIRST + replicates, TOGETHER):
        for cell in cells(study):
            key = json.dumps(cell, sort_keys=True)
            left = [s for s in range(first, min(first + TOGETHER, FIRST + replicates)) if (key, s) not in known]
            step = TOGETHER if cell["data"] == "exponential" else 1
            for start in range(0, len(left), step):
                with path.open("a") as file:
                    for row in rows_of(cell, left[start : start + step]):
                        file.write(json.dumps({"cell": cell, "row": row}) + "\n")


def report(folder: Path) -> str:
    """A line a cell, and for the levels of a process a line each."""
    lines = []
    for study in ("linear", "families", "process", "census", "blocks", "fails"):
        path = folder / f"{study}.jsonl"
        if not path.exists():
            continue
        lines += ["", study]
        groups: dict[str, list[dict[str, Any]]] = {}
        for text in path.read_text().splitlines():
            found = json.loads(text)
            groups.setdefault(json.dumps(found["cell"], sort_keys=True), []).append(found["row"])
        for key, rows in groups.items():
            lines += _lines(study, json.loads(key), rows)
    return "\n".join(lines).strip() + "\n"


def _lines(study: str, cell: Cell, rows: list[dict[str, Any]]) -> list[str]:
    error, covered, width, seen = (
        np.array([r[k] for r in rows], float) for k in ("error", "covered", "width", "identified")
    )
    each = covered.mean(axis=(1, 2))
    se = each.std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan
    shown = seen > 0
    blocks = f"S = {cell['settings']['blocks']} " if study == "blocks" else ""
    name = f"{cell.get('method', '')} {cell['data']} n = {cell['n']:,} ε = {cell['epsilon']:g} {blocks}".strip()
    if cell["data"].startswith("census"):
        name = f"{cell['data']} ε = {cell['epsilon']:g}, schooling in % a year"
        error, covered, width, shown = (
            100 * error[:, :, 1:2],
            covered[:, :, 1:2],
            100 * width[:, :, 1:2],
            shown[:, :, 1:2],
        )
        each = covered.mean(axis=(1, 2))
        se = each.std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan
    values = [np.mean(a[shown]) if shown.any() else np.nan for a in (error, covered, width)]
    text = (
        f"  {name:<52} fits {len(rows):>4}  MAE {values[0]:.4f}  coverage {values[1]:.3f} (se {se:.3f})  "
        f"width {values[2]:.4f}  identified {shown.mean():.3f}"
    )
    if study in ("linear",):
        printed = lookup("linreg_summary", epsilon=cell["epsilon"], n=cell["n"], method="PGBB", noise=cell["data"])
        text += f"  of printed: MAE {values[0] / printed['mae']:.2f} width {values[2] / printed['width']:.2f}"
    lines = [text]
    if error.shape[1] > 1 and study == "process":
        for j, coefficient in enumerate(("Intercept", "educ", "exper", "black")):
            levels = "  ".join(
                f"{c:.3f} {w:.4f}" for c, w in zip(covered[:, :, j].mean(0), width[:, :, j].mean(0), strict=True)
            )
            lines.append(f"    {coefficient:<10} coverage and width at .1 .3 .5 .7 .9: {levels}")
    if "contrast" in rows[0]:
        lines.append(f"    schooling at .9 less at .1: coverage {np.mean([r['contrast'] for r in rows]):.3f}")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("studies", nargs="*")
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("results/noise-aware"))
    given = parser.parse_args()
    if given.command == "report":
        print(report(given.folder), end="")
    for name in given.studies:
        run(name, given.replicates, given.folder)
