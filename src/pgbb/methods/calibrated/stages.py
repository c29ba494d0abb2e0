"""Every question that the default method asks of the records, as one list of stages.

The accountant, `pgbb plan`, compilation, `asking` and the diagnostics of a release all read these objects. To ask
something new, write its function in `statistics` and add a `Question` to the stage that pays for it, or a new `Stage`
with a share of the budget. Everything here is public arithmetic: no JAX, no record.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pgbb.accountant import Composition, Mechanism, compose, noise_scale
from pgbb.errors import InvalidValue
from pgbb.methods.calibrated.column_terms import many_levels, own_terms
from pgbb.model.formula import Design
from pgbb.model.models import Problem

BINS = 64  # number of bins of every histogram
LEAST_REACH = (16.0, 2.5)  # the squared reach R² of a frame of p terms is at least the first, and p times the second
JITTERS = 8  # places over which a response with a declared step is spread

# Shares of the budget.
COLUMNS, FRAME, DISTANCES = 0.05, 0.07, 0.02  # of the stages that every design has; the last only where noise is small
LEVELS = 0.03  # of the means of covariates by level, where a column has many
RESPONSE, START, RESIDUALS = 0.03, 0.05, 0.03  # of the stages that most responses have
CURVATURE = 0.09  # of the curvature matrices of all quantile levels
MOMENTS = 0.08, 0.14  # of second moments of a design; the second value where other matrices follow from them
LOCATE, ROBUST = 0.05, 0.12  # of one Newton step of a Huber loss, and of `STEPS` of them together
REFINE = 0.14, 0.1  # of the gradient before the last; the second value with few records, where locating takes more
LAST = 0.1  # of the last gradient, at least
PERSONS = 0.12  # of second moments of the score by person

LASTS = 3  # number of last gradients of quantile levels
EASED = ("frame", "response", "start", "residuals")  # stages of a quantile regression that need less where n is large

# Thresholds. "Noise" is that of one answer with the whole budget.
WORTH = 0.021  # curvature of a Huber loss, or of each quantile level, is asked if its relative noise is below this
QUIETER = 0.007  # the same threshold for a logistic regression, whose curvature follows from its design
HIDING = 0.002  # noise above which locating and starting get larger shares, since nothing would be found otherwise
HIDDEN = 0.003  # the same for quantiles, which have more gradients that need the budget
MANY = 8  # number of terms from which the first fit may miss a group of records by far more than most of them
STEPS = 4  # number of Newton steps of a Huber loss where the first fit may be far off
OFF = 0.12  # error of the first fit, in spreads of the response, above which it may be far off
NEARER = 0.25  # noise of a step, over the error that is left, above which more steps lead no nearer
QUIET = 0.1  # the same noise below which a Huber regression always takes these steps
NONE, NEAR, NEARING = 3e-4, 0.04, 2  # below the first, it has a stage of this share with so many gradients more
PLENTY, LEAST_EASED = 0.0008, 0.5  # below this noise a share of `EASED` falls with it, down to the second value of it
FEW = 0.0045  # noise above which one answer, or two, replace several rounds

CUT = 3.0  # the first fit clips the response at so many spreads
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """The noisy mean of one statistic over all records.

    Args:
      statistic: name of a function in `statistics`. It is looked up late, because planning must not need JAX.
      shapes: shapes of the parameters of the statistic, for which a program is compiled.
      times: how often the question is asked.
      power: exponent of the survey weights: 1 for means, 2 for the variance of a weighted score, 0 where only the bulk
        of the records matters.
      outer: whether the mean is that of outer products: of each record, or of the sum over the records of a person
        where persons are told.
    """

    statistic: str
    shapes: tuple[Shape, ...]
    times: int = 1
    power: int = 1
    outer: bool = False

    def function(self, problem: Problem) -> Callable[..., Any]:
        """The statistic as a function of one record; that of a custom loss is made for the loss."""
        from pgbb._numerics.compiled import squared  # JAX is needed from here on
        from pgbb.methods.calibrated import statistics

        found: Callable[..., Any] = getattr(statistics, self.statistic)
        made: Callable[..., Any] = found(problem) if problem.kind == "custom" else found
        return squared(made) if self.outer else made


@dataclass(frozen=True)
class Stage:
    """Questions that share a part of the budget, and so have the same noise.

    The privacy loss of full-batch Gaussian answers adds up in μ² (Gaussian DP), so shares are shares of μ². A stage of
    k answers with the share s has noise in proportion to √(k/s).
    """

    name: str
    share: float
    why: str
    questions: tuple[Question, ...]

    @property
    def asks(self) -> int:
        """Number of answers of the stage."""
        return sum(question.times for question in self.questions)

    @property
    def scale(self) -> float:
        """Standard deviation of the noise of its answers, in units of σ."""
        return math.sqrt(self.asks / self.share)


def composition(stages: Sequence[Stage], n: int) -> Composition:
    """What the accountant certifies: stages with noise σ·√(asks/share) on means of statistics of norm at most 1."""
    if abs(sum(s.share for s in stages) - 1) > 1e-9:
        raise InvalidValue("the shares of the stages must add up to 1.")
    return compose(
        [Mechanism(n=n, blocks=1, sampling_rate=1.0, steps=s.asks, clip=1.0) for s in stages],
        scales=[s.scale for s in stages],
    )


@lru_cache(maxsize=64)
def whole_noise(n: int, epsilon: float, delta: float) -> float:
    """Standard deviation of the noise of one answer about n records that has the whole budget.

    The rules of this module depend on this number, which is public.

    >>> round(whole_noise(10_000, 1.0, 1e-6), 6)
    0.000845
    """
    return noise_scale(Mechanism(n=n, blocks=1, sampling_rate=1.0, steps=1, clip=1.0), epsilon, delta, "exact")


def questions_for(
    problem: Problem, levels: int, noise: float = 0.0, *, weighted: bool = True, persons: bool = False
) -> tuple[Stage, ...]:
    """The stages of a model. Shares depend on the kind of model, its terms and the noise, and never on the records.

    Args:
      problem: the model.
      levels: number of quantile levels; other kinds of model ignore it.
      noise: `whole_noise` of n, ε and δ.
      weighted: whether records have survey weights. Without them the power of the weights makes no difference.
      persons: whether second moments of the score are asked by person.
    """
    stages = _stages(problem, levels, noise, weighted)
    if not weighted:
        stages = tuple(replace(s, questions=tuple(replace(q, power=0) for q in s.questions)) for s in stages)
    return _by_person(stages, problem.kind == "mean") if persons else stages


def _stages(problem: Problem, levels: int, noise: float, weighted: bool) -> tuple[Stage, ...]:
    if problem.kind == "mean":
        return _mean()
    if problem.design is None:
        return _custom(problem.dim)
    if problem.kind == "means":
        return _means(problem.dim, problem.settings["family"] == "bernoulli", weighted)
    if problem.kind == "quantile":
        return _quantile(problem.design, levels, noise, weighted)
    families = {"huber": _huber, "linear": _linear, "iv": _linear, "logistic": _logistic, "poisson": _poisson,
                "expectile": _expectile}  # fmt: skip
    return families[problem.kind](problem.design, noise)


def _grown(share: float, noise: float, most: float, hiding: float = HIDING) -> float:
    """The share that keeps the noise of a stage where it is at `hiding`, at most `most` times as large."""
    return share * min(max((noise / hiding) ** 2, 1.0), most)


def _eased(noise: float) -> float:
    """The factor of the shares of `EASED`."""
    return min(max(noise / PLENTY, LEAST_EASED), 1.0)


def _design(design: Design, noise: float, lean: bool = False, hiding: float = HIDING) -> tuple[Stage, ...]:
    """The stages that find the frame of a design.

    They begin with the location of the columns, if each column has a term of its own. `lean` designs are those whose
    other matrices follow from the second moments, which then get a larger share.
    """
    dear = noise / math.sqrt(FRAME) * max(LEAST_REACH[0], LEAST_REACH[1] * len(design.terms))  # noise of a round
    p, own = len(design.terms), own_terms(design)
    located = own is not None and any(own)
    stages = []
    if own is not None and located:
        numeric, shares = len(own[0]), len(own[1])
        asked = []
        if numeric:
            shapes = ((p, numeric), (numeric, BINS + 1), (BINS, BINS))
            asked.append(Question("column_histograms", shapes, times=2 if noise < FEW else 1, power=0))
        if shares:
            asked.append(Question("column_means", ((p, shares),), power=0))
        stages.append(Stage("columns", _grown(COLUMNS, noise, 3, hiding), "where the columns lie", tuple(asked)))
        if numeric and (many := many_levels(design)):
            cells = (p, sum(len(terms) + 1 for terms in many))
            means = Question("level_means", ((p, numeric), (numeric,), (numeric,), cells), power=0)
            stages.append(Stage("by level", LEVELS, "means of covariates by level", (means,)))
    times = (4 if dear < 0.03 else 3 if dear < 0.06 else 2 if noise < FEW else 1) if located else 5
    rounds = Question("moment", ((p, p),), times=times, power=0)
    stages.append(Stage("frame", FRAME if located else COLUMNS + FRAME, "a design made white by rounds", (rounds,)))
    if times > 3:
        lengths = Question("distances", ((p, p), (BINS + 1,), (BINS, BINS)))
        stages.append(Stage("distances", DISTANCES, "how far out its records lie", (lengths,)))
    moments = Question("moment_and_cut", ((p, p), (), ()))
    return (*stages, Stage("moments", MOMENTS[lean], "its second moments", (moments,)))


def _start(p: int, noise: float, hiding: float = HIDING) -> tuple[Stage, ...]:
    """The stages that locate the response, make a least-squares fit, and ask for the distribution of its residuals."""
    theta, bins = (p,), ((BINS + 1,), (BINS, BINS))
    located = Question("histogram", (theta, *bins), times=3 if noise < FEW else 2, power=0)
    return (
        Stage("response", _grown(RESPONSE, noise, 5, hiding), "where the response lies", (located,)),
        Stage("start", _grown(START, noise, 2, hiding), "a least-squares fit", (
            Question("weighted_response", (theta, (), (p, p))),
        )),
        Stage("residuals", _grown(RESIDUALS, noise, 3, hiding), "histogram of its residuals", (
            Question("histogram", (theta, *bins)),
        )),
    )  # fmt: skip


def _robust(p: int, noise: float, least: int) -> tuple[Stage, ...]:
    """Newton steps of a Huber loss: `STEPS` if the first fit may be far off and they lead nearer, else the least.

    A model that asks for at least one takes `STEPS` too where they are cheap. A line that is wrong, or skewed errors,
    set a robust fit apart from least squares by many sampling errors, and one step leaves a part of the way.
    """
    length = noise * math.sqrt(max(LEAST_REACH[0], LEAST_REACH[1] * p) * p)  # what noise of a gradient adds to fits
    off, left = CUT * length / math.sqrt(START), length * math.sqrt(STEPS / ROBUST)
    far = p >= MANY and off > OFF and left < NEARER
    many = far or (least > 0 and left < QUIET)
    times = STEPS if many else least
    if not times:
        return ()
    question = Question("huber_score", ((p + 1,), (p, p), (), (), (), ()), times=times)
    return (Stage("locate", ROBUST if many else LOCATE, "gradients, roughly", (question,)),)


def _shown(p: int, noise: float, most: float) -> bool:
    """Whether entries of a second-moment matrix with the whole budget have relative noise below `most`."""
    return noise * max(LEAST_REACH[0], LEAST_REACH[1] * p) < most


def _rest(stages: Sequence[Stage], why: str, question: Question) -> tuple[Stage, ...]:
    """The stages, and a stage "final" with the rest of the budget, which is at least `LAST`."""
    spent = sum(s.share for s in stages)
    if spent > 1 - LAST:
        stages = [replace(s, share=s.share * (1 - LAST) / spent) for s in stages]
        spent = 1 - LAST
    return (*stages, Stage("final", 1 - spent, why, (question,)))


def _by_person(stages: Sequence[Stage], spread: bool) -> tuple[Stage, ...]:
    """The stages with second moments of the last score by person; those by record stay if `spread` says so."""
    *others, final = (s for s in stages if spread or s.name != "spread")
    asked = Stage("persons", PERSONS, "second moments of the score, by person", (
        replace(final.questions[0], outer=True),
    ))  # fmt: skip
    return _rest((*others, asked), final.why, final.questions[0])


def _quantile(design: Design, levels: int, noise: float, weighted: bool) -> tuple[Stage, ...]:
    p = len(design.terms)
    shown = _shown(p, noise, WORTH)  # or the matrix would be too dear
    quiet = _shown(p, noise, WORTH / 4)
    frame, each, curves = (p, p), (levels,), (levels, p)
    around = (JITTERS if design.response_step else 1,)
    cells = (curves, each, (levels + 1, levels + 1), frame, around)
    fine = 0.03 if shown else 0.08 if noise < FEW else 0.05
    located = (*_design(design, noise, not shown, HIDDEN), *_start(p, noise, HIDDEN))
    stages = (
        *(replace(s, share=s.share * _eased(noise)) if s.name in EASED else s for s in located),
        *_robust(p, noise, 0),
        Stage("levels", 0.08, "all levels, roughly", (
            Question("cells", cells, times=6 if quiet else 4 if shown else 2 if noise < FEW else 1),
        )),
        *([Stage("curvature", CURVATURE, "curvature at each level", (
            Question("cell_curvature", (curves, each, (), frame, around)),
        ))] if shown else ()),
        Stage("density", fine, "densities over three distances: what smoothing does", (
            Question("densities", (curves, (3, levels), (), around), times=2),
        )),
        Stage("refine", REFINE[noise > FEW], "gradients of all levels", (Question("cells", cells),)),
        *([Stage("spread", 0.03, "second moments of the weighted design", (
            Question("moment", (frame,), power=2),
        ))] if weighted else ()),
    )  # fmt: skip
    return _rest(stages, "gradients of all levels, again", Question("cells", cells, times=LASTS))


def _huber(design: Design, noise: float) -> tuple[Stage, ...]:
    p = len(design.terms)
    theta, frame = (p + 1,), (p, p)  # with the scale
    score = (theta, frame, (), (), (), ())
    steps = Question("huber_score", score, times=NEARING)
    near = [Stage("approach", NEAR, "gradients, each nearer", (steps,))] if noise < NONE else []
    stages = (
        *_design(design, noise, not _shown(p, noise, WORTH)),
        *_start(p, noise),
        *_robust(p, noise, 1),
        *_matrices(_shown(p, noise, WORTH),
                   Question("huber_curvature", (theta, frame, (), ()), times=2),
                   Question("huber_score", score, power=2, outer=True)),
        *near,
        Stage("refine", REFINE[noise > FEW] - NEAR * len(near), "gradient", (Question("huber_score", score),)),
    )  # fmt: skip
    return _rest(stages, "gradient, once more", Question("huber_score", score))


def _linear(design: Design, noise: float) -> tuple[Stage, ...]:
    p = len(design.terms)
    theta, frame = (p,), (p, p)
    given = (theta, frame, (0,))
    score = Question("clipped_score", (*given, ()))
    located, first, _ = _start(p, noise)
    lengths = Question("clipped_lengths", (*given, (BINS + 1,), (BINS, BINS)))
    stages = (
        *_design(design, noise),
        located,
        first,
        Stage(
            "residuals",
            0.05,
            "lengths of scores, before and after the first of the gradients below",
            (replace(lengths, times=2),),
        ),
        Stage("curvature", 0.05, "second moments of far-out covariates too", (Question("wide_moment", (frame, ())),)),
        Stage("tail", 0.06, "how much longer scores are than the clip", (Question("clipped_excess", (*given, ())),)),
        Stage("spread", 0.05, "second moments of the score", (replace(score, power=2, outer=True),)),
        Stage("refine", REFINE[noise > FEW], "gradient", (score,)),
    )
    return _rest(stages, "gradient, once more", score)


def _poisson(design: Design, noise: float) -> tuple[Stage, ...]:
    offset = () if design.offset is None else (Question("offset_mean", ((len(design.terms),),)),)
    return _clipped((3,), 4, design, noise, offset, looks=1)


def _expectile(design: Design, noise: float) -> tuple[Stage, ...]:
    return _clipped((), 2, design, noise)


def _clipped(
    more: Shape, steps: int, design: Design, noise: float, first: tuple[Question, ...] = (), looks: int = 3
) -> tuple[Stage, ...]:
    """The stages of a regression whose scores have no bound of their own, and so are clipped.

    Args:
      more: shape of what its statistics need beside θ and the frame.
      steps: number of rough gradients.
      design, noise: as in `questions_for`.
      first: questions that are asked with the start.
      looks: number of histograms that locate the response.
    """
    p = len(design.terms)
    given = ((p,), (p, p), more)
    located, start, _ = _start(p, noise)
    score = Question("clipped_score", (*given, ()))
    stages = (
        *_design(design, noise),
        replace(located, questions=(replace(located.questions[0], times=looks),)),
        replace(start, questions=(*start.questions, *first)),
        Stage("locate", 0.02 * steps, "gradients, roughly", (replace(score, times=steps),)),
        Stage("residuals", 0.06, "histogram of the lengths of scores", (
            Question("clipped_lengths", (*given, (BINS + 1,), (BINS, BINS))),
        )),
        Stage("curvature", 0.07, "curvature, before and after the first of the gradients below", (
            Question("clipped_curvature", (*given, ()), times=2),
        )),
        Stage("tail", 0.04, "how much longer scores are than the clip", (Question("clipped_excess", (*given, ())),)),
        Stage("spread", 0.04, "second moments of the score", (replace(score, power=2, outer=True),)),
        Stage("refine", REFINE[noise > FEW], "gradient", (score,)),
    )  # fmt: skip
    return _rest(stages, "gradient, once more", score)


def _logistic(design: Design, noise: float) -> tuple[Stage, ...]:
    p = len(design.terms)
    given = ((p,), (p, p))
    stages = (
        *_design(design, noise, not _shown(p, noise, QUIETER)),
        Stage("locate", 0.14, "Newton steps, roughly", (Question("logistic_score", given, times=4),)),
        *_matrices(_shown(p, noise, QUIETER),
                   Question("logistic_curvature", given, times=2),
                   Question("logistic_score", given, power=2, outer=True)),
        Stage("refine", REFINE[noise > FEW], "gradient", (Question("logistic_score", given),)),
        Stage("slope", 0.01, "mean slope of the probability", (Question("logistic_slope", given),)),
    )  # fmt: skip
    return _rest(stages, "gradient, once more", Question("logistic_score", given))


def _matrices(shown: bool, curvature: Question, spread: Question) -> tuple[Stage, ...]:
    """Stages for curvature and second moments of the score; none where noise would hide the matrices (`shown`).

    They then follow from the second moments of the design.
    """
    if not shown:
        return ()
    return (
        Stage("curvature", 0.08, "curvature, before and after the first of the gradients below", (curvature,)),
        Stage("spread", 0.05, "second moments of the score", (spread,)),
    )


def _mean() -> tuple[Stage, ...]:
    return (
        Stage("response", 0.06, "where the column lies", (
            Question("histogram", ((1,), (BINS + 1,), (BINS, BINS)), times=3),
        )),
        Stage("tails", 0.05, "how far its values reach", (
            Question("histogram", ((1,), (BINS + 1,), (BINS, BINS))),
        )),
        Stage("spread", 0.12, "its variance, and how much lies beyond the window", (
            Question("mean_spread", ((), (), ())),
        )),
        Stage("final", 0.77, "mean in the window", (Question("mean_score", ((), ())),)),
    )  # fmt: skip


def _means(groups: int, proportions: bool, weighted: bool) -> tuple[Stage, ...]:
    """The stages of means by groups. A record adds to the numbers of its own group alone, so all are asked at once."""
    each, bins = (groups,), ((BINS + 1,), (BINS, BINS))
    spread = Stage("spread", 0.06, "variance in each group", (Question("group_spread", (each, each), power=2),))
    numeric = (
        Stage("response", 0.05, "where the column lies", (Question("histogram", (each, *bins), times=3),)),
        Stage("groups", 0.18, "size, mean and variance of each group, roughly", (
            Question("group_moments", (each, each)),
        )),
        Stage("residuals", 0.06, "histogram of what is left, and how far its ends lie", (
            Question("group_residuals", (each, each, *bins)),
            Question("group_excess", (each, each, (), ())),
        )),
        spread,
    )  # fmt: skip
    stages = numeric if not proportions else (spread,) if weighted else ()
    return _rest(stages, "size of each group, and mean in its window", Question("group_score", (each, each, ())))


def _custom(d: int) -> tuple[Stage, ...]:
    theta = (d,)
    return (
        Stage("locate", 0.12, "Newton steps over shrinking distances", (
            Question("gradient", (theta,), times=10),
            Question("differences", (theta, theta), times=10),
        )),
        Stage("curvature", 0.16, "curvature over three distances, twice", (
            Question("differences", (theta, theta), times=6),
        )),
        Stage("spread", 0.06, "second moments of the gradient", (
            Question("gradient", (theta,), power=2, outer=True),
        )),
        Stage("refine", 0.12, "gradient", (Question("gradient", (theta,)),)),
        Stage("final", 0.54, "gradient, once more", (Question("gradient", (theta,)),)),
    )  # fmt: skip
