"""Threads: a few for work on several data sets at once, and a single one for many small factorisations."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numpy.linalg  # noqa: F401
import scipy.linalg  # noqa: F401  their libraries are loaded before they are looked for
from threadpoolctl import ThreadpoolController

MOST, FEW = 8, 2  # the second where Python has most of the work: more threads wait for each other
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def mapped(function: Callable[[_Item], _Result], items: Sequence[_Item], threads: int = MOST) -> list[_Result]:
    """The results of a function for every item, in their order, computed in a few threads; the first error is raised.

    >>> mapped(abs, [1, -2])
    [1, 2]
    """
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(function, items))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep the linear algebra of numpy, scipy and JAX to one thread, inside a `with` or a decorated function.

    Thousands of matrices of some ten rows gain nothing from threads, which wait for each other after each
    of them: on a busy machine that wait made draws of thirty coefficients thirty times slower.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """What numpy and scipy have loaded; looked for once, which takes milliseconds."""
    return ThreadpoolController()
