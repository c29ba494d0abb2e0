"""One answer's privacy loss, on a grid, from above and from below.

The dominating pair of one answer (docs/privacy.md, section 3): the weight
u ~ Beta is published with the answer, and given u the pair is antipodal,

    P = (1−q) N(0, 1) + q N(μ, 1),   Q = (1−q) N(0, 1) + q N(−μ, 1),   μ = uC/(σ n_S).

Its loss L = log dP/dQ is odd and increasing in the observation, so that the law of L under P at −ℓ is e^{−ℓ} times that
at ℓ: only ℓ ≥ 0 is computed. Nothing here composes answers; that is `compose.py`.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betainc, betaincc, betaincinv, ndtr, ndtri

from pgbb.accountant.description import Floats, Mechanism

_UNIT = float(np.finfo(float).eps)
_SPECIAL = 2048 * _UNIT
"""Relative error granted to a normal tail probability up to 37 standard deviations, its argument and e^ℓ included."""

_GROUP = 64  # bins evaluated together
_LARGEST_LOSS = 400.0  # larger losses count as infinite: beyond, tails under Q would leave double precision


@dataclass(frozen=True)
class WeightBins:
    """Shifts μ with their probabilities: the law of the weight, each value rounded up, or each rounded down.

    With `long`, the largest shifts are so rare that `tail_masses` takes them as zero, up to its `tail` in all.
    """

    shift: Floats
    probability: Floats
    long: bool = False


@dataclass(frozen=True)
class GridLaw:
    """A law of the privacy loss under P: masses at the grid points `step * (−size … size)`.

    `infinite` is the probability, per answer, that the loss is not on the grid:
    to be counted in full in an upper bound on δ, and taken off a lower one.
    """

    step: float
    mass: Floats
    infinite: float

    @property
    def size(self) -> int:
        """Largest index of the grid."""
        return len(self.mass) // 2

    @cached_property
    def logs(self) -> tuple[Floats, Floats]:
        """The indices of the grid, and the logarithms of the masses."""
        with np.errstate(divide="ignore"):
            return np.arange(-self.size, self.size + 1, dtype=np.float64), np.log(self.mass)


def weight_bins(mechanism: Mechanism, sigma: float, ratio: float, *, above: bool) -> WeightBins:
    """The law of μ, rounded to the upper (or lower) ends of geometric bins of the given relative width.

    Rounding up gives a stochastically larger weight, hence a dominating mixture (docs/privacy.md, lemmas 3 and 4). The
    lowest bin reaches down to zero; its end is so small that it holds less than 1e-4 of E[u²].
    """
    signal = mechanism.signal(sigma)
    law, inner = mechanism.beta_law, mechanism.nested_law
    if law is None:
        return WeightBins(np.array([signal]), np.array([1.0]))
    if inner is not None:
        outer = _geometric(law, 1.0, ratio, above=above)
        both = np.convolve(outer, _geometric(inner, mechanism.block_size / mechanism.reach, ratio, above=above))
        return WeightBins(np.exp(-ratio * (np.arange(len(both)) + (0 if above else 2))) * signal, both, long=True)
    a, b = law
    smallest = float(betaincinv(a, b, 1e-4))
    while smallest > 1e-12 and smallest**2 * betainc(a, b, smallest) > 1e-4 * mechanism.kappa:
        smallest /= 2
    smallest = max(smallest, 1e-2 * np.sqrt(mechanism.kappa))
    count = max(int(np.ceil(-np.log(smallest) / ratio)), 1)
    edges = np.exp(np.linspace(np.log(smallest), 0.0, count + 1))
    edges[-1] = 1.0
    slack = 1e-12 if above else -1e-12
    survival = np.clip(betaincc(a, b, edges) * (1 + slack), 0.0, 1.0)
    survival[-1] = 0.0
    if above:
        return WeightBins(edges * signal, -np.diff(survival, prepend=1.0))
    keep = survival[:-1] - survival[1:]
    return WeightBins(edges[:-1] * signal, keep)


def _geometric(law: tuple[float, float], scale: float, ratio: float, *, above: bool) -> Floats:
    """Masses of min(scale·Beta, 1) in cells (e^{−(i+1)·ratio}, e^{−i·ratio}], i = 0, 1, …; the lowest reaches to zero.

    From below the mass of the lowest is left out, as if it were that of a weight zero.
    """
    a, b = law
    smallest = 1e-2 * np.sqrt(a * (a + 1) / ((a + b) * (a + b + 1))) * scale
    count = max(int(np.ceil(-np.log(min(smallest, 0.5)) / ratio)), 1)
    slack = 1e-12 if above else -1e-12
    lower = np.minimum(np.exp(-ratio * np.arange(1, count + 1)) / scale, 1.0)
    survival = np.clip(betaincc(a, b, lower) * (1 + slack), 0.0, 1.0)  # of the lower ends
    if above:
        return np.diff(np.append(survival, 1.0), prepend=0.0)
    return np.diff(survival, prepend=0.0)


def one_loss(x: Floats, q: float, mu: Floats) -> Floats:
    """L(x) = log[(1−q + q e^{μx−μ²/2}) / (1−q + q e^{−μx−μ²/2})], without cancellation where it is small."""
    drift = mu * x
    with np.errstate(divide="ignore"):
        stay, move = np.log1p(-q), np.log(q) - 0.5 * mu**2
    plain = np.logaddexp(stay, move + drift) - np.logaddexp(stay, move - drift)
    near = np.clip(drift, -1.0, 1.0)
    weight = np.exp(move)
    small = np.log1p(2 * weight * np.sinh(near) / ((1 - q) + weight * np.exp(-near)))
    return np.where(np.abs(drift) < 1, small, plain)


def _threshold(loss: Floats, q: float, mu: Floats) -> Floats:
    """The observation x with L(x) = loss ≥ 0: [ℓ/2 + asinh((1−q)/q · e^{μ²/2} sinh(ℓ/2))]/μ."""
    if q == 1:
        return loss / (2 * mu)
    half = 0.5 * loss
    with np.errstate(divide="ignore"):
        log_sinh = half + np.log(-np.expm1(-loss)) - np.log(2)
    v = np.log1p(-q) - np.log(q) + 0.5 * mu**2 + log_sinh
    return (half + np.where(v > 20, v + np.log(2), np.arcsinh(np.exp(np.minimum(v, 20.0))))) / mu


def tail_masses(bins: WeightBins, q: float, step: float, tail: float) -> tuple[Floats, Floats]:
    """P(L > ℓ_i) and Q(L > ℓ_i) of the mixture at ℓ_i = i·step, i = 0, 1, …

    Each bin is followed until its P-tail is below `tail` and taken as zero
    beyond. The grid ends there, or at a loss of 400 at the latest.
    """
    reach = -float(ndtri(tail))
    order = np.argsort(-bins.shift)
    shift, probability = bins.shift[order], bins.probability[order]
    if bins.long:
        rare = int(np.searchsorted(np.cumsum(probability), tail))
        shift, probability = shift[rare:], probability[rare:]
    longest = np.ceil(np.minimum(one_loss(reach + shift, q, shift), _LARGEST_LOSS) / step).astype(int) + 1
    p_tail, q_tail = np.zeros(longest[0] + 1), np.zeros(longest[0] + 1)
    for start in range(0, len(shift), _GROUP):
        mu, weight = shift[start : start + _GROUP, None], probability[start : start + _GROUP]
        size = longest[start] + 1
        x = _threshold(np.arange(size) * step, q, mu)
        common = (1 - q) * ndtr(-x) if q < 1 else 0.0
        p_tail[:size] += weight @ (common + q * ndtr(mu - x))
        q_tail[:size] += weight @ (common + q * ndtr(-x - mu))
    return p_tail, q_tail


def from_above(bins: WeightBins, q: float, step: float, tail: float) -> GridLaw:
    """Connect-the-dots (Doroshenko et al. 2022): the smallest pair on the grid that dominates the mixture.

    Its hockey-stick curve joins the values D_i at the grid points by chords in e^ε, so Q̃(L > ℓ_i) = (D_i −
    D_{i+1})/(e^{ℓ_{i+1}} − e^{ℓ_i}) and P̃(L > ℓ_i) = D_i + e^{ℓ_i} Q̃(L > ℓ_i). The first, mirrored, is the left half
    of the law and is rounded down, the second the right half and is rounded up: rounding errors and cut-off tails only
    ever move mass upwards.
    """
    p_tail, q_tail = tail_masses(bins, q, step, tail)
    growth = np.exp(step * np.arange(len(p_tail)))
    curve = p_tail - growth * q_tail
    error = _SPECIAL * (p_tail + growth * q_tail)
    chord = -np.diff(curve, append=0.0) / np.expm1(step)  # e^{ℓ_i} Q̃(L > ℓ_i)
    chord_error = (error + np.append(error[1:], 0.0)) / np.expm1(step)
    above = np.minimum.accumulate(np.clip(curve + chord + error + chord_error, 0.0, 1.0))
    below = np.clip((chord - chord_error) / growth, 0.0, 1.0)  # Q̃(L > ℓ_i)
    below = np.maximum.accumulate(below[::-1])[::-1]
    right, left = -np.diff(above), -np.diff(below)  # masses at ±ℓ_1, ±ℓ_2, …
    centre = 1.0 - above[0] - below[0]
    if centre < 0:  # a coarse grid: what the right half has in excess is taken from the left
        left *= max(1.0 - above[0], 0.0) / below[0]
        centre = 0.0
    mass = np.concatenate([left[::-1], [centre], right])
    # beyond the last point: what `tail_masses` cut off, and what was left there
    return GridLaw(step, mass, float(2 * ((1 + bins.long) * tail + p_tail[-1]) + above[-1]))


def from_below(bins: WeightBins, q: float, step: float, tail: float) -> GridLaw:
    """Merge neighbouring losses so that each merged likelihood ratio lies on the grid.

    Post-processing of the mixture, hence dominated by it. Cell i holds the losses in (ℓ_i, ℓ_{i+1}). Grid point i takes
    the share r_i of the cell to its right and l_i of the cell to its left, in proportions that make the ratio of the
    merged outcome e^{ℓ_i}; r_{i−1} = 1 − l_i. The recursion runs from the far tail inwards, where it is stable, once
    for the right half line and once, by the symmetry of the pair, for the left; rounding errors push both down. The
    last cell of a bin holds all beyond; where that is less than what the left half needs, the loss is not on the grid.
    """
    p_tail, q_tail = tail_masses(bins, q, step, tail)
    growth = np.exp(step * np.arange(len(p_tail)))
    p_cell, q_cell = -np.diff(p_tail, append=0.0), -np.diff(q_tail, append=0.0)
    p_cell, q_cell = np.maximum(p_cell, 0.0), np.maximum(q_cell, 0.0)
    surplus = p_cell - growth * q_cell  # of cell i against ℓ_i
    deficit = growth[1:] * q_cell[:-1] - p_cell[:-1]  # of cell i−1 against ℓ_i
    error = _SPECIAL * (p_tail + growth * q_tail)
    error_left = error[:-1] * np.exp(step)
    size = len(p_cell) - 1
    right, left = np.zeros(size + 2), np.zeros(size + 2)
    share = 1.0
    for i in range(size, 0, -1):
        low, high = surplus[i] - error[i], deficit[i - 1] + error_left[i - 1]
        taken = 0.0 if low <= 0 else 1.0 if share * low >= high else share * low / high
        right[i] = share * p_cell[i] + taken * p_cell[i - 1]
        share = 1.0 - taken
    centre = share * p_cell[0]
    share = 1.0
    for i in range(size, 0, -1):
        high, low = max(surplus[i] + error[i], 0.0), deficit[i - 1] - error_left[i - 1]
        wanted = share * high / low if low > 0 else np.inf
        taken = min(wanted, 1.0)
        # the mirrored outcome lies at or above −ℓ_i if its full share was there to take, else above −ℓ_{i+1}
        left[i if wanted <= 1 else i + 1] += share * q_cell[i] + taken * q_cell[i - 1]
        share = 1.0 - taken
    centre += share * q_cell[0] + max(1.0 - float(bins.probability.sum()), 0.0)  # the lowest weights, taken as zero
    mass = np.concatenate([left[:0:-1], [centre], right[1:]])
    return GridLaw(step, mass * (1 - 8 * _SPECIAL), (1 + bins.long) * tail + p_tail[-1])
