"""The loop over steps where others hold the records: a step is one question to an engine, by name.

Points go out with a key that decides the batches, and whoever holds records answers by whole numbers. Noise is added
here, before anything else sees a sum. What is computed between two answers is compiled as in `loop`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pgbb._numerics.compiled import Compiled, computed_once
from pgbb.accountant import Mechanism
from pgbb.engine.protocol import Batch, Engine
from pgbb.model.problem import Problem
from pgbb.private.loop import PUBLIC, Inputs, Step, Tree
from pgbb.private.wide_integers import LOW, SPLIT, joined


@partial(Compiled, static_argnames=("step",))
def _ahead(state: Tree, numbers: jax.Array, step: Step) -> Tree:
    return step.ahead(state, numbers)


@partial(Compiled, static_argnames=("step",))
def _query(state: Tree, draw: dict[str, jax.Array], step: Step) -> Tree:
    return step.query(state, draw)


@partial(Compiled, static_argnames=("step",))
def _update(
    state: Tree, draw: dict[str, jax.Array], memo: Tree, high: jax.Array, low: jax.Array, grid: jax.Array, step: Step
) -> Tree:
    return step.update(state, draw, memo, computed_once(joined(high, low) * grid))


def asked_elsewhere(
    state: Tree, engine: Engine, grid: jax.Array, inputs: Inputs, problem: Problem, mechanism: Mechanism, step: Step
) -> tuple[Tree, Tree]:
    """`loop.run_one` with sums that an engine computes."""
    outputs, batch, count = [], inputs["batch"], len(inputs["t"]) * mechanism.draws_per_step
    inputs = {**inputs, "ahead": jax.device_get(_ahead(state, inputs["t"], step=step))}
    for i in range(len(inputs["t"])):
        draw = jax.tree.map(lambda v, i=i: v[i], {name: inputs[name] for name in PUBLIC})
        points, memo = _query(state, draw, step=step)
        asked = Batch(
            problem.origin, mechanism.n, mechanism.sampling_rate, mechanism.blocks, count, batch["key"][i, 0].tobytes(),
            tuple(batch["place"][i].tolist()), tuple(batch["order"][i].tolist()), batch["inverse"][i],
            np.asarray(points), inputs["index"][i],
        )  # fmt: skip
        total = engine.sum(asked).reshape(points.shape)
        high, low = (total >> SPLIT) + inputs["noise"][i][:, 0], (total & LOW) + inputs["noise"][i][:, 1]
        state, out = _update(state, draw, memo, high.astype(np.int32), low.astype(np.int32), grid, step=step)
        outputs.append(out)
    return state, jax.tree.map(lambda *parts: jnp.stack(parts), *outputs)
