"""Arguments of `pgbb.fit`, one class a method, so that editors complete settings and type checkers know them.

`Arguments` repeats the signature of `fit`, which says what they mean; a test compares the two.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Required, TypedDict

from pgbb.accountant.calibrate import Accountant
from pgbb.custody.ledger import Ledger
from pgbb.methods import keywords as of
from pgbb.model.schema import Schema
from pgbb.release.signing import Key

__all__ = ["Accountant", "Arguments"]


class Arguments(TypedDict, total=False):
    """Arguments of a fit by any method."""

    schema: Required[Schema]
    epsilon: Required[float]
    delta: Required[float]
    accountant: Accountant
    weights: str | None
    group_size: int
    persons: str | None
    allow_weak_delta: bool
    insecure_seed: int | None
    non_private: bool
    progress: Callable[[int, int], None] | None
    ledger: str | Path | Ledger | None
    dataset: str | None
    out: str | Path | None
    key: Key | None
    checkpoint: str | Path | None
    cluster: object
    scratch: str | Path | None


class Calibrated(Arguments, of.Calibrated, total=False):
    """Method "calibrated"."""


class Pgbb(Arguments, of.Pgbb, total=False):
    """Method "pgbb"."""


class Sgld(Arguments, of.Sgld, total=False):
    """Method "sgld"."""


class NoisyGibbs(Arguments, of.NoisyGibbs, total=False):
    """Method "noisy_gibbs"."""


class DpBootstrap(Arguments, of.DpBootstrap, total=False):
    """Method "dp_bootstrap"."""


class PosteriorSampling(Arguments, of.PosteriorSampling, total=False):
    """Method "posterior_sampling"."""


class DpMcmc(Arguments, of.DpMcmc, total=False):
    """Method "dp_mcmc"."""


class Augmented(Arguments, of.Augmented, total=False):
    """Method "augmented"."""


class Abc(Arguments, of.Abc, total=False):
    """Method "abc"."""


class Repro(Arguments, of.Repro, total=False):
    """Method "repro"."""
