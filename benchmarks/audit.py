"""Audits of honest mechanisms and of their broken twins, at full size.

    python benchmarks/audit.py [RUNS] [TRIALS] [JOBS] [SETTING …]

Prints a line for each setting and ε over RUNS honest audits (two of each by default), and one for each twin. Chains
have a sixth of the trials, refits a tenth.
"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from pgbb.audit import CONFIDENCE, SETTINGS, TRIALS, TWINS, Finding, audit

GOALS = (1.0, 4.0)
Job = tuple[str, float, int, int, str | None]


def one(job: Job) -> Finding:
    setting, goal, trials, seed, twin = job
    return audit(setting, goal, trials=trials // 6 if setting == "chains" else trials, seed=seed, twin=twin)


def line(label: str, goal: float, found: list[Finding]) -> None:
    bounds = [f.lower for f in found]
    first, kept = found[0], sum(not f.broken for f in found)
    others = "  ".join(f"{a} {c:.3g}" for a, c in first.claims.items() if a != "exact")
    print(
        f"{label:26}{goal:4g}{first.rate:6g}{first.answers:5}{first.claims['exact']:8.3f}{min(bounds):8.3f}"
        f"{max(bounds):8.3f}{min(f.share for f in found):7.0%}{first.expected:9.3f}{kept:6}/{len(found):<4}{others}"
    )


def main() -> None:
    given = [int(word) for word in sys.argv[1:] if word.isdigit()]
    chosen = [word for word in sys.argv[1:] if not word.isdigit()] or list(SETTINGS)
    honest = [(s, g) for g in GOALS for s in chosen]
    runs, trials, workers = (*given, *(2 * len(honest), TRIALS, 2)[len(given) :])
    seeds = range(1, -(-runs // len(honest)) + 1)
    broken = [(t, s, g) for t, twin in TWINS.items() for s in twin.settings if s in chosen for g in GOALS]
    jobs: list[Job] = [(s, g, trials, seed, None) for seed in seeds for s, g in honest]
    jobs += [(s, g, trials, 100, t) for t, s, g in broken]
    begin = time.perf_counter()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        found = {}
        for job, finding in zip(jobs, pool.map(one, jobs), strict=True):
            found[job] = finding
            print(f"{len(found)} of {len(jobs)}", *job, f"{finding.lower:.3f}", file=sys.stderr, flush=True)
    delta = {s.delta for s in SETTINGS.values()}
    print(f"{trials:,} trials a world, δ = {', '.join(map(str, delta))}, bounds at {CONFIDENCE:.1%} confidence")
    print(
        f"{'setting':26}{'ε':>4}{'q':>6}{'T·K':>5}{'exact':>8}{'least':>8}{'most':>8}{'share':>7}{'expected':>9}"
        f"{'claims kept':>11}"
    )
    for s, g in honest:
        line(s, g, [found[s, g, trials, seed, None] for seed in seeds])
    for t, s, g in broken:
        line(f"{t} ({s})", g, [found[s, g, trials, 100, t]])
    total = [f for job, f in found.items() if job[-1] is None]
    print(f"honest: {sum(not f.broken for f in total)} of {len(total)} keep every claim", end="; ")
    twins = [f for job, f in found.items() if job[-1] is not None]
    print(
        f"twins: {sum(bool(f.broken) for f in twins)} of {len(twins)} are refuted; {time.perf_counter() - begin:.0f} s"
    )


if __name__ == "__main__":
    main()
