"""The fused step against the plain one, its kernels run by an interpreter."""

from functools import cache, partial
from operator import itemgetter
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.accountant import Mechanism
from pgbb.methods.pgbb import generator, training
from pgbb.methods.pgbb.kernels import ALONE, COLUMNS, Layout, network
from pgbb.methods.pgbb.training import Learning
from pgbb.model.models import Index, Problem
from pgbb.private import session as private
from pgbb.private.loading import records_for
from pgbb.private.randomness import Randomness
from pgbb.private.session import Session
from tests.helpers import written_for_a_gpu

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
def stepper(m, p, fuse, learning=Learning()):
    """`begin(params)`, `go(state, (draw, slope))` with answers slope · θ, and `end(state, steps)`."""
    step, optimiser, layout = training._make_step(p, m, learning, 0, True, None, fuse)
    assert (layout is not None) == fuse

    @jax.jit
    def go(state, given):
        draw, slope = given
        theta, memo = step.query(state, draw)
        return step.update(state, draw, memo, slope * theta)

    return (
        lambda params: training._packed(layout, training._state(params, optimiser)),
        go,
        lambda state, steps: training._plain(layout, state, steps),
    )


def run(m, p, fuse, params, given, *learning):
    """The states after every step, and the outputs."""
    begin, go, end = stepper(m, p, fuse, *learning)
    state, found = begin(params), []
    for t in range(len(given[1])):
        state, out = go(state, jax.tree.map(itemgetter(t), given))
        found.append((end(state, t + 1), out))
    return found


def distance(a, b):
    """The largest difference of a leaf, relative to its largest number."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert jax.tree.all(jax.tree.map(lambda x, y: (x.shape, x.dtype) == (y.shape, y.dtype), a, b))
    a, b = jax.device_get((a, b))
    apart = jax.tree.map(lambda x, y: float(np.abs(x - y).max() / max(np.abs(x).max(), 1e-12)), a, b)
    return max(jax.tree.leaves(apart))


@pytest.mark.parametrize("k, d, index", [pytest.param(1, 17, LEVELS, marks=pytest.mark.evidence), (5, 4, LEVELS)])
def test_steps_are_those_of_plain_operations(k, d, index):
    m, p = mechanism(k, steps=16), problem(d, index)
    params, (draw, slope) = start(m, p, 0), drawn(m, p, 12, 0)
    expected, found = (run(m, p, fuse, params, (draw, slope)) for fuse in (False, True))
    assert max(map(distance, expected, found)) < 1e-4
    (last, _, average), _ = found[-1]
    assert distance(last, average) > 1e-3  # it began at step 8
    for wrong in ((draw, -slope), (draw | {"t": draw["t"] + 1}, slope)):
        assert distance(expected[-1], run(m, p, True, params, wrong)[-1]) > 1e-3


def test_a_clipped_output_has_the_steps_of_plain_operations_too():
    m, p, learning = mechanism(2), problem(4), Learning(printed=True, slope=1.0)
    params, given = start(m, p, 0), drawn(m, p, 4, 0)
    expected, found = (run(m, p, fuse, params, given, learning) for fuse in (False, True))
    assert max(map(distance, expected, found)) < 1e-4
    assert distance(expected[-1], run(m, p, False, params, given, Learning(slope=1.0))[-1]) > 1e-3  # unclipped


def test_fits_side_by_side_in_a_loop_are_those_of_one_by_one():
    m, p = mechanism(2, blocks=17, steps=4), problem(3)
    begin, go, end = stepper(m, p, True)
    each = [(start(m, p, i), drawn(m, p, 3, i)) for i in range(3)]
    params, given = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    loop = jax.jit(jax.vmap(lambda state, given: jax.lax.scan(go, state, given)))
    state, out = loop(jax.vmap(begin)(params), given)
    state = jax.vmap(lambda s: end(s, 3))(state)
    for i, one in enumerate(each):
        alone = run(m, p, False, *one)
        assert distance(alone[-1][0], jax.tree.map(itemgetter(i), state)) < 1e-4
        assert distance([o for _, o in alone], [jax.tree.map(itemgetter((i, t)), out) for t in range(3)]) < 1e-4


@pytest.mark.parametrize("fuse", [False, True])
def test_the_average_is_that_of_every_so_many_iterates(fuse):
    m, p = mechanism(1, steps=3_000), problem(4)  # every third, from 1,500
    params, (draw, slope) = start(m, p, 0), drawn(m, p, 10, 0)
    states = [state for state, _ in run(m, p, fuse, params, (draw | {"t": draw["t"] + 1_499}, slope))]
    averages, iterates = [s[2] for s in states], [s[0] for s in states]
    for t, averaged in enumerate([[], *3 * [[1]], *3 * [[1, 4]], *3 * [[1, 4, 7]]]):
        expected = jax.tree.map(lambda *p: np.mean(p, axis=0), *[iterates[i] for i in averaged]) if averaged else params
        assert distance(expected, averages[t]) < 1e-6
    assert distance(averages[-1], iterates[-1]) > 1e-3


@pytest.mark.parametrize("layout", [Layout(5, 6, 14, ALONE), Layout(16, 127, 64, COLUMNS)])
def test_kernels_can_be_written_for_a_gpu(layout):
    forward, backward = network(layout, jnp.cos, jnp.ones((3, layout.outputs)), jnp.sin)

    def go(state, given):
        theta, memo = forward(state, *given)
        return backward(state, memo, theta, given[1]), theta

    def loop(state, inputs):
        return jax.lax.scan(go, state, (inputs, jnp.arange(3)))

    width, rows, first, last = 256, layout.rows, layout.filled_inputs, layout.filled_outputs
    shapes = [(2, 4, first, width), *2 * [(2, 4, rows, width)], (2, 4, rows, last)]
    given = tuple(map(jnp.zeros, shapes)), jnp.zeros((2, 3, layout.draws, layout.inputs))
    found = written_for_a_gpu(jax.vmap(loop), *given)
    assert found.count("gpu.triton") == 7 and found.count("output_operand_alias<") == 4


class Kept:
    """A checkpoint in memory, after every chunk."""

    def __init__(self, state=None):
        self.saved = None if state is None else SimpleNamespace(state=lambda _: state, kept=lambda *_: {})
        self.found = []

    def due(self, last=False):
        return True

    def save(self, position, state, kept, *, total):
        self.found.append((position, jax.device_get(state)))


def test_plain_and_fused_steps_go_on_from_each_other(monkeypatch):
    """Without noise and batches, a run that goes on has the answers of one that was never interrupted."""
    monkeypatch.setattr(private, "_chunk", lambda sessions: 2)
    schema = pgbb.Schema(y=pgbb.Range(-5, 5))
    p, make = pgbb.Mean("y", scale=0.5).prepare(schema), training._make_step
    m = Mechanism(n=200, blocks=5, sampling_rate=1.0, steps=4, clip=p.clip, draws_per_step=2)
    data = pd.DataFrame({"y": np.random.default_rng(0).normal(1, 0.5, 200)})

    def train(fuse, position=None, state=None, many=False):
        monkeypatch.setattr(training, "_make_step", partial(make, fuse=fuse))
        session = Session(records_for(data, p, schema), p, m, 0.0, Randomness.create(1), resume=position)
        if many:
            (found,) = training.train_many([session])
            return found, []
        kept = Kept(state)
        return training.train(session, checkpoint=kept), kept.found

    (plain, kept), (fast, fast_kept) = train(False), train(True)
    assert [position.steps for position, _ in kept] == [0, 2, 4]
    assert distance([state for _, state in kept], [state for _, state in fast_kept]) < 1e-4
    for fuse, (position, state) in ((True, kept[1]), (False, fast_kept[1])):
        again, rest = train(fuse, position, state)
        assert distance(kept[-1][1], rest[-1][1]) < 1e-4
        assert distance(plain.average, again.average) < 1e-4
    assert distance(plain.last, fast.last) < 1e-4 and distance(plain.last, train(True, many=True)[0].last) < 1e-4


@pytest.mark.parametrize(
    "k, blocks, d, settings, fits",
    [
        (16, 127, 64, Learning(), True),
        (4, 5, 3, Learning(unit_weights=True), True),
        (4, 128, 3, Learning(), False),
        (4, 5, 65, Learning(), False),
        (17, 5, 3, Learning(), False),
        (4, 5, 3, Learning(width=128), False),
        (4, 5, 3, Learning(depth=2), False),
        (4, 5, 3, Learning(operator_norm=2.0), False),
    ],
)
def test_kernels_are_used_where_their_sizes_allow(k, blocks, d, settings, fits):
    p, m = problem(d), mechanism(k, blocks)
    for backend, fuse in (("cpu", True), ("gpu", None), ("cpu", None), ("gpu", False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training.jax, "default_backend", lambda backend=backend: backend)
            _, _, layout = training._make_step.__wrapped__(p, m, settings, 0, False, None, fuse)
        wanted = fuse or (fuse is None and backend == "gpu")
        assert (layout == Layout(k, blocks, d, ALONE)) if fits and wanted else layout is None
