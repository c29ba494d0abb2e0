"""`pgbb.fit`: from a data frame to a release, in one call.

Validates, describes the mechanism, calibrates its noise, runs it and packs
the result. Every default is a rule on public quantities.
"""

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from pgbb import _validate
from pgbb.accountant import ACCOUNTANTS, Mechanism, noise_scale
from pgbb.certificate import Certificate
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.models import Custom, Model, Problem
from pgbb.payload import ModelSummary, Payload
from pgbb.release import Release
from pgbb.schema import Schema

__all__ = ["METHODS", "fit"]

METHODS = ("paper", "sgld")
PARTIAL = (
    "Intervals are those of the printed algorithm: they carry only part of the privacy noise, and can be too narrow."
)


def fit(
    model: Model,
    data: Any,
    *,
    schema: Schema,
    epsilon: float,
    delta: float,
    method: str = "paper",
    blocks: int | None = None,
    steps: int | None = None,
    draws_per_step: int | None = None,
    sampling_rate: float | None = None,
    gamma: float | None = None,
    learning_rate: float = 1e-3,
    accountant: str = "exact",
    weights: str | None = None,
    iterate: str = "average",
    average_from: float = 0.5,
    operator_norm: float | None = None,
    pseudo: Any = None,
    pseudo_blocks: int | None = None,
    alpha: float = 0.0,
    reshuffle: bool = False,
    keep_transcript: bool = False,
    group_size: int = 1,
    insecure_seed: int | None = None,
    non_private: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Release:
    """Fit a private posterior under (ε, δ).

    Args:
      model: what to estimate, such as `pgbb.QuantileRegression("y ~ x")`.
      data: a pandas frame, or the path of a .csv, .parquet or .dta file.
      schema: public knowledge about the columns; bounds come from here, never from the data.
      epsilon, delta: the budget, for replacing one record. Choose δ well below 1/n.
      method: "paper", Algorithm 1 (one target) or 2 (jointly over an index); or "sgld", see docs/methods.md.
      blocks: S; default 5 (constant weights below 100 records). More blocks follow the bootstrap law more
        closely where there is little noise, and learn it worse where there is much.
      steps, draws_per_step: T and K, by default 5,000 and 4 (sgld: 20,000 and 1). The noise grows with √(T·K): more
        is not better.
      sampling_rate: q; default the rate that gives batches of about 1,000 records, at least .01.
      gamma: Dirichlet concentration; default γ*(n, S).
      learning_rate: of Adam, decaying by a cosine.
      accountant: which one calibrates the noise.
      weights: a column of survey weights, declared as a Range of non-negative numbers.
      iterate: which generator `sample` uses: the "average" of the later iterates, or the "last". Both are stored.
      average_from: the share of steps after which iterates are averaged.
      operator_norm: bound on the operator norm of the generator's kernels, or None.
      pseudo, pseudo_blocks, alpha: public pseudo-samples from F_base, their blocks and Dirichlet mass.
      reshuffle: a fresh partition for every answer; γ* is not calibrated for this variant.
      keep_transcript: also store the noisy answers, which are as private as the rest.
      group_size: the most records one person may have; stated in the certificate with its ε.
      insecure_seed: makes the release reproducible and therefore not private; the certificate says so.
      non_private: no noise at all; the result is marked everywhere.
      progress: called with (steps done, steps) from time to time.
      options: constants of another method: `tempering`, `step_size`, `burn_in`, `thin` for "sgld".

    Returns:
      A `Release`: draw from it, save it, share it.
    """
    _validate.one_of("method", method, METHODS)
    _validate.one_of("accountant", accountant, ACCOUNTANTS)
    _validate.one_of("iterate", iterate, ("average", "last"))
    delta = _validate.delta(delta)
    if not non_private:
        epsilon = _validate.epsilon(epsilon)
    _validate.number("learning_rate", learning_rate, above=0)
    _validate.number("average_from", average_from, low=0, below=1)
    _validate.number("alpha", alpha, low=0)
    _validate.integer("group_size", group_size, low=1)
    if operator_norm is not None:
        _validate.number("operator_norm", operator_norm, above=0)
    if insecure_seed is not None:
        _validate.integer("insecure_seed", insecure_seed, low=0)
    if not hasattr(model, "prepare"):
        raise _validate.fail("model", type(model).__name__, "a pgbb model such as pgbb.QuantileRegression('y ~ x')")
    if not isinstance(schema, Schema):
        raise _validate.fail(
            "schema", type(schema).__name__, "a pgbb.Schema", "Write pgbb.Schema(educ=pgbb.Range(5, 20))."
        )
    if method == "sgld":
        unused = {"blocks": blocks, "gamma": gamma, "draws_per_step": draws_per_step, "pseudo": pseudo}
        unused |= {"alpha": alpha or None, "reshuffle": reshuffle or None, "keep_transcript": keep_transcript or None}
        chosen = {"steps": steps, "sampling_rate": sampling_rate, **options}
        return _fit_sgld(
            model, data, schema, epsilon, delta, unused, chosen, accountant=accountant, weights=weights,
            group_size=group_size, insecure_seed=insecure_seed, non_private=non_private, progress=progress,
        )  # fmt: skip
    if options:
        raise _unknown(method, options)
    problem = _prepare(model, schema)

    from pgbb.private.loading import records_for  # JAX is needed from here on
    from pgbb.private.mechanism import Session
    from pgbb.private.sampling import Randomness
    from pgbb.training import Settings, train

    records = records_for(data, problem, schema, weights)
    n = records.n
    if (alpha > 0) != (pseudo is not None):
        raise InvalidValue(
            f"alpha = {alpha!r} with pseudo = {'given' if pseudo is not None else None} is not allowed: "
            "pseudo-samples and their Dirichlet mass alpha > 0 go together."
        )
    mechanism = Mechanism(
        n=n,
        blocks=_default_blocks(n) if blocks is None else blocks,
        gamma=gamma,
        alpha=alpha,
        sampling_rate=min(1.0, max(0.01, 1000 / n)) if sampling_rate is None else sampling_rate,
        steps=5_000 if steps is None else steps,
        draws_per_step=4 if draws_per_step is None else draws_per_step,
        clip=problem.clip,
    )
    if delta > 1 / n:
        warnings.warn(
            f"delta = {delta:g} exceeds 1/n = {1 / n:.3g}: it would allow publishing whole records. Choose it smaller.",
            PgbbWarning,
            stacklevel=2,
        )
    sigma = 0.0 if non_private else noise_scale(mechanism, epsilon, delta, accountant)  # type: ignore[arg-type]
    randomness = Randomness.create(insecure_seed)
    public_part, extra_blocks = None, 0
    if pseudo is not None:
        public_part, extra_blocks = _pseudo_gradient(pseudo, problem, schema, mechanism, pseudo_blocks)
    session = Session(
        records, problem, mechanism, sigma, randomness, pseudo_blocks=extra_blocks, reshuffle=reshuffle, consume=True
    )
    trained = train(
        session,
        Settings(learning_rate=learning_rate, average_from=average_from, operator_norm=operator_norm),
        public_part=public_part,
        keep_transcript=keep_transcript,
        progress=progress,
    )
    tensors = {f"average/{k}": v for k, v in trained.average.items()} | {
        f"last/{k}": v for k, v in trained.last.items()
    }
    tensors |= {
        "input_shift": trained.input_shift,
        "input_scale": trained.input_scale,
        "center": problem.center.astype(np.float32),
        "radius": problem.radius.astype(np.float32),
    }
    if trained.transcript is not None:
        tensors |= {f"transcript/{k}": v for k, v in trained.transcript.items()}
    notes = [] if non_private else [PARTIAL]
    if reshuffle:
        notes.append("The partition was reshuffled for every answer; γ* is not calibrated for this variant.")
    if weights is not None:
        notes.append(f"Survey weights from column {weights!r}, divided by their public upper bound.")
    return Release(
        model=summary_of(problem),
        schema=schema.to_dict(),
        certificate=Certificate.of_run(
            mechanism,
            sigma,
            epsilon,
            delta,
            accountant=accountant,
            randomness=randomness.source,
            non_private=non_private,
            group_size=group_size,
            notes=notes,
        ),
        payload=Payload(
            kind="generator",
            settings={
                "blocks": mechanism.blocks,
                "pseudo_blocks": extra_blocks,
                "concentration": None if mechanism.blocks == 1 else mechanism.concentration,
                "alpha": mechanism.alpha,
                "index": problem.index is not None,
                "default_iterate": iterate,
            },
            tensors=tensors,
        ),
    )


def _unknown(method: str, options: dict[str, Any]) -> InvalidValue:
    name = next(iter(options))
    return InvalidValue(f"{name} = {options[name]!r} is not a setting of method = {method!r}. See docs/methods.md.")


def _fit_sgld(
    model: Model, data: Any, schema: Schema, epsilon: float, delta: float, unused: dict[str, Any],
    chosen: dict[str, Any], **common: Any,
) -> Release:  # fmt: skip
    """Dispatch to DP-SGLD, refusing settings that it does not have."""
    from pgbb.methods.sgld import Settings, sgld

    given = {name: value for name, value in unused.items() if value is not None}
    wanted = {name: value for name, value in chosen.items() if value is not None}
    strange = given | {name: value for name, value in wanted.items() if name not in Settings.__dataclass_fields__}
    if strange:
        raise _unknown("sgld", strange)
    return sgld(model, data, schema=schema, epsilon=epsilon, delta=delta, settings=Settings(**wanted), **common)


@lru_cache(maxsize=64)
def _prepared(model: Model, schema: Schema) -> Problem:
    return model.prepare(schema)


def _prepare(model: Model, schema: Schema) -> Problem:
    """The problem of a model; the same object for equal arguments, so that repeated fits compile once."""
    if isinstance(model, Custom):  # its loss may read what has changed since
        return model.prepare(schema)
    return _prepared(model, schema)


def _default_blocks(n: int) -> int:
    return 5 if n >= 100 else 1


def _pseudo_gradient(
    pseudo: Any, problem: Problem, schema: Schema, mechanism: Mechanism, pseudo_blocks: int | None
) -> tuple[Any, int]:
    """q times the block-weighted gradient of public pseudo-samples (SM `app:pseudo-sample-alpha`), and their blocks."""
    from pgbb.private.loading import records_for
    from pgbb.private.pseudo import gradient_of

    records = records_for(pseudo, problem, schema)
    count = min(mechanism.blocks, records.n) if pseudo_blocks is None else pseudo_blocks
    count = _validate.integer("pseudo_blocks", count, low=1, high=records.n)
    return gradient_of(records, problem, mechanism, count), count


def summary_of(problem: Problem) -> ModelSummary:
    """What a release says about the model."""
    return ModelSummary(
        kind=problem.kind,
        formula=problem.formula,
        names=problem.names,
        index_name=problem.index.name if problem.index else None,
        index=problem.index.to_dict() if problem.index else None,
        transform=problem.transform.tolist(),
        offset=problem.offset.tolist(),
        settings=problem.settings,
        response=problem.response,
    )
