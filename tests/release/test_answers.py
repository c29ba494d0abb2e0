"""Answers that are made of draws: joint tests and regions, the table of z statistics, new responses, differences."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from scipy.stats import chi2, norm

from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.release.answers import new_responses, wald
from pgbb.release.posterior import Posterior
from tests.release.builders import SCHEMA, generator, hidden, local, local_release, model, stored_draws

pytestmark = pytest.mark.quick

COVARIANCE = np.array([[1.0, 0.6, 0.0], [0.6, 2.0, -0.3], [0.0, -0.3, 0.5]])


def size(scale):
    """How often a true hypothesis is rejected at .05 when draws have `scale` times the right spread."""
    rng = np.random.default_rng(1)
    root = np.linalg.cholesky(COVARIANCE)
    rejected, inside = [], []
    for _ in range(400):
        estimate = root @ rng.standard_normal(3)
        found = wald(estimate + scale * rng.standard_normal((1000, 3)) @ root.T, np.zeros(3), "abc", 0.95)
        rejected.append(found.pvalue < 0.05)
        inside.append(found.contains(np.zeros(3)) and found.contains(found.table["estimate"]))
    assert np.mean(inside) == 1 - np.mean(rejected)
    return np.mean(rejected)


def test_a_joint_test_has_its_size_and_with_a_wrong_spread_it_has_not():
    assert 0.03 < size(1.0) < 0.07 and size(0.8) > 0.1


def test_a_joint_test_is_the_distance_of_the_hypothesis_in_the_covariance_of_the_draws():
    p = Posterior(model(), SCHEMA, local())
    draws = p.sample(4000, seed=0)
    away = draws[[(0.5, "educ"), (0.9, "black")]].to_numpy() - [0.1, 0.2]
    statistic = away.mean(axis=0) @ np.linalg.solve(np.cov(away.T), away.mean(axis=0))
    found = p.wald({("educ", 0.5): 0.1, ("black", 0.9): 0.2})
    assert found.statistic == pytest.approx(statistic) and found.df == 2
    assert found.pvalue == pytest.approx(chi2.sf(statistic, 2))
    assert list(found.table.index) == ["educ[0.5]", "black[0.9]"] and "χ²(2)" in str(found)
    reach = np.sqrt(chi2.ppf(0.95, 2)) * found.table["std err"]
    assert np.allclose(found.table["upper"] - found.table["estimate"], reach)
    one = p.wald([{("educ", 0.9): 1, ("educ", 0.1): -1}])
    assert list(one.table.index) == ["educ[0.9] − educ[0.1]"]
    contrast = p.contrast({("educ", 0.9): 1, ("educ", 0.1): -1})
    assert one.pvalue == pytest.approx(2 * norm.sf(abs(contrast["mean"] / contrast["sd"])))


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda p: p.wald({}), "non-empty"),
        (lambda p: p.wald("educ"), "hypotheses"),
        (lambda p: p.wald({"educ": 0}), "several"),
        (lambda p: p.wald({("wage", 0.5): 0}), "Intercept, educ, black"),
        (lambda p: p.wald({("educ", 0.5): np.nan}), "value"),
        (lambda p: p.wald([{("educ", 0.5): 1}, {("educ", 0.5): 2}]), "follows from the others"),
        (lambda p: p.wald([{("educ", 0.5): 0}]), "no uncertainty"),
        (lambda p: p.wald({("educ", 0.5): 0}, draws=5), "at least 10"),
        (lambda p: p.wald({("educ", 0.5): 0}).contains([1, 2]), "1 finite"),
        (lambda p: p.predict({"educ": 12, "black": 0}, kind="mean"), "estimates a quantile"),
        (lambda p: p.predict({"educ": 12, "black": 0}, kind="sum"), "response"),
        (lambda p: p.predict({"educ": 12, "black": 0}, kind="response"), "0.025 and 0.975"),
        (lambda p: p.predict({"educ": 12, "black": 0}, kind="response", tau=0.5), "Leave it out"),
        (lambda p: p.compare(p), "same release"),
        (lambda p: p.compare(3), "a release"),
        (lambda p: p.compare(Posterior(model(None), SCHEMA, local(None))), "another model"),
    ],
)
def test_a_wrong_question_is_answered_by_what_is_allowed(call, said):
    with pytest.raises(InvalidValue, match=said):
        call(Posterior(model(), SCHEMA, local()))


def test_the_table_of_z_statistics_is_the_summary_in_other_words():
    p = Posterior(model(), SCHEMA, local())
    table, summary = p.coef_table(tau=0.5, level=0.9), p.summary(tau=0.5, level=0.9)
    assert list(table.columns) == ["coef", "std err", "z", "P>|z|", "[0.05", "0.95]", "identified"]
    assert np.allclose(table["z"], summary["mean"] / summary["sd"])
    assert np.allclose(table["P>|z|"], 2 * norm.sf(np.abs(table["z"])))
    assert np.allclose(np.diag(p.cov_params(tau=0.5)), summary["sd"] ** 2)


def test_an_answer_made_of_what_is_not_identified_warns_and_another_does_not(recwarn):
    p = Posterior(model(), SCHEMA, hidden(at=1))
    p.wald({("black", 0.1): 0}), p.wald({("educ", 0.5): 0}), p.coef_table(tau=0.5)
    assert not recwarn.list
    with pytest.warns(PgbbWarning, match="educ at tau = 0.1"):
        p.wald({("educ", 0.1): 0})
    for _ in range(2):  # a published P value warns each time
        with pytest.warns(PgbbWarning, match="educ at tau = 0.1"):
            p.coef_table()


def test_a_difference_has_both_uncertainties_and_the_marks_of_both():
    one, other = Posterior(model(), SCHEMA, local()), Posterior(model(), SCHEMA, hidden(at=1, gradient=np.ones((3, 3))))
    with pytest.warns(PgbbWarning, match="educ at tau = 0.1"):
        found = one.compare(other, draws=20_000)
        a, b = one.summary(draws=20_000), other.summary(draws=20_000)
    sd = np.hypot(a["sd"], b["sd"])
    assert np.allclose(found["mean"], a["mean"] - b["mean"], atol=0.05 * sd.max())
    assert np.allclose(found["sd"], sd, rtol=0.05)
    assert list(found["identified"]) == list(b["identified"])
    assert one.compare(other, tau=0.5).index.tolist() == list(model().names)
    stored = Posterior(model(), SCHEMA, stored_draws())
    assert "identified" not in stored.compare(one) and len(stored.compare(one)) == 9


def coverage(error, used):
    """How often an interval of .9 holds a normal response, of a process known up to `error` that claims `used`."""
    rng, levels = np.random.default_rng(2), np.linspace(0.04, 0.96, 24)
    held = []
    for _ in range(200):
        shift = error * rng.standard_normal()
        draws = ndtri(levels)[:, None] + shift + used * rng.standard_normal(2000)
        low, high = np.quantile(new_responses(draws, levels, 0), [0.05, 0.95])
        held.append(norm.cdf(high) - norm.cdf(low))
    return np.mean(held)


def test_an_interval_of_a_new_response_holds_it_and_without_its_uncertainty_it_does_not():
    assert 0.89 < coverage(0.0, 0.0) < 0.91
    assert 0.885 < coverage(0.6, 0.6) < 0.915 and coverage(0.6, 0.0) < 0.86


def test_new_responses_follow_the_quantiles_of_the_release_even_where_curves_cross():
    p = Posterior(model(), SCHEMA, local())
    at = pd.DataFrame({"educ": [12.0, 16.0], "black": [0, 1]}, index=["low", "high"])
    found = p.predict(at, kind="response", level=0.8)
    assert list(found.columns) == ["median", "lower", "upper"] and found.index.tolist() == ["low", "high"]
    assert (found["lower"] < found["median"]).all() and (found["median"] < found["upper"]).all()
    levels = np.array([0.1, 0.5, 0.9])
    crossed = new_responses(np.array([[1.0], [0.0], [2.0]]) + np.zeros(999), levels, 1)
    assert np.allclose(np.quantile(crossed, levels), [0.0, 1.0, 2.0], atol=0.02)
    huber = Posterior(replace(model(None), kind="huber"), SCHEMA, generator(False))
    assert huber.predict(at, kind="mean").equals(huber.predict(at))
    with pytest.raises(InvalidValue, match="QuantileRegression"):
        huber.predict(at, kind="response")


def test_a_release_answers_as_its_posterior_does():
    assert local_release().wald({("educ", 0.5): 0}).df == 1
