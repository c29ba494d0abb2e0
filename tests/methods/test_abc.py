from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pgbb
from pgbb import Flag, HuberRegression, InvalidValue, Mean, PgbbWarning, Range, Schema, Simulated
from pgbb.methods import abc

SCHEMA = Schema(y=Range(-5, 5), e=Range(0, 60), b=Flag(), x=Range(-1, 1), g=Range(-9, 11))
BUDGET = {"schema": SCHEMA, "epsilon": 2.0, "delta": 1e-6, "insecure_seed": 1}
NORMAL = Simulated(
    simulator=lambda key, theta: {"g": theta[0] + jax.random.normal(key)},
    statistic=lambda r: r["g"] - 1,
    clip=10.0,
    columns=["g"],
    dim=1,
    box=(-9, 11),
)


def frame(n=800, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    return pd.DataFrame(
        {
            "y": 1.5 * x + 0.5 * rng.standard_normal(n),
            "x": x,
            "g": 1 + rng.standard_normal(n),
            "e": rng.exponential(2, n),
            "b": rng.random(n) < 0.3,
        }
    )


def draws(model, method, column=0, **changes):
    release = pgbb.fit(model, frame(), method=method, **(BUDGET | changes))
    return release.sample(release.payload.tensors["draws"].shape[0], seed=0).to_numpy()[:, column]


@pytest.mark.parametrize(
    "model, chain, epsilon",
    [
        (Mean("g", scale=1.0), {"iterations": 60_000, "thin": 30}, 1.0),
        (Mean("e", family="exponential"), {"iterations": 60_000, "thin": 30}, 1.0),
        (HuberRegression("y ~ x - 1"), {"iterations": 120_000, "thin": 60}, 4.0),
    ],
    ids=["gaussian", "exponential", "regression"],
)
def test_the_posterior_is_that_of_noisy_gibbs_and_a_wrong_kernel_has_another(model, chain, epsilon, monkeypatch):
    """The same release by the same seed; Kolmogorov-Smirnov. A kernel half as wide as the noise is another law."""
    gibbs = draws(model, "noisy_gibbs", epsilon=epsilon, **chain)
    exact = draws(model, "abc", epsilon=epsilon, draws=1000)
    assert stats.ks_2samp(gibbs, exact).pvalue > 1e-3
    target = abc.Target
    monkeypatch.setattr(abc, "Target", lambda total, noise, *rest: target(total, noise / 2, *rest))
    wrong = draws(model, "abc", epsilon=epsilon, draws=1000)
    assert stats.ks_2samp(gibbs, wrong).pvalue < 1e-3


def test_a_simulator_of_ones_own_has_the_closed_form():
    """A normal law with known scale, uniform prior: N(z, 1/n + τ²)."""
    release = pgbb.fit(NORMAL, frame()[["g"]], method="abc", proposals=4000, **BUDGET)
    ((m, sigma),) = release.certificate.parts
    variance = 1 / m.n + (NORMAL.clip * sigma) ** 2
    assert release.summary()["sd"].iloc[0] == pytest.approx(np.sqrt(variance), rel=0.06)
    assert release.summary()["sd"].iloc[0] != pytest.approx(NORMAL.clip * sigma, rel=0.06)
    assert release.summary()["sd"].iloc[0] != pytest.approx(np.sqrt(1 / m.n), rel=0.06)
    assert abs(release.summary()["mean"].iloc[0] - frame()["g"].mean()) < 5 * np.sqrt(variance)


def test_a_bernoulli_mean_has_the_posterior_of_quadrature():
    release = pgbb.fit(Mean("b", family="bernoulli"), frame(), method="abc", **BUDGET)
    ((m, sigma),) = release.certificate.parts
    grid, ones = np.linspace(0.1, 0.5, 801), np.arange(m.n + 1)
    centre = release.summary()["mean"].iloc[0]
    law = stats.binom.pmf(ones[:, None], m.n, grid[None])

    def spread(noise):
        density = stats.norm.pdf(centre * m.n, ones, noise) @ law
        density /= density.sum()
        return np.sqrt(density @ (grid - density @ grid) ** 2)

    assert release.summary()["sd"].iloc[0] == pytest.approx(spread(m.n * sigma), rel=0.05)
    assert release.summary()["sd"].iloc[0] != pytest.approx(spread(3 * m.n * sigma), rel=0.05)


def test_few_effective_draws_are_marked(tmp_path):
    with pytest.warns(PgbbWarning, match="Too few effective draws"):
        release = pgbb.fit(
            HuberRegression("y ~ x + g"), frame(), method="abc", proposals=1000, rounds=1, **(BUDGET | {"epsilon": 40})
        )
    assert any("Too few effective" in note for note in release.certificate.notes)
    assert release.stored_diagnostics["effective_sample_size"][0][0] < 100
    release.save(tmp_path / "r.pgbb")
    loaded = pgbb.load(tmp_path / "r.pgbb")
    assert [p for p in loaded.verify().problems if "seed" not in p] == []
    assert loaded.sample(5).shape == (5, 4)


@pytest.mark.parametrize(
    "model, changes, said",
    [
        (Mean("g", scale=1.0), {"non_private": True}, "without noise no simulated statistic"),
        (Mean("g", scale=1.0), {"proposals": 10}, "proposals"),
        (HuberRegression("y ~ x"), {"shares": (0.5, 0.5, 0.5)}, "shares"),
        (HuberRegression("y ~ x"), {"weights": "e"}, "counts every"),
        (replace(NORMAL, simulator=lambda key, theta: {"g": jnp.log(theta[0])}), {}, "finite"),
        (pgbb.QuantileRegression("y ~ x"), {}, "does not serve quantile"),
    ],
)
def test_what_is_not_served_is_refused_before_anything_is_read(model, changes, said):
    with pytest.raises(InvalidValue, match=said):
        pgbb.fit(model, "no such file.csv", method="abc", **(BUDGET | changes))
