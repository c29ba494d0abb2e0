"""The position of a run as plain JSON, and the state that a checkpoint keeps for another process.

Which checkpoint may be gone on from, and when one is written, is decided in `pgbb.custody.checkpoint`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pgbb import _validate
from pgbb.errors import PgbbError
from pgbb.private.door import Position

if TYPE_CHECKING:
    from jax import Array


ANEW = "To fit anew, at a new cost, name another checkpoint file."
_GENERATOR = "PCG64DXSM"

Tensors = dict[str, np.ndarray]
Tree: TypeAlias = Any  # nested tuples and dictionaries of arrays, in a form that the method knows


def position_to_dict(position: Position) -> dict[str, object]:
    """A JSON object; large numbers as text."""
    state = position.public
    inner = state["state"]
    return {
        "steps": position.steps,
        "chunk": position.chunk,
        "order": f"{position.order or 0:x}",
        "public": {
            "state": f"{inner['state']:x}",
            "inc": f"{inner['inc']:x}",
            "has_uint32": int(state["has_uint32"]),
            "uinteger": int(state["uinteger"]),
        },
    }


def position_from_dict(plain: Mapping[str, Any]) -> Position:
    """The position that `position_to_dict` wrote; `ValueError`, `KeyError` or `TypeError` for anything else."""
    public = plain["public"]
    if set(public) != {"state", "inc", "has_uint32", "uinteger"}:
        raise ValueError
    return Position(
        steps=_validate.integer("steps", plain["steps"], low=0),
        chunk=_validate.integer("chunk", plain["chunk"], low=1),
        public={
            "bit_generator": _GENERATOR,
            "state": {name: _hex(public[name], 128) for name in ("state", "inc")},
            "has_uint32": _validate.integer("has_uint32", public["has_uint32"], low=0, high=1),
            "uinteger": _validate.integer("uinteger", public["uinteger"], low=0, high=2**32 - 1),
        },
        order=_hex(plain["order"], 256),
    )


def _hex(text: object, bits: int) -> int:
    if not isinstance(text, str) or len(text) > bits // 4:
        raise ValueError
    return int(text, 16)


class CheckpointError(PgbbError):
    """A checkpoint cannot be read, written, or gone on from."""


@dataclass(frozen=True)
class Saved:
    """What an earlier process wrote.

    Attributes:
      stage: which of several runs it was in; a method with one run has stage 0.
      position: where that run stands.
      tensors: the state's leaves as state/0, state/1, …; outputs as kept/NAME, one row a step.
    """

    stage: int
    position: Position
    tensors: Tensors

    def state(self, template: Tree) -> Tree:
        """The state of the training, in the form of `template`, to whose shapes and types it must keep."""
        import jax

        leaves, form = jax.tree.flatten(template)
        return jax.tree.unflatten(form, [self._leaf(f"state/{i}", leaf) for i, leaf in enumerate(leaves)])

    def _leaf(self, name: str, like: "Array") -> "Array":
        import jax
        import jax.numpy as jnp

        found, wanted = self.tensors.get(name), plain(like)
        if found is None or (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            raise CheckpointError(f"{name} of the checkpoint has not the form that this fit gives it. {ANEW}")
        if _is_key(like):
            return jax.random.wrap_key_data(jnp.asarray(found), impl=jax.random.key_impl(like))
        return jnp.asarray(found)

    def kept(self, names: Sequence[str], steps: int) -> Tensors:
        """The outputs of the first `steps` steps, by name."""
        found = {name: self.tensors.get(f"kept/{name}") for name in names}
        for name, tensor in found.items():
            if tensor is None or tensor.ndim == 0 or len(tensor) != steps or tensor.dtype != np.float32:
                raise CheckpointError(f"{name} of the checkpoint has not one row for each of {steps:,} steps. {ANEW}")
        return {name: tensor for name, tensor in found.items() if tensor is not None}


def _is_key(leaf: "Array") -> bool:
    import jax
    import jax.numpy as jnp

    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def plain(leaf: "Array") -> np.ndarray:
    """A leaf of a state as numbers; a copy, for the device takes its memory back."""
    import jax

    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
