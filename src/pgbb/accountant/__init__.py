"""What T·K noisy block-weighted answers cost, and how little noise meets a target (ε, δ).

Pure numpy and scipy, no data, no JAX. Start with `Mechanism` (or `Resampling`, `PosteriorDraws`), then ask
`epsilon`, `delta`, `epsilon_bounds` or `noise_scale`. Proofs: docs/privacy.md.
"""

from pgbb.accountant.calibrate import ACCOUNTANTS, Own, Target, delta, epsilon, epsilon_bounds, noise_scale
from pgbb.accountant.description import Composition, Mechanism, compose, gamma_star
from pgbb.accountant.filters import Charge, Filter
from pgbb.accountant.gaussian import gaussian_noise_scale, gdp_delta, gdp_epsilon, gdp_mu
from pgbb.accountant.paper import Expansion, log_moments
from pgbb.accountant.resampling import Resampling
from pgbb.accountant.sampling import PosteriorDraws
from pgbb.accountant.theory import gamma_tilde, leading_order, noise_floor, training_bound

__all__ = [
    "ACCOUNTANTS", "Charge", "Composition", "Expansion", "Filter", "Mechanism", "Own", "PosteriorDraws",
    "Resampling", "Target", "compose", "delta", "epsilon", "epsilon_bounds", "gamma_star", "gamma_tilde",
    "gaussian_noise_scale", "gdp_delta", "gdp_epsilon", "gdp_mu", "leading_order", "log_moments", "noise_floor",
    "noise_scale", "training_bound",
]  # fmt: skip
