import math
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import HuberRegression, LogisticRegression, Mean, PgbbError, PgbbWarning, QuantileRegression, Range, Schema
from pgbb.accountant import Composition, gdp_mu
from pgbb.methods.effective_size import effective_sample_size
from pgbb.methods.noisy_gibbs import sampler as _gibbs
from pgbb.methods.noisy_gibbs.method import Settings, run
from pgbb.methods.request import Request
from pgbb.private.moments import Moment

pytestmark = pytest.mark.filterwarnings("ignore:Too few effective draws")

SCHEMA = Schema(a=Range(-1, 1), b=Range(-1, 1), y=Range(-5, 5), w=Range(0, 1))
TRUTH = np.array([1.5, -1.0])
PRIOR = _gibbs.Prior()


def frame(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    y = x @ TRUTH + 0.5 * rng.standard_normal(n)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "w": 1.0})


def fit(model=None, data=None, **changes):
    chosen = {"schema": SCHEMA, "epsilon": 4.0, "delta": 1e-6, "method": "noisy_gibbs", "insecure_seed": 1} | changes
    model = HuberRegression("y ~ a + b - 1") if model is None else model
    if isinstance(model, HuberRegression):
        chosen.setdefault("iterations", 10_000)
    return pgbb.fit(model, frame() if data is None else data, **chosen)


def released(noise, n=2000, seed=0):
    """Sums and moments of a simulated regression, with noise on the sums."""
    rng = np.random.default_rng(seed)
    data = frame(n, seed)
    x, y = data[["a", "b"]].to_numpy(), data["y"].to_numpy()
    products = Moment("products", 2, 5.0).of(x, y).sum(axis=0)
    return products, _gibbs.Released(
        n,
        products + noise * rng.standard_normal(len(products)),
        noise,
        Moment("second", 2).of(x, y).mean(axis=0),
        Moment("fourth", 2).of(x, y).mean(axis=0),
    )


# Samplers ------------------------------------------------------------------------------------------------------------


def test_a_gaussian_mean_has_its_closed_form():
    """z | μ is N(nμ, n·s² + τ²), so that μ | z is normal; without τ the spread would be another."""
    n, scale, noise, total, variance = 200, 0.5, 12.0, 290.0, 4.0
    chain = _gibbs.gaussian_chain(
        total, noise, n, scale=scale, variance=variance, iterations=60_000, rng=np.random.default_rng(1)
    )[100:]

    def closed(tau):
        precision = n**2 / (n * scale**2 + tau**2) + 1 / variance
        return n * total / (n * scale**2 + tau**2) / precision, precision**-0.5

    mean, sd = closed(noise)
    error = sd / math.sqrt(effective_sample_size(chain[:, None])[0])
    assert abs(chain.mean() - mean) < 4 * error
    assert chain.std() == pytest.approx(sd, rel=0.05)
    assert chain.std() != pytest.approx(closed(0.0)[1], rel=0.05)


def test_an_exponential_mean_has_the_posterior_of_the_noisy_sum():
    """Against a grid: prior of λ times the density N(z; n/λ, n/λ² + τ²)."""
    n, noise, total = 400, 40.0, 820.0
    chain = _gibbs.exponential_chain(
        total, noise, n, shape=1.0, rate=1.0, iterations=60_000, rng=np.random.default_rng(2)
    )[100:]
    rate = np.linspace(0.2, 1.2, 20_000)

    def moments(tau):
        variance = n / rate**2 + tau**2
        density = np.exp(-rate - (total - n / rate) ** 2 / (2 * variance)) / np.sqrt(variance)
        density /= density.sum()
        mean = (density / rate).sum()
        return mean, math.sqrt((density * (1 / rate - mean) ** 2).sum())

    mean, sd = moments(noise)
    assert chain.mean() == pytest.approx(mean, abs=0.1 * sd)  # the sampler is exact in λ | s, the grid normal
    assert chain.std() == pytest.approx(sd, rel=0.05)
    assert chain.std() != pytest.approx(moments(0.0)[1], rel=0.05)


def test_an_exponential_sum_that_came_out_negative_does_no_harm():
    chain = _gibbs.exponential_chain(
        -30.0, 50.0, 20, shape=1.0, rate=1.0, iterations=3000, rng=np.random.default_rng(0)
    )
    assert np.isfinite(chain).all() and (chain > 0).all()


def test_exact_sums_give_the_normal_inverse_gamma_posterior():
    products, _ = released(0.0)
    n, (aa, ab, bb, ay, by, yy) = 2000, products
    lam = np.array([[aa, ab], [ab, bb]]) + PRIOR.precision * np.eye(2)
    mean = np.linalg.solve(lam, [ay, by])
    shape, rate = PRIOR.shape + n / 2, PRIOR.rate + (yy - mean @ lam @ mean) / 2
    draws = _gibbs.conjugate_draws(products, n, PRIOR, 40_000, np.random.default_rng(0))
    sd = np.sqrt(rate / (shape - 1) * np.diag(np.linalg.inv(lam)))
    assert draws[:, :2].mean(axis=0) == pytest.approx(mean, abs=4 * sd.max() / 200)
    assert draws[:, :2].std(axis=0) == pytest.approx(sd, rel=0.02)
    assert (draws[:, 2] ** 2).mean() == pytest.approx(rate / (shape - 1), rel=0.002)


def test_with_little_noise_the_chain_has_the_conjugate_posterior():
    products, with_noise = released(0.1)
    chain, possible = _gibbs.regression_chain(with_noise, PRIOR, 20_000, np.random.default_rng(3))
    chain = chain[100:]
    draws = _gibbs.conjugate_draws(products, 2000, PRIOR, 40_000, np.random.default_rng(4))
    assert possible == 1
    assert np.abs(chain.mean(axis=0) - draws.mean(axis=0)).max() < 0.05 * draws.std(axis=0).min()
    assert chain.std(axis=0) == pytest.approx(draws.std(axis=0), rel=0.03)
    noisier, _ = _gibbs.regression_chain(released(30.0)[1], PRIOR, 20_000, np.random.default_rng(3))
    assert (noisier[2000:].std(axis=0) > 1.3 * draws.std(axis=0)).all()


def slow_chain(given, prior, iterations, rng):
    """The sampler from the equations of Bernstein & Sheldon 2019, one matrix entry at a time.

    The square root of the covariance of s is taken from the fast sampler, so
    that both use the same random numbers; that it is a root is checked.
    """
    p, n, size = given.p, given.n, len(given.second)
    d = size + p + 1
    normals, fresh = rng.standard_normal((iterations, d)), rng.standard_normal((iterations, p))
    gammas = rng.standard_gamma(prior.shape + n / 2, iterations)
    c, (beta, variance, _) = _gibbs._prepare(given, prior)
    pairs = [(i, j) for i in range(p) for j in range(i, p)]
    table = dict(zip(combinations_with_replacement(range(p), 4), given.fourth, strict=True))
    span = range(p)
    h4 = np.array([[[[table[tuple(sorted((i, j, k, l)))] for l in span] for k in span] for j in span] for i in span])
    h2, out = c["eta"], []
    for t in range(iterations):
        cross, explained = h2 @ beta, beta @ h2 @ beta
        cov = np.zeros((d, d))
        for e, (i, j) in enumerate(pairs):
            for f, (k, l) in enumerate(pairs):
                cov[e, f] = h4[i, j, k, l] - h2[i, j] * h2[k, l]
            for k in span:
                cov[e, size + k] = cov[size + k, e] = h4[i, j, k] @ beta - h2[i, j] * cross[k]
            cov[e, -1] = cov[-1, e] = beta @ h4[i, j] @ beta - h2[i, j] * explained
        for i in span:
            for j in span:
                cov[size + i, size + j] = variance * h2[i, j] + beta @ h4[i, j] @ beta - cross[i] * cross[j]
            third = np.einsum("jkl,j,k,l", h4[i], beta, beta, beta)
            cov[size + i, -1] = cov[-1, size + i] = third + 2 * variance * cross[i] - cross[i] * explained
        fourth = np.einsum("ijkl,i,j,k,l", h4, beta, beta, beta, beta)
        cov[-1, -1] = fourth + 4 * variance * explained + 2 * variance**2 - explained**2
        mean = n * np.array([*(h2[i, j] for i, j in pairs), *cross, variance + explained])
        gain = n * cov @ np.linalg.inv(n * cov + given.noise**2 * np.eye(d))
        scaled = c["times_root"] @ beta
        noise_root = np.sqrt(variance) * c["root_eta"]
        root = np.vstack(
            [
                c["top"],
                np.hstack([scaled, noise_root, np.zeros((p, 1))]),
                np.concatenate([beta @ scaled, 2 * beta @ noise_root, [math.sqrt(2) * variance]]),
            ]
        )
        assert root @ root.T == pytest.approx(cov, abs=1e-10)
        factor = np.linalg.cholesky(np.eye(d) + n / given.noise**2 * root.T @ root)
        spread = math.sqrt(n) * root @ np.linalg.inv(factor.T)
        assert spread @ spread.T == pytest.approx(n * cov - gain @ (n * cov), abs=1e-6)
        s = mean + gain @ (given.products - mean) + spread @ normals[t]
        lam = prior.precision * np.eye(p)
        for e, (i, j) in enumerate(pairs):
            lam[i, j] += s[e]
            lam[j, i] = lam[i, j]
        centre = np.linalg.solve(lam, s[size:-1])
        variance = (prior.rate + (s[-1] - centre @ lam @ centre) / 2) / gammas[t]
        beta = centre + np.sqrt(variance) * np.linalg.solve(np.linalg.cholesky(lam).T, fresh[t])
        out.append([*beta, math.sqrt(variance)])
    return np.array(out)


def test_the_fast_chain_is_the_slow_one():
    given = released(60.0)[1]
    slow = slow_chain(given, PRIOR, 150, np.random.default_rng(7))
    fast, _ = _gibbs.regression_chain(given, PRIOR, 150, np.random.default_rng(7))
    assert fast.dtype == np.float64
    assert fast == pytest.approx(slow, abs=1e-9)


def test_statistics_that_no_records_could_have_are_refused():
    """Noise far above the signal: the chain stays finite, and counts what it refused."""
    given = released(50.0, n=4)[1]
    chain, possible = _gibbs.regression_chain(given, PRIOR, 10_000, np.random.default_rng(0))
    assert np.isfinite(chain).all() and (chain[:, -1] > 0).all()
    assert 0.01 < possible < 1


def test_double_precision_stays_inside_the_sampler():
    import jax.numpy as jnp

    _gibbs.regression_chain(released(60.0)[1], PRIOR, 150, np.random.default_rng(0))
    assert jnp.ones(1).dtype == jnp.float32


# Noise and certificate -----------------------------------------------------------------------------------------------


def multipliers(certificate):
    """Sensitivity over noise of each release, from the certificate alone."""
    return np.array([2 * m.clip / (m.n * s) for m, s in certificate.parts])


def test_analytic_noise_is_the_exact_composition_at_the_shares():
    certificate = fit(delta=1e-5).certificate
    found = multipliers(certificate)
    assert isinstance(certificate.mechanism, Composition)
    assert found / found.sum() == pytest.approx([0.5, 0.25, 0.25])
    assert np.linalg.norm(found) == pytest.approx(gdp_mu(4.0, 1e-5), rel=1e-3)
    assert np.linalg.norm(found) <= gdp_mu(4.0, 1e-5)
    assert certificate.check().epsilons["exact"] <= 4.0


def test_classical_noise_is_the_printed_one_and_certified_below_its_budget():
    with pytest.warns(PgbbWarning, match="proved for ε' < 1 only"):
        release = fit(noise="classical", delta=1e-5)
    p, by = 2, 5.0
    sensitivities = [2 * math.sqrt(3 + p * by**2 + by**4), 2 * math.sqrt(3), 2 * math.sqrt(math.comb(5, 4))]
    for (m, sigma), share, delta in zip(release.certificate.parts, (0.5, 0.25, 0.25), sensitivities, strict=True):
        assert 2 * m.clip == pytest.approx(delta)
        printed = delta * math.sqrt(2 * math.log(1.25 / (share * 1e-5))) / (share * 4.0)
        assert m.n * sigma == pytest.approx(printed)
    assert release.certificate.epsilon == 4.0
    assert release.certificate.check().epsilons["exact"] < 4.0
    assert any("amounts to ε" in note for note in release.certificate.notes)


@pytest.mark.filterwarnings("error::pgbb.PgbbWarning")
def test_classical_noise_below_one_raises_no_warning():
    fit(Mean("y", scale=1.0), noise="classical", epsilon=0.9)


@pytest.mark.filterwarnings("ignore:noise = 'classical'")
def test_a_classical_budget_that_the_noise_does_not_keep_is_not_claimed():
    with pytest.warns(PgbbWarning, match="which is what the certificate claims"):
        release = fit(Mean("y", scale=1.0), noise="classical", epsilon=10.0, delta=1e-3, data=frame(900))
    assert release.certificate.epsilon > 10.5
    assert not any("claim is false" in problem for problem in release.certificate.check().problems)


def test_a_mean_has_the_sensitivity_of_its_range():
    certificate = fit(Mean("y", scale=1.0), delta=1e-5).certificate
    assert certificate.mechanism.clip == 5.0
    assert multipliers(certificate)[0] == pytest.approx(gdp_mu(4.0, 1e-5), rel=1e-3)


@pytest.mark.parametrize(
    "formula, low, high, given, bound",
    [
        ("y ~ a", 0, 10, None, 5.0),
        ("y ~ a - 1", 0, 10, None, 10.0),
        ("y ~ a - 1", -5, 5, None, 5.0),
        ("y ~ a - 1", -20, 20, 5.0, 5.0),
    ],
)
def test_the_bound_of_the_response_is_public(formula, low, high, given, bound):
    schema = Schema(a=Range(-1, 1), y=Range(low, high))
    release = fit(HuberRegression(formula), schema=schema, response_bound=given, iterations=200)
    p = len(release.model.names) - 1
    assert release.certificate.parts[0][0].clip == pytest.approx(Moment("products", p, bound).clip)
    assert any(f"clipped to ±{bound:g}" in note for note in release.certificate.notes)


# Whole fits ----------------------------------------------------------------------------------------------------------


def test_a_regression_finds_the_coefficients_and_verifies(tmp_path):
    release = fit()
    table = release.summary()
    off = (table.loc[["a", "b"], "mean"].to_numpy() - TRUTH) / table.loc[["a", "b"], "sd"].to_numpy()
    assert np.abs(off).max() < 4
    assert table.loc["scale", "mean"] == pytest.approx(0.5, abs=0.15)
    assert release.payload.kind == "draws" and release.payload.tensors["draws"].shape == (500, 3)
    assert release.stored_diagnostics["method"] == "noisy_gibbs"
    assert len(release.stored_diagnostics["effective_sample_size"][0]) == 3
    assert any("Gaussian errors" in note for note in release.certificate.notes)
    assert pgbb.load(release.save(tmp_path / "g.pgbb")).sample(10).shape == (10, 3)


def test_an_intercept_and_units_come_back_in_the_original_scale():
    rng = np.random.default_rng(5)
    x = rng.uniform(10, 30, 20_000)
    data = pd.DataFrame({"x": x, "y": 100 + 2 * x + 3 * rng.standard_normal(len(x))})
    schema = Schema(x=Range(10, 30), y=Range(100, 180))
    table = fit(HuberRegression("y ~ x"), data, schema=schema, epsilon=8.0, iterations=20_000).summary()
    assert table.loc["Intercept", "mean"] == pytest.approx(100, abs=4 * table.loc["Intercept", "sd"])
    assert table.loc["x", "mean"] == pytest.approx(2, abs=4 * table.loc["x", "sd"])
    assert table.loc["x", "sd"] < 0.2


def test_without_noise_the_draws_are_conjugate():
    release = fit(non_private=True, iterations=100_000)
    data = frame()
    x, y = data[["a", "b"]].to_numpy(), data["y"].to_numpy()
    slope, *_ = np.linalg.lstsq(x, y, rcond=None)
    sd = 0.5 * np.sqrt(np.diag(np.linalg.inv(x.T @ x)))
    table = release.summary()
    assert table["mean"].to_numpy()[:2] == pytest.approx(slope, abs=0.002)
    assert table["sd"].to_numpy()[:2] == pytest.approx(sd, rel=0.1)
    assert release.certificate.non_private


@pytest.mark.parametrize("family, seeds", [("gaussian", 60), ("exponential", 60)])
def test_intervals_of_a_mean_cover(family, seeds):
    hits, n = 0, 500
    model = Mean("x", family=family, scale=0.5)
    schema = Schema(x=Range(-5, 5) if family == "gaussian" else Range(0, 12))
    truth = 1.5 if family == "gaussian" else 2.0
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 9])
        x = rng.normal(1.5, 0.5, n) if family == "gaussian" else rng.exponential(2.0, n)
        release = fit(model, pd.DataFrame({"x": x}), schema=schema, epsilon=1.0, delta=1 / n, insecure_seed=seed)
        low, high = release.conf_int().iloc[0]
        hits += low <= truth <= high
    assert 0.85 * seeds <= hits


def test_the_seed_decides_everything_and_another_gives_another_release():
    draws = [fit(insecure_seed=s).payload.tensors["draws"] for s in (1, 1, 2)]
    assert (draws[0] == draws[1]).all() and not (draws[0] == draws[2]).any()


def test_burn_in_thinning_and_the_effective_size_of_a_mean():
    release = fit(Mean("y", scale=1.0), iterations=1000, burn_in=0.8, thin=4)
    assert len(release.payload.tensors["draws"]) == 50
    assert len(fit(Mean("y", scale=1.0)).payload.tensors["draws"]) == 1000
    kept = fit(Mean("y", scale=50.0), epsilon=50.0).stored_diagnostics["effective_sample_size"][0][0]
    assert kept > 1500  # of the 2,000 draws that are not thinned


def test_progress_reaches_the_end():
    seen = []
    fit(iterations=20_000, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (20_000, 20_000)


def test_a_chain_with_few_effective_draws_is_marked():
    with pytest.warns(PgbbWarning, match="effective draws"):
        release = fit(iterations=200)
    assert any("effective draws" in note for note in release.certificate.notes)


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [QuantileRegression("y ~ a"), LogisticRegression("z ~ a")])
def test_models_without_such_a_likelihood_are_refused(model):
    schema = Schema(a=Range(-1, 1), y=Range(-5, 5), z=pgbb.Flag())
    request = Request(model, frame(), schema, 1.0, 1e-6)
    with pytest.raises(PgbbError, match=f"does not serve {type(model).__name__}"):
        run(request, Settings())
    with pytest.raises(PgbbError, match="noisy_gibbs"):
        fit(model, schema=schema)


def test_survey_weights_are_refused():
    with pytest.raises(PgbbError, match="counts every record once"):
        fit(weights="w")


def test_a_bound_of_the_response_is_not_for_a_mean():
    with pytest.raises(PgbbError, match="narrower Range"):
        fit(Mean("y", scale=1.0), response_bound=3.0)


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"noise": "laplace"}, "noise"),
        ({"shares": (0.5, 0.5)}, "shares"),
        ({"shares": (0.5, 0.5, 0.5)}, "shares"),
        ({"shares": (1.0, 0.5, -0.5)}, "shares"),
        ({"iterations": 1e5}, "100_000"),
        ({"burn_in": 1.0}, "burn_in"),
        ({"thin": 0}, "thin"),
        ({"response_bound": 0.0}, "response_bound"),
        ({"variance_rate": 0.0}, "variance_rate"),
        ({"blocks": 5}, "blocks"),
        ({"accountant": "paper"}, "accountant='exact'"),
    ],
)
def test_settings_outside_their_range_are_refused(changes, word):
    with pytest.raises(PgbbError, match=word):
        fit(**changes)
