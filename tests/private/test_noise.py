import math
import time
from contextlib import contextmanager, nullcontext

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from pgbb import PgbbError
from pgbb._numerics.threads import mapped
from pgbb.accountant import Mechanism, compose
from pgbb.private import noise
from pgbb.private.noise import Stream, gaps, idealisation, rounded_normals, uniform_integers
from pgbb.private.randomness import Randomness

pytestmark = pytest.mark.quick

COUNT = 400_000


class Script:
    """A stream that gives chosen words."""

    def __init__(self, *words):
        self.left = list(words)

    def words(self, count):
        given, self.left = self.left[:count], self.left[count:]
        return np.array(given, dtype=np.uint64)


def stream(seed):
    return Stream.create("noise", seed)


def p_value(draws, sigma):
    return stats.kstest(draws, stats.norm(0, sigma).cdf).pvalue


def test_noise_is_normal_at_its_scale_and_a_scale_two_percent_off_is_noticed():
    draws = rounded_normals(stream(1), 3.0, 1e-6, (COUNT,)) * 1e-6
    assert p_value(draws, 3.0) > 1e-3
    assert p_value(draws, 3.0 * 1.02) < 1e-6 and p_value(draws, 3.0 / 1.02) < 1e-6


def test_small_noise_has_the_law_of_a_rounded_normal():
    draws = rounded_normals(stream(2), 0.8, 1.0, (COUNT,))
    cells = np.arange(-3, 4)
    expected = COUNT * np.diff(stats.norm.cdf((np.arange(-3, 5) - 0.5) / 0.8))
    found = np.array([(draws == k).sum() for k in cells])
    assert np.all(np.abs(found - expected) < 5 * np.sqrt(expected))
    wrong = COUNT * np.diff(stats.norm.cdf((np.arange(-3, 5) - 0.5) / (0.8 * 1.02)))
    assert not np.all(np.abs(found - wrong) < 5 * np.sqrt(wrong))


@pytest.mark.parametrize("sigmas", [6, 8, 12])
def test_far_tails_occur_at_their_rate(sigmas):
    """Words given a tail probability below Q(s): all numbers are beyond s, and beyond s + .1 in proportion."""
    tail = [stats.norm.sf(sigmas + extra) for extra in (0.0, 0.1)]
    rng, count = np.random.default_rng(sigmas), 20_000 if sigmas < 9 else 300
    p = [int(v * 2**53) * int(mpmath.ldexp(tail[0], 128)) >> 53 for v in rng.random(count)]
    sign = rng.integers(0, 2, count)
    words = np.array([[(v >> 64) | (int(s) << 63), v % 2**64] for v, s in zip(p, sign, strict=True)], np.uint64)
    draws = noise._rounded(words, 2.0**20, stream(0)) * 2.0**-20
    assert np.abs(draws).min() >= sigmas - 1e-6
    assert abs((draws > 0).mean() - 0.5) < 2.5 / math.sqrt(count)
    rate = tail[1] / tail[0]
    assert abs((np.abs(draws) > sigmas + 0.1).mean() - rate) < 5 * math.sqrt(rate / count)


def boundary(k, scale):
    """The 128-bit tail probability just above the boundary between k and k + 1."""
    with mpmath.workprec(400):
        return int(mpmath.floor(mpmath.ldexp(mpmath.erfc((k + mpmath.mpf("0.5")) / (scale * mpmath.sqrt(2))) / 2, 128)))


@pytest.mark.parametrize("scale", [0.3, 1e3, 2.0**27, 2.0**43])
def test_rounding_is_exact_next_to_a_boundary(scale):
    rng = np.random.default_rng(3)
    for z in rng.uniform(0.01, 9, 12):
        k = int(scale * z)
        p = boundary(k, scale)
        if p < 2**3:
            continue
        words = np.array([[v >> 64, v % 2**64] for v in (p - 2, p + 2)], np.uint64)
        assert noise._rounded(words, scale, stream(0)).tolist() == [k + 1, k]


def test_a_boundary_inside_the_drawn_interval_is_settled_by_further_bits():
    p = boundary(1000, 700.0)
    words = np.array([[p >> 64, p % 2**64]], np.uint64)
    with mpmath.workprec(600):
        rest = mpmath.ldexp(mpmath.erfc(mpmath.mpf("1000.5") / (700 * mpmath.sqrt(2))) / 2, 128) - p
        split = int(mpmath.floor(mpmath.ldexp(rest, 64)))
    assert noise._rounded(words, 700.0, Script(split - 1)).tolist() == [1001]
    assert noise._rounded(words, 700.0, Script(split + 1)).tolist() == [1000]
    assert noise._rounded(words, 700.0, Script(split, 0)).tolist() == [1001]
    assert noise._rounded(words, 700.0, Script(split, 2**64 - 1)).tolist() == [1000]
    assert noise._rounded(np.zeros((1, 2), np.uint64), 1.0, Script(0, 5)).tolist()[0] > 13


def test_double_precision_is_as_good_as_the_fast_path_assumes():
    rng = np.random.default_rng(4)
    p = np.concatenate(
        [
            rng.uniform(0, 0.5, 800),
            2.0 ** -rng.uniform(1, 64, 800),
            0.5 - 2.0 ** -rng.uniform(2, 54, 300),
            *(np.exp(-a) * (1 + rng.uniform(-1e-4, 1e-4, 100)) for a in (2, 32)),  # where its formula changes
        ]
    )
    with mpmath.workprec(150):
        for v in map(float, p[p < 0.5]):
            z = mpmath.mpf(-float(ndtri(v)))
            error = (mpmath.erfc(z / mpmath.sqrt(2)) / 2 - v) / mpmath.npdf(z)
            assert abs(error) < noise._NDTRI / 4 * (1 + z)
            assert abs(mpmath.log(v) - float(np.log(v))) < noise._LOG / 4 * abs(mpmath.log(v))


@given(st.integers(-(2**40), 2**40), st.integers(0, 2**32))
@settings(max_examples=50)
def test_adding_rounded_noise_is_rounding_the_noisy_sum(total, seed):
    z = np.random.default_rng(seed).normal(0, 50.0)
    assert total + round(z) == round(mpmath.mpf(total) + z)


def test_gaps_are_geometric_and_a_rate_off_by_two_percent_is_noticed():
    found = gaps(stream(5), 0.07, (COUNT,), 10**9)
    assert abs(found.mean() - 0.93 / 0.07) < 5 * math.sqrt(0.93) / 0.07 / math.sqrt(COUNT)
    for k in (1, 5, 40):
        rate, wrong = 0.93**k, (1 - 0.07 * 1.02) ** k
        spread = 5 * math.sqrt(rate * (1 - rate) / COUNT)
        assert abs((found >= k).mean() - rate) < spread
        assert k < 5 or abs((found >= k).mean() - wrong) > spread


@pytest.mark.parametrize("rate", [0.01, 0.37, 0.999, 1e-7])
def test_gaps_are_exact_next_to_a_boundary(rate):
    with mpmath.workprec(400):
        for k in (2, 5, 9):
            edge = int(mpmath.floor(mpmath.ldexp((1 - mpmath.mpf(rate)) ** k, 64)))
            if edge < 2:
                continue
            words = np.array([edge - 1, edge + 1], np.uint64)
            assert noise._gaps(words, rate, 10**9, stream(0)).tolist() == [k, k - 1]
            split = int(mpmath.floor(mpmath.ldexp((1 - mpmath.mpf(rate)) ** k, 128))) - (edge << 64)
            inside = np.array([edge], np.uint64)
            assert noise._gaps(inside, rate, 10**9, Script(split - 2)).tolist() == [k]
            assert noise._gaps(inside, rate, 10**9, Script(split + 2)).tolist() == [k - 1]
    assert noise._gaps(np.zeros(1, np.uint64), 0.01, 10**9, Script(7, 5, 5, 5, 5))[0] > 4000


def test_integers_are_uniform_without_the_bias_of_a_remainder():
    found = uniform_integers(stream(6), 7, 70_000)
    assert stats.chisquare(np.bincount(found, minlength=7)).pvalue > 1e-3 and found.max() == 6
    top = 2**64 - 1  # 2⁶⁴ = 2 mod 7: the last two words are refused
    assert uniform_integers(Script(top, 12), 7, 1).tolist() == [5]


def test_no_two_streams_share_a_key_and_a_seed_repeats_them():
    runs = [Randomness.create() for _ in range(50)]
    assert len({int(s.words(2)[0]) for r in runs for s in (r.batches, r.noise)}) == 100
    a, b, other = Randomness.create(3), Randomness.create(3), Randomness.create(4)
    assert np.array_equal(a.noise.words(5), b.noise.words(5)) and np.array_equal(a.batches.words(5), b.batches.words(5))
    assert len({int(s.words(1)[0]) for s in (a.noise, a.batches, other.noise, other.batches)}) == 4
    assert not np.array_equal(a.noise.words(5), a.noise.words(5))


def test_what_idealisation_remains_is_negligible_and_counted_for_every_answer():
    m = Mechanism(n=10**6, blocks=5, sampling_rate=0.1, steps=10**5, clip=1.0)
    assert 0 < idealisation(m, 20) < 1e-70
    assert idealisation(compose([m, m]), 20) == 2 * idealisation(m, 20)


def test_noise_beyond_all_sense_is_refused():
    with pytest.raises(PgbbError, match="larger epsilon"):
        rounded_normals(stream(0), 1.0, 1e-20, (2,))


def threads_in_multiple_precision(draw):
    """The most threads of eight that compute in multiple precision at a time."""
    inside, most, real = [], [0], mpmath.workprec

    @contextmanager
    def watched(bits):
        inside.append(bits)
        most[0] = max(most[0], len(inside))
        time.sleep(1e-3)
        with real(bits):
            yield
        inside.pop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mpmath, "workprec", watched)
        mapped(lambda seed: draw(Stream.create("noise", seed)), range(8))
    return most[0]


@pytest.mark.parametrize(
    "draw", [lambda s: rounded_normals(s, 2.0**40, 1.0, (3_000,)), lambda s: gaps(s, 1e-9, (40_000,), 2**31 - 1)]
)
def test_threads_take_turns_in_multiple_precision(draw, monkeypatch):
    """Its precision is one for all: a thread that leaves would take it from the others."""
    before = mpmath.mp.prec
    assert threads_in_multiple_precision(draw) == 1
    assert mpmath.mp.prec == before
    monkeypatch.setattr(noise, "_PRECISION", nullcontext())
    assert threads_in_multiple_precision(draw) > 1
    mpmath.mp.prec = before
