"""Tables that fit the terminal: the fullest version whose names and heads stay whole."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

__all__ = ["fitting"]

_ENDLESS = 10_000


def fitting(console: Console, versions: Iterable[Table]) -> Table:
    """The first version that is no wider than the console; else the last, whose names are folded.

    >>> wide, narrow = Table("coefficient", "sampling", box=None), Table("coefficient", box=None)
    >>> fitting(Console(width=15), [wide, narrow]) is narrow
    True
    """
    for table in versions:
        needed = console.measure(table, options=console.options.update(width=_ENDLESS)).maximum
        if needed <= console.width:
            return table
    for column in table.columns:
        column.no_wrap = column.justify == "right"
    return table
