"""Encoded records and clamped columns as tests look at them: nothing is asked of them. No test lives here."""

import numpy as np

from pgbb.private import records
from pgbb.private.records import Columns, NoRecords, Records
from pgbb.private.row_layout import empty_rows


def records_of(x, y, weight, valid):
    """Records of these arrays, (n, p) and (n,)."""
    rows = empty_rows(*x.shape)
    rows[:, :-2], rows[:, -2], rows[:, -1] = x, y, weight
    return Records(rows, valid)


def load(source, design, schema, weights=None, persons=None):
    """The records of a source for a design."""
    return records.encoded(source, schema, records.of_design(design, schema, weights), persons)


def load_columns(source, schema, names):
    """The named columns, clamped, with the mask of usable records."""
    opened = records._typed(source, schema, names)
    parts = [records._clamped(piece, schema, names) for piece in opened.pieces(list(names), schema)]
    if not sum(part.n for part in parts):
        raise NoRecords(records._NOTHING)
    values = {name: np.concatenate([part.values[name] for part in parts]) for name in names}
    return Columns(values, np.concatenate([part.valid for part in parts]))
