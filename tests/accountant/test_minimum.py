"""The least value between two ends: the steps of SciPy, bit for bit."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from pgbb.accountant.minimum import minimum_between

pytestmark = pytest.mark.quick


def test_minima_are_those_of_scipy_to_the_last_bit():
    rng = np.random.default_rng(0)
    for _ in range(300):
        (a, b, c), (low, high) = rng.normal(size=3), sorted(rng.uniform(-5, 5, 2))
        power, digits, tolerance = rng.uniform(1, 3), rng.choice([1, 17]), 10.0 ** rng.uniform(-9, -2)

        # rounded to one digit it has flat places
        def wave(x, a=a, b=b, c=c, power=power, digits=int(digits)):
            return round(float(abs(x - a) ** power + b * np.sin(3 * c * x)), digits)

        known = minimize_scalar(wave, bounds=(low, high), method="bounded", options={"xatol": tolerance})
        assert minimum_between(wave, low, high, tolerance) == known.x


def test_another_tolerance_gives_another_place():
    places = [minimum_between(lambda x: (x - 1.2345) ** 4, 0.0, 3.0, tolerance) for tolerance in (1e-2, 1e-4)]
    assert places[0] != places[1]
