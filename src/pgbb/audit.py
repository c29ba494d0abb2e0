"""Does the code that runs leak more than the certificate says? Attacks on the real mechanisms, with confidence bounds.

Each world (the canary record at +4C, or at −4C) is run many times by the code of `private/`; the likelihood-ratio
attack that knows the block weights then bounds ε from below at 99.9 % confidence. A bound above a claim proves a
fault; a bound below one proves nothing, but shows how much of the claim is real. Thresholds come from the law of the
loss, never from the trials. Broken twins, which must fail, ask with other noise, bounds, records or batches than they
claim; the code that answers is the same.
"""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import betaincinv
from scipy.stats import binom

from pgbb import _validate
from pgbb._numerics import Floats
from pgbb.accountant import (
    ACCOUNTANTS,
    Composition,
    Mechanism,
    PosteriorDraws,
    Resampling,
    compose,
    epsilon,
    noise_scale,
)
from pgbb.errors import PgbbError
from pgbb.model.loss_values import BoundedLoss, bounded_loss, ratio_problem
from pgbb.model.models import (
    IV,
    Custom,
    Expectile,
    LinearRegression,
    Mean,
    Model,
    PoissonRegression,
    Problem,
    QuantileRegression,
)
from pgbb.model.schema import Levels, Range, Schema
from pgbb.private.door import Moment, Randomness, mean_sensitivity, open_dataset, refit_sensitivity

if TYPE_CHECKING:
    import pandas as pd
    from jax import Array

    from pgbb.private.door import Dataset, Step


CONFIDENCE = 0.999
TRIALS = 300_000

_CANARY = 4.0  # raw gradient of the canary over C: without a clip it would count four times
_WIDE = 1_000  # trials answered in one step of a run
_STEP, _REACH = 0.005, 25.0  # grid of one loss, and its end


# The attack ----------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """The two laws that an attack compares, as normal mixtures of one answer given the canary's weight.

    `plus` and `minus` are the worlds with the canary at +C and −C, each an array
    (2, components) of probabilities and of means in units of μ = w̄C/σ; `noise` is
    the standard deviation that is suspected, over σ.
    """

    name: str
    plus: Floats
    minus: Floats
    noise: float = 1.0

    def loss(self, x: Floats, mu: Floats) -> Floats:
        """Logarithm of the likelihood ratio at answers x in units of σ."""
        x, mu = x / self.noise, mu / self.noise
        return _log_density(self.plus, x, mu) - _log_density(self.minus, x, mu)


class Drawn(NamedTuple):
    """The laws of one posterior draw θ on [−1, 1] with the canary at ±4: ∝ exp{±g(θ)μ}, g = 4θ clipped to [−1, 1]."""

    name: str
    noise: float = 1.0

    def loss(self, x: Floats, mu: Floats) -> Floats:
        """Logarithm of the likelihood ratio at draws x, with μ = 1/σ."""
        return np.asarray(2 * np.clip(_CANARY * x, -1, 1) * mu / self.noise)


def _log_density(law: Floats, x: Floats, mu: Floats) -> Floats:
    """Up to a constant; a component at a time, to save memory."""
    total = np.full(np.broadcast_shapes(x.shape, mu.shape), -np.inf)
    for probability, mean in law.T:
        np.logaddexp(total, math.log(probability) - 0.5 * (x - mean * mu) ** 2, out=total)
    return total


def _mixture(parts: dict[float, float]) -> Floats:
    """From {mean: probability}."""
    return np.array([[p, m] for m, p in parts.items() if p > 0]).T


def _alone(q: float, noise: float = 1.0) -> Pair:
    """Everybody else is at zero: the antipodal pair of docs/privacy.md, Lemma 1."""
    name = "alone" if noise == 1 else f"alone, noise {noise:g}σ"
    return Pair(name, _mixture({0.0: 1 - q, 1.0: q}), _mixture({0.0: 1 - q, -1.0: q}), noise)


def _crowd(n: int, q: float) -> Pair:
    """Everybody else is at −C, and in the batch with probability q: a sum that varies by itself."""
    others = [math.comb(n - 1, k) * q**k * (1 - q) ** (n - 1 - k) for k in range(n)]
    without = {float(-k): p for k, p in enumerate(others)}
    laws = []
    for sign in (1.0, -1.0):
        law = dict.fromkeys(np.arange(-n, 2.0), 0.0)
        for mean, p in without.items():
            law[mean] += (1 - q) * p
            law[mean + sign] += q * p
        laws.append(_mixture(law))
    return Pair("crowd", laws[0], laws[1])


def _crowd_of_fixed_size(n: int, q: float) -> Pair:
    """Everybody else is at −C and a batch holds exactly qn: the canary takes the place of another."""
    size = float(round(q * n))
    return Pair("crowd of fixed size", _mixture({-size: 1 - q, 2 - size: q}), _mixture({-size: 1.0}))


@dataclass(frozen=True)
class Setting:
    """A short mechanism, its δ, and worst-case neighbours for it: the canary at ±4C, all others at `others`·C.

    `asks` is the way in which `Dataset` is asked, `of` the model whose scores are added up, or the loss of draws. What
    takes long has a `share` of the trials.
    """

    name: str
    target: Mechanism | Composition | PosteriorDraws | Resampling
    delta: float = 1e-2
    others: float = 0.0
    asks: Literal["session", "ratios", "sums", "moments", "draws", "means", "refits"] = "session"
    of: str | None = None
    share: float = 1.0

    @property
    def parts(self) -> tuple[Mechanism | Resampling, ...]:
        """The mechanisms it is composed of, where it consists of noisy sums."""
        return () if isinstance(self.target, PosteriorDraws) else tuple(m for m, _ in self.target.parts(1.0))

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Those of them that answer about all records or batches of them, and not about resamples."""
        return tuple(part for part in self.parts if isinstance(part, Mechanism))

    @property
    def answers(self) -> int:
        """T·K in all, or m."""
        return sum(m.answers for m, _ in self.target.parts(1.0))

    @property
    def rate(self) -> float:
        """q."""
        return self.target.sampling_rate if isinstance(self.target, Mechanism) else 1.0

    @property
    def pairs(self) -> "tuple[Pair | Drawn, ...]":
        """What the attacks suspect: first the certified laws, then a fault that needs a threshold of its own."""
        if not self.parts:
            return Drawn("drawn"), Drawn("drawn at σ/2", 0.5)
        n, q = self.parts[0].n, self.rate
        return (_alone(q), _alone(q, 0.5)) if self.others == 0 else (_crowd(n, q), _crowd_of_fixed_size(n, q))

    def scales(self, sigma: float) -> Floats:
        """Noise of each answer of a trial."""
        return np.concatenate([np.full(m.answers, s) for m, s in self.target.parts(sigma)])


_SCHEMA = Schema(y=Range(-_CANARY, _CANARY))
_MEDIAN = QuantileRegression("y ~ 1", taus=[0.5]).prepare(_SCHEMA)
_PENALTY = 1.0  # of a refit: the canary, drawn k times, moves it by k/20, and never near its own cell
_TWICE = compose([Mechanism(n=10, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)] * 2, scales=[1.0, 2.0])
MODELS = ("linear", "expectile", "poisson", "iv", "groups")
SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in (
        Setting("batches", Mechanism(n=10, blocks=5, sampling_rate=0.5, steps=2, draws_per_step=2, clip=1.0)),
        Setting("crowd", Mechanism(n=10, blocks=5, sampling_rate=0.2, steps=2, clip=1.0, gamma=1e4), others=-1.0),
        Setting("sums", _TWICE, asks="sums"),
        *(Setting(name, _TWICE, asks="sums", of=name) for name in MODELS),
        Setting("moments", Moment("response").describe(10), asks="moments"),
        Setting("ratios", Mechanism(n=10, blocks=1, sampling_rate=0.5, steps=4, clip=1.0), asks="ratios"),
        Setting("draws", PosteriorDraws(n=10, draws=2, sensitivity=4.0), asks="draws"),
        Setting("custom", PosteriorDraws(n=10, draws=2, sensitivity=4.0), asks="draws", of="one"),
        Setting("chains", PosteriorDraws(n=10, draws=2, sensitivity=4.0), asks="draws", of="two"),
        Setting("means", Resampling(10, 2, mean_sensitivity((-1.0, 1.0), 10)), asks="means"),
        Setting("refits", Resampling(10, 2, refit_sensitivity(_MEDIAN, 10, _PENALTY)), asks="refits", share=0.1),
    )
}
"""`batches`: block-weighted sums of Poisson batches, as methods pgbb and sgld ask for, others at zero. `crowd`: the
same with others at −C and weights that hardly vary. `sums`: sums over all records, as the default method asks for;
`linear`, `expectile`, `poisson`, `iv` and `groups`: of the scores of these models, which have no bound of their own.
`moments`: one sum of statistics, as noisy_gibbs, augmented, abc and repro ask for.
`ratios`: sums of log ratios over batches, for dp_mcmc. `draws`: draws of a posterior, for posterior_sampling; `custom`
with a loss of one's own, and `chains` with two parameters. `means` and `refits`: of resamples, for dp_bootstrap."""


def clopper_pearson(hits: ArrayLike, trials: int, level: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds on a probability, each of which fails with probability at most `level`.

    >>> low, high = clopper_pearson(0, 100, .05)
    >>> round(float(low), 4), round(float(high), 4)
    (0.0, 0.0295)
    """
    found = np.asarray(hits, dtype=float)
    low = np.where(found > 0, betaincinv(np.maximum(found, 1), trials - found + 1, level), 0.0)
    high = np.where(found < trials, betaincinv(found + 1, np.maximum(trials - found, 1), 1 - level), 1.0)
    return low, high


def _epsilon_from(hits: ArrayLike, false: ArrayLike, trials: int, delta: float, level: float) -> Floats:
    """ε ≥ log((P(E) − δ)/Q(E)), with P(E) bounded from below and Q(E) from above."""
    low, high = clopper_pearson(hits, trials, level)[0], clopper_pearson(false, trials, level)[1]
    return np.log(np.maximum(low - delta, 1e-300) / high)


def _level(setting: Setting) -> float:
    """The failure probability of one bound: every attack has two directions, and each of them two error rates."""
    return (1 - CONFIDENCE) / (4 * len(setting.pairs))


def _weights(mechanism: Mechanism | Resampling) -> tuple[Floats, Floats]:
    """Values of n_S·w̄ with probabilities, closer together where large weights are rare: these decide the tail.

    Of a resample, how often it may hold the canary.
    """
    if isinstance(mechanism, Resampling):
        times = np.arange(mechanism.n + 1)
        return times.astype(float), binom.pmf(times, mechanism.n, 1 / mechanism.n)
    law = mechanism.beta_law
    if law is None:
        return np.ones(1), np.ones(1)
    points = 200
    tail = ((np.arange(points, 0, -1) - 0.5) / points) ** 3
    ends = (np.arange(points, -1, -1) / points) ** 3
    return betaincinv(*law, 1 - tail), -np.diff(ends)


def _signal(mechanism: Mechanism | Resampling, sigma: float) -> float:
    """How far the canary moves an answer, in units of the noise; of a resample, each time that it is drawn."""
    return mechanism.sensitivity / (2 * sigma) if isinstance(mechanism, Resampling) else mechanism.signal(sigma)


def loss_law(setting: Setting, pair: "Pair | Drawn", sigma: float) -> tuple[Floats, Floats, Floats]:
    """The loss of a whole trial in theory: grid, and its masses in the worlds with the canary at +C and at −C.

    By quadrature over answer and weight, then Fourier transforms. It sets
    thresholds and certifies nothing.
    """
    half = round(_REACH / _STEP)
    size = 2 * half * setting.answers + 1
    spectra = [np.ones(next_fast_len(size, real=True) // 2 + 1, complex) for _ in range(2)]
    if isinstance(pair, Drawn):
        logs = [sign * pair.loss(np.linspace(-1, 1, 4001), np.array(1 / sigma)) / 2 for sign in (1, -1)]
        place = np.clip(np.rint(2 * logs[0] / _STEP), -half, half).astype(int) + half
        for i, log in enumerate(logs):
            mass = np.bincount(place, np.exp(log - log.max()), 2 * half + 1)
            spectra[i] *= rfft(mass / mass.sum(), next_fast_len(size, real=True)) ** setting.answers
    scales, start = setting.scales(sigma), 0
    for mechanism in setting.parts:
        weight, probability = (a[:, None] for a in _weights(mechanism))
        mu = weight * _signal(mechanism, float(scales[start]) * pair.noise)
        start += mechanism.answers
        assert isinstance(pair, Pair)
        means = np.concatenate([pair.plus[1], pair.minus[1]])
        low, high = means.min() * mu - 9, means.max() * mu + 9
        x, dx = low + (high - low) * np.linspace(0, 1, 1501), (high - low) / 1500
        logs = [_log_density(law, x, mu) for law in (pair.plus, pair.minus)]
        place = np.clip(np.rint((logs[0] - logs[1]) / _STEP), -half, half).astype(int) + half
        for i, log in enumerate(logs):
            mass = np.bincount(place.ravel(), (np.exp(log) * dx * probability).ravel(), 2 * half + 1)
            spectra[i] *= rfft(mass / mass.sum(), next_fast_len(size, real=True)) ** mechanism.answers
    plus, minus = (np.maximum(irfft(s, next_fast_len(size, real=True))[:size], 0.0) for s in spectra)
    return _STEP * np.arange(-(size // 2), size // 2 + 1.0), plus, minus


@lru_cache(maxsize=64)
def thresholds(setting: Setting, sigma: float, trials: int) -> tuple[tuple[tuple[float, float], ...], float]:
    """Of each attack and direction the threshold that promises most, and what the first attack promises.

    The promise is the bound at the expected counts, if the suspected laws are the true ones.
    """
    chosen, promises = [], []
    for pair in setting.pairs:
        grid, plus, minus = loss_law(setting, pair, sigma)
        both = []
        for hit, false in ((plus, minus), (minus[::-1], plus[::-1])):
            tails = [np.cumsum(law[::-1])[::-1][len(grid) // 2 :: 4] for law in (hit, false)]
            hits, errors = (np.clip(np.rint(trials * t), 0, trials) for t in tails)
            value = _epsilon_from(hits, errors, trials, setting.delta, _level(setting))
            at = int(np.argmax(value))
            both.append(((4 * at - 0.5) * _STEP, float(value[at])))
        chosen.append((both[0][0], both[1][0]))
        promises.append(max(both[0][1], both[1][1]))
    return tuple(chosen), promises[0]


# The real code on synthetic records ----------------------------------------------------------------------------------


@dataclass
class _FixedSize(Randomness):
    """Batches of exactly qn records, all such sets being equally likely."""

    def poisson_batches(self, n: int, rate: float, count: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Not Poisson at all."""
        positions, sizes = (np.array(a) for a in super().poisson_batches(n, rate, count))
        size = round(rate * n)
        keys = self.secret.random((count, n))
        positions[:, :size] = np.sort(np.argsort(keys, axis=1)[:, :size], axis=1)
        positions[:, size:], sizes[:] = n - 1, size
        return positions, sizes


@dataclass(frozen=True)
class Twin:
    """One part of what is run is faulty, while the claim stays: the audit must notice."""

    what: str
    settings: tuple[str, ...] = ("batches",)
    noise: float = 1.0  # factors on what is run, not on what is claimed
    clip: float = 1.0
    records: float = 1.0
    randomness: type[Randomness] = Randomness


TWINS: dict[str, Twin] = {
    "noise-halved": Twin("noise σ/2 is added instead of σ", tuple(s for s in SETTINGS if s != "crowd"), noise=0.5),
    "no-clip": Twin(
        "gradients, statistics and losses up to 8C pass unclipped",
        tuple(s for s in SETTINGS if s not in ("crowd", "sums", "refits")),
        clip=8.0,
    ),
    "fixed-size": Twin("batches of exactly qn records", ("crowd",), randomness=_FixedSize),
    "half-block": Twin("blocks are half as large as accounted", records=0.5),
}
HONEST = Twin("as it is", tuple(SETTINGS))


@lru_cache(maxsize=8)
def _problem(clip: float, ratios: bool = False) -> Problem:
    """A mean whose score at the query point 0 is −y; or its log ratio, which is −y at (½, −½)."""
    mean = Mean("y", scale=1.0, clip=1.0 if ratios else clip)
    problem = mean.prepare(_SCHEMA)
    return replace(ratio_problem(mean, problem), clip=clip) if ratios else problem


def _frame(n: int, canary: float, others: float) -> "pd.DataFrame":
    """Records by their gradients over C = 1; the canary is the first."""
    import pandas as pd

    return pd.DataFrame({"y": -np.append(_CANARY * canary, np.full(n - 1, others))})


@lru_cache(maxsize=2)
def _asking(ratios: bool = False) -> "Step":
    """The step that asks about 0, or (½, −½), for ever and keeps answers and weights."""
    import jax.numpy as jnp

    from pgbb.private.door import Step

    def query(state: "Array", draw: "dict[str, Array]") -> "tuple[Array, None]":
        return jnp.tile(jnp.array([0.5, -0.5] if ratios else [0.0]), (draw["u"].shape[0], 1)), None

    def update(
        state: "Array", draw: "dict[str, Array]", memo: None, answers: "Array"
    ) -> "tuple[Array, tuple[Array, Array]]":
        return state, (answers[:, 0], draw["u"])

    return Step(query, update)


def _run(
    frame: "pd.DataFrame",
    mechanism: Mechanism,
    sigma: float,
    seed: int,
    kind: type[Randomness] = Randomness,
    ratios: bool = False,
) -> tuple[Floats, Floats]:
    """All answers of one session, in order, and the block weights that go with them."""
    import jax.numpy as jnp

    data = open_dataset(frame, _problem(mechanism.clip), _SCHEMA)
    session = data.session(mechanism, sigma, kind.create(seed), problem=_problem(mechanism.clip, ratios))
    parts = [out for _, _, out in session.run(jnp.zeros(()), _asking(ratios), chunk=min(10, mechanism.steps))]
    answers, weights = (np.concatenate([np.asarray(p[i], float) for p in parts]) for i in range(2))
    return answers.ravel(), weights.reshape(answers.size, -1)


def _block_of_canary(mechanism: Mechanism, seed: int) -> int:
    """The block in which a session of this seed puts the canary: the adversary may know the partition.

    A session without noise and sampling tells, by the weight that its answers are proportional to.
    """
    probe = replace(mechanism, sampling_rate=1.0, steps=1, draws_per_step=4 * mechanism.blocks)
    answers, weights = _run(_frame(mechanism.n, 1.0, 0.0), probe, 0.0, seed)
    return int(np.argmax(np.linalg.lstsq(weights, answers, rcond=None)[0]))


def _batch_trials(
    setting: Setting, sigma: float, canary: float, trials: int, seed: int, twin: Twin
) -> tuple[Floats, Floats]:
    """Answers over σ and μ of the canary, (trials, T·K): one session, whose answers are grouped afterwards.

    The query point does not move, so that answers of a session are independent
    and any T·K in a row are a trial.
    """
    m = setting.mechanisms[0]
    steps = -(-trials // _WIDE)
    run = replace(
        m, n=round(m.n * twin.records), clip=m.clip * twin.clip, steps=steps, draws_per_step=_WIDE * m.answers,
        gamma=None if m.blocks == 1 else m.concentration,
    )  # fmt: skip
    block = 0 if run.blocks == 1 else _block_of_canary(run, seed)
    records, ratios = _frame(run.n, canary, setting.others), setting.asks == "ratios"
    answers, weights = _run(records, run, sigma * twin.noise, seed, twin.randomness, ratios)
    shape = (steps * _WIDE, m.answers)
    return (answers / sigma).reshape(shape)[:trials], (weights[:, block] * m.signal(sigma)).reshape(shape)[:trials]


def _response(x: "Array", y: "Array") -> "Array":
    return -y


def _scored(model: str, canary: float, n: int, clip: float) -> "tuple[Dataset, Callable[..., Array], list[Floats]]":
    """Records of a model whose score is ±4 or more for the canary and 0 for all others; the statistic; its parameters.

    Scores are those of the default method, at the point where others have none.
    """
    import pandas as pd

    from pgbb.methods.calibrated import statistics

    models: dict[str, Model] = {
        "linear": LinearRegression("y ~ x"), "iv": IV("y ~ x | z"), "expectile": Expectile("y ~ x", 0.5),
        "poisson": PoissonRegression("k ~ x"), "groups": Mean("y", by="g"),
    }  # fmt: skip
    wide, groups = 2 * _CANARY, model == "groups"
    schema = Schema(x=Range(-1, 1), z=Range(-1, 1), y=Range(-wide, wide), k=Range(0, 9, step=1), g=Levels("a", "b"))
    y, k = np.zeros(n), np.ones(n)
    y[0], k[0] = wide * (canary if groups else -canary), 0.0 if canary > 0 else 9.0
    frame = pd.DataFrame({"x": 0.0, "z": 0.0, "y": y, "k": k, "g": ["a", *["b"] * (n - 1)]})
    problem = models[model].prepare(schema)
    data = open_dataset(frame, problem, schema)
    if groups:
        return data, statistics.group_score, [np.zeros(2), np.full(2, clip), np.zeros(())]
    d = 3 if model == "iv" else 2
    given = {"poisson": np.array([3.0, 0.0, 0.0]), "expectile": np.array(0.5)}.get(model, np.zeros(0))
    return data, statistics.clipped_score, [np.zeros(d), np.eye(d), given, np.array(clip)]


def _sum_trials(
    setting: Setting, sigma: float, canary: float, trials: int, seed: int, twin: Twin
) -> tuple[Floats, Floats]:
    """The same of sums over all records: every question is the same, asked so many times."""
    assert isinstance(setting.target, Composition)
    n = setting.mechanisms[0].n
    plan = compose([replace(m, steps=m.steps * trials) for m in setting.mechanisms], setting.target.scales)
    names = [f"stage {i}" for i in range(len(setting.mechanisms))]
    statistic, given = _response, list[Floats]()
    if setting.of is None:
        data = open_dataset(_frame(n, canary, setting.others), _problem(1.0), _SCHEMA)
    else:
        data, statistic, given = _scored(setting.of, canary, n, twin.clip)
    place = 2 if setting.of == "groups" else 0  # of the canary's score
    asked = data.sums(plan, names, sigma * twin.noise / twin.clip, Randomness.create(seed))
    columns = [
        twin.clip * asked.ask_often(name, trials, statistic, *given)[0][:, place]
        for name, m in zip(names, setting.mechanisms, strict=True)
        for _ in range(m.answers)
    ]
    scales = setting.scales(sigma)
    return np.array(columns).T / scales, np.broadcast_to(1 / (n * scales), (trials, len(scales)))


def _moment_trials(
    setting: Setting, sigma: float, canary: float, trials: int, seed: int, twin: Twin
) -> tuple[Floats, Floats]:
    """The same of a sum of statistics, which is computed anew for every trial, some hundred of them in one run."""
    (m,) = setting.mechanisms
    moment, random = Moment("response", bound=twin.clip), Randomness.create(seed)
    data = open_dataset(_frame(m.n, canary, setting.others), _problem(1.0), _SCHEMA)
    totals: list[float] = []
    while len(totals) < trials:
        count = min(500, trials - len(totals))
        run = compose([moment.describe(m.n)] * count)
        totals += [-float(total[0]) for total, _ in data.moments([moment] * count, run, sigma * twin.noise, random)]
    return np.array(totals)[:, None] / (m.n * sigma), np.full((trials, 1), m.signal(sigma))


def _drawn_trials(
    setting: Setting, sigma: float, canary: float, trials: int, seed: int, twin: Twin
) -> tuple[Floats, Floats]:
    """Draws of a posterior that one record moves: draws are independent, so that any m in a row are a trial."""
    assert isinstance(setting.target, PosteriorDraws)
    n, m = setting.target.n, setting.target.draws
    problem = _problem(1.0)
    loss = BoundedLoss(
        lambda theta, x, y: y[:, None] * theta[:, 0], lambda theta: np.zeros(len(theta)), -twin.clip, twin.clip,
        (np.array([-1.0]), np.array([1.0])),
    )  # fmt: skip
    if setting.of is not None:
        dim = 1 if setting.of == "one" else 2
        own = Custom(
            lambda theta, record, _: record["y"] * theta[0], dim=dim, clip=twin.clip / math.sqrt(dim), columns=["y"],
            box=(-1, 1),
        )  # fmt: skip
        problem = own.prepare(_SCHEMA)
        loss = bounded_loss(own, problem, "gibbs", 0.0)
    data, random = open_dataset(_frame(n, canary, setting.others), problem, _SCHEMA), Randomness.create(seed)
    found: list[Floats] = []
    while (left := trials * m - sum(map(len, found))) > 0:
        run = PosteriorDraws(n, min(left, 100_000), loss.sensitivity)
        found.append(data.posterior_draws([loss], run, sigma * twin.noise, random)[0, :, 0])
    return np.concatenate(found).reshape(trials, m), np.full((trials, m), 1 / sigma)


def _resampled_trials(
    setting: Setting, sigma: float, canary: float, trials: int, seed: int, twin: Twin
) -> tuple[Floats, Floats]:
    """The same of resamples. The adversary may know how often each holds the canary: the means say it without noise."""
    assert isinstance(setting.target, Resampling)
    target, refits = setting.target, setting.asks == "refits"
    frame, bounds = _frame(target.n, canary, setting.others), (-twin.clip, twin.clip)
    means = open_dataset(frame, _problem(1.0), _SCHEMA)
    frame.loc[1:, "y"] = np.nan  # records that nothing of a refit depends on
    data, random, again = open_dataset(frame, _MEDIAN, _SCHEMA), Randomness.create(seed), Randomness.create(seed)
    found: list[Floats] = []
    while (left := trials - sum(map(len, found))) > 0:
        run = replace(target, replicates=min(left, 2_000) * target.replicates)
        held = means.means((-1.0, 1.0), replace(run, sensitivity=1.0), 0.0, again)
        if refits:
            answers = data.refits([_MEDIAN], run, sigma * twin.noise, random, penalty=_PENALTY)[0]
        else:
            run = replace(run, sensitivity=run.sensitivity * twin.clip)
            answers = means.means(bounds, run, sigma * twin.noise, random)
        found.append(np.hstack([answers, canary * target.n * held]).reshape(-1, target.replicates, 2))
    x, times = np.moveaxis(-np.concatenate(found), -1, 0)
    return x / sigma, times * _signal(target, sigma)


_TRIALS = {
    "means": _resampled_trials,
    "refits": _resampled_trials,
    "draws": _drawn_trials,
    "ratios": _batch_trials,
    "session": _batch_trials,
    "sums": _sum_trials,
    "moments": _moment_trials,
}


# The verdict ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What an audit of one setting found: a lower bound on ε at δ, beside what each accountant claims."""

    setting: str
    twin: str | None
    delta: float
    rate: float
    answers: int
    trials: int
    sigma: float
    claims: dict[str, float]
    lower: float
    expected: float
    seed: int

    @property
    def broken(self) -> tuple[str, ...]:
        """The accountants whose claim is refuted."""
        return tuple(name for name, claim in self.claims.items() if self.lower > claim)

    @property
    def share(self) -> float:
        """The lower bound over the exact accountant's ε."""
        return self.lower / self.claims["exact"]

    def to_dict(self) -> dict[str, object]:
        """Plain data, with null for a claim that says nothing."""
        claims = {name: claim if math.isfinite(claim) else None for name, claim in self.claims.items()}
        return vars(self) | {"claims": claims, "confidence": CONFIDENCE, "broken": list(self.broken)}


@lru_cache(maxsize=64)
def _claims(setting: Setting, sigma: float) -> dict[str, float]:
    found = {}
    for accountant in ACCOUNTANTS:
        try:
            found[accountant] = epsilon(setting.target, sigma, setting.delta, accountant)  # type: ignore[arg-type]
        except PgbbError:  # the paper's expansion needs q < 1
            continue
    return found


def audit(
    setting: Setting | str, goal: float, *, trials: int = TRIALS, seed: int | None = None, twin: str | None = None
) -> Finding:
    """Run a setting `trials` times in each world, at the noise that meets ε = `goal`, and bound ε from below.

    Args:
      setting: a `Setting`, or the name of one in `SETTINGS`.
      goal: ε that the exact accountant claims.
      trials: in each of the two worlds; refits have a tenth of them.
      seed: makes the run reproducible; None draws one.
      twin: name of a fault in `TWINS` to substitute, or None for the code as it is.
    """
    if isinstance(setting, str):
        setting = SETTINGS[_validate.one_of("setting", setting, tuple(SETTINGS))]
    trials = _validate.integer("trials", trials, low=1000, remedy="Bounds from fewer trials say nothing.")
    seed = secrets.randbits(31) if seed is None else _validate.integer("seed", seed, low=0)
    fault = HONEST if twin is None else TWINS[_validate.one_of("twin", twin, tuple(TWINS))]
    if setting.name not in fault.settings:
        raise PgbbError(
            f"the twin {twin!r} differs from the honest code in setting {', '.join(fault.settings)} only, not in "
            f"{setting.name!r}."
        )
    trials = max(1000, round(setting.share * trials))
    sigma = noise_scale(setting.target, goal, setting.delta)
    limits, expected = thresholds(setting, sigma, trials)
    seeds = np.random.SeedSequence([seed, list(SETTINGS).index(setting.name)]).generate_state(2)
    losses = []
    for canary, own in zip((1.0, -1.0), seeds, strict=True):
        x, mu = _TRIALS[setting.asks](setting, sigma, canary, trials, int(own), fault)
        losses.append([pair.loss(x, mu).sum(axis=1) for pair in setting.pairs])
    lower = 0.0
    for plus, minus, (up, down) in zip(*losses, limits, strict=True):
        for hits, false in ((np.sum(plus > up), np.sum(minus > up)), (np.sum(minus < -down), np.sum(plus < -down))):
            lower = max(lower, float(_epsilon_from(hits, false, trials, setting.delta, _level(setting))))
    return Finding(
        setting=setting.name, twin=twin, delta=setting.delta, rate=setting.rate, answers=setting.answers,
        trials=trials, sigma=sigma, claims=dict(_claims(setting, sigma)), lower=lower, expected=expected, seed=seed,
    )  # fmt: skip
