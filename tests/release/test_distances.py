import numpy as np
import pandas as pd
import pytest
from scipy.stats import wasserstein_distance

from pgbb import InvalidValue
from pgbb.release.distances import wasserstein


def test_distances_are_those_of_scipy_and_of_shifted_laws():
    rng = np.random.default_rng(0)
    a, b = (
        pd.DataFrame(rng.normal(size=(70, 2)), columns=["x", "y"]),
        pd.DataFrame(rng.normal(size=(31, 2)), columns=["x", "y"]),
    )
    found = wasserstein(a, b)
    assert found.tolist() == pytest.approx([wasserstein_distance(a[c], b[c]) for c in a])
    assert wasserstein(a, a + 2.0, order=2).tolist() == pytest.approx([2.0, 2.0])
    assert (wasserstein(a, b, order=3) > found).all()


@pytest.mark.parametrize(
    "others, order", [({"y": [1.0]}, 1), ({"x": []}, 1), ({"x": [np.nan]}, 1), ({"x": [1.0]}, 0.5)]
)
def test_draws_that_cannot_be_compared_are_refused(others, order):
    with pytest.raises(InvalidValue):
        wasserstein(pd.DataFrame({"x": [0.0]}), pd.DataFrame(others), order)
