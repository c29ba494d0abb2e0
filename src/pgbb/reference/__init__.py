"""Non-private references: exact weighted fits, and the comparison of methods. They protect nothing.

A fit here depends on the records without any noise: it serves to judge a private posterior, and must not be published
as one. Only numpy and scipy compute in it. Functions on records take `NonPrivateRecords`.
"""

from pgbb.reference.solvers import Solver, solve, to_original

__all__ = ["Solver", "solve", "to_original"]
