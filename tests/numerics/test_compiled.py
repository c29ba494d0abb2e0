import warnings
from functools import partial

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb._numerics import compiled as _compiled
from pgbb._numerics.compiled import Compiled, computed_once, dots, times
from pgbb.engine.protocol import Question
from pgbb.methods.calibrated.stages import questions_for
from pgbb.private import gradients, loop, sums

LIBRARIES = ("__ynn", " dot(", "custom-call", "kind=kCustom")


def calls(text):
    """What a compiled program calls that the compiler has not written itself."""
    return {name for name in LIBRARIES if name in text}


@pytest.fixture
def cpu():
    if jax.default_backend() != "cpu":
        pytest.skip("about the compiler for CPUs")


@pytest.mark.parametrize("k", [1, 4, 32, 33, 48, 70])
def test_products_are_those_of_matrices(k):
    rng = np.random.default_rng(k)
    rows, matrix = rng.normal(size=(65, k)).astype(np.float32), rng.normal(size=(k, 5)).astype(np.float32)
    exact = rows.astype(np.float64) @ matrix
    assert np.allclose(Compiled(times)(rows, matrix), exact, rtol=0, atol=1e-4)
    assert np.allclose(Compiled(times)(rows, matrix[:, 2]), exact[:, 2], rtol=0, atol=1e-4)
    assert np.allclose(Compiled(dots)(rows, rows), np.sum(rows.astype(np.float64) ** 2, axis=1), rtol=1e-5)
    assert not np.allclose(Compiled(times)(rows, matrix[::-1]), exact, rtol=0, atol=1e-4) or k == 1


@pytest.mark.parametrize("k", [3, 14, 40])
def test_a_product_does_not_depend_on_the_place_of_its_row(k):
    rng = np.random.default_rng(k)
    row, matrix = rng.normal(size=k).astype(np.float32), rng.normal(size=(k, k)).astype(np.float32)
    rows = np.tile(row, (8192 + 77, 1))
    found = np.asarray(Compiled(times)(rows, matrix))
    assert (found == found[0]).all() and np.unique(found[0]).size == k
    rows[5000] = -row
    assert np.flatnonzero((np.asarray(Compiled(times)(rows, matrix)) != found).any(axis=1)).tolist() == [5000]


SCHEMA = pgbb.Schema(
    y=pgbb.Range(-8, 8), b=pgbb.Flag(), **{f"x{i}": pgbb.Range(-1, 1) for i in range(33)}, g=pgbb.Levels("p", "q")
)
WIDE = " + ".join(f"x{i}" for i in range(33))
MODELS = {
    "quantile": (pgbb.QuantileRegression("y ~ x0 + g", taus=[0.3, 0.7]), 2),
    "huber": (pgbb.HuberRegression("y ~ x0 + g"), 0),
    "logistic": (pgbb.LogisticRegression("b ~ x0 + g"), 0),
    "mean": (pgbb.Mean("y", scale=1.0), 0),
    "custom": (pgbb.Custom(lambda t, r, _: (r["y"] - t[0] - t[1] * r["x0"]) ** 2, 2, 1.0, ["y", "x0"], (-9, 9)), 0),
    "wide": (pgbb.QuantileRegression(f"y ~ {WIDE}", taus=[0.5]), 1),
}


def text_of(program, p):
    statistic, shapes, power = program
    question = Question(statistic, tuple(np.zeros(shape, np.float32) for shape in shapes), power)
    return sums._compile(question, sums.slabs_of(np.zeros((10, p + 2), np.float32))).as_text()


@pytest.mark.parametrize("few", [2**14, 0])
@pytest.mark.parametrize("name", MODELS)
def test_sums_over_records_call_no_library(name, few, cpu, monkeypatch):
    monkeypatch.setattr(sums, "_FEW", few)
    model, levels = MODELS[name]
    problem = model.prepare(SCHEMA)
    p = {"mean": 1, "custom": 2}.get(name) or len(problem.design.names)
    listed = [q for stage in questions_for(problem, levels) for q in stage.questions]
    asked = list(dict.fromkeys((q.function(problem), q.shapes, q.power) for q in listed))
    for program in asked if name != "wide" else [q for q in asked if q[0].__name__ in ("median", "cells")]:
        assert calls(text_of(program, p)) == set(), program[0].__name__
    product = (lambda x, y, matrix: jnp.exp(x @ matrix), ((4, 40),), 1)
    assert calls(text_of(product, 4))


@pytest.mark.parametrize("name", ["quantile", "huber", "logistic"])
def test_batches_of_records_call_no_library(name, cpu, monkeypatch):
    problem = MODELS[name][0].prepare(SCHEMA)
    rows, size = np.ones((500, 5), np.float32), 4096
    batch = {"rows": np.zeros((2, size), np.int32), "inverse": np.ones((2, size), np.float32)}
    asked = rows, batch, np.ones((2, problem.dim), np.float32), np.full(2, 0.5, np.float32)

    def text():
        return Compiled(partial(loop._gathered, problem)).lower(*asked).compile().as_text()

    assert calls(text()) == set()
    monkeypatch.setattr(gradients, "_products", lambda x, theta: (x @ theta, jnp.sum(x * x)))
    assert calls(text()) == {" dot("}


def test_training_leaves_the_new_library_alone(cpu, monkeypatch):
    """Networks are products of matrices: with many draws those of the compiler's older library."""
    seen, run, rng = [], loop.run_one, np.random.default_rng(0)

    def spy(*args):
        for compiled in (run, jax.jit(run._function, static_argnames=loop.STATIC)):
            seen.append(calls(compiled.lower(*args).compile().as_text()))
        return run(*args)

    monkeypatch.setattr(loop, "run_one", spy)
    frame = pd.DataFrame({"y": rng.normal(size=300), "x0": rng.uniform(-1, 1, 300), "g": "p"})
    settings = {"method": "pgbb", "steps": 60, "draws_per_step": 9, "sampling_rate": 0.1, "accountant": "paper"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        pgbb.fit(MODELS["quantile"][0], frame, schema=SCHEMA, epsilon=1.0, delta=1e-7, **settings)
    if "__ynn" not in seen[1]:
        pytest.skip("this version of JAX calls no such library")
    assert "__ynn" not in seen[0]


def test_barriers_are_known_in_small_loops_too():
    """JAX 0.12 makes one function of loops in which 0.10 does not; neither knows barriers there."""
    summed = Compiled(lambda x: jax.lax.fori_loop(0, 3, lambda i, total: total + jnp.sum(computed_once(x * i)), 0.0))
    assert summed(jnp.ones((3, 3))) == 27


def test_a_version_without_the_option_is_named(cpu, monkeypatch):
    monkeypatch.setitem(_compiled._CPU, "xla_cpu_gone", "")
    with pytest.raises(
        pgbb.PgbbError, match=f"jaxlib {jaxlib.__version__} does not know.*xla_cpu_gone.*pip install 'jax"
    ):
        Compiled(lambda x: x + 1)(jnp.zeros(3))


def test_a_product_that_is_added_up_is_right_at_any_size(cpu):
    """32,769 rows: JAX 0.10.2 by itself gets the last one wrong (jax-ml/jax#39103)."""
    x = np.zeros((32_769, 3), np.float32)
    x[:, 0] = np.arange(len(x))

    def lengths(rows):
        return jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(rows)

    assert np.array_equal(Compiled(lengths)(x), x[:, 0] ** 2)
