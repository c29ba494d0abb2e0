"""NoisyGibbs: a chain that integrates over the records behind one noisy sum of sufficient statistics."""

from pgbb.methods.noisy_gibbs.method import Settings, ask, plan, released, run

__all__ = ["Settings", "ask", "plan", "released", "run"]
