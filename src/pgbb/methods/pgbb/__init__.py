"""The Private Generative Bayesian Bootstrap: Algorithms 1 and 2 of the paper."""

from pgbb.methods.pgbb.method import Settings, plan, run, run_many

__all__ = ["Settings", "plan", "run", "run_many"]
