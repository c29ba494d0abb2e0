"""Records far from all others: a mean with a long tail, and a wrong line in a skewed covariate."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pgbb
from pgbb.methods.calibrated import frame, mean, pareto, quantile
from pgbb.methods.calibrated.pareto import Lengths, Tail, Tails, tails_of
from pgbb.methods.calibrated.response import Distribution


def spending(n, seed):
    """Nothing for 70 in 100, a lognormal amount for the others; its mean."""
    rng = np.random.default_rng(seed)
    amounts = np.minimum(np.exp(6 + 1.2 * rng.standard_normal(n)), 1e5)
    return pd.DataFrame({"y": np.where(rng.random(n) < 0.7, 0.0, amounts)}), 0.3 * np.exp(6 + 0.72)


def summary(release, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pgbb.PgbbWarning)
        return release.summary(seed=0, **given)


def test_a_mean_with_many_zeros_and_a_long_tail_is_found(monkeypatch):
    def z(seed):
        data, truth = spending(10_000, seed)
        model, schema = pgbb.Mean("y"), pgbb.Schema(y=pgbb.Range(0, 1e5))
        row = summary(pgbb.fit(model, data, schema=schema, epsilon=1.0, delta=1e-6, insecure_seed=seed)).iloc[0]
        return (row["mean"] - truth) / row["sd"], row["sd"] / (data["y"].std() / 100)

    found = np.array([z(seed) for seed in range(12)])
    assert np.abs(found[:, 0]).max() < 3.5
    assert np.median(found[:, 1]) < 2.5  # of the standard error without privacy
    monkeypatch.setattr(mean, "half_window", lambda spread, *_: 3 * spread)
    monkeypatch.setattr(mean, "CUT", 1.0)
    monkeypatch.setattr(mean, "_cut", lambda tails, _: (np.full(len(tails.each), 1e-3), np.zeros(len(tails.each))))
    assert np.median([z(seed)[0] for seed in range(4)]) < -3.5  # a window that knows no tail


def test_a_mean_with_a_tail_longer_than_usual_is_covered_and_by_usual_shapes_alone_it_is_not(monkeypatch):
    rng, schema = np.random.default_rng(0), pgbb.Schema(y=pgbb.Range(0, 2000))
    everyone = np.minimum(rng.pareto(1.3, 100_000), 2000)  # shape .77
    truth = everyone.mean()

    def covered():
        times = 0
        for seed in range(24):
            rows = np.random.default_rng(seed).integers(len(everyone), size=3000)
            data = pd.DataFrame({"y": everyone[rows]})
            release = pgbb.fit(pgbb.Mean("y"), data, schema=schema, epsilon=1.0, delta=1e-6, insecure_seed=seed)
            row = summary(release).iloc[0]
            times += row["lower"] <= truth <= row["upper"]
        return times / 24, mean.LAZY in release.certificate.notes

    share, noted = covered()
    assert share > 0.75 and noted
    monkeypatch.setattr(pareto, "OFTEN", 0.0)
    monkeypatch.setattr(pareto, "LONGEST", pareto.HEAVY)
    assert covered()[0] < 0.5


def test_a_thousand_records_whose_tail_noise_hides_are_covered_and_narrower_intervals_do_not():
    away = []
    for seed in range(20):
        data, truth = spending(1000, seed)
        model, schema = pgbb.Mean("y"), pgbb.Schema(y=pgbb.Range(0, 1e5))
        row = summary(pgbb.fit(model, data, schema=schema, epsilon=1.0, delta=1e-6, insecure_seed=seed)).iloc[0]
        away.append(abs(row["mean"] - truth) / row["sd"])
    assert np.mean(np.array(away) < 1.96) > 0.84 and np.mean(np.array(away) < 0.5) < 0.75


def test_what_tails_leave_beyond_a_window_ends_where_the_range_ends():
    tails = Tails((Tail(2.0, 0.05, 0.5), Tail(2.0, 0.05, 0.5, 0.5)), np.full(2, 0.5), 10.0)
    shares, cut = mean._cut(tails, 4.0)
    whole = np.array([tail.excess(tail.beyond(np.array(4.0))) for tail in tails.each])
    left = np.array([tail.excess(tail.beyond(np.array(10.0))) for tail in tails.each])
    assert cut == pytest.approx(whole - left, rel=0.02)
    assert cut[1] != pytest.approx(whole[1], rel=0.02) and shares[1] > shares[0]


def test_a_tail_has_the_lengths_and_the_excess_of_its_distribution():
    lengths = np.random.default_rng(0).pareto(4.0, 10**6) + 1  # shape 1/4
    start = float(np.quantile(lengths, 0.95))
    heavy = Tail(start, 0.05, start / 4, 0.25)
    assert heavy.lengths(np.array([0.001]))[0] == pytest.approx(np.quantile(lengths, 0.999), rel=0.03)
    beyond = np.maximum(lengths - np.quantile(lengths, 0.999), 0).mean()
    assert heavy.excess(np.array([0.001]))[0] == pytest.approx(beyond, rel=0.1)
    assert Tail(start, 0.05, start / 4).excess(np.array([0.001]))[0] != pytest.approx(beyond, rel=0.1)


def test_noise_makes_a_longer_tail_possible():
    lengths = np.random.default_rng(0).exponential(1, 10**6)
    edges = np.linspace(0, 40, 401)
    share = np.histogram(lengths, edges)[0] / 10**6
    sure, unsure = (tails_of(Distribution(edges, share, sd)) for sd in (1e-5, 0.02))
    for tails in (sure, unsure):
        assert tails.chance.sum() == pytest.approx(1)
    (mean, root), (other, wide) = (t.excess(np.array([6.0])) for t in (sure, unsure))
    assert 0.5 < mean[0] / np.maximum(lengths - 6, 0).mean() < 4 and root[0] < 2 * mean[0]
    assert wide[0] > 3 * root[0] and other[0] > mean[0]


def skewed(n, seed):
    """A line of y in x, whose law is lognormal, while y is a line in log x; and the coefficients of the median."""
    rng = np.random.default_rng(seed)
    x = np.minimum(np.exp(0.8 * rng.standard_normal(n)), 30)
    return pd.DataFrame({"x": x, "y": np.log(x) + 0.5 * rng.standard_normal(n)})


def test_a_wrong_line_in_a_skewed_covariate_is_the_line_of_all_records(monkeypatch):
    schema = pgbb.Schema(x=pgbb.Range(0, 30), y=pgbb.Range(-10, 10))
    model = pgbb.HuberRegression("y ~ x")
    truth = 0.5965  # of 1,000,000 records

    def z(seed):
        release = pgbb.fit(model, skewed(20_000, seed), schema=schema, epsilon=2.0, delta=1e-6, insecure_seed=seed)
        row = summary(release).loc["x"]
        return (row["mean"] - truth) / row["sd"]

    assert np.abs(np.mean([z(seed) for seed in range(8)])) < 1.3
    monkeypatch.setattr(frame, "WRONG", 0.0)
    assert np.mean([z(seed) for seed in range(8)]) > 2


def test_what_a_reach_leaves_out_is_the_mean_of_what_lies_beyond():
    rng = np.random.default_rng(0)
    u = rng.exponential(0.5, (4_000, 2))
    size = np.linalg.norm(u, axis=1)
    lost = np.maximum(1 - 1.5 / size, 0)
    total = np.mean(lost * size) / 1.5
    found = frame._Far(None, u).left_out(1.5, 2)
    assert np.trace(found) == pytest.approx(total**2)
    toward = np.mean(lost[:, None] * u, axis=0) / 1.5  # what scores of one sign would move a gradient by
    moved = float(toward @ toward) ** 2
    assert 0.9 < toward @ found @ toward / moved < 1.1
    assert toward @ np.diag(np.diag(found)) @ toward < 0.8 * moved  # axes on their own overlook that they go together
    share = np.histogram(size, np.linspace(0, 8, 65))[0] / len(size)
    lengths = Lengths(Distribution(np.linspace(0, 8, 65), share, 1e-4), 8.0)
    assert lengths.excess(1.5)[0] == pytest.approx(np.mean(np.maximum(size - 1.5, 0)), rel=0.05)
    light = 0.2 * u  # a made-up design that reaches less far than the records that were counted
    clear, hidden = (frame._Far(Lengths(replace(lengths.law, sd=sd), 8.0), light) for sd in (1e-4, 0.2))
    seen, none = (np.trace(far.left_out(0.6, 2)) for far in (clear, frame._Far(None, light)))
    assert none < 0.5 * seen
    assert none < np.trace(hidden.left_out(0.6, 2)) < seen
    padded = frame._Far(None, np.vstack([u, np.zeros_like(u)])).left_out(1.5, 2)  # as without an intercept
    assert padded == pytest.approx(found / 4)
    assert lengths.beyond(np.array([1.0, 9.0])) == pytest.approx([np.mean(size > 1), 0], rel=0.02)
    assert frame._Far(lengths, u).balanced(1.0, 1e-3) > frame._Far(lengths, u).balanced(1.0, 1e-1) >= 1


def incomes(n=20_000, seed=0, reach=4.0):
    """Rows of a constant, two usual covariates and a lognormal one, white in moments with weights, over the reach."""
    rng = np.random.default_rng(seed)
    u = np.column_stack([np.ones(n), rng.standard_normal((n, 2)), np.exp(0.8 * rng.standard_normal(n)) - 1.4]) / reach
    for _ in range(6):
        root = np.maximum(np.linalg.norm(u, axis=1), 1.0)
        bounded = u / root[:, None]
        values, axes = np.linalg.eigh(bounded.T @ bounded / n)
        u = u @ (axes / np.sqrt(values) / reach) @ axes.T
    return u


def test_a_skewed_column_stays_as_far_out_as_it_is_and_columns_alike_do_not_look_far_out():
    u = incomes()

    def lost(rows):
        return np.mean(np.maximum(np.linalg.norm(rows, axis=1) - 1, 0))

    assert np.linalg.eigvalsh(u.T @ u / len(u))[-1] * 16 > 1.2  # wider: far-out records count less in a frame
    assert lost(frame._no_farther(u, 4.0, frame.WIDER)) == pytest.approx(lost(u))
    alike = u.copy()
    alike[:, 1] *= 5  # a direction that true columns hardly have, magnified
    assert lost(alike) > 4 * lost(u)
    assert lost(frame._no_farther(alike, 4.0, frame.WIDER)) < 2 * lost(u)
    assert lost(frame._no_farther(u, 4.0)) < 0.8 * lost(u)


def test_what_a_histogram_shows_is_left_out_where_a_made_up_design_reaches_less_far():
    u = incomes()
    u = u[np.linalg.norm(u, axis=1) < 1.9]
    share = np.histogram(np.linalg.norm(incomes(), axis=1), np.linspace(0, 8, 65))[0] / 20_000
    lengths = Lengths(Distribution(np.linspace(0, 8, 65), share, 0.01), 8.0)
    found = frame._Far(lengths, u).left_out(2.0, 4)
    assert np.trace(found) == pytest.approx((lengths.excess(2.0)[0] / 2.0) ** 2 / 2)
    axis = np.linalg.eigh(found)[1][:, -1]
    far = incomes()[np.linalg.norm(incomes(), axis=1) > 2.0]
    assert abs(axis @ far.mean(axis=0)) > 0.9 * np.linalg.norm(far.mean(axis=0))
    assert not np.any(frame._Far(None, u).left_out(2.0, 4))


def test_outer_levels_may_be_more_wrong_far_out():
    wrong = frame.wrong_of(np.array([0.1, 0.5, 0.9]))
    assert wrong[1] == 1.0
    assert wrong[0] == pytest.approx(wrong[2])
    assert wrong[2] * frame.WRONG * 0.3 > 0.5  # of at most .9, where all records far out are above the line
    assert frame.WRONG * 0.3 < 0.4  # as many standard deviations as at the median would be


def test_an_outer_quantile_of_a_bent_mean_is_that_of_all_records(monkeypatch):
    schema = pgbb.Schema(x=pgbb.Range(0, 30), y=pgbb.Range(-10, 10))
    model = pgbb.QuantileRegression("y ~ x", taus=[0.1])
    truth = 0.519  # of 1,000,000 records

    def z(seed):
        release = pgbb.fit(model, skewed(20_000, seed), schema=schema, epsilon=2.0, delta=1e-6, insecure_seed=seed)
        row = summary(release, tau=0.1).loc["x"]
        return (row["mean"] - truth) / row["sd"]

    assert np.abs(np.mean([z(seed) for seed in range(8)])) < 1.3
    monkeypatch.setattr(frame, "WRONG", 0.0)
    monkeypatch.setattr(quantile, "wrong_of", lambda levels: np.ones(len(levels)))
    assert np.abs(np.mean([z(seed) for seed in range(8)])) > 2


def overlooked(share, sd):
    """E(share²) given an answer on it: a mixture of none and an exponential share, on a grid."""
    grid = np.linspace(0, 1, 200_001)
    law = frame.SOME / frame.UNTOLD * np.exp(-grid / frame.UNTOLD)
    seen = law * np.exp(-0.5 * ((share - grid) / sd) ** 2)
    some, none = np.trapezoid(seen, grid), (1 - frame.SOME) * np.exp(-0.5 * (share / sd) ** 2)
    return np.trapezoid(seen * grid**2, grid) / (some + none)


def test_records_that_columns_do_not_tell_of_are_seen_as_far_as_their_share_stands_out_of_noise():
    inside, sd = np.full((4, 2), 0.5), 0.005
    for share in (-0.01, 0.0, 0.01, 0.03):
        found = frame._untold(frame.Cut(share, sd), inside)
        assert found == pytest.approx(overlooked(share, sd), rel=1e-3)
    assert frame._untold(frame.Cut(0.0, sd), inside) < (0.1 * 0.03) ** 2  # noise alone makes little of it
    assert frame._untold(frame.Cut(0.03, 0.0), inside) == pytest.approx(0.03**2)
    outside = np.array([[2.0, 0.0], *[[0.5, 0.0]] * 32])  # one row of 33 lies beyond the reach
    assert frame._untold(frame.Cut(0.03, sd), outside) < 0.1 * frame._untold(frame.Cut(0.03, sd), inside)


def test_a_skewed_covariate_that_noise_hides_is_in_the_interval_of_a_quantile(monkeypatch):
    rng, n = np.random.default_rng(0), 10_000
    x = np.where(rng.random(n) < 0.04, 8 + 8 * rng.random(n), rng.standard_normal(n))
    data = pd.DataFrame({"x": x, "y": np.minimum(x, 2.0) + rng.standard_normal(n)})  # the line is wrong far out
    model = pgbb.QuantileRegression("y ~ x", taus=[0.5])
    schema = pgbb.Schema(x=pgbb.Range(-20, 20), y=pgbb.Range(-30, 30))

    def width():
        release = pgbb.fit(model, data, schema=schema, epsilon=1.0, delta=1e-6, insecure_seed=1)
        return summary(release, tau=0.5).loc["x", "sd"]

    wide = width()
    monkeypatch.setattr(frame, "ONE_SIDED", 0.0)
    assert wide > 1.2 * width()


def test_the_ellipsoid_of_gradients_leaves_out_no_more_than_the_reach_and_has_less_noise_where_columns_are_short():
    rng = np.random.default_rng(4)
    flag = np.where(rng.random(8_000) < 0.5, -1.0, 1.0)
    rows = np.column_stack([np.ones(8_000), flag, rng.standard_exponential(8_000) - 1]) / 3.0
    near = frame.Frame(np.eye(3), np.eye(3) / 9, np.full(6, 1e-6), frame.Cut(0.0, 0.01), 3.0, np.zeros((3, 3)), rows)
    ball, size = near.ball, np.linalg.norm(rows, axis=1)
    far = np.sqrt(np.sum(np.linalg.solve(ball, rows.T).T * rows, axis=1))
    lost = np.maximum(1 - 1 / far, 0.0) * size
    assert lost.mean() <= 1.05 * np.maximum(size - 1, 0.0).mean()
    assert np.diag(ball)[0] < 0.7 > np.diag(ball)[1]
    assert np.diag(ball)[2] > 1
    np.testing.assert_array_equal(replace(near, reference=None).ball, np.eye(3))
