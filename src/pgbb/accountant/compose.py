"""The sum of many grid losses: certified bounds on δ(ε) after composition.

The law of the sum is a product of Fourier transforms of exponentially tilted laws. The tilt puts the bulk of the tilted
sum at the ε asked about, so that errors are relative to δ and no floor of double precision is met. Everything that the
computation idealises is bounded and added (docs/privacy.md, section 5): rounding of transforms and powers, wrap-around,
the tail to the right of the window, and mass at +∞.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from pgbb.accountant.description import Floats
from pgbb.accountant.exact import GridLaw

LONGEST = 2**21
"""Longest transform, in grid points."""

_UNIT = float(np.finfo(float).eps)
_SHORT = 2**14  # what Python adds up as fast as a library is imported


def log_mgf(law: GridLaw, theta: float) -> tuple[float, Floats]:
    """log Σ mass·e^{θℓ} over the finite part, and the tilted law that goes with it."""
    places, logs = law.logs
    exponent = theta * law.step * places + logs
    peak = float(exponent.max())
    weights = np.exp(exponent - peak)
    total = float(weights.sum())
    return peak + float(np.log(total)), weights / total


@dataclass(frozen=True)
class Tail:
    """The right tail of a composed loss on grid points `start + step·(0, 1, …)`.

    `above[j]` is Σ_{k>j} m_k and `shrunk[j]` is Σ_{k>j} m_k e^{ℓ_j−ℓ_k}, so that on the cell right of grid point j the
    curve is δ(ε) = above[j] − e^{ε−ℓ_j} shrunk[j] ± slack[j].
    """

    start: float
    step: float
    above: Floats
    shrunk: Floats
    slack: Floats

    def cell(self, epsilon: float) -> int:
        """Index of the grid point at or left of ε."""
        return int(np.clip((epsilon - self.start) // self.step, 0, len(self.above) - 1))

    def delta(self, epsilon: float, *, upper: bool) -> float:
        """Bound on δ at one ε ≥ 0; trivial to the left of the window."""
        if epsilon < self.start:
            return 1.0 if upper else 0.0
        cell = self.cell(epsilon)
        inside = min(epsilon - self.start - cell * self.step, self.step)
        value = self.above[cell] - np.exp(inside) * self.shrunk[cell]
        return float(np.clip(value + self.slack[cell] if upper else value - self.slack[cell], 0.0, 1.0))

    def epsilon(self, delta: float, *, upper: bool) -> float:
        """Bound on the smallest ε ≥ 0 with δ(ε) ≤ `delta`.

        From above: the first ε in the window whose bound is at most `delta`, inf if there is none. From below: the last
        whose bound exceeds it, 0 if there is none.
        """
        grid = self.start + self.step * np.arange(len(self.above))
        sign = 1.0 if upper else -1.0
        curve = self.above - self.shrunk + sign * self.slack
        if upper:
            fits = np.flatnonzero(curve <= delta)
            if len(fits) == 0:
                return float("inf")
            cell = int(fits[0]) - 1
        else:
            exceeds = np.flatnonzero(curve > delta)
            cell = int(exceeds[-1]) if len(exceeds) else -1
        if cell < 0:
            return max(self.start, 0.0) if upper else 0.0
        if cell == len(grid) - 1:
            return float(grid[cell])
        low, high = grid[cell], grid[cell + 1]
        room = self.above[cell] - (delta - sign * self.slack[cell])
        inside = high if upper else low
        if self.shrunk[cell] > 0 and room > 0:
            inside = low + np.log(room / self.shrunk[cell])
        return max(float(np.clip(inside, low, high)), 0.0)


def _shrunk(mass: Floats, decay: float) -> Floats:
    """s_j = decay·(s_{j+1} + m_{j+1}), from zero at the end."""
    if len(mass) <= _SHORT:
        found = accumulate(mass[:0:-1].tolist(), lambda s, m: decay * m + decay * s, initial=0.0)
        return np.fromiter(found, np.float64, len(mass))[::-1]
    from scipy.signal import lfilter  # the same numbers; slow to import

    return np.asarray(lfilter([0.0, decay], [1.0, -decay], mass[::-1])[::-1])


def compose_laws(
    parts: Sequence[tuple[GridLaw, int]], theta: float, epsilon: float, delta: float, *, upper: bool
) -> Tail | None:
    """Bound the tail of the sum of `count` independent losses of each law, near ε and to its right.

    All laws share one grid step. With `upper` the slack makes the curve an upper bound on δ(ε), otherwise a lower
    bound. The tilt `theta` and the rough values `epsilon`, `delta` affect the width of the slack, not its validity.
    None if the transform would be too long.
    """
    step = parts[0][0].step
    allowance = 1e-4 * delta
    left_end, right_end = _window(parts, theta, epsilon, np.log(allowance))
    first, last = int(np.floor(left_end / step)), int(np.ceil(right_end / step))
    if last - first > LONGEST:
        return None
    length = next_fast_len(last - first + 1, real=True)
    log_scale, sums, rounding = _tilted_sum(parts, theta, first, length)
    infinite = 0.0
    for law, count in parts:
        infinite += count * law.infinite
    grid = step * np.arange(first, first + length)
    offset = int(np.argmax(grid > -step)) if grid[-1] > -step else length - 1  # δ is asked about at ε ≥ 0 only
    grid, sums = grid[offset:], sums[offset:]
    with np.errstate(over="ignore"):
        scale = np.exp(log_scale - theta * grid)
    if not np.isfinite(scale).all():  # this tilt does not suit these laws
        return None
    mass = scale * sums
    above = _sum_beyond(mass)
    answers = sum(count for _, count in parts)
    slack = rounding * _sum_beyond(scale) + (4 * len(mass) + 512 * answers) * _UNIT * above
    slack = slack + infinite
    if upper:
        slack = slack + allowance  # losses to the right of the window
    else:  # mass from outside the window, counted once too often
        with np.errstate(over="ignore"):
            slack = slack + 2 * allowance * np.exp(theta * (epsilon - grid))
    return Tail(float(grid[0]), step, above, _shrunk(mass, float(np.exp(-step))), slack)


def _tilted_sum(
    parts: Sequence[tuple[GridLaw, int]], theta: float, first: int, length: int
) -> tuple[float, Floats, float]:
    """The tilted law of the sum on the grid indices first, first + 1, …, wrapped around after `length` of them.

    Returns:
      The logarithm of what the tilted laws were divided by, the masses, and a bound on the rounding error of each.
    """
    log_scale, fft_error = 0.0, 16 * _UNIT * np.log2(length)
    log_abs, angle, relative = (np.zeros(length // 2 + 1) for _ in range(3))
    for law, count in parts:
        log_total, tilted = log_mgf(law, theta)
        log_scale += count * log_total
        index = np.arange(-law.size, law.size + 1) % length
        wrapped: Floats = np.bincount(index, weights=tilted, minlength=length).astype(np.float64, copy=False)
        transform, error = _transformed(wrapped, fft_error)
        size_up = np.maximum(np.abs(transform), error)
        with np.errstate(divide="ignore"):
            log_abs += count * np.log(size_up)
        angle += count * np.angle(transform)
        relative += count * (2 * error / size_up + 64 * _UNIT)
    power = np.exp(log_abs + np.minimum(relative, 700.0)) * -np.expm1(-np.minimum(relative, 700.0))
    spectrum = np.exp(log_abs) * np.exp(1j * angle)
    sums = irfft(spectrum, length)  # index k mod length: total tilted mass of grid indices ≡ k
    sums = np.maximum(sums[np.arange(first, first + length) % length], 0.0)
    return log_scale, sums, 2 * float(power.sum()) / length + fft_error * float(np.linalg.norm(sums))


def _transformed(wrapped: Floats, fft_error: float) -> tuple[NDArray[np.complex128], float]:
    """The Fourier transform of a law, and a bound on its error.

    The largest atom is transformed exactly: what is left has a smaller norm, hence a smaller error.
    """
    length = len(wrapped)
    atom, frequency, rest = int(np.argmax(wrapped)), np.arange(length // 2 + 1), wrapped.copy()
    rest[atom] = 0.0
    transform = rfft(rest) + wrapped[atom] * np.exp(-2j * np.pi * ((atom * frequency) % length) / length)
    return transform, fft_error * np.sqrt(length) * float(np.linalg.norm(rest)) + 8 * _UNIT


def _sum_beyond(values: Floats) -> Floats:
    """Σ_{k>j} values[k] for each j, added from the small end."""
    return np.append(np.cumsum(values[::-1])[::-1][1:], 0.0)


def _window(
    parts: Sequence[tuple[GridLaw, int]], theta: float, epsilon: float, log_allowance: float
) -> tuple[float, float]:
    """Ends of a window outside which the sum may be ignored, by Chernoff bounds with K = Σ N·log E[e^{sL}].

    Right of r: P(ΣL > r) ≤ e^{K(s) − s r} for every s > 0 must not exceed the allowance. Wrapped mass reaches δ(ε) with
    weight at most e^{K(θ) − θε} times its tilted probability: e^{K(s) − (s−θ)r − θε} from the right (s > θ) and e^{K(s)
    + (θ−s)l − θε} from the left of l (s < θ) must not exceed it either.
    """

    def total(s: float) -> float:
        return float(sum(count * log_mgf(law, s)[0] for law, count in parts))

    factors = np.geomspace(1 / 64, 64, 25)
    right = min((total(s) - log_allowance) / s for s in theta * factors)
    right_wrap = min((total(theta + s) - theta * epsilon - log_allowance) / s for s in theta * factors)
    left = max((theta * epsilon - total(theta - s) + log_allowance) / s for s in theta * factors)
    step = parts[0][0].step
    return min(left, epsilon - step), max(right, right_wrap, epsilon + step)
