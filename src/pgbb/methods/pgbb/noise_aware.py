"""What the noisy answers of a training say about the estimate, with the noise that they are known to have.

Near the estimate an answer at block weights u and point θ, divided by the sampling rate q, is

    a/q = Σ_s u_s g_s + H(θ − c) + k‖θ − c‖² + e,   e ~ N(0, (σ/q)² I) and the noise of a batch,

with the gradients g_s of the blocks at c and the curvature H. Query points carry public Gaussian noise (`dither`),
which tells H apart from g. Least squares give ḡ = Σ g_s/S and H with their noise, and the posterior is local: see
`pgbb.release.local_gaussian`. Public arithmetic on answers; nothing here sees a record.

Predictors that are off by e look like errors of scale √(σ² + e²). So with a scale ‖θ − c‖² is taken along coefficients
alone, as ‖y‖²/(1 + ‖y‖²/σ²), and k of the scale to be about −`STRETCHED`·H/σ.

A loss without a design may bend far over the distances that a budget can tell apart. There H(θ − c) is taken along
coordinates y/(1 + κy), with the shape κ of each that leaves least of the answers: draws are as skewed as that says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from pgbb._numerics.symmetric import direction_sd, pack, triangle, unpack
from pgbb.accountant import Mechanism
from pgbb.methods.pgbb.coordinates import Coordinates
from pgbb.release.local_gaussian import FLOOR, STEEPEST, LocalGaussian

Floats = NDArray[np.float64]

_SPREADS = np.concatenate([[0.0], np.geomspace(0.01, 3.0, 40)])  # of relative deviations of H from its target
CLEAR = 3.0  # standard deviations of its noise that a curvature must exceed
DESIGNED = 2.0  # the same with a design, which tells what it is like
FAR, LOST = 2.0, 4.0  # how far beyond the query points an estimate may lie, in their spreads: widened, not identified
BENT, ASKED = 0.45, 0.65  # relative change of H over the query points that is not local any more; where H was asked for
OPEN = 0.5  # noise of the scores of a design, over the share of records on the smaller side of the line, that is local
CURVED = 0.6  # error of a scale of σ, in σ, over the squares of how far query points and estimate lie apart in it
CERTAIN = 2.5  # standard deviations that it must exceed
BELIEF = 0.3  # relative change of H over the query points, before it is looked at
MOST = 0.95  # of the largest shape κ with which 1 + κy is positive in the box
SEEN = 6.0  # by how much twice the log-likelihood must grow for a shape
LEAST = 0.05  # second moment of the design along a direction, over the expected one
WINDOW = 0.05  # of the steps, in which points are looked at together
AWAY = 8.0  # mean square distance from where later points are, in their variances, that is as near
STRETCHED = 0.3  # of H/σ: how the score of a scale σ falls with ‖y‖², the square of what predictors are off by
MISFIT = 1.5  # residual variance over what the noise explains, above which nothing is trusted


@dataclass(frozen=True)
class Found:
    """What the answers of one knot say, in whitened coordinates around a reference point.

    Attributes:
      reference: the point c, internal coordinates.
      gradient: ḡ at the reference, whitened.
      variance: of its noise, in units of the noise of one answer.
      curvature: H, whitened, symmetric.
      curvature_sd: noise of its packed coordinates.
      spread: standard deviations of the query points, whitened.
      residual: variance of what is left of the answers, whitened, (d,).
      bend: how much the curvature changes over the query points, and the standard deviation of that.
      shape: κ, whitened, (d,).
      answers: how many were used.
      far: distance of the reference from the points, in their spreads.
      known: whether the curvature is as a model says, up to its noise; else it is pulled to one.
    """

    reference: Floats
    gradient: Floats
    variance: float
    curvature: Floats
    curvature_sd: Floats
    spread: Floats
    residual: Floats
    bend: tuple[float, float]
    shape: Floats
    answers: int
    far: float = 0.0
    known: bool = False

    @classmethod
    def nothing(cls, point: Floats) -> "Found":
        """Where there is no answer to go by: nothing is identified."""
        d = len(point)
        none, one = np.zeros(d), np.ones(d)
        return cls(point, none, 1.0, np.eye(d), np.ones(d * (d + 1) // 2), one, none, (0.0, 0.0), none, 0)

    def bent(self, step: Floats) -> Floats:
        """The distance from the reference at which H(θ − c) is that of a step, whitened."""
        distance: Floats = step / np.maximum(1 - self.shape * step, STEEPEST)
        return distance


def analyse(
    answers: Floats,
    u: Floats,
    query: Floats,
    dither: Floats,
    late: NDArray[np.bool_],
    where: Coordinates,
    noise: float,
    shape: Floats | None = None,
    side: float = 0.0,
) -> Found:
    """What the answers of one level say, by least squares with the dither as instrument.

    The point that the generator chooses follows from the noise of earlier answers, in every direction of u: plain least
    squares on it would take part of that noise for curvature, the more the more blocks there are. The dither is
    independent of all noise, and of u.

    Args:
      answers: a/q, (N, d).
      u: block weights, (N, S).
      query: points, internal coordinates, (N, d).
      dither: on the points, whitened, (N, d); zero for answers that tell nothing of the curvature.
      late: answers around whose mean the reference lies.
      where: coordinates in which the curvature is near a multiple of the identity.
      noise: σ/q, on each number of a/q.
      shape: κ of each coordinate around the mean of the late points; none by default.
      side: of a level, min(τ, 1 − τ): a density changes by itself, about, where that share of records changes sides.
    """
    count, blocks = u.shape
    d = query.shape[1]
    y = where.whitened(query)
    start = _start(y, late)
    y, shape = y - start, np.zeros(d) if shape is None else shape
    spread_of_points = y.std(axis=0)
    dither = np.clip(dither, y.min(axis=0), y.max(axis=0)) if shape.any() else dither
    y, dither = (v / (1 + shape * v) for v in (y, dither))
    square = _square(y, start, where)
    rows = np.concatenate([u, y, square[:, np.newaxis], dither, where.slopes(answers)], axis=1)
    sums = rows.T @ rows  # all that follows is arithmetic on these
    size = blocks + d + 1
    x, b = slice(0, size), slice(size + d, None)
    z = np.arange(size)
    z[blocks : blocks + d] += d + 1  # noise moves points either way, and not ‖y‖²
    unit = np.maximum(np.sqrt(np.diag(sums)[z] / count), 1e-300)
    xx, zx, zz = (v / np.outer(unit, unit) for v in (sums[x, x], sums[z, x], sums[np.ix_(z, z)]))
    xb, zb, bb = sums[x, b] / unit[:, None], sums[z, b] / unit[:, None], sums[b, b]

    def left_of(coefficients: Floats) -> Floats:
        """Σ of the squares of what is left of each column of b, (d,)."""
        some = slice(0, len(coefficients))
        rest = np.diag(bb) + np.sum(coefficients * (xx[some, some] @ coefficients - 2 * xb[some]), axis=0)
        return np.asarray(np.maximum(rest, 0.0))

    slopes = slice(blocks, blocks + d)
    rough = np.linalg.pinv(zx[:-1, :-1], rcond=1e-12) @ zb[:-1]  # without k
    left, bends = float(np.mean(left_of(rough))) / count, np.diagonal(rough[slopes].T / unit[slopes])
    expected = _expected(bends, start, where)
    cross = unit[-1] * np.outer(expected, xb[-1])
    bb = bb - cross - cross.T + (unit[-1] ** 2 * xx[-1, -1]) * np.outer(expected, expected)
    xb, zb = (v - unit[-1] * np.outer(w[:, -1], expected) for v, w in ((xb, xx), (zb, zx)))
    far = max(float(np.sqrt(np.mean(square))), 1e-150)
    before = np.zeros((size, size))
    before[-1, -1] = _believed(left, float(np.mean(np.abs(bends))), unit[-1], far, side)
    through = np.linalg.pinv(zx + before, rcond=1e-12)
    coefficients = through @ zb
    spread = through @ (zz + before) @ through.T  # covariance of the coefficients, for noise of variance 1
    seen = left_of(coefficients) / max(count - size, 1)
    level = np.zeros(size)
    level[:blocks] = 1 / (blocks * unit[:blocks])
    # at this point the gradient has least noise, and none in common with the curvature
    level[slopes] = -np.linalg.lstsq(spread[slopes, slopes], spread[slopes] @ level, rcond=None)[0]
    move = level[slopes] * unit[slopes]
    own = np.maximum(seen, (noise / where.root) ** 2)  # with the noise of batches
    raw, precision = coefficients[slopes].T / unit[slopes], np.diag(spread)[slopes] / unit[slopes] ** 2
    curvature, sd = _symmetric(raw, np.outer(own, precision))
    far = 2 * far / unit[-1]
    bend = far * np.abs(coefficients[-1])
    most = int(np.argmax(bend))
    moved = move / np.maximum(1 - shape * move, STEEPEST)
    slope = 1 / (1 + shape * moved)  # of y/(1 + κy) there, its square
    i, j, _ = triangle(d)
    return Found(
        reference=where.internal(start + moved),
        gradient=level @ coefficients,
        variance=float(level @ spread @ level),
        curvature=curvature * np.outer(slope, slope),
        curvature_sd=sd * slope[i] * slope[j],
        spread=spread_of_points,
        residual=seen,
        bend=(float(bend[most]), far * float(np.sqrt(own[most] * spread[-1, -1]))),
        shape=shape * slope,
        answers=count,
    )


def near(y: Floats, age: Floats, late: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which answers are asked as near as the `late` ones: these, and those before them while points stay there.

    Args:
      y: points, whitened, (N, d).
      age: share of the steps that lie before each.
      late: answers after which the generator rests.
    """
    rows, begin = late.copy(), float(age[late].min())
    center, unit = y[late].mean(axis=0), np.maximum(y[late].std(axis=0), 1e-300)
    while begin > age[0]:
        begin -= WINDOW
        window = (age >= begin) & ~rows
        if window.any() and np.mean(((y[window] - center) / unit) ** 2) > AWAY:
            break
        rows |= window
    return rows


def _start(y: Floats, late: NDArray[np.bool_]) -> Floats:
    start: Floats = y[late].mean(axis=0) if late.any() else y.mean(axis=0)
    return start


def bent(
    answers: Floats,
    u: Floats,
    query: Floats,
    dither: Floats,
    late: NDArray[np.bool_],
    where: Coordinates,
    noise: float,
    box: tuple[Floats, Floats],
    known: Callable[[Floats], Floats] | None = None,
) -> Found:
    """`analyse` with the shape of each coordinate, one by one, that leaves least of the answers, if it is `SEEN`.

    What is left is that of plain least squares without k. A shape that is `known` at every point is taken as it is.
    """
    y, b = where.whitened(query), where.slopes(answers)
    start = _start(y, late)
    y = y - start
    below, above = (1 / np.maximum(np.abs(where.whitened(side[np.newaxis])[0] - start), 1e-300) for side in box)
    shape = np.zeros(len(start))
    if known is not None:
        shape = np.clip(known(where.internal(start)), -MOST * above, MOST * below)
        return analyse(answers, u, query, dither, late, where, noise, shape)

    def with_share(j: int, share: float) -> Floats:
        other = shape.copy()
        other[j] = share * (above[j] if share < 0 else below[j])  # 1 + κy stays positive in the box
        return other

    def left(shape: Floats) -> float:
        x = np.concatenate([u, y / (1 + shape * y)], axis=1)
        rest = b - x @ (np.linalg.pinv(x.T @ x) @ (x.T @ b))
        return len(b) * float(np.sum(np.log(np.maximum(np.mean(rest**2, axis=0), 1e-300))))

    for j in range(len(shape)):
        found = minimize_scalar(
            lambda share, j=j: left(with_share(j, share)), bounds=(-MOST, MOST), method="bounded",
            options={"xatol": 0.02},
        )  # fmt: skip
        if left(shape) - found.fun > SEEN:
            shape = with_share(j, float(found.x))
    return analyse(answers, u, query, dither, late, where, noise, shape)


def _square(y: Floats, start: Floats, where: Coordinates) -> Floats:
    """‖y‖², (N,); beside a scale σ that of the coefficients, e², as e²/(1 + e²/σ²)."""
    if where.alike.all() or not where.alike.any():
        square: Floats = np.sum(y**2, axis=1)
        return square
    square = np.sum(y[:, where.alike] ** 2, axis=1)
    return square / (1 + square / float(np.min(start[~where.alike] ** 2)))


def _expected(bends: Floats, start: Floats, where: Coordinates) -> Floats:
    """k as it is expected, from the rough curvature of each coordinate: zero, but for a scale, (d,)."""
    if where.alike.all() or not where.alike.any():
        return np.zeros(len(bends))
    stretched = STRETCHED * max(float(np.mean(bends[where.alike])), 0.0)
    return np.where(where.alike, 0.0, -stretched / np.abs(start))


def _believed(noise: float, bends: float, unit: float, far: float, side: float) -> float:
    """The precision, in units of the noise, with which k is taken to be as expected before it is looked at.

    The curvature is taken to change by about `BELIEF` of itself over the query points, which lie `far` apart, and that
    of a level by no more than the share of the records on its smaller `side` that these points move across the line.
    Where points follow the noise far beyond the dither, k would be left open otherwise, and the gradient with it.

    Args:
      noise: variance of what is left of the answers.
      bends: a mean of the curvatures.
      unit: of ‖y‖² among the instruments.
      far, side: see above.
    """
    change = min(BELIEF, bends * far / side) if side else BELIEF
    return noise / max(change * bends * unit / (2 * far), 1e-150) ** 2


def _symmetric(raw: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """A matrix and its transpose, averaged by precision, and the noise of its packed coordinates."""
    i, j, length = triangle(len(raw))
    first, second = 1 / variance[i, j], 1 / variance[j, i]
    value = (first * raw[i, j] + second * raw[j, i]) / (first + second)
    sd = np.where(i == j, np.sqrt(variance[i, j]), length / np.sqrt(first + second))
    return unpack(value * length, len(raw)), sd


def shrunk(
    raw: Floats, sd: Floats, target: Floats, target_sd: float, known: Floats | None = None
) -> tuple[Floats, Floats]:
    """A noisy matrix pulled to a target as far as its deviations look like noise; and the noise that is left.

    Entry (a, b) deviates from the target by √(T_aa T_bb)·N(0, t²) with one t for all entries, flat on a grid, and by
    what the target is `known` to have of noise of its own, packed. `target_sd` is the relative noise of the target's
    size, which all entries share: it moves an entry by as much of the entry itself.
    """
    root = np.sqrt(np.diag(target))
    i, j, _ = triangle(len(raw))
    unit = root[i] * root[j]
    away, noise = pack(raw - target) / unit, sd / unit
    apart = _SPREADS[:, None] ** 2 + (0.0 if known is None else (known / unit) ** 2)
    total = apart + noise**2
    fit = -0.5 * np.sum(np.log(total) + away**2 / total, axis=1)
    chance = np.exp(fit - fit.max())
    chance /= chance.sum()
    keeps = apart / total
    keep = chance @ keeps
    shared = (1 - keep) * target_sd * pack(target) / unit
    left = keep * noise**2 + chance @ ((keeps - keep) * away) ** 2 + shared**2
    return target + unpack(keep * away * unit, len(raw)), np.sqrt(left) * unit


def curvature_of(part: Found, where: Coordinates, beside: Sequence[Found] = ()) -> tuple[Floats, Floats, Floats]:
    """The curvature by y that is used, the noise left in its packed coordinates, and directions that it does not show.

    Pulled to a multiple of the second moments of the design where coordinates are alike: the multiple is a density, or
    the like. What the curvatures `beside` it, of other levels, say of these moments is used.
    """
    value, left = part.curvature, part.curvature_sd
    if not part.known:
        value, left = pulled(value, left, where, moments_by(beside, where))
    value, lost = _usable(value, left, DESIGNED if where.alike.any() else CLEAR)
    return value, left, lost


def pulled(
    raw: Floats, sd: Floats, where: Coordinates, moments: tuple[Floats, Floats] | None = None
) -> tuple[Floats, Floats]:
    """A noisy matrix by y pulled to the moments of the design, which are noisy too; and the noise that is left."""
    shape, noise = moments_by((), where) if moments is None else moments
    target, alike = where.target(raw), np.outer(where.alike, where.alike)
    size = _size(raw, sd, where, (shape, noise))
    target = np.where(alike, size * shape, target)
    size_sd = 1 / np.sqrt(np.sum(pack(target) ** 2 / np.maximum(sd, 1e-300) ** 2))
    return shrunk(raw, sd, target, float(size_sd), size * noise)


def _size(raw: Floats, sd: Floats, where: Coordinates, moments: tuple[Floats, Floats]) -> float:
    """The number of times that a matrix is the moments of the design, by directions that noise leaves clear."""
    if not where.alike.any():
        return 0.0
    i, j, _ = triangle(len(raw))
    shape, own = np.diag(moments[0])[where.alike], np.diag(raw)[where.alike]
    noise, left = moments[1][i == j][where.alike], sd[i == j][where.alike]
    rough = max(float(np.median(own / shape)), 0.0)
    weight = 1 / np.maximum((rough * noise) ** 2 + left**2, 1e-300)
    return max(float(weight @ (own * shape) / (weight @ shape**2)), 1e-3 * float(np.max(np.abs(own))), 1e-12)


def moments_by(found: Sequence[Found], where: Coordinates) -> tuple[Floats, Floats]:
    """Second moments of the design by y, and the noise of their packed coordinates, by their answer and curvatures.

    A curvature is about a number times the moments.
    """
    answered = np.eye(len(where.root)), where.moment_sd
    precision = 1 / np.maximum(where.moment_sd, 1e-6) ** 2
    total = pack(answered[0]) * precision
    for part in found:
        size = _size(part.curvature, part.curvature_sd, where, answered)
        weight = (size / np.maximum(part.curvature_sd, 1e-300)) ** 2
        total, precision = total + weight * pack(part.curvature) / size, precision + weight
    shape = unpack(total / precision, len(where.root))
    i = np.arange(len(shape))
    shape[i, i] = np.maximum(np.diag(shape), LEAST)
    return shape, (where.moment_sd > 0) / np.sqrt(precision)


def posterior_of(
    found: Sequence[Found],
    where: Coordinates,
    decode: Floats,
    mechanism: Mechanism,
    sigma: float,
    sampling: tuple[Floats, Floats],
    box: tuple[Floats, Floats],
    levels: tuple[float, ...] | None,
    most: float = BENT,
    doubt: str | None = None,
    side: float | None = None,
) -> tuple[LocalGaussian, list[float], list[str]]:
    """The local posterior of all levels, their residual variances over that of the noise, and why some are marked.

    Args:
      found: for each level.
      where: the coordinates of `found`.
      decode: loadings of the noise of an answer on the levels' gradients, (m, k).
      mechanism, sigma: what was run.
      sampling: covariance of the score of one record (up to τ(1 − τ) with an index) in the frame of `where`, and the
        noise of its packed coordinates.
      box: of the parameters.
      levels: of the index.
      most: relative change of the curvature over the query points that is local.
      doubt: why nothing is identified, where that is known beforehand.
      side: share of the records on the smaller side of the line, of a design without levels.
    """
    q, n = mechanism.sampling_rate, mechanism.n
    inner = mechanism.nested_law
    spread = 1.0 if inner is None else mechanism.block_size * (inner[0] + 1) / (sum(inner) + 1)  # E (n_S v)²
    batches = 2 * (spread / q - 1)  # variance of an answer's batch, over that of a mean of all records
    (low, high), root = box, where.root
    d = len(root)
    i, j, _ = triangle(d)
    covariance, covariance_sd = sampling
    bends, sds, frees, loads = [], [], [], []
    misfits: list[float] = []
    reasons: list[str] = []
    for at, part in enumerate(found):
        beside = [other for other in found if other is not part] if where.alike.all() else []
        value, left, lost = curvature_of(part, where, beside)
        step: Floats = -np.linalg.solve(value, part.gradient).astype(np.float64)
        distance = max(part.far, float(np.sqrt(np.mean((step / part.spread) ** 2))))
        loud = float(np.sqrt(np.sum(decode[at] ** 2)))
        factor = 1.0 if levels is None else levels[at] * (1 - levels[at])
        noise = sigma / q * loud * np.sqrt(part.variance)
        smaller = side if levels is None else min(levels[at], 1 - levels[at])
        open_share = float(np.sqrt(np.sum((noise / root[where.alike]) ** 2)))
        known = (sigma / q * loud) ** 2 + batches * factor * np.diag(covariance) / n
        misfits.append(float(np.mean(part.residual * root**2 / known)))
        reason = None
        if doubt is not None:
            reason = doubt
        elif misfits[at] > MISFIT:
            reason = "the answers are not those of a loss that is locally quadratic"
        elif part.bend[0] > max(most * float(np.mean(np.diag(value))), CERTAIN * part.bend[1]):
            reason = "the loss is not quadratic over the distances that this budget can tell apart"
        elif smaller is not None and open_share > OPEN * smaller:
            reason = "the noise leaves open where too many of the records lie"
        elif distance > LOST:
            reason = "the training has not come near the estimate"
        estimate = part.reference + where.internal(part.bent(step))
        if reason is None and ((estimate < low) | (estimate > high)).any():
            reason = "the estimate is at the side of the box"
        name = "" if levels is None else f"at {levels[at]:g} "
        if reason is not None:
            reasons.append(f"Not identified {name}at this ε: {reason}.".replace("  ", " "))
            lost = np.eye(d)
        own_of = np.diag(covariance) / n * factor
        own = float(np.mean(own_of))
        wider = max(1.0, distance / FAR)
        noise = float(np.sqrt((wider * noise) ** 2 + (wider**2 - 1) * own))
        bends.append(root[:, None] * value * root)
        clear = part.gradient**2 / ((noise**2 + own_of) / root**2)
        sds.append(_felt(float(np.mean(clear))) * left * root[i] * root[j])
        frees.append(_projector(lost / root[:, None]))
        loads.append(noise / loud * decode[at])
    more = 1 + batches * max(part.variance for part in found)
    scale = np.flatnonzero(~where.alike) if where.alike.any() else np.zeros(0, int)  # its gradient bends as 1/σ
    moved = where.internal(found[0].bent(step))
    there = np.maximum((found[0].reference + moved)[scale], low[scale])
    bent_scale = np.zeros(d)
    bent_scale[scale] = np.diag(bends[0])[scale] * CURVED * (found[0].spread ** 2 + moved**2)[scale] / there
    posterior = LocalGaussian(
        center=np.stack([part.reference for part in found]),
        gradient=np.stack([root * part.gradient for part in found]),
        frame=where.frame,
        curvature=np.stack(bends),
        curvature_sd=np.stack(sds),
        privacy=np.stack(loads),
        sampling=covariance / n * more + np.diag(bent_scale**2),
        sampling_sd=covariance_sd / n * more,
        free=np.stack(frees),
        low=low,
        high=high,
        knots=None if levels is None else np.array(levels),
    )
    bend, skew = _skewed(found[0], frees[0], bends[0], covariance, where, mechanism.blocks)
    return replace(posterior, bend=bend, skew=skew), misfits, reasons


def _felt(clear: float) -> float:
    """The share of the noise of a curvature that draws have, for a gradient whose square is so many of its variances.

    With noise of relative size r, an estimate −g/H at a distance x from the reference has the error (e + rHx)/H, whose
    square is about 1 + r²(1 + g²/e²) times that of e/H. Draws of −(g + e)/H would have 1 + r²(3 + g²/e²) of it.
    """
    return float(np.sqrt((1 + clear) / (3 + clear)))


def _skewed(
    part: Found, free: Floats, curvature: Floats, covariance: Floats, where: Coordinates, blocks: int
) -> tuple[Floats, Floats] | tuple[None, None]:
    """`bend` and `skew` of draws: the shape, and the skew of the score; none without a shape or with a lost direction.

    The third moments of the score of a likelihood, with its natural parameters, are those of ∇³l with the other sign,
    and a bootstrap doubles them: ⅔ of what the shape does to the square of a step. One of S blocks with γ* has
    (S − 2)/S of that. A loss whose score has not the covariance H of a likelihood, within a factor of 2, is taken to
    have none, as that of a robust scale.
    """
    if not part.shape.any() or free.any():
        return None, None
    bend = -part.shape * where.root
    likely = len(set(where.alike)) == 1 and 0.5 < float(np.trace(covariance)) / float(np.trace(curvature)) < 2
    share = 2 / 3 * max(blocks - 2, 0) / blocks if blocks > 1 else 2 / 3
    return bend, bend * (share if likely else 0.0)


def _usable(value: Floats, sd: Floats, clear: float) -> tuple[Floats, Floats]:
    """The curvature, positive, and the directions (columns) along which it does not stand `clear` of its noise."""
    values, vectors = np.linalg.eigh(value)
    need = clear * direction_sd(vectors, sd)
    hidden = values < need
    least = FLOOR * float(np.min(values[~hidden])) if not hidden.all() else float(np.max(need))
    raised = np.where(hidden, np.maximum(values, np.maximum(least, need)), values)
    return (vectors * raised) @ vectors.T, vectors[:, hidden]


def _projector(columns: Floats) -> Floats:
    """Onto the span of the columns."""
    d = len(columns)
    if columns.shape[1] == 0:
        return np.zeros((d, d))
    if columns.shape[1] == d:
        return np.eye(d)
    basis, _ = np.linalg.qr(columns)
    projector: Floats = basis @ basis.T
    return projector
