"""The competing methods on the paper's simulations, against its printed tables.

    python benchmarks/competitors.py regression [--methods sgld,noisy_gibbs,dp_bootstrap] [--replicates 100]
                                                [--n 10000] [--epsilon 1,4] [--noise contaminated_normal,student_t]
    python benchmarks/competitors.py families   [--families gaussian,exponential] [--n 500,5000] [--epsilon 1,2,4]
    python benchmarks/competitors.py ess        [--methods sgld,noisy_gibbs]

Regression (Table `tab:linreg-summary`): three coefficients, heavy-tailed errors, δ = 1/n; MAE, coverage and width
average over coefficients within a replicate, then over replicates. Families (section `app:expo-family`, whose figure
prints no numbers): a Gaussian and an exponential mean at clip 8. ESS (Table `tab:ess-expo`): of both, after burn-in,
over both kinds of errors. Each printed value comes with the ratio to it, and with whether the ratio meets the
tolerance: width 10 %, MAE 20 %, ESS 25 %. Standard errors are Monte Carlo, over replicates.

With `--out FILE` every replicate is appended to FILE as one JSON line, and replicates found there are not run again:
an interrupted run continues. `--jobs J` runs J processes. Seeds are fixed: this is simulated data, nothing is private.
"""

import argparse
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pgbb
from pgbb.methods.effective_size import effective_sample_size

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # reproduction/ lies beside benchmarks/

from reproduction.constants import CHOSEN, PRINTED_NAME, constants
from reproduction.judge import TOLERANCE
from reproduction.printed import lookup
from reproduction.simulate import (
    BETA,
    FAMILIES,
    FAMILY_TRUTH,
    LINEAR_MODEL,
    LINEAR_SCHEMA,
    NOISES,
    RATE,
    family,
    linear_frame,
)
from reproduction.studies.ess import CASES, COLUMN

METHODS = ("sgld", "noisy_gibbs", "dp_bootstrap")
NOTES = {  # (method, regression or not): constants that the paper does not print
    ("noisy_gibbs", True): CHOSEN["noisy_gibbs"],
    ("sgld", False): CHOSEN["sgld families"],
}


@dataclass(frozen=True)
class Cell:
    """One row of a table: a method on one kind of data at one n and ε. `study` is "regression" or a family."""

    method: str
    study: str
    noise: str
    n: int
    epsilon: float

    @property
    def settings(self) -> dict[str, Any]:
        return constants("linear" if self.study == "regression" else "families", self.method)

    @property
    def printed(self) -> dict[str, float]:
        """What the paper prints for this cell: some of mae, coverage, width and ess."""
        found: dict[str, float] = {}
        if self.study == "regression":
            name = PRINTED_NAME[self.method]
            row = lookup("linreg_summary", epsilon=self.epsilon, n=self.n, method=name, noise=self.noise)
            found |= {k: v for k, v in row.items() if k in ("mae", "coverage", "width")}
        if self.study != "regression" and (size := self.printed_ess) is not None:
            found["ess"] = size
        return found

    @property
    def printed_ess(self) -> float | None:
        """The table's effective sample size; for a regression it does not say under which errors."""
        case = CASES.get(("linear" if self.study == "regression" else self.study, self.n))
        return lookup("ess", case=case, epsilon=self.epsilon).get(COLUMN.get(self.method, ""))


def replicate(cell: Cell, seed: int) -> dict[str, Any]:
    """One fit: MAE, coverage and width of 95 % intervals, averaged over coefficients, and the ESS of a chain."""
    if cell.study == "regression":
        model, schema, truth = LINEAR_MODEL, LINEAR_SCHEMA, BETA
        frame = linear_frame(cell.noise, cell.n, seed)
    else:
        model, frame, schema = family(cell.study, cell.n, seed)
        truth = np.array([FAMILY_TRUTH[cell.study]])
    by_rate = cell.study == "exponential" and cell.method == "sgld"
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        release = pgbb.fit(
            RATE if by_rate else model, frame, schema=schema, epsilon=cell.epsilon, delta=1 / cell.n,
            method=cell.method, insecure_seed=seed, accountant="paper" if cell.method == "sgld" else "exact",
            **cell.settings,
        )  # fmt: skip
    seconds = time.perf_counter() - begin
    draws = release.model.to_original(release.payload.tensors["draws"])[:, : len(truth)]
    if by_rate:
        draws = 1 / draws
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return {
        **_key(cell, seed),
        "mae": float(np.abs(draws.mean(axis=0) - truth).mean()),
        "coverage": float(((low <= truth) & (truth <= high)).mean()),
        "width": float((high - low).mean()),
        "ess": _size(release, draws) if cell.method in COLUMN else None,
        "seconds": seconds,
    }


def _size(release: pgbb.Release, draws: np.ndarray) -> float:
    """Mean over coefficients; NoisyGibbs counts a mean's draws before thinning, as the paper does."""
    if release.stored_diagnostics["method"] == "noisy_gibbs":
        return float(np.mean(release.stored_diagnostics["effective_sample_size"][0][: draws.shape[1]]))
    return float(effective_sample_size(draws).mean())


def _key(cell: Cell, seed: int) -> dict[str, Any]:
    return {**asdict(cell), "settings": cell.settings, "replicate": seed}


def _identity(row: dict[str, Any]) -> str:
    names = ("method", "study", "noise", "n", "epsilon", "settings", "replicate")
    return json.dumps({name: row[name] for name in names}, sort_keys=True)


def _done(out: Path | None) -> dict[str, dict[str, Any]]:
    """Replicates of an earlier run; a last line cut short is run again."""
    found = {}
    if out is not None and out.exists():
        for line in out.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
                found[_identity(row)] = row
            except (json.JSONDecodeError, KeyError):
                continue
    return found


def _run(cells: list[Cell], replicates: int, jobs: int, out: Path | None) -> dict[Cell, list[dict[str, Any]]]:
    done = _done(out)
    wanted = [(cell, seed) for cell in cells for seed in range(replicates)]
    missing = [(cell, seed) for cell, seed in wanted if _identity(_key(cell, seed)) not in done]
    if len(missing) < len(wanted):
        print(f"{len(wanted) - len(missing)} of {len(wanted)} replicates were found in {out}", file=sys.stderr)
    for i, row in enumerate(_results(missing, jobs), start=1):
        done[_identity(row)] = row
        if out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if sys.stderr.isatty() or i % 50 == 0:
            print(f"{i} of {len(missing)}: {row['method']}, ε = {row['epsilon']:g}", file=sys.stderr)
    return {cell: [done[_identity(_key(cell, seed))] for seed in range(replicates)] for cell in cells}


def _results(tasks: list[tuple[Cell, int]], jobs: int) -> Iterator[dict[str, Any]]:
    if jobs == 1:
        yield from (replicate(cell, seed) for cell, seed in tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(replicate, cell, seed) for cell, seed in tasks]):
            yield future.result()


def _report(results: dict[Cell, list[dict[str, Any]]], measures: tuple[str, ...]) -> None:
    print(f"{'method':13}{'data':20}{'n':>7}{'ε':>4}  {'measure':9}{'measured':>10}{'(s.e.)':>10}", end="")
    print(f"{'printed':>10}{'ratio':>8}  within")
    for cell, rows in results.items():
        lead = f"{cell.method:13}{cell.noise:20}{cell.n:>7}{cell.epsilon:>4g}"
        for measure in measures:
            values = np.array([row[measure] for row in rows if row[measure] is not None], dtype=float)
            if not len(values):
                continue
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
            digits = 0 if measure == "ess" else 4
            line = f"{lead}  {measure:9}{values.mean():10.{digits}f}{f'({error:.{digits}f})':>10}"
            printed = cell.printed.get(measure)
            if printed is not None:
                ratio = values.mean() / printed
                line += f"{printed:10.{digits}f}{ratio:8.3f}"
                if measure in TOLERANCE:
                    met = "met" if abs(ratio - 1) <= TOLERANCE[measure] else "not"
                    line += f"  {met} (±{TOLERANCE[measure]:.0%})"
            print(line)
            lead = " " * len(lead)
    _pooled(results)
    for key in sorted({(cell.method, cell.study == "regression") for cell in results} & set(NOTES)):
        print(f"Not printed in the paper. {NOTES[key]}")
    total = [row["seconds"] for rows in results.values() for row in rows]
    print(f"{len(total)} fits, {np.mean(total):.1f} s each")


def _pooled(results: dict[Cell, list[dict[str, Any]]]) -> None:
    """Effective sample sizes of a regression over both kinds of errors: the printed table has one number for both."""
    groups: dict[tuple[str, int, float], list[Cell]] = {}
    for cell in results:
        if cell.study == "regression" and cell.printed_ess is not None:
            groups.setdefault((cell.method, cell.n, cell.epsilon), []).append(cell)
    for (method, n, epsilon), cells in groups.items():
        if len(cells) < len(NOISES):
            continue
        size = float(np.mean([np.mean([row["ess"] for row in results[cell]]) for cell in cells]))
        printed = cells[0].printed_ess
        assert printed is not None
        met = "met" if abs(size / printed - 1) <= TOLERANCE["ess"] else "not"
        lead = f"{method:13}{'both':20}{n:>7}{epsilon:>4g}  {'ess':9}{size:10.0f}{'':10}"
        print(f"{lead}{printed:10.0f}{size / printed:8.3f}  {met} (±{TOLERANCE['ess']:.0%})")


def regression(args: argparse.Namespace) -> None:
    cells = [
        Cell(method, "regression", noise, n, epsilon)
        for method in args.methods or METHODS
        for noise in args.noise or NOISES
        for n in args.n or (10_000,)
        for epsilon in args.epsilon or (1.0, 4.0)
    ]
    _report(_run(cells, args.replicates, args.jobs, args.out), ("mae", "coverage", "width", "ess"))


def families(args: argparse.Namespace) -> None:
    cells = [
        Cell(method, family, family, n, epsilon)
        for method in args.methods or METHODS
        for family in args.families or FAMILIES
        for n in args.n or (500, 5_000)
        for epsilon in args.epsilon or (1.0, 2.0, 4.0)
    ]
    _report(_run(cells, args.replicates, args.jobs, args.out), ("mae", "coverage", "width", "ess"))


def ess(args: argparse.Namespace) -> None:
    cells = []
    for method in args.methods or tuple(COLUMN):
        for kind, n in CASES:
            if args.n is None or n in args.n:
                study = "regression" if kind == "linear" else kind
                noises = NOISES if kind == "linear" else (kind,)
                cells += [Cell(method, study, k, n, e) for k in noises for e in args.epsilon or (1.0, 2.0, 4.0)]
    _report(_run(cells, args.replicates, args.jobs, args.out), ("ess",))


def _choice(allowed: tuple[str, ...]) -> Any:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(allowed)}")
        return names

    return parse


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("regression", "families", "ess"))
    parser.add_argument("--methods", type=_choice(METHODS))
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--n", type=lambda text: tuple(int(part) for part in text.split(",")))
    parser.add_argument("--epsilon", type=lambda text: tuple(float(part) for part in text.split(",")))
    parser.add_argument("--noise", type=_choice(NOISES), help="of the regression")
    parser.add_argument("--families", type=_choice(FAMILIES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON lines; an interrupted run continues from it")
    args = parser.parse_args()
    if args.command == "ess" and set(args.methods or ()) - set(COLUMN):
        parser.error("ess: only sgld and noisy_gibbs are chains")
    return args


if __name__ == "__main__":
    arguments = _parse()
    {"regression": regression, "families": families, "ess": ess}[arguments.command](arguments)
