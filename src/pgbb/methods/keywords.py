"""Names of methods and of their settings, with types: what an editor completes and a type checker sees of `pgbb.fit`.

A class a method has the fields of its `Settings`, where it says what they mean; None means the default.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict

MethodName: TypeAlias = Literal[
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


class Calibrated(TypedDict, total=False):
    """Settings of the default method."""

    knots: int | None


class Pgbb(TypedDict, total=False):
    """Settings of Algorithms 1 and 2."""

    settings: Literal["printed"] | None
    clip: float | None
    blocks: int | None
    steps: int | None
    draws_per_step: int | None
    sampling_rate: float | None
    gamma: float | None
    learning_rate: float | None
    slope: float | None
    network: Literal["smooth", "printed"] | None
    iterate: Literal["average", "last"] | None
    average_from: float | None
    operator_norm: float | None
    pseudo: object
    pseudo_blocks: int | None
    alpha: float | None
    nested: float | None
    reshuffle: bool | None
    keep_transcript: bool | None
    intervals: Literal["noise-aware", "printed"] | None
    dither: float | None
    knots: int | None


class Chain(TypedDict, total=False):
    """Settings of methods with a chain of noisy steps."""

    steps: int | None
    sampling_rate: float | None
    tempering: float | None
    burn_in: float | None
    thin: int | None


class Sgld(Chain, total=False):
    """Settings of DP-SGLD."""

    step_size: float | None
    clip: float | None


class DpMcmc(Chain, total=False):
    """Settings of DP-MCMC."""

    test: Literal["penalty", "barker"] | None
    noise: float | None


class Prior(TypedDict, total=False):
    """Settings of methods with a working likelihood."""

    response_bound: float | None
    coefficient_precision: float | None
    variance_shape: float | None
    variance_rate: float | None
    mean_variance: float | None
    rate_shape: float | None
    rate_rate: float | None


class Augmented(Prior, total=False):
    """Settings of data augmentation."""

    iterations: int | None
    burn_in: float | None
    thin: int | None


class NoisyGibbs(Augmented, total=False):
    """Settings of NoisyGibbs."""

    noise: Literal["analytic", "classical"] | None
    shares: Sequence[float] | None


class Abc(Prior, total=False):
    """Settings of approximate Bayesian computation."""

    proposals: int | None
    rounds: int | None
    draws: int | None
    shares: Sequence[float] | None


class DpBootstrap(TypedDict, total=False):
    """Settings of the DP bootstrap."""

    replicates: int | None
    penalty: float | None
    clip: float | None
    calibration: Literal["proved", "asymptotic"] | None
    variance_error: float | None
    interval_error: float | None
    draws: int | None


class PosteriorSampling(TypedDict, total=False):
    """Settings of posterior sampling."""

    draws: int | None
    loss: Literal["gibbs", "beta"] | None
    beta: float | None
    tempering: float | None


class Repro(TypedDict, total=False):
    """Settings of repro samples."""

    replicates: int | None
    candidates: int | None
    response_bound: float | None
    draws: int | None


class ByMethod(TypedDict, total=False):
    """Settings of several methods."""

    calibrated: Calibrated
    pgbb: Pgbb
    sgld: Sgld
    noisy_gibbs: NoisyGibbs
    dp_bootstrap: DpBootstrap
    posterior_sampling: PosteriorSampling
    dp_mcmc: DpMcmc
    augmented: Augmented
    abc: Abc
    repro: Repro
