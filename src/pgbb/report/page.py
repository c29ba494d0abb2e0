"""From a release to one HTML file: its words from here and page.html, its numbers from embedded.py, drawing in draw.js.

All of it is post-processing of a release; nothing is fetched, by this module or by the page. Jinja2 escapes whatever
comes from a release file: a page must not run what a stranger wrote into a name or a note.
"""

import hashlib
import json
import math
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import pgbb
from pgbb.accountant import Mechanism
from pgbb.errors import PgbbError
from pgbb.release.certificate import Certificate
from pgbb.release.file import Release, Verification
from pgbb.report.embedded import embedded

__all__ = ["LARGEST", "page"]

LARGEST = 2_000_000  # bytes of a page
PAGES = Environment(
    loader=PackageLoader("pgbb.report", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)

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
    certificate, verification = release.certificate, release.verify()
    family, response = FAMILIES[release.model.kind], release.model.response
    text = PAGES.get_template("page.html").render(
        title=release.title,
        heading=f"{family} of {response}" if response else family,
        alarm="" if verification.ok else "DOES NOT VERIFY" if certificate.private else "NOT PRIVATE",
        problems=verification.problems,
        claim=certificate.headline(),
        about=_about(release, source),
        words=_words(certificate),
        recomputed=_recomputed(certificate, verification),
        parts=_parts(certificate),
        remarks=release.diagnostics().remarks,
        notes=[*certificate.check().remarks, *certificate.notes],
        versions=", ".join(f"{k} {v}" for k, v in certificate.versions.items()),
        version=pgbb.__version__,
        style=_asset("page.css"),
        draw=_asset("draw.js"),
        script=_asset("page.js"),
        data=_script_json(embedded(release, Path(source).stem if source is not None else "release")),
    )
    size = len(text.encode("utf-8"))
    if size > LARGEST:
        raise PgbbError(
            f"the page would have {size:,} bytes, more than the {LARGEST:,} that a page may have: this release is too "
            "large to be embedded. Publish the file itself, and draws of it with pgbb export."
        )
    return text


def _asset(name: str) -> Markup:
    """A file of this package, which is put into the page as it is."""
    return Markup(files("pgbb.report").joinpath(name).read_text(encoding="utf-8"))


def _script_json(data: dict[str, object]) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _about(release: Release, source: str | Path | None) -> list[tuple[str, str]]:
    """What was estimated, and from what: labels with their words."""
    model, certificate = release.model, release.certificate
    rows = [("Model", FAMILIES[model.kind]), ("Method", release.method_words.removeprefix("method "))]
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
    return rows


def _recomputed(certificate: Certificate, verification: Verification) -> list[tuple[str, str]]:
    """What `verify` found when the page was made."""
    rows = [
        ("Claim", certificate.headline()),
        ("Accountant", certificate.accountant),
        ("Randomness", certificate.randomness),
        ("Signature", verification.signature),
    ]
    for name, value in verification.epsilons.items():
        shown = "does not apply" if value is None else "infinite" if math.isinf(value) else f"{value:.6g}"
        rows.append((f"ε recomputed, accountant {name}", shown))
    return rows


def _parts(certificate: Certificate) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each mechanism of the certificate: a heading, and its settings with their values."""
    found = []
    parts = certificate.parts
    for number, (mechanism, sigma) in enumerate(parts, 1):
        head = "What was asked of the records" + (f", part {number} of {len(parts)}" if len(parts) > 1 else "")
        facts = [(PARTS[k], f"{v:,.6g}") for k, v in asdict(mechanism).items() if k in PARTS and v is not None]
        if isinstance(mechanism, Mechanism) and mechanism.blocks > 1:
            facts = [(k, v) for k, v in facts if k != PARTS["gamma"]]
            facts.append((PARTS["gamma"], f"{mechanism.concentration:.6g}"))
        facts.append(("noise, σ (standard deviation)", f"{sigma:.6g}"))
        found.append((head, facts))
    return found


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
