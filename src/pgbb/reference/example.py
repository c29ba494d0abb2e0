"""A small data set for first steps: simulated, so that it is about nobody and may be shown to anybody."""

from typing import TYPE_CHECKING

import numpy as np

from pgbb.model.schema import Flag, Levels, Range, Schema

if TYPE_CHECKING:
    import pandas as pd


def example() -> "tuple[pd.DataFrame, Schema]":
    """5,000 simulated employees, the same in every call, and a schema of what would be public about their columns.

    Log weekly wage, years of schooling and of experience, union membership, region; some cells are missing.

    >>> frame, schema = example()
    >>> frame.shape, list(schema)
    ((5000, 5), ['logwage', 'educ', 'exper', 'union', 'region'])
    """
    import pandas as pd

    rng, n = np.random.default_rng(20), 5000
    educ, exper = rng.integers(8, 19, n), rng.integers(0, 41, n)
    union, region = rng.random(n) < 0.2, rng.choice(["north", "south", "west"], n)
    spread = 0.35 + 0.02 * (educ - 8)
    logwage = 5 + 0.09 * educ + 0.01 * exper + 0.1 * union - 0.1 * (region == "south") + spread * rng.normal(size=n)
    frame = pd.DataFrame({"logwage": logwage.round(3), "educ": educ, "exper": exper, "union": union, "region": region})
    frame.loc[rng.random(n) < 0.01, "logwage"] = np.nan
    places = Levels("north", "south", "west")
    return frame, Schema(logwage=Range(3, 10), educ=Range(8, 18), exper=Range(0, 40), union=Flag(), region=places)
