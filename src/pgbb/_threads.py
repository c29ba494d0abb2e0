"""One thread for many small factorisations: what lives here is that setting, and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

__all__ = ["one_blas_thread"]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep the linear algebra of numpy, scipy and JAX to one thread, inside a `with` or a decorated function.

    Thousands of matrices of some ten rows gain nothing from threads, which wait for each other after each
    of them: on a busy machine that wait made draws of thirty coefficients thirty times slower.
    """
    with threadpool_limits(1, user_api="blas"):
        yield
