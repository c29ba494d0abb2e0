"""What any method asks of n records under a budget, before any data is opened: for `pgbb plan --method`.

The method plans for a model of a given kind and size over a schema that is made up for it, as it does before a fit.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pgbb.accountant import Mechanism, Own
from pgbb.accountant.calibrate import Accountant
from pgbb.errors import InvalidValue
from pgbb.methods.registry import Method, settings_for
from pgbb.methods.request import Planned, Request
from pgbb.planning.forecast import Reference


@dataclass(frozen=True)
class Asked:
    """What a method asks, at which noise, and what follows from that alone.

    Attributes:
      method, reference, n, epsilon, delta, accountant: of the plan.
      planned: what is asked and certified.
      remarks: a sentence each.
    """

    method: Method
    reference: Reference
    n: int
    epsilon: float
    delta: float
    accountant: str
    planned: Planned
    remarks: tuple[str, ...]

    @property
    def parts(self) -> list[tuple[Mechanism | Own, float]]:
        """Each question with its noise."""
        return list(self.planned.mechanism.parts(self.planned.sigma))

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "method": self.method.name,
            "n": self.n,
            "epsilon": self.epsilon if self.planned.claim is None else self.planned.claim,
            "delta": self.delta,
            "accountant": self.accountant,
            "reference": asdict(self.reference),
            "questions": [
                {"mechanism": asdict(m), "answers": m.answers, "noise": noise, "noise_multiplier": multiplier(m, noise)}
                for m, noise in self.parts
            ],
            "asks": self.method.asks,
            "draws": self.method.draws,
            "assumes": self.method.assumes,
            "remarks": list(self.remarks),
        }


def multiplier(mechanism: Mechanism | Own, noise: float) -> float:
    """Noise over what one record can add: σ·n_S/C, or σ/Δ."""
    return 1 / mechanism.signal(noise) if isinstance(mechanism, Mechanism) else noise / mechanism.sensitivity


def forecast_asked(
    name: str,
    n: int,
    epsilon: float,
    delta: float,
    reference: Reference,
    *,
    accountant: Accountant = "exact",
    settings: Mapping[str, object] | None = None,
) -> Asked:
    """Plan a method for a model of this kind: covariates in [−1, 1], a response within ±half, or ±5 spreads."""
    method, constants = settings_for(name, settings or {})
    half = reference.half or 5 * reference.spread
    model, schema = reference.model(half)
    if reference.family == "custom":
        raise InvalidValue(
            "--family custom has no plan by this method: its loss is not known. Rehearse on simulated data."
        )
    request = Request(
        model=model, data="never opened", schema=schema, epsilon=epsilon, delta=delta, accountant=accountant
    )
    method.check(model, model.prepare(schema))
    planned = method.load().plan(request, constants, n)
    remarks = [f"for covariates in [−1, 1] and a response within ±{half:g}", *planned.notes]
    if method.name == "posterior_sampling":
        remarks.append(
            f"tempering ω = {1 / planned.sigma:.3g}: intervals are about {math.sqrt(max(planned.sigma, 1)):.3g} times "
            "as wide as without privacy"
        )
    elif method.name == "dp_mcmc":
        length = constants.length(model.prepare(schema), n, planned.sigma)
        way = length * math.sqrt(constants.steps / 3)
        remarks.append(
            f"a step is at most {length:.3g} long, and all of them wander about {way:.3g}, where a posterior is "
            f"about {1 / math.sqrt(n * constants.tempering):.3g} wide: it mixes if the way is many times that"
        )
    return Asked(method, reference, n, epsilon, delta, accountant, planned, tuple(remarks))
