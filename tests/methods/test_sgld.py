import warnings

import jax
import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import HuberRegression, Mean, PgbbError, PgbbWarning, QuantileRegression, Range, Schema
from pgbb.accountant import Composition
from pgbb.methods.clipped_means import cut_off
from pgbb.methods.effective_size import effective_sample_size

pytestmark = pytest.mark.filterwarnings("ignore:Too few effective draws")

SCHEMA = Schema(a=Range(-1, 1), b=Range(-1, 1), y=Range(-6, 6))
TRUTH = np.array([1.5, -1.0])


def frame(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x @ TRUTH + 0.5 * rng.standard_normal(n)})


def fit(model, **changes):
    settings = {"schema": SCHEMA, "epsilon": 4.0, "delta": 1e-6, "method": "sgld", "steps": 4000, "insecure_seed": 1}
    return pgbb.fit(model, frame(), **(settings | changes))


@pytest.mark.parametrize("coefficient", [0.0, 0.5, 0.9])
def test_effective_sample_size_of_an_autoregression(coefficient):
    rng = np.random.default_rng(3)
    chain = np.zeros(60_000)
    for t in range(1, len(chain)):
        chain[t] = coefficient * chain[t - 1] + rng.standard_normal()
    expected = len(chain) * (1 - coefficient) / (1 + coefficient)
    got = effective_sample_size(chain[:, None])[0]
    assert got == pytest.approx(expected, rel=0.1)
    assert got != pytest.approx(1.3 * expected, rel=0.1)


def test_effective_sample_size_agrees_with_arviz():
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(4)
    chain = np.zeros(20_000)
    for t in range(1, len(chain)):
        chain[t] = 0.8 * chain[t - 1] + rng.standard_normal()
    theirs = float(arviz.ess(chain[None], method="mean"))
    assert effective_sample_size(chain[:, None])[0] == pytest.approx(theirs, rel=0.15)


def test_without_noise_the_chain_has_the_spread_of_the_gibbs_posterior():
    """For a quadratic loss the Gibbs posterior is normal with variance 1/(ω n H); the chain must show it."""
    data = frame(2000)
    spread = {}
    for tempering in (1.0, 0.1):
        release = pgbb.fit(
            pgbb.Mean("y", scale=1.0, clip=50.0), data, schema=SCHEMA, epsilon=1.0, delta=1e-6, method="sgld",
            steps=20_000, sampling_rate=1.0, tempering=tempering, step_size=3.0 / tempering,
            non_private=True, insecure_seed=2,
        )  # fmt: skip
        spread[tempering] = release.summary()["sd"].iloc[0] * np.sqrt(2000 * tempering)
        assert release.summary()["mean"].iloc[0] == pytest.approx(
            data["y"].mean(), abs=4 / np.sqrt(2000 * tempering) / 10
        )
    assert spread[1.0] == pytest.approx(1.0, rel=0.15) and spread[0.1] == pytest.approx(1.0, rel=0.15)
    assert spread[1.0] != pytest.approx(np.sqrt(2), rel=0.15)


def test_a_private_chain_finds_the_coefficients_and_verifies(tmp_path):
    release = fit(HuberRegression("y ~ a + b - 1"), epsilon=40.0)  # at less, the scale drowns in the noise
    table = release.summary()
    assert table.loc[["a", "b"], "mean"].to_numpy() == pytest.approx(TRUTH, abs=0.1)
    assert table.loc["scale", "mean"] == pytest.approx(0.5, abs=0.2)
    assert release.payload.kind == "draws" and len(release.payload.tensors["draws"]) == 2000
    assert release.certificate.check().epsilons["exact"] <= 40.0
    assert pgbb.load(release.save(tmp_path / "s.pgbb")).sample(10).shape == (10, 3)


def test_levels_share_one_budget_with_one_noise_multiplier():
    release = fit(QuantileRegression("y ~ a + b", taus=[0.2, 0.5]), steps=1500)
    target = release.certificate.mechanism
    assert isinstance(target, Composition)
    assert target.scales == tuple(m.clip for m in target.mechanisms)
    assert target.mechanisms[0].clip == pytest.approx(0.8 / 0.5 * target.mechanisms[1].clip)
    assert release.certificate.check().epsilons["exact"] <= 4.0
    low, high = (release.summary(tau=t).loc["Intercept", "mean"] for t in (0.2, 0.5))
    assert low < high


def test_fewer_draws_after_burn_in_and_thinning():
    release = fit(HuberRegression("y ~ a"), steps=1000, burn_in=0.8, thin=2)
    assert len(release.payload.tensors["draws"]) == 100


def test_a_chain_that_hardly_moves_is_marked():
    with pytest.warns(PgbbWarning, match="effective draws"):
        release = fit(HuberRegression("y ~ a"), steps=300, step_size=1e-4)
    assert any("effective draws" in note for note in release.certificate.notes)
    assert len(release.stored_diagnostics["effective_sample_size"][0]) == 3


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"blocks": 5}, "blocks"),
        ({"keep_transcript": True}, "keep_transcript"),
        ({"temperature": 1.0}, "temperature"),
        ({"tempering": 0.0}, "tempering"),
        ({"burn_in": 1.0}, "burn_in"),
        ({"method": "pgbb", "tempering": 1.0}, "tempering"),
    ],
)
def test_settings_of_another_method_are_refused(changes, word):
    with pytest.raises(PgbbError, match=word):
        fit(HuberRegression("y ~ a"), **changes)


def test_an_interval_of_levels_is_refused_with_the_remedy():
    with pytest.raises(PgbbError, match="list of taus"):
        fit(QuantileRegression("y ~ a", interval=(0.1, 0.9)))


def test_a_chain_runs_where_jax_counts_in_double_precision():
    """Otherwise it would fail at its first step, after the ledger has been charged."""
    with jax.enable_x64(True):
        release = fit(HuberRegression("y ~ a"), steps=50)
    assert release.certificate.epsilon == 4.0 and np.isfinite(release.sample(10, seed=0).to_numpy()).all()


def test_the_gradient_bound_can_be_given():
    from pgbb.methods.registry import settings_for
    from pgbb.methods.request import Request

    request = Request(Mean("y", scale=1.0), None, Schema(y=Range(-6, 6)), epsilon=1.0, delta=1e-6)
    chosen, given = settings_for("sgld", {"clip": 2.5, "steps": 100})
    planned = chosen.load().plan(request, given, 2000)
    default = chosen.load().plan(request, settings_for("sgld", {"steps": 100})[1], 2000)
    assert planned.mechanism.clip == 2.5 and planned.sigma < default.sigma


def test_a_chain_about_a_mean_whose_scores_are_clipped_says_so():
    """Clipped to 8, scores of a share below 1/8 have a root near 0."""
    data, schema = pd.DataFrame({"z": (np.arange(2000) % 33 == 0).astype(int)}), Schema(z=pgbb.Flag(), y=Range(0, 20))
    with pytest.warns(PgbbWarning, match=r"clipped to C = 8"):
        release = pgbb.fit(
            Mean("z", family="bernoulli"), data, schema=schema, epsilon=4.0, delta=1e-6, method="sgld", steps=2000,
            non_private=True,
        )  # fmt: skip
    assert any("clipped to C = 8" in note for note in release.certificate.notes)
    for model, mean, cut in (
        (Mean("z", family="bernoulli"), 0.3, False), (Mean("z", family="bernoulli"), 0.95, True),
        (Mean("z", family="bernoulli", clip=50.0), 0.03, False), (Mean("y", family="exponential"), 2.0, False),
        (Mean("y", family="exponential"), 0.2, True), (Mean("y", scale=0.1), 0.2, False),
    ):  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PgbbWarning)
            assert bool(cut_off(model.prepare(schema), np.full((9, 1), mean))) == cut
