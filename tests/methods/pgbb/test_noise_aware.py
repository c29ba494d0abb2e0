import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, ndtr

import pgbb
from pgbb import Custom, HuberRegression, InvalidValue, LogisticRegression, Mean, QuantileRegression, Range, Schema
from pgbb.accountant import Composition, Mechanism, epsilon
from pgbb.methods.pgbb import dither as dithering
from pgbb.methods.pgbb import logistic, training
from pgbb.methods.pgbb.all_levels import joint_of
from pgbb.methods.pgbb.coordinates import Coordinates
from pgbb.methods.pgbb.moment_answers import SHARE, _bend, asks_bend, sizes, with_moments
from pgbb.methods.pgbb.noise_aware import CURVED, Found, analyse, bent, curvature_of, near, posterior_of, pulled, shrunk
from pgbb.methods.pgbb.posterior import SecondMoments
from pgbb.methods.pgbb.settings import Settings, by_difference, plan
from pgbb.methods.pgbb.shape import bend_at, bends_alike, shape_of
from pgbb.methods.registry import settings_for
from pgbb.methods.request import Request
from pgbb.private.worker import _by_name

SCHEMA = Schema(a=Range(-1, 1), b=Range(-1, 1), y=Range(-6, 6), z=pgbb.Flag(), w=Range(0, 2))
QUICK = {"schema": SCHEMA, "delta": 1e-6, "blocks": 5, "steps": 60, "draws_per_step": 2, "sampling_rate": 0.2}
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def fit(model, data, **settings):
    return pgbb.fit(model, data, **({"method": "pgbb"} | settings))


def frame(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    noise = rng.standard_normal(n)
    line = x @ np.array([1.5, -1.0])
    return pd.DataFrame({
        "a": x[:, 0], "b": x[:, 1], "y": line + 0.5 * noise, "z": (line + noise > 0).astype(int),
        "w": rng.uniform(0.5, 2, n),
    })  # fmt: skip


# --- the analysis, on answers of a known law ----------------------------------------------------------------------


def transcript(rng, blocks=20, count=1600, noise=5.0, gain=0.1):
    """Answers 4(θ − Σ u_s t_s) + noise at points that a learner of block weights chooses from them, and dither."""
    targets = 0.1 * rng.standard_normal(blocks)
    u = rng.dirichlet(np.ones(blocks), count)
    dither = rng.standard_normal((count, 1)) * np.where(np.arange(count) < 600, 0.6, 0.2)[:, None]
    query, answers, weights = np.empty((count, 1)), np.empty((count, 1)), np.zeros(blocks)
    for t in range(count):
        query[t] = weights @ u[t] + dither[t]
        answers[t] = 4 * (query[t] - u[t] @ targets) + noise * rng.standard_normal()
        weights -= gain * (1 - t / count) * answers[t] * u[t]
    return answers, u, query, dither, np.arange(count) >= 600, targets.mean()


@pytest.fixture(scope="module")
def transcripts():
    return [transcript(np.random.default_rng(seed)) for seed in range(150)]


def scores(transcripts, instrument=True):
    """Standardised errors of the estimate and of the curvature over runs, the noise taken as it is."""
    found = []
    for answers, u, query, dither, late, target in transcripts:
        where = Coordinates.of_box(np.ones(1))
        part = analyse(answers, u, query, dither if instrument else where.whitened(query), late, where, 5.0)
        estimate = part.reference[0] - part.gradient[0] / part.curvature[0, 0]
        error = 5.0 * math.sqrt(part.variance) / 4
        found.append([(estimate - target) / error, (part.curvature[0, 0] - 4) / part.curvature_sd[0]])
    return np.array(found)


def plausible(values):
    """Mean 0 and standard deviation 1, within four standard errors and 15 %."""
    size = math.sqrt(len(values))
    return abs(values.mean()) < 4 / size and abs(values.std() - 1) < 4 / math.sqrt(2) / size + 0.05


def test_errors_of_estimate_and_curvature_have_the_law_that_the_posterior_gives_them(transcripts):
    found = scores(transcripts)
    assert plausible(found[:, 0]) and plausible(found[:, 1])
    assert not plausible(found[:, 0] / 1.6) and not plausible(1.6 * found[:, 1])  # the comparison can fail


def test_without_the_dither_as_instrument_noise_that_the_points_follow_passes_for_curvature(transcripts):
    assert not plausible(scores(transcripts, instrument=False)[:, 1])


def curved(seed, blocks=5, count=8000, noise=4.0):
    """Answers 2 + Σ u_s t_s − 1/θ with noise at points around .62, off the root .5 of their mean."""
    rng = np.random.default_rng(seed)
    targets = 0.1 * rng.standard_normal(blocks)
    targets -= targets.mean()
    u, late = rng.dirichlet(np.ones(blocks), count), np.arange(count) >= count // 3
    dither = rng.standard_normal((count, 1)) * np.where(late, 0.05, 0.2)[:, None]
    query = np.clip(0.62 + dither, 0.1, 2.0)
    answers = 2 + (u @ targets)[:, None] - 1 / query + noise * rng.standard_normal((count, 1))
    box = np.array([0.1]), np.array([2.0])
    return answers, u, query, dither, late, Coordinates.of_box(np.ones(1)), noise, box


def test_a_loss_that_is_not_quadratic_has_its_shape_and_root_found():
    found = [bent(*curved(seed)) for seed in range(40)]
    plain = [analyse(*curved(seed)[:-1]) for seed in range(40)]
    for parts, right in ((found, True), (plain, False)):
        steps = [-part.gradient / part.curvature[0, 0] for part in parts]
        roots = np.array([part.reference + part.bent(step) for part, step in zip(parts, steps, strict=True)])
        assert bool(abs(np.median(roots) - 0.5) < 0.01) is right
    shapes = np.array([part.shape[0] * part.reference[0] for part in found])  # κ = 1/c
    assert 0.8 < np.median(shapes) < 1.1 and np.mean(shapes == 0) < 0.2


@pytest.mark.parametrize("straight", [False, True])
def test_a_logistic_regression_with_rare_events_is_read_along_its_own_gradient(straight):
    where = Coordinates.of_design(np.array([[1.0, 0.3], [0.3, 1.0]]), 1e-6)
    rng, target, late = np.random.default_rng(3), np.array([-4.0, 0.7]), np.ones(1_000, bool)
    x = np.column_stack([np.ones(4_000), 0.3 + np.sqrt(0.91) * rng.standard_normal(4_000)])
    wrong = []
    for _ in range(24):
        dither = 0.6 * rng.standard_normal((1_000, 2))
        points = target + np.array([0.5, -0.3]) + dither / where.root @ where.frame.T
        score = (expit(points @ x.T) - expit(x @ target)) @ x / len(x)
        answers = score + 0.004 * rng.standard_normal((1_000, 2))
        told = answers, rng.dirichlet(np.ones(5), 1_000), points, dither, late, where, 0.004
        found = analyse(*told) if straight else logistic.read(*told, constant=True)
        value, _, _ = curvature_of(found, where)
        y = where.whitened(np.array([found.reference]))[0] - np.linalg.solve(value, found.gradient)
        spread = np.linalg.inv(value) * 0.004 * np.sqrt(found.variance) / where.root
        away = y - where.whitened(target[np.newaxis])[0]
        wrong.append(away / np.sqrt(np.sum(spread**2, axis=1)))
    mean = np.sqrt(np.mean(np.square(wrong)))
    assert (mean > 2) if straight else (0.6 < mean < 1.5)


def test_a_quadratic_loss_has_no_shape():
    found = [bent(*transcript(np.random.default_rng(s))[:5], Coordinates.of_box(np.ones(1)), 5.0,
                  (np.array([-4.0]), np.array([4.0]))) for s in range(40)]  # fmt: skip
    assert sum(part.shape.any() for part in found) <= 4


def test_a_matrix_of_noise_is_pulled_to_its_target_and_one_that_stands_out_is_not():
    rng = np.random.default_rng(1)
    target, sd = np.eye(3), np.full(6, 0.2)
    near = target + np.diag(0.01 * rng.standard_normal(3))
    value, left = shrunk(near, sd, target, 0.1)
    assert np.abs(value - near).max() < 0.02 and (left < sd).all()
    far = target + np.array([[2.0, 1.0, 0.0], [1.0, -0.5, 0.0], [0.0, 0.0, 3.0]])
    value, left = shrunk(far, sd, target, 0.1)
    assert np.abs(value - far).max() < 0.15 and left == pytest.approx(sd, rel=0.1)


def test_what_noise_hides_of_the_design_is_left_to_the_answers():
    """A direction along which the design varies a third as much as it seems: noise of its moment tells, or hides it."""
    where = Coordinates.of_design(np.diag([0.03, 0.5, 0.6, 0.7]), 0.02)
    raw, sd = 5 * np.diag([0.3, 1.0, 1.0, 1.0]), np.full(10, 0.4)
    found, left = pulled(raw, sd, where)
    assert found[0, 0] == pytest.approx(1.5, abs=0.35) and found[1, 1] == pytest.approx(5, abs=0.3)
    exact = replace(where, moment_sd=np.zeros(10))
    assert pulled(raw, 4 * sd, exact)[0][0, 0] > 2.5 > pulled(raw, 4 * sd, where)[0][0, 0]
    assert pulled(raw, 4 * sd, exact)[1][0] < left[0] * 4


def test_the_curvatures_of_other_levels_tell_how_the_design_varies():
    where, d = Coordinates.of_design(np.diag([0.03, 0.5, 0.6]), 0.02), 3
    plain = Found.nothing(np.zeros(d))
    clear = replace(plain, curvature=7 * np.diag([0.3, 1.0, 1.0]), curvature_sd=np.full(6, 0.2))
    noisy = replace(plain, curvature=2 * np.diag([-0.4, 1.0, 1.0]), curvature_sd=np.full(6, 0.6))
    alone, beside = (curvature_of(noisy, where, others) for others in ((), (clear,)))
    truth = 2 * 0.3
    assert abs(beside[0][0, 0] - truth) < 0.25 < abs(alone[0][0, 0] - truth)
    assert beside[1][0] < 0.7 * alone[1][0]


def test_a_second_moment_that_noise_hides_is_taken_to_be_positive():
    z = np.linspace(-12, 12, 400_001)
    for value in (-0.05, 0.0, 0.03, 0.5):
        law = np.where(z > 0, np.exp(-0.5 * ((z - value) / 0.02) ** 2), 0.0)
        root = Coordinates.of_design(np.diag([value, 1.0]), 0.02).root
        assert np.sort(root**2)[0] == pytest.approx(max(np.sum(z * law) / np.sum(law), 1e-4), rel=0.02)


def test_a_box_is_as_wide_as_the_design_allows():
    """Over a range that records fill to a fifth, a slope may be five times half the range of the response."""
    filled, narrow = (Coordinates.of_design(np.diag([1.0, v]), 0.001).reach(np.ones(2)) for v in (1.0, 0.04))
    assert filled == pytest.approx([1.0, 1.0], rel=0.01) and np.sort(narrow) == pytest.approx([1.0, 5.0], rel=0.1)
    hidden = Coordinates.of_design(np.diag([1.0, 0.04]), 0.03).reach(np.ones(2))
    assert 8 < hidden.max() < 14  # what noise hides may vary less


def posterior(levels=None, noise=0.05, spread=0.1, side=0.5):
    """Of a line with a scale (none with levels), whose answers leave noise of this length on two whitened scores."""
    d = 2 if levels else 3
    where = Coordinates.of_design(np.eye(2), 0.0, d - 2)
    part = Found(
        reference=np.eye(3)[2][:d], gradient=np.zeros(d), variance=noise**2 / 2, curvature=np.eye(d),
        curvature_sd=np.full(d * (d + 1) // 2, 1e-3), spread=np.full(d, spread), residual=np.ones(d),
        bend=(0.0, 1.0), shape=np.zeros(d), answers=100,
    )  # fmt: skip
    m = len(levels or (0.5,))
    run = Mechanism(n=1000, blocks=5, sampling_rate=1.0, steps=100, clip=1.0)
    box = np.array([-9.0, -9.0, 0.1][:d]), np.full(d, 9.0)
    cov = np.eye(d), np.full(d * (d + 1) // 2, 1e-3)
    return posterior_of([part] * m, where, np.eye(m), run, 1.0, cov, box, levels, side=side)


def test_a_line_with_too_many_records_that_may_lie_on_either_side_is_marked():
    for noise, side, marked in ((0.24, 0.5, False), (0.26, 0.5, True), (0.06, 0.1, True), (0.04, 0.1, False)):
        found, _, reasons = posterior(noise=noise, side=side)
        assert found.free.any() == marked and len(reasons) == marked
    found, _, reasons = posterior(levels=(0.1, 0.5), noise=0.06)
    assert [free.any() for free in found.free] == [True, False] and "at 0.1" in reasons[0]


@pytest.mark.parametrize(("far", "first"), [(0.5, 0.1), (4.0, 0.3)])
def test_answers_count_from_when_points_are_near(far, first):
    rng = np.random.default_rng(0)
    age = np.repeat(np.arange(100) / 100, 20)
    late = age >= 0.3
    y = rng.standard_normal((len(age), 3)) + np.where(late, 0.0, far * (age > 0.099) + 9.0 * (age < 0.099))[:, None]
    rows = near(y, age, late)
    assert rows[late].all()
    assert age[rows].min() == pytest.approx(first, abs=0.015)


def scores_of_a_scale(rng, off, sd=0.05):
    """Huber's scores of standard normal errors, at points `off` in the mean square and scales around 1.2."""
    x = rng.standard_normal((4_000, 3))
    errors = rng.standard_normal(len(x))
    points = np.column_stack(
        [off / np.sqrt(3) * rng.standard_normal((1_500, 3)), 1.2 + 0.1 * rng.standard_normal(1_500)]
    )
    found = []
    for point in points:
        score = np.clip((errors - x @ point[:3]) / point[3], -1.345, 1.345)
        found.append([*(-x.T @ score / len(x)), np.mean(0.71 - score**2) / 2])
    return np.array(found) + sd * rng.standard_normal(points.shape), points


@pytest.mark.parametrize("off", [0.3, 0.7])
def test_points_off_the_line_are_not_taken_for_a_larger_scale(off):
    rng = np.random.default_rng(1)
    answers, points = scores_of_a_scale(rng, off)
    d = points.shape[1]
    where = Coordinates(np.eye(d), np.ones(d), np.arange(d) < 3, np.zeros(d * (d + 1) // 2))
    u, late = rng.dirichlet(np.ones(5), len(points)), np.ones(len(points), dtype=bool)
    dither = points - points.mean(axis=0)

    def estimate(coordinates):
        part = analyse(answers, u, points, dither, late, coordinates, 0.05, np.array([0, 0, 0, 0.5 / 1.2]))
        step = -np.linalg.solve(part.curvature, part.gradient)
        return (part.reference + part.bent(step))[3]

    assert estimate(where) == pytest.approx(1.0, abs=0.03)
    line = np.polyfit(points[:, 3], answers[:, 3], 1)
    assert -line[1] / line[0] > 1 + 0.35 * off**2  # where the scores of the scale are zero at such points


def test_the_scale_of_a_regression_is_allowed_for_how_its_gradient_bends():
    near, far = (posterior(spread=spread)[0].sampling for spread in (0.01, 0.3))
    assert far[2, 2] - near[2, 2] == pytest.approx((CURVED * 0.3**2) ** 2, rel=0.01)
    assert np.array_equal(near[:2, :2], far[:2, :2])


# --- all levels in one answer ---------------------------------------------------------------------------------------


def test_the_gradients_of_all_levels_are_read_off_one_answer_of_bounded_length():
    problem = QuantileRegression("y ~ a + b", taus=LEVELS, bandwidth=0.2).prepare(SCHEMA)
    joint = joint_of(problem, LEVELS)
    rng = np.random.default_rng(2)
    theta = np.array([[t - 0.5, 1.0, -1.0] for t in LEVELS])
    rows = np.column_stack([np.ones(50), rng.uniform(-1, 1, (50, 2))]).astype(np.float32)
    y = rng.normal(0, 2, 50).astype(np.float32)
    answers = np.array([joint.problem.joint(theta.ravel(), x, r) for x, r in zip(rows, y, strict=True)])
    found = joint.gradients(answers)
    for j, level in enumerate(LEVELS):
        exact = ((1 - level) - ndtr((y - rows @ theta[j]) / 0.2))[:, None] * rows
        assert found[:, j] == pytest.approx(exact, abs=1e-5)
    longest = np.linalg.norm(answers, axis=1) / np.linalg.norm(rows, axis=1)
    assert longest.max() <= 1 + 1e-6 and joint.problem.clip == problem.design.norm_bound
    assert joint.dim == 3 and joint.count == 5
    apart = np.sqrt(np.sum(joint.decode**2, axis=1)) / math.sqrt(5)  # with a fifth of the answers each
    assert (apart < 0.9 * max(LEVELS)).all()


# --- what is asked, and what it costs ------------------------------------------------------------


def test_second_moments_have_their_share_of_the_budget_and_enter_the_certificate():
    m = Mechanism(n=10_000, blocks=20, sampling_rate=0.1, steps=10_000, clip=2.394)
    target = with_moments(m)
    gradients, moments = (
        part.answers * (part.sampling_rate * part.signal(noise)) ** 2 * part.kappa for part, noise in target.parts(1.0)
    )
    assert moments / (moments + gradients) == pytest.approx(SHARE)
    assert epsilon(target, 0.03, 1e-4) > epsilon(m, 0.03, 1e-4)
    release = fit(HuberRegression("y ~ a + b"), frame(), epsilon=1.0, **QUICK)
    claim = release.certificate
    assert isinstance(claim.mechanism, Composition) and claim.mechanism == with_moments(claim.mechanism.mechanisms[0])
    assert [p.answers for p in claim.mechanism.mechanisms] == [120, 2]
    assert claim.check().epsilons["exact"] <= 1.0 and release.verify().ok
    cheaper = Composition(claim.mechanism.mechanisms, (1.0, claim.mechanism.scales[1] / 3))
    assert epsilon(cheaper, claim.sigma, 1e-6) > 1.0  # less noise on the second moments would not be covered


def test_no_second_moment_is_asked_for_a_third_time():
    from pgbb.methods.pgbb.session_setup import open_for
    from pgbb.methods.pgbb.settings import Settings
    from pgbb.methods.request import prepared

    model = HuberRegression("y ~ a")
    settings = Settings(steps=60, draws_per_step=2, sampling_rate=0.2)
    request = Request(model, frame(), SCHEMA, 1.0, 1e-6, insecure_seed=1)
    opened = open_for(request, settings, prepared(model, SCHEMA))
    opened.second.before()
    opened.second.before()
    with pytest.raises(pgbb.PgbbError, match="second moments"):
        opened.second.before()


@pytest.mark.parametrize(
    "model, weights",
    [
        (QuantileRegression("y ~ a", taus=[0.3, 0.5]), "w"),
        pytest.param(QuantileRegression("y ~ a", interval=(0.1, 0.9)), None, marks=pytest.mark.evidence),
        (LogisticRegression("z ~ a + a:b"), None),
        pytest.param(Mean("y", scale=1.0, clip=2.0), None, marks=pytest.mark.evidence),
        (Custom(lambda t, r, i: (r["y"] - t[0]) ** 2, dim=1, clip=2.0, columns=["y"], box=(-5, 5)), None),
    ],
)
def test_every_model_fits_as_planned_saves_loads_and_verifies(model, weights, tmp_path):
    release = fit(model, frame(), epsilon=1.0, weights=weights, **QUICK)
    chosen, settings = settings_for("pgbb", {k: v for k, v in QUICK.items() if k not in ("schema", "delta")})
    planned = chosen.load().plan(Request(model, frame(), SCHEMA, 1.0, 1e-6, weights=weights), settings, 2000)
    assert release.certificate.mechanism == planned.mechanism and release.certificate.sigma == planned.sigma
    again = pgbb.load(release.save(tmp_path / "r.pgbb"))
    assert again.verify().ok and again.payload.kind == "local"
    tau = 0.5 if again.model.index is not None else None
    assert np.array_equal(again.sample(50, tau=tau, seed=1), release.sample(50, tau=tau, seed=1))
    assert {"sampling_sd", "privacy_sd", "identified"} <= set(again.summary(tau=tau))
    assert json.loads(json.dumps(again.stored_diagnostics))["intervals"] == "noise-aware"


# --- intervals ------------------------------------------------------------


@pytest.fixture(scope="module")
def means():
    """(estimate − sample mean, privacy sd, sampling sd) of fits to samples of 2,000 with mean 1."""
    found = []
    for seed in range(24):
        values = np.random.default_rng(1000 + seed).normal(1, 0.5, 2000)
        release = fit(
            Mean("y", scale=0.5, clip=8.0), pd.DataFrame({"y": values}), schema=SCHEMA, epsilon=1.0, delta=1e-5,
            blocks=10, steps=400, draws_per_step=2, sampling_rate=0.1, insecure_seed=seed,
        )  # fmt: skip
        row = release.summary().iloc[0]
        found.append([row["mean"] - values.mean(), row["privacy_sd"], row["sampling_sd"], row["identified"]])
    return np.array(found, dtype=float)


def test_the_privacy_noise_of_a_release_is_the_one_that_it_states(means):
    ratio = means[:, 0] / means[:, 1]
    assert means[:, 3].all()
    assert 0.6 < ratio.std() < 1.5 and abs(ratio.mean()) < 0.8
    assert not 0.6 < (3 * ratio).std() < 1.5  # the comparison can fail


def test_the_sampling_error_of_a_release_is_that_of_the_records(means):
    assert np.median(means[:, 2]) == pytest.approx(0.5 / math.sqrt(2000), rel=0.15)
    assert np.median(means[:, 2]) != pytest.approx(2 * 0.5 / math.sqrt(2000), rel=0.15)


def shares(model, seed=0, n=4000, **changes):
    """A mean of records of which 3 % are 1; the scores of a Bernoulli law reach 33 there."""
    values = (np.random.default_rng(seed).random(n) < 0.03).astype(float)
    given = {"schema": Schema(s=pgbb.Flag()), "epsilon": 4.0, "delta": 1e-6, "steps": 800, "insecure_seed": seed}
    return fit(model, pd.DataFrame({"s": values}), **(given | changes)).summary().iloc[0], values.mean()


def test_a_rare_share_is_found_whatever_its_own_scores_would_be():
    for seed in range(3):
        row, mean = shares(Mean("s", family="bernoulli"), seed)
        assert row["identified"] and abs(row["mean"] - mean) < 4 * row["privacy_sd"] and row["privacy_sd"] < 0.01


def test_a_worker_of_a_cluster_finds_the_score_of_a_mean_by_its_name():
    model, schema = Mean("s", family="exponential"), Schema(s=Range(0, 12))
    own = model.prepare(schema)
    problem = by_difference(own)
    ((name, args),) = problem.origin
    again = _by_name(name)(own, *args, model=model, schema=schema)
    assert again.clip == problem.clip == 12.0 and own.clip == 8.0
    assert [float(p.score(np, None, 2.0, 12.0, None)[0]) for p in (again, own)] == [-10.0, -2.5]


def test_a_mean_whose_scores_are_clipped_is_marked():
    """Clipped to 8, scores of a Bernoulli law have a root near 0; a scale of 1 where it is 50 clips most records."""
    with pytest.warns(pgbb.PgbbWarning, match="not identified"):
        row, _ = shares(Mean("s", family="bernoulli", clip=8.0))
    assert not row["identified"]
    skewed = pd.DataFrame({"s": np.random.default_rng(0).exponential(50.0, 4000)})
    wide = {"schema": Schema(s=Range(0, 500)), "epsilon": 4.0, "delta": 1e-6, "steps": 800, "insecure_seed": 1}
    for scale, right in ((1.0, False), (50.0, True)):
        release = fit(Mean("s", scale=scale), skewed, **wide)
        assert release.payload.local.columns(None, np.eye(1))["identified"].all() == right
        assert right or "many scores are clipped" in release.certificate.notes[0]


@pytest.mark.parametrize(
    "n, epsilon, changes, reach",
    [(10_000, 4.0, {}, 12.57), (10_000, 1.0, {}, 8.0), (10**8, 4.0, {}, 24.0), (10_000, 4.0, {"clip": 3.0}, 1.5)],
)
def test_the_clip_of_a_gaussian_mean_is_as_far_out_as_costs_little(n, epsilon, changes, reach):
    model = Mean("y", family="gaussian", scale=0.5, **changes)
    request = Request(model=model, data=None, schema=SCHEMA, epsilon=epsilon, delta=1e-6)
    planned = plan(request, Settings(), n).mechanism.mechanisms[0]
    assert planned.clip == pytest.approx(reach / 0.5, abs=0.01)


def test_a_private_regression_recovers_the_coefficients_and_says_how_well():
    release = fit(
        HuberRegression("y ~ a + b - 1"), frame(20_000, 2), schema=SCHEMA, epsilon=2.0, delta=1e-6, blocks=10,
        steps=1000, draws_per_step=2, sampling_rate=0.05, insecure_seed=3,
    )  # fmt: skip
    table = release.summary()
    error = (table.loc[["a", "b"], "mean"] - [1.5, -1.0]) / table.loc[["a", "b"], "sd"]
    assert table["identified"].all() and error.abs().max() < 3.5 and table.loc["a", "sd"] < 0.03
    assert release.certificate.notes == ()


def test_a_slope_beyond_half_the_range_of_the_response_is_found():
    """The covariate fills a sixth of its range: its slope there is 1.8 times half the range of the response."""
    rng = np.random.default_rng(5)
    x = np.clip(rng.normal(0, 1 / 6, 20_000), -1, 1)
    data = pd.DataFrame({"a": x, "y": 1.8 * x + 0.1 * rng.standard_normal(20_000)})
    schema = Schema(a=Range(-1, 1), y=Range(-1, 1))
    release = fit(HuberRegression("y ~ a"), data, schema=schema, epsilon=4.0, delta=1e-6, steps=2000, insecure_seed=1)
    row, problem = release.summary().loc["a"], HuberRegression("y ~ a").prepare(schema)
    assert row["identified"] and abs(row["mean"] - 1.8) < 3.5 * row["sd"] < 0.3
    assert problem.center[1] + problem.radius[1] < 1.5  # the declared box has no room for it


@pytest.mark.parametrize(("faster", "high"), [(dithering.FASTER, False), (1.0, True)])
def test_points_come_near_a_scale_that_is_a_small_part_of_its_range(monkeypatch, faster, high):
    monkeypatch.setattr(dithering, "FASTER", faster)
    training._make_step.cache_clear()
    points = []
    posterior = SecondMoments.posterior

    def look(self, answers, transcript):
        points.append(transcript["query"][-1000:, -1].mean())
        return posterior(self, answers, transcript)

    monkeypatch.setattr(SecondMoments, "posterior", look)
    wide = Schema(a=Range(-1, 1), b=Range(-1, 1), y=Range(-100, 100))
    fit(HuberRegression("y ~ a + b"), frame(5000, 4), schema=wide, epsilon=0.7, delta=1e-6, steps=1000, insecure_seed=1)
    training._make_step.cache_clear()
    assert (points[0] > 1.2) == high  # errors have a standard deviation of .5


def test_dither_leaves_most_records_on_their_side_of_the_line():
    """Points of all directions together: the mean square of what they add to the predictor, times the density."""
    model, data = QuantileRegression("y ~ a + b", taus=[0.1, 0.5]), frame(5000, 3)
    kept = {}
    posterior = SecondMoments.posterior

    def look(self, answers, transcript):
        kept.update(transcript)
        return posterior(self, answers, transcript)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecondMoments, "posterior", look)
        fit(model, data, schema=SCHEMA, epsilon=0.3, delta=1e-6, steps=1500, insecure_seed=1)
    dither = kept["dither"].reshape(-1, 2, 3)[-2000:]
    shift = np.sqrt(np.mean(np.sum(dither**2, axis=2), axis=0)) * np.array([0.35, 0.8])  # densities of the errors
    assert (shift < 1.5 * 0.5 * np.array([0.1, 0.5])).all()  # LOCAL, with the noise of what is known of the density
    assert shift[0] < 0.5 * shift[1] + 0.01


def test_levels_share_their_noise_and_are_ordered():
    release = fit(
        QuantileRegression("y ~ a + b", taus=[0.1, 0.5, 0.9]), frame(20_000, 4), schema=SCHEMA, epsilon=4.0,
        delta=1e-6, blocks=5, steps=1000, draws_per_step=4, sampling_rate=0.02, insecure_seed=3,
    )  # fmt: skip
    levels = [release.summary(tau=t).loc["Intercept", "mean"] for t in (0.1, 0.5, 0.9)]
    assert levels == pytest.approx([-0.64, 0.0, 0.64], abs=0.06)
    assert (np.abs(release.payload.tensors["privacy"]).sum(axis=0) > 0).all()
    assert np.linalg.matrix_rank(release.payload.tensors["privacy"]) == 3


def test_a_training_that_did_not_learn_is_marked_and_as_wide_as_the_box():
    release = fit(HuberRegression("y ~ a + b"), frame(), epsilon=0.0075, insecure_seed=1, **QUICK)
    with pytest.warns(pgbb.PgbbWarning, match="not identified"):
        table = release.summary()
    assert not table["identified"].any()
    width = table.loc["a", "upper"] - table.loc["a", "lower"]
    assert width > 6 and "Not identified" in release.certificate.notes[0]


# --- what is refused ------------------------------------------------------------

INDEXED = Custom(
    lambda t, r, i: (r["y"] - t[0]) ** 2 * i, dim=1, clip=2.0, columns=["y"], box=(-5, 5), index=[0.5, 1.0]
)


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"intervals": "honest"}, "intervals"),
        ({"accountant": "paper"}, "accountant = 'paper'"),
        ({"non_private": True}, "non_private"),
        ({"keep_transcript": True}, "keep_transcript"),
        ({"model": INDEXED}, "custom loss with an index"),
        ({"knots": 1}, "knots"),
        ({"blocks": 2}, "blocks"),
        ({"clip": 0.0}, "clip"),
        ({"dither": 0.0}, "dither"),
        ({"nested": -1.0}, "nested"),
        ({"settings": "published"}, "settings"),
        ({"settings": "printed"}, "sampling_rate"),
        ({"settings": "printed", "sampling_rate": None}, "intervals"),
        ({"settings": "printed", "sampling_rate": None, "intervals": None}, "accountant = 'exact'"),
        ({"settings": "printed", "sampling_rate": None, "intervals": None, "learning_rate": 0.1}, "learning_rate"),
        (
            {"settings": "printed", "sampling_rate": None, "intervals": None, "accountant": "paper",
             "model": LogisticRegression("z ~ a")},
            "logistic",
        ),
    ],
)  # fmt: skip
def test_a_contradiction_is_refused_before_the_records_are_read(changes, word):
    given = {"model": HuberRegression("y ~ a"), "intervals": "noise-aware", "epsilon": 1.0} | QUICK | changes
    with pytest.raises(InvalidValue, match=word):
        pgbb.fit(given.pop("model"), "never-opened.csv", method="pgbb", **given)


@pytest.mark.parametrize("changes", [{"accountant": "paper"}, {"non_private": True}, {"keep_transcript": True}])
def test_by_default_intervals_are_printed_where_nothing_else_is_served(changes):
    release = fit(HuberRegression("y ~ a"), frame(), epsilon=1.0, **QUICK, **changes)
    assert release.payload.kind == "generator" and isinstance(release.certificate.mechanism, Mechanism)


def test_a_training_of_one_step_shows_nothing_and_says_so():
    release = fit(Mean("y", scale=1.0), frame(), epsilon=1.0, **(QUICK | {"steps": 1}))
    with pytest.warns(pgbb.PgbbWarning, match="not identified"):
        assert not release.summary()["identified"].any()
    assert release.verify().ok


# --- the curvature that is asked for -------------------------------------------------------


def bend_of(model, x, y, theta, bound):
    return np.asarray(_bend(model.prepare(SCHEMA))(np.float32(x), np.float32(y), np.float32([*theta, bound])))


def test_the_curvature_of_a_record_is_that_of_its_loss_and_zero_where_its_gradient_is_clipped():
    assert bend_of(Mean("y", scale=0.5), [1.0], 1.0, [0.5], 8.0) == pytest.approx([4.0 / 8.0])
    assert bend_of(Mean("y", scale=0.5), [1.0], 5.0, [0.5], 8.0).tolist() == [0.0]  # the score is −18, C is 8
    loss = Custom(lambda t, r, _: t[0] ** 2 * t[1] + r["y"] * t[0], dim=2, clip=20.0, columns=["y"], box=(-3, 3))
    found = bend_of(loss, [1.0], 0.0, [0.5, 2.0], 2.0)
    assert found == pytest.approx([4.0 / 2, math.sqrt(2) * 1.0 / 2, 0.0])


def test_a_loss_that_cannot_be_differentiated_twice_has_its_score_asked_twice():
    import jax

    @jax.custom_vjp
    def once(t):
        return t**2

    once.defvjp(lambda t: (t**2, t), lambda t, g: (jax.pure_callback(np.asarray, t, t) * 2 * g,))
    rough = Custom(lambda t, r, _: once(t[0]) + r["y"] * t[0], dim=1, clip=5.0, columns=["y"], box=(-3, 3))
    smooth = Custom(lambda t, r, _: t[0] ** 2 + r["y"] * t[0], dim=1, clip=5.0, columns=["y"], box=(-3, 3))
    problems = [model.prepare(SCHEMA) for model in (rough, smooth, HuberRegression("y ~ a"))]
    assert [asks_bend(p) for p in problems] == [False, True, False]
    assert [sizes(p)[1] for p in problems] == [1, 3, 6]


# --- nothing is spent on bad input ---------------------------------------------------------


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"dither": 0.0}, "dither"),
        ({"blocks": 2}, "blocks = 2"),
        ({"settings": "printed", "accountant": "paper", "clip": 9.0}, "clip = 9.0"),
        ({"settings": "printed", "accountant": "paper", "reshuffle": True}, "reshuffle = True"),
        ({"settings": "printed", "accountant": "paper", "operator_norm": 1.0}, "operator_norm = 1.0"),
        ({"settings": "printed", "accountant": "paper", "dither": 2.0}, "dither = 2.0"),
        ({"settings": "printed", "accountant": "paper", "alpha": 1.0, "pseudo": frame(5)}, "pseudo = 'given'"),
        ({"settings": "printed", "accountant": "paper", "intervals": "noise-aware"}, "intervals"),
        ({"settings": "printed"}, "accountant = 'exact'"),
    ],
)
def test_a_ledger_is_as_it_was_after_a_bad_setting(changes, word, tmp_path):
    ledger = pgbb.Ledger(tmp_path / "ledger.db")
    ledger.set("d", n=2000, epsilon=3.0, delta=1e-5)
    before = ledger.seal()
    given = {"schema": SCHEMA, "delta": 1e-6, "epsilon": 1.0, "steps": 60} | changes
    with pytest.raises(InvalidValue, match=word):
        pgbb.fit(HuberRegression("y ~ a"), frame(), method="pgbb", ledger=ledger, dataset="d", **given)
    assert ledger.seal() == before and not ledger.dataset("d").entries


# --- how a loss bends, as its code says ----------------------------------------------------


def one_parameter(loss, box=(0.1, 2.0)):
    return Custom(loss, dim=1, clip=30.0, columns=("y",), box=box).prepare(SCHEMA)


def test_a_loss_bends_alike_where_its_code_says_so_and_its_shape_is_that_of_its_derivatives():
    import jax
    import jax.numpy as jnp

    rate = one_parameter(jax.jit(lambda t, record, _: t[0] * record["y"] - jnp.log(t[0])))
    poisson = one_parameter(lambda t, record, _: jnp.exp(t[0]) - t[0] * record["y"])
    assert bends_alike(rate) and bends_alike(poisson)
    for loss in (
        lambda t, record, _: record["y"] / t[0] + jnp.log(t[0]),
        lambda t, record, _: jnp.where(record["y"] > 1, 2.0, 1.0) * t[0] ** 2,
        lambda t, record, _: jax.lax.fori_loop(0, 2, lambda _, v: v * record["y"], t[0] ** 2),
    ):
        assert not bends_alike(one_parameter(loss))
    assert not bends_alike(HuberRegression("y ~ a").prepare(SCHEMA))
    where, at = Coordinates.of_box(rate.radius), np.array([0.4])
    assert bend_at(rate, at) == pytest.approx(1 / 0.4**2, rel=1e-5)
    assert shape_of(rate, where, at) == pytest.approx([rate.radius[0] / 0.4], rel=1e-5)
    assert shape_of(poisson, where, at) == pytest.approx([-0.5 * poisson.radius[0]], rel=1e-5)
