"""Gradients at several points, read together: the law of what they say, against losses drawn from the prior."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pgbb._numerics.symmetric import triangle, unpack
from pgbb.methods.calibrated.curvature import Curvature
from pgbb.methods.calibrated.transcript import Read, Transcript

P = 3
NOISE = (0.3, 0.2, 0.1, 0.1)
FLAT = np.zeros((P, P))


def _sds() -> NDArray[np.float64]:
    _, _, length = triangle(P)
    return 0.15 * length


def _read(rng: np.random.Generator, doubt: float) -> tuple[Read, NDArray[np.float64], NDArray[np.float64]]:
    """A loss drawn from the prior; what its answers say where the curvature is believed to have so much doubt."""
    while True:
        bend = np.eye(P) + unpack(rng.normal(size=P * (P + 1) // 2) * _sds(), P)
        if np.linalg.eigvalsh(bend)[0] > 0.2:
            break
    minimum = rng.normal(size=P)
    wide = 1e3 * np.eye(P)  # before any answer it may lie anywhere
    transcript = Transcript.begun(np.zeros(P), wide, np.eye(P), FLAT, np.eye(P))
    for sd in NOISE:
        at = rng.normal(size=P)
        transcript = transcript.adding(at, bend @ (at - minimum) + sd * rng.normal(size=P), sd)
    return transcript.read(Curvature(np.eye(P), doubt * _sds())), bend, minimum


def _surprises(doubt: float) -> NDArray[np.float64]:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(600):
        read, bend, minimum = _read(rng, doubt)
        gradient = bend @ (read.point - minimum)
        found.append(gradient @ np.linalg.solve(read.noise, gradient))
    return np.array(found)


def test_the_gradient_at_the_point_found_has_the_covariance_that_is_said() -> None:
    # χ² with 3 degrees of freedom: mean 3 (standard error .1), 95 % below 7.81 (standard error .009).
    found = _surprises(1.0)
    assert found.mean() == pytest.approx(3.0, abs=0.35)
    assert (found < 7.81).mean() == pytest.approx(0.95, abs=0.03)


def test_it_does_not_where_the_curvature_is_believed_to_be_known() -> None:
    found = _surprises(1e-3)
    assert found.mean() > 4
    assert (found < 7.81).mean() < 0.88


def test_answers_far_apart_tell_the_curvature_between_them() -> None:
    bend = np.diag([0.4, 1.0, 1.6])
    minimum = np.array([2.0, -1.0, 0.5])
    transcript = Transcript.begun(np.zeros(P), 1e3 * np.eye(P), np.eye(P), FLAT, np.eye(P))
    for at in np.vstack([np.zeros(P), 5 * np.eye(P), minimum]):
        transcript = transcript.adding(at, bend @ (at - minimum), 1e-3)
    read = transcript.read(Curvature(np.eye(P), _sds()))
    np.testing.assert_allclose(read.bend.value, bend, atol=0.01)
    np.testing.assert_allclose(read.point, minimum, atol=0.01)


def test_a_factor_common_to_the_whole_curvature_is_found_too() -> None:
    minimum = np.array([2.0, -1.0, 0.5])
    transcript = Transcript.begun(np.zeros(P), 1e3 * np.eye(P), np.eye(P), FLAT, np.eye(P))
    for at in (np.zeros(P), minimum + 4):
        transcript = transcript.adding(at, 1.5 * (at - minimum), 1e-3)
    read = transcript.read(Curvature(np.eye(P), 1e-6 * _sds(), 0.5))
    np.testing.assert_allclose(read.bend.value, 1.5 * np.eye(P), atol=0.02)


def test_where_it_is_looked_at_from_does_not_matter() -> None:
    rng = np.random.default_rng(6)
    at, answers = rng.normal(size=(4, P)), rng.normal(size=(4, P))
    reads = []
    for shift in (0.0, 100.0):
        transcript = Transcript.begun(np.full(P, shift), np.eye(P), np.eye(P), 0.01 * np.eye(P), np.eye(P))
        for x, g in zip(at + shift, answers, strict=True):
            transcript = transcript.adding(x, g, 0.1, 0.2)
        reads.append(transcript.read(Curvature(np.eye(P), _sds(), 0.2)))
    np.testing.assert_allclose(reads[1].point - 100, reads[0].point, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(reads[1].noise, reads[0].noise, rtol=1e-6)


def test_answers_that_are_far_are_trusted_less_where_a_loss_bends() -> None:
    near, far = np.array([0.1, 0.0, 0.0]), np.array([50.0, 0.0, 0.0])
    points = []
    for bends in (0.0, 0.01):
        transcript = Transcript.begun(near, 1e3 * np.eye(P), np.eye(P), bends * np.eye(P), np.eye(P))
        transcript = transcript.adding(far, far + 20.0, 0.1).adding(near, near, 0.1)
        points.append(float(np.linalg.norm(transcript.read(Curvature(np.eye(P), 1e-3 * _sds())).point)))
    assert points[1] < 0.05 < 1 < points[0]


def test_no_noise_at_all_is_no_error() -> None:
    transcript = Transcript.begun(np.zeros(P), np.eye(P), np.eye(P), FLAT, np.eye(P))
    read = transcript.adding(np.zeros(P), np.full(P, 0.5), 0.0).read(Curvature(np.eye(P), 0 * _sds()))
    np.testing.assert_allclose(read.point, -0.5, atol=1e-4)


def test_the_noise_of_an_answer_may_be_smaller_along_one_axis() -> None:
    ball = np.diag([1.0, 0.01, 1.0])
    transcript = Transcript.begun(np.zeros(P), 1e6 * np.eye(P), np.eye(P), FLAT, np.eye(P))
    read = transcript.adding(np.zeros(P), np.ones(P), 0.1, 0.0, ball).read(Curvature(np.eye(P), 1e-3 * _sds()))
    np.testing.assert_allclose(np.sqrt(np.diag(read.noise)), [0.1, 0.01, 0.1], rtol=0.05)
