"""Noisy sums of bounded statistics of single records: responses, products with the design, moments of the design.

The sums that sufficient-statistic methods ask for, each once. The `Mechanism` or `Composition` that the accountant
certifies is the object that this code runs: the bound of each record, the number of answers and the noise are read from
it. Nothing here needs JAX.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Literal

import numpy as np

from pgbb import _validate
from pgbb._numerics import Floats, Ints
from pgbb.accountant import Composition, Mechanism
from pgbb.errors import PgbbError
from pgbb.private.clipping import DOUBLE, clipped, limit
from pgbb.private.noise import rounded_normals
from pgbb.private.randomness import Randomness

if TYPE_CHECKING:
    from pgbb.private.records import Records


_BITS = 26  # records are rounded toward zero to multiples of C·2⁻²⁶; 2³⁶ of them add up in 64 bits
_CELLS = 2**17  # numbers held at once: a megabyte, which caches hold


@lru_cache(maxsize=32)
def entries(p: int, order: int) -> Ints:
    """Indices i ≤ j ≤ … of the different products of `order` among p variables; shape (count, order).

    >>> entries(2, 2).tolist()
    [[0, 0], [0, 1], [1, 1]]
    """
    table = np.array(list(combinations_with_replacement(range(p), order)), dtype=np.int64).reshape(-1, order)
    table.flags.writeable = False  # one copy for all callers
    return table


@dataclass(frozen=True)
class Moment:
    """A statistic t(x, y) of one record with |x_j| ≤ 1 and |y| ≤ B, in the order of `entries`.

    kind "response" is y; "products" is (xxᵀ, xy, y²) with the different entries of xxᵀ; "second" and "fourth" are the
    different products of two and of four components of x. Replacing one record moves the sum by at most 2·`clip`.

    Args:
      kind: which statistic.
      p: length of x.
      bound: B; y is clipped to [−B, B].
      unit: y is divided by it, after the clip: with B itself no product outweighs the others.

    >>> Moment("products", p=3, bound=5.0).clip, Moment("fourth", p=3).size
    (26.57..., 15)
    """

    kind: Literal["response", "products", "second", "fourth"]
    p: int = 1
    bound: float = 1.0
    unit: float = 1.0

    def __post_init__(self) -> None:
        _validate.one_of("kind", self.kind, ("response", "products", "second", "fourth"))
        _validate.integer("p", self.p, low=1)
        _validate.number("bound", self.bound, above=0)
        _validate.number("unit", self.unit, above=0)

    @property
    def size(self) -> int:
        """Length of the statistic."""
        pairs = self.p * (self.p + 1) // 2
        sizes = {"response": 1, "products": pairs + self.p + 1, "second": pairs, "fourth": math.comb(self.p + 3, 4)}
        return sizes[self.kind]

    @property
    def clip(self) -> float:
        """C, its largest norm: half the sensitivities Δ, nΔ₂ and nΔ₄ of section S3.2 with B_x = 1."""
        largest = self.bound / self.unit
        if self.kind == "response":
            return largest
        if self.kind == "products":
            return math.sqrt(self.p * (self.p + 1) / 2 + self.p * largest**2 + largest**4)
        return math.sqrt(self.size)

    def describe(self, n: int) -> Mechanism:
        """The mechanism of its sum over n records, asked once: the mean with noise σ is the sum with noise nσ."""
        return Mechanism(n=n, blocks=1, sampling_rate=1.0, steps=1, clip=self.clip)

    def of(self, x: Floats, y: Floats) -> Floats:
        """The statistic of each row, unbounded; shape (rows, size)."""
        if self.kind == "response":
            return y[:, None]
        if self.kind == "products":
            i, j = entries(self.p, 2).T
            return np.column_stack([x[:, i] * x[:, j], x * y[:, None], y**2])
        first, *others = entries(self.p, 2 if self.kind == "second" else 4).T
        out = x[:, first]
        for index in others:
            out *= x[:, index]
        return out


def _bounded_sum(records: "Records", moment: Moment, clip: float, shift: float) -> Ints:
    """Σ of weight · t over all records in units of C·2⁻²⁶, each made finite and clipped to C, exactly.

    An invalid record has weight 0. Weights outside [0, 1] are clamped: the bound holds whatever the records hold.
    """
    total, top = np.zeros(moment.size, np.int64), clip * limit(moment.size, DOUBLE)
    rows = max(1, _CELLS // moment.size)
    for start in range(0, records.n, rows):
        part = slice(start, start + rows)
        with np.errstate(over="ignore", invalid="ignore"):
            y = np.clip(records.y[part].astype(np.float64) - shift, -moment.bound, moment.bound) / moment.unit
            weight = np.where(records.valid[part], np.clip(records.weight[part].astype(np.float64), 0.0, 1.0), 0.0)
            vectors = moment.of(records.x[part].astype(np.float64), y) * weight[:, None]
            (whole,) = clipped([vectors], lambda v: np.sum((v / top) ** 2, axis=1, keepdims=True), 2.0**_BITS / clip)
        total += whole.astype(np.int64).sum(axis=0)  # the conversion rounds toward zero
    return total


def noisy_sums(
    records: "Records",
    moments: Sequence[Moment],
    target: Mechanism | Composition,
    sigma: float,
    randomness: Randomness,
    *,
    shift: float = 0.0,
) -> list[tuple[Floats, float]]:
    """Run `target` once: the sum of each moment over all records, with the standard deviation of its noise.

    Mechanism i of `target` has noise σ_i on the mean, hence n·σ_i on the sum, and its clip bounds every record. Calling
    this a second time is a second run, which the certificate of the first does not cover. The response is y − `shift`,
    which is public.
    """
    parts = target.parts(sigma)
    if len(parts) != len(moments):
        raise PgbbError(f"{len(moments)} sums are asked for, but {len(parts)} mechanisms are described.")
    for moment, (m, _) in zip(moments, parts, strict=True):
        if m.n != records.n:
            raise PgbbError(f"the mechanism is described for n = {m.n} records, but {records.n} were loaded.")
        if m.blocks != 1 or m.sampling_rate != 1 or m.answers != 1:
            raise PgbbError("a sum over all records is one answer with blocks = 1 and sampling_rate = 1.")
        if m.clip < moment.clip:
            raise PgbbError(f"the mechanism certifies C = {m.clip:g}, but {moment.kind!r} clips at {moment.clip:g}.")
        if moment.kind != "response" and moment.p != records.p:
            raise PgbbError(f"{moment.kind!r} is described for p = {moment.p}, but the design has {records.p}.")
    sums = []
    for moment, (m, scale) in zip(moments, parts, strict=True):
        noise, clip = m.n * scale, min(moment.clip, m.clip)
        grid = clip * 2.0**-_BITS
        total = _bounded_sum(records, moment, clip, shift)
        whole = total + rounded_normals(randomness.noise, noise, grid, total.shape)
        sums.append((whole.astype(np.float64) * grid, noise))
    return sums
