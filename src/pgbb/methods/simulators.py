"""Simulates noisy sums under a parameter, for repro samples and ABC. Public arithmetic.

Nothing is approximated but where said: values are clamped to their declared range as the private sum clamps them.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from pgbb._numerics import Floats
from pgbb.errors import InvalidValue
from pgbb.model.models import Mean, Simulated
from pgbb.model.schema import Schema

if TYPE_CHECKING:
    import jax


POINTS = 1000  # number of points of the box at which a simulator is tried
RARE = 1e-9  # expected records beyond the range below which the sum is drawn as if there were none


def never_clamped(model: Mean, mean: Floats, n: int, low: float, high: float) -> NDArray[np.bool_]:
    """Whether, at these means, fewer than 10⁻⁹ of n records are expected beyond the range."""
    if model.family == "bernoulli":
        return np.ones(np.shape(mean), bool)
    if model.family == "exponential":
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray((n * np.exp(-high / np.maximum(mean, 1e-300)) < RARE) & (low <= 0) & (mean > 0))
    assert model.scale is not None
    return np.asarray(n * (ndtr((low - mean) / model.scale) + ndtr((mean - high) / model.scale)) < RARE)


def _standard(model: Mean, n: int, rng: np.random.Generator) -> Floats:
    return rng.standard_normal(n) if model.family == "gaussian" else rng.standard_exponential(n)


def _placed(model: Mean, mean: float) -> tuple[float, float]:
    """Location and scale of a record: its value is location + scale · a standard value."""
    return (mean, float(model.scale or 1)) if model.family == "gaussian" else (0.0, mean)


def clamped_sums(model: Mean, means: Floats, n: int, low: float, high: float, rng: np.random.Generator) -> Floats:
    """One sum of n records, each clamped to [low, high], for every one of the means."""
    if model.family == "bernoulli":
        return rng.binomial(n, np.clip(means, 0.0, 1.0)).astype(np.float64)
    if model.family == "gaussian":
        assert model.scale is not None
        sums = n * means + model.scale * np.sqrt(n) * rng.standard_normal(len(means))
    else:
        sums = means * rng.standard_gamma(n, len(means))
    for i in np.flatnonzero(~never_clamped(model, means, n, low, high)):
        drawn = _standard(model, n, rng)
        place, scale = _placed(model, float(means[i]))
        sums[i] = np.clip(place + scale * drawn, low, high).sum()
    return sums


def solved_means(
    model: Mean,
    sums: Floats,
    n: int,
    bounds: tuple[float, float],
    box: tuple[float, float],
    rng: np.random.Generator,
    *,
    safe: bool,
) -> Floats:
    """For each sum the mean at which n fresh records, clamped to their bounds, have it; at most at the ends of the box.

    The sum grows with the mean for fixed random numbers of the records. Where it is `safe` that none will be clamped,
    all that enters is the law of their sum.
    """
    if model.family == "bernoulli":  # at least k ones from the k-th smallest of n uniforms on
        k = np.ceil(np.round(sums, 3))  # without noise a whole number, but for rounding
        inside = (k >= 1) & (k <= n)
        return np.where(inside, rng.beta(np.where(inside, k, 1), np.where(inside, n + 1 - k, 1)), (k > n) * 1.0)
    if safe:
        if model.family == "gaussian":
            assert model.scale is not None
            found = (sums - model.scale * np.sqrt(n) * rng.standard_normal(len(sums))) / n
        else:
            found = sums / rng.standard_gamma(n, len(sums))
        return np.clip(found, *box)
    return np.array([_solved(model, float(s), np.sort(_standard(model, n, rng)), *bounds, box) for s in sums])


def _solved(model: Mean, total: float, drawn: Floats, low: float, high: float, box: tuple[float, float]) -> float:
    """The mean at which records with these sorted standard values have the sum; binary search on their prefix sums."""
    n, below = len(drawn), np.concatenate([[0.0], np.cumsum(drawn)])

    def excess(mean: float) -> float:
        place, scale = _placed(model, mean)
        i, j = np.searchsorted(drawn, [(low - place) / scale, (high - place) / scale])
        return float(i * low + (n - j) * high + place * (j - i) + scale * (below[j] - below[i]) - total)

    if excess(box[0]) >= 0:
        return box[0]
    if excess(box[1]) <= 0:
        return box[1]
    from scipy.optimize import brentq  # slow to import

    return float(brentq(excess, *box, xtol=1e-12 * (box[1] - box[0])))


# A simulator of the user's own ---------------------------------------------------------------------------------------


def scaled(model: Simulated) -> "Callable[[jax.Array, jax.Array], jax.Array]":
    """The statistic of one record over C, as the private sum takes it."""
    names, statistic, clip = tuple(model.columns), model.statistic, model.clip

    def of(x: "jax.Array", y: "jax.Array") -> "jax.Array":
        import jax.numpy as jnp

        return jnp.ravel(jnp.asarray(statistic({name: x[i] for i, name in enumerate(names)}))) / clip

    return of


def simulator_of(
    model: Simulated, schema: Schema, n: int, replicates: int, rng: np.random.Generator
) -> Callable[..., Floats]:
    """θ → (replicates, d): means of the clipped statistic over n simulated records, with the same keys for every θ.

    With θ of shape (replicates, dim) every replicate has a parameter of its own; with a generator as a second argument,
    keys are fresh. A statistic that is not finite counts as zeros, as it does in the private sum.
    """
    import jax
    import jax.numpy as jnp

    bounds = [schema[name].bounds for name in model.columns]  # type: ignore[union-attr]
    statistic = scaled(model)

    def one(key: "jax.Array", theta: "jax.Array") -> "jax.Array":
        record = model.simulator(key, theta)
        x = jnp.stack([jnp.clip(record[c], *b) for c, b in zip(model.columns, bounds, strict=True)])
        value = statistic(x.astype(jnp.float32), jnp.float32(0.0))
        value = jnp.where(jnp.all(jnp.isfinite(value)), value, 0.0)
        return value / jnp.maximum(jnp.sqrt(jnp.sum(value**2)), 1.0)

    side = int(np.ceil(np.sqrt(n)))  # sums of sums: single precision loses little in √n terms
    there = jnp.arange(side * -(-n // side)).reshape(-1, side) < n

    def mean(pair: "tuple[jax.Array, jax.Array]") -> "jax.Array":
        keys = jax.random.split(pair[0], there.shape)
        values = jax.vmap(jax.vmap(partial(one, theta=pair[1])))(keys)
        return jnp.sum(jnp.sum(values * there[..., None], axis=1), axis=0) / n

    def drawn(rng: np.random.Generator) -> "jax.Array":
        return jax.random.split(jax.random.key(int(rng.integers(2**63))), replicates)

    keys, size = drawn(rng), max(1, min(replicates, 2**21 // n))

    @jax.jit
    def all_of(keys: "jax.Array", thetas: "jax.Array") -> "jax.Array":
        return jax.lax.map(mean, (keys, thetas), batch_size=size)

    def simulate(theta: Floats, fresh: np.random.Generator | None = None) -> Floats:
        thetas = np.broadcast_to(np.asarray(theta, np.float32), (replicates, model.dim))
        return np.asarray(all_of(keys if fresh is None else drawn(fresh), thetas), np.float64) * model.clip

    return simulate


def check_simulator(model: Simulated, schema: Schema) -> None:
    """Trace and run the simulator at the middle and two corners of the box, and at many points of it.

    What is not finite there is an error before anything is spent.
    """
    problem = model.prepare(schema)
    import jax
    import jax.numpy as jnp

    for sign in (0.0, -1.0, 1.0):
        theta = jnp.asarray(problem.center + sign * problem.radius, jnp.float32)
        try:
            jax.eval_shape(lambda key, at: model.statistic(model.simulator(key, at)), jax.random.key(0), theta)
            record = model.simulator(jax.random.key(0), theta)
            cells = {name: record[name] for name in model.columns}
            values = np.asarray(model.statistic(cells))
            scalar = all(np.shape(cell) == () for cell in cells.values())
        except Exception as error:
            raise InvalidValue(
                f"the simulator or the statistic fails at theta = {theta.tolist()}: {error}. The first is a function "
                f"of (key, theta) that returns a dictionary with {', '.join(model.columns)}, the second one of that."
            ) from error
        if not scalar or values.size == 0 or not np.isfinite([*cells.values()]).all() or not np.isfinite(values).all():
            raise _not_finite(theta.tolist())

    def finite(key: "jax.Array", theta: "jax.Array") -> "jax.Array":
        record = model.simulator(key, theta)
        cells = {name: record[name] for name in model.columns}
        return jnp.all(jnp.isfinite(jnp.stack([*cells.values()]))) & jnp.all(jnp.isfinite(model.statistic(cells)))

    rng, keys = np.random.default_rng(0), jax.random.split(jax.random.key(1), POINTS)
    points = (problem.center + problem.radius * rng.uniform(-1, 1, (POINTS, model.dim))).astype(np.float32)
    bad = np.flatnonzero(~np.asarray(jax.vmap(finite)(keys, jnp.asarray(points))))
    if len(bad):
        raise _not_finite(points[bad[0]].tolist())


def _not_finite(theta: list[float]) -> InvalidValue:
    return InvalidValue(
        f"the simulator gives no finite record of scalars, or the statistic no finite numbers, at theta = {theta}: "
        "both must be finite in the whole box. Choose a smaller box."
    )
