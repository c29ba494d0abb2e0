"""Spreads that differ with the covariates: what fitted levels say of them, and the curvature that follows."""

import warnings

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.methods.calibrated import densities
from pgbb.methods.calibrated.curvature import Curvature
from pgbb.methods.calibrated.frame import Cut, Frame
from pgbb.methods.calibrated.location_scale import LocationScale, Shape, scale_of
from pgbb.methods.calibrated.transcript import Read

LEVELS = np.array([0.1, 0.5, 0.9])
APART = 2.5631  # of the outer two, in standard deviations


def design(n=4_000, seed=0):
    """A constant and two covariates, one of them skewed, with E uuᵀ near white."""
    rng = np.random.default_rng(seed)
    z = np.column_stack([np.ones(n), rng.gamma(4.0, 0.5, n) - 2.0, rng.standard_normal(n)])
    return z / 4


def located(u, gamma, noise=0.0):
    """What is known of spreads uᵀγ, where the outer levels are seen with this noise in their curvature."""
    moment, p = u.T @ u / len(u), u.shape[1]
    near = Frame(np.eye(p), moment, np.zeros(p * (p + 1) // 2), Cut(0.0, 0.0), 4.0, np.zeros((p, p)), u)
    one = np.array([4.0, 0.0, 0.0])
    spreads = LocationScale(u, 1.0, one, near, LEVELS, APART, 10**8)
    bend = Curvature(moment, np.zeros(p * (p + 1) // 2))
    covariance = noise**2 * moment
    reads = [Read(APART / 2 * s * gamma, bend, covariance) for s in (-1, 0, 1)]
    return spreads, reads


def test_the_shape_is_that_of_densities_which_fall_as_spreads_grow():
    u = design()
    gamma = np.array([4.0, 1.2, 0.0])  # u₁ is a constant of 1/4
    spreads, reads = located(u, gamma)
    found = spreads.shape(reads, np.full(3, 1e-3))
    weight = 1 / (u @ gamma)
    true = (u.T * (weight / weight.sum())) @ u
    moment = u.T @ u / len(u)

    def spread(shape, j):
        return np.sqrt(np.linalg.inv(shape)[j, j])

    assert (u @ gamma).min() > 0.15
    for j in range(3):
        assert spread(found.value, j) == pytest.approx(spread(true, j), rel=0.06)
    assert spread(moment, 1) < 0.93 * spread(true, 1)  # as if densities did not differ
    assert np.linalg.eigvalsh(moment - found.value)[0] > -1e-9  # along no direction more than E uuᵀ
    assert np.linalg.eigvalsh(moment - true)[0] < -1e-3
    assert np.abs(found.unseen).max() < 1e-4


def test_a_wide_kernel_shows_less_of_how_densities_differ():
    u = design()
    spreads, reads = located(u, np.array([4.0, 1.2, 0.0]))
    narrow, wide = (spreads.shape(reads, np.full(3, h)) for h in (0.3, 1.5))
    moment = u.T @ u / len(u)
    shown = wide.value - wide.unseen[1]
    assert np.abs(wide.unseen[1]).max() > 3 * np.abs(narrow.unseen[1]).max()
    assert np.linalg.norm(moment - shown) < 0.8 * np.linalg.norm(moment - wide.value)


def test_noise_in_levels_is_not_taken_for_spreads_that_differ():
    u, rng = design(), np.random.default_rng(1)
    moment, one = u.T @ u / len(u), np.array([4.0, 0.0, 0.0])

    def differ(size, seen):
        """Standard deviation of what is found of spreads, over that of what was seen."""
        noise = size**2 * np.linalg.inv(moment)
        apart = APART * (one + seen)
        if size:
            apart = apart + rng.multivariate_normal(np.zeros(3), noise)
        found = scale_of(apart, noise, APART, moment, one)
        return np.std(u @ found.slope) / max(np.std(u @ apart) / found.mean, 1e-12), found

    assert np.mean([differ(1.5, 0.0)[0] for _ in range(20)]) < 0.35
    kept, found = differ(0.0, np.array([0.0, 1.2, 0.0]))
    assert kept == pytest.approx(1.0, rel=1e-6)
    assert np.abs(found.doubt).max() < 1e-6
    assert differ(0.15, np.array([0.0, 1.2, 0.0]))[0] > 0.8


def grouped(n, seed):
    """Records of a group, 15 of 100, have three times the spread of the others."""
    rng = np.random.default_rng(seed)
    x, g = rng.standard_normal(n), (rng.random(n) < 0.15).astype(int)
    return pd.DataFrame({"x": x, "g": g, "y": 1 + 0.5 * x + g + np.where(g == 1, 3.0, 1.0) * rng.standard_normal(n)})


def test_a_group_of_another_spread_is_covered_and_one_density_for_all_is_too_sure(monkeypatch):
    schema = pgbb.Schema(x=pgbb.Range(-10, 10), g=pgbb.Flag(), y=pgbb.Range(-100, 100))
    model = pgbb.QuantileRegression("y ~ x + g", taus=[0.1, 0.5, 0.9])

    def fits():
        rows = []
        for seed in range(16):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", pgbb.PgbbWarning)
                data = grouped(10_000, seed)
                release = pgbb.fit(model, data, schema=schema, epsilon=1.0, delta=1e-6, insecure_seed=seed)
                row = release.summary(tau=0.5, seed=0).loc["g"]
            rows.append(((row["mean"] - 1.0) / row["sd"], row["sd"]))
        return np.array(rows)

    found = fits()
    assert np.sqrt(np.mean(found[:, 0] ** 2)) < 1.3
    monkeypatch.setattr(densities, "LocationScale", Plain)
    plain = fits()
    assert np.median(plain[:, 1]) < 0.75 * np.median(found[:, 1])
    assert np.sqrt(np.mean(plain[:, 0] ** 2)) > 1.3


class Plain:
    """Levels that say nothing of spreads."""

    def __init__(self, near):
        self.near = near

    @classmethod
    def like(cls, near, *_):
        return cls(near)

    def shape(self, *_):
        return Shape(self.near.moment, self.near.moment_sd)
