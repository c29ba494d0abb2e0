"""Which privacy curves are set beside each other: one public quantity of a mechanism is varied at a time."""

from dataclasses import replace

from pgbb.accountant import Mechanism

__all__ = ["PANELS", "curves"]

PANELS = {
    "n": "(a) sample size n",
    "S": "(b) block count S",
    "sigma": "(c) noise scale σ",
    "J": "(d) truncation order J",
}


def curves(panel: str, base: Mechanism, sigma: float) -> list[tuple[float, Mechanism, float, int]]:
    """The curves of a panel around a base: (varied value, mechanism, σ, J)."""
    if panel == "n":
        gamma = None if base.blocks > 2 else base.gamma
        sizes = [n for n in (base.n // 2, base.n, 2 * base.n) if n >= base.blocks]
        return [(n, replace(base, n=n, gamma=gamma), sigma, 32) for n in sizes]
    if panel == "S":
        counts = [s for s in sorted({5, 10, 20, 50, base.blocks} - {1, 2, 3, 4}) if s <= base.n]
        return [(s, replace(base, blocks=s, gamma=None), sigma, 32) for s in counts]
    if panel == "sigma":
        return [(factor * sigma, base, factor * sigma, 32) for factor in (0.8, 1.0, 1.25, 1.6)]
    return [(j, base, sigma, j) for j in (1, 2, 4, 8, 32)]
