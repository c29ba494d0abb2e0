"""The one clip: whatever a vector holds, what is added is no longer than 1."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from pgbb._numerics.compiled import Compiled, dots
from pgbb.private.clipping import BATCH, DOUBLE, FULL_BATCH, clipped, largest_square, limit


def exact_square(vector):
    """The squared length, in whole numbers of the smallest unit."""
    mantissa, exponent = np.frexp(np.asarray(vector, float))
    least = int(exponent.min())
    whole = [int(m) << e for m, e in zip((mantissa * 2.0**53).tolist(), (exponent - least).tolist(), strict=True)]
    return Fraction(sum(v * v for v in whole)) / Fraction(2) ** (2 * (53 - least))


def test_an_exact_square_is_that_of_fractions():
    for v in (rows(7)[0], rows(3)[1].astype(np.float32), np.array([0.0, 5e-324, -3.0]), np.array([1e300, 1e-300])):
        assert exact_square(v) == sum(Fraction(float(x)) ** 2 for x in v)


def rows(d, count=300, seed=0):
    """Vectors of length about 1: where rounding decides on which side."""
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((count, d))
    return v / np.linalg.norm(v, axis=1, keepdims=True) * (1 + 1e-6 * rng.random((count, 1)))


def in_single_precision(v, scale, most=None):
    import jax

    def one(row):
        return clipped([row], lambda v: dots(v, v), scale, most=most, xp=jnp)[0]

    return np.asarray(Compiled(jax.vmap(one))(v.astype(np.float32)))


@pytest.mark.parametrize("d", [1, 3, 14, 105, 1785])
def test_a_clipped_vector_is_no_longer_than_one_exactly(d):
    v = rows(d)
    for found in (
        in_single_precision(v, limit(d, FULL_BATCH)),
        in_single_precision(v, limit(d, BATCH), largest_square(d)),
        clipped([v], lambda v: np.sum(v * v, axis=1, keepdims=True), limit(d, DOUBLE))[0],
    ):
        squares = [exact_square(row) for row in found]
        assert max(squares) <= 1 and min(squares) > 1 - 1e-3  # and the second look lets all of them pass
    twin = [exact_square(row) for row in in_single_precision(v, 1.0)]
    assert max(twin) > 1 or d == 1  # without a margin; one number over itself is 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_what_is_no_number_counts_as_zero(bad):
    v = np.array([[bad, 0.5, 0.1], [0.3, 0.4, 0.0]])
    for most in (None, largest_square(3)):
        found = in_single_precision(v, limit(3, BATCH), most)
        assert not found[0].any() and found[1] == pytest.approx([0.3, 0.4, 0.0], rel=1e-5)


def test_the_second_look_does_not_trust_root_and_quotient():
    """A processor whose root is wrong: without the second look a vector ten times too long would pass."""

    class Wrong:
        sqrt, maximum, where, isfinite = staticmethod(lambda s: 0.1 * np.sqrt(s)), np.maximum, np.where, np.isfinite

    long = np.array([6.0, 8.0])
    assert not clipped([long], lambda v: v @ v, 1.0, most=largest_square(2), xp=Wrong)[0].any()
    assert clipped([long], lambda v: v @ v, 1.0, xp=Wrong)[0].any()
