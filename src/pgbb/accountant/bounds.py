"""Certified intervals for ε and δ: choose a tilt, discretise, compose, and refine until the interval is narrow.

The upper end is a proof; the lower end shows how much the proof gives away.

The tilt moves the bulk of the sum to the ε or δ that is asked about; without it the FFT would lose small δ in rounding.
Plain quadrature chooses it, which gives no guarantee and needs none: a bad tilt makes bounds wider, never wrong.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pgbb.accountant.compose import Tail, compose_laws
from pgbb.accountant.description import Composition, Mechanism
from pgbb.accountant.exact import GridLaw, from_above, from_below, one_loss, weight_bins
from pgbb.accountant.minimum import minimum_between
from pgbb.errors import NotCertifiable

SMALLEST_DELTA = 1e-100
"""Below this the normal tails themselves are not trusted to the accuracy that is added as an error."""

TOLERANCE = 0.0025
"""Refinement stops when (upper − lower) ≤ TOLERANCE · max(upper, half a standard deviation of the composed loss)."""

_EVALUATIONS = 1e7  # normal tails a discretisation may evaluate
_GRID = 3e5  # longest grid of one answer's loss
_VACUOUS = 400.0  # an ε beyond this is reported as infinite

Parts = list[tuple[Mechanism, float]]


@dataclass(frozen=True)
class Tilt:
    """θ, log E[e^{θL}] and mean of the sum under the tilt, and the standard deviation of one tilted answer."""

    theta: float
    log_mgf: float
    centre: float
    spread: float


class _Quadrature:
    """log-moment generating function K(θ) of one answer's loss, on a coarse grid."""

    def __init__(self, mechanism: Mechanism, sigma: float, far: float) -> None:
        q = mechanism.sampling_rate
        bins = weight_bins(mechanism, sigma, 0.05, above=True)
        z = np.linspace(-far, far, 161)
        normal = np.exp(-0.5 * z**2)
        normal /= normal.sum()
        mu = bins.shift[:, None]
        loss = np.stack([one_loss(z, q, mu), one_loss(z + mu, q, mu)])
        weight = np.array([1 - q, q])[:, None, None] * bins.probability[:, None] * normal
        keep = weight > 0
        self.loss, self.log_weight = loss[keep], np.log(weight[keep])
        self.count = mechanism.answers

    def moments(self, theta: float) -> tuple[float, float, float]:
        """K(θ) with its first two derivatives."""
        exponent = theta * self.loss + self.log_weight
        peak = exponent.max()
        w = np.exp(exponent - peak)
        total = w.sum()
        mean = float((w * self.loss).sum() / total)
        return float(peak + np.log(total)), mean, float((w * (self.loss - mean) ** 2).sum() / total)


_LOG_THETA = (np.log(1e-3), np.log(1e7))


def _best_theta(objective: Callable[[float], float]) -> float:
    grid = np.linspace(*_LOG_THETA, 36)
    values = [objective(np.exp(t)) for t in grid]
    i = int(np.argmin(values))
    low, high = grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]
    return float(np.exp(minimum_between(lambda t: objective(np.exp(t)), float(low), float(high), 1e-3)))


def _tilt(parts: list[_Quadrature], theta: float) -> Tilt:
    moments = [(p.count, *p.moments(theta)) for p in parts]
    centre = sum(n * mean for n, _, mean, _ in moments)
    variance = sum(n * v for n, _, _, v in moments)
    answers = sum(p.count for p in parts)
    log_mgf = sum(n * k for n, k, _, _ in moments)
    return Tilt(theta, log_mgf, centre, float(np.sqrt(variance / answers)))


def tilt_for_delta(parts: Parts, delta: float, far: float) -> Tilt:
    """The tilt for finding ε at a given δ: that of the best Chernoff bound on ε.

    Observations beyond `far` standard deviations are left out: so rare that
    they cannot matter at this δ, they would still attract the tilt.
    """
    laws = [_Quadrature(m, s, far) for m, s in parts]
    log_delta = np.log(delta)
    return _tilt(laws, _best_theta(lambda t: (sum(p.count * p.moments(t)[0] for p in laws) - log_delta) / t))


def tilt_for_epsilon(parts: Parts, epsilon: float, far: float) -> Tilt:
    """The tilt for finding δ at a given ε: that of the best Chernoff bound on δ."""
    laws = [_Quadrature(m, s, far) for m, s in parts]
    theta = _best_theta(lambda t: sum(p.count * p.moments(t)[0] for p in laws) - t * epsilon)
    plain = _tilt(laws, 0.0)
    if plain.centre >= epsilon:  # ε lies in the bulk: a tilt of half a standard deviation is as good as none
        theta = 0.5 / (plain.spread * np.sqrt(sum(p.count for p in laws)))
    return _tilt(laws, theta)


@dataclass(frozen=True)
class _Resolution:
    """Grid step in units of the tilt's spread, and the relative width of a weight bin."""

    step: float = 0.03
    ratio: float = 0.001

    def finer(self, gap: float) -> "_Resolution":
        """A finer grid; finer bins too where the bins may be what keeps the bounds apart."""
        bins_matter = gap < 4 * self.ratio
        return _Resolution(self.step / (2 if gap < 0.1 else 4), self.ratio / 2 if bins_matter else self.ratio)


_ROUGH = _Resolution(step=0.1, ratio=0.01)


def _cut(parts: Parts, delta: float) -> float:
    """Tail probability at which an answer's loss may be called infinite: 1e-4 of δ over all answers."""
    return max(1e-4 * delta / sum(m.answers for m, _ in parts), 1e-300)


def _far(parts: Parts, delta: float) -> float:
    return -float(ndtri(_cut(parts, delta)))


def _laws(parts: Parts, step: float, ratio: float, cut: float, *, upper: bool) -> list[tuple[GridLaw, int]] | None:
    """Each mechanism's one-answer law, or None if that would take too much time or memory."""
    far, work, laws = -float(ndtri(cut)), 0.0, []
    for mechanism, sigma in parts:
        bins = weight_bins(mechanism, sigma, ratio, above=upper)
        sizes = one_loss(far + bins.shift, mechanism.sampling_rate, bins.shift) / step + 2
        work += float(sizes.sum())
        if work > _EVALUATIONS or sizes.max() > _GRID:
            return None
        law = (from_above if upper else from_below)(bins, mechanism.sampling_rate, step, cut)
        laws.append((law, mechanism.answers))
    return laws


def _tail(
    parts: Parts, tilt: Tilt, resolution: _Resolution, epsilon: float, delta: float, *, upper: bool
) -> Tail | None:
    """The composed tail at this resolution, under the first tilt that leaves little slack; None if it is too long."""
    laws = _laws(parts, resolution.step * tilt.spread, resolution.ratio, _cut(parts, delta), upper=upper)
    if laws is None:
        return None
    best: Tail | None = None
    for fraction in (1.0, 0.5, 0.25, 0.125):
        tail = compose_laws(laws, fraction * tilt.theta, epsilon, delta, upper=upper)
        if tail is None:
            continue
        if best is None or tail.slack[tail.cell(epsilon)] < best.slack[best.cell(epsilon)]:
            best = tail
        if best.slack[best.cell(epsilon)] < 1e-2 * delta:
            break
    return best


def _refine(
    parts: Parts,
    tilt: Tilt,
    epsilon: float,
    delta: float,
    read: Callable[[Tail, bool], float],
    narrow: Callable[[float, float], bool],
) -> tuple[float, float]:
    """Best (lower, upper) over successively finer resolutions; each one is valid by itself."""
    low, high = 0.0, math.inf
    resolution = _Resolution()
    for _ in range(8):
        above = _tail(parts, tilt, resolution, epsilon, delta, upper=True)
        if above is None and math.isinf(high):
            resolution = _Resolution(resolution.step * 4, 0.01)
            continue
        if above is None:
            break
        high = min(high, read(above, True))
        below = _tail(parts, tilt, resolution, epsilon, delta, upper=False)
        if below is None:
            break
        low = max(low, read(below, False))
        if narrow(low, high):
            break
        resolution = resolution.finer((high - low) / high)
    if low > high * (1 + 1e-9):
        raise NotCertifiable(
            f"the bounds contradict each other (lower {low!r}, upper {high!r}): these settings are outside what "
            "double precision can certify. Please report the mechanism, sigma and delta."
        )
    return min(low, high), high


def _total_variation(parts: Parts) -> float:
    """Upper bound on δ(0): the sum over answers of q·erf(μ/√2), the total variation of an antipodal pair."""
    return sum(m.answers * m.sampling_rate * math.erf(m.signal(s) / math.sqrt(2)) for m, s in parts)


def rough_epsilon(target: Mechanism | Composition, sigma: float, delta: float) -> float:
    """An uncertified estimate of ε at δ on a coarse grid: where a search begins."""
    parts = target.parts(sigma)
    tilt = tilt_for_delta(parts, delta, _far(parts, delta))
    if not (tilt.centre < _VACUOUS and tilt.spread > 0):
        return math.inf
    rough = _tail(parts, tilt, _ROUGH, tilt.centre, delta, upper=True)
    return tilt.centre if rough is None else min(rough.epsilon(delta, upper=True), tilt.centre)


def epsilon_bounds(target: Mechanism | Composition, sigma: float, delta: float) -> tuple[float, float]:
    """(lower, upper) around the exact ε at δ; the upper end is certified."""
    parts = target.parts(sigma)
    if _total_variation(parts) <= delta:
        return 0.0, 0.0
    guess = rough_epsilon(target, sigma, delta)
    if math.isinf(guess):
        return 0.0, math.inf
    tilt = tilt_for_epsilon(parts, guess, _far(parts, delta))
    bulk = 0.5 * tilt.spread * math.sqrt(sum(m.answers for m, _ in parts))
    return _refine(
        parts,
        tilt,
        guess,
        delta,
        lambda tail, upper: tail.epsilon(delta, upper=upper),
        lambda low, high: high - low <= TOLERANCE * max(high, bulk),
    )


def delta_bounds(target: Mechanism | Composition, sigma: float, epsilon: float) -> tuple[float, float]:
    """(lower, upper) around the exact δ at ε; the upper end is certified and never below `SMALLEST_DELTA`."""
    parts = target.parts(sigma)
    trivial = 0.0, max(min(_total_variation(parts), 1.0), SMALLEST_DELTA)
    if max(m.signal(s) for m, s in parts) < 1e-12:  # losses below the resolution of double precision
        return trivial
    guess = 1e-10
    for _ in range(3):  # the scale of δ decides which observations matter, and they decide δ
        tilt = tilt_for_epsilon(parts, epsilon, _far(parts, guess))
        log_guess = min(tilt.log_mgf - tilt.theta * epsilon - 3.0, 0.0)  # a little below the Chernoff bound
        guess = math.exp(max(log_guess, math.log(SMALLEST_DELTA)))
    if not (tilt.centre < _VACUOUS and tilt.spread > 0):
        return trivial
    rough = _tail(parts, tilt, _ROUGH, epsilon, guess, upper=True)
    if rough is not None:
        guess = max(min(guess, rough.delta(epsilon, upper=True)), SMALLEST_DELTA)
    tolerance = 2 * TOLERANCE * max(tilt.theta * epsilon, 1.0)  # a relative change of ε moves δ by θε times as much
    low, high = _refine(
        parts,
        tilt,
        epsilon,
        guess,
        lambda tail, upper: tail.delta(epsilon, upper=upper),
        lambda low, high: high - low <= max(tolerance * high, SMALLEST_DELTA),
    )
    return low, min(max(high, SMALLEST_DELTA), 1.0)


def delta_above(
    target: Mechanism | Composition, sigma: float, points: NDArray[np.float64], smallest: float, tilts: int = 8
) -> NDArray[np.float64]:
    """Certified upper bounds on δ at increasing points ε ≥ 0, useful down to δ = `smallest`.

    Each of a few tilts gives a whole curve, accurate near the ε that it is
    centred at; the least of them is taken at every point.
    """
    parts = target.parts(sigma)
    best = np.full(len(points), min(_total_variation(parts), 1.0))
    for centre in np.linspace(points[0], points[-1], tilts + 1)[1:]:
        tilt = tilt_for_epsilon(parts, float(centre), _far(parts, smallest))
        if not (tilt.centre < _VACUOUS and tilt.spread > 0):
            continue
        guess = max(math.exp(min(tilt.log_mgf - tilt.theta * float(centre) - 3.0, 0.0)), smallest)
        for resolution in (_Resolution(), _ROUGH):
            tail = _tail(parts, tilt, resolution, float(centre), guess, upper=True)
            if tail is not None:
                best = np.minimum(best, [tail.delta(float(e), upper=True) for e in points])
                break
    return np.minimum.accumulate(best)
