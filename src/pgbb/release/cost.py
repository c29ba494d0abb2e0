"""What several releases on the same records cost together: arithmetic on their certificates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pgbb.accountant import Composition, Mechanism, compose, epsilon
from pgbb.errors import PgbbError
from pgbb.release.certificate import Certificate


@dataclass(frozen=True)
class Cost:
    """What several releases on the same records cost together, for replacing one record.

    Attributes:
      epsilon, delta: the sums of what the certificates claim (basic composition).
      tighter: ε at the same δ when the mechanisms in `composed` are composed exactly, which is allowed because all of
        them were fixed before the first answer; None where there are none, or where no figure can be certified.
      composed: the methods whose mechanisms were composed; the others enter with their own (ε, δ).
      private: no release was made without noise or with an insecure seed.
    """

    epsilon: float
    delta: float
    tighter: float | None
    composed: tuple[str, ...]
    private: bool

    def to_dict(self) -> dict[str, object]:
        """A JSON object; an infinite ε is null."""
        return {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "tighter_epsilon": self.tighter,
            "composed": list(self.composed),
            "private": self.private,
        }


def total_cost(certificates: Mapping[str, Certificate]) -> Cost:
    """The cost of all releases, which are named by the keys.

    Noisy weighted sums compose exactly: ε of the joint mechanism at the sum of
    their δ. Any other mechanism adds its (ε, δ).

    >>> m = Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    >>> c = Certificate(1.0, 1e-5, .0075, m, "exact", "operating system")
    >>> cost = total_cost({"one": c, "two": c})
    >>> cost.epsilon, cost.delta, round(cost.tighter, 2)
    (2.0, 2e-05, 1.39)
    """
    claims = list(certificates.values())
    basic, delta = math.fsum(c.epsilon for c in claims), math.fsum(c.delta for c in claims)
    private = all(c.private for c in claims)
    sums = {name: c for name, c in certificates.items() if isinstance(c.mechanism, Mechanism | Composition)}
    share = math.fsum(c.delta for c in sums.values())
    if not sums or share >= 1 or any(c.non_private for c in claims):
        return Cost(basic, delta, None, (), private)
    parts = [part for c in sums.values() for part in c.parts]
    others = math.fsum(c.epsilon for name, c in certificates.items() if name not in sums)
    try:
        joint = compose([cast(Mechanism, m) for m, _ in parts], scales=[noise for _, noise in parts])
        exact = epsilon(joint, 1.0, share) + others  # scales are the noises themselves
    except (PgbbError, ArithmeticError):
        return Cost(basic, delta, None, (), private)
    return Cost(basic, delta, min(exact, basic), tuple(sums), private)
