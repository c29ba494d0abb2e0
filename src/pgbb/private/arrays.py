"""From arrays to the frame that a fit reads: features, response and weights under names, cell by cell.

What becomes of a cell depends on that cell and on public declarations alone, and
nothing is refused for a cell's sake: one that is no number, or no declared
class, becomes a missing one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["frame_of"]


def frame_of(
    x: Any,
    names: Sequence[str],
    *,
    y: NDArray[Any],
    response: str,
    classes: Sequence[Any] | None = None,
    weight: NDArray[Any] | None = None,
    weight_name: str = "",
) -> pd.DataFrame:
    """The columns side by side.

    Args:
      x: (n, p) array or frame.
      names: p names for its columns.
      y: (n,) response; with `classes` it becomes 0, 1, or missing for a label that is neither.
      response: its name.
      classes: the two declared labels, the second counting as 1.
      weight, weight_name: (n,) survey weights, and their name.

    >>> frame_of(np.array([[1, "?"]], object).T, ["a"], y=np.array(["no", "si"]), response="b", classes=["no", "yes"])
         a    b
    0  1.0  0.0
    1  NaN  NaN
    """
    frame = (x if isinstance(x, pd.DataFrame) else pd.DataFrame(x)).set_axis(list(names), axis=1).reset_index(drop=True)
    columns = {name: _numbers(frame[name]) for name in names}
    columns[response] = _numbers(pd.Series(y)) if classes is None else _labels(y, classes)
    if weight is not None:
        columns[weight_name] = _numbers(pd.Series(weight))
    return pd.DataFrame(columns)


def _numbers(column: "pd.Series[Any]") -> Any:
    """A column of objects as numbers; any other dtype stays, for the fit to accept or refuse by its name."""
    if column.dtype != object:
        return column
    return np.array([_number(cell) for cell in column], dtype=np.float64)


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _labels(y: NDArray[Any], classes: Sequence[Any]) -> NDArray[np.float64]:
    place = {label: float(i) for i, label in enumerate(classes)}

    def code(cell: Any) -> float:
        try:
            return place.get(cell, np.nan)
        except TypeError:  # what cannot be hashed is no label
            return np.nan

    return np.array([code(cell) for cell in y.tolist()], dtype=np.float64)
