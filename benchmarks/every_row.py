"""The study every_row on one page: width over the information floor, coverage and time, a row a method.

    python benchmarks/every_row.py [--results reproduction/results]

The floor is the width of an interval with the sampling error and the noise of one answer at the estimate for the whole
budget. A cell is width/floor and, behind it, coverage in per cent; "*" where a method marks more than half of its
coefficients.
"""

import argparse
from pathlib import Path

import numpy as np

from pgbb.methods.registry import METHODS
from reproduction import store
from reproduction.studies.every_row import DATA, _limits

SIZES, BUDGETS = (500, 5_000, 10_000), (1.0, 4.0)


def main(root: Path) -> None:
    """Prints a table a problem, and what all tables have in common."""
    results = store.load_all(root, "every_row")
    counts = [int(o.rows["replicate"].nunique()) for o in results.values()]
    print(f"{len(results)} cells, {min(counts)} to {max(counts)} replicates (median {int(np.median(counts))})")
    for data in DATA:
        heads = [f"n={n} ε={e:g}" for n in SIZES for e in BUDGETS]
        print(f"\n{data.replace('_', ' '):<20}" + "".join(f"{head:>16}" for head in heads) + f"{'seconds':>9}")
        for method in METHODS:
            line, seconds = f"{method:<20}", []
            for n in SIZES:
                for budget in BUDGETS:
                    found = [
                        o for o in results.values()
                        if (o.settings["method"], o.settings["data"], o.settings["n"], o.settings["epsilon"])
                        == (method, data, n, budget)
                    ]  # fmt: skip
                    if not found:
                        line += f"{'–':>16}"
                        continue
                    rows = found[0].rows
                    seconds.append(float(rows["seconds"].median()))
                    mark = "*" if rows["identified"].mean() < 0.5 else ""
                    ratio = float(rows["width"].mean()) / _limits(found[0].settings)["floor"]
                    cell = f"{ratio:.2f} ({100 * rows['coverage'].mean():.0f}){mark}"
                    line += f"{cell:>16}"
            print(line + (f"{np.median(seconds):>9.1f}" if seconds else ""))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "reproduction" / "results")
    main(parser.parse_args().results)
