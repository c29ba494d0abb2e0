"""Secret random numbers without floating-point error: a keyed stream, and exact whole-number laws drawn from it.

A Gaussian is drawn by inversion and rounded to a whole number. Double precision decides where it can; where the result
is too close to a rounding boundary, or a boundary lies inside the interval that the drawn bits describe, the bits and
the boundary are compared with as many digits as it takes. The same for the gaps of a Poisson sample. So the laws are
those of the proof, up to `idealisation`. Nothing here reads records.
"""

import hashlib
import math
import secrets
from functools import lru_cache
from threading import Lock

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray
from scipy.special import ndtri

from pgbb._numerics import Floats, Ints
from pgbb.accountant import Composition, Mechanism
from pgbb.errors import PgbbError

Gaps = NDArray[np.int32]
Words = NDArray[np.uint64]

_PRECISION = Lock()  # all threads of a process share the working precision of mpmath

LARGEST_SCALE = 2.0**44
"""Largest σ/grid: whole numbers and their halves are then still double-precision numbers."""

_BITS = 320  # random bits after which an undecided number takes the nearer side; see `idealisation`
_NDTRI = 2.0**-48  # error of z = Φ⁻¹(p) in double precision, times 1 + |z|: measured below 2⁻⁵⁰ (tests)
_LOG = 2.0**-48  # relative error of −log(v)/log1p(−q) in double precision, with room as above


class Stream:
    """Random words from ChaCha20 under a 256-bit key of its own; no word is given twice.

    A key has 2⁶⁴ streams, by their number.
    """

    def __init__(self, key: bytes, number: int = 0) -> None:
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(8) + number.to_bytes(8, "little")), None).encryptor()

    @classmethod
    def create(cls, purpose: str, insecure_seed: int | None = None) -> "Stream":
        """A stream keyed by the operating system, or by the hash of a seed: reproducible, and so not private."""
        if insecure_seed is None:
            return cls(secrets.token_bytes(32))
        return cls(hashlib.sha256(f"pgbb {purpose} {insecure_seed}".encode()).digest())

    def words(self, count: int) -> Words:
        """`count` uniform 64-bit words."""
        return np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8")


def rounded_normals(stream: Stream, sigma: float, grid: float, shape: tuple[int, ...]) -> Ints:
    """Independent whole numbers round(Z/grid) with Z ~ N(0, σ²), up to a relative 2⁻⁵² more than σ, never less."""
    scale = float(np.nextafter(sigma / grid, np.inf)) if sigma else 0.0
    if not 0 <= scale <= LARGEST_SCALE:
        raise PgbbError(
            f"noise of {scale:g} units is outside [0, {LARGEST_SCALE:g}]: it is so large beside what one record can "
            "contribute that nothing would be left of the answer. Take a larger epsilon, or fewer answers."
        )
    words = stream.words(2 * math.prod(shape)).reshape(-1, 2)
    return _rounded(words, scale, stream).reshape(shape)


def _rounded(words: Words, scale: float, stream: Stream) -> Ints:
    """One number for each row of two words: the first bit is the sign, the others the tail probability p < 1/2."""
    if scale == 0:
        return np.zeros(len(words), np.int64)
    first = words[:, 0] & np.uint64(2**63 - 1)
    p = first * 2.0**-64 + words[:, 1] * 2.0**-128  # relative error 2⁻⁵², however small p is
    with np.errstate(over="ignore"):
        value = -scale * ndtri(p)
    whole = np.rint(np.minimum(value, 2.0**53))
    error = _NDTRI * (2 * scale + value)
    unsure = (np.abs(value - whole) >= 0.5 - error) | (first == 0)
    found = whole.astype(np.int64)
    with _PRECISION:
        for i in np.flatnonzero(unsure):
            found[i] = _rounded_slowly((int(first[i]) << 64) + int(words[i, 1]), scale, stream)
    return np.where(words[:, 0] >> np.uint64(63), -found, found)


def _rounded_slowly(p: int, scale: float, stream: Stream) -> int:
    """The j ≥ 0 with Q((j + ½)/scale) ≤ p/2^bits < Q((j − ½)/scale), Q the normal tail; more bits while unclear."""
    import mpmath  # slow to import, and rarely needed

    bits = 128
    while True:
        if p > 0:
            j = max(round(-scale * float(ndtri(float(mpmath.ldexp(p, -bits))))), 0)
            with mpmath.workprec(bits + 64):
                slack = mpmath.ldexp(1, -bits - 40)  # far above the error of a tail at this precision

                def tail(k: int) -> "mpmath.mpf":
                    return mpmath.erfc((mpmath.mpf(k) + 0.5) / (scale * mpmath.sqrt(2))) / 2

                low, high = mpmath.ldexp(p, -bits), mpmath.ldexp(p + 1, -bits)
                while high <= tail(j) - slack:
                    j += 1
                while j > 0 and low >= tail(j - 1) + slack:
                    j -= 1
                if bits >= _BITS or (tail(j) + slack <= low and (j == 0 or high <= tail(j - 1) - slack)):
                    return j
        p, bits = (p << 64) + int(stream.words(1)[0]), bits + 64


def gaps(stream: Stream, rate: float, shape: tuple[int, ...], longest: int) -> Gaps:
    """Independent geometric numbers of failures before a success, P(gap ≥ k) = (1−q)^k, cut off at `longest`.

    The first 16 bits of v mostly decide the gap; where they do not, 48 more are drawn.
    """
    count = math.prod(shape)
    digits = stream.words(-(-count // 4)).view(np.uint16)[:count]
    found = np.take(_decided(rate, longest), digits, mode="clip")  # no digit is outside; this mode is the fastest
    left = np.flatnonzero(found < 0)
    words = (digits[left].astype(np.uint64) << np.uint64(48)) | (stream.words(len(left)) >> np.uint64(16))
    found[left] = _gaps(words, rate, longest, stream)
    return found.reshape(shape)


@lru_cache(maxsize=16)
def _decided(rate: float, longest: int) -> Gaps:
    """The gap of every v that begins with given 16 bits, cut off; −1 where they leave it open."""
    with np.errstate(divide="ignore"):
        edges = np.log(np.arange(2**16 + 1) / 2**16) / math.log1p(-rate)
    error = _LOG * edges[1]  # of the longest finite one
    most, least = np.floor(edges[:-1] + error), np.floor(edges[1:] - error)
    return np.where((most == least) & (most < 2.0**53), np.minimum(most, longest), -1.0).astype(np.int32)


def _gaps(words: Words, rate: float, longest: int, stream: Stream) -> Floats:
    """⌊log v/log(1−q)⌋ for v uniform in [w, w + 1)/2⁶⁴: one gap for each word w."""
    scale = -1.0 / math.log1p(-rate)
    value = np.multiply(words, 2.0**-64)
    np.log(np.maximum(value, 2.0**-64, out=value), out=value)
    value *= -scale
    found = np.floor(value)
    error = scale * (2.0**-43 + 16 * _LOG)  # words from 2⁴⁴ on: v is known to 2⁻⁴⁴ of itself, and −log v < 14
    value -= found
    value -= 0.5
    np.abs(value, out=value)
    unsure = value >= 0.5 - error
    unsure |= words < np.uint64(2**44)
    with _PRECISION:
        for i in np.flatnonzero(unsure):
            found[i] = _gap_slowly(int(words[i]), rate, stream)
    return np.minimum(found, longest, out=found)


def _gap_slowly(v: int, rate: float, stream: Stream) -> int:
    """⌊log(v/2^bits)/log(1−q)⌋, with more bits of v while the interval [v, v + 1) holds a boundary."""
    import mpmath

    bits = 64
    while True:
        with mpmath.workprec(bits + 64):
            decay = mpmath.log1p(-mpmath.mpf(rate))
            slack = mpmath.ldexp(1, -bits - 20)
            least = mpmath.log(mpmath.ldexp(v + 1, -bits)) / decay - slack
            if v > 0:
                most = mpmath.log(mpmath.ldexp(v, -bits)) / decay + slack
                if bits >= _BITS or mpmath.floor(most) == mpmath.floor(least) or most < 1:
                    return max(int(mpmath.floor(most)), 0)
        v, bits = (v << 64) + int(stream.words(1)[0]), bits + 64


def uniform_integers(stream: Stream, below: int, count: int) -> Ints:
    """Independent uniform whole numbers 0 … below−1, without the bias of a remainder."""
    fair = np.uint64(2**64 // below * below - 1)  # words above would favour small remainders
    found = stream.words(count)
    while (bad := found > fair).any():
        found = np.where(bad, stream.words(count), found)
    return (found % np.uint64(below)).astype(np.int64)


def idealisation(target: Mechanism | Composition, numbers: int) -> float:
    """Largest total variation between noise and batches of a run and their ideal laws; the keystream counts as ideal.

    A number is undecided after 320 bits only if its cell, of probability 2⁻³²⁰, holds a boundary: there are fewer than
    2⁷·scale such cells for a normal and 4(n + 2) for a gap (docs/privacy.md). An answer has so many `numbers`.
    """
    normal = 2.0**7 * LARGEST_SCALE * 2.0**-_BITS
    return sum(
        m.answers * (numbers * normal + (m.sampling_rate < 1) * (m.n + 2.0) ** 2 * 2.0 ** (2 - _BITS))
        for m, _ in target.parts(1.0)
    )
