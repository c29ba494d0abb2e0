"""Two-stage least squares: the textbook's estimate, weak instruments marked; coverage, with a twin that fails."""

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import IV, Flag, Range, Schema

SCHEMA = Schema(y=Range(-30, 30), x=Range(-10, 10), z=Range(-5, 5), other=Range(-5, 5), w=Flag())
MODEL = IV("y ~ x + w | z + other + w")
TRUTH = np.array([1.0, 0.7, 0.4])


def frame(n, seed, first=0.8):
    """An unseen cause moves x up and y down; z moves x alone, by `first`."""
    rng = np.random.default_rng(seed)
    z, other, cause = rng.normal(0, 1, (3, n)).clip(-5, 5)
    w = (rng.random(n) < 0.4).astype(int)
    x = (first * z + 0.3 * first * other + 0.5 * w + cause + rng.normal(0, 1, n)).clip(-10, 10)
    y = (1 + 0.7 * x + 0.4 * w - 1.5 * cause + rng.normal(0, 1, n)).clip(-30, 30)
    return pd.DataFrame({"y": y, "x": x, "z": z, "other": other, "w": w})


def fit(data, epsilon=2.0, seed=0, model=MODEL, **more):
    return pgbb.fit(model, data, schema=SCHEMA, epsilon=epsilon, delta=1e-6, insecure_seed=seed, **more)


def textbook(data):
    one = np.ones(len(data))
    x, z = np.column_stack([one, data.x, data.w]), np.column_stack([one, data.z, data.other, data.w])
    fitted = z @ np.linalg.lstsq(z, x, rcond=None)[0]
    return np.linalg.solve(fitted.T @ x, fitted.T @ data.y)


def test_without_noise_it_is_two_stage_least_squares_and_not_least_squares():
    data = frame(8000, 1)
    release = fit(data, non_private=True)
    table = release.summary(draws=20_000)
    assert (np.abs(table["mean"] - textbook(data)) < 0.1 * table["sd"]).all()
    line = fit(data, non_private=True, model=pgbb.LinearRegression("y ~ x + w")).summary()
    assert abs(line.loc["x", "mean"] - table.loc["x", "mean"]) > 10 * table.loc["x", "sd"]
    assert release.title == "two-stage least squares: y ~ x + w | z + other + w"
    assert release.predict({"x": [1.0], "w": [0]})["mean"].iloc[0] == pytest.approx(1.7, abs=0.2)


def test_intervals_cover_and_narrower_ones_do_not():
    away = []
    for seed in range(25):
        table = fit(frame(6000, 100 + seed), seed=seed).summary()
        assert table["identified"].all()
        away.append(np.abs(table["mean"] - TRUTH) / table["sd"])
    assert 0.88 < np.mean(np.array(away) < 1.96) <= 1 and np.mean(np.array(away) < 0.6) < 0.75


@pytest.mark.filterwarnings("ignore:not identified")
def test_an_instrument_that_moves_nothing_is_marked():
    for seed in range(6):
        table = fit(frame(6000, seed, first=0.0), epsilon=1.0, seed=seed).summary()
        assert not table.loc["x", "identified"] and table.loc["x", "lower"] < 0.7 < table.loc["x", "upper"]


@pytest.mark.filterwarnings("ignore:not identified")
def test_an_instrument_that_is_a_combination_of_the_regressors_is_marked():
    """Its name is another, so that only answers can tell: nothing of it is left beside w."""
    for seed in range(3):
        data = frame(6000, seed)
        data["z"] = 0.4 + 0.5 * data["w"]
        table = fit(data, epsilon=4.0, seed=seed, model=IV("y ~ x + w | z + w")).summary()
        assert not table.loc["x", "identified"]


@pytest.mark.parametrize(
    "formula, said",
    [
        ("y ~ x + w", "all instruments"),
        ("y ~ x | ", "all instruments"),
        ("y ~ x | z | w", "all instruments"),
        ("y ~ x + w | x + w", "none is to be replaced"),
        ("y ~ x + w | z", "at least as many"),
        ("y ~ x - 1 | z - 1", "intercept"),
        ("w ~ x | z", "Range"),
    ],
)
def test_what_has_no_answer_is_refused_before_anything_is_asked(formula, said):
    with pytest.raises(pgbb.InvalidValue, match=said):
        IV(formula).prepare(SCHEMA)
