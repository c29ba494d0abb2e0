"""The sampling error of a quantile seen through a curvature in doubt, against curvatures drawn from that doubt."""

import numpy as np
import pytest

from pgbb._numerics.symmetric import triangle, unpack
from pgbb.methods.calibrated.curvature import Curvature
from pgbb.methods.calibrated.densities import _at_zero, seen_through

P = 5


def _variances(doubt: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of H⁻¹e on each axis: over curvatures drawn from the doubt; as is said; and by the curvature that was found."""
    rng = np.random.default_rng(3)
    _, _, length = triangle(P)
    found, sampling = np.diag([0.8, 0.9, 1.0, 1.1, 1.2]), np.eye(P)
    bend = Curvature(found, doubt * length)
    drawn = []
    while len(drawn) < 4000:
        true = found + unpack(rng.normal(size=P * (P + 1) // 2) * bend.sd, P)
        if np.linalg.eigvalsh(true)[0] > 0.2:
            drawn.append(np.diag(np.linalg.solve(true, np.linalg.solve(true, sampling).T)))
    back = np.linalg.inv(found)
    said = back @ (sampling + seen_through(bend, sampling)) @ back
    return np.mean(drawn, axis=0), np.diag(said), np.diag(back @ sampling @ back)


def test_the_sampling_error_is_as_wide_as_a_curvature_in_doubt_makes_it():
    true, said, plain = _variances(0.1)
    np.testing.assert_allclose(said, true, rtol=0.12)
    assert (plain < 0.9 * true).all()  # the curvature taken as it was found makes it too narrow


def test_a_curvature_without_doubt_adds_nothing():
    true, said, plain = _variances(0.0)
    np.testing.assert_allclose(said, plain, rtol=1e-12)
    assert true == pytest.approx(plain)


def test_a_curvature_is_in_doubt_as_far_as_it_is_no_multiple_of_second_moments():
    moment = np.array([[0.04, 0.01, 0.0], [0.01, 0.05, 0.0], [0.0, 0.0, 0.03]])
    none = np.zeros(6)
    assert Curvature(7 * moment, none).apart(moment).sd == pytest.approx(none, abs=1e-12)
    other = moment.copy()
    other[2, 2] *= 1.5  # a covariate whose records have another density
    once, twice = (Curvature(k * other, none).apart(moment) for k in (1, 2))
    assert once.factor_sd == 0
    assert once.sd.min() > 0
    np.testing.assert_allclose(twice.sd, 2 * once.sd)


def test_a_density_beside_a_crowd_is_read_from_three_bandwidths_and_not_from_the_widest():
    x = np.array([[1.0], [1 / 3], [0.1]])
    seen = 1 + 0.6 * x + 0.2 * x**2  # a kernel that reaches into a crowd
    value, smooth, sd = _at_zero(seen, np.full((3, 1), 0.02**2), x, np.array([0.6**2]))
    assert abs(value[0] - 1) < 2 * sd[0] < 0.1
    assert smooth[0] == pytest.approx(1.8, abs=0.06)
    stiff, _, _ = _at_zero(seen, np.full((3, 1), 0.02**2), x, np.array([0.01**2]))
    assert stiff[0] > 1.2  # a density that is believed not to bend


def test_noise_leaves_a_density_at_what_three_bandwidths_have_in_common():
    x = np.array([[1.0], [1 / 3], [0.1]])
    value, _, sd = _at_zero(np.array([[1.0], [1.3], [0.2]]), np.array([[0.05], [0.3], [0.9]]) ** 2, x, np.array([0.01]))
    assert value[0] == pytest.approx(1.0, abs=0.05)
    assert 0.05 < sd[0] < 0.12
