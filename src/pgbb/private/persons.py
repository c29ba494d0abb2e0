"""Sums of outer products by person, and how much one record can change them.

A person c has the sum S of vectors of norm at most 1, one a record, over g, cut to length 1. The answer is
(g/2) Σ_c SSᵀ. Another record instead of one of the same person moves its S by at most 2/g, and SSᵀ by at most
‖S‖ + ‖S'‖ ≤ 2 times that; a record that goes to another person moves two of them by at most 1/g each: whatever cells
change, its person's name among them, the answer moves by at most 2, as that of any statistic of norm 1
(docs/privacy.md, section 16). Sums are of whole numbers, and each product is a function of its person's alone.
"""

import math

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Ints
from pgbb._numerics.symmetric import triangle

_CHUNK = 2**14  # persons at a time; bounds memory, not results


def outer_sums(added: NDArray[np.int32], persons: NDArray[np.intp], group_size: int, bits: int) -> Ints:
    """(g/2) Σ_c Σ_k S_k S_kᵀ, packed, in units of 2^−bits; of the vectors that n records add, (n, k, p), in such units.

    >>> outer_sums(np.array([[[1024]], [[1024]], [[-1024]]], np.int32), np.array([0, 0, 1]), 2, 10).tolist()
    [1276]
    """
    n, blocks, p = added.shape
    rows, columns, length = triangle(p)
    count = int(persons.max(initial=-1)) + 1
    sums = np.stack([np.bincount(persons, column, count) for column in added.reshape(n, -1).T], axis=1)
    unit = 2.0**bits
    margin = 1 - (math.sqrt(len(rows)) + 1) / unit - 1e-9  # products are rounded to whole numbers: by at most one each
    result = np.zeros(len(rows), np.int64)
    for start in range(0, count, _CHUNK):
        s = sums[start : start + _CHUNK] / (group_size * unit)
        square = np.zeros(len(s))
        for column in s.T:  # one by one: the order of a sum is then the same for every person
            square += column**2
        s = (s / np.maximum(np.sqrt(square), 1.0)[:, None]).reshape(-1, blocks, p)
        products = np.zeros((len(s), len(rows)))
        for block in range(blocks):
            products += s[:, block, rows] * s[:, block, columns]
        result += np.trunc(products * (length * (group_size / 2 * margin * unit))).astype(np.int64).sum(axis=0)
    return result
