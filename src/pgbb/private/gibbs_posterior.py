"""Draws of Gibbs posteriors ∝ exp{−Σ_i l(θ, x_i)/σ}, uniform on a box, with a bounded loss: for "posterior_sampling".

Nothing is added to a draw: that it is random is what protects the records. `PosteriorDraws`, which the accountant
certifies, is the object that this code runs. One parameter: the draw is that of the exponential mechanism on a public
grid, with whole-number weights and random bits from the secret stream, and a uniform place inside its cell; exact.
Several parameters: Metropolis chains, whose law is the posterior in the limit; the certificate says it.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Floats
from pgbb.accountant import PosteriorDraws
from pgbb.errors import PgbbError
from pgbb.model.loss_values import BoundedLoss
from pgbb.private.noise import Stream
from pgbb.private.randomness import Randomness

if TYPE_CHECKING:
    from pgbb.private.records import Records

__all__ = ["CELLS", "BoundedLoss", "posterior_draws"]

LogDensity = Callable[[Floats], Floats]

CELLS = 2**13
"""Cells of the grid of a single parameter."""
_BITS = 30  # losses are whole numbers of (high − low)·2⁻³⁰
_WEIGHT = 256  # bits of a weight on the grid
_NUMBERS = 2**21  # losses held at once
_ROUNDS, _PROPOSALS = 10, 400  # rounds of importance sampling, and proposals in each
_STEPS, _MORE_STEPS = 60, 40  # steps of every chain, and further ones for each parameter
_LEAST_CHAINS = 20  # least number of chains in a half
_HEAVY = 5.0  # degrees of freedom of the proposal


def posterior_draws(
    records: "Records",
    losses: Sequence[BoundedLoss],
    target: PosteriorDraws,
    sigma: float,
    randomness: Randomness,
    *,
    shift: float = 0.0,
    chains: bool | None = None,
) -> Floats:
    """Equally many draws of the posterior of each loss, (losses, m, d), internal coordinates.

    Losses with a smaller Δ than the certified one get a smaller σ in proportion. `chains` overrides which way to draw.
    """
    if records.n != target.n:
        raise PgbbError(f"the draws are described for n = {target.n} records, but {records.n} were loaded.")
    count = target.draws // len(losses)
    if count * len(losses) != target.draws:
        raise PgbbError(f"{target.draws} draws cannot be shared out to {len(losses)} posteriors.")
    x, y = records.x.astype(np.float64), records.y.astype(np.float64) - shift
    usable = records.valid & np.isfinite(x).all(axis=1) & np.isfinite(y)
    x, y = np.where(usable[:, None], x, 0.0), np.where(usable, y, 0.0)  # in place: shapes depend on n alone
    found = []
    for loss in losses:
        temperature = sigma * loss.sensitivity / target.sensitivity
        if loss.sensitivity > target.sensitivity:
            raise PgbbError(f"Δ = {target.sensitivity:g} is certified, but that of a loss is {loss.sensitivity:g}.")
        density = _log_density(loss, x, y, usable, temperature)
        single = len(loss.box[0]) == 1 if chains is None else not chains
        found.append((_on_grid if single else _by_chains)(density, loss.box, count, randomness.noise))
    return np.array(found)


def _log_density(loss: BoundedLoss, x: Floats, y: Floats, usable: NDArray[np.bool_], temperature: float) -> LogDensity:
    """Make the log density θ (k, d) → (k,). It sums whole numbers, so that a record moves it by its own part alone.

    A record that is not usable has a loss of zero, whatever θ is. It keeps its place: programs differ in their last
    bits between numbers of rows, and no cell may decide which one runs.
    """
    unit = (loss.high - loss.low) * 2.0**-_BITS
    lowest = math.ceil(loss.low / unit)

    def at(theta: Floats) -> Floats:
        total, rows = np.zeros(len(theta), np.int64), max(1, _NUMBERS // len(theta))
        for start in range(0, len(y), rows):
            chosen = slice(start, start + rows)
            with np.errstate(all="ignore"):
                part = loss.part(theta, x[chosen], y[chosen])
            part = np.clip(np.where(np.isfinite(part), part, 0.0), loss.low, loss.high)
            whole = np.floor((part - loss.low) / unit).astype(np.int64) + lowest
            total += np.where(usable[chosen, None], whole, 0).sum(axis=0)
        return np.asarray(-(total * unit + len(y) * loss.rest(theta)) / temperature)

    return at


def _on_grid(density: LogDensity, box: tuple[Floats, Floats], count: int, stream: Stream) -> Floats:
    """Draw cells of a grid by weights that are whole numbers below 2²⁵⁶, and a uniform place in each cell."""
    low, width = float(box[0][0]), float(box[1][0] - box[0][0]) / CELLS
    log = np.concatenate([density(part) for part in np.split(low + width * (np.arange(CELLS)[:, None] + 0.5), 64)])
    weights = [int(math.ldexp(w, _WEIGHT)) for w in np.exp(log - log.max()).tolist()]
    ends, total = [], 0
    for weight in weights:
        total += weight
        ends.append(total)
    cells = [bisect_right(ends, number) for number in _below(total, count, stream)]
    inside = (stream.words(count) >> np.uint64(11)) * 2.0**-53
    return (low + width * (np.array(cells) + inside))[:, None]


def _below(total: int, count: int, stream: Stream) -> list[int]:
    """Uniform whole numbers below `total`: uniform bits, drawn again where they are not below it."""
    bits = total.bit_length()
    size = 8 * -(-bits // 64)
    found: list[int] = []
    while len(found) < count:
        raw = stream.words(size // 8 * count).tobytes()
        drawn = (int.from_bytes(raw[i : i + size]) >> (8 * size - bits) for i in range(0, len(raw), size))
        found += [number for number in drawn if number < total]
    return found[:count]


@np.errstate(all="ignore")
def _by_chains(density: LogDensity, box: tuple[Floats, Floats], count: int, stream: Stream) -> Floats:
    """The last states of differential evolution chains (ter Braak 2006), in two halves that move each other.

    A half moves by differences of the other's states, so that independent draws of the posterior are the law in the
    limit. All numbers of iterations are fixed, and nothing but last states is seen.
    """
    rng = np.random.Generator(np.random.PCG64DXSM([int(word) for word in stream.words(4)]))
    (low, high), proposal = box, _fitted(density, box, rng)
    size = 2 * max(-(-count // 2), 2 * len(low), _LEAST_CHAINS)
    halves = slice(size // 2), slice(size // 2, None)
    state = np.clip(proposal.draw(size, rng)[0], low, high)
    value = density(state)
    for step in range(_STEPS + _MORE_STEPS * len(low)):
        length = 1.0 if step % 10 == 9 else 2.38 / math.sqrt(2 * len(low))
        for own, other in (halves, halves[::-1]):
            first, second = state[other][rng.integers(size // 2, size=(2, size // 2))]
            theta = state[own] + length * (first - second) + 1e-6 * (high - low) * rng.standard_normal(first.shape)
            log = _inside(density, theta, box, proposal.centre)
            moves = np.log(rng.random(len(log))) < log - value[own]
            state[own], value[own] = np.where(moves[:, None], theta, state[own]), np.where(moves, log, value[own])
    return state[:count]


def _inside(density: LogDensity, theta: Floats, box: tuple[Floats, Floats], centre: Floats) -> Floats:
    """The log density at each point, −∞ outside the box; it is evaluated at the centre there."""
    there = np.all((theta >= box[0]) & (theta <= box[1]), axis=1)
    return np.where(there, density(np.where(there[:, None], theta, centre)), -np.inf)


@dataclass(frozen=True)
class _Proposal:
    """A multivariate t distribution with `_HEAVY` degrees of freedom."""

    centre: Floats
    covariance: Floats

    def draw(self, size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draws, and minus the logarithm of their density up to a constant."""
        root, d = np.linalg.cholesky(self.covariance), len(self.centre)
        standard = rng.standard_normal((size, d)) * np.sqrt(_HEAVY / rng.chisquare(_HEAVY, size))[:, None]
        tail = (_HEAVY + d) / 2 * np.log1p(np.square(standard).sum(axis=1) / _HEAVY)
        return self.centre + standard @ root.T, tail


def _fitted(density: LogDensity, box: tuple[Floats, Floats], rng: np.random.Generator) -> _Proposal:
    """A proposal that is fitted to the posterior in rounds of importance sampling, at temperatures that fall to 1."""
    low, high = box
    found = _Proposal((low + high) / 2, np.diag(np.square(high - low) / 12))
    for i in range(_ROUNDS):
        theta, tail = found.draw(_PROPOSALS, rng)
        log = _inside(density, theta, box, found.centre)
        ratio = np.where(np.isfinite(log), log * 3.0 ** (i + 1 - _ROUNDS), -np.inf) + tail
        if not np.isfinite(ratio).any():
            found = replace(found, covariance=found.covariance / 4)
            continue
        weights = np.exp(ratio - ratio.max())
        weights /= weights.sum()
        moved = weights @ theta
        spread = (theta - moved).T @ (weights[:, None] * (theta - moved))
        before = found.covariance * float(np.square(weights).sum())  # few effective draws say little of the spread
        found = _Proposal(np.clip(moved, low, high), 1.3 * spread + before + np.diag(1e-12 * (high - low) ** 2))
    return found
