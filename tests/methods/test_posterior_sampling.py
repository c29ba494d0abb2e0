import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pgbb
from pgbb import (
    Custom,
    Flag,
    HuberRegression,
    InvalidValue,
    LogisticRegression,
    Mean,
    QuantileRegression,
    Range,
    Schema,
)
from pgbb.accountant import PosteriorDraws, epsilon
from pgbb.methods.request import by_level
from pgbb.model.loss_values import bounded_loss
from pgbb.private.gibbs_posterior import _log_density, posterior_draws
from pgbb.private.randomness import Randomness
from pgbb.private.records import Records
from pgbb.release.file import Release
from pgbb.release.payloads import Payload

SCHEMA = Schema(y=Range(-5, 5), e=Range(0.5, 12), b=Flag(), x=Range(-1, 1))
BUDGET = {"schema": SCHEMA, "epsilon": 2.0, "delta": 1e-6, "insecure_seed": 1, "method": "posterior_sampling"}
RATE = Custom(lambda theta, r, _: theta[0] * r["e"], dim=1, clip=12.0, columns=["e"], box=(0.1, 2.0))


def frame(n=400, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    return pd.DataFrame(
        {"y": x + 0.5 * rng.standard_normal(n), "x": x, "e": 0.5 + rng.exponential(2, n), "b": rng.random(n) < 0.3}
    )


def density(model, kind, theta, omega):
    """The tempered posterior at θ, from the formulas of the losses."""
    d = frame()
    y, e, b = d["y"].to_numpy(), d["e"].to_numpy().clip(0.5, 12), d["b"].to_numpy()
    if model.column == "y" and kind == "gibbs":
        loss = [((y - t) ** 2).sum() / 2 for t in theta]
    elif model.column == "y":
        loss = [-(stats.norm.pdf(y, t) ** 0.5).sum() / 0.5 for t in theta]
    elif model.column == "e":
        loss = [(np.log(t) + e / t).sum() for t in theta]
    else:
        hit = [np.where(b, t, 1 - t) for t in theta]
        loss = [(-(h**0.5) / 0.5 + (h**1.5 + (1 - h) ** 1.5) / 1.5).sum() for h in hit]
    log = -omega * np.array(loss)
    weight = np.exp(log - log.max())
    return np.cumsum(weight) / weight.sum()


@pytest.mark.parametrize("chains", [False, True], ids=["grid", "chains"])
@pytest.mark.parametrize(
    "model, kind, box",
    [
        (Mean("y", scale=1.0), "gibbs", (-5, 5)),
        (Mean("y", scale=1.0), "beta", (-5, 5)),
        (Mean("e", family="exponential"), "gibbs", (0.5, 12)),
        (Mean("b", family="bernoulli"), "beta", (0.001, 0.999)),
    ],
    ids=["gaussian", "beta", "exponential", "bernoulli"],
)
def test_the_law_of_a_draw_is_that_of_quadrature_and_a_warmer_one_is_not(model, kind, box, chains):
    """Kolmogorov-Smirnov on 4,000 draws; the twin has a posterior at 1.3 times the temperature."""
    problem = model.prepare(SCHEMA)
    loss = bounded_loss(model, problem, kind, 0.5)
    data = frame()
    column = data[model.column].to_numpy(float)
    rows = np.column_stack(
        [np.ones(len(data)), column.clip(*problem.design.response_bounds) if problem.design else column]
    )
    rows = np.column_stack([rows, np.ones(len(data))]).astype(np.float32)
    records = Records(rows, np.ones(len(data), bool))
    target, sigma = PosteriorDraws(len(data), 4000, loss.sensitivity), 5.0
    draws = posterior_draws(records, [loss], target, sigma, Randomness.create(3), chains=chains)[0, :, 0]
    grid = np.linspace(*box, 4001)
    for warmer, alike in ((1.0, True), (1.3, False)):
        cdf = density(model, kind, grid, 1 / (warmer * sigma))
        p = stats.kstest(draws, lambda v, cdf=cdf: np.interp(v, grid, cdf)).pvalue
        assert (p > 1e-3) == alike


def models():
    return [
        (Mean("y", scale=1.0), "gibbs"), (Mean("y", scale=1.0), "beta"), (Mean("e", family="exponential"), "gibbs"),
        (Mean("b", family="bernoulli"), "gibbs"), (Mean("b", family="bernoulli"), "beta"), (RATE, "gibbs"),
        (HuberRegression("y ~ x", scale=(0.1, 3)), "gibbs"), (HuberRegression("y ~ x", scale=(0.1, 3)), "beta"),
        (LogisticRegression("b ~ x"), "gibbs"), (LogisticRegression("b ~ x"), "beta"),
        (QuantileRegression("y ~ x", taus=[0.2]), "gibbs"), (pgbb.LinearRegression("y ~ x"), "gibbs"),
    ]  # fmt: skip


def test_a_void_record_keeps_its_place_and_moves_no_other():
    """A product of matrices has other last bits with one row fewer, and this loss makes them large."""
    weights = np.random.default_rng(4).standard_normal((4, 8)).astype(np.float32)

    def steep(theta, record, index):
        total = jnp.sum(jnp.stack([record[name] for name in "abcd"]) @ jnp.asarray(weights))
        return theta[0] * jnp.sin(1e8 * total)

    model = pgbb.Custom(steep, dim=1, clip=1.0, columns=list("abcd"), box=(-1, 1))
    schema = Schema(**dict.fromkeys("abcd", Range(-1, 1)))
    loss = bounded_loss(model, model.prepare(schema), "gibbs", 0.5)
    theta = np.linspace(-0.9, 0.9, 7)[:, None]
    rng = np.random.default_rng(5)
    moved = []
    for _ in range(20):
        x, everyone = np.tile(rng.uniform(-1, 1, 4), (512, 1)), np.ones(512, bool)
        whole = _log_density(loss, x, np.zeros(512), everyone, 1.0)(theta) / 512
        void = everyone.copy()
        void[17] = False
        assert np.abs(_log_density(loss, x, np.zeros(512), void, 1.0)(theta) / 511 - whole).max() < 1e-6
        without = _log_density(loss, x[void], np.zeros(511), everyone[void], 1.0)(theta) / 511
        moved.append(np.abs(without - whole).max() > 1e-6)
    if not any(moved):  # were its row taken out
        pytest.skip("on this processor one program serves both numbers of rows")


@pytest.mark.parametrize("model, kind", models())
def test_a_replaced_record_moves_the_log_density_by_no_more_than_certified(model, kind):
    """Whatever a row holds; random points of the box. A twin without the clip is moved by more."""
    (problem,), _ = by_level(model, SCHEMA)
    loss = bounded_loss(model, problem, kind, 0.5)
    rng = np.random.default_rng(0)
    low, high = loss.box
    theta = np.concatenate([rng.uniform(low, high, (400, len(low))), [low, high]])
    p = 1 if problem.design is None else len(problem.design.names)
    hostile = [1e30, -1e30, np.nan, np.inf, 12.0, -5.0, 5.0, 0.0, 1.0]
    values = []
    for cell in hostile:
        x, y = np.ones((3, p)), np.array([0.3, 0.1, cell])
        if model is RATE:
            x[2, 0] = cell
        values.append(_log_density(loss, x, y, np.ones(3, bool), 1.0)(theta))
    with np.errstate(all="ignore"):
        raw = loss.part(theta, np.ones((1, p)), np.array([1e9]))
    for i in range(len(values)):
        for j in range(i):
            assert np.ptp(values[i] - values[j]) <= loss.sensitivity
    if kind == "gibbs" and problem.kind in ("mean", "linear"):
        assert np.ptp(raw) > loss.sensitivity  # what an unclipped record would do


def test_the_bounds_hold_without_the_clip_for_declared_values():
    """The clip is a guard: for records inside the schema the parts of regressions and means never reach it."""
    data = frame(60)
    for model, kind in models():
        (problem,), _ = by_level(model, SCHEMA)
        loss = bounded_loss(model, problem, kind, 0.5)
        response = problem.response or "e"
        y = data[response].to_numpy(float) - problem.shift
        x = np.column_stack([np.ones(60), data["x"]]) if problem.design else np.ones((60, 1))
        x = data[["e"]].to_numpy() if model is RATE else x
        theta = np.random.default_rng(1).uniform(*loss.box, (200, len(loss.box[0])))
        part = loss.part(theta, x, y)
        slack = 1e-5 * (loss.high - loss.low)
        assert part.min() >= loss.low - slack and part.max() <= loss.high + slack, model


def test_a_fit_is_certified_loads_and_holds_no_more_draws_than_it_paid_for(tmp_path):
    release = pgbb.fit(QuantileRegression("y ~ x", taus=[0.2, 0.8]), frame(), **BUDGET, draws=10)
    assert release.certificate.mechanism.draws == 20
    assert any("assumes an exact sampler" in note for note in release.certificate.notes)
    release.save(tmp_path / "r.pgbb")
    loaded = pgbb.load(tmp_path / "r.pgbb")
    assert [p for p in loaded.verify().problems if "seed" not in p] == []
    assert loaded.certificate.mechanism == release.certificate.mechanism
    more = pgbb.fit(Mean("y", scale=1.0), frame(), **BUDGET, draws=30)
    assert any("the sampler is exact" in note for note in more.certificate.notes)
    tensors = {"draws": np.zeros((31, 1), np.float32)}
    forged = Release(more.model, more.schema, more.certificate, Payload("draws", {"index_values": None}, tensors))
    assert any("31 draws, but the certificate covers 30" in p for p in forged.verify().problems)


def test_a_given_temperature_costs_less_or_is_refused():
    release = pgbb.fit(Mean("y", scale=1.0), frame(), **BUDGET, draws=1, tempering=0.01)
    assert release.stored_diagnostics["tempering"] == [pytest.approx(0.01)]


@pytest.mark.parametrize(
    "model, changes, said",
    [
        (Mean("e", family="exponential"), {"schema": Schema(e=Range(0, 12))}, "unbounded"),
        (
            HuberRegression("y ~ x"),
            {"loss": "gibbs", "schema": Schema(y=Range(-1e5, 1e5), x=Range(-1, 1))},
            "unbounded",
        ),
        (QuantileRegression("y ~ x"), {"loss": "beta"}, "needs a density with a bound"),
        (QuantileRegression("y ~ x", interval=(0.1, 0.9)), {}, "list of taus"),
        (Mean("y", scale=1.0), {"tempering": 0.9, "draws": 100}, "the budget allows tempering up to"),
        (Mean("y", scale=1.0), {"weights": "e"}, "counts every"),
        (Mean("y", scale=1.0), {"non_private": True}, "large epsilon"),
        (Mean("y", scale=1.0), {"draws": 0}, "draws"),
        (Mean("y"), {}, "needs the scale"),
    ],
)
def test_what_is_not_served_is_refused_before_anything_is_read(model, changes, said):
    with pytest.raises(InvalidValue, match=said):
        pgbb.fit(model, "no such file.csv", **(BUDGET | changes))


def test_loss_and_epsilon_of_the_beta_posterior_are_those_of_the_code_of_jewson_et_al():
    """`betaBayes_logisticRegression_ML.stan` of sghalebikesabi/beta-bayes-ops: its target, and ε = 2/β."""
    beta, rng = 0.8, np.random.default_rng(0)
    model = LogisticRegression("y ~ x - 1", bound=4.0)
    loss = bounded_loss(model, model.prepare(Schema(x=Range(-1, 1), y=pgbb.Flag())), "beta", beta)
    theta, x, y = rng.uniform(-4, 4, (7, 1)), rng.uniform(-1, 1, (40, 1)), (rng.random(40) < 0.5).astype(float)
    linear, sign = x @ theta.T, 2 * y[:, None] - 1
    p = np.exp(0.5 * sign * linear) / (np.exp(0.5 * linear) + np.exp(-0.5 * linear))
    target = p**beta / beta - (p ** (beta + 1) + (1 - p) ** (beta + 1)) / (beta + 1)
    assert loss.part(theta, x, y) + loss.rest(theta) == pytest.approx(-target, rel=1e-12)
    assert loss.part(theta, x, 1 - y) != pytest.approx(-target, rel=0.1)
    assert loss.sensitivity == pytest.approx(2 / beta, rel=1e-5)
    one = PosteriorDraws(40, 1, loss.sensitivity)
    assert epsilon(one, 1.0, 1e-12) == pytest.approx(2 / beta, rel=1e-3)
