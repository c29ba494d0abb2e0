"""Makes the columns that a fit reads from the arrays of a scikit-learn user: features, response and weights by name.

Shapes and stored types are public, and are all that is looked at. Lists have no
stored type: each cell stays the object it is. What becomes of a cell is decided in `cells`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from pgbb.errors import InvalidValue
from pgbb.private.cells import labels, numpy_kind
from pgbb.private.sources import column


@dataclass(frozen=True, eq=False)
class Table:
    """Features as they were passed: n, their names where they have some, and one column each. Shows no cell."""

    n: int
    names: list[Any] | None
    columns: list[Any]

    def stub(self) -> Any:
        """Zeros of the same shape and under the same names, for checks that would otherwise see cells."""
        zeros = np.broadcast_to(np.zeros(1), (self.n, len(self.columns)))
        return zeros if self.names is None else pd.DataFrame(zeros, columns=self.names)

    def __repr__(self) -> str:
        return f"Table(n={self.n}, p={len(self.columns)})"


def table(x: Any, features: int | None = None) -> Table:
    """The features of an array, a frame or a list of rows.

    Args:
      x: (n, p). A row of a list that has not p cells has none that can be read.
      features: p, where it is declared; a list needs it, since its rows may have any length.
    """
    if isinstance(x, pd.DataFrame):
        return Table(len(x), list(x.columns), [x.iloc[:, i] for i in range(x.shape[1])])
    if isinstance(x, list | tuple):
        return _of_rows(x, features)
    if hasattr(x, "__arrow_c_stream__"):
        held = pa.table(x)
        return Table(len(held), list(held.column_names), list(held.columns))
    array = _array("X", x)
    if array.ndim != 2:
        raise InvalidValue(
            f"Expected 2D array, got {array.ndim}D array instead: X has shape {array.shape}, it must be (n, p). "
            "Reshape your data either using array.reshape(-1, 1) if your data has a single feature or "
            "array.reshape(1, -1) if it contains a single sample."
        )
    return Table(len(array), None, [array[:, i] for i in range(array.shape[1])])


def _of_rows(rows: "list[Any] | tuple[Any, ...]", features: int | None) -> Table:
    if features is None:
        raise InvalidValue(
            f"X is a {type(rows).__name__}, whose rows may have any length: one record could decide how many features "
            "there are. Declare a range for each of the p features, feature_range=[(low, high)] * p, or pass an array "
            "(n, p) or a frame."
        )
    known = [_row(row) for row in rows]
    void = [None] * features
    whole = [row if row is not None and len(row) == features else void for row in known]
    return Table(len(rows), None, [[row[i] for row in whole] for i in range(features)])


def _row(row: Any) -> "list[Any] | tuple[Any, ...] | NDArray[Any] | None":
    """The row, not copied, as it may be endless; None if it is no row. Only its type is looked at, by no code of it."""
    kind = type(row)
    return row if kind is list or kind is tuple or (kind is np.ndarray and row.ndim == 1) else None


def _alone(cell: Any) -> Any:
    """The only cell of a row of length 1."""
    row = _row(cell)
    return row[0] if row is not None and len(row) == 1 else cell


def single(name: str, given: Any) -> tuple[int, bool, Any]:
    """Length of a response or of weights, whether it is one column of a table, and the column."""
    if isinstance(given, list | tuple):
        return len(given), False, [_alone(cell) for cell in given]
    if isinstance(given, pd.DataFrame) or (hasattr(given, "__arrow_c_stream__") and hasattr(given, "columns")):
        held = table(given)
        if len(held.columns) != 1:
            raise _not_one(name, (held.n, len(held.columns)))
        return held.n, True, held.columns[0]
    known = column(given)
    if known is not None:
        return known[0], False, given
    array = _array(name, given)
    if array.ndim == 2 and array.shape[1] == 1:
        return len(array), True, array[:, 0]
    if array.ndim != 1:
        raise _not_one(name, array.shape)
    return len(array), False, array


def _not_one(name: str, shape: tuple[int, ...]) -> InvalidValue:
    return InvalidValue(f"{name} should be a 1d array, got an array of shape {shape} instead. Pass one cell a record.")


def _array(name: str, given: Any) -> NDArray[Any]:
    """An array of numbers, text or objects; anything else is refused by its type."""
    if not isinstance(given, np.ndarray) and not hasattr(given, "__array__"):
        raise InvalidValue(
            f"{name} is a {type(given).__name__}, it must be an array, a frame or a list. Convert it first."
        )
    array = given if isinstance(given, np.ma.MaskedArray) else np.asarray(given)
    if array.dtype.kind == "c":
        raise InvalidValue(f"Complex data not supported: {name} has dtype {array.dtype}. Pass its real part.")
    if array.dtype.names is not None or not numpy_kind(array.dtype).levels:
        raise InvalidValue(f"{name} has dtype {array.dtype}, it must hold numbers. Convert it first.")
    return array


def columns_of(
    x: Table,
    names: Sequence[str],
    *,
    y: Any,
    response: str,
    classes: Sequence[Any] | None = None,
    weight: Any = None,
    weight_name: str = "",
) -> dict[str, Any]:
    """The columns side by side, for `fit`.

    Args:
      x: the features.
      names: p names for its columns.
      y: (n,) response; with `classes` it becomes 0, 1, or missing for a label that is neither.
      response: its name.
      classes: the two declared labels, the second counting as 1. A cell is matched by its text, or by its value where
        it is a number: 1, 1.0, True, "1" and b"1" are one label.
      weight, weight_name: (n,) survey weights, and their name.

    >>> found = columns_of(table([[1], ["?"]], 1), ["a"], y=["no", "si"], response="b", classes=["no", "yes"])
    >>> found["a"], found["b"].tolist()
    ([1, '?'], [0.0, nan])
    """
    columns = dict(zip(names, x.columns, strict=True))
    columns[response] = y if classes is None else _coded(y, classes)
    if weight is not None:
        columns[weight_name] = weight
    return columns


def _coded(y: Any, classes: Sequence[Any]) -> NDArray[np.float64]:
    known = column(y)
    if known is None or not known[1].levels:
        raise InvalidValue(f"y is a {type(y).__name__} that cannot hold labels. Pass a list or an array of them.")
    return labels(known[2](slice(0, known[0])), classes)
