"""Second moments around a training, and the posterior that they and its transcript add up to."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import pack, triangle, unpack
from pgbb.accountant import Mechanism
from pgbb.methods.pgbb import logistic, moment_answers
from pgbb.methods.pgbb.all_levels import Joint
from pgbb.methods.pgbb.coordinates import Coordinates
from pgbb.methods.pgbb.dither import phases_of, white_box
from pgbb.methods.pgbb.noise_aware import ASKED, BENT, Found, analyse, bent, curvature_of, near, posterior_of, pulled
from pgbb.methods.pgbb.shape import bend_at, bends_alike, is_cut, shape_of
from pgbb.model.models import Problem
from pgbb.release.local_gaussian import FLOOR, LocalGaussian

if TYPE_CHECKING:
    from pgbb.private.door import Sums


Floats = NDArray[np.float64]

ROOM = 1.5  # how far beyond the likely norm of the curvature that of one record may reach
ROUNDING = 1e-3  # in single precision, relative
CONTRADICTS = 3.0  # standard deviations between two curvatures
CUT = "many scores are clipped, so that it is not the mean (give the mean a larger clip, or its right scale)"


class SecondMoments:
    """Asks for second moments before and after a training (`training.Second`), and makes a posterior of all answers."""

    def __init__(self, sums: "Sums", problem: Problem, joint: Joint, mechanism: Mechanism, sigma: float) -> None:
        self._sums, self._problem, self._joint = sums, problem, joint
        self._mechanism, self._sigma = mechanism, sigma
        self._box = problem.center - problem.radius, problem.center + problem.radius
        self._noise = sums.noise(moment_answers.STAGE)
        self._first_sd, self._last_sd = moment_answers.noises(problem, self._noise)
        self._moment: Floats | None = None  # of the design
        self._found: list[Found] | None = None  # what `after` has read off the transcript

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of the answers before and after."""
        return moment_answers.sizes(self._problem)

    def before(self) -> tuple[Floats, Coordinates]:
        """Second moments of the design, packed, and coordinates in which it is white."""
        answer, _ = moment_answers.before(self._sums, self._problem)
        return answer, self._coordinates(answer)

    def after(self, found: Any, transcript: dict[str, np.ndarray]) -> Floats:
        """Second moments of the score at the estimate, packed, and where it is asked for the curvature there."""
        where = self._coordinates(found)
        self._found = self._parts(where, transcript)
        part, problem = self._found[0], self._problem
        value, _, _ = curvature_of(part, where)
        step: Floats = -np.linalg.solve(value, part.gradient).astype(np.float64)
        theta = np.clip(part.reference + where.internal(part.bent(step)), *self._box_of(where))
        i, j, _ = triangle(len(theta))
        likely = np.abs(pack(part.curvature)) + 2 * part.curvature_sd
        bound = ROOM * float(np.linalg.norm(likely * where.root[i] * where.root[j]))
        if bends_alike(problem):
            bound = (1 + ROUNDING) * bend_at(problem, theta)
        return moment_answers.after(self._sums, problem, theta, max(bound, 1e-30))

    def posterior(
        self, answers: tuple[Any, Any], transcript: dict[str, np.ndarray]
    ) -> tuple[LocalGaussian, dict[str, Any], list[str]]:
        """The local posterior, what a release records about it, and notes."""
        problem, joint = self._problem, self._joint
        where = self._coordinates(answers[0])
        known = self._parts(where, transcript) if self._found is None else self._found
        parts = [self._bent(part, where, answers[1]) for part in known]
        found, misfits, reasons = posterior_of(
            parts,
            where,
            joint.decode,
            self._mechanism,
            self._sigma,
            self._sampling(where, answers[1]),
            self._box_of(where),
            joint.levels,
            ASKED if moment_answers.asks_bend(problem) else BENT,
            CUT if problem.kind == "mean" and self._cut(parts[0], where) else None,
            self._side(parts[0], where),
        )
        record = {
            "method": "pgbb",
            "intervals": "noise-aware",
            "answers": [part.answers for part in parts],
            "misfit": misfits,
            "bend": [[b / float(np.mean(np.diag(part.curvature))) for b in part.bend] for part in parts],
        }
        return found, record, reasons

    def _side(self, part: Found, where: Coordinates) -> float | None:
        """The share of events of a logistic regression, or of others if these are fewer; one half without an outcome.

        It follows from the mean of p(1 − p), which is H over the second moments of the design.
        """
        if self._problem.design is None:
            return None
        if self._problem.kind != "logistic":
            return float(self._problem.settings.get("c", 0.5))
        variance = float(np.clip(np.mean(np.diag(curvature_of(part, where)[0])), 0.0, 0.25))
        return float(1 - np.sqrt(1 - 4 * variance)) / 2

    def _cut(self, part: Found, where: Coordinates) -> bool:
        """Whether so many scores of a mean are clipped that it moves, by the largest H that noise allows."""
        if not part.answers:
            return False
        step = part.bent(-part.gradient / part.curvature[0])
        mean = float(np.clip(part.reference + where.internal(step), *self._box)[0])
        most = float(part.curvature[0, 0] + CONTRADICTS * part.curvature_sd[0]) * float(where.root[0]) ** 2
        return is_cut(self._problem, self._mechanism.n, most, mean)

    def _box_of(self, where: Coordinates) -> tuple[Floats, Floats]:
        """Where parameters may lie: as far as query points may go, and no less than the declared box.

        A slope may be more than half the range of the response over the declared range of its covariate, where records
        fill little of that range; a `bound` that the user gave is taken as it is.
        """
        low, high = self._box
        if self._problem.design is None or self._problem.settings.get("bound") is not None:
            return low, high
        reach = where.reach(white_box(self._problem)[1])
        return np.where(where.alike, np.minimum(low, -reach), low), np.where(where.alike, np.maximum(high, reach), high)

    def _coordinates(self, answer: Any) -> Coordinates:
        problem = self._problem
        if problem.design is None:
            return Coordinates.of_box(problem.radius)
        p = len(problem.design.names)
        self._moment = unpack(np.asarray(answer, np.float64), p)
        return Coordinates.of_design(self._moment, self._first_sd, problem.dim - p)

    def _parts(self, where: Coordinates, transcript: dict[str, np.ndarray]) -> list[Found]:
        """What the answers say about each level."""
        joint, mechanism = self._joint, self._mechanism
        q, k = mechanism.sampling_rate, mechanism.draws_per_step
        count = len(transcript.get("u", ()))
        first = mechanism.steps - count // k  # 0, but where another process has the beginning
        step = first + np.arange(count) // k
        phases = phases_of(self._problem)
        used = step >= phases.used * mechanism.steps
        if not used.any():  # another process has them all
            return [Found.nothing(self._problem.center) for _ in range(joint.count)]
        age = step[used] / mechanism.steps
        late = age >= phases.late
        gradients = joint.gradients(transcript["answer"][used].astype(np.float64)) / q
        shape = (-1, joint.count, joint.dim)
        points, dither = (transcript[name][used].astype(np.float64).reshape(shape) for name in ("query", "dither"))
        u = transcript["u"][used].astype(np.float64)
        loud = np.sqrt(np.sum(joint.decode**2, axis=1))
        if self._problem.design is None:
            noise = self._sigma / q
            known = partial(shape_of, self._problem, where) if bends_alike(self._problem) else None
            return [bent(gradients[:, 0], u, points[:, 0], dither[:, 0], late, where, noise, self._box, known)]
        found = []
        for at in range(joint.count):
            rows = near(where.whitened(points[:, at]), age, late)
            moved = np.where(late[rows, np.newaxis], dither[rows, at], 0.0)
            told = gradients[rows, at], u[rows], points[rows, at], moved, late[rows], where
            noise = self._sigma / q * float(loud[at])
            if self._problem.kind == "logistic":
                found.append(logistic.read(*told, noise, constant="Intercept" in self._problem.design.names))
                continue
            side = 0.0 if joint.levels is None else min(joint.levels[at], 1 - joint.levels[at])
            found.append(analyse(*told, noise, self._shape(points[late, at], where), side))
        return found

    def _shape(self, points: Floats, where: Coordinates) -> Floats:
        """Of a gradient with a design: that of a scale σ is about straight in log σ, which y/(1 + y/2σ) follows."""
        return np.where(where.alike, 0.0, 0.5 / np.abs(where.whitened(points).mean(axis=0)))

    def _bent(self, part: Found, where: Coordinates, answer: Any) -> Found:
        """With the curvature that was asked for, where there is one to add and the dither does not contradict it."""
        if not moment_answers.asks_bend(self._problem) or not part.answers:
            return part
        i, j, _ = triangle(len(where.root))
        unit = where.root[i] * where.root[j]
        *values, bound = np.asarray(answer, np.float64)[len(unit) :]
        step: Floats = -np.linalg.solve(curvature_of(part, where)[0], part.gradient).astype(np.float64)
        slope = 1 + part.shape * part.bent(step)  # H at the estimate, where it was asked for, is smaller by its square
        unit = unit / (slope[i] * slope[j])
        value, sd = np.array(values) / unit, self._noise * bound / unit
        own, own_sd = pack(part.curvature), part.curvature_sd
        if np.any(np.abs(value - own) > CONTRADICTS * np.hypot(sd, own_sd)):
            return part
        first, second = 1 / sd**2, 1 / own_sd**2
        both = unpack((first * value + second * own) / (first + second), len(where.root))
        return replace(part, curvature=both, curvature_sd=1 / np.sqrt(first + second))

    def _sampling(self, where: Coordinates, answer: Any) -> tuple[Floats, Floats]:
        """Covariance of the score of one record in the frame, and the noise of its packed coordinates."""
        d = len(where.root)
        i, j, _ = triangle(d)
        if self._problem.kind == "quantile":
            return np.diag(where.root**2), np.full(len(i), self._first_sd)
        raw = where.frame.T @ unpack(np.asarray(answer, np.float64)[: len(i)], d) @ where.frame
        raw, unit = raw / np.outer(where.root, where.root), where.root[i] * where.root[j]
        value, left = pulled(raw, self._last_sd / unit, where)
        values, vectors = np.linalg.eigh(value)
        value = (vectors * np.maximum(values, FLOOR * float(np.min(np.diag(where.target(raw)))))) @ vectors.T
        return value * np.outer(where.root, where.root), left * unit
