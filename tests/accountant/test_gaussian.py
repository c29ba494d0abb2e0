import numpy as np
import pytest
from scipy.stats import norm

from pgbb import PgbbError, PgbbWarning
from pgbb.accountant import gaussian_noise_scale, gdp_delta, gdp_epsilon, gdp_mu

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("eps", [0.0, 0.5, 3.0])
def test_gdp_delta_is_the_integral_of_the_hockey_stick(mu, eps):
    x = np.linspace(-12, 12 + mu, 200_001)
    expected = np.maximum(norm.pdf(x - mu) - np.exp(eps) * norm.pdf(x), 0).sum() * (x[1] - x[0])
    assert gdp_delta(mu, eps) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("eps", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_analytic_noise_meets_the_budget_and_no_less_does(eps, delta):
    sigma = gaussian_noise_scale(2.0, eps, delta)
    assert gdp_delta(2.0 / sigma, eps) <= delta
    assert gdp_delta(2.0 / (sigma * (1 - 1e-9)), eps) > delta
    assert gdp_epsilon(gdp_mu(eps, delta), delta) == pytest.approx(eps, rel=1e-6)


def test_epsilon_is_zero_where_delta_allows_it():
    assert gdp_epsilon(0.1, 0.5) == 0.0


def test_classical_noise_is_larger_below_one_and_warns_from_one_on():
    assert gaussian_noise_scale(1.0, 0.5, 1e-5, variant="classical") > gaussian_noise_scale(1.0, 0.5, 1e-5)
    with pytest.warns(PgbbWarning, match="epsilon < 1"):
        sigma = gaussian_noise_scale(1.0, 50.0, 1e-5, variant="classical")
    assert gdp_delta(1 / sigma, 50.0) > 1e-5  # why it warns


@pytest.mark.parametrize(
    "call",
    [
        lambda: gdp_mu(0.0, 1e-5),
        lambda: gdp_mu(1.0, 0.0),
        lambda: gdp_delta(-1.0, 1.0),
        lambda: gdp_epsilon(float("nan"), 0.1),
        lambda: gaussian_noise_scale(0.0, 1.0, 1e-5),
        lambda: gaussian_noise_scale(1.0, 1.0, 1e-5, variant="other"),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(PgbbError):
        call()
