"""The newcomer's path, timed: from a clone to a published page of one's own CSV, in five commands.

    python benchmarks/newcomer.py [REPOSITORY]

Works in an empty folder, on what is committed. The CSV is simulated, and the schema, which a person would fill in with
an editor after `pgbb init`, is filled in by this script: that time is not counted.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (
    "git clone URL pgbb",
    "make -C pgbb install",
    "pgbb/.venv/bin/pgbb init my.csv --out my.toml",
    'pgbb/.venv/bin/pgbb fit my.csv --schema my.toml --formula "y ~ x" --epsilon 1 --delta 1e-6 --out my.pgbb',
    "pgbb/.venv/bin/pgbb report my.pgbb --out my.html",
)
RECORDS = 10_000
SCHEMA = "[columns]\ny = { range = [-10, 30] }\nx = { range = [0, 10] }\n"


def own_data(path):
    """What the newcomer already has."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 10, RECORDS)
    rows = np.column_stack([1 + 2 * x + rng.normal(0, 1.5, RECORDS), x])
    np.savetxt(path, rows, fmt="%.4f", delimiter=",", header="y,x", comments="")


def edit(path):
    """Fill the blanks of the template; it must have one line for each column."""
    blanks = path.read_text(encoding="utf-8").partition("[columns]\n")[2].splitlines()
    assert [line.split(" ")[0] for line in blanks] == ["y", "x"], blanks
    path.write_text(SCHEMA, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", nargs="?", default=str(ROOT), help="what to clone; default this repository")
    repository = parser.parse_args().repository
    with tempfile.TemporaryDirectory(prefix="pgbb-newcomer-") as name:
        folder = Path(name)
        own_data(folder / "my.csv")
        total = 0.0
        for command in COMMANDS:
            start = time.monotonic()
            line = command.replace("URL", repository)
            done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
            seconds = time.monotonic() - start
            total += seconds
            if done.returncode:
                print(f"failed: {command}\n{done.stdout}{done.stderr}", file=sys.stderr)
                return 1
            print(f"{seconds:7.1f} s  {command}", flush=True)
            if " init " in command:
                edit(folder / "my.toml")
        print(f"{total:7.1f} s  in all; my.html has {(folder / 'my.html').stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
