"""From a release to one HTML file: words and numbers from here, drawing in draw.js, the page's behaviour in page.js.

All of it is post-processing of a release; nothing is fetched, by this module or
by the page. Whatever comes from a release file is escaped: a page must not be
able to run what a stranger wrote into a name or a note.
"""

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pgbb
from pgbb.accountant import Mechanism
from pgbb.errors import PgbbError
from pgbb.model.formula import Design, Dummy
from pgbb.model.schema import Flag, Levels, Schema
from pgbb.release.certificate import Certificate
from pgbb.release.file import Release, Verification
from pgbb.release.local_gaussian import shortest
from pgbb.release.payloads import Payload

__all__ = ["LARGEST", "page"]

LARGEST = 2_000_000  # bytes of a page
STORED = 4000  # draws of a "draws" payload that a page carries at most
STORED_BYTES = 1_000_000

FAMILIES = {
    "quantile": "Quantile regression",
    "huber": "Huber regression",
    "logistic": "Logistic regression",
    "mean": "Mean",
    "custom": "Custom model",
}
PAYLOAD = {
    "local": "a calibrated local posterior: a centre, a curvature, and the known law of sampling and privacy error",
    "generator": "a generator: a small neural network that turns random block weights into coefficients",
    "draws": "stored draws, from which the page resamples",
}
PARTS = {
    "n": "records, n",
    "blocks": "blocks, S",
    "sampling_rate": "probability that a record joins a batch, q",
    "steps": "steps, T",
    "draws_per_step": "answers in a step, K",
    "clip": "largest norm of one record's contribution, C",
    "gamma": "Dirichlet concentration, γ",
    "alpha": "mass of public pseudo-samples, α",
    "replicates": "refits, B",
    "sensitivity": "largest movement of a refit, Δ",
}


def page(release: Release, source: str | Path | None = None) -> str:
    """The page of a release, as HTML.

    Args:
      release: what to show.
      source: its file, whose name and SHA-256 the page then states.

    Raises:
      PgbbError: the page would exceed `LARGEST` bytes.
    """
    verification = release.verify()
    data = {
        "model": _model(release),
        "payload": _payload(release.payload, release.model.dim),
        "columns": _columns(release),
        "terms": _terms(release),
        "grid": list(release.grid()) or None,
        "headline": release.certificate.headline(),
        "file": Path(source).stem if source is not None else "release",
    }
    text = Template(_asset("page.html")).substitute(
        title=html.escape(release.title),
        heading=_heading(release),
        banner=_banner(release.certificate, verification),
        claim=html.escape(release.certificate.headline()),
        about=_about(release, source),
        certificate=_certificate(release.certificate, verification),
        version=html.escape(pgbb.__version__),
        style=_asset("page.css"),
        draw=_asset("draw.js"),
        script=_asset("page.js"),
        data=_script_json(data),
    )
    size = len(text.encode("utf-8"))
    if size > LARGEST:
        raise PgbbError(
            f"the page would have {size:,} bytes, more than the {LARGEST:,} that a page may have: this release is too "
            "large to be embedded. Publish the file itself, and draws of it with pgbb export."
        )
    return text


def _asset(name: str) -> str:
    return files("pgbb.report").joinpath(name).read_text(encoding="utf-8")


def _script_json(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


# What the browser draws from ------------------------------------------------------------------------------------------


def _packed(array: NDArray[Any], dtype: str = "f8") -> dict[str, Any]:
    """An array as base64 of little-endian numbers."""
    plain = np.ascontiguousarray(array, dtype="<" + dtype)
    return {"dtype": dtype, "shape": list(plain.shape), "data": base64.b64encode(plain.tobytes()).decode("ascii")}


def _model(release: Release) -> dict[str, Any]:
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


def _payload(payload: Payload, dim: int) -> dict[str, Any]:
    t = payload.tensors
    if payload.kind == "local":
        vague = payload.local.vague
        kept = {name: tensor for name, tensor in t.items() if name != "free" or vague}
        kept["privacy"] = shortest(t["privacy"])
        settings: dict[str, Any] = {"floor": payload.settings["floor"], "vague": vague}
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


def _plain(kind: str, settings: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "settings": dict(settings), "tensors": dict(sorted(tensors.items()))}


def _terms(release: Release) -> list[dict[str, Any]] | None:
    """The terms of the formula as products of powers and dummies; None where there is no formula to predict from."""
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
                {"column": f.column, "code": f.code} if isinstance(f, Dummy) else {"column": f.column, "power": f.power}
                for f in term.factors
            ],
        }
        for term in terms
    ]


def _columns(release: Release) -> dict[str, Any]:
    """The declared columns: what a reader may put into a prediction."""
    found: dict[str, Any] = {}
    for name, column in Schema.from_dict(release.schema).items() if release.schema else ():
        if isinstance(column, Levels):
            found[name] = {"levels": [str(level) for level in column.levels]}
        elif isinstance(column, Flag):
            found[name] = {"flag": True}
        else:
            found[name] = {"range": list(column.bounds)}
    return found


# What the page says ---------------------------------------------------------------------------------------------------


def _heading(release: Release) -> str:
    model = release.model
    what = FAMILIES[model.kind]
    return html.escape(f"{what} of {model.response}" if model.response else what)


def _banner(certificate: Certificate, verification: Verification) -> str:
    """What a reader must see first: that there is no privacy, or that the file contradicts itself."""
    if verification.ok:
        return ""
    head = "NOT PRIVATE" if not certificate.private else "DOES NOT VERIFY"
    lines = "".join(f"<li>{html.escape(problem)}</li>" for problem in verification.problems)
    return f'<div class="banner" role="note"><p><strong>{head}</strong></p><ul>{lines}</ul></div>'


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in rows)


def _about(release: Release, source: str | Path | None) -> str:
    model, certificate = release.model, release.certificate
    rows = [("Model", FAMILIES[model.kind])]
    if model.formula is not None:
        rows.append(("Formula", model.formula))
    if model.index is not None:
        name = "τ" if model.index_name == "tau" else str(model.index_name)
        if model.levels is not None:
            rows.append((f"Levels of {name}", ", ".join(f"{v:g}" for v in model.levels)))
        else:
            rows.append((f"Levels of {name}", f"every value in [{model.index['low']:g}, {model.index['high']:g}]"))
    rows.append(("Records", f"{certificate.n:,}"))
    # the calibrated method solves the quantile equation itself: its smoothing is its own
    for key in ("clip",) if release.payload.kind == "local" else ("bandwidth", "clip"):
        value = model.settings.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            rows.append((key.capitalize(), f"{value:g}"))
    rows.append(("The file holds", PAYLOAD[release.payload.kind]))
    if source is not None:
        rows.append(("File", Path(source).name))
        rows.append(("SHA-256 of the file", hashlib.sha256(Path(source).read_bytes()).hexdigest()))
    return _pairs(rows)


def _certificate(certificate: Certificate, verification: Verification) -> str:
    paragraphs = _words(certificate)
    text = "".join(f"<p>{html.escape(p)}</p>" for p in paragraphs)
    rows = [
        ("Claim", certificate.headline()),
        ("Accountant", certificate.accountant),
        ("Randomness", certificate.randomness),
        ("Signature", verification.signature),
    ]
    for name, value in verification.epsilons.items():
        shown = "does not apply" if value is None else "infinite" if math.isinf(value) else f"{value:.6g}"
        rows.append((f"ε recomputed, accountant {name}", shown))
    text += f"<h3>Recomputed when this page was made</h3><dl>{_pairs(rows)}</dl>"
    parts = certificate.parts
    for number, (mechanism, sigma) in enumerate(parts, 1):
        head = "What was asked of the records" + (f", part {number} of {len(parts)}" if len(parts) > 1 else "")
        facts = [(PARTS[k], f"{v:,.6g}") for k, v in asdict(mechanism).items() if k in PARTS and v is not None]
        if isinstance(mechanism, Mechanism) and mechanism.blocks > 1:
            facts = [(k, v) for k, v in facts if k != PARTS["gamma"]]
            facts.append((PARTS["gamma"], f"{mechanism.concentration:.6g}"))
        facts.append(("noise, σ (standard deviation)", f"{sigma:.6g}"))
        text += f"<details><summary>{html.escape(head)}</summary><dl>{_pairs(facts)}</dl></details>"
    notes = [*certificate.check().remarks, *certificate.notes]
    if notes:
        items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
        text += f"<h3>Notes</h3><ul>{items}</ul>"
    if certificate.versions:
        versions = ", ".join(f"{k} {v}" for k, v in certificate.versions.items())
        text += f'<p class="quiet">Made with {html.escape(versions)}.</p>'
    return text


def _words(certificate: Certificate) -> list[str]:
    """The certificate for someone who has not read a paper on it."""
    if certificate.non_private:
        return [
            "This fit ran without noise. It protects nobody: treat this page, and the file it was made from, as you "
            "would treat the records themselves."
        ]
    epsilon, delta = certificate.epsilon, certificate.delta
    factor = f"{math.exp(epsilon):,.3g}" if epsilon < 50 else "more than 10²¹"
    found = [
        f"Replace any one of the {certificate.n:,} records by any other. Whatever anybody might look for in this "
        f"release then becomes at most e^ε = {factor} times as likely, apart from a probability of δ = {delta:g}, "
        "even to somebody who knows all the other records. That is what (ε, δ)-differential privacy says, with "
        f"ε = {epsilon:g}. The number of records counts as public.",
        "Drawing, plotting and predicting here only rework what was published. They ask nothing more of the records "
        "and cost no further privacy, however often they are repeated.",
    ]
    if certificate.group_size > 1:
        total, failure = certificate.group
        found.append(
            f"A person may have up to {certificate.group_size} records; all of them together are protected with "
            f"ε = {total:g} and δ = {failure:.3g}."
        )
    if not certificate.private:
        found.insert(
            0,
            "The noise came from a seed that somebody chose, so it can be computed again and taken away. What follows "
            "would be true only if it had come from the operating system.",
        )
    found.append(
        "ε follows from the description below by a proof, and anybody can recompute it with pgbb verify. That the "
        "described computation is the one that ran is the word of whoever published, or signed, the file."
    )
    return found
