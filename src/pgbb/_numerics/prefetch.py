"""Items that a thread makes one ahead of their use: reading while computing."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")


def ahead(items: Iterable[_Item]) -> Iterator[_Item]:
    """The items, each made by a thread while the one before it is used; `numpy.errstate` of the caller holds there.

    >>> list(ahead(range(3)))
    [0, 1, 2]
    """
    left, context = iter(items), copy_context()

    def following() -> list[_Item]:
        return list(islice(left, 1))

    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(context.run, following)
        while found := coming.result():
            coming = thread.submit(context.run, following)
            yield found.pop()
