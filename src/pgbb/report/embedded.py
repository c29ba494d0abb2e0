"""What a page carries of a release for the browser to draw from: plain objects, arrays as base64."""

import base64
from collections.abc import Mapping
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from pgbb.errors import PgbbError
from pgbb.model.formula import Curve, Design, Dummy
from pgbb.model.schema import Flag, Levels, Schema
from pgbb.release.file import Release
from pgbb.release.local_gaussian import shortest
from pgbb.release.payloads import Payload

STORED = 4000  # draws of a "draws" payload that a page carries at most
STORED_BYTES = 1_000_000


class Packed(TypedDict):
    """An array as base64 of little-endian numbers."""

    dtype: str
    shape: list[int]
    data: str


def embedded(release: Release, name: str) -> dict[str, object]:
    """Everything that the page's scripts read; `name` is what a download is called after."""
    return {
        "model": _model(release),
        "payload": _payload(release.payload, release.model.dim),
        "columns": _columns(release),
        "terms": _terms(release),
        "grid": list(release.grid()) or None,
        "headline": release.certificate.headline(),
        "file": name,
    }


def _packed(array: ArrayLike, dtype: str = "f8") -> Packed:
    plain = np.ascontiguousarray(array, dtype="<" + dtype)
    return {"dtype": dtype, "shape": list(plain.shape), "data": base64.b64encode(plain.tobytes()).decode("ascii")}


def _model(release: Release) -> dict[str, object]:
    model = release.model
    return {
        "kind": model.kind,
        "names": list(model.names),
        "index_name": model.index_name,
        "index": model.index,
        "response": model.response,
        "formula": model.formula,
        "transform": _packed(np.array(model.transform)),
        "offset": _packed(np.array(model.offset)),
    }


def _payload(payload: Payload, dim: int) -> dict[str, object]:
    t = payload.tensors
    if payload.kind == "local":
        vague = payload.local.vague
        kept = {name: tensor for name, tensor in t.items() if name != "free" or vague}
        kept["privacy"] = shortest(t["privacy"])
        settings: dict[str, object] = {"floor": payload.settings["floor"], "vague": vague}
        return _plain("local", settings, {name: _packed(tensor) for name, tensor in kept.items()})
    if payload.kind == "generator":
        which = payload.settings["default_iterate"]
        tensors = {name: _packed(t[name]) for name in ("input_shift", "input_scale", "center", "radius")}
        for i in range(payload.layers(which)):
            for part in ("kernel", "bias"):
                tensors[f"{part}{i}"] = _packed(t[f"{which}/{part}{i}"], "f4")
        return _plain("generator", payload.settings, tensors)
    draws = t["draws"]
    size = draws.shape[-2]
    rows = max(1, min(size, STORED, STORED_BYTES // (4 * dim * max(1, draws.size // (size * dim)))))
    chosen = np.linspace(0, size - 1, rows).round().astype(int)
    settings = {"index_values": payload.settings["index_values"], "stored": size, "embedded": rows}
    return _plain("draws", settings, {"draws": _packed(draws[..., chosen, :], "f4")})


def _plain(kind: str, settings: Mapping[str, object], tensors: Mapping[str, Packed]) -> dict[str, object]:
    return {"kind": kind, "settings": dict(settings), "tensors": dict(sorted(tensors.items()))}


def _terms(release: Release) -> list[dict[str, object]] | None:
    """The terms of the formula as products of factors; None where there is no formula to predict from."""
    model = release.model
    if model.formula is None:
        return None
    try:
        terms = Design.parse(model.formula, Schema.from_dict(release.schema)).terms
    except PgbbError:
        return None
    if any(term.name not in model.names for term in terms):
        return None
    return [
        {
            "coefficient": model.names.index(term.name),
            "factors": [
                {"column": f.column, "code": f.code}
                if isinstance(f, Dummy)
                else {"column": f.column, "starts": f.starts, "pieces": f.pieces}
                if isinstance(f, Curve)
                else {"column": f.column, "power": f.power, "log": f.log}
                for f in term.factors
            ],
        }
        for term in terms
    ]


def _columns(release: Release) -> dict[str, object]:
    """The declared columns: what a reader may put into a prediction."""
    found: dict[str, object] = {}
    for name, column in Schema.from_dict(release.schema).items() if release.schema else ():
        if isinstance(column, Levels):
            found[name] = {"levels": [str(level) for level in column.levels]}
        elif isinstance(column, Flag):
            found[name] = {"flag": list(column.words or ("0 (no)", "1 (yes)"))}
        else:
            found[name] = {"range": list(column.bounds)}
    return found
