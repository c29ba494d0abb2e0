import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import beta as beta_law
from scipy.stats import norm

from pgbb import NotCertifiable
from pgbb.accountant import Mechanism, compose, delta, epsilon, epsilon_bounds, gdp_delta, gdp_epsilon
from pgbb.accountant.bounds import delta_bounds
from pgbb.accountant.exact import from_above, from_below, weight_bins
from tests.accountant import oracle
from tests.accountant.builders import DESIGN, mechanism

TRUE = [0.8848, 1.8026, 2.8991]  # by a characteristic-function oracle, at the paper's σ


@pytest.mark.parametrize("row, true", list(zip(DESIGN, TRUE, strict=True)))
def test_design_table_is_certified_within_one_percent_and_never_below_the_truth(row, true):
    n, blocks, gamma, q, answers, _, delta_, noise = row
    d = mechanism(n, blocks, gamma, q, answers)
    lower, upper = epsilon_bounds(d, noise / d.block_size, delta_)
    assert (upper - lower) / upper <= 0.01
    assert true - 5e-5 <= upper <= 1.01 * true  # the table is rounded to four digits
    assert lower <= true + 5e-5
    assert epsilon(d, noise / d.block_size, delta_) == upper


@pytest.mark.parametrize("steps", [1, 10, 1000])
@pytest.mark.parametrize("mu_total, delta_", [(0.1, 1e-3), (1.0, 1e-6), (5.0, 1e-9), (1.0, 1e-30)])
def test_full_batches_with_constant_weight_are_the_gaussian_mechanism_with_sensitivity_2c(steps, mu_total, delta_):
    d = mechanism(n=500, blocks=1, q=1.0, steps=steps, clip=3.0)
    sigma = 2 * 3.0 * np.sqrt(steps) / (500 * mu_total)
    expected = gdp_epsilon(mu_total, delta_)
    lower, upper = epsilon_bounds(d, sigma, delta_)
    assert lower <= expected * (1 + 1e-9) and expected <= upper * (1 + 1e-9)
    assert upper == pytest.approx(expected, rel=1e-3)
    assert delta(d, sigma, expected) == pytest.approx(delta_, rel=0.03)


@pytest.mark.parametrize("q", [0.1, 0.6, 0.97, pytest.param(0.002, marks=pytest.mark.evidence)])
@pytest.mark.parametrize("mu", [0.05, 0.7, 3.0])
def test_one_answer_encloses_the_quadrature_of_the_hockey_stick(q, mu):
    d = mechanism(n=100, blocks=1, q=q, steps=1)
    sigma = 1 / (100 * mu)
    for eps in (0.0, 0.3 * q * mu, 2 * q * mu, 1.0):
        expected = oracle.hockey_stick(q, mu, eps)
        if expected < 1e-7:
            continue
        lower, upper = delta_bounds(d, sigma, eps)
        assert lower <= expected * (1 + 1e-5) + 1e-9
        assert upper >= expected * (1 - 1e-5) - 1e-9
        assert upper <= expected * 1.1


def test_two_answers_enclose_a_double_integral():
    q, mu, eps = 0.3, 0.9, 0.8
    _, step, p, r = oracle.antipodal(q, mu, points=3001, reach=9.0)
    expected = np.maximum(np.outer(p, p) - np.exp(eps) * np.outer(r, r), 0).sum() * step**2
    lower, upper = delta_bounds(mechanism(n=10, blocks=1, q=q, steps=2), 1 / (10 * mu), eps)
    assert lower <= expected * (1 + 1e-4) and expected * (1 - 1e-4) <= upper <= expected * 1.05


@pytest.mark.parametrize(
    "q, noise, steps, delta_", [(0.01, 1.0, 1000, 1e-5), (0.1, 4.0, 300, 1e-6), (0.5, 8.0, 50, 1e-4)]
)
def test_constant_weight_agrees_with_dp_accounting(q, noise, steps, delta_):
    theirs = pld.from_gaussian_mechanism(
        noise,
        sampling_prob=q,
        value_discretization_interval=2e-4,
        neighboring_relation=pld.NeighborRel.REPLACE_ONE,
    ).self_compose(steps)
    lower, upper = epsilon_bounds(mechanism(n=1000, blocks=1, q=q, steps=steps), noise / 1000, delta_)
    expected = theirs.get_epsilon_for_delta(delta_)
    assert lower <= expected * (1 + 1e-4)  # theirs is an upper bound as well
    assert upper == pytest.approx(expected, rel=5e-3)


def test_tilting_certifies_where_an_untilted_transform_cannot():
    steps, delta_ = 1000, 1e-40
    sigma = 2 * np.sqrt(steps) / 100
    upper = epsilon(mechanism(n=100, blocks=1, q=1.0, steps=steps), sigma, delta_)
    assert upper == pytest.approx(gdp_epsilon(1.0, delta_), rel=2e-3)


def test_a_beta_mixture_of_one_answer_encloses_direct_integration():
    d = mechanism(n=1000, blocks=5, gamma=0.6, q=0.2, steps=1)
    sigma = d.clip / (0.8 * d.block_size)
    u = (np.arange(4000) + 0.5) / 4000
    weights = beta_law.ppf(u, *d.beta_law)
    for eps in (0.02, 0.1):
        expected = np.mean([_delta_formula(0.2, 0.8 * w, eps) for w in weights])
        lower, upper = delta_bounds(d, sigma, eps)
        assert lower <= expected * 1.002 and expected * 0.998 <= upper <= expected * 1.05


def _delta_formula(q, mu, eps):
    """P(L > ε) − e^ε Q(L > ε) with the threshold found by bisection on the loss itself."""
    low, high = -40.0, 40.0 + 40 / mu
    for _ in range(80):
        x = 0.5 * (low + high)
        loss = np.logaddexp(np.log1p(-q), np.log(q) + mu * x - mu**2 / 2) - np.logaddexp(
            np.log1p(-q), np.log(q) - mu * x - mu**2 / 2
        )
        low, high = (x, high) if loss < eps else (low, x)
    p = (1 - q) * norm.sf(x) + q * norm.sf(x - mu)
    r = (1 - q) * norm.sf(x) + q * norm.sf(x + mu)
    return p - np.exp(eps) * r


def _two_dimensional(q, first, second, eps, points=401, reach=8.0):
    x = np.linspace(-reach, reach, points)
    density = lambda c: np.outer(norm.pdf(x - c[0]), norm.pdf(x - c[1]))  # noqa: E731
    p = (1 - q) * density((0, 0)) + q * density(first)
    r = (1 - q) * density((0, 0)) + q * density(second)
    return np.maximum(p - np.exp(eps) * r, 0).sum() * (x[1] - x[0]) ** 2


def _random_pairs(radius, count):
    rng = np.random.default_rng(7)
    for _ in range(count):
        angle, size = rng.uniform(0, 2 * np.pi, 2), radius * np.sqrt(rng.uniform(0, 1, 2))
        yield [(s * np.cos(a), s * np.sin(a)) for s, a in zip(size, angle, strict=True)]


@pytest.mark.parametrize("q, mu, eps", [(0.1, 1.0, 0.05), (0.5, 0.5, 0.2), (0.9, 1.5, 1.0), (0.3, 2.0, -0.4)])
def test_random_two_dimensional_pairs_never_exceed_the_antipodal_one(q, mu, eps):
    bound = oracle.hockey_stick(q, mu, eps)
    worst = max(_two_dimensional(q, *pair, eps) for pair in _random_pairs(mu, 60))
    assert worst <= bound * (1 + 1e-6)
    assert _two_dimensional(q, (mu, 0), (-mu, 0), eps) == pytest.approx(bound, rel=2e-4)


def test_pairs_from_a_larger_disc_do_exceed_it():
    bound = oracle.hockey_stick(0.5, 0.5, 0.2)
    assert max(_two_dimensional(0.5, *pair, 0.2) for pair in _random_pairs(0.8, 60)) > bound


def test_both_grid_laws_are_laws_and_bracket_the_mean_loss():
    d = mechanism(n=1000, blocks=5, gamma=0.6, q=0.2)
    sigma = d.clip / (0.5 * d.block_size)
    laws = [
        make(weight_bins(d, sigma, 0.002, above=up), 0.2, 1e-3, 1e-14)
        for make, up in ((from_above, True), (from_below, False))
    ]
    means = []
    for law in laws:
        assert np.all(law.mass >= 0) and law.mass.sum() == pytest.approx(1.0, abs=1e-9)
        means.append(law.mass @ (law.step * np.arange(-law.size, law.size + 1)))
    assert means[1] < means[0] < 1.02 * means[1]


def test_composition_of_different_mechanisms_lies_between_its_parts_and_their_double():
    a = mechanism(q=0.1, steps=500)
    b = mechanism(blocks=5, q=0.2, steps=200, clip=0.5)
    sigma = 5 / a.block_size
    both = epsilon(compose([a, b]), sigma, 1e-5)
    assert max(epsilon(a, sigma, 1e-5), epsilon(b, sigma, 1e-5)) < both
    assert both < epsilon(a, sigma, 5e-6) + epsilon(b, sigma, 5e-6)
    assert epsilon(compose([a, a]), sigma, 1e-5) == pytest.approx(
        epsilon(mechanism(q=0.1, steps=1000), sigma, 1e-5), rel=2e-3
    )


def test_delta_below_the_floor_is_refused_with_the_floor_in_the_message():
    with pytest.raises(NotCertifiable, match="1e-100"):
        epsilon(mechanism(steps=10), 0.01, 1e-101)
    assert delta(mechanism(steps=1), 10.0, 40.0) == 1e-100


def test_hopeless_noise_is_reported_as_infinite():
    assert epsilon(mechanism(steps=10_000), 1e-7, 1e-5) == np.inf
    assert delta(mechanism(steps=10_000), 1e-7, 1.0) == 1.0


def test_delta_inverts_epsilon():
    d = mechanism(steps=2000)
    sigma = 4 / d.block_size
    for delta_ in (1e-3, 1e-6, 1e-9):
        assert delta(d, sigma, epsilon(d, sigma, delta_)) == pytest.approx(delta_, rel=0.02)


def test_gdp_curve_is_the_composed_curve_at_q_one():
    d = Mechanism(n=50, blocks=1, sampling_rate=1.0, steps=4, clip=1.0)
    sigma = 0.1
    mu = 2 * 2.0 / (50 * sigma)
    for eps in (0.1, 1.0, 2.0):
        assert delta(d, sigma, eps) == pytest.approx(gdp_delta(mu, eps), rel=0.02)


def test_absurdly_rare_sampling_is_not_lost_in_rounding():
    d = Mechanism(n=1, blocks=1, sampling_rate=1e-17, steps=1, clip=1.0)
    lower, upper = epsilon_bounds(d, 1 / 12, 1e-18)
    assert lower <= 47.286 <= upper  # by 40-digit arithmetic


def test_losses_whose_tails_leave_double_precision_are_called_infinite():
    d = Mechanism(n=1, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    assert epsilon(d, 1 / 9.6, 8.1e-78) == np.inf  # 541.4 in truth
    assert delta(d, 1 / 6, 140.0) == pytest.approx(gdp_delta(12.0, 140.0), rel=0.03)


@pytest.mark.parametrize("sigma", [1e10, 1e14, 1e300])
def test_noise_beyond_all_measure_costs_nothing(sigma):
    assert epsilon_bounds(mechanism(), sigma, 1e-5) == (0.0, 0.0)
    assert delta(mechanism(), sigma, 0.0) <= 1e-5


def test_an_answer_that_is_rarely_asked_costs_no_epsilon_at_large_delta():
    d = Mechanism(n=1, blocks=1, sampling_rate=1e-4, steps=1, clip=1.0)
    assert epsilon(d, 1e-30, 0.01) == 0.0
