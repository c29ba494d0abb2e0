"""The default method: a local Gaussian posterior from noisy means over all records."""

from pgbb.methods.calibrated.method import Settings, plan, run

__all__ = ["Settings", "plan", "run"]
