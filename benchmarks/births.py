"""The loader of the NBER's natality CSV on a simulated file of its size: time beside pandas, memory beside the file.

    python benchmarks/births.py [ROWS] [OTHER_COLUMNS]

The file of 2024 has 3.6 million rows and more than two hundred columns, of which twelve are needed; the file here has
ROWS rows (3,600,000) and the twelve among OTHER_COLUMNS (60) that must be skipped.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # reproduction/ lies beside benchmarks/

from reproduction.real import _NBER, natality_2024


def write(path: Path, rows: int, others: int) -> None:
    """A CSV in which about half of the births are in the sample."""
    rng = np.random.default_rng(0)
    first = True
    for start in range(0, rows, 200_000):
        n = min(200_000, rows - start)
        frame = pd.DataFrame({f"other_{j}": rng.integers(0, 100, n) for j in range(others)})
        needed = {
            "dbwt": rng.integers(1500, 5000, n), "mager": rng.integers(15, 50, n), "mrace6": rng.integers(1, 4, n),
            "dmar": rng.integers(1, 3, n), "meduc": rng.integers(1, 10, n), "sex": rng.choice(["M", "F"], n),
            "cig_1": rng.poisson(1, n), "cig_2": rng.poisson(1, n), "cig_3": rng.poisson(1, n),
            "wtgain": rng.integers(0, 100, n), "precare": rng.integers(0, 11, n), "dplural": 1,
        }  # fmt: skip
        for place, (name, values) in enumerate(needed.items()):
            frame.insert(min(5 * place, frame.shape[1]), name, values)
        frame.to_csv(path, index=False, header=first, mode="w" if first else "a")
        first = False


def main(rows: int = 3_600_000, others: int = 60) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "natl2024us.csv"
        write(path, rows, others)
        size = path.stat().st_size / 2**20
        natality_2024(path).head()  # the file is in the page cache, the library loaded
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        start = time.perf_counter()
        frame = natality_2024(path)
        ours = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        start = time.perf_counter()
        pd.read_csv(path, usecols=list(_NBER))
        pandas = time.perf_counter() - start
        print(f"{rows:,} rows, {others + len(_NBER)} columns, {size:,.0f} MiB; {len(frame):,} births in the sample")
        print(
            f"loaded and coded in {ours:.1f} s, {pandas / ours:.1f} times as fast as pandas.read_csv reads the columns"
        )
        print(f"peak memory of the process {max(peak, before):,.0f} MiB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
