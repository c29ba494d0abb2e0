import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import ndtr

from pgbb import Flag, HuberRegression, LogisticRegression, Mean, PgbbError, QuantileRegression, Range, Schema
from pgbb.accountant import Resampling
from pgbb.model.models import Custom
from pgbb.private import refits
from pgbb.private.randomness import Randomness
from pgbb.private.refits import largest_sensitivity, mean_sensitivity, noisy_means, noisy_refits, refit_sensitivity
from tests.private.loaded import records_of

SCHEMA = Schema(a=Range(-1, 1), b=Range(-1, 1), y=Range(-6, 6), f=Flag())
MODELS = {
    "huber": HuberRegression("y ~ a + b - 1"),
    "quantile": QuantileRegression("y ~ a + b - 1", taus=[0.3], bandwidth=0.2),
    "logistic": LogisticRegression("f ~ a + b - 1"),
}
PROBLEMS = {name: model.prepare(SCHEMA) for name, model in MODELS.items()}


def sample(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    y = x @ [1.5, -1.0] + 0.5 * rng.standard_t(3, n)
    return x, (y > 0).astype(float) if kind == "logistic" else np.clip(y, -6, 6)


def records(x, y, weight=None, valid=None):
    n = len(y)
    weight = np.ones(n) if weight is None else weight
    valid = np.ones(n, bool) if valid is None else valid
    return records_of(x.astype(np.float32), y.astype(np.float32), weight.astype(np.float32), valid)


def task(kind, x, y, weights=None, penalty=0.02):
    n = len(y)
    weights = np.full(n, 1 / n) if weights is None else weights
    index = 0.3 if kind == "quantile" else None
    return refits._Task(PROBLEMS[kind], index, np.asarray(x, float), np.asarray(y, float), weights, penalty, n)


@pytest.mark.parametrize("kind", MODELS)
def test_a_refit_agrees_with_a_general_minimiser(kind):
    x, y = sample(kind, 300)

    def objective(theta):
        linear = x @ theta[:2]
        if kind == "logistic":
            loss = np.logaddexp(0, linear) - y * linear
        elif kind == "quantile":
            r = y - linear
            loss = r * (ndtr(r / 0.2) - 0.7) + 0.2 * np.exp(-0.5 * (r / 0.2) ** 2) / np.sqrt(2 * np.pi)
        else:
            r, s, c = y - linear, theta[2], 1.345
            inner = np.abs(r / s) < c
            loss = np.where(inner, r**2 / (2 * s), c * np.abs(r) - s * c**2 / 2) + 0.71 * s / 2
        return loss.mean() + 0.01 * theta @ theta

    start = np.append(np.zeros(2), 1.0) if kind == "huber" else np.zeros(2)
    bounds = [(None, None)] * 2 + [(1e-3, None)] * (kind == "huber")
    expected = minimize(objective, start, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-9}).x
    assert refits._fit(task(kind, x, y)) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_the_slow_method_agrees_with_newton_to_the_tolerance(kind):
    t = task(kind, *sample(kind, 200))
    fast = refits._fit(t)
    slow = refits._accelerated(t, t.project(np.zeros(t.problem.dim)))
    assert t.residual(fast) <= t.tolerance and t.residual(slow) <= t.tolerance
    assert np.linalg.norm(fast - slow) <= 2 * t.tolerance / t.penalty
    assert t.residual(fast + 10 * t.tolerance / t.penalty) > t.tolerance


@pytest.mark.parametrize("kind", MODELS)
def test_newton_needs_no_help_on_ordinary_records(kind):
    t = task(kind, *sample(kind, 200), weights=np.full(200, 0.4 / 200))
    assert t.residual(next(refits._candidates(t))) <= t.tolerance


values = st.floats(-1, 1)
responses = st.floats(-6, 6)


@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    old=st.tuples(values, values, responses, st.floats(0, 1)),
    new=st.tuples(values, values, responses, st.floats(0, 1)),
    count=st.integers(1, 5),
    penalty=st.sampled_from([0.02, 0.5]),
)
def test_replacing_a_record_drawn_k_times_moves_a_refit_by_at_most_k_deltas(kind, n, seed, old, new, count, penalty):
    x, y = sample(kind, n, seed)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n)).astype(float)
    counts[0] = count
    found = []
    for record in (old, new):
        x[0], y[0] = record[:2], record[2]
        if kind == "logistic":
            y[0] = float(record[2] > 0)
        weights = counts.copy()
        weights[0] *= record[3]
        found.append(refits._fit(task(kind, x, y, weights / n, penalty)))
    moved = np.linalg.norm(found[0] - found[1])
    assert moved <= count * refit_sensitivity(PROBLEMS[kind], n, penalty)


def test_the_bound_is_of_the_right_order():
    """Opposite records at a strong penalty move a logistic refit by most of Δ: a smaller one would not hold."""
    x, penalty = np.array([[1.0, 1.0]]), 50.0
    up, down = (refits._fit(task("logistic", x, np.array([v]), penalty=penalty)) for v in (1.0, 0.0))
    bound = refit_sensitivity(PROBLEMS["logistic"], 1, penalty)
    assert 0.45 * bound < np.linalg.norm(up - down) <= bound


@pytest.mark.parametrize("response", [0.0, 1e-9])
def test_records_that_fit_exactly_put_the_scale_on_its_public_bound(response):
    x, _ = sample("huber", 50)
    t = task("huber", x, np.full(50, response))
    found = refits._fit(t)
    assert found[-1] == t.lowest > 0
    assert t.residual(found) <= t.tolerance


def test_the_edge_of_the_domain_is_found_when_the_slopes_are_not_zero():
    x, _ = sample("huber", 50)
    t = task("huber", x, 1.5 * x[:, 0], penalty=1e-4)
    found = refits._fit(t)
    assert found[-1] == t.lowest and found[0] == pytest.approx(1.5, abs=0.01)
    assert t.residual(found) <= t.tolerance


def run(x, y, kind="huber", sigma=0.0, seed=3, replicates=4, penalty=0.02, **kwargs):
    n, problem = len(y), PROBLEMS[kind]
    target = Resampling(n, replicates, refit_sensitivity(problem, n, penalty))
    return noisy_refits(records(x, y, **kwargs), [problem], target, sigma, Randomness.create(seed), penalty=penalty)[0]


def test_invalid_and_non_finite_records_count_for_nothing():
    x, y = sample("huber", 80)
    clean = run(x, y, weight=np.r_[0.0, 0.0, 0.0, np.ones(77)])
    x[0], y[1], y[2] = np.nan, np.inf, 5.0
    assert run(x, y, valid=np.r_[True, True, False, np.ones(77, bool)]) == pytest.approx(clean, abs=1e-12)
    assert run(x, y, valid=np.zeros(80, bool)) == pytest.approx(np.tile([0, 0, 0.00012], (4, 1)), abs=1e-8)


def test_a_record_outside_what_the_schema_allows_is_forced_inside():
    x, y = sample("logistic", 30)
    x[0], y[0] = (50.0, 0.0), 9.0
    plain, response, _ = refits._plain(records(x, y), PROBLEMS["logistic"])
    assert np.linalg.norm(plain, axis=1).max() <= PROBLEMS["logistic"].design.norm_bound * (1 + 1e-12)
    assert response.max() == 1.0


def test_noise_has_the_scale_asked_for_and_resamples_differ():
    x, y = sample("huber", 60)
    still, noisy = run(x, y, replicates=300), run(x, y, sigma=2.0, replicates=300)
    assert len(np.unique(still[:, 0])) == 300
    excess = (noisy.var(axis=0) - still.var(axis=0)) / 4
    assert excess == pytest.approx(np.ones(3), abs=0.35)
    assert excess != pytest.approx(2 * np.ones(3), abs=0.35)


def test_levels_get_noise_in_proportion_to_their_bound():
    x, y = sample("quantile", 40)
    problems = [QuantileRegression("y ~ a + b - 1", taus=[t]).prepare(SCHEMA) for t in (0.5, 0.9)]
    sensitivity = largest_sensitivity(problems, 40, 0.02)
    with pytest.raises(PgbbError, match="sensitivity"):
        noisy_refits(
            records(x, y), problems, Resampling(40, 4, 0.9 * sensitivity), 1.0, Randomness.create(1), penalty=0.02
        )
    out = noisy_refits(
        records(x, y), problems, Resampling(40, 400, sensitivity), 1e3, Randomness.create(1), penalty=0.02
    )
    assert out.shape == (2, 200, 2)
    assert out[0].std() / out[1].std() == pytest.approx(5 / 9, rel=0.15)


def test_the_level_that_rounding_weighs_most_on_is_what_is_certified():
    schema = Schema(y=Range(-1e5, 1e5), a=Range(-1, 1))
    problems = [QuantileRegression("y ~ a", taus=[t], bandwidth=1e-4).prepare(schema) for t in (0.5, 0.99)]
    needed = [refit_sensitivity(p, 30_000, 0.1) * problems[1].clip / p.clip for p in problems]
    assert largest_sensitivity(problems, 30_000, 0.1) == max(needed) == needed[0] > 1.01 * needed[1]


def test_resampled_means_are_those_of_the_truncated_column():
    y = np.r_[np.linspace(0, 4, 400), 99.0, np.nan]
    valid = np.r_[np.ones(401, bool), False]
    held = records_of(np.ones((402, 1), np.float32), y.astype(np.float32), valid.astype(np.float32), valid)
    target = Resampling(402, 2000, mean_sensitivity((0.0, 6.0), 402))
    found = noisy_means(held, (0.0, 6.0), target, 0.0, Randomness.create(5))[:, 0]
    plain = np.r_[np.linspace(0, 4, 400), 6.0, 3.0]
    assert found.mean() == pytest.approx(plain.mean(), abs=5 * plain.std() / np.sqrt(402 * 2000))
    assert found.std() == pytest.approx(plain.std() / np.sqrt(402), rel=0.1)
    assert found.std() != pytest.approx(1.3 * plain.std() / np.sqrt(402), rel=0.1)


def test_what_the_description_does_not_certify_is_refused():
    x, y = sample("huber", 20)
    held, problem, rng = records(x, y), PROBLEMS["huber"], Randomness.create(1)
    enough = refit_sensitivity(problem, 20, 0.02)
    with pytest.raises(PgbbError, match="n = 21"):
        noisy_refits(held, [problem], Resampling(21, 2, enough), 1.0, rng, penalty=0.02)
    with pytest.raises(PgbbError, match="sensitivity"):
        noisy_refits(held, [problem], Resampling(20, 2, 0.9 * enough), 1.0, rng, penalty=0.02)
    with pytest.raises(PgbbError, match="shared out"):
        noisy_refits(held, [problem, problem], Resampling(20, 3, enough), 1.0, rng, penalty=0.02)
    with pytest.raises(PgbbError, match="n = 21"):
        noisy_means(held, (0.0, 1.0), Resampling(21, 2, 1.0), 1.0, rng)
    custom = Custom(lambda t, r, i: 0.0, dim=1, clip=1.0, columns=["a"], box=(-1, 1)).prepare(SCHEMA)
    mean = Mean("y", scale=1.0).prepare(SCHEMA)
    for other in (custom, mean):
        with pytest.raises(PgbbError, match="bounded without a clip"):
            noisy_refits(held, [other], Resampling(20, 2, enough), 1.0, rng, penalty=0.02)


def test_too_few_digits_are_refused_from_public_numbers_alone():
    with pytest.raises(PgbbError, match="too few digits"):
        refit_sensitivity(QuantileRegression("y ~ a", bandwidth=1e-12).prepare(SCHEMA), 10_000, 0.02)


@pytest.mark.parametrize("miss, kept", [(0.5, True), (3.0, False)])
def test_a_point_that_missed_the_tolerance_is_never_returned(monkeypatch, miss, kept):
    """Δ is certified for points within the tolerance: any other gives way to the public start."""
    x = np.column_stack([np.ones(9), np.linspace(-1, 1, 9)])
    t = task("logistic", x, (np.arange(9) > 4).astype(float))
    best = refits._fit(t)
    aside = np.array([0.0, 1e-6])
    away = aside * miss * t.tolerance / np.linalg.norm(t.gradient(best + aside) - t.gradient(best))
    monkeypatch.setattr(refits, "_candidates", lambda _: iter(()))
    monkeypatch.setattr(refits, "_accelerated", lambda *_: best + away)
    assert np.array_equal(refits._fit(t), best + away if kept else np.zeros(2))
