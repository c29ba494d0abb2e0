"""How far two sets of draws lie apart, coefficient by coefficient."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.errors import InvalidValue


def wasserstein(draws: pd.DataFrame, others: pd.DataFrame, order: float = 1.0) -> pd.Series:
    """The Wasserstein distance of this order between the marginal laws of each coefficient, in its units.

    Args:
      draws, others: one row a draw, as `Release.sample` gives them; the same columns, any numbers of rows.
      order: p ≥ 1 of (∫ |F⁻¹ − G⁻¹|^p)^(1/p).

    >>> wasserstein(pd.DataFrame({"x": [0.0, 1.0]}), pd.DataFrame({"x": [3.0, 3.0, 4.0, 4.0]})).tolist()
    [3.0]
    """
    order = _validate.number("order", order, low=1)
    if list(draws.columns) != list(others.columns):
        raise InvalidValue(
            f"draws of {list(draws.columns)} and of {list(others.columns)} are not allowed: give the same columns."
        )
    for name, frame in (("draws", draws), ("others", others)):
        if not len(frame) or not np.isfinite(frame.to_numpy(dtype=float)).all():
            raise InvalidValue(f"{name} of {len(frame)} rows is not allowed: it must have rows, of finite numbers.")
    found = {c: _distance(draws[c].to_numpy(float), others[c].to_numpy(float), order) for c in draws.columns}
    return pd.Series(found, name=f"W{order:g}", dtype=float)


def _distance(a: NDArray[np.float64], b: NDArray[np.float64], order: float) -> float:
    """Between empirical laws, whose quantile functions are constant between the levels i/m and j/n."""
    m, n = len(a), len(b)
    levels = np.unique(np.concatenate([np.arange(m + 1) * n, np.arange(n + 1) * m]))  # times m·n: whole numbers
    gaps, left = np.diff(levels) / (m * n), levels[:-1]
    apart = np.abs(np.sort(a)[left // n] - np.sort(b)[left // m])
    return float(np.sum(gaps * apart**order) ** (1 / order))
