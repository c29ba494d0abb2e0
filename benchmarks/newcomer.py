"""The newcomer's path, timed: from a clone to published pages of one's own files.

    python benchmarks/newcomer.py [REPOSITORY] [--here]

Works in an empty folder, on what is committed: a CSV file; the same with semicolons, decimal commas and Latin-1; a
sheet of Excel; a query of a database; a polars frame. On Linux it then says how many bytes a fit reads of ten times as
large files of each kind. Where R is installed, the first release is then printed by R and
by Python, one below the other. The files are simulated, and the schema, which a person would
fill in with an editor after `pgbb init`, is filled in by this script: that time is not counted. With --here nothing is
cloned or installed: the commands are those of the Python that runs this.
"""

import argparse
import os
import shutil
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
FIT = '--formula "y ~ x" --epsilon 1 --delta 1e-6'
EUROPE = "--separator semicolon --decimal , --encoding latin-1"
SQL = '--sql "SELECT y, x FROM people"'
STEPS = {
    "a CSV file": tuple(command.partition("/pgbb ")[2] for command in COMMANDS[2:]),
    "semicolons, commas and Latin-1": (
        f"init europa.csv {EUROPE} --out europa.toml",
        f"fit europa.csv {EUROPE} --schema europa.toml {FIT} --out europa.pgbb",
        'report europa.pgbb --title "Wages in Köln" --contact office@example.org',
    ),
    "a sheet": (
        "init my.xlsx --out sheet.toml",
        f"fit my.xlsx --schema sheet.toml {FIT} --out sheet.pgbb",
        "report sheet.pgbb",
    ),
    "a query": (
        f"init my.duckdb {SQL} --out query.toml",
        f"fit my.duckdb {SQL} --schema query.toml {FIT} --out query.pgbb",
        "report query.pgbb",
    ),
}
FRAME = """
import polars, pgbb
from pgbb.report import page
frame = polars.read_csv("my.csv")
release = pgbb.fit(pgbb.QuantileRegression("y ~ x", taus=[.1, .3, .5, .7, .9]), frame,
                   schema=pgbb.Schema.from_toml("my.toml"), epsilon=1.0, delta=1e-6, out="frame.pgbb")
open("frame.html", "w", encoding="utf-8").write(page(release, "frame.pgbb"))
"""
IN_R = 'library(pgbb); set.seed(1); r <- pgbb_load("my.pgbb"); print(r); print(summary(r, tau = .5), digits = 4)'
IN_PYTHON = 'import pgbb; r = pgbb.load("my.pgbb"); print(r); print(r.summary(tau=.5).iloc[:, :4].round(4))'
MAKE = """
import duckdb, openpyxl, sys
import pandas as pd
my = pd.read_csv("my.csv")
for name, frame in {"my": my, "large": pd.concat([my] * 10)}.items():
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("people")
    for row in [list(frame), *frame.to_numpy().tolist()]:
        sheet.append(row)
    book.save(name + ".xlsx")
    with duckdb.connect(name + ".duckdb") as base:
        base.execute("CREATE TABLE people AS SELECT * FROM frame")
    frame.to_csv(name + ".tsv.gz", sep="\\t", index=False)
    frame.assign(ort="Köln").to_csv(name + ".europa.csv", sep=";", decimal=",", encoding="latin-1", index=False)
my.sample(400_000, replace=True, random_state=1).to_csv("large.csv", index=False)
"""
ONCE = """
import os, pgbb
schema = pgbb.Schema.from_toml("my.toml")
def fit(name, **how):
    pgbb.fit(pgbb.QuantileRegression("y ~ x"), pgbb.File(name, **how), schema=schema, epsilon=1.0, delta=1e-7)
def read():
    return int(open("/proc/self/io").read().split()[1])
for name, how in {
    "csv": {}, "tsv.gz": {}, "xlsx": {}, "duckdb": {"sql": "SELECT y, x FROM people"},
    "europa.csv": {"separator": ";", "decimal": ",", "encoding": "latin-1"},
}.items():
    fit("my." + name, **how)  # imports and compiles
    before, size = read(), os.path.getsize("large." + name)
    fit("large." + name, **how)
    print(f"{name}: {size:,} bytes, a fit reads {(read() - before) / size:.3f} of them")
"""
RECORDS = 10_000
SCHEMA = "[columns]\ny = { range = [-10, 30] }\nx = { range = [0, 10] }\n"


def own_files(folder, python):
    """What the newcomer already has."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 10, RECORDS)
    rows = np.column_stack([1 + 2 * x + rng.normal(0, 1.5, RECORDS), x])
    np.savetxt(folder / "my.csv", rows, fmt="%.4f", delimiter=",", header="y,x", comments="")
    lines = [";".join(f"{v:.4f}".replace(".", ",") for v in row) + ";Köln" for row in rows]
    (folder / "europa.csv").write_bytes("\n".join(["y;x;ort", *lines]).encode("latin-1"))
    subprocess.run([python, "-c", MAKE], cwd=folder, check=True)


def edit(path):
    """Fill the blanks of the template; it must have a line for each column of the formula."""
    blanks = path.read_text(encoding="utf-8").partition("[columns]\n")[2].splitlines()
    assert [line.split(" ")[0] for line in blanks][:2] == ["y", "x"], blanks
    path.write_text(SCHEMA, encoding="utf-8")


def timed(line, folder, shown=None):
    """Run a line, print its seconds, and give them back."""
    start = time.monotonic()
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    if done.returncode:
        sys.exit(f"failed: {line}\n{done.stdout}{done.stderr}")
    print(f"{seconds:7.1f} s  {shown or line}", flush=True)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", nargs="?", default=str(ROOT), help="what to clone; default this repository")
    parser.add_argument("--here", action="store_true", help="clone and install nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgbb-newcomer-") as name:
        folder = Path(name)
        total = 0.0
        if not options.here:
            total = sum(timed(line.replace("URL", options.repository), folder, line) for line in COMMANDS[:2])
        python = sys.executable if options.here else str(folder / "pgbb/.venv/bin/python")
        own_files(folder, sys.executable)
        for what, commands in STEPS.items():
            print(what)
            for command in commands:
                total += timed(f"{python} -m pgbb {command}", folder, f"pgbb {command}")
                if command.startswith("init"):
                    edit(folder / command.rpartition(" ")[2])
        print("a polars frame")
        (folder / "frame.py").write_text(FRAME, encoding="utf-8")
        if not options.here:
            total += timed(f"{python} -m pip install --quiet polars", folder, "pip install polars")
        total += timed(f"{python} frame.py", folder, "python frame.py")
        pages = sorted(folder.glob("*.html"))
        print(f"{total:7.1f} s  in all; {len(pages)} pages of {min(p.stat().st_size for p in pages):,} bytes and more")
        if Path("/proc/self/io").exists():
            print("what is read", flush=True)
            subprocess.run([python, "-W", "ignore", "-c", ONCE], cwd=folder, check=True)
        beside(folder, python)
    return 0


def beside(folder, python):
    """The first release as R and as Python print it; nothing where R or its package jsonlite is missing."""
    if shutil.which("Rscript") is None:
        return
    library = folder / "library"
    library.mkdir()
    os.environ["R_LIBS_USER"] = str(library)
    print("from R")
    timed(f"R CMD INSTALL --library={library} '{ROOT / 'R' / 'pgbb'}'", folder, "R CMD INSTALL R/pgbb")
    for language, line in {"R": ["Rscript", "-e", IN_R], "Python": [python, "-c", IN_PYTHON]}.items():
        print(f"\n{language}:", flush=True)
        subprocess.run(line, cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())
