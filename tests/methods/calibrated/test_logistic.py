from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.methods.calibrated.curvature import Curvature, bordered
from pgbb.methods.calibrated.logistic import Followed, logistic_curvature

pytestmark = pytest.mark.quick

FRAME = np.diag([0.2, 0.3, 0.4])
THETA = np.array([-1.0, 2.0, -1.5])


def normal_design(n=400_000):
    rng = np.random.default_rng(0)
    return np.column_stack([np.ones(n), 0.3 + 0.5 * rng.standard_normal(n), 0.4 * rng.standard_normal(n)])


def exact(x, theta):
    u, p = x @ FRAME, 1 / (1 + np.exp(-x @ theta))
    return (u.T * (p * (1 - p))) @ u / len(x)


@pytest.mark.parametrize("mass", [1.0, 0.6])
def test_a_normal_design_tells_the_curvature_of_a_logistic_loss_everywhere(mass):
    x = normal_design()
    moment = mass * (x @ FRAME).T @ (x @ FRAME) / len(x)
    curvature = logistic_curvature(moment, np.full(6, 1e-6), FRAME, True)
    for theta in (np.zeros(3), THETA, 2 * THETA):
        assert curvature.at(theta) == pytest.approx(mass * exact(x, theta), rel=0.05, abs=2e-4 * mass)
    assert abs(curvature.at(2 * THETA) / curvature.at(np.zeros(3)) - 1).max() > 0.3  # it does change
    met = np.mean([exact(x, s * THETA) for s in np.linspace(0.05, 0.95, 10)], axis=0) - exact(x, np.zeros(3))
    assert curvature.change(np.zeros(3), THETA) == pytest.approx(mass * met, rel=0.1, abs=3e-4)


def test_a_posterior_as_wide_as_the_bend_of_the_loss_is_not_local():
    x = normal_design(50_000)
    curvature = logistic_curvature((x @ FRAME).T @ (x @ FRAME) / len(x), np.full(6, 1e-6), FRAME, True)
    bend = Curvature(curvature.at(THETA), np.zeros(6), np.zeros((3, 3)))
    assert not curvature.varies(THETA, FRAME, bend, 1e-10 * np.eye(3))
    assert curvature.varies(THETA, FRAME, bend, 1e-4 * np.eye(3))


def test_a_posterior_reaches_as_far_as_the_gradient_needs_to_change_where_curvature_falls():
    x = normal_design(50_000)
    curvature = logistic_curvature((x @ FRAME).T @ (x @ FRAME) / len(x), np.full(6, 1e-6), FRAME, True)
    bend = Curvature(curvature.at(THETA), np.zeros(6), np.zeros((3, 3)))
    little, much = 1e-10 * np.eye(3), 1e-4 * np.eye(3)
    assert curvature.widened(THETA, FRAME, bend, little) == pytest.approx(little, rel=1e-3, abs=1e-13)
    wider = np.linalg.eigvals(np.linalg.solve(much, curvature.widened(THETA, FRAME, bend, much))).real
    assert wider.min() > 0.999 and wider.max() > 1.5  # by axis: where it is flat, and not where it is steep
    assert wider.min() < 1.2


def test_gradients_read_together_lead_to_a_rare_outcome_and_a_newton_step_does_not():
    x = normal_design(50_000)
    rare, sd = np.array([-6.0, 2.0, 0.0]), 1e-4
    model = logistic_curvature((x @ FRAME).T @ (x @ FRAME) / len(x), np.full(6, 1e-6), FRAME, True)
    rng, theta, followed = np.random.default_rng(0), np.zeros(3), Followed(model, FRAME, 8.0)
    newton = -FRAME @ np.linalg.solve(model.at(theta), model.score(theta) - model.score(rare))
    for _ in range(4):
        g = model.score(theta) - model.score(rare) + sd * rng.normal(size=3)
        step, error = followed.step(theta, g, sd)
        theta = theta - FRAME @ step
    away = np.linalg.solve(FRAME, theta - rare)
    assert away @ np.linalg.solve(error, away) < 16  # χ² with three degrees of freedom
    off = np.linalg.norm(FRAME @ error @ FRAME.T, 2) ** 0.5
    assert np.linalg.norm(theta - rare) < 4 * off < 0.5 * np.linalg.norm(newton - rare)


def levels_design(n, seed):
    """A constant, and two of three levels, in one of which events are rare; with their u."""
    level = np.random.default_rng(seed).choice(3, n, p=[0.5, 0.3, 0.2])
    x = np.column_stack([np.ones(n), 2.0 * (level == 1) - 1, 2.0 * (level == 2) - 1])
    return x, x @ FRAME


def test_the_curvature_of_levels_is_that_of_levels_and_not_of_a_normal_design():
    theta = np.array([-1.75, -0.25, -1.5])  # one level in which events are rare
    (x, u), (_, reference) = levels_design(200_000, 0), levels_design(4_000, 1)
    moment = u.T @ u / len(u)
    true = np.linalg.inv(exact(x, theta))[2, 2]
    found, twin = (
        np.linalg.inv(logistic_curvature(moment, np.full(6, 1e-6), FRAME, True, rows).at(theta))[2, 2]
        for rows in (reference, None)
    )
    assert found == pytest.approx(true, rel=0.1)
    assert twin < 0.7 * true  # the interval of that level would be too narrow


def test_the_border_of_a_skewed_scale_is_a_multiple_of_the_mean_and_leaves_the_target_positive():
    shape, mean = np.diag([1.0, 0.5]), np.array([0.6, 0.2])
    raw = np.zeros((3, 3))
    raw[:2, :2], raw[2, 2] = 2 * shape, 1.0
    raw[:2, 2] = raw[2, :2] = 0.5 * mean
    assert bordered(raw, shape, 0.0, 0.0, mean) == pytest.approx(raw)
    assert not bordered(raw, shape, 0.0, 0.0)[:2, 2].any()
    raw[:2, 2] = raw[2, :2] = 50 * mean
    assert np.linalg.eigvalsh(bordered(raw, shape, 0.0, 0.0, mean))[0] > 0


@pytest.mark.slow
def test_marginal_effects_are_those_of_the_records_and_not_the_slope_at_their_mean():
    x = normal_design(6000)
    p = 1 / (1 + np.exp(-2 * x @ THETA))
    frame = pd.DataFrame({"a": x[:, 1], "b": x[:, 2], "y": np.random.default_rng(1).random(len(x)) < p})
    schema = pgbb.Schema(a=pgbb.Range(-2, 3), b=pgbb.Range(-2, 2), y=pgbb.Flag())
    release = pgbb.fit(
        pgbb.LogisticRegression("y ~ a + b"), frame, schema=schema, epsilon=8, delta=1e-6, insecure_seed=0
    )
    table = pgbb.Release.from_bytes(release.to_bytes()).marginal_effects()
    away = (table["mean"] - np.mean(p * (1 - p)) * 2 * THETA[1:]) / table["sd"]
    middle = 1 / (1 + np.exp(-2 * x.mean(axis=0) @ THETA))
    twin = (release.summary().loc[["a", "b"], "mean"] * middle * (1 - middle) - table["mean"]) / table["sd"]
    assert np.abs(away).max() < 3 < np.abs(twin).min() and table["identified"].all()
    assert (table["sd"] / table["mean"]).abs().max() < (release.summary()["sd"] / release.summary()["mean"]).abs().max()
    tensors = dict(release.payload.tensors)
    tensors["slope"] = tensors["slope"].copy()
    tensors["slope"][1] = tensors["slope"][0] ** 2  # its noise is as large as the mean slope
    payload = replace(release.payload, tensors=tensors)
    hidden = pgbb.Release(release.model, release.schema, release.certificate, payload)
    assert not hidden.marginal_effects()["identified"].any() and hidden.summary()["identified"].all()
    with pytest.raises(pgbb.InvalidValue, match="marginal_effects is not allowed"):
        pgbb.fit(pgbb.Mean("a"), frame, schema=schema, epsilon=8, delta=1e-6, insecure_seed=0).marginal_effects()
