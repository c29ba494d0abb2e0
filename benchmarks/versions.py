"""Two commits side by side: seconds of the same fits, turn by turn in one run, and their ratio.

    python benchmarks/versions.py OLD NEW [ROUNDS]

Each commit is unpacked into a temporary folder and serves from a process of its own. A fit is timed after a first one
of its shape, so that compilation is left out; the two take turns, and the ratio is that of the medians.
"""

import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

SERVER = """
import sys, time, warnings
import numpy as np, pandas as pd
import pgbb
warnings.simplefilter("ignore")
rng, n = np.random.default_rng(0), 300_000
x = rng.uniform(-1, 1, (n, 5))
y = x[:, :3].sum(axis=1) / 2 + rng.normal(0, 0.5, n)
names = [f"x{j}" for j in range(5)]
frame = pd.DataFrame(x, columns=names).assign(y=y, z=(y > 0).astype(np.int8))
schema = pgbb.Schema(y=pgbb.Range(-6, 6), z=pgbb.Flag(), **{name: pgbb.Range(-1, 1) for name in names})
terms = " + ".join(names)
quantiles = pgbb.QuantileRegression(f"y ~ {terms}", taus=[0.1, 0.5, 0.9])
short = dict(steps=1000, blocks=5, draws_per_step=1, sampling_rate=0.01)
def printed(model):
    try:
        return pgbb.fit(model, frame, method="pgbb", intervals="printed", schema=schema, **budget, **short)
    except pgbb.PgbbError:
        return pgbb.fit(model, frame, method="paper", schema=schema, **budget, **short)
budget = dict(epsilon=1.0, delta=1e-6, insecure_seed=1)
FITS = {
    "quantile": lambda: pgbb.fit(quantiles, frame, schema=schema, **budget),
    "huber": lambda: pgbb.fit(pgbb.HuberRegression(f"y ~ {terms}"), frame, schema=schema, **budget),
    "logistic": lambda: pgbb.fit(pgbb.LogisticRegression(f"z ~ {terms}"), frame, schema=schema, **budget),
    "pgbb, printed": lambda: printed(pgbb.HuberRegression(f"y ~ {terms}")),
}
print("\\n".join(FITS), end="\\n\\n", flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    FITS[line.strip()]()
    print(time.perf_counter() - begin, flush=True)
"""


class Served:
    """A commit, unpacked, in a process that times the fits it is asked for."""

    def __init__(self, commit: str, folder: Path) -> None:
        packed = subprocess.run(["git", "archive", commit, "src"], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        known = {**os.environ, "PYTHONPATH": str(folder / "src")}
        self._process = subprocess.Popen([sys.executable, "-c", SERVER], env=known, **pipes)
        self.fits = []
        while line := self._line():
            self.fits.append(line)

    def _line(self) -> str:
        return self._process.stdout.readline().strip()

    def seconds(self, fit: str) -> float:
        self._process.stdin.write(fit + "\n")
        self._process.stdin.flush()
        return float(self._line())

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def main(old: str, new: str, rounds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder:
        two = [Served(commit, Path(folder) / side) for commit, side in ((old, "old"), (new, "new"))]
        print(f"{'fit':16} {old[:9]:>10} {new[:9]:>10}  ratio", flush=True)
        for fit in two[0].fits:
            times: list[list[float]] = [[], []]
            for served in two:
                served.seconds(fit)
            for _ in range(rounds):
                for kept, served in zip(times, two, strict=True):
                    kept.append(served.seconds(fit))
            before, after = (statistics.median(kept) for kept in times)
            print(f"{fit:16} {before:10.3f} {after:10.3f}  {after / before:5.2f}", flush=True)
        for served in two:
            served.end()


if __name__ == "__main__":
    begin = time.perf_counter()
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4]))
    print(f"{time.perf_counter() - begin:.0f} s")
