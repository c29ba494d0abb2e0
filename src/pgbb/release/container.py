"""The container of a release: a zip of JSON objects and one safetensors file, with a manifest of hashes.

Nothing in it is ever executed. What the members mean is not known here; they
are checked for names, sizes, hashes and plain JSON before anybody reads them.
"""

import hashlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pgbb
from pgbb import _validate
from pgbb.errors import InvalidValue, PgbbError

FORMAT = "pgbb-release"
FORMAT_VERSION = 1
MANIFEST, SIGNATURE, TENSORS = "manifest.json", "signature.json", "payload.safetensors"
REQUIRED = ("model.json", "schema.json", "certificate.json", "payload.json", TENSORS)
CUSTODIANS = "custodians.json"
OPTIONAL = ("diagnostics.json", CUSTODIANS)
JSON_MEMBERS = (MANIFEST, *(n for n in (*REQUIRED, *OPTIONAL) if n.endswith(".json")))
LARGEST = 2**30  # bytes of a file's members together, once unpacked
LARGEST_JSON = 2**24  # parsed, it takes some thirty times as much memory
REFETCH = "Fetch or write the file again."


class ReleaseError(PgbbError):
    """A release file cannot be read, or cannot be trusted as it is."""


def manifest_of(members: Mapping[str, bytes], kind: str) -> bytes:
    """The manifest of these members, whose payload has this kind; refuses what is larger than a file may be."""
    manifest = json_bytes(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "pgbb": pgbb.__version__,
            "payload": kind,
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
        }
    )
    plain = sum(len(data) for name, data in members.items() if name != TENSORS)
    if plain + len(manifest) > LARGEST_JSON or plain + len(members[TENSORS]) > LARGEST:
        raise ReleaseError(f"the release is larger than a file may be ({LARGEST_JSON:,} bytes without its tensors).")
    return manifest


def unpack(opened: Path | io.BytesIO, source: str) -> dict[str, bytes]:
    """The members by name, checked; `source` says in errors what was read."""
    try:
        with zipfile.ZipFile(opened) as archive:
            return _read(archive, source)
    except FileNotFoundError:
        raise ReleaseError(f"{source}: there is no such file. Check the path.") from None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise ReleaseError(
            f"{source} is not a readable release: it is damaged, cut short, or another kind of file "
            f"({type(error).__name__}). {REFETCH}"
        ) from None


def _read(archive: zipfile.ZipFile, source: str) -> dict[str, bytes]:
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
    manifest = _member(archive, archive.getinfo(MANIFEST))
    hashes = _hashes(manifest, source)
    missing = sorted(set(REQUIRED) - set(names) | (set(hashes) - set(names)))
    strange = sorted(set(names) - {MANIFEST, SIGNATURE, *REQUIRED, *OPTIONAL})
    if missing:
        raise ReleaseError(f"{source}: {missing[0]!r} is missing from the file. {REFETCH}")
    if strange:
        raise ReleaseError(f"{source}: member {strange[0]!r} has no place in a release. Do not open it.")
    contents = {MANIFEST: manifest} | {i.filename: _member(archive, i) for i in infos if i.filename != MANIFEST}
    for name, data in contents.items():
        if name not in (MANIFEST, SIGNATURE) and hashes.get(name) != hashlib.sha256(data).hexdigest():
            raise ReleaseError(
                f"{source}: {name} does not match its hash in the manifest: it was edited or damaged. "
                "Do not use it; ask for the original."
            )
    return contents


def _hashes(data: bytes, source: str) -> dict[str, str]:
    """The hashes that a manifest lists by member, if it is one that can be read."""
    manifest = parse(source, MANIFEST, data)
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
    return hashes


def _method(name: str) -> int:
    """Tensors are stored as they are, so that a small file holds small tensors."""
    return zipfile.ZIP_STORED if name == TENSORS else zipfile.ZIP_DEFLATED


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Unpack no more than the size that was declared; `archive.read` would unpack first and cut then."""
    with archive.open(info) as file:
        return file.read(info.file_size)


def parse(source: str, name: str, data: bytes) -> dict[str, Any]:
    """A member that must be one JSON object of finite numbers and visible text."""

    def refuse(constant: str) -> float:
        raise ValueError(constant)

    def finite(digits: str) -> float:
        value = float(digits)  # 1e999 is JSON, and infinite
        return value if math.isfinite(value) else refuse(digits)

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
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


def _refuse_controls(plain: object) -> None:
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


def json_bytes(plain: object) -> bytes:
    """A member's bytes: sorted keys, so that equal content has equal bytes and hashes."""
    try:
        text = json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"a part of the release is not plain JSON ({error}): use finite numbers and text.") from None
    return text.encode("utf-8")


def pack(contents: Mapping[str, bytes]) -> bytes:
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
