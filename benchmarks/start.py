"""Processor time of `pgbb fit` on a small file from the shell, when no compiled code is kept and when it is.

    python benchmarks/start.py

Seconds of the processor, user and system, of the whole command; the least of three. Beside it, what imports take:
`pgbb`, which loads nothing until it is used, libraries that a fit needs, and the command with JAX.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pgbb

FITS = {
    "quantile, three levels": ["--formula", "logwage ~ educ + exper", "--taus", ".1,.5,.9"],
    "logistic": ["--formula", "union ~ educ + exper", "--family", "logistic"],
    "mean": ["--family", "mean", "--column", "logwage"],
}


def spent(command: list[str], folder: Path) -> float:
    def used() -> float:
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        return now.ru_utime + now.ru_stime

    begin = used()
    kept = {k: v for k, v in os.environ.items() if k == "JAX_PLATFORMS" or not k.startswith("JAX_")} | {
        "XDG_CACHE_HOME": str(folder)
    }
    subprocess.run([sys.executable, *command], check=True, capture_output=True, env=kept)
    return used() - begin


def main() -> None:
    frame, schema = pgbb.example()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame.to_csv(folder / "d.csv", index=False)
        (folder / "s.toml").write_text(schema.to_toml())
        for name in ("pgbb", "pandas", "scipy.special", "jax", "pgbb.cli.fit, jax"):
            print(f"import {name}: {min(spent(['-c', f'import {name}'], folder) for _ in range(3)):.2f} s", flush=True)
        files = ["-m", "pgbb", "fit", str(folder / "d.csv"), "--schema", str(folder / "s.toml"), "--quiet"]
        for fit, options in FITS.items():
            times: dict[str, list[float]] = {"cold": [], "warm": []}
            for turn in range(3):
                for kind, found in times.items():
                    out = ["--out", str(folder / f"{fit[:4]}{turn}{kind}.pgbb")]
                    budget = ["--epsilon", "1", "--delta", "1e-7"]
                    found.append(spent([*files, *options, *budget, *out], folder / f"{fit[:4]}{turn}"))
            print(f"pgbb fit, {fit}: cold {min(times['cold']):.2f} s, warm {min(times['warm']):.2f} s", flush=True)


if __name__ == "__main__":
    main()
