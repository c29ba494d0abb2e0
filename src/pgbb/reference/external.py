"""Fits by other programs, to compare with: statsmodels. Nothing here is private."""

import warnings

import numpy as np
from numpy.typing import ArrayLike

from pgbb import _validate
from pgbb._numerics.newton import Floats
from pgbb.errors import PgbbError
from pgbb.reference.solvers import as_sample

__all__ = ["statsmodels_quantile"]

ITERATIONS = 10_000


def statsmodels_quantile(x: ArrayLike, y: ArrayLike, tau: float) -> Floats:
    """Quantile regression by `statsmodels.QuantReg`, iterated to a change of 1e-8: (p,). The paper's census reference.

    It minimises the check loss approximately, by reweighting; `exact_quantile`
    does so exactly, and the two agree to about 1e-4. Needs the extra `statsmodels`.

    Args:
      x: (n, p); add a column of ones for an intercept.
      y: (n,).
      tau: τ in (0, 1).

    >>> statsmodels_quantile(np.ones((5, 1)), [0.0, 1.0, 2.0, 3.0, 10.0], tau=0.5).round(4)
    array([2.])
    """
    sample, tau = as_sample(x, y), _validate.number("tau", tau, above=0, below=1)
    try:
        from statsmodels.regression.quantile_regression import QuantReg
        from statsmodels.tools.sm_exceptions import IterationLimitWarning
    except ImportError:
        raise PgbbError(
            "statsmodels_quantile needs statsmodels, which is not installed: pip install 'pgbb[statsmodels]'. "
            "exact_quantile needs scipy alone."
        ) from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = QuantReg(sample.y, sample.x).fit(q=tau, max_iter=ITERATIONS, p_tol=1e-8)
    if any(issubclass(w.category, IterationLimitWarning) for w in caught):
        raise PgbbError(
            f"statsmodels did not settle at tau = {tau:g} in {ITERATIONS:,} iterations. Use exact_quantile."
        )
    return np.asarray(fitted.params, dtype=np.float64)
