"""The unblocked generator: the Generative Bayesian Bootstrap without blocks and without noise.

Nothing here is private. The training code is that of a private fit, so that
what a release loses to blocks and noise can be told from what a generator
loses by itself.
"""

import numpy as np

from pgbb import _validate
from pgbb._numerics.newton import Floats
from pgbb.errors import InvalidValue
from pgbb.model.problem import Problem
from pgbb.private.door import NonPrivateRecords, Randomness, session_without_noise
from pgbb.reference.solvers import as_index, check_records, to_original

__all__ = ["unblocked_generator"]

LARGEST = 2_000
"""Most records: the generator has one input a record."""


def unblocked_generator(
    problem: Problem,
    records: NonPrivateRecords,
    draws: int,
    seed: int,
    *,
    steps: int = 5_000,
    draws_per_step: int = 8,
    learning_rate: float = 5e-3,
    index: float | None = None,
) -> Floats:
    """Draws G(u), u ~ Dirichlet(1_n), of a generator trained on exact gradients: (draws, d) in the units of the data.

    It approximates `bayesian_bootstrap`, which is exact and for these models faster; a custom loss has nothing
    else. Unlike there, the box and the clip of the model hold.

    Args:
      problem: a prepared model.
      records: handed over by `pgbb.private.door.non_private`; at most 2,000.
      draws: number of draws.
      seed: the same seed gives the same generator and draws.
      steps, draws_per_step, learning_rate: of the training; constants that follow the map at n = 100 to 2,000.
      index: τ of a quantile regression; a model with several levels is trained jointly and drawn at this one.
    """
    check_records(records)
    n, at = records.n, as_index(problem, index)
    if n > LARGEST:
        raise InvalidValue(
            f"records with n = {n:,} are not allowed here: without blocks the generator has n inputs, which is "
            f"impractical above {LARGEST:,}. Take a subsample, or bayesian_bootstrap, which is exact at any n."
        )
    draws, seed = _validate.integer("draws", draws, low=1), _validate.integer("seed", seed, low=0)
    from pgbb.accountant import Mechanism
    from pgbb.methods.pgbb import training  # JAX is needed from here on
    from pgbb.release.payloads import Payload, forward

    mechanism = Mechanism(
        n=n, blocks=n, gamma=1.0, sampling_rate=1.0, steps=steps, draws_per_step=draws_per_step, clip=problem.clip
    )
    randomness = Randomness.create(seed)
    session = session_without_noise(records, problem, mechanism, randomness)
    settings = training.Learning(
        learning_rate=_validate.number("learning_rate", learning_rate, above=0), unit_weights=True
    )
    trained = training.train(session, settings)
    tensors = {f"average/{name}": value for name, value in trained.average.items()}
    tensors |= {"input_shift": trained.input_shift, "input_scale": trained.input_scale}
    tensors |= {"center": problem.center, "radius": problem.radius}
    inputs = randomness.public.dirichlet(np.ones(n), size=draws)
    if at is not None:
        inputs = np.column_stack([inputs, np.full(draws, at)])
    return to_original(problem, forward(Payload("generator", {}, tensors), inputs, "average"))
