"""The ways to private uncertainty, behind `pgbb.fit(…, method=…)`.

A method is a module with a frozen `Settings` and `run(request, settings) → Release`; what it serves and assumes is
declared in `pgbb.methods.registry`. Records are read by `pgbb.private` alone.
"""

from pgbb.methods.registry import METHODS, Method

__all__ = ["METHODS", "Method"]
