"""Names of methods and of their settings, with types: what an editor completes and a type checker sees of `pgbb.fit`.

`Settings` has the fields of all methods; which of them a method has, and what they mean, its own `Settings` says.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict

__all__ = ["AccountantName", "MethodName", "Settings"]

MethodName: TypeAlias = (
    Literal[
        "calibrated",
        "pgbb",
        "sgld",
        "noisy_gibbs",
        "dp_bootstrap",
        "posterior_sampling",
        "dp_mcmc",
        "augmented",
        "abc",
        "repro",
    ]
    | str
)
AccountantName: TypeAlias = Literal["exact", "paper", "worst-case"] | str


class Settings(TypedDict, total=False):
    """Settings of methods, by name; None means the default."""

    alpha: float | None
    average_from: float | None
    beta: float | None
    blocks: int | None
    burn_in: float | None
    calibration: Literal["proved", "asymptotic"] | None
    candidates: int | None
    clip: float | None
    coefficient_precision: float | None
    dither: float | None
    draws: int | None
    draws_per_step: int | None
    gamma: float | None
    intervals: Literal["noise-aware", "printed"] | None
    interval_error: float | None
    iterate: Literal["average", "last"] | None
    iterations: int | None
    keep_transcript: bool | None
    knots: int | None
    learning_rate: float | None
    loss: Literal["gibbs", "beta"] | None
    mean_variance: float | None
    nested: float | None
    network: Literal["smooth", "printed"] | None
    noise: Literal["analytic", "classical"] | float | None
    operator_norm: float | None
    penalty: float | None
    proposals: int | None
    pseudo: object
    pseudo_blocks: int | None
    rate_rate: float | None
    rate_shape: float | None
    replicates: int | None
    reshuffle: bool | None
    response_bound: float | None
    rounds: int | None
    sampling_rate: float | None
    settings: Literal["printed"] | None
    shares: Sequence[float] | None
    slope: float | None
    step_size: float | None
    steps: int | None
    tempering: float | None
    test: Literal["penalty", "barker"] | None
    thin: int | None
    variance_error: float | None
    variance_rate: float | None
    variance_shape: float | None
