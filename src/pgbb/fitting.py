"""`pgbb.fit`: from a data frame to a release, in one call, by the method of your choice."""

from collections.abc import Callable
from typing import Any, cast

from pgbb.accountant.calibrate import Accountant
from pgbb.methods.registry import settings_for
from pgbb.methods.request import Request, prepared
from pgbb.models import Model
from pgbb.release import Release
from pgbb.schema import Schema

__all__ = ["fit"]


def fit(
    model: Model,
    data: Any,
    *,
    schema: Schema,
    epsilon: float,
    delta: float,
    method: str = "calibrated",
    accountant: str = "exact",
    weights: str | None = None,
    group_size: int = 1,
    insecure_seed: int | None = None,
    non_private: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Release:
    """Fit a private posterior under (ε, δ).

    Args:
      model: what to estimate, such as `pgbb.QuantileRegression("y ~ x")`.
      data: a pandas frame, or the path of a .csv, .parquet or .dta file.
      schema: public knowledge about the columns; bounds come from here, never from the data.
      epsilon, delta: the budget, for replacing one record. Choose δ well below 1/n.
      method: "calibrated", see docs/calibration.md; "paper", the printed algorithms; "sgld", "noisy_gibbs" or
        "dp_bootstrap", see docs/methods.md.
      accountant: which one calibrates the noise.
      weights: a column of survey weights, declared as a Range of non-negative numbers.
      group_size: the most records one person may have; stated in the certificate with its ε.
      insecure_seed: makes the release reproducible and therefore not private; the certificate says so.
      non_private: no noise at all; the result is marked everywhere.
      progress: called with (steps done, steps) from time to time.
      settings: constants of the method, such as blocks, steps, draws_per_step, sampling_rate and gamma of "paper";
        all are fields of `pgbb.methods.<method>.Settings`, with defaults that are rules on public quantities.
        None means the default.

    Returns:
      A `Release`: draw from it, save it, share it.
    """
    request = Request(
        model=model, data=data, schema=schema, epsilon=epsilon, delta=delta, accountant=cast(Accountant, accountant),
        weights=weights, group_size=group_size, insecure_seed=insecure_seed, non_private=non_private,
        progress=progress,
    )  # fmt: skip
    chosen, constants = settings_for(method, settings)
    chosen.check(model, prepared(model, schema))
    release: Release = chosen.load().run(request, constants)
    return release
