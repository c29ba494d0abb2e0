"""Signatures of releases: ed25519 keys in PEM files, their fingerprints, and who signed a manifest."""

import base64
import binascii
import hashlib
from pathlib import Path
from typing import cast

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pgbb import _validate
from pgbb._io import write_new
from pgbb.release.container import SIGNATURE, ReleaseError, json_bytes, parse

Key = str | Path | Ed25519PrivateKey
"""A private key, or the path of its PEM file."""


def fingerprint(public: Ed25519PublicKey) -> str:
    """What a signer publishes so that others can recognise the key: SHA256 of it, in base64."""
    digest = hashlib.sha256(public.public_bytes_raw()).digest()
    return "SHA256:" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def generate_key(path: str | Path) -> str:
    """Write a new ed25519 private key as PEM, readable by its owner only; returns the public fingerprint.

    Publish the fingerprint, keep the file. An existing file is never replaced.
    """
    from cryptography.hazmat.primitives import serialization  # slow to import

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        write_new(Path(path), pem, mode=0o600)
    except FileExistsError:
        raise ReleaseError(f"{path} exists, and a key is never replaced. Choose another path.") from None
    except OSError as error:
        raise ReleaseError(f"{path} cannot be written: {error.strerror}. Choose a folder that exists.") from None
    return fingerprint(key.public_key())


def private_key(key: Key) -> Ed25519PrivateKey:
    """The key itself, read from its PEM file if a path is given."""
    from cryptography.hazmat.primitives import serialization

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


def signature_of(manifest: bytes, key: Ed25519PrivateKey) -> bytes:
    """The member signature.json for a manifest."""
    public = key.public_key().public_bytes_raw()
    return json_bytes(
        {
            "algorithm": "ed25519",
            "public_key": base64.b64encode(public).decode(),
            "signature": base64.b64encode(key.sign(manifest)).decode(),
        }
    )


def signer_of(manifest: bytes, signature: bytes | None) -> str:
    """Say "valid by FINGERPRINT", "unsigned", or "INVALID" for a signature of anything but this manifest."""
    if signature is None:
        return "unsigned"
    try:
        plain = parse("the release", SIGNATURE, signature)
        if plain["algorithm"] != "ed25519":
            return "INVALID"
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(cast(str, plain["public_key"]), validate=True))
        public.verify(base64.b64decode(cast(str, plain["signature"]), validate=True), manifest)
    except (ReleaseError, InvalidSignature, KeyError, TypeError, ValueError, binascii.Error):
        return "INVALID"
    return f"valid by {fingerprint(public)}"
