"""Repro samples: confidence intervals from a noisy statistic by simulation, which cover at every n (Awan & Wang)."""

from pgbb.methods.repro.method import Settings, plan, run

__all__ = ["Settings", "plan", "run"]
