import numpy as np
import pandas as pd
import pytest

from pgbb import Flag, HuberRegression, QuantileRegression, Range, Schema
from pgbb._numerics.symmetric import direction_sd
from pgbb.accountant import noise_scale
from pgbb.methods.calibrated.algebra import limited
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.box import box_for
from pgbb.methods.calibrated.columns import Atom, Columns
from pgbb.methods.calibrated.frame import Cut, Frame, _Far, _no_farther, _scaled, _turn, design_frame
from pgbb.methods.calibrated.huber import _rise
from pgbb.methods.calibrated.response import Distribution
from pgbb.methods.calibrated.stages import composition, questions_for
from pgbb.methods.calibrated.start import least_squares, locate_response, scale_of, straightened
from pgbb.private.loading import records_for
from pgbb.private.local_engine import Here
from pgbb.private.randomness import Randomness
from pgbb.private.sums import Sums

SCHEMA = Schema(a=Range(-1, 1), b=Range(-1, 1), c=Range(-1, 1), y=Range(-10, 10))
PROBLEM = QuantileRegression("y ~ a + b + c").prepare(SCHEMA)
STAGES = questions_for(PROBLEM, 5, 1e-4)
BETA = np.array([0.5, 1.5, -1.0, 0.8])


def collinear(n, seed):
    """b is a plus a twentieth of something else, and c hardly varies."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(-0.9, 0.9, n)
    data = pd.DataFrame({"a": a, "b": a + 0.05 * rng.uniform(-1, 1, n), "c": 0.1 * rng.uniform(-1, 1, n)})
    x = np.column_stack([np.ones(n), data])
    data["y"] = x @ BETA + 0.7 * rng.standard_normal(n)
    return data, x


def asker(data, epsilon, seed):
    records = records_for(data, PROBLEM, SCHEMA)
    plan = composition(STAGES, records.n)
    sigma = 0.0 if epsilon is None else noise_scale(plan, epsilon, 1e-6)
    sums = Sums(Here(records, PROBLEM.shift), plan, [s.name for s in STAGES], sigma, Randomness.create(seed))
    return Asker(sums, PROBLEM, STAGES)


@pytest.mark.parametrize("epsilon", [None, 4.0, 1.0])
def test_rounds_of_whitening_see_directions_in_which_covariates_hardly_vary(epsilon):
    data, x = collinear(40_000, 0)
    exact = x.T @ x / len(x)
    assert np.linalg.cond(exact) > 1000
    found = design_frame(asker(data, epsilon, 1), PROBLEM.design)
    frame, moment, left = found.matrix, found.moment, found.moment_sd
    white = frame.T @ exact @ frame
    values = np.linalg.eigvalsh(white)
    assert values[-1] / values[0] < 1.6  # near a multiple of I
    assert 0.8 * 4 / 40 < np.trace(white) < 4 / 16 * 1.2  # of I/R², R² from 16 to 10p
    assert moment == pytest.approx(white, abs=0.02)
    assert np.mean(np.linalg.norm(x @ frame, axis=1) > 1) < 0.01  # hardly any record is weighted down
    assert (left > 0).all() if epsilon else not left.any()


def test_the_declared_box_alone_would_not_do():
    data, x = collinear(40_000, 0)
    white = x.T @ x / len(x) / PROBLEM.design.norm_bound**2
    values = np.linalg.eigvalsh(white)
    assert values[-1] / values[0] > 1000
    found = design_frame(asker(data, 1.0, 1), PROBLEM.design)
    moment, left = found.moment, found.moment_sd
    assert values[0] < left.max() < np.linalg.eigvalsh(moment)[0] / 3


def test_no_variance_is_made_up_where_two_covariates_are_almost_one():
    """b is a plus a thousandth: their difference is never seen at this budget, and must not seem to be."""
    rng, n = np.random.default_rng(0), 5000
    data, _ = collinear(n, 0)
    data["b"] = data["a"] + 0.001 * rng.uniform(-1, 1, n)
    for seed in range(12):
        found = design_frame(asker(data, 2.0, seed), PROBLEM.design)
        frame, moment, left = found.matrix, found.moment, found.moment_sd
        x = np.column_stack([np.ones(n), data[["a", "b", "c"]]])
        values, axes = np.linalg.eigh(moment)
        noise = direction_sd(axes, left)
        assert (values < 4 * noise).any()  # so that the difference has the prior, and no curvature
        assert ((values - np.diag(axes.T @ (frame.T @ x.T @ x @ frame / n) @ axes)) < 4 * noise).all()


def test_a_rare_flag_has_an_axis_of_its_own_on_which_its_small_moment_stands():
    schema = Schema(a=Range(-1, 1), rare=Flag(), seldom=Flag(), y=Range(-10, 10))
    design = HuberRegression("y ~ a + rare + seldom").prepare(schema).design
    rng, n = np.random.default_rng(0), 200_000
    rare, seldom = rng.random(n) < 0.004, rng.random(n) < 0.008
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, n), 2.0 * rare - 1, 2.0 * seldom - 1])
    values, axes = np.linalg.eigh(x.T @ x / n)
    white = (axes / np.sqrt(values)) @ axes.T
    frame, reach = _scaled(white, design, 25.0, alone=True, apart=Columns({}, {}, 0.0).apart(design))
    u = x @ frame
    assert u[:, 2] == pytest.approx(rare * 1.0, abs=1e-9) and u[:, 3] == pytest.approx(seldom * 1.0, abs=1e-9)
    moment = u.T @ u / n
    twin = (x @ (white / reach)).T @ (x @ (white / reach)) / n
    assert moment[2, 2] == pytest.approx(rare.mean()) and moment[3, 3] == pytest.approx(seldom.mean())
    assert np.abs(moment / np.sqrt(np.outer(np.diag(moment), np.diag(moment))) - np.eye(4)).max() < 0.15
    assert np.diag(twin).min() > 0.03  # a level of four in a thousand would be taken for as clear as all others
    turn = _turn(np.array([[0.6, 0.8, 0.0], [0.0, 0.1, 1.0]]), [1, 2])
    assert turn @ turn.T == pytest.approx(np.eye(3)) and (np.array([0.6, 0.8, 0.0]) @ turn)[1] > 0.99


def test_of_a_flag_that_most_records_have_the_others_have_the_axis():
    schema = Schema(a=Range(-1, 1), often=Flag(), y=Range(-10, 10))
    design = HuberRegression("y ~ a + often").prepare(schema).design
    rng, n = np.random.default_rng(0), 100_000
    often = rng.random(n) > 0.004
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, n), 2.0 * often - 1])
    values, axes = np.linalg.eigh(x.T @ x / n)
    white = (axes / np.sqrt(values)) @ axes.T
    known, unknown = Columns({}, {2: 0.99}, 0.0).apart(design), Columns({}, {}, 0.0).apart(design)
    for alone in (True, False):
        u = x @ _scaled(white, design, 25.0, alone, known)[0]
        twin = x @ _scaled(white, design, 25.0, alone, unknown)[0]
        assert np.mean(np.linalg.norm(u[often], axis=1) > 1) == 0 and np.linalg.norm(u[~often], axis=1).max() < 1.5
        assert np.linalg.cond(u.T @ u) < 60 < np.linalg.cond(twin.T @ twin)
        if alone:
            assert u[:, 2] == pytest.approx(1.0 - often, abs=1e-9)


def test_a_count_that_few_records_have_moves_them_by_as_much_as_a_rare_flag_would():
    schema = Schema(a=Range(-1, 1), count=Range(0, 10), y=Range(-10, 10))
    design = HuberRegression("y ~ a + count").prepare(schema).design
    rng, n = np.random.default_rng(0), 100_000
    count = np.where(rng.random(n) < 0.004, rng.integers(1, 4, n), 0)
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, n), count / 5 - 1])
    values, axes = np.linalg.eigh(x.T @ x / n)
    white = (axes / np.sqrt(values)) @ axes.T
    apart = Columns({}, {}, 0.0, atoms={"count": Atom(-1.0, 0.6)}).apart(design)
    for alone in (True, False):
        u, twin = (x @ _scaled(white, design, 25.0, alone, given)[0] for given in (apart, {}))
        assert np.mean(np.linalg.norm(u, axis=1) > 1) < 0.004 < np.mean(np.linalg.norm(twin, axis=1) > 1) + 1e-3
        assert np.linalg.norm(u[count > 0], axis=1).max() < 1.5 < np.linalg.norm(twin[count == 3], axis=1).min()
        if alone:
            assert u[:, 2] == pytest.approx(count / 3, abs=1e-9)
    product = HuberRegression("y ~ a + count + a:count").prepare(schema).design
    assert not Columns({}, {}, 0.0, atoms={"count": Atom(-1.0, 0.6)}).apart(product)


def test_residuals_of_a_line_that_is_off_are_straightened():
    rng = np.random.default_rng(5)
    r, off = rng.standard_normal(400_000), 0.8 * rng.standard_normal(400_000)
    edges = np.sinh(np.linspace(-1, 1, 65) * np.arcsinh(12 / 0.03)) * 0.03
    right, wide = (Distribution(edges, np.histogram(v, edges)[0] / len(r), 0.0) for v in (r, r + off))
    true = scale_of(right, 1.345, 0.71)
    assert scale_of(straightened(wide, 0.8, 1.345, 0.71), 1.345, 0.71) == pytest.approx(true, rel=0.1)
    assert scale_of(wide, 1.345, 0.71) > 1.2 * true
    assert scale_of(straightened(right, 0.0, 1.345, 0.71), 1.345, 0.71) == pytest.approx(true, rel=1e-3)


def test_a_line_that_is_off_makes_residuals_look_wider_by_what_the_histogram_says():
    rng = np.random.default_rng(5)
    r, off, most = rng.standard_normal(400_000), 0.3 * rng.standard_normal(400_000), 1.345
    edges = np.sinh(np.linspace(-1, 1, 65) * np.arcsinh(12 / 0.03)) * 0.03
    found = Distribution(edges, np.histogram(np.clip(r, edges[0], edges[-1]), edges)[0] / len(r), 0.0)
    true = np.mean(np.minimum((r + off) ** 2, most**2)) - np.mean(np.minimum(r**2, most**2))
    assert _rise(found, 0.3, most) == pytest.approx(true, rel=0.1)
    assert 2 * true < 0.3**2  # what a square without an end would say
    assert _rise(found, 0.0, most) == 0.0


@pytest.mark.parametrize("epsilon, reach", [(None, 0.02), (1.0, 0.15)])
def test_a_start_is_found_from_one_answer(epsilon, reach):
    data, x = collinear(40_000, 2)
    one = asker(data, epsilon, 3)
    at, near = locate_response(one, PROBLEM, PROBLEM.design), design_frame(one, PROBLEM.design)
    box = box_for(PROBLEM, near, at.size(constant=True), at.start(4, constant=True))
    theta, _, residuals = least_squares(one, near, at, box, constant=True)
    moved = x @ (theta - BETA)
    assert np.sqrt(np.mean(moved**2)) < reach * 0.7  # fitted values, in units of the residuals' spread
    assert residuals.quantile(np.array([0.1, 0.5, 0.9])) == pytest.approx(0.7 * np.array([-1.28, 0, 1.28]), abs=0.12)
    density = residuals.density(np.array([0.5]), np.array([0.25]))[0]
    assert density == pytest.approx(0.5 / (0.7 * 2 * 0.6745), rel=0.15)


def test_quantiles_of_a_histogram_are_those_of_the_numbers_it_holds():
    values = np.random.default_rng(4).standard_t(4, 50_000)
    edges = np.sinh(np.linspace(-1, 1, 65) * np.arcsinh(20 / 0.3)) * 0.3
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    found = Distribution(edges, counts / counts.sum(), 0.0)
    tau = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
    assert found.quantile(tau) == pytest.approx(np.quantile(values, tau), abs=0.06)
    assert (np.diff(found.quantile(np.linspace(0, 1, 500))) >= 0).all()
    assert found.mean(found.middles**2) == pytest.approx(np.mean(values**2), rel=0.1)
    reach = np.array([0.1])
    gap = np.diff(np.quantile(values, [0.4, 0.6]))
    assert found.density(np.array([0.5]), reach) == pytest.approx(0.2 / gap, rel=0.05)


def test_a_histogram_with_empty_bins_has_finite_quantiles_and_densities():
    edges = np.linspace(-1, 1, 5)
    found = Distribution(edges, np.array([0.0, 1.0, 0.0, 0.0]), 0.0)
    tau = np.array([0.0, 0.5, 1.0])
    assert np.isfinite(found.quantile(tau)).all() and found.quantile(np.array([0.5])) == pytest.approx(-0.25, abs=1e-6)
    assert np.isfinite(found.density(np.array([0.5]), np.array([0.25]))).all()


def test_a_step_is_shortened_to_what_it_may_move():
    moment = np.diag([1.0, 4.0])
    steps = np.array([[3.0, 0.0], [0.0, 0.1], [0.0, 5.0]])  # move fitted values by 3, .2 and 10
    assert limited(steps, moment, 1.0) == pytest.approx(np.array([[1.0, 0.0], [0.0, 0.1], [0.0, 0.5]]))
    each = limited(steps, moment, np.array([0.5, 0.1, 20.0]))
    assert each == pytest.approx(np.array([[0.5, 0.0], [0.0, 0.05], [0.0, 5.0]]))
    assert limited(np.zeros((1, 2)), moment, 1.0) == pytest.approx(np.zeros((1, 2)))


@pytest.mark.parametrize("noise, told", [(0.02, True), (0.3, False)])
def test_a_direction_without_second_moment_is_unseen_where_noise_allows_to_say_so(noise, told):
    moment = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    pulled = np.eye(3) + 0.4 * (moment - np.eye(3))  # as a shrunk matrix would have it
    frame, noises = np.diag([2.0, 1.0, 1.0]), np.full(6, noise)
    near = Frame(frame, pulled, noises, Cut(0.0, 0.0), 1.0, np.zeros(3), answers=((frame, moment, noise),))
    _, axes = np.linalg.eigh(pulled)
    assert near.unseen(axes).tolist() == [told, False, False]
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    assert near.turned(turn).unseen(turn.T @ axes).tolist() == [told, False, False]  # whatever the axes of the frame
    scaled = np.zeros((4, 2))
    scaled[:3, 0], scaled[3, 1] = axes[:, 0], 1.0
    assert near.unseen(scaled).tolist() == [told, False]  # a scale is no direction of the design


def test_a_reference_design_is_nowhere_farther_out_than_a_white_one():
    rows = np.random.default_rng(0).normal(size=(4000, 3)) * [0.5, 1.0, 30.0]
    moment = _no_farther(rows, 1.0).T @ _no_farther(rows, 1.0) / len(rows)
    assert np.diag(moment) == pytest.approx([0.25, 1.0, 1.0], rel=0.05)


def made_up(reach, rng):
    """u of a made-up design of a constant, a normal covariate, a skewed one, and a rare flag on its own axis."""
    skewed = np.exp(1.5 * rng.standard_normal(4_000))
    rows = np.column_stack([np.ones(4_000), rng.standard_normal(4_000), (skewed - skewed.mean()) / skewed.std()])
    return np.column_stack([rows / reach, rng.random(4_000) < 0.01])


def test_the_axis_of_a_rare_flag_counts_in_units_of_the_flag():
    rows = made_up(4.0, np.random.default_rng(0))
    near = Frame(np.eye(4), np.eye(4), np.zeros(10), Cut(0.0, 0.1), 4.0, np.zeros((4, 4)), rows)
    assert near.sizes[:2] == pytest.approx([4.0, 4.0], rel=0.02) and near.sizes[3] == pytest.approx(1.25)
    assert (near.sizes >= 1).all() and (near.sizes <= 4).all()


def test_a_skewed_column_moves_the_reach_less_where_all_axes_count_alike():
    far, noise = _Far(None, made_up(4.0, np.random.default_rng(0))[:, :3]), 1e-3
    assert 1.0 < far.balanced(1.0, noise, worst=False) < far.balanced(1.0, noise)
