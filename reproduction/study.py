"""What a study is: cells with settings, a function that runs a replicate, and one that judges the results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from reproduction.judge import Line

__all__ = ["Cells", "Outcome", "Quick", "Results", "Row", "Run", "Settings", "Study", "Table", "cell_name", "each"]

Settings = dict[str, Any]
Row = dict[str, Any]
Cells = dict[str, Settings]
Run = Callable[[Mapping[str, Any], Sequence[int]], list[list[Row]]]


@dataclass(frozen=True)
class Outcome:
    """What is known of one cell.

    Args:
      settings: of the cell.
      rows: one or more a replicate, with columns `replicate`, `seconds`, `device` and those of the study.
      provenance: settings, revisions, versions, commit, seeds and durations, as they are in the file.
    """

    settings: Settings
    rows: pd.DataFrame
    provenance: dict[str, Any] = field(default_factory=dict)


Results = dict[str, Outcome]


@dataclass(frozen=True)
class Table:
    """Lines under one title, with what the reader must know to judge them."""

    title: str
    lines: list[Line]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quick:
    """The short version of a study: fewer cells, smaller settings, few replicates."""

    cells: Callable[[], Cells]
    replicates: int


@dataclass(frozen=True)
class Study:
    """An experiment of the paper.

    Args:
      name: as in `python -m reproduction run NAME`; also the module and the folder of the results.
      labels: of the tables and figures in the paper.
      title: one line for a person.
      cells: names and settings; settings are plain JSON. A cell with the setting "once" has one replicate.
      replicates: of the full version; seeds are 0 … replicates − 1, for data and for noise.
      run: replicates of a cell: (settings, seeds) -> the rows of each. One at a time on a CPU, several side by side
        on a GPU; a replicate depends on its settings and seed alone.
      quick: the short version.
      tables: results, and a way to the results of another study, -> tables with verdicts.
      data: files it needs in the folder named by PGBB_DATA.
      judges: studies whose results it judges, where it has no cells of its own.
      revision: raised by hand when a change of the study moves its figures (see provenance.py).
    """

    name: str
    labels: tuple[str, ...]
    title: str
    cells: Callable[[], Cells]
    replicates: int
    run: Run
    quick: Quick
    tables: Callable[[Results, Callable[[str], Results]], list[Table]]
    data: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    revision: int = 1


def each(one: Callable[[Mapping[str, Any], int], list[Row]]) -> Run:
    """The `run` of a study whose replicates gain nothing side by side: one after another."""
    return lambda settings, seeds: [one(settings, seed) for seed in seeds]


def cell_name(**parts: Any) -> str:
    """The name of a cell from what distinguishes it.

    >>> cell_name(method="sgld", noise="student_t", n=10_000, epsilon=1.0)
    'sgld-student_t-n10000-eps1'
    """
    short = {"epsilon": "eps", "blocks": "S", "year": ""}
    named = {"n", "epsilon", "blocks", "K", "gamma"}
    found = []
    for key, value in parts.items():
        text = f"{value:g}" if isinstance(value, float) else str(value)
        found.append(short.get(key, key) + text if key in named else text)
    return "-".join(found)
