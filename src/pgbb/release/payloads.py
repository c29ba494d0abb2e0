"""What a release draws from: the summary of the model, the payload, and the generator's forward pass in numpy.

Readers of a release need no JAX; `pgbb.methods.pgbb.generator` holds the same map for training.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pgbb import _validate
from pgbb._numerics import Floats
from pgbb.errors import InvalidValue
from pgbb.model.blocks import draw_weights
from pgbb.model.problem import Problem
from pgbb.release.local_gaussian import LocalGaussian

if TYPE_CHECKING:
    from pgbb.accountant import Mechanism


KINDS = {
    "quantile": "quantile regression",
    "linear": "linear regression",
    "huber": "Huber regression",
    "logistic": "logistic regression",
    "poisson": "Poisson regression",
    "expectile": "expectile regression",
    "iv": "two-stage least squares",
    "mean": "a mean",
    "means": "means by groups",
    "custom": "a custom loss",
    "simulated": "a simulated model",
}
"""Kinds of model, in words."""
PAYLOADS = ("generator", "draws", "local")
ITERATES = ("average", "last")
SHARED = ("input_shift", "input_scale", "center", "radius")
TRANSCRIPT = ("transcript/u", "transcript/query", "transcript/index", "transcript/answer")
CHUNK = 16_384  # rows of one forward pass; bounds memory, not results

Tensor = np.ndarray
"""An array of a release file, in the type it is stored in."""


@dataclass(frozen=True)
class ModelSummary:
    """What a reader must know of the model: names, units and the index; nothing that trains.

    Args:
      kind: one of `KINDS`.
      formula: as the user wrote it, or None.
      names: names of the d coefficients.
      index_name: name of the index of a joint model ("tau"), or None.
      index: {"kind": "levels", "values": […]} or {"kind": "interval", "low": …, "high": …}, or None.
      transform, offset: θ in original units = transform @ θ internal + offset; d×d and d.
      settings: further public settings of the model, JSON only.
      response: name of the response, or None.

    >>> m = ModelSummary("mean", None, ("mu",), None, None, [[2.0]], [5.0])
    >>> ModelSummary.from_dict(m.to_dict()) == m
    True
    """

    kind: str
    formula: str | None
    names: tuple[str, ...]
    index_name: str | None
    index: dict[str, Any] | None
    transform: Sequence[Sequence[float]]
    offset: Sequence[float]
    settings: dict[str, Any] = field(default_factory=dict)
    response: str | None = None

    def __post_init__(self) -> None:
        _validate.one_of("kind", self.kind, tuple(KINDS))
        given: Sequence[object] = self.names
        names = () if isinstance(given, str) else tuple(given)
        if not names or not all(isinstance(n, str) for n in names) or len(set(names)) < len(names):
            raise _validate.fail("names", self.names, "a non-empty sequence of distinct strings")
        for text in (*names, self.formula, self.index_name, self.response):
            if isinstance(text, str) and not _validate.visible(text):
                raise _validate.fail("text of the model", text, "without control characters")
        d = len(names)
        transform, offset = _finite("transform", self.transform, (d, d)), _finite("offset", self.offset, (d,))
        if (self.index is None) != (self.index_name is None):
            raise InvalidValue(
                f"index_name = {self.index_name!r} with index = {self.index!r} is not allowed: give both, or neither."
            )
        _validate.store(
            self, names=names, transform=tuple(map(tuple, transform.tolist())), offset=tuple(offset.tolist()),
            index=None if self.index is None else _read_index(self.index),
        )  # fmt: skip

    @property
    def dim(self) -> int:
        """d, the number of coefficients."""
        return len(self.names)

    @property
    def levels(self) -> tuple[float, ...] | None:
        """The declared levels of the index; None for an interval, and for a model without index."""
        if self.index is None or self.index["kind"] != "levels":
            return None
        return tuple(self.index["values"])

    def to_original(self, internal: ArrayLike) -> Floats:
        """θ in the units of the data; the last axis of `internal` has length d."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.asarray(internal, dtype=np.float64) @ np.array(self.transform).T + np.array(self.offset)
        if not np.isfinite(found).all():
            raise InvalidValue("the numbers in this release are too large to draw from: draws would be infinite.")
        return found

    def to_dict(self) -> dict[str, object]:
        """A JSON object."""
        plain: dict[str, object] = {f.name: getattr(self, f.name) for f in fields(self)}
        plain.update(names=list(self.names), transform=[list(r) for r in self.transform], offset=list(self.offset))
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "ModelSummary":
        """The summary that `to_dict` wrote; every field is validated again."""
        known = {f.name for f in fields(cls)}
        if not isinstance(plain, Mapping) or set(plain) != known:
            raise InvalidValue(f"the model summary is not allowed: it must be an object with exactly {sorted(known)}.")
        if not isinstance(plain["names"], list | tuple) or not isinstance(plain["settings"], Mapping):
            raise InvalidValue("model summary: names must be a list of strings and settings an object.")
        for name in ("formula", "index_name", "response"):
            if not isinstance(plain[name], str | None):
                raise _validate.fail(name, plain[name], "a string or null")
        return cls(**plain)


def summary_of(problem: Problem) -> ModelSummary:
    """What a release says about the model."""
    return ModelSummary(
        kind=problem.kind,
        formula=problem.formula,
        names=problem.names,
        index_name=problem.index.name if problem.index else None,
        index=problem.index.to_dict() if problem.index else None,
        transform=problem.transform.tolist(),
        offset=problem.offset.tolist(),
        settings=problem.settings,
        response=problem.response,
    )


def _finite(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Floats:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidValue(f"{name} is not allowed: it must be numbers of shape {shape}.") from None
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidValue(f"{name} of shape {array.shape} is not allowed: it must be finite and of shape {shape}.")
    return array


def _read_index(index: Any) -> dict[str, object]:
    kind = index.get("kind") if isinstance(index, Mapping) else None
    if kind == "levels" and set(index) == {"kind", "values"} and isinstance(index["values"], list | tuple):
        values = [_validate.number("index level", v) for v in index["values"]]
        if values and len(set(values)) == len(values):
            return {"kind": "levels", "values": sorted(values)}
    if kind == "interval" and set(index) == {"kind", "low", "high"}:
        low = _validate.number("index low", index["low"])
        return {"kind": "interval", "low": low, "high": _validate.number("index high", index["high"], above=low)}
    raise _validate.fail(
        "index", index, "{'kind': 'levels', 'values': […]} of distinct numbers, or {'kind': 'interval', 'low', 'high'}"
    )


@dataclass(frozen=True, eq=False)
class Payload:
    """What is drawn from: a generator's weights, stored draws, or a local posterior.

    - Generator: settings blocks, pseudo_blocks, concentration, alpha, index, default_iterate, and clipped where the
      output is; tensors {average,last}/{kernel,bias}{0…L} and the shared input_shift, input_scale, center, radius; see
      `forward`.
    - Draws: settings index_values; tensor draws, (m, d) or (k, m, d), in internal coordinates.
    - Local: settings index, bridge, floor; tensors center, gradient, scale, curvature, curvature_sd, privacy, sampling,
      sampling_sd, free, low, high, and knots with an index, all float64; see `pgbb.release.local_gaussian`.

    Beside a generator or draws there may be the noisy answers they were made of, tensors
    transcript/{u,query,index,answer}, for somebody who analyses them again.
    """

    kind: Literal["generator", "draws", "local"]
    settings: dict[str, Any]
    tensors: dict[str, Tensor]

    def check(self, model: ModelSummary) -> None:
        """Raise `InvalidValue` unless names, shapes and values fit each other and the model."""
        _validate.one_of("payload kind", self.kind, PAYLOADS)
        for name, tensor in self.tensors.items():
            if tensor.dtype.kind not in "fiu":
                raise InvalidValue(f"tensor {name!r} of type {tensor.dtype} is not allowed: it must hold real numbers.")
            if not np.isfinite(tensor).all():
                raise InvalidValue(f"tensor {name!r} holds NaN or infinite values, which no posterior has.")
        kept = {n for n in self.tensors if n.startswith("transcript/")}
        rest = set(self.tensors) - kept
        if self.kind == "local":
            LocalGaussian.check_tensors(self.settings, self.tensors, model.dim, model.index)
            return
        if kept:
            self._check_transcript(kept, model)
        if self.kind == "generator":
            self._check_generator(rest, model)
        else:
            self._check_draws(rest, model)

    def _check_transcript(self, names: set[str], model: ModelSummary) -> None:
        wanted = set(TRANSCRIPT)
        if model.index is None:
            wanted.discard("transcript/index")
            names = names - {"transcript/index"}
        if names != wanted:
            raise InvalidValue(f"transcript tensors {sorted(names)} are not allowed: expected {sorted(wanted)}.")
        if len({self.tensors[n].shape[:1] for n in names}) > 1 or any(self.tensors[n].ndim == 0 for n in names):
            raise InvalidValue("transcript tensors of different lengths are not allowed: one row an answer.")

    def foreign_transcript(self, mechanism: "Mechanism", sigma: float) -> list[str]:
        """Why the noisy answers that are kept cannot be those of a mechanism with this noise; nothing where they can.

        Residuals of a regression on weights and points have at least the noise, and no more than it and what the
        bound C lets records add, each within six standard errors.
        """
        u, query, answer = (self.tensors[f"transcript/{name}"] for name in ("u", "query", "answer"))
        d, weights = len(self.tensors["center"]), mechanism.blocks + int(self.settings["pseudo_blocks"])
        found = []
        for name, tensor, columns in (("u", u, weights), ("query", query, d), ("answer", answer, d)):
            if tensor.shape != (mechanism.answers, columns):
                shape = f"{mechanism.answers} rows of {columns} numbers"
                found.append(f"transcript/{name} is of shape {tensor.shape}, but the certificate describes {shape}.")
        if found:
            return found
        if np.any(u < 0) or np.any(np.abs(np.sum(u, axis=1, dtype=np.float64) - 1) > 1e-3):
            found.append("transcript/u holds rows that are not weights of blocks, which are positive and add up to 1.")
        x = np.concatenate([u, query], axis=1).astype(np.float64)
        free = len(x) - x.shape[1]
        if free < x.shape[1] or sigma == 0:
            return found
        rest = answer - x @ np.linalg.lstsq(x, answer.astype(np.float64), rcond=None)[0]
        seen, slack = float(np.sum(rest**2)) / (free * d * sigma**2), 6 * math.sqrt(2 / (free * d))
        q, most = mechanism.sampling_rate, mechanism.clip * mechanism.reach
        most = (q**2 + q * (1 - q) / mechanism.block_size) * most**2 / (d * sigma**2)
        if not 1 - slack <= seen <= (1 + most) * (1 + slack) and not (mechanism.alpha > 0 and seen > 1):
            found.append(f"the answers have {seen:.3g} times the variance of the noise that the certificate describes.")
        return found

    def _check_draws(self, names: set[str], model: ModelSummary) -> None:
        if names != {"draws"} or set(self.settings) != {"index_values"}:
            raise InvalidValue(
                f"tensors {sorted(names)} with settings {sorted(self.settings)} are not allowed: a draws payload has "
                "the tensor 'draws' and the setting 'index_values'."
            )
        values, shape = self.settings["index_values"], self.tensors["draws"].shape
        if (values is None) != (model.index is None) or not isinstance(values, list | None):
            raise _validate.fail("index_values", values, "a list for a model with an index, and null for one without")
        if values is not None:
            for value in values:
                _validate.number("index_values", value)
        lead = () if values is None else (len(values),)
        if len(shape) != len(lead) + 2 or shape[:-2] != lead or shape[-1] != model.dim or 0 in shape:
            raise InvalidValue(
                f"tensor 'draws' of shape {shape} is not allowed: it must be {(*lead, 'm', model.dim)} with m ≥ 1."
            )

    def _check_generator(self, names: set[str], model: ModelSummary) -> None:
        s = self.settings
        wanted = {"blocks", "pseudo_blocks", "concentration", "alpha", "index", "default_iterate"}
        if set(s) - {"clipped"} != wanted or s.get("clipped", True) is not True:
            raise InvalidValue(f"generator settings {sorted(s)} are not allowed: they must be {sorted(wanted)}.")
        blocks = _validate.integer("blocks", s["blocks"], low=1)
        pseudo = _validate.integer("pseudo_blocks", s["pseudo_blocks"], low=0)
        if blocks > 1:
            _validate.number("concentration", s["concentration"], above=0)
        elif s["concentration"] is not None or pseudo:
            raise InvalidValue("blocks = 1 means constant weights: concentration must be null and pseudo_blocks 0.")
        alpha = _validate.number("alpha", s["alpha"], low=0)
        if (alpha > 0) != (pseudo > 0):
            raise InvalidValue(f"alpha = {alpha:g} with pseudo_blocks = {pseudo} is not allowed: both or neither is 0.")
        if not isinstance(s["index"], bool) or s["index"] != (model.index is not None):
            raise _validate.fail("index", s["index"], "true for a model with an index, and false for one without")
        default = _validate.one_of("default_iterate", s["default_iterate"], ITERATES)
        inputs = blocks + pseudo + s["index"]
        for name, length in zip(SHARED, (inputs, inputs, model.dim, model.dim), strict=True):
            self._shape(name, (length,))
        if not (self.tensors["input_scale"] > 0).all() or not (self.tensors["radius"] > 0).all():
            raise InvalidValue("tensors 'input_scale' and 'radius' must be positive.")
        known = set(SHARED)
        for iterate in self.iterates:
            layers = self.layers(iterate)
            width = 0
            for i in range(layers):
                last = i == layers - 1
                rows = inputs + width if i else inputs
                kernel = self._shape(f"{iterate}/kernel{i}", (rows, model.dim if last else None))
                width = kernel.shape[1]
                self._shape(f"{iterate}/bias{i}", (width,))
                known |= {f"{iterate}/kernel{i}", f"{iterate}/bias{i}"}
        if default not in self.iterates:
            raise InvalidValue(f"the default iterate '{default}' has no tensors: expected {default}/kernel0, ….")
        if names != known:
            raise InvalidValue(f"tensors {sorted(names - known)} are not allowed: a generator has no such parts.")

    def _shape(self, name: str, shape: tuple[int | None, ...]) -> Tensor:
        if name not in self.tensors:
            raise InvalidValue(f"tensor {name!r} is missing from the generator.")
        actual = self.tensors[name].shape
        if len(actual) != len(shape) or any(b not in (None, a) for a, b in zip(actual, shape, strict=True)):
            raise InvalidValue(f"tensor {name!r} of shape {actual} is not allowed: it must be {shape}.")
        return self.tensors[name]

    @property
    def iterates(self) -> tuple[str, ...]:
        """Which iterates of the generator are stored."""
        return tuple(i for i in ITERATES if f"{i}/kernel0" in self.tensors)

    def weights(self, m: int, rng: np.random.Generator) -> Floats:
        """m fresh draws of a generator's input (u, ũ)."""
        s = self.settings
        return draw_weights(s["blocks"], s["concentration"], s["pseudo_blocks"], s["alpha"], m, rng)

    @property
    def local(self) -> LocalGaussian:
        """The local posterior: its draws and closed forms."""
        return LocalGaussian.from_tensors(self.settings, self.tensors)

    def layers(self, iterate: str) -> int:
        """The number of layers, the last included."""
        count = 0
        while f"{iterate}/kernel{count}" in self.tensors:
            count += 1
        return count


def same_payload(one: Payload, other: Payload, tolerance: float = 0.0) -> bool:
    """Whether two payloads hold the same numbers, up to a relative error."""
    if (one.kind, one.settings, one.tensors.keys()) != (other.kind, other.settings, other.tensors.keys()):
        return False
    pairs = [(tensor, other.tensors[name]) for name, tensor in one.tensors.items()]
    return all(
        a.shape == b.shape and np.max(np.abs(a - b), initial=0.0) <= tolerance * np.max(np.abs(a), initial=0.0)
        for a, b in pairs
    )


def forward(payload: Payload, inputs: Floats, iterate: str) -> Floats:
    """The generator G at rows v = (u, ũ, index), in internal coordinates: center + radius·tanh(z).

    With the setting `clipped`, z is clipped to [−1, 1] in place of tanh. Each hidden layer is ReLU, and the scaled
    input joins its output again. `inputs` is (m, S + S̃ + 1) with an index, else (m, S + S̃); the result is (m, d).
    """
    t, clipped = payload.tensors, payload.settings.get("clipped", False)
    layers = payload.layers(iterate)
    kernels = [t[f"{iterate}/kernel{i}"].astype(np.float32, copy=False) for i in range(layers)]
    biases = [t[f"{iterate}/bias{i}"].astype(np.float32, copy=False) for i in range(layers)]
    shift, scale = t["input_shift"].astype(np.float64), t["input_scale"].astype(np.float64)
    center, radius = t["center"].astype(np.float64), t["radius"].astype(np.float64)
    out = np.empty((len(inputs), len(center)))
    for start in range(0, len(inputs), CHUNK):
        x = ((inputs[start : start + CHUNK] - shift) / scale).astype(np.float32)
        h = x
        for kernel, bias in zip(kernels[:-1], biases[:-1], strict=True):
            h = np.concatenate([np.maximum(h @ kernel + bias, 0), x], axis=1)
        z = (h @ kernels[-1] + biases[-1]).astype(np.float64)
        out[start : start + CHUNK] = center + radius * (np.clip(z, -1, 1) if clipped else np.tanh(z))
    return out
