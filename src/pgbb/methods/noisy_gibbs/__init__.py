"""NoisyGibbs: a chain that integrates over the records behind one noisy sum of sufficient statistics."""

from pgbb.methods.noisy_gibbs.method import Asked, ask, plan, run
from pgbb.methods.noisy_gibbs.settings import Settings

__all__ = ["Asked", "Settings", "ask", "plan", "run"]
