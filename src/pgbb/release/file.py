"""The one file that leaves the building: a posterior with its certificate, hashed and perhaps signed.

A zip of JSON and safetensors; nothing in it is ever executed, and reading it
needs no JAX. Statistics live in posterior.py, the claim in certificate.py.
"""

import base64
import hashlib
import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from pgbb import _validate
from pgbb._io import check_writable, write_whole
from pgbb.accountant import Mechanism, Own, PosteriorDraws
from pgbb.errors import InvalidValue, PgbbError, PgbbWarning
from pgbb.model.schema import Schema
from pgbb.release import container
from pgbb.release.certificate import Certificate
from pgbb.release.container import CUSTODIANS, MANIFEST, REFETCH, SIGNATURE, TENSORS, ReleaseError, json_bytes
from pgbb.release.payloads import PAYLOADS, ModelSummary, Payload, same_payload
from pgbb.release.pooling import pool
from pgbb.release.posterior import Posterior
from pgbb.release.signing import Key, private_key, signature_of, signer_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Release", "ReleaseError", "Verification", "check_writable", "combine", "load"]

DIFFERENT = 0.01  # chance of Cochran's Q below which custodians are said to differ
ROUNDING = 1e-6  # relative, between processors

METHODS = {
    "calibrated": "calibrated, the default of pgbb",
    "pgbb": "pgbb, the Private Generative Bayesian Bootstrap",
    "sgld": "sgld, DP-SGLD",
    "noisy_gibbs": "noisy_gibbs, NoisyGibbs",
    "dp_bootstrap": "dp_bootstrap, the DP bootstrap",
    "posterior_sampling": "posterior_sampling, draws of a posterior",
    "dp_mcmc": "dp_mcmc, DP-MCMC",
    "augmented": "augmented, data augmentation",
    "abc": "abc, approximate Bayesian computation",
    "repro": "repro, repro samples",
}
"""How a reader is told which method made a release."""


@dataclass(frozen=True)
class _Origin:
    """What `verify` of a loaded release reports on beside the certificate."""

    manifest: bytes
    signature: bytes | None
    members: int
    file: bytes | None = None  # the file of a local posterior, for whoever pools it


@dataclass(frozen=True)
class Verification:
    """The outcome of `Release.verify`; prints as its `lines`.

    Attributes:
      ok: the claim stands, and nothing in the file contradicts itself.
      problems: what is wrong, a sentence each.
      lines: the whole report.
      epsilons: ε by accountant; None where that accountant does not apply.
      signature: "valid by <fingerprint>", "unsigned" or "INVALID".
    """

    ok: bool
    problems: tuple[str, ...]
    lines: tuple[str, ...]
    epsilons: dict[str, float | None]
    signature: str

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def to_dict(self) -> dict[str, object]:
        """A JSON object; an infinite ε is null, like one that does not apply."""
        finite = {k: v if v is not None and math.isfinite(v) else None for k, v in self.epsilons.items()}
        return {
            "ok": self.ok,
            "signature": self.signature,
            "epsilon_by_accountant": finite,
            "problems": list(self.problems),
            "lines": list(self.lines),
        }


class Release(Posterior):
    """A private posterior with its certificate: draw, summarise, save, verify.

    Args:
      model: names, units and index.
      schema: the public schema, as `Schema.to_dict` writes it.
      certificate: what is claimed about privacy.
      payload: what is drawn from.
      diagnostics: what the fit recorded, JSON only; it must be as private as the rest.
      custodians: the releases that were pooled into this one, by `combine`.

    >>> import numpy as np
    >>> from pgbb.accountant import Mechanism
    >>> m = Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    >>> release = Release(
    ...     ModelSummary("mean", None, ("mu",), None, None, [[2.0]], [5.0]),
    ...     {},
    ...     Certificate(1.0, 1e-5, .0075, m, "exact", "operating system"),
    ...     Payload("draws", {"index_values": None}, {"draws": np.linspace(-1, 1, 101)[:, None]}),
    ... )
    >>> round(float(release.summary().loc["mu", "mean"]), 6)
    5.0
    >>> print(release)
    mean model, by a method that the file does not name
    ε = 1, δ = 1e-05 (replace one record, n public; n = 1,000)
        mean    sd  lower  upper  prob_positive
    mu     5 1.172    3.1    6.9              1
    >>> release.verify().ok
    True
    """

    def __init__(
        self,
        model: ModelSummary,
        schema: Mapping[str, object],
        certificate: Certificate,
        payload: Payload,
        diagnostics: Mapping[str, object] | None = None,
        custodians: Sequence["Release"] = (),
    ) -> None:
        super().__init__(model, schema, payload, diagnostics)
        self.certificate, self.custodians = certificate, tuple(custodians)
        self._origin: _Origin | None = None

    def combine(self, others: "Sequence[Release]") -> "Release":
        """This release pooled with others of the same model, about disjoint records: see `pgbb.combine`."""
        return combine([self, *others])

    @property
    def method(self) -> str | None:
        """The method that made it, as in `pgbb.fit(method=…)`; None where the file does not say."""
        given = self.stored_diagnostics.get("method", "pgbb" if self.payload.kind == "generator" else None)
        return given if isinstance(given, str) and given in METHODS else None

    @property
    def method_words(self) -> str:
        """The method for a reader."""
        method = self.method
        return "a method that the file does not name" if method is None else f"method {METHODS[method]}"

    def _header(self) -> list[str]:
        return [f"{self.title}, by {self.method_words}", self.certificate.headline()]

    @property
    def certificate_hash(self) -> str:
        """SHA-256 of certificate.json in the file: the manifest has it, and a ledger keeps it."""
        return hashlib.sha256(json_bytes(self.certificate.to_dict())).hexdigest()

    def to_bytes(self, key: Key | None = None) -> bytes:
        """The file as bytes, signed if a key is given: what `save` writes and `from_bytes` reads."""
        members = {
            "model.json": json_bytes(self.model.to_dict()),
            "schema.json": json_bytes(self.schema),
            "certificate.json": json_bytes(self.certificate.to_dict()),
            "payload.json": json_bytes({"kind": self.payload.kind, "settings": self.payload.settings}),
            TENSORS: safetensors.save({k: np.ascontiguousarray(v) for k, v in self.payload.tensors.items()}),
        }
        if self.stored_diagnostics:
            members["diagnostics.json"] = json_bytes(self.stored_diagnostics)
        if self.custodians:
            files = [base64.b64encode(release._file).decode() for release in self.custodians]  # noqa: SLF001
            members[CUSTODIANS] = json_bytes({"releases": files})
        manifest = container.manifest_of(members, self.payload.kind)
        signed = {} if key is None else {SIGNATURE: signature_of(manifest, private_key(key))}
        return container.pack({MANIFEST: manifest, **members, **signed})

    @property
    def _file(self) -> bytes:
        """The file as it was loaded, with its signature; of a release in memory as `to_bytes` writes it."""
        return (self._origin.file if self._origin is not None else None) or self.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Release":
        """The release that `to_bytes` wrote; everything in it is checked, and nothing in it is executed."""
        return _understood(container.unpack(io.BytesIO(data), "the release"), "the release")

    def plot(
        self,
        kind: Literal["process", "forest", "densities"] | None = None,
        tau: float | None = None,
        level: float = 0.95,
        coefficients: Sequence[str] | None = None,
    ) -> "Figure":
        """A figure of the posterior; a notebook shows it, and `figure.savefig` writes it.

        Args:
          kind: "process" over all levels, "forest" of intervals, or "densities". The default is the process where there
            is an index and no `tau`, and the forest otherwise.
          tau: the level of a forest or of densities.
          level: probability of the intervals.
          coefficients: which; default all.
        """
        from pgbb.release import figures

        level = _validate.level(level)
        if kind is None:
            kind = "process" if self.model.index is not None and tau is None else "forest"
        if _validate.one_of("kind", kind, ("process", "forest", "densities")) == "process":
            return figures.quantile_process(self, level, coefficients)
        draw = figures.coefficient_intervals if kind == "forest" else figures.densities
        return draw(self, level, coefficients, tau)

    def save(self, path: str | Path, key: Key | None = None) -> Path:
        """Write the release as one file, whole or not at all, and sign it if a key is given.

        Args:
          path: where to; `.pgbb` is the usual suffix.
          key: an ed25519 private key, or the PEM file of one; `generate_key` makes one. A signature that came with
            a loaded file is not carried over.
        """
        return write_whole(path, self.to_bytes(key), ReleaseError)

    def verify(self, signer: str | None = None) -> Verification:
        """Recompute ε, and report hashes and signature of a loaded file.

        Args:
          signer: the fingerprint that the signature must have, obtained from the signer by another way than the
            file. Without it any valid signature passes, and the report says whose it is.
        """
        certificate = self.certificate
        check = certificate.check()
        problems = [*check.problems, *self._contradictions()]
        signature = self._signature
        if signature == "INVALID":
            problems.append("the signature does not belong to this content: it was changed after signing.")
        elif signer is not None and signature != f"valid by {signer}":
            problems.append(f"signed by {signer} was asked for, but the file is {signature}.")
        hashes = "in memory, no file" if self._origin is None else f"{self._origin.members} members match the manifest"
        lines = [
            certificate.headline(),
            f"method       {self.method or 'not named'}",
            f"accountant   {certificate.accountant}",
            f"randomness   {certificate.randomness}",
            f"hashes       {hashes}",
            f"signature    {signature}",
        ]
        for name, value in check.epsilons.items():
            shown = "does not apply" if value is None else f"{value:.6g}"
            mark = f" (claimed {check.claimed:g})" if name == check.accountant else ""
            lines.append(f"{'ε by ' + name:<17}{shown}{mark}")
        for i, release in enumerate(self.custodians, 1):
            lines.append(f"{f'custodian {i}':<13}{release.certificate.headline()}; {release._signature}")  # noqa: SLF001
        lines += [f"note: {r}" for r in (*check.remarks, *certificate.notes)]
        lines += [f"PROBLEM: {p}" for p in problems]
        lines.append("FAILED" if problems else "verified: the certificate follows from the mechanism it describes")
        return Verification(not problems, tuple(problems), tuple(lines), check.epsilons, signature)

    @property
    def _signature(self) -> str:
        return "unsigned" if self._origin is None else signer_of(self._origin.manifest, self._origin.signature)

    def _pooled(self) -> list[str]:
        """Where the custodians' releases are damaged, or do not add up to this one."""
        found = []
        for i, release in enumerate(self.custodians, 1):
            found += [f"custodian {i}: {problem}" for problem in release._contradictions()]  # noqa: SLF001
            if release._signature == "INVALID":  # noqa: SLF001
                found.append(f"custodian {i}: the signature does not belong to this content.")
        if self.certificate.members != tuple(release.certificate for release in self.custodians):
            return [*found, "the certificate does not list the certificates of the custodians' releases in the file."]
        if self.custodians:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PgbbWarning)
                    again = combine(self.custodians)
            except PgbbError as error:
                return [*found, f"the custodians' releases cannot be pooled: {error}"]
            if again.model != self.model or not same_payload(again.payload, self.payload, ROUNDING):
                found.append("the posterior is not what the custodians' releases add up to.")
        return found

    def _contradictions(self) -> list[str]:
        """Where the payload cannot come from the mechanism that the certificate describes."""
        found = self._pooled()
        mechanism, settings = self.certificate.mechanism, self.payload.settings
        kept = {name: t for name, t in self.payload.tensors.items() if name.startswith("transcript/")}
        if isinstance(mechanism, Own) and (self.payload.kind != "draws" or kept):
            return ["refits, and draws of a posterior, give draws alone, but the file holds something else."]
        if isinstance(mechanism, PosteriorDraws):
            stored = int(np.prod(self.payload.tensors["draws"].shape[:-1]))
            if stored > mechanism.draws:
                return [f"the file holds {stored:,} draws, but the certificate covers {mechanism.draws:,}."]
        if self.payload.kind == "generator":
            if not isinstance(mechanism, Mechanism):
                return ["a generator comes from one mechanism, but the certificate describes several."]
            claimed = None if mechanism.blocks == 1 else mechanism.concentration
            for name, here, there in (
                ("blocks", settings["blocks"], mechanism.blocks),
                ("concentration", settings["concentration"], claimed),
                ("alpha", settings["alpha"], mechanism.alpha),
            ):
                if here != there:
                    found.append(f"the generator has {name} = {here}, but the certificate describes {name} = {there}.")
        noiseless = self.payload.kind == "local" and not self.payload.tensors["privacy"].any(axis=1).all()
        if noiseless and not self.certificate.non_private:
            found.append("the posterior has no privacy noise, but the certificate describes answers with noise.")
        if kept and isinstance(mechanism, Mechanism) and self.payload.kind == "generator":
            return found + self.payload.foreign_transcript(mechanism, self.certificate.sigma)
        return found + ["noisy answers are kept of a generator alone, but the file holds some."] * bool(kept)


def load(path: str | Path) -> Release:
    """Read a release file; everything in it is checked, and nothing in it is executed."""
    source = Path(path)
    return _understood(container.unpack(source, str(source)), str(source))


def combine(releases: Sequence[Release]) -> Release:
    """One release of several, about disjoint records of several custodians: nobody shares a record.

    The posteriors are weighted by their precision, in local coordinates, and one prior is kept. The file holds the
    releases of the custodians, with their signatures, and `verify` checks each of them and that they add up.

    Args:
      releases: of one model under one schema, each a local posterior (the default method, or noise-aware `"pgbb"`),
        with no record in common. A pooled release counts as the releases that it was pooled from.

    Returns:
      A release whose ε and δ are the largest of theirs. Its diagnostics hold Cochran's Q, and a warning says where
      the custodians differ by more than chance: the pooled coefficients are then an average of different ones.
    """
    if not isinstance(releases, Sequence) or not all(isinstance(r, Release) for r in releases):
        raise _validate.fail("releases", type(releases).__name__, "a list of releases")
    single = [one for release in releases for one in (release.custodians or (release,))]
    if len(single) < 2:
        raise InvalidValue(f"combine takes at least two releases, and {len(single)} is given. Name the others, too.")
    first = single[0]
    for i, release in enumerate(single, 1):
        if release.payload.kind != "local":
            raise InvalidValue(
                f"release {i} is not allowed: it holds a {release.payload.kind} payload, and only local posteriors can "
                "be pooled. Fit with the default method."
            )
        kind, own = ((r.title, r.model.names, r.model.index) for r in (first, release))
        if own != kind:
            raise InvalidValue(
                f"release {i} is not allowed: it is a {release.title}, with other coefficients or levels than "
                f"release 1, a {first.title}. Fit one model at all custodians."
            )
        if release.model != first.model:
            raise InvalidValue(
                f"release {i} is not allowed: its ranges, units or settings are not those of release 1. Fit one model "
                "under one schema at all custodians."
            )
        if any(same_payload(release.payload, other.payload) for other in single[: i - 1]):
            raise InvalidValue(f"release {i} is not allowed: it is there twice, and records must be disjoint.")
    located = [name in ("Intercept", "scale") or first.model.formula is None for name in first.model.names]
    posterior, differs = pool([release.payload.local for release in single], located)
    certificate = Certificate.pool([release.certificate for release in single])
    if differs.pvalue < DIFFERENT:
        said = (
            f"The custodians' estimates differ by more than chance (Q = {differs.q:.4g} with {differs.df} degrees of "
            f"freedom, P = {differs.pvalue:.2g}): the pooled coefficients are averages of different ones."
        )
        certificate = replace(certificate, notes=(*certificate.notes, said))
        warnings.warn(said, PgbbWarning, stacklevel=2)
    settings, tensors = posterior.to_tensors()
    stored = {"method": "combine", "heterogeneity": differs.to_dict()}
    return Release(first.model, first.schema, certificate, Payload("local", settings, tensors), stored, single)


def _understood(contents: Mapping[str, bytes], source: str) -> Release:
    """The release of these members, each of which is validated again."""
    plain = {n: container.parse(source, n, data) for n, data in contents.items() if n in container.JSON_MEMBERS}
    described = plain["payload.json"]
    if set(described) != {"kind", "settings"} or not isinstance(described["settings"], dict):
        raise ReleaseError(f"{source}: payload.json must have exactly kind and settings. {REFETCH}")
    if described["kind"] not in PAYLOADS or described["kind"] != plain[MANIFEST]["payload"]:
        raise ReleaseError(
            f"{source}: payload kind {described['kind']!r} is not one of {', '.join(PAYLOADS)}, or not what the "
            "manifest says. If a newer pgbb wrote the file, upgrade pgbb."
        )
    try:
        tensors = safetensors.load(contents[TENSORS])
        release = Release(
            ModelSummary.from_dict(plain["model.json"]),
            Schema.from_dict(plain["schema.json"]).to_dict(),
            Certificate.from_dict(plain["certificate.json"]),
            Payload(described["kind"], described["settings"], tensors),
            plain.get("diagnostics.json"),
            _custodians(plain.get(CUSTODIANS)),
        )
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        detail = str(error) if isinstance(error, PgbbError) else type(error).__name__
        raise ReleaseError(f"{source}: the content is not that of a release: {detail} {REFETCH}") from None
    hashed = len(plain[MANIFEST]["sha256"])
    whole = container.pack(contents) if described["kind"] == "local" else None
    release._origin = _Origin(contents[MANIFEST], contents.get(SIGNATURE), hashed, whole)  # noqa: SLF001
    return release


def _custodians(plain: Mapping[str, Any] | None) -> list[Release]:
    """The releases inside a pooled one, none of which is pooled itself."""
    if plain is None:
        return []
    found = [container.unpack(io.BytesIO(base64.b64decode(f, validate=True)), "a custodian") for f in plain["releases"]]
    if any(CUSTODIANS in contents for contents in found):
        raise ReleaseError("a pooled release inside a pooled release is not allowed: pool all custodians at once.")
    return [_understood(contents, f"custodian {i}") for i, contents in enumerate(found, 1)]
