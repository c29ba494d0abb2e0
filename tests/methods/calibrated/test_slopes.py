"""How densities change with the covariates, and the curvature and the intervals of quantiles that follow."""

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb._numerics import Floats
from pgbb._numerics.symmetric import pack
from pgbb.methods.calibrated.frame import Cut, Frame
from pgbb.methods.calibrated.slopes import Slopes, scale_line, shapes_of

REACH = 4.0


def _frame(rows: Floats) -> tuple[Frame, Floats]:
    """A white frame of these rows, with no noise, and u."""
    values, axes = np.linalg.eigh(rows.T @ rows / len(rows))
    matrix = (axes / np.sqrt(values)) @ axes.T / REACH
    u = rows @ matrix
    moment = u.T @ u / len(u)
    return Frame(matrix, moment, np.zeros(len(pack(moment))), Cut(0.0, 0.0), REACH, np.zeros(3), u[:4000]), u


def _design(n: int) -> Floats:
    rng = np.random.default_rng(1)
    return np.column_stack([np.ones(n), rng.normal(size=n) / 3, 2 * (rng.random(n) < 0.1) - 1])


def test_the_vector_of_a_density_that_leans_tells_its_curvature() -> None:
    near, u = _frame(_design(20_000))
    density = np.exp(-0.5 * REACH * u[:, 1] + 0.2 * REACH * u[:, 2])
    density /= density.mean()
    means, wanted = (u.T @ density / len(u))[None], (u.T * density) @ u / len(u)
    (found,) = shapes_of(near, means, np.array([1e-6]))
    assert np.abs(found.value - wanted).max() * REACH**2 < 0.1
    assert np.abs(near.moment - wanted).max() * REACH**2 > 0.4  # the twin: a density that does not lean


def test_noise_leaves_the_shape_at_the_second_moments() -> None:
    near, u = _frame(_design(20_000))
    means = (u.mean(axis=0) + 0.3 / REACH)[None]
    (hidden,) = shapes_of(near, means, np.array([4.0 / REACH**2]))
    (clear,) = shapes_of(near, means, np.array([1e-5]))
    assert np.abs(hidden.value - near.moment).max() * REACH**2 < 0.05
    assert np.abs(clear.value - near.moment).max() * REACH**2 > 0.2


def test_the_line_that_the_size_of_residuals_follows() -> None:
    rows = _design(20_000)
    near, u = _frame(rows)
    size = rows @ np.array([1.0, 0.6, 0.0])

    class Asked:
        @staticmethod
        def ask(*_: object) -> tuple[Floats, float]:
            return u.T @ size / len(u) / 4, 1e-6

    line = scale_line(Asked(), near, np.zeros(3), 4.0)  # type: ignore[arg-type]
    assert line == pytest.approx([1.0, 0.6, 0.0], abs=0.03)


def _misses(monkeypatch: pytest.MonkeyPatch, *, leans: bool) -> float:
    """How far fits are from the sampling error of the slope of a median: root mean square of logarithms."""
    if not leans:
        monkeypatch.setattr(Slopes, "ask", lambda *_: None)
    n, said = 10_000, []
    rng = np.random.default_rng(5)
    schema = pgbb.Schema(y=pgbb.Range(-30, 30), x=pgbb.Range(-1, 1), z=pgbb.Range(-1, 1), w=pgbb.Range(-1, 1))
    for seed in range(4):
        columns = {name: rng.uniform(-1, 1, n) for name in "xzw"}
        spread = np.exp(0.9 * columns["x"])
        data = pd.DataFrame({"y": columns["x"] + spread * rng.normal(size=n), **columns})
        release = pgbb.fit(
            pgbb.QuantileRegression("y ~ x + z + w", taus=[0.5]), data, schema=schema, epsilon=1, delta=1e-6,
            insecure_seed=seed,
        )  # fmt: skip
        said.append(release.summary(tau=0.5).loc["x", "sampling_sd"])
    x = np.random.default_rng(0).uniform(-1, 1, 400_000)
    design, density = np.column_stack([np.ones_like(x), x]), np.exp(-0.9 * x) * 0.39894
    bend = np.linalg.inv((design.T * density) @ design / len(x))
    true = np.sqrt(0.25 * (bend @ design.T @ design @ bend)[1, 1] / len(x) / n)
    return float(np.sqrt(np.mean(np.log(np.array(said) / true) ** 2)))


def test_intervals_know_that_spreads_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _misses(monkeypatch, leans=True) < 0.19
    assert _misses(monkeypatch, leans=False) > 0.22  # the twin: curvature is a density times second moments
