"""Repro samples of a logistic regression from noisy sums of products, by simulated records.

The release is that of a linear regression with the response 2y − 1: sums of xxᵀ and of x(2y − 1). Their law depends on
that of the covariates, which are taken for draws of a normal law, clamped to [−1, 1], whose moments are candidates:
what could have been released, the sums less fresh noise. The other coefficients fit the candidate's sums.
"""

import numpy as np
from scipy.special import expit

from pgbb._numerics import Floats
from pgbb.methods.repro.intervals import Share
from pgbb.methods.repro.regression import FARTHER, extreme, matrices
from pgbb.private.door import entries

FLOOR = 0.02  # the smallest eigenvalue of xxᵀ/n that an estimate divides by
POOL = 2_000  # simulated records to which the other coefficients are fitted
NEWTON = 12
NUMBERS, FEWEST = 2**26, 4  # simulated covariates held at once, which limit the candidates, and the fewest of these


class Logistic:
    """Confidence intervals of contrasts of the coefficients.

    A value of a contrast is accepted if, at one of the candidates, more than the share error/2 of R simulated releases
    have an estimate as extreme as that of the release. The estimate is that of a linear regression: any function of the
    release would do.

    Args:
      n: number of records.
      total: noisy sums of (xxᵀ, x(2y − 1), 1), in the order of `entries`.
      noise: τ.
      intercept: whether the first term is constant.
      radius: the box of the coefficients.
      candidates, replicates: how many; fewer candidates where there are many records.
      rng: public random numbers.
    """

    def __init__(
        self, n: int, total: Floats, noise: float, intercept: bool, radius: Floats, candidates: int, replicates: int,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        candidates = max(min(candidates, NUMBERS // (replicates * n * len(radius))), FEWEST)
        self.n, self.p, self._radius = n, len(radius), radius
        p, pairs = self.p, len(entries(self.p, 2))
        released = total[: pairs + p]
        shaken = FARTHER * noise * rng.standard_normal((candidates, pairs + p))
        shaken[0] = 0.0
        self._sums = (released - shaken)[:, pairs:]
        self._here = self._estimated(matrices(released[None], p), released[None, pairs:])[0]
        self._uniforms = rng.random((replicates, n))
        normals = rng.standard_normal((replicates, n, p - intercept))
        noises = noise * rng.standard_normal((replicates, pairs + p))
        self._noises = noises[:, pairs:]
        self._records = [_covariates(a / n, normals, intercept) for a in matrices(released - shaken, p)]
        self._designs = [np.einsum("rni,rnj->rij", x, x) + matrices(noises, p) for x in self._records]
        self.spread = float(np.sqrt(n + noise**2)) / n

    def _estimated(self, designs: Floats, sums: Floats) -> Floats:
        """Coefficients of the linear regression of 2y − 1, with eigenvalues of xxᵀ kept away from zero."""
        values, vectors = np.linalg.eigh(designs)
        values = np.maximum(values, FLOOR * self.n)
        return np.asarray(np.einsum("rij,rj,rkj,rk->ri", vectors, 1 / values, vectors, sums))

    def start(self, contrast: Floats) -> float:
        """Where to begin: the contrast of coefficients that fit the released sums."""
        return float(contrast @ self._fitted(0, np.eye(self.p), np.zeros(self.p)))

    def _fitted(self, which: int, free: Floats, fixed: Floats) -> Floats:
        """The coefficients fixed + free·γ, inside the box, whose expected sums of x(2y − 1) are the candidate's."""
        x = self._records[which].reshape(-1, self.p)[:POOL]
        theta, share = fixed.copy(), self.n / len(x)
        for _ in range(NEWTON):
            half = np.tanh(x @ theta / 2)
            slope = free.T @ (self._sums[which] - share * (half @ x))
            curvature = free.T @ (share * (x.T * (1 - half**2) / 2) @ x) @ free
            step = free @ np.linalg.solve(curvature + 1e-3 * self.n * np.eye(free.shape[1]) / 100, slope)
            theta = theta + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
        away = theta - fixed
        if (np.abs(theta) <= self._radius).all():
            return theta
        room = (self._radius - np.abs(fixed)) / np.maximum(np.abs(away), 1e-12)
        return np.asarray(fixed + away * float(np.clip(room, 0.0, 1.0).min()))

    def simulated(self, which: int, theta: Floats) -> Floats:
        """Estimates from R releases at a candidate and coefficients, with the same random numbers at all: (R, p)."""
        x = self._records[which]
        signs = np.where(self._uniforms < expit(x @ theta), 1.0, -1.0)
        return self._estimated(self._designs[which], np.einsum("rn,rni->ri", signs, x) + self._noises)

    def contrast(self, contrast: Floats, below: bool) -> Share:
        """Twice the share of simulations above (below) the release, for values below (above) the estimate."""
        unit = contrast / np.linalg.norm(contrast)
        free = np.linalg.svd(unit[None])[2][1:].T  # directions that leave the contrast alone
        here = self._here @ contrast

        def share(value: float, enough: float) -> float:
            fixed, most = unit * value / np.linalg.norm(contrast), 0.0
            for which in range(len(self._records)):
                theta = fixed if not free.size else self._fitted(which, free, fixed)
                found = self.simulated(which, theta) @ contrast
                most = max(most, extreme(found, here, below))
                if most > enough:
                    break
            return most

        return share


def _covariates(moments: Floats, normals: Floats, intercept: bool) -> Floats:
    """Records (R, n, p) with about these second moments: normal, clamped to [−1, 1]."""
    mean = moments[0, 1:] if intercept else np.zeros(len(moments))
    mean = np.clip(mean, -1, 1)
    rest = moments[1:, 1:] if intercept else moments
    values, vectors = np.linalg.eigh(rest - np.outer(mean, mean))
    root = vectors * np.sqrt(np.maximum(values, FLOOR**2))
    x = np.clip(mean + normals @ root.T, -1, 1)
    return np.concatenate([np.ones((*x.shape[:2], 1)), x], axis=2) if intercept else x
