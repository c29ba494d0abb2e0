"""Makes one HTML file of a release: words from here and page.html, numbers from embedded.py, drawing in draw.js.

All of it is post-processing of a release; nothing is fetched, by this module or by the page. Jinja2 escapes whatever
comes from a release file: a page must not run what a stranger wrote into a name or a note.
"""

import base64
import hashlib
import json
import math
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import pgbb
from pgbb.accountant import Mechanism, PosteriorDraws
from pgbb.errors import PgbbError
from pgbb.model.schema import Column, Date, Flag, Levels, Schema
from pgbb.release.certificate import Certificate
from pgbb.release.file import Release, Verification
from pgbb.release.payloads import KINDS
from pgbb.report.embedded import embedded

LARGEST = 2_000_000  # bytes of a page
PAGES = Environment(
    loader=PackageLoader("pgbb.report", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)

PAYLOAD = {
    "local": "a calibrated local posterior: a centre, a curvature, and the known law of sampling and privacy error",
    "generator": "a generator: a small neural network that turns random block weights into coefficients",
    "draws": "stored draws, from which the page resamples",
}


def page(
    release: Release,
    source: str | Path | None = None,
    *,
    title: str | None = None,
    origin: str | None = None,
    contact: str | None = None,
) -> str:
    """The page of a release, as HTML.

    Args:
      release: what to show.
      source: its file, whose name and SHA-256 the page then states, and which it carries.
      title, origin, contact: the heading, where the records come from, and whom to ask; text, never markup.

    Raises:
      PgbbError: the page would exceed `LARGEST` bytes.
    """
    certificate, verification = release.certificate, release.verify()
    family, response = _family(release), release.model.response
    schema = Schema.from_dict(release.schema) if release.schema else Schema()
    shown = schema.meaning(response) or response if response else None
    packed = base64.b64encode(release.to_bytes() if source is None else Path(source).read_bytes()).decode("ascii")
    words: dict[str, object] = dict(
        title=title or release.title,
        heading=title or (f"{family} of {shown}" if shown else family),
        statement=_statement(certificate),
        variables=[(name, schema.meaning(name), _declared(column).split(" ")) for name, column in schema.items()],
        asked=_asked(release),
        check=_asset("check.js"),
        alarm="" if verification.ok else "DOES NOT VERIFY" if certificate.private else "NOT PRIVATE",
        problems=verification.problems,
        claim=certificate.headline(),
        about=[
            *(pair for pair in (("Records from", origin), ("Contact", contact)) if pair[1]),
            *_about(release, source),
        ],
        words=_words(certificate),
        recomputed=_recomputed(certificate, verification),
        remarks=[remark[:1].upper() + remark[1:] for remark in release.diagnostics().remarks],
        notes=[*certificate.check().remarks, *certificate.notes],
        versions=", ".join(f"{k} {v}" for k, v in certificate.versions.items()),
        version=pgbb.__version__,
        style=_asset("page.css"),
        draw=_asset("draw.js"),
        script=_asset("page.js"),
        data=_script_json(embedded(release, Path(source).stem if source is not None else "release")),
    )
    template = PAGES.get_template("page.html")
    text = template.render(words, file=packed if len(packed) <= LARGEST // 2 else "")
    size = len(text.encode("utf-8"))
    if size > LARGEST:
        raise PgbbError(
            f"the page would have {size:,} bytes, more than the {LARGEST:,} that a page may have: this release is too "
            "large to be embedded. Publish the file itself, and draws of it with pgbb export."
        )
    return text


def _family(release: Release) -> str:
    return KINDS[release.model.kind].removeprefix("a ").capitalize()


def _asset(name: str) -> Markup:
    """A file of this package, which is put into the page as it is."""
    return Markup(files("pgbb.report").joinpath(name).read_text(encoding="utf-8"))


def _script_json(data: dict[str, object]) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _declared(column: Column) -> str:
    """What a schema says of a column, in words."""
    if isinstance(column, Levels):
        return ", ".join(map(str, column.levels))
    if isinstance(column, Flag):
        return " or ".join(column.words or ("0", "1"))
    if isinstance(column, Date):
        return " to ".join(column.days)
    ends = " to ".join(f"{end:,.10g}" for end in column.bounds)
    return ends if column.step is None else f"{ends}, in steps of {column.step:g}"


def _about(release: Release, source: str | Path | None) -> list[tuple[str, str]]:
    """What was estimated, and from what: labels with their words."""
    model, certificate = release.model, release.certificate
    rows = [("Model", _family(release)), ("Method", release.method_words.removeprefix("method "))]
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


def _asked(release: Release) -> list[list[str]]:
    """One row for each question to the records, after the heads: what it is called, how often, and at which noise."""
    parts, stages = release.certificate.parts, release.stored_diagnostics.get("stages")
    names = []
    if isinstance(stages, list) and len(stages) == len(parts):
        names = [str(s[0]) if isinstance(s, list) and s else "" for s in stages]
    heads = ["question", "answers", "records in each", "largest contribution, C", "noise, σ"]
    rows = [heads]
    for number, (mechanism, sigma) in enumerate(parts):
        if isinstance(mechanism, Mechanism):
            share = "all" if mechanism.sampling_rate == 1 else f"{mechanism.sampling_rate:.4g} of them"
            name, size = "gradients", mechanism.clip
        else:
            drawn = isinstance(mechanism, PosteriorDraws)
            name, share = ("draws", "all") if drawn else ("refits", "resampled")
            size = mechanism.sensitivity
        name = names[number] if names else name
        rows.append([name, f"{mechanism.answers:,}", share, f"{size:.4g}", f"{sigma:.4g}"])
    return rows


def _statement(certificate: Certificate) -> str:
    """What a journalist may write, with the numbers; empty where nothing is promised."""
    if not certificate.private:
        return ""
    epsilon, delta = certificate.group
    whose = "one" if certificate.group_size == 1 else f"one, with up to {certificate.group_size} records,"
    odds = f"{math.exp(epsilon):,.3g}" if epsilon < 50 else "more than 10²¹"
    return (
        f"The numbers on this page come from {certificate.n:,} confidential records. Random noise limits what "
        f"anybody can learn from them about a single person. Had any {whose} given other answers, this page would have "
        f"been at most {odds} times as likely, or unlikely, to come out as it did (ε = {epsilon:g}), but for a "
        f"probability of {f'one in {1 / delta:,.0f}' if 0 < delta < 0.1 else f'{delta:.2g}'} (δ = {delta:.2g})."
    )


def _words(certificate: Certificate) -> list[str]:
    """The certificate in words for a reader who does not know differential privacy."""
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
