"""From a first fit to a robust one: where residuals are narrow beside the response, and which designs need it."""

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb import Flag, HuberRegression, Levels, QuantileRegression, Range, Schema
from pgbb._numerics.symmetric import unpack
from pgbb.accountant import noise_scale
from pgbb.methods.calibrated import stages as all_stages
from pgbb.methods.calibrated.algebra import shrink
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import box_for
from pgbb.methods.calibrated.curvature import Curvature, in_parts, unlike
from pgbb.methods.calibrated.frame import Cut, Frame, design_frame
from pgbb.methods.calibrated.refine import widening_for_contradiction
from pgbb.methods.calibrated.response import Distribution, Located
from pgbb.methods.calibrated.stages import composition, questions_for, whole_noise
from pgbb.methods.calibrated.start import (
    _told,
    least_squares,
    locate_response,
    robust_fit,
    scale_of,
    spread_of_residuals,
)
from pgbb.private.loading import records_for
from pgbb.private.local_engine import Here
from pgbb.private.randomness import Randomness
from pgbb.private.sums import Sums

C, KAPPA = 1.345, 0.71
N, NARROW = 10_000, 0.15
SCHEMA = Schema(y=Range(-10, 20), a=Range(-8, 8), g=Levels(*range(8)), h=Levels(*range(7)))
PROBLEM = QuantileRegression("y ~ a * g + h", taus=[0.5]).prepare(SCHEMA)
EDGES = np.sinh(np.linspace(-1, 1, 65) * np.arcsinh(12 / 0.03)) * 0.03


def narrow(seed):
    """Twenty-two terms that explain all of the response but a tenth of its spread; and the line itself."""
    rng = np.random.default_rng(seed)
    g = rng.choice(8, N, p=[0.3, 0.2, 0.15, 0.12, 0.1, 0.06, 0.04, 0.03])
    h = rng.choice(7, N, p=[0.25, 0.2, 0.18, 0.15, 0.1, 0.07, 0.05])
    a = rng.normal(size=N)
    line = 5 + 1.5 * a + np.linspace(-0.5, 0.8, 8)[g] + np.linspace(-0.4, 0.4, 7)[h] + np.linspace(0, 0.3, 8)[g] * a
    return pd.DataFrame({"y": line + NARROW * rng.standard_t(5, N), "a": a, "g": g, "h": h}), line


def asker(data, seed):
    records, stages = records_for(data, PROBLEM, SCHEMA), questions_for(PROBLEM, 1, whole_noise(N, 1.0, 1e-6))
    plan = composition(stages, N)
    sigma = noise_scale(plan, 1.0, 1e-6)
    sums = Sums(Here(records, PROBLEM.shift), plan, [s.name for s in stages], sigma, Randomness.create(seed))
    return Asker(sums, PROBLEM, stages)


def test_steps_of_a_huber_loss_find_a_line_that_a_first_fit_misses_by_several_times_the_residuals():
    off, first = [], []
    for seed in range(3):
        data, line = narrow(seed)
        for found, fit in ((off, robust_fit), (first, least_squares)):
            one = asker(data, seed)
            at, near = locate_response(one, PROBLEM, PROBLEM.design), design_frame(one, PROBLEM.design)
            box = box_for(PROBLEM, near, at.size(constant=True), at.start(PROBLEM.dim, constant=True))
            theta, _, *laws = fit(one, near, at, box, constant=True)
            x = PROBLEM.design.matrix({name: data[name].to_numpy(float) for name in ("a", "g", "h")})
            away = np.sqrt(np.mean((x @ theta + PROBLEM.shift - line) ** 2)) / NARROW
            found.append((away, scale_of(laws[-1], C, KAPPA) / NARROW))
    assert np.median(off, axis=0)[0] < 1.8 and np.median(off, axis=0)[1] < 2.3
    assert np.median(first, axis=0).min() > 2.5


def test_steps_are_asked_where_a_first_fit_is_far_off_and_they_lead_nearer():
    def asks(formula, n, model=HuberRegression):
        stages = questions_for(model(formula).prepare(SCHEMA), 1, whole_noise(n, 1.0, 1e-6))
        return sum(stage.asks for stage in stages if stage.name == "locate")

    many, few = "y ~ a * g + h", "y ~ a"
    assert asks(many, 10_000) == asks(many, 30_000) == asks(many, 10_000, QuantileRegression) == 4
    assert asks(many, 1_000) == asks(few, 1_000) == 1  # they lead no nearer
    assert asks(many, 1_000_000) == asks(few, 10_000) == 4  # of a Huber loss of its own where they are cheap
    assert asks(many, 1_000_000, QuantileRegression) == asks(few, 10_000, QuantileRegression) == 0


def bent(seed):
    """A skewed covariate, a line that is wrong for its largest values, and errors that grow with it."""
    rng = np.random.default_rng(seed)
    x, a, g = np.minimum(np.exp(rng.normal(size=N)), 60), rng.normal(size=N), rng.random(N) < 0.3
    y = 2 * np.minimum(x, 4) + 0.5 * a + g + 0.3 * (1 + np.minimum(x, 8)) * rng.standard_t(3, N)
    return pd.DataFrame({"y": y, "x": x, "a": a, "g": g.astype(int)})


@pytest.mark.filterwarnings("ignore:not identified")
def test_a_larger_budget_does_not_show_what_few_steps_leave_undone(monkeypatch):
    schema = Schema(y=Range(-20, 60), x=Range(0, 60), a=Range(-5, 5), g=Flag())

    model, budget = HuberRegression("y ~ x + a + g"), {"epsilon": 4.0, "delta": 1e-6}

    def widest():
        releases = [pgbb.fit(model, bent(seed), schema=schema, **budget, insecure_seed=seed) for seed in range(3)]
        found = [release.summary().loc["x"] for release in releases]
        return max(t["sd"] for t in found), all(t["identified"] for t in found)

    spread, identified = widest()
    assert spread < 0.2 and identified
    monkeypatch.setattr(all_stages, "QUIET", 0.0)  # one step
    monkeypatch.setattr(all_stages, "NONE", 0.0)  # and no gradients that lead nearer
    assert widest()[0] > 1


def test_an_answer_tells_how_wide_residuals_are_as_far_as_its_noise_lets_it():
    rng = np.random.default_rng(0)
    r = rng.standard_normal(200_000)
    wide = Distribution(EDGES, np.histogram(np.clip(1.6 * r, -12, 12), EDGES)[0] / len(r), 0.0)
    true, looks = scale_of(Distribution(EDGES, np.histogram(r, EDGES)[0] / len(r), 0.0), C, KAPPA), 1.5
    square = float(np.mean(np.minimum((r / looks) ** 2, C**2)))
    assert scale_of(_told(wide, looks, C, KAPPA, square, 1e-3), C, KAPPA) == pytest.approx(true, rel=0.02)
    assert scale_of(_told(wide, looks, C, KAPPA, square, 1e3), C, KAPPA) == pytest.approx(1.6 * true, rel=0.02)


def test_what_bends_in_two_gradients_does_not_contradict_the_curvature():
    bend, sd = Curvature(np.eye(3), np.full(6, 0.02)), 0.01
    step = np.array([0.3, 0.0, 0.1])
    change, last = step + np.array([0.0, 0.0, 0.5]), np.array([0.2, 0.0, 0.0])
    given = change, step, last, bend, 1e-6 * np.eye(3), sd, sd
    assert widening_for_contradiction(*given, np.diag([0.0, 0.0, 0.25])) == 1.0
    assert np.isinf(widening_for_contradiction(*given))
    assert np.isinf(widening_for_contradiction(*given, np.diag([0.25, 0.0, 0.0])))  # along another axis


def rare(share, far, sd=0.0):
    """What a gradient misses, over itself, along the axis of a rare group that a step moves by so many scales."""
    u = np.zeros((4000, 2))
    u[:, 0] = 1.0
    u[: int(share * 4000), 1] = 1.0
    near = Frame(np.eye(2), u.T @ u / 4000, np.zeros(3), Cut(0.0, 0.0), 1.0, np.zeros((2, 2)), reference=u)
    step = np.array([0.0, far])
    gradient = near.moment @ step
    return np.sqrt(np.diag(near.bent(step, gradient, sd**2 * np.eye(2), 1.0, 1.0))) / gradient


def test_the_spread_of_residuals_is_that_of_their_middle_and_never_none():
    r = np.random.default_rng(2).standard_t(2, 200_000)
    for sd, most in ((0.0, 1.5), (0.2, 1.3)):
        found = Distribution(EDGES, np.histogram(np.clip(r, -12, 12), EDGES)[0] / len(r), sd).spread
        assert 1.1 < found < most < r.std()
    one, at = np.zeros(64), Located(0.0, 1.0, 0.0, 1.0)
    one[32] = 1.0
    assert spread_of_residuals(Distribution(EDGES, one, 0.0), at) == pytest.approx(0.1)
    assert spread_of_residuals(Distribution(9 * EDGES, np.full(64, 1 / 64), 0.0), at) == 1.0


def test_a_step_that_moves_a_rare_group_as_far_as_scores_can_tell_leaves_its_distance_open():
    for far, least, most in ((0.2, 0.0, 0.01), (0.5, 0.05, 0.5), (0.9, 3, 20), (3.0, 50, 1000)):
        assert least <= rare(0.02, far)[1] <= most
    assert rare(0.02, 0.9, 0.9)[1] == 0.0  # noise explains it
    assert rare(0.02, 3.0)[0] < 0.05 * rare(0.02, 3.0)[1]  # of all records, whom it hardly moves


def test_a_curvature_that_is_not_asked_differs_by_no_more_for_many_terms():
    def size(p):
        return np.linalg.norm(unlike(np.eye(p)))

    assert size(4) == pytest.approx(0.12 * np.sqrt(16)) and size(8) == pytest.approx(2 * size(4))
    assert size(32) == pytest.approx(size(8))


@pytest.mark.parametrize("far", [0.0, 0.8])
def test_what_a_scale_has_in_common_with_the_design_says_nothing_of_the_coefficients(far):
    p, sd, rng = 6, 0.25, np.random.default_rng(0)
    target = np.diag([*np.ones(p), 100.0])
    noise = np.triu(rng.normal(0, sd / np.sqrt(2), (p + 1, p + 1)))
    raw = target + noise + np.triu(noise, 1).T
    raw[:p, p], raw[p, :p] = raw[:p, p] + 10 * far, raw[p, :p] + 10 * far
    value, left = in_parts(raw, target, sd, shrink=shrink, block=p)
    alone, alone_left = shrink(raw[:p, :p], target[:p, :p], sd)
    assert value[:p, :p] == pytest.approx(alone)
    assert unpack(left, p + 1)[:p, :p] == pytest.approx(unpack(alone_left, p))
    assert value[:p, p] == pytest.approx(raw[:p, p], abs=0.3 + far)
    together, _ = shrink(raw, target, sd)
    if far:  # the twin: with one deviation for all, noise of the coefficients is kept
        assert np.abs(together[:p, :p] - np.eye(p)).max() > 2 * np.abs(value[:p, :p] - np.eye(p)).max()
