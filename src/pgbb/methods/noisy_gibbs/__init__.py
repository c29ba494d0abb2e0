"""NoisyGibbs: a chain that integrates over the records behind one noisy sum of sufficient statistics."""

from pgbb.methods.noisy_gibbs.method import plan, run
from pgbb.methods.noisy_gibbs.settings import Settings

__all__ = ["Settings", "plan", "run"]
