"""Seconds and memory of a fit, by a model whose few coefficients `make bench` measures and writes to costs.json.

    default method   answers·answer + n·(answers·(p + 2)·read + numbers·number)
    paper            steps·(step + K·(draw + q·n·(record + (p + 2)·cell)))
    either           n·(p + 2)·load to read a Parquet file, and compile

where `numbers` is how many numbers all answers of the default method have, and p + 2 how many a record has in memory.
Right to a factor of two on the machine it was measured on, when that has nothing else to do.
"""

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from pgbb.methods.calibrated.plan import Stage
from pgbb.private.door import EXTRA

__all__ = ["calibrated_seconds", "coefficients", "load_seconds", "memory", "numbers", "paper_seconds"]

BINS = 64  # of the histogram of residuals, as in `calibration.statistics`


@lru_cache(maxsize=1)
def coefficients() -> dict[str, Any]:
    """The measured coefficients, with the machine in words."""
    found: dict[str, Any] = json.loads((files("pgbb.planning") / "costs.json").read_text(encoding="utf-8"))
    return found


def numbers(kind: str, stages: tuple[Stage, ...], terms: int, levels: int) -> int:
    """How many numbers all answers of the default method have.

    >>> from pgbb.methods.calibrated.plan import Stage
    >>> numbers("mean", (Stage("range", 1, 0.5, ""), Stage("final", 1, 0.5, "")), 1, 1)
    3
    """
    d = terms + (kind == "huber")
    pairs = d * (d + 1) // 2
    each = {
        "moments": terms * (terms + 1) // 2,
        "median": (terms + 1) / 2,
        "residuals": BINS,
        "levels": (levels + 1) * terms,
        "density": 2 * levels,
        "curvature": pairs * (levels if kind == "quantile" else 1),
        "spread": pairs,
        "locate": (terms + pairs) / 2,
        "refine": (levels + 1) * terms if kind == "quantile" else d,
        "final": (levels + 1) * terms if kind == "quantile" else d,
        "range": 2,
    }
    return round(sum(stage.asks * each[stage.name] for stage in stages))


def calibrated_seconds(
    kind: str, stages: tuple[Stage, ...], n: int, terms: int, levels: int, given: dict[str, float] | None = None
) -> float:
    """Run time of the default method, compiling and reading apart."""
    c = coefficients()["calibrated"] if given is None else given
    answers = sum(stage.asks for stage in stages)
    work = answers * (terms + EXTRA) * c["read"] + numbers(kind, stages, terms, levels) * c["number"]
    return float(answers * c["answer"] + n * work)


def paper_seconds(
    n: int, rate: float, steps: int, draws: int, terms: int, given: dict[str, float] | None = None
) -> float:
    """Run time of the printed method, compiling and reading apart."""
    c = coefficients()["paper"] if given is None else given
    batch = n * rate * (c["record"] + (terms + EXTRA) * c["cell"])
    return float(steps * (c["step"] + draws * (c["draw"] + batch)))


def load_seconds(n: int, terms: int) -> float:
    """Time to read a Parquet file."""
    return float(n * (terms + EXTRA) * coefficients()["load"])


def memory(n: int, terms: int) -> float:
    """Peak of a process that fits, in bytes: the records once, and what does not grow with them."""
    return float(n * ((terms + EXTRA) * 4 + 1) + coefficients()["fixed_memory"])
