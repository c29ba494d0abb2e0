"""Non-private references: exact weighted fits, bootstraps and quantile regression. They protect nothing.

Every result depends on the records without any noise: it serves to judge a
private posterior, and must not be published as one. Only numpy and scipy
compute here. Functions on records take `NonPrivateRecords`.
"""

from pgbb.reference.bootstrap import (
    bayesian_bootstrap,
    blocked_bootstrap,
    draw_partition,
)
from pgbb.reference.quantile import exact_quantile, multiplier_bootstrap, smoothed_quantile
from pgbb.reference.solvers import Solver, gradient, solve, to_original

__all__ = [
    "Solver",
    "bayesian_bootstrap",
    "blocked_bootstrap",
    "draw_partition",
    "exact_quantile",
    "gradient",
    "multiplier_bootstrap",
    "smoothed_quantile",
    "solve",
    "to_original",
]
