import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import pgbb
from pgbb._numerics.newton import Sample, huber_loss, logistic_loss, quantile_loss
from pgbb.private.loading import records_for
from pgbb.reference import Solver, solve, to_original
from pgbb.reference.solvers import exact_fit
from reproduction.references.bootstrap import bayesian_bootstrap, blocked_bootstrap
from tests.helpers import python
from tests.reference.data import MODELS, SCHEMA, frame, gradient, problem_and_records

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_vanishes_at_the_solution_for_any_weights(name):
    problem, records = problem_and_records(name)
    weights = np.random.default_rng(1).dirichlet(np.full(records.n, 0.3), size=7)  # far from equal
    theta = solve(problem, records, weights)
    assert theta.shape == (7, problem.dim)
    found = gradient(problem, records, theta, weights)
    assert np.linalg.norm(found, axis=1).max() <= 1e-8
    assert np.linalg.norm(gradient(problem, records, theta + 1e-4, weights), axis=1).min() > 1e-7  # twin: elsewhere


@pytest.mark.parametrize("name", MODELS)
def test_one_weight_vector_is_a_row_of_many_and_equal_weights_are_the_default(name):
    problem, records = problem_and_records(name)
    weights = np.random.default_rng(2).dirichlet(np.ones(records.n), size=3)
    many = solve(problem, records, weights)
    np.testing.assert_allclose(solve(problem, records, weights[1]), many[1], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(solve(problem, records, 5 * weights), many, rtol=1e-7, atol=1e-8)
    plain = solve(problem, records)
    np.testing.assert_allclose(solve(problem, records, np.full(records.n, 3.0)), plain, rtol=1e-7, atol=1e-8)
    assert np.abs(many - plain).max() > 1e-3


@pytest.mark.parametrize("name", ["quantile", "huber", "logistic"])
def test_newton_agrees_with_scipy(name):
    problem, records = problem_and_records(name)
    sample = Sample(records.x.astype(float), records.y.astype(float) - problem.shift)
    weights = np.random.default_rng(3).dirichlet(np.ones(records.n), size=1)
    loss = {
        "quantile": lambda: quantile_loss(sample, 0.2, 0.3),
        "huber": lambda: huber_loss(sample, 1.345, 0.71),
        "logistic": lambda: logistic_loss(sample),
    }[name]()
    start = np.zeros(problem.dim)
    start[-1] += 1.0  # a positive scale
    box = [(None, None)] * (problem.dim - 1) + [(1e-3 if name == "huber" else None, None)]
    found = minimize(
        lambda t: loss(t[None], weights)[0][0], start, method="L-BFGS-B", bounds=box, options={"ftol": 1e-15}
    )
    np.testing.assert_allclose(solve(problem, records, weights[0]), found.x, atol=2e-4)


@pytest.mark.parametrize("name", ["quantile", "huber", "logistic"])
def test_losses_gradients_and_hessians_belong_together(name):
    problem, records = problem_and_records(name, n=60)
    sample = Sample(records.x.astype(float), records.y.astype(float) - problem.shift)
    weights = np.random.default_rng(4).dirichlet(np.ones(records.n), size=1)
    loss = {
        "quantile": quantile_loss(sample, 0.2, 0.3),
        "huber": huber_loss(sample, 1.345, 0.71),
        "logistic": logistic_loss(sample),
    }[name]
    theta = np.random.default_rng(5).normal(size=problem.dim)
    theta[-1] = 1.7
    _, slope, curvature = loss(theta[None], weights)
    np.testing.assert_allclose(slope[0], gradient(problem, records, theta, weights[0]), atol=1e-12)
    step = 1e-6
    for j, e in enumerate(np.eye(problem.dim) * step):
        up, down = loss((theta + e)[None], weights), loss((theta - e)[None], weights)
        assert slope[0, j] == pytest.approx((up[0][0] - down[0][0]) / (2 * step), abs=1e-7)
        np.testing.assert_allclose(curvature[0, j], (up[1][0] - down[1][0]) / (2 * step), atol=1e-6)


def test_means_are_weighted_means():
    weights = np.random.default_rng(6).dirichlet(np.ones(300), size=4)
    for name, column in (("gaussian mean", "y"), ("exponential mean", "waits")):
        problem, records = problem_and_records(name)
        expected = weights @ frame()[column].to_numpy()
        np.testing.assert_allclose(solve(problem, records, weights)[:, 0], expected, rtol=1e-6)  # records are float32


def test_original_units_give_back_the_line_of_the_data():
    data = frame()
    data["y"] = 1.0 + 2.0 * data["x"] - 0.3 * data["z"] + 0.5 * data["group"]
    data["y"] += 1e-3 * np.random.default_rng(7).normal(size=len(data))
    problem, records = problem_and_records("huber", data=data)
    found = to_original(problem, solve(problem, records))
    np.testing.assert_allclose(found[:4], [1.0, 2.0, -0.3, 0.5], atol=1e-3)
    assert 0.0005 < found[4] < 0.002


def test_records_with_missing_cells_count_for_nothing():
    data = frame()
    holes = data.copy()
    holes.loc[::3, "x"] = np.nan
    problem, records = problem_and_records("logistic", data=holes)
    kept = problem_and_records("logistic", data=data.drop(index=data.index[::3]))[1]
    np.testing.assert_allclose(solve(problem, records), solve(problem, kept), atol=1e-7)


def test_survey_weights_multiply_the_weights():
    schema = pgbb.Schema(y=pgbb.Range(-20, 20), x=pgbb.Range(-4, 4), w=pgbb.Range(0, 2))
    data = frame().assign(w=np.random.default_rng(8).uniform(0.1, 2, 300))
    problem = pgbb.HuberRegression("y ~ x").prepare(schema)
    weighted = records_for(data, problem, schema, "w").as_non_private()
    plain = records_for(data, problem, schema).as_non_private()
    np.testing.assert_allclose(solve(problem, weighted), solve(problem, plain, data["w"]), atol=1e-6)
    assert np.abs(solve(problem, weighted) - solve(problem, plain)).max() > 1e-4


def test_heavy_tails_and_bad_scales_do_not_stop_the_huber_fit():
    schema = pgbb.Schema(y=pgbb.Range(-1e6, 1e6), x=pgbb.Range(-4, 4))
    for factor in (1e-3, 1.0, 1e4):
        data = frame()
        data["y"] = factor * (data["x"] + np.random.default_rng(9).standard_cauchy(300))
        problem = pgbb.HuberRegression("y ~ x").prepare(schema)
        records = records_for(data, problem, schema).as_non_private()
        weights = np.random.default_rng(10).dirichlet(np.ones(300), size=20)
        theta = solve(problem, records, weights)
        assert np.linalg.norm(gradient(problem, records, theta, weights), axis=1).max() <= 1e-8


def test_separated_classes_have_no_fit():
    data = frame()
    data["buys"] = (data["x"] > 0).astype(float)
    problem, records = problem_and_records("logistic", data=data)
    with pytest.raises(pgbb.PgbbError, match=r"did not converge.*separate"):
        solve(problem, records)


@pytest.mark.parametrize("name", ["quantile", "huber", "logistic"])
def test_collinear_columns_have_no_fit(name):
    data = frame()
    data["group"] = 1
    with pytest.raises(pgbb.PgbbError, match=r"did not converge.*collinear"):
        solve(*problem_and_records(name, data=data))


def test_an_exponential_mean_of_zeros_has_no_fit():
    data = frame()
    data["waits"] = 0.0
    with pytest.raises(pgbb.PgbbError, match="positive values"):
        solve(*problem_and_records("exponential mean", data=data))


def test_a_custom_loss_has_no_solver():
    model = pgbb.Custom(loss=lambda t, r, i: (t[0] - r["y"]) ** 2, dim=1, clip=1.0, columns=["y"], box=(-1, 1))
    problem = model.prepare(SCHEMA)
    records = records_for(frame(), problem, SCHEMA).as_non_private()
    with pytest.raises(pgbb.PgbbError, match="custom problem has no exact solver"):
        solve(problem, records)


def test_confidential_records_are_refused():
    problem = MODELS["huber"].prepare(SCHEMA)
    confidential = records_for(frame(), problem, SCHEMA)
    for call in (
        lambda: solve(problem, confidential),
        lambda: Solver(problem, confidential),
        lambda: bayesian_bootstrap(problem, confidential, 2, 1),
        lambda: blocked_bootstrap(problem, confidential, 5, draws=2, seed=1),
    ):
        with pytest.raises(pgbb.InvalidValue, match=r"type Records are not allowed.*non_private\("):
            call()
    assert solve(problem, confidential.as_non_private()).shape == (5,)


def test_bad_arguments_say_what_is_allowed():
    problem, records = problem_and_records("huber")
    with pytest.raises(pgbb.InvalidValue, match=r"\(300,\) or \(m, 300\)"):
        solve(problem, records, np.ones(7))
    with pytest.raises(pgbb.InvalidValue, match="≥ 0"):
        solve(problem, records, -np.ones(300))
    with pytest.raises(pgbb.PgbbError, match="no mass"):
        solve(problem, records, np.zeros(300))
    with pytest.raises(pgbb.InvalidValue, match="no index"):
        solve(problem, records, index=0.5)
    with pytest.raises(pgbb.InvalidValue, match="do not belong"):
        solve(MODELS["gaussian mean"].prepare(SCHEMA), records)
    several = pgbb.QuantileRegression("y ~ x", taus=[0.1, 0.9]).prepare(SCHEMA)
    records = records_for(frame(), several, SCHEMA).as_non_private()
    with pytest.raises(pgbb.InvalidValue, match="tau in"):
        solve(several, records)
    low, high = (solve(several, records, index=tau)[0] for tau in (0.1, 0.9))
    assert low < high


def test_the_references_do_not_import_jax():
    code = "import sys, pgbb.reference; print([m for m in ('jax', 'optax', 'matplotlib') if m in sys.modules])"
    out = python(code, check=True)
    assert out.stdout.strip() == "[]"


def test_two_stages_and_a_mean_of_unknown_scale_have_an_exact_fit():
    rng = np.random.default_rng(4)
    z, cause = rng.normal(size=(2, 900)).clip(-4, 4)
    x = (z + cause).clip(-6, 6)
    data = pd.DataFrame({"z": z, "x": x, "y": (1 + 0.5 * x - cause).clip(-9, 9)})
    schema = pgbb.Schema(z=pgbb.Range(-4, 4), x=pgbb.Range(-6, 6), y=pgbb.Range(-9, 9))
    found = exact_fit(pgbb.IV("y ~ x | z").prepare(schema), data, schema, None, None)
    slope = np.cov(z, data["y"])[0, 1] / np.cov(z, x)[0, 1]
    assert found[None, "x"] == pytest.approx(slope, abs=1e-5)
    assert found[None, "Intercept"] == pytest.approx(data["y"].mean() - slope * x.mean(), abs=1e-5)
    line = exact_fit(pgbb.LinearRegression("y ~ x").prepare(schema), data, schema, None, None)
    assert abs(line[None, "x"] - slope) > 0.2
    mean = exact_fit(pgbb.Mean("y").prepare(schema), data, schema, None, None)
    assert list(mean.values()) == pytest.approx([data["y"].mean()], abs=1e-5)
