"""What noise-aware intervals of `method="pgbb"` cost: twelve cells of the regression, R fits of each side by side.

    python benchmarks/aware.py [R] [CELLS]

For each cell: seconds of printed intervals and of noise-aware ones, programs compiled and noise scales known; the last
line has their sums. CELLS takes the first so many. The accountant is "exact" for both.
"""

import sys
import time
import warnings

from pgbb.errors import PgbbWarning
from reproduction.fits import fit_many
from reproduction.simulate import LINEAR_MODEL, LINEAR_SCHEMA, linear_frame
from reproduction.studies.linear import grid
from reproduction.studies.noise_aware import REGRESSION


def seconds(data: str, n: int, epsilon: float, replicates: int, intervals: str) -> float:
    """Of so many fits."""
    frames = [linear_frame(data, n, seed) for seed in range(replicates)]
    begin = time.perf_counter()
    fit_many(
        LINEAR_MODEL, frames, schema=LINEAR_SCHEMA, epsilon=epsilon, delta=1 / n, method="pgbb", intervals=intervals,
        insecure_seeds=range(replicates), **REGRESSION,
    )  # fmt: skip
    return time.perf_counter() - begin


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore", PgbbWarning)
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    total = {"printed": 0.0, "noise-aware": 0.0}
    cells = grid()[: int(sys.argv[2]) if len(sys.argv) > 2 else None]
    for data, n, epsilon in cells:
        found = []
        for intervals in total:
            seconds(data, n, epsilon, replicates, intervals)  # compiles, and finds the noise scale
            found.append(seconds(data, n, epsilon, replicates, intervals))
            total[intervals] += found[-1]
        print(
            f"{data:20} n = {n:6,}  ε = {epsilon:g}  printed {found[0]:6.2f} s  noise-aware {found[1]:6.2f} s",
            flush=True,
        )
    more = total["noise-aware"] / total["printed"] - 1
    print(
        f"{len(cells) * replicates:,} fits: printed {total['printed']:.1f} s, "
        f"noise-aware {total['noise-aware']:.1f} s, {more:+.0%}"
    )


if __name__ == "__main__":
    main()
