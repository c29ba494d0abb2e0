from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

import pgbb
from pgbb import Custom, Flag, HuberRegression, InvalidValue, LogisticRegression, Mean, PgbbWarning, Range, Schema
from pgbb.accountant import Mechanism
from pgbb.methods import dp_mcmc
from pgbb.methods.effective_size import effective_sample_size
from pgbb.methods.request import by_level
from pgbb.model.loss_values import ratio_problem
from pgbb.private.door import Randomness, Step, open_dataset

SCHEMA = Schema(y=Range(-5, 5), b=Flag(), x=Range(-1, 1))
BUDGET = {"schema": SCHEMA, "epsilon": 4.0, "delta": 1e-6, "insecure_seed": 1, "method": "dp_mcmc"}
OWN = Custom(lambda t, r, _: jnp.abs(r["y"] - t[0]), dim=1, clip=1.0, columns=["y"], box=(-5, 5))


def frame(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    return pd.DataFrame({"y": x + 0.5 * rng.standard_normal(n), "x": x, "b": rng.random(n) < 0.3})


def chain_of(**changes):
    settings = BUDGET | {"epsilon": 300.0, "steps": 20_000, "tempering": 0.05, "burn_in": 0.1} | changes
    release = pgbb.fit(Mean("y", scale=1.0, clip=6.0), frame(), **settings)
    return release.payload.tensors["draws"][:, 0].astype(float)


@pytest.mark.parametrize("test, noise", [("penalty", 2.0), ("barker", 2.0)])
def test_the_law_of_the_chain_is_the_tempered_posterior_and_a_test_that_forgets_the_noise_has_another(
    test, noise, monkeypatch
):
    """Kolmogorov-Smirnov on as many draws as are effective. The twin takes the noise for part of the ratio."""
    y = frame()["y"].to_numpy()
    truth = stats.norm(y.mean(), 1 / np.sqrt(0.05 * len(y)))

    def p_value(chain):
        size = int(effective_sample_size(chain[:, None])[0])
        assert size > 150
        return stats.kstest(chain[:: len(chain) // size], truth.cdf).pvalue, chain.std() / truth.std()

    p, spread = p_value(chain_of(test=test, noise=noise))
    assert p > 1e-3 and spread == pytest.approx(1, abs=0.12)
    if test == "penalty":
        kind = dp_mcmc._make_step
        monkeypatch.setattr(dp_mcmc, "_make_step", lambda p, s, n, r: kind(p, replace(s, noise=1e-6), n, r))
    else:
        nothing = (np.array([0.0]), np.array([1.0]), 0.0)
        monkeypatch.setattr(dp_mcmc, "correction", lambda: nothing)
        monkeypatch.setattr(dp_mcmc, "BARKER", 8.0)
    p, spread = p_value(chain_of(test=test, noise=noise, insecure_seed=2))
    assert p < 1e-3 or spread > 1.2


def test_the_correction_completes_normal_noise_to_a_logistic_law():
    values, weights, error = dp_mcmc.correction()
    at = np.linspace(-8, 8, 97)
    accepted = stats.norm.cdf((at[:, None] + values) / np.sqrt(2)) @ weights
    assert np.abs(accepted - expit(at)).max() < 1e-3 and error < 1e-3
    assert np.abs(stats.norm.cdf(at / np.sqrt(2)) - expit(at)).max() > 0.02  # the twin without it


MODELS = [
    HuberRegression("y ~ x", scale=(0.2, 3)), LogisticRegression("b ~ x"), OWN,
    pgbb.QuantileRegression("y ~ x", taus=[0.2]),
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_a_ratio_keeps_its_bound_without_the_clip(model):
    """The gradient is bounded by C, so that points at a distance have a difference of at most C times it."""
    (problem,), _ = by_level(model, SCHEMA)
    length, rng = 0.3, np.random.default_rng(0)
    asked, found = ratio_problem(model, problem), []
    for y in (-5.0, -0.4, 0.0, 1.0, 5.0):
        for _ in range(60):
            theta = problem.center + problem.radius * rng.uniform(-0.5, 0.5, problem.dim)
            step = rng.standard_normal(problem.dim)
            both = np.concatenate([theta, theta + length * step / np.linalg.norm(step)])
            x = np.array([y]) if model is OWN else np.array([1.0, rng.uniform(-1, 1)])
            flag = float(y > 0) if problem.kind == "logistic" else y
            found.append(float(asked.joint(jnp.asarray(both), jnp.asarray(x), jnp.asarray(flag))[0]))
    assert 0.3 < max(map(abs, found)) <= 1 + 1e-5


def noiseless(data, model, length):
    """The answers of a session without noise about a fixed pair of points, over all records."""
    (problem,), _ = by_level(model, SCHEMA)
    asked = ratio_problem(model, problem)
    pair = jnp.asarray(np.concatenate([problem.center, problem.center + length])[None], jnp.float32)
    step = Step(lambda state, draw: (pair, None), lambda state, draw, memo, answers: (state, answers[0, 0]))
    mechanism = Mechanism(n=len(data), blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    session = open_dataset(data, problem, SCHEMA).session(mechanism, 0.0, Randomness.create(0), problem=asked)
    return float(np.asarray([out for _, _, out in session.run(jnp.zeros(()), step)])[0, 0])


def test_a_replaced_record_moves_an_answer_by_no_more_than_certified():
    """A mean whose score exceeds C by far; what a twin without the clip would add is told beside."""
    model, data = Mean("y", scale=0.2, clip=1.0), frame(20)
    answers = []
    for cell in (-1e30, -5.0, 0.0, 5.0, 1e30, np.nan, np.inf):
        data.loc[0, "y"] = cell
        answers.append(noiseless(data, model, 0.3))
    assert np.ptp(answers) <= 2 / 20 * (1 + 1e-6)
    assert np.ptp(answers) > 1.9 / 20
    assert (5.0 * 2) / 0.2**2 / 20 > 2 / 20 * 10  # unclipped, by hand: (y − y′)/s² over n


def test_levels_share_one_budget_and_a_chain_that_cannot_mix_is_marked(tmp_path):
    with pytest.warns(PgbbWarning, match="Too few effective draws"):
        release = pgbb.fit(pgbb.QuantileRegression("y ~ x", taus=[0.3, 0.6]), frame(), **BUDGET, steps=200)
    assert [m.answers for m, _ in release.certificate.parts] == [200, 200]
    assert any("cannot mix at this budget" in note for note in release.certificate.notes)
    release.save(tmp_path / "r.pgbb")
    loaded = pgbb.load(tmp_path / "r.pgbb")
    assert [p for p in loaded.verify().problems if "seed" not in p] == []
    assert loaded.sample(3, tau=0.6).shape == (3, 2)


def test_the_noise_of_a_ratio_is_what_the_test_has_room_for():
    problem = LogisticRegression("b ~ x").prepare(SCHEMA)
    for settings in (dp_mcmc.Settings(), dp_mcmc.Settings(test="barker", sampling_rate=0.1, tempering=0.3)):
        r, n, sigma, q = settings.length(problem, 1000, 0.02), 1000, 0.02, settings.sampling_rate
        scale = settings.tempering * problem.clip * r
        variance = (scale * n * sigma / q) ** 2 + scale**2 * n * (1 - q) / q
        assert variance == pytest.approx(4.0 if settings.test == "penalty" else 2.0)


@pytest.mark.parametrize(
    "model, changes, said",
    [
        (Mean("y", scale=1.0), {"sampling_rate": 0.1}, "penalty"),
        (Mean("y", scale=1.0), {"non_private": True}, "large epsilon"),
        (Mean("y", scale=1.0), {"steps": 1}, "steps"),
        (Mean("y", scale=1.0), {"test": "exact"}, "test"),
        (Mean("y"), {}, "needs the scale"),
        (pgbb.QuantileRegression("y ~ x", interval=(0.1, 0.9)), {}, "list of taus"),
        (replace(OWN, index=(0.1, 0.9)), {}, "index"),
    ],
)
def test_what_is_not_served_is_refused_before_anything_is_read(model, changes, said):
    with pytest.raises(InvalidValue, match=said):
        pgbb.fit(model, "no such file.csv", **(BUDGET | changes))
