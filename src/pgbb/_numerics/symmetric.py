"""Symmetric matrices: isometric coordinates, in which the Euclidean norm is that of the matrix, and square roots."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Floats

Ints = NDArray[np.intp]


@lru_cache(maxsize=64)
def triangle(d: int) -> tuple[Ints, Ints, Floats]:
    """Rows and columns of the upper triangle of a (d, d) matrix, and the length of each: 1, or √2 off the diagonal.

    >>> [part.round(2).tolist() for part in triangle(2)]
    [[0, 0, 1], [0, 1, 1], [1.0, 1.41, 1.0]]
    """
    rows, columns = np.triu_indices(d)
    length = np.where(rows == columns, 1.0, np.sqrt(2.0))
    rows.flags.writeable = columns.flags.writeable = length.flags.writeable = False  # one copy for all callers
    return rows, columns, length


def unpack(packed: Floats, d: int) -> Floats:
    """(…, d(d+1)/2) isometric coordinates as symmetric matrices (…, d, d): upper triangle, off-diagonals over √2.

    >>> unpack(np.array([1.0, 2.0**0.5, 3.0]), 2).tolist()
    [[1.0, 1.0], [1.0, 3.0]]
    """
    rows, columns, length = triangle(d)
    values = packed / length
    matrix = np.empty((*packed.shape[:-1], d, d))
    matrix[..., rows, columns] = values
    matrix[..., columns, rows] = values
    return matrix


def pack(matrix: Floats) -> Floats:
    """The coordinates of `unpack`, in which the Euclidean norm is the Frobenius norm of the matrix."""
    rows, columns, length = triangle(matrix.shape[-1])
    return matrix[..., rows, columns] * length


def direction_sd(vectors: Floats, sd: Floats) -> Floats:
    """Noise of vᵀHv for each unit column v, where the packed coordinates of H have independent noise `sd`."""
    rows, columns, _ = triangle(len(vectors))
    square, variance = vectors**2, np.empty((len(vectors), len(vectors)))
    variance[rows, columns] = variance[columns, rows] = np.asarray(sd) ** 2
    result: Floats = np.sqrt(np.sum(variance @ square * square, axis=0))
    return result


def roots(covariance: Floats) -> tuple[Floats, Floats]:
    """The square root of a covariance, and the inverse of the root."""
    low, turn = np.linalg.eigh(covariance)
    low = np.sqrt(np.maximum(low, 1e-12 * float(low[-1]) + 1e-300))
    return (turn * low) @ turn.T, (turn / low) @ turn.T


def geometric_mean(covariance: Floats, precision: Floats) -> Floats:
    """The positive X with XD⁻¹X = A, for a covariance D and a precision A: −X⁻¹·noise has the covariance A⁻¹.

    >>> geometric_mean(np.diag([4.0, 1.0]), np.diag([9.0, 1.0])).tolist()
    [[6.0, 0.0], [0.0, 1.0]]
    """
    root, unroot = roots(covariance)
    squares, vectors = np.linalg.eigh(unroot @ precision @ unroot)
    middle = root @ (vectors * np.sqrt(np.maximum(squares, 0.0))) @ vectors.T @ root
    found: Floats = (middle + middle.T) / 2
    return found
