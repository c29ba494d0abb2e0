"""The kernel that sums over all records on a GPU: in an interpreter, and as it is handed to the compiler."""

from functools import partial
from weakref import WeakSet

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgbb.private import kernel, partial_sums
from pgbb.private import sums as module
from pgbb.private.partial_sums import BITS, counts_only, fused_sums, in_one_kernel, traced_for
from pgbb.private.row_layout import EXTRA
from pgbb.private.wide_integers import SPLIT
from tests.helpers import written_for_a_gpu
from tests.methods.calibrated import slow

N, WIDTH = 64, slow.P + EXTRA
SHOWN = [
    "moment_and_cut", "column_histograms", "distances", "cells", "cell_curvature", "huber_score", "logistic_slope",
    "poisson: clipped_score",
]  # fmt: skip


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    for name in ("kernel_sums", "kernel_counts"):
        monkeypatch.setattr(partial_sums, name, partial(getattr(kernel, name), interpret=True))


def rows(n=N, seed=0, flag=False):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, slow.P))
    y = rng.random(n) < 0.4 if flag else np.clip(rng.normal(0, 1.5, n), -4, 4)
    return np.column_stack([x, y, np.arange(n) % 7 > 0]).astype(np.float32)  # every seventh is of no use


def asked(name, scale=1.0, spread=2.0):
    fast, loop, given, flag = slow.parameters(np.random.default_rng(3), scale=scale, spread=spread)[name]
    return fast, loop, tuple(np.asarray(g, np.float32) for g in given), flag


def sums(statistic, given, packed, power=0):
    halves = jax.jit(lambda r, p: fused_sums(statistic, power, r, p))(packed, given)
    return np.asarray(halves, np.int64) @ np.array([2**SPLIT, 1])


@pytest.mark.parametrize("name", SHOWN)
def test_sums_are_those_of_a_plain_loop(name):
    fast, loop, given, flag = asked(name)
    packed = rows(flag=flag)
    found, used = sums(fast, given, packed), packed[packed[:, -1] > 0].astype(float)
    if counts_only(fast, 0):
        lower = np.atleast_2d(given[-2])[:, :-1].astype(float)
        numbers = [np.atleast_1d(fast.numbers(jnp.asarray(r[:-EXTRA]), r[-2], *given[:-2])) for r in used]
        expected = sum((n[:, None] > lower) | (np.arange(lower.shape[1]) == 0) for n in numbers).reshape(-1)
        assert np.array_equal(found, expected) and found[0] == len(used) > found.min()
        return
    vectors = [loop(r[:-EXTRA], r[-2], *given) for r in used]
    expected = sum(v / max(np.linalg.norm(v), 1) for v in vectors).reshape(-1)
    assert found / 2**BITS == pytest.approx(expected, abs=1e-5 * N)
    assert found / 2**BITS != pytest.approx(1.01 * expected, abs=1e-5 * N)  # the comparison can fail


def test_a_long_vector_is_added_up_in_groups_without_a_change(monkeypatch):
    fast, _, given, _ = asked("cell_curvature")
    whole = sums(fast, given, rows())
    monkeypatch.setattr(kernel, "_GROUP", 7)
    assert len(whole) == 18 and np.array_equal(sums(fast, given, rows()), whole)


@pytest.mark.parametrize("name", ["cells", "poisson: clipped_score"])
def test_no_record_adds_more_than_one(name):
    fast, _, given, _ = asked(name, scale=30.0, spread=30.0)
    packed = rows(512)[:, None, :].repeat(32, axis=1)
    packed[:, 1:] = 0.0  # one record among rows of weight zero, in each of many sums
    packed[::3, 0, slow.P] *= 1e20
    packed[1::5, 0, 0] = np.inf
    each = np.asarray(jax.jit(jax.vmap(lambda r: fused_sums(fast, 1, r, given)))(packed), np.int64)
    lengths = np.linalg.norm(each @ np.array([2**SPLIT, 1]), axis=1)
    assert lengths.max() <= 2**BITS and lengths.max() > 0.9 * 2**BITS


def lowered(name):
    """What the compiler for a GPU is given, names of operations included."""
    fast, _, given, _ = asked(name)
    form = jax.ShapeDtypeStruct((2**16, WIDTH), jnp.float32)
    traced = traced_for(fast, 0, WIDTH, tuple(g.shape for g in given))
    return written_for_a_gpu(partial(kernel.kernel_sums, traced), given, form)


def test_no_product_is_left_to_the_compiler_to_fuse(monkeypatch):
    """A group would else compute another number than the one whose length the others have measured."""
    text = lowered("cells")
    assert "fma.rn.f32" in text and "mul.rn.f32" in text and "mulf" not in text
    monkeypatch.setattr(kernel.Arithmetic, "times", lambda self, a, b: a * b)
    assert "mulf" in lowered("cells")


def test_what_cannot_be_written_out_is_left_to_plain_operations():
    fast, _, given, _ = asked("cells")
    shapes = tuple(g.shape for g in given)
    assert in_one_kernel(fast, 0, WIDTH, shapes)
    for unknown in (
        jnp.sort,
        lambda x: x[jnp.argmax(x)],
        lambda x: (x > 0).astype(int) * 3,
        lambda x: jnp.outer(x, x) @ x,
    ):
        assert not in_one_kernel(lambda x, y, f=unknown: f(x) * 1.0, 0, WIDTH, ())
    weighted, _, table, _ = asked("histogram")
    assert not in_one_kernel(weighted, 1, WIDTH, tuple(g.shape for g in table))  # looks a vector up


@pytest.mark.parametrize("name", ["cells", "histogram"])
def test_where_no_kernel_can_be_compiled_the_sum_is_that_of_plain_operations(name, monkeypatch):
    fast, _, given, _ = asked(name)
    expected = module.sum_of(fast, rows(300), given, 0)
    tried = []
    monkeypatch.setattr(module, "_worth_a_kernel", lambda slabs: True)
    monkeypatch.setattr(module, "fused_sums", lambda *a: tried.append(a) or kernel.kernel_sums(*a))  # fails to trace
    monkeypatch.setattr(module, "_PLAIN", WeakSet())
    assert np.array_equal(module.sum_of(fast, rows(300), given, 0), expected) and len(tried) == 1
    assert np.array_equal(module.sum_of(fast, rows(300), given, 0), expected) and len(tried) == 1  # it is remembered


def test_a_device_without_room_is_not_taken_for_one_without_kernels(monkeypatch):
    fast, _, given, _ = asked("cells")

    def full(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory")

    monkeypatch.setattr(module, "_worth_a_kernel", lambda slabs: True)
    monkeypatch.setattr(module, "_over_slabs", full)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        module.sum_of(fast, rows(300), given, 0)
