"""Fits without privacy that only the studies and benchmarks use; those of the product are in pgbb.reference."""
