from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgbb._numerics.symmetric import pack, unpack
from pgbb.methods.calibrated.algebra import (
    as_answered,
    clear_of,
    floored,
    monotone,
    prefixes,
    shrink,
    strategy,
)
from pgbb.methods.calibrated.curvature import Curvature, curvature_of, filtered, raised
from pgbb.methods.calibrated.frame import Cut, Frame
from pgbb.methods.calibrated.refine import combined, felt, widening_for_contradiction, widening_for_last_step

pytestmark = pytest.mark.quick

FIVE = (0.1, 0.3, 0.5, 0.7, 0.9)


def positive(rng, d, low=0.2):
    """A random symmetric matrix with eigenvalues of at least `low`."""
    root = rng.normal(size=(d, d))
    return root @ root.T / d + low * np.eye(d)


def noise(rng, d, sd):
    return unpack(sd * rng.standard_normal(d * (d + 1) // 2), d)


# Shrinkage -----------------------------------------------------------------------------------------------------------


def test_without_noise_shrinkage_changes_nothing():
    rng = np.random.default_rng(0)
    raw, target = positive(rng, 4), np.eye(4)
    value, left = shrink(raw, target, 0.0)
    assert np.array_equal(value, raw) and not left.any()
    value, left = shrink(raw, target, 1e-9)
    assert value == pytest.approx(raw, abs=1e-7) and left.max() <= 2e-9


def test_pure_noise_is_replaced_by_the_target():
    rng = np.random.default_rng(1)
    target = np.diag(np.linspace(1, 2, 6))
    kept = []
    for _ in range(200):
        away = noise(rng, 6, 0.5)
        value, _ = shrink(target + away, target, 0.5)
        kept.append(np.linalg.norm(value - target) / np.linalg.norm(away))
    assert np.mean(kept) < 0.2
    far = positive(rng, 6) + 5 * np.ones((6, 6))  # where the deviation is real it stays
    value, _ = shrink(far + noise(rng, 6, 0.05), target, 0.05)
    assert np.linalg.norm(value - far) < 0.1 * np.linalg.norm(far - target)


@pytest.mark.parametrize("deviation", [0.0, 0.1, 0.3])
def test_a_known_mixture_is_estimated_better_than_by_the_raw_matrix_and_its_error_is_known(deviation):
    rng = np.random.default_rng(2)
    d, sd, target = 5, 0.3, np.diag([0.5, 0.8, 1.0, 1.5, 2.0])
    root = np.sqrt(np.outer(np.diag(target), np.diag(target)))
    raw_error, error, claimed = [], [], []
    for _ in range(300):
        truth = target + root * noise(rng, d, deviation)
        raw = truth + noise(rng, d, sd)
        value, left = shrink(raw, target, sd)
        raw_error.append(np.sum((raw - truth) ** 2))
        error.append(np.sum((value - truth) ** 2))
        claimed.append(np.sum(left**2))
    assert np.mean(error) < 0.9 * np.mean(raw_error)
    assert np.mean(error) < 0.5 * np.mean(raw_error) or deviation == 0.3
    least = 0.8 if deviation < 0.3 else 0.65  # three times the deviation that is expected
    assert np.mean(claimed) / np.mean(error) > least  # the noise said to remain is the error made, or more
    assert np.mean(claimed) < 1.1 * np.mean(raw_error)


def test_without_shrinkage_a_matrix_stays_as_answered_with_all_of_its_noise():
    raw, target = np.array([[2.0, 1.0], [1.0, 2.0]]), np.eye(2)
    assert not np.array_equal(shrink(raw, target, 2.0)[0], raw)
    value, left = as_answered(raw, target, 2.0)
    assert np.array_equal(value, raw) and (left == 2.0).all()


def test_uncertainty_of_the_target_is_passed_on():
    rng = np.random.default_rng(3)
    target = np.eye(4)
    raw = target + noise(rng, 4, 0.5)
    _, certain = shrink(raw, target, 0.5)
    _, vague = shrink(raw, target, 0.5, 0.2)
    assert (vague > certain).all() and (vague < certain + 0.2).all()


# Matrices ------------------------------------------------------------------------------------------------------------


def test_what_is_not_pulled_stays_as_answered_and_keeps_its_noise():
    raw = positive(np.random.default_rng(2), 3)
    pulled = np.array([False, False, False, False, True, False])  # only the entry beside the diagonal of 2 and 3
    value, left = shrink(raw, np.diag(np.diag(raw)), 0.5, pulled=pulled)
    assert np.array_equal(pack(value)[~pulled], pack(raw)[~pulled]) and (left[~pulled] == 0.5).all()
    assert abs(value[1, 2]) < abs(raw[1, 2]) and left[4] != 0.5


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 8))
def test_packing_is_an_isometry(seed, d):
    rng = np.random.default_rng(seed)
    a = positive(rng, d)
    assert unpack(pack(a), d) == pytest.approx(a)
    assert np.linalg.norm(pack(a)) == pytest.approx(np.linalg.norm(a))


def test_floors_raise_small_eigenvalues_and_leave_the_others():
    rng = np.random.default_rng(4)
    a = positive(rng, 5) - 0.8 * np.eye(5)
    before = np.linalg.eigvalsh(a)
    assert before[0] < 0.1 < before[-1]
    assert np.linalg.eigvalsh(floored(a, 0.1)) == pytest.approx(np.maximum(before, 0.1))
    assert floored(a, before[0] - 1) == pytest.approx(a)
    sd = np.full(15, 0.05)
    assert np.linalg.eigvalsh(raised(a, sd)) == pytest.approx(np.maximum(before, clear_of(np.eye(5), sd)[0]))
    assert np.linalg.eigvalsh(raised(a, sd, 0.3)) == pytest.approx(np.maximum(before, 0.3 * clear_of(np.eye(5), sd)[0]))
    assert np.linalg.eigvalsh(raised(-np.eye(3), np.zeros(6))).min() > 0


def test_what_counts_as_clear_of_noise_holds_pure_noise_back():
    rng = np.random.default_rng(5)
    for d in (2, 10, 30):
        largest = [np.linalg.eigvalsh(noise(rng, d, 1.0))[-1] for _ in range(200)]
        edge = clear_of(np.eye(d), np.ones(d * (d + 1) // 2))[0]
        assert np.mean(np.array(largest) > edge) < 0.25  # of the spectrum, give or take
        assert edge < 2 * np.mean(largest) or d == 2


def test_noise_on_the_diagonal_alone_need_not_be_cleared_as_far():
    sd = pack(np.eye(20))
    assert clear_of(np.eye(20), sd) == pytest.approx(np.full(20, 3.0))


def test_a_step_along_a_direction_below_its_noise_is_as_long_as_noise_allows():
    value = np.diag([2.0, 1.0, 0.1])
    step = Curvature(value, np.full(6, 0.2)).step(np.array([2.0, 3.0, 5.0]))
    assert step == pytest.approx([1.0, 3.0, 5.0 / 0.3])
    assert Curvature(value, np.full(6, 0.01)).step(np.array([2.0, 3.0, 5.0])) == pytest.approx([1.0, 3.0, 50.0])
    found = curvature_of(np.diag([2.0, 1.0, -0.5]), np.eye(3), 0.01, shrink=shrink)
    assert np.linalg.eigvalsh(found.value)[0] >= 0.25 - 1e-12


def test_an_entry_that_clearly_differs_from_its_target_is_left_as_it_is():
    target = np.eye(6)
    raw = target.copy()
    raw[0, 0] = 0.0  # as where all records of a category are out of reach
    value, _ = shrink(raw, target, 0.2)
    assert value[0, 0] < 0.2 and np.diag(value)[1:] == pytest.approx(np.ones(5), abs=0.05)
    noisy, _ = shrink(raw, target, 0.6)
    assert noisy[0, 0] > 0.5  # where noise explains it, it is pulled


def test_a_filtered_step_is_the_expected_one_and_knows_what_it_leaves():
    rng = np.random.default_rng(11)
    metric, prior, sd = positive(rng, 3), np.diag([1.0, 0.3, 2.0]), 0.4
    steps = rng.standard_normal((20_000, 3)) @ np.sqrt(prior)
    gradients = steps @ metric + sd * rng.standard_normal(steps.shape)
    gain = np.stack([filtered(metric, e, sd, prior)[0] for e in np.eye(3)])
    left = filtered(metric, np.zeros(3), sd, prior)[1]
    error = steps - gradients @ gain
    assert error.T @ error / len(error) == pytest.approx(left, abs=0.03)
    plain = steps - gradients @ np.linalg.inv(metric)
    assert np.mean(error**2) < 0.8 * np.mean(plain**2)


def test_noise_in_a_curvature_blurs_a_gradient_by_what_is_stated():
    rng, d = np.random.default_rng(12), 4
    bend = Curvature(positive(rng, d), rng.uniform(0.1, 0.3, d * (d + 1) // 2), 0.2)
    error, mean = np.diag([0.5, 1.0, 0.2, 0.1]), np.array([0.3, -0.2, 0.5, 0.0])
    squares = []
    for _ in range(4000):
        change = unpack(bend.sd * rng.standard_normal(len(bend.sd)), d) + 0.2 * rng.standard_normal() * bend.value
        squares.append(change @ (mean + np.sqrt(np.diag(error)) * rng.standard_normal(d)))
    found, stated = np.cov(np.stack(squares).T), bend.blur(error, mean)
    assert found == pytest.approx(stated, abs=0.06 * np.max(stated))
    assert found != pytest.approx(Curvature(bend.value, 0 * bend.sd, 0.2).blur(error, mean), abs=0.06 * np.max(stated))


def test_a_curvature_of_few_records_has_their_sampling_error():
    rng, n, share = np.random.default_rng(13), 2_000, 0.02
    u = np.column_stack([np.where(np.arange(n) % 2, 0.3, -0.3), np.where(np.arange(n) < share * n, 0.9, 0.0)])
    near = Frame(np.eye(2), u.T @ u / n, np.zeros(3), Cut(0.0, 0.0), 1.0, np.zeros((2, 2)), reference=u)
    means = [pack((u.T * (2.0 * (rng.random(n) < 0.3))) @ u / n) for _ in range(3000)]
    found, expected = np.var(means, axis=0), 2.0**2 * 0.3 * near.squares / n
    assert found == pytest.approx(0.7 * expected, rel=0.1)  # a mean of 2·Bernoulli(.3) has .7 of its square as variance
    assert (replace(near, reference=None).squares > 1.05 * near.squares).all()  # without a design, a bound


def test_two_estimates_combine_by_precision_and_their_noise_is_known():
    rng = np.random.default_rng(6)
    first, second = 1 + 0.3 * rng.standard_normal(20_000), 1 + 0.1 * rng.standard_normal(20_000)
    weight, sd = combined(0.3, 0.1, 0.0)
    both = weight * second + (1 - weight) * first
    assert sd == pytest.approx((0.3**-2 + 0.1**-2) ** -0.5)
    assert both.std() == pytest.approx(sd, rel=0.03) and both.mean() == pytest.approx(1, abs=0.01)
    assert ((first + second) / 2).std() > 1.5 * sd  # equal weights would lose
    for sds in ((0.0, 0.1), (0.1, 0.0), (0.0, 0.0)):  # without noise the second stands, being nearer
        assert combined(*sds, 0.0) == (1.0, sds[1])
    assert combined(0.3, 0.1, 1.0) == (1.0, 0.1)  # noise is small beside the sampling error


def gradients(rng, true, bend, far, sd):
    """Two gradients of a quadratic loss with curvature `true`, `far` from its root, and the step between them."""
    at = far * rng.standard_normal(len(true)) * np.eye(len(true))[0]
    before = true @ at + sd * rng.standard_normal(len(true))
    step = -bend.step(before)
    g = true @ (at + step) + sd * rng.standard_normal(len(true))
    return g - before, step, -bend.step(g)


def test_a_local_model_that_holds_is_widened_seldom_and_not_given_up():
    rng, d, sd = np.random.default_rng(5), 5, 0.1
    doubts, steps = [], []
    for _ in range(4000):
        true = positive(rng, d, 1.0)
        left = np.full(d * (d + 1) // 2, 0.05)
        bend = Curvature(true + noise(rng, d, 0.05), left)
        doubts.append(widening_for_contradiction(*gradients(rng, true, bend, 1.0, sd), bend, 1e-4 * np.eye(d), sd, sd))
        late, first = (np.linalg.solve(true, s * rng.standard_normal(d)) for s in (np.sqrt(2) * sd, 1.0))
        steps.append(widening_for_last_step(first, late, true, 1e-4 * np.eye(d), sd, sd))
    for found in (doubts, steps):
        assert np.isfinite(found).all() and min(found) == 1.0
    assert np.mean(np.array(doubts) > 1) <= 0.002 and np.mean(np.array(steps) > 1) <= 0.02
    assert max(doubts) < 10 and max(steps) < 3


def test_gradients_contradict_a_curvature_that_is_not_there_unless_the_sample_would_not_tell():
    rng, d, sd = np.random.default_rng(6), 5, 0.1
    weak = np.diag([0.1, 1.0, 1.0, 1.0, 1.0])
    bend = Curvature(np.eye(d), np.full(d * (d + 1) // 2, 0.02))
    moves = [gradients(rng, weak, bend, 30.0, sd) for _ in range(200)]
    assert (
        np.mean(np.isinf([widening_for_contradiction(*move, bend, 1e-4 * np.eye(d), sd, sd) for move in moves])) > 0.5
    )
    assert all(widening_for_contradiction(*move, bend, 1e4 * np.eye(d), sd, sd) == 1 for move in moves)
    vague = Curvature(np.eye(d), bend.sd + 5.0)
    assert all(widening_for_contradiction(*move, vague, 1e-4 * np.eye(d), sd, sd) == 1 for move in moves)


def test_a_step_that_noise_does_not_explain_is_given_up_and_one_that_it_may_is_made_wider():
    metric, sd, sampling = np.diag([1.0, 2.0]), 0.1, 1e-4 * np.eye(2)
    first = np.array([1.0, 0.0])
    assert widening_for_last_step(first, np.array([0.9, 0.0]), metric, sampling, sd, sd) == np.inf
    assert 1 < widening_for_last_step(0.1 * first, np.array([0.4, 0.0]), metric, sampling, sd, sd) < 10
    assert widening_for_last_step(first, np.array([0.1, 0.0]), metric, sampling, sd, sd) == 1
    assert widening_for_last_step(first, np.array([0.9, 0.0]), metric, 1e4 * np.eye(2), sd, sd) == 1


def test_doubt_widens_the_whole_posterior_by_its_factor():
    sampling, blur = np.diag([1.0, 3.0]), np.array([[0.2, 0.1], [0.1, 0.4]])
    total = sampling + 0.25 * np.eye(2) + blur
    for factor, wide in ((1.0, 1.0), (np.inf, 1.0), (3.0, 9.0)):
        privacy, noise = felt(0.5, blur, sampling, factor)
        assert noise == pytest.approx(wide * total)
        assert privacy**2 + 2.0 == pytest.approx(np.trace(noise) / 2)  # 2 is the mean sampling variance


# All levels at once --------------------------------------------------------------------------------------------------


def scores(levels):
    m = len(levels)
    return np.array([[(1 - t) - (cell > j) for cell in range(m + 1)] for j, t in enumerate(levels)])


@pytest.mark.parametrize("levels", [(0.5,), (0.1, 0.9), FIVE, tuple(np.linspace(0.05, 0.95, 17)), (0.01, 0.02, 0.99)])
def test_the_strategy_answers_every_level_with_columns_of_norm_one(levels):
    a, b = strategy(levels)
    assert b @ a == pytest.approx(scores(levels), abs=1e-6)
    size = np.sqrt((a**2).sum(axis=0))
    assert size.max() <= 1 + 1e-12
    assert np.sum(size > 0.99) >= 2  # and the outer cells use what they are allowed


def test_five_levels_cost_less_than_one_of_them_alone_where_splitting_the_budget_costs_more():
    _, b = strategy(FIVE)
    together = (b**2).sum(axis=1)
    assert together.max() <= 1.0
    alone = np.array([max(t, 1 - t) ** 2 for t in FIVE])  # one level: sensitivity max(τ, 1 − τ)
    split = alone.sum()  # five levels, each with the share of the budget that serves it
    assert split == pytest.approx(2.85)
    assert together.mean() < split / 3
    assert (strategy((0.5,))[1] ** 2).sum() == pytest.approx(0.25, rel=1e-3)


def test_between_any_two_answers_of_the_strategy_neighbours_differ_by_at_most_two():
    """What the accountant assumes of a mean with columns of norm ≤ 1."""
    a, _ = strategy(FIVE)
    gaps = [np.linalg.norm(a[:, i] - a[:, j]) for i in range(6) for j in range(6)]
    assert 1.0 < max(gaps) <= 2.0


def test_prefix_sums_are_asked_for_at_the_noise_of_a_few_bins():
    a, b = prefixes(64)
    assert b @ a == pytest.approx(np.tril(np.ones((64, 64))), abs=1e-6)
    assert np.sqrt((a**2).sum(axis=0)).max() <= 1 + 1e-12
    assert (b**2).sum(axis=1).max() < 6 < 64  # asking for bins and adding up would give 64


@settings(max_examples=50)
@given(values=st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_the_nearest_increasing_sequence_is_increasing_and_nearer_than_others(values):
    given_ = np.array(values)
    found = monotone(given_)
    assert (np.diff(found) >= -1e-12).all() and found.sum() == pytest.approx(given_.sum(), abs=1e-9)
    for other in (np.maximum.accumulate(given_), np.sort(given_), np.full(len(given_), given_.mean())):
        assert np.sum((found - given_) ** 2) <= np.sum((other - given_) ** 2) + 1e-9
