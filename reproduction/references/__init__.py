"""Bootstraps and quantile regressions without privacy, which studies, benchmarks and tests compare with."""
