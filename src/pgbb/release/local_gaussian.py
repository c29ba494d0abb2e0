"""The local Gaussian posterior: θ* = c − H*⁻¹(a + privacy noise + sampling noise), drawn in numpy.

The centre c, the gradient a and the curvature H come from noisy answers. The distribution of their errors is known, and
drawing such errors again gives the posterior. Everything here is post-processing of a payload, with neither JAX nor
records. Coordinates are the model's internal ones; a step q in the frame F is the step Fq there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb import _validate
from pgbb._numerics import Floats
from pgbb._numerics.symmetric import direction_sd, unpack
from pgbb._numerics.threads import one_blas_thread
from pgbb.errors import InvalidValue

SETTINGS = ("index", "bridge", "floor")
BENT = ("bend", "skew")
CELLS = 2**21  # numbers in the largest array of a chunk of draws; bounds memory, not results
VAGUE = 3.0  # sd along an unidentified direction, in widths of the box of the coefficient that it moves most
FLOOR = 0.25  # a curvature is never taken below this share of its smallest eigenvalue
STEEPEST = 0.05  # least share of its curvature that a loss is taken to have left where its gradient bends
HIDDEN = 0.4  # a coefficient whose posterior has more than this share of its prior's spread is not identified
FREE = 0.01  # a coefficient with more than this weight on unidentified directions is not identified


@dataclass(frozen=True, eq=False)
class LocalGaussian:
    """The local posterior that the default method releases: what a file holds of it, draws from it, and closed forms.

    For m knots (one without an index), d coefficients and a frame F, in which the gradient is Fᵀ∇ and the curvature
    FᵀHF. Levels are those of the index, inside the range of the knots; None for a model without one. Between knots
    the root and the curvature are interpolated linearly in log τ/(1 − τ); the sampling error has its exact law.

    Args:
      center, gradient: c and a, (m, d).
      frame: F, (d, d).
      curvature, curvature_sd: H, (m, d, d), and the noise of each of its isometric coordinates, (m, d(d+1)/2).
      privacy: loadings of k standard normal vectors on the gradient, (m, k).
      sampling, sampling_sd: covariance of the gradient's sampling error, up to min(τ, τ') − ττ' with an index, (d, d),
        and the noise of its isometric coordinates, (d(d+1)/2,).
      free: projectors on the directions that are not identified, (m, d, d).
      low, high: the box, (d,).
      knots: levels of the index, (m,); None without an index.
      prior: standard deviations of the prior along the axes of the frame, (d,); None where none was used. The
        posterior already holds it: it says which coefficients are identified.
      bend, skew: what makes draws skewed, (d,) each, without an index; see `bent`. None where draws are not.
      slope: of a logistic regression, the mean of p(1 − p) at the centre, the variance of its error, and its derivative
        in θ, (d + 2,): what average marginal effects need; None elsewhere.
      floor: eigenvalues of a curvature that is drawn are at least this share of the smallest of H.
    """

    center: Floats
    gradient: Floats
    frame: Floats
    curvature: Floats
    curvature_sd: Floats
    privacy: Floats
    sampling: Floats
    sampling_sd: Floats
    free: Floats
    low: Floats
    high: Floats
    knots: Floats | None = None
    prior: Floats | None = None
    bend: Floats | None = None
    skew: Floats | None = None
    slope: Floats | None = None
    floor: float = FLOOR

    @property
    def dim(self) -> int:
        """d, the number of coefficients."""
        return len(self.frame)

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """Settings and tensors of a payload of kind "local"."""
        index = self.knots is not None
        held = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "floor"}
        settings = {"index": index, "bridge": index, "floor": self.floor}
        return settings, {k: np.ascontiguousarray(v, dtype=np.float64) for k, v in held.items() if v is not None}

    @classmethod
    def from_tensors(cls, settings: Mapping[str, Any], tensors: Mapping[str, Floats]) -> "LocalGaussian":
        """The posterior that `to_tensors` wrote; `check_tensors` says whether it is one."""
        return cls(**tensors, floor=settings["floor"])

    @staticmethod
    def check_tensors(
        settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], dim: int, index: Mapping[str, Any] | None
    ) -> None:
        """Raise `InvalidValue` unless settings and tensors fit each other, d = `dim` and the declared index."""
        if set(settings) != set(SETTINGS):
            raise InvalidValue(f"local settings {sorted(settings)} are not allowed: they must be {sorted(SETTINGS)}.")
        if not isinstance(settings["index"], bool) or settings["index"] != (index is not None):
            raise _validate.fail(
                "index", settings["index"], "true for a model with an index, and false for one without"
            )
        if not isinstance(settings["bridge"], bool) or settings["bridge"] != settings["index"]:
            raise _validate.fail(
                "bridge", settings["bridge"], "that of index: the law of the error over an index is known for quantiles"
            )
        _validate.number("floor", settings["floor"], above=0, below=1)
        wanted = {f.name for f in fields(LocalGaussian) if f.default is MISSING}
        if index is not None:
            wanted.add("knots")
        elif not set(BENT).isdisjoint(tensors):
            wanted.update(BENT)
        if set(tensors) - {"prior", "slope"} != wanted:
            raise InvalidValue(f"tensors {sorted(tensors)} are not allowed: a local payload has {sorted(wanted)}.")
        for name, tensor in tensors.items():
            if tensor.dtype != np.float64:
                raise InvalidValue(f"tensor {name!r} of type {tensor.dtype} is not allowed: it must be float64.")
        m, packed = 1 if index is None else len(_knots(tensors["knots"], index)), dim * (dim + 1) // 2
        shapes: dict[str, tuple[int | str, ...]] = {
            **dict.fromkeys(("center", "gradient"), (m, dim)),
            **dict.fromkeys(("frame", "sampling"), (dim, dim)),
            **dict.fromkeys(("curvature", "free"), (m, dim, dim)),
            **dict.fromkeys(("low", "high", "prior", *BENT), (dim,)),
            "curvature_sd": (m, packed),
            "sampling_sd": (packed,),
            "privacy": (m, "k"),
            "slope": (dim + 2,),
        }
        for name in sorted(shapes.keys() & tensors.keys()):
            shape, actual = shapes[name], tensors[name].shape
            fits = len(actual) == len(shape) and all(b in ("k", a) for a, b in zip(actual, shape, strict=True))
            if not fits or 0 in actual:
                raise InvalidValue(f"tensor {name!r} of shape {actual} is not allowed: it must be {shape}.")
        _values(tensors)

    @one_blas_thread()
    def draw(self, m: int, levels: Sequence[float] | None, seed: int | None) -> Floats:
        """m joint draws in internal coordinates, (levels, m, d); the levels share all randomness.

        Curvature, privacy noise, sampling error and unidentified directions have streams of their own, so that a seed
        gives a level the same privacy noise and curvature whichever other levels are asked.
        """
        d = self.dim
        mix = self._mix(levels)
        used = np.flatnonzero(mix.any(axis=0)).tolist()
        privacy = shortest(self.privacy)
        streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4 + mix.shape[1])]
        vague = self.vague
        free, center = np.einsum("lj,jab->lab", mix, self.free), mix @ self.center
        out = np.empty((len(mix), m, d))
        size = max(1, CELLS // (d * max(d * len(used), privacy.shape[1], len(mix))))
        for start in range(0, m, size):
            rows = min(size, m - start)
            noise = streams[0].standard_normal((rows, privacy.shape[1], d))
            error = self._error(levels, rows, streams[1], streams[2])
            loose = vague * streams[3].standard_normal((rows, d)) if vague else np.zeros((rows, d))
            curvature = {j: self._curvature(j, rows, streams[4 + j]) for j in used}
            steps = {}
            for j in used:
                gradient = self.gradient[j] + np.einsum("k,rkd->rd", privacy[j], noise)
                step = -_solve(curvature[j], gradient)
                steps[j] = step + (loose - step) @ self.free[j]
            for i, weights in enumerate(mix):
                parts = np.flatnonzero(weights).tolist()
                sampled = -_solve(_combined(weights, parts, curvature), error[i])
                moved = _combined(weights, parts, steps) + sampled - sampled @ free[i]
                moved = self.bent(moved, sampled)
                out[i, start : start + rows] = np.clip(center[i] + moved @ self.frame.T, self.low, self.high)
        return out

    def bent(self, step: Floats, sampled: Floats | None = None) -> Floats:
        """Correct Newton steps s for a loss that is not quadratic: s/(1 + `bend`·s) in each coordinate.

        This is the root q of a + Hq/(1 − `bend`·q) = 0, where s solves a + Hs = 0. The sampling error, of which the
        step has the part `sampled`, is skewed as well: `skew` times the square of that part is added.
        """
        if self.bend is None or self.skew is None:
            return step
        if sampled is not None:
            inverse = np.linalg.inv(self.curvature[0])
            step = step + self.skew * (sampled**2 - np.diag(inverse @ self.sampling @ inverse))
        bent: Floats = step / np.maximum(1 + self.bend * step, STEEPEST)
        return bent

    @property
    def vague(self) -> float:
        """Standard deviation of draws along unidentified directions, in the frame; 0 where there are none."""
        open_knots = self.free.any(axis=(1, 2))
        if not open_knots.any():
            return 0.0
        moved = np.sqrt(np.einsum("ab,jbc,ac->ja", self.frame, self.free[open_knots], self.frame))
        return VAGUE / float(np.min(np.max(moved / (self.high - self.low), axis=1)))

    def parts(self, levels: Sequence[float] | None, *, known: bool = False) -> tuple[Floats, Floats]:
        """Covariances (levels, d, d) of the sampling error and of the privacy noise, internal coordinates.

        They hold at the estimate and before the box: along all directions, or along identified ones alone (`known`).
        """
        mix = self._mix(levels)
        slope = np.linalg.inv(np.einsum("lj,jab->lab", mix, self.curvature))
        inverse = np.linalg.inv(self.curvature)
        if known:
            slope = slope - np.einsum("lj,jab->lab", mix, self.free) @ slope
            inverse = inverse - self.free @ inverse
        factor = np.ones(len(mix)) if levels is None else np.array([v * (1 - v) for v in levels])
        sampling = factor[:, np.newaxis, np.newaxis] * (slope @ self.sampling @ np.swapaxes(slope, 1, 2))
        maps = np.einsum("lj,jk,jab->lkab", mix, self.privacy, inverse)
        privacy = np.einsum("lkab,lkcb->lac", maps, maps)
        frame = self.frame
        if self.bend is not None:
            step = -np.linalg.solve(self.curvature[0], self.gradient[0])
            frame = frame / np.maximum(1 + self.bend * step, STEEPEST) ** 2  # the slope of `bent` there
        return frame @ sampling @ frame.T, frame @ privacy @ frame.T

    def columns(self, levels: Sequence[float] | None, transform: Floats) -> dict[str, NDArray[Any]]:
        """Columns of a summary beside those of the draws, each (levels, d), in the units of `transform`.

        A coefficient counts as not identified when its posterior has more than .4 of the spread of its prior, or when
        unidentified directions have more than 1 % of the weight on any internal coefficient that it is made of, or
        spread it more than all else.
        """
        sampling, privacy = (np.einsum("ab,lbc,ac->la", transform, c, transform) for c in self.parts(levels))
        total = sampling + privacy
        frame = self.frame
        loose = np.einsum("ab,jbc,ac->ja", frame, self.free, frame) / np.sum(frame**2, axis=1)
        weight = self._mix(levels) @ loose
        touched = (weight > FREE).astype(float) @ (transform != 0).T
        line = transform @ frame
        spread = self._mix(levels) @ np.einsum("ab,jbc,ac->ja", line, self.free, line) * self.vague**2
        rest = np.einsum("ab,lbc,ac->la", transform, sum(self.parts(levels, known=True)), transform)
        believed = np.inf if self.prior is None else np.sum((line * self.prior) ** 2, axis=1)
        return {
            "sampling_sd": np.sqrt(np.maximum(sampling, 0.0)),  # semidefinite up to rounding
            "privacy_sd": np.sqrt(np.maximum(privacy, 0.0)),
            "privacy_share": privacy / np.where(total > 0, total, 1.0),
            "identified": (touched == 0) & (spread <= rest) & (total <= HIDDEN**2 * believed),
        }

    def signal(self) -> Floats:
        """(knots,): least curvature over its noise along identified directions; inf where there is no noise."""
        out = np.full(len(self.curvature), np.inf)
        for j, (curvature, sd, free) in enumerate(zip(self.curvature, self.curvature_sd, self.free, strict=True)):
            values, vectors = np.linalg.eigh(curvature)
            noise = direction_sd(vectors, sd)
            known = (np.sum(vectors * (free @ vectors), axis=0) < 0.5) & (noise > 0)
            if known.any():
                out[j] = float(np.min(values[known] / noise[known]))
        return out

    def _mix(self, levels: Sequence[float] | None) -> Floats:
        """(levels, knots): the weights of interpolation linear in log τ/(1 − τ), exactly one at a knot.

        Quantiles are closer to linear in that scale than in τ, above all in the tails.
        """
        knots = self.knots
        if levels is None or knots is None:
            return np.ones((1, 1))
        mix = np.zeros((len(levels), len(knots)))
        for row, level in zip(mix, levels, strict=True):
            nearest = int(np.argmin(np.abs(knots - level)))
            if np.isclose(knots[nearest], level, rtol=1e-9, atol=1e-12):
                row[nearest] = 1.0
                continue
            right = int(np.clip(np.searchsorted(knots, level), 1, len(knots) - 1))
            left, here, end = (float(np.log(v / (1 - v))) for v in (knots[right - 1], level, knots[right]))
            row[right] = (here - left) / (end - left)
            row[right - 1] = 1.0 - row[right]
        return mix

    def _curvature(self, j: int, rows: int, stream: np.random.Generator) -> Floats:
        """H* at a knot: (rows, d, d), or (1, d, d) where it has no noise."""
        d, base, sd = self.dim, self.curvature[j], self.curvature_sd[j]
        if not sd.any():
            return base[np.newaxis]
        smallest = float(np.linalg.eigvalsh(base)[0])
        return _floored(base, sd * stream.standard_normal((rows, d * (d + 1) // 2)), smallest, self.floor)

    def _error(
        self, levels: Sequence[float] | None, rows: int, path: np.random.Generator, spread: np.random.Generator
    ) -> Floats:
        """The sampling error of the scaled gradient, (levels, rows, d), with covariance factor ⊗ S*."""
        d, base, sd = self.dim, self.sampling, self.sampling_sd
        spectrum = np.linalg.eigvalsh(base)
        matrix = base[np.newaxis]
        if sd.any():
            positive = spectrum[spectrum > 1e-12 * spectrum[-1]]
            lowest = float(positive[0]) if len(positive) else 0.0
            # a singular covariance has no room for noise, so every draw is looked at
            room = lowest if len(positive) == d else 0.0
            packed = sd * spread.standard_normal((rows, d * (d + 1) // 2))
            matrix = _floored(base, packed, lowest, self.floor, room)
        values, vectors = np.linalg.eigh(matrix)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))[:, np.newaxis, :]) @ np.swapaxes(vectors, 1, 2)
        knots = self.knots
        if levels is None or knots is None:
            plain = path.standard_normal((rows, 1, d))
        else:
            at = [int(np.argmin(np.abs(knots - v))) for v in levels]
            if np.allclose(knots[at], levels, rtol=1e-9, atol=1e-12):
                plain = _bridge(knots, rows, d, path)[:, at]
            else:
                plain = _bridge(np.array(levels), rows, d, path)
        return np.swapaxes(plain @ root, 0, 1)


def _knots(knots: NDArray[Any], index: Mapping[str, Any]) -> NDArray[Any]:
    """The knots, if they are the declared levels or cover the declared interval."""
    if knots.ndim != 1 or not len(knots) or not (np.diff(knots) > 0).all():
        raise InvalidValue(f"tensor 'knots' of shape {knots.shape} is not allowed: it must be increasing numbers.")
    if index["kind"] == "levels":
        declared, found = np.array(index["values"]), knots
    else:
        declared, found = np.array([index["low"], index["high"]]), knots[[0, -1]]
    if declared.shape != found.shape or not np.allclose(declared, found, rtol=1e-9, atol=1e-12):
        raise InvalidValue("tensor 'knots' is not allowed: it must be the declared levels, or cover the interval.")
    if not (knots[0] > 0 and knots[-1] < 1):
        raise InvalidValue("tensor 'knots' is not allowed: quantile levels lie strictly between 0 and 1.")
    return knots


def _values(t: Mapping[str, NDArray[Any]]) -> None:
    if np.linalg.matrix_rank(t["frame"]) < len(t["frame"]):
        raise InvalidValue("tensor 'frame' must be invertible.")
    if not (t.get("prior", np.ones(1)) > 0).all():
        raise InvalidValue("tensor 'prior' must be positive: it holds standard deviations.")
    for name in ("curvature_sd", "sampling_sd"):
        if not (t[name] >= 0).all():
            raise InvalidValue(f"tensor {name!r} must not be negative: it holds standard deviations.")
    if not (t["low"] < t["high"]).all():
        raise InvalidValue("tensors 'low' and 'high' are not allowed: a box has low < high.")
    for name in ("curvature", "sampling", "free"):
        if np.abs(t[name] - np.swapaxes(t[name], -1, -2)).max() > 1e-9 * np.abs(t[name]).max():
            raise InvalidValue(f"tensor {name!r} must be symmetric.")
    if not (np.linalg.eigvalsh(t["curvature"]) > 0).all():
        raise InvalidValue("tensor 'curvature' must be positive definite, or the posterior has no spread.")
    spectrum = np.linalg.eigvalsh(t["sampling"])
    if spectrum[0] < -1e-9 * np.abs(spectrum).max():
        raise InvalidValue("tensor 'sampling' must be positive semidefinite: it is a covariance.")
    if np.abs(t["free"] @ t["free"] - t["free"]).max() > 1e-6:
        raise InvalidValue("tensor 'free' must be an orthogonal projector at each knot: free @ free = free.")


def _bridge(levels: Floats, rows: int, d: int, stream: np.random.Generator) -> Floats:
    """d Brownian bridges at the levels, (rows, levels, d): covariance min(τ, τ') − ττ'."""
    order = np.argsort(levels)
    gaps = np.diff(levels[order], prepend=0.0, append=1.0)
    motion = np.cumsum(np.sqrt(gaps)[:, np.newaxis] * stream.standard_normal((rows, len(gaps), d)), axis=1)
    path = np.empty((rows, len(levels), d))
    path[:, order] = motion[:, :-1] - levels[order][:, np.newaxis] * motion[:, -1:]
    return path


def _floored(base: Floats, packed: Floats, smallest: float, floor: float, room: float | None = None) -> Floats:
    """base + noise with eigenvalues of at least floor·smallest.

    Noise of norm at most (1 − floor)·`room` (the smallest eigenvalue of `base`)
    cannot take an eigenvalue below the floor, so only larger noise is looked at.
    """
    matrix = base + unpack(packed, len(base))
    room = smallest if room is None else room
    doubtful = np.flatnonzero(np.linalg.norm(packed, axis=-1) > (1 - floor) * room)
    low = doubtful[np.linalg.eigvalsh(matrix[doubtful])[:, 0] < floor * smallest]
    if len(low):
        values, vectors = np.linalg.eigh(matrix[low])
        kept = np.maximum(values, floor * smallest)
        matrix[low] = (vectors * kept[:, np.newaxis, :]) @ np.swapaxes(vectors, 1, 2)
    return matrix


def _combined(weights: Floats, at: Sequence[int], values: Mapping[int, Floats]) -> Floats:
    """Σ_j weights[j]·values[j] over the knots in `at`."""
    total = weights[at[0]] * values[at[0]]
    for j in at[1:]:
        total = total + weights[j] * values[j]
    return total


def shortest(privacy: Floats) -> Floats:
    """Loadings with at most as many columns as knots, and the same law."""
    m, k = privacy.shape
    if k <= m:
        return privacy
    _, triangle = np.linalg.qr(privacy.T)
    return np.array(triangle.T, dtype=np.float64)


def _solve(matrix: Floats, vectors: Floats) -> Floats:
    """H⁻¹v for each row, with H (rows, d, d) or (1, d, d)."""
    solved: Any
    if len(matrix) == 1:
        solved = np.linalg.solve(matrix[0], vectors.T).T
    else:
        solved = np.linalg.solve(matrix, vectors[..., np.newaxis])[..., 0]
    return solved
