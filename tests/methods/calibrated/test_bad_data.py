"""Data with which no regression can do much: fits end, intervals are finite, what cannot be told is marked."""

import warnings

import numpy as np
import pandas as pd
import pytest

import pgbb
from tests.helpers import rest

SCHEMA = pgbb.Schema(
    y=pgbb.Range(0, 10), z=pgbb.Flag(), a=pgbb.Range(0, 1), b=pgbb.Range(-5, 5), g=pgbb.Levels("u", "v", "never")
)
MODELS = {
    "quantile": pgbb.QuantileRegression("y ~ a + b + g", taus=[0.25, 0.5]),
    "linear": pgbb.LinearRegression("y ~ a + b + g"),
    "huber": pgbb.HuberRegression("y ~ a + b + g"),
    "logistic": pgbb.LogisticRegression("z ~ a + b + g"),
    "poisson": pgbb.PoissonRegression("y ~ a + b + g"),
    "expectile": pgbb.Expectile("y ~ a + b + g", 0.8),
}


def usual(n):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.uniform(0, 1, n), "b": rng.normal(0, 1, n), "g": rng.choice(["u", "v"], n)})
    data["y"] = np.clip(5 + data["b"] + rng.normal(0, 1, n), 0, 10)
    data["z"] = (data["y"] > 5).astype(int)
    return data


CASES = {
    "a constant response": lambda d: d.assign(y=3.0, z=1),
    "a response at one end": lambda d: d.assign(y=0.0, z=0),
    "a constant column": lambda d: d.assign(b=-5.0),
    "two equal columns": lambda d: d.assign(b=d["a"]),
    "one level": lambda d: d.assign(g="u"),
    "separated": lambda d: d.assign(z=(d["b"] > 0).astype(int), y=10.0 * (d["b"] > 0)),
    "nothing valid": lambda d: d.assign(a=np.nan),
}


@pytest.mark.parametrize("epsilon, n, exact", [(0.05, 20, False), (100.0, 2000, False), (1.0, 2000, True)])
@pytest.mark.parametrize("model", rest(MODELS, "quantile", "huber", "logistic", "poisson"))
def test_intervals_are_finite_and_nothing_is_warned_of(model, epsilon, n, exact):
    for make in CASES.values():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            release = pgbb.fit(
                MODELS[model], make(usual(n)), schema=SCHEMA, epsilon=epsilon, delta=1e-6, insecure_seed=3,
                non_private=exact,
            )  # fmt: skip
            warnings.simplefilter("ignore", pgbb.PgbbWarning)
            table = release.summary(tau=0.5) if model == "quantile" else release.summary()
        assert np.isfinite(table[["mean", "sd", "lower", "upper"]].to_numpy()).all()
        width = table["upper"] - table["lower"]
        assert (width > 0).all()
        assert exact or (not table.loc["g[T.never]", "identified"] or width["g[T.never]"] > 10)


LOST = {
    "a constant column": (lambda d: d.assign(b=1.0), ["b"]),
    "a column at its end": (lambda d: d.assign(b=-5.0), ["b"]),
    "two equal columns": (lambda d: d.assign(a=(d["b"] + 5) / 10), ["a", "b"]),
    "an absent level": (lambda d: d, []),
    "a level that all have": (lambda d: d.assign(g="v"), ["g[T.v]"]),
}


CASES_OF = [("huber", case) for case in LOST] + [("logistic", case) for case in LOST if case != "a column at its end"]


@pytest.mark.parametrize("model, case", CASES_OF)
def test_what_the_data_cannot_tell_is_marked_and_the_rest_is_not(model, case):
    make, lost = LOST[case]
    for seed in range(4):
        release = pgbb.fit(
            MODELS[model], make(usual(3000)), schema=SCHEMA, epsilon=100.0, delta=1e-6, insecure_seed=seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pgbb.PgbbWarning)
            marked = ~release.summary()["identified"]
        assert marked[[*lost, "g[T.never]"]].all()
        assert not marked.drop([*lost, "g[T.never]", "Intercept"]).any()


@pytest.mark.parametrize("model", ["linear", "quantile"])
def test_two_equal_columns_are_marked_and_the_others_are_as_narrow_as_without_them(model):
    given = {"schema": SCHEMA, "epsilon": 100.0, "delta": 1e-6, "insecure_seed": 1}
    equal, apart = (
        pgbb.fit(MODELS[model], f(usual(3000)), **given) for f in (LOST["two equal columns"][0], pd.DataFrame.copy)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        equal, apart = (r.summary(tau=0.5) if model == "quantile" else r.summary() for r in (equal, apart))
    assert not equal.loc[["a", "b"], "identified"].any() and apart.loc[["a", "b"], "identified"].all()
    assert equal.loc["g[T.v]", "sd"] < 1.3 * apart.loc["g[T.v]", "sd"]


@pytest.mark.parametrize("model", rest(["linear", "quantile", "huber", "expectile", "poisson"], "linear"))
def test_a_reader_is_told_where_few_records_have_all_cells_and_not_where_most_have(model):
    for usable, told in ((1.0, False), (0.7, False), (0.2, True), (0.0, True)):
        data = usual(2000)
        data.loc[np.random.default_rng(1).random(2000) >= usable, "b"] = np.nan
        release = pgbb.fit(MODELS[model], data, schema=SCHEMA, epsilon=2, delta=1e-6, insecure_seed=0)
        assert any("pgbb check" in remark for remark in release.diagnostics().remarks) == told, usable


def test_of_survey_weights_nothing_is_said():
    data, schema = usual(2000).assign(w=0.1), pgbb.Schema(**dict(SCHEMA), w=pgbb.Range(0, 1))
    release = pgbb.fit(MODELS["linear"], data, schema=schema, weights="w", epsilon=2, delta=1e-6, insecure_seed=0)
    assert not any("pgbb check" in remark for remark in release.diagnostics().remarks)


@pytest.mark.parametrize("epsilon", [4.0, 100.0])
def test_where_nobody_has_a_count_no_coefficient_is_identified(epsilon):
    data = usual(2000).assign(y=0.0)
    release = pgbb.fit(MODELS["poisson"], data, schema=SCHEMA, epsilon=epsilon, delta=1e-6, insecure_seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        assert not release.summary()["identified"].any()


def test_where_noise_is_all_there_is_it_identifies_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        for seed in range(6):
            release = pgbb.fit(
                pgbb.LogisticRegression("z ~ a + b"), usual(300), schema=SCHEMA, epsilon=0.01, delta=1e-6,
                insecure_seed=seed,
            )  # fmt: skip
            assert not release.summary()["identified"].any()
