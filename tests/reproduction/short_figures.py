"""Figures of the short version of every study, kept in short_figures.json: whether a change of the code moves them.

A change that moves them by more than other random numbers would raises a revision, of the method
(reproduction/provenance.py) or of the study: results of the former revision are stale from then on. Then, or where only
the random numbers are others, the file is written anew: `python -m tests.reproduction.short_figures`.
"""

import json
import sys
import tempfile
from pathlib import Path

import pytest

from reproduction import provenance, registry, runner, store

FILE = Path(__file__).with_suffix(".json")
APART = ("replicate", "seconds", "tau", "mae", "coverage", "ess", "lower", "upper")
"""No figures, or ones that the last bit of a processor can move by more than `TOLERANCE`."""
TOLERANCE = {"calibrated": 0.1}  # it decides by thresholds, which the last bit of a processor can cross; others: 0.01
ADVICE = (
    "If the random numbers are not merely others, raise the revision of the method in reproduction/provenance.py, or "
    "of the study. Then run python -m tests.reproduction.short_figures"
)


def figures(outcome):
    """Mean of each column over the rows of the first replicate."""
    rows = outcome.rows[outcome.rows["replicate"] == 0]
    numbers = rows.select_dtypes(["number", "bool"]).drop(columns=list(APART), errors="ignore")
    return {str(k): float(f"{v:.6g}") for k, v in numbers.mean().items() if v == v}


def entry(study, outcome):
    return {"revision": provenance.revision(study, outcome.settings), "figures": figures(outcome)}


def moved(study, results):
    """What differs from the file, a line a cell, with what to do."""
    known, found = json.loads(FILE.read_text(encoding="utf-8"))[study.name], []
    for cell, outcome in results.items():
        here, there = entry(study, outcome), known[cell]
        if here["revision"] != there["revision"]:
            found.append(f"{cell}: a revision was raised; run python -m tests.reproduction.short_figures {study.name}")
            continue
        pairs = {k: (v, there["figures"].get(k)) for k, v in here["figures"].items()}
        near = TOLERANCE.get(outcome.settings.get("method"), 0.01)
        changed = [k for k, (v, w) in pairs.items() if v != pytest.approx(w, rel=near, abs=1e-6)]
        if changed or set(pairs) != set(there["figures"]):
            found.append(f"{cell}: {', '.join(changed) or 'columns'} moved. {ADVICE} {study.name}")
    return found


def main(names):
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names or [n for n in registry.NAMES if not registry.get(n).judges]:
            runner.run(name, quick=True, out=folder)
            results = store.load_all(Path(folder) / "quick", name)
            known[name] = {cell: entry(registry.get(name), outcome) for cell, outcome in results.items()}
    FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
