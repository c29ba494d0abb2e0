"""Seconds and memory of a fit, by a model whose coefficients `make bench` measures and writes to costs.json.

    seconds = answers·(answer + rows·(p + 2)·cell)

An answer of the default method reads all n records, one of the printed algorithms q·n; p + 2 is how many numbers a
record has in memory. Reading a Parquet file and compiling come on top. On settings that it was not fitted to, the
model is wrong by up to the factor `worst` of costs.json (docs/benchmarks.md has them).
"""

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from pgbb.private.door import EXTRA


@lru_cache(maxsize=1)
def coefficients() -> dict[str, Any]:
    """The measured coefficients, with the machine in words."""
    found: dict[str, Any] = json.loads((files("pgbb.planning") / "costs.json").read_text(encoding="utf-8"))
    return found


def seconds(method: str, answers: int, rows: float, terms: int, given: dict[str, Any] | None = None) -> float:
    """Run time of a method that gives so many answers of so many records each, compiling and reading apart."""
    c = (coefficients() if given is None else given)[method]
    return float(answers * (c["answer"] + rows * (terms + EXTRA) * c["cell"]))


def load_seconds(n: int, terms: int) -> float:
    """Time to read a Parquet file."""
    return float(n * (terms + EXTRA) * coefficients()["load"])


def memory(n: int, terms: int) -> float:
    """Peak of a process that fits, in bytes: the records once, and what does not grow with them."""
    return float(n * ((terms + EXTRA) * 4 + 1) + coefficients()["fixed_memory"])
