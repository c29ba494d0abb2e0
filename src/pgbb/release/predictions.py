"""Covariates of a prediction, as the rows of a design: public values that a reader chooses, never records."""

import warnings
from collections.abc import Hashable, Mapping
from datetime import date

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pgbb import _validate
from pgbb._numerics import Floats
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.model.schema import Date, Flag, Levels, Range, Schema, decimal_year
from pgbb.release.payloads import ModelSummary


def design_at(
    model: ModelSummary, schema: Mapping[str, object], at: pd.DataFrame | Mapping[str, ArrayLike]
) -> tuple[Floats, list[Hashable]]:
    """(rows, d): the terms in original units, and 0 for a coefficient that is no term, such as a scale."""
    if model.formula is None:
        raise InvalidValue(f"predict is not allowed: this {model.kind} model has no formula. Use summary().")
    from pgbb.model.formula import Design

    declared = Schema.from_dict(schema)
    terms = Design.parse(model.formula, declared).terms
    if not isinstance(at, Mapping | pd.DataFrame):
        raise _validate.fail("at", type(at).__name__, "a data frame, or a dict from column to value")
    try:
        frame = at if isinstance(at, pd.DataFrame) else pd.DataFrame({k: np.atleast_1d(v) for k, v in at.items()})
    except ValueError:
        raise _validate.fail("at", dict(at), "columns of one length") from None
    if not len(frame):
        raise _validate.fail("at", "an empty frame", "a frame of at least one row")
    needed = sorted({factor.column for term in terms for factor in term.factors})
    missing = [c for c in needed if c not in frame.columns]
    if missing:
        raise InvalidValue(
            f"predict needs a value for each column of the formula, and {', '.join(missing)} has none. Name all of "
            f"{', '.join(needed)}: in Python a dict or a frame, in a shell {needed[0]}=VALUE and so on."
        )
    columns = {c: _coded(c, declared[c], frame[c]) for c in needed} or {"": np.zeros(len(frame))}
    design = np.zeros((len(frame), model.dim))
    for term in terms:
        design[:, model.names.index(term.name)] = term.evaluate(columns)
    return design, list(frame.index)


def exposure_at(model: ModelSummary, at: pd.DataFrame | Mapping[str, ArrayLike]) -> Floats | float:
    """The exposure of each row, where a model of rates has one and it is given; else 1: a rate is predicted."""
    name = model.settings.get("exposure")
    if name is None or name not in at:
        return 1.0
    try:
        values = np.atleast_1d(np.asarray(at[name], dtype=np.float64))
    except (TypeError, ValueError):
        raise _validate.fail(name, "text", "positive numbers") from None
    if not (np.isfinite(values) & (values > 0)).all():
        raise _validate.fail(name, "a number that is not positive", "positive numbers")
    return values


def _coded(name: str, declared: Range | Flag | Levels, values: pd.Series) -> NDArray[np.float64]:
    """A column as `Term.evaluate` takes it: numbers, or codes of declared levels."""
    if isinstance(declared, Levels):
        codes = {str(level): code for code, level in enumerate(declared.levels)}
        if declared.missing is not None:
            values = values.astype(object).where(values.notna(), declared.missing)
        texts = [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in values]
        unknown = [v for v, text in zip(values, texts, strict=True) if text not in codes]
        if unknown:
            raise _validate.fail(name, unknown[0], "one of the declared levels " + ", ".join(codes))
        return np.array([codes[text] for text in texts])
    allowed = "a column of numbers"
    try:
        if isinstance(declared, Flag) and declared.words is not None:
            allowed += f", or of the words {declared.no} and {declared.yes}"
            values = values.replace({declared.no: 0, declared.yes: 1})
        if isinstance(declared, Date):
            allowed += " (years), or of days such as 2000-12-31"
            values = values.map(
                lambda day: decimal_year(pd.Timestamp(day).date()) if isinstance(day, str | date) else day
            )
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise _validate.fail(name, "text", allowed) from None
    if not np.isfinite(numbers).all():
        raise _validate.fail(name, "NaN or inf", "a column of finite numbers")
    low, high = declared.bounds
    if ((numbers < low) | (numbers > high)).any():
        warnings.warn(
            f"column {name!r} leaves its declared range [{low:g}, {high:g}]: the prediction extrapolates.",
            PgbbWarning,
            stacklevel=4,
        )
    return numbers
