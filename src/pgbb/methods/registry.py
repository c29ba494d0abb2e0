"""The list of methods that code and docs read: what each serves, asks of the records and assumes."""

import importlib
import warnings
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast

from pgbb import _validate
from pgbb.errors import InvalidValue, PgbbNote
from pgbb.methods.effective_size import check_thin
from pgbb.methods.keywords import ByMethod, MethodName
from pgbb.model.models import Custom, Mean, Model, Problem, QuantileRegression
from pgbb.release.payloads import KINDS

if TYPE_CHECKING:
    from pgbb.methods.request import Planned, Request
    from pgbb.release.file import Release

__all__ = ["COLUMNS", "METHODS", "Constants", "Implementation", "Method", "method_called", "settings_for"]
__all__ += ["ByMethod", "MethodName"]  # of `keywords`: all that a caller names is imported from here

LARGEST = 1e12
"""No setting is larger than this, or positive and smaller than its inverse: numbers stay finite in a fit."""
OLDER_NAMES = {"paper": "pgbb"}
"""Names that are understood, with a note, beside those of `METHODS`."""


class Constants(Protocol):
    """The settings of a method: any frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]


class Implementation(Protocol):
    """What the module of a method has; `run_many`, for data sets side by side, is up to it."""

    Settings: type[Any]
    """Its constants with their defaults: a frozen dataclass, validated when it is made."""

    def plan(self, request: "Request", settings: "Constants", n: int) -> "Planned":
        """What will be asked of n records, and at which noise; reads no record."""

    def run(self, request: "Request", settings: "Constants") -> "Release":
        """Ask it and make a release of the answers."""


@dataclass(frozen=True)
class Method:
    """What a method declares.

    Args:
      name: as in `fit(method=…)`, and of the module in `pgbb.methods` where its `Settings` and `run` live.
      serves: kinds of model.
      index: "joint" serves a list or an interval of any index in one run; "levels" of quantile levels only; "list" runs
        once a level under one budget; "none" serves no index.
      asks: what is asked of the records.
      draws: what a release holds.
      assumes: what must hold for the intervals to mean what they say.
      needs: of the user, a "loss", a "likelihood", or that data can be simulated ("simulator").
      temperature: the setting that scales the loss, where there is one.
      draws_cost: whether more draws cost more.
      checkpoints: whether a fit that was stopped can go on.
      cluster: whether the records may be on the workers of a cluster.
      persons: whether it knows persons with several records.
      scratch: whether the records may be in a scratch file.
      needs_scale: whether a Gaussian mean must have a known scale.
      ignores: arguments of a model that make no difference, by kind of model.
    """

    name: str
    serves: tuple[str, ...]
    index: Literal["joint", "levels", "list", "none"]
    asks: str
    draws: str
    assumes: str
    needs: Literal["loss", "likelihood", "simulator"]
    temperature: str | None = None
    draws_cost: bool = False
    checkpoints: bool = False
    cluster: bool = False
    persons: bool = False
    scratch: bool = False
    needs_scale: bool = True
    ignores: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, str]:
        """The paper's table of methods (Table S1): "yes" or "no", or "simulated" data are needed."""
        free = {"loss": "yes", "likelihood": "no", "simulator": "simulated"}[self.needs]
        ticks = (self.temperature is None, not self.draws_cost, self.index in ("joint", "levels"))
        return dict(zip(COLUMNS, (free, *("yes" if tick else "no" for tick in ticks)), strict=True))

    def load(self) -> Implementation:
        """The module, imported when it is first needed."""
        return cast(Implementation, importlib.import_module(f"pgbb.methods.{self.name}"))

    def say_ignored(self, model: Model, kind: str) -> None:
        """Note an argument of the model that was given and makes no difference to this method."""
        name = self.ignores.get(kind)
        if name is not None and getattr(model, name) is not None:
            text = f"{name} = {getattr(model, name)!r} makes no difference to method = {self.name!r}: leave it out."
            warnings.warn(text, PgbbNote, stacklevel=3)

    def _joint(self, problem: Problem) -> bool:
        """Whether all values of the index are served in one run."""
        served = self.index == "joint" or (self.index == "levels" and problem.kind == "quantile")
        return served and problem.kind in self.serves

    def check(self, model: Model, problem: Problem) -> None:
        """Raise `InvalidValue` unless this method serves the model; says which methods do."""
        if problem.kind not in self.serves:
            others = [name for name, m in METHODS.items() if problem.kind in m.serves]
            raise InvalidValue(
                f"method = {self.name!r} does not serve {KINDS[problem.kind]}: {self.assumes} "
                f"Take one of {', '.join(map(repr, others))}."
            )
        if isinstance(model, Mean) and model.family == "gaussian" and model.scale is None and self.needs_scale:
            raise InvalidValue(
                f"method = {self.name!r} needs the scale of a Gaussian mean: give Mean({model.column!r}, scale=…) "
                "(--scale) if it is publicly known; or take 'calibrated', which finds it out."
            )
        if problem.index is None or self._joint(problem):
            return
        joint = ", ".join(repr(name) for name, m in METHODS.items() if m._joint(problem))  # noqa: SLF001
        if isinstance(model, Custom):
            raise InvalidValue(
                f"method = {self.name!r} does not serve a custom loss with an index: fit one value at a time, or take "
                f"one of {joint}."
            )
        if isinstance(model, QuantileRegression) and (model.taus is None or self.index == "none"):
            raise InvalidValue(
                f"method = {self.name!r} runs once a level: give a list of taus, not an interval; or take one of "
                f"{joint}, which serve all levels at once."
            )


COLUMNS = ("data_model_free", "scaling_free", "budget_free_draws", "multiple_rules")
EVERY = ("quantile", "huber", "logistic", "mean", "custom")

METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method(
            name="calibrated",
            serves=("linear", "expectile", "poisson", "iv", "means", *EVERY),
            index="levels",
            asks="a few dozen noisy means over all records",
            draws="a local posterior: as many draws as you like",
            assumes="Enough records for the estimate to be roughly normal; what is not identified is marked.",
            cluster=True,
            persons=True,
            scratch=True,
            needs="loss",
            needs_scale=False,
            ignores={"quantile": "bandwidth", "mean": "clip"},
        ),
        Method(
            name="pgbb",
            serves=EVERY,
            index="joint",
            asks="T·K noisy block-weighted gradients, and two noisy second moments",
            draws="a local posterior, or a generator with printed intervals: as many draws as you like",
            assumes="A bounded or clipped gradient, and a loss that is roughly quadratic around the estimate; what is "
            "not identified is marked.",
            checkpoints=True,
            cluster=True,
            needs="loss",
        ),
        Method(
            name="sgld",
            serves=EVERY,
            index="list",
            asks="T noisy gradient sums a level",
            draws="a stored chain, correlated",
            assumes="The tempered Gibbs posterior exp{−ω Σ l} is what you want; intervals widen with the noise.",
            checkpoints=True,
            cluster=True,
            needs="loss",
            temperature="tempering",
            draws_cost=True,
        ),
        Method(
            name="noisy_gibbs",
            serves=("huber", "mean"),
            index="none",
            asks="one noisy sum of sufficient statistics (and of moments of the design)",
            draws="a stored chain, correlated",
            assumes="A working likelihood: linear regression with Gaussian errors, a Gaussian mean with known scale, "
            "or an exponential mean.",
            needs="likelihood",
            ignores={"mean": "clip"},
        ),
        Method(
            name="dp_bootstrap",
            serves=("quantile", "huber", "logistic", "mean"),
            index="list",
            asks="B noisy refits on resampled records",
            draws="stored draws of the method's interval",
            assumes="A convex loss with a ridge penalty, which biases, and a roughly normal estimate; not for a mean.",
            needs="loss",
            draws_cost=True,
            needs_scale=False,
            ignores={"mean": "clip"},
        ),
        Method(
            name="posterior_sampling",
            serves=("linear", *EVERY),
            index="list",
            asks="m draws of a posterior a level",
            draws="stored draws, independent",
            assumes="A loss that is bounded over the box, and, with several parameters, chains that have converged; "
            "the posterior is tempered as the budget asks, so that intervals are wide.",
            needs="loss",
            temperature="tempering",
            draws_cost=True,
            ignores={"mean": "clip"},
        ),
        Method(
            name="dp_mcmc",
            serves=EVERY,
            index="list",
            asks="T noisy sums of log ratios a level",
            draws="a stored chain, correlated",
            assumes="The tempered Gibbs posterior on a uniform prior is what you want, and the budget lets the chain "
            "mix; one that does not is marked.",
            needs="loss",
            temperature="tempering",
            draws_cost=True,
        ),
        Method(
            name="augmented",
            serves=("huber", "mean"),
            index="none",
            asks="one noisy sum of statistics",
            draws="a stored chain, correlated",
            assumes="A working likelihood, as noisy_gibbs, and of a regression normal covariates; a chain that mixes.",
            needs="likelihood",
        ),
        Method(
            name="abc",
            serves=("huber", "mean", "simulated"),
            index="none",
            asks="what noisy_gibbs asks, or one noisy mean of a statistic of your own",
            draws="stored draws, resampled by weight",
            assumes="The simulator and the prior; many simulations, of which the number of effective ones is stored.",
            needs="simulator",
        ),
        Method(
            name="repro",
            serves=("huber", "logistic", "mean", "simulated"),
            index="none",
            asks="one noisy sum of statistics",
            draws="stored draws of the method's intervals",
            assumes="The model is true, linear regression with Gaussian errors among them; then intervals cover at "
            "every n. Nothing about the size of n, the noise or the design.",
            needs="simulator",
        ),
    )
}


def method_called(name: str, argument: str = "method") -> Method:
    """The method of this name; an older name is understood, with a note that has the present one.

    >>> method_called("pgbb").name
    'pgbb'
    """
    if isinstance(name, str) and name in OLDER_NAMES:
        present = OLDER_NAMES[name]
        warnings.warn(f"{argument} = {name!r} is called {present!r}: write that instead.", PgbbNote, stacklevel=3)
        name = present
    return METHODS[_validate.one_of(argument, name, tuple(METHODS))]


def settings_for(method: str, given: Mapping[str, object]) -> tuple[Method, Any]:
    """The method and its validated settings; None means the default, and an unknown name is an error."""
    chosen = method_called(method)
    wanted = {name: value for name, value in given.items() if value is not None}
    kind = chosen.load().Settings
    known = [f.name for f in fields(kind)]
    for name, value in wanted.items():
        if name not in known:
            raise InvalidValue(
                f"{name} = {value!r} is not a setting of method = {chosen.name!r}, which has {', '.join(known)}."
            )
        if isinstance(value, int | float) and (value > LARGEST or 0 < value < 1 / LARGEST):
            raise _validate.fail(name, value, f"0, or a number between {1 / LARGEST:g} and {LARGEST:g}")
    settings = kind(**wanted)
    if getattr(settings, "thin", None) is not None:
        draws = getattr(settings, "steps", None) or getattr(settings, "iterations", None) or 4_000
        check_thin(settings.thin, draws, settings.burn_in)
    return chosen, settings
