"""`Asker` asks the questions of one fit; a study may leave ingredients of the method out of it."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pgbb._numerics.symmetric import unpack
from pgbb.methods.calibrated.algebra import Shrink, as_answered, shrink
from pgbb.methods.calibrated.stages import Question, Stage
from pgbb.model.models import Problem

if TYPE_CHECKING:
    from pgbb.private.door import Sums


Ingredient = Literal["whitening", "shrinkage", "redrawing"]
"""The frame that is found by rounds; matrices shrunk to their targets; covariances drawn with their noise."""
INGREDIENTS: tuple[Ingredient, ...] = get_args(Ingredient)


class Asker:
    """Asks the records behind `sums` the questions that `stages` list, by name of the stage and of the statistic.

    `without` names ingredients that a study leaves out; the release says so.
    """

    def __init__(
        self,
        sums: "Sums",
        problem: Problem,
        stages: Sequence[Stage],
        without: frozenset[Ingredient] = frozenset(),
        group_size: int = 1,
    ) -> None:
        self._sums, self._problem = sums, problem
        self._questions = {
            (stage.name, question.statistic): question for stage in stages for question in stage.questions
        }
        self.n, self.group_size = sums.n, group_size
        self.whitens = "whitening" not in without
        self.shrink: Shrink = as_answered if "shrinkage" in without else shrink
        self.usable = 1.0  # upper bound, from an answer, on the share of records (or of their weight) that count

    def compile_ahead(self) -> None:
        """Start to compile every question, so that its first answer does not wait for the compiler."""
        programs = [(q.function(self._problem), q.shapes, q.power) for q in self._questions.values()]
        self._sums.prepare(list(dict.fromkeys(programs)))

    def asks(self, stage: str) -> bool:
        """Whether the stage is among the planned ones."""
        return any(name == stage for name, _ in self._questions)

    @property
    def spread(self) -> str | None:
        """The stage that asks for second moments of the score, or None."""
        return next((stage for stage in ("persons", "spread") if self.asks(stage)), None)

    @property
    def counts_each(self) -> bool:
        """Whether second moments of the score are those of single records without weights."""
        return any(stage == "spread" and question.power == 0 for (stage, _), question in self._questions.items())

    @property
    def _persons(self) -> int:
        """What makes a second moment by person of its answer; 1 for second moments of single records."""
        return 2 * self.group_size if self.spread == "persons" else 1

    @property
    def moments_noise(self) -> float:
        """The noise of `score_moments`."""
        return self._persons * self.noise(str(self.spread))

    def score_moments(self, *parameters: Any) -> tuple[NDArray[np.float64], float]:
        """n times the covariance of the mean score, and the noise of its packed coordinates.

        By person the answer is (g/2n) Σ SSᵀ, where S is the sum of up to g scores of a person, over g
        (`private.persons`); so it is multiplied by 2g.
        """
        stage = str(self.spread)
        statistic = next(name for at, name in self._questions if at == stage)
        answer, sd = self.ask(stage, statistic, *parameters)
        return unpack(self._persons * answer, round(math.sqrt(2 * len(answer) + 0.25) - 0.5)), self._persons * sd

    def question(self, stage: str, statistic: str) -> Question:
        """The description of a question."""
        return self._questions[stage, statistic]

    def times(self, stage: str, statistic: str) -> int:
        """How often the question is asked; 0 if the stage is not among the planned ones."""
        return self.question(stage, statistic).times if self.asks(stage) else 0

    def noise(self, stage: str) -> float:
        """Standard deviation of the noise on each number of a stage's answers; public."""
        return self._sums.noise(stage)

    def ask(self, stage: str, statistic: str, *parameters: Any) -> tuple[NDArray[np.float64], float]:
        """One noisy mean, flattened, and the standard deviation of its noise on each number."""
        question = self.question(stage, statistic)
        return self._sums.ask(stage, question.function(self._problem), *parameters, power=question.power)
