"""Noise-aware Gibbs samplers: parameters given a noisy sum z = s + N(0, τ²I) of sufficient statistics s.

Each iteration draws s given θ and z, where s given θ is normal by the central limit theorem, then θ given s by
conjugacy. Families: Bernstein & Sheldon 2018; regression: Bernstein & Sheldon 2019. Everything here is post-processing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics import Floats
from pgbb._numerics.threads import one_blas_thread
from pgbb.private.door import entries

if TYPE_CHECKING:
    from jax import Array

    from pgbb._numerics.compiled import Compiled

State: TypeAlias = "tuple[Array, Array, Array]"
Progress = Callable[[int, int], None]


_CHUNK = 10_000  # iterations whose random numbers are drawn ahead


def gaussian_chain(
    total: float, noise: float, n: int, *, scale: float, variance: float, iterations: int, rng: np.random.Generator
) -> Floats:
    """Chain of the mean μ of N(μ, scale²) with μ ~ N(0, variance), from a sum with noise τ = `noise`.

    s | μ is N(nμ, n·scale²), here without approximation.
    """
    spread = n * scale**2
    gain = spread / (spread + noise**2)  # of z against the prediction nμ
    sd_s = noise * np.sqrt(gain)
    precision = n / scale**2 + 1 / variance
    slope, sd = 1 / (scale**2 * precision), precision**-0.5
    first, second = rng.standard_normal((2, iterations))
    chain, mean = np.empty(iterations), total / n
    for t in range(iterations):
        s = n * mean + gain * (total - n * mean) + sd_s * first[t]
        mean = slope * s + sd * second[t]
        chain[t] = mean
    return chain


def exponential_chain(
    total: float, noise: float, n: int, *, shape: float, rate: float, iterations: int, rng: np.random.Generator
) -> Floats:
    """Chain of the mean 1/λ of an exponential law with λ ~ Gamma(shape, rate), from a sum with noise τ = `noise`.

    s | λ is N(n/λ, n/λ²) on s > 0: a proposal outside is refused, and s stays.
    """
    gammas, normals = rng.standard_gamma(shape + n, iterations), rng.standard_normal(iterations)
    chain, s = np.empty(iterations), abs(total) + noise
    mean = s / n
    for t in range(iterations):
        spread = n * mean**2
        gain = spread / (spread + noise**2)
        proposal = n * mean + gain * (total - n * mean) + noise * np.sqrt(gain) * normals[t]
        s = proposal if proposal > 0 else s
        mean = (rate + s) / gammas[t]
        chain[t] = mean
    return chain


@dataclass(frozen=True)
class Prior:
    """β | σ² ~ N(0, σ²/precision · I) and σ² ~ inverse gamma(shape, rate)."""

    precision: float = 0.5
    shape: float = 2.0
    rate: float = 1.0


@dataclass(frozen=True)
class Released:
    """What a regression has released: noisy sums of (xxᵀ, xy, y²), and noisy mean moments of x.

    Args:
      n: number of records.
      products: z, in the order of `Moment("products")`.
      noise: τ, standard deviation of the noise in `products`.
      second, fourth: η_ij and η_ijkl in the order of `entries`.
    """

    n: int
    products: Floats
    noise: float
    second: Floats
    fourth: Floats

    @property
    def p(self) -> int:
        """Number of coefficients, from p(p+1)/2 second moments."""
        return int((np.sqrt(8 * len(self.second) + 1) - 1) // 2)

    def design(self) -> tuple[Floats, Floats, Floats]:
        """η, a root of it, and a root of the covariance of the entries of xxᵀ, each made positive semi-definite."""
        p = self.p
        _, matrix, places = _layout(p)
        eta, root_eta = _psd((matrix[:, : len(self.second)] @ self.second).reshape(p + 1, p + 1)[:p, :p])
        second = eta[tuple(entries(p, 2).T)]
        return eta, root_eta, _psd(self.fourth[places] - np.outer(second, second))[1]

    def start(self, prior: "Prior") -> tuple[Floats, float]:
        """β and σ² to begin with."""
        n, z, eta = self.n, self.products, self.design()[0]
        beta = np.linalg.solve(n * eta + prior.precision * np.eye(self.p), z[len(self.second) : -1])
        variance = max(z[-1] / n - beta @ eta @ beta, 0.1 * abs(z[-1]) / n, self.noise / n)
        return np.asarray(beta, np.float64), float(variance)


def simulated_sums(released: Released, betas: Floats, deviations: Floats, rng: np.random.Generator) -> Floats:
    """One normal (xxᵀ, xy, y²) sum for each (β, σ): the law that the chain has for the sums behind the release."""
    (eta, root_eta, root), n, (m, p) = released.design(), released.n, betas.shape
    i, j = entries(p, 2).T
    upper = n * eta[i, j] + np.sqrt(n) * rng.standard_normal((m, root.shape[1])) @ root.T
    matrices = np.empty((m, p, p))
    matrices[:, i, j] = matrices[:, j, i] = upper
    errors = np.sqrt(n) * deviations[:, None] * (rng.standard_normal((m, p)) @ root_eta.T)
    squares = deviations**2 * (n + np.sqrt(2 * n) * rng.standard_normal(m))
    fit = np.einsum("mij,mj->mi", matrices, betas)
    last = (betas * (fit + 2 * errors)).sum(axis=1) + squares
    return np.column_stack([upper, fit + errors, last])


@lru_cache(maxsize=16)
def _layout(p: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Constant maps of the different entries: to xxᵀθ, to the matrix [[xxᵀ, xy], [yxᵀ, y²]], and to η_ijkl.

    The first is (p, D, p): row k of xxᵀθ is Σ_e θ_j·entry e. The second is
    ((p+1)², D+p+1). The third holds, for each pair of pairs, its place among the fourth moments.
    """
    pairs = entries(p, 2)
    size = len(pairs)
    times_theta = np.zeros((p, size, p))
    matrix = np.zeros((p + 1, p + 1, size + p + 1))
    for e, (i, j) in enumerate(pairs):
        times_theta[i, e, j] = times_theta[j, e, i] = 1
        matrix[i, j, e] = matrix[j, i, e] = 1
    for i in range(p):
        matrix[i, p, size + i] = matrix[p, i, size + i] = 1
    matrix[p, p, -1] = 1
    place = {tuple(q): k for k, q in enumerate(entries(p, 4).tolist())}
    fourth = np.array([[place[tuple(sorted([*a, *b]))] for b in pairs.tolist()] for a in pairs.tolist()])
    return times_theta, matrix.reshape((p + 1) ** 2, -1), fourth


def _psd(matrix: Floats) -> tuple[Floats, Floats]:
    """The nearest positive semi-definite matrix, and a factor R with RRᵀ equal to it."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    return root @ root.T, root


def _augmented(sums: Floats, p: int, prior: Prior) -> Floats:
    """[[XᵀX + precision·I, Xᵀy], [yᵀX, yᵀy + 2·rate]]; its Cholesky factor holds the conjugate update.

    The factor is [[L, 0], [wᵀ, √(2b)]]: β | σ² is N(L⁻ᵀw, σ²(LLᵀ)⁻¹), and σ² is inverse gamma(shape + n/2, b).
    """
    ridge = np.diag([prior.precision] * p + [2 * prior.rate])
    return (_layout(p)[1] @ sums).reshape(p + 1, p + 1) + ridge


def conjugate_draws(sums: Floats, n: int, prior: Prior, draws: int, rng: np.random.Generator) -> Floats:
    """Independent draws (β, σ) from the posterior given exact sums (XᵀX, Xᵀy, yᵀy)."""
    p = int((np.sqrt(8 * len(sums) + 1) - 3) // 2)
    factor = np.linalg.cholesky(_augmented(sums, p, prior))
    variance = 0.5 * factor[p, p] ** 2 / rng.standard_gamma(prior.shape + n / 2, draws)
    whitened = factor[p, :p] + np.sqrt(variance)[:, None] * rng.standard_normal((draws, p))
    return np.column_stack([np.linalg.solve(factor[:p, :p].T, whitened.T).T, np.sqrt(variance)])


def _prepare(released: Released, prior: Prior) -> tuple[dict[str, Floats], tuple[np.ndarray, ...]]:
    """Constants of the chain, and its first state (β, σ², Cholesky factor of the augmented sums)."""
    p, n, z, noise = released.p, released.n, released.products, released.noise
    times_theta, matrix, _ = _layout(p)
    size = len(released.second)
    eta, root_eta, root = released.design()
    second = eta[tuple(entries(p, 2).T)]
    top = np.hstack([root, np.zeros((size, p + 1))])
    top_product = np.eye(len(z) + 1)
    top_product[:-1, :-1] += n / noise**2 * top.T @ top
    constants = {
        "n": np.array(float(n)),
        "noise": np.array(noise),
        "z": z,
        "eta": eta,
        "second": second,
        "root_eta": root_eta,
        "top": top,
        "top_product": top_product,
        "times_root": np.einsum("kej,ef->kfj", times_theta, root, optimize=True),
        "matrix": matrix,
        "ridge": np.diag([prior.precision] * p + [2 * prior.rate]).ravel(),
    }
    beta, variance = released.start(prior)
    explained = beta @ eta @ beta
    sums = n * np.concatenate([second, eta @ beta, [variance + explained]])
    return constants, (beta, np.array(variance), np.linalg.cholesky(_augmented(sums, p, prior)))


@lru_cache(maxsize=1)
def _scan() -> "Compiled":
    """The compiled chain: some iterations from a state on, with random numbers drawn ahead."""
    import jax.numpy as jnp
    from jax import lax

    from pgbb._numerics.compiled import Compiled

    def cholesky(a: "Array") -> "Array":
        return lax.linalg.cholesky(a, symmetrize_input=False)

    def back(lower: "Array", b: "Array") -> "Array":
        return lax.linalg.triangular_solve(lower, b[:, None], left_side=True, lower=True, transpose_a=True)[:, 0]

    def apply(a: "Array", b: "Array") -> "Array":
        return jnp.sum(a * b, axis=-1)  # fuses, which a call to a matrix library would not

    def step(c: dict[str, "Array"], state: "State", drawn: "State") -> tuple["State", tuple["Array", "Array"]]:
        """One iteration; s has mean nμ and covariance nFFᵀ, with F triangular in blocks.

        With r = y − xᵀβ the entries (xxᵀ, xr, r²) are uncorrelated with covariances
        RRᵀ, σ²η and 2σ⁴; xy = xxᵀβ + xr and y² = βᵀxxᵀβ + 2βᵀxr + r² give F.
        In s = nμ + √n·F·u the latent u is standard normal a priori, and given z it has precision Q = I + (n/τ²)FᵀF.
        """
        beta, variance, factor = state
        normals, fresh, gamma = drawn
        p, d = len(beta), len(c["z"])
        upper = apply(c["times_root"], beta)
        lower = jnp.sqrt(variance) * c["root_eta"]
        empty = jnp.zeros((p, 1))
        middle = jnp.concatenate([upper, lower, empty], axis=1)
        last = jnp.sum(beta[:, None] * jnp.concatenate([upper, 2 * lower, empty], axis=1), axis=0)
        last = last + np.eye(d)[-1] * (np.sqrt(2.0) * variance)
        root = jnp.concatenate([c["top"], middle, last[None]]) * jnp.sqrt(c["n"])
        cross = apply(c["eta"], beta)
        mean = c["n"] * jnp.concatenate([c["second"], cross, (variance + jnp.sum(beta * cross))[None]])
        residual = (c["z"] - mean) / c["noise"]
        # one factorisation gives that of Q and its solve: the factor of [[Q, v], [vᵀ, big]] is [[L, 0], [(L⁻¹v)ᵀ, ·]];
        # it reads the lower triangle. Products of the first rows, most of the work, were taken beforehand
        stacked = jnp.concatenate([root / c["noise"], residual[:, None]], axis=1)
        rows, corner = len(c["top"]), np.eye(d + 1)[d]
        edge = apply(stacked[:rows].T, residual[:rows]) + corner * jnp.sum(residual**2)
        precision = cholesky(c["top_product"] + stacked[rows:].T @ stacked[rows:] + corner[:, None] * edge)
        s = mean + apply(root, back(precision[:d, :d], precision[d, :d] + normals))
        proposal = cholesky((apply(c["matrix"], s) + c["ridge"]).reshape(p + 1, p + 1))
        possible = jnp.all(jnp.isfinite(proposal))  # sums of squares: otherwise s stays, a Metropolis step
        factor = jnp.where(possible, proposal, factor)
        variance = 0.5 * factor[p, p] ** 2 / gamma
        beta = back(factor[:p, :p], factor[p, :p] + jnp.sqrt(variance) * fresh)
        return (beta, variance, factor), (jnp.append(beta, jnp.sqrt(variance)), possible)

    def chain(c: dict[str, "Array"], state: "State", drawn: "State") -> tuple["State", tuple["Array", "Array"]]:
        return lax.scan(lambda s, r: step(c, s, r), state, drawn)

    return Compiled(chain)


@one_blas_thread()
def regression_chain(
    released: Released, prior: Prior, iterations: int, rng: np.random.Generator, progress: Progress | None = None
) -> tuple[Floats, float]:
    """Chain (iterations, p+1) of (β, σ), and the share of proposed statistics that were possible ones."""
    import jax

    constants, state = _prepare(released, prior)
    draws, kept = [], []
    with jax.enable_x64(True):  # sixty-four bits here, and nowhere else
        for start in range(0, iterations, _CHUNK):
            count = min(_CHUNK, iterations - start)
            drawn = (
                rng.standard_normal((count, len(released.products))),
                rng.standard_normal((count, released.p)),
                rng.standard_gamma(prior.shape + released.n / 2, count),
            )
            state, (out, possible) = _scan()(constants, state, drawn)
            draws.append(np.asarray(out))
            kept.append(np.asarray(possible))
            if progress is not None:
                progress(start + count, iterations)
    return np.concatenate(draws), float(np.concatenate(kept).mean())
