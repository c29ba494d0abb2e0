"""Constants of Algorithms 1 and 2, what is asked of the records with them, and at which noise."""

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal

from pgbb import _validate
from pgbb.accountant import Composition, Mechanism, noise_scale
from pgbb.accountant.gaussian import gdp_mu
from pgbb.errors import InvalidValue
from pgbb.methods.calibrated.method import levels_of
from pgbb.methods.pgbb.all_levels import Joint, joint_of
from pgbb.methods.pgbb.moment_answers import with_moments
from pgbb.methods.request import Planned, Request, clipped, prepared
from pgbb.model.models import CLIP, Mean, Problem
from pgbb.model.problem import Namespace, Values

_FAMILIES = {"blocks": 20, "gamma": 1.0, "steps": 2_000, "draws_per_step": 1, "sampling_rate": 0.2}
PRINTED: dict[str, dict[str, Any]] = {
    "huber": {"blocks": 20, "steps": 10_000, "draws_per_step": 1, "sampling_rate": 0.1, "learning_rate": 5e-4},
    "mean": {**_FAMILIES, "learning_rate": 5e-4},
    "custom": {**_FAMILIES, "learning_rate": 5e-4},
    "quantile": {"blocks": 5, "steps": 5_000, "draws_per_step": 5, "sampling_rate": 0.01, "learning_rate": 1e-3},
}
"""Constants of the paper's experiments (section S3) by kind of model: regression, families, applications."""

EACH = 200  # number of answers for each parameter that is estimated from them
LOUD = 2.0  # least noise of an answer, over what one record can add
QUIET = 0.3  # of the sampling error of a Gaussian mean: up to this its noise may grow, so that fewer are clipped
_VARIED = ("blocks", "gamma", "steps", "draws_per_step")  # settings that the paper varies, and its preset leaves open
_BESIDE = (*_VARIED, "settings", "keep_transcript")  # settings that may be given with the preset


@dataclass(frozen=True)
class Settings:
    """Constants of Algorithms 1 and 2. None means a rule on public quantities.

    Args:
      settings: "printed" takes what the paper's experiments have: S, T, K, q, learning rate and γ of the one with this
        kind of model, its gradient bound, its network, printed intervals of the last iterate. S, T, K and γ may be
        given beside it, as the paper varies them; nothing else that it fixes may. It needs accountant="paper".
      clip: C, to which each record's gradient is clipped; default the largest norm that it can have.
      blocks: S; default 5 (constant weights below 100 records). More blocks follow the bootstrap law more
        closely where there is little noise, and learn it worse where there is much.
      steps, draws_per_step: T and K, 5,000 and 4; T more where a level has more than 95 parameters, so that each number
        that is read off the answers has 200 of them. The noise grows with √(T·K): more is not better.
      sampling_rate: q; default the rate that gives batches of about 1,000 records, at least .01, and enough for noise
        of twice what one record can add: with less than that, a small rate costs precision.
      gamma: Dirichlet concentration; default γ*(n, S).
      learning_rate: of Adam, decaying by a cosine; default .001.
      slope: how far θ (with noise-aware intervals and a design: a coordinate in which the design is white) moves with
        the output of the network at the centre of the box: 1 for the paper's linear output; by default 1/20 of the
        distance from the centre of the box to its side, which suits any units.
      network: "smooth", from He's weights with an output that nears the sides of the box smoothly; or "printed", from
        Xavier's Gaussian weights with a linear output clipped to the box.
      iterate: which generator `sample` uses: the "average" of the later iterates, which is the default, or the "last".
        Both are stored.
      average_from: the share of steps after which iterates are averaged: about 500 of them at equal distances, for
        neighbours are alike.
      operator_norm: bound on the operator norm of the generator's kernels, or None.
      pseudo, pseudo_blocks, alpha: public pseudo-samples from F_base, their blocks and Dirichlet mass.
      nested: concentration of Dirichlet weights within blocks, fresh and secret for every answer; by default the
        records of a block weigh the same. It doubles the variance of the noise at 1, and more below.
      reshuffle: a fresh partition for every answer; γ* is not calibrated for this variant.
      keep_transcript: also store the noisy answers, which are as private as the rest; with printed intervals.
      intervals: "noise-aware", a local posterior that carries the sampling error and the privacy noise; or "printed",
        the generator of the paper, whose draws carry only part of that noise. By default noise-aware where that is
        served: not for a custom loss with an index, pseudo-samples, a kept transcript, a run without noise, or an
        accountant of the paper, which does not cover answers over all records.
      dither: size of the public noise on query points, as a multiple of what the rule takes; not zero, or the answers
        would not tell the curvature of the loss.
      knots: levels asked for when the model has an interval of τ, with noise-aware intervals.
    """

    settings: Literal["printed"] | None = None
    clip: float | None = None
    blocks: int | None = None
    steps: int | None = None
    draws_per_step: int | None = None
    sampling_rate: float | None = None
    gamma: float | None = None
    learning_rate: float | None = None
    slope: float | None = None
    network: Literal["smooth", "printed"] | None = None
    iterate: Literal["average", "last"] | None = None
    average_from: float = 0.5
    operator_norm: float | None = None
    pseudo: Any = None
    pseudo_blocks: int | None = None
    alpha: float = 0.0
    nested: float | None = None
    reshuffle: bool = False
    keep_transcript: bool = False
    intervals: Literal["noise-aware", "printed"] | None = None
    dither: float = 1.0
    knots: int = 9

    def __post_init__(self) -> None:
        if self.intervals is not None:
            _validate.one_of("intervals", self.intervals, ("noise-aware", "printed"))
        _validate.integer("knots", self.knots, low=3, high=33)
        _validate.number("dither", self.dither, above=0, high=10, remedy="Without it no curvature is seen.")
        if self.iterate is not None:
            _validate.one_of("iterate", self.iterate, ("average", "last"))
        if self.network is not None:
            _validate.one_of("network", self.network, ("smooth", "printed"))
        for name in ("clip", "learning_rate", "nested"):
            if getattr(self, name) is not None:
                _validate.number(name, getattr(self, name), above=0)
        if self.settings is not None:
            self._check_preset()
        if self.blocks == 2 and self.gamma is None:
            raise InvalidValue(
                "blocks = 2 with gamma = None is not allowed: γ*(n, S) needs blocks ≥ 3. Take more blocks, blocks = 1 "
                "for constant weights, or pass gamma > 0 yourself."
            )
        _validate.number("average_from", self.average_from, low=0, below=1)
        _validate.number("alpha", self.alpha, low=0)
        if self.slope is not None:
            _validate.number("slope", self.slope, above=0)
        if self.operator_norm is not None:
            _validate.number("operator_norm", self.operator_norm, above=0)
        if (self.alpha > 0) != (self.pseudo is not None):
            raise InvalidValue(
                f"alpha = {self.alpha!r} with pseudo = {'given' if self.pseudo is not None else None} is not allowed: "
                "pseudo-samples and their Dirichlet mass alpha > 0 go together."
            )

    def _check_preset(self) -> None:
        _validate.one_of("settings", self.settings, ("printed",))
        for f in fields(self):
            value = "given" if f.name == "pseudo" and self.pseudo is not None else getattr(self, f.name)
            if f.name not in _BESIDE and value != f.default and (f.name, value) != ("intervals", "printed"):
                raise InvalidValue(
                    f"settings = 'printed' with {f.name} = {value!r} is not allowed: the preset fixes it. Leave it "
                    f"out, or the preset; beside that may stand {', '.join(_VARIED)}."
                )

    def under(self, kind: str, accountant: str, clip: float | None = None) -> "Settings":
        """The preset written out for a kind of model, with the paper's bound; the settings themselves without one."""
        if self.settings is None:
            return self
        if accountant != "paper":
            raise InvalidValue(
                f"settings = 'printed' with accountant = {accountant!r} is not allowed: the paper's experiments "
                "are calibrated by its own. Write accountant='paper'."
            )
        if kind not in PRINTED:
            raise InvalidValue(
                f"settings = 'printed' does not serve {kind} models: the paper has experiments with "
                f"{', '.join(PRINTED)} models. Leave out the preset."
            )
        given = {name: value for name in _VARIED if (value := getattr(self, name)) is not None}
        return replace(
            self, settings=None, network="printed", slope=1.0, iterate="last", intervals="printed", clip=clip,
            **PRINTED[kind] | given,
        )  # fmt: skip

    @property
    def rate(self) -> float:
        """The learning rate at the start."""
        return 1e-3 if self.learning_rate is None else self.learning_rate

    def describe(self, n: int, clip: float, budget: tuple[float, float] | None, dim: int) -> Mechanism:
        """The mechanism on n records whose statistics are bounded by `clip`, for `dim` parameters of a level.

        At leading order σ·n_S/C = 2q√(TKκ)/μ for a `budget` (ε, δ) that allows μ-GDP; None is a run without noise.
        """
        blocks = (5 if n >= 100 else 1) if self.blocks is None else self.blocks
        draws = 4 if self.draws_per_step is None else self.draws_per_step
        steps = max(5_000, math.ceil(EACH * (blocks + dim) / draws)) if self.steps is None else self.steps
        found = Mechanism(
            n=n,
            blocks=blocks,
            gamma=self.gamma,
            alpha=self.alpha,
            sampling_rate=min(1.0, max(0.01, 1000 / n)) if self.sampling_rate is None else self.sampling_rate,
            steps=steps,
            draws_per_step=draws,
            clip=clip,
            nested=self.nested,
        )
        if self.sampling_rate is not None or budget is None:
            return found
        least = LOUD * gdp_mu(*budget) / (2 * math.sqrt(found.answers * found.kappa) * found.reach)
        return replace(found, sampling_rate=min(1.0, max(found.sampling_rate, least)))

    def target(self, mechanism: Mechanism, *, aware: bool) -> Mechanism | Composition:
        """All that is asked of the records: what is certified, planned and run."""
        return with_moments(mechanism) if aware else mechanism

    def serves(self, accountant: str, *, pseudo: bool = False, non_private: bool = False, index: bool = False) -> bool:
        """Whether intervals are noise-aware; an error where that was asked for and is not served.

        `index` is that of a custom loss.
        """
        obstacles = {
            "a custom loss with an index": index,
            "pseudo-samples": pseudo,
            "keep_transcript = True": self.keep_transcript,
            "non_private = True": non_private,
            f"accountant = {accountant!r}": accountant != "exact",
        }
        met = [name for name, there in obstacles.items() if there]
        if met and self.intervals == "noise-aware":
            raise InvalidValue(
                f"intervals = 'noise-aware' with {met[0]} is not allowed: leave that out, or write intervals='printed'."
            )
        return not met and self.intervals != "printed"


def _printed_clip(problem: Problem, model: object = None) -> float | None:
    """C_H of the paper, which bounds the two parts of a Huber gradient apart; None where its bound is the model's.

    The paper clips the score of a mean to 8.

    >>> import pgbb
    >>> schema = pgbb.Schema(x1=pgbb.Range(-1, 1), x2=pgbb.Range(-1, 1), x3=pgbb.Range(-1, 1), y=pgbb.Range(-20, 20))
    >>> model = pgbb.HuberRegression("y ~ x1 + x2 + x3 - 1")
    >>> round(_printed_clip(model.prepare(schema)), 3)
    2.648
    """
    if isinstance(model, Mean) and model.clip is None:
        return CLIP
    if problem.kind != "huber":
        return None
    assert problem.design is not None
    c, kappa = problem.settings["c"], problem.settings["kappa"]
    return math.hypot(c * problem.design.norm_bound, (c**2 + kappa) / 2)


@lru_cache(maxsize=32)
def by_difference(problem: Problem, **_: object) -> Problem:
    """A mean by the score m − x, bounded by the declared range: its root is the mean of the records, of any law.

    That is the score of a Gaussian mean with scale 1. Those of an exponential and of a Bernoulli law have no bound near
    the ends of the range: clipped, they have another root. The law of a blocked bootstrap is that of the root.
    """

    def score(xp: Namespace, theta: Values, linear: Values, y: Values, _: Values) -> tuple[Values, None]:
        return linear - y, None

    law = {**problem.settings, "family": "gaussian", "scale": 1.0}
    origin = (*problem.origin, ("pgbb.methods.pgbb.settings:by_difference", ()))
    return replace(problem, score=score, clip=law["high"] - law["low"], settings=law, origin=origin)


def roomy(request: Request, settings: Settings, problem: Problem, n: int) -> Problem:
    """The problem of a Gaussian mean with a clip for n records, where none is given; any other as it is.

    C is as many standard deviations as keep the noise `QUIET`, at least 8, at most the range. Noise of C of them moves
    a mean by about 2C/(nμ), with μ-GDP, and sampling by 1/√n. A longer tail is cut off, and nobody sees it: so the clip
    is as far out as costs little.
    """
    model, given = request.model, settings.clip is not None or settings.network == "printed"
    if not isinstance(model, Mean) or model.family != "gaussian" or model.scale is None:
        return problem
    if given or model.clip is not None or request.non_private:
        return problem
    reach = QUIET * math.sqrt(n) * gdp_mu(request.epsilon, request.delta) / 2
    width = problem.settings["high"] - problem.settings["low"]
    return clipped(problem, max(CLIP, min(reach, width / model.scale)) / model.scale)


def problem_of(request: Request, settings: Settings) -> tuple[Problem, Settings]:
    """What is estimated, with the bound that the settings give its gradient, and the settings for it."""
    model, problem = request.model, prepared(request.model, request.schema)
    accountant = "paper" if request.non_private else request.accountant
    written = settings.under(problem.kind, accountant, _printed_clip(problem, model))
    printed = written.network == "printed" or written.clip is not None
    if isinstance(model, Mean) and model.family != "gaussian" and model.clip is None and not printed:
        problem = by_difference(problem)
    return clipped(problem, written.clip), written


def asked_of(request: Request, settings: Settings, problem: Problem) -> Joint | None:
    """What the mechanism is asked about with noise-aware intervals; None with printed ones."""
    index = problem.index is not None and problem.kind != "quantile"
    pseudo = settings.pseudo is not None
    if not settings.serves(request.accountant, pseudo=pseudo, non_private=request.non_private, index=index):
        return None
    levels = levels_of(problem, settings.knots)
    return joint_of(problem, None if levels is None else tuple(levels.tolist()), settings.clip)


def plan(request: Request, settings: Settings, n: int) -> Planned:
    """What will be asked of n records, and at which noise."""
    problem, settings = problem_of(request, settings)
    problem = roomy(request, settings, problem, n)
    joint = asked_of(request, settings, problem)
    clip = problem.clip if joint is None else joint.problem.clip
    budget = None if request.non_private else (request.epsilon, request.delta)
    target = settings.target(settings.describe(n, clip, budget, problem.dim), aware=joint is not None)
    if request.non_private:
        return Planned(target, 0.0)
    return Planned(target, noise_scale(target, request.epsilon, request.delta, request.accountant))
