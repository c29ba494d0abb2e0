"""Poisson regression and expectiles: their targets, offsets, what is refused; coverage, with a twin that fails."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pgbb
from pgbb import Expectile, Flag, Levels, PoissonRegression, Range, Schema
from pgbb.cli import app
from pgbb.private.door import non_private
from pgbb.reference.solvers import solve, to_original
from tests.helpers import rest

COLUMNS = {"years": Range(0.2, 10), "never": Range(0, 1), "a": Range(-5, 5), "g": Flag(), "r": Levels("u", "v")}
SCHEMA = Schema(y=Range(0, 100), half=Range(0, 10, step=0.5), pay=Range(-20, 40), **COLUMNS)
RATES = np.array([-0.5, 0.4, 0.5])
MODELS = {
    "poisson": PoissonRegression("y ~ a + g"),
    "rates": PoissonRegression("y ~ a + g", exposure="years"),
    "expectile": Expectile("pay ~ a + g", 0.8),
}


def frame(n, seed):
    """Counts with twice the variance of a Poisson law, at risk for a third of a year to five."""
    rng = np.random.default_rng(seed)
    a, g, years = rng.normal(0, 1, n).clip(-5, 5), (rng.random(n) < 0.4).astype(int), rng.uniform(0.3, 5, n)
    mean = years * np.exp(RATES[0] + RATES[1] * a + RATES[2] * g) * rng.gamma(2, 0.5, n)
    pay = 5 + a + g + (1 + 0.5 * g) * rng.normal(0, 2, n)
    return pd.DataFrame({"y": rng.poisson(mean).clip(0, 100), "years": years, "a": a, "g": g, "pay": pay})


def fit(model, data, epsilon=2.0, seed=0, **more):
    return pgbb.fit(model, data, schema=SCHEMA, epsilon=epsilon, delta=1e-6, insecure_seed=seed, **more)


def exact(model, data):
    problem = model.prepare(SCHEMA)
    return to_original(problem, solve(problem, non_private(data, problem, SCHEMA)))


def test_the_reference_solves_the_equations_of_the_data_themselves():
    data = frame(3000, 1)
    x, y = np.column_stack([np.ones(3000), data.a, data.g]), data.y.to_numpy(float)
    rates = exact(MODELS["rates"], data)
    assert np.abs(x.T @ (data.years * np.exp(x @ rates) - y)).max() < 0.01 * np.abs(x.T @ y).max()
    line, y = exact(MODELS["expectile"], data), data.pay.to_numpy()
    rest = y - x @ line
    assert np.abs(x.T @ (rest * np.where(rest > 0, 0.8, 0.2))).max() < 1e-3 * np.abs(x.T @ y).max()
    assert (rest > 0).mean() < 0.4


@pytest.mark.parametrize("name", rest(MODELS, "poisson", "expectile"))
def test_without_noise_the_estimate_is_the_exact_one(name):
    data = frame(6000, 2)
    table = fit(MODELS[name], data, non_private=True).summary(draws=20_000)
    assert (np.abs(table["mean"] - exact(MODELS[name], data)) < 0.1 * table["sd"]).all()
    assert table["identified"].all() and (table["privacy_sd"] < 0.1 * table["sampling_sd"]).all()


@pytest.mark.parametrize("name", rest(MODELS, "poisson", "expectile"))
def test_intervals_cover_the_population_and_narrower_ones_do_not(name):
    truth = exact(MODELS[name], frame(300_000, 9))
    away = []
    for seed in range(20):
        table = fit(MODELS[name], frame(5000, 100 + seed), seed=seed).summary()
        assert table["identified"].all()
        away.append(np.abs(table["mean"] - truth) / table["sd"])
    assert 0.88 < np.mean(np.array(away) < 1.96) <= 1 and np.mean(np.array(away) < 0.6) < 0.75


def test_a_mean_is_predicted_and_with_an_exposure_a_count():
    release = fit(MODELS["rates"], frame(6000, 3), epsilon=8.0)
    rate, count = (release.predict({"a": [0.0], "g": [1], **more})["mean"].iloc[0] for more in ({}, {"years": [4.0]}))
    assert rate == pytest.approx(np.exp(RATES[0] + RATES[2]), rel=0.2) and count == pytest.approx(4 * rate, rel=1e-9)
    for wrong in ([0.0], ["long"], "long", [[1.0], 2.0]):
        with pytest.raises(pgbb.InvalidValue, match=r"positive|one length"):
            release.predict({"a": [0.0], "g": [1], "years": wrong})
    assert "Poisson regression" in release.title and "clipped" in release.certificate.notes[0]


def test_few_large_counts_among_zeros_are_not_clipped_away():
    """Thirteen of a hundred count to 15, all others to none: their spread is not that of zeros."""
    rng = np.random.default_rng(5)
    x = rng.integers(2, size=3000)
    y = np.where(rng.random(3000) < np.where(x == 1, 0.2, 0.06), rng.poisson(15, 3000), 0)
    schema = pgbb.Schema(y=pgbb.Range(0, 60, step=1), x=pgbb.Flag())
    model, truth = PoissonRegression("y ~ x"), np.log([0.9, 3.0]) - [0, np.log(0.9)]
    missed = 0
    for seed in range(12):
        table = pgbb.fit(model, pd.DataFrame({"y": y, "x": x}), schema=schema, epsilon=1, delta=1e-6,
                         insecure_seed=seed).summary()  # fmt: skip
        missed += table["identified"].all() and (np.abs(table["mean"] - truth) > 3.5 * table["sd"]).any()
    assert missed <= 1


@pytest.mark.parametrize(
    "model, said",
    [
        (PoissonRegression("y ~ g", exposure="never"), "positive"),
        (PoissonRegression("y ~ g", exposure="r"), "positive"),
        (PoissonRegression("y ~ g", exposure="lost"), "not declared"),
        (PoissonRegression("y ~ a + g", exposure="a"), "positive"),
        (PoissonRegression("y ~ years", exposure="years"), "in the formula too"),
        (PoissonRegression("half ~ g"), "whole numbers"),
        (PoissonRegression("a ~ g"), "not negative"),
        (PoissonRegression("g ~ a"), "Range"),
        (Expectile("g ~ a"), "Range"),
    ],
)
def test_what_is_no_count_and_no_exposure_is_refused_and_nothing_is_spent(model, said, tmp_path):
    ledger = pgbb.Ledger(tmp_path / "l.db")
    ledger.set("d", n=50, epsilon=5.0, delta=1e-3)
    with pytest.raises(pgbb.InvalidValue, match=said):
        fit(model, frame(50, 1), epsilon=0.5, ledger=ledger, dataset="d")
    assert ledger.dataset("d").share == 0
    with pytest.raises(pgbb.InvalidValue, match="tau"):
        Expectile("y ~ a", 1.0)


def test_the_command_line_takes_an_exposure_and_a_level(tmp_path):
    frame(2000, 4).to_csv(tmp_path / "d.csv", index=False)
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    call = ["fit", tmp_path / "d.csv", "-s", tmp_path / "s.toml", "-e", "2", "-d", "1e-6", "-f", "y ~ a + g", "--quiet"]
    for family, more in (("poisson", ["--exposure", "years"]), ("expectile", ["--expectile", ".8"])):
        out = tmp_path / f"{family}.pgbb"
        done = CliRunner().invoke(app, [str(a) for a in [*call, "--family", family, *more, "-o", out]])
        assert done.exit_code == 0 and pgbb.load(out).model.kind == family
    assert pgbb.load(out).model.settings["tau"] == 0.8
