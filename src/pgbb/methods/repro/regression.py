"""Repro samples of a linear regression from noisy sums of products, exactly, whatever the design.

Given X, Xᵀe ~ N(0, σ²A) with A = XᵀX, and eᵀe = ‖A^(−1/2)Xᵀe‖² + σ²χ²_{n−p}: the law of all sums depends on X only
through A, a nuisance parameter whose noisy version is released. No law of the covariates is assumed, and the cost does
not grow with n.
"""

import numpy as np

from pgbb._numerics import Floats
from pgbb.methods.repro.intervals import Share
from pgbb.private.door import entries

Estimated = tuple[Floats, Floats, Floats]
"""(β̂, A⁻¹, σ̂²)."""
FARTHER = 1.5  # candidates lie so many times as far from the release as noise would put them
LEAST = 1e-3  # the smallest standard deviation of errors, and the smallest root of an eigenvalue of A/n, that is tried


def matrices(sums: Floats, p: int) -> Floats:
    """The symmetric (p, p) matrix A that each row of sums begins with."""
    i, j = entries(p, 2).T
    out = np.empty((*sums.shape[:-1], p, p))
    out[..., i, j] = out[..., j, i] = sums[..., : len(i)]
    return out


class Regression:
    """Confidence intervals of contrasts of the coefficients, and of the standard deviation of the errors.

    A value b of a contrast is accepted if, at one of some `candidates` of the nuisance parameters (A, σ, the other
    coefficients), more than the share error/2 of R simulated releases have a studentised estimate that is as extreme as
    that of the release. Candidates are what could have been released: the sums less fresh noise.

    Args:
      n: number of records.
      total: noisy sums of (xxᵀ, xy, y²) with |y| ≤ 1, in the order of `entries`.
      noise: τ.
      candidates, replicates: how many.
      rng: public random numbers.
    """

    def __init__(
        self, n: int, total: Floats, noise: float, candidates: int, replicates: int, rng: np.random.Generator
    ) -> None:
        self.n, self.noise = n, noise
        self.p = p = int((np.sqrt(8 * len(total) + 1) - 3) // 2)
        self._noises = noise * rng.standard_normal((replicates, len(total)))
        self._errors = rng.standard_normal((replicates, p))
        self._squares = np.square(self._errors).sum(axis=1) + rng.chisquare(max(n - p, 1), replicates)
        shaken = FARTHER * noise * rng.standard_normal((candidates, len(total)))
        shaken[0] = 0.0  # the estimate itself is a candidate
        self._sums = total - shaken
        values, vectors = np.linalg.eigh(matrices(self._sums, p))
        values = np.maximum(values, n * LEAST**2)
        self._designs = np.einsum("kij,kj,klj->kil", vectors, values, vectors)
        self._roots = np.linalg.cholesky(self._designs)
        self._inverses = np.linalg.inv(self._designs)
        least_squares = np.einsum("kij,kj->ki", self._inverses, self._sums[:, -p - 1 : -1])
        unit = np.linalg.solve(np.swapaxes(self._roots, 1, 2), rng.standard_normal((candidates, p, 1)))[..., 0]
        unit[0] = 0.0
        self._stretch = n / rng.chisquare(n, candidates)
        self._betas = least_squares + np.sqrt(self._variances(least_squares))[:, None] * unit
        # one inverse for each candidate and simulation: it does not depend on the value that is tried
        self._noisy_inverses = np.linalg.inv(self._designs[:, None] + matrices(self._noises, p))
        inverse = np.asarray(np.linalg.inv(matrices(total, p)), np.float64)
        self._here = self._estimated(inverse, total[-p - 1 : -1], np.asarray(total[-1]))

    def _variances(self, betas: Floats) -> Floats:
        """σ² of each candidate at its coefficients: what is left of its sum of squares."""
        cross = self._sums[:, -self.p - 1 : -1]
        explained = np.einsum("ki,kij,kj->k", betas, self._designs, betas)
        left = self._sums[:, -1] - 2 * (betas * cross).sum(axis=1) + explained
        return np.maximum(left / self.n * self._stretch, LEAST**2)

    def _estimated(self, inverse: Floats, cross: Floats, squares: Floats) -> Estimated:
        """The estimate from a release: any function of it would do."""
        beta = np.einsum("...ij,...j->...i", inverse, cross)
        left = squares - np.einsum("...i,...i->...", beta, cross)
        return beta, inverse, np.maximum(left / self.n, LEAST**2)

    def _studentised(self, found: Estimated, contrast: Floats, value: Floats | float) -> Floats:
        """(cᵀβ̂ − value) over its standard error, from sampling and from noise in xy and in xxᵀ."""
        beta, inverse, variance = found
        c = np.einsum("...ij,j->...i", inverse, contrast)
        noisy = np.square(c).sum(axis=-1) * (1 + np.square(beta).sum(axis=-1))
        noisy += np.square((c * beta).sum(axis=-1)) - np.square(c * beta).sum(axis=-1)
        error = np.sqrt(variance * np.abs((c * contrast).sum(axis=-1)) + self.noise**2 * np.abs(noisy))
        return np.asarray((beta @ contrast - value) / error)

    def _simulated(self, betas: Floats, deviations: Floats) -> Estimated:
        """Estimates from R releases at each candidate, (candidates, R, …), with the same random numbers at all."""
        spread = deviations[:, None, None] * np.einsum("kij,rj->kri", self._roots, self._errors)
        fit = np.einsum("kij,kj->ki", self._designs, betas)
        squares = (betas * fit).sum(axis=1)[:, None] + 2 * np.einsum("ki,kri->kr", betas, spread)
        squares += np.square(deviations)[:, None] * self._squares + self._noises[:, -1]
        return self._estimated(self._noisy_inverses, fit[:, None] + spread + self._noises[:, -self.p - 1 : -1], squares)

    def estimate(self, contrast: Floats) -> tuple[float, float]:
        """The estimate of a contrast and its standard error."""
        value = float(self._here[0] @ contrast)
        unit = self._studentised(self._here, contrast, value - 1)
        return value, 1 / float(unit)

    def dependence(self) -> Floats:
        """Covariance of the estimated coefficients, roughly: for the dependence between draws, not for intervals."""
        inverse = self._inverses[0]
        noise = self.noise**2 * (1 + float(self._here[0] @ self._here[0]))
        return np.asarray(float(self._here[2]) * inverse + noise * inverse @ inverse)

    @property
    def deviation(self) -> float:
        """The estimate of σ."""
        return float(np.sqrt(self._here[2]))

    def contrast(self, contrast: Floats, below: bool) -> Share:
        """Twice the share of simulations above (below) the release, for values below (above) the estimate."""
        steps = np.einsum("kij,j->ki", self._inverses, contrast)
        steps /= (steps @ contrast)[:, None]

        def share(value: float, enough: float) -> float:
            betas = self._betas + steps * (value - self._betas @ contrast)[:, None]
            found = self._simulated(betas, np.sqrt(self._variances(betas)))
            here = self._studentised(self._here, contrast, value)
            return extreme(self._studentised(found, contrast, value), here, below)

        return share

    def scale(self, unit: float, below: bool) -> Share:
        """Twice the share of simulations above (below) the release, for values of σ·unit below (above) the estimate."""

        def share(value: float, enough: float) -> float:
            _, _, variance = self._simulated(self._betas, np.full(len(self._betas), value / unit))
            return extreme(variance, self._here[2], below)

        return share


def extreme(simulated: Floats, here: Floats, below: bool) -> float:
    """Twice the largest share, over candidates, of simulations as far out as the release, itself among them."""
    out = simulated >= here if below else simulated <= here
    return 2 * float(((1 + out.sum(axis=-1)) / (1 + out.shape[-1])).max())
