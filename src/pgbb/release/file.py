"""The one file that leaves the building: a posterior with its certificate, hashed and perhaps signed.

A zip of JSON and safetensors; nothing in it is ever executed, and reading it
needs no JAX. Statistics live in posterior.py, the claim in certificate.py.
"""

import base64
import binascii
import hashlib
import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from safetensors import SafetensorError
from safetensors import numpy as safetensors

import pgbb
from pgbb import _validate
from pgbb._io import write_whole
from pgbb.accountant import Mechanism, Resampling
from pgbb.errors import InvalidValue, PgbbError
from pgbb.model.schema import Schema
from pgbb.release.certificate import Certificate
from pgbb.release.payloads import PAYLOADS, ModelSummary, Payload
from pgbb.release.posterior import Posterior

__all__ = ["FORMAT_VERSION", "Release", "ReleaseError", "Verification", "generate_key", "load"]

FORMAT = "pgbb-release"
FORMAT_VERSION = 1
MANIFEST, SIGNATURE, TENSORS = "manifest.json", "signature.json", "payload.safetensors"
REQUIRED = ("model.json", "schema.json", "certificate.json", "payload.json", TENSORS)
OPTIONAL = ("diagnostics.json",)
LARGEST = 2**30  # bytes of a file's members together, once unpacked
LARGEST_JSON = 2**24  # parsed, it takes some thirty times as much memory
REFETCH = "Fetch or write the file again."


class ReleaseError(PgbbError):
    """A release file cannot be read, or cannot be trusted as it is."""


@dataclass(frozen=True)
class _Origin:
    """Where a loaded release came from: what `verify` reports on beside the certificate."""

    path: Path
    manifest: bytes
    signature: bytes | None
    members: int


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

    def to_dict(self) -> dict[str, Any]:
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
    mean model
    ε = 1, δ = 1e-05 (replace one record, n public; n = 1,000)
        mean    sd  lower  upper
    mu     5 1.172    3.1    6.9
    >>> release.verify().ok
    True
    """

    def __init__(
        self,
        model: ModelSummary,
        schema: Mapping[str, Any],
        certificate: Certificate,
        payload: Payload,
        diagnostics: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, schema, payload, diagnostics)
        self._certificate = certificate
        self._origin: _Origin | None = None

    @property
    def certificate(self) -> Certificate:
        """What is claimed about privacy."""
        return self._certificate

    def _header(self) -> list[str]:
        return [self.title, self.certificate.headline()]

    @property
    def certificate_hash(self) -> str:
        """SHA-256 of certificate.json in the file: the manifest has it, and a ledger keeps it."""
        return hashlib.sha256(_json(self.certificate.to_dict())).hexdigest()

    def save(self, path: str | Path, key: str | Path | Ed25519PrivateKey | None = None) -> Path:
        """Write the release as one file, whole or not at all, and sign it if a key is given.

        Args:
          path: where to; `.pgbb` is the usual suffix.
          key: an ed25519 private key, or the PEM file of one; `generate_key` makes one. A signature that came with
            a loaded file is not carried over.
        """
        signer = private_key(key) if key is not None else None
        members = {
            "model.json": _json(self.model.to_dict()),
            "schema.json": _json(self.schema),
            "certificate.json": _json(self.certificate.to_dict()),
            "payload.json": _json({"kind": self.payload.kind, "settings": self.payload.settings}),
            TENSORS: safetensors.save({k: _contiguous(v) for k, v in self.payload.tensors.items()}),
        }
        if self.stored_diagnostics:
            members["diagnostics.json"] = _json(self.stored_diagnostics)
        manifest = _json(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "pgbb": pgbb.__version__,
                "payload": self.payload.kind,
                "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
            }
        )
        plain = sum(len(data) for name, data in members.items() if name != TENSORS)
        if plain + len(manifest) > LARGEST_JSON or plain + len(members[TENSORS]) > LARGEST:
            raise ReleaseError(
                f"the release is larger than a file may be ({LARGEST_JSON:,} bytes without its tensors)."
            )
        contents = {MANIFEST: manifest, **members}
        if signer is not None:
            public = signer.public_key().public_bytes_raw()
            contents[SIGNATURE] = _json(
                {
                    "algorithm": "ed25519",
                    "public_key": base64.b64encode(public).decode(),
                    "signature": base64.b64encode(signer.sign(manifest)).decode(),
                }
            )
        return write_whole(path, _zip(contents), ReleaseError)

    def verify(self, signer: str | None = None) -> Verification:
        """Recompute ε, and report hashes and signature of a loaded file.

        Args:
          signer: the fingerprint that the signature must have, obtained from the signer by another way than the
            file. Without it any valid signature passes, and the report says whose it is.
        """
        certificate = self.certificate
        check = certificate.check()
        problems = [*check.problems, *self._contradictions()]
        signature = "unsigned" if self._origin is None else _signature(self._origin)
        if signature == "INVALID":
            problems.append("the signature does not belong to this content: it was changed after signing.")
        elif signer is not None and signature != f"valid by {signer}":
            problems.append(f"signed by {signer} was asked for, but the file is {signature}.")
        hashes = "in memory, no file" if self._origin is None else f"{self._origin.members} members match the manifest"
        lines = [
            certificate.headline(),
            f"accountant   {certificate.accountant}",
            f"randomness   {certificate.randomness}",
            f"hashes       {hashes}",
            f"signature    {signature}",
        ]
        for name, value in check.epsilons.items():
            shown = "does not apply" if value is None else f"{value:.6g}"
            mark = f" (claimed {check.claimed:g})" if name == check.accountant else ""
            lines.append(f"{'ε by ' + name:<17}{shown}{mark}")
        lines += [f"note: {r}" for r in (*check.remarks, *certificate.notes)]
        lines += [f"PROBLEM: {p}" for p in problems]
        lines.append("FAILED" if problems else "verified: the certificate follows from the mechanism it describes")
        return Verification(not problems, tuple(problems), tuple(lines), check.epsilons, signature)

    def _contradictions(self) -> list[str]:
        """Where the payload cannot come from the mechanism that the certificate describes."""
        found = []
        mechanism, settings = self.certificate.mechanism, self.payload.settings
        kept = {name: t for name, t in self.payload.tensors.items() if name.startswith("transcript/")}
        if isinstance(mechanism, Resampling) and (self.payload.kind != "draws" or kept):
            return ["refits on resampled records give draws alone, but the file holds something else."]
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
        answers = sum(m.answers for m, _ in self.certificate.parts)
        for name, tensor in kept.items():
            if len(tensor) > answers:
                found.append(f"{name} has {len(tensor)} rows, but the certificate covers {answers} answers.")
        return found


def load(path: str | Path) -> Release:
    """Read a release file; everything in it is checked, and nothing in it is executed."""
    source = Path(path)
    try:
        with zipfile.ZipFile(source) as archive:
            contents = _read(archive, source)
    except FileNotFoundError:
        raise ReleaseError(f"{source}: there is no such file. Check the path.") from None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise ReleaseError(
            f"{source} is not a readable release: it is damaged, cut short, or another kind of file "
            f"({type(error).__name__}). {REFETCH}"
        ) from None
    plain = {name: _parse(source, name, data) for name, data in contents.items() if name in JSON_MEMBERS}
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
        )
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        detail = str(error) if isinstance(error, PgbbError) else type(error).__name__
        raise ReleaseError(f"{source}: the content is not that of a release: {detail} {REFETCH}") from None
    hashed = len(plain[MANIFEST]["sha256"])
    release._origin = _Origin(source, contents[MANIFEST], contents.get(SIGNATURE), hashed)  # noqa: SLF001
    return release


JSON_MEMBERS = (MANIFEST, *(n for n in (*REQUIRED, *OPTIONAL) if n.endswith(".json")))


def _read(archive: zipfile.ZipFile, source: Path) -> dict[str, bytes]:
    """The members, after manifest, version, names, sizes and hashes have been checked, in this order."""
    infos = archive.infolist()
    names = [info.filename for info in infos]
    plain = sum(info.file_size for info in infos if info.filename != TENSORS)
    if sum(info.file_size for info in infos) > LARGEST or plain > LARGEST_JSON:
        raise ReleaseError(
            f"{source}: the members unpack to more than the {LARGEST:,} bytes allowed, or more than {LARGEST_JSON:,} "
            "without the tensors. Do not open it."
        )
    if any(info.compress_type not in (zipfile.ZIP_STORED, _method(info.filename)) for info in infos):
        raise ReleaseError(
            f"{source}: a member is packed in another way than pgbb does it, and could unpack to anything. {REFETCH}"
        )
    if MANIFEST not in names or len(set(names)) < len(names):
        raise ReleaseError(f"{source}: manifest.json is missing, or a member is there twice. {REFETCH}")
    manifest_bytes = _member(archive, archive.getinfo(MANIFEST))
    manifest = _parse(source, MANIFEST, manifest_bytes)
    version = manifest.get("format_version")
    if manifest.get("format") != FORMAT or isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ReleaseError(f"{source}: the manifest is not that of a {FORMAT} file. {REFETCH}")
    if version > FORMAT_VERSION:
        raise ReleaseError(
            f"{source} has format version {version}; this pgbb {pgbb.__version__} reads up to {FORMAT_VERSION}. "
            "Upgrade pgbb: pip install --upgrade pgbb."
        )
    hashes = manifest.get("sha256")
    if not isinstance(hashes, dict) or "payload" not in manifest:
        raise ReleaseError(f"{source}: the manifest lists no hashes or no payload. {REFETCH}")
    missing = sorted(set(REQUIRED) - set(names) | (set(hashes) - set(names)))
    strange = sorted(set(names) - {MANIFEST, SIGNATURE, *REQUIRED, *OPTIONAL})
    if missing:
        raise ReleaseError(f"{source}: {missing[0]!r} is missing from the file. {REFETCH}")
    if strange:
        raise ReleaseError(f"{source}: member {strange[0]!r} has no place in a release. Do not open it.")
    contents = {MANIFEST: manifest_bytes}
    for info in infos:
        if info.filename != MANIFEST:
            contents[info.filename] = _member(archive, info)
    for name, data in contents.items():
        if name not in (MANIFEST, SIGNATURE) and hashes.get(name) != hashlib.sha256(data).hexdigest():
            raise ReleaseError(
                f"{source}: {name} does not match its hash in the manifest: it was edited or damaged. "
                "Do not use it; ask for the original."
            )
    return contents


def _method(name: str) -> int:
    """Tensors are stored as they are, so that a small file holds small tensors."""
    return zipfile.ZIP_STORED if name == TENSORS else zipfile.ZIP_DEFLATED


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Unpack no more than the size that was declared; `archive.read` would unpack first and cut then."""
    with archive.open(info) as file:
        return file.read(info.file_size)


def _parse(source: Path, name: str, data: bytes) -> dict[str, Any]:
    def refuse(constant: str) -> float:
        raise ValueError(constant)

    def finite(digits: str) -> float:
        value = float(digits)  # 1e999 is JSON, and infinite
        return value if math.isfinite(value) else refuse(digits)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Two readers might take different ones of two values."""
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key is there twice")
        return dict(pairs)

    try:
        text = data.decode("utf-8")
        plain = json.loads(text, parse_constant=refuse, parse_float=finite, object_pairs_hook=once)
        _refuse_controls(plain)
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        raise ReleaseError(
            f"{source}: {name} is not a JSON object of finite numbers and plain text, each key once. {REFETCH}"
        )
    return plain


def _refuse_controls(plain: Any) -> None:
    """No text in a release may steer the terminal that shows it."""
    if isinstance(plain, str):
        if not _validate.visible(plain):
            raise ValueError("a control character")
    elif isinstance(plain, dict):
        for key, value in plain.items():
            _refuse_controls(key)
            _refuse_controls(value)
    elif isinstance(plain, list):
        for value in plain:
            _refuse_controls(value)


def _json(plain: Any) -> bytes:
    try:
        text = json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"a part of the release is not plain JSON ({error}): use finite numbers and text.") from None
    return text.encode("utf-8")


def _contiguous(tensor: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(tensor)


def _zip(contents: Mapping[str, bytes]) -> bytes:
    """A zip without clock or machine in it: the same content gives the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in contents.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.external_attr = 0o644 << 16
            info.compress_type = _method(name)
            archive.writestr(info, data)
    return buffer.getvalue()


def fingerprint(public: Ed25519PublicKey) -> str:
    """What a signer publishes so that others can recognise the key: SHA256 of it, in base64."""
    digest = hashlib.sha256(public.public_bytes_raw()).digest()
    return "SHA256:" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def generate_key(path: str | Path) -> str:
    """Write a new ed25519 private key as PEM, readable by its owner only; returns the public fingerprint.

    Publish the fingerprint, keep the file. An existing file is never replaced.
    """
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ReleaseError(f"{path} exists, and a key is never replaced. Choose another path.") from None
    except OSError as error:
        raise ReleaseError(f"{path} cannot be written: {error.strerror}. Choose a folder that exists.") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
    return fingerprint(key.public_key())


def private_key(key: str | Path | Ed25519PrivateKey) -> Ed25519PrivateKey:
    """The key itself, read from its PEM file if a path is given."""
    if isinstance(key, Ed25519PrivateKey):
        return key
    if not isinstance(key, str | Path):
        raise _validate.fail("key", type(key).__name__, "an Ed25519PrivateKey, or the path of its PEM file")
    try:
        loaded = serialization.load_pem_private_key(Path(key).read_bytes(), password=None)
    except OSError:
        raise ReleaseError(f"the key {key} cannot be read. Make one with generate_key.") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        loaded = None
    if not isinstance(loaded, Ed25519PrivateKey):
        raise ReleaseError(f"{key} is not an unencrypted ed25519 private key in PEM. Make one with generate_key.")
    return loaded


def _signature(origin: _Origin) -> str:
    if origin.signature is None:
        return "unsigned"
    try:
        plain = _parse(origin.path, SIGNATURE, origin.signature)
        if plain["algorithm"] != "ed25519":
            return "INVALID"
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(cast(str, plain["public_key"]), validate=True))
        public.verify(base64.b64decode(cast(str, plain["signature"]), validate=True), origin.manifest)
    except (ReleaseError, InvalidSignature, KeyError, TypeError, ValueError, binascii.Error):
        return "INVALID"
    return f"valid by {fingerprint(public)}"
