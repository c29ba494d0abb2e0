import base64
import io
import json
import math
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from safetensors import numpy as safetensors

from pgbb.errors import InvalidValue, PgbbError
from pgbb.release.container import FORMAT_VERSION
from pgbb.release.file import Release, ReleaseError, load
from pgbb.release.signing import generate_key
from tests.helpers import python
from tests.release.builders import (
    certificate,
    edited,
    members,
    non_private,
    rewrite,
    stored_draws,
)
from tests.release.builders import generator_release as release

pytestmark = pytest.mark.quick

JSON = ("model.json", "schema.json", "certificate.json", "payload.json")


@pytest.fixture
def saved(tmp_path):
    return release().save(tmp_path / "r.pgbb")


@pytest.fixture
def signed(tmp_path):
    fingerprint = generate_key(tmp_path / "key.pem")
    return release().save(tmp_path / "s.pgbb", key=tmp_path / "key.pem"), fingerprint


@pytest.mark.parametrize(
    "original",
    [
        release(),
        release("interval"),
        release(None, reference_sd=[1.0, 2.0, 3.0]),
        release(payload=stored_draws()),
        release(None, payload=stored_draws(None)),
        release(claim=non_private()),
    ],
)
def test_a_release_survives_its_file(original, tmp_path):
    back = load(original.save(tmp_path / "r.pgbb"))
    assert back.model == original.model and back.certificate == original.certificate
    assert back.schema == original.schema and back.stored_diagnostics == original.stored_diagnostics
    assert back.payload.kind == original.payload.kind and back.payload.settings == original.payload.settings
    assert back.payload.tensors.keys() == original.payload.tensors.keys()
    assert all(np.array_equal(back.payload.tensors[k], v) for k, v in original.payload.tensors.items())
    tau = None if original.model.index is None else [0.1, 0.9]
    assert back.sample(20, tau=tau, seed=1).equals(original.sample(20, tau=tau, seed=1))
    assert repr(back) == repr(original)


def test_the_same_release_gives_the_same_bytes_and_no_pickle(saved, tmp_path):
    again = load(saved).save(tmp_path / "again.pgbb")
    assert again.read_bytes() == saved.read_bytes()
    assert set(members(saved)) == {"manifest.json", *JSON, "payload.safetensors"}
    manifest = json.loads(members(saved)["manifest.json"])
    assert manifest["format"] == "pgbb-release" and manifest["format_version"] == 1
    assert manifest["payload"] == "generator" and set(manifest["sha256"]) == {*JSON, "payload.safetensors"}


def test_two_thousand_draws_come_from_a_loaded_release_as_often_as_asked(saved):
    back = load(saved)
    first, second = back.sample(2000, tau=0.5), back.sample(2000, tau=0.5)
    assert first.shape == second.shape == (2000, 3)
    assert not first.equals(second)


def test_reading_a_release_needs_no_jax(saved):
    code = (
        "import sys; from pgbb.release.file import load; r = load(sys.argv[1]); v = r.verify(); "
        "assert v.ok; r.summary(); "
        "r.sample(10); r.contrast({('educ', .9): 1, ('educ', .1): -1}); repr(r); r.diagnostics(); "
        "print([m for m in ('jax', 'jaxlib', 'optax', 'matplotlib') if m in sys.modules])"
    )
    done = python(code, saved)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_release_travels_as_the_bytes_of_its_file(signed, saved):
    sent = release().to_bytes()
    assert sent == saved.read_bytes()
    back = Release.from_bytes(sent)
    assert back.certificate == release().certificate and back.verify().ok and back.to_bytes() == sent
    path, fingerprint = signed
    assert Release.from_bytes(path.read_bytes()).verify(signer=fingerprint).ok
    for data in (b"", sent[:-100], sent[: len(sent) // 2], sent.replace(b"manifest", b"manifesu")):
        with pytest.raises(ReleaseError, match="the release"):
            Release.from_bytes(data)


def test_a_file_of_the_time_when_method_pgbb_was_called_paper_loads_and_verifies():
    """Written by `fit(…, method="paper", steps=20)` of that time, with 8 units a layer to keep it small."""
    found = load(Path(__file__).parent / "data" / "paper.pgbb")
    assert found.payload.kind == "generator" and found.certificate.epsilon == 2.0
    assert found.verify().ok and found.summary(0.2).index.tolist() == ["Intercept", "x"]


def test_saving_is_whole_or_nothing(tmp_path, monkeypatch):
    target = tmp_path / "r.pgbb"
    release().save(target)
    before = target.read_bytes()

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pgbb._io.os.replace", broken)
    with pytest.raises(ReleaseError, match="No space"):
        release("interval").save(target)
    assert target.read_bytes() == before and list(tmp_path.iterdir()) == [target]


def test_saving_into_a_missing_folder_says_so(tmp_path):
    with pytest.raises(ReleaseError, match="folder"):
        release().save(tmp_path / "nowhere" / "r.pgbb")


def test_what_is_not_json_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InvalidValue, match="JSON"):
        release(reference_sd=math.nan).save(tmp_path / "r.pgbb")
    assert not list(tmp_path.iterdir())


# Corrupt files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99, -1])
def test_a_truncated_file_is_an_error(saved, keep):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(ReleaseError, match="damaged, cut short"):
        load(saved)


def test_a_file_that_is_not_a_zip_or_not_there_is_an_error(tmp_path):
    text = tmp_path / "notes.pgbb"
    text.write_text("schooling pays")
    for path in (text, tmp_path):
        with pytest.raises(ReleaseError, match="not a readable release"):
            load(path)
    with pytest.raises(ReleaseError, match="no such file"):
        load(tmp_path / "absent.pgbb")


def test_flipping_any_one_byte_is_noticed_or_harmless(saved):
    data = saved.read_bytes()
    expected = load(saved).sample(5, tau=0.5, seed=0)
    caught = 0
    positions = range(0, len(data), max(1, len(data) // 150))
    for position in positions:
        saved.write_bytes(data[:position] + bytes([data[position] ^ 0x20]) + data[position + 1 :])
        try:
            assert load(saved).sample(5, tau=0.5, seed=0).equals(expected)
        except ReleaseError:
            caught += 1
    assert caught > 0.9 * len(positions)


@pytest.mark.parametrize("name", ["manifest.json", *JSON, "payload.safetensors"])
def test_a_missing_member_is_named(saved, name):
    contents = members(saved)
    del contents[name]
    with pytest.raises(ReleaseError, match=name):
        load(rewrite(saved, contents))


@pytest.mark.parametrize("name", [*JSON, "payload.safetensors"])
def test_an_edited_member_does_not_match_its_hash(saved, name):
    contents = members(saved)
    contents[name] = contents[name][:-1] + b" "
    with pytest.raises(ReleaseError, match=f"{name} does not match its hash"):
        load(rewrite(saved, contents))


@pytest.mark.parametrize("name", ["../../evil.py", "/etc/passwd", "model.pkl", "sub/model.json"])
def test_a_member_without_a_place_in_a_release_is_refused(saved, name):
    with pytest.raises(ReleaseError, match="no place"):
        load(rewrite(saved, {**members(saved), name: b"boo"}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(saved):
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr("certificate.json", b"{}")
    with pytest.raises(ReleaseError, match="twice"):
        load(saved)


def test_a_newer_format_asks_for_an_upgrade_even_with_unknown_members(saved):
    contents = members(saved)
    manifest = json.loads(contents["manifest.json"])
    manifest["format_version"] = FORMAT_VERSION + 1
    contents.update({"manifest.json": json.dumps(manifest).encode(), "novelty.json": b"{}"})
    with pytest.raises(ReleaseError, match="Upgrade pgbb"):
        load(rewrite(saved, contents))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(format="other"),
        lambda m: m.update(format_version="1"),
        lambda m: m.update(format_version=0),
        lambda m: m.update(format_version=True),
        lambda m: m.pop("format_version"),
        lambda m: m.pop("sha256"),
        lambda m: m.pop("payload"),
        lambda m: m["sha256"].update({"other.json": "00"}),
        lambda m: m["sha256"].pop("model.json"),
    ],
)
def test_a_wrong_manifest_is_refused(saved, change):
    with pytest.raises(ReleaseError):
        load(edited(saved, "manifest.json", change, rehash=False))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000], ids=lambda d: repr(d[:8])
)
@pytest.mark.parametrize("name", ["manifest.json", "model.json", "certificate.json"])
def test_a_member_that_is_not_a_json_object_is_refused(saved, name, data):
    contents = {**members(saved), name: data}
    with pytest.raises(ReleaseError, match=name):
        load(rewrite(saved, contents, rehash=name != "manifest.json"))


def test_an_unknown_payload_kind_is_refused(saved):
    edited(saved, "payload.json", lambda p: p.update(kind="oracle"))
    with pytest.raises(ReleaseError, match="oracle"):
        load(edited(saved, "manifest.json", lambda m: m.update(payload="oracle"), rehash=False))


def test_a_payload_kind_that_contradicts_the_manifest_is_refused(saved):
    with pytest.raises(ReleaseError, match="manifest"):
        load(edited(saved, "payload.json", lambda p: p.update(kind="draws")))


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda t: t.pop("center"), "center"),
        (lambda t: t.update(extra=np.ones(2, np.float32)), "extra"),
        (lambda t: t.update(radius=np.ones(2, np.float32)), "radius"),
        (lambda t: t["average/kernel0"].__setitem__((0, 0), np.nan), "NaN"),
        (lambda t: t["average/kernel0"].__setitem__((0, 0), np.inf), "NaN or infinite"),
    ],
)
def test_wrong_tensors_are_refused_although_hashes_agree(saved, change, said):
    contents = members(saved)
    tensors = {k: v.copy() for k, v in safetensors.load(contents["payload.safetensors"]).items()}
    change(tensors)
    contents["payload.safetensors"] = safetensors.save(tensors)
    with pytest.raises(ReleaseError, match=said):
        load(rewrite(saved, contents, rehash=True))


def test_tensors_that_are_not_safetensors_are_refused(saved):
    contents = {**members(saved), "payload.safetensors": b"\x80\x04pickle"}
    with pytest.raises(ReleaseError, match="not that of a release"):
        load(rewrite(saved, contents, rehash=True))


@pytest.mark.parametrize(
    "member, change",
    [
        ("model.json", lambda m: m.pop("names")),
        ("model.json", lambda m: m.update(names=["a"])),
        ("model.json", lambda m: m.update(transform=[["x"]])),
        ("model.json", lambda m: m.update(index={"kind": "levels", "values": []})),
        ("model.json", lambda m: m.update(formula=["a"])),
        ("certificate.json", lambda c: c.update(sigma=-1.0)),
        ("certificate.json", lambda c: c.update(epsilon=None)),
        ("certificate.json", lambda c: c["mechanism"].update(steps=0)),
        ("payload.json", lambda p: p.update(settings=[])),
        ("payload.json", lambda p: p["settings"].update(blocks=7)),
        ("payload.json", lambda p: p["settings"].update(blocks="6")),
        ("payload.json", lambda p: p.update(code="import os")),
    ],
)
def test_wrong_contents_are_refused_although_hashes_agree(saved, member, change):
    with pytest.raises(ReleaseError):
        load(edited(saved, member, change))


def test_a_zip_bomb_is_refused_by_its_declared_size(saved, monkeypatch):
    monkeypatch.setattr("pgbb.release.container.LARGEST", 1000)
    with pytest.raises(ReleaseError, match="unpack to more"):
        load(saved)
    monkeypatch.undo()
    contents = {**members(saved), "model.json": b"0" * (2**26 + 1)}
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    with pytest.raises(ReleaseError, match="unpack to more"):
        load(saved)


def test_a_member_that_lies_about_its_size_is_refused(saved):
    contents = members(saved)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data + b" " * 5000 if name == "model.json" else data)
    data = bytearray(buffer.getvalue())
    true_size = (len(contents["model.json"]) + 5000).to_bytes(4, "little")
    assert data.count(true_size) == 2
    saved.write_bytes(bytes(data).replace(true_size, (10).to_bytes(4, "little")))
    with pytest.raises(ReleaseError):
        load(saved)


# Verification ---------------------------------------------------------------------------------------------------------


def test_an_honest_release_verifies_in_memory_and_from_its_file(saved):
    for r, hashes in ((release(), "in memory"), (load(saved), "5 members match")):
        found = r.verify()
        assert found.ok and not found.problems and found.signature == "unsigned"
        assert any(hashes in line for line in found.lines) and "verified" in str(found)
        assert found.epsilons["exact"] < found.epsilons["paper"] == r.certificate.epsilon
        assert all(f"ε by {name}" in str(found) for name in found.epsilons)
        json.dumps(found.to_dict(), allow_nan=False)


def test_a_lowered_epsilon_fails_although_hashes_agree(saved):
    def lower(plain):
        plain["epsilon"] /= 2

    found = load(edited(saved, "certificate.json", lower)).verify()
    assert not found.ok and found.signature == "unsigned" and "claim is false" in found.problems[0]


@pytest.mark.parametrize("field, value", [("sigma", 0.01), ("delta", 1e-9)])
def test_any_parameter_that_would_cost_more_than_the_claim_fails(saved, field, value):
    assert not load(edited(saved, "certificate.json", lambda c: c.update({field: value}))).verify().ok


@pytest.mark.parametrize(
    "claim, said", [(non_private(), "no privacy"), (certificate(randomness="insecure seed"), "reproducible")]
)
def test_a_release_without_privacy_is_marked_everywhere(claim, said):
    r = release(claim=claim)
    found = r.verify()
    assert not found.ok and said in found.problems[0] and "FAILED" in str(found)
    assert "NOT PRIVATE" in repr(r) and "NOT PRIVATE" in r._repr_html_()
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_signature_is_valid_by_its_key(signed):
    path, fingerprint = signed
    found = load(path).verify()
    assert found.ok and found.signature == f"valid by {fingerprint}"
    assert load(path).verify(signer=fingerprint).ok
    other = load(path).verify(signer="SHA256:another")
    assert not other.ok and "another" in other.problems[0]
    assert not release().verify(signer=fingerprint).ok


def test_editing_a_signed_file_fails_rehashing_it_is_invalid_and_stripping_it_is_unsigned(signed):
    path, _ = signed
    original = members(path)
    with pytest.raises(ReleaseError, match="hash"):
        load(edited(path, "certificate.json", lambda c: c.update(notes=["trust me"]), rehash=False))
    rewrite(path, original)
    found = load(edited(path, "certificate.json", lambda c: c.update(notes=["trust me"]))).verify()
    assert not found.ok and found.signature == "INVALID" and "changed after signing" in found.problems[0]
    stripped = members(path)
    del stripped["signature.json"]
    found = load(rewrite(path, stripped)).verify()
    assert found.ok and found.signature == "unsigned"


@pytest.mark.parametrize(
    "signature",
    [
        b"{}",
        b"nonsense",
        b'{"algorithm": "none", "public_key": "", "signature": ""}',
        b'{"algorithm": "ed25519", "public_key": "AAAA", "signature": "AAAA"}',
        b'{"algorithm": "ed25519", "public_key": 1, "signature": null}',
    ],
)
def test_a_malformed_signature_is_invalid(signed, signature):
    path, _ = signed
    found = load(rewrite(path, {**members(path), "signature.json": signature})).verify()
    assert not found.ok and found.signature == "INVALID"


def test_a_signature_by_another_key_is_valid_by_that_key_only(signed):
    path, fingerprint = signed
    contents = members(path)
    stranger = Ed25519PrivateKey.generate()
    forged = {
        "algorithm": "ed25519",
        "public_key": base64.b64encode(stranger.public_key().public_bytes_raw()).decode(),
        "signature": base64.b64encode(stranger.sign(contents["manifest.json"])).decode(),
    }
    back = load(rewrite(path, {**contents, "signature.json": json.dumps(forged).encode()}))
    assert back.verify().signature.startswith("valid by") and fingerprint not in back.verify().signature
    assert not back.verify(signer=fingerprint).ok


def test_saving_a_loaded_file_again_does_not_carry_its_signature(signed, tmp_path):
    again = load(signed[0]).save(tmp_path / "again.pgbb")
    assert load(again).verify().signature == "unsigned"
    key = Ed25519PrivateKey.generate()
    assert load(load(signed[0]).save(again, key=key)).verify().signature.startswith("valid by")


def test_a_key_is_readable_by_its_owner_only_and_never_replaced(tmp_path):
    path = tmp_path / "key.pem"
    assert generate_key(path).startswith("SHA256:")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ReleaseError, match="never replaced"):
        generate_key(path)
    with pytest.raises(ReleaseError, match="folder"):
        generate_key(tmp_path / "no" / "key.pem")


def test_a_key_of_another_kind_is_refused_before_anything_is_written(tmp_path):
    curve = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "ec.pem").write_bytes(curve)
    (tmp_path / "text.pem").write_text("secret")
    for key in (tmp_path / "ec.pem", tmp_path / "text.pem", tmp_path / "absent.pem", 7):
        with pytest.raises(PgbbError, match="key"):
            release().save(tmp_path / "r.pgbb", key=key)
    assert not (tmp_path / "r.pgbb").exists()


def test_parts_of_a_release_cannot_be_exchanged_after_loading(saved):
    back = load(saved)
    with pytest.raises(AttributeError):
        back.certificate = replace(back.certificate, epsilon=9.0)
