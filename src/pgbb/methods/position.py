"""Where a run of the mechanism stands, as plain JSON: in a checkpoint, and on the way to other processes."""

import json
from collections.abc import Mapping
from typing import Any

from pgbb import _validate
from pgbb.private.door import Position, Together

__all__ = ["position_from_dict", "position_of_first", "position_to_dict"]

_GENERATOR = "PCG64DXSM"


def position_to_dict(position: Position) -> dict[str, Any]:
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


def position_of_first(together: Together, position: Position | None) -> Position | None:
    """Where process 0 goes on from, in all processes; None for a run from the start."""
    said = json.loads(together.first(json.dumps(None if position is None else position_to_dict(position)).encode()))
    return None if said is None else position_from_dict(said)


def _hex(text: Any, bits: int) -> int:
    if not isinstance(text, str) or len(text) > bits // 4:
        raise ValueError
    return int(text, 16)
