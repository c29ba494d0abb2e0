import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pgbb
from pgbb import HuberRegression, InvalidValue, Mean, PgbbWarning, Range, Schema
from pgbb.methods import augmented

SCHEMA = Schema(y=Range(-5, 5), x=Range(-1, 1), g=Range(-9, 11), e=Range(0, 3))
BUDGET = {"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "insecure_seed": 1}


def frame(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = np.clip(0.35 * rng.standard_normal(n), -1, 1)
    y = 0.5 + x + 0.5 * rng.standard_normal(n)
    return pd.DataFrame({"y": y, "x": x, "g": 1 + rng.standard_normal(n), "e": rng.exponential(2, n)})


def draws(model, method, **changes):
    release = pgbb.fit(model, frame(), method=method, **(BUDGET | changes))
    return release.sample(release.payload.tensors["draws"].shape[0], seed=0).to_numpy()


def test_a_gaussian_mean_has_its_closed_form_and_a_wrong_noise_another(monkeypatch):
    """μ | z is normal with precision n²/(n + τ²) + 1/100."""
    release = pgbb.fit(Mean("g", scale=1.0), frame(), method="augmented", iterations=15_000, thin=30, **BUDGET)
    ((m, sigma),) = release.certificate.parts
    noise = m.n * sigma
    found = release.sample(350, seed=0).to_numpy()[:, 0]

    def law(tau):
        precision = m.n**2 / (m.n + tau**2) + 1 / 100
        return stats.norm(found.mean(), precision**-0.5)

    assert stats.kstest(found, law(noise).cdf).pvalue > 1e-3
    assert stats.kstest(found, law(noise / 2).cdf).pvalue < 1e-3
    assert 0.9 < release.stored_diagnostics["acceptance"] < 1


def test_clamped_records_are_latent_as_they_were():
    """A fifth of an exponential law lies beyond the range: ABC clamps, and agrees; NoisyGibbs does not."""
    model = Mean("e", family="exponential")
    chain = draws(model, "augmented", iterations=12_000, thin=12)[:, 0]
    assert stats.ks_2samp(chain, draws(model, "abc", draws=700)[:, 0]).pvalue > 1e-3
    assert stats.ks_2samp(chain, draws(model, "noisy_gibbs", iterations=8000, thin=8)[:, 0]).pvalue < 1e-3


def test_parameters_given_records_have_their_conjugate_law():
    """One regression with known latent records: moments of many conjugate draws, against ordinary formulas."""
    import jax

    from pgbb.methods.noisy_sums import ask
    from pgbb.methods.request import Request

    request = Request(
        model=HuberRegression("y ~ x"), data=frame(), schema=SCHEMA, epsilon=1.0, delta=1e-6, insecure_seed=1
    )
    model = augmented._regression(ask(request, "augmented"), augmented.Settings(), np.random.default_rng(0))
    records = frame()[["x", "y"]].to_numpy(np.float32)
    gammas = np.random.default_rng(1).standard_gamma(model.shapes, (4000, len(model.shapes)))
    keys = jax.random.split(jax.random.key(0), 4000)
    many = jax.vmap(lambda key, drawn: model.conjugate(key, drawn, records))(keys, gammas)
    beta, deviation, centre, root = (np.asarray(v, np.float64) for v in many)
    x = np.column_stack([np.ones(300), records[:, 0]])
    precision = x.T @ x + 0.5 * np.eye(2)
    mean = np.linalg.solve(precision, x.T @ records[:, 1])
    rate = 1 + (np.sum(records[:, 1] ** 2) - mean @ precision @ mean) / 2
    variance = rate / (2 + 150 - 1)
    error = np.sqrt(variance * np.diag(np.linalg.inv(precision)))
    assert beta.mean(axis=0) == pytest.approx(mean, abs=4 * error.max() / 63)
    assert beta.std(axis=0) == pytest.approx(error, rel=0.06)
    assert (deviation**2).mean() == pytest.approx(variance, rel=0.01)
    middle = records[:, 0].mean()
    scatter = 1 / 3 + np.sum((records[:, 0] - middle) ** 2) + 300 / 301 * middle**2
    assert (root[:, 0, 0] ** 2).mean() == pytest.approx(scatter / (303 - 2), rel=0.01)
    assert (root[:, 0, 0] ** 2).mean() != pytest.approx(scatter / (303 + 10), rel=0.01)
    assert centre.std() == pytest.approx(np.sqrt(scatter / 301 / 301), rel=0.06)


def test_a_regression_is_found_and_few_effective_draws_are_marked(tmp_path):
    with pytest.warns(PgbbWarning, match="Too few effective draws"):
        release = pgbb.fit(
            HuberRegression("y ~ x"), frame(), method="augmented", iterations=600, **(BUDGET | {"epsilon": 8.0})
        )
    table = release.summary()
    truth = np.array([0.5, 1.0, 0.5])
    assert np.all(np.abs(table["mean"] - truth) < 4 * table["sd"]) and np.all(table["sd"] < 0.5)
    release.save(tmp_path / "r.pgbb")
    loaded = pgbb.load(tmp_path / "r.pgbb")
    assert [p for p in loaded.verify().problems if "seed" not in p] == []
    assert loaded.sample(5).shape == (5, 3)


def test_uniform_covariates_do_not_bias_the_slope():
    """Latent normal covariates beyond the range are clamped before the response follows them; else slopes shrink."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, 4000)
    data = pd.DataFrame({"x": x, "y": 2 * x + 0.5 * rng.standard_normal(4000)})
    settings = BUDGET | {"epsilon": 8.0, "iterations": 500}
    with pytest.warns(PgbbWarning, match="Too few effective draws"):
        table = pgbb.fit(HuberRegression("y ~ x"), data, method="augmented", **settings).summary()
    assert abs(table.loc["x", "mean"] - 2) < 4 * table.loc["x", "sd"] < 0.12  # unclamped the slope is 1.78


@pytest.mark.parametrize(
    "model, changes, said",
    [
        (Mean("g", scale=1.0), {"non_private": True}, "no latent record can change"),
        (Mean("g", scale=1.0), {"iterations": 10}, "iterations"),
        (Mean("g", scale=1.0), {"response_bound": 2.0}, "narrower Range"),
        (HuberRegression("y ~ x"), {"weights": "e"}, "counts every"),
        (pgbb.LogisticRegression("y ~ x"), {}, "0/1 response"),
        (pgbb.QuantileRegression("y ~ x"), {}, "does not serve quantile"),
    ],
)
def test_what_is_not_served_is_refused_before_anything_is_read(model, changes, said):
    with pytest.raises(InvalidValue, match=said):
        pgbb.fit(model, "no such file.csv", method="augmented", **(BUDGET | changes))
