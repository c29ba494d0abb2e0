"""Means and proportions of 50 groups of 20 to 20,000 records: coverage, marks and widths by the size of a group.

    python benchmarks/groups.py [CASE …] [--replicates 100] [--epsilon 1,4] [--first 0]

A public file (see `real_files.py`) is ordered by a covariate and cut into 50 populations, whose means differ; a fit
sees samples with replacement from each. "ratio" is the width over that of √(sampling² + floor²): the sampling error of
the mean, and the noise of one answer that has the whole budget and whose window holds 99.9 % of the group. A group is
missed in silence if it is marked in fewer than half of the fits and covered in fewer than .88 of those without a mark.
δ is 1e-6. `--first` numbers the first replicate, so that a run can be cut in parts.
"""

import argparse
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from real_files import FILES, population

import pgbb
from pgbb.accountant.gaussian import gdp_mu

DELTA, GROUPS, Z = 1e-6, 50, 1.959963984540054
SIZES = np.round(np.geomspace(20, 20_000, GROUPS)).astype(int)
BANDS = ((20, 99), (100, 999), (1_000, 20_000))


@dataclass(frozen=True)
class Case:
    """A column of a file, the column that groups are cut by, what is declared, and a column of weights."""

    file: str
    column: str
    by: str
    declared: pgbb.Range | pgbb.Flag
    weights: tuple[str, float] | None = None


CASES = {
    "logwage": Case("census80", "logwk", "educ", pgbb.Range(0, 12)),
    "weighted": Case("census00", "logwk", "educ", pgbb.Range(0, 12), ("perwt", 8.0)),
    "wage": Case("cps", "wage", "education", pgbb.Range(0, 20_000)),
    "wide": Case("cps", "wage", "education", pgbb.Range(0, 1_000_000)),
    "delay": Case("flights", "dep_delay", "hour", pgbb.Range(-60, 1500)),
    "weight": Case("births", "Weight", "MomWtGain", pgbb.Range(200, 6500)),
    "smokes": Case("births", "MomSmoke", "MomAge", pgbb.Flag()),
}


def populations(case: Case) -> list[pd.DataFrame]:
    """Fifty populations, in an order that has nothing to do with their sizes."""
    frame = population(case.file) if case.weights is None else FILES[case.file].read()
    order = np.lexsort((np.random.default_rng(0).random(len(frame)), frame[case.by]))
    parts = [frame.iloc[part] for part in np.array_split(order, GROUPS)]
    return [parts[i] for i in np.random.default_rng(1).permutation(GROUPS)]


def one(case: Case, parts: list[pd.DataFrame], epsilon: float, replicate: int) -> pd.DataFrame:
    """The table of one fit."""
    rng = np.random.default_rng([replicate, int(100 * epsilon)])
    rows = [part.iloc[rng.integers(len(part), size=size)] for part, size in zip(parts, SIZES, strict=True)]
    frame = pd.concat(rows, ignore_index=True).assign(group=np.repeat(np.arange(GROUPS), SIZES))
    schema = {case.column: case.declared, "group": pgbb.Levels(*range(GROUPS))}
    more = {}
    if case.weights is not None:
        name, most = case.weights
        schema[name], more = pgbb.Range(0, most), {"weights": name}
    model = pgbb.Mean(case.column, by="group")
    return pgbb.fit(
        model, frame, schema=pgbb.Schema(**schema), epsilon=epsilon, delta=DELTA, insecure_seed=replicate, **more
    ).summary()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--epsilon", default="1,4")
    options = parser.parse_args()
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    print(f"{'cell':22}" + "".join(f"{f'{a:,} to {b:,}':>22}" for a, b in BANDS) + f"{'all':>8}  missed in silence")
    print(f"{'':22}" + f"{'cov  marked  ratio':>22}" * len(BANDS))
    for name in options.cases:
        case = CASES[name]
        parts = populations(case)
        y = [part[case.column].to_numpy(float) for part in parts]
        w = [np.ones(len(p)) if case.weights is None else p[case.weights[0]].to_numpy(float) for p in parts]
        truth = np.array([np.average(a, weights=b) for a, b in zip(y, w, strict=True)])
        residual = [b / b.mean() * (a - t) for a, b, t in zip(y, w, truth, strict=True)]
        sampling = np.array([r.std() for r in residual]) / np.sqrt(SIZES)
        reach = np.array([np.quantile(np.abs(a - t), 0.999) for a, t in zip(y, truth, strict=True)])
        for epsilon in map(float, options.epsilon.split(",")):
            most = np.array([np.max(b) / np.mean(b) for b in w]) if case.weights else 1.0
            floor = 2 / gdp_mu(epsilon, DELTA) * reach / SIZES * most
            runs = range(options.first, options.first + options.replicates)
            fits = [one(case, parts, epsilon, r) for r in runs]
            known = np.array([f["identified"].to_numpy() for f in fits])
            inside = np.array([((f["lower"] <= truth) & (truth <= f["upper"])).to_numpy() for f in fits])
            width = np.array([((f["upper"] - f["lower"]) / 2 / Z).to_numpy() for f in fits])
            line = f"{f'{name} ε {epsilon:g}':22}"
            for low, high in BANDS:
                at = (low <= SIZES) & (high >= SIZES)
                seen = known[:, at]
                ratio = np.where(seen, width[:, at] / np.hypot(sampling, floor)[at], np.nan)
                covers = inside[:, at][seen].mean() if seen.any() else np.nan
                line += f"{covers:9.3f}{1 - seen.mean():6.2f}{np.nanmedian(ratio) if seen.any() else np.nan:7.2f}"
            counts = known.sum(axis=0)
            rate = (inside & known).sum(axis=0) / np.maximum(counts, 1)
            silent = np.flatnonzero((counts >= len(fits) / 2) & (rate < 0.88))
            missed = " ".join(f"{SIZES[g]}:{rate[g]:.2f}" for g in silent)
            print(f"{line}{inside[known].mean():8.3f}  {missed}", flush=True)


if __name__ == "__main__":
    main()
