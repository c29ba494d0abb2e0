"""The fused step against the plain one, its kernels run by an interpreter."""

from functools import cache
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgbb import generator, training
from pgbb.accountant import Mechanism
from pgbb.models import Index, Problem
from pgbb.training import Settings

LEVELS = Index("τ", levels=(0.2, 0.5, 0.9), weights=(0.3, 0.3, 0.4))


@cache
def problem(d, index=None):
    rng = np.random.default_rng(1)
    names, center, radius = tuple(f"θ{i}" for i in range(d)), rng.normal(size=d), rng.uniform(1, 2, d)
    return Problem("custom", None, names, 1.0, center, radius, np.eye(d), np.zeros(d), index, None, 0.0)


def mechanism(k, blocks=5, steps=40):
    return Mechanism(n=1000, blocks=blocks, sampling_rate=0.1, steps=steps, clip=1.0, draws_per_step=k)


def start(m, p, seed):
    size = m.blocks + (p.index is not None)
    params = generator.initialise(size, p.dim, 256, 3, np.random.default_rng(seed))
    return params | {"kernel3": 100 * params["kernel3"]}  # far enough from the centre of the box


def drawn(m, p, steps, seed):
    rng = np.random.default_rng(seed)
    k = m.draws_per_step
    index = np.zeros((steps, k)) if p.index is None else p.index.draw(steps * k, rng).reshape(steps, k)
    draw = {"u": rng.dirichlet(np.ones(m.blocks), (steps, k)), "index": index, "t": np.arange(steps)}
    slope = rng.normal(size=(steps, k, p.dim))
    return jax.tree.map(lambda v: v.astype(np.float32 if v.dtype == np.float64 else np.int32), (draw, slope))


@cache
def runner(m, p, fuse, settings=Settings()):
    """From parameters, draws and slopes of answers in θ, to the state and the outputs of all steps."""
    step, optimiser, layout = training._make_step(p, m, settings, 0, True, None, fuse)
    assert (layout is not None) == fuse

    def body(state, given):
        draw, slope = given
        theta, memo = step.query(state, draw)
        return step.update(state, draw, memo, slope * theta)

    def run(params, given):
        state = training._packed(layout, training._state(params, optimiser))
        state, out = jax.lax.scan(body, state, given)
        return training._plain(layout, state, len(given[1])), out

    return run


def distance(a, b):
    """The largest difference of a leaf, relative to its largest number."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert jax.tree.all(jax.tree.map(lambda x, y: (x.shape, x.dtype) == (y.shape, y.dtype), a, b))
    apart = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max() / jnp.maximum(jnp.abs(x).max(), 1e-12)), a, b)
    return max(jax.tree.leaves(apart))


@pytest.mark.parametrize("index", [None, LEVELS], ids=["plain", "index"])
@pytest.mark.parametrize("k, d", [(1, 4), (5, 17)])
def test_steps_are_those_of_plain_operations(k, d, index):
    m, p = mechanism(k), problem(d, index)
    plain, fast = (jax.jit(runner(m, p, fuse)) for fuse in (False, True))
    params = start(m, p, 0)
    for steps in (1, 30):
        draw, slope = drawn(m, p, steps, 0)
        expected, found = plain(params, (draw, slope)), fast(params, (draw, slope))
        assert distance(expected, found) < 1e-4
    (last, _, average), _ = found
    assert distance(last, average) > 1e-3  # it began at step 20
    for wrong in ((draw, -slope), (draw | {"t": draw["t"] + 1}, slope)):
        assert distance(expected, fast(params, wrong)) > 1e-3


def test_fits_side_by_side_are_those_of_one_by_one():
    m, p = mechanism(2, blocks=17), problem(3)
    run, many = runner(m, p, True), range(3)
    params, given = [start(m, p, i) for i in many], [drawn(m, p, 3, i) for i in many]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *zip(params, given, strict=True))
    found = jax.jit(jax.vmap(run))(*stacked)
    for i, one in enumerate(zip(params, given, strict=True)):
        assert distance(jax.jit(run)(*one), jax.tree.map(itemgetter(i), found)) < 1e-5
