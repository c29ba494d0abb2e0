"""Densities, curvatures and score covariances of quantile levels, from noisy answers.

Public arithmetic on answers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pgbb._numerics import Floats
from pgbb._numerics.symmetric import unpack
from pgbb.methods.calibrated.algebra import USUAL, Shrink, floored
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.curvature import Curvature, covariance_of, curvature_of, unlike
from pgbb.methods.calibrated.frame import Frame
from pgbb.methods.calibrated.location_scale import LocationScale, Shape
from pgbb.methods.calibrated.start import PEAK
from pgbb.methods.calibrated.transcript import Read
from pgbb.release.local_gaussian import FLOOR

Curvatures = list[Curvature]
"""The curvature of each level."""


SQUARED = 0.28209479  # integral of the squared standard normal density
NEARER = 3.0  # a density is asked over the bandwidth of the curvature, and over one shorter by this factor
HEAPED = 0.5  # relative difference of densities over two distances above which the response counts as heaped
SMOOTHNESS = 0.1  # prior relative difference of densities over the two bandwidths
ROUGH = 0.35  # prior relative difference of a density from that of all residuals
EXACT = 1e-4  # least relative error of a density
LEAST_DENSITY = 0.2  # least density, as a share of that of all residuals


@dataclass(frozen=True)
class Sharp:
    """Densities of the levels at bandwidth 0; arrays (m,).

    Args:
      value: f.
      doubt: relative standard deviations; at least 1 where the response has no density.
      ratio: f over what a kernel of the first bandwidth sees.
    """

    value: Floats
    doubt: Floats
    ratio: Floats


def sharpness(
    asker: Asker,
    theta: Floats,
    levels: Floats,
    h: Floats,
    density: Floats,
    rough: Floats | float,
    around: Floats,
    counted: float = 1.0,
) -> Sharp:
    """Ask for the density of each level over three bandwidths, and extrapolate it to bandwidth 0.

    A kernel of bandwidth h sees f + h²f''/2, so densities over h and h/3 tell the second term apart. The response is
    heaped, and has no density, where their extrapolation is far from what the first sees, or where the density over the
    finest bandwidth contradicts the other two.

    Args:
      asker: asks the stage "density".
      theta: coefficients of the levels, (m, p).
      levels: τ, (m,).
      h: three bandwidths of each level, (3, m), in decreasing order.
      density: of each level, as expected before.
      rough: relative standard deviation of that. Noise hides a density that differs by less.
      around: places over which a response with a step is spread.
      counted: share of the records, or of their weight, that counts: densities are means over all records.
    """
    least = 12 * asker.noise("density") * np.sqrt(len(levels)) * PEAK / density  # a finer kernel shows noise alone
    h = np.stack([h[0], h[1], np.clip(least, h[2], h[1])])
    overlap = _overlap(np.tile(levels, 3), (h * density).ravel())
    answer, sd = asker.ask("density", "densities", theta, h, overlap, around)
    unit = PEAK / h * overlap / counted
    found, noise = answer.reshape(h.shape) * unit, sd * unit
    found = np.maximum(found, 1e-12)
    variance = noise**2 + found / (2 * np.sqrt(np.pi) * asker.n * h)
    wide, near, finest = found
    gap = wide + noise[0] < LEAST_DENSITY * density  # next to nothing lies there
    size = np.maximum(wide, np.maximum(noise[0], LEAST_DENSITY * density))
    weight = 1 / (NEARER**2 - 1)
    relative = (1 + weight) ** 2 * variance[1] / size**2
    away = weight * (near - wide) / size + near / size - 1
    bends = SMOOTHNESS**2 + np.maximum(away**2 - 9 * relative, 0.0)
    known = np.maximum(variance / size**2, EXACT**2)
    f, seen, sd_f = (size * each for each in _at_zero(found / size, known, h / h[0], bends))
    trust = (rough * density) ** 2 + np.maximum((f - density) ** 2 - 9 * sd_f**2, 0.0)
    trust = trust / (trust + sd_f**2)
    value = np.maximum(trust * f + (1 - trust) * density, np.maximum(np.sqrt(trust) * sd_f, LEAST_DENSITY * size))
    heaped = np.abs(away) - 3 * np.sqrt(relative) - HEAPED
    miss = np.abs(finest / value - 1) - 3 * np.sqrt(variance[2] + variance[1]) / value - HEAPED
    doubt = np.sqrt(trust) * sd_f / value
    none = gap | (np.maximum(heaped, miss) > 0)
    return Sharp(value, np.where(none, np.maximum(doubt, 1.0), doubt), np.clip(f / seen, 0.02, 1 / LEAST_DENSITY))


def _at_zero(found: Floats, variance: Floats, x: Floats, bends: Floats) -> tuple[Floats, Floats, Floats]:
    """Densities over three bandwidths x of each level, extrapolated to bandwidth 0, and as smoothed over x = 1; and the
    standard deviations of the former.

    A density over x is f + ax + bx². The prior variance of b is `bends`, and that of a is a quarter of it: in a smooth
    density only b is there, but a kernel that reaches into a crowd of records sees it as if a were.
    """
    value, smooth, sd = [], [], []
    for seen, noise, at, bend in zip(found.T, variance.T, x.T, bends.tolist(), strict=True):
        basis = np.stack([at**0, at, at**2], axis=1)
        back = np.linalg.inv(np.diag([0.0, 4 / bend, 1 / bend]) + (basis.T / noise) @ basis)
        all_of = back @ basis.T @ (seen / noise)
        value.append(max(float(all_of[0]), 0.02 * float(seen[0])))
        smooth.append(max(float(np.sum(all_of)), 0.02 * float(seen[0])))
        sd.append(float(np.sqrt(back[0, 0])))
    return np.array(value), np.array(smooth), np.array(sd)


def _overlap(levels: Floats, width: Floats) -> float:
    """The largest norm of the kernels of all levels at one point, for uniform residuals; longer rows are clipped."""
    grid = np.linspace(0, 1, 401)[:, None]
    return float(np.sqrt(np.max(np.sum(np.exp(-(((grid - levels) / width) ** 2)), axis=1))))


def curvatures_of(
    asker: Asker,
    theta: Floats,
    levels: Floats,
    h: Floats,
    sharp: Sharp,
    near: Frame,
    around: Floats,
) -> Callable[[Shape], Curvatures]:
    """The curvature of each level, given its likely shape: asked over the bandwidths h, or a density times the shape
    where no matrix is asked."""
    f = sharp.value
    if not asker.asks("curvature"):
        return lambda shape: plain_curvatures(shape.value, shape.sd, f)
    m, p = theta.shape
    overlap = _overlap(levels, h * f)
    answer, sd = asker.ask("curvature", "cell_curvature", theta, h, overlap, near.matrix, around)
    unit = PEAK / h * overlap * sharp.ratio  # from the kernel's scale to a density, extrapolated to bandwidth 0
    raw = unpack(answer.reshape(m, -1), p) * unit[:, None, None]
    noise = np.hypot(sd * unit[:, None], np.sqrt((f * SQUARED / h)[:, None] * near.squares / asker.n))

    def curvatures(shape: Shape) -> Curvatures:
        whole = raw + f[:, None, None] * shape.unseen
        return _pooled(whole, noise, shape.value, shape.sd, f, asker.shrink)

    return curvatures


def shapes_of(
    near: Frame, levels: Floats, apart: float, n: int, constant: bool
) -> Callable[[list[Read], Floats], Shape]:
    """The shape of all curvatures, given where the levels are found and the bandwidths of kernels.

    That of a location-scale model whose outer levels lie `apart` by so much, or E xxᵀ where they do not.
    """
    if not constant or apart <= 0:
        return lambda *_: Shape(near.moment, near.moment_sd)
    return LocationScale.like(near, levels, apart, n).shape


def plain_curvatures(shape: Floats, shape_sd: Floats, density: Floats, factor_sd: Floats | float = 0.0) -> Curvatures:
    """For each level a density times a shape, with the error that this model may have."""
    doubt = np.hypot(shape_sd, unlike(shape))
    each = zip(density.tolist(), np.broadcast_to(factor_sd, density.shape).tolist(), strict=True)
    return [Curvature(f * shape, f * doubt, s) for f, s in each]


def spread_of(
    asker: Asker, theta: Floats, width: Floats, levels: Floats, near: Frame, around: Floats
) -> tuple[Floats, Floats]:
    """The covariance of scores over τ(1 − τ), and its noise.

    It is E ωuuᵀ, with survey weights where there are any. Where persons are told it is that of the sums by person, on
    average over the levels.
    """
    p = len(near.matrix)
    if not asker.spread:
        return floored(near.moment, 1e-9 * float(np.trace(near.moment))), near.moment_sd
    if asker.spread == "spread":
        answer, sd = asker.ask("spread", "moment", near.matrix)
        return covariance_of(unpack(answer, p), near.moment, sd, shrink=asker.shrink)
    m = len(levels)
    scores = np.zeros((m + 1, m + 1))
    scores[:m] = (np.tri(m, m + 1) - levels[:, None]) / np.sqrt(levels * (1 - levels))[:, None]
    unit = float(np.max(np.linalg.norm(scores, axis=0)))
    raw, sd = asker.score_moments(theta, width, scores / unit, near.matrix, around)
    return covariance_of(raw * unit**2 / m, near.moment, sd * unit**2 / m, shrink=asker.shrink)


def seen_through(bend: Curvature, sampling: Floats) -> Floats:
    """What noise in H adds to the covariance S of the sampling error: H(E H⁻¹SH⁻¹)H − S, to second order.

    Three terms have two errors of H: one with S between them, and two with S on either side. They are equal where S is
    a multiple of H, which is assumed.
    """
    back = np.linalg.inv(bend.solid)
    return 3 * bend.blur(back @ sampling @ back, np.zeros(len(sampling)))


def _pooled(raw: Floats, sd: Floats, moment: Floats, moment_sd: Floats, density: Floats, shrink: Shrink) -> Curvatures:
    """The curvature of each level, shrunk to f_j times a shape common to all levels, which is shrunk to E xxᵀ.

    In a location-scale model there is such a shape: H(τ) = f(τ) E[xxᵀ/s(x)].
    """
    f = np.maximum(density, 1e-300)
    trust = f / np.mean(sd**2, axis=1)  # f_j times the precision of raw_j/f_j
    total = float(trust @ f)
    noise = np.sqrt(trust**2 @ sd**2) / total
    pooled = np.einsum("j,jkl->kl", trust, raw) / total
    shape, left = shrink(pooled, moment, noise, moment_sd)
    shape = floored(shape, FLOOR * float(np.linalg.eigvalsh(moment)[0]))
    return [
        curvature_of(r, f_j * shape, s, f_j * left, shrink=shrink, usual=USUAL)
        for r, f_j, s in zip(raw, f, sd, strict=True)
    ]
