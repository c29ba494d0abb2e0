import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import Custom, HuberRegression, InvalidValue, Mean, PgbbError, QuantileRegression, Range, Schema
from pgbb.accountant import Mechanism, Resampling, compose, epsilon, noise_scale
from pgbb.methods.registry import METHODS
from pgbb.reference.comparison import compare, methods_for
from pgbb.release.certificate import Certificate
from pgbb.release.cost import total_cost
from pgbb.report.plots import method_intervals
from reproduction.references.quantile import smoothed_quantile

pytestmark = pytest.mark.filterwarnings("ignore::pgbb.PgbbWarning")

SCHEMA = Schema(x=Range(-1, 1), y=Range(-5, 5), w=Range(0, 1))
QUICK = {"pgbb": {"steps": 20, "blocks": 5, "sampling_rate": 0.2}, "sgld": {"steps": 20}}
CUSTOM = Custom(lambda t, r, i: (t[0] - r["y"]) ** 2, 1, 1.0, ["y"], (-1, 1))
BUDGET = {"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6}


def frame(n=400, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    return pd.DataFrame({"x": x, "y": x + rng.normal(0, 0.3, n), "w": rng.uniform(0.5, 1, n)})


@pytest.fixture(scope="module")
def levels():
    model = QuantileRegression("y ~ x", taus=[0.2, 0.8])
    return compare(
        model, frame(), methods=["pgbb", "sgld"], settings=QUICK, insecure_seed=3, non_private_reference=True, **BUDGET
    )


def certificate(clip=1.0, steps=10, blocks=1, delta=1e-6, **changes):
    m = Mechanism(n=1000, blocks=blocks, sampling_rate=0.1, steps=steps, clip=clip)
    return Certificate(1.0, delta, noise_scale(m, 1.0, delta), m, "exact", "operating system", **changes)


def test_each_method_is_the_fit_it_would_be_alone(levels):
    model = QuantileRegression("y ~ x", taus=[0.2, 0.8])
    for name, release in levels.releases.items():
        alone = pgbb.fit(model, frame(), method=name, insecure_seed=3, **BUDGET, **QUICK[name])
        pd.testing.assert_frame_equal(release.summary(), alone.summary())
        assert release.certificate == alone.certificate


def test_the_table_has_a_row_for_each_level_coefficient_and_method(levels):
    table = levels.table()
    assert len(table) == 2 * 2 * 2
    assert table["method"].tolist() == ["pgbb", "sgld"] * 4
    assert table["tau"].tolist() == [0.2] * 4 + [0.8] * 4
    np.testing.assert_allclose(table["width"], table["upper"] - table["lower"])
    one = table[(table["tau"] == 0.8) & (table["coefficient"] == "x") & (table["method"] == "sgld")].iloc[0]
    own = levels.releases["sgld"].summary(tau=0.8).loc["x"]
    assert (one["estimate"], one["lower"]) == (own["mean"], own["lower"])
    assert "seconds" not in str(levels.to_dict()) and "seconds" not in table, "a time depends on the records"
    assert one["assumes"] == METHODS["sgld"].assumes


def test_the_reference_is_the_exact_fit_and_makes_the_whole_not_private(levels):
    data = frame()
    design = np.column_stack([np.ones(len(data)), data["x"]])
    bandwidth = 10 / 1000  # a thousandth of the declared range, which is less than .1
    exact = smoothed_quantile(design, data["y"], 0.8, bandwidth)
    assert [levels.reference[0.8, name] for name in ("Intercept", "x")] == pytest.approx(exact, abs=1e-4)
    assert not levels.private
    assert all("reference (NOT PRIVATE)" in row for row in levels.to_dict()["rows"])


def test_the_figure_marks_each_method_and_what_is_not_private(levels):
    figure = method_intervals(levels)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["pgbb", "sgld", "exact fit, NOT PRIVATE"]
    assert [axis.get_title() for axis in figure.axes] == ["Intercept", "x"]
    assert figure.get_suptitle().endswith("ε = 2, δ = 2e-06") and "NOT PRIVATE" in figure.get_suptitle()
    with pytest.raises(PgbbError, match="coefficient = 'z'"):
        method_intervals(levels, ["z"])


def test_costs_add_and_compose_exactly():
    a, b = certificate(), certificate(clip=3.0, steps=50, delta=2e-6)
    cost = total_cost({"a": a, "b": b})
    assert (cost.epsilon, cost.delta) == (2.0, pytest.approx(3e-6))
    joint = compose([a.mechanism, b.mechanism], scales=[a.sigma, b.sigma])
    assert cost.tighter == epsilon(joint, 1.0, 3e-6) and 1.0 < cost.tighter < 1.6
    assert cost.composed == ("a", "b") and cost.private


def test_a_composition_keeps_the_noise_of_each_of_its_parts():
    parts = [Mechanism(n=1000, blocks=1, sampling_rate=0.1, steps=10, clip=c) for c in (1.0, 2.0)]
    both = compose(parts, scales=[1.0, 2.0])
    sigma = noise_scale(both, 1.0, 1e-6)
    c = Certificate(1.0, 1e-6, sigma, both, "exact", "operating system")
    cost = total_cost({"levels": c, "plain": certificate()})
    joint = compose([*parts, certificate().mechanism], scales=[sigma, 2 * sigma, certificate().sigma])
    assert cost.tighter == epsilon(joint, 1.0, 2e-6)
    wrong = compose([*parts, certificate().mechanism], scales=[sigma, sigma, certificate().sigma])
    assert cost.tighter < 0.9 * epsilon(wrong, 1.0, 2e-6)  # twin: the scale forgotten


def test_another_kind_of_mechanism_adds_what_it_claims():
    resampling = Resampling(n=1000, replicates=5, sensitivity=0.01)
    other = Certificate(0.7, 1e-7, noise_scale(resampling, 0.7, 1e-7), resampling, "exact", "operating system")
    sums = total_cost({"a": certificate(), "b": certificate()})
    cost = total_cost({"a": certificate(), "b": certificate(), "other": other})
    assert cost.tighter == pytest.approx(sums.tighter + 0.7) and cost.composed == ("a", "b")
    assert cost.delta == pytest.approx(2e-6 + 1e-7)
    assert total_cost({"other": other}).tighter is None


def test_what_is_not_private_is_said_in_the_cost():
    m = Mechanism(n=1000, blocks=1, sampling_rate=0.1, steps=10, clip=1.0)
    bare = Certificate(math.inf, 1e-6, 0.0, m, "exact", "operating system", non_private=True)
    cost = total_cost({"a": certificate(), "bare": bare})
    assert cost.epsilon == math.inf and cost.tighter is None and not cost.private
    assert cost.to_dict()["epsilon"] is None
    m = certificate().mechanism
    seeded = Certificate(1.0, 1e-6, certificate().sigma, m, "exact", "insecure seed")
    assert not total_cost({"a": seeded}).private


@pytest.mark.parametrize(
    "model, serve, refuse",
    [
        (HuberRegression("y ~ x"), {"pgbb", "sgld", "noisy_gibbs", "dp_bootstrap"}, set()),
        (QuantileRegression("y ~ x", taus=[0.5]), {"pgbb", "sgld", "dp_bootstrap"}, {"noisy_gibbs"}),
        (QuantileRegression("y ~ x", interval=(0.1, 0.9)), {"pgbb"}, {"sgld", "noisy_gibbs", "dp_bootstrap"}),
        (CUSTOM, {"pgbb", "sgld"}, {"noisy_gibbs", "dp_bootstrap"}),
        (replace(CUSTOM, index=[0.5, 1.0]), {"pgbb"}, {"sgld", "noisy_gibbs", "dp_bootstrap"}),
    ],
)
def test_the_default_is_every_method_that_serves_the_model(model, serve, refuse):
    found = methods_for(model, model.prepare(SCHEMA))
    assert serve <= set(found) and not refuse & set(found)
    assert found == [name for name in METHODS if name in found]


def test_methods_of_every_kind_are_compared_and_their_costs_added():
    """Draws of a posterior have an accountant of their own, and are added to what composes."""
    model, short = Mean("y", scale=1.0), {"posterior_sampling": {"draws": 10}, "dp_mcmc": {"steps": 100}}
    names = ["noisy_gibbs", *short]
    with pytest.warns(pgbb.PgbbWarning, match="Too few effective"):
        found = compare(model, frame(), methods=names, settings=short, **BUDGET)
    assert set(methods_for(model, model.prepare(SCHEMA))) == set(METHODS)
    assert list(found.releases) == names and found.cost.composed == ("noisy_gibbs", "dp_mcmc")
    assert found.cost.tighter < found.cost.epsilon == pytest.approx(3.0)


def test_progress_names_the_method():
    seen = []
    found = compare(
        CUSTOM, frame(), methods=["pgbb", "sgld"], settings=QUICK, progress=lambda *step: seen.append(step), **BUDGET
    )
    assert list(found.releases) == ["pgbb", "sgld"] and found.private and found.skipped == {}
    assert seen[0] == ("pgbb", 0, 0) and ("pgbb", 20, 20) in seen and seen[-1] == ("sgld", 20, 20)
    assert found.levels is None and "tau" not in found.table() and "theta0" in repr(found)


def test_an_interval_of_levels_is_tabulated_at_five_or_where_asked():
    model, only = QuantileRegression("y ~ x", interval=(0.1, 0.9)), {"pgbb": QUICK["pgbb"]}
    found = compare(model, frame(), methods=["pgbb"], settings=only, **BUDGET)
    assert found.levels == pytest.approx((0.1, 0.3, 0.5, 0.7, 0.9))
    found = compare(model, frame(), methods=["pgbb"], settings=only, tau=[0.25, 0.4], **BUDGET)
    assert found.table()["tau"].unique().tolist() == [0.25, 0.4]


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"methods": ["pgbb", "noisy_gibbs"]}, "noisy_gibbs' does not serve quantile"),
        ({"methods": ["magic"]}, "methods = 'magic'"),
        ({"methods": []}, "non-empty list"),
        ({"methods": ["sgld", "sgld"]}, "different methods"),
        ({"methods": ["sgld"], "settings": {"pgbb": {"steps": 5}}}, "settings = 'pgbb'"),
        ({"methods": ["sgld"], "settings": {"sgld": {"blocks": 5}}}, "blocks"),
        ({"methods": ["sgld"], "settings": {"sgld": {"burn_in": 1.0}}}, "burn_in"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"level": 1.0}, "level"),
        ({"tau": 0.3}, "tau = 0.3"),
        ({"tau": []}, "different numbers"),
        ({"model": Mean("y", scale=1.0), "tau": 0.5}, "no index"),
        ({"model": CUSTOM, "non_private_reference": True}, "no exact solver"),
    ],
)
def test_a_mistake_is_found_before_the_records_are_read(changes, word):
    arguments = {"model": QuantileRegression("y ~ x", taus=[0.5]), **BUDGET, **changes}
    with pytest.raises(PgbbError, match=word):
        compare(arguments.pop("model"), "never-opened.csv", **arguments)


def test_a_method_that_fails_after_its_answers_is_counted_and_not_left_out(monkeypatch):
    def broken(*given):
        raise InvalidValue("the chain is no chain")

    settings = {"sgld": {"steps": 20, "thin": 1}}
    monkeypatch.setattr("pgbb.methods.sgld.effective_sample_size", broken)
    for named in (["calibrated", "sgld"], ["sgld", "calibrated"]):
        found = compare(Mean("y", scale=1.0), frame(), methods=named, settings=settings, **BUDGET)
        assert found.failed == {"sgld": "the chain is no chain"} and found.skipped == {}
        assert found.cost.epsilon == 2 * BUDGET["epsilon"] and found.cost.delta == 2 * BUDGET["delta"]
    with pytest.raises(PgbbError, match="Records answered sgld, whose budgets count as spent"):
        compare(Mean("y", scale=1.0), frame(), methods=["sgld"], settings=settings, **BUDGET)


def test_a_method_that_refuses_is_left_out_unless_it_was_named():
    model = HuberRegression("y ~ x")
    with pytest.raises(PgbbError, match=r"noisy_gibbs: weights = 'w'"):
        compare(model, frame(), methods=["noisy_gibbs", "calibrated"], weights="w", **BUDGET)
    found = compare(model, frame(), methods=["calibrated", "noisy_gibbs"], weights="w", **BUDGET)
    assert list(found.skipped) == ["noisy_gibbs"] and list(found.releases) == ["calibrated"]  # what was spent is kept
    found = compare(model, frame(), settings=QUICK | {"dp_mcmc": {"steps": 100}}, weights="w", **BUDGET)
    assert "noisy_gibbs" in found.skipped and "noisy_gibbs" not in found.releases
    assert {"pgbb", "sgld"} <= set(found.releases)
