"""Tables that fit the terminal: the fullest version whose names and heads stay whole."""

from collections.abc import Container, Iterable, Iterator
from itertools import groupby

from rich.console import Console
from rich.table import Table

_ENDLESS = 10_000


def plain_table(
    heads: Iterable[str], left: Container[str] = (), rows: Iterable[Iterable[str]] = (), *, no_wrap: bool = False
) -> Table:
    """A table without lines, whose columns hold numbers but for those on the left: these hold words."""
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="left" if head in left else "right", overflow="fold", no_wrap=no_wrap)
    for row in rows:
        table.add_row(*row)
    return table


def grouped(rows: Iterable[tuple[list[str], list[str]]]) -> Iterator[list[str]]:
    """Rows of labels and cells, such that labels are said once, and an empty row stands between their groups.

    >>> list(grouped([(["a"], ["1"]), (["a"], ["2"]), (["b"], ["3"])]))
    [['a', '1'], ['', '2'], [], ['b', '3']]
    """
    for i, (labels, group) in enumerate(groupby(rows, key=lambda row: row[0])):
        if i > 0:
            yield []
        for _, cells in group:
            yield [*labels, *cells]
            labels = [""] * len(labels)


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
        column.no_wrap, column.min_width = column.justify == "right", None
    return table


def number(value: float, digits: int, width: int) -> str:
    """The value with so many significant digits, or with as many as `width` characters hold.

    >>> number(-0.0012345, 4, 9), number(-0.00012345, 4, 9), number(-12345.6, 4, 9)
    ('-0.001234', '-0.000123', '-1.23e+04')
    """
    texts = (f"{value:.{d}g}" for d in range(digits, 0, -1))
    return next((text for text in texts if len(text) <= width), f"{value:.1g}")
