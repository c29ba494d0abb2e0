import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, kstest, norm
from typer.testing import CliRunner

import pgbb
from pgbb import (
    Flag,
    HuberRegression,
    LogisticRegression,
    Mean,
    PgbbError,
    PgbbWarning,
    QuantileRegression,
    Range,
    Schema,
)
from pgbb.accountant import Resampling, epsilon, gdp_mu, noise_scale
from pgbb.cli import app
from pgbb.methods.dp_bootstrap import Settings, deconvolve, interval, run
from pgbb.methods.registry import METHODS
from pgbb.methods.request import Request, prepared
from pgbb.private.refits import refit_sensitivity
from pgbb.release.certificate import Certificate
from pgbb.release.file import Release
from pgbb.release.payloads import Payload

SCHEMA = Schema(a=Range(-1, 1), b=Range(0, 10), y=Range(-6, 6), f=Flag(), w=Range(0, 2))
HUBER = HuberRegression("y ~ a + b")
DELTA = 1e-5


def frame(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, n), rng.uniform(0, 10, n)
    y = 0.5 + 1.5 * a - 0.1 * b + 0.5 * rng.standard_normal(n)
    return pd.DataFrame({"a": a, "b": b, "y": y, "f": (y > 0).astype(int), "w": np.ones(n)})


def fit(model=HUBER, data=None, eps=4.0, seed=1, settings=None, **changes):
    METHODS["dp_bootstrap"].check(model, prepared(model, SCHEMA))  # as pgbb.fit does
    request = Request(model, frame() if data is None else data, SCHEMA, eps, DELTA, insecure_seed=seed, **changes)
    return run(request, settings or Settings())


def test_the_interval_is_the_printed_one():
    rng = np.random.default_rng(0)
    values, noise = rng.normal(3, 2, (20, 1)), np.array([1.5])
    s2 = values.var(ddof=1)
    bound = 19 * s2 / chi2.ppf(0.025, 19) - 1.5
    half = norm.ppf(1 - 0.0125) * math.sqrt(bound * 1.05 + 1.5 / 20)
    found = interval(values, noise)
    assert found.variance[0] == pytest.approx(bound)
    assert Settings().stretch * norm.ppf(0.975) * found.error[0] == pytest.approx(half)
    assert interval(values, np.array([1e3])).variance[0] == 0.0


@pytest.mark.parametrize("variance, noise", [(0.0, 1.0), (1.0, 1.0), (1.0, 0.0)])
def test_the_interval_covers_for_normal_estimates(variance, noise):
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(1500):
        data = math.sqrt(variance) * rng.standard_normal()
        values = data + math.sqrt(variance + noise) * rng.standard_normal((20, 1))
        found = interval(values, np.array([noise]))
        inside.append(abs(found.centre[0]) <= norm.ppf(1 - 0.0125) * found.error[0])
    assert np.mean(inside) > 0.96


@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_deconvolution_recovers_mean_variance_and_the_sign_of_the_skew(noise):
    rng = np.random.default_rng(2)
    truth = rng.exponential(1.0, 6000) + 2.0
    points, mass = deconvolve(truth + noise * rng.standard_normal(6000), noise, 3.0, 1.3)
    mean = mass @ points
    variance = mass @ (points - mean) ** 2
    assert mass.sum() == pytest.approx(1) and (mass >= 0).all()
    assert mean == pytest.approx(3.0, abs=0.06)
    assert variance == pytest.approx(1.0, rel=0.12)
    assert variance != pytest.approx(1 + noise**2, rel=0.12)  # what forgetting the noise would give
    assert mass @ (points - mean) ** 3 > 0.5


def test_without_information_the_deconvolved_law_is_normal():
    points, mass = deconvolve(np.array([0.3, -0.2]), 50.0, 0.0, 1.0)
    assert mass @ points == pytest.approx(0, abs=0.05)
    assert mass @ points**2 == pytest.approx(1, rel=0.05)


def test_the_draws_have_the_interval_of_the_method_in_original_units():
    release = fit(eps=8.0)
    problem, sigma = HUBER.prepare(SCHEMA), release.certificate.sigma
    noisy = np.array(release.stored_diagnostics["noisy_estimates"][0])
    assert noisy.shape == (20, 4)
    original = release.model.to_original(noisy)
    found = interval(original, sigma**2 * np.square(problem.transform).sum(axis=1))
    table = release.summary(level=0.95)
    names = ["Intercept", "a", "b"]  # the scale is cut at its lower bound
    half = norm.ppf(1 - 0.0125) * found.error[:3]
    assert table.loc[names, "mean"].to_numpy() == pytest.approx(found.centre[:3], abs=1e-9)
    assert table.loc[names, "lower"].to_numpy() == pytest.approx(found.centre[:3] - half, rel=1e-4, abs=1e-4)
    assert table.loc[names, "upper"].to_numpy() == pytest.approx(found.centre[:3] + half, rel=1e-4, abs=1e-4)
    wide = release.summary(level=0.99)
    ratio = (wide.upper - wide.lower)[names] / (table.upper - table.lower)[names]
    assert ratio.to_numpy() == pytest.approx(norm.ppf(0.995) / norm.ppf(0.975), rel=1e-3)


def test_draws_are_correlated_as_the_estimates_are():
    """Without noise the intercept and the slope of a covariate far from zero are negatively correlated."""
    release = fit(HuberRegression("y ~ b"), non_private=True, settings=Settings(replicates=200))
    assert np.corrcoef(release.payload.tensors["draws"].T).shape == (3, 3)
    sample = release.sample(2000, seed=0)
    noisy = release.model.to_original(release.stored_diagnostics["noisy_estimates"][0])
    assert np.corrcoef(noisy.T)[0, 1] < -0.7
    assert sample.corr().loc["Intercept", "b"] == pytest.approx(np.corrcoef(noisy.T)[0, 1], abs=0.06)


def test_without_noise_the_spread_is_that_of_the_bootstrap():
    data = frame(800)
    release = fit(Mean("y", scale=1.0), data, non_private=True, settings=Settings(replicates=400, variance_error=0.025))
    estimates = np.array(release.stored_diagnostics["noisy_estimates"][0])
    assert estimates.std() == pytest.approx(data["y"].std() / np.sqrt(800), rel=0.15)
    table = release.summary().iloc[0]
    assert table["mean"] == pytest.approx(data["y"].mean(), abs=0.01)
    assert table["sd"] == pytest.approx(1.1436 * data["y"].std() / np.sqrt(800), rel=0.2)
    assert kstest(release.sample(2000).iloc[:, 0], norm(table["mean"], table["sd"]).cdf).statistic < 0.04


def test_the_certificate_claims_what_is_proved_and_survives_a_file(tmp_path):
    release = fit(eps=2.0, seed=None)
    certificate = release.certificate
    target = certificate.mechanism
    assert isinstance(target, Resampling) and (target.n, target.replicates) == (1500, 20)
    assert target.sensitivity == refit_sensitivity(HUBER.prepare(SCHEMA), 1500, 0.02)
    assert certificate.sigma == noise_scale(target, 2.0, DELTA)
    assert Certificate.from_dict(certificate.to_dict()) == certificate
    assert certificate.n == 1500 and certificate.parts[0][0] == target
    path = release.save(tmp_path / "b.pgbb")
    loaded = pgbb.load(path)
    verified = loaded.verify()
    assert verified.ok, str(verified)
    assert verified.epsilons["exact"] <= 2.0 and verified.epsilons["paper"] is None
    assert any("does not apply" in line for line in verified.lines)
    pd.testing.assert_frame_equal(loaded.summary(), release.summary())
    runner = CliRunner()
    for command in ("show", "verify"):
        for extra in ([], ["--json"]):
            done = runner.invoke(app, [command, str(path), *extra])
            assert done.exit_code == 0, done.output


def test_a_smaller_claim_or_another_payload_fails_verification():
    release = fit(Mean("y", scale=1.0), eps=2.0, seed=None)
    plain = release.certificate.to_dict()
    false = Certificate.from_dict({**plain, "epsilon": 1.0})
    assert not false.check().ok and "the claim is false" in false.check().problems[0]
    assert not Certificate.from_dict({**plain, "accountant": "paper"}).check().ok
    kept = {f"transcript/{k}": np.zeros((1, 1)) for k in ("u", "query", "answer")}
    draws = Payload("draws", {"index_values": None}, {**release.payload.tensors, **kept})
    other = Release(release.model, release.schema, release.certificate, draws)
    assert any("refits" in p for p in other.verify().problems)


def test_the_printed_noise_claims_the_epsilon_that_is_proved():
    with pytest.warns(PgbbWarning, match="asymptotic"):
        release = fit(eps=1.0, seed=None, settings=Settings(calibration="asymptotic", clip=4.0))
    certificate = release.certificate
    target = certificate.mechanism
    printed = math.sqrt((2 - 2 / math.e) * 20) * target.sensitivity / gdp_mu(1.0, DELTA)
    assert certificate.sigma == pytest.approx(printed)
    assert target.sensitivity == pytest.approx(2 * 4.0 / (0.02 * 1500), rel=2e-3)
    assert certificate.epsilon == epsilon(target, printed, DELTA) > 1.4
    assert any("nominal ε = 1," in note for note in certificate.notes)
    assert release.verify().ok
    with pytest.raises(PgbbError, match="no finite"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(eps=300.0, settings=Settings(calibration="asymptotic"))


def test_levels_share_one_budget():
    release = fit(QuantileRegression("y ~ a", taus=[0.2, 0.5]), eps=6.0, seed=None)
    assert release.certificate.mechanism.replicates == 40
    assert release.payload.tensors["draws"].shape == (2, 2000, 2)
    assert release.verify().ok and release.certificate.epsilon == 6.0
    assert release.summary(tau=0.5).shape == (2, 5)


def test_logistic_and_survey_weights():
    data = frame()
    data.loc[:200, "w"] = 0.0
    data.loc[:200, "f"] = 1 - data.loc[:200, "f"]
    weighted = fit(LogisticRegression("f ~ a"), data, non_private=True, weights="w").summary()
    plain = fit(LogisticRegression("f ~ a"), data, non_private=True).summary()
    rest = fit(LogisticRegression("f ~ a"), data[201:], non_private=True, settings=Settings(penalty=0.04)).summary()
    assert plain.loc["a", "mean"] < weighted.loc["a", "mean"]  # weights are halved: the high of their range is 2
    assert weighted.loc["a", "mean"] == pytest.approx(rest.loc["a", "mean"], rel=0.1)


def test_coverage_and_width_of_a_small_study():
    """Means of 300 uniform numbers: intervals cover, and are not absurdly wide."""
    schema, settings = Schema(x=Range(0, 1)), Settings()
    inside, width = [], []
    for r in range(60):
        x = np.random.default_rng(r).uniform(0, 1, 300)
        request = Request(Mean("x", scale=0.3), pd.DataFrame({"x": x}), schema, 3.0, 1e-4, insecure_seed=r)
        low, high = run(request, settings).conf_int().iloc[0]
        inside.append(low <= 0.5 <= high)
        width.append(high - low)
    sigma = noise_scale(Resampling(300, 20, 1 / 300), 3.0, 1e-4)
    total = math.sqrt(1 / 12 / 300 * 1.05 + sigma**2 / 20)
    assert np.mean(inside) >= 0.93
    assert 2 * 1.96 * total < np.mean(width) < 8 * 1.96 * total


def test_a_seed_repeats_a_release_and_progress_is_told():
    seen = []
    first = fit(eps=8.0, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (20, 20) and len(seen) == 20
    assert np.array_equal(first.payload.tensors["draws"], fit(eps=8.0).payload.tensors["draws"])
    assert not np.array_equal(first.payload.tensors["draws"], fit(eps=8.0, seed=2).payload.tensors["draws"])
    assert not first.certificate.private


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"replicates": 1}, "replicates"),
        ({"replicates": 2.5}, "replicates"),
        ({"penalty": 0.0}, "penalty"),
        ({"clip": -1.0}, "clip"),
        ({"calibration": "printed"}, "calibration"),
        ({"variance_error": 0.0}, "variance_error"),
        ({"interval_error": 0.5}, "interval_error"),
        ({"draws": 10}, "draws"),
    ],
)
def test_bad_settings_are_refused(changes, word):
    with pytest.raises(PgbbError, match=word):
        Settings(**changes)


@pytest.mark.parametrize(
    "model, settings, changes, word",
    [
        (QuantileRegression("y ~ a", interval=(0.1, 0.9)), {}, {}, "list of taus"),
        (pgbb.Custom(lambda t, r, i: 0.0, 1, 1.0, ["a"], (-1, 1)), {}, {}, "custom"),
        (HUBER, {"clip": 0.1}, {}, "clip"),
        (Mean("y", scale=1.0), {"clip": 8.0}, {}, "declared range"),
        (Mean("y", scale=1.0), {}, {"weights": "w"}, "weights"),
        (HUBER, {}, {"accountant": "paper"}, "does not cover"),
        (QuantileRegression("y ~ a", taus=[0.2, 0.5, 0.8]), {"replicates": 2000}, {}, "replicates"),
    ],
)
def test_what_cannot_be_served_is_refused(model, settings, changes, word):
    with pytest.raises(PgbbError, match=word):
        fit(model, frame(50), settings=Settings(**settings), **changes)
