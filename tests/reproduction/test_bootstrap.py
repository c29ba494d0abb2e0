import numpy as np
import pytest
from scipy.stats import ks_2samp

import pgbb
from pgbb.reference import solve, to_original
from reproduction.references.bootstrap import bayesian_bootstrap, blocked_bootstrap, draw_partition
from tests.reference.data import MODELS, frame, problem_and_records


@pytest.mark.parametrize("name", MODELS)
def test_as_many_blocks_as_records_with_gamma_one_is_the_bayesian_bootstrap(name):
    n = 200
    data = frame(n)
    problem, records = problem_and_records(name, data=data)
    ordinary = bayesian_bootstrap(problem, records, 20, seed=3)
    blocked = blocked_bootstrap(problem, records, n, 1.0, draws=20, seed=3, partition=np.arange(n))
    np.testing.assert_allclose(blocked, ordinary, rtol=1e-6, atol=1e-7)
    # A random partition permutes the records: record i has the weight that Rubin's gives to its block.
    order = np.random.default_rng(4).permutation(n)
    moved = problem_and_records(name, data=data.iloc[order])[1]
    permuted = blocked_bootstrap(problem, moved, n, 1.0, draws=20, seed=3, partition=order)
    np.testing.assert_allclose(permuted, ordinary, rtol=1e-6, atol=1e-7)
    other = blocked_bootstrap(problem, records, n, 1.0, draws=20, seed=3, partition=order)  # twin: no such order
    assert np.abs(other - ordinary).max() > 1e-3


@pytest.mark.parametrize("name", ["gaussian mean", "huber"])
def test_its_draws_have_the_law_of_the_bayesian_bootstrap(name):
    n, draws = 80, 3_000
    problem, records = problem_and_records(name, n=n)
    ordinary = bayesian_bootstrap(problem, records, draws, seed=1)
    blocked = blocked_bootstrap(problem, records, n, 1.0, draws=draws, seed=2)
    coarse = blocked_bootstrap(problem, records, 5, 1.0, draws=draws, seed=2)

    def agree(other):
        return all(ks_2samp(ordinary[:, j], other[:, j]).pvalue > 1e-3 for j in range(problem.dim))

    assert agree(blocked)
    assert not agree(coarse)  # twin: five blocks


def _variance_ratios(blocks, gamma, partitions=200):
    """Blocked over ordinary variance of a linear statistic, one for each partition."""
    problem, records = problem_and_records("gaussian mean", n=97)
    values = records.y.astype(float)
    n = len(values)
    ordinary = values.var() / (n + 1)  # exactly
    draws = [blocked_bootstrap(problem, records, blocks, gamma, draws=400, seed=s)[:, 0] for s in range(partitions)]
    return np.var(draws, axis=1, ddof=1) / ordinary


def _standard_errors_from(ratios, target):
    return abs(ratios.mean() - target) / (ratios.std(ddof=1) / np.sqrt(len(ratios)))


@pytest.mark.parametrize("blocks", [5, 12])
def test_the_variance_ratio_over_partitions_is_that_of_the_paper(blocks):
    n = 97
    plain = _variance_ratios(blocks, 1.0)
    assert _standard_errors_from(plain, (blocks - 1) / (blocks + 1) * (n + 1) / (n - 1)) < 4
    assert _standard_errors_from(_variance_ratios(blocks, None), 1) < 4
    half = _variance_ratios(blocks, 0.5)
    assert _standard_errors_from(half, (blocks - 1) / (blocks / 2 + 1) * (n + 1) / (n - 1)) < 4
    if blocks == 5:
        assert _standard_errors_from(plain, 1) > 6  # twin: with γ = 1 five blocks spread a third less


def test_the_bayesian_bootstrap_has_the_variance_of_rubin():
    problem, records = problem_and_records("gaussian mean", n=97)
    draws = bayesian_bootstrap(problem, records, 8_000, seed=1)[:, 0]
    values = records.y.astype(float)
    variance = values.var() / 98
    assert draws.mean() == pytest.approx(values.mean(), abs=4 * np.sqrt(variance / 8_000))
    error = 4 * np.sqrt(2 / 8_000)
    assert draws.var() / variance == pytest.approx(1, abs=error)
    assert draws.var() / (1.15 * variance) != pytest.approx(1, abs=error)  # twin: a wrong scale


def test_the_same_seed_gives_the_same_draws_in_chunks_of_any_size(monkeypatch):
    problem, records = problem_and_records("logistic")
    first = bayesian_bootstrap(problem, records, 30, seed=5)
    monkeypatch.setattr("pgbb.reference.solvers.CELLS", 7 * records.n)
    np.testing.assert_allclose(bayesian_bootstrap(problem, records, 30, seed=5), first, rtol=1e-7)
    assert np.abs(bayesian_bootstrap(problem, records, 30, seed=6) - first).max() > 1e-3


def test_one_block_means_constant_weights():
    problem, records = problem_and_records("huber")
    full = to_original(problem, solve(problem, records))
    np.testing.assert_allclose(blocked_bootstrap(problem, records, 1, draws=3, seed=1), [full] * 3, rtol=1e-8)
    with pytest.raises(pgbb.InvalidValue, match="blocks = 1"):
        blocked_bootstrap(problem, records, 1, 1.0, draws=3, seed=1)


def test_partitions_are_balanced_and_uniform():
    rng = np.random.default_rng(0)
    labels = np.array([draw_partition(11, 3, rng) for _ in range(3_000)])
    assert {tuple(sorted(np.bincount(row))) for row in labels} == {(3, 4, 4)}
    together = (labels[:, 0] == labels[:, 1]).mean()
    expected = (3 * 2 + 4 * 3 + 4 * 3) / (11 * 10)
    error = 4 * np.sqrt(expected * (1 - expected) / 3_000)
    assert together == pytest.approx(expected, abs=error)
    assert together != pytest.approx(1 / 3, abs=error)  # twin: labels drawn independently


def test_bad_arguments_say_what_is_allowed():
    problem, records = problem_and_records("gaussian mean")
    with pytest.raises(pgbb.InvalidValue, match="every block"):
        blocked_bootstrap(problem, records, 5, draws=2, seed=1, partition=np.zeros(300, int))
    with pytest.raises(pgbb.InvalidValue, match="γ\\* needs S ≥ 3"):
        blocked_bootstrap(problem, records, 2, draws=2, seed=1)
    with pytest.raises(pgbb.InvalidValue, match="draws = 0"):
        bayesian_bootstrap(problem, records, 0, 1)
