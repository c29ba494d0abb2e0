"""Poisson regression: the model of counts and rates, bound to a public schema."""

import math
from dataclasses import dataclass, replace

import numpy as np

from pgbb.errors import InvalidValue
from pgbb.model.problem import Namespace, Problem, Values
from pgbb.model.schema import Range, Schema

SMALLEST = 14.0  # natural logarithms below the largest count: the smallest mean that the box allows


@dataclass(frozen=True)
class PoissonRegression:
    """Poisson regression with log link: log E(y | x) = xᵀβ, or log E(y | x) = log(exposure) + xᵀβ.

    The target is the minimiser of E(μ − y log μ), whatever the law of the counts is: the variance need not be the
    mean. The gradient is (μ − y)x. A count and a mean inside the declared range differ by no more than its length
    L, so C = L·sup‖x‖ for such β; the default method finds a smaller bound privately, and says what it clips.

    Args:
      formula: such as "visits ~ age + insured"; the response is a Range from 0 on, in whole steps if it has any.
      exposure: a column of positive numbers, such as years at risk; then coefficients are about rates.
    """

    formula: str
    exposure: str | None = None

    def prepare(self, schema: Schema) -> Problem:
        """The problem under this schema: gradient of a record, bound C, box and units; an error if it does not fit."""
        from pgbb.model.formula import Design
        from pgbb.model.terms import Power, bounded

        design = Design.parse(self.formula, schema)
        declared = schema[design.response]
        if design.answer.name != design.response:
            raise InvalidValue(
                f"response {design.answer.name!r} is not allowed: a Poisson regression has a logarithm of its own, "
                f"that of the mean. Write {design.response}, or LinearRegression for the mean of the logarithm."
            )
        if not isinstance(declared, Range) or declared.low < 0:
            raise InvalidValue(
                f"response {design.response!r} is declared as {declared!r}, but counts have public bounds and are not "
                f"negative: declare {design.response}=Range(0, high)."
            )
        if declared.step is not None and declared.step != round(declared.step):
            raise InvalidValue(
                f"response {design.response!r} is declared as {declared!r}, but counts are whole numbers: declare "
                "step=1, or no step. For a rate, take the count as response and exposure=."
            )
        shortest = longest = 1.0
        if self.exposure is not None:
            years = schema.get(self.exposure)
            if not isinstance(years, Range) or not years.low > 0:
                given = "not declared" if years is None else f"declared as {years!r}"
                raise InvalidValue(
                    f"exposure = {self.exposure!r} is {given}, it must be a Range of positive numbers: raise its low "
                    "end above 0. Values below are clamped to it."
                )
            if self.exposure in (design.response, *design.columns):
                raise InvalidValue(
                    f"exposure = {self.exposure!r} is not allowed: the column is in the formula too, where it has a "
                    "coefficient of its own. Leave it out of one of the two."
                )
            shortest, longest = years.bounds
            offset = bounded(f"log({self.exposure})", (Power(self.exposure, 1, True),), schema)
            design = replace(design, offset=offset)
        p = len(design.names)
        center, radius = np.zeros(p), np.full(p, 8.0)
        if design.has_intercept:
            low, high = math.log(declared.high / longest) - SMALLEST, math.log(declared.high / shortest) + 2
            center[0], radius[0] = (low + high) / 2, (high - low) / 2

        def score(xp: Namespace, theta: Values, linear: Values, y: Values, _: Values) -> tuple[Values, None]:
            return xp.exp(linear) - y, None

        clip, most = (declared.high - declared.low) * design.norm_bound, math.log(declared.high) + 1
        settings = {"exposure": self.exposure, "most": most}
        return Problem.regression("poisson", design, score, clip=clip, center=center, radius=radius, settings=settings)
