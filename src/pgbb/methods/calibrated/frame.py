"""Coordinates in which the design is about white: found by rounds of noisy second moments, before anything else.

Serves every regression. What is asked later, gradients and curvatures, lives in this frame: its noise is paid in units
of the data and not of the declared box.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import pack, triangle, unpack
from pgbb.methods.calibrated.algebra import USUAL, Shrink, clear_of, strategy
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.column_terms import own_terms
from pgbb.methods.calibrated.columns import Atom, Columns, locate_columns, reference_design, whitening
from pgbb.methods.calibrated.curvature import raised
from pgbb.methods.calibrated.pareto import Lengths
from pgbb.methods.calibrated.response import asked_law
from pgbb.methods.calibrated.stages import BINS, LEAST_REACH
from pgbb.model.formula import Design

Floats = NDArray[np.float64]

__all__ = ["MOST_REACH", "SCORE", "Cut", "Frame", "design_frame", "score_of", "squared_reach", "wrong_of"]

MOST_REACH = (25.0, 5.0)  # R² is at most the first, or the second a term
LEVEL = 0.5  # how far their common level may be from white
UNUSUAL = 0.3  # how far entries of its second moments may be from white, where noise hides more
SCORE = 0.45  # standard deviation of a score beside its bound, as is usual
CLEAREST = 0.7  # the same at most, where the reach is chosen by it
LOUD = 1.0  # noise of the last gradient beside its sampling error, where the reach is chosen by it
SEEN = 3.0  # standard deviations of noise above which the second moment of an axis counts as seen
WRONG = 1.2  # mean of scores far out, over their standard deviation, where a model is wrong there
SMALL = 0.1  # of the sampling error: what may be left out
FARTHEST = 8.0  # times as far, squared, reaches a frame of a skewed design
WIDER = 2.0  # second moment of a reference design along a direction, beside a white one, that a skewed column makes
CUT = 1 / 3  # part of the last answer on moments that asks how many records ω weights down; its noise grows by 5 %
FULL = 0.99  # share of its largest that a mean score is seen to have, at most
FINEST = 2.0**18  # times a direction is magnified, at most: single precision shows no finer ones
NEAREST = 0.1  # end of the first bin of distances, in reaches
SPREADS = 1.5  # times as far as noise alone spreads the eigenvalues of a white design, they may lie
FAINT = 0.2  # second moment of a direction, beside the usual one, that counts as none wherever noise may have made it


def squared_reach(n: int, p: int, noise: float, score: float = SCORE) -> float:
    """R²: records whose p covariates are farther out, in Mahalanobis distance, are weighted down.

    As far out as the noise of the last gradient, R·noise, stays at its sampling error, score/√n, within bounds; all
    of it public.

    Args:
      n: number of records.
      p: number of terms.
      noise: of the last gradient.
      score: standard deviation of the score, where its bound has that noise.
    """
    affordable = (LOUD * score / (math.sqrt(n) * max(noise, 1e-12))) ** 2
    least, most = (max(fixed, each * p) for fixed, each in (LEAST_REACH, MOST_REACH))
    return min(max(affordable, least), most)


def score_of(levels: Floats) -> float:
    """The same standard deviation for quantile levels that are asked together."""
    _, b = strategy(tuple(levels.tolist()))
    return min(float(np.sqrt(np.sum(levels * (1 - levels)) / np.sum(b**2))), CLEAREST)


def wrong_of(levels: Floats) -> Floats:
    """How wrong scores of quantile levels are far out, where a line is wrong, beside what is usual.

    The share of records below the line may be anything there: about a half, and as far from it as is usual. At outer
    levels it is far from the level, beside the standard deviation of a score.
    """
    return np.sqrt(1 + ((levels - 0.5) / WRONG) ** 2 / (levels * (1 - levels)))


@dataclass(frozen=True)
class Cut:
    """P(ω < 1), the share of records that are weighted down, as answered, and the standard deviation of its noise."""

    share: float
    sd: float

    @property
    def clear(self) -> bool:
        """Whether there are any, beyond noise."""
        return self.share > max(3 * self.sd, 1e-3)


@dataclass(frozen=True)
class Frame:
    """F, with u = xF; E ωuuᵀ and the noise of its packed coordinates; how many records ω weights down; R; by how
    much records are too far out, E(1 − √ω)‖u‖ times E(1 − √ω)uuᵀ/‖u‖; u of a reference design, if there is one; which
    terms may be constant, by where their columns lie; and second moments as answered, with their frames and noise."""

    matrix: Floats
    moment: Floats
    moment_sd: Floats
    cut: Cut
    reach: float
    excess: Floats
    reference: Floats | None = None
    doubtful: NDArray[np.bool_] | None = None
    answers: tuple[tuple[Floats, Floats, float], ...] = ()

    def unseen(self, directions: Floats) -> NDArray[np.bool_]:
        """Which directions (columns, in the frame) have no second moment that stands out of noise, by all answers.

        Moments are pulled to white, and so may seem to vary along what two equal columns have not in common. Here they
        are as they were answered. What is more than a part of the usual counts as seen, and so does what may be the
        smallest of all eigenvalues of a white design, in this noise. Axes beside those of the design, of a scale, are
        left out; a direction that is mostly theirs is seen.
        """
        directions = directions[: len(self.matrix)]
        found, weight = np.zeros(directions.shape[1]), np.zeros(directions.shape[1])
        for frame, raw, sd in self.answers:
            line = np.linalg.solve(frame, self.matrix @ directions)
            precision = np.maximum(sd * np.sum(line**2, axis=0), 1e-12) ** -2.0
            found, weight = found + precision * np.sum(line * (raw @ line), axis=0), weight + precision
        size, noise = np.sum(directions**2, axis=0), 1 / np.sqrt(weight)
        usual = float(np.median(np.diag(self.moment))) * size
        most = np.minimum(FAINT * usual, usual - SPREADS * math.sqrt(2 * len(self.matrix)) * noise)
        return np.asarray((found / weight < np.minimum(SEEN * noise, most)) & (size > 0.5))

    def bent(self, step: Floats, gradient: Floats, noise: Floats, down: float, up: float) -> Floats:
        """Covariance of what a gradient H·step misses because scores have bounds.

        A rare group may have much farther to go than most records. Its mean score is then at its bound, whatever the
        distance, and a Newton step goes `down`, or `up`, by as much as that is over the curvature. What is left of the
        way grows without end as steps come near that, by more than their `noise` (a covariance) explains. Records of
        the reference design tell how far the step moves those that an axis is about.
        """
        u = self.reference
        if u is None:
            u = np.sqrt(len(step)) * np.linalg.cholesky(self.solid).T
        moved = u @ step
        far = np.maximum(moved**2 - np.sum((u @ noise) * u, axis=1), 0.0) / np.where(moved < 0, down, up) ** 2
        share = np.minimum(np.sqrt((u**2).T @ far / np.maximum(np.sum(u**2, axis=0), 1e-300)), FULL)
        return np.diag((share**4 / (1 - share) * gradient) ** 2)

    def left_out(self, wrong: float = 1.0) -> Floats:
        """Covariance of what weights √ω may move a gradient by, over the variance of a score.

        Where the model is right it is nothing. Where it is wrong far out, scores there have a mean, of about the size
        of their standard deviation, or so many times as `wrong`.
        """
        return (wrong * WRONG) ** 2 * self.excess

    @property
    def solid(self) -> Floats:
        """The moment with eigenvalues raised to where they stand clear of its noise: for steps, not for intervals."""
        return raised(self.moment, self.moment_sd)

    def turned(self, axes: Floats) -> "Frame":
        """The same with other orthogonal axes."""
        noise = (axes**2).T @ unpack(self.moment_sd, len(axes)) ** 2 @ axes**2
        return replace(
            self,
            matrix=self.matrix @ axes,
            moment=axes.T @ self.moment @ axes,
            moment_sd=pack(np.sqrt(noise)),
            excess=axes.T @ self.excess @ axes,
            reference=None if self.reference is None else self.reference @ axes,
        )


def design_frame(
    asker: Asker, design: Design, score: float = SCORE, *, wrong: float = 1.0, alone: bool = True
) -> Frame:
    """Coordinates u = xF in which E xxᵀ is about I/R² and most ‖u‖ ≤ 1: the stages "columns" to "moments".

    The first frame is that of a design of independent columns, each where it lies and as wide as it is. Then
    whitening by rounds, as in CoinPress (Biswas, Dong, Kamath, Ullman 2020): an eigenvalue below its noise is raised
    to it, and such a direction is magnified again in the next round. An axis that is not seen turns toward no
    other: a level that never occurs must not cost what it has nothing to do with.

    `wrong`: mean of scores far out, in what is usual, where a model is wrong there.

    `alone`: a rare flag has an axis of its own. Levels of a quantile do without: their densities in a rare group are
    often far from those of all records, toward which the entry of such an axis would be pulled.
    """
    p, unknown = len(design.names), Columns({}, {}, 0.0)
    if not asker.whitens:
        frame, reach = _scaled(np.eye(p), design, design.norm_bound**2, alone, unknown.apart(design))
        doubtful = np.ones(p, dtype=bool)
        moment, moment_sd, cut, answered = _second_moments(asker, frame, reach, doubtful)
        return Frame(frame, moment, moment_sd, cut, reach, np.zeros((p, p)), answers=(answered,))
    frame, own, rows, doubtful = np.eye(p), own_terms(design), None, np.ones(p, dtype=bool)  # until it is known
    apart = unknown.apart(design)
    if own is not None and any(own):
        at = locate_columns(asker, *own, p)
        rows, doubtful, apart = reference_design(design, at), at.doubtful(design), at.apart(design)
        frame = whitening(rows, doubtful)
    least = squared_reach(asker.n, p, math.inf)
    answers: list[tuple[Floats, Floats, float]] = []
    for _ in range(asker.question("frame", "moment").times):
        frame, reach = _scaled(frame, design, least, alone, apart)
        answer, sd = asker.ask("frame", "moment", frame)
        answers.append((frame, unpack(answer, p), sd))
        found, left = _moment(unpack(answer, p), sd, reach, asker.shrink, doubtful)
        values, axes = np.linalg.eigh(found)
        floor = np.clip(clear_of(axes, left) / 2, 1e-12, 1 / reach**2)  # what noise hides may be there, and stays
        floor = np.maximum(floor, (np.linalg.norm(frame @ axes, axis=0) / FINEST) ** 2)
        frame = frame @ (axes / np.sqrt(np.maximum(values, floor))) @ axes.T  # axes stay near the terms
    most, noise = squared_reach(asker.n, p, asker.noise("final"), score), asker.noise("final") / score
    near, reach = _scaled(frame, design, least, alone, apart)
    lengths = _distances(asker, near) if asker.asks("distances") else None
    wider = 1.0 if lengths is None else WIDER
    far = _Far(lengths, None if rows is None else _no_farther(rows @ near, reach, wider))
    farther = far.balanced(math.sqrt(most) / reach, noise, SMALL / math.sqrt(asker.n) / reach, wrong)
    frame, reach = _scaled(frame, design, (reach * farther) ** 2, alone, apart)
    reference = None if rows is None else rows @ frame
    moment, moment_sd, cut, answered = _second_moments(asker, frame, reach, doubtful)
    may, excess = None if rows is None else doubtful, far.left_out(farther, p)
    return Frame(frame, moment, moment_sd, cut, reach, excess, reference, may, (*answers, answered))


def _second_moments(
    asker: Asker, frame: Floats, reach: float, doubtful: NDArray[np.bool_]
) -> tuple[Floats, Floats, Cut, tuple[Floats, Floats, float]]:
    """E ωuuᵀ, the noise left in it, how many records ω weights down, and the answer itself: the stage "moments"."""
    answer, sd = asker.ask("moments", "moment_and_cut", frame, CUT)
    unit = np.sqrt(1 + CUT**2)
    raw = unpack(answer[:-1] * unit, len(frame))
    found, left = _moment(raw, sd * unit, reach, asker.shrink, doubtful)
    return found, left, Cut(float(answer[-1]) * unit / CUT, sd * unit / CUT), (frame, raw, sd * unit)


def _distances(asker: Asker, frame: Floats) -> Lengths:
    """The law of ‖u‖: the stage "distances"."""
    longest = math.sqrt(float(np.sum(np.abs(frame @ frame.T))))  # entries of x lie in [−1, 1]
    edges = np.concatenate([[0.0], np.geomspace(NEAREST, max(longest, 2 * NEAREST), BINS)])
    return Lengths(asked_law(asker, "distances", "distances", edges, frame)[0], longest)


@dataclass(frozen=True)
class _Far:
    """How far out records lie: lengths of u, and u of a reference design; one of them may be missing."""

    lengths: Lengths | None
    reference: Floats | None

    def left_out(self, reach: float, terms: int) -> Floats:
        """E(1 − √ω)‖u‖ times E(1 − √ω)uuᵀ/‖u‖ over the reach: all of it, where records are far out on one side.

        The reference design says along which axes, and how much where noise hides it: between what both say, and
        nearer to the larger, since what is overlooked is missed in silence.
        """
        total = self.lengths.excess(reach)[0] if self.lengths else 0.0
        if self.reference is None:
            return (total / reach) ** 2 / terms * np.eye(terms)
        size = np.linalg.norm(self.reference, axis=1)
        lost = np.maximum(1 - reach / size, 0.0)
        seen = float(np.mean(lost * size))
        where = lost / size if seen else size**2  # the axes of its longest rows, where none is as long
        axes = (self.reference.T * where) @ self.reference / float(where @ size**2)  # of trace 1
        if self.lengths:
            clear = float(self.lengths.beyond(np.array(reach))) > SEEN * self.lengths.law.sd
            seen = total if clear else math.sqrt((total**2 + seen**2) / 2)
        return np.asarray((seen / reach) ** 2 * axes)

    def balanced(self, least: float, noise: float, small: float = 0.0, wrong: float = 1.0) -> float:
        """The reach, at least the `least`, with the smallest sum of squares of its noise and of what it leaves out.

        What is left out, of scores that are so many times as `wrong` as is usual, need not be less than `small`.
        """
        terms = 1 if self.reference is None else self.reference.shape[1]

        def cost(reach: float) -> float:
            lost = wrong * WRONG * math.sqrt(np.linalg.norm(self.left_out(reach, terms), 2))
            return reach * math.hypot(noise, max(lost, small / reach))

        return float(min(least * np.sqrt(np.geomspace(1, FARTHEST, 25)), key=cost))


def _no_farther(reference: Floats, reach: float, wider: float = 1.0) -> Floats:
    """The reference design with directions along which it is `wider` than a white one, by this factor, made less wide.

    Its columns are independent. What true columns have in common is magnified, and would let it look far out there. A
    skewed column makes it wider too: a frame is white in moments in which far-out records count less.
    """
    values, axes = np.linalg.eigh(reference.T @ reference * (reach**2 / len(reference)))
    return np.asarray(reference @ (axes / np.sqrt(np.maximum(values / wider, 1.0))) @ axes.T)


def _scaled(frame: Floats, design: Design, most: float, alone: bool, apart: Mapping[int, Atom]) -> tuple[Floats, float]:
    """The frame over R, for R² at most `most` and no larger than the declared box allows; and R.

    A flag, or a level, that is rarer than one record in R² would be cut by ω, and its records would count the less
    the more it is magnified: it moves u by at most one. So does a number that most records have one value of. Where it
    stands `alone` it has an axis of its own, on which u is d: across axes, its small moment would be a difference of
    large ones, of which noise and shrinkage leave nothing.

    `apart`: by term, what x_j is for records without it, and by how much it differs for those with it.
    """
    reach = math.sqrt(min(most, float(np.sum(np.abs(frame @ frame.T)))))  # entries of x lie in [−1, 1]
    frame = frame / reach
    rare = [j for j, atom in apart.items() if abs(atom.step) * np.linalg.norm(frame[j]) > 1]
    if not rare or not design.has_intercept:
        return frame, reach
    rest, step = np.array([apart[j] for j in rare]).T
    if alone:
        frame = frame @ _turn(frame[rare], rare)
        frame[0] += rest @ frame[rare]  # u of the records without it stays
        frame[rare], frame[:, rare] = 0.0, 0.0
        frame[rare, rare], frame[0, rare] = 1 / step, -rest / step
        return frame, reach
    for j, without, size in zip(rare, rest.tolist(), np.abs(step).tolist(), strict=True):
        size *= float(np.linalg.norm(frame[j]))
        frame[0] += without * frame[j] * (1 - 1 / size)  # the row of the records without it stays
        frame[j] /= size
    return frame, reach


def _turn(moves: Floats, axes: list[int]) -> Floats:
    """The rotation, near none, that leads the directions of these rows, made orthogonal, to these axes."""
    p = moves.shape[1]
    left, _, right = np.linalg.svd(moves, full_matrices=False)
    moves, kept = left @ right, np.delete(np.eye(p), axes, axis=0)
    left, _, right = np.linalg.svd((np.eye(p) - moves.T @ moves) @ kept.T @ kept + moves.T @ np.eye(p)[axes])
    return np.asarray(left @ right)


def _moment(raw: Floats, sd: float, reach: float, shrink: Shrink, doubtful: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """E ωuuᵀ, and the noise left in it: axes that are seen are pulled to be white, as far as noise hides them.

    So are those that noise hides, if they may be white: where columns lie is known, and by that they are. An axis that
    is not seen and not white, or `doubtful`, is taken as apart from all others, and as white where noise is larger.
    """
    p = len(raw)
    clear, white = np.diag(raw) > SEEN * sd, np.diag(raw) + SEEN * sd > reach**-2
    seen = clear | (white & ~doubtful)
    raw = np.where(np.outer(seen, seen) | np.eye(p, dtype=bool), raw, 0.0)
    hidden = np.minimum(np.maximum(np.diag(raw), sd), reach**-2)
    raw[np.diag_indices(p)] = np.maximum(np.where(seen, np.diag(raw), hidden), 1e-9)
    i, j, _ = triangle(p)
    level = float(np.median(np.diag(raw)[seen])) if seen.any() else sd
    keep = LEVEL**2 / (LEVEL**2 + (sd * reach**2) ** 2 / max(int(seen.sum()), 1))
    level = max(keep * level + (1 - keep) * reach**-2, 1e-9)  # noise alone would make any level of it
    usual = float(np.clip(sd * reach**2, USUAL, UNUSUAL))
    value, left = shrink(
        raw, np.where(seen, level, np.diag(raw)) * np.eye(p), sd, pulled=seen[i] & seen[j], usual=usual
    )
    return value, np.where((i == j) | (seen[i] & seen[j]), left, 0.0)
