"""scikit-learn's own checks, and what they do not know: that no answer may depend on a record's value unprotected.

The estimators share their code, so a check runs on the first of them that it concerns; with PGBB_ALL_CHECKS=1 every
check runs on every estimator.
"""

import os
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

import pgbb
from pgbb.custody.entries import BudgetExceeded
from pgbb.errors import InvalidValue, PgbbWarning
from pgbb.methods.calibrated import method as calibrated
from pgbb.sklearn import (
    PrivateHuberRegressor,
    PrivateLinearRegression,
    PrivateLogisticClassifier,
    PrivatePoissonRegressor,
    PrivateQuantileRegressor,
)
from tests.helpers import jax_options, python

BOUNDS = {"epsilon": 100.0, "delta": 1e-6, "feature_range": (-10, 10), "weight_range": (0, 2), "insecure_seed": 0}
ESTIMATORS = (
    PrivateLogisticClassifier(**BOUNDS, classes=(0, 1)),
    PrivateHuberRegressor(**BOUNDS, response_range=(-10, 10)),
    PrivateQuantileRegressor(**BOUNDS, response_range=(-10, 10)),
    PrivateLinearRegression(**BOUNDS, response_range=(-10, 10)),
    PrivatePoissonRegressor(**BOUNDS, response_range=(0, 10)),
)
FORBIDDEN = {
    "check_classifiers_one_label": "ten records of one class have no finite fit, and without bound= nothing ends it",
    "check_estimators_nan_inf": "a refusal would tell that some record has a missing or infinite cell",
    "check_supervised_y_no_nan": "a refusal would tell that some record has a missing or infinite response",
    "check_dtype_object": "a refusal would tell that some record has a cell that is no number",
    "check_all_zero_sample_weights_error": "a refusal would tell that every weight is zero",
    "check_sample_weight_equivalence_on_dense_data": "n is public: a record of weight 0 still counts in n",
    "check_classifiers_classes": "classes are declared: learning them from y would tell which labels occur",
    "check_classifiers_regression_target": "a refusal would tell that some record has an undeclared label",
    "check_classifier_not_supporting_multiclass": "a refusal would tell that some record has an undeclared label",
}
LISTS = {"check_classifiers_train": 2, "check_regressors_train": 10}  # features that must be declared, as X is a list
SLOW = (  # 20 or 30 features, many fits, or decided by the last bit
    "check_classifiers_one_label",
    "check_classifier_not_supporting_multiclass",
    "check_all_zero_sample_weights_error",
    "check_dtype_object",
    "check_sample_weight_equivalence_on_dense_data",
)


LONG = (  # a number of features of their own, for which every sum is compiled
    "check_estimators_dtypes",
    "check_regressors_train",
    "check_classifiers_regression_target",
    "check_n_features_in_after_fitting",
)


def name_of(check):
    inner = getattr(check, "func", check)
    return inner.__name__ if hasattr(inner, "__name__") else inner.func.__name__


def checks():
    seen = set()
    for estimator in ESTIMATORS:
        found = [(name_of(check), instance, check) for instance, check in estimator_checks_generator(estimator)]
        for name, instance, check in found:
            if name in seen and not os.environ.get("PGBB_ALL_CHECKS"):
                continue
            marks = ()
            if name in FORBIDDEN:
                marks = pytest.mark.xfail(reason=FORBIDDEN[name], strict=True, run=name not in SLOW)
            elif name in LONG:
                marks = pytest.mark.evidence
            if name in LISTS:
                instance = clone(instance).set_params(feature_range=[BOUNDS["feature_range"]] * LISTS[name])
            yield pytest.param(instance, check, marks=marks, id=f"{type(estimator).__name__}-{name}")
        seen.update(name for name, _, _ in found)


@pytest.fixture
def quiet(monkeypatch):
    """Hardly any noise: ten to two hundred records, as the checks have, are too few for a useful ε."""
    monkeypatch.setattr(calibrated, "noise_scale", lambda *_, **__: 1e-5)


@pytest.fixture(scope="module", autouse=True)
def hasty():
    """Compile without optimising: each number of features compiles anew, and is fitted a few times only."""
    with jax_options(jax_disable_most_optimizations=True):
        yield


@pytest.fixture
def global_seed():
    """Some checks draw from numpy's own generator."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    yield
    np.random.set_state(before)  # noqa: NPY002


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator, check", list(checks()))
def test_the_checks_of_scikit_learn(estimator, check, quiet, global_seed):
    check(estimator)


def test_the_page_lists_every_check_that_is_expected_to_fail():
    page = (Path(__file__).parents[1] / "docs" / "sklearn.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(check_\w+)` \|", page, re.M)) == set(FORBIDDEN)


def data(n=3000, seed=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.uniform(20, 60, n), "weekly hours": rng.uniform(10, 50, n)})
    y = 1.0 + 0.05 * frame["age"] - 0.02 * frame["weekly hours"] + rng.normal(0, 0.5, n)
    return frame, y


RANGES = {"weekly hours": (10, 50), "age": pgbb.Range(20, 60)}
BUDGET = {"epsilon": 2.0, "delta": 1e-6, "feature_range": RANGES}


def test_a_fit_is_a_release_with_the_names_of_the_frame():
    x, y = data()
    model = PrivateQuantileRegressor(**BUDGET, response_range=(-2, 8), quantile=[0.25, 0.75]).fit(x, y)
    release = model.release_
    assert release.verify().ok and release.certificate.epsilon == 2.0
    assert release.model.names == ("Intercept", "age", "weekly hours") and list(model.feature_names_in_) == list(x)
    mean = release.summary()["mean"].unstack()
    assert np.allclose(model.coef_, mean[["age", "weekly hours"]]) and np.allclose(model.intercept_, mean["Intercept"])
    centre = x.iloc[:3] * 0 + [40.0, 30.0]
    predicted, interval = model.predict(centre), model.predict_interval(centre, 0.9)
    assert predicted.shape == (3, 2) and interval.shape == (3, 2, 2)
    assert (interval[..., 0] < predicted).all() and (predicted < interval[..., 1]).all()
    table = release.predict(centre, tau=0.25, level=0.9)
    assert np.allclose(interval[:, 0], table[["lower", "upper"]]) and np.allclose(predicted[:, 0], table["mean"])
    mixed = np.random.default_rng(2).permutation(y)
    assert 0.1 < model.score(x, y) < 1 and model.score(x, mixed) < 0, "mean D² over levels"
    assert model.sample_coef(7, seed=1).shape == (7, 6)


def test_probabilities_are_those_of_the_release_and_labels_are_the_declared_ones():
    x, y = data()
    label = np.where(y + np.random.default_rng(2).logistic(0, 0.5, len(y)) > 2.4, "yes", "no")
    model = PrivateLogisticClassifier(**BUDGET, classes=("yes", "no")).fit(x, label)
    assert list(model.classes_) == ["no", "yes"] and model.coef_.shape == (1, 2) and model.intercept_.shape == (1,)
    table = model.release_.predict(x.iloc[:50])
    assert np.allclose(model.predict_proba(x.iloc[:50])[:, 1], table["mean"])
    assert np.allclose(model.predict_interval(x.iloc[:50]), table[["lower", "upper"]])
    likely = model.decision_function(x) > 0
    assert np.array_equal(model.predict(x) == "yes", likely) and 0 <= model.score(x, label) <= 1


def same(a, b):
    assert np.array_equal(a.coef_, b.coef_) and np.array_equal(a.intercept_, b.intercept_)


@pytest.mark.filterwarnings("ignore::pgbb.errors.PgbbWarning")
def test_cells_out_of_range_are_clamped_and_unusable_records_contribute_nothing(quiet):
    x, y = data(300)
    x["age"] = x["age"].clip(21, 59)
    huber = PrivateHuberRegressor(**BUDGET, response_range=(-2, 8), insecure_seed=3)
    far, edge = x.copy(), x.copy()
    far.loc[0, "age"], edge.loc[0, "age"] = 1e9, 60.0
    same(first := clone(huber).fit(far, y), clone(huber).fit(edge, y))
    assert first.coef_ == pytest.approx([0.05, -0.02], abs=0.015) and first.scale_ == pytest.approx(0.5, abs=0.2)
    values = x.to_numpy()
    fits = []
    for bad in (np.nan, np.inf, "secret", {"secret": 1}):
        cells = values.astype(object)
        cells[5, 1] = bad
        fits.append(clone(huber).set_params(feature_range=[(20, 60), (10, 50)]).fit(cells, y))
    for other in fits[1:]:
        same(fits[0], other)
    label = (y > 2.4).to_numpy().astype(object)
    logistic = PrivateLogisticClassifier(**BUDGET, classes=(False, True), insecure_seed=3)
    fits = []
    for bad in (None, 7, "secret", ["secret"], np.nan):
        label[4] = bad
        fits.append(clone(logistic).fit(x, label))
    for other in fits[1:]:
        same(fits[0], other)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"feature_range": None}, "feature_range = None"),
        ({"feature_range": {"age": (20, 60)}}, "declare every feature"),
        ({"feature_range": [(20, 60)]}, "1 entries"),
        ({"feature_range": (60, 20)}, "low must be below high"),
        ({"feature_range": [(20, 60), 3]}, r"feature_range\[1\]"),
        ({"response_range": None}, "response_range"),
        ({"epsilon": None}, "epsilon = None"),
        ({"delta": None}, "delta = None"),
        ({"method": "magic"}, "magic"),
        ({"settings": {"steps": 3}}, "steps"),
        ({"quantile": 1.5}, "taus"),
    ],
)
def test_what_is_not_declared_is_an_error_before_records_are_read(change, said, monkeypatch):
    monkeypatch.setattr("pgbb.private.records._clamped", lambda *_: pytest.fail("records were read"))
    x, y = data(50)
    model = PrivateQuantileRegressor(**BUDGET, response_range=(-2, 8)).set_params(**change)
    with pytest.raises(InvalidValue, match=said):
        model.fit(x, y)


def test_structure_is_refused_without_a_word_about_values():
    x, y = data(50)
    model = PrivateQuantileRegressor(**BUDGET, response_range=(-2, 8))
    with pytest.raises(InvalidValue, match="weight_range"):
        model.fit(x, y, sample_weight=np.ones(50))
    with pytest.raises(InvalidValue, match="dtype"):
        model.fit(x.astype({"age": "string"}), y)
    with pytest.raises(InvalidValue, match="two different labels"):
        PrivateLogisticClassifier(**BUDGET, classes=("a", 1)).fit(x, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(x, y[:-1])


@pytest.mark.parametrize("name", ["y", "scale", "Intercept", "a`b", " a"])
def test_names_that_would_collide_are_replaced(name, quiet):
    x, y = data(50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PgbbWarning)
        model = PrivateHuberRegressor(epsilon=2.0, delta=1e-6, feature_range=(0, 60), response_range=(-2, 8))
        model.fit(x.set_axis([name, "b"], axis=1), y)
    assert model.release_.model.names == ("Intercept", "x0", "x1", "scale")


def test_budget_and_ledger_reach_the_fit(monkeypatch):
    given = {"ledger": "l.db", "dataset": "d", "accountant": "paper", "group_size": 3, "method": "pgbb"}

    def spy(model, frame, **options):
        assert options.items() >= given.items() and options["steps"] == 7 and options["weights"] == "sample_weight"
        assert (
            options["schema"]["sample_weight"] == pgbb.Range(0, 4) and model.formula == "y ~ age + `weekly hours` - 1"
        )
        raise BudgetExceeded("enough", None, 0.0, 0.0)

    monkeypatch.setattr("pgbb.sklearn.fit", spy)
    x, y = data(20)
    model = PrivateHuberRegressor(**BUDGET, response_range=(-2, 8), fit_intercept=False, **given)
    with pytest.raises(BudgetExceeded):
        model.set_params(settings={"steps": 7}, weight_range=(0, 4)).fit(x, y, sample_weight=np.ones(20))


def test_scikit_learn_is_loaded_on_demand_and_its_absence_is_explained():
    assert python("import sys, pgbb; pgbb.Schema, pgbb.load; sys.exit('sklearn' in sys.modules)").returncode == 0
    absent = python("import sys; sys.modules['sklearn'] = None; import pgbb.sklearn").stderr
    assert absent.strip().endswith("pip install 'pgbb[sklearn]'.")


def test_a_count_is_predicted_by_its_mean():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 1))
    y = rng.poisson(np.exp(0.5 * X[:, 0]))
    model = PrivatePoissonRegressor(**BOUNDS, response_range=(0, 10)).fit(X, y)
    assert model.predict([[0.0], [1.0]]) == pytest.approx([1.0, np.exp(0.5)], rel=0.15)
    low, high = model.predict_interval([[1.0]])[0]
    assert 0 < low < model.predict([[1.0]])[0] < high
