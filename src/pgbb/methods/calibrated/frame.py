"""The frame: coordinates in which the design is about white, found by rounds of noisy second moments.

Every regression finds it first. Gradients and curvatures are then asked in this frame, so that their noise is in units
of the data and not of the declared box.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr

from pgbb._numerics.symmetric import pack, triangle, unpack
from pgbb.methods.calibrated.algebra import USUAL, Shrink, clear_of, strategy
from pgbb.methods.calibrated.asking import Asker
from pgbb.methods.calibrated.column_terms import own_terms
from pgbb.methods.calibrated.columns import Apart, Columns, locate_columns, reference_design, whitening
from pgbb.methods.calibrated.curvature import raised
from pgbb.methods.calibrated.pareto import Lengths
from pgbb.methods.calibrated.response import asked_law
from pgbb.methods.calibrated.stages import BINS, LEAST_REACH
from pgbb.model.formula import Design

Floats = NDArray[np.float64]


MOST_REACH = (25.0, 5.0)  # the squared reach R² of p terms is at most the first, or p times the second
LEVEL = 0.5  # prior relative difference of the common level of second moments from white
UNUSUAL = 0.3  # largest prior mean of the relative deviation of entries from white, where noise is large
SCORE = 0.45  # usual standard deviation of a score, over its bound
CLEAREST = 0.7  # largest value of that ratio by which a reach is chosen
LOUD = 1.0  # the reach grows while the noise of the last gradient is below so many sampling errors
SEEN = 3.0  # an axis counts as seen if its second moment exceeds so many standard deviations of noise
WRONG = 1.2  # mean of scores far out where a model is wrong there, in standard deviations of a score
ONE_SIDED = 0.35  # E(1 − √ω)‖u‖ of a far-out record that the columns do not tell of, times the mean score there
UNTOLD, SOME = 0.03, 0.1  # usual share of far-out records that columns do not tell of, in so many of all designs
STEEP = 3.0  # a record at 1 + 1/`STEEP` reaches counts as far beyond it, a nearer one in part
SMALL = 0.1  # what the reach leaves out may be so much of the sampling error
FARTHEST = 8.0  # largest factor by which R² grows for a skewed design
WIDER = 2.0  # second moment of the reference design along a direction, over a white one, that a skewed column may make
CUT = 1 / 3  # weight of the share of far-out records in the last answer on moments; its noise grows by 5 %
LEAST_LOST = 1e-4  # the least that the ellipsoid of gradients leaves out of records
MARGIN = 1.05  # its size: covariates that depend on each other lie farther out than those of the reference design
FULL = 0.99  # largest mean score of a group that is assumed, over the bound of scores
FINEST = 2.0**18  # largest magnification of a direction: single precision shows no finer ones
NEAREST = 0.1  # upper end of the first bin of distances, in reaches
SPREADS = 1.5  # eigenvalues of a white design may lie so many times as far from 1 as noise alone spreads them
REACHES = 0.1  # relative difference of second moments by another reach
CLEAR = 5.0  # a term varies for sure if its second moment exceeds so many standard deviations of noise
FAINT = 0.2  # a second moment below this share of the usual one counts as none if noise may have made it
NORMAL = 0.8  # E|z| of a standard normal number


def squared_reach(n: int, p: int, noise: float, score: float = SCORE) -> float:
    """R²: records farther out than R, in Mahalanobis distance of the p covariates, are weighted down.

    It is the largest value, within bounds, at which the noise of the last gradient, R·noise, does not exceed its
    sampling error, score/√n. All of it is public.

    Args:
      n: number of records.
      p: number of terms.
      noise: of the last gradient, for a score with bound 1.
      score: standard deviation of the score, over its bound.
    """
    affordable = (LOUD * score / (math.sqrt(n) * max(noise, 1e-12))) ** 2
    least, most = (max(fixed, each * p) for fixed, each in (LEAST_REACH, MOST_REACH))
    return min(max(affordable, least), most)


def score_of(levels: Floats) -> float:
    """The standard deviation of a score over its bound, for quantile levels that are asked together."""
    _, b = strategy(tuple(levels.tolist()))
    return min(float(np.sqrt(np.sum(levels * (1 - levels)) / np.sum(b**2))), CLEAREST)


def wrong_of(levels: Floats) -> Floats:
    """The mean score far out where a line is wrong, by quantile level, over that of the median.

    The share of records below the line may be anything there: its square deviation from τ is (τ − ½)² more than at the
    median, in units of the variance τ(1 − τ) of a score.
    """
    return np.sqrt(1 + ((levels - 0.5) / WRONG) ** 2 / (levels * (1 - levels)))


@dataclass(frozen=True)
class Cut:
    """The share of records that are clearly weighted down, as answered, and the standard deviation of its noise.

    A record at ‖u‖ counts as min(`STEEP`(‖u‖ − 1), 1): fully if its weight is .56 or less.
    """

    share: float
    sd: float

    @property
    def clear(self) -> bool:
        """Whether the share stands clear of noise."""
        return self.share > max(3 * self.sd, 1e-3)


@dataclass(frozen=True)
class Frame:
    """Coordinates u = xF of a design.

    Args:
      matrix: F, (p, p).
      moment, moment_sd: E ωuuᵀ, and the noise of its packed coordinates.
      cut: how many records ω weights down.
      reach: R.
      excess: E(1 − √ω)‖u‖ times E(1 − √ω)uuᵀ/‖u‖: by how much records are too far out.
      reference: u of the reference design; None without one.
      doubtful: which terms may be constant, by where their columns lie; None if that is not known.
      answers: second moments as answered, each with its frame and noise.
      untold: mean square of the share of records far beyond the reach that the reference design does not tell of.
    """

    matrix: Floats
    moment: Floats
    moment_sd: Floats
    cut: Cut
    reach: float
    excess: Floats
    reference: Floats | None = None
    doubtful: NDArray[np.bool_] | None = None
    answers: tuple[tuple[Floats, Floats, float], ...] = ()
    untold: float = 0.0

    def unseen(self, directions: Floats) -> NDArray[np.bool_]:
        """Which directions (columns, in the frame) have no second moment that stands out of noise, by all answers.

        The answers are taken as they are: shrinkage to white would make the difference of two equal columns seem to
        vary. A direction counts as seen if its second moment is more than `FAINT` of the usual one, or may be the
        smallest eigenvalue of a white design in this noise. Axes beside those of the design, such as that of a scale,
        are ignored, and a direction that consists mostly of them is seen.
        """
        directions = directions[: len(self.matrix)]
        found, noise = self._seen(directions)
        size = np.sum(directions**2, axis=0)
        usual = float(np.median(np.diag(self.moment))) * size
        most = np.minimum(FAINT * usual, usual - SPREADS * math.sqrt(2 * len(self.matrix)) * noise)
        return np.asarray((found < np.minimum(SEEN * noise, most)) & (size > 0.5))

    def clear(self, directions: Floats) -> NDArray[np.bool_]:
        """Which directions have a second moment that stands clear of noise, by all answers."""
        found, noise = self._seen(directions)
        return np.asarray(found > CLEAR * noise)

    def _seen(self, directions: Floats) -> tuple[Floats, Floats]:
        """The second moment of each direction (column), by all answers as they are, and its noise."""
        found, weight = np.zeros(directions.shape[1]), np.zeros(directions.shape[1])
        for frame, raw, sd in self.answers:
            line = np.linalg.solve(frame, self.matrix @ directions)
            precision = np.maximum(sd * np.sum(line**2, axis=0), 1e-12) ** -2.0
            found, weight = found + precision * np.sum(line * (raw @ line), axis=0), weight + precision
        return found / weight, 1 / np.sqrt(weight)

    @cached_property
    def _rows(self) -> Floats:
        """Rows of the reference design with the second moments that were asked; of any such design without one."""
        white = np.sqrt(len(self.matrix)) * np.eye(len(self.matrix))
        if self.reference is not None:
            white = self.reference @ whitening(self.reference, None)
        return np.asarray(white @ np.linalg.cholesky(self.solid).T)

    @cached_property
    def ball(self) -> Floats:
        """C of an ellipsoid uᵀC⁻¹u ≤ 1 that leaves out no more than the reach, with less noise along most axes.

        Records far out along one axis should not make the noise along others large. So the ellipsoid follows second
        moments in which a record counts by its square distance: a step toward the ellipsoid of least volume around all
        records (Titterington 1976). What is left out of far-out records, E(1 − √ω)‖u‖, is that of the reference design.
        """
        if self.reference is None:
            return np.eye(len(self.matrix))
        white = len(self.matrix) / self.reach**2  # the trace of second moments, of which weights below 1 leave a part
        u = self._rows * math.sqrt(max(white / float(np.trace(self.solid)), 1.0))
        size = np.linalg.norm(u, axis=1)
        lost = max(float(np.mean(np.maximum(size - 1, 0.0))), LEAST_LOST)

        def beyond(shape: Floats) -> tuple[Floats, float]:
            far = np.sqrt(np.sum(np.linalg.solve(shape, u.T).T * u, axis=1))
            low, high = 0.0, float(np.max(far))
            for _ in range(30):
                most = (low + high) / 2
                less = np.mean(np.maximum(1 - most / far, 0.0) * size) > lost
                low, high = (most, high) if less else (low, most)
            return far, high

        far, most = beyond(u.T @ u)
        shape = (u * np.minimum(far, most)[:, None] ** 2).T @ u
        return np.asarray((MARGIN * beyond(shape)[1]) ** 2 * shape)

    @property
    def squares(self) -> Floats:
        """Variance of the packed coordinates of ωuuᵀ, about zero: E(ωu_a u_b)², by the reference design."""
        i, j, length = triangle(len(self.matrix))
        if self.reference is None:
            diagonal = np.diag(self.solid)
            return np.asarray(length**2 * np.minimum(diagonal[i], diagonal[j]))  # as u_a² ≤ 1
        square = self._rows**2
        square /= np.maximum(np.sum(square, axis=1, keepdims=True), 1.0)
        return np.asarray(length**2 * ((square.T @ square) / len(square))[i, j])

    def bent(self, step: Floats, gradient: Floats, noise: Floats, down: float, up: float) -> Floats:
        """Covariance of what a gradient H·step misses because scores are bounded.

        The mean score of a rare group is at its bound if the group has far to go, whatever the distance. A Newton step
        then moves the group `down` or `up` by the bound over the curvature, and the rest of the way may be of any
        length. So the error of an axis grows without bound as the step approaches that length, beyond what its `noise`
        (a covariance) explains. Records of the reference design, with the second moments that were asked, tell how far
        the step moves those that an axis is about: along a direction that columns do not have, no record.
        """
        u = self._rows
        moved = u @ step
        far = np.maximum(moved**2 - np.sum((u @ noise) * u, axis=1), 0.0) / np.where(moved < 0, down, up) ** 2
        share = np.minimum(np.sqrt((u**2).T @ far / np.maximum(np.sum(u**2, axis=0), 1e-300)), FULL)
        return np.diag((share**4 / (1 - share) * gradient) ** 2)

    def left_out(self, wrong: float = 1.0) -> Floats:
        """Covariance of the bias that the weights √ω may give to a gradient, over the variance of a score.

        There is no bias where the model is right. Where it is wrong far out, scores there have a mean of about `WRONG`
        standard deviations, times `wrong`.
        """
        return (wrong * WRONG) ** 2 * self.excess

    def overlooked(self, wrong: float = 1.0) -> Floats:
        """The same covariance for records that the reference design does not tell of: they may lie along any axis."""
        return (wrong * ONE_SIDED) ** 2 * self.untold * np.eye(len(self.matrix))

    @property
    def sizes(self) -> Floats:
        """By axis, the inverse of how far it moves u of a record that it is about: R, or 1 for the axis of a rare flag.

        A standard deviation of a rare flag is a small part of the flag: in these units, what moves the response by a
        usual amount is the flag itself.
        """
        if self.reference is None:
            return np.full(len(self.matrix), self.reach)
        about = np.mean(np.abs(self.reference), axis=0) / np.maximum(np.mean(self.reference**2, axis=0), 1e-300)
        return np.clip(about / NORMAL, 1.0, self.reach)

    @property
    def solid(self) -> Floats:
        """The moment with eigenvalues raised to where they stand clear of its noise: for steps, not for intervals."""
        return raised(self.moment, self.moment_sd)

    def turned(self, axes: Floats) -> "Frame":
        """This frame with its axes rotated by an orthogonal matrix."""
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
    asker: Asker, design: Design, score: float = SCORE, *, wrong: float = 1.0, alone: bool = True, worst: bool = True
) -> Frame:
    """Find coordinates u = xF in which E uuᵀ is about I/R² and most ‖u‖ ≤ 1: the stages "columns" to "moments".

    The first frame is that of a reference design with independent columns. Then the design is whitened by rounds, as in
    CoinPress (Biswas, Dong, Kamath, Ullman 2020): an eigenvalue below its noise is raised to the noise, and its
    direction is magnified and asked again in the next round. An axis that is not seen is rotated toward no other, so
    that a level that never occurs costs no other coefficient anything.

    Args:
      asker: asks the questions.
      design: of the regression.
      score: standard deviation of the score, over its bound.
      wrong: mean score far out where the model is wrong there, over the usual one.
      alone: whether a rare flag has an axis of its own. Not in quantile regression: the density in a rare group is
        often far from that of all records, toward which the entry of such an axis would be pulled.
      worst: whether the reach is chosen for the axis along which most is left out, and not for all alike.
    """
    p, unknown = len(design.names), Columns({}, {}, 0.0)
    if not asker.whitens:
        frame, reach = _scaled(np.eye(p), design, design.norm_bound**2, alone, unknown.apart(design))
        doubtful = np.ones(p, dtype=bool)
        moment, moment_sd, cut, answered = _second_moments(asker, frame, reach, doubtful)
        return Frame(frame, moment, moment_sd, cut, reach, np.zeros((p, p)), answers=(answered,))
    frame, own, rows, doubtful = np.eye(p), own_terms(design), None, np.ones(p, dtype=bool)  # until it is known
    apart, based = unknown.apart(design), np.eye(p)
    if own is not None and any(own):
        at = locate_columns(asker, *own, design)
        rows, doubtful = reference_design(design, at), at.doubtful(design)
        frame, apart, based = whitening(rows, doubtful), at.apart(design), at.based(design)

    def scaled(frame: Floats, most: float) -> tuple[Floats, float]:
        frame, reach = _scaled(based @ frame, design, most, alone, apart)
        return based @ frame, reach

    least = squared_reach(asker.n, p, math.inf)
    answers: list[tuple[Floats, Floats, float]] = []
    for _ in range(asker.question("frame", "moment").times):
        frame, reach = scaled(frame, least)
        answer, sd = asker.ask("frame", "moment", frame)
        answers.append((frame, unpack(answer, p), sd))
        found, left = _moment(unpack(answer, p), sd, reach, asker.shrink, doubtful)
        values, axes = np.linalg.eigh(found)
        floor = np.clip(clear_of(axes, left) / 2, 1e-12, 1 / reach**2)  # what noise hides may be there, and stays
        floor = np.maximum(floor, (np.linalg.norm(frame @ axes, axis=0) / FINEST) ** 2)
        frame = frame @ (axes / np.sqrt(np.maximum(values, floor))) @ axes.T  # axes stay near the terms
    most, noise = squared_reach(asker.n, p, asker.noise("final"), score), asker.noise("final") / score
    near, reach = scaled(frame, least)
    lengths = _distances(asker, near) if asker.asks("distances") else None
    wider = 1.0 if lengths is None else WIDER
    far = _Far(lengths, None if rows is None else _no_farther(rows @ near, reach, wider))
    farther = far.balanced(math.sqrt(most) / reach, noise, SMALL / math.sqrt(asker.n) / reach, wrong, worst)
    frame, reach = scaled(frame, (reach * farther) ** 2)
    reference = None if rows is None else rows @ frame
    moment, moment_sd, cut, answered = _second_moments(asker, frame, reach, doubtful, answers)
    inside = float(np.sum(np.abs(frame @ frame.T))) <= 1 + 1e-9  # the declared box is
    told = np.zeros((1, p)) if rows is None else _no_farther(rows @ frame, reach, wider)
    untold = 0.0 if inside else _untold(cut, told)
    excess = far.left_out(farther, p)
    made = Frame(frame, moment, moment_sd, cut, reach, excess, reference, None, (*answers, answered), untold)
    return made if rows is None else replace(made, doubtful=doubtful & ~made.clear(frame.T))


def _second_moments(
    asker: Asker,
    frame: Floats,
    reach: float,
    doubtful: NDArray[np.bool_],
    before: Sequence[tuple[Floats, Floats, float]] = (),
) -> tuple[Floats, Floats, Cut, tuple[Floats, Floats, float]]:
    """Ask the stage "moments": E ωuuᵀ, the noise left in it, how many records ω weights down, and the answer itself.

    The answers `before`, in other frames, count too, by their noise in this one.
    """
    answer, sd = asker.ask("moments", "moment_and_cut", frame, CUT, STEEP)
    unit = np.sqrt(1 + CUT**2)
    raw = unpack(answer[:-1] * unit, len(frame))
    answered = frame, raw, sd * unit
    found, left = _moment(*_together(frame, (*before, answered)), reach, asker.shrink, doubtful)
    return found, left, Cut(float(answer[-1]) * unit / CUT, sd * unit / CUT), answered


def _together(frame: Floats, answers: Sequence[tuple[Floats, Floats, float]]) -> tuple[Floats, Floats]:
    """Second moments by all answers, the last of which is in this frame, and the noise of the packed coordinates.

    Each entry is a mean by precision. Earlier frames have another reach, and so other weights of records: their entries
    are given the error `REACHES` of those of the last.
    """
    i, j, length = triangle(len(frame))
    *_, (_, last, sd) = answers
    if sd == 0:
        return last, np.zeros(len(i))
    size = np.sqrt(np.maximum(np.diag(last), sd))
    total, weight = np.zeros(len(i)), np.zeros(len(i))
    for k, (other, raw, noise) in enumerate(answers):
        line = np.linalg.solve(other, frame)
        gram = line.T @ line
        square = noise**2 * (np.diag(gram)[i] * np.diag(gram)[j] + gram[i, j] ** 2) * length**2 / 2
        square += (REACHES * (k < len(answers) - 1) * size[i] * size[j] * length) ** 2
        precision = 1 / np.maximum(square, 1e-300)
        total, weight = total + precision * pack(line.T @ raw @ line), weight + precision
    return unpack(total / weight, len(frame)), np.sqrt(1 / weight)


def _distances(asker: Asker, frame: Floats) -> Lengths:
    """Ask the stage "distances": the distribution of ‖u‖."""
    longest = math.sqrt(float(np.sum(np.abs(frame @ frame.T))))  # entries of x lie in [−1, 1]
    edges = np.concatenate([[0.0], np.geomspace(NEAREST, max(longest, 2 * NEAREST), BINS)])
    return Lengths(asked_law(asker, "distances", "distances", edges, frame)[0], longest)


@dataclass(frozen=True)
class _Far:
    """How far out records lie: the distribution of ‖u‖, and u of a reference design. One of them may be missing."""

    lengths: Lengths | None
    reference: Floats | None

    def left_out(self, reach: float, terms: int) -> Floats:
        """E(1 − √ω)‖u‖ times E(1 − √ω)uuᵀ/‖u‖ over the reach, as if all far-out records lay on one side.

        The reference design says along which axes. How much is the answer's where it stands clear of noise, and else
        the root mean square of both: what is overlooked is missed in silence.
        """
        total = self.lengths.excess(reach)[0] if self.lengths else 0.0
        if self.reference is None:
            return (total / reach) ** 2 / terms * np.eye(terms)
        size = np.maximum(np.linalg.norm(self.reference, axis=1), 1e-100)  # without an intercept a row may be zero
        lost = np.maximum(1 - reach / size, 0.0)
        seen = float(np.mean(lost * size))
        where = lost / size if seen else size**2  # the axes of its longest rows, where none is as long
        axes = (self.reference.T * where) @ self.reference / float(where @ size**2)  # of trace 1
        if self.lengths:
            clear = float(self.lengths.beyond(np.array(reach))) > SEEN * self.lengths.law.sd
            seen = total if clear else math.sqrt((total**2 + seen**2) / 2)
        return np.asarray((seen / reach) ** 2 * axes)

    def balanced(self, least: float, noise: float, small: float = 0.0, wrong: float = 1.0, worst: bool = True) -> float:
        """The reach, at least `least`, that minimises the sum of squares of its noise and of what it leaves out.

        What is left out counts as `small` where it is less; `wrong` and `worst` are as in `design_frame`.
        """
        terms = 1 if self.reference is None else self.reference.shape[1]

        def cost(reach: float) -> float:
            lost_by_axis = np.linalg.eigvalsh(self.left_out(reach, terms))
            square = lost_by_axis[-1] if worst else max(float(np.mean(lost_by_axis)), 0.0)
            lost = wrong * WRONG * math.sqrt(square)
            return reach * math.hypot(noise, max(lost, small / reach))

        return float(min(least * np.sqrt(np.geomspace(1, FARTHEST, 25)), key=cost))


def _no_farther(reference: Floats, reach: float, wider: float = 1.0) -> Floats:
    """The reference design with directions along which it is `wider` than a white one, by this factor, made less wide.

    Its columns are independent. What true columns have in common is magnified, and would let it look far out there. A
    skewed column makes it wider too: a frame is white in moments in which far-out records count less.
    """
    values, axes = np.linalg.eigh(reference.T @ reference * (reach**2 / len(reference)))
    return np.asarray(reference @ (axes / np.sqrt(np.maximum(values / wider, 1.0))) @ axes.T)


def _untold(cut: Cut, reference: Floats) -> float:
    """The mean square of the share of records beyond the reach that the reference design does not tell of.

    Most designs have no such records, a tenth of them (`SOME`) have some hundredths (`UNTOLD`): a mixture of zero and
    an exponential distribution, given the answer on all that lie there.
    """
    told = float(np.mean(np.clip(STEEP * (np.linalg.norm(reference, axis=1) - 1), 0.0, 1.0)))
    share, sd = cut.share - told, cut.sd
    if sd == 0:
        return max(share, 0.0) ** 2
    a = share / sd - sd / UNTOLD
    some = math.log(SOME / UNTOLD) + (sd / UNTOLD) ** 2 / 2 - share / UNTOLD + float(log_ndtr(a))
    none = math.log(1 - SOME) - (share / sd) ** 2 / 2 - math.log(sd * math.sqrt(2 * math.pi))
    tail = math.exp(-0.5 * a * a - float(log_ndtr(a))) / math.sqrt(2 * math.pi)
    return float(expit(some - none)) * sd**2 * max(1 + a * a + a * tail, 0.0)


def _scaled(
    frame: Floats, design: Design, most: float, alone: bool, apart: Mapping[int, Apart]
) -> tuple[Floats, float]:
    """The frame over R, for R² at most `most` and no larger than the declared box allows; and R.

    A flag, or a level, that is rarer than one record in R² would be cut by ω, and its records would count the less
    the more it is magnified: it moves u by at most one. So does a number that most records have one value of. Where it
    stands `alone` it has an axis of its own, on which u is d: across axes, its small moment would be a difference of
    large ones, of which noise and shrinkage leave nothing.

    `apart`: by term, what x_j is for records without it, and by how much it differs for those with it. A level is
    rare, or not, beside the other levels of its column, and on all other axes it lies at the mean of those not rare.
    """
    reach = math.sqrt(min(most, float(np.sum(np.abs(frame @ frame.T)))))  # entries of x lie in [−1, 1]
    frame = frame / reach
    rare = [j for j, term in apart.items() if np.linalg.norm(_line(frame, j, term)) > 1]
    if not rare:
        return frame, reach
    rest, step = np.array([apart[j][:2] for j in rare]).T
    usual = np.array([_usual(frame, apart[j], rare) for j in rare])
    line = frame[rare] - usual
    if alone and design.has_intercept:
        turn = _turn(line, rare)
        frame, usual = frame @ turn, usual @ turn
        frame[0] += rest @ (frame[rare] - usual)  # u of the records without it stays
        frame[rare], frame[:, rare] = usual, 0.0
        frame[rare, rare], frame[0, rare] = 1 / step, -rest / step
        return frame, reach
    for j, without, row, size in zip(rare, rest.tolist(), line, np.abs(step).tolist(), strict=True):
        size *= float(np.linalg.norm(row))
        frame[0] += without * row * (1 - 1 / size)  # the row of the records without it stays
        frame[j] -= row * (1 - 1 / size)
    return frame, reach


def _line(frame: Floats, j: int, term: Apart) -> Floats:
    """How far u of the records that have the j-th term lies from the mean of u of the others."""
    shares = np.array([*term.others.values()])
    return np.asarray(term.step * (frame[j] - shares @ frame[[*term.others]]))


def _usual(frame: Floats, term: Apart, rare: list[int]) -> Floats:
    """The row that puts a level at the mean of the others of its column that are not rare."""
    common = {i: share for i, share in term.others.items() if i not in rare}
    total = 1 - sum(share for i, share in term.others.items() if i in rare)  # with the level that has no term
    return np.asarray(np.array([*common.values()]) @ frame[[*common]] / max(total, 1e-12))


def _turn(moves: Floats, axes: list[int]) -> Floats:
    """The rotation nearest to the identity that turns these rows, made orthogonal, to these axes."""
    p = moves.shape[1]
    left, _, right = np.linalg.svd(moves, full_matrices=False)
    moves, kept = left @ right, np.delete(np.eye(p), axes, axis=0)
    left, _, right = np.linalg.svd((np.eye(p) - moves.T @ moves) @ kept.T @ kept + moves.T @ np.eye(p)[axes])
    return np.asarray(left @ right)


def _moment(
    raw: Floats, noise: Floats | float, reach: float, shrink: Shrink, doubtful: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """E ωuuᵀ shrunk to white, and the noise left in it.

    Axes that are seen are shrunk, and so are those that noise hides if their answer may be white: the histograms have
    scaled their columns. An axis that is neither, or that noise hides and that is `doubtful`, has no entries with
    others; its own entry is at least its noise, and at most white.
    """
    p = len(raw)
    i, j, _ = triangle(p)
    noise = np.full(len(i), noise)
    sd = noise[i == j]
    clear, white = np.diag(raw) > SEEN * sd, np.diag(raw) + SEEN * sd > reach**-2
    seen = clear | (white & ~doubtful)
    raw = np.where(np.outer(seen, seen) | np.eye(p, dtype=bool), raw, 0.0)
    hidden = np.minimum(np.maximum(np.diag(raw), sd), reach**-2)
    raw[np.diag_indices(p)] = np.maximum(np.where(seen, np.diag(raw), hidden), 1e-9)
    typical = float(np.median(sd))
    level = float(np.median(np.diag(raw)[seen])) if seen.any() else typical
    keep = LEVEL**2 / (LEVEL**2 + (typical * reach**2) ** 2 / max(int(seen.sum()), 1))
    level = max(keep * level + (1 - keep) * reach**-2, 1e-9)  # noise alone would make any level of it
    usual = float(np.clip(typical * reach**2, USUAL, UNUSUAL))
    value, left = shrink(
        raw, np.where(seen, level, np.diag(raw)) * np.eye(p), noise, pulled=seen[i] & seen[j], usual=usual
    )
    return value, np.where((i == j) | (seen[i] & seen[j]), left, 0.0)
