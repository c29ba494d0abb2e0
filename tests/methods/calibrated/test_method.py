import warnings
from collections import Counter
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import (
    Custom,
    Flag,
    HuberRegression,
    LinearRegression,
    LogisticRegression,
    Mean,
    PgbbError,
    PgbbWarning,
    Range,
    Schema,
)
from pgbb import QuantileRegression as Quantile
from pgbb.accountant import epsilon as epsilon_of
from pgbb.methods.calibrated.asking import INGREDIENTS
from pgbb.methods.calibrated.method import Settings, run
from pgbb.methods.calibrated.stages import questions_for, whole_noise
from pgbb.methods.request import Request
from pgbb.private import sums
from pgbb.private.loading import records_for
from pgbb.reference import solve, to_original
from pgbb.release.payloads import Payload
from reproduction.references.quantile import exact_quantile

SCHEMA = Schema(a=Range(-1, 1), b=Range(-1, 1), y=Range(-6, 6), z=Flag(), t=Range(0, 12), w=Range(0, 4))
TRUTH = np.array([0.3, 1.5, -1.0])
FIVE = (0.1, 0.3, 0.5, 0.7, 0.9)
HUBER = HuberRegression("y ~ a + b")


def frame(n=5000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    middle = TRUTH[0] + x @ TRUTH[1:]
    error = rng.standard_normal(n)
    return pd.DataFrame(
        {
            "a": x[:, 0],
            "b": x[:, 1],
            "y": middle + 0.5 * error,
            "z": (middle + rng.logistic(size=n) > 0).astype(int),
            "t": rng.exponential(2.0, n),
            "w": np.where(error > 0, 1.0, 3.0),
        }
    )


def fit(model, data, epsilon=1.0, seed=1, **settings):
    return pgbb.fit(
        model, data, **({"schema": SCHEMA, "delta": 1e-6} | settings), epsilon=epsilon, method="calibrated",
        insecure_seed=seed,
    )  # fmt: skip


def exact(model, data, weights=None, schema=SCHEMA, index=None):
    problem = model.prepare(schema)
    return to_original(
        problem, solve(problem, records_for(data, problem, schema, weights).as_non_private(), index=index)
    )


def off(table, expected):
    """Distance from the exact solution, in standard errors of sampling."""
    return np.abs(table["mean"].to_numpy() - expected) / table["sampling_sd"].to_numpy()


def squares(theta, record, index):
    return 0.5 * (record["y"] - theta[0] - theta[1] * record["a"]) ** 2


CUSTOM = Custom(squares, dim=2, clip=8.0, columns=["y", "a"], box=(-5, 5))


# Without noise it is the exact fit -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        HUBER,
        LinearRegression("y ~ a + b"),
        HuberRegression("y ~ a + b - 1", c=1.0, kappa=0.5),
        LogisticRegression("z ~ a + b"),
        Mean("y", scale=0.7),
        Mean("t", family="exponential", clip=20.0),
    ],
)
def test_without_noise_the_centre_is_that_of_the_exact_solver(model):
    data = frame()
    release = fit(model, data, non_private=True)
    table = release.summary(draws=20_000)
    expected = exact(model, data)
    assert off(table, expected).max() < 0.15
    assert off(table, expected + 0.5 * table["sampling_sd"].to_numpy()).min() > 0.15  # half a standard error would show
    assert (table["privacy_sd"] < 1e-3 * table["sampling_sd"]).all() and table["identified"].all()
    assert release.certificate.non_private and not release.verify().ok


def test_without_noise_five_levels_are_five_exact_quantile_fits():
    data = frame()
    release = fit(Quantile("y ~ a + b", taus=FIVE), data, non_private=True)
    x = np.column_stack([np.ones(len(data)), data[["a", "b"]]])
    for tau in FIVE:
        expected = exact_quantile(x, data["y"], tau)
        assert off(release.summary(tau=tau, draws=20_000), expected).max() < 0.35
        assert off(release.summary(tau=tau), expected + 0.5 * np.array([0.02, 0.03, 0.03])).max() > 0.35


def test_without_noise_a_custom_loss_is_minimised_and_its_sandwich_is_found():
    data = frame()
    table = fit(CUSTOM, data, non_private=True).summary(draws=20_000)
    x = np.column_stack([np.ones(len(data)), data["a"]])
    expected = np.linalg.lstsq(x, data["y"], rcond=None)[0]
    assert off(table, expected).max() < 0.15
    residual = data["y"] - x @ expected
    bread = np.linalg.inv(x.T @ x)
    sandwich = np.sqrt(np.diag(bread @ (x.T * residual.to_numpy() ** 2) @ x @ bread))
    assert table["sampling_sd"].to_numpy() == pytest.approx(sandwich, rel=0.05)


def test_sampling_errors_are_those_of_theory():
    data = frame(10_000)
    x = np.column_stack([np.ones(len(data)), data[["a", "b"]]])
    inverse = np.linalg.inv(x.T @ x)
    median = fit(Quantile("y ~ a + b", taus=[0.5]), data, non_private=True).summary(tau=0.5)
    density = 1 / (0.5 * np.sqrt(2 * np.pi))  # the curvature is that of the smoothed loss, so a little less
    ratio = median["sampling_sd"].to_numpy() / (0.5 / density * np.sqrt(np.diag(inverse)))
    assert 0.95 < ratio.min() <= ratio.max() < 1.17
    logistic = fit(LogisticRegression("z ~ a + b"), data, non_private=True).summary()
    p = 1 / (1 + np.exp(-x @ TRUTH))
    fisher = np.sqrt(np.diag(np.linalg.inv((x.T * (p * (1 - p))) @ x)))
    assert logistic["sampling_sd"].to_numpy() == pytest.approx(fisher, rel=0.05)
    mean = fit(Mean("y", scale=1.0), data, non_private=True).summary()
    assert mean["sampling_sd"].iloc[0] == pytest.approx(data["y"].std() / np.sqrt(len(data)), rel=0.02)


def test_a_loss_with_kinks_is_served():
    data = frame()
    model = Custom(
        lambda t, r, i: abs(r["y"] - t[0]), dim=1, clip=1.0, columns=["y"], box=(-6, 6), names=["median"]
    )  # fmt: skip
    table = fit(model, data, epsilon=2.0).summary()
    assert table["lower"].iloc[0] < data["y"].median() < table["upper"].iloc[0]
    assert table["sd"].iloc[0] < 0.1


# Under noise ---------------------------------------------------------------------------------------------------------

REPLICATES, REGRESSION = 60, HuberRegression("y ~ a + b", scale=(0.05, 5.0))


@pytest.fixture(scope="module")
def replicates():
    """Releases of 60 data sets of 2,000 records."""
    return [fit(REGRESSION, frame(2000, 100 + r), epsilon=2.0, seed=r) for r in range(REPLICATES)]


def without(release, *parts):
    """The release with a part of its uncertainty left out."""
    tensors = {name: np.zeros_like(v) if name in parts else v for name, v in release.payload.tensors.items()}
    payload = Payload("local", release.payload.settings, tensors)
    return pgbb.Release(release.model, release.schema, release.certificate, payload)


def coverage(releases):
    names = ["Intercept", "a", "b"]
    inside = []
    for release in releases:
        table = release.summary(seed=0).loc[names]
        inside.append((table["lower"] <= TRUTH) & (table["upper"] >= TRUTH))
    return float(np.mean(inside))


def test_intervals_cover_the_truth_and_need_both_of_their_parts(replicates):
    assert 0.90 <= coverage(replicates) <= 0.99
    assert coverage([without(r, "sampling", "sampling_sd") for r in replicates]) < 0.88
    assert coverage([without(r, "privacy", "curvature_sd") for r in replicates]) < coverage(replicates) - 0.02


def test_the_stated_parts_are_the_errors_that_are_made(replicates):
    """Noise against the exact fit of the same data is privacy_sd; the exact fits scatter with sampling_sd."""
    known = [r for r, release in enumerate(replicates) if release.summary(seed=0, draws=100)["identified"].all()]
    assert len(known) >= REPLICATES - 2
    found = np.array([replicates[r].summary(seed=0, draws=2000)["mean"].to_numpy()[:3] for r in known])
    fits = np.array([exact(REGRESSION, frame(2000, 100 + r))[:3] for r in known])
    stated = [replicates[r].summary(seed=0, draws=100) for r in known]
    privacy = np.mean([t["privacy_sd"].to_numpy()[:3] for t in stated], axis=0)
    sampling = np.mean([t["sampling_sd"].to_numpy()[:3] for t in stated], axis=0)
    # privacy_sd also holds what noise in the curvature may do, which so few records hardly show
    assert 0.6 < np.sqrt(np.mean((found - fits) ** 2)) / privacy.mean() < 1.25
    assert np.sqrt(np.mean((fits - TRUTH) ** 2)) / sampling.mean() == pytest.approx(1, abs=0.2)
    for table in stated:
        parts = table["privacy_sd"] ** 2, table["sampling_sd"] ** 2
        assert table["privacy_share"].to_numpy() == pytest.approx((parts[0] / (parts[0] + parts[1])).to_numpy())


def test_more_privacy_means_wider_intervals_and_nothing_else():
    data = frame(20_000)
    tables = [fit(HUBER, data, epsilon=e).summary() for e in (8.0, 2.0, 0.7)]
    privacy = [t["privacy_sd"].iloc[:3].mean() for t in tables]
    assert privacy[0] < 0.5 * privacy[1] < 0.25 * privacy[2] * 1.2
    sampling = [t["sampling_sd"].iloc[:3].mean() for t in tables]
    assert sampling == pytest.approx([sampling[0]] * 3, rel=0.1)


def test_contrasts_of_levels_know_that_levels_share_their_noise():
    release = fit(Quantile("y ~ a + b", taus=FIVE), frame(20_000), epsilon=1.0)
    levels = [release.summary(tau=t).loc["Intercept", "mean"] for t in FIVE]
    assert levels == pytest.approx(0.3 + 0.5 * np.array([-1.2816, -0.5244, 0, 0.5244, 1.2816]), abs=0.08)
    near = release.contrast({("a", 0.5): 1, ("a", 0.3): -1})
    apart = np.hypot(release.summary(tau=0.5).loc["a", "sd"], release.summary(tau=0.3).loc["a", "sd"])
    assert near["sd"] < 0.9 * apart


@pytest.mark.parametrize(
    "model", [HUBER, Quantile("y ~ a + b", taus=[0.3, 0.7]), LogisticRegression("z ~ a + b"), CUSTOM]
)
def test_at_a_tiny_epsilon_coefficients_are_marked_and_intervals_say_little(model):
    data = frame(300)
    release = fit(model, data, epsilon=0.01)
    tau = 0.3 if release.model.index is not None else None
    with pytest.warns(PgbbWarning, match="not identified"):
        table = release.summary(tau=tau)
    assert not table["identified"].any()
    problem = model.prepare(SCHEMA)
    box = 2 * np.abs(problem.transform) @ problem.radius
    width = (table["upper"] - table["lower"]).to_numpy()
    assert (width > 0.5 * box).all()
    plenty = fit(model, frame(20_000), epsilon=4.0)
    assert plenty.summary(tau=tau)["identified"].all()  # the mark can be absent
    assert not release.verify().ok and "seed" in str(release.verify()).lower()


# Files, seeds, certificates ------------------------------------------------------------------------------------------

EVERY = {
    "huber": HUBER,
    "linear": LinearRegression("y ~ a + b"),
    "levels": Quantile("y ~ a + b", taus=FIVE),
    "interval": Quantile("y ~ a", interval=(0.1, 0.9)),
    "logistic": LogisticRegression("z ~ a + b"),
    "mean": Mean("y", scale=1.0),
    "exponential": Mean("t", family="exponential"),
    "custom": CUSTOM,
}


@pytest.mark.parametrize("name", EVERY)
def test_a_release_survives_its_file_and_its_certificate_verifies(name, tmp_path):
    data = frame(3000)
    release = pgbb.fit(EVERY[name], data, schema=SCHEMA, epsilon=1.0, delta=1e-6, method="calibrated")
    again = pgbb.load(release.save(tmp_path / "r.pgbb"))
    assert again.verify().ok, again.verify().problems
    tau = 0.5 if again.model.index is not None else None
    assert np.array_equal(again.sample(50, tau=tau, seed=1), release.sample(50, tau=tau, seed=1))
    certificate = again.certificate
    assert certificate.randomness == "operating system" and certificate.epsilon == 1.0
    certified = epsilon_of(certificate.mechanism, certificate.sigma, 1e-6)
    assert 0.99 < certified <= 1.0
    assert epsilon_of(certificate.mechanism, 0.9 * certificate.sigma, 1e-6) > 1.0  # less noise would not verify
    stages = again.stored_diagnostics["stages"]
    assert [m.answers for m in certificate.mechanism.mechanisms] == [asks for _, asks, _ in stages]
    assert all(m.n == len(data) and m.blocks == 1 and m.clip == 1 for m in certificate.mechanism.mechanisms)


def test_an_interval_of_levels_is_served_between_and_at_its_knots():
    release = fit(Quantile("y ~ a + b", interval=(0.1, 0.9)), frame(20_000), epsilon=2.0)
    for tau, z in ((0.1, -1.2816), (0.33, -0.4399), (0.5, 0.0), (0.77, 0.7388), (0.9, 1.2816)):
        table = release.summary(tau=tau)
        assert table["identified"].all()
        assert table.loc["Intercept", "mean"] == pytest.approx(0.3 + 0.5 * z, abs=0.06)
        assert table.loc[["a", "b"], "mean"].to_numpy() == pytest.approx(TRUTH[1:], abs=0.1)
    few = pgbb.fit(
        Quantile("y ~ a + b", interval=(0.1, 0.9)), frame(), schema=SCHEMA, epsilon=2.0, delta=1e-6,
        method="calibrated", knots=5, insecure_seed=1,
    )  # fmt: skip
    assert len(few.payload.tensors["knots"]) == 5
    with pytest.raises(PgbbError):
        release.summary(tau=0.95)


def test_two_fits_differ_and_an_insecure_seed_makes_them_equal():
    data = frame(2000)
    settings = {"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "method": "calibrated"}
    free = [pgbb.fit(HUBER, data, **settings).payload.tensors["gradient"] for _ in range(2)]
    tied = [pgbb.fit(HUBER, data, insecure_seed=5, **settings) for _ in range(2)]
    assert not np.array_equal(*free)
    for name, value in tied[0].payload.tensors.items():
        assert np.array_equal(value, tied[1].payload.tensors[name])
    assert not tied[0].verify().ok
    assert data.equals(frame(2000))  # and the frame is as it was


# Weights and missing cells -------------------------------------------------------------------------------------------


def curved(n):
    """A bend that the models below leave out, so that weights change what is estimated; some cells are missing."""
    data = frame(n)
    bend = 1.5 * data["a"] ** 2
    data["y"] += bend
    data["z"] = (np.random.default_rng(9).logistic(size=n) < 0.3 + 1.5 * data["a"] - data["b"] + 2 * bend).astype(int)
    data["w"] = np.where(data["a"] > 0, 2.0, 4.0)
    data.loc[::9, "b"] = np.nan
    return data


@pytest.mark.parametrize(
    "model, tau", [(Quantile("y ~ a + b", taus=[0.5]), 0.5), (LogisticRegression("z ~ a + b"), None)]
)
def test_survey_weights_and_missing_cells_move_the_target_as_they_move_the_exact_fit(model, tau):
    data = curved(20_000)
    plain = fit(model, data, non_private=True).summary(tau=tau, draws=20_000)
    assert off(plain, exact(model, data, index=tau)).max() < 0.5
    weighted = fit(model, data, non_private=True, weights="w")
    assert off(weighted.summary(tau=tau, draws=20_000), exact(model, data, "w", index=tau)).max() < 0.5
    assert off(plain, exact(model, data, "w", index=tau)).max() > 2  # weights do matter
    assert any("weights" in note for note in weighted.certificate.notes)


def test_the_declared_bound_of_the_weights_does_not_change_what_is_estimated():
    data, model = curved(20_000), LogisticRegression("z ~ a + b")
    data["w"] /= 4  # in a range of 0 to 4
    table = fit(model, data, non_private=True, weights="w").summary(draws=20_000)
    assert off(table, exact(model, data, "w")).max() < 0.5


@pytest.mark.parametrize("weights", [None, "w"])
def test_the_huber_scale_keeps_its_meaning_under_weights_and_missing_cells(weights):
    data = frame(20_000)
    data["w"] = 1.0  # of at most 4
    data.loc[::5, "b"] = np.nan
    table = fit(HUBER, data, non_private=True, weights=weights).summary()
    assert table.loc["scale", "mean"] == pytest.approx(exact(HUBER, data, weights)[-1], rel=0.02)


def test_a_missing_cell_does_not_pull_a_mean_to_the_middle_of_its_range():
    data = frame(20_000)
    data["y"] += 3
    data.loc[::5, "y"] = np.nan
    table = fit(Mean("y", scale=1.0), data, non_private=True).summary()
    assert off(table, data["y"].mean()).max() < 0.5


@pytest.mark.parametrize(
    "model, tau", [(HUBER, None), (Quantile("y ~ a + b", taus=[0.5]), 0.5), (LogisticRegression("z ~ a + b"), None)]
)
def test_equal_weights_leave_the_errors_as_they_are_whatever_their_declared_bound(model, tau):
    data = frame(20_000).assign(w=1.0)  # of at most 4
    plain = fit(model, data, non_private=True).summary(tau=tau)["sampling_sd"].iloc[:3].to_numpy()
    weighted = fit(model, data, non_private=True, weights="w").summary(tau=tau)["sampling_sd"].iloc[:3].to_numpy()
    assert weighted == pytest.approx(plain, rel=0.1)


@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_a_rare_flag_is_estimated_about_as_well_as_its_records_allow(epsilon):
    rng = np.random.default_rng(0)
    n, rare = 20_000, 0.01
    schema = Schema(a=Range(-1, 1), d=Flag(), y=Range(-20, 20))
    data = pd.DataFrame({"a": rng.uniform(-1, 1, n), "d": (rng.random(n) < rare).astype(int)})
    data["y"] = 1 + data["a"] + 2 * data["d"] + rng.standard_normal(n)
    release = fit(HuberRegression("y ~ a + d"), data, epsilon or 1.0, non_private=epsilon is None, schema=schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PgbbWarning)
        table = release.summary()
    assert table.loc["d", "sd"] < 3 * np.hypot(1 / np.sqrt(n * rare), 0.1)
    assert table.loc["d", "mean"] == pytest.approx(2.0, abs=1.0)


# Refusals ------------------------------------------------------------------------------------------------------------


def test_a_custom_loss_with_an_index_is_refused_before_the_records_are_read():
    model = Custom(
        lambda t, r, i: i * (r["y"] - t[0]) ** 2, dim=1, clip=1.0, columns=["y"], box=(-5, 5), index=[0.5, 1.0]
    )
    with pytest.raises(PgbbError, match=r"'calibrated' does not serve a custom loss with an index.*'pgbb'"):
        fit(model, "never-opened.csv")
    plain = Custom(lambda t, r, i: (r["y"] - t[0]) ** 2, dim=1, clip=1.0, columns=["y"], box=(-5, 5))
    assert fit(plain, frame(200)).model.index is None


@pytest.mark.parametrize(
    "changes, word",
    [({"knots": 2}, "knots"), ({"steps": 100}, "steps"), ({"epsilon": 0.0}, "epsilon"), ({"delta": 0.0}, "delta")],
)
def test_bad_settings_are_refused_before_the_records_are_read(changes, word):
    with pytest.raises(PgbbError, match=word):
        fit(HUBER, "never-opened.csv", **changes)


def test_a_large_delta_is_warned_about():
    with pytest.warns(PgbbWarning, match="1/n"):
        fit(HUBER, frame(500), delta=0.01)


# Data made to break it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_median_in_the_gap_between_two_humps_is_marked_or_wide(epsilon):
    rng, n = np.random.default_rng(0), 20_000
    data = frame(n)
    data["y"] = np.where(rng.random(n) < 0.5, 2.0, -2.0) + 0.5 * rng.standard_normal(n)
    release = fit(Quantile("y ~ a + b", taus=[0.25, 0.5]), data, epsilon=epsilon)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PgbbWarning)
        gap = release.summary(tau=0.5)
    assert not gap["identified"].any() or (gap["upper"] - gap["lower"]).min() > 1.0
    assert release.summary(tau=0.25)["identified"].all()


def test_a_column_and_its_square_over_a_wide_range_are_marked_or_right():
    """Nothing explains these wages, and age and its square are nearly one: intervals were narrow and far from zero."""
    schema = Schema(age=Range(16, 100), union=Flag(), region=pgbb.Levels("n", "s", "w"), wage=Range(0, 200))
    model, found = Quantile("wage ~ age + I(age**2) + union + region", taus=[0.5]), []
    for seed in (12, 19, 20, 25, 28, 46, 55, 58):
        rng, n = np.random.default_rng(seed), 5000
        data = pd.DataFrame({"age": rng.integers(18, 80, n), "union": rng.random(n) < 0.2})
        data["region"], data["wage"] = rng.choice(["n", "s", "w"], n), np.exp(rng.normal(3, 0.5, n))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PgbbWarning)
            found.append(fit(model, data, 2.0, seed, schema=schema).summary(tau=0.5).iloc[1:])
    table = pd.concat(found)
    assert (np.abs(table["mean"] / table["sd"])[table["identified"]] < 4).all()
    assert fit(model, data, 8.0, seed, schema=schema).summary(tau=0.5)["identified"].all()


def test_a_mean_with_a_scale_said_far_too_small_is_still_the_mean():
    data = frame(20_000)
    table = fit(Mean("t", scale=0.3), data, epsilon=4.0).summary()
    assert off(table, data["t"].mean()).max() < 4
    assert table["sampling_sd"].iloc[0] == pytest.approx(data["t"].std() / np.sqrt(len(data)), rel=0.35)


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_a_mean_over_a_range_far_too_wide_is_the_same_in_every_unit(unit):
    rng, n = np.random.default_rng(0), 20_000
    data = pd.DataFrame({"y": 500 * np.exp(0.5 * rng.standard_normal(n)) * unit})
    schema, sd = Schema(y=Range(0, 1e6 * unit)), data["y"].std()
    rows = [fit(Mean("y", scale=sd), data, seed=s, schema=schema).summary().iloc[0] for s in range(12)]
    away = np.array([(r["mean"] - data["y"].mean()) / r["privacy_sd"] for r in rows])
    assert np.sqrt(np.mean(away**2)) < 1.6  # the records are the same: what differs is the noise of privacy
    assert np.mean([r["sd"] for r in rows]) < 1.25 * sd / np.sqrt(n)


def test_the_certificate_says_how_many_records_are_weighted_down():
    data = frame(20_000)
    data["a"] = np.clip(0.01 * np.random.default_rng(0).standard_t(2, len(data)), -1, 1)
    some = fit(HUBER, data, non_private=True).certificate.notes[0]
    assert "of the records are clearly weighted down (±" in some and "at most" not in some
    none = fit(HUBER, frame(20_000), epsilon=1.0).certificate.notes[0]
    assert "at most" in none


def test_what_is_asked_is_what_the_questions_say():
    """Statistics, shapes of their parameters, powers of the weights and how often, for every kind of model."""
    n, rng = 4000, np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, n)})
    frame["y"] = frame["x"] + rng.normal(0, 0.5, n)
    frame["z"] = (frame["y"] > 0).astype(int)
    schema = pgbb.Schema(x=pgbb.Range(-1, 1), y=pgbb.Range(-4, 4), z=pgbb.Flag())
    models = (
        pgbb.QuantileRegression("y ~ x", taus=[0.2, 0.6]), pgbb.HuberRegression("y ~ x"),
        pgbb.LogisticRegression("z ~ x"), pgbb.Mean("y", scale=0.5),
        pgbb.Custom(lambda t, r, i: (r["y"] - t[0]) ** 2, dim=1, clip=1.0, columns=["y"], box=(-4, 4)),
    )  # fmt: skip
    real, real_ask = sums.sum_of, sums.Sums.ask
    for model in models:
        asked: list[Any] = []
        stage: list[str] = []

        def ask(statistic, rows, parameters, power=1, asked=asked, stage=stage):
            asked.append((stage[-1], statistic, tuple(np.shape(p) for p in parameters), power))
            return real(statistic, rows, parameters, power)

        def ask_stage(self, name, *given, stage=stage, **more):
            stage.append(name)
            return real_ask(self, name, *given, **more)

        with mock.patch.object(sums, "sum_of", ask), mock.patch.object(sums.Sums, "ask", ask_stage):
            pgbb.fit(model, frame, schema=schema, epsilon=1.0, delta=1e-6, insecure_seed=0)
        problem = model.prepare(schema)
        expected = Counter(
            {
                (s.name, q.function(problem), q.shapes, q.power): q.times
                for s in questions_for(problem, 2, whole_noise(n, 1.0, 1e-6), weighted=False)
                for q in s.questions
            }
        )
        if model is models[-1]:  # functions made for one prepared problem
            asked, expected = ([(a[0], *a[2:]) for a in asked], unmade(expected))
        assert Counter(asked) == expected


def unmade(expected):
    """The same without the functions."""
    found = Counter()
    for (name, _, shapes, power), times in expected.items():
        found[name, shapes, power] += times
    return found


@pytest.mark.parametrize("left_out", [("whitening",), ("redrawing", "shrinkage")])
def test_a_fit_without_an_ingredient_says_so_and_is_another(left_out):
    request = Request(HUBER, frame(2000), SCHEMA, 1.0, 1e-6, insecure_seed=1)
    whole, less = run(request, Settings()), run(request, Settings(), without=frozenset(left_out))
    assert "without" not in whole.stored_diagnostics
    assert less.stored_diagnostics["without"] == [name for name in INGREDIENTS if name in left_out]
    tensors = [release.payload.tensors["sampling_sd"] for release in (whole, less)]
    assert tensors[0].any() and tensors[1].any() == ("redrawing" not in left_out)
    assert not np.array_equal(whole.payload.tensors["curvature"], less.payload.tensors["curvature"])
    assert whole.certificate.sigma == less.certificate.sigma


def test_fits_of_one_process_share_neither_noise_nor_its_scale():
    data, releases = frame(2000), {}
    for epsilon, seed in ((1.0, None), (1.0, None), (4.0, None), (1.0, 7), (1.0, 7)):
        releases.setdefault(epsilon if seed is None else "seeded", []).append(fit(HUBER, data, epsilon, seed))
    (first, again), (precise,), seeded = releases[1.0], releases[4.0], releases["seeded"]
    for release, claim in ((first, 1.0), (again, 1.0), (precise, 4.0)):
        certificate = release.certificate
        assert claim * 0.99 < epsilon_of(certificate.mechanism, certificate.sigma, 1e-6) <= claim
    assert first.certificate.sigma == again.certificate.sigma > 2 * precise.certificate.sigma
    for name in ("center", "gradient", "curvature", "sampling"):
        assert not np.array_equal(first.payload.tensors[name], again.payload.tensors[name])
        assert np.array_equal(seeded[0].payload.tensors[name], seeded[1].payload.tensors[name])


def test_quantiles_of_a_response_with_a_step_are_those_of_the_response_spread_out():
    """Whole numbers without a step are marked; with it, the interval is about the quantile of y + U(−½, ½)."""
    rng, n = np.random.default_rng(0), 20_000
    data = pd.DataFrame({"y": rng.poisson(6.0, n).astype(float)})
    data["x"] = rng.uniform(-1, 1, n)
    tables = {}
    for step in (None, 1.0):
        schema = Schema(y=Range(0, 40, step=step), x=Range(-1, 1))
        model = pgbb.QuantileRegression("y ~ x", taus=[0.5, 0.75])
        release = pgbb.fit(model, data, schema=schema, epsilon=2.0, delta=1e-6, insecure_seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if step is None else "error", PgbbWarning)
            tables[step] = release.summary(tau=0.5)
    assert not tables[None]["identified"].any()
    smooth = np.quantile(data["y"].to_numpy() + rng.uniform(-0.5, 0.5, n), 0.5)
    row = tables[1.0].loc["Intercept"]
    assert row["identified"] and abs(row["mean"] - smooth) < 3 * row["sd"] and row["sd"] < 0.05


@pytest.mark.parametrize("formula", ["y ~ x + r", "y ~ x + z"])
def test_levels_that_never_occur_and_constant_columns_end_no_quantile_fit(formula):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(0, 1, 5000), "r": rng.choice(["a", "b"], 5000), "z": 0.5})
    frame["y"] = frame["x"] + rng.normal(size=5000)
    declared = pgbb.Schema(
        x=pgbb.Range(0, 1), z=pgbb.Range(0, 1), y=pgbb.Range(-5, 6), r=pgbb.Levels("a", "b", "c", "d")
    )
    model = pgbb.QuantileRegression(formula, taus=[0.1, 0.5, 0.9])
    for seed in range(4):
        for epsilon in (1, 100):
            found = pgbb.fit(model, frame, schema=declared, epsilon=epsilon, delta=1e-6, insecure_seed=seed)
            assert np.isfinite(found.summary()["sd"]).all()


def test_levels_beyond_what_noise_lets_a_histogram_show_are_marked():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.uniform(0, 1, 5000)})
    frame["y"] = 1 + 2 * frame["x"] + rng.normal(size=5000)
    declared = pgbb.Schema(x=pgbb.Range(0, 1), y=pgbb.Range(-10, 20))
    model = pgbb.QuantileRegression("y ~ x", taus=[0.01, 0.5, 0.99])
    marks = [
        pgbb.fit(model, frame, schema=declared, epsilon=e, delta=1e-6, insecure_seed=2).summary()["identified"]
        for e in (1, 100)
    ]
    assert not marks[0].to_numpy().reshape(3, 2)[[0, 2]].any() and marks[0].to_numpy().reshape(3, 2)[1].all()
    assert marks[1].all()
