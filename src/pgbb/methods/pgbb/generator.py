"""The generator G_φ(u, τ): three hidden layers of ReLU units, the input concatenated again after each.

Pure functions on a dictionary of arrays. `pgbb.release.payloads` holds the same
forward pass in numpy, for readers of a release who have no JAX.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pgbb._numerics.compiled import computed_once
from pgbb.accountant import Mechanism
from pgbb.model.models import Problem

_REACH = 20.0  # default of `reach_of`
_FEW = 8  # up to so many rows are multiplied one by one on a CPU
_ROUNDS = 16  # rounds of power iteration


def reach_of(radius: Any, slope: float | None) -> np.ndarray:
    """How far z must go to cross most of the box, where θ = center + radius · tanh(z/reach).

    20 by default, so that a step moves θ by a share of the box, whatever the units; with a slope,
    θ moves slope times as far as z at the centre of the box, and less toward its sides.
    """
    radius = np.asarray(radius, np.float32)
    return np.full_like(radius, _REACH) if slope is None else radius / np.float32(slope)


def input_map(
    problem: Problem, mechanism: Mechanism, pseudo_blocks: int, *, unit: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Public shift and scale of the input (u, ũ, index): weights as they are, the index standardised.

    Weights are left on their own small scale on purpose. Standardised, they would let the network follow the privacy
    noise in all S−1 block directions, and the intervals would become several times as wide. Without noise there is
    nothing to follow, and with thousands of blocks nothing is learned at that scale: `unit` gives the weights length
    about 1 around their mean.
    """
    size = mechanism.blocks + pseudo_blocks
    shift, scale = (np.full(size, 1 / size), np.full(size, size**-0.5)) if unit else (np.zeros(size), np.ones(size))
    if problem.index is not None:
        centre, width = problem.index.moments()
        shift, scale = np.append(shift, centre), np.append(scale, width)
    return shift.astype(np.float32), scale.astype(np.float32)


def initialise(
    inputs: int, outputs: int, width: int, depth: int, rng: np.random.Generator, *, xavier: bool = False
) -> dict[str, np.ndarray]:
    """He's weights and a small last layer, so that training starts at the centre of the box; or Xavier's; no biases."""
    params: dict[str, np.ndarray] = {}
    size = inputs
    for i in range(depth):
        params[f"kernel{i}"] = rng.standard_normal((size, width)) * np.sqrt(2 / (size + width if xavier else size))
        params[f"bias{i}"] = np.zeros(width)
        size = width + inputs
    last = np.sqrt(2 / (size + outputs)) if xavier else 0.01 / np.sqrt(size)
    params[f"kernel{depth}"] = rng.standard_normal((size, outputs)) * last
    params[f"bias{depth}"] = np.zeros(outputs)
    return {name: value.astype(np.float32) for name, value in params.items()}


def _times(h: Any, kernel: Any) -> Any:
    """h @ kernel; on a CPU a few rows one by one, of which the compiler makes faster code than a library has."""
    if len(h) > _FEW or jax.default_backend() != "cpu":
        return h @ kernel
    return jnp.stack([computed_once(row @ kernel) for row in h])


@jax.custom_vjp
def _product(h: Any, kernel: Any) -> Any:
    """h @ kernel, whose derivative by the kernel, for a few rows h, is written out: compilers fuse it with its use."""
    return _times(h, kernel)


def _product_forward(h: Any, kernel: Any) -> tuple[Any, Any]:
    return _times(h, kernel), (h, kernel)


def _product_backward(kept: tuple[Any, Any], back: Any) -> tuple[Any, Any]:
    h, kernel = kept
    back = computed_once(back)
    few = len(h) <= _FEW
    return _times(back, kernel.T), (sum(a[:, None] * b for a, b in zip(h, back, strict=True)) if few else h.T @ back)


_product.defvjp(_product_forward, _product_backward)


def forward(params: dict[str, Any], inputs: Any, center: Any, radius: Any, reach: Any, *, clipped: bool = False) -> Any:
    """θ = center + radius · tanh(z/reach) for standardised inputs (rows): smooth, bounded, nearly linear inside.

    `clipped` clips to [−1, 1] in place of tanh; gradients pass unchanged, or what lies outside would stay there.
    """
    depth = len(params) // 2 - 1
    h = inputs
    for i in range(depth):
        h = jax.nn.relu(_product(h, params[f"kernel{i}"]) + params[f"bias{i}"])
        h = jnp.concatenate([h, inputs], axis=-1)
    z = _product(h, params[f"kernel{depth}"]) + params[f"bias{depth}"]
    z = z / reach
    return center + radius * (z + jax.lax.stop_gradient(jnp.clip(z, -1, 1) - z) if clipped else jnp.tanh(z))


def export(params: dict[str, Any], reach: Any) -> dict[str, np.ndarray]:
    """Weights as stored in a release, whose forward pass has tanh(z) or a clip: the last layer is over the reach."""
    depth = len(params) // 2 - 1
    last = (f"kernel{depth}", f"bias{depth}")
    return {k: np.asarray(v, np.float32) / (reach if k in last else np.float32(1)) for k, v in params.items()}


def spectral_clip(params: dict[str, Any], bound: float, *, exactly: bool = False) -> dict[str, Any]:
    """Scale each kernel whose operator norm exceeds the bound (the class Φ of section 3).

    In a training the norm is found by power iteration, which errs to small values by a few per cent at most; what is
    kept of it in the end is clipped `exactly`.
    """

    def clip(name: str, value: Any) -> Any:
        if not name.startswith("kernel"):
            return value
        norm = np.linalg.norm(value, ord=2) if exactly else _norm(value)
        return value * jnp.minimum(1.0, bound / norm)

    return {name: clip(name, value) for name, value in params.items()}


def _norm(kernel: Any) -> Any:
    """The operator norm by power iteration from a fixed random start."""
    start = np.random.default_rng(0).standard_normal(kernel.shape[1]).astype(np.float32)

    def turned(_: Any, vector: Any) -> Any:
        vector = (kernel @ vector) @ kernel
        return vector / jnp.maximum(jnp.linalg.norm(vector), 1e-30)

    vector = jax.lax.fori_loop(0, _ROUNDS, turned, jnp.asarray(start / np.linalg.norm(start)))
    return jnp.maximum(jnp.linalg.norm(kernel @ vector), 1e-30)
