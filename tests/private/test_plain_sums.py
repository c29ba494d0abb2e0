import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pgbb
from pgbb.methods.calibrated import statistics
from pgbb.methods.calibrated.algebra import prefixes
from pgbb.methods.calibrated.stages import BINS
from pgbb.private import plain_sums, sums

ODD = [0.0, -0.0, 1e-40, 1e-30, -1e30, 3e38, float("inf"), float("-inf"), float("nan")]


def rows_of(y, rng):
    """Packed rows of a mean; some records are not usable."""
    return np.column_stack([np.ones(len(y)), y, rng.random(len(y)) < 0.9]).astype(np.float32)


def both(statistic, rows, given_):
    """The sum by NumPy, and by compiled code."""
    given_ = [np.asarray(g, np.float32) for g in given_]
    assert plain_sums.serves(statistic, given_, 0)
    plain = sums.sum_of(statistic, rows, given_, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "serves", lambda *_: False)
        return plain, sums.sum_of(statistic, rows, given_, 0)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(-4, 4), spread=st.floats(-4, 4))
@example(seed=0, scale=0.0, spread=0.0)
def test_sums_of_a_mean_are_those_of_compiled_code_bit_for_bit(seed, scale, spread):
    rng = np.random.default_rng(seed)
    low, centre, high = np.sort(rng.normal(size=3)).astype(np.float32) * np.float32(10.0**scale)
    y = rng.normal(size=3000) * 10.0**spread
    y[:100], y[100:200], y[200:300], y[300 : 300 + len(ODD)] = low, high, centre, ODD
    y[400:900] = high + (np.arange(500) - 250) * np.spacing(np.float32(high))  # around an end
    rows = rows_of(y, rng)
    edges, (a, _) = np.sort(rng.normal(size=BINS + 1)) * 10.0**scale, prefixes(BINS)
    edges[5] = edges[6]
    asked = {
        statistics.mean_score: (low, high),
        statistics.mean_spread: (low, high, centre),
        statistics.histogram: (np.zeros(1), edges, a),
    }
    for statistic, given_ in asked.items():
        plain, compiled = both(statistic, rows, given_)
        assert np.array_equal(plain, compiled), statistic.__name__
        assert not np.array_equal(both(statistic, rows[1000:], given_)[0], compiled)  # the comparison can fail


def test_a_score_in_double_precision_is_not_what_compiled_code_adds():
    """The twin: rounded later, some records add another number."""
    rng, low, high = np.random.default_rng(0), np.float32(-2.8472412), np.float32(17.620684)
    rows = rows_of(rng.uniform(low, high, 10_000), rng)

    def score(x, y, low, high):
        return statistics.mean_score(x, y, low, high)

    score.plain = lambda y, *ends: score(None, *(np.float64(v) for v in (y, *ends)))
    plain, compiled = both(score, rows, (low, high))
    assert not np.array_equal(plain, compiled)


def test_a_small_mean_compiles_nothing_and_a_larger_one_does(monkeypatch):
    frame, schema = pgbb.example()
    frame = pd.concat([frame] * 14)
    compiled = []
    monkeypatch.setattr(sums, "_compile", lambda question, slabs: compiled.append(question.statistic))
    monkeypatch.setattr(sums, "_over_slabs", lambda statistic, *_: compiled.append(statistic))
    pgbb.fit(pgbb.Mean("logwage"), frame[: 2**16], schema=schema, epsilon=1.0, delta=1e-7)
    assert not compiled
    with pytest.raises(AttributeError):  # no sum comes back from the program that is replaced here
        pgbb.fit(pgbb.Mean("logwage"), frame, schema=schema, epsilon=1.0, delta=1e-7)
    assert compiled


def test_only_a_response_without_a_line_is_looked_up_plainly():
    edges, table = np.zeros(BINS + 1, np.float32), np.zeros((BINS, BINS), np.float32)
    assert plain_sums.serves(statistics.histogram, [np.zeros(1, np.float32), edges, table], 0)
    for theta in (np.ones(1, np.float32), np.zeros(2, np.float32)):
        assert not plain_sums.serves(statistics.histogram, [theta, edges, table], 0)
    assert not plain_sums.serves(statistics.histogram, [np.zeros(1, np.float32), edges, table], 1)
    assert not plain_sums.serves(statistics.moment, [np.zeros((1, 1), np.float32)], 0)
