"""What the accountants certify: a frozen, validated description of the answers given.

No arithmetic of privacy lives here, and no data ever does. The package that runs the mechanism builds it from the same
object, so that the certificate and the code cannot drift apart.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate
from pgbb.errors import InvalidValue, PgbbWarning

Floats = NDArray[np.float64]
LARGEST = 8.0
"""Most times its equal share of a block that a record weighs with nested weights."""
CONCENTRATED = 1e6
"""Largest concentration of weights: equal weights for all that single precision shows."""


def gamma_star(n: int, blocks: int) -> float:
    """γ*(n, S) = (S(n+1) − 2n) / (S(n−1)), the variance-matching concentration (paper, eq. alpha-star).

    >>> gamma_star(10_000, 20)
    0.900190019001900...
    """
    blocks = _validate.integer("blocks", blocks, low=3, remedy="γ* needs S ≥ 3; pass gamma= yourself.")
    n = _validate.integer("n", n, low=blocks)
    return (blocks * (n + 1) - 2 * n) / (blocks * (n - 1))


@dataclass(frozen=True)
class Mechanism:
    """T·K answers s̃ = Σ_{i∈B} w̄_i a(x_i) + N(0, σ²I), with ‖a‖ ≤ C and a fresh batch B ~ Poisson(q) for each.

    Two data sets are neighbours when one of the n records is replaced; n is public. A record in block s has weight w̄ =
    u_s/|I_s| with u ~ Dirichlet(γ1_S, α), so u_s ~ Beta(γ, (S−1)γ + α), and |I_s| ≥ ⌊n/S⌋. With `blocks=1` the weight
    is the constant 1/n. With `nested` it is w̄ = u_s·min(v, 8/n_S) with v ~ Dirichlet within the block. The noise scale
    σ is not part of the description: it is what the accountants are asked about. It is measured against C (not 2C), on
    the scale of the weighted sum; noise on a plain sum of n records is `blocks=1` with n·σ.

    Args:
      n: number of records.
      blocks: S, the number of blocks.
      sampling_rate: q, probability that a record joins a batch.
      steps: T.
      clip: C, the largest norm of one record's statistic.
      gamma: γ; None means γ*(n, S).
      alpha: α, total Dirichlet mass of public pseudo-samples.
      draws_per_step: K, number of answers in a step.
      nested: concentration of Dirichlet weights v within blocks; None means equal ones.

    >>> m = Mechanism(n=10_000, blocks=20, sampling_rate=.1, steps=10_000, clip=2.648)
    >>> m.block_size, m.answers, round(m.concentration, 4)
    (500, 10000, 0.9002)
    """

    n: int
    blocks: int
    sampling_rate: float
    steps: int
    clip: float
    gamma: float | None = None
    alpha: float = 0.0
    draws_per_step: int = 1
    nested: float | None = None

    def __post_init__(self) -> None:
        _validate.integers(self, "n", low=1)
        _validate.integers(self, "blocks", low=1, high=self.n, remedy=f"There are n = {self.n} records to share out.")
        _validate.numbers(self, "sampling_rate", above=0, high=1)
        _validate.integers(self, "steps", "draws_per_step", low=1)
        _validate.numbers(self, "clip", above=0)
        _validate.numbers(self, "alpha", low=0)
        if self.nested is not None:
            if self.blocks == 1 or self.block_size < 2:
                raise InvalidValue(
                    f"nested = {self.nested!r} with blocks = {self.blocks} of n = {self.n} records is not allowed: "
                    "weights within blocks need two blocks or more, of two records or more. Leave out nested."
                )
            least, why = 1 / self.block_size, "With less, a block is mostly one record. None means equal weights."
            _validate.numbers(self, "nested", low=least, high=CONCENTRATED, remedy=why)
        if self.blocks == 1:
            if self.gamma is not None or self.alpha != 0:
                raise InvalidValue(
                    f"gamma = {self.gamma!r}, alpha = {self.alpha!r} with blocks = 1 is not allowed: one block means "
                    "the constant weight 1/n, which has no Dirichlet law. Leave both out, or take blocks ≥ 2."
                )
        elif self.gamma is not None:
            _validate.numbers(self, "gamma", above=0, remedy="None means γ*(n, S).")
        elif self.blocks < 3:
            raise InvalidValue(
                f"gamma = None with blocks = {self.blocks} is not allowed: γ*(n, S) needs blocks ≥ 3. "
                "Take more blocks, blocks = 1 for constant weights, or pass gamma > 0 yourself."
            )
        elif self.blocks < 5:
            warnings.warn(
                f"gamma = None with blocks = {self.blocks}: the variance matching of γ* is proved for Sγ ≥ 3, which "
                "blocks ≥ 5 guarantees. The privacy certificate is not affected.",
                PgbbWarning,
                stacklevel=3,
            )

    @property
    def block_size(self) -> int:
        """n_S = ⌊n/S⌋, the smallest block of the balanced partition."""
        return self.n // self.blocks

    @property
    def answers(self) -> int:
        """T·K, the number of noisy answers."""
        return self.steps * self.draws_per_step

    @property
    def concentration(self) -> float:
        """γ with the default resolved; inf for constant weights."""
        if self.blocks == 1:
            return math.inf
        return gamma_star(self.n, self.blocks) if self.gamma is None else self.gamma

    @property
    def beta_law(self) -> tuple[float, float] | None:
        """(γ, (S−1)γ + α), the Beta law of n_S·w̄; None for constant weights."""
        if self.blocks == 1:
            return None
        return self.concentration, (self.blocks - 1) * self.concentration + self.alpha

    @property
    def nested_law(self) -> tuple[float, float] | None:
        """The Beta law of v in the smallest block; None for equal weights."""
        return None if self.nested is None else (self.nested, (self.block_size - 1) * self.nested)

    @property
    def reach(self) -> float:
        """The largest n_S·w̄: 1, or with nested weights 8."""
        return 1.0 if self.nested is None else min(LARGEST, self.block_size)

    @property
    def kappa(self) -> float:
        """κ = E[(n_S w̄)²] over `reach`² = γ(γ+1) / ((Sγ+α)(Sγ+α+1)); 1 for constant weights.

        With nested weights that times E v²·n_S², as if they were not cut, over `reach`².
        """
        found = 1.0
        for law in (self.beta_law, self.nested_law):
            if law is not None:
                a, total = law[0], law[0] + law[1]
                found *= a * (a + 1) / (total * (total + 1))
        return found if self.nested is None else found * (self.block_size / self.reach) ** 2

    def parts(self, sigma: float) -> list[tuple["Mechanism", float]]:
        """Itself with its noise scale: a composition of one."""
        return [(self, sigma)]

    def signal(self, sigma: float) -> float:
        """C/(σ n_S)·reach, the largest shift one record can cause, in units of the noise."""
        return self.clip * self.reach / (sigma * self.block_size)


@dataclass(frozen=True)
class Composition:
    """Mechanisms fixed in advance and run on the same records; mechanism i has noise `sigma * scales[i]`."""

    mechanisms: tuple[Mechanism, ...]
    scales: tuple[float, ...]

    def parts(self, sigma: float) -> list[tuple[Mechanism, float]]:
        """Each mechanism with its own noise scale."""
        return [(m, sigma * s) for m, s in zip(self.mechanisms, self.scales, strict=True)]


def compose(mechanisms: Sequence[Mechanism], scales: Sequence[float] | None = None) -> Composition:
    """Describe several mechanisms run on the same records, all of them fixed before the first answer.

    The result goes wherever a `Mechanism` goes. With `scales`, mechanism i runs at noise `sigma * scales[i]`: pass the
    clips to give all the same noise multiplier. A mechanism that is *chosen* after seeing the answers of another is not
    covered: that needs a privacy filter.

    >>> a = Mechanism(n=1000, blocks=1, sampling_rate=.1, steps=10, clip=1.0)
    >>> b = Mechanism(n=1000, blocks=1, sampling_rate=.1, steps=10, clip=2.0)
    >>> compose([a, b], scales=[1.0, 2.0]).scales
    (1.0, 2.0)
    """
    members = tuple(mechanisms)
    if not members or not all(isinstance(m, Mechanism) for m in members):
        raise _validate.fail("mechanisms", mechanisms, "a non-empty sequence of Mechanism")
    if len({m.n for m in members}) > 1:
        raise _validate.fail(
            "mechanisms", [m.n for m in members], "descriptions of the same n records", "Make their n equal."
        )
    factors = (1.0,) * len(members) if scales is None else tuple(scales)
    if len(factors) != len(members):
        raise _validate.fail("scales", scales, f"a sequence of {len(members)} positive numbers, one a mechanism")
    return Composition(members, tuple(_validate.number("scales", s, above=0) for s in factors))
