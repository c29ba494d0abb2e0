"""Mechanisms of the design's table, for the tests of every accountant."""

from pgbb.accountant import Mechanism

DESIGN = [  # n, S, γ, q, T·K, ε, δ, σ·n_S/C at J = 32
    (10_000, 20, None, 0.1, 10_000, 1.0, 1e-4, 5.022),
    (40_000, 5, None, 0.1, 10_000, 2.0, 2.5e-5, 11.751),
    (5_000, 20, 1.0, 0.2, 2_000, 4.0, 2e-4, 1.4886),
]


def mechanism(n=10_000, blocks=20, gamma=None, q=0.1, steps=1, clip=1.0, alpha=0.0):
    return Mechanism(n=n, blocks=blocks, gamma=gamma, sampling_rate=q, steps=steps, clip=clip, alpha=alpha)
